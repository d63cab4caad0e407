# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""qcow2 files on a logical volume of the instance, which is mounted on <uuid>/disk: <uuid>/disk/disk and so on.

The files are layers over the raw images of the cache, as with the backend qcow2. The volume has space for the full
files, so that a guest never fails to write to a disk that is not full.
"""

from __future__ import annotations

import dataclasses
import os
import typing as t

from ....core.disks.local import DISK, QCOW2, volume_name
from ....core.disks.logical_volumes import checked_lvm_name
from ....core.disks.stores.qcow2_on_lvm import Qcow2OnLvm
from ....core.errors import InvalidDiskInfo
from ...images.images import BaseImage
from ...lvm import lvm
from ...os import fstab, mounts
from ...os.batch import progress
from ...os.command import program, run
from ...os.ownership import ledger_of_folder
from ...os.paths import checked_disk_name, make_dirs
from ...volumes.copy import flush
from .disk_info import records_of, write_records
from .disk_spec import DiskSpec, disk_size
from .files import check_file, ensure_files, make_file_replacement, open_file, remove_replacement, take_file_replacement
from .instance_volumes import Wanted, activate, begin, finish, whole
from .qcow2_room import MKFS_OPTIONS, promised_gb, volume_room
from .store import OpenDisk
from .volumes import Volumes


class Mounted(Volumes):
    """Files in a file system of the instance, on one logical volume."""

    def ensure(
        self, folder: str, specs: t.Sequence[DiskSpec], bases: t.Mapping[str, BaseImage], check_mode: bool
    ) -> dict[str, t.Any]:
        return ensure_mounted(self.group.vg, folder, specs, bases, check_mode)

    def room_gb(self, group: lvm.VolumeGroup, size: int) -> int:
        """See Volumes.room_gb(): without the overhead of file systems."""
        return promised_gb(size, group.extent_size)

    def make_readable(self, folder: str, name: str, record: t.Mapping[str, t.Any]) -> None:
        place = self._place(folder)
        check_file(os.path.join(place, checked_disk_name(name)), records_of(place).get(name) or {})

    def opened(
        self, folder: str, name: str, record: t.Mapping[str, t.Any], left_behind: t.Collection[str]
    ) -> t.Iterator[OpenDisk]:
        place = os.path.join(folder, checked_disk_name(name))
        for disk, disk_record in sorted(records_of(place).items()):
            if disk not in left_behind:
                fd = open_file(folder, os.path.join(place, checked_disk_name(disk)), disk_record)
                yield OpenDisk(disk, fd, {**disk_record, "base": ""}, mounted=True)

    def make_replacement(self, folder: str, spec: DiskSpec, bases: t.Mapping[str, BaseImage]) -> None:
        make_file_replacement(self._place(folder), dataclasses.replace(spec, backend=QCOW2), bases)

    def take_replacement(self, folder: str, name: str) -> None:
        take_file_replacement(self._place(folder), name)

    def drop_replacement(self, folder: str, name: str) -> bool:
        return remove_replacement(self._place(folder))

    def _place(self, folder: str) -> str:
        return mount_again(checked_lvm_name(self.group.vg, "volume group"), folder)


def ensure_mounted(
    vg: str, folder: str, specs: t.Sequence[DiskSpec], bases: t.Mapping[str, BaseImage], check_mode: bool
) -> dict[str, t.Any]:
    """Like ensure_files(), in the directory on which the logical volume of the instance is mounted."""
    uuid = folder.rpartition("/")[2]
    name = volume_name(uuid, DISK)
    device, place = lvm.device_path(vg, name), os.path.join(folder, DISK)
    files = [dataclasses.replace(spec, backend=QCOW2) for spec in specs]
    group = lvm.read_group(vg)
    lvm.check_group(group)
    lv = whole(group, uuid, name)
    if os.path.lexists(place) and (os.path.islink(place) or not os.path.isdir(place)):
        raise InvalidDiskInfo(
            reason="%s exists and is not a directory" % place, remedy="Delete the instance on this host first."
        )
    is_mounted = lv is not None and lv.is_active and mounts.is_on(device, place)
    if check_mode and not is_mounted:
        return {"changed": True, "disks": [_described(place, spec, bases) for spec in files]}
    changed = not is_mounted or not fstab.has(uuid, device, place)
    if not check_mode:
        if lv is None:
            _make(vg, uuid, name, folder, [disk_size(spec, bases.get(spec.image_id)) for spec in specs])
        else:
            activate(vg, [lv])
        if not is_mounted:
            mount_holder(device, place)
        fstab.add(uuid, device, place)
    result = ensure_files(place, files, bases, check_mode)
    return {"changed": result["changed"] or changed, "disks": result["disks"]}


def make_holder(vg: str, folder: str, sizes: t.Sequence[int]) -> str:
    """Make the logical volume for disks of these sizes, in bytes, and mount it. Returns the directory for them."""
    uuid = os.path.basename(folder)
    name = volume_name(uuid, DISK)
    device, place = lvm.device_path(vg, name), os.path.join(folder, DISK)
    _make(vg, uuid, name, folder, sizes)
    mount_holder(device, place)
    fstab.add(uuid, device, place)
    return place


def mount_again(vg: str, folder: str) -> str:
    """Mount the logical volume of the instance where it is not mounted. Returns the directory with the disks.

    :raises InvalidDiskInfo: it does not exist, or something else is mounted there.
    """
    uuid = os.path.basename(folder)
    name = volume_name(uuid, DISK)
    device, place = lvm.device_path(vg, name), os.path.join(folder, DISK)
    lv = whole(lvm.read_group(vg), uuid, name)
    if lv is None:
        raise InvalidDiskInfo(reason="logical volume %s/%s does not exist" % (vg, name))
    activate(vg, [lv])
    if not mounts.is_on(device, place):
        mount_holder(device, place)
    fstab.add(uuid, device, place)
    return place


def holder_record(vg: str, size: int) -> dict[str, t.Any]:
    """The record of the logical volume in disk.info. :arg size: in bytes"""
    return {"kind": DISK, "format": Qcow2OnLvm.name, "virtual_size": size, "volume_group": vg}


def _described(place: str, spec: DiskSpec, bases: t.Mapping[str, BaseImage]) -> dict[str, t.Any]:
    return {
        "name": spec.name,
        "path": os.path.join(place, spec.name),
        "format": QCOW2,
        "virtual_size": disk_size(spec, bases.get(spec.image_id)),
    }


def _make(vg: str, uuid: str, name: str, folder: str, sizes: t.Sequence[int]) -> None:
    progress.mark_changed()
    make_dirs(folder)
    size = volume_room(sizes)
    # Before it is created, because a removal finds the volume group here.
    write_records(folder, dict(records_of(folder), **{DISK: holder_record(vg, size)}))
    format_holder(vg, uuid, name, size, ledger_of_folder(folder))
    finish(vg, [name])


def format_holder(vg: str, uuid: str, name: str, size: int, ledger_id: str) -> None:
    """Create the logical volume with its file system. It is marked as incomplete."""
    begin(vg, uuid, [Wanted(name, size)], ledger_id)
    device = lvm.device_path(vg, name)
    argv = [program("mkfs.ext4", "e2fsprogs"), "-q", "-F", *MKFS_OPTIONS, device]
    run(argv, timeout=600.0, path=device, outlives=False)
    flush(device)


def mount_holder(device: str, place: str) -> None:
    """Mount the logical volume on the directory, which QEMU can pass.

    :raises InvalidDiskInfo: there are files.
    """
    make_dirs(place)
    if os.listdir(place):
        raise InvalidDiskInfo(
            reason="directory %s is not empty and nothing is mounted on it" % place,
            remedy="Delete the instance on this host, or move the files away.",
        )
    progress.mark_changed()
    mounts.mount(device, place)
    os.chmod(place, 0o711)  # QEMU runs as another user and must be able to pass
