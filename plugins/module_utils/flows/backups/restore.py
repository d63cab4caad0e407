# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Images that are made of backups: the record of an image before any byte is written, and what becomes of it."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field

from ...core import errors
from ...core.backups import backup
from ...core.backups.backup import chain_of
from ...core.backups.restores import Restore
from ...core.images import life
from ...core.images.image import StoredImage
from ...core.reading.problems import Problems
from ...core.reading.setting import canonical
from ...ledger.backups import backups
from ...ledger.backups.backups import BackupRow
from ...ledger.compute import runs
from ...ledger.db.transaction import Transaction
from ...ledger.images import images
from ..images import dead_images, host_images


@dataclass(frozen=True)
class RestoredImage:
    """The image of an entry. ``chain``: the backup, and all that it needs, the full one first"""

    entry: Restore
    row: BackupRow
    chain: t.Sequence[BackupRow]
    image: StoredImage


@dataclass
class RestoresBegun:
    made: list[RestoredImage] = field(default_factory=list)
    unchanged: list[RestoredImage] = field(default_factory=list)  # their images are there


def begin(
    tx: Transaction, entries: t.Sequence[Restore], project: str | None, non_inheritable: t.Sequence[str]
) -> RestoresBegun:
    """Make a record for each entry whose image is not there.

    :arg project: only its backups; None: of all
    :raises InvalidRequest: all refusals (BackupNotFound, BackupDamaged, ImageExists, ImageInUse). Nothing is written then.
    """
    runs.renew(tx)
    dead_images.end_dead(tx)
    problems = Problems()
    begun = RestoresBegun()
    replaced: list[StoredImage] = []
    chosen: list[tuple[Restore, BackupRow, list[BackupRow]]] = []
    for entry in entries:
        with problems.collect(entry.path):
            chosen.append((entry, *_find(tx, entry, project)))
    names = {(row.project, entry.name) for entry, row, _chain in chosen}
    for of_project in sorted({p for p, _name in names}):
        images.lock_names(tx, of_project, sorted(n for p, n in names if p == of_project))
    for entry, row, chain in chosen:
        with problems.collect(entry.path):
            busy: list[errors.BootflowError] = []
            of_name = host_images.named(tx, row.project, [entry.name], busy).get(entry.name, [])
            for error in busy:
                raise error
            same = entry.existing_of([i for i in of_name if i.status == life.ACTIVE], row.id)
            if same is not None:
                begun.unchanged.append(RestoredImage(entry, row, chain, same))
                continue
            about = (row.id, row.instance_name, row.instance_uuid, row.project, tx.actor, row.spec, non_inheritable)
            begun.made.append(RestoredImage(entry, row, chain, entry.image_of(tx.new_id(), *about)))
            replaced += of_name
    problems.raise_if_any()
    for image in replaced:
        dead_images.delete_unfinished(tx, image, "Another image has its name.")
    host_images.enter(tx, [(made.image, made.entry.store.name) for made in begun.made])
    return begun


def _find(tx: Transaction, entry: Restore, project: str | None) -> tuple[BackupRow, list[BackupRow]]:
    """Return the backup of an entry, and its chain. :raises BackupNotFound, BackupDamaged: it is not there, or not whole"""
    if entry.backup:
        rows = backups.select(tx, ids=[entry.backup], project=project)
    else:
        rows = backups.select(tx, instance_names=[entry.instance], project=project)
        rows = rows or backups.select(tx, instance_uuids=[canonical(entry.instance)], project=project)
    rows = [r for r in rows if r.state == backup.COMPLETE]
    if not rows:
        raise errors.BackupNotFound(backup_id=entry.backup or "of instance %s" % entry.instance)
    of_instances = {r.instance_uuid for r in rows}
    if len(of_instances) > 1:
        raise errors.InvalidInput(
            reason="there are backups of %d instances with the name %s" % (len(of_instances), entry.instance),
            remedy="Name the backup by its id (bootflow.compute.incremental_backup_list), or the instance by its UUID.",
        )
    row = max(rows, key=lambda r: (r.created_at, r.id))
    by_id = {r.id: r for r in backups.select(tx, instance_uuids=[row.instance_uuid])}
    known = {i: backups.to_backup(r) for i, r in by_id.items()}
    chain = chain_of(known[row.id], known)
    if chain is None:
        reason = backup.damage_of(known[row.id], known) or backup.NEEDS_MISSING
        raise errors.BackupDamaged(backup_id=row.id, reason=reason)
    return row, [by_id[b.id] for b in chain]
