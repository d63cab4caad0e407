# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Incremental backups of instances: a record before any byte is written, and what becomes of it with the end of the operation.

A backup that did not come to its end is failed: the next backup of the instance has its host remove the file and the checkpoint.
"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field

from ...core import errors
from ...core.backups import backup
from ...core.backups.backup import Choice, choose, newest_checkpointed
from ...core.instances.operation_outcomes import Item
from ...ledger.backups import backups
from ...ledger.backups.backups import BackupRow
from ...ledger.compute import history, instances, runs
from ...ledger.compute.instances import Instance
from ...ledger.db.transaction import Transaction
from ..instances import operation as engine
from ..instances import volume_backed
from ..instances.operation import Begun, Operation, Selection

_LOST = "The run seemed to be dead while it wrote the backup. Make it again."


@dataclass
class Planned:
    """The backup to make of an instance. ``chain``: the backups that an increment needs, the full one first. ``remnants``: to remove on its host"""

    id: str
    choice: Choice
    kept_checkpoint: str = ""  # on which an increment could follow, also if this backup fails
    chain: list[BackupRow] = field(default_factory=list)
    remnants: list[BackupRow] = field(default_factory=list)


Plans = t.Dict[str, Planned]  # by the uuids of instances


def begin(
    tx: Transaction,
    operation: Operation,
    selection: Selection,
    known_hosts: t.Collection[str],
    asked_full: bool,
    chain_length: int,
) -> tuple[Begun, Plans]:
    """Begin the operation, and make a record for each instance. Returns also what is to be made.

    :raises InvalidInput: the root of an instance is a volume. :raises BootflowError: see flows.instances.operation.begin()
    """
    begun = engine.begin(tx, operation, selection, known_hosts)
    end_dead(tx)
    refused: list[errors.BootflowError] = []
    for row in begun.rows:
        if volume_backed.is_volume_backed(row):
            error = errors.InvalidInput(
                message="The root of instance %s is a volume, which has no incremental backups" % row.display_name,
                remedy="Make a snapshot of it: bootflow.compute.snapshot.",
            )
            error.details[engine.WHOSE] = row.display_name
            refused.append(error)
    engine.refuse(refused)
    by_instance: dict[str, list[BackupRow]] = {row.uuid: [] for row in begun.rows}
    for existing in backups.select(tx, instance_uuids=by_instance, lock=True) if by_instance else []:
        by_instance[existing.instance_uuid].append(existing)
    plans = {row.uuid: _plan(tx, row, by_instance[row.uuid], asked_full, chain_length) for row in begun.rows}
    backups.create(tx, [_record(row, plans[row.uuid]) for row in begun.rows])
    return begun, plans


def _plan(tx: Transaction, row: Instance, rows: t.Sequence[BackupRow], asked_full: bool, chain_length: int) -> Planned:
    host = str(row.host)
    choice = choose([backups.to_backup(r) for r in rows], host, asked_full, chain_length)
    by_id = {r.id: r for r in rows}
    remnants = [r for r in rows if r.state in backup.REMOVABLE and r.host == host]
    last = newest_checkpointed(backups.to_backup(r) for r in rows)
    checkpoint = last.checkpoint if last is not None and last.host == host else ""
    return Planned(tx.new_id(), choice, checkpoint, [by_id[b.id] for b in choice.chain], remnants)


def _record(row: Instance, planned: Planned) -> dict[str, t.Any]:
    parent = planned.choice.parent
    return {
        "id": planned.id,
        "parent_id": None if parent is None else parent.id,
        "kind": backup.FULL if parent is None else backup.INCREMENTAL,
        "instance_uuid": row.uuid,
        "instance_name": row.display_name,
        "project": row.project,
        "host": str(row.host),
        "spec": {"image": row.spec["image"], "flavor": {"root_gb": row.root_gb}},
    }


def end_dead(tx: Transaction) -> list[str]:
    """Write that the backups of dead runs failed. Returns their ids."""
    rows = backups.select(tx, states=[backup.RUNNING])
    dead = runs.dead_among(tx, [r.run_id for r in rows])
    ids = [r.id for r in rows if r.run_id in dead]
    ended = backups.select(tx, ids=ids, states=[backup.RUNNING], lock=True) if ids else []
    for row in ended:
        backups.fail(tx, row.id, "Run %s died while it wrote the backup." % row.run_id)
    return [row.id for row in ended]


def finish(
    tx: Transaction,
    backup_ids: t.Mapping[str, str],
    answers: t.Mapping[str, Item],
    failed: t.Mapping[str, errors.BootflowError],
) -> dict[str, errors.BootflowError]:
    """Write what became of the backups of an operation that this run ends. Returns why more instances failed.

    :arg backup_ids: by the uuids of instances. :arg answers: of their hosts. :arg failed: also instances that were deleted meanwhile
    """
    removed = sorted({i for answer in answers.values() for i in answer.get("removed") or ()})
    rows = {r.id: r for r in backups.select(tx, ids=[*backup_ids.values(), *removed], lock=True)}
    backups.remove(tx, [i for i in removed if i in rows and rows[i].state in backup.REMOVABLE])
    failures: dict[str, errors.BootflowError] = {}
    for uuid, backup_id in sorted(backup_ids.items()):
        row = rows.get(backup_id)
        if row is None or row.state != backup.RUNNING or row.run_id != tx.run.id:
            if uuid not in failed:
                failures[uuid] = errors.BackupFailed(instance_uuid=uuid, reason="another run ended it", remedy=_LOST)
        elif uuid in failed:
            backups.fail(tx, backup_id, failed[uuid].message)
            if answers.get(uuid, {}).get("left") is False:
                backups.remove(tx, [backup_id])
        else:
            answer = answers[uuid]
            fields = ("kind", "parent_id", "reason", "folder", "file", "size", "virtual_size", "checksum")
            values = {name: answer[name] for name in (*fields, "checkpoint", "checkpoint_xml")}
            backups.complete(tx, backup_id, **values)
    history.add_faults(tx, failures, instances.hosts_of(tx, failures))
    return failures
