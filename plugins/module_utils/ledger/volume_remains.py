# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What storage hosts still have to be rid of: what a failed or late worker may have left of a volume that is not there.

Whoever works on the host next removes it. Its GB stay taken until then, as far as no report has them. All of it is written
while the backend's row is locked, so that no volume is placed where its own remains are just being removed.
"""

from __future__ import annotations

import typing as t

from . import bulk, runs
from .context import Context
from .libraries import sa
from .tables import volume_remains as table

VOLUME = "volume"
SNAPSHOT = "snapshot"

_c = table.c


def add(
    conn: t.Any,
    place: str,
    item_id: str,
    reason: str,
    now: float,
    pending_gb: int = 0,
    kind: str = VOLUME,
    volume_id: str | None = None,
) -> None:
    """Remember that ``place`` is to be rid of the volume or snapshot.

    :arg pending_gb: GB that it may take, and that no report has. :arg volume_id: a snapshot's.
    """
    values = {"reason": reason[:2000], "pending_gb": pending_gb, "run_id": None}
    here = sa.and_(_c.place == place, _c.item_id == item_id)
    if not conn.execute(table.update().where(here).values(**values)).rowcount:
        named = {"place": place, "kind": kind, "item_id": item_id, "volume_id": volume_id or item_id}
        conn.execute(table.insert().values(created_at=now, **named, **values))


def waiting(conn: t.Any, context: Context, places: t.Iterable[str] | None = None) -> list[t.Any]:
    """What no other live run is removing, oldest first."""
    query = sa.select(table).order_by(_c.id)
    if places is not None:
        query = query.where(bulk.among(conn, _c.place, sorted(set(places))))
    rows = list(conn.execute(query))
    alive = _alive(conn, rows, context)
    return [r for r in rows if r.run_id not in alive]


def take(conn: t.Any, places: t.Iterable[str], context: Context) -> list[t.Any]:
    """What this run now removes at these places."""
    rows = waiting(conn, context, places)
    if rows:
        conn.execute(table.update().where(bulk.among(conn, _c.id, [r.id for r in rows])).values(run_id=context.run.id))
    return rows


def done(conn: t.Any, place: str, item_ids: t.Iterable[str]) -> None:
    """``place`` is rid of these, or they are made there anew: forget the rows."""
    conn.execute(table.delete().where(_c.place == place, bulk.among(conn, _c.item_id, sorted(set(item_ids)))))


def being_removed(conn: t.Any, item_ids: t.Iterable[str], context: Context) -> set[tuple[str, str]]:
    """(item id, place) of what another live run is just removing: it would take what is made there now, too."""
    query = sa.select(table).where(bulk.among(conn, _c.item_id, sorted(set(item_ids))), _c.run_id.is_not(None))
    rows = list(conn.execute(query))
    alive = _alive(conn, rows, context)
    return {(r.item_id, r.place) for r in rows if r.run_id in alive}


def _alive(conn: t.Any, rows: t.Sequence[t.Any], context: Context) -> set[str]:
    named = {r.run_id for r in rows if r.run_id and r.run_id != context.run.id}
    return named - runs.dead_among(conn, named, context.run, context.now)
