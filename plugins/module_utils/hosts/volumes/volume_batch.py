# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The work of the module volume_lvm: many volumes and snapshots of one LVM backend.

The volume group is read once before and once after. LVM commands run one after the other under the lock of the group
(LVM itself would serialize them too); data is copied in parallel without the lock. A volume with incomplete content
has the tag ``bootflow.incomplete`` from its creation on: a killed run leaves only such
volumes, and the next run creates them again.
"""

from __future__ import annotations

import collections
import contextlib
import typing as t
from dataclasses import dataclass, field

from ...core.amounts import GIB
from ...core.errors import BootflowError, InvalidInput
from ...core.volumes.names import DISCARD, NONE, SHRED
from ..images.images import image_source
from ..iscsi import target_tgt
from ..lvm import lvm
from ..lvm.lvm import LogicalVolume, VolumeGroup
from ..lvm.lvm_tags import DELETING, INCOMPLETE, SNAPSHOT, VOLUME, owner_tags, tag_value
from ..os import guest_content
from ..os.batch import progress, run_batch
from ..os.module_errors import failure
from . import copy
from .backend import Backend
from .backend_facts import capacity, moment
from .plan import (
    ABSENT,
    ACTIVATE,
    CREATE,
    EXTEND,
    NOTHING,
    REDO,
    REIMAGE,
    REIMAGED,
    REMOVE,
    DesiredVolume,
    Plan,
    desired_volume,
    logical_size,
    plan,
    rounds,
)
from .process import Steps
from .ready_images import ReadyImage, ReadyImages
from .volume_images import TemporaryImages, check_fits_volume

Outcome = dict[str, t.Any]


@dataclass
class _Batch:
    backend: Backend
    images: ReadyImages
    outcomes: dict[str, Outcome] = field(default_factory=dict)
    before: dict[str, t.Any] = field(default_factory=dict)
    after: dict[str, t.Any] = field(default_factory=dict)

    # ---- one round: volumes that do not wait for each other -----------------------------------------------------------

    def round(self, desired_volumes: t.Sequence[DesiredVolume]) -> None:
        wanted = {desired.image_id for desired in desired_volumes if desired.image_id and desired.state != ABSENT}
        with self.images.held(wanted):
            self._round(desired_volumes, wanted)

    def _round(self, desired_volumes: t.Sequence[DesiredVolume], image_ids: t.Collection[str]) -> None:
        with lvm.group_lock(self.backend.vg):
            if not self.backend.check_mode:
                ending = [desired.name for desired in desired_volumes if desired.state == ABSENT]
                guest_content.release_paths(lvm.device_path(self.backend.vg, name) for name in ending)
            group = lvm.read_group(self.backend.vg, self.backend.ledger_id)
            lvm.check_group(group, self.backend.pool)
            plans = self._plans(desired_volumes, group)
            if self.backend.pool:
                group, plans = self._with_room(group, plans, self.images.find(group, image_ids))
            if self.backend.check_mode:
                for made in plans:
                    self._done(group, made, made.action != NOTHING)
                return
            self._stage([p for p in plans if p.action == NOTHING], lambda p: self._done(group, p, False))
            self._stage([p for p in plans if p.action == ACTIVATE], lambda p: self._activate(group, p))
            self._stage([p for p in plans if p.action == EXTEND], lambda p: self._extend(group, p))
            self._mark_deleting(group, [p for p in plans if p.action == REMOVE])
        self._remove(group, [p for p in plans if p.action == REMOVE and p.desired.id not in self.outcomes])
        creations = [p for p in plans if p.action in (CREATE, REDO, REIMAGE)]
        if creations:
            self._create(group, creations)

    def _plans(self, desired_volumes: t.Sequence[DesiredVolume], group: VolumeGroup) -> list[Plan]:
        removing = {desired.name for desired in desired_volumes if desired.state == ABSENT}
        plans = []
        free = group.free
        for desired in desired_volumes:
            lv = group.lvs.get(desired.name)
            self.before[desired.id] = None if lv is None else _state(desired, lv.size, tag_value(lv.tags, "source"))
            try:
                made = plan(desired, group, bool(self.backend.pool), removing)
                if made.action == CREATE and not self.backend.pool and desired.kind == VOLUME:
                    if made.size > free:
                        raise lvm.no_room(
                            "volume group %s" % group.name, "%d bytes are needed, %d bytes are free" % (made.size, free)
                        )
                    free -= made.size
                if made.action == REMOVE:
                    free += made.size
                plans.append(made)
            except BootflowError as error:
                self.outcomes[desired.id] = failure(error)
        return plans

    def _with_room(
        self, group: VolumeGroup, plans: list[Plan], needed: t.Collection[str]
    ) -> tuple[VolumeGroup, list[Plan]]:
        """Evict cached images for volumes; volumes for which the pool stays full fail."""
        pool = self.backend.pool
        growing = [p for p in plans if p.action in (CREATE, REDO, REIMAGE, EXTEND)]
        if not growing:
            return group, plans
        volumes = [p for p in growing if p.desired.kind == VOLUME]
        promised = sum(p.size - (p.existing_lv.size if p.existing_lv is not None else 0) for p in volumes)
        group = self.images.make_room(group, promised, needed, urgent=lvm.is_full(group, pool))
        if lvm.is_full(group, pool):
            error = lvm.pool_full(group, pool)
            for made in growing:
                self.outcomes[made.desired.id] = failure(error)
        return group, [p for p in plans if p.desired.id not in self.outcomes]

    def _stage(self, plans: t.Sequence[Plan], work: t.Callable[[Plan], Outcome | None], workers: int = 1) -> list[Plan]:
        """Call the function for each plan; record the outcome of failed ones, and return the others."""

        def one(made: Plan) -> Outcome:
            return work(made) or {}

        results = run_batch([(made.desired.id, made) for made in plans], one, workers)
        for item_id, result in results.items():
            if result["error"]:
                self.outcomes[item_id] = result
        return [made for made in plans if not results[made.desired.id]["error"]]

    def _done(self, group: VolumeGroup, made: Plan, changed: bool) -> None:
        desired = made.desired
        is_absent = desired.state == ABSENT
        size = 0 if is_absent else made.size
        path = "" if is_absent else group.path(desired.name)
        outcome = {"action": made.action, "name": desired.name, "path": path, "size": size}
        self.outcomes[desired.id] = {"changed": changed, "error": None, **outcome}
        self.after[desired.id] = None if is_absent else _state(desired, size, desired.source)

    # ---- what is there ---------------------------------------------------------------------------------------------

    def _activate(self, group: VolumeGroup, made: Plan) -> None:
        progress.mark_changed()
        lvm.set_active(group.name, [made.desired.name], True)
        self._done(group, made, True)

    def _extend(self, group: VolumeGroup, made: Plan) -> None:
        name = made.desired.name
        progress.mark_changed()
        origin_of_thick = any(lv.is_thick_snapshot for lv in group.snapshots_of(name))
        if origin_of_thick:
            lvm.set_active(group.name, [name], False)
        try:
            lvm.extend(group.name, name, made.size)
        finally:
            if origin_of_thick:
                lvm.set_active(group.name, [name], True)
        target_tgt.grown(group.path(name))
        self._done(group, made, True)

    # ---- deletion --------------------------------------------------------------------------------------------------

    def _mark_deleting(self, group: VolumeGroup, plans: t.Sequence[Plan]) -> None:
        """Mark the volumes, because a partly wiped volume must never be used as a complete one."""
        marked = [p for p in plans if p.existing_lv is not None and _is_wiped(self.backend, group, p.existing_lv)]
        names = [p.desired.name for p in marked if p.existing_lv is not None and DELETING not in p.existing_lv.tags]
        if not names:
            return
        try:
            lvm.change_tags(group.name, names, add=[DELETING])
        except BootflowError as error:
            for made in marked:
                self.outcomes[made.desired.id] = failure(error)

    def _remove(self, group: VolumeGroup, plans: t.Sequence[Plan]) -> None:
        if not plans:
            return

        def clear(made: Plan) -> None:
            progress.mark_changed()
            if made.existing_lv is not None:
                _wipe(self.backend, group, made.existing_lv)

        # Snapshots first, because overwriting an origin copies its data to its thick snapshots.
        plans = sorted(plans, key=lambda p: p.desired.kind != SNAPSHOT)
        remaining = []
        for kind in (SNAPSHOT, VOLUME):
            remaining += self._stage([p for p in plans if p.desired.kind == kind], clear, self.backend.workers)
        names = [p.desired.name for p in remaining]
        if not names:
            return
        with lvm.group_lock(group.name):
            try:
                lvm.remove(group.name, names)
            except BootflowError as error:
                # Volumes that still exist have failed; checked once for all of them.
                remaining_volumes = lvm.read_group(group.name).lvs
                for made in remaining:
                    if made.desired.name in remaining_volumes:
                        self.outcomes[made.desired.id] = failure(error, changed=True)
        for made in remaining:
            if made.desired.id not in self.outcomes:
                self._done(group, made, True)

    # ---- creation --------------------------------------------------------------------------------------------------

    def _create(self, group: VolumeGroup, plans: t.Sequence[Plan]) -> None:
        ready: dict[str, ReadyImage] = {}
        for image_id in sorted({p.desired.image_id for p in plans if p.desired.image_id}):
            waiting = [p for p in plans if p.desired.image_id == image_id]
            try:
                ready[image_id] = self.images.take(image_id, max(p.desired.size for p in waiting))
            except BootflowError as error:
                for made in waiting:
                    self.outcomes[made.desired.id] = failure(error)
        plans = [p for p in plans if p.desired.id not in self.outcomes]
        plans = self._stage(plans, lambda p: self._check_image(p, ready))
        fills: list[Plan] = []
        finished: list[Plan] = []
        with lvm.group_lock(group.name):
            users = collections.Counter(p.desired.image_id for p in plans if p.desired.image_id)
            wanted = {image_id: ready[image_id] for image_id in users}
            copied = sum(
                users[image_id] * ready_image.virtual_size
                for image_id, ready_image in wanted.items()
                if ready_image.image
            )
            self.images.note(group, wanted, copied)
            for made in self._stage(plans, lambda p: self._make(group, p, ready)):
                (fills if self._is_copied(made, ready) else finished).append(made)
        readers = collections.Counter(p.desired.image_id for p in fills)
        finished += self._stage(
            fills, lambda p: self._fill(group, p, ready, readers[p.desired.image_id] == 1), self.backend.workers
        )
        self.images.drop(ready.values())
        self._finish(group, finished, ready)
        for made in fills:
            if made.desired.id in self.outcomes and self.outcomes[made.desired.id]["error"]:
                self._undo(group, made, ready)

    def _check_image(self, made: Plan, ready: t.Mapping[str, ReadyImage]) -> None:
        if made.desired.image_id:
            label = self.images.sources[made.desired.image_id].label
            check_fits_volume(label, ready[made.desired.image_id].virtual_size, made.desired.size // GIB)

    def _origin(self, made: Plan, ready: t.Mapping[str, ReadyImage]) -> LogicalVolume | None:
        """Return the origin for a thin volume, which is made as its snapshot."""
        if made.desired.image_id:
            return ready[made.desired.image_id].lv
        return made.origin if self.backend.pool else None

    def _is_copied(self, made: Plan, ready: t.Mapping[str, ReadyImage]) -> bool:
        desired = made.desired
        return desired.kind == VOLUME and bool(desired.source) and self._origin(made, ready) is None

    def _grows(self, made: Plan, ready: t.Mapping[str, ReadyImage]) -> bool:
        origin = self._origin(made, ready)
        return made.desired.kind == VOLUME and origin is not None and origin.size < made.size

    def _make(self, group: VolumeGroup, made: Plan, ready: t.Mapping[str, ReadyImage]) -> None:
        """Create the logical volume; if it is a thin snapshot or empty, it is complete."""
        desired, vg, pool = made.desired, group.name, self.backend.pool
        tags = owner_tags(desired.kind, desired.id, desired.project, desired.source, self.backend.ledger_id)
        if made.action == REIMAGE and made.existing_lv is not None:
            _mark_rewritten(group, made, made.existing_lv)
        progress.mark_changed()
        if made.existing_lv is not None:
            if not pool and desired.kind == VOLUME and made.existing_lv.size == made.size:
                if not made.existing_lv.is_active:
                    lvm.set_active(vg, [desired.name], True)
                return  # thick: written again from the beginning to the end of the image
            lvm.remove(vg, [desired.name])
        if desired.kind == SNAPSHOT:
            self._make_snapshot(group, made, tags)
            return
        origin = self._origin(made, ready)
        if origin is not None:
            grows = self._grows(made, ready)
            lvm.create_thin_snapshot(vg, origin.name, desired.name, tags + ([INCOMPLETE] if grows else []), active=True)
            if grows:
                try:
                    lvm.extend(vg, desired.name, made.size)
                except BootflowError:
                    lvm.remove(vg, [desired.name])
                    raise
            return
        if self._is_copied(made, ready):
            tags = tags + [INCOMPLETE]
        if pool:
            lvm.create_thin(vg, pool, desired.name, made.size, tags)
        else:
            lvm.create_thick(vg, desired.name, made.size, tags)

    def _make_snapshot(self, group: VolumeGroup, made: Plan, tags: list[str]) -> None:
        origin = made.origin
        if origin is None:
            raise InvalidInput(reason="snapshot %s has no source volume" % made.desired.name)
        tags = tags + ["bootflow.size=%d" % made.size]
        if origin.is_thin:
            lvm.create_thin_snapshot(group.name, origin.name, made.desired.name, tags, active=False)
        else:
            room = lvm.snapshot_room(group, origin.size)
            lvm.create_thick_snapshot(group.name, origin.name, made.desired.name, room, tags)

    def _fill(self, group: VolumeGroup, made: Plan, ready: t.Mapping[str, ReadyImage], alone: bool) -> None:
        desired = made.desired
        progress.mark_changed()
        path = group.path(desired.name)
        with Steps(desired.id) as steps:
            if made.origin is not None:
                steps.at("copying")
                with self._steady(group, made) as source:
                    copy.copy_device(source, path, logical_size(group, made.origin), sparse=bool(self.backend.pool))
            else:
                image = ready[desired.image_id].image
                if image is not None:
                    self.images.write(group, image, path, steps, alone)

    @contextlib.contextmanager
    def _steady(self, group: VolumeGroup, made: Plan) -> t.Iterator[str]:
        """Yield a path whose content does not change during the copy: for a volume in use a snapshot, as in Cinder."""
        origin = made.origin
        if origin is None:
            raise InvalidInput(reason="volume %s has no source" % made.desired.name)
        if origin.is_thick_snapshot or not origin.is_open:
            if not origin.is_active:
                lvm.set_active(group.name, [origin.name], True)
            yield group.path(origin.name)
            return
        name = "clone-snap-%s" % made.desired.id
        with lvm.group_lock(group.name):
            if name in lvm.read_group(group.name).lvs:
                lvm.remove(group.name, [name])
            tags = owner_tags(SNAPSHOT, made.desired.id, ledger_id=self.backend.ledger_id) + [INCOMPLETE]
            lvm.create_thick_snapshot(group.name, origin.name, name, lvm.snapshot_room(group, origin.size), tags)
        try:
            yield group.path(name)
        finally:
            with lvm.group_lock(group.name):
                lvm.remove(group.name, [name])

    def _finish(self, group: VolumeGroup, plans: t.Sequence[Plan], ready: t.Mapping[str, ReadyImage]) -> None:
        """Mark all as complete with one command."""
        marked = [p for p in plans if self._is_copied(p, ready) or self._grows(p, ready)]
        if marked:
            try:
                with lvm.group_lock(group.name):
                    lvm.change_tags(group.name, [p.desired.name for p in marked], remove=[INCOMPLETE])
            except BootflowError as error:
                for made in marked:
                    self.outcomes[made.desired.id] = failure(error, changed=True)
        for made in plans:
            if made.desired.id not in self.outcomes:
                self._done(group, made, True)

    def _undo(self, group: VolumeGroup, made: Plan, ready: t.Mapping[str, ReadyImage]) -> None:
        """Remove a volume that could not be filled; if it cannot be removed, it stays marked as incomplete. So does one that was to be written
        again: a guest has it.
        """
        outcome = self.outcomes[made.desired.id]
        if made.desired.state == REIMAGED:
            return
        with contextlib.suppress(BootflowError, OSError):
            volume = LogicalVolume(name=made.desired.name, uuid=made.desired.id, size=made.size, attr="-wi-a-----")
            if not self.backend.pool:
                ready_image = ready.get(made.desired.image_id)
                _wipe(self.backend, group, volume, ready_image.virtual_size if ready_image is not None else 0)
            with lvm.group_lock(group.name):
                lvm.remove(group.name, [made.desired.name])
            outcome["changed"] = made.existing_lv is not None


def _mark_rewritten(group: VolumeGroup, made: Plan, lv: LogicalVolume) -> None:
    """Mark a volume as incomplete, with its new source, before any of its content is lost: it is never taken for a complete one then."""
    former, new = ("bootflow.source=%s" % source for source in (tag_value(lv.tags, "source"), made.desired.source))
    add = [tag for tag in (INCOMPLETE, new) if tag not in lv.tags]
    if add:
        lvm.change_tags(group.name, [lv.name], add=add, remove=[former] if former in lv.tags and former != new else [])


def _state(desired: DesiredVolume, size: int, source: str) -> dict[str, t.Any]:
    """Return the state for a diff."""
    return {"name": desired.name, "size": size, "source": source}


def _is_wiped(backend: Backend, group: VolumeGroup, lv: LogicalVolume) -> bool:
    """Return whether the volume is wiped. Thin volumes are not: their pool zeroes blocks before reuse, unless zeroing is disabled."""
    if backend.clear == NONE:
        return False
    if lv.is_thin:
        return backend.clear == DISCARD or not group.zeroing.get(lv.pool, False)
    return True


def _wipe(backend: Backend, group: VolumeGroup, lv: LogicalVolume, written: int = 0) -> None:
    """Overwrite the data according to the settings before its space is reused.

    :arg written: only the first so many bytes contain data; 0: all.
    source: Cinder's volume_clear and volume_clear_size
    """
    if not _is_wiped(backend, group, lv):
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
        size = copy.device_size(path)
        limit = min(size, backend.clear_size or size, written or size)
        if lv.is_thin and backend.clear == DISCARD:
            copy.discard(path)
        elif backend.clear == SHRED:
            copy.shred(path, limit)
        else:
            copy.zero(path, limit)


def make_volumes(
    backend: Backend,
    volumes: t.Sequence[t.Mapping[str, t.Any]],
    images: t.Sequence[t.Mapping[str, t.Any]] = (),
    uploads: t.Mapping[str, str] | None = None,
) -> dict[str, t.Any]:
    """Return {outcomes by id, backend: capacity afterwards, diff}; the module volume_lvm documents the fields.

    :raises InvalidInput: a volume is given twice, or the settings of the backend are not valid.
    :raises DriverNotInitialized: the volume group or pool is missing or not active.
    """
    backend = backend.checked()
    ids = [str(args.get("id")) for args in volumes]
    twice = sorted({item_id for item_id in ids if ids.count(item_id) > 1})
    if twice:
        raise InvalidInput(reason="volumes given more than once: %s" % ", ".join(twice))
    sources = {
        args["id"]: image_source(args, uploads or {}, backend.allow_unverified, backend.fetch_limits) for args in images
    }
    with TemporaryImages(backend.temp_dir, backend.allow_unverified) as temporary:
        if not backend.check_mode:
            temporary.sweep()
        batch = _Batch(backend, ReadyImages(backend, sources, temporary))
        desired_volumes = []
        for item_id, args in zip(ids, volumes):
            try:
                desired_volumes.append(desired_volume(args))
            except BootflowError as error:
                batch.outcomes[item_id] = failure(error)
        with contextlib.ExitStack() as stack:
            if not backend.check_mode:
                stack.enter_context(lvm.item_locks(desired.id for desired in desired_volumes))
            for in_round in rounds(desired_volumes):
                batch.round(in_round)
            at = moment()
            group = lvm.read_group(backend.vg, backend.ledger_id)
    lvm.check_group(group)
    return {
        "outcomes": {item_id: batch.outcomes[item_id] for item_id in ids},
        "backend": capacity(group, backend.pool, at),
        "evicted": [image.as_dict() for image in batch.images.evicted],
        "diff": {"before": batch.before, "after": dict(batch.before, **batch.after)},
    }
