# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is asked of one volume or snapshot, and what has to be done for it on the volume group as it is."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

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
from ..lvm.lvm_tags import DELETING, INCOMPLETE, KINDS, SNAPSHOT, VOLUME, checked_tag, identity, lv_name, tag_value
from ..os.paths import checked_id, checked_uuid

GIB = 1024**3

PRESENT, EXTENDED, ABSENT = "present", "extended", "absent"
STATES = (PRESENT, EXTENDED, ABSENT)

CREATE, REDO, ACTIVATE, EXTEND, REMOVE, NOTHING = "create", "redo", "activate", "extend", "remove", "nothing"


@dataclass(frozen=True)
class Wish:
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
        """As in the tag ``bootflow.source``."""
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
        """The logical volume that it is made from; "" for an empty one or one from an image."""
        if self.source_snapshot:
            return lv_name(SNAPSHOT, self.source_snapshot)
        return lv_name(VOLUME, self.source_volume) if self.source_volume else ""


def wish_of(args: t.Mapping[str, t.Any]) -> Wish:
    """The wish in an element of the option ``volumes``.

    :raises InvalidInput: not a UUID, no size, two sources...
    """
    kind, state = args.get("kind") or VOLUME, args.get("state") or PRESENT
    if kind not in KINDS or state not in STATES:
        raise InvalidInput(reason="unknown kind %r or state %r" % (kind, state))
    sources = {key: args.get(key) or "" for key in ("image_id", "source_volume", "source_snapshot")}
    given = [key for key, value in sources.items() if value]
    size_gb = args.get("size_gb")
    if size_gb is not None and (isinstance(size_gb, bool) or not isinstance(size_gb, int) or size_gb <= 0):
        raise InvalidInput(reason="Volume size '%s' must be an integer and greater than 0" % (size_gb,))
    if state == PRESENT and len(given) > 1:
        raise InvalidInput(reason="a volume takes only one source, got %s" % " and ".join(given))
    if kind == SNAPSHOT:
        if state == EXTENDED or sources["image_id"] or sources["source_snapshot"]:
            raise InvalidSnapshot(reason="a snapshot takes only source_volume; its size is that of the volume")
        if state == PRESENT and not sources["source_volume"]:
            raise InvalidSnapshot(reason="source_volume is required")
    elif state == EXTENDED and size_gb is None:
        raise InvalidInput(reason="size_gb is missing")
    elif state == PRESENT and size_gb is None and given in ([], ["image_id"]):
        raise InvalidInput(reason="size_gb is missing")
    if sources["image_id"]:
        checked_id(sources["image_id"], "image id")
    for key in ("source_volume", "source_snapshot"):
        if sources[key]:
            sources[key] = checked_uuid(sources[key])
    if args.get("project"):
        checked_tag("bootflow.project=%s" % args["project"])
    return Wish(
        id=checked_uuid(args["id"]),
        kind=kind,
        state=state,
        size=(size_gb or 0) * GIB if kind == VOLUME else 0,
        project=args.get("project") or "",
        **sources,
    )


def logical_size(group: VolumeGroup, lv: LogicalVolume) -> int:
    """Bytes that a reader of the volume or snapshot sees. A thick snapshot's own size is only its room for changes."""
    if lv.is_thick_snapshot:
        tagged = tag_value(lv.tags, "size")
        return int(tagged) if tagged.isdigit() else group.lvs[lv.origin].size
    return lv.size


@dataclass(frozen=True)
class Plan:
    """What is to be done for a wish. ``size`` is the volume's, in whole extents."""

    wish: Wish
    action: str
    size: int = 0
    there: LogicalVolume | None = None
    origin: LogicalVolume | None = None


def plan(wish: Wish, group: VolumeGroup, thin: bool, removing: t.Collection[str] = ()) -> Plan:
    """What the wish needs on the group as it is; nothing is touched.

    :arg removing: names of the logical volumes that go in the same batch.
    :raises Conflict: something else has its name, or it is there with another size, source or owner.
    :raises VolumeIsBusy: open, or with snapshots.
    :raises VolumeNotFound, SnapshotNotFound: it, or what it is to be made from, is not there.
    :raises InvalidInput: a size smaller than the source's or, for ``extended``, than it is.
    """
    there = group.lvs.get(wish.name)
    if there is not None and identity(there.tags) != (wish.kind, wish.id):
        raise Conflict(
            message="logical volume %s/%s already exists and does not belong to bootflow (tags: %s)"
            % (group.name, wish.name, ", ".join(sorted(there.tags)) or "none"),
            remedy="Rename or remove it, or add the tags bootflow and bootflow.%s=%s." % (wish.kind, wish.id),
        )
    if wish.state == ABSENT:
        return _plan_removal(wish, group, there, removing)
    if there is not None and DELETING in there.tags:
        raise VolumeIsBusy(
            message="%s was partly deleted and its content is lost" % wish.name,
            remedy="Delete it again; the deletion resumes where it stopped.",
        )
    if wish.state == EXTENDED:
        return _plan_extension(wish, group, there)
    origin = _origin(wish, group)
    size = _size(wish, group, there, origin)
    if there is None:
        return Plan(wish, CREATE, size, None, origin)
    if INCOMPLETE in there.tags:
        return Plan(wish, REDO, size, there, origin)
    _check_same(wish, group, there, size, thin)
    inactive = wish.kind == VOLUME and not there.is_active
    return Plan(wish, ACTIVATE if inactive else NOTHING, size, there)


def _origin(wish: Wish, group: VolumeGroup) -> LogicalVolume | None:
    if not wish.origin_name:
        return None
    origin = group.lvs.get(wish.origin_name)
    if origin is None or DELETING in origin.tags or INCOMPLETE in origin.tags:
        if wish.name in group.lvs and INCOMPLETE not in group.lvs[wish.name].tags:
            return None  # it was made; its source may go
        if wish.source_snapshot:
            raise SnapshotNotFound(snapshot_id=wish.source_snapshot)
        raise VolumeNotFound(volume_id=wish.source_volume)
    if origin.is_invalid:
        raise InvalidSnapshot(reason="snapshot %s overflowed and its content is lost" % origin.name)
    return origin


def _size(wish: Wish, group: VolumeGroup, there: LogicalVolume | None, origin: LogicalVolume | None) -> int:
    if origin is None:
        if wish.size:
            return group.rounded(wish.size)
        return logical_size(group, there) if there is not None else 0
    least = logical_size(group, origin)
    size = group.rounded(wish.size or least)
    if size < least:
        raise InvalidInput(
            reason="Volume size '%s'GB cannot be smaller than the source's size %sGB. They must be >= original size."
            % (size // GIB, -(-least // GIB))
        )
    return size


def _check_same(wish: Wish, group: VolumeGroup, there: LogicalVolume, size: int, thin: bool) -> None:
    wrong = []
    found = logical_size(group, there)
    if found != size:
        wrong.append("size is %d bytes instead of %d" % (found, size))
    for what, wanted in (("source", wish.source), ("project", wish.project)):
        value = tag_value(there.tags, what)
        if wanted and value != wanted:
            wrong.append("%s is %s instead of %s" % (what, value or "none", wanted))
    if there.is_thin != thin:
        wrong.append(
            "the volume is %s, the backend is %s" % (("thin", "thick") if there.is_thin else ("thick", "thin"))
        )
    if wrong:
        raise Conflict(
            message="%s/%s already exists with other properties: %s" % (group.name, wish.name, "; ".join(wrong)),
            remedy="Use state extended to grow it; otherwise delete it, or request the existing properties.",
        )


def _plan_extension(wish: Wish, group: VolumeGroup, there: LogicalVolume | None) -> Plan:
    if there is None or INCOMPLETE in there.tags:
        raise VolumeNotFound(volume_id=wish.id)
    size = group.rounded(wish.size)
    if size < there.size:
        raise InvalidInput(
            reason="New size for extend must be greater than current size. (current: %s, extended: %s)."
            % (-(-there.size // GIB), wish.size // GIB),
            remedy="Request a larger size; volumes cannot shrink.",
        )
    thick_snapshots = [lv.name for lv in group.snapshots_of(there.name) if lv.is_thick_snapshot]
    if size > there.size and thick_snapshots and there.is_open:
        raise InvalidVolume(
            reason="%s is in use and has snapshots: LVM extends an origin only while it is inactive" % wish.name,
            remedy="Detach the volume, or delete its snapshots.",
        )
    return Plan(wish, EXTEND if size > there.size else NOTHING, size, there)


def _plan_removal(wish: Wish, group: VolumeGroup, there: LogicalVolume | None, removing: t.Collection[str]) -> Plan:
    if there is None:
        return Plan(wish, NOTHING)
    snapshots = [
        lv.name
        for lv in group.snapshots_of(there.name)
        if (lv.is_thick_snapshot or identity(lv.tags)[0] == SNAPSHOT) and lv.name not in removing
    ]
    if snapshots:
        raise VolumeIsBusy(
            message="deleting volume %s that has snapshot (%s)" % (wish.name, ", ".join(snapshots)),
        )
    if there.is_open:
        raise VolumeIsBusy(message="%s is in use" % wish.name, remedy="Detach the volume and remove its export first.")
    return Plan(wish, REMOVE, there.size, there)
