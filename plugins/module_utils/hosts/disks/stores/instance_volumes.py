# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Logical volumes of instances: created for one instance, tagged with it, wiped and removed with it.

Names are Nova's, <uuid>_disk and <uuid>_disk.eph0. The tags identify the owner; volumes without our tags are never touched.
source: Nova's libvirt driver (images_type lvm, volume_clear)
"""

from __future__ import annotations

import os
import socket
import time
import typing as t
from dataclasses import dataclass

from ....core.amounts import MIB
from ....core.disks.local import NONE, SHRED
from ....core.errors import BootflowError, CommandFailed, Conflict, DiskFull, VolumeIsBusy
from ...lvm import lvm
from ...lvm.lvm import LogicalVolume, VolumeGroup
from ...lvm.lvm_tags import DELETING, INCOMPLETE, owner_tags
from ...os import guest_content
from ...os.batch import progress
from ...volumes import copy
from .group import Clearing
from .instance_tags import INSTANCE, of_instance

#: Seconds after which a volume that is still open counts as in use, because udev scans volumes that were just closed.
_SETTLES = 10.0


@dataclass(frozen=True)
class Wanted:
    """A volume to create. ``source``: "image/<id>", or "" for an empty one."""

    name: str
    size: int  # bytes
    source: str = ""


def whole(group: VolumeGroup, uuid: str, name: str) -> LogicalVolume | None:
    """The volume of the instance with that name; None if it does not exist or is incomplete.

    :raises Conflict: a volume of another owner has the name.
    """
    lv = group.lvs.get(name)
    if lv is None:
        return None
    if lv not in of_instance(group, uuid):
        raise Conflict(
            message="logical volume %s/%s already exists and is not tagged for instance %s" % (group.name, name, uuid),
            remedy="Rename or remove it (lvs -o +lv_tags %s)." % group.name,
        )
    return None if lv.tags & {INCOMPLETE, DELETING} else lv


def begin(vg: str, uuid: str, wanted: t.Sequence[Wanted], ledger_id: str = "") -> None:
    """Create the volumes, marked as incomplete; finish() removes the mark. Leftovers of killed runs are created again.

    :raises DiskFull: the group lacks space for all of them.
    :raises VolumeIsBusy: a leftover is still open.
    """
    with lvm.group_lock(vg):
        group = lvm.read_group(vg)
        reused, to_remove = _left_over(group, uuid, wanted)
        if not to_remove:
            _create(group, uuid, wanted, reused, ledger_id)
            return
    remove(vg, to_remove, Clearing())
    with lvm.group_lock(vg):
        _create(lvm.read_group(vg), uuid, wanted, reused, ledger_id)


def _left_over(
    group: VolumeGroup, uuid: str, wanted: t.Sequence[Wanted]
) -> tuple[list[LogicalVolume], list[LogicalVolume]]:
    """Leftovers of a killed run: to be overwritten, because others must not get their content, and removed."""
    reused: list[LogicalVolume] = []
    to_remove: list[LogicalVolume] = []
    for volume in wanted:
        lv = group.lvs.get(volume.name)
        if lv is not None and whole(group, uuid, volume.name) is None:
            again = DELETING not in lv.tags and lv.size == group.rounded(volume.size)
            (reused if again else to_remove).append(lv)
    return reused, to_remove


def _create(
    group: VolumeGroup, uuid: str, wanted: t.Sequence[Wanted], reused: t.Sequence[LogicalVolume], ledger_id: str
) -> None:
    reused_names = {lv.name for lv in reused}
    missing = [volume for volume in wanted if volume.name not in reused_names]
    _check_room(group, missing)
    sleeping = [lv.name for lv in reused if not lv.is_active]
    if sleeping:
        lvm.set_active(group.name, sleeping, True)
    for volume in missing:
        progress.mark_changed()
        tags = owner_tags(INSTANCE, uuid, source=volume.source, ledger_id=ledger_id) + [INCOMPLETE]
        lvm.create_thick(group.name, volume.name, group.rounded(volume.size), tags)


def _check_room(group: VolumeGroup, wanted: t.Sequence[Wanted]) -> None:
    free = group.free
    for volume in wanted:
        size = group.rounded(volume.size)
        if size > free:
            raise DiskFull(
                host=socket.gethostname(),
                path="volume group %s" % group.name,
                reason="Insufficient Space on Volume Group %s. Only %d bytes available, but %d bytes required by volume %s."
                % (group.name, free, size, volume.name),
                remedy="Extend the volume group (vgextend), or lower the host's disk_allocation_ratio.",
            )
        free -= size


def finish(vg: str, names: t.Sequence[str]) -> None:
    """Mark the volumes as complete."""
    with lvm.group_lock(vg):
        lvm.change_tags(vg, names, remove=[INCOMPLETE])


def activate(vg: str, lvs: t.Sequence[LogicalVolume]) -> bool:
    """Activate the volumes; whether one was inactive, as after a restart of a host without automatic activation."""
    sleeping = [lv.name for lv in lvs if not lv.is_active]
    if sleeping:
        progress.mark_changed()
        with lvm.group_lock(vg):
            lvm.set_active(vg, sleeping, True)
    return bool(sleeping)


def remove(vg: str, lvs: t.Sequence[LogicalVolume], clearing: Clearing) -> None:
    """Wipe and remove the volumes. The next call continues an interrupted removal.

    :raises VolumeIsBusy: a volume is open; it is not wiped.
    :raises CommandFailed: a volume could not be overwritten; it is kept, and no guest gets it.
    """
    if not lvs:
        return
    progress.mark_changed()
    names = [lv.name for lv in lvs]
    with lvm.group_lock(vg):
        check_closed(vg, names)
        marked = [lv.name for lv in lvs if DELETING not in lv.tags]
        if marked:
            lvm.change_tags(vg, marked, add=[DELETING])
        sleeping = [lv.name for lv in lvs if not lv.is_active]
        if sleeping and clearing.how != NONE:
            lvm.set_active(vg, sleeping, True)
    for lv in lvs:
        _wipe(lvm.device_path(vg, lv.name), lv.size, clearing)
    with lvm.group_lock(vg):
        lvm.remove(vg, names)


def check_closed(vg: str, names: t.Sequence[str]) -> None:
    """Check that nothing has the volumes open, after what this host itself made of their content is deactivated.

    :raises VolumeIsBusy: one of the volumes is open.
    """
    guest_content.release_paths(lvm.device_path(vg, name) for name in names)
    deadline = time.monotonic() + _SETTLES
    while True:
        lvs = lvm.read_group(vg).lvs
        used = [name for name in names if name in lvs and lvs[name].is_open]
        if not used:
            return
        if time.monotonic() > deadline:
            raise VolumeIsBusy(
                message="logical volume %s/%s is open and was not touched" % (vg, used[0]),
                remedy="Find what has it open (fuser -v, findmnt, dmsetup ls --tree), close it, and run the playbook again.",
            )
        time.sleep(0.3)


def _wipe(path: str, size: int, clearing: Clearing) -> None:
    if clearing.how == NONE:
        return
    length = min(size, clearing.size_mb * MIB) if clearing.size_mb else size
    try:
        if clearing.how == SHRED:
            os.close(os.open(path, os.O_WRONLY | os.O_EXCL | os.O_CLOEXEC))  # fails if a file system uses it
            copy.shred(path, length)
        else:
            copy.zero(path, length)
    except (OSError, BootflowError) as error:
        reason = error.strerror if isinstance(error, OSError) else error.message
        raise CommandFailed(
            message="logical volume %s could not be wiped: %s" % (path, reason),
            remedy="The volume stays with its instance until it is wiped. Repair the disk and delete the instance again;"
            " or set bootflow_disk_volume_clear: none, and the next guest can read the old data.",
        ) from None
