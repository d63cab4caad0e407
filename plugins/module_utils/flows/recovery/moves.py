# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Moves of dead runs, settled by the report of the host that the ledger has their instances on.

Before the disks have arrived that is the source, which has all that it had. Afterwards it is the new host, which has it too: the
instance is resized there, and its owner confirms or reverts. source: Nova's init_host and _error_out_instances_whose_build_was_interrupted
"""

from __future__ import annotations

import typing as t

from ...core import errors
from ...core.instances import move_life, moves, states
from ...ledger.compute import cleanups, instances, nodes
from ...ledger.compute import moves as ledger_moves
from ...ledger.db.transaction import Transaction
from ..attachments import moving
from ..instances import operation
from ..instances.operation import Selection
from ..moves import course, evacuated
from ..moves.course import Moving

DIED = "the run that moved it died"


def settle(tx: Transaction, power_states: t.Mapping[str, int], uuids: t.Sequence[str]) -> dict[str, str]:
    """Settle the moves of these locked instances. Returns uuid -> its vm_state now.

    :arg power_states: of the guests of the host that has them; a missing guest does not exist.
    """
    if not uuids:
        return {}
    rows = instances.select_live(tx, uuids=uuids)
    moving.given_up(tx, uuids)
    found = ledger_moves.open_of(tx, uuids)
    settled = {}
    for row in rows:
        if row.uuid in found:
            power_state, move = power_states.get(row.uuid), found[row.uuid]
            if move.migration_type == moves.EVACUATION:
                settled[row.uuid] = evacuated.settle(tx, row, move, power_state)
            else:
                settled[row.uuid] = _settle(tx, Moving(row, move), power_state)
    for row in rows:
        if row.uuid not in found:  # a ledger that was repaired by hand
            power_state = power_states.get(row.uuid)
            settled[row.uuid] = states.ACTIVE if power_state == states.RUNNING else states.STOPPED
            notify = tx.context.notify_on_state_change
            values: dict[str, t.Any] = {
                "vm_state": settled[row.uuid],
                "task_state": None,
                "power_state": power_state or 0,
            }
            instances.swap(tx, [row.uuid], [row.task_state], None, notify, run_id=tx.run.id, **values)
    return settled


def settle_on_lost(tx: Transaction, selection: Selection) -> None:
    """Settle the moves of dead runs whose instances had gone over to hosts that are forced down, and of which no report will come: their former
    hosts have all their disks still, and they can be reverted.
    """
    down = nodes.forced_down(tx)
    rows = [r for r in operation.select(tx, selection) if r.host in down and r.task_state == states.RESIZE_FINISH]
    dead = operation.dead_runs(tx, rows)
    found = ledger_moves.open_of(tx, [r.uuid for r in rows if not r.run_id or r.run_id in dead])
    settle(tx, {}, [u for u, m in found.items() if not ledger_moves.stays(m)])


def _settle(tx: Transaction, m: Moving, power_state: int | None) -> str:
    reverts = m.row.task_state == states.RESIZE_REVERTING
    its = course.REVERT if reverts else course.OF_TYPE[m.move.migration_type]
    over = m.over
    if over and reverts and power_state is None:
        # The new host began to be cleaned: the instance goes back, and the rest of it is removed there.
        course.return_to_source(tx, [m])
        cleanups.add(tx, cleanups.Due(m.move.dest_compute, m.uuid, m.row.domain_name, DIED, m.of_new))
        vm_state, event = states.STOPPED, move_life.REVERTED
    elif over:
        vm_state, event = states.RESIZED, move_life.REVERT_FAILED if reverts else move_life.ARRIVED
    else:
        vm_state = states.ACTIVE if power_state == states.RUNNING else states.STOPPED
        event = move_life.REVERTED if reverts else move_life.FAILED
        if m.row.task_state == states.RESIZE_MIGRATING or ledger_moves.stays(m.move):
            course.leave_new_hosts(tx, [course.Leaving(m, cleaned=False, reason=DIED)])
    course.end(tx, [course.Ending(m, vm_state, event, states.NOSTATE if power_state is None else power_state)])
    remedy = (
        "Confirm it, or revert it."
        if vm_state == states.RESIZED
        else "The instance is %s on its former host." % vm_state
    )
    error = errors.RemoteError(
        reason="run %s died while it did '%s' with instance %s" % (m.row.run_id or "unknown", its.called, m.uuid),
        remedy=remedy,
    )
    done = reverts and vm_state == m.move.old_vm_state
    course.journal(tx, its, [m.uuid] if done else [], {} if done else {m.uuid: error}, {m.uuid: m.row.host})
    return vm_state
