# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Networks that reach over hosts by a VLAN of a physical network: a bridge and a VLAN device on each host, which the collection makes."""

from __future__ import annotations

import re
import typing as t

from ..physical import MOST_VLAN
from .joined_bridge import JoinedBridge
from .network_type import read_management
from .on_physical_network import OnPhysicalNetwork, read_physical_network

if t.TYPE_CHECKING:  # hosts load this file, and need no more
    from ...reading.fields import Fields
    from ..subnet import Subnet


class VlanNetwork(OnPhysicalNetwork, JoinedBridge):
    """A Linux bridge of each host, with a VLAN of a physical network in it. ``source``: the bridge."""

    name = vif_type = "vlan"
    noun = "VLAN network"
    field = "vlan"
    prefix = "vlbr"
    devices = re.compile(r"vlan[0-9]+\Z|.*\.[0-9]+\Z")

    def read(self, fields: Fields, subnets: t.Sequence[Subnet]) -> dict[str, t.Any]:
        return {
            **read_management(fields),
            "physical_network": read_physical_network(fields),
            "vlan": fields.integer("vlan", 1, maximum=MOST_VLAN),
        }
