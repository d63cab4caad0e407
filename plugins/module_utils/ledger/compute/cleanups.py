# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Pending cleanups: leftovers of instances on hosts that could not be cleaned. A host is cleaned before it builds again.

Until then the claim and addresses there stay taken: an unseen guest may still be using them.
"""

from __future__ import annotations

import typing as t

from ..db import bulk
from ..db.sqlalchemy_import import sa
from ..db.transaction import Transaction
from ..schema.tables import cleanups
from . import claims, ports


class CleanupRow:
    """A row of cleanups: what is to be removed of an instance from a host."""

    id: int
    host: str  # the inventory's name
    instance_uuid: str
    domain_name: str  # libvirt's
    reason: str
    created_at: float  # seconds since the epoch


def add(tx: Transaction, host: str, instance_uuid: str, domain_name: str, reason: str) -> None:
    """Record that the instance has to be cleaned up on ``host``."""
    c = cleanups.c
    if tx.execute(sa.select(c.id).where(c.host == host, c.instance_uuid == instance_uuid)).first() is None:
        tx.execute(
            cleanups.insert().values(
                host=host, instance_uuid=instance_uuid, domain_name=domain_name, reason=reason[:2000], created_at=tx.now
            )
        )


def of_host(tx: Transaction, host: str) -> list[CleanupRow]:
    """The pending cleanups of ``host``, oldest first."""
    return tx.rows(sa.select(cleanups).where(cleanups.c.host == host).order_by(cleanups.c.id), CleanupRow)


def of_instances(tx: Transaction, uuids: t.Sequence[str]) -> list[CleanupRow]:
    """The pending cleanups of these instances, on any host."""
    mine = bulk.among(tx, cleanups.c.instance_uuid, uuids)
    return tx.rows(sa.select(cleanups).where(mine).order_by(cleanups.c.id), CleanupRow)


def rows(tx: Transaction) -> list[CleanupRow]:
    """All pending cleanups, oldest first."""
    return tx.rows(sa.select(cleanups).order_by(cleanups.c.id), CleanupRow)


def hosts(tx: Transaction) -> set[str]:
    """Hosts with pending cleanups."""
    return {r.host for r in tx.execute(sa.select(cleanups.c.host).distinct())}


def forget(tx: Transaction, due: t.Sequence[CleanupRow]) -> None:
    """These hosts keep what they have: the instances are theirs again."""
    tx.execute(cleanups.delete().where(bulk.among(tx, cleanups.c.id, [c.id for c in due])))


def done(tx: Transaction, cleaned: t.Collection[tuple[str, str]]) -> None:
    """The hosts are cleaned of these instances: forget the rows, release claims and addresses. {(host, instance's uuid)}"""
    claims.release_on(tx, cleaned)
    due = of_instances(tx, sorted({uuid for _host, uuid in cleaned})) if cleaned else []
    ids = [r.id for r in due if (r.host, r.instance_uuid) in cleaned]
    if ids:
        tx.execute(cleanups.delete().where(bulk.among(tx, cleanups.c.id, ids)))
    ports.release_on(tx, cleaned)
