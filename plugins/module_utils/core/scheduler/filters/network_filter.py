# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""NetworkFilter: hosts that have the bridges and libvirt networks of the request."""

from __future__ import annotations

import typing as t

from ...networks.on_hosts import HostNetwork, Reported
from ..columns import Fleet, Rows
from ..request_spec import RequestSpec
from .base import Filter, FilterResult
from .verdicts import by_group, pass_all


class NetworkFilter(Filter):
    """Passes if the host reported that it has each network that hosts must have, or reported none of that type.

    Managed networks are not compared, as hosts make them. Hosts with the same networks are asked once.
    """

    name = "NetworkFilter"
    needs_networks = True
    run_once_per_request = True
    binds_forced = True

    def concerns(self, spec: RequestSpec) -> bool:
        return bool(spec.networks)

    def evaluate(self, fleet: Fleet, spec: RequestSpec, rows: Rows) -> FilterResult:
        if not spec.networks:
            return pass_all(rows)
        wanted = tuple(spec.networks)
        groups = fleet.groups("networks %r" % (wanted,), lambda host: _refusal(host.networks, wanted), ("networks",))
        return by_group(groups, groups.values, rows)


def _refusal(reported: Reported, wanted: t.Sequence[HostNetwork]) -> str | None:
    lacks = [(network, network.lack(reported)) for network in wanted]
    return "; ".join("%s (network %s)" % (network.words(lack), network.name) for network, lack in lacks if lack) or None
