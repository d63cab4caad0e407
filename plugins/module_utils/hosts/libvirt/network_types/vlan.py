# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Networks that reach over hosts by a VLAN: the first guest that needs one makes its bridge and device, and a purge removes them after the last."""

from __future__ import annotations

import typing as t

from ....core.errors import InvalidInput
from ....core.networks.physical import MOST_VLAN
from ....core.networks.types.vlan import VlanNetwork
from ...bridges import vlans
from .joined_bridges import ensure_joined, purge_joined
from .network_type import FoundNetwork, NetworkSpec, ServedNetwork, Uplinks
from .on_physical_networks import physical_networks, uplink_of


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
        uplink = uplink_of(spec)
        mtu = uplink.mtu if spec.mtu is None else spec.mtu
        wanted = vlans.Vlan(bridge=name, mtu=mtu, interface=uplink.interface, vlan=spec.vlan)
        return {**ensure_joined(connection, wanted, spec.name, check_mode), "type": spec.type}

    def purge(
        self, connection: t.Any, min_age: float, keep: t.Collection[str], check_mode: bool
    ) -> t.Iterator[dict[str, t.Any]]:
        return purge_joined(connection, vlans.Vlan, min_age, keep, check_mode)

    def networks(self, connection: t.Any, uplinks: Uplinks) -> list[FoundNetwork]:
        """Return the physical networks that the host is in: the bridges are made where they are missing."""
        return physical_networks(uplinks)

    def report(self, connection: t.Any) -> list[ServedNetwork]:
        return []  # nothing serves DHCP there
