# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Disks that are images in a pool, of an instance that is resized on its own host: nothing is copied.

A disk grows where it is, and a snapshot keeps what it was. A new disk has the name of its disk with NEW behind it, until it takes the place of
the one that the instance had (rbd/disk_images.py).
"""

from __future__ import annotations

import contextlib
import os
import typing as t

from ....core.disks.local import volume_name
from ....core.errors import InvalidDiskInfo
from ....core.volumes.disk_pool import DiskPool
from ...os.paths import checked_disk_name
from ...rbd.disk_images import HERE, DiskImages, disk_images, rounded
from ..stores.disk_info import record_of, records_of, write_records
from ..stores.disk_spec import DiskSpec
from ..stores.rbd import check_recorded_pool, make_blank, recorded_pool
from .files import ResizedFiles
from .resize import Records

NEW = ".resize.new"


class ResizedInPool(ResizedFiles):
    """Images in the pool of the host."""

    @property
    def pool(self) -> DiskPool:
        return t.cast(DiskPool, self.group.pool)

    def _opened(self) -> contextlib.AbstractContextManager[DiskImages]:
        return disk_images(self.pool, self.group.ledger_id)

    def check(self, folder: str, records: Records, made: t.Sequence[DiskSpec]) -> int:
        uuid = os.path.basename(folder)
        with self._opened() as images:
            names = [volume_name(uuid, checked_disk_name(name)) for name in records]
            images.check_closed(names)
            for name, record in zip(names, records.values()):
                check_recorded_pool(record, self.pool)
                if images.size(name) is None:
                    raise InvalidDiskInfo(reason="image %s/%s does not exist" % (self.pool.pool, name))
        return 0

    def copy(
        self,
        folder: str,
        part: str,
        records: Records,
        sizes: t.Mapping[str, int],
        made: t.Sequence[DiskSpec],
        needed: int,
    ) -> dict[str, t.Any]:
        new: dict[str, t.Any] = {}
        for name, record in records.items():
            new[name] = {**record, "virtual_size": max(int(record["virtual_size"]), rounded(sizes.get(name, 0)))}
        with self._opened() as images:
            for spec in made:
                size = rounded(spec.size)
                make_blank(images, folder, spec, size, volume_name(os.path.basename(folder), spec.name) + NEW)
                new[spec.name] = {**record_of(spec, size, None), **recorded_pool(self.pool)}
        write_records(part, new)
        return new

    def files_of(self, names: t.Collection[str]) -> t.Collection[str]:
        return ()

    def swap_in(self, folder: str, dropped: t.Collection[str], records: t.Mapping[str, t.Any]) -> None:
        uuid = os.path.basename(folder)
        with self._opened() as images:
            present = set(images.of_instance(uuid))
            images.check_closed(
                volume_name(uuid, name) for name in records_of(folder) if volume_name(uuid, name) in present
            )
            for disk, record in records.items():
                name = volume_name(uuid, checked_disk_name(disk))
                if name + NEW in present:
                    images.put_away(name, HERE)
                    images.images.rename(name + NEW, name)
                elif disk not in dropped:
                    images.keep_before_move(name, HERE)
                    if (images.size(name) or 0) < int(record["virtual_size"]):
                        images.cluster.resize(name, int(record["virtual_size"]))
            for disk in dropped:
                images.put_away(volume_name(uuid, checked_disk_name(disk)), HERE)

    def is_swapped_in(self, uuid: str, added: t.Collection[str]) -> bool:
        with self._opened() as images:
            return images.is_kept(uuid, HERE)

    def roll_back(self, folder: str, added: t.Collection[str], records: t.Mapping[str, t.Any]) -> None:
        with self._opened() as images:
            images.roll_back(os.path.basename(folder), HERE)

    def discard_copies(self, uuid: str) -> bool:
        with self._opened() as images:
            names = [name for name in images.of_instance(uuid) if name.endswith(NEW)]
            for name in names:
                images.cluster.remove(name)
        return bool(names)

    def commit(self, uuid: str) -> bool:
        dropped = self.discard_copies(uuid)
        with self._opened() as images:
            return images.forget_before_move(uuid) or dropped
