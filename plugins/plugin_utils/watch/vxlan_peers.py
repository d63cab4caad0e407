# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The VXLAN networks that a reporting host has: they follow the compute hosts of the inventory, so that old hosts reach a new one."""

from __future__ import annotations

import typing as t

from ...module_utils.core import errors
from ..run import host_settings
from ..run.ledger_action import LedgerAction
from ..run.results import item_errors


def refresh(action: LedgerAction, host: str, networks: t.Sequence[t.Mapping[str, t.Any]]) -> list[str]:
    """Join the VXLAN networks of the current host with all compute hosts. Returns the bridges that changed; warns of the others.

    :arg networks: of its report. Where they fit the inventory already, the host is not asked again.
    """
    if not networks:
        return []
    arguments = host_settings.underlay_arguments(action, action.compute_hosts())
    wanted = (arguments["vxlan_address"], set(arguments["vxlan_peers"]))
    outdated = [n["name"] for n in networks if (n["address"], set(n["peers"])) != wanted]
    if not arguments["vxlan_address"]:  # such a host keeps what its guests have
        text = "%s has VXLAN networks (%s) and no bootflow_vxlan_address: other hosts forget it. Set its address, or move its guests."
        action.ports.display.warning(text % (host, ", ".join(sorted(n["name"] for n in networks))))
        return []
    if not outdated:
        return []
    try:
        result = action.run_module(
            "virtual_network", {**host_settings.libvirt_arguments(action), **arguments, "refresh_vxlan": True}
        )
        problems = item_errors(result, outdated)
    except errors.BootflowError as error:
        result, problems = {"outcomes": {}}, dict.fromkeys(outdated, error)
    for bridge, problem in sorted(problems.items()):
        action.ports.display.warning(
            "The VXLAN network on bridge %s of %s does not follow the inventory: %s" % (bridge, host, problem.paragraph)
        )
    return sorted(bridge for bridge, outcome in result["outcomes"].items() if outcome.get("changed"))
