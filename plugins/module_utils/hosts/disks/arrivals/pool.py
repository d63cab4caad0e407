# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Disks of an instance that comes to this host which are in a pool that both hosts reach: they stay there, and this host records them.

A disk is kept as it was until the move is confirmed or reverted (rbd/disk_images.py), because the guest writes to it here.
"""

from __future__ import annotations

import typing as t

from ....core.disks.local import volume_name
from ....core.errors import InvalidDiskInfo
from ....core.volumes.disk_pool import DiskPool
from ....core.volumes.rbd_names import INCOMPLETE
from ...os.ownership import made_for
from ...os.paths import checked_disk_name
from ...rbd.disk_images import disk_images, is_former, rounded
from ..stores.disk_info import records_of, write_records
from ..stores.rbd import Rbd, check_recorded_pool, recorded_pool
from ..stores.registry import store_of
from .arrival import Arrival, Disk, Write


class ArrivingInPool(Arrival):
    """Images in the pool of this host."""

    in_group = True  # they take no room of a file system

    @property
    def pool(self) -> DiskPool:
        return t.cast(DiskPool, self.group.pool)

    def require_group(self) -> None:
        types = [str(disk["record"]["format"]) for disk in self.disks] + [spec.backend for spec in self.made]
        store_of(types[0], pool=self.group.pool)
        for disk in self.disks:
            check_recorded_pool(disk["record"], self.pool)

    def check_group(self) -> None:
        self.require_group()
        with disk_images(self.pool, self.group.ledger_id, writing=False):
            pass

    def prepare(self) -> None:
        mark = made_for(self.folder)
        with disk_images(self.pool, self.group.ledger_id) as images:
            records = {}
            names = {d["name"]: volume_name(self.uuid, checked_disk_name(d["name"])) for d in self.disks}
            images.check_closed(names.values())
            for disk in self.disks:
                name = names[disk["name"]]
                has = self._size(disk, images.size(name))
                images.keep_before_move(name, mark)
                size = max(has, rounded(self.sizes.get(disk["name"], 0)))
                if size > has:
                    images.cluster.resize(name, size)
                records[disk["name"]] = self._record(disk, size)
            self._write_records(records)

    def _size(self, disk: Disk, has: int | None) -> int:
        """Return the bytes of a disk. :raises InvalidDiskInfo: it is not in the pool, or has another size than its host said"""
        if has is None or has != disk["record"]["virtual_size"]:
            raise InvalidDiskInfo(
                reason="image %s/%s has %s bytes, where the host of the instance has recorded %d"
                % (self.pool.pool, volume_name(self.uuid, disk["name"]), has, disk["record"]["virtual_size"])
            )
        return has

    def _record(self, disk: Disk, size: int) -> dict[str, t.Any]:
        return {**disk["record"], "virtual_size": size, **recorded_pool(self.pool)}

    def receive(self, name: str, disk: Disk, write: Write) -> tuple[int, str]:
        raise InvalidDiskInfo(reason="disk %s is in a pool, and does not come from a host" % name)

    def create(self) -> None:
        if not self.made:
            return
        with disk_images(self.pool, self.group.ledger_id) as images:
            for spec in self.made:
                images.put_away(volume_name(self.uuid, spec.name), made_for(self.folder))
        store = t.cast(Rbd, store_of(self.made[0].backend, pool=self.pool))
        store.ensure(self.folder, self.made, {}, False)

    def finish(self) -> None:
        """Put away what the instance had and gets no more: its former host does not have it back without."""
        own = {volume_name(self.uuid, name) for name in records_of(self.folder)}
        with disk_images(self.pool, self.group.ledger_id) as images:
            for name in images.of_instance(self.uuid):
                if name not in own and not is_former(name) and not name.startswith(INCOMPLETE):
                    images.put_away(name, made_for(self.folder))

    def make_empty(self) -> dict[str, dict[str, t.Any]]:
        """Record the disks: the guest that arrives has them open on its former host, and libvirt hands them over."""
        with disk_images(self.pool, self.group.ledger_id, writing=False) as images:
            records = {}
            for disk in self.disks:
                size = self._size(disk, images.size(volume_name(self.uuid, checked_disk_name(disk["name"]))))
                records[disk["name"]] = self._record(disk, size)
        self._write_records(records)
        return {}

    def _write_records(self, records: t.Mapping[str, t.Any]) -> None:
        write_records(self.folder, {**records_of(self.folder), **records})
