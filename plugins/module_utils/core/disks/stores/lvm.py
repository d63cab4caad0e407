# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Disks that are logical volumes: raw, with their full size allocated. source: Nova's imagebackend.Lvm"""

from __future__ import annotations

from ...amounts import MIB
from ..local import RAW, volume_name
from ..logical_volumes import device_path
from .store_type import Pool, Source, StoreType


class Lvm(StoreType):
    name = record_format = "lvm"
    needs_group = True
    is_volume = True
    rounding = 256 * MIB

    def source(self, uuid: str, disk: str, folder: str, volume_group: str, pool: Pool | None = None) -> Source:
        return Source(device_path(volume_group, volume_name(uuid, disk)), RAW, "block")

    def has_length(self, sent: int, size: int) -> bool:
        return size <= sent <= size + self.rounding
