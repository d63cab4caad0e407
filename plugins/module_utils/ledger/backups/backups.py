# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Rows of incremental backups: read, locked, and brought from state to state."""

from __future__ import annotations

import typing as t

from ...core.backups import backup
from ...core.backups.backup import Backup
from ...core.reading.setting import canonical
from ..db.sqlalchemy_import import sa
from ..db.transaction import Transaction
from ..fast import bulk
from ..schema.backup_tables import instance_backups

LIVE = ""  # the column ``deleted`` of a backup that is not deleted

_b = instance_backups.c


class BackupRow:
    """A row of instance_backups. Times are seconds since the epoch."""

    id: str
    instance_uuid: str
    instance_name: str
    project: str
    user_name: str
    parent_id: str | None
    kind: str  # core.backups.backup.KINDS
    state: str  # core.backups.backup.STATES
    reason: str
    fault: str
    host: str
    folder: str
    file: str
    size: int | None
    virtual_size: int | None
    checksum: str
    checkpoint: str
    checkpoint_xml: str
    spec: dict[str, t.Any]
    run_id: str | None
    created_at: float
    finished_at: float | None
    verified_at: float | None
    damage: str
    deleted_at: float | None
    deleted: str


def select(
    tx: Transaction,
    ids: t.Iterable[str] | None = None,
    instance_uuids: t.Iterable[str] | None = None,
    instance_names: t.Iterable[str] | None = None,
    project: str | None = None,
    states: t.Iterable[str] | None = None,
    run_id: str | None = None,
    host: str | None = None,
    lock: bool = False,
) -> list[BackupRow]:
    """Rows of the backups that meet every given condition, by instance and creation. :arg lock: lock the rows until the transaction ends, by id"""
    query = sa.select(instance_backups).where(_b.deleted == LIVE)
    if ids is not None:
        query = query.where(bulk.among(tx, _b.id, sorted({canonical(i) for i in ids})))
    if instance_uuids is not None:
        query = query.where(bulk.among(tx, _b.instance_uuid, sorted({canonical(u) for u in instance_uuids})))
    if instance_names is not None:
        query = query.where(bulk.among(tx, _b.instance_name, sorted(set(instance_names))))
    if project is not None:
        query = query.where(_b.project == project)
    if states is not None:
        query = query.where(_b.state.in_(sorted(set(states))))
    if run_id is not None:
        query = query.where(_b.run_id == run_id)
    if host is not None:
        query = query.where(_b.host == host)
    if lock:
        return tx.rows(query.order_by(_b.id).with_for_update(), BackupRow)
    return tx.rows(query.order_by(_b.instance_name, _b.instance_uuid, _b.created_at, _b.id), BackupRow)


def to_backup(row: BackupRow) -> Backup:
    """Return a row in the form of core's rules."""
    fields = (row.id, row.parent_id, row.kind, row.state, row.host, row.created_at)
    return Backup(*fields, row.checkpoint, row.reason, row.damage)


def stored_file(row: BackupRow) -> dict[str, t.Any]:
    """Return the fields of hosts.backups.folder.StoredBackup: what a host needs to know of the file of a backup."""
    names = ("id", "folder", "file", "size", "virtual_size", "checksum")
    return {name: getattr(row, name) for name in names}


def create(tx: Transaction, rows: t.Sequence[t.Mapping[str, t.Any]]) -> None:
    """Enter backups that this run begins to write. :arg rows: id, instance_uuid, instance_name, project, host, spec"""
    common = {
        "user_name": tx.actor,
        "parent_id": None,
        "kind": backup.FULL,
        "state": backup.RUNNING,
        "reason": "",
        "fault": "",
        "folder": "",
        "file": "",
        "size": None,
        "virtual_size": None,
        "checksum": "",
        "checkpoint": "",
        "checkpoint_xml": "",
        "run_id": tx.run.id,
        "created_at": tx.now,
        "finished_at": None,
        "verified_at": None,
        "damage": "",
        "deleted_at": None,
        "deleted": LIVE,
    }
    if rows:
        tx.execute(instance_backups.insert(), [{**common, **row} for row in rows])


def complete(tx: Transaction, backup_id: str, **values: t.Any) -> None:
    """Write that all bytes of a backup are on the disk. :arg values: what its host answered"""
    _write(tx, [backup_id], state=backup.COMPLETE, finished_at=tx.now, **values)


def fail(tx: Transaction, backup_id: str, fault: str) -> None:
    """Write that the bytes of a backup did not arrive. The next backup of the instance removes what its host has of it."""
    _write(tx, [backup_id], state=backup.FAILED, fault=fault, finished_at=tx.now)


def verified(tx: Transaction, damage: t.Mapping[str, str]) -> None:
    """Write that hosts have read backups back. :arg damage: id -> what is wrong with its file; "": nothing is"""
    for words in sorted(set(damage.values())):
        _write(tx, [i for i in damage if damage[i] == words], verified_at=tx.now, damage=words)


def begin_deletion(tx: Transaction, ids: t.Sequence[str]) -> None:
    """Write that the host is to remove backups, and that this run sees to it."""
    _write(tx, ids, state=backup.DELETING, run_id=tx.run.id)


def remove(tx: Transaction, ids: t.Sequence[str]) -> None:
    """Write that the host has nothing of backups any more."""
    for backup_id in ids:
        _write(tx, [backup_id], deleted=backup_id, deleted_at=tx.now)


def _write(tx: Transaction, ids: t.Sequence[str], **values: t.Any) -> None:
    if ids:
        tx.execute(instance_backups.update().where(bulk.among(tx, _b.id, sorted(ids))).values(**values))
