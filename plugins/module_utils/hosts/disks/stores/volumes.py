# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Disks that are logical volumes, as with Nova's images_type lvm: raw, with their full size allocated.

source: Nova's libvirt driver (imagebackend Lvm)
"""

from __future__ import annotations

import os
import typing as t

from ....core.amounts import GIB
from ....core.disks.local import RAW, volume_name
from ....core.disks.logical_volumes import checked_lvm_name
from ....core.errors import DriverNotInitialized, InvalidDiskInfo
from ...images.images import CONVERT_TIMEOUT, QEMU_IMG_PACKAGE, BaseImage
from ...lvm import lvm
from ...lvm.lvm_tags import DELETING, INCOMPLETE
from ...os.batch import progress
from ...os.command import program
from ...os.ownership import ledger_of_folder
from ...os.paths import checked_disk_name, make_dirs
from ...volumes.copy import flush
from ...volumes.process import run_tied
from .disk_info import record_of, recorded_size, records_of, write_records
from .disk_spec import DiskSpec, disk_size, needed
from .files import REPLACEMENT, format_disk, record_of_replacement, remove_replacement
from .instance_tags import by_instance, of_instance
from .instance_volumes import Wanted, activate, begin, check_closed, finish, remove, whole
from .store import OpenDisk, Store

#: Ends of the names of logical volumes: of one that is to replace a disk, and of what a disk was.
_NEW, _FORMER = ".revert.new", ".revert.old"


class Volumes(Store):
    """Logical volumes in a volume group of this host."""

    def ensure(
        self, folder: str, specs: t.Sequence[DiskSpec], bases: t.Mapping[str, BaseImage], check_mode: bool
    ) -> dict[str, t.Any]:
        return ensure_volumes(self.group.vg, folder, specs, bases, check_mode)

    def facts(self, instances_path: str, growth: t.Callable[[], int]) -> dict[str, t.Any]:
        """See Store.facts(). A volume group is never oversubscribed: free space is really free. source: Nova's _get_local_gb_info"""
        try:
            group = lvm.read_group(self.group.vg, self.group.ledger_id)
            lvm.check_group(group)
        except DriverNotInitialized as error:
            raise DriverNotInitialized(
                message=error.message,
                remedy="Create it (vgcreate %s DEVICES) or repair it, or correct the host's bootflow_disk_volume_group."
                % self.group.vg,
            ) from None
        total, free = self.room_gb(group, group.size), self.room_gb(group, group.free)
        return {
            "local_gb": total,
            "local_gb_used": total - free,
            "disk_available_least": free,
            "instance_volumes": by_instance(group),
        }

    def room_gb(self, group: lvm.VolumeGroup, size: int) -> int:
        """Return the GiB of disks that fit into ``size`` bytes of the group."""
        return size // GIB

    def make_readable(self, folder: str, name: str, record: t.Mapping[str, t.Any]) -> None:
        self._readable(folder, name)

    def opened(
        self, folder: str, name: str, record: t.Mapping[str, t.Any], left_behind: t.Collection[str]
    ) -> t.Iterator[OpenDisk]:
        fd = os.open(self._readable(folder, name), os.O_RDONLY | os.O_CLOEXEC)  # a link
        yield OpenDisk(name, fd, {**record, "base": ""})

    def _readable(self, folder: str, name: str) -> str:
        """Return the path of the logical volume of a disk, which nothing has open, and which is active."""
        uuid, vg = folder.rpartition("/")[2], checked_lvm_name(self.group.vg, "volume group")
        group = lvm.read_group(vg)
        lv = whole(group, uuid, volume_name(uuid, checked_disk_name(name)))
        if lv is None:
            raise InvalidDiskInfo(reason="logical volume %s/%s does not exist" % (vg, volume_name(uuid, name)))
        check_closed(vg, [lv.name])
        activate(vg, [lv])
        return group.path(lv.name)

    # A disk is exchanged by two renames. Where a killed run did only the first, the next make_replacement() or drop_replacement() does its opposite:
    #
    #     disk and _NEW  ->  _FORMER and _NEW  ->  _FORMER and disk

    def make_replacement(self, folder: str, spec: DiskSpec, bases: t.Mapping[str, BaseImage]) -> None:
        base = needed(bases.get(spec.image_id), spec)
        uuid, vg = os.path.basename(folder), checked_lvm_name(self.group.vg, "volume group")
        self.drop_replacement(folder, spec.name)
        group = lvm.read_group(vg, self.group.ledger_id)
        lvm.check_group(group)
        size, name = group.rounded(disk_size(spec, base)), volume_name(uuid, spec.name) + _NEW
        begin(vg, uuid, [Wanted(name, size, "image/%s" % spec.image_id)], ledger_of_folder(folder))
        path = lvm.device_path(vg, name)
        write_image(base.path, path)
        flush(path)
        finish(vg, [name])
        new_folder = os.path.join(folder, REPLACEMENT)
        make_dirs(new_folder)
        write_records(new_folder, {spec.name: {**record_of(spec, size, base), "volume_group": vg}})

    def take_replacement(self, folder: str, name: str) -> None:
        record, vg = record_of_replacement(folder, name), checked_lvm_name(self.group.vg, "volume group")
        own = volume_name(os.path.basename(folder), checked_disk_name(name))
        with lvm.group_lock(vg):
            names = self._names(folder)
            if own + _NEW not in names:
                raise InvalidDiskInfo(
                    reason="logical volume %s/%s does not exist" % (vg, own + _NEW), remedy="Run the playbook again."
                )
            check_closed(vg, [own])
            progress.mark_changed()
            if own in names:
                lvm.rename(vg, own, own + _FORMER)
            lvm.rename(vg, own + _NEW, own)
        write_records(folder, {**records_of(folder), name: record})

    def drop_replacement(self, folder: str, name: str) -> bool:
        vg, own = checked_lvm_name(self.group.vg, "volume group"), volume_name(os.path.basename(folder), name)
        with lvm.group_lock(vg):
            names = self._names(folder)
            if own not in names and own + _FORMER in names:
                progress.mark_changed()
                lvm.rename(vg, own + _FORMER, own)
        lvs = [
            lv
            for lv in of_instance(lvm.read_group(vg, self.group.ledger_id), os.path.basename(folder))
            if lv.name in (own + _NEW, own + _FORMER)
        ]
        remove(vg, lvs, self.group.clearing)
        return remove_replacement(folder) or bool(lvs)

    def _names(self, folder: str) -> set[str]:
        """Return the names of the instance's logical volumes that are complete, and not being removed."""
        lvs = of_instance(lvm.read_group(self.group.vg, self.group.ledger_id), os.path.basename(folder))
        return {lv.name for lv in lvs if not lv.tags & {INCOMPLETE, DELETING}}


def ensure_volumes(
    vg: str, folder: str, specs: t.Sequence[DiskSpec], bases: t.Mapping[str, BaseImage], check_mode: bool
) -> dict[str, t.Any]:
    """Like ensure_files(), with logical volumes; disk.info in the directory of the instance records how each was created."""
    uuid = folder.rpartition("/")[2]
    group = lvm.read_group(vg)
    lvm.check_group(group)
    records = records_of(folder)
    complete, missing, sizes = [], [], {}
    for spec in specs:
        name = volume_name(uuid, spec.name)
        lv = whole(group, uuid, name)
        if lv is None:
            missing.append(spec)
            sizes[spec.name] = group.rounded(disk_size(spec, bases.get(spec.image_id)))
        else:
            sizes[spec.name] = recorded_size(group.path(name), spec, records.get(spec.name))
            complete.append(lv)
    changed = bool(missing) or any(not lv.is_active for lv in complete)
    if not check_mode:
        activate(vg, complete)
        if missing:
            progress.mark_changed()
            make_dirs(folder)
            for spec in missing:
                record = record_of(spec, sizes[spec.name], bases.get(spec.image_id))
                records[spec.name] = dict(record, volume_group=vg)
            # Before the first of them is created, because a removal finds the volume group here.
            write_records(folder, records)
            _make(vg, uuid, missing, sizes, bases, ledger_of_folder(folder))
    disks = [
        {
            "name": spec.name,
            "path": group.path(volume_name(uuid, spec.name)),
            "format": RAW,
            "virtual_size": sizes[spec.name],
        }
        for spec in specs
    ]
    return {"changed": changed, "disks": disks}


def _make(
    vg: str,
    uuid: str,
    specs: t.Sequence[DiskSpec],
    sizes: t.Mapping[str, int],
    bases: t.Mapping[str, BaseImage],
    ledger_id: str,
) -> None:
    names = {spec.name: volume_name(uuid, spec.name) for spec in specs}
    images = {spec.name: needed(bases.get(spec.image_id), spec) for spec in specs if spec.kind == "image"}
    begin(
        vg,
        uuid,
        [
            Wanted(names[spec.name], sizes[spec.name], "image/%s" % spec.image_id if spec.name in images else "")
            for spec in specs
        ],
        ledger_id,
    )
    for spec in specs:
        path = lvm.device_path(vg, names[spec.name])
        if spec.name in images:
            write_image(images[spec.name].path, path)
        else:
            format_disk(spec, path)
        flush(path)
    finish(vg, list(names.values()))


def write_image(source: str, path: str) -> None:
    """Copy a raw image to a block device, past the page cache. The copy ends with its run. Raises CommandFailed."""
    argv = [program("qemu-img", QEMU_IMG_PACKAGE), "convert", "-n", "-f", RAW, "-O", RAW, "-t", "none", source, path]
    run_tied(argv, timeout=CONVERT_TIMEOUT)
