# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The empty disks on this host that those of a guest are copied to while it comes running: files, logical volumes, or files on one.

Once made they have no mark of incomplete ones: libvirt alone decides where the guest goes on, also when the run that would take the mark off is dead, and
what has the mark is made anew. Where the guest stays, this host is cleaned of them.
source: Nova's pre_live_migration
"""

from __future__ import annotations

import contextlib
import os
import shutil
import typing as t

from ...core.disks.local import DISK, NONE, volume_name
from ...core.disks.stores.registry import STORE_TYPES
from ...core.errors import BootflowError, InvalidInput
from ...core.guest.arriving import LocalDisk
from ...core.guest.arriving_disks import unknown_bytes
from ..disks.instances import refuse_present
from ..disks.stores.disk_info import records_of, write_records
from ..disks.stores.group import Clearing
from ..disks.stores.instance_volumes import Wanted, begin, finish
from ..disks.stores.mounted import make_holder
from ..disks.stores.removal import LocalVolumes, remove_volumes
from ..images.images import QEMU_IMG_PACKAGE
from ..lvm import lvm
from ..os.batch import progress
from ..os.command import program, run
from ..os.files import fsync
from ..os.locks import host_lock
from ..os.ownership import mark_folder, mark_made_for
from ..os.paths import checked_disk_name, checked_instances_path, instance_dir, make_dirs
from ..os.room import check_room
from ..volumes.copy import flush, zero

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
) -> dict[str, dict[str, t.Any]]:
    """Make the folder of the guest, with empty disks of the same sizes that no base image is below.

    A copy of all that the guest sees, as in a cold migration: this host needs no image for it, and another one's base may be gone. Returns of
    those that are logical volumes target -> {path, size}: the bytes that the guest sees where the volume is larger, else 0.

    :arg disks: the guest's, see core.guest.arriving_disks.checked_disks(). :arg limits: bytes that each may have; 0: the ledger does not know
    :arg volume_group: for logical volumes. :arg made_for: the mark of the migration, see core.instances.move_mark
    :raises Conflict: the host has something of the instance already. :raises DiskFull: there is not enough room.
    :raises InvalidInput: a disk is a logical volume, and no volume group is given.
    :raises DriverNotInitialized: the volume group does not exist or is not usable.
    """
    folder = instance_dir(instances_path, uuid)
    with host_lock(instances_path, "instance-" + os.path.basename(folder)):
        coming = _Coming(folder, ledger_id, volume_group, disks)
        refuse_present(connection, folder, volume_group, ledger_id)
        coming.check_group()
        path = checked_instances_path(instances_path)
        make_dirs(path)
        check_room(path, max(sum(int(d["allocated"]) for d in coming.files), unknown_bytes(coming.files, limits)))
        progress.mark_changed()
        try:
            mark_made_for(folder, made_for)
            mark_folder(folder, ledger_id)
            make_dirs(folder)
            return coming.make()
        except BaseException:
            coming.remove()
            raise


def disks_here(
    instances_path: str, uuid: str, disks: t.Sequence[Disk], devices: t.Mapping[str, t.Mapping[str, t.Any]]
) -> dict[str, LocalDisk]:
    """The guest's local disks as its definition has them here, by its names for them.

    :arg disks: see core.guest.arriving_disks.checked_disks(). :arg devices: as make_disks() returned them
    """
    folder = instance_dir(instances_path, uuid)
    found = {}
    for disk in disks:
        target, name = disk["target"], checked_disk_name(disk["name"])
        if target in devices:
            found[target] = LocalDisk(devices[target]["path"], "raw", True, int(devices[target]["size"]))
        else:
            place = os.path.join(folder, DISK) if disk.get("mounted") else folder
            found[target] = LocalDisk(os.path.join(place, name), disk["record"]["format"])
    return found


class _Coming:
    """The disks of one guest on this host."""

    def __init__(self, folder: str, ledger_id: str, vg: str, disks: t.Sequence[Disk]):
        self.folder = folder
        self.uuid = os.path.basename(folder)
        self.ledger_id = ledger_id
        self.vg = vg
        self.inside = [d for d in disks if d.get("mounted")]  # in a file system on a logical volume
        self.volumes = [d for d in disks if not d.get("mounted") and STORE_TYPES[d["record"]["format"]].is_volume]
        self.files = [d for d in disks if not d.get("mounted") and not STORE_TYPES[d["record"]["format"]].is_volume]

    def check_group(self) -> None:
        """Check that there is a volume group where the guest needs one."""
        if not self.inside and not self.volumes:
            return
        if not self.vg:
            reason = "the disks of instance %s are logical volumes, and no volume group is given" % self.uuid
            raise InvalidInput(reason=reason, remedy="Set bootflow_disk_volume_group for the new host.")
        lvm.check_group(lvm.read_group(self.vg, self.ledger_id))

    def make(self) -> dict[str, dict[str, t.Any]]:
        if self.files:
            self._make_files(self.folder, self.files)
        if self.inside:
            sizes = [_size(d) for d in self.inside]
            self._make_files(make_holder(self.vg, self.folder, sizes), self.inside)
        made = self._make_volumes() if self.volumes else {}
        fsync(self.folder)
        return made

    def _make_files(self, folder: str, disks: t.Sequence[Disk]) -> None:
        records = {checked_disk_name(d["name"]): d["record"] for d in disks}
        write_records(folder, records)
        for name, record in records.items():
            path, size = os.path.join(folder, name), str(record["virtual_size"])
            argv = [program("qemu-img", QEMU_IMG_PACKAGE), "create", "-q", "-f", record["format"], path, size]
            run(argv, timeout=60.0, path=path)
            os.chmod(path, 0o600)

    def _make_volumes(self) -> dict[str, dict[str, t.Any]]:
        group = lvm.read_group(self.vg, self.ledger_id)
        names = {d["target"]: volume_name(self.uuid, checked_disk_name(d["name"])) for d in self.volumes}
        sizes = {d["target"]: group.rounded(_size(d)) for d in self.volumes}
        records = {
            d["name"]: {**d["record"], "virtual_size": sizes[d["target"]], "volume_group": self.vg}
            for d in self.volumes
        }
        # Before the first of them is created, because a removal finds the volume group here.
        write_records(self.folder, {**records_of(self.folder), **records})
        wanted = [Wanted(names[d["target"]], sizes[d["target"]], _source(d)) for d in self.volumes]
        begin(self.vg, self.uuid, wanted, self.ledger_id)
        made = {}
        for disk in self.volumes:
            target, seen = disk["target"], _size(disk)
            path = group.path(names[target])
            # libvirt overwrites all that the guest sees. Nothing overwrites the rest, and an earlier guest may have left something there.
            if seen < sizes[target]:
                zero(path, sizes[target] - seen, start=seen)
                flush(path)
            made[target] = {"path": path, "size": seen if seen < sizes[target] else 0}
        finish(self.vg, list(names.values()))
        return made

    def remove(self) -> None:
        """Nothing has come to them yet, so that there is nothing to overwrite. What cannot be removed, the cleanup of the instance finds."""
        with contextlib.suppress(BootflowError, OSError):
            if self.inside or self.volumes:
                remove_volumes(self.folder, self.uuid, LocalVolumes(self.vg, Clearing(NONE), self.ledger_id))
            shutil.rmtree(self.folder, ignore_errors=True)


def _size(disk: Disk) -> int:
    return int(disk["record"]["virtual_size"])


def _source(disk: Disk) -> str:
    image_id = disk["record"].get("image_id")
    return "image/%s" % image_id if image_id else ""
