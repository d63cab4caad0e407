# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The networks of guests that come to the current host, made there as a build makes them."""

from __future__ import annotations

import contextlib
import typing as t

from ...module_utils.ledger.compute import ports
from ..builds import build_parts
from ..builds.dhcp import restore
from ..run.ledger_action import LedgerAction
from ..run.results import item_errors
from ..run.stages import Failed


def ensure_networks(action: LedgerAction, uuids: t.Sequence[str], only_joining: bool = False) -> Failed:
    """Make the networks of these guests, also of interfaces that they are losing, and have still. Returns why instances lack one.

    :arg only_joining: only networks that join hosts: of a guest whose other networks are still here
    """
    with contextlib.closing(action.open_ledger()) as ledger:
        port_lists = ledger.inspect(
            lambda tx: [ports.ports_of(tx, uuids, leaving=leaving) for leaving in (False, True)]
        )
    networks_of_guests = {
        u: {n.name: n for by_instance in port_lists for _port, n in by_instance[u] if not only_joining or n.joins_hosts}
        for u in uuids
    }
    networks = {name: network for named in networks_of_guests.values() for name, network in named.items()}
    if not networks:
        return {}
    result = action.run_module("virtual_network", build_parts.network_arguments(action, networks.values()))
    restore(action, networks, result)
    without = item_errors(result, networks)
    lacking = {u: sorted(set(named) & set(without)) for u, named in networks_of_guests.items()}
    return {u: without[names[0]] for u, names in lacking.items() if names}
