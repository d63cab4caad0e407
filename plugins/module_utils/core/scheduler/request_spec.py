# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A request to the scheduler. source: Nova's build_instances"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field

from ..instances.server_groups import ServerGroup
from ..model import Flavor
from ..networks.on_hosts import HostNetwork

if t.TYPE_CHECKING:
    from ..disks.whole_disks import WholeDiskRequest
    from ..resources.numa.topology import GuestNUMATopology
    from ..resources.pci.request import PciRequest


@dataclass
class RequestSpec:
    """One request for one or more equal instances."""

    instance_uuids: t.Sequence[str]
    flavor: Flavor
    image_properties: t.Mapping[str, t.Any] = field(default_factory=dict)
    availability_zone: str | None = None
    force_host: str | None = None
    force_node: str | None = None
    ignore_hosts: t.Sequence[str] = ()
    retry_hosts: t.Sequence[tuple[str, str]] = ()  # (host, node) already tried
    scheduler_hints: t.Mapping[str, t.Any] = field(default_factory=dict)
    metadata: t.Mapping[str, str] = field(default_factory=dict)
    extra: t.Mapping[str, t.Any] = field(default_factory=dict)  # the user's own fields, for the user's own filters
    project: str = ""
    memory_overhead_mb: int = 0  # this and the following: of the hypervisor
    disk_overhead_gb: int = 0
    vcpus_overhead: int = 0
    image_id: str = ""
    image_name: str = ""
    instance_group: ServerGroup | None = None
    numa_topology: GuestNUMATopology | None = None  # as requested, not yet fitted to a host
    pci_requests: t.Sequence[PciRequest] = ()
    whole_disks: t.Sequence[WholeDiskRequest] = ()
    networks: t.Sequence[HostNetwork] = ()  # that a host must have; managed ones are made there
    has_ports: bool = False  # a host with bootflow_firewall_driver: nftables must be able to filter them
    has_security_groups: bool = False  # other than default: only a host that filters can take the instance
    is_bfv: bool = False  # booted from a volume: the flavor's root disk is not used
    zero_disk_gb: int = 0  # what the root disk of a flavor with root_gb 0 can become

    @property
    def num_instances(self) -> int:
        return len(self.instance_uuids)

    @property
    def memory_mb(self) -> int:
        """MB of memory of one instance, including the hypervisor's overhead."""
        return self.flavor.memory_mb + self.memory_overhead_mb

    @property
    def vcpus(self) -> int:
        """vCPUs of one instance, including the hypervisor's overhead."""
        return self.flavor.vcpus + self.vcpus_overhead

    @property
    def disk_gb(self) -> int:
        """GB of a claim: root (0 if that is a volume), ephemeral and the hypervisor's overhead, without swap."""
        root_gb = 0 if self.is_bfv else self.flavor.root_gb or self.zero_disk_gb
        return root_gb + self.flavor.ephemeral_gb + self.disk_overhead_gb

    @property
    def disk_mb(self) -> int:
        """MB that must be free to pass the DiskFilter: root, ephemeral and swap."""
        return 1024 * self.disk_gb + self.flavor.swap

    @property
    def takes_dedicated(self) -> bool:
        """Whether an instance takes cells, devices or disks of a host, not only numbers."""
        return self.numa_topology is not None or bool(self.pci_requests or self.whole_disks)

    @property
    def forced(self) -> bool:
        return bool(self.force_host or self.force_node)
