# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The life of a live migration in the ledger: from its beginning (live) to its end, or to the death of its run; and the interventions of other runs.

Until libvirt says that the migration completed, the instance is on its source host, and the claim on the destination is the move's. switch() then
writes the destination in one transaction, after which the source host owes a cleanup. Nothing brings the instance back then.

A migration continues without the run that began it. As long as it does, nothing is decided, and nothing is started or removed on either host. Only
libvirt knows where the guest is, so the reports of both hosts settle it.
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
POST_THERE, ROLLBACK_THERE = "live_migration.post.dest", "live_migration.rollback.dest"  # of the destination


def load(tx: Transaction, uuids: t.Sequence[str], lock: bool = False) -> list[MovingInstance]:
    """Load the instances of ``uuids`` that this run migrates, with their moves."""
    rows = instances.select_live(tx, uuids=uuids, run_id=tx.run.id, lock=lock) if uuids else []
    rows = [r for r in rows if r.task_state == LIVE_MIGRATE.during]
    open_moves = ledger_moves.open_of(tx, [r.uuid for r in rows])
    return [MovingInstance(r, open_moves[r.uuid]) for r in rows if r.uuid in open_moves]


# --- run and switch -----------------------------------------------------------------------------------------------------


def mark_running(tx: Transaction, uuids: t.Sequence[str]) -> list[str]:
    """Mark the migrations of these instances as running. Returns the instances that this run still owns; no other guest may be migrated."""
    moving = load(tx, uuids, lock=True)
    ledger_moves.apply(tx, [m.move for m in moving], move_life.LEAVING)
    destinations = {m.uuid: {"host": m.move.dest_compute} for m in moving}
    history.notify_each(tx, destinations, "compute.instance.%s.end" % PRE)
    return [m.uuid for m in moving]


def switch(tx: Transaction, uuids: t.Sequence[str], stay: t.Sequence[str] = ()) -> list[MovingInstance]:
    """Switch these instances, whose migrations have completed, to their destinations. Returns the instances that this run still owns.

    :arg stay: instances whose guests are known to stay on their source hosts: the destinations do not need their volumes any more.
    """
    runs.renew(tx)
    moving = load(tx, [*uuids, *stay], lock=True)
    attachments.lock(tx, [m.uuid for m in moving])  # before any node is locked
    migration_attachments.end_on_destination(tx, [m.uuid for m in moving if m.uuid in stay])
    completed = [m for m in moving if m.uuid not in stay]
    for moving_instance in completed:
        switch_instance(tx, moving_instance.row, moving_instance.move)
    return load(tx, [m.uuid for m in completed])


def switch_instance(tx: Transaction, row: Instance, move: MoveRow) -> None:
    """Switch an instance, which is locked with its volumes, to its destination: host, addresses, volumes and claim. Its source host owes a cleanup."""
    if row.host == move.dest_compute:
        return  # its run died after this: a second exchange would give the instance the claim on its source host
    migration_attachments.take_over(tx, [row.uuid])
    reason = "it was migrated live to %s" % move.dest_compute
    cleanups.add(tx, cleanups.Due(move.source_compute, row.uuid, row.domain_name, reason))
    relocate(tx, [(row.uuid, move.dest_compute, move.dest_node, move.dest_limits)])
    ports.follow_leaving(tx, row.uuid, move.source_compute, move.dest_compute)
    nodes = [(move.source_compute, move.source_node), (move.dest_compute, move.dest_node)]
    claims.exchange(tx, {row.uuid: nodes})
    ledger_moves.apply(tx, [move], move_life.SWITCHED)
    for step, host in ((POST, move.source_compute), (POST_THERE, move.dest_compute)):
        history.notify(tx, [row.uuid], "compute.instance.%s.start" % step, {"host": host})


# --- finish -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Result:
    """The outcome of a live migration on the hosts of an instance."""

    power_state: int = states.NOSTATE  # of the guest where the instance is; NOSTATE: not known, unless it is gone
    error: errors.BootflowError | None = None  # why it did not migrate
    cleaned: bool = True  # the destination has nothing of an instance that did not migrate
    domain_missing: bool = False  # the host of the instance is known to have no domain of it


def finish(tx: Transaction, results: t.Mapping[str, Result]) -> dict[str, errors.BootflowError]:
    """Write the outcomes of migrations. Returns uuid -> why it failed.

    An instance keeps its vm_state. It is in ``error`` where the migration failed and its source host has lost the guest.
    """
    runs.renew(tx)
    moving = {m.uuid: m for m in load(tx, sorted(results), lock=True)}
    attachments.lock(tx, moving)  # before any node is locked
    for uuid, moving_instance in sorted(moving.items()):
        result = results[uuid]
        end_migration(
            tx, moving_instance, result.error, result.power_state, result.cleaned, domain_missing=result.domain_missing
        )
    return {
        **{u: r.error for u, r in results.items() if r.error is not None and u in moving},
        **instances.swap_errors(tx, set(results) - set(moving), [LIVE_MIGRATE.during]),
    }


def end_migration(
    tx: Transaction,
    moving_instance: MovingInstance,
    error: errors.BootflowError | None,
    power_state: int,
    cleaned: bool,
    reason: str = "",
    domain_missing: bool = False,
) -> None:
    """End the migration of an instance, which is locked with its volumes, on its present host.

    :arg error: why the instance is still on its source host
    :arg power_state: of the guest; NOSTATE: not known, unless it is ``domain_missing``
    :arg cleaned: the destination has nothing of an instance that did not migrate
    :arg reason: of the cleanup that the destination owes otherwise
    :arg domain_missing: the host of the instance has no domain of it
    """
    completed = moving_instance.at_destination
    event = move_life.ARRIVED
    if not completed:
        migration_attachments.end_on_destination(tx, [moving_instance.uuid])
        aborted = isinstance(error, errors.LiveMigrationAborted)
        event = move_life.ABORTED if aborted else move_life.FAILED
        if cleaned:
            claims.release_moves(tx, {(moving_instance.move.dest_compute, moving_instance.uuid)})
        else:
            reason = reason or "its live migration failed"
            due = cleanups.Due(
                moving_instance.move.dest_compute,
                moving_instance.uuid,
                moving_instance.row.domain_name,
                reason,
                made_for=moving_instance.made_for,
            )
            cleanups.add(tx, due)
    migration_attachments.release(tx, [moving_instance.uuid], {moving_instance.row.run_id, tx.run.id})
    values: dict[str, t.Any] = {"power_state": power_state} if domain_missing or power_state != states.NOSTATE else {}
    if completed:
        values["launched_at"] = tx.now
    elif domain_missing:
        values["vm_state"] = states.ERROR
    notify = tx.context.notify_on_state_change
    instances.swap(
        tx,
        [moving_instance.uuid],
        [moving_instance.row.task_state],
        None,
        notify,
        task_state=None,
        run_id=tx.run.id,
        **values,
    )
    ledger_moves.apply(tx, [moving_instance.move], event)
    _journal(tx, moving_instance, None if completed else error, cleaned)


def _journal(
    tx: Transaction, moving_instance: MovingInstance, error: errors.BootflowError | None, cleaned: bool
) -> None:
    """Close action and event of the migration, and notify of its end.

    :arg error: why the instance did not migrate. :arg cleaned: the destination has nothing of it then
    """
    if error is None:
        history.finish_events(tx, [moving_instance.uuid], LIVE_MIGRATE.name, history.SUCCESS)
        history.finish_actions(tx, [moving_instance.uuid], LIVE_MIGRATE.action)
        for step, host in (
            (POST_THERE, moving_instance.move.dest_compute),
            (POST, moving_instance.move.source_compute),
        ):
            history.notify(tx, [moving_instance.uuid], "compute.instance.%s.end" % step, {"host": host})
        return
    history.add_faults(tx, {moving_instance.uuid: error}, {moving_instance.uuid: moving_instance.row.host})
    history.fail_events(tx, {moving_instance.uuid: error.in_full}, LIVE_MIGRATE.name)
    history.finish_actions(tx, [moving_instance.uuid], LIVE_MIGRATE.action, history.ERROR)
    fault = {moving_instance.uuid: {"host": moving_instance.row.host, "fault": error.as_dict()}}
    history.notify_each(tx, fault, "compute.instance.%s.start" % ROLLBACK)
    for moment in ("start", "end") if cleaned else ():
        destination = {"host": moving_instance.move.dest_compute}
        history.notify(tx, [moving_instance.uuid], "compute.instance.%s.%s" % (ROLLBACK_THERE, moment), destination)
    history.notify_each(tx, fault, "compute.instance.%s.end" % ROLLBACK)


# --- after the death of a run -------------------------------------------------------------------------------------------

DIED = "the run that migrated it died"
_OFF = (SHUTDOWN, CRASHED)
#: A power state in the ledger -> the report of the source host that it stands for until the destination reports: a guest that is off is SHUTDOWN
#: where libvirt knew that it ended there, else CRASHED.
_SOURCE_REPORTS = {SHUTDOWN: Seen(SHUTDOWN, ENDED_HERE), CRASHED: Seen(SHUTDOWN)}


def hosts_to_ask(tx: Transaction) -> set[str]:
    """Return the hosts whose reports would settle migrations of dead runs."""
    return {host for m in _migrations_of_dead_runs(tx) for host in (m.move.source_compute, m.move.dest_compute)}


def _migrations_of_dead_runs(tx: Transaction, host: str | None = None) -> list[MovingInstance]:
    """Return the instances whose migrations dead runs left: from or to ``host``, or all."""
    rows = instances.in_task_states(tx, [str(LIVE_MIGRATE.during)])
    dead = runs.dead_among(tx, [r.run_id for r in rows])
    uuids = [r.uuid for r in rows if not r.run_id or r.run_id in dead]
    open_moves = ledger_moves.open_of(tx, uuids)
    uuids = sorted(u for u, m in open_moves.items() if host is None or host in (m.source_compute, m.dest_compute))
    return [MovingInstance(r, open_moves[r.uuid]) for r in instances.select_live(tx, uuids=uuids)] if uuids else []


def settle_after_crash(
    tx: Transaction, host: str, power_states: t.Mapping[str, int], moving: t.Mapping[str, str] | None, asked_at: float
) -> dict[str, str]:
    """Settle the migrations of dead runs from and to ``host``, by its report. Returns uuid -> vm_state of each settled instance.

    :arg power_states: uuid -> power state of the guest; a missing guest does not exist.
    :arg moving: uuid -> one of core.instances.moves.MOVING; None: not known, and all migrations wait.
    :arg asked_at: time at which the host was asked. Rows that were written later are left alone.
    """
    if moving is None:
        return {}
    settled = {}
    unsettled = [m for m in _migrations_of_dead_runs(tx, host) if m.row.updated_at < asked_at]
    uuids = [m.uuid for m in unsettled]
    rows = {r.uuid: r for r in instances.select_live(tx, uuids=uuids, lock=True)} if uuids else {}
    attachments.lock(tx, rows)  # before any node is locked
    for moving_instance in unsettled:
        row = rows.get(moving_instance.uuid)
        if row is None or (row.run_id, row.updated_at) != (moving_instance.row.run_id, moving_instance.row.updated_at):
            continue  # another run was faster
        if not moving_instance.is_consistent:
            continue  # the audit names it
        seen = Seen(power_states.get(moving_instance.uuid), moving.get(moving_instance.uuid, ""))
        on_source: Seen | None = seen
        on_destination: Seen | None = None
        if host != moving_instance.move.source_compute:
            on_source, on_destination = _SOURCE_REPORTS.get(moving_instance.row.power_state), seen
        elif seen.power_state in _OFF or seen.power_state is None:  # kept for the report of the destination
            instances.write(tx, [moving_instance.uuid], power_state=SHUTDOWN if seen.moving == ENDED_HERE else CRASHED)
        completed = migration_completed(on_source, on_destination)
        if completed is not None:
            _end_after_crash(
                tx,
                moving_instance,
                completed,
                seen if (host == moving_instance.move.dest_compute) == completed else None,
            )
            stays_on = completed or on_source is None or on_source.goes_on
            settled[moving_instance.uuid] = moving_instance.row.vm_state if stays_on else states.STOPPED
    return settled


def _end_after_crash(tx: Transaction, moving_instance: MovingInstance, completed: bool, seen: Seen | None) -> None:
    """End the migration of a dead run.

    :arg completed: whether the guest is on the destination
    :arg seen: the guest, if the host that has it is the host that reported
    """
    if completed:
        switch_instance(tx, moving_instance.row, moving_instance.move)
        moving_instance = MovingInstance(
            instances.select_live(tx, uuids=[moving_instance.uuid])[0], moving_instance.move
        )
    power_state = states.NOSTATE if seen is None or seen.power_state is None else seen.power_state
    off = not completed and (seen is None or not seen.goes_on)
    remedy = "The instance is on %s." % (
        moving_instance.move.dest_compute if completed else moving_instance.move.source_compute
    )
    error = errors.RemoteError(
        reason="run %s died while it did '%s' with instance %s"
        % (moving_instance.row.run_id or "unknown", LIVE_MIGRATE.called, moving_instance.uuid),
        remedy=remedy + (" Start it." if off else ""),
    )
    end_migration(tx, moving_instance, error, SHUTDOWN if off else power_state, cleaned=False, reason=DIED)
    if off:
        notify = tx.context.notify_on_state_change
        instances.swap(tx, [moving_instance.uuid], [None], None, notify, vm_state=states.STOPPED)


# --- interventions of other runs ----------------------------------------------------------------------------------------

ABORT = Operation("live_migrate_abort", "live.migration.abort")
FORCE_COMPLETE = Operation("live_migrate_force_complete", "live.migration.force.complete")
#: operation -> its name in Nova's messages
METHODS = {ABORT.name: "abort live migration", FORCE_COMPLETE.name: "force complete"}
#: playbook -> its operation
INTERVENTIONS = {"live_migration_abort": ABORT, "live_migration_force_complete": FORCE_COMPLETE}


def running_migrations(tx: Transaction, intervention: Operation, selection: Selection) -> list[MovingInstance]:
    """Return the selected instances, whose running migrations the operation ``intervention`` is to abort or to complete. Writes nothing.

    :raises InstanceInvalidState, InstanceIsLocked: one does not migrate, or is locked. :raises InstanceNotFound: one is unknown.
    :raises InvalidMigrationState: a migration does not run yet, or is over.
    """
    rows = operation.select(tx, selection, lock=False)
    operation.refuse_unknown(tx, rows, selection)
    open_moves = ledger_moves.open_of(tx, [r.uuid for r in rows])
    refused: list[errors.BootflowError] = []
    for row in rows:
        try:
            launched, locked = row.launched_at is not None, operation.is_locked(tx, row)
            states.check_action(intervention.name, row.vm_state, row.task_state, launched, locked, row.uuid)
            move = open_moves.get(row.uuid)
            status = "none" if move is None else move.status
            if status != moves.RUNNING:
                raise errors.InvalidMigrationState(
                    migration_id=move.id if move is not None else "(none)", instance_uuid=row.uuid, state=status,
                    method=METHODS[intervention.name],
                )  # fmt: skip
        except errors.InstanceIsLocked:
            refused.append(operation.locked_error(row))
        except errors.BootflowError as e:
            refused.append(e)
    operation.refuse(refused)
    return [MovingInstance(r, open_moves[r.uuid]) for r in rows]


def journal_intervention(
    tx: Transaction, intervention: Operation, failed: t.Mapping[str, str], uuids: t.Sequence[str]
) -> None:
    """Journal an intervention in the migrations of these instances. :arg failed: uuid -> why the intervention failed"""
    rows = instances.select_live(tx, uuids=uuids)
    for project in sorted({r.project for r in rows}):
        hosts = {r.uuid: r.host for r in rows if r.project == project}
        history.start_actions(tx, list(hosts), intervention.action, tx.request_id, project, tx.actor)
        history.start_events_on(tx, hosts, intervention.name)
    operation.notify(tx, intervention, {r.uuid: r.host for r in rows}, "start")
    done = {r.uuid: r.host for r in rows if r.uuid not in failed}
    history.finish_events(tx, list(done), intervention.name, history.SUCCESS)
    history.fail_events(tx, failed, intervention.name)
    operation.close(tx, intervention, done, sorted(failed))
