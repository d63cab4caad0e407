# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Backups that their hosts read back. A damaged one is named: neither it nor one that needs it is restored, and no increment follows on it.

A file that is put back as it was is found good by the next verification.
"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ...core import errors
from ...core.backups import backup
from ...core.reading.setting import canonical
from ...ledger.backups import backups
from ...ledger.backups.backups import BackupRow
from ...ledger.db.transaction import Transaction


@dataclass(frozen=True)
class Wanted:
    """A complete backup that its host is to read back. ``needs``: files of the same folder that it needs, the full one first"""

    row: BackupRow
    needs: tuple[str, ...]


def select(
    tx: Transaction,
    ids: t.Collection[str] | None = None,
    names: t.Collection[str] | None = None,
    uuids: t.Collection[str] | None = None,
    project: str | None = None,
) -> list[Wanted]:
    """Return the complete backups that meet every given condition, and all that these need: by instance, what is needed first.

    :arg ids: of backups. :arg names, uuids: of instances, also deleted ones
    :raises BackupNotFound: a named backup is not there.
    """
    selected = [r for r in backups.select(tx, ids, uuids, names, project) if r.state == backup.COMPLETE]
    complete_ids = {r.id for r in selected}
    for backup_id in ids or ():
        if canonical(backup_id) not in complete_ids:
            raise errors.BackupNotFound(backup_id=backup_id)
    if not selected:
        return []
    rows = backups.select(tx, instance_uuids={r.instance_uuid for r in selected}, states=[backup.COMPLETE])
    by_id = {r.id: r for r in rows}
    wanted: dict[str, Wanted] = {}
    for row in selected:
        chain = _chain(row, by_id)
        for number, one in enumerate(chain):
            wanted.setdefault(one.id, Wanted(one, tuple(r.file for r in chain[:number])))
    return list(wanted.values())


def _chain(row: BackupRow, by_id: t.Mapping[str, BackupRow]) -> list[BackupRow]:
    """Return the backup and what it needs, the full one first, as far as it is there."""
    chain = [row]
    parent = by_id.get(row.parent_id or "")
    while parent is not None and parent not in chain:
        chain.insert(0, parent)
        parent = by_id.get(parent.parent_id or "")
    return chain


def finish(tx: Transaction, damage: t.Mapping[str, str]) -> list[str]:
    """Write what hosts have found. Returns the ids of backups that are damaged; what was deleted meanwhile is left out.

    :arg damage: id -> what is wrong with its file; "": nothing is
    """
    rows = backups.select(tx, ids=damage, states=[backup.COMPLETE], lock=True) if damage else []
    still_complete = {r.id: damage[r.id] for r in rows}
    backups.verified(tx, still_complete)
    return [i for i, words in still_complete.items() if words]
