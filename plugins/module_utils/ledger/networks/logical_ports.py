# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Ports of logical networks. The ledger has no networks: each is the inventory's, or as the request of an instance had it."""

from __future__ import annotations

import typing as t

from ...core.networks.network import Network
from ..compute import requests
from ..compute.ports import network_from
from ..db.sqlalchemy_import import sa
from ..db.transaction import Transaction
from ..fast import bulk
from ..schema.tables import instances, ports


def networks_with_ports(tx: Transaction, catalogue: t.Mapping[str, Network]) -> dict[str, Network]:
    """Return id -> each logical network that has ports. :arg catalogue: the networks of the inventory, by id"""
    used = set(tx.execute(sa.select(ports.c.network_id).distinct()).scalars())
    networks = {key: network for key, network in catalogue.items() if key in used}
    networks.update(_of_requests(tx, used - set(networks)))
    return {key: network for key, network in sorted(networks.items()) if network.is_logical}


def _of_requests(tx: Transaction, ids: t.Collection[str]) -> dict[str, Network]:
    """Return id -> network, of networks that the inventory has no more, as the requests of instances with ports in them had them."""
    if not ids:
        return {}
    query = sa.select(instances.c.request_spec_id).join(ports, ports.c.instance_uuid == instances.c.uuid)
    query = query.where(bulk.among(tx, ports.c.network_id, sorted(ids))).distinct()
    stored = requests.networks(tx, tx.execute(query).scalars().all())
    found = {data["id"]: network_from(data) for _key, rows in sorted(stored.items()) for data in rows}
    return {key: network for key, network in found.items() if key in ids}


def ports_in(tx: Transaction, networks: t.Collection[str]) -> list[str]:
    """Return the ids of the ports in these networks."""
    if not networks:
        return []
    query = sa.select(ports.c.id).where(bulk.among(tx, ports.c.network_id, sorted(networks)))
    return list(tx.execute(query.order_by(ports.c.id)).scalars())


def networks_of(tx: Transaction, ids: t.Collection[str]) -> dict[str, str]:
    """Return id of a port -> id of its network."""
    if not ids:
        return {}
    query = sa.select(ports.c.id, ports.c.network_id).where(bulk.among(tx, ports.c.id, sorted(ids)))
    return {row.id: row.network_id for row in tx.execute(query)}
