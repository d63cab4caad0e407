# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The state of the packet filters that hosts must have.

source: Neutron's securitygroups_rpc_base (security_group_info_for_devices)
"""

from __future__ import annotations

import ipaddress
import typing as t

from ...core.networks.security_rules import ETHERTYPES
from ...ledger.compute import project_ports
from ...ledger.db.transaction import Transaction
from ...ledger.networks import port_filters as filter_rows
from ...ledger.networks import security_groups
from ...ledger.networks.port_filters import FilteredPort
from ...ledger.networks.security_groups import RuleRow

VERSION = 1  # of the document
DEVICE = 11  # characters of a port's id in the name of its device, as in Neutron
_RULE_FIELDS = (
    "id", "direction", "ethertype", "protocol", "port_range_min", "port_range_max", "remote_ip_prefix", "remote_group_id",
)  # fmt: skip


def port_filters_of(tx: Transaction, hosts: t.Collection[str]) -> dict[str, dict[str, t.Any]]:
    """Return host -> the document of its packet filters: all ports of its guests, the groups that they have, and the members of groups that
    rules name. To be run by Ledger.transact: documents of one host are numbered, and later numbers have seen all that the earlier
    ones saw.
    """
    revisions = filter_rows.next_revisions(tx, hosts)  # locks the hosts' numbers: what is read below is at least as new
    port_rows = filter_rows.read(tx, security_groups.ports_on(tx, hosts))
    for project in sorted({port.owner for port in port_rows.values() if port.owner and not port.has_own_groups}):
        security_groups.ensure_default(tx, project)
    hosts_by_port = security_groups.hosts_of_ports(tx, port_rows)
    groups_by_port = security_groups.groups_of_ports(tx, port_rows)
    rules = security_groups.rules_of(tx, {key for keys in groups_by_port.values() for key in keys})
    remote = {rule.remote_group_id for rows in rules.values() for rule in rows if rule.remote_group_id is not None}
    members = _members(tx, remote)
    addresses = project_ports.addresses(tx, port_rows)
    documents: dict[str, dict[str, t.Any]] = {}
    for host in dict.fromkeys(hosts):
        ports = [
            _port(port, [a for _id, _subnet, a in addresses[key]], groups_by_port.get(key, []))
            for key, port in port_rows.items()
            if host in hosts_by_port[key]
        ]
        used = sorted({key for port in ports for key in port["groups"]})
        groups = {key: {"rules": [_rule(row) for row in rules.get(key, ())]} for key in used}
        for key in sorted(
            {str(rule["remote_group_id"]) for g in groups.values() for rule in g["rules"] if rule["remote_group_id"]}
        ):
            groups.setdefault(key, {"rules": []})
        documents[host] = {
            "version": VERSION,
            "revision": revisions[host],
            "ports": ports,
            "groups": {key: {**group, "members": members.get(key, _no_members())} for key, group in groups.items()},
        }
    return documents


def _no_members() -> dict[str, list[str]]:
    return {ethertype: [] for ethertype in ETHERTYPES}


def _members(tx: Transaction, group_ids: t.Collection[str]) -> dict[str, dict[str, list[str]]]:
    """Return id of a group -> the ranges of its ports by IP version: their addresses and allowed address pairs, as in Neutron."""
    ports_by_group = security_groups.ports_with(tx, group_ids)
    ids = {port for ports in ports_by_group.values() for port in ports}
    port_rows = filter_rows.read(tx, ids)
    addresses = project_ports.addresses(tx, ids)
    members = {}
    for key, ports in ports_by_group.items():
        ranges: set[ipaddress.IPv4Network | ipaddress.IPv6Network] = set()
        for port in ports:
            if port in port_rows and port_rows[port].port_security_enabled:
                pairs = [pair["ip_address"] for pair in port_rows[port].allowed_address_pairs or ()]
                ranges |= {ipaddress.ip_network(text) for text in (*(a for _i, _s, a in addresses[port]), *pairs)}
        members[key] = {
            ethertype: [str(r) for r in sorted(ranges, key=_order) if "IPv%d" % r.version == ethertype]
            for ethertype in ETHERTYPES
        }
    return members


def _order(network: ipaddress.IPv4Network | ipaddress.IPv6Network) -> tuple[int, int, int]:
    return network.version, int(network.network_address), network.prefixlen


def _port(port: FilteredPort, addresses: t.Sequence[str], groups: t.Sequence[str]) -> dict[str, t.Any]:
    return {
        "port_id": port.id,
        "instance": port.instance_uuid,
        "device": "tap" + port.id[:DEVICE],
        "mac": port.mac_address,
        "addresses": list(addresses),
        "allowed_address_pairs": [dict(pair) for pair in port.allowed_address_pairs or ()],
        "port_security_enabled": bool(port.port_security_enabled),
        "groups": list(groups),
    }


def _rule(row: RuleRow) -> dict[str, t.Any]:
    rule = {name: getattr(row, name) for name in _RULE_FIELDS}
    protocol = rule["protocol"]
    return {**rule, "protocol": int(protocol) if protocol is not None and protocol.isdigit() else protocol}


def hosts_following(tx: Transaction, groups: t.Collection[str]) -> list[str]:
    """Return the hosts whose filters change with the rules or members of these groups: where ports have one of them, or a group with a rule
    that names one."""
    concerned = {*groups, *security_groups.naming(tx, groups)}
    ids = {port for ports in security_groups.ports_with(tx, concerned).values() for port in ports}
    return sorted({host for hosts in security_groups.hosts_of_ports(tx, ids).values() for host in hosts})
