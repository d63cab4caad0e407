# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Logical volumes of the storage host, which it exports by iSCSI."""

from __future__ import annotations

from .driver_type import Configuration


class Lvm:
    """A volume group, or a thin pool in one."""

    name = "lvm"
    fields: tuple[str, ...] = (
        "volume_group",
        "provisioning",
        "thin_pool",
        "devices",
        "target",
        "portals",
        "iqn_prefix",
        "volume_clear",
        "volume_clear_size_mb",
        "image_cache",
        "image_cache_max_gb",
        "image_cache_max_count",
    )
    required: tuple[str, ...] = ()
    has_portals = True

    def room(self, configuration: Configuration) -> tuple[str, ...]:
        return configuration["volume_group"], configuration["thin_pool"] if self.is_thin(configuration) else ""

    def is_thin(self, configuration: Configuration) -> bool:
        return bool(configuration["provisioning"] == "thin")

    def place(self, configuration: Configuration) -> str:
        return str(configuration.get("volume_group") or "")
