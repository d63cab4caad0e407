# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Rows of attachments: live ones, those whose volume is locked, and what is written to them."""

from __future__ import annotations

import typing as t

from ...core import errors
from ...core.volumes import states
from ..compute import runs
from ..context import Context
from ..db import bulk
from ..db.sqlalchemy_import import sa
from ..schema.tables import volume_attachments
from . import volumes

ON_THE_WAY = (states.RESERVED, states.ATTACHING, states.ERROR_ATTACHING)
LIVE = ""  # value of the column `deleted` while an attachment lives

_a = volume_attachments.c


def live(conn: t.Any, *conditions: t.Any) -> list[t.Any]:
    """The live attachments of which all conditions hold, by volume and id."""
    query = sa.select(volume_attachments).where(_a.deleted == LIVE, *conditions).order_by(_a.volume_id, _a.id)
    return list(conn.execute(query))


def locked(conn: t.Any, *conditions: t.Any) -> list[t.Any]:
    """The same with their volumes' rows locked, by id: whoever writes an attachment holds its volume."""
    ids = sorted({r.volume_id for r in live(conn, *conditions)})
    if not ids:
        return []
    volumes.select(conn, ids=ids, lock=True)
    return live(conn, *conditions)


def volumes_of(conn: t.Any, rows: t.Iterable[t.Any]) -> dict[str, t.Any]:
    """volume id -> its row, of the volumes of these attachments."""
    ids = sorted({r.volume_id for r in rows})
    return {v.id: v for v in volumes.select(conn, ids=ids)} if ids else {}


def check_locked(conn: t.Any, volume: t.Any, rows: t.Sequence[t.Any], context: Context) -> None:
    """:raises VolumeLocked: a live run other than this works on one of these attachments."""
    owners = {r.run_id for r in rows if r.run_id and r.run_id != context.run.id}
    alive = owners - runs.dead_among(conn, owners, context.run, context.now)
    for row in rows:
        if row.run_id in alive:
            told = runs.locked_error(conn, volume.name or volume.id, row.run_id)
            raise errors.VolumeLocked(**told.details)


def write(conn: t.Any, ids: t.Iterable[str], **values: t.Any) -> None:
    """Set these columns of these attachments."""
    listed = sorted(set(ids))
    if listed:
        conn.execute(volume_attachments.update().where(bulk.among(conn, _a.id, listed)).values(**values))
