# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""NetworkFilter: hosts that have the bridges and libvirt networks of the request, and filter its ports as its security groups say."""

from __future__ import annotations

import typing as t

from ...firewall.driver import FIREWALL_DRIVER, NOT_FILTERING
from ...networks.on_hosts import HostNetwork
from ..columns import Fleet, Rows
from ..host_state import HostState
from ..request_spec import RequestSpec
from .base import Filter, FilterResult
from .verdicts import by_group, pass_all


class NetworkFilter(Filter):
    """Passes if the host reported that it has each network that hosts must have, or reported none of that type.

    Managed networks are not compared, as hosts make them. Hosts with the same networks are asked once. An instance with security groups other
    than default gets a host that filters ports, and one with ports no host that is to filter and cannot.
    """

    name = "NetworkFilter"
    needs_networks = True
    run_once_per_request = True
    binds_forced = True

    def concerns(self, spec: RequestSpec) -> bool:
        return bool(spec.networks or spec.has_ports)

    def needs(self, spec: RequestSpec) -> frozenset[str]:
        return super().needs(spec) if spec.networks else frozenset()

    def evaluate(self, fleet: Fleet, spec: RequestSpec, rows: Rows) -> FilterResult:
        if not self.concerns(spec):
            return pass_all(rows)
        wanted, filtered = tuple(spec.networks), (spec.has_ports, spec.has_security_groups)
        attributes = (*(("networks",) if wanted else ()), *(("stats",) if spec.has_ports else ()))
        key = "networks %r, filters %r" % (wanted, filtered)
        groups = fleet.groups(key, lambda host: _refusal(host, wanted, *filtered), attributes)
        return by_group(groups, groups.values, rows)


def _refusal(host: HostState, wanted: t.Sequence[HostNetwork], has_ports: bool, has_groups: bool) -> str | None:
    lacks = [(network, network.lack(host.networks)) for network in wanted]
    words = ["%s (network %s)" % (network.words(lack), network.name) for network, lack in lacks if lack]
    if has_ports and NOT_FILTERING in host.stats:
        words.append("it cannot filter ports: %s" % host.stats[NOT_FILTERING])
    elif has_groups and FIREWALL_DRIVER not in host.stats:
        words.append("it filters no ports (bootflow_firewall_driver), and the instance has security groups")
    return "; ".join(words) or None
