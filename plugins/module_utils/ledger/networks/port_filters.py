# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Ports with their port security, and the numbers of documents: packet filters of hosts are made of them."""

from __future__ import annotations

import typing as t

from ..db.locks import insert_new
from ..db.sqlalchemy_import import sa
from ..db.transaction import Transaction
from ..fast import bulk
from ..schema.security_tables import port_filter_revisions
from ..schema.tables import instances, ports


class FilteredPort:
    """A port as its filter needs it. ``owner``: its project."""

    id: str
    instance_uuid: str | None
    mac_address: str
    has_own_groups: bool
    port_security_enabled: bool
    allowed_address_pairs: t.Any | None
    owner: str | None


def next_revisions(tx: Transaction, hosts: t.Collection[str]) -> dict[str, int]:
    """Return host -> the number of its next document. Two transactions that number documents of a host take turns."""
    c = port_filter_revisions.c
    count(tx, hosts)
    return {host: int(n) for host, n in tx.execute(sa.select(c.host, c.revision).where(_among_hosts(tx, hosts)))}


def count(tx: Transaction, hosts: t.Collection[str]) -> None:
    """Add one to the numbers of these hosts, which other transactions wait for from now on."""
    c = port_filter_revisions.c
    for host in sorted(set(hosts) - lock_numbers(tx, hosts)):
        insert_new(tx, port_filter_revisions, host=host, revision=0)
    tx.execute(port_filter_revisions.update().where(_among_hosts(tx, hosts)).values(revision=c.revision + 1))


def lock_numbers(tx: Transaction, hosts: t.Collection[str]) -> set[str]:
    """Have other transactions wait that number or confirm documents of these hosts. Returns the hosts that have a number."""
    c = port_filter_revisions.c
    return set(
        tx.execute(sa.select(c.host).where(_among_hosts(tx, hosts)).order_by(c.host).with_for_update()).scalars()
    )


def _among_hosts(tx: Transaction, hosts: t.Collection[str]) -> sa.ColumnElement[bool]:
    return bulk.among(tx, port_filter_revisions.c.host, sorted(set(hosts)))


def read(tx: Transaction, ids: t.Collection[str]) -> dict[str, FilteredPort]:
    """Return the ports by id, in the order of their ids."""
    if not ids:
        return {}
    p = ports.c
    query = sa.select(
        p.id, p.instance_uuid, p.mac_address, p.has_own_groups, p.port_security_enabled,
        p.allowed_address_pairs, sa.func.coalesce(p.project, instances.c.project).label("owner"),
    )  # fmt: skip
    query = query.select_from(ports.outerjoin(instances, instances.c.uuid == p.instance_uuid))
    return {row.id: row for row in tx.rows(query.where(bulk.among(tx, p.id, sorted(ids))).order_by(p.id), FilteredPort)}


def owners(tx: Transaction, ids: t.Collection[str]) -> dict[str, str]:
    """Return id of a port -> its project, or that of its instance."""
    return {key: port.owner for key, port in read(tx, ids).items() if port.owner is not None}


def ports_of_instances(tx: Transaction, uuids: t.Collection[str]) -> list[str]:
    """Return the ids of the ports of these instances, in the order of their interfaces."""
    c = ports.c
    query = sa.select(c.id).where(bulk.among(tx, c.instance_uuid, sorted(uuids))).order_by(c.instance_uuid, c.position)
    return list(tx.execute(query).scalars()) if uuids else []
