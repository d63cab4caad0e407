# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Cold migrations, resizes and evacuations of dead runs, settled by the report of the host that the ledger has their instances on.

Before the disks have arrived that is the source host, which has all that it had. Afterwards it is the destination, which has all, too: the
instance is resized there, and its owner confirms or reverts. source: Nova's init_host and _error_out_instances_whose_build_was_interrupted
"""

from __future__ import annotations

import typing as t

from ...core.instances import moves, states
from ...ledger.compute import instances, nodes
from ...ledger.compute import moves as ledger_moves
from ...ledger.db.transaction import Transaction
from ..attachments import moving
from ..instances import operation
from ..instances.operation import Selection
from ..moves import cold_life, evacuate_life
from ..moves.moving_instance import MovingInstance


def settle_after_crash(tx: Transaction, power_states: t.Mapping[str, int], uuids: t.Sequence[str]) -> dict[str, str]:
    """Settle the moves of these locked instances, whose runs died. Returns uuid -> vm_state of each settled instance.

    A move whose status contradicts its instance stays as it is, as does the instance: the audit names it.

    :arg power_states: uuid -> power state of the guest on the host of the instance; a missing guest does not exist.
    """
    if not uuids:
        return {}
    open_moves = ledger_moves.open_of(tx, uuids)
    rows = [
        r
        for r in instances.select_live(tx, uuids=uuids)
        if r.uuid not in open_moves or MovingInstance(r, open_moves[r.uuid]).is_consistent
    ]
    moving.release_after_crash(tx, [r.uuid for r in rows])
    settled = {}
    for row in rows:
        if row.uuid in open_moves:
            power_state, move = power_states.get(row.uuid), open_moves[row.uuid]
            if move.migration_type == moves.EVACUATION:
                settled[row.uuid] = evacuate_life.settle_after_crash(tx, row, move, power_state)
            else:
                settled[row.uuid] = cold_life.settle_after_crash(tx, MovingInstance(row, move), power_state)
    for row in rows:
        if row.uuid not in open_moves:  # a ledger that was repaired by hand
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


def settle_on_lost_hosts(tx: Transaction, selection: Selection) -> None:
    """Settle the moves of dead runs whose instances are on destinations that are forced down, so that no report will settle them. The source hosts
    still have all of their disks, and they can be reverted.
    """
    down = nodes.forced_down(tx)
    rows = [r for r in operation.select(tx, selection) if r.host in down and r.task_state == states.RESIZE_FINISH]
    dead = operation.dead_runs(tx, rows)
    open_moves = ledger_moves.open_of(tx, [r.uuid for r in rows if not r.run_id or r.run_id in dead])
    settle_after_crash(tx, {}, [u for u, m in open_moves.items() if not ledger_moves.is_same_host_resize(m)])
