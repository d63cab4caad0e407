# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The life of a resize or cold migration, or of its revert, in the ledger: from its beginning (cold, revert) to its end, or to the death of its run.

Until the disks have arrived the instance is on its source host, which keeps guest and disks as they are. Then switch() writes the destination, the
flavor, the claim and the addresses in one transaction. A failure before that leaves the instance where it is; a failure afterwards brings it back
(go_back), once the destination has nothing of it.
source: Nova's ComputeManager.resize_instance, finish_resize, revert_resize, and init_host after the death of a run
"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ...core import errors
from ...core.instances import move_life, moves, states
from ...core.instances.move_life import Event
from ...core.instances.verdicts.cold import vm_state_at_source
from ...core.model import Flavor
from ...core.request.image_rules import local_root_gb
from ...ledger.compute import claims, cleanups, history, instances, ports, requests, runs
from ...ledger.compute import moves as ledger_moves
from ...ledger.compute.instances import Instance
from ...ledger.compute.moves import MoveRow
from ...ledger.db.transaction import Transaction
from ..attachments import moving as of_volumes
from ..instances import operation
from ..instances.operation import Operation
from . import local_disks
from .moving_instance import MovingInstance

RESIZE = Operation("resize", "resize")
MIGRATE = Operation("migrate", "resize")
REVERT = Operation("revert_resize", "resize.revert")
#: migration_type -> its operation.
OF_TYPE = {moves.RESIZE: RESIZE, moves.MIGRATION: MIGRATE}

#: The task_states of an instance that moves, or is brought back.
AT_WORK = states.RESIZING


def load(tx: Transaction, uuids: t.Sequence[str], lock: bool = False) -> list[MovingInstance]:
    """Load the instances of ``uuids`` that this run moves, with their moves."""
    rows = instances.select_live(tx, uuids=uuids, run_id=tx.run.id, lock=lock) if uuids else []
    rows = [r for r in rows if r.task_state in AT_WORK]
    open_moves = ledger_moves.open_of(tx, [r.uuid for r in rows])
    return [MovingInstance(r, open_moves[r.uuid]) for r in rows if r.uuid in open_moves]


def ownership_errors(tx: Transaction, uuids: t.Collection[str]) -> dict[str, errors.BootflowError]:
    """Return uuid -> why this run does not move the instance any more.

    :arg uuids: of the instances that load() left out
    """
    return instances.swap_errors(tx, uuids, AT_WORK)


def flavor_names(tx: Transaction, moving: t.Sequence[MovingInstance]) -> dict[str, tuple[str, str]]:
    """Return uuid -> names of the flavors before and after the move; "" where the move does not change the flavor."""
    ids = {m.uuid: (m.move.old_request_spec_id, m.move.new_request_spec_id) for m in moving}
    resized = {spec_id for pair in ids.values() if pair[0] != pair[1] for spec_id in pair}
    names = {i: str(s.spec["flavor"]["name"]) for i, s in requests.specs(tx, resized).items()} if resized else {}
    return {u: (names.get(old, ""), names.get(new, "")) for u, (old, new) in ids.items()}


# --- switch and roll back -----------------------------------------------------------------------------------------------


def switch(tx: Transaction, uuids: t.Sequence[str]) -> list[MovingInstance]:
    """Switch these instances, whose disks have arrived, to their destinations.

    Returns the instances that this run still owns.
    """
    runs.renew(tx)
    moving = [m for m in load(tx, uuids, lock=True) if m.row.task_state == states.RESIZE_MIGRATING]
    _swap_task_state(tx, moving, states.RESIZE_FINISH, through=[states.RESIZE_MIGRATED])
    _relocate(tx, moving, to_new=True)
    ledger_moves.apply(tx, [m.move for m in moving], move_life.SWITCHED)
    sources = {m.uuid: {"host": m.move.source_compute} for m in moving}
    destinations = {m.uuid: {"host": m.move.dest_compute} for m in moving}
    for moment, payloads in (("resize.end", sources), ("finish_resize.start", destinations)):
        history.notify_each(tx, payloads, "compute.instance.%s" % moment)
    return load(tx, [m.uuid for m in moving])


def arrivals_on(tx: Transaction, host: str, uuids: t.Sequence[str]) -> list[str]:
    """Return the instances of ``uuids`` that this run has switched to ``host``, and that it still owns."""
    return [m.uuid for m in load(tx, uuids) if (m.row.host, m.row.task_state) == (host, states.RESIZE_FINISH)]


def roll_back(
    tx: Transaction, uuids: t.Sequence[str], lost_destination: t.Collection[str] = ()
) -> list[MovingInstance]:
    """Bring these instances back to their source hosts, with the flavors that they had. Their destinations have nothing of them.

    :arg lost_destination: instances whose destinations are forced down, and did not answer. Such a host is cleaned when it answers; until then no volume is
        exported to it.
    Returns the instances that this run still owns.
    """
    runs.renew(tx)
    moving = [m for m in load(tx, uuids, lock=True) if m.at_destination]
    owing = [m for m in moving if m.uuid in lost_destination]
    of_volumes.cut_off(tx, [m.uuid for m in owing])  # before any node is locked
    _swap_task_state(tx, moving, states.RESIZE_REVERTING)
    return_to_source(tx, moving)
    reason = "it was brought back while the host did not answer"
    cleanups.add(tx, *(cleanups.Due(m.move.dest_compute, m.uuid, m.row.domain_name, reason) for m in owing))
    claims.release_moves(tx, {(m.move.dest_compute, m.uuid) for m in moving if m not in owing})
    return load(tx, [m.uuid for m in moving])


def return_to_source(tx: Transaction, moving: t.Sequence[MovingInstance]) -> None:
    """Write the source host, the former flavor and the addresses of these locked instances. The claim on the destination is the move's."""
    _relocate(tx, moving, to_new=False)
    ledger_moves.apply(tx, [m.move for m in moving], move_life.BROUGHT_BACK)


def _swap_task_state(
    tx: Transaction, moving: t.Sequence[MovingInstance], task_state: str, through: t.Sequence[str] = ()
) -> None:
    before = sorted({str(m.row.task_state) for m in moving})
    notify = tx.context.notify_on_state_change
    instances.swap(tx, [m.uuid for m in moving], before, None, notify, through, task_state=task_state)


def _relocate(tx: Transaction, moving: t.Sequence[MovingInstance], to_new: bool) -> None:
    """Write host, request and flavor of instances, their local disks, and the owners of their claims and ports.

    :arg to_new: to the destinations; else to the source hosts
    """
    if not moving:
        return
    ids = {m.uuid: m.move.new_request_spec_id if to_new else m.move.old_request_spec_id for m in moving}
    specs = requests.specs(tx, ids.values())
    disks = instances.disks_of(tx, list(ids))
    rows: list[dict[str, t.Any]] = []
    exchanged: dict[str, t.Sequence[local_disks.Disk]] = {}
    for moving_instance in moving:
        spec = specs[ids[moving_instance.uuid]].spec
        flavor = Flavor(**spec["flavor"])
        local = moving_instance.move.new_disks if to_new else moving_instance.move.old_disks
        if local is not None:
            exchanged[moving_instance.uuid] = local
        rows.append(
            {
                "uuid": moving_instance.uuid,
                "host": moving_instance.move.dest_compute if to_new else moving_instance.move.source_compute,
                "node": moving_instance.move.dest_node if to_new else moving_instance.move.source_node,
                "launched_on": moving_instance.move.dest_compute if to_new else moving_instance.move.source_compute,
                "limits": moving_instance.move.dest_limits if to_new else moving_instance.move.source_limits,
                "request_spec_id": ids[moving_instance.uuid],
                "memory_mb": flavor.memory_mb,
                "vcpus": flavor.vcpus,
                "root_gb": local_root_gb(flavor.root_gb, spec["image"], bool(spec.get("is_bfv"))),
                "ephemeral_gb": flavor.ephemeral_gb,
                "swap_mb": flavor.swap,
            }
        )
        # A move that began before moves had these lists.
        for position, disk in enumerate(disks[moving_instance.uuid] if local is None else ()):
            if disk["kind"] == "image" and disk["size_gb"] != flavor.root_gb:
                instances.replace_disk(tx, moving_instance.uuid, position, {**disk, "size_gb": flavor.root_gb})
    local_disks.replace_local_disks(tx, exchanged)
    instances.relocate(tx, rows)
    ports.bind_each(tx, {row["uuid"]: row["host"] for row in rows})
    places = {
        m.uuid: [(m.move.source_compute, m.move.source_node), (m.move.dest_compute, m.move.dest_node)] for m in moving
    }
    claims.exchange(tx, places)


# --- confirm and revert: refusals ---------------------------------------------------------------------------------------


def select_ended(tx: Transaction, rows: t.Sequence[Instance], status: str) -> list[Instance]:
    """Select the instances whose last resize or cold migration ended with ``status``. A rerun leaves them alone.

    The first run may have failed for other instances of the selection, which still wait for it.
    """
    settled = [r for r in rows if r.vm_state != states.RESIZED and r.task_state is None]
    past = ledger_moves.all_of(tx, [r.uuid for r in settled])
    statuses = {u: [m.status for m in row_moves if m.migration_type in OF_TYPE] for u, row_moves in past.items()}
    return [r for r in settled if statuses[r.uuid][-1:] == [status]]


def refuse_without_move(
    rows: t.Sequence[Instance], open_moves: t.Mapping[str, MoveRow], move_operation: Operation
) -> None:
    """Check that the ledger has an open move of each instance.

    :arg open_moves: uuid -> open move
    :raises InstanceInvalidState: it has none of one of them, so nothing tells the source host.
    """
    operation.refuse(
        [
            errors.InstanceInvalidState(
                message="Cannot '%s' instance %s: the ledger has no move of it" % (move_operation.called, row.uuid),
                remedy="Delete it, or restore a backup of the ledger.",
            )
            for row in rows
            if row.uuid not in open_moves
        ]
    )


# --- finish -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Result:
    """The outcome of a move, or of a revert, on the hosts of an instance."""

    power_state: int = states.NOSTATE  # of the guest where the instance is; NOSTATE: not known, unless it is gone
    error: errors.BootflowError | None = None  # why it did not move, or was not brought back
    cleaned: bool = True  # the destination has nothing of an instance that did not move
    domain_missing: bool = False  # the host of the instance is known to have no domain of it


def finish(
    tx: Transaction, move_operation: Operation, results: t.Mapping[str, Result]
) -> dict[str, errors.BootflowError]:
    """Write the outcomes of moves, or of reverts. Returns uuid -> why it failed.

    An instance on the destination is ``resized``. Another one has its former vm_state; it is stopped where its guest is off, and in error where its
    domain is gone.

    :arg move_operation: RESIZE, MIGRATE or REVERT.
    """
    runs.renew(tx)
    moving = {m.uuid: m for m in load(tx, sorted(results), lock=True)}
    of_volumes.release_moved(tx, moving)
    departures = [_departure(m, results[u]) for u, m in moving.items()]
    leave_destinations(tx, [departure for departure in departures if departure is not None])
    end_moves(tx, [_ending(move_operation, m, results[u]) for u, m in moving.items()])
    failed = {u: r.error for u, r in results.items() if r.error is not None and u in moving}
    failed.update(instances.swap_errors(tx, set(results) - set(moving), AT_WORK))
    faults = {u: e for u, e in failed.items() if u in moving}
    hosts = {u: m.row.host for u, m in moving.items()}
    history.add_faults(tx, faults, hosts)
    journal(tx, move_operation, sorted(set(moving) - set(faults)), faults, hosts)
    return failed


def journal(
    tx: Transaction,
    move_operation: Operation,
    done: t.Sequence[str],
    failed: t.Mapping[str, errors.BootflowError],
    hosts: t.Mapping[str, str | None],
) -> None:
    """Close action and event of these instances, and notify of their end.

    :arg done: uuids of the instances for which the operation succeeded. :arg failed: uuid -> why it failed
    :arg hosts: uuid -> host of the instance
    """
    history.finish_events(tx, done, move_operation.name, history.SUCCESS)
    history.fail_events(tx, {u: e.in_full for u, e in failed.items()}, move_operation.name)
    history.finish_actions(tx, done, move_operation.called)
    history.finish_actions(tx, sorted(failed), move_operation.called, history.ERROR)
    ends = {u: {"host": hosts.get(u)} for u in done}
    history.notify_each(
        tx, ends, "compute.instance.%s.end" % ("resize.revert" if move_operation is REVERT else "finish_resize")
    )
    faults = {u: {"host": hosts.get(u), "fault": e.as_dict()} for u, e in failed.items()}
    history.notify_each(tx, faults, "compute.instance.%s.error" % move_operation.notification)


@dataclass(frozen=True)
class Ending:
    """The state in which a move or a revert leaves its instance."""

    moving: MovingInstance
    vm_state: str
    event: Event  # of the move
    power_state: int
    launched: bool = False  # the guest was started on its host by this


def _ending(move_operation: Operation, moving_instance: MovingInstance, result: Result) -> Ending:
    if moving_instance.at_destination:
        event = move_life.REVERT_FAILED if move_operation is REVERT else move_life.ARRIVED
        return Ending(moving_instance, states.RESIZED, event, result.power_state, launched=move_operation is not REVERT)
    vm_state = vm_state_at_source(moving_instance.move.old_vm_state, result.power_state, result.domain_missing)
    event = move_life.REVERTED if move_operation is REVERT else move_life.FAILED
    return Ending(moving_instance, vm_state, event, result.power_state, launched=move_operation is REVERT)


class Departure(t.NamedTuple):
    """An instance that is not on its destination: it never was there, or leaves it."""

    moving: MovingInstance
    cleaned: bool  # the destination has nothing of it
    reason: str  # why it is not there


def _departure(moving_instance: MovingInstance, result: Result) -> Departure | None:
    if moving_instance.at_destination:
        return None
    if moving_instance.row.task_state == states.RESIZE_MIGRATING:
        return Departure(moving_instance, result.cleaned, "its move failed")
    if ledger_moves.is_same_host_resize(moving_instance.move) and not result.cleaned:
        return Departure(moving_instance, False, "it could not be defined again as it was")
    return None


def leave_destinations(tx: Transaction, departures: t.Sequence[Departure]) -> None:
    """Release the claims on destinations that have nothing of these instances. Another destination owes a cleanup, and stays claimed until then."""
    claims.release_moves(tx, {(d.moving.move.dest_compute, d.moving.uuid) for d in departures if d.cleaned})
    cleanups.add(tx, *(_cleanup_due(d.moving, d.reason) for d in departures if not d.cleaned))


def _cleanup_due(moving_instance: MovingInstance, reason: str) -> cleanups.Due:
    """Return the cleanup of a destination. It removes what the host made for the move; of a resize on the instance's own host, the new part."""
    made_for = moving_instance.made_for if moving_instance.part_to_clean == cleanups.ALL else ""
    return cleanups.Due(
        moving_instance.move.dest_compute,
        moving_instance.uuid,
        moving_instance.row.domain_name,
        reason,
        moving_instance.part_to_clean,
        made_for,
    )


def end_moves(tx: Transaction, endings: t.Sequence[Ending]) -> None:
    """Write the states in which moves or reverts leave their instances, and end the moves."""
    alike: dict[tuple[t.Any, ...], list[MovingInstance]] = {}
    by_event: dict[str, list[Ending]] = {}
    for ending in endings:
        moving_instance = ending.moving
        alike.setdefault(
            (moving_instance.row.task_state, ending.vm_state, ending.power_state, ending.launched), []
        ).append(moving_instance)
        by_event.setdefault(ending.event.name, []).append(ending)
    for (task_state, vm_state, power_state, launched), group in alike.items():
        values: dict[str, t.Any] = {"vm_state": vm_state, "task_state": None, "power_state": power_state}
        if launched:
            values["launched_at"] = tx.now
        notify = tx.context.notify_on_state_change
        instances.swap(tx, [m.uuid for m in group], [task_state], None, notify, run_id=tx.run.id, **values)
    for same in by_event.values():
        ledger_moves.apply(tx, [ending.moving.move for ending in same], same[0].event)


# --- after the death of a run -------------------------------------------------------------------------------------------

DIED = "the run that moved it died"


def settle_after_crash(tx: Transaction, moving_instance: MovingInstance, power_state: int | None) -> str:
    """Settle the move of a locked instance, or its revert, whose run died. Returns the vm_state of the instance.

    :arg power_state: of the guest on the host of the instance; None: there is no guest
    """
    reverts = moving_instance.row.task_state == states.RESIZE_REVERTING
    move_operation = REVERT if reverts else OF_TYPE[moving_instance.move.migration_type]
    if moving_instance.at_destination and reverts and power_state is None:
        # The destination has been cleaned in part: the instance goes back, and the rest is removed there.
        return_to_source(tx, [moving_instance])
        cleanups.add(
            tx,
            cleanups.Due(
                moving_instance.move.dest_compute,
                moving_instance.uuid,
                moving_instance.row.domain_name,
                DIED,
                moving_instance.part_to_clean,
            ),
        )
        vm_state, event = states.STOPPED, move_life.REVERTED
    elif moving_instance.at_destination:
        vm_state, event = states.RESIZED, move_life.REVERT_FAILED if reverts else move_life.ARRIVED
    else:
        vm_state = states.ACTIVE if power_state == states.RUNNING else states.STOPPED
        event = move_life.REVERTED if reverts else move_life.FAILED
        if moving_instance.row.task_state == states.RESIZE_MIGRATING or ledger_moves.is_same_host_resize(
            moving_instance.move
        ):
            leave_destinations(tx, [Departure(moving_instance, cleaned=False, reason=DIED)])
    end_moves(tx, [Ending(moving_instance, vm_state, event, states.NOSTATE if power_state is None else power_state)])
    remedy = (
        "Confirm it, or revert it."
        if vm_state == states.RESIZED
        else "The instance is %s on its former host." % vm_state
    )
    error = errors.RemoteError(
        reason="run %s died while it did '%s' with instance %s"
        % (moving_instance.row.run_id or "unknown", move_operation.called, moving_instance.uuid),
        remedy=remedy,
    )
    done = reverts and vm_state == moving_instance.move.old_vm_state
    journal(
        tx,
        move_operation,
        [moving_instance.uuid] if done else [],
        {} if done else {moving_instance.uuid: error},
        {moving_instance.uuid: moving_instance.row.host},
    )
    return vm_state
