# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Disks in a file system on a logical volume, of an instance that is resized on its own host.

The instance gets another logical volume with a file system, as large as its new disks can become. The one that it had stays to the bit what it was,
and neither is larger than what is claimed for it. They are exchanged as disks that are logical volumes are (resized_volumes.py), while neither is mounted.
The device that is mounted has the same name before and afterwards, so that the line in fstab is right for either, also when the host restarts in between.
"""

from __future__ import annotations

import contextlib
import os
import typing as t

from ....core.disks.local import DISK, volume_name
from ....core.disks.stores.registry import type_of_record
from ...lvm import lvm
from ...os import fstab, mounts
from .disk_info import records_of, write_records
from .instance_tags import of_instance
from .instance_volumes import finish
from .mounted import format_holder, holder_record, mount_again, mount_holder
from .qcow2_room import volume_room
from .resized_volumes import NEW, Group


def is_holder(records: t.Mapping[str, t.Any]) -> bool:
    """Whether the records of an instance's folder are those of a file system in which it has its disks."""
    store = type_of_record(records.get(DISK))
    return store is not None and store.is_file_system


def place_of(group: Group, folder: str) -> str:
    """The folder in which the instance has its disks: a file system is mounted there.

    :raises InvalidDiskInfo: its logical volume does not exist.
    """
    return mount_again(group.vg, folder) if is_holder(records_of(folder)) else folder


@contextlib.contextmanager
def made(group: Group, folder: str, part: str, sizes: t.Sequence[int]) -> t.Iterator[str]:
    """A new file system for disks of these sizes, which is mounted in ``part`` meanwhile, and has its record there.

    :raises DiskFull: the group has no room for it.
    """
    uuid = os.path.basename(folder)
    name, place = volume_name(uuid, DISK) + NEW, os.path.join(part, DISK)
    size = volume_room(sizes)
    write_records(part, {DISK: holder_record(group.vg, size)})
    format_holder(group.vg, uuid, name, size, group.ledger_id)
    mount_holder(lvm.device_path(group.vg, name), place)
    yield place
    mounts.unmount(place)
    os.rmdir(place)
    finish(group.vg, [name])


def close(folder: str) -> None:
    """Nothing is mounted in this folder. :raises VolumeIsBusy: a file there is open."""
    for each in mounts.below(folder):
        mounts.unmount(each.place)


def unmount(group: Group, folder: str) -> None:
    """Nothing of the instance is mounted.

    :raises VolumeIsBusy: a disk is open. :raises InvalidInput: something else is mounted in its folder.
    """
    lvs = of_instance(lvm.read_group(group.vg, group.ledger_id), os.path.basename(folder))
    for each in mounts.ours_below(folder, [lvm.device_path(group.vg, lv.name) for lv in lvs]):
        mounts.unmount(each.place)


def follow(group: Group, folder: str, records: t.Mapping[str, t.Any]) -> None:
    """The file system of these records is mounted, also when the host restarts; without one, nothing is."""
    if is_holder(records):
        mount_again(group.vg, folder)
        return
    fstab.remove(os.path.basename(folder))
    with contextlib.suppress(OSError):
        os.rmdir(os.path.join(folder, DISK))
