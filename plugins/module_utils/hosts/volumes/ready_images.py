# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Source images for volumes of one backend: fetched and checked, or found in its cache, or added to it."""

from __future__ import annotations

import contextlib
import typing as t
from dataclasses import dataclass, field

from ...core.amounts import GIB
from ...core.errors import BootflowError, ImageNotFound
from ...core.volumes.names import DISCARD
from ...core.volumes.retry import as_copy_failure
from ..images.images import ImageSource
from ..lvm import lvm
from ..lvm.lvm import LogicalVolume, VolumeGroup
from ..lvm.lvm_tags import IMAGE, INCOMPLETE, lv_name, owner_tags
from . import copy, follow, image_cache
from .backend import Backend
from .image_cache import CachedImage
from .process import Steps
from .published import PublishedImage, catalogue_checksum, published_image
from .volume_images import CheckedImage, TemporaryImages, check_fits_volume


@dataclass(frozen=True)
class ReadyImage:
    """An image to copy (``image``), or one that is already on the backend (``lv``)."""

    virtual_size: int
    sha256: str
    image: CheckedImage | None = None
    lv: LogicalVolume | None = None
    cached: CachedImage | None = None  # existed before
    records: tuple[str, ...] = ()  # tags that ``cached`` is to have


@dataclass
class ReadyImages:
    """The images of a batch. ``evicted``: cached images that were evicted for them or for space."""

    backend: Backend
    sources: dict[str, ImageSource]
    temporary: TemporaryImages
    evicted: list[CachedImage] = field(default_factory=list)
    #: Holds the cached images from which this round creates volumes.
    holds: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)
    #: What the catalogue says of the images' files, by image id.
    published: dict[str, PublishedImage | None] = field(default_factory=dict)
    #: The entries of the cache that this round has found and holds, by image id.
    entries: dict[str, CachedImage] = field(default_factory=dict)

    @property
    def _caches(self) -> bool:
        return bool(self.backend.pool) and self.backend.image_cache

    @contextlib.contextmanager
    def held(self, image_ids: t.Collection[str]) -> t.Iterator[None]:
        """Protect the images from find(), and additions to the cache, from eviction until the end.

        Addresses of checksums are read first: never while the group is locked.
        """
        self.entries = {}
        for image_id in sorted(image_ids) if self._caches else ():
            if image_id not in self.published and image_id in self.sources:
                self.published[image_id] = _published(self.sources[image_id], not self.backend.check_mode)
        with contextlib.ExitStack() as self.holds:
            yield

    def find(self, group: VolumeGroup, image_ids: t.Collection[str]) -> set[str]:
        """Find these images in the cache. Returns the sha256 of their content. The caller holds the lock of the group."""
        cached_entries = image_cache.cached_images(group, self.backend.pool)
        for image_id in image_ids:
            published = self.published.get(image_id)
            entry = image_cache.entry_of(cached_entries, published) if published is not None else None
            if entry is not None:
                self.entries[image_id] = entry
        needed = {entry.sha256 for entry in self.entries.values()}
        for sha256 in sorted(needed) if not self.backend.check_mode else ():
            self.holds.enter_context(image_cache.in_use(sha256))
        return needed

    def take(self, image_id: str, largest: int) -> ReadyImage:
        """Return the checked image, for volumes of at most ``largest`` bytes.

        :raises ImageNotFound, ImageUnacceptable: the image is not available, or is rejected.
        """
        source = self.sources.get(image_id)
        if source is None:
            raise ImageNotFound(image_id=image_id, remedy="Add the image to the images of this task.")
        entry, published = self.entries.get(image_id), self.published.get(image_id)
        if entry is not None and published is not None:
            return _ready(entry, published.address_tags())
        if not source.url and not source.path:
            raise ImageNotFound(image_id=image_id, remedy="Set url or path_on_host of the image, or upload it.")
        image = self.temporary.take(source, limit=largest)
        # Before anything is created from it.
        check_fits_volume(source.label, image.virtual_size, largest // GIB)
        with contextlib.ExitStack() as stack:
            stack.callback(self.temporary.drop, image)
            cached_image = self._cache(image) if self._caches else None
            if cached_image is None:
                stack.pop_all()
            return cached_image or ReadyImage(image.virtual_size, image.sha256, image=image)

    def drop(self, images: t.Iterable[ReadyImage]) -> None:
        """Remove the fetched files of these images."""
        for ready_image in images:
            if ready_image.image is not None:
                self.temporary.drop(ready_image.image)

    def make_room(self, group: VolumeGroup, wanted: int, needed: t.Collection[str], urgent: bool) -> VolumeGroup:
        """Evict unused cached images if the pool lacks ``wanted`` bytes; returns the group afterwards."""
        images = image_cache.for_room(group, self.backend.pool, wanted, needed, urgent)
        if not images:
            return group
        if self.backend.check_mode:
            return image_cache.without(group, self.backend.pool, images)
        self.evicted += image_cache.evict(group, images, self.backend.clear == DISCARD).removed
        return lvm.read_group(group.name, group.ledger_id)

    def note(self, group: VolumeGroup, wanted: t.Mapping[str, ReadyImage], copied: int) -> None:
        """Record the use of the images from which volumes are created now, and make space for images that are not cached.

        :arg wanted: by image id. :arg copied: bytes that are written directly to the volumes.
        The caller holds the lock of the group.
        """
        pool, discard = self.backend.pool, self.backend.clear == DISCARD
        if not pool:
            return
        hits = {
            image_id: ready_image.cached for image_id, ready_image in wanted.items() if ready_image.cached is not None
        }
        known = image_cache.cached_images(group, pool)
        with contextlib.suppress(BootflowError):  # a use that is not recorded now is recorded the next time
            image_cache.note_use(
                group.name, hits, {image_id: ready_image.records for image_id, ready_image in wanted.items()}
            )
            for image_id, ready_image in wanted.items():
                sha256 = ready_image.sha256
                if any(image_id in image.image_ids and image.sha256 != sha256 for image in known):
                    self.evicted += image_cache.note_other(group, pool, image_id, sha256, discard)
        if copied:
            self.make_room(
                lvm.read_group(group.name, group.ledger_id),
                copied,
                {ready_image.sha256 for ready_image in wanted.values()},
                urgent=True,
            )

    def write(self, group: VolumeGroup, image: CheckedImage, path: str, steps: Steps, alone: bool = True) -> None:
        """Copy the image to the device ``path``. :arg alone: no other copy reads its file meanwhile.

        :raises ImageCopyFailure: for any failure.
        """
        zeros = bool(self.backend.pool) and group.zeroing.get(self.backend.pool, False)
        # If many copies read the same file, the page cache saves all but one of the reads.
        direct = image.direct and alone
        with _copying():
            steps.at("converting")
            if self.backend.verify:
                follow.convert_and_verify(
                    image.path, image.driver, image.sha256, path, image.virtual_size, steps.at, zeros, direct
                )
            else:
                copy.convert(
                    image.path, image.driver, path, lambda percent: steps.at("converting", percent), zeros, direct
                )
            image.check_steady()

    def _same_content(self, group: VolumeGroup, image: CheckedImage) -> CachedImage | None:
        """Return the complete entry with the content of this image, whatever it was made from."""
        for entry in image_cache.cached_images(group, self.backend.pool):
            if entry.sha256 == image.sha256 and entry.is_complete and entry.virtual_size:
                return entry
        return None

    def _admit(self, group: VolumeGroup, image: CheckedImage, size: int) -> bool:
        """Return whether the cache can hold one more image of ``size`` bytes, after evicting others."""
        pool, discard = self.backend.pool, self.backend.clear == DISCARD
        fits, evicted_images = image_cache.admit(group, pool, image.sha256, size, self.backend.cache_limits, discard)
        self.evicted += evicted_images
        if fits:
            self.make_room(
                lvm.read_group(group.name, group.ledger_id) if evicted_images else group,
                size,
                {image.sha256},
                urgent=True,
            )
        return fits

    def _cache(self, image: CheckedImage) -> ReadyImage | None:
        """Cache the image on a read-only thin volume, from which volumes are made as snapshots without another copy.

        None: the image is larger than the cache, or all other images are in use, or its content is there as a disk of another format.
        """
        published = published_image(image.source, image.checksum)
        name = lv_name(IMAGE, image.sha256, self.backend.ledger_id)
        self.holds.enter_context(image_cache.in_use(image.sha256))
        with lvm.item_locks([image.sha256]):
            with lvm.group_lock(self.backend.vg):
                group = lvm.read_group(self.backend.vg, self.backend.ledger_id)
                entry = self._same_content(group, image)
                if entry is not None:
                    if entry.virtual_size != image.virtual_size or entry.driver not in ("", image.driver):
                        return None
                    return _ready(entry, published.tags(image.sha256))
                if name in group.lvs:
                    lvm.remove(group.name, [name])
                size = group.rounded(image.virtual_size)
                if not self._admit(group, image, size):
                    return None
                tags = owner_tags(IMAGE, image.sha256, ledger_id=self.backend.ledger_id) + [
                    "bootflow.size=%d" % image.virtual_size,
                    INCOMPLETE,
                ]
                tags += image_cache.entry_tags(published, image.sha256)
                lvm.create_thin(group.name, self.backend.pool, name, size, tags)
            try:
                with Steps(image.source.id) as steps:
                    self.write(group, image, group.path(name), steps)
                with lvm.group_lock(group.name):
                    lvm.seal(group.name, name, INCOMPLETE)
            except BaseException:
                with contextlib.suppress(BootflowError):
                    with lvm.group_lock(group.name):
                        lvm.remove(group.name, [name])
                raise
        lv = LogicalVolume(name=name, uuid="", size=size, attr="Vri-a-tz--", pool=self.backend.pool)
        return ReadyImage(image.virtual_size, image.sha256, lv=lv)


def _ready(entry: CachedImage, records: t.Iterable[str]) -> ReadyImage:
    return ReadyImage(entry.virtual_size, entry.sha256, lv=entry.lv, cached=entry, records=tuple(records))


def _published(source: ImageSource, ask: bool) -> PublishedImage | None:
    """Return the catalogue's facts of the image's file; None if the cache cannot be asked for it."""
    try:
        published = published_image(source, catalogue_checksum(source, ask))
    except BootflowError:
        return None  # rejected when it is fetched
    return published if published.checksum is not None or published.address else None


@contextlib.contextmanager
def _copying() -> t.Iterator[None]:
    """Turn every failure of copying an image into an ImageCopyFailure, which is not rescheduled."""
    try:
        yield
    except BootflowError as error:
        raise as_copy_failure(error) from error
