# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Networks that reach over hosts by OVN: logical switches of the northbound database, which the ports of guests are bound to by Open vSwitch.

source: Neutron's OVN driver, for VIFs and for the MTU
"""

from __future__ import annotations

import typing as t

from ...errors import InvalidInput
from ..names import check_interface
from .network_type import read_management

if t.TYPE_CHECKING:  # hosts load this file, and need no more
    from ...reading.fields import Fields
    from ..subnet import Subnet

#: Bridge of Open vSwitch on each host that ovn-controller has its flows on.
INTEGRATION_BRIDGE = "br-int"
#: Bytes that a packet of a guest gets around it: Ethernet 14, Geneve 16, UDP 8, IP 20.
OVERHEAD = 58
DEFAULT_MTU = 1500 - OVERHEAD


class Ovn:
    """A logical switch of OVN. ``source``: the integration bridge of the hosts, the same for all networks of a host."""

    name = "ovn"
    vif_type = "ovs"
    noun = "integration bridge"
    can_be_filtered = True
    can_be_managed = False
    is_logical = True

    def default_source(self, fields: Fields, name: str) -> str:
        return INTEGRATION_BRIDGE

    def check_source(self, source: str) -> str:
        return check_interface(source)

    def read(self, fields: Fields, subnets: t.Sequence[Subnet]) -> dict[str, t.Any]:
        _check_dhcp(fields, subnets)
        return {**read_management(fields), **({} if fields.data.get("mtu") is not None else {"mtu": DEFAULT_MTU})}

    def vif(self, source: str) -> dict[str, t.Any]:
        return {"bridge": source, "details": {"port_filter": True, "ovs_hybrid_plug": False, "bridge_name": source}}

    def source_of(self, vif: t.Mapping[str, t.Any]) -> str | None:
        return (vif.get("network") or {}).get("bridge")

    def needed_on_host(self, definition: t.Mapping[str, t.Any]) -> str:
        return str(definition["source"])

    def words(self, needed: str, exists: bool) -> str:
        if exists:
            return "ovn-controller has no connection to the southbound database"
        return "%s %s of OVN does not exist" % (self.noun, needed)

    def remedy(self, needed: str, name: str, exists: bool) -> str:
        if exists:
            return "Check ovn-controller of the host and external_ids:ovn-remote (ovs-vsctl), and the central node; then let the host report (heartbeat)."
        return (
            "Set bootflow_ovn_remote for the host and run the role compute_host for network %s, or use other hosts."
            % name
        )

    def interface(self, source: str, port_id: str) -> dict[str, t.Any]:
        return {
            "type": "bridge",
            "source_bridge": source,
            "virtualport_type": "openvswitch",
            "virtualport_interfaceid": port_id,
        }


def _check_dhcp(fields: Fields, subnets: t.Sequence[Subnet]) -> None:
    """Note the subnets that OVN cannot serve by DHCP."""
    for index, subnet in enumerate(subnets):
        if not subnet.enable_dhcp:
            continue
        if subnet.ip_version == 6:
            reason = "DHCPv6 needs the advertisements of a router, and the network has none"
        elif subnet.gateway_ip is None:
            reason = "gateway_ip, which is to be the address of the server, is null"
        else:
            continue
        fields.problems.add(
            "%s.subnets[%d].enable_dhcp" % (fields.path, index),
            InvalidInput(
                message="enable_dhcp is not possible here: %s" % reason,
                remedy="Leave enable_dhcp out: cloud-init configures the address from the config drive.",
            ),
        )
