# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Choosing backends for the volumes of this run, and reserving capacity there, in one transaction.

All backends are locked meanwhile: if two runs want the last gigabytes, one gets them and the other is rejected.
source: Cinder's FilterScheduler and scheduler flow (Queens)
"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field

from ...core import errors
from ...core.volumes import states
from ...core.volumes.retry import populate_retry
from ...core.volumes.scheduler.batch import Choice, select_backends
from ...core.volumes.scheduler.options import VolumeSchedulerOptions
from ...core.volumes.scheduler.select import BackendSelection
from ...ledger.compute import history, instances, runs
from ...ledger.db.transaction import Transaction
from ...ledger.storage import backends, pending_cleanups, volume_history, volumes
from ...ledger.storage.volumes import VolumeRow
from . import work
from .accept import INSTANCE_HINTS, VOLUME_HINTS

EVENT = "schedule"
FAILED = "scheduler.create_volume"


@dataclass
class VolumeScheduled:
    """The results by id of the volume."""

    placed: dict[str, BackendSelection] = field(default_factory=dict)
    failed: dict[str, errors.BootflowError] = field(default_factory=dict)  # ended in error
    waiting: list[str] = field(default_factory=list)  # for a pending cleanup in progress there: next round
    hosts: list[str] = field(default_factory=list)  # storage hosts that have work of this run


def schedule(tx: Transaction, options: VolumeSchedulerOptions) -> VolumeScheduled:
    """Place every volume of this run without a pool; volumes of a boot after their instance has a host.

    A volume without a valid backend ends in error, with a fault and a notification.
    """
    runs.renew(tx)
    rows = _waiting(tx, lock=True)
    result = VolumeScheduled()
    if rows:
        chosen = _choose(tx, rows, options, lock=True)
        result.failed = {i: e for i, e in chosen.items() if isinstance(e, errors.BootflowError)}
        selected = {i: s for i, s in chosen.items() if isinstance(s, BackendSelection)}
        busy = pending_cleanups.being_removed(tx, selected)
        result.waiting = sorted(i for i, s in selected.items() if (i, s.host) in busy)
        result.placed = {i: s for i, s in selected.items() if i not in result.waiting}
        _place(tx, [(r, result.placed[r.id]) for r in rows if r.id in result.placed])
        end_in_error(tx, [r for r in rows if r.id in result.failed], result.failed)
    result.hosts = work.hosts_with_work(tx)
    return result


def plan(tx: Transaction, options: VolumeSchedulerOptions) -> list[dict[str, t.Any]]:
    """Return what schedule() would decide for each volume, by name; nothing is written."""
    rows = _waiting(tx, lock=False)
    chosen = _choose(tx, rows, options, lock=False) if rows else {}
    return [_planned(row, chosen[row.id]) for row in sorted(rows, key=_turn)]


def _planned(row: VolumeRow, choice: Choice) -> dict[str, t.Any]:
    shown = {"volume_id": row.id, "name": row.name or "", "size": row.size}
    if isinstance(choice, BackendSelection):
        alternates = list(choice.alternates)
        return {**shown, "host": choice.host, "alternates": alternates, "decision": choice.decision, "error": None}
    decision = choice.details.get("decision")
    return {**shown, "host": None, "alternates": [], "decision": decision, "error": choice.as_dict()}


def give_up(tx: Transaction, options: VolumeSchedulerOptions) -> list[str]:
    """End volumes that are not created after the last round, except volumes of boots. Returns their ids.

    A volume that was placed, but whose host was not asked, keeps its pool: a part of it may exist there.
    """
    rows = volumes.select(tx, run_id=tx.run.id, statuses=volumes.BEING_CREATED, lock=True)
    rows = [r for r in rows if r.instance_uuid is None]
    end_in_error(tx, rows, {r.id: _last_failure(r, options) for r in rows})
    return [r.id for r in rows]


def _last_failure(row: VolumeRow, options: VolumeSchedulerOptions) -> errors.BootflowError:
    if row.pool_host:
        host = volumes.host_of(row.pool_host)
        return errors.HostUnreachable(host=host, reason="the host was not asked for the volume")
    try:
        populate_retry(row.retry, options.max_attempts, row.id)
    except errors.BootflowError as e:
        return e
    return errors.NoValidBackend(reason="The playbook had no round left to create the volume.")


def end_in_error(tx: Transaction, rows: t.Sequence[VolumeRow], failures: t.Mapping[str, errors.BootflowError]) -> None:
    """End these volumes in error without a backend, with the notification of Cinder's scheduler."""
    ids = [r.id for r in rows]
    if not ids:
        return
    volumes.swap(tx, ids, {"status": volumes.BEING_CREATED}, tx.run.id, status=states.ERROR, run_id=None, made=False)
    hosts = {r.id: volumes.host_of(r.pool_host) if r.pool_host else None for r in rows}
    volume_history.add_faults(tx, [volume_history.Fault(i, failures[i], hosts[i]) for i in ids])
    events = [(i, hosts[i], failures[i].message) for i in ids]
    volume_history.add_events(tx, events, EVENT, history.ERROR)
    volume_history.notify_each(tx, [(r.id, _payload(r, failures[r.id])) for r in rows], FAILED)


def _payload(row: VolumeRow, error: errors.BootflowError) -> dict[str, t.Any]:
    return {
        "volume_id": row.id,
        "state": states.ERROR,
        "method": "create_volume",
        "reason": error.message,
        "filters": error.details.get("filters", []),
        "volume_properties": {"size": row.size, "volume_type": row.volume_type, "project": row.project},
    }


def _waiting(tx: Transaction, lock: bool) -> list[VolumeRow]:
    rows = volumes.select(tx, run_id=tx.run.id, statuses=(states.CREATING,), lock=lock)
    rows = [r for r in rows if r.pool_host is None]
    guests = instances.placed_on(tx, {r.instance_uuid for r in rows if r.instance_uuid})
    ready_rows = [r for r in rows if r.instance_uuid is None or r.instance_uuid in guests]
    return sorted(ready_rows, key=lambda r: (r.created_at, r.name or "", r.id))


def _choose(
    tx: Transaction, rows: t.Sequence[VolumeRow], options: VolumeSchedulerOptions, lock: bool
) -> dict[str, Choice]:
    requests = {r.id: volumes.to_request(r) for r in rows}
    hints = [r.scheduler_hints for r in requests.values()]
    named = {w for h in hints for key in VOLUME_HINTS for w in _words(h.get(key))}
    pool_host_by_id = {r.id: r.pool_host for r in volumes.select(tx, ids=named) if r.pool_host} if named else {}
    guests = instances.placed_on(tx, {w for h in hints for key in INSTANCE_HINTS for w in _words(h.get(key))})
    ids = [row.id for row in sorted(rows, key=_turn)]
    wanted = [requests[i] for i in ids]
    return dict(zip(ids, select_backends(backends.pool_states(tx, lock), wanted, options, pool_host_by_id, guests)))


def _turn(row: VolumeRow) -> tuple[str, str]:
    """Order by name, so that plan and run decide alike: their ids differ."""
    return (row.name or "", row.id)


def _words(hint: t.Any) -> list[str]:
    return [w for w in (hint if isinstance(hint, list) else [hint]) if isinstance(w, str)]


def _place(tx: Transaction, placed: t.Sequence[tuple[VolumeRow, BackendSelection]]) -> None:
    now = tx.now
    written = [
        {
            "id": row.id,
            "pool_host": selection.host,
            "pending_gb": row.size,
            "retry": selection.retry,
            "scheduled_at": now,
        }
        for row, selection in placed
    ]
    volumes.update(tx, written)
    # The new attempt overwrites leftovers of a former one.
    pending_cleanups.done(tx, [(selection.host, row.id) for row, selection in placed])
    events = [(row.id, volumes.host_of(selection.host), None) for row, selection in placed]
    volume_history.add_events(tx, events, EVENT, history.SUCCESS)
