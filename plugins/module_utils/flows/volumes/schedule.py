# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Choosing backends for the volumes of this run, and taking what they need there, in one transaction.

All backends are locked while it is decided: of two runs that want the last gigabytes one gets them, the other is told that
there are none. source: Cinder's FilterScheduler and scheduler flow (Queens)
"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field

from ...core import errors
from ...core.volumes import states
from ...core.volumes.retry import populate_retry
from ...core.volumes.scheduler.options import VolumeSchedulerOptions
from ...core.volumes.scheduler.select import BackendSelection, VolumeScheduler
from ...ledger.compute import runs
from ...ledger.context import Context
from ...ledger.db import bulk
from ...ledger.db.sqlalchemy_import import sa
from ...ledger.schema.tables import instances as instances_table
from ...ledger.schema.tables import volumes as volumes_table
from ...ledger.storage import backends, pending_cleanups, volume_history, volumes
from . import work
from .accept import INSTANCE_HINTS, VOLUME_HINTS

EVENT = "schedule"
FAILED = "scheduler.create_volume"


@dataclass
class VolumeScheduled:
    """By id of the volume."""

    placed: dict[str, BackendSelection] = field(default_factory=dict)
    failed: dict[str, errors.BootflowError] = field(default_factory=dict)  # ended in error here
    waiting: list[str] = field(default_factory=list)  # its old remains are just being removed there: next round
    hosts: list[str] = field(default_factory=list)  # storage hosts that have work of this run


def schedule(conn: t.Any, options: VolumeSchedulerOptions, context: Context) -> VolumeScheduled:
    """Place every volume of this run that has no pool yet; those of a boot once their instance has a host.

    Where there is no backend the volume ends in error, with a fault and a notification.
    """
    runs.renew(conn, context.run, context.now, context.lease_seconds)
    result = VolumeScheduled()
    rows = _waiting(conn, context, lock=True)
    if rows:
        chosen = _choose(conn, rows, options, context, lock=True)
        result.placed = {i: s for i, s in chosen.items() if isinstance(s, BackendSelection)}
        result.failed = {i: e for i, e in chosen.items() if isinstance(e, errors.BootflowError)}
        busy = pending_cleanups.being_removed(conn, result.placed, context)
        result.waiting = sorted(i for i, s in result.placed.items() if (i, s.host) in busy)
        for volume_id in result.waiting:
            del result.placed[volume_id]
        _write(conn, {r.id: r for r in rows}, result.placed, context)
        end_in_error(conn, [r for r in rows if r.id in result.failed], result.failed, context)
    result.hosts = work.hosts_with_work(conn, context)
    return result


def plan(conn: t.Any, options: VolumeSchedulerOptions, context: Context) -> list[dict[str, t.Any]]:
    """What schedule() would decide for each volume, by name; nothing is written."""
    rows = _waiting(conn, context, lock=False)
    chosen = _choose(conn, rows, options, context, lock=False) if rows else {}
    found = []
    for row in sorted(rows, key=_turn):
        choice = chosen[row.id]
        shown: dict[str, t.Any] = {"volume_id": row.id, "name": row.name or "", "size": row.size}
        if isinstance(choice, BackendSelection):
            shown.update(host=choice.host, alternates=list(choice.alternates), decision=choice.decision, error=None)
        else:
            shown.update(host=None, alternates=[], decision=choice.details.get("decision"), error=choice.as_dict())
        found.append(shown)
    return found


def give_up(conn: t.Any, options: VolumeSchedulerOptions, context: Context) -> list[str]:
    """End what was not made after the last round, volumes of boots apart. Returns their ids.

    One that was placed, and whose host was not asked, keeps its pool: something of it may be there.
    """
    rows = [
        r
        for r in volumes.select(conn, run_id=context.run.id, statuses=work.MAKING, lock=True)
        if r.instance_uuid is None
    ]
    failures: dict[str, errors.BootflowError] = {}
    for row in rows:
        if row.pool_host:
            host = volumes.host_of(row.pool_host)
            failures[row.id] = errors.HostUnreachable(host=host, reason="it was not asked for the volume")
            continue
        try:
            populate_retry(row.retry, options.max_attempts, row.id)
            failures[row.id] = errors.NoValidBackend(reason="No round was left to make it in.")
        except errors.BootflowError as e:
            failures[row.id] = e
    end_in_error(conn, rows, failures, context)
    return [r.id for r in rows]


def end_in_error(
    conn: t.Any, rows: t.Sequence[t.Any], failures: t.Mapping[str, errors.BootflowError], context: Context
) -> None:
    """These volumes end in error without a backend: Cinder's scheduler says so with a notification."""
    now = context.now
    ids = [r.id for r in rows]
    if not ids:
        return
    volumes.swap(conn, ids, {"status": work.MAKING}, now, context.run.id, status=states.ERROR, run_id=None, made=False)
    hosts = {r.id: volumes.host_of(r.pool_host) if r.pool_host else None for r in rows}
    volume_history.add_faults(conn, [volume_history.Fault(i, failures[i], hosts[i]) for i in ids], now)
    events = [(i, hosts[i], failures[i].message) for i in ids]
    volume_history.add_events(conn, events, EVENT, volume_history.ERROR, context)
    volume_history.notify_each(conn, [(r.id, _payload(r, failures[r.id])) for r in rows], FAILED, now)


def _payload(row: t.Any, error: errors.BootflowError) -> dict[str, t.Any]:
    return {
        "volume_id": row.id,
        "state": states.ERROR,
        "method": "create_volume",
        "reason": error.message,
        "filters": error.details.get("filters", []),
        "volume_properties": {"size": row.size, "volume_type": row.volume_type, "project": row.project},
    }


def _waiting(conn: t.Any, context: Context, lock: bool) -> list[t.Any]:
    rows = [
        r
        for r in volumes.select(conn, run_id=context.run.id, statuses=(states.CREATING,), lock=lock)
        if r.pool_host is None
    ]
    guests = _hosts_of_instances(conn, {r.instance_uuid for r in rows if r.instance_uuid})
    found = [r for r in rows if r.instance_uuid is None or r.instance_uuid in guests]
    return sorted(found, key=lambda r: (r.created_at, r.name or "", r.id))


def _choose(
    conn: t.Any, rows: t.Sequence[t.Any], options: VolumeSchedulerOptions, context: Context, lock: bool
) -> dict[str, BackendSelection | errors.BootflowError]:
    requests = {r.id: volumes.to_request(r) for r in rows}
    hints = [r.scheduler_hints for r in requests.values()]
    named = {w for h in hints for key in VOLUME_HINTS for w in _words(h.get(key))}
    there = {r.id: r.pool_host for r in volumes.select(conn, ids=named) if r.pool_host} if named else {}
    guests = _hosts_of_instances(conn, {w for h in hints for key in INSTANCE_HINTS for w in _words(h.get(key))})
    scheduler = VolumeScheduler(backends.pool_states(conn, lock), options, there, guests)
    found: dict[str, BackendSelection | errors.BootflowError] = {}
    for row in sorted(rows, key=_turn):
        try:
            found[row.id] = scheduler.select(requests[row.id])
        except errors.BootflowError as e:
            found[row.id] = e
    return found


def _turn(row: t.Any) -> tuple[str, str]:
    """By name: a plan is to come out as the run does, whose ids are others."""
    return (row.name or "", row.id)


def _words(hint: t.Any) -> list[str]:
    return [w for w in (hint if isinstance(hint, list) else [hint]) if isinstance(w, str)]


def _hosts_of_instances(conn: t.Any, uuids: t.Collection[str]) -> dict[str, str]:
    """uuid -> its host, of living instances that have one."""
    if not uuids:
        return {}
    c = instances_table.c
    query = sa.select(c.uuid, c.host).where(
        bulk.among(conn, c.uuid, sorted(uuids)), c.deleted == "", c.host.is_not(None)
    )
    return dict(conn.execute(query).all())


def _write(
    conn: t.Any, rows: t.Mapping[str, t.Any], placed: t.Mapping[str, BackendSelection], context: Context
) -> None:
    now = context.now
    bulk.update(
        conn,
        volumes_table,
        "id",
        [
            {
                "id": volume_id,
                "pool_host": selection.host,
                "pending_gb": rows[volume_id].size,
                "retry": selection.retry,
                "scheduled_at": now,
                "updated_at": now,
            }
            for volume_id, selection in placed.items()
        ],
    )
    pending_cleanups.done(conn, [(s.host, i) for i, s in placed.items()])  # what is left there of it is made anew
    events = [(i, volumes.host_of(s.host), None) for i, s in placed.items()]
    volume_history.add_events(conn, events, EVENT, volume_history.SUCCESS, context)
