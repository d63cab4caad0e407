# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""DHCP reservations of guests that exist, on the current host."""

from __future__ import annotations

import typing as t

from ...module_utils.core import errors
from ...module_utils.core.networks.network import Network
from ...module_utils.flows.recovery import reservations
from ..run import host_settings
from ..run.ledger_action import LedgerAction
from ..run.results import item_errors


def reserve(action: LedgerAction, wanted: t.Sequence[t.Mapping[str, str]]) -> list[str]:
    """Returns the addresses that the DHCP servers of the host now reserve, and warns of the others."""
    if not wanted:
        return []
    address_of = {reservation["mac"]: reservation["address"] for reservation in wanted}
    arguments = {**host_settings.libvirt_arguments(action), "reservations": list(wanted)}
    try:
        result = action.run_module("virtual_network", arguments)
        problems = item_errors({"outcomes": result.get("reservations") or {}}, address_of)
    except errors.BootflowError as error:
        problems = dict.fromkeys(address_of, error)
    without: dict[str, list[str]] = {}
    for mac, problem in problems.items():
        without.setdefault(problem.paragraph, []).append(address_of[mac])
    host = action.task_vars["inventory_hostname"]
    for reason, addresses in without.items():
        action._display.warning("DHCP does not reserve %s on %s: %s" % (", ".join(addresses), host, reason))
    return [address for mac, address in address_of.items() if mac not in problems]


def restore(action: LedgerAction, networks: t.Mapping[str, Network], result: t.Mapping[str, t.Any]) -> None:
    """Reserve the addresses of the guests that a network had here before it was removed.

    :arg networks: by their names, as ``result`` of the module virtual_network has them.
    """
    made = {n.source for n in networks.values() if result["outcomes"].get(n.name, {}).get("defined")}
    if not made:
        return
    host = action.task_vars["inventory_hostname"]
    ledger = action.open_ledger()
    try:
        guests = ledger.inspect(reservations.of_hosts, [host]).get(host, {})
    finally:
        ledger.close()
    reserve(
        action, [reservation for needed in guests.values() for reservation in needed if reservation["network"] in made]
    )
