# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Operations of dead runs, settled by the report of the instance's host.

Each report of a host ends the task_state of its instances: every boot first asks the hosts with such instances, and
heartbeat and audit ask all. source: Nova's init_host
"""

from __future__ import annotations

import typing as t

from ...core import errors
from ...core.instances import states
from ...ledger.compute import history, instances, runs
from ...ledger.compute.instances import InstanceAtWork
from ...ledger.db.transaction import Transaction
from ..instances import operation, shelved
from ..instances.operations import BY_TASK_STATE, OPERATIONS
from ..moves import live_life
from . import moves
from .dead_runs import MOVING, SETTLED, find_interrupted

# What leads on from the vm_state that is left.
_NEXT = {states.ERROR: "run the same command again", states.RESCUED: "unrescue it"}
#: What the remedy says of an operation that leaves the vm_state, and may have been done.
_SAME = {"revert": "Its root disk is what it was before, or that of the snapshot; run the same command again."}
_REBUILD = OPERATIONS["rebuild"]
_BACKUP = OPERATIONS["incremental_backup"]
_RESCUE = OPERATIONS["rescue"]
_OFFLOAD, _UNSHELVE = OPERATIONS["shelve_offload"], OPERATIONS["unshelve"]
# What a rescue begins in.
_BEFORE_RESCUE = _RESCUE.rule.vm_states or frozenset()


def settle_operations(
    tx: Transaction,
    host: str,
    power_states: t.Mapping[str, int],
    asked_at: float,
    rescued: t.Collection[str] | None = None,
    restarted: bool = False,
    moving: t.Mapping[str, str] | None = None,
    at_work: t.Collection[str] = (),
) -> dict[str, str]:
    """Settle operations of dead runs on ``host``, and rescues without an outcome. Returns uuid -> its vm_state now.

    :arg power_states: of the reported guests; a missing guest does not exist.
    :arg asked_at: when the host was asked: rows written after that are left alone.
    :arg restarted: the host has restarted: an active guest that is off in the middle of its reboot is active still, and is started again.
    :arg moving: of guests that migrate, see live_life.settle_after_crash().
    :arg rescued: uuids of guests whose domains are rescue domains; None: not known, and what depends on it waits.
    :arg at_work: uuids of guests that the module of a dead run still works on: their operations wait.
    """
    migrated = live_life.settle_after_crash(tx, host, power_states, moving, asked_at)
    migrated.update(_settle_rescues(tx, host, rescued or (), power_states, asked_at))
    interrupted = {r.uuid: r for r in find_interrupted(tx, host) if r.updated_at < asked_at and r.uuid not in at_work}
    if not interrupted:
        return migrated
    runs.renew(tx)
    rows = [
        row
        for row in instances.in_task_states(tx, SETTLED, host, uuids=interrupted)
        if (row.run_id, row.updated_at)
        == (interrupted[row.uuid].run_id, interrupted[row.uuid].updated_at)  # no other run was faster
    ]
    settled = moves.settle_after_crash(tx, power_states, [r.uuid for r in rows if r.task_state in MOVING])
    dead_operations = [BY_TASK_STATE[str(row.task_state)] for row in rows if row.task_state not in MOVING]
    if any(dead_operation.rule.makes_image for dead_operation in dead_operations):
        from ..images import dead_images  # few runs die while they make images

        dead_images.end_dead(tx)
    if any(dead_operation is _BACKUP for dead_operation in dead_operations):
        from ..backups import incremental  # few runs die while they make backups

        incremental.end_dead(tx)
    rebuilt = [row.uuid for row in rows if row.task_state == _REBUILD.during]
    if rebuilt:
        from ..volumes import reimage  # few runs die in a rebuild

        reimage.end_left(tx, rebuilt)
    for row in rows:
        if row.task_state in MOVING:
            continue
        dead_operation = BY_TASK_STATE[str(row.task_state)]
        power_state = power_states.get(row.uuid)
        if not states.is_over(dead_operation.name, power_state) or (
            rescued is None and dead_operation.name in states.OF_A_RESCUE
        ):
            continue
        if dead_operation.name == _UNSHELVE.name:
            settled[row.uuid] = _settle_unshelve(tx, row, power_state)
            continue
        is_rescue = row.uuid in (rescued or ())
        settled[row.uuid] = states.settled(dead_operation.name, row.vm_state, power_state, is_rescue, restarted)
        instances.swap(
            tx,
            [row.uuid],
            [dead_operation.during],
            None,
            tx.context.notify_on_state_change,
            vm_state=settled[row.uuid],
            power_state=states.NOSTATE if power_state is None else power_state,
            task_state=None,
            run_id=tx.run.id,
            **(dead_operation.ends(tx.now) if settled[row.uuid] == dead_operation.rule.result else {}),
        )
        done = power_state in states.POWER_STATES_OF.get(dead_operation.rule.result or "", ())
        if dead_operation.name in states.OF_A_RESCUE:
            done = done and settled[row.uuid] == dead_operation.rule.result
        if row.vm_state == dead_operation.rule.result and row.vm_state in (dead_operation.rule.vm_states or ()):
            done = False  # a reboot ends in the state in which it began: nothing tells whether it was done
        if dead_operation.name == _OFFLOAD.name:
            shelved.release_volumes(tx, [row.uuid])
        if done and dead_operation.ends_shelving:
            shelved.end(tx, [row.uuid])
        problem = {} if done else {row.uuid: died_error(dead_operation.called, row, settled[row.uuid])}
        operation.journal(tx, dead_operation, [row.uuid] if done else [], problem, {row.uuid: host})
    return {**settled, **migrated}


def _settle_unshelve(tx: Transaction, row: InstanceAtWork, power_state: int | None) -> str:
    """Settle the unshelve of a dead run. Returns the vm_state of the instance: one without a guest that runs is shelved as before."""
    (instance,) = instances.select_live(tx, uuids=[row.uuid])
    is_active = shelved.settle_after_crash(tx, instance, power_state)
    vm_state = states.ACTIVE if is_active else row.vm_state
    values: dict[str, t.Any] = {"vm_state": vm_state, "power_state": power_state or states.SHUTDOWN}
    if is_active and row.vm_state == states.SHELVED_OFFLOADED:
        values["launched_at"] = tx.now
    on_change = tx.context.notify_on_state_change
    instances.swap(tx, [row.uuid], [_UNSHELVE.during], None, on_change, task_state=None, run_id=tx.run.id, **values)
    problem = {} if is_active else {row.uuid: died_error(_UNSHELVE.called, row, vm_state)}
    operation.journal(tx, _UNSHELVE, [row.uuid] if is_active else [], problem, {row.uuid: row.host})
    return vm_state


def _settle_rescues(
    tx: Transaction, host: str, rescued: t.Collection[str], power_states: t.Mapping[str, int], asked_at: float
) -> dict[str, str]:
    """Settle the rescues that came about on ``host`` though it gave no answer, as settle_operations() does with the rest.

    An instance whose domain is that of a rescue is rescued. It was left as what it was before, and so it could be stopped and
    started with the disk of the rescue, but not be brought back.
    """
    if not rescued:
        return {}
    runs.renew(tx)
    known = instances.powers(tx, uuids=rescued)
    candidates = [
        r
        for r in known
        if (r.host, r.task_state) == (host, None) and r.vm_state in _BEFORE_RESCUE and r.updated_at < asked_at
    ]
    if not candidates:
        return {}
    rows = instances.select_live(tx, uuids=[r.uuid for r in candidates])
    # The image, by which the same rescue has nothing to do.
    noted = history.last_details(tx, [r.uuid for r in rows], _RESCUE.name)
    for row in rows:
        power_state = power_states.get(row.uuid, states.NOSTATE)
        values = {"vm_state": states.RESCUED, "power_state": power_state, **_RESCUE.ends(tx.now)}
        instances.swap(tx, [row.uuid], [None], None, tx.context.notify_on_state_change, **values)
        history.start_actions(tx, [row.uuid], _RESCUE.action, tx.request_id, row.project, tx.actor)
        history.add_events(tx, [(row.uuid, host)], _RESCUE.name, history.SUCCESS, noted.get(row.uuid))
    operation.close(tx, _RESCUE, {r.uuid: r.host for r in rows})
    return dict.fromkeys((r.uuid for r in rows), states.RESCUED)


def died_error(name: str, row: InstanceAtWork, vm_state: str) -> errors.BootflowError:
    return errors.RemoteError(
        reason="run %s died while it did '%s' with instance %s" % (row.run_id or "unknown", name, row.uuid),
        remedy=_SAME.get(name, "The instance is as it was before; run the same command again.")
        if vm_state == row.vm_state
        else "The instance is %s now; %s." % (vm_state, _NEXT.get(vm_state, "start it")),
    )
