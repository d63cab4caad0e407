# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Instances that go back in place to their own incremental backups: which one each gets, before any host is contacted.

The host of the instance has the backup. Another one's becomes an image first, see restore.py.
"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ...core import errors
from ...core.amounts import GIB
from ...core.backups import backup
from ...core.images.reverts import NEWEST
from ...core.model import Image
from ...core.reading.setting import canonical
from ...ledger.backups import backups
from ...ledger.backups.backups import BackupRow
from ...ledger.compute.instances import Instance
from ...ledger.db.transaction import Transaction
from ..instances import operation as engine
from ..instances import volume_backed
from ..instances.operation import Begun, Operation, Selection


@dataclass(frozen=True)
class GoingBack:
    """``chain``: the backup, last, and all that it needs. ``image``: what the host makes of it, for this revert only; no store has it"""

    chain: t.Sequence[BackupRow]
    image: Image


def begin(
    tx: Transaction, revert: Operation, selection: Selection, known_hosts: t.Collection[str], word: str
) -> tuple[Begun, dict[str, GoingBack]]:
    """Begin to revert the selected instances, all of them or none. Returns also what each goes back to, by the uuids of instances.

    :arg word: the id of a backup, or ``newest``
    :raises BackupNotFound, BackupDamaged, InvalidInput, FlavorDiskSmallerThanImage: of all instances that cannot begin.
    :raises BootflowError: see flows.instances.operation.begin()
    """
    begun = engine.begin(tx, revert, selection, known_hosts)
    of_instances: dict[str, list[BackupRow]] = {row.uuid: [] for row in begun.rows}
    for one in backups.select(tx, instance_uuids=of_instances) if of_instances else []:
        of_instances[one.instance_uuid].append(one)
    refused: list[errors.BootflowError] = []
    chosen: dict[str, GoingBack] = {}
    for row in begun.rows:
        try:
            chain = _chain(row, of_instances[row.uuid], word)
            image = Image("backup %s" % chain[-1].id, tx.new_id(), "qcow2")
            chosen[row.uuid] = GoingBack(chain, image)
        except errors.BootflowError as e:
            e.details.setdefault(engine.WHOSE, row.display_name)
            refused.append(e)
    engine.refuse(refused)
    return begun, chosen


def _chain(row: Instance, rows: t.Sequence[BackupRow], word: str) -> list[BackupRow]:
    if volume_backed.is_volume_backed(row):
        raise errors.InvalidInput(
            message="The root of instance %s is a volume, which has no incremental backups" % row.display_name,
            remedy="Make a volume of a snapshot of its volume (bootflow.compute.volume_create), and boot another instance with it.",
        )
    complete = [r for r in rows if r.state == backup.COMPLETE]
    if word != NEWEST:
        complete = [r for r in complete if r.id == canonical(word)]
    if not complete:
        raise errors.BackupNotFound(
            backup_id="of instance %s" % row.display_name if word == NEWEST else word,
            remedy="An instance goes back to its own backups only; bootflow.compute.incremental_backup_list shows them.",
        )
    newest = max(complete, key=lambda r: (r.created_at, r.id))
    by_id = {r.id: r for r in rows}
    known = {r.id: backups.to_backup(r) for r in rows}
    chain = backup.chain_of(known[newest.id], known)
    if chain is None:
        reason = backup.damage_of(known[newest.id], known) or backup.NEEDS_MISSING
        raise errors.BackupDamaged(backup_id=newest.id, reason=reason)
    if newest.host != row.host:
        raise errors.InvalidInput(
            message="Backup %s of instance %s is on host %s, and the instance on %s"
            % (newest.id, row.display_name, newest.host, row.host),
            remedy="Make an image of it (bootflow.compute.incremental_backup_restore), and revert to that (bootflow_revert_image).",
        )
    size = newest.virtual_size or 0
    if size > row.root_gb * GIB:
        raise errors.FlavorDiskSmallerThanImage(flavor_size=row.root_gb * GIB, image_size=size)
    return [by_id[b.id] for b in chain]
