# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The desired state of one volume or snapshot, and the work on the existing volume group to reach it."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ...core.amounts import GIB
from ...core.errors import (
    Conflict,
    InvalidInput,
    InvalidSnapshot,
    InvalidVolume,
    SnapshotNotFound,
    VolumeIsBusy,
    VolumeNotFound,
)
from ..lvm.lvm import LogicalVolume, VolumeGroup
from ..lvm.lvm_tags import (
    DELETING,
    INCOMPLETE,
    KINDS,
    LEDGER,
    SNAPSHOT,
    VOLUME,
    identity,
    lv_name,
    project_text,
    tag_value,
)
from ..os.ownership import check_owner
from ..os.paths import checked_id, checked_uuid

PRESENT, EXTENDED, ABSENT, REIMAGED = "present", "extended", "absent", "reimaged"
STATES = (PRESENT, EXTENDED, ABSENT, REIMAGED)

CREATE, REDO, REIMAGE = "create", "redo", "reimage"
ACTIVATE, EXTEND, REMOVE, NOTHING = "activate", "extend", "remove", "nothing"


@dataclass(frozen=True)
class DesiredVolume:
    """An element of the option ``volumes``, checked."""

    id: str
    kind: str = VOLUME
    state: str = PRESENT
    size: int = 0  # bytes; 0: as large as the source
    project: str = ""
    image_id: str = ""
    source_volume: str = ""
    source_snapshot: str = ""

    @property
    def name(self) -> str:
        return lv_name(self.kind, self.id)

    @property
    def source(self) -> str:
        """Return the source as in the tag ``bootflow.source``."""
        for kind, value in (
            ("image", self.image_id),
            ("snapshot", self.source_snapshot),
            ("volume", self.source_volume),
        ):
            if value:
                return "%s/%s" % (kind, value)
        return ""

    @property
    def origin_name(self) -> str:
        """Return the logical volume of its source; "" for an empty volume or one from an image."""
        if self.source_snapshot:
            return lv_name(SNAPSHOT, self.source_snapshot)
        return lv_name(VOLUME, self.source_volume) if self.source_volume else ""


def desired_volume(args: t.Mapping[str, t.Any]) -> DesiredVolume:
    """Return an element of the option ``volumes``, checked.

    :raises InvalidInput: not a UUID, no size, two sources...
    """
    kind, state = args.get("kind") or VOLUME, args.get("state") or PRESENT
    if kind not in KINDS or state not in STATES:
        raise InvalidInput(reason="unknown kind %r or state %r" % (kind, state))
    sources = _sources(args)
    size_gb = _size_gb(args)
    if state == PRESENT and len(sources) > 1:
        raise InvalidInput(reason="a volume takes only one source, got %s" % " and ".join(sources))
    if state == REIMAGED and (kind != VOLUME or set(sources) != {"image_id"}):
        raise InvalidInput(reason="only a volume is written again, from an image")
    if kind == SNAPSHOT:
        _check_snapshot(state, sources)
    elif size_gb is None and (state in (EXTENDED, REIMAGED) or (state == PRESENT and set(sources) <= {"image_id"})):
        raise InvalidInput(reason="size_gb is missing")
    return DesiredVolume(
        id=checked_uuid(args["id"]),
        kind=kind,
        state=state,
        size=(size_gb or 0) * GIB if kind == VOLUME else 0,
        project=args.get("project") or "",
        **sources,
    )


def _sources(args: t.Mapping[str, t.Any]) -> dict[str, str]:
    """Return field -> id of the given sources."""
    source_ids = {key: args[key] for key in ("image_id", "source_volume", "source_snapshot") if args.get(key)}
    return {key: checked_id(i, "image id") if key == "image_id" else checked_uuid(i) for key, i in source_ids.items()}


def _size_gb(args: t.Mapping[str, t.Any]) -> int | None:
    size_gb = args.get("size_gb")
    if size_gb is None or (isinstance(size_gb, int) and not isinstance(size_gb, bool) and size_gb > 0):
        return size_gb
    raise InvalidInput(reason="Volume size '%s' must be an integer and greater than 0" % (size_gb,))


def _check_snapshot(state: str, sources: t.Mapping[str, str]) -> None:
    if state == EXTENDED or "image_id" in sources or "source_snapshot" in sources:
        raise InvalidSnapshot(reason="a snapshot takes only source_volume; its size is that of the volume")
    if state == PRESENT and "source_volume" not in sources:
        raise InvalidSnapshot(reason="source_volume is required")


def logical_size(group: VolumeGroup, lv: LogicalVolume) -> int:
    """Return the size in bytes for a reader of the volume or snapshot. The own size of a thick snapshot is only its space for changes."""
    if lv.is_thick_snapshot:
        tagged = tag_value(lv.tags, "size")
        return int(tagged) if tagged.isdigit() else group.lvs[lv.origin].size
    return lv.size


@dataclass(frozen=True)
class Plan:
    """The work for a desired volume or snapshot. ``size`` is that of the volume, in whole extents."""

    desired: DesiredVolume
    action: str
    size: int = 0
    existing_lv: LogicalVolume | None = None
    origin: LogicalVolume | None = None


def plan(desired: DesiredVolume, group: VolumeGroup, thin: bool, removing: t.Collection[str] = ()) -> Plan:
    """Return the work that the group needs for the desired volume or snapshot; nothing is changed.

    :arg removing: names of the logical volumes that go in the same batch.
    :raises Conflict: something else has its name, or it is there with another size, source or owner.
    :raises VolumeIsBusy: open, or with snapshots.
    :raises VolumeNotFound, SnapshotNotFound: it, or what it is to be made from, is not there.
    :raises InvalidInput: a size smaller than the source's or, for ``extended``, than it is.
    """
    existing_lv = group.lvs.get(desired.name)
    if existing_lv is not None:
        check_owner(
            "logical volume %s/%s" % (group.name, existing_lv.name),
            tag_value(existing_lv.tags, LEDGER),
            group.ledger_id,
        )
    if existing_lv is not None and identity(existing_lv.tags) != (desired.kind, desired.id):
        raise Conflict(
            message="logical volume %s/%s already exists and does not belong to bootflow (tags: %s)"
            % (group.name, desired.name, ", ".join(sorted(existing_lv.tags)) or "none"),
            remedy="Rename or remove it, or add the tags bootflow and bootflow.%s=%s." % (desired.kind, desired.id),
        )
    if desired.state == ABSENT:
        return _plan_removal(desired, group, existing_lv, removing)
    if existing_lv is not None and DELETING in existing_lv.tags:
        raise VolumeIsBusy(
            message="%s was partly deleted and its content is lost" % desired.name,
            remedy="Delete it again; the deletion resumes where it stopped.",
        )
    if desired.state == EXTENDED:
        return _plan_extension(desired, group, existing_lv)
    if desired.state == REIMAGED:
        return _plan_reimage(desired, group, existing_lv, thin)
    origin = _origin(desired, group)
    size = _size(desired, group, existing_lv, origin)
    if existing_lv is None:
        return Plan(desired, CREATE, size, None, origin)
    if INCOMPLETE in existing_lv.tags:
        return Plan(desired, REDO, size, existing_lv, origin)
    _check_same(desired, group, existing_lv, size, thin)
    inactive = desired.kind == VOLUME and not existing_lv.is_active
    return Plan(desired, ACTIVATE if inactive else NOTHING, size, existing_lv)


def _origin(desired: DesiredVolume, group: VolumeGroup) -> LogicalVolume | None:
    if not desired.origin_name:
        return None
    origin = group.lvs.get(desired.origin_name)
    if origin is None or DELETING in origin.tags or INCOMPLETE in origin.tags:
        if desired.name in group.lvs and INCOMPLETE not in group.lvs[desired.name].tags:
            return None  # it was made; its source may go
        if desired.source_snapshot:
            raise SnapshotNotFound(snapshot_id=desired.source_snapshot)
        raise VolumeNotFound(volume_id=desired.source_volume)
    if origin.is_invalid:
        raise InvalidSnapshot(reason="snapshot %s overflowed and its content is lost" % origin.name)
    return origin


def _size(
    desired: DesiredVolume, group: VolumeGroup, existing_lv: LogicalVolume | None, origin: LogicalVolume | None
) -> int:
    if origin is None:
        if desired.size:
            return group.rounded(desired.size)
        return logical_size(group, existing_lv) if existing_lv is not None else 0
    least = logical_size(group, origin)
    size = group.rounded(desired.size or least)
    if size < least:
        raise InvalidInput(
            reason="Volume size %s GiB is smaller than its source (%s GiB)." % (size // GIB, -(-least // GIB))
        )
    return size


def _check_same(desired: DesiredVolume, group: VolumeGroup, existing_lv: LogicalVolume, size: int, thin: bool) -> None:
    wrong = []
    actual_size = logical_size(group, existing_lv)
    if actual_size != size:
        wrong.append("size is %d bytes instead of %d" % (actual_size, size))
    for what, wanted in (("source", desired.source), ("project", project_text(desired.project))):
        value = tag_value(existing_lv.tags, what)
        if wanted and value != wanted:
            wrong.append("%s is %s instead of %s" % (what, value or "none", wanted))
    if existing_lv.is_thin != thin:
        wrong.append(
            "the volume is %s, the backend is %s" % (("thin", "thick") if existing_lv.is_thin else ("thick", "thin"))
        )
    if wrong:
        raise Conflict(
            message="%s/%s already exists with other properties: %s" % (group.name, desired.name, "; ".join(wrong)),
            remedy="Use state extended to grow it; otherwise delete it, or request the existing properties.",
        )


def _plan_extension(desired: DesiredVolume, group: VolumeGroup, existing_lv: LogicalVolume | None) -> Plan:
    if existing_lv is None or INCOMPLETE in existing_lv.tags:
        raise VolumeNotFound(volume_id=desired.id)
    size = group.rounded(desired.size)
    if size < existing_lv.size:
        raise InvalidInput(
            reason="New size for extend must be greater than current size. (current: %s, extended: %s)."
            % (-(-existing_lv.size // GIB), desired.size // GIB),
            remedy="Request a larger size; volumes cannot shrink.",
        )
    thick_snapshots = [lv.name for lv in group.snapshots_of(existing_lv.name) if lv.is_thick_snapshot]
    if size > existing_lv.size and thick_snapshots and existing_lv.is_open:
        raise InvalidVolume(
            reason="%s is in use and has snapshots: LVM extends an origin only while it is inactive" % desired.name,
            remedy="Detach the volume, or delete its snapshots.",
        )
    return Plan(desired, EXTEND if size > existing_lv.size else NOTHING, size, existing_lv)


def _plan_reimage(desired: DesiredVolume, group: VolumeGroup, existing_lv: LogicalVolume | None, thin: bool) -> Plan:
    """A thick volume is overwritten, and keeps its snapshots. A thin one is made again, so that it has the blocks of the image only;
    where a killed run has removed it before that, it is made now.
    """
    size = group.rounded(desired.size)
    if existing_lv is None:
        if thin:
            return Plan(desired, CREATE, size)
        raise VolumeNotFound(volume_id=desired.id)
    if existing_lv.is_open:
        raise VolumeIsBusy(
            message="%s is in use" % desired.name, remedy="Shut down its guest and remove its export first."
        )
    if existing_lv.is_thin != thin or existing_lv.size < size:
        _check_same(desired, group, existing_lv, size, thin)
    return Plan(desired, REIMAGE, max(size, existing_lv.size), existing_lv)


def _plan_removal(
    desired: DesiredVolume, group: VolumeGroup, existing_lv: LogicalVolume | None, removing: t.Collection[str]
) -> Plan:
    if existing_lv is None:
        return Plan(desired, NOTHING)
    snapshots = [
        lv.name
        for lv in group.snapshots_of(existing_lv.name)
        if (lv.is_thick_snapshot or identity(lv.tags)[0] == SNAPSHOT) and lv.name not in removing
    ]
    if snapshots:
        raise VolumeIsBusy(
            message="deleting volume %s that has snapshot (%s)" % (desired.name, ", ".join(snapshots)),
        )
    if existing_lv.is_open:
        raise VolumeIsBusy(
            message="%s is in use" % desired.name, remedy="Detach the volume and remove its export first."
        )
    return Plan(desired, REMOVE, existing_lv.size, existing_lv)


def rounds(desired_volumes: t.Sequence[DesiredVolume]) -> t.Iterator[list[DesiredVolume]]:
    """Yield deletions first; then every volume after its source in the batch."""
    removals = [desired for desired in desired_volumes if desired.state == ABSENT]
    pending = [desired for desired in desired_volumes if desired.state != ABSENT]
    first = True
    while pending or removals:
        names = {desired.name for desired in pending}
        now = [desired for desired in pending if desired.origin_name not in names]
        if pending and not now:
            now = list(pending)  # a cycle: each lacks its source
        yield (removals if first else []) + now
        first = False
        removals = []
        pending = [desired for desired in pending if desired not in now]
