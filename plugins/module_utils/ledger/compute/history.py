# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The history of instances: actions, their events, faults and notifications.

source: Nova's _notify_about_instance_usage
"""

from __future__ import annotations

import typing as t

from ...core import errors
from ...core.times import utc
from ..db.sqlalchemy_import import sa
from ..db.transaction import Transaction
from ..fast import bulk
from ..schema.tables import instance_action_events, instance_actions, instance_faults, notifications

SUCCESS = "Success"
ERROR = "Error"
#: Actions in which no host has a part: what the action before them left is there still.
OF_THE_LEDGER = ("lock", "unlock", "resetState")


class InstanceFault:
    """A row of instance_faults."""

    id: int
    instance_uuid: str
    code: int  # HTTP status
    error_code: str  # of core.errors
    message: str
    remedy: str
    details: str  # "rescheduled": the build went to another host
    host: str | None
    created_at: float  # seconds since the epoch


class InstanceEvent:
    """A row of instance_action_events: a step in the journal of an instance. Times are seconds since the epoch."""

    id: int
    instance_uuid: str
    event: str
    host: str | None
    start_time: float
    finish_time: float | None
    result: str | None  # SUCCESS or ERROR; None: not finished
    details: str | None


class LastFault(t.TypedDict):
    """The newest fault of an instance, volume or snapshot, as plain data for people and playbooks."""

    code: str  # of core.errors
    status: int  # HTTP status
    message: str
    remedy: str
    host: str | None
    created_at: float  # seconds since the epoch
    rescheduled: bool  # another host or backend was tried after it
    tried: list[t.Any]  # those before it after which another was tried, oldest first


def start_actions(
    tx: Transaction, uuids: t.Sequence[str], action: str, request_id: str, project: str, user: str
) -> None:
    """One open ``action`` row for each instance, before the work is dispatched."""
    bulk.insert(
        tx,
        instance_actions,
        [
            {
                "instance_uuid": u,
                "action": action,
                "request_id": request_id,
                "project": project,
                "user_name": user,
                "start_time": tx.now,
            }
            for u in uuids
        ],
    )


def finish_actions(tx: Transaction, uuids: t.Sequence[str], action: str, message: str | None = None) -> None:
    """Close the open ``action`` rows of these instances; ``message`` is Error if the action failed.

    They are the rows of this request, also if another one has closed them already. If this request began none, it ends the row that another run
    began, and closes it.
    """
    c = instance_actions.c
    if uuids:
        action_of_instances = (bulk.among(tx, c.instance_uuid, uuids), c.action == action)
        which = sa.or_(c.finish_time.is_(None), c.request_id == tx.request_id)
        rows = tx.execute(
            sa.select(c.id, c.instance_uuid, c.request_id, c.finish_time).where(*action_of_instances, which)
        ).all()
        own = {r.instance_uuid for r in rows if r.request_id == tx.request_id}
        rows_to_close = [r for r in rows if r.request_id == tx.request_id or r.instance_uuid not in own]
        ids = sorted(r.id for r in rows_to_close if r.finish_time is None)
        end = {"finish_time": tx.now, "message": message}
        tx.execute(instance_actions.update().where(bulk.among(tx, c.id, ids)).values(**end))


def start_events(tx: Transaction, uuids: t.Sequence[str], event: str, host: str | None) -> None:
    """Journal that ``event`` begins: written before the step is done."""
    start_events_on(tx, dict.fromkeys(uuids, host), event)


def finish_events(tx: Transaction, uuids: t.Sequence[str], event: str, result: str, details: str | None = None) -> None:
    """Journal the result of ``event`` (Success or Error) for these instances.

    :arg details: None: what note() said stays
    """
    c = instance_action_events.c
    if uuids:
        open_events = (bulk.among(tx, c.instance_uuid, uuids), c.event == event, c.finish_time.is_(None))
        end: dict[str, t.Any] = {"finish_time": tx.now, "result": result}
        if details is not None:
            end["details"] = text(details)
        tx.execute(instance_action_events.update().where(*open_events).values(**end))


def finish_events_at(tx: Transaction, ends: t.Mapping[str, float], event: str, result: str) -> None:
    """The same for instances that ended it at different times: uuid -> seconds since the epoch."""
    c = instance_action_events.c
    open_events = (bulk.among(tx, c.instance_uuid, sorted(ends)), c.event == event, c.finish_time.is_(None))
    rows = tx.execute(sa.select(c.id, c.instance_uuid).where(*open_events)) if ends else ()
    written = [{"id": r.id, "finish_time": ends[r.instance_uuid], "result": result} for r in rows]
    bulk.update(tx, instance_action_events, "id", sorted(written, key=lambda r: r["id"]))


def start_events_on(tx: Transaction, hosts: t.Mapping[str, str | None], event: str) -> None:
    """Journal that ``event`` begins for each instance on its host, many hosts in one statement."""
    bulk.insert(
        tx,
        instance_action_events,
        [{"instance_uuid": uuid, "event": event, "host": host, "start_time": tx.now} for uuid, host in hosts.items()],
    )


def last_details(tx: Transaction, uuids: t.Sequence[str], event: str) -> dict[str, str]:
    """uuid -> the details of its newest ``event``; one that has none, or no such event, is left out."""
    c = instance_action_events.c
    event_of_instances = (bulk.among(tx, c.instance_uuid, uuids), c.event == event)
    newest = sa.select(sa.func.max(c.id)).where(*event_of_instances).group_by(c.instance_uuid)
    rows = tx.execute(sa.select(c.instance_uuid, c.details).where(c.id.in_(newest))).all() if uuids else []
    return {r.instance_uuid: r.details for r in rows if r.details}


def note(tx: Transaction, details: t.Mapping[str, str], event: str) -> None:
    """Journal details of the open ``event`` of each of these instances: what fail_events() says comes before them."""
    c = instance_action_events.c
    for text_of_event in sorted(set(details.values())):
        uuids = sorted(u for u, detail in details.items() if detail == text_of_event)
        open_events = (bulk.among(tx, c.instance_uuid, uuids), c.event == event, c.finish_time.is_(None))
        tx.execute(instance_action_events.update().where(*open_events).values(details=text(text_of_event)))


def fail_events(tx: Transaction, details: t.Mapping[str, str], event: str) -> None:
    """Journal that ``event`` failed for these instances, each with its own details, and with the details of note()."""
    if not details:
        return
    c = instance_action_events.c
    open_events = (bulk.among(tx, c.instance_uuid, sorted(details)), c.event == event, c.finish_time.is_(None))
    rows = tx.execute(sa.select(c.id, c.instance_uuid, c.details).where(*open_events)).all()
    bulk.update(
        tx,
        instance_action_events,
        "id",
        [
            {
                "id": r.id,
                "finish_time": tx.now,
                "result": ERROR,
                "details": "\n".join(filter(None, (text(details[r.instance_uuid]), r.details))),
            }
            for r in sorted(rows, key=lambda r: r.id)
        ],
    )


def add_events(
    tx: Transaction, hosts: t.Iterable[tuple[str, str | None]], event: str, result: str, details: str | None = None
) -> None:
    """Journal an ``event`` that has already ended, for each instance on its host."""
    bulk.insert(
        tx,
        instance_action_events,
        [
            {
                "instance_uuid": uuid,
                "event": event,
                "host": host,
                "start_time": tx.now,
                "finish_time": tx.now,
                "result": result,
                "details": None if details is None else text(details),
            }
            for uuid, host in hosts
        ],
    )


def add_events_at(
    tx: Transaction,
    spans: t.Mapping[str, tuple[float, float]],
    hosts: t.Mapping[str, str],
    event: str,
    result: str,
) -> None:
    """The same with the begin and end of each instance's ``event``, in seconds since the epoch."""
    bulk.insert(
        tx,
        instance_action_events,
        [
            {
                "instance_uuid": uuid,
                "event": event,
                "host": hosts[uuid],
                "start_time": begin,
                "finish_time": end,
                "result": result,
            }
            for uuid, (begin, end) in spans.items()
        ],
    )


def add_fault(tx: Transaction, uuid: str, error: errors.BootflowError, host: str | None, details: str = "") -> None:
    """A fault row. source: Nova's wrap_instance_fault"""
    tx.execute(
        instance_faults.insert().values(
            instance_uuid=uuid,
            code=error.status,
            error_code=error.code,
            message=text(error.message),
            remedy=text(error.remedy),
            details=text(details),
            host=host,
            created_at=tx.now,
        )
    )


def add_faults(
    tx: Transaction, faults: t.Mapping[str, errors.BootflowError], hosts: t.Mapping[str, str | None]
) -> None:
    """A fault row of each instance on its host, in one statement."""
    bulk.insert(
        tx,
        instance_faults,
        [
            {
                "instance_uuid": uuid,
                "code": error.status,
                "error_code": error.code,
                "message": text(error.message),
                "remedy": text(error.remedy),
                "details": "",
                "host": hosts.get(uuid),
                "created_at": tx.now,
            }
            for uuid, error in faults.items()
        ],
    )


def notify(tx: Transaction, uuids: t.Sequence[str], event_type: str, payload: t.Mapping[str, t.Any]) -> None:
    """One notification for each instance (create.start, create.error, create.end, instance.update, delete.start, ...)."""
    notify_each(tx, dict.fromkeys(uuids, payload), event_type)


def notify_each(tx: Transaction, payloads: t.Mapping[str, t.Mapping[str, t.Any]], event_type: str) -> None:
    """One notification for each instance, with its own payload."""
    notify_all(tx, payloads.items(), event_type)


def notify_all(tx: Transaction, payloads: t.Iterable[tuple[str, t.Mapping[str, t.Any]]], event_type: str) -> None:
    """One notification for each of these: instance's uuid and payload. An instance may have several."""
    bulk.insert(
        tx,
        notifications,
        [{"instance_uuid": u, "event_type": event_type, "payload": dict(p), "created_at": tx.now} for u, p in payloads],
    )


def last_faults(tx: Transaction, uuids: t.Sequence[str]) -> dict[str, LastFault]:
    """uuid -> its newest fault as plain data; under ``tried`` the earlier failed hosts of this boot."""
    faults: dict[str, LastFault] = {}
    c = instance_faults.c
    query = sa.select(instance_faults).where(bulk.among(tx, c.instance_uuid, uuids)).order_by(c.id)
    for row in tx.rows(query, InstanceFault) if uuids else ():
        before = faults.get(row.instance_uuid)
        faults[row.instance_uuid] = {
            "code": row.error_code,
            "status": row.code,
            "message": row.message,
            "remedy": row.remedy,
            "host": row.host,
            "created_at": row.created_at,
            "rescheduled": row.details == "rescheduled",
            "tried": [*before["tried"], before] if before is not None and before["rescheduled"] else [],
        }
    return faults


def shown_fault(fault: LastFault | None) -> dict[str, t.Any] | None:
    """A fault for people and playbooks, with times in ISO 8601."""
    if fault is None:
        return None
    tried = [{**f, "created_at": utc(f["created_at"])} if "created_at" in f else f for f in fault["tried"]]
    return {**fault, "created_at": utc(fault["created_at"]), "tried": tried}


def events_of(tx: Transaction, uuid: str) -> list[dict[str, t.Any]]:
    """The journal of one instance, oldest first."""
    c = instance_action_events.c
    rows = tx.rows(sa.select(instance_action_events).where(c.instance_uuid == uuid).order_by(c.id), InstanceEvent)
    return [
        {
            "event": r.event,
            "host": r.host,
            "start_time": utc(r.start_time),
            "finish_time": utc(r.finish_time),
            "result": r.result,
            "details": r.details,
        }
        for r in rows
    ]


def text(words: str) -> str:
    """A host's text in a form that every database accepts: without NUL and half characters."""
    return words.replace("\0", "").encode("utf-8", "replace").decode("utf-8")


def whose_last_failed(tx: Transaction, uuids: t.Sequence[str], actions: t.Collection[str]) -> set[str]:
    """The instances whose newest action on a host is one of these, and did not succeed."""
    if not uuids:
        return set()
    c = instance_actions.c
    host_actions = (bulk.among(tx, c.instance_uuid, uuids), c.action.not_in(OF_THE_LEDGER))
    newest = sa.select(sa.func.max(c.id)).where(*host_actions).group_by(c.instance_uuid)
    failed = sa.or_(c.finish_time.is_(None), c.message == ERROR)
    query = sa.select(c.instance_uuid).where(c.id.in_(newest), c.action.in_(sorted(actions)), failed)
    return set(tx.execute(query).scalars())


def with_event(tx: Transaction, uuids: t.Sequence[str], event: str) -> set[str]:
    """The instances whose journal has ``event``."""
    c = instance_action_events.c
    conditions = (bulk.among(tx, c.instance_uuid, uuids), c.event == event)
    return set(tx.execute(sa.select(c.instance_uuid).where(*conditions).distinct()).scalars())


def _same(*names: str) -> dict[str, str]:
    return dict(zip(names, names))


#: what is shown of each kind: its table, and name -> column
_KINDS: dict[str, tuple[sa.Table, dict[str, str]]] = {
    "actions": (
        instance_actions,
        _same("action", "request_id", "project", "user_name", "start_time", "finish_time", "message"),
    ),
    "events": (instance_action_events, _same("event", "host", "start_time", "finish_time", "result", "details")),
    "faults": (
        instance_faults,
        dict(_same("message", "remedy", "details", "host", "created_at"), code="error_code", status="code"),
    ),
    "notifications": (notifications, _same("event_type", "payload", "created_at")),
}


def all_of(tx: Transaction, uuids: t.Sequence[str]) -> dict[str, dict[str, list[dict[str, t.Any]]]]:
    """uuid -> {actions, events, faults, notifications} of the instance, live or deleted, oldest first. Times are ISO 8601, with
    milliseconds: many things happen in a second.

    source: Nova's os-instance-actions
    """
    histories: dict[str, dict[str, list[dict[str, t.Any]]]] = {u: {kind: [] for kind in _KINDS} for u in uuids}
    for kind, (table, columns) in _KINDS.items():
        query = sa.select(table).where(bulk.among(tx, table.c.instance_uuid, uuids)).order_by(table.c.id)
        for row in tx.execute(query).mappings():
            shown = {
                n: utc(row[c], precise=True) if c.endswith(("_time", "_at")) else row[c] for n, c in columns.items()
            }
            histories[row["instance_uuid"]][kind].append(shown)
    return histories
