# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Deleting instances completely from any state, also half-built ones.

A delete may begin in any vm_state and any task_state, as in Nova. Where bootflow_reclaim_instance_interval is set, an instance that ever ran
is soft-deleted first: its guest is off, everything else stays until it is restored, deleted by force, or reclaimed.
"""

from __future__ import annotations

import dataclasses
import typing as t
from dataclasses import dataclass, field

from ...core import errors
from ...core.instances import move_life, states
from ...core.volumes import attachment
from ...ledger.compute import claims, cleanups, history, instances, ports, runs
from ...ledger.compute import moves as ledger_moves
from ...ledger.compute.instances import Instance
from ...ledger.db.transaction import Transaction
from ...ledger.storage import attachments, volume_history
from ..attachments import life
from . import cleanup, operation, shelved
from .operation import Operation, Outcome, Selection
from .operations import OPERATIONS

DELETE = Operation("delete", "delete")
SOFT_DELETE = OPERATIONS["soft_delete"]
#: The guest loses its power and its disks. source: Nova's _shutdown_instance
SHUTDOWN = "compute.instance.shutdown.%s"


@dataclass
class Deleting:
    rows: list[Instance] = field(default_factory=list)
    hosts: list[str] = field(default_factory=list)  # hosts that have to remove something, or shut a guest off
    storage_hosts: list[str] = field(default_factory=list)  # that have to end exports, or to delete volumes
    soft_deleted: list[Instance] = field(default_factory=list)  # are soft-deleted, or were already
    volumes: dict[str, list[str]] = field(default_factory=dict)  # uuid -> names of the volumes that are deleted with it


def begin(tx: Transaction, selection: Selection, missing_ok: bool = False, soft: bool = False) -> Deleting:
    """Mark the selected instances as deleting, and find the hosts that have them.

    :arg soft: only soft-delete instances that ever ran. source: Nova's servers API _delete()
    :raises InvalidInput: an empty selection, or a name is in several projects and none is given.
    :raises InstanceNotFound, ProjectNotFound: one of those named does not exist, unless ``missing_ok``.
    :raises InstanceBusy: a live run is deleting one of them.
    :raises InstanceInvalidState: it is unknown which of two hosts has the disks of an instance to soft-delete.
    """
    rows = operation.select(tx, selection, everything="bootflow_delete_all")
    if not missing_ok:
        operation.refuse_unknown(tx, rows, selection)
    to_soft_delete = [r for r in rows if soft and _can_be_kept(r)]
    operation.refuse([_is_between(r) for r in to_soft_delete if r.task_state in _BETWEEN or _is_unseen(r)])
    known = {r.uuid for r in to_soft_delete}
    ended = [r for r in rows if r.uuid not in known]
    operation.enter(tx, DELETE, ended)
    deleting = _marked(tx, ended)
    begun = operation.enter(tx, SOFT_DELETE, to_soft_delete)
    history.start_events_on(tx, {r.uuid: r.host for r in begun.rows}, SOFT_DELETE.name)
    hosts = {r.host for r in begun.rows if r.host is not None} | _end_moves(tx, begun.rows)
    return dataclasses.replace(deleting, hosts=sorted(hosts.union(deleting.hosts)), soft_deleted=to_soft_delete)


def _can_be_kept(row: Instance) -> bool:
    """Whether there is something to restore: it ran, and its deletion has not begun."""
    return row.launched_at is not None and row.host is not None and row.task_state != states.DELETING


#: In these one of its two hosts loses its disks, or its guest, at an unknown moment.
_BETWEEN = (states.RESIZE_REVERTING, states.MIGRATING)


def _is_unseen(row: Instance) -> bool:
    """Whether no host has said to have its guest since its move: where a revert failed halfway, only the former host has its disks."""
    return row.vm_state == states.RESIZED and row.task_state is None and row.power_state == states.NOSTATE


def _is_between(row: Instance) -> errors.InstanceInvalidState:
    """Return the refusal of a soft delete, which cleans the other host of a move: its disks may be the only copy, and nothing could be restored."""
    attr, state = ("task_state", row.task_state) if row.task_state in _BETWEEN else ("vm_state", row.vm_state)
    way = "Wait until that is done; where its run is dead, bootflow.compute.audit settles it."
    if state == states.RESIZED:
        way = (
            "Host %s has not reported the guest since the move: run bootflow.compute.heartbeat, or bootflow.compute.revert_resize."
            % row.host
        )
    error = errors.InstanceInvalidState(
        method=SOFT_DELETE.called, instance_uuid=row.uuid, attr=attr, state=state,
        remedy="%s Or delete it for good: bootflow.compute.force_delete." % way,
    )  # fmt: skip
    error.details[operation.WHOSE] = row.display_name
    return error


def begin_reclaim(tx: Transaction, seconds: float) -> Deleting:
    """Mark those as deleting that were soft-deleted so long ago, but none that a run restored until it died: its guest may run, and its host's
    report tells. A lock does not keep them, as it does not in Nova, where the task is its own.
    source: Nova's ComputeManager._reclaim_queued_deletes()
    """
    runs.renew(tx)
    rows = instances.select_live(tx, vm_state=states.SOFT_DELETED, lock=True)
    due = [r for r in rows if r.deleted_at is not None and r.deleted_at <= tx.now - seconds]
    dead = operation.dead_runs(tx, due)
    due = [r for r in due if r.task_state is None or (r.task_state == states.DELETING and r.run_id in dead)]
    operation.start(tx, DELETE, due)
    return _marked(tx, due)


def _marked(tx: Transaction, rows: list[Instance]) -> Deleting:
    """Return the work that follows for instances that are marked as deleting."""
    uuids = [r.uuid for r in rows]
    volumes, storage_hosts = life.deleted_with(tx, uuids), life.storage_hosts_of(tx, uuids)
    life.end_with_instances(tx, uuids)
    _end_moves(tx, rows)
    hosts = {r.host for r in rows if r.host is not None} | {c.host for c in cleanups.of_instances(tx, uuids)}
    history.notify_each(tx, {r.uuid: {"host": r.host} for r in rows if r.host is not None}, SHUTDOWN % "start")
    return Deleting(rows=rows, hosts=sorted(hosts), storage_hosts=sorted(storage_hosts), volumes=volumes)


def _end_moves(tx: Transaction, rows: t.Sequence[Instance]) -> set[str]:
    """The other host of a move that is not decided has something of the instance too: it is cleaned, as when the move is confirmed. Returns these
    hosts. source: Nova's _confirm_resize_on_deleting
    """
    moves = ledger_moves.open_of(tx, [r.uuid for r in rows])
    due: list[cleanups.Due] = []
    for row in rows:
        move = moves.get(row.uuid)
        for host in {move.source_compute, move.dest_compute} - {row.host} if move is not None else ():
            reason = "it was deleted before its move was decided"
            due.append(cleanups.Due(host, row.uuid, row.domain_name, reason))
        if move is not None and ledger_moves.is_same_host_resize(move):
            is_over = row.host is not None and ledger_moves.is_at_destination(move, row.host, row.request_spec_id)
            part, reason = cleanups.OLD if is_over else cleanups.NEW, "it was deleted before its resize was decided"
            due.append(cleanups.Due(move.dest_compute, row.uuid, row.domain_name, reason, part))
    cleanups.add(tx, *due)
    ledger_moves.apply(tx, list(moves.values()), move_life.DELETED)
    return {d.host for d in due}


def hosts_having(tx: Transaction, rows: t.Sequence[Instance]) -> dict[str, set[str]]:
    """uuid -> the hosts that have something of the instance or of its volumes, or may have: a delete asks all of them."""
    hosts_by_uuid = {r.uuid: {r.host} - {None} for r in rows}
    for due in cleanups.of_instances(tx, list(hosts_by_uuid)):
        hosts_by_uuid[due.instance_uuid].add(due.host)
    for uuid, move in ledger_moves.open_of(tx, list(hosts_by_uuid)).items():
        hosts_by_uuid[uuid] |= {move.source_compute, move.dest_compute}
    for uuid, hosts in life.storage_hosts_by_instance(tx, list(hosts_by_uuid)).items():
        hosts_by_uuid[uuid] |= hosts
    return t.cast("dict[str, set[str]]", hosts_by_uuid)


def strangers_error(hosts: t.Sequence[str]) -> errors.ComputeHostNotFound:
    """Hosts that have something of what is to be deleted are not in the inventory."""
    return errors.ComputeHostNotFound(
        message="Host %s could not be found in the inventory." % ", ".join(hosts),
        remedy="Put the host into the inventory, or delete with bootflow_delete_force: true if it is gone for good.",
    )


def withdraw(tx: Transaction, rows: t.Sequence[Instance], claimed: t.Sequence[str] = ()) -> None:
    """Delete instances at once that no host and no volume has anything of. :arg claimed: instances whose claims end"""
    if not rows:
        return
    operation.enter(tx, DELETE, rows)
    _end(tx, rows, claimed)


def rehearse(tx: Transaction, uuids: t.Sequence[str]) -> None:
    """Check mode: these instances are deleted, as if all their hosts had done their part.

    :raises InstanceIsLocked, InstanceBusy: one of them cannot be.
    """
    rows = instances.select_live(tx, uuids=uuids, lock=True)
    operation.enter(tx, DELETE, rows)
    life.end_with_instances(tx, uuids)
    connected = attachments.select(tx, instance_uuids=uuids)
    life.hosts_cleaned(tx, {(a.attached_host, a.instance_uuid) for a in connected if a.attached_host})
    exported = attachments.select(tx, instance_uuids=uuids)
    life.unexported(tx, [a for a in exported if attachment.UNEXPORTED.admits(a.state)])
    _end(tx, rows, claimed=[r.uuid for r in rows])


def of_host(tx: Transaction, host: str) -> list[dict[str, str]]:
    """Return what this run has to remove on ``host``: [{uuid, name}]."""
    rows = instances.select_live(tx, run_id=tx.run.id, host=host, task_state=states.DELETING)
    wanted = {r.uuid: r.domain_name for r in rows}
    wanted.update({c.instance_uuid: c.domain_name for c in cleanups.of_host(tx, host)})
    return [{"uuid": u, "name": n} for u, n in sorted(wanted.items())]


def plain_by_host(tx: Transaction, deleting: Deleting) -> dict[str, list[dict[str, str]]]:
    """Return of_host() of the hosts where nothing has to be read for it again: their instances have neither volumes nor whole disks, no cleanup is
    pending there, and no guest is shut off.

    What this run deletes changes no more: other runs leave it alone as long as the lease lasts, which is looked at before each command.
    """
    rows = instances.select_live(tx, run_id=tx.run.id, task_state=states.DELETING)
    uuids = [r.uuid for r in rows]
    with_more = {a.instance_uuid for a in attachments.select(tx, instance_uuids=uuids)} | claims.having_disks(tx, uuids)
    others = (
        cleanups.hosts(tx) | {r.host for r in deleting.soft_deleted} | {r.host for r in rows if r.uuid in with_more}
    )
    by_host: dict[str, list[dict[str, str]]] = {}
    for row in rows:
        if row.host is not None and row.host not in others:
            by_host.setdefault(row.host, []).append({"uuid": row.uuid, "name": row.domain_name})
    return {host: sorted(items, key=lambda item: item["uuid"]) for host, items in by_host.items()}


def to_power_off(tx: Transaction, host: str) -> list[dict[str, t.Any]]:
    """The guests on ``host`` that this run soft-deletes: [{uuid, shutdown_timeout}]."""
    rows = instances.select_live(tx, run_id=tx.run.id, host=host, task_state=states.SOFT_DELETING)
    return [{"uuid": r.uuid, **SOFT_DELETE.details(r)} for r in rows]


def journal_unexpected(tx: Transaction, host: str, problems: t.Mapping[str, errors.BootflowError]) -> list[str]:
    """Journal the errors that have a traceback: the finishing stage has the result of a host's task, which people read.

    Returns their instances.
    """
    tracebacks = {uuid: error.in_full for uuid, error in problems.items() if error.details.get("traceback")}
    for details in sorted(set(tracebacks.values())):
        where = [(uuid, host) for uuid in sorted(tracebacks) if tracebacks[uuid] == details]
        history.add_events(tx, where, DELETE.name, history.ERROR, details)
    return sorted(tracebacks)


def removed(
    tx: Transaction,
    done: t.Mapping[str, t.Collection[str]],
    failed: t.Mapping[str, tuple[str, errors.BootflowError]],
    journalled: t.Collection[str] = (),
    powered_off: t.Mapping[str, Outcome] | None = None,
    partly: cleanup.Parts | None = None,
) -> None:
    """Write the results of all hosts' removals in one transaction: claims of removed instances are released.

    :arg done: host -> instances that it has nothing of any more.
    :arg failed: instance -> (host, why it could not be removed there); it stays in task_state deleting, with a fault.
    :arg journalled: the failed ones that journal_unexpected() has journalled.
    :arg powered_off: outcomes of the guests that were soft-deleted. :arg partly: see cleanup.finish(); a run that deletes one of these by now has it
        still to be removed.
    """
    runs.renew(tx)
    operation.finish(tx, SOFT_DELETE, powered_off or {})
    removed_pairs = sorted(
        {(uuid, host) for host, uuids in done.items() for uuid in uuids if (host, uuid) not in (partly or {})}
    )
    rows = instances.select_live(tx, uuids=sorted({uuid for uuid, _host in removed_pairs}), lock=True)
    ended = {r.uuid: r.host for r in rows if (r.uuid, r.host) in removed_pairs and r.task_state == states.DELETING}
    cleanup.finish(tx, done, partly)
    instances.leave_hosts(tx, removed_pairs, states.DELETING)
    history.add_events(tx, removed_pairs, DELETE.name, history.SUCCESS)
    history.notify_each(tx, {uuid: {"host": host} for uuid, host in ended.items()}, SHUTDOWN % "end")
    hosts = {uuid: host for uuid, (host, _error) in failed.items()}
    faults = {uuid: error for uuid, (_host, error) in failed.items()}
    history.add_faults(tx, faults, hosts)
    others = {uuid: error.message for uuid, error in faults.items() if uuid not in journalled}
    history.start_events_on(tx, {uuid: hosts[uuid] for uuid in others}, DELETE.name)
    history.fail_events(tx, others, DELETE.name)


def soft_deleted(tx: Transaction, uuids: t.Sequence[str]) -> tuple[list[Instance], list[dict[str, t.Any]]]:
    """Return, of the instances to soft-delete, (the soft-deleted ones, the others: {name, uuid, host, fault})."""
    rows = instances.select_live(tx, uuids=uuids)
    remaining = [r for r in rows if r.vm_state != states.SOFT_DELETED or r.task_state is not None]
    faults = history.last_faults(tx, [r.uuid for r in remaining])
    problems = [
        {"name": r.display_name, "uuid": r.uuid, "host": r.host, "fault": history.shown_fault(faults.get(r.uuid))}
        for r in remaining
    ]
    return [r for r in rows if r not in remaining], problems


def finish(tx: Transaction, force: bool = False) -> tuple[list[str], list[dict[str, t.Any]]]:
    """Delete the instances that no compute host and no storage host has any more.

    :arg force: also instances whose host did not answer; the host is cleaned when it reports again, and until then
        their claim, addresses and volumes stay taken.
    Returns (deleted names, not deleted: {name, uuid, host, fault}).
    """
    rows = instances.select_live(tx, run_id=tx.run.id, task_state=states.DELETING, lock=True)
    waiting: dict[str, list[str]] = {r.uuid: [r.host] for r in rows if r.host is not None}
    for due in cleanups.of_instances(tx, [r.uuid for r in rows]):
        waiting.setdefault(due.instance_uuid, []).append(due.host)
    exported = attachments.of_instances(tx, [r.uuid for r in rows])
    faults = history.last_faults(tx, sorted(waiting))
    deleted_rows, remaining = [], []
    for row in rows:
        if (row.uuid in waiting or row.uuid in exported) and not force:
            volumes = exported.get(row.uuid, [])
            remaining.append(
                {
                    "name": row.display_name,
                    "uuid": row.uuid,
                    "host": [*waiting.get(row.uuid, ()), *(a.storage_host or a.attached_host for a in volumes)][0],
                    "fault": history.shown_fault(
                        faults.get(row.uuid) or attachments.last_fault(tx, [a.volume_id for a in volumes])
                    ),
                }
            )
            continue
        for host in waiting.get(row.uuid, ()):
            ports.hold(tx, row.uuid, host)
        deleted_rows.append(row)
    reason = "deleted by force while the host did not answer"
    owed = [cleanups.Due(host, r.uuid, r.domain_name, reason) for r in deleted_rows for host in waiting.get(r.uuid, ())]
    cleanups.add(tx, *owed)
    _end(tx, deleted_rows, claimed=[r.uuid for r in deleted_rows if r.uuid not in waiting])
    return [r.display_name for r in deleted_rows], remaining


def volumes_left(tx: Transaction, uuids: t.Collection[str]) -> list[dict[str, t.Any]]:
    """Return the volumes to delete with these deleted instances that are unused, but are there still: {name, id, instance_uuid,
    status, fault}.
    """
    rows = attachments.select(tx, instance_uuids=uuids, on_second_host=False, ended=True) if uuids else []
    rows = [r for r in rows if r.delete_on_termination and r.state is None]
    known = attachments.volumes_of(tx, rows)
    users = attachments.of_volumes(tx, known) if known else {}
    faults = volume_history.last_faults(tx, known) if known else {}
    return [
        {
            "name": known[r.volume_id].name or r.volume_id,
            "id": r.volume_id,
            "instance_uuid": r.instance_uuid,
            "status": known[r.volume_id].status,
            "fault": history.shown_fault(faults.get(r.volume_id)),
        }
        for r in rows
        if r.volume_id in known and r.volume_id not in users
    ]


#: One that was shelved when it was soft-deleted has its image still.
_MAY_BE_SHELVED = (states.SHELVED, states.SHELVED_OFFLOADED, states.SOFT_DELETED)


def _end(tx: Transaction, rows: t.Sequence[Instance], claimed: t.Sequence[str] = ()) -> None:
    """:arg claimed: instances whose claims end."""
    uuids = [r.uuid for r in rows]
    life.release_instances(tx, uuids)
    ports.release(tx, uuids)
    claims.release(tx, claimed)
    instances.bury(tx, uuids)
    shelved.end(tx, [r.uuid for r in rows if r.vm_state in _MAY_BE_SHELVED])  # images are locked last
    history.finish_actions(tx, uuids, "create", "Error")  # of instances deleted during their build
    operation.close(tx, DELETE, {r.uuid: r.host for r in rows})
