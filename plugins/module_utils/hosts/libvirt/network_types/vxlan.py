# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Networks that reach over hosts by VXLAN: the first guest that needs one makes its bridge and device, and a purge removes them after the last."""

from __future__ import annotations

import typing as t

from ....core.errors import InvalidInput
from ....core.networks.on_hosts import ABSENT, INACTIVE, HostNetwork
from ....core.networks.types.vxlan import UNDERLAY, Vxlan
from ....core.networks.underlay import MOST_VNI
from ...bridges import links, tunnels
from .joined_bridges import ensure_joined, purge_joined
from .network_type import FoundNetwork, NetworkSpec, ServedNetwork, Uplinks


class HostVxlan:
    """The VXLAN networks of this host."""

    kind = Vxlan()

    def ensure(self, connection: t.Any, spec: NetworkSpec, check_mode: bool) -> dict[str, t.Any]:
        """Make or correct the bridge, the VXLAN device and its list of peers.

        :raises HostLacksNetwork: the host has no address in the underlay. :raises NetworkError: the MTU does not fit into the tunnel, or a
            device of the network's name is another's.
        """
        name = self.kind.check_source(spec.real_name)
        if spec.vni is None or not 0 < spec.vni <= MOST_VNI:
            raise InvalidInput(
                message="network %s has no VNI between 1 and %d" % (spec.name, MOST_VNI),
                remedy="Write vni for network %s in bootflow_networks." % spec.name,
            )
        needed = HostNetwork(self.kind.name, UNDERLAY, spec.name)
        address = spec.uplinks.vxlan_address
        if not address:
            raise needed.refusal(ABSENT, links.host_name())
        lacks = needed.refusal(INACTIVE, links.host_name())
        tunnel = tunnels.wanted_tunnel(name, spec.vni, address, spec.vxlan_peers, spec.mtu, spec.name, lacks)
        return {**ensure_joined(connection, tunnel, spec.name, check_mode), "type": spec.type}

    def purge(
        self, connection: t.Any, min_age: float, keep: t.Collection[str], check_mode: bool
    ) -> t.Iterator[dict[str, t.Any]]:
        return purge_joined(connection, tunnels.Tunnel, min_age, keep, check_mode)

    def networks(self, connection: t.Any, uplinks: Uplinks) -> list[FoundNetwork]:
        """Return the underlay, if the host has an address for it: the bridges are made where they are missing."""
        vxlan_address = uplinks.vxlan_address
        underlay = tunnels.find_underlay(vxlan_address) if vxlan_address else None
        return [FoundNetwork(UNDERLAY, underlay is not None and underlay.interface != "lo")] if vxlan_address else []

    def report(self, connection: t.Any) -> list[ServedNetwork]:
        return []  # nothing serves DHCP there
