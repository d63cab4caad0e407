# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Resets the state of instances whose host is lost: a person says what the state is. No host has a part in it.

Nova writes the state at any time. Here nothing that another host has of an instance, or may get, is forgotten by it: what a dead run
left of a move is settled first, or the state stays.
source: Nova's os-resetState
"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field

from ...core import errors
from ...core.instances import moves as core_moves
from ...core.instances import states
from ...ledger.compute import history, instances, nodes, runs
from ...ledger.compute import moves as ledger_moves
from ...ledger.compute.instances import Instance
from ...ledger.compute.moves import MoveRow
from ...ledger.db.locks import take_turns
from ...ledger.db.transaction import Transaction
from ..instances import operation
from ..instances.operation import Operation, Selection
from ..moves.moving_instance import MovingInstance
from . import moves
from .dead_runs import MOVING

RESET = Operation("reset_state")


@dataclass
class Reset:
    """The instances, as they were."""

    rows: list[Instance] = field(default_factory=list)
    unchanged: list[Instance] = field(default_factory=list)


def reset(tx: Transaction, selection: Selection, vm_state: str, limits: t.Mapping[str, t.Any] | None = None) -> Reset:
    """Write this vm_state to the selected instances: to all of them, or with an error to none. As in Nova, a lock does not prevent it.

    :arg vm_state: ERROR or ACTIVE. :arg limits: bootflow_quotas, for which a soft-deleted one counts again.
    :raises InvalidInput, InstanceNotFound, ProjectNotFound: see operation.begin(). :raises InstanceBusy: a live run works on one of them.
    :raises InstanceInvalidState: one of them is built, deleted or moved, or waits to be confirmed. :raises OverQuota: see ``limits``.
    """
    take_turns(tx, "project", {r.project for r in operation.select(tx, selection, lock=False)} if limits else set())
    rows = operation.select(tx, selection)
    operation.refuse_unknown(tx, rows, selection)
    if not selection.is_by_name:  # who deleted an instance does not mean it by its host
        rows = [r for r in rows if r.vm_state != states.SOFT_DELETED]
    open_moves = ledger_moves.open_of(tx, [r.uuid for r in rows])
    _check(tx, rows, open_moves, vm_state)
    done = Reset()
    for row in rows:
        is_so = row.vm_state == vm_state and row.task_state is None
        (done.unchanged if is_so else done.rows).append(row)
    operation.check_quota(tx, [r for r in done.rows if r.vm_state == states.SOFT_DELETED], limits)
    _write(tx, done.rows, vm_state)
    return done


def _check(tx: Transaction, rows: t.Sequence[Instance], open_moves: t.Mapping[str, MoveRow], vm_state: str) -> None:
    """:raises BootflowError: see reset()."""
    dead = runs.dead_among(tx, [r.run_id for r in rows])
    down = nodes.forced_down(tx)
    refused: list[errors.BootflowError] = []
    for row in rows:
        at_work = row.task_state is not None or row.vm_state == states.BUILDING
        if at_work and row.run_id not in (None, "", *dead):
            refused.append(runs.locked_error(tx, row.display_name, row.run_id))
            continue
        try:
            _check_one(row, open_moves.get(row.uuid), down, vm_state)
        except errors.InstanceInvalidState as e:
            e.details[operation.WHOSE] = row.display_name
            refused.append(e)
    operation.refuse(refused)


def _check_one(row: Instance, move: MoveRow | None, down: t.Collection[str], vm_state: str) -> None:
    """:raises InstanceInvalidState: something of the instance would be forgotten, or it never ran and is to be active."""
    if row.task_state in _OF_TWO_HOSTS:
        if move is None or not MovingInstance(row, move).is_consistent or not _is_decided(row, move, down):
            raise errors.InstanceInvalidState(
                method=RESET.called, instance_uuid=row.uuid, attr="task_state", state=row.task_state,
                remedy="The run that did this is dead: %s" % _what_settles(row, move),
            )  # fmt: skip
        return
    launched = row.launched_at is not None or vm_state == states.ERROR
    try:
        states.check_action(RESET.name, row.vm_state, row.task_state, launched, False, row.uuid)
    except errors.InstanceInvalidState as e:
        if row.vm_state == states.BUILDING:
            e.remedy = "The run that did this is dead: %s" % _AUDIT
        elif row.task_state == states.DELETING:
            e.remedy = "The run that did this is dead: delete the instance again, with bootflow_delete_force: true where its host is lost."
        raise


#: In these another host than its own has something of an instance, or may have.
_OF_TWO_HOSTS = (*MOVING, states.RESIZE_PREP, states.MIGRATING)
_AUDIT = "bootflow.compute.audit settles it."


def _is_decided(row: Instance, move: MoveRow, down: t.Collection[str]) -> bool:
    """Whether nothing is to be learned of this move of a dead run any more: the instance's host is lost, and the other host of the move has
    nothing that the instance is, but only what is to be removed there.
    """
    if row.host not in down or row.task_state not in MOVING:
        return False
    return move.migration_type == core_moves.EVACUATION or not MovingInstance(row, move).at_destination


def _what_settles(row: Instance, move: MoveRow | None) -> str:
    if move is None:
        return _AUDIT
    if row.task_state == states.MIGRATING:
        hosts = (move.source_compute, move.dest_compute)
        return "the guest may be on %s or on %s, whose reports settle it (bootflow.compute.heartbeat)." % hosts
    if not MovingInstance(row, move).is_consistent:
        return "bootflow.compute.audit tells which status of its move contradicts that."
    if move.migration_type == core_moves.EVACUATION or not MovingInstance(row, move).at_destination:
        return (
            "the report of %s settles it (bootflow.compute.heartbeat). If that host is lost, force it down first."
            % row.host
        )
    if not ledger_moves.is_same_host_resize(move):
        return (
            "the report of %s settles it (bootflow.compute.heartbeat). If that host is lost, force it down: bootflow.compute.revert_resize brings"
            " the instance back to %s then, which has its disks." % (row.host, move.source_compute)
        )
    return (
        "the report of %s settles it (bootflow.compute.heartbeat). If that host is lost, delete the instance, and boot it again."
        % row.host
    )


def _write(tx: Transaction, rows: t.Sequence[Instance], vm_state: str) -> None:
    """The state, with what follows for what dead runs left, and the journal. source: Nova's instance_actions.RESET_STATE"""
    moves.settle_after_crash(tx, {}, [r.uuid for r in rows if r.task_state in MOVING])
    operation.end_others(tx, RESET, [r for r in rows if r.task_state is not None and r.task_state not in MOVING])
    settled_rows = instances.select_live(tx, uuids=[r.uuid for r in rows]) if rows else []
    notify = tx.context.notify_on_state_change
    values: dict[str, t.Any] = {"vm_state": vm_state, "task_state": None, "run_id": tx.run.id}
    deleted = [r.uuid for r in settled_rows if r.vm_state == states.SOFT_DELETED]
    before = sorted({r.task_state for r in settled_rows}, key=str)
    instances.swap(tx, deleted, before, None, notify, **values, deleted_at=None)
    instances.swap(tx, [r.uuid for r in settled_rows if r.uuid not in deleted], before, None, notify, **values)
    for project in sorted({r.project for r in settled_rows}):
        uuids = [r.uuid for r in settled_rows if r.project == project]
        history.start_actions(tx, uuids, RESET.action, tx.request_id, project, tx.actor)
    history.add_events(tx, [(r.uuid, r.host) for r in settled_rows], RESET.name, history.SUCCESS)
    history.finish_actions(tx, [r.uuid for r in settled_rows], RESET.action)
