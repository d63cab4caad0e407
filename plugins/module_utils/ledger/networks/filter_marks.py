# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Hosts whose packet filters are due: what they filter by changed after their last document.

A change and its mark are in one transaction. A host that is silent stays marked until it has a document that saw the change.
"""

from __future__ import annotations

import typing as t

from ..db.sqlalchemy_import import sa
from ..db.transaction import Transaction
from ..fast import bulk
from ..schema.security_tables import port_filter_revisions
from ..schema.tables import ports
from . import security_groups
from .port_filters import count, lock_numbers


def mark(tx: Transaction, hosts: t.Iterable[str]) -> None:
    """Note that these hosts are due for a document."""
    due_hosts = set(hosts)
    if due_hosts:
        count(tx, due_hosts)


def mark_members(tx: Transaction, port_ids: t.Collection[str]) -> None:
    """Mark the hosts whose filters change as these ports come, change or go: their own, and hosts with ports of groups that have rules with
    groups of theirs."""
    mark(tx, hosts_of_members(tx, port_ids))


def hosts_of_members(tx: Transaction, port_ids: t.Collection[str]) -> list[str]:
    """Return the hosts whose filters change as these ports come, change or go."""
    own = {host for hosts in security_groups.hosts_of_ports(tx, port_ids).values() for host in hosts}
    groups = {key for keys in security_groups.groups_of_ports(tx, port_ids).values() for key in keys}
    return sorted(own | security_groups.hosts_with(tx, security_groups.naming(tx, groups)))


def confirm(tx: Transaction, revisions: t.Mapping[str, int]) -> None:
    """Note that hosts have documents. :arg revisions: host -> the number of its document"""
    c = port_filter_revisions.c
    lock_numbers(tx, revisions)
    for revision, hosts in _by_number(revisions).items():
        tx.execute(
            port_filter_revisions.update().where(_among(tx, hosts), c.applied < revision).values(applied=revision)
        )


def give_back(tx: Transaction, revisions: t.Mapping[str, int]) -> None:
    """Note that documents were numbered and not brought: a host that was not due before, and is as it was, is not due for that.

    :arg revisions: host -> the number of the document
    """
    c = port_filter_revisions.c
    lock_numbers(tx, revisions)
    for revision, hosts in _by_number(revisions).items():
        unchanged = (c.revision == revision, c.applied == revision - 1, c.applied > 0)  # 0: it never had one
        tx.execute(port_filter_revisions.update().where(_among(tx, hosts), *unchanged).values(applied=revision))


def _by_number(revisions: t.Mapping[str, int]) -> dict[int, list[str]]:
    hosts: dict[int, list[str]] = {}
    for host in sorted(revisions):
        hosts.setdefault(revisions[host], []).append(host)
    return hosts


def _among(tx: Transaction, hosts: t.Sequence[str]) -> sa.ColumnElement[bool]:
    return bulk.among(tx, port_filter_revisions.c.host, hosts)


def catch_up(tx: Transaction, host: str, revision: int) -> bool:
    """Have the numbers of a host go on from ``revision``, which it has. Returns whether this ledger never gave it: an older copy of the ledger
    was restored from a backup, and the host has filters of what is forgotten."""
    c = port_filter_revisions.c
    behind = port_filter_revisions.update().where(c.host == host, c.revision < revision)
    return bool(tx.execute(behind.values(revision=revision)).rowcount)


def hosts_with_filters(tx: Transaction) -> list[str]:
    """Return the hosts that have ports, and hosts that had a document of filters before: their last guest may have gone since."""
    having = sa.select(ports.c.host).where(ports.c.host.isnot(None))
    return sorted({str(host) for (host,) in tx.execute(having.union(sa.select(port_filter_revisions.c.host)))})


def due(tx: Transaction) -> list[str]:
    """Return the hosts that are due for a document, and the hosts with ports that never had one."""
    c = port_filter_revisions.c
    numbered = {
        host: applied < revision for host, applied, revision in tx.execute(sa.select(c.host, c.applied, c.revision))
    }
    having = tx.execute(sa.select(ports.c.host).where(ports.c.host.isnot(None)).distinct()).scalars()
    return sorted({host for host, is_due in numbered.items() if is_due} | {str(h) for h in having if h not in numbered})
