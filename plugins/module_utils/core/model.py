# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The nouns that every floor shares, as plain data. Units are in the names: memory in MB (MiB), disk in GB (GiB)."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field

from .image_access import ImageAccess


@dataclass(frozen=True)
class Flavor:
    """A flavor of the inventory (bootflow_flavors). source: Nova's _create_instance."""

    name: str
    memory_mb: int
    vcpus: int
    root_gb: int = 0  # 0: a root volume, or as large as the image, see image_rules
    ephemeral_gb: int = 0
    swap: int = 0  # MB
    extra_specs: t.Mapping[str, str] = field(default_factory=dict)
    flavorid: str = ""
    disabled: bool = False


@dataclass(frozen=True)
class Image:
    """An image of the inventory (bootflow_images)."""

    name: str
    id: str  # UUID, uuid5 of the name where the catalogue gives none
    disk_format: str  # raw, qcow2, vmdk, vdi, vhd, vhdx, ami...: what the catalogue claims
    checksum: str = ""  # as disks.checksums writes it; empty: unchecked (only with allow_unverified)
    url: str = ""  # http(s):// or file:// as the compute host sees it, or a file of another host: see disks.image_urls
    path: str = ""  # a file on the controller, copied to hosts that lack it
    size: int | None = None  # bytes of the file, when known
    min_disk: int = 0  # GB
    min_ram: int = 0  # MB
    status: str = "active"
    properties: t.Mapping[str, t.Any] = field(default_factory=dict)  # hw_*, os_*, img_*: Glance's names
    access: ImageAccess = ImageAccess()

    @property
    def has_bytes(self) -> bool:
        """Whether the image has a file. An image of an instance whose root is a volume has none: the devices that it maps are its content."""
        return bool(self.url or self.path) or self.size != 0 or "block_device_mapping" not in self.properties


@dataclass(frozen=True)
class NetworkRequest:
    """One requested interface."""

    network: str | None = None  # name or id
    subnet: str | None = None  # name or id
    fixed_ip: str | None = None
    port: str | None = None
    tag: str | None = None


@dataclass(frozen=True)
class BlockDevice:
    """One row of block_device_mapping v2. source: Nova's _check_and_transform_bdm."""

    source_type: str  # image, volume, snapshot, blank
    destination_type: str  # local, volume
    boot_index: int | None = None
    uuid: str | None = None
    volume_size: int | None = None  # GB (MB for guest_format swap in local blanks is rounded up to GB by Nova)
    device_name: str | None = None
    disk_bus: str | None = None
    device_type: str | None = None  # disk, cdrom, floppy, lun
    guest_format: str | None = None  # swap, ext4, ...
    delete_on_termination: bool = False
    no_device: bool = False
    tag: str | None = None
    volume_type: str | None = None


@dataclass(frozen=True)
class InjectedFile:
    path: str
    contents: str  # base64
