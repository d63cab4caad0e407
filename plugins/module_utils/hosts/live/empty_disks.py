# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Make the empty disks on this host to which a live migration copies the disks of a guest: files, logical volumes, or files on one.

Once made they do not have the mark of incomplete disks: libvirt alone decides where the guest continues, also when the run that would remove the mark is dead,
and a disk with the mark is made again. Where the guest stays, this host is cleaned up.
source: Nova's pre_live_migration
"""

from __future__ import annotations

import contextlib
import os
import shutil
import typing as t

from ...core.disks.block_devices import PlannedDisk
from ...core.disks.local import DISK, NONE
from ...core.disks.stores.registry import STORE_TYPES, is_shared
from ...core.errors import BootflowError
from ...core.guest.arriving import LocalDisk
from ...core.guest.arriving_disks import unknown_bytes
from ...core.guest.devices import volume_source
from ...core.guest.domain.element import to_text
from ...core.volumes.disk_pool import DiskPool
from ..disks.arrivals.registry import arrivals_of
from ..disks.instances import refuse_present
from ..disks.stores.group import Clearing, Group
from ..disks.stores.removal import remove_volumes
from ..os.batch import progress
from ..os.files import fsync
from ..os.locks import host_lock
from ..os.ownership import mark_folder, mark_made_for
from ..os.paths import checked_disk_name, checked_instances_path, instance_dir, make_dirs
from ..os.room import check_room

Disk = t.Mapping[str, t.Any]


def make_disks(
    connection: t.Any,
    instances_path: str,
    ledger_id: str,
    uuid: str,
    disks: t.Sequence[Disk],
    limits: t.Mapping[str, int],
    volume_group: str = "",
    made_for: str = "",
    pool: DiskPool | None = None,
) -> dict[str, dict[str, t.Any]]:
    """Make the folder of the guest, with empty disks of the same sizes and without base images.

    A copy of all that the guest sees, as in a cold migration: this host needs no image for it, and another one's base may be gone. Returns of
    the logical volumes target -> {path, size}: the bytes that the guest sees where the volume is larger, else 0.

    :arg disks: the guest's, see core.guest.arriving_disks.checked_disks(). :arg limits: bytes that each may have; 0: the ledger does not know
    :arg volume_group: for logical volumes. :arg pool: in which the guest has disks. :arg made_for: the mark of the migration, see core.instances.move_mark
    :raises Conflict: the host has something of the instance already. :raises DiskFull: there is not enough room.
    :raises InvalidInput: a disk is a logical volume, and no volume group is given.
    :raises DriverNotInitialized: the volume group does not exist or is not usable.
    """
    folder = instance_dir(instances_path, uuid)
    with host_lock(instances_path, "instance-" + os.path.basename(folder)):
        arrivals = arrivals_of(folder, Group(volume_group, ledger_id, pool=pool), disks)
        refuse_present(connection, folder, volume_group, ledger_id)
        for arrival in arrivals:
            arrival.check_group()
        path = checked_instances_path(instances_path)
        make_dirs(path)
        files = [disk for arrival in arrivals if not arrival.in_group for disk in arrival.disks]
        check_room(path, max(sum(int(d["allocated"]) for d in files), unknown_bytes(files, limits)))
        progress.mark_changed()
        try:
            mark_made_for(folder, made_for)
            mark_folder(folder, ledger_id)
            make_dirs(folder)
            devices = {}
            for arrival in arrivals:
                devices.update(arrival.make_empty())
            fsync(folder)
            return devices
        except BaseException:
            in_group = volume_group if any(arrival.in_group for arrival in arrivals) else ""
            _remove(folder, Group(in_group, ledger_id, Clearing(NONE)))
            raise


def disks_here(
    instances_path: str,
    uuid: str,
    disks: t.Sequence[Disk],
    devices: t.Mapping[str, t.Mapping[str, t.Any]],
    pool: DiskPool | None = None,
) -> dict[str, LocalDisk]:
    """Return the guest's local disks as its definition has them here, by its names for them.

    :arg disks: see core.guest.arriving_disks.checked_disks(). :arg devices: as make_disks() returned them. :arg pool: see make_disks()
    """
    folder = instance_dir(instances_path, uuid)
    disk_of_target = {}
    for disk in disks:
        target, name = disk["target"], checked_disk_name(disk["name"])
        if is_shared(disk["record"]):
            planned = PlannedDisk(name, disk["record"]["kind"], "/dev/" + target, "virtio")
            source = STORE_TYPES[disk["record"]["format"]].source(uuid, name, folder, "", pool)
            local_xml = to_text(volume_source(planned.placed(**source._asdict())).to_xml())
            disk_of_target[target] = LocalDisk("", source.driver_format, shared=local_xml)
        elif target in devices:
            disk_of_target[target] = LocalDisk(devices[target]["path"], "raw", True, int(devices[target]["size"]))
        else:
            place = os.path.join(folder, DISK) if disk.get("mounted") else folder
            disk_of_target[target] = LocalDisk(os.path.join(place, name), disk["record"]["format"])
    return disk_of_target


def _remove(folder: str, local: Group) -> None:
    """Remove the disks. They are still empty, so that nothing is overwritten. The cleanup of the instance removes later whatever fails here."""
    with contextlib.suppress(BootflowError, OSError):
        remove_volumes(folder, os.path.basename(folder), local)
        shutil.rmtree(folder, ignore_errors=True)
