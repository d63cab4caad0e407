# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""One validated request for instances: the result of core.request."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field

from ..disks.whole_disks import WholeDiskRequest
from ..model import BlockDevice, Flavor, Image, InjectedFile, NetworkRequest
from ..networks.security_rules import DEFAULT as DEFAULT_GROUP
from ..resources.claims import Overhead
from ..resources.numa.topology import GuestNUMATopology
from ..resources.pci.request import PciRequest
from .server_groups import ServerGroup

#: Security groups of an entry that names none.
DEFAULT_GROUPS = (DEFAULT_GROUP,)


@dataclass(frozen=True)
class ServerRequest:
    """One validated entry of bootflow_instances, with all defaults. source: Nova's API.create."""

    name: str
    flavor: Flavor
    image: Image | None
    min_count: int = 1
    max_count: int = 1
    project: str = "default"
    user: str = ""
    description: str = ""
    networks: tuple[NetworkRequest, ...] = ()
    availability_zone: str | None = None
    forced_host: str | None = None
    forced_node: str | None = None
    scheduler_hints: t.Mapping[str, t.Any] = field(default_factory=dict)
    metadata: t.Mapping[str, str] = field(default_factory=dict)
    tags: tuple[str, ...] = ()
    user_data: str | None = None  # text, as cloud-init sees it
    config_drive: bool | None = None  # None: by the setting or the image
    key_name: str | None = None
    key_data: str | None = None
    admin_password: str | None = None  # never stored
    injected_files: tuple[InjectedFile, ...] = ()
    block_device_mapping: tuple[BlockDevice, ...] = ()
    security_groups: tuple[str, ...] = DEFAULT_GROUPS
    access_ip_v4: str | None = None
    access_ip_v6: str | None = None
    disk_config: str = "AUTO"  # AUTO or MANUAL
    hostname: str | None = None
    state: str | None = None  # this and the following are for the playbook apply; None: left alone
    locked: bool | None = None
    locked_reason: str = ""
    allow: tuple[str, ...] = ()
    extra: t.Mapping[str, t.Any] = field(default_factory=dict)  # properties of the user's schema fragments
    server_group: ServerGroup | None = None  # of the hint group, without its members
    check_server_group_quota: bool = True
    numa_topology: GuestNUMATopology | None = None  # this and the following: requested by flavor and image
    pci_requests: tuple[PciRequest, ...] = ()
    whole_disks: tuple[WholeDiskRequest, ...] = ()
    overhead: Overhead = field(default_factory=Overhead)  # of the hypervisor; claimed, not part of what is requested
    root_image: Image | None = None  # without image: the image of the root volume, whose properties count

    @property
    def volume_backed(self) -> bool:
        """Whether the root disk is a volume, so that the flavor's root_gb is not used."""
        return any(
            d.boot_index == 0 and d.destination_type == "volume" and not d.no_device for d in self.block_device_mapping
        )
