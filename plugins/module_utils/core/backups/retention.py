# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which backups of an instance are deleted: beyond the number to keep, and never one that a remaining one needs."""

from __future__ import annotations

import typing as t

from ..errors import BackupInUse, BackupNotFound
from .backup import COMPLETE, RUNNING, Backup, damage_of


def needed_by(wanted: t.Iterable[Backup], by_id: t.Mapping[str, Backup]) -> set[str]:
    """Return the ids of these backups, and of all that they need."""
    needed: set[str] = set()
    for backup in wanted:
        one: Backup | None = backup
        while one is not None and one.id not in needed:
            needed.add(one.id)
            one = by_id.get(one.parent_id or "")
    return needed


def beyond(backups: t.Sequence[Backup], keep: int) -> list[Backup]:
    """Return the complete backups of an instance to delete, the newest first: an increment goes before what it needs.

    :arg keep: the number of the newest ones that stay, with all that they need. Damaged backups and their increments do not count: the newest that can
     be restored stay, and damaged ones that are newer
    """
    by_id = {b.id: b for b in backups}
    complete = sorted((b for b in backups if b.state == COMPLETE), key=lambda b: (b.created_at, b.id), reverse=True)
    running = [b for b in backups if b.state == RUNNING]  # an increment needs its parent from its begin on
    good = 0
    staying: list[Backup] = []
    for backup in complete:
        if good == keep:
            break
        staying.append(backup)
        good += not damage_of(backup, by_id)
    needed = needed_by([*staying, *running], by_id)
    return [b for b in complete if b.id not in needed]


def named(backups: t.Sequence[Backup], ids: t.Collection[str]) -> list[Backup]:
    """Return the named backups, the newest first.

    :raises BackupNotFound: one is not there. :raises BackupInUse: a backup that is not named needs one of them.
    """
    by_id = {b.id: b for b in backups if b.state == COMPLETE}
    for backup_id in ids:
        if backup_id not in by_id:
            raise BackupNotFound(backup_id=backup_id)
    for backup in backups:
        if backup.state not in (COMPLETE, RUNNING):
            continue
        if backup.id not in ids and backup.parent_id in ids:
            raise BackupInUse(
                backup_id=backup.parent_id,
                reason="backup %s has only what was written after it" % backup.id,
                remedy="Delete the later backups with it, or keep it.",
            )
    return sorted((by_id[i] for i in ids), key=lambda b: (b.created_at, b.id), reverse=True)
