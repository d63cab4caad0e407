# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The rows of the northbound database that a ledger's networks, ports and security groups need.

source: Neutron's OVN driver (ovn_client.py), for what a port and a subnet have
"""

from __future__ import annotations

import hashlib
import ipaddress
import typing as t
from dataclasses import dataclass, field

from . import acls
from .rows import ADDRESSES, DHCP, GROUP, ID, LEDGER, PORT, SWITCH, Row, Value

if t.TYPE_CHECKING:
    from ..networks.network import Network
    from ..networks.subnet import Subnet

LEASE = 43200  # seconds. source: Neutron's dhcp_lease_duration is 86400; its OVN driver has half of it


@dataclass(frozen=True)
class LogicalPort:
    """A port of a logical switch. ``addresses``: (id of the subnet, address), in order. ``groups``: ids of its security groups."""

    id: str
    network: str  # its id
    mac: str
    addresses: tuple[tuple[str, str], ...] = ()
    instance: str = ""
    port_security: bool = True
    pairs: tuple[t.Mapping[str, str], ...] = ()  # allowed address pairs
    groups: tuple[str, ...] = ()


@dataclass(frozen=True)
class Ledger:
    """The logical networks of a ledger. ``groups``: id of a security group -> its rules, also of groups that rules name.

    ``members``: id of a remote group -> ranges of its members, by IP version.
    """

    id: str
    networks: tuple[Network, ...] = ()
    ports: tuple[LogicalPort, ...] = ()
    groups: t.Mapping[str, t.Sequence[acls.Rule]] = field(default_factory=dict)
    members: t.Mapping[str, t.Mapping[int, t.Sequence[str]]] = field(default_factory=dict)


class Rendered(t.NamedTuple):
    """The wanted rows. ``unsaid``: ids of rules that OVN has no words for: what they would allow stays closed."""

    rows: list[Row]
    unsaid: list[str]


def render(ledger: Ledger) -> Rendered:
    """Return the rows that the database is to have."""
    rows = [*_dhcp(ledger), *_members(ledger), *(_port(ledger, port) for port in ledger.ports)]
    rows += [_switch(ledger, network) for network in ledger.networks]
    unsaid = []
    for group in sorted(ledger.groups):
        rules = {rule.id: acls.of_rule(ledger.id, group, rule) for rule in ledger.groups[group]}
        unsaid += [key for key, row in rules.items() if row is None]
        said = [row for row in rules.values() if row is not None]
        ports = [port.id for port in ledger.ports if port.port_security and group in port.groups]
        rows += [*said, _group(ledger, acls.group_name(group), ports, said, group)]
    guarded = [port.id for port in ledger.ports if port.port_security]
    if guarded:
        dropping = acls.drops(ledger.id)
        name = acls.drop_group_name(ledger.id)
        rows += [*dropping, _group(ledger, name, guarded, dropping, name)]
    return Rendered(rows, unsaid)


def switch_name(network: str) -> str:
    """Return the name of the logical switch of a network. :arg network: its id"""
    return "bootflow-" + network


def _switch(ledger: Ledger, network: Network) -> Row:
    name = switch_name(network.id)
    ports = [port.id for port in ledger.ports if port.network == network.id]
    ids = {**_ids(ledger, network.id), "bootflow:name": network.name}
    return Row(SWITCH, name, {"name": name, "external_ids": ids}, {"ports": ports})


def _port(ledger: Ledger, port: LogicalPort) -> Row:
    own = " ".join([port.mac, *(address for _subnet, address in port.addresses)])
    macs = sorted({pair["mac_address"].lower() for pair in port.pairs if pair.get("mac_address")} - {port.mac})
    secured = {port.mac: [address for _subnet, address in port.addresses]}
    for pair in port.pairs:
        mac = (pair.get("mac_address") or port.mac).lower()
        secured.setdefault(mac, []).append(_range(pair["ip_address"]))
    values: dict[str, t.Any] = {
        "name": port.id,
        # Without port security a guest may be a switch itself: frames to addresses that no port has go to it, too.
        "addresses": tuple(sorted([own, *macs, *([] if port.port_security else ["unknown"])])),
        "port_security": tuple(sorted(" ".join([mac, *dict.fromkeys(ranges)]) for mac, ranges in secured.items()))
        if port.port_security
        else (),
        "external_ids": {**_ids(ledger, port.id), "bootflow:instance": port.instance},
    }
    served = {subnet.id for network in ledger.networks for subnet in network.subnets if _is_served(subnet)}
    options = [subnet for subnet, _address in port.addresses if subnet in served]
    return Row(PORT, port.id, values, {"dhcpv4_options": options[:1]})


def _range(text: str) -> str:
    network = ipaddress.ip_network(text, strict=False)
    return str(network.network_address) if network.prefixlen == network.max_prefixlen else str(network)


def _is_served(subnet: Subnet) -> bool:
    return subnet.enable_dhcp and subnet.ip_version == 4 and subnet.gateway_ip is not None


def _dhcp(ledger: Ledger) -> t.Iterator[Row]:
    for network in ledger.networks:
        for subnet in network.subnets:
            if _is_served(subnet):
                values: dict[str, Value] = {"cidr": subnet.cidr, "options": dhcp_options(subnet, network.mtu)}
                yield Row(DHCP, subnet.id, {**values, "external_ids": _ids(ledger, subnet.id)})


def dhcp_options(subnet: Subnet, mtu: int | None) -> dict[str, str]:
    """Return the options that OVN gives to guests of an IPv4 subnet with a gateway."""
    gateway = str(subnet.gateway_ip)
    options = {"server_id": gateway, "server_mac": _server_mac(subnet.id), "lease_time": str(LEASE), "router": gateway}
    if mtu is not None:
        options["mtu"] = str(mtu)
    servers = [address for address in subnet.dns_nameservers if ":" not in address]
    if servers:
        options["dns_server"] = "{%s}" % ", ".join(servers)
    routes = ["%s,%s" % (route["destination"], route["nexthop"]) for route in subnet.host_routes]
    if routes:  # a guest that gets routes ignores the router (RFC 3442)
        options["classless_static_route"] = "{%s}" % ", ".join([*routes, "0.0.0.0/0,%s" % gateway])
    return options


def _server_mac(subnet: str) -> str:
    """Return the MAC address of a subnet's DHCP server, the same at each rendering."""
    digest = hashlib.sha256(subnet.encode()).digest()
    return "fa:16:3f:%02x:%02x:%02x" % tuple(digest[:3])


def _members(ledger: Ledger) -> t.Iterator[Row]:
    for group in sorted(ledger.members):
        for version in (4, 6):
            name = acls.set_name(group, version)
            ranges = tuple(sorted(map(_range, ledger.members[group].get(version, ()))))
            yield Row(ADDRESSES, name, {"name": name, "addresses": ranges, "external_ids": _ids(ledger, group)})


def _group(ledger: Ledger, name: str, ports: t.Sequence[str], rules: t.Sequence[Row], key: str) -> Row:
    values: dict[str, Value] = {"name": name, "external_ids": _ids(ledger, key)}
    return Row(GROUP, name, values, {"ports": ports, "acls": [row.key for row in rules]})


def _ids(ledger: Ledger, key: str) -> dict[str, str]:
    return {LEDGER: ledger.id, ID: key}
