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
    """The outcome of an evacuation on the destination."""

    power_state: int = states.NOSTATE
    error: errors.BootflowError | None = None
    cleaned: bool = True  # after an error: the destination has nothing of the instance
    may_run: bool = False  # after an error: the guest may run there


def instances_built_on(tx: Transaction, host: str, uuids: t.Sequence[str]) -> list[Instance]:
    """Return the instances of ``uuids`` that this run evacuates to ``host``."""
    rows = instances.select_live(tx, uuids=uuids, run_id=tx.run.id, host=host)
    return [r for r in rows if r.task_state == EVACUATE.during]


def finish(tx: Transaction, results: t.Mapping[str, Result]) -> dict[str, errors.BootflowError]:
    """Write the outcomes of evacuations. Returns uuid -> why it failed.

    An instance is active on its destination, or stopped as it was. After a failure it is back on its source host, with its former state. Where its
    guest may run on the destination, it is in error there, so that it is not started elsewhere.
    """
    runs.renew(tx)
    rows = {r.uuid: r for r in instances.select_live(tx, uuids=sorted(results), run_id=tx.run.id, lock=True)}
    rows = {u: r for u, r in rows.items() if r.task_state == EVACUATE.during}
    moving.release_moved(tx, rows)
    open_moves = ledger_moves.open_of(tx, rows)
    endings = {u: _ending(tx, row, open_moves[u], results[u]) for u, row in sorted(rows.items())}
    _end_evacuations(tx, endings)
    for event in (move_life.ARRIVED, move_life.BROUGHT_BACK, move_life.FAILED):
        ledger_moves.apply(tx, [open_moves[u] for u, ending in endings.items() if ending.event == event.name], event)
    failed = {u: r.error for u, r in results.items() if r.error is not None and u in rows}
    hosts = {u: open_moves[u].dest_compute for u in rows}
    history.add_faults(tx, failed, hosts)
    operation.journal(tx, EVACUATE, sorted(set(rows) - set(failed)), failed, hosts)
    return {**failed, **instances.swap_errors(tx, set(results) - set(rows), [EVACUATE.during])}


class _Ending(t.NamedTuple):
    """The state in which an evacuation leaves its instance."""

    vm_state: str
    power_state: int
    event: str  # of the move


def _ending(tx: Transaction, row: Instance, move: MoveRow, result: Result) -> _Ending:
    if result.error is not None:
        if not result.may_run and _return_to_source(tx, row, move, result.cleaned):
            return _Ending(move.old_vm_state, states.NOSTATE, move_life.BROUGHT_BACK.name)
        return _Ending(states.ERROR, states.NOSTATE, move_life.FAILED.name)
    was_off = move.old_vm_state == states.STOPPED
    return _Ending(states.STOPPED if was_off else states.ACTIVE, result.power_state, move_life.ARRIVED.name)


def _end_evacuations(tx: Transaction, endings: t.Mapping[str, _Ending]) -> None:
    """Write the states in which evacuations leave their instances. Instances with the same ending are written together.

    :arg endings: uuid -> ending
    """
    for ending in sorted(set(endings.values())):
        values: dict[str, t.Any] = {"vm_state": ending.vm_state, "power_state": ending.power_state, "task_state": None}
        if ending.event == move_life.ARRIVED.name:
            values["launched_at"] = tx.now
        uuids = [uuid for uuid, other in endings.items() if other == ending]
        notify = tx.context.notify_on_state_change
        instances.swap(tx, uuids, [EVACUATE.during], None, notify, run_id=tx.run.id, **values)


def _return_to_source(tx: Transaction, row: Instance, move: MoveRow, cleaned: bool) -> bool:
    """Return an instance to its source host, unless that host has been cleaned of it meanwhile, or is being cleaned.

    :arg cleaned: the destination has nothing of the instance
    Returns whether the instance is on its source host.
    """
    owed = [c for c in cleanups.of_instances(tx, [row.uuid]) if c.host == move.source_compute]
    if not owed or not cleanups.forget(tx, owed[0]):
        return False
    # An earlier resize there, done or failed, still owes the cleanup of a part.
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
    """Return the part that a resize on the source host was to remove there, and why. With the wrong part the instance would lose its disks."""
    resizes = [m for m in ledger_moves.all_of(tx, [uuid])[uuid] if ledger_moves.is_same_host_resize(m)]
    if resizes and resizes[-1].status != moves.CONFIRMED:
        return cleanups.NEW, "its resize there failed"
    return cleanups.OLD, "it was resized there"


def settle_after_crash(tx: Transaction, row: Instance, move: MoveRow, power_state: int | None) -> str:
    """Settle the evacuation of a locked instance, whose run died. The destination has the instance, or a part of it.

    :arg power_state: of the guest on the destination; None: there is no guest
    Returns the vm_state of the instance.
    """
    is_running = power_state == states.RUNNING and move.old_vm_state != states.STOPPED
    vm_state = states.ACTIVE if is_running else states.ERROR
    notify = tx.context.notify_on_state_change
    values: dict[str, t.Any] = {"vm_state": vm_state, "power_state": power_state or states.NOSTATE, "run_id": tx.run.id}
    instances.swap(tx, [row.uuid], [row.task_state], None, notify, task_state=None, **values)
    ledger_moves.apply(tx, [move], move_life.ARRIVED if is_running else move_life.FAILED)
    problem = errors.RemoteError(
        reason="run %s died while it did '%s' with instance %s" % (row.run_id or "unknown", EVACUATE.called, row.uuid),
        remedy="The instance is %s now; rebuild it." % vm_state,
    )
    failed: dict[str, errors.BootflowError] = {} if is_running else {row.uuid: problem}
    operation.journal(tx, EVACUATE, [row.uuid] if is_running else [], failed, {row.uuid: row.host})
    return vm_state
