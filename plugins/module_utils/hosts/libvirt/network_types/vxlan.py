# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Networks that reach over hosts by VXLAN: the first guest that needs one makes its bridge and device, and a purge removes them after the last."""

from __future__ import annotations

import contextlib
import typing as t

from ....core.errors import InvalidInput
from ....core.networks.on_hosts import ABSENT, INACTIVE, HostNetwork
from ....core.networks.types.vxlan import UNDERLAY, Vxlan
from ....core.networks.underlay import MOST_VNI
from ...os import tunnels
from ...os.batch import attempt
from ...os.locks import LOCK_ROOT, host_lock
from ..taps import plug_in, unplugged
from .network_type import FoundNetwork, NetworkSpec, ServedNetwork
from .used_networks import used_by_domains


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
        needed = HostNetwork(self.kind.name, name, spec.name)
        if not spec.vxlan_address:
            raise needed.refusal(ABSENT, tunnels.host_name())
        lacks = needed.refusal(INACTIVE, tunnels.host_name())
        tunnel = tunnels.wanted_tunnel(name, spec.vni, spec.vxlan_address, spec.vxlan_peers, spec.mtu, spec.name, lacks)
        if check_mode:
            outcome = tunnels.ensure_tunnel(tunnel, spec.name, True)
        else:
            with host_lock(LOCK_ROOT, tunnels.LOCK):
                outcome = tunnels.ensure_tunnel(tunnel, spec.name, False)
            if outcome["defined"]:  # guests that run have lost the former bridge
                plug_in(tap for tap in unplugged(connection) if tap.bridge == name)
        return {**outcome, "type": spec.type, "source": name, "bridge": name}

    def purge(
        self, connection: t.Any, min_age: float, keep: t.Collection[str], check_mode: bool
    ) -> t.Iterator[dict[str, t.Any]]:
        with contextlib.nullcontext() if check_mode else host_lock(LOCK_ROOT, tunnels.LOCK):
            ours = [tunnel for tunnel in tunnels.recorded() if tunnel.bridge not in keep]
            used = used_by_domains(connection) if ours else set()
            for tunnel in ours:
                outcome = attempt(lambda candidate: _purge(candidate, used, min_age, check_mode), tunnel)
                if outcome["changed"] or outcome["error"]:
                    yield {"name": tunnel.bridge, **outcome}

    def networks(self, connection: t.Any, vxlan_address: str) -> list[FoundNetwork]:
        """Return the underlay, if the host has an address for it: the bridges are made where they are missing."""
        underlay = tunnels.find_underlay(vxlan_address) if vxlan_address else None
        return [FoundNetwork(UNDERLAY, underlay is not None and underlay.interface != "lo")] if vxlan_address else []

    def report(self, connection: t.Any) -> list[ServedNetwork]:
        return []  # nothing serves DHCP there


def _purge(tunnel: tunnels.Tunnel, used: t.Collection[str], min_age: float, check_mode: bool) -> dict[str, t.Any]:
    if tunnel.bridge in used or tunnels.has_ports(tunnel) or tunnels.unneeded_for(tunnel) < min_age:
        return {"changed": False}
    definition = tunnels.found_text(tunnel)
    if not check_mode:
        tunnels.remove_tunnel(tunnel)
    return {"changed": True, "definition": definition}
