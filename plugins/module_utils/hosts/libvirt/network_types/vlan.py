# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Networks that reach over hosts by a VLAN: the first guest that needs one makes its bridge and device, and a purge removes them after the last."""

from __future__ import annotations

import typing as t

from ....core.errors import InvalidInput
from ....core.networks.on_hosts import ABSENT, INACTIVE, HostNetwork
from ....core.networks.physical import MOST_VLAN, check_interface_mappings
from ....core.networks.types.vlan import VlanNetwork
from ...bridges import links, vlans
from .joined_bridges import ensure_joined, purge_joined
from .network_type import FoundNetwork, NetworkSpec, ServedNetwork, Uplinks


class HostVlan:
    """The VLAN networks of this host."""

    kind = VlanNetwork()

    def ensure(self, connection: t.Any, spec: NetworkSpec, check_mode: bool) -> dict[str, t.Any]:
        """Make or correct the bridge and the VLAN device.

        :raises HostLacksNetwork: the host is not in the physical network. :raises NetworkError: the MTU is too large, or a device of the network's
            name, or its VLAN, is another's.
        """
        name = self.kind.check_source(spec.real_name)
        if spec.vlan is None or not 0 < spec.vlan <= MOST_VLAN or not spec.physical_network:
            raise InvalidInput(
                message="network %s has no physical_network, or no VLAN between 1 and %d" % (spec.name, MOST_VLAN),
                remedy="Write physical_network and vlan for network %s in bootflow_networks." % spec.name,
            )
        needed = HostNetwork(self.kind.name, spec.physical_network, spec.name)
        interface = check_interface_mappings(spec.uplinks.physical_interfaces).get(spec.physical_network)
        if interface is None:
            raise needed.refusal(ABSENT, links.host_name())
        lacks = needed.refusal(INACTIVE, links.host_name())
        wanted = vlans.wanted_vlan(name, interface, spec.vlan, spec.mtu, spec.name, lacks)
        return {**ensure_joined(connection, wanted, spec.name, check_mode), "type": spec.type}

    def purge(
        self, connection: t.Any, min_age: float, keep: t.Collection[str], check_mode: bool
    ) -> t.Iterator[dict[str, t.Any]]:
        return purge_joined(connection, vlans.Vlan, min_age, keep, check_mode)

    def networks(self, connection: t.Any, uplinks: Uplinks) -> list[FoundNetwork]:
        """Return the physical networks that the host is in: the bridges are made where they are missing."""
        mappings = check_interface_mappings(uplinks.physical_interfaces)
        present = links.links_of(mappings.values())
        return [
            FoundNetwork(network, interface in present and links.is_up(present[interface]))
            for network, interface in mappings.items()
        ]

    def report(self, connection: t.Any) -> list[ServedNetwork]:
        return []  # nothing serves DHCP there
