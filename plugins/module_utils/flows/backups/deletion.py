# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Backups that are deleted: marked before their hosts remove them, the newest of a chain first, so that no file is ever without what it is on."""

from __future__ import annotations

import typing as t

from ...core import errors
from ...core.backups import backup, retention
from ...ledger.backups import backups
from ...ledger.backups.backups import BackupRow
from ...ledger.compute import runs
from ...ledger.db.transaction import Transaction
from . import incremental


def begin(
    tx: Transaction,
    ids: t.Collection[str] | None = None,
    names: t.Collection[str] | None = None,
    uuids: t.Collection[str] | None = None,
    project: str | None = None,
    keep: int | None = None,
) -> list[BackupRow]:
    """Mark backups as deleting. Returns them, the newest of each instance first, with what earlier runs did not remove.

    :arg ids: of backups. :arg names, uuids: of instances, also deleted ones. :arg keep: how many of the newest each instance keeps
    :raises InvalidInput: neither backups nor a number to keep are named, or no instance is.
    :raises BackupNotFound, BackupInUse: see core.backups.retention.named()
    """
    if (ids is None) == (keep is None):
        raise errors.InvalidInput(
            reason="either backups are named, or a number to keep",
            remedy="Set bootflow_backup_ids, or bootflow_backup_keep with bootflow_names, bootflow_uuids or bootflow_project.",
        )
    if keep is not None and names is None and uuids is None and project is None:
        raise errors.InvalidInput(
            reason="no instance is selected", remedy="Set bootflow_names, bootflow_uuids or bootflow_project."
        )
    runs.renew(tx)
    incremental.end_dead(tx)
    of_instances = {r.instance_uuid for r in backups.select(tx, ids, uuids, names, project)}
    if ids is not None:
        known = {r.id for r in backups.select(tx, ids, uuids, names, project)}
        for backup_id in ids:
            if backup_id not in known:
                raise errors.BackupNotFound(backup_id=backup_id)
    if not of_instances:
        return []
    backups.select(tx, instance_uuids=of_instances, lock=True)
    rows = backups.select(tx, instance_uuids=of_instances)  # also ones that were made while this waited
    chosen: list[BackupRow] = []
    for uuid in sorted(of_instances):
        by_id = {r.id: r for r in rows if r.instance_uuid == uuid}
        known_backups = [backups.to_backup(r) for r in by_id.values()]
        left_over = [r for r in by_id.values() if r.state in backup.REMOVABLE]
        if keep is not None:
            deleted = retention.beyond(known_backups, keep)
        else:
            of_left = {r.id for r in left_over}
            deleted = retention.named(known_backups, [i for i in ids or () if i in by_id and i not in of_left])
        chosen += [*left_over, *(by_id[b.id] for b in deleted)]
    backups.begin_deletion(tx, [r.id for r in chosen])
    return chosen


def finish(tx: Transaction, ids: t.Collection[str]) -> None:
    """Write that nothing is left of these backups."""
    rows = backups.select(tx, ids=ids, states=backup.REMOVABLE, lock=True) if ids else []
    backups.remove(tx, [r.id for r in rows])
