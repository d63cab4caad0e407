# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Disks that are images in a pool of a Ceph cluster, clones of the images of guests there. source: Nova's imagebackend.Rbd"""

from __future__ import annotations

from ..local import RAW
from .store_type import Pool, Source, StoreType


class Rbd(StoreType):
    name = record_format = connector = "rbd"
    is_shared = True

    def source(self, uuid: str, disk: str, folder: str, volume_group: str, pool: Pool | None = None) -> Source:
        if pool is None:  # where only the places of files and devices count
            return Source("", RAW, "network")
        return Source("", RAW, "network", pool.connection(uuid, disk))

    def has_length(self, sent: int, size: int) -> bool:
        return sent == size
