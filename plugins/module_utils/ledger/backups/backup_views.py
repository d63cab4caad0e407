# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Incremental backups as playbooks show them."""

from __future__ import annotations

import typing as t

from ...core.backups.backup import Backup, damage_of
from ...core.times import utc
from ..db.transaction import Transaction
from .backups import BackupRow, select, to_backup


def view(row: BackupRow, by_id: t.Mapping[str, Backup]) -> dict[str, t.Any]:
    """Return a backup as playbooks return it. :arg by_id: all backups of its instance"""
    return {
        "id": row.id,
        "instance": row.instance_name,
        "instance_uuid": row.instance_uuid,
        "project": row.project,
        "kind": row.kind,
        "parent_id": row.parent_id,
        "state": row.state,
        "reason": row.reason,
        "fault": row.fault,
        "host": row.host,
        "path": "%s/%s" % (row.folder, row.file) if row.file else "",
        "size": row.size,
        "virtual_size": row.virtual_size,
        "checksum": row.checksum,
        "created_at": str(utc(row.created_at)),
        "finished_at": None if row.finished_at is None else str(utc(row.finished_at)),
        "verified_at": None if row.verified_at is None else str(utc(row.verified_at)),
        "damage": damage_of(by_id[row.id], by_id),
    }


def views(
    tx: Transaction,
    ids: t.Iterable[str] | None = None,
    names: t.Iterable[str] | None = None,
    uuids: t.Iterable[str] | None = None,
    project: str | None = None,
) -> list[dict[str, t.Any]]:
    """Return the backups that meet every given condition, by instance and creation. :arg names, uuids: of instances"""
    rows = select(tx, ids, uuids, names, project)
    if not rows:
        return []
    of_instances = select(
        tx, instance_uuids={row.instance_uuid for row in rows}
    )  # what a backup needs may not be selected
    by_id = {row.id: to_backup(row) for row in of_instances}
    return [view(row, by_id) for row in rows]
