# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Pending cleanups of storage hosts: possible leftovers of a volume, from a failed or late worker.

The next run that works on the host removes them. Until then their GB stay taken unless a report includes them. All writes
hold the lock of the backend's row, so that no volume is placed where its own leftovers are being removed.
"""

from __future__ import annotations

import typing as t

from ..db.sqlalchemy_import import sa
from ..db.transaction import Transaction
from ..fast import bulk
from ..schema.volume_tables import volume_cleanups as table
from .volumes import live_runs

VOLUME = "volume"
SNAPSHOT = "snapshot"

_c = table.c


class PendingCleanup(t.NamedTuple):
    """A volume or snapshot that may have to be removed from a pool.

    ``pending_gb``: GB that it may take and that no report includes. ``volume_id``: of a snapshot.
    """

    pool_host: str
    item_id: str
    reason: str
    pending_gb: int = 0
    kind: str = VOLUME
    volume_id: str | None = None


class PendingCleanupRow:
    """A row of volume_cleanups. ``pending_gb``, ``volume_id``: as in PendingCleanup; a volume's ``volume_id`` is its own."""

    id: int
    pool_host: str
    kind: str  # VOLUME or SNAPSHOT
    item_id: str
    volume_id: str
    pending_gb: int
    reason: str
    run_id: str | None  # the run that removes it
    created_at: float


def add(tx: Transaction, cleanups: t.Sequence[PendingCleanup]) -> None:
    """Enter these, each pool and item once; an existing row is updated and released."""
    if not cleanups:
        return
    row_ids = _ids(tx, [(r.pool_host, r.item_id) for r in cleanups])
    old, new = [], []
    for cleanup in cleanups:
        values = {"reason": cleanup.reason[:2000], "pending_gb": cleanup.pending_gb, "run_id": None}
        if (cleanup.pool_host, cleanup.item_id) in row_ids:
            old.append({"id": row_ids[cleanup.pool_host, cleanup.item_id], **values})
        else:
            named = {"pool_host": cleanup.pool_host, "kind": cleanup.kind, "item_id": cleanup.item_id}
            new.append({**named, "volume_id": cleanup.volume_id or cleanup.item_id, "created_at": tx.now, **values})
    bulk.update(tx, table, "id", old)
    if new:
        tx.execute(table.insert(), new)


def _ids(tx: Transaction, items: t.Collection[tuple[str, str]]) -> dict[tuple[str, str], int]:
    """(pool_host, item id) -> id of its row, if it exists."""
    named = bulk.among(tx, _c.item_id, sorted({item_id for _pool_host, item_id in items}))
    rows = tx.execute(sa.select(_c.id, _c.pool_host, _c.item_id).where(named)) if items else ()
    return {(r.pool_host, r.item_id): r.id for r in rows if (r.pool_host, r.item_id) in items}


def due(tx: Transaction, pool_hosts: t.Iterable[str] | None = None) -> list[PendingCleanupRow]:
    """Rows that no other live run is removing, oldest first. :arg pool_hosts: None: of all pools."""
    query = sa.select(table).order_by(_c.id)
    if pool_hosts is not None:
        query = query.where(bulk.among(tx, _c.pool_host, sorted(set(pool_hosts))))
    rows = tx.rows(query, PendingCleanupRow)
    alive = live_runs(tx, rows)
    return [r for r in rows if r.run_id not in alive]


def take(tx: Transaction, pool_hosts: t.Iterable[str]) -> list[PendingCleanupRow]:
    """Make this run the owner of the cleanups that are due in these pools."""
    rows = due(tx, pool_hosts)
    if rows:
        tx.execute(table.update().where(bulk.among(tx, _c.id, [r.id for r in rows])).values(run_id=tx.run.id))
    return rows


def done(tx: Transaction, items: t.Collection[tuple[str, str]]) -> None:
    """End the cleanup of each (pool_host, item id), which was removed or is created there again."""
    row_ids = _ids(tx, set(items))
    if row_ids:
        tx.execute(table.delete().where(bulk.among(tx, _c.id, sorted(row_ids.values()))))


def being_removed(tx: Transaction, item_ids: t.Iterable[str]) -> set[tuple[str, str]]:
    """(item id, pool_host) that another live run is removing: it would also remove an item created there now."""
    query = sa.select(table).where(bulk.among(tx, _c.item_id, sorted(set(item_ids))), _c.run_id.is_not(None))
    rows = tx.rows(query, PendingCleanupRow)
    alive = live_runs(tx, rows)
    return {(r.item_id, r.pool_host) for r in rows if r.run_id in alive}


def items(tx: Transaction) -> set[tuple[str, str]]:
    """(pool_host, item id) of all pending cleanups."""
    return {(r.pool_host, r.item_id) for r in tx.execute(sa.select(_c.pool_host, _c.item_id))}
