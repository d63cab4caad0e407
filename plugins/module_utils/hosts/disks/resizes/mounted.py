# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Disks in a file system on a logical volume, of an instance that is resized on its own host.

The instance gets another logical volume with a file system, as large as its new disks can become. The one that it had stays to the bit what it was,
and neither is larger than what is claimed for it. They are exchanged as disks that are logical volumes are (volumes.py), while neither is mounted.
The device that is mounted has the same name before and afterwards, so that the line in fstab is right for either, also when the host restarts in between.
"""

from __future__ import annotations

import contextlib
import os
import typing as t
from dataclasses import replace

from ....core.disks.local import DISK, QCOW2, volume_name
from ....core.disks.stores.registry import is_file_system
from ....core.errors import InvalidDiskInfo
from ...lvm import lvm
from ...os import fstab, mounts
from ..stores.disk_info import records_of, write_records
from ..stores.disk_spec import DiskSpec, disk_size
from ..stores.group import Group
from ..stores.instance_tags import of_instance
from ..stores.instance_volumes import finish
from ..stores.mounted import format_holder, holder_record, mount_again, mount_holder
from ..stores.qcow2_room import volume_room
from .files import check_files, fill
from .resize import Records
from .volumes import NEW, ResizedVolumes


class ResizedMounted(ResizedVolumes):
    """The files in the file system of the instance."""

    def place(self, folder: str) -> str:
        return mount_again(self.group.vg, folder) if _is_holder(records_of(folder)) else folder

    def check(self, folder: str, records: Records, made: t.Sequence[DiskSpec]) -> int:
        if _is_holder(records_of(folder)):
            return check_files(os.path.join(folder, DISK), records)
        needed = super().check(folder, records, made)
        if records:
            raise InvalidDiskInfo(
                reason="the disks in folder %s are not in a separate file system" % folder,
                remedy="Set the bootflow_disk_backend with which the instance was booted for the host.",
            )
        return needed

    def copy(
        self,
        folder: str,
        part: str,
        records: Records,
        sizes: t.Mapping[str, int],
        made: t.Sequence[DiskSpec],
        needed: int,
    ) -> dict[str, t.Any]:
        """See Resize.copy(). The room for the copies is that of the volume group."""
        blank = [replace(spec, backend=QCOW2) for spec in made]
        room = [max(int(r["virtual_size"]), sizes.get(n, 0)) for n, r in records.items()]
        room += [disk_size(spec, None) for spec in blank]
        if not room:
            write_records(part, {})
            return {}
        with _made(self.group, folder, part, room) as target:
            return fill(os.path.join(folder, DISK), target, records, sizes, blank)

    def close(self, folder: str) -> None:
        """Unmount what is mounted of the instance.

        :raises VolumeIsBusy: a disk is open. :raises InvalidInput: something else is mounted in its folder.
        """
        lvs = of_instance(lvm.read_group(self.group.vg, self.group.ledger_id), os.path.basename(folder))
        for mount in mounts.ours_below(folder, [lvm.device_path(self.group.vg, lv.name) for lv in lvs]):
            mounts.unmount(mount.place)

    def files_of(self, names: t.Collection[str]) -> t.Collection[str]:
        return ()

    def swap_in(self, folder: str, dropped: t.Collection[str], records: t.Mapping[str, t.Any]) -> None:
        super().swap_in(folder, dropped, records)
        self._mount_current(folder, records)

    def roll_back(self, folder: str, added: t.Collection[str], records: t.Mapping[str, t.Any]) -> None:
        super().roll_back(folder, added, records)
        self._mount_current(folder, records)

    def _mount_current(self, folder: str, records: t.Mapping[str, t.Any]) -> None:
        """Mount the file system of these records, also when the host restarts; without one, nothing is mounted."""
        if _is_holder(records):
            mount_again(self.group.vg, folder)
            return
        fstab.remove(os.path.basename(folder))
        with contextlib.suppress(OSError):
            os.rmdir(os.path.join(folder, DISK))


def _is_holder(records: t.Mapping[str, t.Any]) -> bool:
    """Return whether the records of an instance's folder have a file system that holds its disks."""
    return is_file_system(records.get(DISK))


@contextlib.contextmanager
def _made(group: Group, folder: str, part: str, sizes: t.Sequence[int]) -> t.Iterator[str]:
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
