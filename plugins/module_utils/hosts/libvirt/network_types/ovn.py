# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Networks that reach over hosts by OVN: ovn-controller binds the interfaces of guests by the ids of their ports, and nothing is made here."""

from __future__ import annotations

import typing as t

from ....core.networks.on_hosts import ABSENT, HostNetwork
from ....core.networks.types.ovn import INTEGRATION_BRIDGE, Ovn
from ...open_vswitch import bridges
from ..domain_waits import host_name
from .network_type import FoundNetwork, NetworkSpec, ServedNetwork, Uplinks, found_as_it_is


class HostOvn:
    """The OVN networks of this host."""

    kind = Ovn()

    def ensure(self, connection: t.Any, spec: NetworkSpec, check_mode: bool) -> dict[str, t.Any]:
        """:raises HostLacksNetwork: the host has no integration bridge. Its guests keep their network while ovn-controller has no connection."""
        name = self.kind.check_source(spec.real_name)
        if not bridges.exists(name):
            raise HostNetwork(self.kind.name, name, spec.name).refusal(ABSENT, host_name())
        return found_as_it_is(spec, name)

    def purge(
        self, connection: t.Any, min_age: float, keep: t.Collection[str], check_mode: bool
    ) -> t.Iterator[dict[str, t.Any]]:
        return iter(())

    def networks(self, connection: t.Any, uplinks: Uplinks) -> list[FoundNetwork]:
        """Return the integration bridge, which is active while ovn-controller is connected."""
        name = bridges.integration_bridge(INTEGRATION_BRIDGE)
        return [FoundNetwork(name, bridges.is_connected())] if name else []

    def report(self, connection: t.Any) -> list[ServedNetwork]:
        return []  # OVN has the server, which knows the ports by the northbound database
