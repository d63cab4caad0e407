# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Networks that reach over hosts by a VLAN of a physical network: a bridge and a VLAN device on each host, which the collection makes."""

from __future__ import annotations

import re
import typing as t

from ...errors import InvalidInput
from ..physical import MOST_VLAN, check_physical_network
from .joined_bridge import JoinedBridge
from .network_type import read_management

if t.TYPE_CHECKING:  # hosts load this file, and need no more
    from ...reading.fields import Fields
    from ..subnet import Subnet


class VlanNetwork(JoinedBridge):
    """A Linux bridge of each host, with a VLAN of a physical network in it. ``source``: the bridge."""

    name = "vlan"
    noun = "VLAN network"
    field = "vlan"
    prefix = "vlbr"
    devices = re.compile(r"vlan[0-9]+\Z|.*\.[0-9]+\Z")

    def read(self, fields: Fields, subnets: t.Sequence[Subnet]) -> dict[str, t.Any]:
        physical_network = fields.name("physical_network")
        try:
            if physical_network:  # else it is missing
                check_physical_network(physical_network)
        except InvalidInput as error:
            fields.wrong("physical_network", error.message, error.remedy)
        return {
            **read_management(fields),
            "physical_network": physical_network,
            "vlan": fields.integer("vlan", 1, maximum=MOST_VLAN),
        }

    def needed_on_host(self, definition: t.Mapping[str, t.Any]) -> str:
        return str(definition.get("physical_network") or "")

    def words(self, needed: str, exists: bool) -> str:
        if exists:
            return "the interface of physical network %s is missing or down" % needed
        return "physical network %s is not in bootflow_physical_interface_mappings" % needed

    def remedy(self, needed: str, name: str, exists: bool) -> str:
        if exists:
            return (
                "Turn the interface on (ip link set dev INTERFACE up, and in the network configuration of the host), or correct"
                " bootflow_physical_interface_mappings; then let the host report (heartbeat)."
            )
        return (
            "Set bootflow_physical_interface_mappings of the host for network %s, and let it report (heartbeat), or use other hosts."
            % name
        )
