# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Volumes and snapshots of one LVM backend, many at once: what the volume_lvm module does.

The volume group is read once before and once after. What LVM has to do is done one after the other under the group's
lock (LVM itself would do the same); data is copied side by side without it. A volume whose content is not all there
bears the tag ``bootflow.incomplete`` from the command that made it: a run that was killed leaves nothing but such
volumes, and the next one begins them anew.

source: rows C19-C30; semantics 11, 14
"""

from __future__ import annotations

import collections
import contextlib
import typing as t
from dataclasses import dataclass, field

from ..core import image_checks
from ..core.errors import BootflowError, ImageNotFound, ImageUnacceptable, InvalidInput
from ..core.volumes.outcome import as_copy_failure
from . import iscsi_target_tgt, lvm, volume_cache, volume_copy, volume_follow
from .batch import progress, run_batch
from .images import ImageSource
from .lvm import LogicalVolume, VolumeGroup
from .lvm_facts import capacity, moment
from .lvm_tags import DELETING, IMAGE, INCOMPLETE, SNAPSHOT, VOLUME, checked_name, lv_name, owner_tags, tag_value
from .module_errors import failure
from .volume_cache import CachedImage, Limits
from .volume_images import CheckedImage, TemporaryImages, check_fits_volume, checked_temp_dir, image_source
from .volume_plan import (
    ABSENT,
    ACTIVATE,
    CREATE,
    EXTEND,
    NOTHING,
    REDO,
    REMOVE,
    Plan,
    Wish,
    logical_size,
    plan,
    wish_of,
)
from .volume_process import Steps

GIB = 1024**3
ZERO, SHRED, NONE, DISCARD = "zero", "shred", "none", "discard"
#: What becomes of the data of a volume that is deleted.
CLEARS = (ZERO, SHRED, NONE, DISCARD)

Outcome = dict[str, t.Any]


@dataclass(frozen=True)
class Backend:
    """A backend and how it is to be worked on. ``pool`` is "" for thick volumes."""

    vg: str
    pool: str = ""
    clear: str = ZERO
    clear_size: int = 0  # bytes; 0: all
    temp_dir: str = "/var/lib/bootflow/conversion"
    verify: bool = True
    image_cache: bool = True  # thin only
    cache_limits: Limits = field(default_factory=Limits)
    allow_unverified: bool = False
    workers: int = 4
    check_mode: bool = False

    def checked(self) -> Backend:
        """:raises InvalidInput: names that LVM does not take, or a way to clear that does not clear."""
        checked_name(self.vg, "volume group")
        if self.pool:
            checked_name(self.pool, "thin pool")
        if self.clear not in CLEARS or self.clear_size < 0:
            raise InvalidInput(reason="clear %r, %d bytes" % (self.clear, self.clear_size))
        if self.cache_limits.max_gb < 0 or self.cache_limits.max_count < 0:
            raise InvalidInput(reason="an image cache of less than nothing; 0 is no limit")
        if self.clear == DISCARD and not self.pool:
            raise InvalidInput(
                reason="discard does not clear thick volumes: many devices give back old data after it",
                remedy="Use zero, shred or none.",
            )
        checked_temp_dir(self.temp_dir)
        return self


@dataclass(frozen=True)
class _Ready:
    """An image that can be copied (``image``), or is on the backend already (``lv``)."""

    virtual_size: int
    sha256: str
    image: CheckedImage | None = None
    lv: LogicalVolume | None = None
    cached: CachedImage | None = None  # it was there before


@dataclass
class _Batch:
    backend: Backend
    images: dict[str, ImageSource]
    temporary: TemporaryImages
    outcomes: dict[str, Outcome] = field(default_factory=dict)
    before: dict[str, t.Any] = field(default_factory=dict)
    after: dict[str, t.Any] = field(default_factory=dict)
    evicted: list[CachedImage] = field(default_factory=list)
    #: Holds the cached images that this round makes volumes of.
    holds: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)

    # ---- one round: wishes that do not wait for each other ------------------------------------------------------------

    def round(self, wishes: t.Sequence[Wish]) -> None:
        with contextlib.ExitStack() as self.holds:
            if not self.backend.check_mode:
                for sha256 in sorted(self._images_of(wishes)):
                    self.holds.enter_context(volume_cache.in_use(sha256))
            self._round(wishes)

    def _images_of(self, wishes: t.Sequence[Wish]) -> set[str]:
        """sha256 of the images that volumes are to be made from on a thin backend, as far as they are known."""
        if not self.backend.pool:
            return set()
        wanted = {wish.image_id for wish in wishes if wish.state != ABSENT}
        sources = [source for image_id, source in self.images.items() if image_id in wanted]
        return {sha256 for sha256 in map(_checksum, sources) if sha256}

    def _round(self, wishes: t.Sequence[Wish]) -> None:
        with lvm.group_lock(self.backend.vg):
            group = lvm.read_group(self.backend.vg)
            lvm.check_group(group, self.backend.pool)
            plans = self._plans(wishes, group)
            if self.backend.pool:
                group, plans = self._with_room(group, plans, self._images_of(wishes))
            if self.backend.check_mode:
                for made in plans:
                    self._done(group, made, made.action != NOTHING)
                return
            self._stage([p for p in plans if p.action == NOTHING], lambda p: self._done(group, p, False))
            self._stage([p for p in plans if p.action == ACTIVATE], lambda p: self._activate(group, p))
            self._stage([p for p in plans if p.action == EXTEND], lambda p: self._extend(group, p))
            self._mark_deleting(group, [p for p in plans if p.action == REMOVE])
        self._remove(group, [p for p in plans if p.action == REMOVE and p.wish.id not in self.outcomes])
        creations = [p for p in plans if p.action in (CREATE, REDO)]
        if creations:
            self._create(group, creations)

    def _plans(self, wishes: t.Sequence[Wish], group: VolumeGroup) -> list[Plan]:
        removing = {wish.name for wish in wishes if wish.state == ABSENT}
        plans = []
        free = group.free
        for wish in wishes:
            self.before[wish.id] = self._shown(group, wish, group.lvs.get(wish.name))
            try:
                made = plan(wish, group, bool(self.backend.pool), removing)
                if made.action == CREATE and not self.backend.pool and wish.kind == VOLUME:
                    if made.size > free:
                        raise lvm.no_room(
                            "volume group %s" % group.name, "%d bytes are free, %d are wanted" % (free, made.size)
                        )
                    free -= made.size
                if made.action == REMOVE:
                    free += made.size
                plans.append(made)
            except BootflowError as error:
                self.outcomes[wish.id] = failure(error)
        return plans

    def _with_room(
        self, group: VolumeGroup, plans: list[Plan], needed: t.Collection[str]
    ) -> tuple[VolumeGroup, list[Plan]]:
        """Let cached images give way to volumes; what a pool that stays full cannot take has failed."""
        pool = self.backend.pool
        growing = [p for p in plans if p.action in (CREATE, REDO, EXTEND)]
        if not growing:
            return group, plans
        volumes = [p for p in growing if p.wish.kind == VOLUME]
        promised = sum(p.size - (p.there.size if p.there is not None else 0) for p in volumes)
        group = self._give_way(group, promised, needed, urgent=lvm.is_full(group, pool))
        if lvm.is_full(group, pool):
            error = lvm.pool_full(group, pool)
            for made in growing:
                self.outcomes[made.wish.id] = failure(error)
        return group, [p for p in plans if p.wish.id not in self.outcomes]

    def _give_way(self, group: VolumeGroup, wanted: int, needed: t.Collection[str], urgent: bool) -> VolumeGroup:
        """Evict cached images that nobody uses where the pool has not ``wanted`` bytes; the group as it is then."""
        images = volume_cache.for_room(group, self.backend.pool, wanted, needed, urgent)
        if not images:
            return group
        if self.backend.check_mode:
            return volume_cache.without(group, self.backend.pool, images)
        self.evicted += volume_cache.evict(group, images, self.backend.clear == DISCARD).gone
        return lvm.read_group(group.name)

    def _stage(self, plans: t.Sequence[Plan], work: t.Callable[[Plan], Outcome | None], workers: int = 1) -> list[Plan]:
        """Do it for each; those that failed have an outcome from then on. The others are the answer."""

        def one(made: Plan) -> Outcome:
            return work(made) or {}

        results = run_batch([(made.wish.id, made) for made in plans], one, workers)
        for item_id, result in results.items():
            if result["error"]:
                self.outcomes[item_id] = result
        return [made for made in plans if not results[made.wish.id]["error"]]

    def _done(self, group: VolumeGroup, made: Plan, changed: bool) -> None:
        wish = made.wish
        gone = wish.state == ABSENT
        size = 0 if gone else made.size
        self.outcomes[wish.id] = {
            "changed": changed,
            "error": None,
            "action": made.action,
            "name": wish.name,
            "path": "" if gone else group.path(wish.name),
            "size": size,
        }
        self.after[wish.id] = None if gone else self._state(wish.name, size, wish.source)

    def _shown(self, group: VolumeGroup, wish: Wish, lv: LogicalVolume | None) -> t.Any:
        return None if lv is None else self._state(wish.name, lv.size, tag_value(lv.tags, "source"))

    @staticmethod
    def _state(name: str, size: int, source: str) -> dict[str, t.Any]:
        return {"name": name, "size": size, "source": source}

    # ---- what is there ---------------------------------------------------------------------------------------------

    def _activate(self, group: VolumeGroup, made: Plan) -> None:
        progress.mark_changed()
        lvm.set_active(group.name, [made.wish.name], True)
        self._done(group, made, True)

    def _extend(self, group: VolumeGroup, made: Plan) -> None:
        name = made.wish.name
        progress.mark_changed()
        origin_of_thick = any(lv.is_thick_snapshot for lv in group.snapshots_of(name))
        if origin_of_thick:
            lvm.set_active(group.name, [name], False)
        try:
            lvm.extend(group.name, name, made.size)
        finally:
            if origin_of_thick:
                lvm.set_active(group.name, [name], True)
        iscsi_target_tgt.grown(group.path(name))
        self._done(group, made, True)

    # ---- deletion --------------------------------------------------------------------------------------------------

    def _wipes(self, group: VolumeGroup, lv: LogicalVolume) -> bool:
        """Thin volumes are not wiped: their pool zeroes a block before somebody else gets it, unless it was told not to."""
        if self.backend.clear == NONE:
            return False
        if lv.is_thin:
            return self.backend.clear == DISCARD or not group.zeroing.get(lv.pool, False)
        return True

    def _mark_deleting(self, group: VolumeGroup, plans: t.Sequence[Plan]) -> None:
        """A volume that is half wiped must never be taken for whole."""
        marked = [p for p in plans if p.there is not None and self._wipes(group, p.there)]
        names = [p.wish.name for p in marked if p.there is not None and DELETING not in p.there.tags]
        if not names:
            return
        try:
            lvm.change_tags(group.name, names, add=[DELETING])
        except BootflowError as error:
            for made in marked:
                self.outcomes[made.wish.id] = failure(error)

    def _remove(self, group: VolumeGroup, plans: t.Sequence[Plan]) -> None:
        if not plans:
            return

        def wipe(made: Plan) -> None:
            progress.mark_changed()
            self._wipe(group, made.there)

        # A thick snapshot writes to its origin's neighbours while the origin is overwritten: snapshots first.
        plans = sorted(plans, key=lambda p: p.wish.kind != SNAPSHOT)
        left = []
        for kind in (SNAPSHOT, VOLUME):
            left += self._stage([p for p in plans if p.wish.kind == kind], wipe, self.backend.workers)
        names = [p.wish.name for p in left]
        if not names:
            return
        with lvm.group_lock(group.name):
            try:
                lvm.remove(group.name, names)
            except BootflowError as error:
                # Who is still there, failed; asked once for all of them.
                there = lvm.read_group(group.name).lvs
                for made in left:
                    if made.wish.name in there:
                        self.outcomes[made.wish.id] = failure(error, changed=True)
        for made in left:
            if made.wish.id not in self.outcomes:
                self._done(group, made, True)

    def _wipe(self, group: VolumeGroup, lv: LogicalVolume | None, written: int = 0) -> None:
        """Overwrite what the settings say; no more than the first ``written`` bytes where only those are somebody's."""
        if lv is None or not self._wipes(group, lv):
            return
        path = group.path(lv.name)
        with Steps(lv.uuid.replace("-", "")) as steps:
            steps.at("deleting")
            if lv.is_thick_snapshot:
                with lvm.group_lock(group.name):
                    lvm.split_snapshot(group.name, lv.name)
                    lvm.set_active(group.name, [lv.name], True)
            elif not lv.is_active:
                lvm.set_active(group.name, [lv.name], True)
            size = volume_copy.device_size(path)
            limit = min(size, self.backend.clear_size or size, written or size)
            if lv.is_thin and self.backend.clear == DISCARD:
                volume_copy.discard(path)
            elif self.backend.clear == SHRED:
                volume_copy.shred(path, limit)
            else:
                volume_copy.zero(path, limit)

    # ---- creation --------------------------------------------------------------------------------------------------

    def _create(self, group: VolumeGroup, plans: t.Sequence[Plan]) -> None:
        ready: dict[str, _Ready] = {}
        for image_id in sorted({p.wish.image_id for p in plans if p.wish.image_id}):
            waiting = [p for p in plans if p.wish.image_id == image_id]
            try:
                ready[image_id] = self._image(group, image_id, max(p.wish.size for p in waiting))
            except BootflowError as error:
                for made in waiting:
                    self.outcomes[made.wish.id] = failure(error)
        plans = [p for p in plans if p.wish.id not in self.outcomes]
        plans = self._stage(plans, lambda p: self._check_image(p, ready))
        fills: list[Plan] = []
        finished: list[Plan] = []
        with lvm.group_lock(group.name):
            self._note_images(group, plans, ready)
            for made in self._stage(plans, lambda p: self._make(group, p, ready)):
                (fills if self._is_copied(made, ready) else finished).append(made)
        readers = collections.Counter(p.wish.image_id for p in fills)
        finished += self._stage(
            fills, lambda p: self._fill(group, p, ready, readers[p.wish.image_id] == 1), self.backend.workers
        )
        for image_id, found in ready.items():
            if found.image is not None and image_id:
                self.temporary.drop(found.image)
        self._finish(group, finished, ready)
        for made in fills:
            if made.wish.id in self.outcomes and self.outcomes[made.wish.id]["error"]:
                self._undo(group, made, ready)

    def _note_images(self, group: VolumeGroup, plans: t.Sequence[Plan], ready: t.Mapping[str, _Ready]) -> None:
        """What the cache is to know of the images that volumes are made of now, and room for those that it does not keep."""
        pool, discard = self.backend.pool, self.backend.clear == DISCARD
        if not pool or not plans:
            return
        wanted = {p.wish.image_id: ready[p.wish.image_id] for p in plans if p.wish.image_id}
        hits = {image_id: found.cached for image_id, found in wanted.items() if found.cached is not None}
        known = volume_cache.cached_images(group, pool)
        with contextlib.suppress(BootflowError):  # what is not noted now is noted the next time
            volume_cache.note_use(group.name, hits)
            for image_id, found in wanted.items():
                sha256 = found.sha256
                if any(image_id in image.image_ids and image.sha256 != sha256 for image in known):
                    self.evicted += volume_cache.note_other(group.name, pool, image_id, sha256, discard)
        copied = sum(
            found.virtual_size for found in (ready[p.wish.image_id] for p in plans if p.wish.image_id) if found.image
        )
        if copied:
            self._give_way(lvm.read_group(group.name), copied, {found.sha256 for found in wanted.values()}, urgent=True)

    def _check_image(self, made: Plan, ready: t.Mapping[str, _Ready]) -> None:
        if made.wish.image_id:
            label = self.images[made.wish.image_id].label
            check_fits_volume(label, ready[made.wish.image_id].virtual_size, made.wish.size // GIB)

    def _origin(self, made: Plan, ready: t.Mapping[str, _Ready]) -> LogicalVolume | None:
        """What a thin volume becomes a snapshot of."""
        if made.wish.image_id:
            return ready[made.wish.image_id].lv
        return made.origin if self.backend.pool else None

    def _is_copied(self, made: Plan, ready: t.Mapping[str, _Ready]) -> bool:
        wish = made.wish
        return wish.kind == VOLUME and bool(wish.source) and self._origin(made, ready) is None

    def _grows(self, made: Plan, ready: t.Mapping[str, _Ready]) -> bool:
        origin = self._origin(made, ready)
        return made.wish.kind == VOLUME and origin is not None and origin.size < made.size

    def _make(self, group: VolumeGroup, made: Plan, ready: t.Mapping[str, _Ready]) -> None:
        """The logical volume; with its content too where it is a thin snapshot of something, or empty."""
        wish, vg, pool = made.wish, group.name, self.backend.pool
        tags = owner_tags(wish.kind, wish.id, wish.project, wish.source)
        progress.mark_changed()
        if made.there is not None:
            if not pool and wish.kind == VOLUME and made.there.size == made.size:
                if not made.there.is_active:
                    lvm.set_active(vg, [wish.name], True)
                return  # thick: it is written from its beginning to the image's end once more
            lvm.remove(vg, [wish.name])
        if wish.kind == SNAPSHOT:
            self._make_snapshot(group, made, tags)
            return
        origin = self._origin(made, ready)
        if origin is not None:
            grows = self._grows(made, ready)
            lvm.create_thin_snapshot(vg, origin.name, wish.name, tags + ([INCOMPLETE] if grows else []), active=True)
            if grows:
                try:
                    lvm.extend(vg, wish.name, made.size)
                except BootflowError:
                    lvm.remove(vg, [wish.name])
                    raise
            return
        if self._is_copied(made, ready):
            tags = tags + [INCOMPLETE]
        if pool:
            lvm.create_thin(vg, pool, wish.name, made.size, tags)
        else:
            lvm.create_thick(vg, wish.name, made.size, tags)

    def _make_snapshot(self, group: VolumeGroup, made: Plan, tags: list[str]) -> None:
        origin = made.origin
        if origin is None:
            raise InvalidInput(reason="%s has no volume" % made.wish.name)
        tags = tags + ["bootflow.size=%d" % made.size]
        if origin.is_thin:
            lvm.create_thin_snapshot(group.name, origin.name, made.wish.name, tags, active=False)
        else:
            room = lvm.snapshot_room(group, origin.size)
            lvm.create_thick_snapshot(group.name, origin.name, made.wish.name, room, tags)

    def _fill(self, group: VolumeGroup, made: Plan, ready: t.Mapping[str, _Ready], alone: bool) -> None:
        wish = made.wish
        progress.mark_changed()
        path = group.path(wish.name)
        with Steps(wish.id) as steps:
            if made.origin is not None:
                steps.at("copying")
                with self._steady(group, made) as source:
                    volume_copy.copy_device(
                        source, path, logical_size(group, made.origin), sparse=bool(self.backend.pool)
                    )
            else:
                image = ready[wish.image_id].image
                if image is not None:
                    with _copying():
                        self._write_image(group, image, path, bool(self.backend.pool), steps, alone)

    def _write_image(
        self, group: VolumeGroup, image: CheckedImage, path: str, thin: bool, steps: Steps, alone: bool = True
    ) -> None:
        zeros = thin and group.zeroing.get(self.backend.pool, False)
        # Of many that read the same file, the page cache spares all but one the reading.
        direct = image.direct and alone
        steps.at("converting")
        if self.backend.verify:
            volume_follow.convert_and_verify(
                image.path, image.driver, image.sha256, path, image.virtual_size, steps.at, zeros, direct
            )
        else:
            volume_copy.convert(
                image.path, image.driver, path, lambda percent: steps.at("converting", percent), zeros, direct
            )
        image.check_steady()

    @contextlib.contextmanager
    def _steady(self, group: VolumeGroup, made: Plan) -> t.Iterator[str]:
        """A path whose content does not change while it is copied: of a volume in use a snapshot, as Cinder takes one."""
        origin = made.origin
        if origin is None:
            raise InvalidInput(reason="%s has no source" % made.wish.name)
        if origin.is_thick_snapshot or not origin.is_open:
            if not origin.is_active:
                lvm.set_active(group.name, [origin.name], True)
            yield group.path(origin.name)
            return
        name = "clone-snap-%s" % made.wish.id
        with lvm.group_lock(group.name):
            if name in lvm.read_group(group.name).lvs:
                lvm.remove(group.name, [name])
            tags = owner_tags(SNAPSHOT, made.wish.id) + [INCOMPLETE]
            lvm.create_thick_snapshot(group.name, origin.name, name, lvm.snapshot_room(group, origin.size), tags)
        try:
            yield group.path(name)
        finally:
            with lvm.group_lock(group.name):
                lvm.remove(group.name, [name])

    def _finish(self, group: VolumeGroup, plans: t.Sequence[Plan], ready: t.Mapping[str, _Ready]) -> None:
        """One command says of all that they are whole."""
        marked = [p for p in plans if self._is_copied(p, ready) or self._grows(p, ready)]
        if marked:
            try:
                with lvm.group_lock(group.name):
                    lvm.change_tags(group.name, [p.wish.name for p in marked], remove=[INCOMPLETE])
            except BootflowError as error:
                for made in marked:
                    self.outcomes[made.wish.id] = failure(error, changed=True)
        for made in plans:
            if made.wish.id not in self.outcomes:
                self._done(group, made, True)

    def _undo(self, group: VolumeGroup, made: Plan, ready: t.Mapping[str, _Ready]) -> None:
        """Nothing stays of a volume that could not be filled; what cannot be removed stays marked as incomplete."""
        outcome = self.outcomes[made.wish.id]
        with contextlib.suppress(BootflowError, OSError):
            there = LogicalVolume(name=made.wish.name, uuid=made.wish.id, size=made.size, attr="-wi-a-----")
            if not self.backend.pool:
                found = ready.get(made.wish.image_id)
                self._wipe(group, there, found.virtual_size if found is not None else 0)
            with lvm.group_lock(group.name):
                lvm.remove(group.name, [made.wish.name])
            outcome["changed"] = made.there is not None

    # ---- images ----------------------------------------------------------------------------------------------------

    def _image(self, group: VolumeGroup, image_id: str, largest: int) -> _Ready:
        source = self.images.get(image_id)
        if source is None:
            raise ImageNotFound(image_id=image_id, remedy="Name it among the images of this task.")
        caches = bool(self.backend.pool) and self.backend.image_cache
        sha256 = _checksum(source)
        if caches and sha256:
            found = self._cached(group, sha256)
            if found is not None:
                return found
        if not source.url and not source.path:
            raise ImageNotFound(image_id=image_id, remedy="Give its url or path_on_host, or upload it.")
        image = self.temporary.take(source, limit=largest)
        # Before anything is made of it.
        check_fits_volume(source.label, image.virtual_size, largest // GIB)
        kept: _Ready | None = None
        try:
            kept = self._cache(image) if caches else None
        except BaseException:
            self.temporary.drop(image)
            raise
        if kept is None:
            return _Ready(image.virtual_size, image.sha256, image=image)
        self.temporary.drop(image)
        return kept

    def _cached(self, group: VolumeGroup, sha256: str) -> _Ready | None:
        for found in volume_cache.cached_images(group, self.backend.pool):
            size = tag_value(found.lv.tags, "size")
            if found.sha256 == sha256 and found.is_complete and size.isdigit():
                return _Ready(int(size), sha256, lv=found.lv, cached=found)
        return None

    def _admit(self, group: VolumeGroup, image: CheckedImage, size: int) -> bool:
        """Whether the cache may keep one more, of ``size`` bytes, after others went for it."""
        pool, discard = self.backend.pool, self.backend.clear == DISCARD
        fits, gone = volume_cache.admit(group, pool, image.sha256, size, self.backend.cache_limits, discard)
        self.evicted += gone
        if fits:
            self._give_way(lvm.read_group(group.name) if gone else group, size, {image.sha256}, urgent=True)
        return fits

    def _cache(self, image: CheckedImage) -> _Ready | None:
        """The image on a read-only thin volume of its own, of which volumes become snapshots: the next takes no copy.

        None: it is larger than the cache, or the others are all in use.
        """
        name = lv_name(IMAGE, image.sha256)
        self.holds.enter_context(volume_cache.in_use(image.sha256))
        with lvm.item_locks([image.sha256]):
            with lvm.group_lock(self.backend.vg):
                group = lvm.read_group(self.backend.vg)
                found = self._cached(group, image.sha256)
                if found is not None:
                    return found
                if name in group.lvs:
                    lvm.remove(group.name, [name])
                size = group.rounded(image.virtual_size)
                if not self._admit(group, image, size):
                    return None
                tags = owner_tags(IMAGE, image.sha256) + ["bootflow.size=%d" % image.virtual_size, INCOMPLETE]
                tags += volume_cache.entry_tags([image.source.id])
                lvm.create_thin(group.name, self.backend.pool, name, size, tags)
            try:
                with Steps(image.source.id) as steps, _copying():
                    self._write_image(group, image, group.path(name), True, steps)
                with lvm.group_lock(group.name):
                    lvm.seal(group.name, name, INCOMPLETE)
            except BaseException:
                with contextlib.suppress(BootflowError):
                    with lvm.group_lock(group.name):
                        lvm.remove(group.name, [name])
                raise
        lv = LogicalVolume(name=name, uuid="", size=size, attr="Vri-a-tz--", pool=self.backend.pool)
        return _Ready(image.virtual_size, image.sha256, lv=lv)


def _checksum(source: ImageSource) -> str:
    """sha256 of the image, as its entry in the cache is named by; "" where the catalogue has none."""
    try:
        return image_checks.normal_checksum(source.checksum, source.label)
    except ImageUnacceptable:
        return ""  # it is refused when it is taken


@contextlib.contextmanager
def _copying() -> t.Iterator[None]:
    """Whatever goes wrong while an image is copied is an ImageCopyFailure, which is tried nowhere else (row C18)."""
    try:
        yield
    except BootflowError as error:
        raise as_copy_failure(error) from error


def _rounds(wishes: t.Sequence[Wish]) -> t.Iterator[list[Wish]]:
    """Deletions first; then each that is made from another of the batch after that one."""
    removals = [wish for wish in wishes if wish.state == ABSENT]
    pending = [wish for wish in wishes if wish.state != ABSENT]
    first = True
    while pending or removals:
        names = {wish.name for wish in pending}
        now = [wish for wish in pending if wish.origin_name not in names]
        if pending and not now:
            now = list(pending)  # a circle: each misses its source
        yield (removals if first else []) + now
        first = False
        removals = []
        pending = [wish for wish in pending if wish not in now]


def make_volumes(
    backend: Backend,
    volumes: t.Sequence[t.Mapping[str, t.Any]],
    images: t.Sequence[t.Mapping[str, t.Any]] = (),
    uploads: t.Mapping[str, str] | None = None,
) -> dict[str, t.Any]:
    """{outcomes by id, backend: capacity afterwards, diff}; see the module volume_lvm for the fields.

    :raises InvalidInput: a volume is given twice, or the backend's settings are not acceptable.
    :raises DriverNotInitialized: the volume group or pool is missing or not active.
    """
    backend = backend.checked()
    ids = [str(args.get("id")) for args in volumes]
    twice = sorted({item_id for item_id in ids if ids.count(item_id) > 1})
    if twice:
        raise InvalidInput(reason="given more than once: %s" % ", ".join(twice))
    sources = {args["id"]: image_source(args, uploads or {}, backend.allow_unverified) for args in images}
    with TemporaryImages(backend.temp_dir, backend.allow_unverified) as temporary:
        if not backend.check_mode:
            temporary.sweep()
        batch = _Batch(backend, sources, temporary)
        wishes = []
        for item_id, args in zip(ids, volumes):
            try:
                wishes.append(wish_of(args))
            except BootflowError as error:
                batch.outcomes[item_id] = failure(error)
        with contextlib.ExitStack() as stack:
            if not backend.check_mode:
                stack.enter_context(lvm.item_locks(wish.id for wish in wishes))
            for wishes_now in _rounds(wishes):
                batch.round(wishes_now)
            at = moment()
            group = lvm.read_group(backend.vg)
    lvm.check_group(group)
    return {
        "outcomes": {item_id: batch.outcomes[item_id] for item_id in ids},
        "backend": capacity(group, backend.pool, at),
        "evicted": [image.as_dict() for image in batch.evicted],
        "diff": {"before": batch.before, "after": dict(batch.before, **batch.after)},
    }
