# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Networks whose guests are on an interface of the host by macvtap, without a bridge. source: Neutron's macvtap agent

libvirt calls this a network with forward mode bridge and an interface: the domain names the network, so it is the same on each host.
"""

from __future__ import annotations

import typing as t

from .network import LibvirtNetwork
from .network_type import read_management
from .on_physical_network import OnPhysicalNetwork, read_physical_network

if t.TYPE_CHECKING:  # hosts load this file, and need no more
    from ...reading.fields import Fields
    from ..subnet import Subnet

_UNFILTERED = "must be false: what guests send goes from macvtap to the interface, where the host filters nothing"


class MacvtapNetwork(OnPhysicalNetwork, LibvirtNetwork):
    """A libvirt network of each host, on the interface of a physical network. ``source``: the libvirt network, which the collection defines."""

    name = vif_type = "macvtap"
    noun = "macvtap network"
    can_be_managed = False
    can_be_filtered = False

    def read(self, fields: Fields, subnets: t.Sequence[Subnet]) -> dict[str, t.Any]:
        if fields.boolean("port_security_enabled"):
            fields.wrong(
                "port_security_enabled", _UNFILTERED, "Leave it out, or use type: vlan, whose ports are filtered."
            )
        return {
            **read_management(fields),
            "physical_network": read_physical_network(fields),
            "port_security_enabled": False,
        }

    def vif(self, source: str) -> dict[str, t.Any]:
        return {"bridge": None, "details": {"libvirt_network": source, "macvtap_mode": "bridge"}}

    def interface(self, source: str, port_id: str) -> dict[str, t.Any]:
        return {"type": LibvirtNetwork.name, "source_network": source}
