# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The life of an evacuation in the ledger: from its beginning (evacuate) to its end, or to the death of its run.

It is apart from the beginning, as the reports of hosts settle evacuations, and should not load the scheduler for that.
source: Nova's ComputeManager.rebuild_instance with recreate
"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ...core import errors
from ...core.instances import move_life, moves, states
from ...ledger.compute import claims, cleanups, history, instances, runs
from ...ledger.compute import moves as ledger_moves
from ...ledger.compute.instances import Instance
from ...ledger.compute.moves import MoveRow
from ...ledger.db.transaction import Transaction
from ..attachments import moving
from ..instances import operation
from ..instances.operation import Operation
from .moving_instance import relocate

EVACUATE = Operation("evacuate", "rebuild")


@dataclass(frozen=True)
class Result:
    """What the new host made of an instance."""

    power_state: int = states.NOSTATE
    error: errors.BootflowError | None = None
    cleaned: bool = True  # after an error: it has nothing of the instance
    may_run: bool = False  # after an error: nobody knows whether the guest runs there


def instances_built_on(tx: Transaction, host: str, uuids: t.Sequence[str]) -> list[Instance]:
    """Those of these instances that this run evacuates to ``host``."""
    rows = instances.select_live(tx, uuids=uuids, run_id=tx.run.id, host=host)
    return [r for r in rows if r.task_state == EVACUATE.during]


def finish(tx: Transaction, results: t.Mapping[str, Result]) -> dict[str, errors.BootflowError]:
    """Write what came of the evacuations. Returns uuid -> why it failed.

    An instance is active on its new host, or stopped as it was. Where that failed it is back on the old one, with the state that it had;
    but in error on the new one where its guest may run there: it must not be started elsewhere.
    """
    runs.renew(tx)
    rows = {r.uuid: r for r in instances.select_live(tx, uuids=sorted(results), run_id=tx.run.id, lock=True)}
    rows = {u: r for u, r in rows.items() if r.task_state == EVACUATE.during}
    moving.release_moved(tx, rows)
    found = ledger_moves.open_of(tx, rows)
    endings = {u: _ending(tx, row, found[u], results[u]) for u, row in sorted(rows.items())}
    _end_evacuations(tx, endings)
    for event in (move_life.ARRIVED, move_life.BROUGHT_BACK, move_life.FAILED):
        ledger_moves.apply(tx, [found[u] for u, ending in endings.items() if ending.event == event.name], event)
    failed = {u: r.error for u, r in results.items() if r.error is not None and u in rows}
    hosts = {u: found[u].dest_compute for u in rows}
    history.add_faults(tx, failed, hosts)
    operation.journal(tx, EVACUATE, sorted(set(rows) - set(failed)), failed, hosts)
    return {**failed, **instances.swap_errors(tx, set(results) - set(rows), [EVACUATE.during])}


class _Ending(t.NamedTuple):
    vm_state: str
    power_state: int
    event: str  # of the move


def _ending(tx: Transaction, row: Instance, move: MoveRow, result: Result) -> _Ending:
    if result.error is not None:
        goes_back = not result.may_run and _return_to_source(tx, row, move, result.cleaned)
        if goes_back:
            return _Ending(move.old_vm_state, states.NOSTATE, move_life.BROUGHT_BACK.name)
        return _Ending(states.ERROR, states.NOSTATE, move_life.FAILED.name)
    was_off = move.old_vm_state == states.STOPPED
    return _Ending(states.STOPPED if was_off else states.ACTIVE, result.power_state, move_life.ARRIVED.name)


def _end_evacuations(tx: Transaction, endings: t.Mapping[str, _Ending]) -> None:
    """:arg endings: by the instances' uuids; instances that end alike are written together"""
    for ending in sorted(set(endings.values())):
        values: dict[str, t.Any] = {"vm_state": ending.vm_state, "power_state": ending.power_state, "task_state": None}
        if ending.event == move_life.ARRIVED.name:
            values["launched_at"] = tx.now
        mine = [uuid for uuid, its in endings.items() if its == ending]
        notify = tx.context.notify_on_state_change
        instances.swap(tx, mine, [EVACUATE.during], None, notify, run_id=tx.run.id, **values)


def _return_to_source(tx: Transaction, row: Instance, move: MoveRow, cleaned: bool) -> bool:
    """Whether the old host can have the instance again: nobody has cleaned it of that meanwhile, or begun to."""
    owed = [c for c in cleanups.of_instances(tx, [row.uuid]) if c.host == move.source_compute]
    if not owed or not cleanups.forget(tx, owed[0]):
        return False
    # It was resized there, or was to be, and that was still to be cleaned.
    if claims.moves_on(tx, move.source_compute, row.uuid):
        part, reason = _part_to_clean(tx, row.uuid)
        cleanups.add(tx, cleanups.Due(move.source_compute, row.uuid, row.domain_name, reason, part))
    relocate(tx, [(row.uuid, move.source_compute, move.source_node, move.source_limits)])
    if cleaned:
        claims.release_on(tx, {(move.dest_compute, row.uuid)})
    else:
        made_for = ledger_moves.made_for(move)
        due = cleanups.Due(move.dest_compute, row.uuid, row.domain_name, "its evacuation failed", made_for=made_for)
        cleanups.add(tx, due)
    return True


def _part_to_clean(tx: Transaction, uuid: str) -> tuple[str, str]:
    """What its old host was to remove of the instance before it was evacuated, and why: with the wrong part it would get other disks than it has."""
    resizes = [m for m in ledger_moves.all_of(tx, [uuid])[uuid] if ledger_moves.is_same_host_resize(m)]
    if resizes and resizes[-1].status != moves.CONFIRMED:
        return cleanups.NEW, "its resize there failed"
    return cleanups.OLD, "it was resized there"


def settle_after_crash(tx: Transaction, row: Instance, move: MoveRow, power_state: int | None) -> str:
    """The run that evacuated this locked instance is dead. Its new host has it, or a part of it. Returns its vm_state now."""
    runs_there = power_state == states.RUNNING and move.old_vm_state != states.STOPPED
    vm_state = states.ACTIVE if runs_there else states.ERROR
    notify = tx.context.notify_on_state_change
    values: dict[str, t.Any] = {"vm_state": vm_state, "power_state": power_state or states.NOSTATE, "run_id": tx.run.id}
    instances.swap(tx, [row.uuid], [row.task_state], None, notify, task_state=None, **values)
    ledger_moves.apply(tx, [move], move_life.ARRIVED if runs_there else move_life.FAILED)
    problem = errors.RemoteError(
        reason="run %s died while it did '%s' with instance %s" % (row.run_id or "unknown", EVACUATE.called, row.uuid),
        remedy="The instance is %s now; rebuild it." % vm_state,
    )
    failed: dict[str, errors.BootflowError] = {} if runs_there else {row.uuid: problem}
    operation.journal(tx, EVACUATE, [row.uuid] if runs_there else [], failed, {row.uuid: row.host})
    return vm_state
