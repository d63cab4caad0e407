# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The images of a pool as a list of it has them, and the work on them to reach the desired state of one volume or snapshot."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field, replace

from ...core.amounts import GIB
from ...core.errors import (
    Conflict,
    InvalidInput,
    SnapshotNotFound,
    VolumeIsBusy,
    VolumeNotFound,
)
from ...core.volumes.names import volume_name
from ...core.volumes.rbd_names import DELETED, FORMER, INCOMPLETE, snapshot_id_of, snapshot_name
from ..os.ownership import check_owner
from ..volumes.plan import (
    ABSENT,
    CREATE,
    EXTEND,
    EXTENDED,
    NOTHING,
    REIMAGE,
    REIMAGED,
    REMOVE,
    DesiredVolume,
)

VOLUME, SNAPSHOT = "volume", "snapshot"
#: Keys of an image's metadata.
LEDGER, PROJECT, SOURCE = "bootflow.ledger", "bootflow.project", "bootflow.source"


class Parent(t.NamedTuple):
    """The snapshot from which an image was cloned."""

    pool: str
    image: str
    snapshot: str


@dataclass(frozen=True)
class Image:
    """An image of the pool. ``snapshots``: name -> size in bytes."""

    name: str
    size: int
    snapshots: t.Mapping[str, int] = field(default_factory=dict)
    parent: t.Optional[Parent] = None


def images_of(rows: t.Iterable[t.Mapping[str, t.Any]]) -> dict[str, Image]:
    """Return name -> image, from the rows of `rbd ls --long`, which has images and snapshots."""
    snapshots: dict[str, dict[str, int]] = {}
    whole: dict[str, t.Mapping[str, t.Any]] = {}
    for row in rows:
        if "snapshot" in row:
            snapshots.setdefault(str(row["image"]), {})[str(row["snapshot"])] = int(row["size"])
        else:
            whole[str(row["image"])] = row
    return {
        name: Image(name, int(row["size"]), snapshots.get(name, {}), _parent(row.get("parent")))
        for name, row in whole.items()
    }


def _parent(row: t.Optional[t.Mapping[str, t.Any]]) -> t.Optional[Parent]:
    return Parent(str(row["pool"]), str(row["image"]), str(row["snapshot"])) if row else None


def settled(images: t.Mapping[str, Image], names: t.Iterable[str]) -> dict[str, Image]:
    """Return the images as they are after Images.settle_exchange() of these names, each of which has a former image."""
    done = dict(images)
    for name in names:
        former = done.pop(name + FORMER)
        done.setdefault(name, replace(former, name=name))
    return done


def depth(images: t.Mapping[str, Image], name: str, pool: str) -> int:
    """Return how many ancestors an image has in its pool."""
    count = 0
    while name in images and images[name].parent is not None and count <= len(images):
        parent = t.cast(Parent, images[name].parent)
        count += 1
        if parent.pool != pool:
            break
        name = parent.image
    return count


def home_of(images: t.Mapping[str, Image], snapshot_id: str) -> str:
    """Return the image that has the snapshot with this id; "": none has."""
    wanted = snapshot_name(snapshot_id)
    return next((image.name for image in images.values() if wanted in image.snapshots), "")


@dataclass(frozen=True)
class Plan:
    """The work for a desired volume or snapshot. ``origin``: image and snapshot to clone; the snapshot is "" for the image as it is now."""

    desired: DesiredVolume
    action: str
    image: str  # of the volume, or that has the snapshot
    size: int = 0
    origin: t.Tuple[str, str] = ("", "")

    @property
    def name(self) -> str:
        """Return IMAGE, or IMAGE@SNAPSHOT."""
        return "%s@%s" % (self.image, snapshot_name(self.desired.id)) if self.desired.kind == SNAPSHOT else self.image


def plan(
    desired: DesiredVolume,
    images: t.Mapping[str, Image],
    metadata: t.Callable[[str], t.Mapping[str, str]],
    ledger_id: str = "",
    removing: t.Collection[str] = (),
) -> Plan:
    """Return the work that the pool needs for the desired volume or snapshot; nothing is changed.

    :arg metadata: gives that of an image. :arg removing: ids of the volumes and snapshots that go in the same batch.
    :raises Conflict: it is there with another size, source or owner. :raises VolumeIsBusy: it has snapshots.
    :raises VolumeNotFound, SnapshotNotFound: it, or what it is to be made from, is not there.
    :raises InvalidInput: a size smaller than the source's or, for ``extended``, than it is.
    """
    if desired.kind == SNAPSHOT:
        return _plan_snapshot(desired, images, metadata, ledger_id)
    name = volume_name(desired.id)
    image = images.get(name)
    facts = metadata(name) if image is not None else {}
    check_owner("image %s" % name, facts.get(LEDGER, ""), ledger_id)
    if desired.state == ABSENT:
        if image is None:
            return Plan(desired, REMOVE if INCOMPLETE + name in images else NOTHING, name)
        ids = [snapshot_id_of(snapshot) for snapshot in image.snapshots]
        remaining = [i for i in ids if i is not None and i not in removing]
        if remaining:
            raise VolumeIsBusy(
                message="deleting volume %s that has snapshot (%s)" % (name, ", ".join(sorted(remaining)))
            )
        return Plan(desired, REMOVE, name, image.size)
    if desired.state in (EXTENDED, REIMAGED):
        if image is None:
            raise VolumeNotFound(volume_id=desired.id)
        return _plan_change(desired, image)
    if image is not None:
        _check_same(desired, image, facts)
        return Plan(desired, NOTHING, name, image.size)
    origin = _origin(desired, images)
    least = images[origin[0]].snapshots[origin[1]] if origin[1] else images[origin[0]].size if origin[0] else 0
    size = desired.size or least
    if size < least:
        raise InvalidInput(
            reason="Volume size %s GiB is smaller than its source (%s GiB)." % (size // GIB, -(-least // GIB))
        )
    return Plan(desired, CREATE, name, size, origin)


def _plan_change(desired: DesiredVolume, image: Image) -> Plan:
    """An image is never made smaller: its data would be gone."""
    if desired.state == EXTENDED and desired.size < image.size:
        raise InvalidInput(
            reason="New size for extend must be greater than current size. (current: %s, extended: %s)."
            % (-(-image.size // GIB), desired.size // GIB),
            remedy="Request a larger size; volumes cannot shrink.",
        )
    if desired.state == EXTENDED:
        return Plan(desired, EXTEND if desired.size > image.size else NOTHING, image.name, desired.size)
    if image.snapshots:
        raise VolumeIsBusy(
            message="%s has snapshots (%s), and cannot be written again" % (image.name, ", ".join(image.snapshots)),
            remedy="Delete its snapshots, and the volumes that were made from it, first.",
        )
    return Plan(desired, REIMAGE, image.name, max(desired.size, image.size))


def _plan_snapshot(
    desired: DesiredVolume,
    images: t.Mapping[str, Image],
    metadata: t.Callable[[str], t.Mapping[str, str]],
    ledger_id: str,
) -> Plan:
    home = home_of(images, desired.id)
    owner = home or volume_name(desired.source_volume or desired.id)
    if owner in images:
        check_owner("image %s" % owner, metadata(owner).get(LEDGER, ""), ledger_id)
    if desired.state == ABSENT:
        size = images[home].snapshots[snapshot_name(desired.id)] if home else 0
        return Plan(desired, REMOVE if home else NOTHING, owner, size)
    wanted = volume_name(desired.source_volume)
    if home and home != wanted:
        raise Conflict(
            message="snapshot %s already exists, of %s instead of %s" % (desired.id, home, wanted),
            remedy="Delete it, or request the existing properties.",
        )
    if home:
        return Plan(desired, NOTHING, home, images[home].snapshots[snapshot_name(desired.id)])
    if wanted not in images:
        raise VolumeNotFound(volume_id=desired.source_volume)
    return Plan(desired, CREATE, wanted, images[wanted].size)


def _origin(desired: DesiredVolume, images: t.Mapping[str, Image]) -> tuple[str, str]:
    if desired.source_snapshot:
        home = home_of(images, desired.source_snapshot)
        if not home:
            raise SnapshotNotFound(snapshot_id=desired.source_snapshot)
        return home, snapshot_name(desired.source_snapshot)
    if desired.source_volume:
        name = volume_name(desired.source_volume)
        if name not in images:
            raise VolumeNotFound(volume_id=desired.source_volume)
        return name, ""
    return "", ""


def _check_same(desired: DesiredVolume, image: Image, facts: t.Mapping[str, str]) -> None:
    wrong = []
    if desired.size and image.size != desired.size:
        wrong.append("size is %d bytes instead of %d" % (image.size, desired.size))
    for what, key, wanted in (("source", SOURCE, desired.source), ("project", PROJECT, desired.project)):
        value = facts.get(key, "")
        if wanted and value != wanted:
            wrong.append("%s is %s instead of %s" % (what, value or "none", wanted))
    if wrong:
        raise Conflict(
            message="%s already exists with other properties: %s" % (image.name, "; ".join(wrong)),
            remedy="Use state extended to grow it; otherwise delete it, or request the existing properties.",
        )


def is_ended(image: Image) -> bool:
    """Whether an image is a deleted volume from which nothing is cloned any more."""
    return image.name.endswith(DELETED) and not image.snapshots
