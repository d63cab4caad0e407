# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""TEMPORARY"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from .model import BlockDevice, Flavor, Image


@dataclass(frozen=True)
class PlannedDisk:
    name: str
    kind: str
    device_name: str
    size_gb: int = 0
    size_mb: int = 0
    boot_index: t.Optional[int] = None
    disk_bus: str = "virtio"
    device_type: str = "disk"
    guest_format: t.Optional[str] = None


def block_device_plan(flavor: Flavor, image: t.Optional[Image], bdms: t.Sequence[BlockDevice] = ()) -> list[PlannedDisk]:
    disks = [PlannedDisk("disk", "image", "/dev/vda", flavor.root_gb, boot_index=0)]
    letter = iter("bcdefg")
    if flavor.ephemeral_gb:
        disks.append(PlannedDisk("disk.eph0", "ephemeral", "/dev/vd" + next(letter), flavor.ephemeral_gb))
    if flavor.swap:
        disks.append(PlannedDisk("disk.swap", "swap", "/dev/vd" + next(letter), 0, flavor.swap))
    return disks
