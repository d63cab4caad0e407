# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Deleting volumes and snapshots: from the mark for their hosts to the row kept for the history."""

from __future__ import annotations

import typing as t

from ...core import errors
from ...core.volumes import attachment, states
from ..compute import history
from ..db.sqlalchemy_import import sa
from ..db.transaction import Transaction
from ..fast import bulk
from ..schema.volume_tables import volume_snapshots
from ..schema.volume_tables import volumes as volumes_table
from . import attachments, snapshots, volume_history, volumes
from .snapshots import SnapshotRow
from .volumes import PlacedVolume, VolumeRow


def readers(tx: Transaction, ids: t.Collection[str], of_volumes: t.Iterable[SnapshotRow]) -> dict[str, str]:
    """Id of a volume -> name of another that is being created from it, or from a snapshot of it. :arg of_volumes: their snapshots"""
    volume_of_snapshot = {s.id: s.volume_id for s in of_volumes}
    reader_rows = volumes.being_created_from(tx, ids, volume_of_snapshot)
    return {
        source or volume_of_snapshot[str(snapshot)]: name
        for reader, name, source, snapshot in reader_rows
        if reader not in set(ids)
    }


def needed(tx: Transaction, ids: t.Collection[str]) -> dict[str, errors.VolumeIsBusy]:
    """Return id -> why this unused volume cannot be deleted: it has snapshots, or another one, or an image, is being made from it."""
    if not ids:
        return {}
    rows = volumes.select(tx, ids=ids, statuses=(states.UPLOADING,))
    of_volumes = snapshots.select(tx, volume_ids=ids)
    busy_errors = {
        i: errors.VolumeIsBusy(
            message="deleting volume %s that volume %s is being made from" % (i, name),
            remedy="Delete it once that volume has been created.",
        )
        for i, name in readers(tx, ids, of_volumes).items()
    }
    for row in rows:
        message = "deleting volume %s that an image is being made from" % row.id
        busy_errors[row.id] = errors.VolumeIsBusy(message=message, remedy="Delete it once the image has been made.")
    names: dict[str, list[str]] = {}
    for snapshot in of_volumes:
        names.setdefault(snapshot.volume_id, []).append(snapshot.name or snapshot.id)
    for volume_id, snapshot_names in names.items():
        message = "deleting volume %s that has snapshot (%s)" % (volume_id, ", ".join(sorted(snapshot_names)))
        busy_errors[volume_id] = errors.VolumeIsBusy(message=message)
    return busy_errors


def delete(tx: Transaction, ids: t.Iterable[str]) -> None:
    """Delete these volumes, which nothing uses any more."""
    begin(tx, [r for r in volumes.select(tx, ids=ids, lock=True) if r.status != states.DELETING])


def begin(tx: Transaction, rows: t.Sequence[VolumeRow]) -> list[PlacedVolume]:
    """Mark these volumes as deleting and return them, for their hosts to delete. Volumes never placed are deleted at once."""
    placed = [r for r in rows if volumes.is_placed(r)]
    ids = [r.id for r in placed]
    volumes.take_ownership(tx, ids, status=states.DELETING, new_size=None, instance_uuid=None)
    forget(tx, [r for r in rows if not r.pool_host], None)
    return placed


def forget(tx: Transaction, rows: t.Sequence[VolumeRow], host: str | None) -> None:
    """Mark volumes as deleted that no host has any more. Their names become free; their history stays until it is purged."""
    if not rows:
        return
    ids = [r.id for r in rows]
    attachments.apply(tx, attachments.select(tx, volume_ids=ids), attachment.VOLUME_DELETED)
    _bury(tx, volumes_table, ids, attach_status=states.DETACHED, new_size=None, made=False)
    volume_history.finish_events(tx, ids, "create", history.ERROR, "the volume was deleted")
    volume_history.finish_events(tx, ids, "delete", history.SUCCESS)
    volume_history.notify(tx, ids, "volume.delete.end", {"host": host})


def forget_snapshots(tx: Transaction, rows: t.Sequence[SnapshotRow], host: str | None) -> None:
    """Mark snapshots as deleted that no host has any more."""
    if not rows:
        return
    _bury(tx, volume_snapshots, [r.id for r in rows])
    volume_history.finish_events(tx, [(r.volume_id, r.id) for r in rows], "delete", history.SUCCESS)
    details = [(r.volume_id, {"host": host, "snapshot_id": r.id}) for r in rows]
    volume_history.notify_each(tx, details, "snapshot.delete.end")


def _bury(tx: Transaction, table: sa.Table, ids: t.Sequence[str], **values: t.Any) -> None:
    end = {"deleted": sa.cast(table.c.id, sa.String), "deleted_at": tx.now, "updated_at": tx.now, "run_id": tx.run.id}
    end.update(status=states.DELETED, pending_gb=0, **values)
    tx.execute(table.update().where(bulk.among(tx, table.c.id, ids)).values(end))
