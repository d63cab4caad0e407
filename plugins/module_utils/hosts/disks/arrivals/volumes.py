# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Disks that come to this host as logical volumes."""

from __future__ import annotations

import os
import typing as t

from ....core.disks.local import volume_name
from ....core.errors import InvalidInput
from ...lvm import lvm
from ...os.paths import checked_disk_name
from ...volumes.copy import flush, zero
from ..stores.disk_info import records_of, write_records
from ..stores.instance_volumes import Wanted, begin
from ..stores.instance_volumes import finish as mark_complete
from ..stores.volumes import ensure_volumes
from .arrival import Arrival, Disk, Write


class ArrivingInGroup(Arrival):
    """Disks of any store that is in a volume group."""

    in_group = True

    def require_group(self) -> None:
        if not self.group.vg:
            raise InvalidInput(
                reason="the disks of instance %s are logical volumes, and no volume group is given" % self.uuid,
                remedy="Set bootflow_disk_volume_group for the new host.",
            )

    def check_group(self) -> None:
        self.require_group()
        lvm.check_group(lvm.read_group(self.group.vg, self.group.ledger_id))


class ArrivingVolumes(ArrivingInGroup):
    """Logical volumes of the instance: each has the mark of an incomplete one until all have arrived."""

    _bytes: dict[str, int]  # of each volume, by the name of its disk

    def prepare(self) -> None:
        self._bytes = {}
        if not self.disks:
            return
        group = lvm.read_group(self.group.vg, self.group.ledger_id)
        lvm.check_group(group)
        for disk in self.disks:
            name = checked_disk_name(disk["name"])
            self._bytes[name] = group.rounded(max(int(disk["size"]), self.sizes.get(name, 0)))
        # Before the first of them is created, because a removal finds the volume group here.
        self._write_records({name: {"volume_group": self.group.vg} for name in self._bytes})
        wanted = [Wanted(self._volume(d["name"]), self._bytes[d["name"]], _source(d)) for d in self.disks]
        begin(self.group.vg, self.uuid, wanted, self.group.ledger_id)

    def receive(self, name: str, disk: Disk, write: Write) -> tuple[int, str]:
        size, path = self._bytes[name], lvm.device_path(self.group.vg, self._volume(name))
        zero(path, size)
        fd = os.open(path, os.O_RDWR | os.O_EXCL | os.O_CLOEXEC)
        try:
            sha256 = write(fd)
        finally:
            os.close(fd)
        self._write_records({name: {**disk["record"], "virtual_size": size, "volume_group": self.group.vg}})
        return size, sha256

    def create(self) -> None:
        if self.made:
            ensure_volumes(self.group.vg, self.folder, self.made, {}, False)

    def finish(self) -> None:
        if self._bytes:
            for name in self._bytes:
                flush(lvm.device_path(self.group.vg, self._volume(name)))
            mark_complete(self.group.vg, [self._volume(name) for name in self._bytes])

    def make_empty(self) -> dict[str, dict[str, t.Any]]:
        """See Arrival.make_empty(). The volumes lose the mark of incomplete ones: what has the mark is made again, and libvirt alone decides where the guest
        goes on.
        """
        group = lvm.read_group(self.group.vg, self.group.ledger_id)
        names = {d["target"]: self._volume(checked_disk_name(d["name"])) for d in self.disks}
        sizes = {d["target"]: group.rounded(_seen(d)) for d in self.disks}
        # Before the first of them is created, because a removal finds the volume group here.
        self._write_records(
            {
                d["name"]: {**d["record"], "virtual_size": sizes[d["target"]], "volume_group": self.group.vg}
                for d in self.disks
            }
        )
        wanted = [Wanted(names[d["target"]], sizes[d["target"]], _source(d)) for d in self.disks]
        begin(self.group.vg, self.uuid, wanted, self.group.ledger_id)
        made = {}
        for disk in self.disks:
            target, seen = disk["target"], _seen(disk)
            path = group.path(names[target])
            # libvirt overwrites all that the guest sees. Nothing overwrites the rest, and an earlier guest may have left something there.
            if seen < sizes[target]:
                zero(path, sizes[target] - seen, start=seen)
                flush(path)
            made[target] = {"path": path, "size": seen if seen < sizes[target] else 0}
        mark_complete(self.group.vg, list(names.values()))
        return made

    def _volume(self, disk: str) -> str:
        return volume_name(self.uuid, disk)

    def _write_records(self, records: t.Mapping[str, t.Any]) -> None:
        write_records(self.folder, {**records_of(self.folder), **records})


def _seen(disk: Disk) -> int:
    """Return the bytes that the guest sees."""
    return int(disk["record"]["virtual_size"])


def _source(disk: Disk) -> str:
    image_id = disk["record"].get("image_id")
    return "image/%s" % image_id if image_id else ""
