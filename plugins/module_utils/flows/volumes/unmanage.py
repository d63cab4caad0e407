# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Removing volumes from the ledger without touching their data, for a storage host that never comes back.

The rules are those of a deletion, as with Cinder's unmanage. No host is asked. source: Cinder's volume API (delete with unmanage_only)
"""

from __future__ import annotations

import typing as t

from ...core.volumes import attachment, states
from ...ledger.db.transaction import Transaction
from ...ledger.storage import attachments, deletions, snapshots
from ..attachments import life
from . import delete
from .delete import VolumeDeleting


def unmanage(tx: Transaction, known_hosts: t.Collection[str], **which: t.Any) -> VolumeDeleting:
    """Remove volumes from the ledger, with ``cascade`` their snapshots too: all are ``gone`` at once, and their quota is free.

    :arg known_hosts: storage hosts that can be asked. Exports that another host has to remove count as removed, because
        it will never report that.
    :arg which: as in delete.begin(), with its errors: attached volumes and those with snapshots are rejected.
    """
    rows = delete.selected(tx, which.get("ids"), which.get("names"), which.get("project"))
    _end_exports(tx, [r.id for r in rows], known_hosts)
    begun = delete.begin(tx, **which)
    of_volumes = snapshots.select(tx, volume_ids=[r.id for r in begun.rows], lock=True) if begun.rows else []
    deletions.forget_snapshots(tx, of_volumes, None)
    deletions.forget(tx, begun.rows, None)
    return VolumeDeleting(
        gone=[*begun.gone, *({"id": r.id, "name": r.name or "", "pool_host": r.pool_host} for r in begun.rows)]
    )


def _end_exports(tx: Transaction, volume_ids: t.Sequence[str], known_hosts: t.Collection[str]) -> None:
    rows = attachments.select(tx, volume_ids=volume_ids, attach_statuses=(states.DETACHED,), connected=False, lock=True)
    lost = [r for r in rows if attachment.UNEXPORTED.admits(r.state) and r.storage_host not in known_hosts]
    life.unexported(tx, lost)
