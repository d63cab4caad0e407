# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The life of a live migration in the ledger: from its beginning (live) to its end, or to the death of its run; and the interventions of other runs.

Until libvirt says that the migration completed, the instance is on its source host, and the claim on the destination is the move's. switch() then
writes the destination in one transaction, after which the source host owes a cleanup. Nothing brings the instance back then.

A migration goes on without the run that began it. As long as it does, nothing is decided, and nothing is started or removed on either host. libvirt
alone knows where the guest is, so the reports of both hosts settle it.
source: Nova's ComputeManager.live_migration
"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ...core import errors
from ...core.instances import move_life, moves, states
from ...core.instances.moves import ENDED_HERE, Seen, migration_completed
from ...core.instances.power_states import CRASHED, SHUTDOWN
from ...ledger.compute import claims, cleanups, history, instances, ports, runs
from ...ledger.compute import moves as ledger_moves
from ...ledger.compute.instances import Instance
from ...ledger.compute.moves import MoveRow
from ...ledger.db.transaction import Transaction
from ...ledger.storage import attachments
from ..attachments import migration_attachments
from ..instances import operation
from ..instances.operation import Operation, Selection
from .moving_instance import MovingInstance, relocate

LIVE_MIGRATE = Operation("live_migrate")
PRE, POST, ROLLBACK = "live_migration.pre", "live_migration._post", "live_migration._rollback"
POST_THERE, ROLLBACK_THERE = "live_migration.post.dest", "live_migration.rollback.dest"  # of the new host


def load(tx: Transaction, uuids: t.Sequence[str], lock: bool = False) -> list[MovingInstance]:
    """Those of these instances that migrate in this run."""
    rows = instances.select_live(tx, uuids=uuids, run_id=tx.run.id, lock=lock) if uuids else []
    rows = [r for r in rows if r.task_state == LIVE_MIGRATE.during]
    found = ledger_moves.open_of(tx, [r.uuid for r in rows])
    return [MovingInstance(r, found[r.uuid]) for r in rows if r.uuid in found]


# --- over ---------------------------------------------------------------------------------------------------------------


def mark_running(tx: Transaction, uuids: t.Sequence[str]) -> list[str]:
    """The guests of these instances begin to move. Returns those that are still this run's: no other may."""
    moving = load(tx, uuids, lock=True)
    ledger_moves.apply(tx, [m.move for m in moving], move_life.LEAVING)
    told = {m.uuid: {"host": m.move.dest_compute} for m in moving}
    history.notify_each(tx, told, "compute.instance.%s.end" % PRE)
    return [m.uuid for m in moving]


def switch(tx: Transaction, uuids: t.Sequence[str], stay: t.Sequence[str] = ()) -> list[MovingInstance]:
    """The guests of these instances went over. Returns those that are still this run's.

    :arg stay: those whose guests are known to stay where they are: their new hosts need their volumes no longer.
    """
    runs.renew(tx)
    moving = load(tx, [*uuids, *stay], lock=True)
    attachments.lock(tx, [m.uuid for m in moving])  # before any node is locked
    migration_attachments.end_on_destination(tx, [m.uuid for m in moving if m.uuid in stay])
    over = [m for m in moving if m.uuid not in stay]
    for m in over:
        switch_instance(tx, m.row, m.move)
    return load(tx, [m.uuid for m in over])


def switch_instance(tx: Transaction, row: Instance, move: MoveRow) -> None:
    """This instance, which is locked with its volumes, is on its new host: address, volumes, claim, and what its former host owes."""
    if row.host == move.dest_compute:
        return  # the run that migrated it died after this: a second exchange would give the instance the claim of its source host
    migration_attachments.take_over(tx, [row.uuid])
    reason = "it was migrated live to %s" % move.dest_compute
    cleanups.add(tx, cleanups.Due(move.source_compute, row.uuid, row.domain_name, reason))
    relocate(tx, [(row.uuid, move.dest_compute, move.dest_node, move.dest_limits)])
    ports.follow_leaving(tx, row.uuid, move.source_compute, move.dest_compute)
    between = [(move.source_compute, move.source_node), (move.dest_compute, move.dest_node)]
    claims.exchange(tx, {row.uuid: between})
    ledger_moves.apply(tx, [move], move_life.SWITCHED)
    for what, host in ((POST, move.source_compute), (POST_THERE, move.dest_compute)):
        history.notify(tx, [row.uuid], "compute.instance.%s.start" % what, {"host": host})


# --- finish -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Result:
    """What came of one instance on its hosts."""

    power_state: int = states.NOSTATE  # of the guest where the instance is; NOSTATE: not known, unless it is gone
    error: errors.BootflowError | None = None  # why it did not move
    cleaned: bool = True  # the new host has nothing of it, where it did not move
    gone: bool = False  # the host where it is has no domain of it, which is known


def finish(tx: Transaction, results: t.Mapping[str, Result]) -> dict[str, errors.BootflowError]:
    """Write what came of the migrations. Returns uuid -> why it failed.

    The vm_state is what it was; ``error`` where the migration failed, and the guest is gone from the host where it was.
    """
    runs.renew(tx)
    moving = {m.uuid: m for m in load(tx, sorted(results), lock=True)}
    attachments.lock(tx, moving)  # before any node is locked
    for uuid, m in sorted(moving.items()):
        its = results[uuid]
        end_migration(tx, m, its.error, its.power_state, its.cleaned, gone=its.gone)
    return {
        **{u: its.error for u, its in results.items() if its.error is not None and u in moving},
        **instances.swap_errors(tx, set(results) - set(moving), [LIVE_MIGRATE.during]),
    }


def end_migration(
    tx: Transaction,
    m: MovingInstance,
    error: errors.BootflowError | None,
    power_state: int,
    cleaned: bool,
    reason: str = "",
    gone: bool = False,
) -> None:
    """End the migration of an instance, which is locked with its volumes, where it is now. :arg gone: its host has no domain of it"""
    over = m.row.host == m.move.dest_compute
    event = move_life.ARRIVED
    if not over:
        migration_attachments.end_on_destination(tx, [m.uuid])
        aborted = isinstance(error, errors.LiveMigrationAborted)
        event = move_life.ABORTED if aborted else move_life.FAILED
        if cleaned:
            claims.release_moves(tx, {(m.move.dest_compute, m.uuid)})
        else:
            reason = reason or "its live migration failed"
            due = cleanups.Due(m.move.dest_compute, m.uuid, m.row.domain_name, reason, made_for=m.made_for)
            cleanups.add(tx, due)
    migration_attachments.release(tx, [m.uuid], {m.row.run_id, tx.run.id})
    values: dict[str, t.Any] = {"power_state": power_state} if gone or power_state != states.NOSTATE else {}
    if over:
        values["launched_at"] = tx.now
    elif gone:
        values["vm_state"] = states.ERROR
    notify = tx.context.notify_on_state_change
    instances.swap(tx, [m.uuid], [m.row.task_state], None, notify, task_state=None, run_id=tx.run.id, **values)
    ledger_moves.apply(tx, [m.move], event)
    _journal(tx, m, None if over else error, cleaned)


def _journal(tx: Transaction, m: MovingInstance, error: errors.BootflowError | None, cleaned: bool) -> None:
    """:arg cleaned: the new host has nothing of it, where it did not move"""
    if error is None:
        history.finish_events(tx, [m.uuid], LIVE_MIGRATE.name, history.SUCCESS)
        history.finish_actions(tx, [m.uuid], LIVE_MIGRATE.action)
        for what, host in ((POST_THERE, m.move.dest_compute), (POST, m.move.source_compute)):
            history.notify(tx, [m.uuid], "compute.instance.%s.end" % what, {"host": host})
        return
    history.add_faults(tx, {m.uuid: error}, {m.uuid: m.row.host})
    history.fail_events(tx, {m.uuid: error.in_full}, LIVE_MIGRATE.name)
    history.finish_actions(tx, [m.uuid], LIVE_MIGRATE.action, history.ERROR)
    fault = {m.uuid: {"host": m.row.host, "fault": error.as_dict()}}
    history.notify_each(tx, fault, "compute.instance.%s.start" % ROLLBACK)
    for moment in ("start", "end") if cleaned else ():
        told = {"host": m.move.dest_compute}
        history.notify(tx, [m.uuid], "compute.instance.%s.%s" % (ROLLBACK_THERE, moment), told)
    history.notify_each(tx, fault, "compute.instance.%s.end" % ROLLBACK)


# --- after the death of a run -------------------------------------------------------------------------------------------

DIED = "the run that migrated it died"
_OFF = (SHUTDOWN, CRASHED)
#: What the source said of a guest that is off, kept as the power state until the other host reports: whether it knew that it ended there.
_SAID = {SHUTDOWN: Seen(SHUTDOWN, ENDED_HERE), CRASHED: Seen(SHUTDOWN)}


def hosts_to_ask(tx: Transaction) -> set[str]:
    """The hosts whose reports would settle migrations of dead runs."""
    return {host for m in _migrations_of_dead_runs(tx) for host in (m.move.source_compute, m.move.dest_compute)}


def _migrations_of_dead_runs(tx: Transaction, host: str | None = None) -> list[MovingInstance]:
    """Those from or to ``host``."""
    rows = instances.in_task_states(tx, [str(LIVE_MIGRATE.during)])
    dead = runs.dead_among(tx, [r.run_id for r in rows])
    uuids = [r.uuid for r in rows if not r.run_id or r.run_id in dead]
    found = ledger_moves.open_of(tx, uuids)
    mine = [u for u, m in found.items() if host is None or host in (m.source_compute, m.dest_compute)]
    return [MovingInstance(r, found[r.uuid]) for r in instances.select_live(tx, uuids=sorted(mine))] if mine else []


def settle_after_crash(
    tx: Transaction, host: str, power_states: t.Mapping[str, int], moving: t.Mapping[str, str] | None, asked_at: float
) -> dict[str, str]:
    """Settle the migrations from and to ``host``. Returns uuid -> its vm_state, of those that are settled.

    :arg moving: uuid -> one of core.instances.moves.MOVING; None: not known, and all waits.
    :arg asked_at: when the host was asked: rows written after that are left alone.
    """
    if moving is None:
        return {}
    settled = {}
    left = [m for m in _migrations_of_dead_runs(tx, host) if m.row.updated_at < asked_at]
    rows = {r.uuid: r for r in instances.select_live(tx, uuids=[m.uuid for m in left], lock=True)} if left else {}
    attachments.lock(tx, rows)  # before any node is locked
    for m in left:
        row = rows.get(m.uuid)
        if row is None or (row.run_id, row.updated_at) != (m.row.run_id, m.row.updated_at):
            continue  # another run was faster
        seen = Seen(power_states.get(m.uuid), moving.get(m.uuid, ""))
        here: Seen | None = seen
        there: Seen | None = None
        if host != m.move.source_compute:
            here, there = _SAID.get(m.row.power_state), seen
        elif seen.power_state in _OFF or seen.power_state is None:  # the report of the other host is to know it
            instances.write(tx, [m.uuid], power_state=SHUTDOWN if seen.moving == ENDED_HERE else CRASHED)
        over = migration_completed(here, there)
        if over is not None:
            _end_after_crash(tx, m, over, seen if (host == m.move.dest_compute) == over else None)
            settled[m.uuid] = m.row.vm_state if over or here is None or here.goes_on else states.STOPPED
    return settled


def _end_after_crash(tx: Transaction, m: MovingInstance, over: bool, seen: Seen | None) -> None:
    """:arg seen: the guest on the host where it is, if that is who reported"""
    if over:
        switch_instance(tx, m.row, m.move)
        m = MovingInstance(instances.select_live(tx, uuids=[m.uuid])[0], m.move)
    power_state = states.NOSTATE if seen is None or seen.power_state is None else seen.power_state
    off = not over and (seen is None or not seen.goes_on)
    remedy = "The instance is on %s." % (m.move.dest_compute if over else m.move.source_compute)
    error = errors.RemoteError(
        reason="run %s died while it did '%s' with instance %s"
        % (m.row.run_id or "unknown", LIVE_MIGRATE.called, m.uuid),
        remedy=remedy + (" Start it." if off else ""),
    )
    end_migration(tx, m, error, SHUTDOWN if off else power_state, cleaned=False, reason=DIED)
    if off:
        notify = tx.context.notify_on_state_change
        instances.swap(tx, [m.uuid], [None], None, notify, vm_state=states.STOPPED)


# --- by another run -----------------------------------------------------------------------------------------------------

ABORT = Operation("live_migrate_abort", "live.migration.abort")
FORCE_COMPLETE = Operation("live_migrate_force_complete", "live.migration.force.complete")
#: operation -> how Nova's words call it
METHODS = {ABORT.name: "abort live migration", FORCE_COMPLETE.name: "force complete"}
#: playbook -> its operation
INTERVENTIONS = {"live_migration_abort": ABORT, "live_migration_force_complete": FORCE_COMPLETE}


def running_migrations(tx: Transaction, its: Operation, selection: Selection) -> list[MovingInstance]:
    """The selected instances whose migration is to be ended, or brought to its end, by ``its``. Nothing is written of them.

    :raises InstanceInvalidState, InstanceIsLocked: one does not migrate, or is locked. :raises InstanceNotFound: an unknown one
    :raises InvalidMigrationState: a migration does not run yet, or is over.
    """
    rows = operation.select(tx, selection, lock=False)
    operation.refuse_unknown(tx, rows, selection)
    found = ledger_moves.open_of(tx, [r.uuid for r in rows])
    refused: list[errors.BootflowError] = []
    for row in rows:
        try:
            launched, locked = row.launched_at is not None, operation.is_locked(tx, row)
            states.check_action(its.name, row.vm_state, row.task_state, launched, locked, row.uuid)
            move = found.get(row.uuid)
            status = "none" if move is None else move.status
            if status != moves.RUNNING:
                raise errors.InvalidMigrationState(
                    migration_id=move.id if move is not None else "(none)", instance_uuid=row.uuid, state=status,
                    method=METHODS[its.name],
                )  # fmt: skip
        except errors.InstanceIsLocked:
            refused.append(operation.locked_error(row))
        except errors.BootflowError as e:
            refused.append(e)
    operation.refuse(refused)
    return [MovingInstance(r, found[r.uuid]) for r in rows]


def journal_intervention(tx: Transaction, its: Operation, failed: t.Mapping[str, str], uuids: t.Sequence[str]) -> None:
    """Journal what was done about the migrations of these instances. :arg failed: uuid -> why it was not"""
    rows = instances.select_live(tx, uuids=uuids)
    for project in sorted({r.project for r in rows}):
        mine = [r.uuid for r in rows if r.project == project]
        history.start_actions(tx, mine, its.action, tx.request_id, project, tx.actor)
        history.start_events_on(tx, {r.uuid: r.host for r in rows if r.uuid in mine}, its.name)
    operation.notify(tx, its, {r.uuid: r.host for r in rows}, "start")
    done = {r.uuid: r.host for r in rows if r.uuid not in failed}
    history.finish_events(tx, list(done), its.name, history.SUCCESS)
    history.fail_events(tx, failed, its.name)
    operation.close(tx, its, done, sorted(failed))
