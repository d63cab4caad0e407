# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Volumes that instances get and lose while they live: begun, done by the hosts, finished; given back when a run ended.

What is begun is journaled with its attachment (volume_events), so that the end can be told whatever happened in between.
"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field

from ...core.instances import states
from ...core.volumes import states as volume_states
from ...core.volumes.pool_hosts import extract_host
from ...ledger.compute import history, instances, runs
from ...ledger.context import Context
from ...ledger.db import bulk
from ...ledger.db.sqlalchemy_import import sa
from ...ledger.schema.tables import volume_attachments, volume_events
from ...ledger.schema.tables import volumes as volumes_table
from ...ledger.schema.volume_tables import BEGUN, DONE
from ...ledger.storage import attachments, volume_history, volumes
from ...ledger.storage.attachment_rows import ON_THE_WAY

_a = volume_attachments.c


@dataclass
class Begun:
    """``rows``: attachments that are on their way; ``unchanged``: volumes (names) that are as asked."""

    rows: list[t.Any] = field(default_factory=list)
    unchanged: list[str] = field(default_factory=list)
    storage_hosts: list[str] = field(default_factory=list)
    hosts: list[str] = field(default_factory=list)  # compute hosts


def take(conn: t.Any, rows: t.Sequence[t.Any], context: Context) -> None:
    """These are this run's now. An export is made anew: its credentials died with the run that set them."""
    ids = [r.id for r in rows]
    if not ids:
        return
    mine = bulk.among(conn, _a.id, ids)
    conn.execute(volume_attachments.update().where(mine).values(run_id=context.run.id))
    half = sa.and_(mine, _a.attach_status.in_(ON_THE_WAY))
    conn.execute(volume_attachments.update().where(half).values(attach_status=volume_states.ATTACHING))
    conn.execute(volume_attachments.update().where(half, _a.export == DONE).values(export=BEGUN))


def begin(conn: t.Any, begun: Begun, ids: t.Sequence[str], event: str, context: Context) -> Begun:
    """Journal what is begun, and which hosts have a part in it."""
    begun.rows = [r for r in any_of(conn, ids) if r.id in set(ids)]
    volume_ids = sorted({r.volume_id for r in begun.rows})
    pool_hosts = {v.id: v.pool_host for v in volumes.select(conn, ids=volume_ids)} if volume_ids else {}
    begun.hosts = sorted({r.attached_host for r in begun.rows if r.attached_host})
    begun.storage_hosts = sorted({extract_host(p, "host") for p in pool_hosts.values() if p})
    events = [
        {
            "volume_id": row.volume_id,
            "event": event,
            "host": row.attached_host,
            "request_id": context.request_id,
            "user_name": context.actor,
            "start_time": context.now,
            "details": row.id,
        }
        for row in begun.rows
    ]
    bulk.insert(conn, volume_events, events)
    guests = {r.instance_uuid for r in begun.rows}
    rows = instances.select_live(conn, uuids=sorted(guests)) if guests else []
    for project in sorted({r.project for r in rows}):
        mine = [r.uuid for r in rows if r.project == project]
        history.start_actions(conn, mine, event, context.request_id, project, context.actor, context.now)
    return begun


def finish(
    conn: t.Any, event: str, is_done: t.Callable[[t.Any], bool], context: Context
) -> tuple[list[dict[str, t.Any]], list[dict[str, t.Any]], list[t.Any]]:
    """What became of what this run began: (done, left with their errors, the attachments)."""
    runs.renew(conn, context.run, context.now, context.lease_seconds)
    e = volume_events.c
    mine = (e.event == event, e.request_id == context.request_id, e.finish_time.is_(None))
    events = {r.details: r for r in conn.execute(sa.select(volume_events).where(*mine).order_by(e.id))}
    rows = any_of(conn, sorted(events))
    attachments.locked_by_ids(conn, [r.id for r in rows])
    rows = any_of(conn, sorted(events))
    c = volumes_table.c
    ids = sorted({r.volume_id for r in rows})
    names = dict(conn.execute(sa.select(c.id, c.name).where(bulk.among(conn, c.id, ids))).all()) if ids else {}
    uuids = sorted({r.instance_uuid for r in rows})
    guests = {r.uuid: r.display_name for r in instances.select_live(conn, uuids=uuids)} if uuids else {}
    faults = volume_history.last_faults(conn, ids) if ids else {}
    done, left, ended = [], [], []
    failed = set()  # instances: one of their volumes is enough
    for row in rows:
        begun = events[row.id]
        told: dict[str, t.Any] = {
            "volume": names.get(row.volume_id) or row.volume_id,
            "volume_id": row.volume_id,
            "instance": guests.get(row.instance_uuid, row.instance_uuid),
            "instance_uuid": row.instance_uuid,
            "device": row.mountpoint,
            "host": row.attached_host,
        }
        fault = faults.get(row.volume_id)
        good = is_done(row)
        if good:
            done.append(told)
        else:
            recent = fault is not None and fault["created_at"] >= begun.start_time
            left.append({**told, "error": fault if recent else None})
        result = volume_history.SUCCESS if good else volume_history.ERROR
        ended.append({"id": begun.id, "finish_time": context.now, "result": result, "details": None})
        if not good:
            failed.add(row.instance_uuid)
    bulk.update(conn, volume_events, "id", ended)
    history.finish_actions(conn, [u for u in uuids if u not in failed], event, context.now)
    history.finish_actions(conn, sorted(failed), event, context.now, "Error")
    return done, left, rows


def of_host(conn: t.Any, host: str, context: Context, *conditions: t.Any) -> list[t.Any]:
    """This run's attachments on a compute host, of which all conditions hold."""
    query = sa.select(volume_attachments).where(
        _a.deleted == attachments.LIVE, _a.attached_host == host, _a.run_id == context.run.id, *conditions
    )
    return list(conn.execute(query.order_by(_a.instance_uuid, _a.id)))


def settled(conn: t.Any, rows: t.Sequence[t.Any]) -> set[str]:
    """Those of the instances that are neither being built nor deleted, nor ended in ERROR while they were built."""
    uuids = sorted({r.instance_uuid for r in rows})
    living = instances.select_live(conn, uuids=uuids) if uuids else []
    return {
        r.uuid for r in living if r.vm_state not in (states.BUILDING, states.ERROR) and r.task_state != states.DELETING
    }


def any_of(conn: t.Any, ids: t.Sequence[str]) -> list[t.Any]:
    """Attachments, over or not."""
    if not ids:
        return []
    query = sa.select(volume_attachments).where(bulk.among(conn, _a.id, sorted(set(ids)))).order_by(_a.id)
    return list(conn.execute(query))


# --- back -----------------------------------------------------------------------------------------------------------


def let_go(conn: t.Any, rows: t.Sequence[t.Any], context: Context) -> None:
    """What is half attached is given back, each when its export has ended."""
    attachments.forget(conn, rows)
    attachments.end_idle(conn, [r.id for r in rows], context)


def roll_back(conn: t.Any, rows: t.Sequence[t.Any], context: Context) -> None:
    """What was to be detached is in use as before."""
    transition = volume_states.roll_detaching()
    ids = sorted({r.volume_id for r in rows})
    if ids:
        volumes.swap(conn, ids, transition.expected, context.now, **transition.values)
    attachments.leave_rows_to_others(conn, [r.id for r in rows])


def begun_by_others(conn: t.Any, context: Context) -> list[t.Any]:
    """Attachments that other runs began to make or to undo for instances that live on: dead runs' or live ones'."""
    query = sa.select(volume_attachments).where(
        _a.deleted == attachments.LIVE, _a.run_id.is_not(None), _a.run_id != context.run.id
    )
    rows = list(conn.execute(query.order_by(_a.volume_id, _a.id)))
    living = settled(conn, rows)
    return [r for r in rows if r.instance_uuid in living]


def give_back(conn: t.Any, rows: t.Sequence[t.Any], context: Context) -> None:
    """Half attached volumes of runs that ended are given back, half detached ones are in use as before."""
    before = {r.id: r.run_id for r in rows}
    if not before:
        return
    locked = [r for r in attachments.locked_by_ids(conn, before) if r.run_id == before[r.id]]
    take(conn, locked, context)
    let_go(conn, [r for r in locked if r.attach_status in ON_THE_WAY], context)
    roll_back(conn, [r for r in locked if r.attach_status == volume_states.ATTACHED], context)
    attachments.leave_rows_to_others(conn, [r.id for r in locked])


# --- extended ---------------------------------------------------------------------------------------------------------


def to_rescan(conn: t.Any, host: str, context: Context) -> list[t.Any]:
    """Attachments on ``host`` whose volumes grew: it has to look again, whichever run made them grow."""
    conditions = (_a.deleted == attachments.LIVE, _a.attached_host == host, _a.rescan.is_(True))
    attached = _a.attach_status == volume_states.ATTACHED
    return list(conn.execute(sa.select(volume_attachments).where(attached, *conditions).order_by(_a.id)))


def rescanned(conn: t.Any, ids: t.Sequence[str], context: Context) -> None:
    """The host and its guest see the new size."""
    conn.execute(volume_attachments.update().where(bulk.among(conn, _a.id, list(ids))).values(rescan=False))
