# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The logical networks of the ledger for the northbound database of OVN: networks with ports, their ports, and the security groups of these."""

from __future__ import annotations

import ipaddress
import typing as t

from ...core.networks.network import Network
from ...core.ovn.render import Ledger, LogicalPort
from ...ledger.compute import project_ports, requests
from ...ledger.compute.ports import network_from
from ...ledger.db.transaction import Transaction
from ...ledger.networks import logical_ports, port_filters, security_groups


def logical_networks_of(tx: Transaction, catalogue: t.Mapping[str, Network], ledger_id: str) -> Ledger:
    """Return what the ledger has of logical networks. To be run by Ledger.transact: it makes the default groups of projects.

    :arg catalogue: the networks of the inventory, by id
    """
    networks = networks_of(tx, catalogue)
    ids = logical_ports.ports_in(tx, networks)
    rows = port_filters.read(tx, ids)
    for project in sorted({port.owner for port in rows.values() if port.owner and not port.has_own_groups}):
        security_groups.ensure_default(tx, project)
    groups_of_ports = security_groups.groups_of_ports(tx, rows)
    addresses = project_ports.addresses(tx, rows)
    network_of = logical_ports.networks_of(tx, rows)
    used = {group for port in rows.values() if port.port_security_enabled for group in groups_of_ports.get(port.id, ())}
    rules = security_groups.rules_of(tx, used)
    remote = {
        rule.remote_group_id
        for group_rules in rules.values()
        for rule in group_rules
        if rule.remote_group_id is not None
    }
    return Ledger(
        id=ledger_id,
        networks=tuple(networks.values()),
        ports=tuple(
            LogicalPort(
                id=port.id,
                network=network_of[port.id],
                mac=port.mac_address.lower(),
                addresses=tuple((subnet, address) for _id, subnet, address in addresses[port.id]),
                instance=port.instance_uuid or "",
                port_security=bool(port.port_security_enabled),
                pairs=tuple(dict(pair) for pair in port.allowed_address_pairs or ()),
                groups=tuple(groups_of_ports.get(port.id, ())),
            )
            for port in rows.values()
        ),
        groups=rules,
        members=members_of(tx, remote),
    )


def networks_of(tx: Transaction, catalogue: t.Mapping[str, Network]) -> dict[str, Network]:
    """Return id -> each logical network that has ports: the inventory's, or as the requests of its instances had it. :arg catalogue: see above"""
    used = logical_ports.networks_with_ports(tx)
    networks = {key: network for key, network in catalogue.items() if key in used}
    missing = used - set(networks)
    stored = requests.networks(tx, logical_ports.requests_with_ports_in(tx, missing)) if missing else {}
    for _id, definitions in sorted(stored.items()):
        networks.update({d["id"]: network_from(d) for d in definitions if d["id"] in missing})
    return {key: network for key, network in sorted(networks.items()) if network.is_logical}


def members_of(tx: Transaction, groups: t.Collection[str]) -> dict[str, dict[int, list[str]]]:
    """Return id of a group -> IP version -> the ranges of its ports, in all networks: addresses and allowed address pairs, as in Neutron."""
    ports_by_group = security_groups.ports_with(tx, groups)
    ids = {port for ports in ports_by_group.values() for port in ports}
    rows, addresses = port_filters.read(tx, ids), project_ports.addresses(tx, ids)
    members: dict[str, dict[int, list[str]]] = {}
    for group, ports in ports_by_group.items():
        ranges: dict[int, set[str]] = {4: set(), 6: set()}
        for port in ports:
            if port in rows and rows[port].port_security_enabled:
                pairs = [pair["ip_address"] for pair in rows[port].allowed_address_pairs or ()]
                for text in (*(a for _id, _subnet, a in addresses[port]), *pairs):
                    network = ipaddress.ip_network(text, strict=False)
                    ranges[network.version].add(str(network))
        members[group] = {version: sorted(texts) for version, texts in ranges.items()}
    return members
