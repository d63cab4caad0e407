# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The confirmation of a resize or cold migration: the instance stays on the destination, and the source host is cleaned up.

One transaction confirms. It enters a pending cleanup of the source host, which the next report of that host does where this run does not.
source: Nova's compute.api.API.confirm_resize and ComputeManager._poll_unconfirmed_resizes
"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field

from ...core import errors
from ...core.instances import move_life, moves, states
from ...ledger.compute import cleanups, history, instances, nodes
from ...ledger.compute import moves as ledger_moves
from ...ledger.compute.instances import Instance
from ...ledger.compute.moves import MoveRow
from ...ledger.db.transaction import Transaction
from ..instances import operation
from ..instances.operation import Operation, Selection
from .cold_life import refuse_without_move, select_ended

CONFIRM = Operation("confirm_resize", "resize.confirm")
#: Seconds for which the report of a new host counts. source: Nova's service_down_time
SURE = 60.0
OFF = (states.SHUTDOWN, states.CRASHED)


@dataclass
class Confirmed:
    """The instances that a run has confirmed, and the instances that it has not."""

    rows: list[Instance] = field(default_factory=list)
    unchanged: list[Instance] = field(default_factory=list)  # an earlier run has confirmed them
    waiting: list[Instance] = field(default_factory=list)  # have waited long enough, on a host that does not answer
    unsure: list[Instance] = field(default_factory=list)  # are confirmed, on a host that does not answer
    sources: dict[str, str] = field(default_factory=dict)  # uuid -> source host, which is to be cleaned
    vm_states: dict[str, str] = field(default_factory=dict)  # uuid -> vm_state now


def confirm(tx: Transaction, selection: Selection, window: float = 0.0) -> Confirmed:
    """Confirm the selected instances: all of them, or with an error none.

    :arg window: without a selection, the instances that have waited for so many seconds, on hosts that answer, are confirmed; locked ones, too, as in
        Nova, where the destination does this. 0: none.
    :raises BootflowError: see operation.begin(). :raises InstanceInvalidState: the host of one of them has not reported its guest; or the host of one
        that is selected by its host does not answer.
    """
    if selection.is_empty and window > 0:
        due = _waiting_longer(tx, window)
        silent = silent_hosts(tx)
        done = _confirm_entered(tx, [r for r in due if r.host not in silent])
        done.waiting = [r for r in due if r.host in silent]
        return done
    rows = operation.select(tx, selection)
    operation.refuse_unknown(tx, rows, selection)
    unchanged = select_ended(tx, rows, moves.CONFIRMED)
    entered = operation.enter(tx, CONFIRM, [r for r in rows if r not in unchanged]).rows
    _check_reported(entered)
    silent = silent_hosts(tx) if entered else set()
    unsure = [r for r in entered if r.host in silent]
    if not selection.is_by_name:
        operation.refuse([_host_down_error(r) for r in unsure])
    done = _confirm_entered(tx, entered, begun=True)
    done.unchanged, done.unsure = unchanged, unsure
    return done


def hosts_to_ask(tx: Transaction, selection: Selection, window: float) -> list[str]:
    """Return the hosts of the instances to confirm that have not reported lately. A destination that died since then has nothing to confirm: only the
    source host has the disks. That is also so where the ledger was restored from a backup, and the move was reverted meanwhile.

    source: Nova's task, which runs on the destination
    """
    if selection.is_empty and window <= 0:
        return []
    rows = (
        _waiting_longer(tx, window, lock=False) if selection.is_empty else operation.select(tx, selection, lock=False)
    )
    hosts = {str(r.host) for r in rows if r.vm_state == states.RESIZED} - nodes.forced_down(tx)
    return nodes.stale_hosts(tx, sorted(hosts), SURE)


def silent_hosts(tx: Transaction) -> set[str]:
    """Return the hosts that did not answer last time, or are forced down. Their disks may be lost, so only a person may give up the disks of the source
    host.
    """
    rows = nodes.rows(tx, ("host", "forced_down", "unreachable_reason"))
    return {n.host for n in rows if n.forced_down or n.unreachable_reason is not None}


def _waiting_longer(tx: Transaction, window: float, lock: bool = True) -> list[Instance]:
    """Return the resized instances that have waited for ``window`` seconds, and whose hosts have reported their guests."""
    rows = [r for r in instances.select_live(tx, vm_state=states.RESIZED, lock=lock) if r.task_state is None]
    open_moves = ledger_moves.open_of(tx, [r.uuid for r in rows])
    waiting = {u for u, m in open_moves.items() if m.status == moves.FINISHED and m.updated_at <= tx.now - window}
    return [r for r in rows if r.uuid in waiting and is_reported(r)]


def is_reported(row: Instance) -> bool:
    """Return whether the host of the instance has reported its guest. Otherwise a revert whose answer was lost may have removed it there."""
    return row.power_state != states.NOSTATE


def _check_reported(rows: t.Sequence[Instance]) -> None:
    """Check that the hosts of these instances have reported their guests.

    :raises InstanceInvalidState: one has not.
    """
    operation.refuse(
        [
            errors.InstanceInvalidState(
                message="Cannot '%s' instance %s: %s has not reported the guest" % (CONFIRM.called, row.uuid, row.host),
                remedy="bootflow.compute.heartbeat asks it; bootflow.compute.revert_resize brings the instance back.",
            )
            for row in rows
            if not is_reported(row)
        ]
    )


def _host_down_error(row: Instance) -> errors.InstanceInvalidState:
    """Return the error of an instance whose host may be lost with its disks."""
    return errors.InstanceInvalidState(
        message="Cannot '%s' instance %s: %s, where it is now, is down" % (CONFIRM.called, row.uuid, row.host),
        remedy="The former host may have the only copy of the instance's disks: bootflow.compute.revert_resize brings the instance back there. To"
        " give that copy up, name the instance.",
    )


def _confirm_entered(tx: Transaction, rows: t.Sequence[Instance], begun: bool = False) -> Confirmed:
    """Confirm these locked instances. :arg begun: their actions have been entered

    :raises InstanceInvalidState: the ledger has no open move of one of them.
    """
    open_moves = ledger_moves.open_of(tx, [r.uuid for r in rows])
    refuse_without_move(rows, open_moves, CONFIRM)
    if not begun:
        operation.start(tx, CONFIRM, rows)
    done = Confirmed(rows=list(rows))
    notify = tx.context.notify_on_state_change
    done.sources = {r.uuid: open_moves[r.uuid].source_compute for r in rows}
    done.vm_states = {r.uuid: states.STOPPED if r.power_state in OFF else states.ACTIVE for r in rows}
    cleanups.add(tx, *(_cleanup_due(r, open_moves[r.uuid]) for r in rows))
    for vm_state in sorted(set(done.vm_states.values())):
        uuids = [uuid for uuid, new_state in done.vm_states.items() if new_state == vm_state]
        instances.swap(tx, uuids, [None], None, notify, vm_state=vm_state)
    ledger_moves.apply(tx, list(open_moves.values()), move_life.CONFIRMED)
    history.add_events(tx, [(r.uuid, r.host) for r in rows], CONFIRM.name, history.SUCCESS)
    operation.close(tx, CONFIRM, {r.uuid: r.host for r in rows})
    return done


def _cleanup_due(row: Instance, move: MoveRow) -> cleanups.Due:
    """Return the cleanup of the source host; of a resize on the instance's own host, of the former part."""
    part, reason = cleanups.ALL, "it went to %s" % move.dest_compute
    if ledger_moves.is_same_host_resize(move):
        part, reason = cleanups.OLD, "it was resized there"
    return cleanups.Due(move.source_compute, row.uuid, row.domain_name, reason, part)
