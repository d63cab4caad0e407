# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The end of volumes and snapshots: nothing of them is anywhere, so their rows are kept for their history alone."""

from __future__ import annotations

import typing as t

from ...core.volumes import states
from ..context import Context
from ..db import bulk
from ..db.sqlalchemy_import import sa
from ..schema.tables import volume_attachments, volume_snapshots
from ..schema.tables import volumes as volumes_table
from . import volume_history

LIVE = ""


def forget(conn: t.Any, rows: t.Sequence[t.Any], host: str | None, context: Context) -> None:
    """These volumes are gone. Their names are free, their history stays until it is purged."""
    if not rows:
        return
    now = context.now
    ids = [r.id for r in rows]
    c, a = volumes_table.c, volume_attachments.c
    conn.execute(
        volume_attachments.update()
        .where(bulk.among(conn, a.volume_id, ids), a.deleted == LIVE)
        .values(deleted=sa.cast(a.id, sa.String), attach_status=states.DETACHED, run_id=None)
    )
    conn.execute(
        volumes_table.update()
        .where(bulk.among(conn, c.id, ids))
        .values(
            deleted=sa.cast(c.id, sa.String),
            deleted_at=now,
            updated_at=now,
            status=states.DELETED,
            attach_status=states.DETACHED,
            run_id=context.run.id,
            pending_gb=0,
            new_size=None,
            made=False,
        )
    )
    volume_history.finish_events(conn, ids, "create", volume_history.ERROR, now, "it was deleted")
    volume_history.finish_events(conn, ids, "delete", volume_history.SUCCESS, now)
    volume_history.notify(conn, ids, "volume.delete.end", {"host": host}, now)


def forget_snapshots(conn: t.Any, rows: t.Sequence[t.Any], host: str | None, context: Context) -> None:
    """These snapshots are gone."""
    if not rows:
        return
    now = context.now
    c = volume_snapshots.c
    conn.execute(
        volume_snapshots.update()
        .where(bulk.among(conn, c.id, [r.id for r in rows]))
        .values(
            deleted=sa.cast(c.id, sa.String),
            deleted_at=now,
            updated_at=now,
            status=states.DELETED,
            run_id=context.run.id,
            pending_gb=0,
        )
    )
    volume_history.finish_events(conn, [(r.volume_id, r.id) for r in rows], "delete", volume_history.SUCCESS, now)
    told = [(r.volume_id, {"host": host, "snapshot_id": r.id}) for r in rows]
    volume_history.notify_each(conn, told, "snapshot.delete.end", now)
