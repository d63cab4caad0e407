# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The protocol of a type of network on a host, and its requested networks. Each type is an object in a separate file; ``registry``
lists the types.
"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field

from ....core.networks.types.network_type import NetworkType
from ....core.networks.types.registry import DEFAULT


class Uplinks(t.NamedTuple):
    """Where this host has its networks over hosts. ``vxlan_address``: its address in the underlay of VXLAN networks; "": it has none.

    ``physical_interfaces``: physical network -> interface of this host.
    """

    vxlan_address: str = ""
    physical_interfaces: t.Mapping[str, str] = {}


NO_UPLINKS = Uplinks()


@dataclass(frozen=True)
class NetworkSpec:
    """A requested network. ``subnets`` have cidr, gateway_ip, enable_dhcp, dns_nameservers, host_routes as in core.model."""

    name: str
    type: str = DEFAULT.name
    source: str = ""  # "": the name
    manage: bool = False
    forward: str = "none"
    bridge: str = ""  # of a managed libvirt network; "": libvirt chooses virbrN
    mtu: int | None = None
    vni: int | None = None  # with vxlan_peers, of a network that reaches over hosts by VXLAN
    vxlan_peers: tuple[str, ...] = ()  # of the other hosts
    vlan: int | None = None  # with this, of a network that reaches over hosts by a VLAN
    physical_network: str = ""
    uplinks: Uplinks = NO_UPLINKS
    subnets: tuple[t.Mapping[str, t.Any], ...] = field(default=())

    @property
    def real_name(self) -> str:
        """Return the name on the host."""
        return self.source or self.name


class ServedNetwork(t.NamedTuple):
    """A network of the host with a DHCP server of libvirt. ``ours``: this collection defined it."""

    name: str
    ours: bool
    reservations: t.Mapping[tuple[str, str], bool]  # (MAC address, address) -> whether each definition has it


class FoundNetwork(t.NamedTuple):
    """A network that the host has. ``autostart``: None where such networks have no such setting."""

    name: str
    active: bool = True
    autostart: bool | None = None


class HostNetworkType(t.Protocol):
    """The networks of one type on this host. ``kind``: the same type in the core."""

    @property
    def kind(self) -> NetworkType: ...

    def ensure(self, connection: t.Any, spec: NetworkSpec, check_mode: bool) -> dict[str, t.Any]:
        """Ensure that a network of this type exists; {changed, type, source, bridge, defined, started}.

        :raises InvalidInput: the spec is not valid. :raises NetworkError: the network does not exist, and this type does not make it.
        """

    def purge(
        self, connection: t.Any, min_age: float, keep: t.Collection[str], check_mode: bool
    ) -> t.Iterator[dict[str, t.Any]]:
        """Remove the networks of this type that this collection made and no domain uses; {name, definition, changed, error} of each.

        :arg min_age: seconds since a build needed the network. :arg keep: names of networks to keep.
        """

    def networks(self, connection: t.Any, uplinks: Uplinks) -> list[FoundNetwork]:
        """Return what the host has for networks of this type, by the names of NetworkType.needed_on_host()."""

    def report(self, connection: t.Any) -> list[ServedNetwork]:
        """Return the networks of this type whose DHCP server libvirt runs."""


def found_as_it_is(spec: NetworkSpec, bridge: str) -> dict[str, t.Any]:
    """Return the outcome of a network that exists and is not changed."""
    fields = {"type": spec.type, "source": spec.real_name, "bridge": bridge}
    return {"changed": False, **fields, "defined": False, "started": False}
