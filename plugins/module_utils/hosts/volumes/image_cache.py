# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The image cache of a thin backend: images as read-only thin volumes, and their eviction.

Tags of an entry record its images in the catalogue (``bootflow.of``), its last use (``bootflow.used``, seconds since
the epoch by this host's clock), and the file that it was made from (see published). Volumes created from an entry are
thin snapshots, which do not depend on the entry. A run that is about to create a volume from an entry holds a shared lock of it; eviction
needs an exclusive lock, and otherwise skips the entry.

Unlike in a page cache, entries are not evicted while guests write, only by work on the backend.
source: Cinder's image-volume cache (cinder/image/cache.py, Queens)
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import time
import typing as t
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from ...core.amounts import GIB
from ...core.disks.checksums import SHA256, Checksum
from ...core.errors import BootflowError, InvalidInput
from ..lvm import lvm
from ..lvm.lvm import LogicalVolume, VolumeGroup
from ..lvm.lvm_tags import IMAGE, INCOMPLETE, LEDGER, checked_tag, identity, lv_name, tag_value, tag_values
from ..os.batch import progress
from ..os.locks import release, take
from ..os.paths import own_folder
from . import copy
from .published import PublishedImage, full_text, published_addresses, published_checksums, published_driver

#: Seconds. A use this soon after the last one is not recorded, because it would cost a command for each batch.
FRESH = 60

_NUMBER = re.compile(r"[0-9]{1,18}\Z")


@dataclass(frozen=True)
class Limits:
    """Cinder's image_volume_cache_max_size_gb and image_volume_cache_max_count; 0: no limit."""

    max_gb: int = 0
    max_count: int = 0


@dataclass(frozen=True)
class CachedImage:
    """``users``: logical volumes that were created from it and still share its blocks, as far as LVM reports.

    ``driver``, ``checksums``, ``addresses``: of the file that it was made from, see published.
    """

    lv: LogicalVolume
    sha256: str  # of the content, before its conversion
    virtual_size: int = 0  # bytes; 0: unknown
    driver: str = ""
    checksums: frozenset[Checksum] = frozenset()
    addresses: frozenset[str] = frozenset()
    image_ids: frozenset[str] = frozenset()
    used_at: int = 0
    users: int = 0

    @property
    def is_complete(self) -> bool:
        return INCOMPLETE not in self.lv.tags

    @property
    def written(self) -> int:
        """Return the bytes that it uses in the pool."""
        return int(self.lv.size * (self.lv.data_percent or 0.0) / 100)

    def as_dict(self) -> dict[str, t.Any]:
        return {
            "name": self.lv.name,
            "checksum": self.sha256,
            "published": sorted(map(full_text, self.checksums)),
            "image_ids": sorted(self.image_ids),
            "size": self.lv.size,
            "written": self.written,
            "used_at": self.used_at,
            "users": self.users,
            "complete": self.is_complete,
        }


def cached_images(group: VolumeGroup, pool: str) -> list[CachedImage]:
    """Return the entries in the pool; incomplete ones first, then the least recently used."""
    images = []
    for lv in group.lvs.values():
        kind, sha256 = identity(lv.tags, group.ledger_id)
        if kind != IMAGE or lv.pool != pool or not _is_name_of(lv, sha256):
            continue
        used, size = tag_value(lv.tags, "used"), tag_value(lv.tags, "size")
        images.append(
            CachedImage(
                lv=lv,
                sha256=sha256,
                virtual_size=_number(size),
                driver=published_driver(lv.tags),
                checksums=published_checksums(lv.tags),
                addresses=published_addresses(lv.tags),
                image_ids=frozenset(tag_values(lv.tags, "of")),
                used_at=_number(used),
                users=len(group.snapshots_of(lv.name)),
            )
        )
    return sorted(images, key=lambda image: (image.is_complete, image.used_at, image.lv.name))


def _number(text: str) -> int:
    return int(text) if _NUMBER.match(text) else 0


def _is_name_of(lv: LogicalVolume, sha256: str) -> bool:
    try:
        return lv.name == lv_name(IMAGE, sha256, tag_value(lv.tags, LEDGER))
    except InvalidInput:
        return False


def entry_of(entries: t.Iterable[CachedImage], image: PublishedImage) -> CachedImage | None:
    """Return the complete entry that was made from this file, or has its content; None if there is none.

    While the address of the checksum does not answer: the one entry of the image that had a checksum from there.
    """
    candidates = [e for e in entries if e.is_complete and e.virtual_size and e.driver in ("", image.driver)]
    checksum = image.checksum
    if checksum is None:
        candidates = [e for e in candidates if image.image_id in e.image_ids and image.address in e.addresses]
        return candidates[0] if len(candidates) == 1 else None
    made_from = (e for e in candidates if checksum in e.checksums)
    same_content = (e for e in candidates if checksum == Checksum(SHA256, e.sha256))
    return next(made_from, None) or next(same_content, None)


def yielding(group: VolumeGroup, pool: str) -> list[CachedImage]:
    """Return the entries without volumes: they are evicted when space is needed, and capacity() counts them as free.

    If the volume of an entry was deleted but clones of that volume exist, they still share blocks with the entry, which LVM does not
    report: then less space is freed than it uses.
    """
    return [image for image in cached_images(group, pool) if not image.users]


# --- who has one at hand ------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def in_use(sha256: str) -> t.Iterator[None]:
    """Prevent the eviction of the entry meanwhile."""
    with _lock_folder() as folder:
        fd = take(folder, sha256, fcntl.LOCK_SH)
        try:
            yield
        finally:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:  # another run holds it as well
                os.close(fd)
            else:
                release(folder, sha256, fd)


@contextlib.contextmanager
def _unused(sha256: str) -> t.Iterator[None]:
    """Prevent the use of the entry meanwhile. Raises BlockingIOError."""
    with _lock_folder() as folder:
        fd = take(folder, sha256, fcntl.LOCK_EX | fcntl.LOCK_NB)
        try:
            yield
        finally:
            release(folder, sha256, fd)


def _lock_folder() -> t.ContextManager[int]:
    return own_folder(os.path.join(lvm.LOCK_ROOT, "image-locks"), 0o700)


# --- what is noted of them ----------------------------------------------------------------------------------------------


def entry_tags(image: PublishedImage, sha256: str) -> list[str]:
    """Return the tags of a new entry of this image. :arg sha256: of its content."""
    return ["bootflow.used=%d" % time.time(), _image_tag(image.image_id), *image.tags(sha256)]


def _image_tag(image_id: str) -> str:
    return checked_tag("bootflow.of=%s" % image_id)


def note_use(
    vg: str,
    used: t.Mapping[str, CachedImage],
    records: t.Mapping[str, t.Sequence[str]] = MappingProxyType({}),
) -> None:
    """Record that volumes are created now from these entries (by image id). The caller holds the lock of the group.

    :arg records: tags of what this host has verified of an image's file; tags that its entry lacks are added.
    """
    now = int(time.time())
    for image_id, image in used.items():
        lacking = [tag for tag in [_image_tag(image_id), *records.get(image_id, ())] if tag not in image.lv.tags]
        if lacking:
            lvm.change_tags(vg, [image.lv.name], add=lacking)
    stale = [image for image in used.values() if not now - FRESH < image.used_at <= now]
    if stale:
        names = sorted({image.lv.name for image in stale})
        then = ["bootflow.used=%d" % image.used_at for image in stale if image.used_at != now]
        lvm.change_tags(vg, names, add=["bootflow.used=%d" % now], remove=sorted(set(then)))


def note_other(group: VolumeGroup, pool: str, image_id: str, sha256: str, discard: bool) -> list[CachedImage]:
    """Remove the image, which has this content now, from entries with its former content, and evict those without another image.

    :returns: the evicted entries. The caller holds the lock of the group.
    """
    group = lvm.read_group(group.name, group.ledger_id)
    outdated = [i for i in cached_images(group, pool) if image_id in i.image_ids and i.sha256 != sha256]
    for image in outdated:
        if len(image.image_ids) > 1:
            lvm.change_tags(group.name, [image.lv.name], remove=[_image_tag(image_id)])
    return evict(group, [image for image in outdated if len(image.image_ids) == 1], discard).removed


# --- which go -----------------------------------------------------------------------------------------------------------


def over_limits(images: t.Sequence[CachedImage], size: int, limits: Limits) -> list[CachedImage] | None:
    """Return the entries of ``images``, in their order, to evict before an entry of ``size`` bytes is added; None: it cannot be added.

    Sizes are virtual sizes, not the written data.
    """
    most = limits.max_gb * GIB
    if most and size > most:
        return None
    count, total = len(images) + 1, sum(image.lv.size for image in images) + size
    chosen: list[CachedImage] = []
    for image in images:
        if not (most and total > most) and not (limits.max_count and count > limits.max_count):
            break
        chosen.append(image)
        count, total = count - 1, total - image.lv.size
    return chosen


def for_room(
    group: VolumeGroup, pool: str, wanted: int, needed: t.Collection[str] = (), urgent: bool = False
) -> list[CachedImage]:
    """Return the entries to evict until the pool has ``wanted`` unwritten bytes.

    :arg needed: sha256 of images to keep.
    :arg urgent: the bytes are written immediately, so evict whatever helps. Otherwise evict only if that frees enough space.
    """
    missing = wanted - lvm.pool_room(group, pool)
    chosen: list[CachedImage] = []
    for image in yielding(group, pool):
        if missing <= 0:
            break
        if image.sha256 not in needed:
            chosen.append(image)
            missing -= image.written
    return chosen if missing <= 0 or urgent else []


def without(group: VolumeGroup, pool: str, images: t.Sequence[CachedImage]) -> VolumeGroup:
    """Return the group as it would be without these entries, which have no volumes."""
    names = {image.lv.name for image in images}
    lvs = {name: lv for name, lv in group.lvs.items() if name not in names}
    data = (lvs[pool].data_percent or 0.0) - 100.0 * sum(image.written for image in images) / lvs[pool].size
    lvs[pool] = replace(lvs[pool], data_percent=max(0.0, data))
    return replace(group, lvs=lvs)


# --- eviction -----------------------------------------------------------------------------------------------------------


@dataclass
class Evicted:
    removed: list[CachedImage] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)  # name -> reason


def evict(group: VolumeGroup, images: t.Sequence[CachedImage], discard: bool = False) -> Evicted:
    """Remove entries, except entries that are open or used by a run. The caller holds the lock of the group.

    :arg discard: also discard their blocks on the underlying device.
    """
    eviction = Evicted()
    with contextlib.ExitStack() as stack:
        free = []
        for image in images:
            if image.lv.is_open:
                eviction.refused[image.lv.name] = "open in a program"
                continue
            try:
                stack.enter_context(_unused(image.sha256))
            except BlockingIOError:
                eviction.refused[image.lv.name] = "used by a run that creates volumes from it"
                continue
            free.append(image)
        if not free:
            return eviction
        progress.mark_changed()
        try:
            for image in free if discard else ():
                _discard(group, image)
            lvm.remove(group.name, [image.lv.name for image in free])
            eviction.removed = free
        except (BootflowError, OSError) as error:
            remaining_volumes = lvm.read_group(group.name).lvs
            eviction.removed = [image for image in free if image.lv.name not in remaining_volumes]
            for image in free:
                if image.lv.name in remaining_volumes:
                    eviction.refused[image.lv.name] = error.message if isinstance(error, BootflowError) else str(error)
    return eviction


def admit(
    group: VolumeGroup, pool: str, sha256: str, size: int, limits: Limits, discard: bool = False
) -> tuple[bool, list[CachedImage]]:
    """Return (whether an entry of ``size`` bytes can be added, what was evicted for it). The caller holds the lock of the group."""
    remaining = [image for image in cached_images(group, pool) if image.sha256 != sha256]
    busy: list[CachedImage] = []
    evicted_images: list[CachedImage] = []
    while True:
        chosen = over_limits(remaining + busy, size, limits)
        if not chosen:
            return chosen is not None, evicted_images
        chosen = [image for image in chosen if image in remaining]
        if not chosen:
            return False, evicted_images
        went = evict(group, chosen, discard).removed
        evicted_images += went
        busy += [image for image in chosen if image not in went]
        remaining = [image for image in remaining if image not in chosen]


def _discard(group: VolumeGroup, image: CachedImage) -> None:
    # An entry without its content must not be used as a complete one, however this run ends.
    lvm.unseal(group.name, image.lv.name, INCOMPLETE)
    if not image.lv.is_active:
        lvm.set_active(group.name, [image.lv.name], True)
    copy.discard(group.path(image.lv.name))


def empty(
    vg: str,
    pool: str,
    images: t.Collection[str] | None = None,
    unused: bool = False,
    discard: bool = False,
    check_mode: bool = False,
    ledger_id: str = "",
) -> dict[str, t.Any]:
    """Return {images: all existing, removed: names, kept: {name: reason}}; see the module volume_image_cache.

    :arg images: ids or checksums of images; None: all. :arg unused: only those without volumes.
    :raises DriverNotInitialized: the group or the pool does not exist.
    """

    def is_meant(image: CachedImage) -> bool:
        if unused and image.users:
            return False
        known = {Checksum(SHA256, image.sha256), *image.checksums}
        names = {*map(str, known), *map(full_text, known), *image.image_ids}
        return images is None or bool(names & set(images))

    with lvm.group_lock(vg) if not check_mode else contextlib.nullcontext():
        group = lvm.read_group(vg, ledger_id)
        lvm.check_group(group, pool)
        cached_entries = cached_images(group, pool)
        meant = [image for image in cached_entries if is_meant(image)]
        if check_mode:
            eviction = Evicted(removed=[image for image in meant if not image.lv.is_open])
        else:
            eviction = evict(group, meant, discard)
    return {
        "images": [image.as_dict() for image in cached_entries],
        "removed": sorted(image.lv.name for image in eviction.removed),
        "kept": eviction.refused,
    }
