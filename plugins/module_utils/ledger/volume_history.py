# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What happened to a volume or snapshot: events, faults and notifications. source: rows C08, C17; semantics 11"""

from __future__ import annotations

import typing as t

from ..core import errors
from . import bulk
from .context import Context
from .history import ERROR, SUCCESS, text
from .libraries import sa
from .tables import volume_events, volume_faults, volume_notifications

__all__ = ["ERROR", "SUCCESS", "add_event", "add_fault", "finish_events", "last_faults", "notify", "start_events"]

# A volume's id, or (volume's id, snapshot's id).
Item = t.Union[str, t.Tuple[str, str]]


def start_events(conn: t.Any, items: t.Iterable[Item], event: str, host: str | None, context: Context) -> None:
    """Journal that ``event`` begins: written before the step is done."""
    rows = [_event(item, event, host, context) for item in items]
    if rows:
        conn.execute(volume_events.insert(), rows)


def add_event(
    conn: t.Any,
    items: t.Iterable[Item],
    event: str,
    host: str | None,
    result: str,
    context: Context,
    details: str | None = None,
) -> None:
    """Journal an ``event`` that is over already."""
    end = {"finish_time": context.now, "result": result, "details": None if details is None else text(details)}
    rows = [{**_event(item, event, host, context), **end} for item in items]
    if rows:
        conn.execute(volume_events.insert(), rows)


def _event(item: Item, event: str, host: str | None, context: Context) -> dict[str, t.Any]:
    volume_id, snapshot_id = (item, None) if isinstance(item, str) else item
    return {
        "volume_id": volume_id,
        "snapshot_id": snapshot_id,
        "event": event,
        "host": host,
        "request_id": context.request_id,
        "user_name": context.actor,
        "start_time": context.now,
    }


def finish_events(
    conn: t.Any, items: t.Iterable[Item], event: str, result: str, now: float, details: str | None = None
) -> None:
    """Journal how the open ``event`` of each ended (Success or Error)."""
    c = volume_events.c
    listed = list(items)
    of_volumes = [item for item in listed if isinstance(item, str)]
    of_snapshots = [item[1] for item in listed if not isinstance(item, str)]
    end = {"finish_time": now, "result": result, "details": None if details is None else text(details)}
    for values, condition in (
        (of_volumes, sa.and_(bulk.among(conn, c.volume_id, of_volumes), c.snapshot_id.is_(None))),
        (of_snapshots, bulk.among(conn, c.snapshot_id, of_snapshots)),
    ):
        if values:
            open_one = sa.and_(condition, c.event == event, c.finish_time.is_(None))
            conn.execute(volume_events.update().where(open_one).values(**end))


def add_fault(
    conn: t.Any,
    volume_id: str,
    error: errors.BootflowError,
    host: str | None,
    now: float,
    snapshot_id: str | None = None,
    rescheduled: bool = False,
) -> None:
    """A fault row. :arg rescheduled: it was not the end, the volume goes to another backend."""
    conn.execute(
        volume_faults.insert().values(
            volume_id=volume_id,
            snapshot_id=snapshot_id,
            code=error.status,
            error_code=error.code,
            message=text(error.message),
            remedy=text(error.remedy),
            host=host,
            rescheduled=rescheduled,
            created_at=now,
        )
    )


def notify(conn: t.Any, ids: t.Iterable[str], event_type: str, payload: t.Mapping[str, t.Any], now: float) -> None:
    """One notification for each volume (volume.create.start, scheduler.create_volume, snapshot.delete.end, ...)."""
    rows = [{"volume_id": i, "event_type": event_type, "payload": dict(payload), "created_at": now} for i in ids]
    if rows:
        conn.execute(volume_notifications.insert(), rows)


def last_faults(conn: t.Any, ids: t.Iterable[str], snapshots: bool = False) -> dict[str, dict[str, t.Any]]:
    """id -> its newest fault as plain data; under ``tried`` those before it after which it was rescheduled, oldest first."""
    c = volume_faults.c
    key = c.snapshot_id if snapshots else c.volume_id
    query = sa.select(volume_faults).where(bulk.among(conn, key, sorted(set(ids)))).order_by(c.id)
    if not snapshots:
        query = query.where(c.snapshot_id.is_(None))
    found: dict[str, dict[str, t.Any]] = {}
    for row in conn.execute(query):
        item = row.snapshot_id if snapshots else row.volume_id
        before = found.get(item)
        found[item] = {
            "code": row.error_code,
            "status": row.code,
            "message": row.message,
            "remedy": row.remedy,
            "host": row.host,
            "created_at": row.created_at,
            "rescheduled": row.rescheduled,
            "tried": [*before["tried"], _attempt(before)] if before is not None and before["rescheduled"] else [],
        }
    return found


def attempts(fault: t.Mapping[str, t.Any] | None) -> list[dict[str, t.Any]]:
    """The failed attempts in what last_faults() says of one, oldest first: {host, code, message}."""
    if fault is None:
        return []
    return [*fault["tried"], *([_attempt(fault)] if fault["rescheduled"] else [])]


def _attempt(fault: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    return {name: fault[name] for name in ("host", "code", "message")}
