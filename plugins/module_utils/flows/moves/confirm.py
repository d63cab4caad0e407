# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The end of a resize or cold migration: the instance stays where it is, and its former host is cleaned of it.

One transaction decides; what is left on the former host is a pending cleanup, which that host's next report does where this run does not.
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
#: Seconds for which the report of a new host is believed. source: Nova's service_down_time
SURE = 60.0
OFF = (states.SHUTDOWN, states.CRASHED)


@dataclass
class Confirmed:
    rows: list[Instance] = field(default_factory=list)
    unchanged: list[Instance] = field(default_factory=list)  # were confirmed before
    waiting: list[Instance] = field(default_factory=list)  # have waited long enough, on a host that does not answer
    unsure: list[Instance] = field(default_factory=list)  # are confirmed, on a host that does not answer
    left: dict[str, str] = field(default_factory=dict)  # uuid -> the host that it left, and that is to be cleaned
    vm_states: dict[str, str] = field(default_factory=dict)  # uuid -> what it is now


def confirm(tx: Transaction, selection: Selection, window: float = 0.0) -> Confirmed:
    """Confirm the selected instances: all of them, or with an error none.

    :arg window: without a selection: those that have waited for so many seconds, on hosts that answer; a lock does not keep them from it, as
        in Nova, where the new host does this. 0: none.
    :raises BootflowError: see operation.begin(). :raises InstanceInvalidState: nobody knows whether its host has the guest of one of them; or one
        that is not named is on a host that does not answer.
    """
    if selection.is_empty and window > 0:
        due = _waiting_longer(tx, window)
        away = silent_hosts(tx)
        done = _confirm_entered(tx, [r for r in due if r.host not in away])
        done.waiting = [r for r in due if r.host in away]
        return done
    rows = operation.select(tx, selection)
    operation.refuse_unknown(tx, rows, selection)
    unchanged = select_ended(tx, rows, moves.CONFIRMED)
    entered = operation.enter(tx, CONFIRM, [r for r in rows if r not in unchanged]).rows
    _check_reported(entered)
    away = silent_hosts(tx) if entered else set()
    unsure = [r for r in entered if r.host in away]
    if not selection.is_by_name:
        operation.refuse([_host_down_error(r) for r in unsure])
    done = _confirm_entered(tx, entered, begun=True)
    done.unchanged, done.unsure = unchanged, unsure
    return done


def hosts_to_ask(tx: Transaction, selection: Selection, window: float) -> list[str]:
    """The hosts of those that are to be confirmed, where they were not heard of lately. One that died since has nothing to confirm: the former host
    has all that there is. So it is where the ledger was restored from a backup, and the move was reverted meanwhile.
    source: Nova's task, which runs on the new host
    """
    if selection.is_empty and window <= 0:
        return []
    rows = (
        _waiting_longer(tx, window, lock=False) if selection.is_empty else operation.select(tx, selection, lock=False)
    )
    hosts = {str(r.host) for r in rows if r.vm_state == states.RESIZED} - nodes.forced_down(tx)
    return nodes.stale_hosts(tx, sorted(hosts), SURE)


def silent_hosts(tx: Transaction) -> set[str]:
    """The hosts that did not answer last time, or are forced down. What is there may be lost, so that nobody but a person gives up what the
    former host of a move has.
    """
    found = nodes.rows(tx, ("host", "forced_down", "unreachable_reason"))
    return {n.host for n in found if n.forced_down or n.unreachable_reason is not None}


def _waiting_longer(tx: Transaction, window: float, lock: bool = True) -> list[Instance]:
    rows = [r for r in instances.select_live(tx, vm_state=states.RESIZED, lock=lock) if r.task_state is None]
    found = ledger_moves.open_of(tx, [r.uuid for r in rows])
    return [r for r in rows if r.uuid in found and found[r.uuid].updated_at <= tx.now - window and is_reported(r)]


def is_reported(row: Instance) -> bool:
    """Whether its host has said that it has the guest. Else a revert may have removed it, whose answer was lost: only the former host has it then."""
    return row.power_state != states.NOSTATE


def _check_reported(rows: t.Sequence[Instance]) -> None:
    """:raises InstanceInvalidState: of one of them nobody knows whether its new host has it."""
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
    return errors.InstanceInvalidState(
        message="Cannot '%s' instance %s: %s, where it is now, is down" % (CONFIRM.called, row.uuid, row.host),
        remedy="The former host may have the only copy of the instance's disks: bootflow.compute.revert_resize brings the instance back there. To"
        " give that copy up, name the instance.",
    )


def _confirm_entered(tx: Transaction, rows: t.Sequence[Instance], begun: bool = False) -> Confirmed:
    """:arg begun: their beginning is in the journal"""
    found = ledger_moves.open_of(tx, [r.uuid for r in rows])
    refuse_without_move(rows, found, CONFIRM)
    if not begun:
        operation.start(tx, CONFIRM, rows)
    done = Confirmed(rows=list(rows))
    notify = tx.context.notify_on_state_change
    done.left = {r.uuid: found[r.uuid].source_compute for r in rows}
    done.vm_states = {r.uuid: states.STOPPED if r.power_state in OFF else states.ACTIVE for r in rows}
    cleanups.add(tx, *(_cleanup_due(r, found[r.uuid]) for r in rows))
    for vm_state in sorted(set(done.vm_states.values())):
        mine = [uuid for uuid, its in done.vm_states.items() if its == vm_state]
        instances.swap(tx, mine, [None], None, notify, vm_state=vm_state)
    ledger_moves.apply(tx, list(found.values()), move_life.CONFIRMED)
    history.add_events(tx, [(r.uuid, r.host) for r in rows], CONFIRM.name, history.SUCCESS)
    operation.close(tx, CONFIRM, {r.uuid: r.host for r in rows})
    return done


def _cleanup_due(row: Instance, move: MoveRow) -> cleanups.Due:
    part, reason = cleanups.ALL, "it went to %s" % move.dest_compute
    if ledger_moves.is_same_host_resize(move):
        part, reason = cleanups.OLD, "it was resized there"
    return cleanups.Due(move.source_compute, row.uuid, row.domain_name, reason, part)
