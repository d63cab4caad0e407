# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Snapshots of volumes that were made for the image of an instance, when the image is given up."""

from __future__ import annotations

import typing as t

from ...ledger.compute import history
from ...ledger.db.transaction import Transaction
from ...ledger.storage import deletions, pending_cleanups, volume_history, volumes
from ...ledger.storage import snapshots as snapshot_rows
from ...ledger.storage.pending_cleanups import PendingCleanup


def give_up(tx: Transaction, ids: t.Collection[str], reason: str) -> list[str]:
    """Delete snapshots of an operation that failed, whatever their hosts have of them. Returns the storage hosts that are to remove them.

    :arg reason: for the journal of the volumes, and of the cleanup on the hosts
    """
    located = {row.id: row for row in snapshot_rows.select(tx, ids=ids)} if ids else {}
    if not located:
        return []
    volumes_by_id = {v.id: v for v in volumes.select(tx, ids={r.volume_id for r in located.values()}, lock=True)}
    rows = snapshot_rows.select(tx, ids=located, lock=True)
    cleanups = [
        PendingCleanup(str(pool_host), r.id, reason, r.pending_gb, pending_cleanups.SNAPSHOT, r.volume_id)
        for r in rows
        for pool_host in [volumes_by_id[r.volume_id].pool_host]
    ]
    pending_cleanups.add(tx, cleanups)
    items = [(r.volume_id, r.id) for r in rows]
    volume_history.finish_events(tx, items, "create", history.ERROR, reason)
    deletions.forget_snapshots(tx, rows, None)
    return sorted({volumes.host_of(cleanup.pool_host) for cleanup in cleanups})
