# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Ports and their networks. The ledger has no networks: each is the inventory's, or as the request of an instance had it."""

from __future__ import annotations

import typing as t

from ..db.sqlalchemy_import import sa
from ..db.transaction import Transaction
from ..fast import bulk
from ..schema.tables import instances, ports


def networks_with_ports(tx: Transaction) -> set[str]:
    """Return the ids of the networks that have ports."""
    return set(tx.execute(sa.select(ports.c.network_id).distinct()).scalars())


def requests_with_ports_in(tx: Transaction, networks: t.Collection[str]) -> list[int]:
    """Return the ids of the requests of instances that have ports in these networks."""
    query = sa.select(instances.c.request_spec_id).join(ports, ports.c.instance_uuid == instances.c.uuid)
    query = query.where(bulk.among(tx, ports.c.network_id, sorted(networks))).distinct()
    return sorted(tx.execute(query).scalars()) if networks else []


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
