# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The history of volumes and snapshots: events, faults and notifications."""

from __future__ import annotations

import typing as t

from ...core import errors
from ...core.times import utc
from ..compute.history import ERROR, LastFault, text
from ..db.sqlalchemy_import import sa
from ..db.this_run import Context
from ..db.transaction import Transaction
from ..fast import bulk
from ..schema.volume_tables import volume_events, volume_faults, volume_notifications

# A volume's id, or (volume's id, snapshot's id).
Item = t.Union[str, t.Tuple[str, str]]


class VolumeEvent:
    """A row of volume_events. Times are seconds since the epoch."""

    id: int
    volume_id: str
    snapshot_id: str | None
    event: str
    host: str | None
    request_id: str
    user_name: str
    start_time: float
    finish_time: float | None
    result: str | None  # SUCCESS or ERROR; None: not finished
    details: (
        str | None
    )  # of an open change of an attachment: its id, and from the next line on what note_changes() added


class VolumeFaultRow:
    """A row of volume_faults."""

    id: int
    volume_id: str
    snapshot_id: str | None
    code: int  # HTTP status
    error_code: str  # of core.errors
    message: str
    remedy: str
    host: str | None
    rescheduled: bool  # it was not the end
    created_at: float  # seconds since the epoch


def start_events(tx: Transaction, items: t.Iterable[Item], event: str, host: str | None) -> None:
    """Journal that ``event`` begins: written before the step is done."""
    bulk.insert(tx, volume_events, [_event(item, event, host, tx.context) for item in items])


def add_events(
    tx: Transaction, items: t.Iterable[tuple[Item, str | None, str | None]], event: str, result: str
) -> None:
    """Journal an ``event`` that has already ended, with a host and details for each: (item, host, details)."""
    end = {"finish_time": tx.now, "result": result}
    bulk.insert(
        tx, volume_events, [{**_event(i, event, h, tx.context), **end, "details": _text(d)} for i, h, d in items]
    )


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
    tx: Transaction, items: t.Iterable[Item], event: str, result: str, details: str | None = None
) -> None:
    """Journal the result (Success or Error) of the open ``event`` of each."""
    c = volume_events.c
    end = {"finish_time": tx.now, "result": result, "details": _text(details)}
    for condition in _open_events(tx, items, event):
        tx.execute(volume_events.update().where(condition, c.finish_time.is_(None)).values(**end))


def fail_events(tx: Transaction, details: t.Mapping[Item, str], event: str) -> None:
    """Journal the open ``event`` of each as Error, each with its own details."""
    c = volume_events.c
    rows = []
    for condition in _open_events(tx, details, event):
        query = sa.select(c.id, c.volume_id, c.snapshot_id).where(condition, c.finish_time.is_(None))
        for row in tx.execute(query):
            item = row.volume_id if row.snapshot_id is None else (row.volume_id, row.snapshot_id)
            rows.append({"id": row.id, "finish_time": tx.now, "result": ERROR, "details": _text(details[item])})
    bulk.update(tx, volume_events, "id", rows)


def events_of(tx: Transaction, ids: t.Iterable[str]) -> dict[str, list[dict[str, t.Any]]]:
    """The journals of these volumes and of their snapshots, by the volumes' ids, oldest first."""
    c = volume_events.c
    events: dict[str, list[dict[str, t.Any]]] = {i: [] for i in ids}
    query = sa.select(volume_events).where(bulk.among(tx, c.volume_id, sorted(events))).order_by(c.id)
    for row in tx.rows(query, VolumeEvent):
        events[row.volume_id].append(
            {
                "event": row.event,
                "snapshot_id": row.snapshot_id,
                "host": row.host,
                "start_time": utc(row.start_time),
                "finish_time": utc(row.finish_time),
                "result": row.result,
                "details": row.details,
            }
        )
    return events


def start_changes(tx: Transaction, attachments: t.Iterable[tuple[str, str, str | None]], event: str) -> None:
    """Journal that a volume is being attached to an instance, or detached from it: (attachment's id, volume's id, host)."""
    rows = [{**_event(volume_id, event, host, tx.context), "details": i} for i, volume_id, host in attachments]
    bulk.insert(tx, volume_events, rows)


def open_changes(tx: Transaction, event: str) -> dict[str, VolumeEvent]:
    """Attachment's id -> the event that this run began for it with start_changes() and has not finished."""
    c = volume_events.c
    open_events = (c.event == event, c.request_id == tx.request_id, c.finish_time.is_(None))
    rows = tx.rows(sa.select(volume_events).where(*open_events).order_by(c.id), VolumeEvent)
    return {r.details.partition("\n")[0]: r for r in rows if r.details is not None}


def note_changes(tx: Transaction, failures: t.Mapping[str, errors.BootflowError]) -> set[str]:
    """Journal in the open changes of these attachments why they failed. Returns the attachments that have one."""
    c = volume_events.c
    open_events = (c.request_id == tx.request_id, c.finish_time.is_(None), c.details.is_not(None))
    open_ones = [(r, r.details.partition("\n")[0]) for r in tx.execute(sa.select(c.id, c.details).where(*open_events))]
    noted = [(r, i) for r, i in open_ones if i in failures]
    rows = [{"id": r.id, "details": "%s\n%s" % (r.details, text(failures[i].in_full))} for r, i in noted]
    bulk.update(tx, volume_events, "id", rows)
    return {i for _r, i in noted}


def finish_changes(tx: Transaction, results: t.Iterable[tuple[VolumeEvent, str]]) -> None:
    """Journal the results of these events: SUCCESS or ERROR."""
    rows = [
        {"id": e.id, "finish_time": tx.now, "result": result, "details": str(e.details).partition("\n")[2] or None}
        for e, result in results
    ]
    bulk.update(tx, volume_events, "id", rows)


def _open_events(tx: Transaction, items: t.Iterable[Item], event: str) -> list[sa.ColumnElement[bool]]:
    """Conditions: events of volumes, events of snapshots."""
    c = volume_events.c
    listed = list(items)
    of_volumes = [item for item in listed if isinstance(item, str)]
    of_snapshots = [item[1] for item in listed if not isinstance(item, str)]
    conditions = []
    if of_volumes:
        conditions.append(sa.and_(bulk.among(tx, c.volume_id, of_volumes), c.snapshot_id.is_(None), c.event == event))
    if of_snapshots:
        conditions.append(sa.and_(bulk.among(tx, c.snapshot_id, of_snapshots), c.event == event))
    return conditions


def _text(details: str | None) -> str | None:
    return None if details is None else text(details)


class Fault(t.NamedTuple):
    """A fault of a volume or snapshot. ``rescheduled``: it continues on another backend."""

    item: Item
    error: errors.BootflowError
    host: str | None
    rescheduled: bool = False


def add_faults(tx: Transaction, faults: t.Iterable[Fault]) -> None:
    """Many fault rows."""
    rows = []
    for item, error, host, rescheduled in faults:
        volume_id, snapshot_id = (item, None) if isinstance(item, str) else item
        rows.append(
            {
                "volume_id": volume_id,
                "snapshot_id": snapshot_id,
                "code": error.status,
                "error_code": error.code,
                "message": text(error.message),
                "remedy": text(error.remedy),
                "host": host,
                "rescheduled": rescheduled,
                "created_at": tx.now,
            }
        )
    bulk.insert(tx, volume_faults, rows)


def notify_each(tx: Transaction, payloads: t.Iterable[tuple[str, t.Mapping[str, t.Any]]], event_type: str) -> None:
    """One notification for each (volume's id, payload)."""
    rows = [{"volume_id": i, "event_type": event_type, "payload": dict(p), "created_at": tx.now} for i, p in payloads]
    bulk.insert(tx, volume_notifications, rows)


def notify(tx: Transaction, ids: t.Iterable[str], event_type: str, payload: t.Mapping[str, t.Any]) -> None:
    """The same payload for each volume (volume.create.start, scheduler.create_volume, snapshot.delete.end, ...)."""
    notify_each(tx, [(i, payload) for i in ids], event_type)


def last_faults(tx: Transaction, ids: t.Iterable[str], snapshots: bool = False) -> dict[str, LastFault]:
    """id -> its newest fault as plain data; under ``tried`` the earlier ones that led to rescheduling, oldest first."""
    c = volume_faults.c
    key = c.snapshot_id if snapshots else c.volume_id
    query = sa.select(volume_faults).where(bulk.among(tx, key, sorted(set(ids)))).order_by(c.id)
    if not snapshots:
        query = query.where(c.snapshot_id.is_(None))
    faults: dict[str, LastFault] = {}
    for row in tx.rows(query, VolumeFaultRow):
        item = str(row.snapshot_id) if snapshots else row.volume_id
        before = faults.get(item)
        faults[item] = {
            "code": row.error_code,
            "status": row.code,
            "message": row.message,
            "remedy": row.remedy,
            "host": row.host,
            "created_at": row.created_at,
            "rescheduled": row.rescheduled,
            "tried": [*before["tried"], _attempt(before)] if before is not None and before["rescheduled"] else [],
        }
    return faults


def attempts(fault: LastFault | None) -> list[dict[str, t.Any]]:
    """The failed attempts in a fault of last_faults(), oldest first: {host, code, message}."""
    if fault is None:
        return []
    return [*fault["tried"], *([_attempt(fault)] if fault["rescheduled"] else [])]


def _attempt(fault: LastFault) -> dict[str, t.Any]:
    return {"host": fault["host"], "code": fault["code"], "message": fault["message"]}
