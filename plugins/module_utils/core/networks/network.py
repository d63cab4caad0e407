# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A network of the catalogue."""

from __future__ import annotations

from dataclasses import dataclass

from .subnet import Subnet
from .types.registry import DEFAULT, NETWORK_TYPES


@dataclass(frozen=True)
class Network:
    """A network of the inventory (bootflow_networks)."""

    id: str
    name: str
    subnets: tuple[Subnet, ...] = ()
    type: str = DEFAULT.name  # of NETWORK_TYPES
    source: str = ""  # its name on the hosts
    mtu: int | None = None
    enforce_allocation_pools: bool = False
    manage: bool = False  # True: the collection defines and starts it where it is missing, if its type can be managed
    port_security_enabled: bool = (
        True  # of its new ports; False: hosts filter nothing of what their guests send and get
    )
    forward: str = "none"  # of a managed network: none, nat, route, open
    vni: int | None = None  # of a network that reaches over hosts by VXLAN
    vlan: int | None = None  # of a physical network, of a network that is this VLAN
    physical_network: str | None = None  # that hosts are in by an interface, of a VLAN or macvtap

    @property
    def joins_hosts(self) -> bool:
        """Whether it reaches over hosts by a bridge or a libvirt network that the collection makes on each of them."""
        return self.vni is not None or self.physical_network is not None

    @property
    def is_managed(self) -> bool:
        """Whether each host has its own network for it, which the collection defines, with the gateways as addresses of the host."""
        return self.manage and NETWORK_TYPES[self.type].can_be_managed

    @property
    def can_be_filtered(self) -> bool:
        """Whether its ports can be filtered."""
        return NETWORK_TYPES[self.type].can_be_filtered

    @property
    def is_logical(self) -> bool:
        """Whether it is of the northbound database of OVN."""
        return NETWORK_TYPES[self.type].is_logical

    @property
    def host_ranges(self) -> list[str]:
        """The CIDRs of a managed network in which each host has an address."""
        return [s.cidr for s in self.subnets if s.gateway_ip is not None] if self.is_managed else []
