# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Disks that are qcow2 files in a file system of the instance, on one logical volume.

disk.info of the instance has a record of the logical volume, and disk.info of the file system has the records of the disks.
"""

from __future__ import annotations

import posixpath

from ..local import DISK
from .qcow2 import Qcow2
from .store_type import Pool, Source


class Qcow2OnLvm(Qcow2):
    name = "qcow2_on_lvm"
    needs_group = True
    is_file_system = True

    def place(self, folder: str) -> str:
        return posixpath.join(folder, DISK)

    def source(self, uuid: str, disk: str, folder: str, volume_group: str, pool: Pool | None = None) -> Source:
        return super().source(uuid, disk, self.place(folder), volume_group, pool)
