# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Attaching volumes to existing instances, and detaching them: begun here, done by the hosts, finished here.

Both are operations on instances (operation.py): the engine has the rules of states and the journal. The instance keeps its
task_state, as several may run at once; the run owns the attachments instead. Each is journaled too (volume_events),
so that its end can be reported after any event in between. source: Nova's compute API attach_volume and detach_volume (Queens)
"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field

from ...core import errors
from ...core.disks.block_devices import PlannedDisk, attached_disk, planned_disk
from ...core.disks.disk_names import CONFIG_DRIVE_NAMES, default_bus, free_name
from ...core.instances import states
from ...core.model import BlockDevice, Flavor
from ...core.volumes import attach_rules, attachment
from ...core.volumes import states as volume_states
from ...core.volumes.attachment import DONE, NONE, ON_THE_WAY
from ...core.volumes.pool_hosts import extract_host
from ...ledger.compute import claims, history, instances, moves, nodes, runs
from ...ledger.compute.instances import Instance
from ...ledger.db.transaction import Transaction
from ...ledger.storage import attachments, volume_history, volumes
from ...ledger.storage.attachments import Attachment, Connector
from ..attachments import life, swaps
from ..attachments.life import Connectors
from . import attachment_requests as requests
from . import operation
from .attachment_requests import AttachmentRequest
from .hot_plug import Beginning, Refused
from .operation import Operation

ATTACH = Operation("attach_volume")
DETACH = Operation("detach_volume")
SWAP = Operation("swap_volume")


#: operation -> its notification, which has no beginning. source: Nova's _attach_volume and _detach_volume
NOTIFICATIONS = {ATTACH.name: "volume.attach", DETACH.name: "volume.detach", SWAP.name: "volume_swap"}
Reach = t.Callable[[t.Sequence[str]], object]  # raises where the inventory lacks one of these hosts


@dataclass
class Begun:
    """``rows``: attachments on the way; ``unchanged``: names of volumes that match the request; ``refused``: entries that do not stop the others."""

    rows: list[Attachment] = field(default_factory=list)
    unchanged: list[str] = field(default_factory=list)
    refused: list[Refused[AttachmentRequest]] = field(default_factory=list)
    storage_hosts: list[str] = field(default_factory=list)
    hosts: list[str] = field(default_factory=list)  # compute hosts


# --- begun --------------------------------------------------------------------------------------------------------------


def begin_attach(
    tx: Transaction,
    entries: t.Sequence[t.Mapping[str, t.Any]],
    project: str | None,
    connectors: Connectors,
    cross_az_attach: bool,
    reach: Reach = lambda hosts: None,
) -> Begun:
    """Reserve the volumes for their instances, and resume attachments that a dead run left on the way. What cannot begin now is refused alone.

    :arg entries: bootflow_attachments. :arg connectors: called for the hosts of these instances only.
    :raises InvalidRequest: all errors of all entries, with paths attachments[i], where one is wrong in itself or nothing can begin; nothing
        is written then.
    """
    beginning: Beginning[AttachmentRequest] = Beginning(tx, ATTACH)
    begun = Begun(refused=beginning.refused)
    again: list[Attachment] = []
    new: list[AttachmentRequest] = []
    read = requests.read(tx, entries, project, True, beginning.problems)
    wrong = bool(beginning.problems.errors)
    by_volume = attachments.of_volumes(tx, [r.volume.id for r in read])
    ends: dict[str, Connector] = {}
    names = _Names(tx, [r.instance for r in read])
    beginning.read_runs([r.instance for r in read])
    for request in read:
        guest = request.instance
        with beginning.refusing(guest, request):
            current = _current(_of_guest(by_volume, request))
            swaps.check_not_swapped(tx, [current] if current is not None else [])
            if current is not None and _as_requested(current, request, tx):
                begun.unchanged.append(request.volume.name or request.volume.id)
                continue
            if current is None:
                attachments.check_not_locked(tx, request.volume, by_volume.get(request.volume.id, ()))
                beginning.check(guest)
                _check_rules(tx, request, by_volume.get(request.volume.id, ()), cross_az_attach)
            reach(_hosts_of(request, guest.host))
            if guest.uuid not in ends:
                place = t.cast("tuple[str, str]", (guest.host, guest.node))
                ends[guest.uuid] = connectors(place[0], nodes.node_facts(tx, *place))
            if current is not None:
                again.append(current)
            else:
                request.disk = names.disk(request)
                new.append(request)
    beginning.raise_if_none(not wrong and bool(new or again))
    ids = [_attach(tx, request, cross_az_attach) for request in new]
    _resume(tx, again)
    ids += [a.id for a in again]
    moving = {a.instance_uuid for a in attachments.select(tx, ids=ids)}
    life.bind_hosts(tx, {uuid: end for uuid, end in ends.items() if uuid in moving})
    return journal_begin(tx, ATTACH, begun, ids)


def _hosts_of(request: AttachmentRequest, host: str | None) -> list[str]:
    """Return the hosts that have a part in the request. :arg host: the compute host"""
    pool_host = request.volume.pool_host
    return [h for h in (extract_host(pool_host, "host") if pool_host else None, host) if h]


def refused_attach(
    tx: Transaction,
    wanted: t.Sequence[tuple[Instance, t.Mapping[str, t.Any]]],
    cross_az_attach: bool,
    detached_first: t.Collection[str] = (),
) -> list[errors.BootflowError | None]:
    """Why each of these volumes cannot be attached, for a plan. What the instance's state allows is not looked at, and nothing is locked or
    written.

    :arg wanted: instances with their entries of bootflow_attachments, which have ids. :arg detached_first: ids of volumes.
    """
    named: set[tuple[str, str]] = set()

    def check(
        request: AttachmentRequest, volume_attachments: t.Sequence[Attachment], owned: t.Sequence[Attachment]
    ) -> None:
        volume, uuid = request.volume, request.instance.uuid
        key = (volume.id, uuid if volume.multiattach else "")
        if key in named:
            raise errors.InvalidInput(reason="volume %s is named twice" % (volume.name or volume.id))
        named.add(key)
        current = _current(owned)
        if current is not None:
            _as_requested(current, request, tx)
        elif volume.id not in detached_first:
            attachments.check_not_locked(tx, volume, volume_attachments)
            _check_rules(tx, request, volume_attachments, cross_az_attach)

    return _refusals(tx, wanted, check)


def refused_detach(
    tx: Transaction, wanted: t.Sequence[tuple[Instance, t.Mapping[str, t.Any]]]
) -> list[errors.BootflowError | None]:
    """Return the error of each volume that cannot be detached now, as refused_attach() does for volumes to attach."""
    return _refusals(
        tx, wanted, lambda request, _volume_attachments, owned: owned and _check_detach(tx, request, owned)
    )


def _refusals(
    tx: Transaction,
    wanted: t.Sequence[tuple[Instance, t.Mapping[str, t.Any]]],
    check: t.Callable[[AttachmentRequest, t.Sequence[Attachment], t.Sequence[Attachment]], object],
) -> list[errors.BootflowError | None]:
    """Check each request for a volume that exists. Returns the error of each.

    :arg check: called with a request, all attachments of its volume, and all of its instance
    """
    ids = {str(entry["volume"]) for _guest, entry in wanted}
    rows = {v.id: v for v in volumes.select(tx, ids=ids)} if ids else {}
    by_volume = attachments.of_volumes(tx, sorted(rows))
    refused: list[errors.BootflowError | None] = []
    for guest, entry in wanted:
        refused.append(None)
        if entry["volume"] in rows:
            request = AttachmentRequest("", rows[entry["volume"]], guest, device=entry.get("device"))
            try:
                check(request, by_volume.get(request.volume.id, ()), _of_guest(by_volume, request))
            except errors.BootflowError as e:
                refused[-1] = e
    return refused


def _of_guest(by_volume: t.Mapping[str, t.Sequence[Attachment]], request: AttachmentRequest) -> list[Attachment]:
    """Return the attachments of the volume to the instance of a request, or to any instance, without second ones on target hosts of live migrations."""
    uuid = request.guest.uuid if request.guest is not None else None
    owned = [a for a in by_volume.get(request.volume.id, ()) if a.beside == attachments.OWN]
    return [a for a in owned if uuid in (None, a.instance_uuid)]


def _current(owned: t.Iterable[Attachment]) -> Attachment | None:
    return next((a for a in owned if a.attach_status != volume_states.DETACHED), None)


def _check_rules(
    tx: Transaction, request: AttachmentRequest, volume_attachments: t.Sequence[Attachment], cross_az_attach: bool
) -> None:
    life.check_not_reserved(request.volume, volume_attachments, request.instance.uuid)
    attach_rules.check_attach_to_instance(
        volumes.to_volume(request.volume),
        request.instance.uuid,
        volume_attachments,
        nodes.zone_of(tx, request.instance.host, request.instance.node),
        cross_az_attach,
        request.mode,
        life.check_others(tx, request.volume, request.instance.uuid),
    )


def _as_requested(row: Attachment, request: AttachmentRequest, tx: Transaction) -> bool:
    """Whether the guest already has the volume; False: it is on the way, left by a dead run or by this one.

    :raises InvalidVolume: attached with another device or mode. :raises VolumeLocked: another run is attaching it.
    """
    attachments.check_not_locked(tx, request.volume, [row])
    requested = {"device": request.device and "/dev/" + request.device.replace("/dev/", "", 1), "mode": request.mode}
    has = {"device": row.mountpoint if request.device else None, "mode": row.attach_mode}
    if requested != has:
        raise errors.InvalidVolume(
            reason="volume %s already attached" % request.volume.id,
            remedy="The volume is attached to this instance as %s, %s: detach it first."
            % (row.mountpoint, row.attach_mode),
        )
    return bool(row.attach_status == volume_states.ATTACHED)


class _Names:
    """Free names of disks in a guest."""

    def __init__(self, tx: Transaction, guests: t.Sequence[Instance]):
        uuids = sorted({g.uuid for g in guests})
        self.disks = instances.disks_of(tx, uuids)
        # A revert brings these back.
        self.may_return = {u: m.old_disks or [] for u, m in moves.open_of(tx, uuids).items()}
        self.allocations = claims.allocations_of(tx, uuids)
        self.used_names: dict[str, set[str]] = {}

    def disk(self, request: AttachmentRequest) -> PlannedDisk:
        guest = request.instance
        properties = (guest.spec["image"] or {}).get("properties") or {}
        if guest.uuid not in self.used_names:
            self.used_names[guest.uuid] = self._used_names(guest, properties)
        used_names = self.used_names[guest.uuid]
        bdm = BlockDevice(
            source_type="volume",
            destination_type="volume",
            uuid=request.volume.id,
            volume_size=request.volume.size,
            device_name=request.device,
            disk_bus=request.disk_bus,
            delete_on_termination=request.delete_on_termination,
            tag=request.tag,
        )
        disk = attached_disk(Flavor(**guest.spec["flavor"]), bdm, used_names, properties)
        used_names.add(disk.dev)
        return disk

    def _used_names(self, guest: Instance, properties: t.Mapping[str, t.Any]) -> set[str]:
        """The names of the guest's disks, including those assigned when its domain is written, which thus stay the same."""
        disks = self.disks[guest.uuid] + self.may_return.get(guest.uuid, [])
        names = {planned_disk(d).dev for d in disks}
        for _disk in (self.allocations.get(guest.uuid) or {}).get("disks") or ():
            names.add(free_name(default_bus("disk", properties), names))
        return names | set(CONFIG_DRIVE_NAMES if guest.config_drive else ())


def _attach(tx: Transaction, request: AttachmentRequest, cross_az_attach: bool) -> str:
    disk = t.cast(PlannedDisk, request.disk)
    instances.add_disk(tx, request.instance.uuid, disk.device_name, disk.as_dict())
    return life.reserve(
        tx,
        request.volume,
        request.instance.uuid,
        disk.device_name,
        mode=request.mode,
        delete_on_termination=request.delete_on_termination,
        instance_zone=nodes.zone_of(tx, request.instance.host, request.instance.node),
        cross_az_attach=cross_az_attach,
    )


def begin_detach(
    tx: Transaction,
    entries: t.Sequence[t.Mapping[str, t.Any]],
    project: str | None,
    reach: Reach = lambda hosts: None,
) -> Begun:
    """Mark the volumes as detaching, including volumes that a dead run left half attached or half detached. An entry that cannot begin now is refused alone.

    :arg entries: bootflow_attachments; ``instance`` is required if a volume has several.
    :raises InvalidRequest: see begin_attach().
    """
    beginning: Beginning[AttachmentRequest] = Beginning(tx, DETACH)
    begun = Begun(refused=beginning.refused)
    chosen: list[Attachment] = []
    read = requests.read(tx, entries, project, False, beginning.problems)
    wrong = bool(beginning.problems.errors)
    by_volume = attachments.of_volumes(tx, [r.volume.id for r in read])
    guests = {
        r.uuid: r
        for r in instances.select_live(tx, uuids=sorted({a.instance_uuid for g in by_volume.values() for a in g}))
    }
    disks = instances.disks_of(tx, sorted(guests))
    beginning.read_runs(guests.values())
    transitions = []
    for request in read:
        with beginning.refusing(request.guest, request):
            owned = _of_guest(by_volume, request)
            if not owned:
                begun.unchanged.append(request.volume.name or request.volume.id)
                continue
            row, transition = _check_detach(tx, request, owned)
            swaps.check_not_swapped(tx, [row])
            if row.instance_uuid in guests:  # not deleted by force
                if any(
                    d.get("volume_id") == row.volume_id and d.get("boot_index") == 0 for d in disks[row.instance_uuid]
                ):
                    raise errors.CannotDetachRootVolume()
                beginning.check(guests[row.instance_uuid])
            reach(_hosts_of(request, row.attached_host))
            chosen.append(row)
            transitions.append((request.volume, transition))
    beginning.raise_if_none(not wrong and bool(chosen))
    for volume, transition in transitions:
        if transition is not None:
            volumes.swap(tx, [volume.id], transition.expected, **transition.values)
    resumed = _resume(tx, chosen)
    life.end_alone(tx, [r for r in resumed if r.attach_status in ON_THE_WAY])
    return journal_begin(tx, DETACH, begun, [r.id for r in chosen])


def _check_detach(
    tx: Transaction, request: AttachmentRequest, owned: t.Sequence[Attachment]
) -> tuple[Attachment, volume_states.Transition | None]:
    attachments.check_not_locked(tx, request.volume, owned)
    volume = volumes.to_volume(request.volume)
    row = owned[0]
    if len(owned) == 1 and (row.attach_status != volume_states.ATTACHED or volume.status == volume_states.DETACHING):
        return row, None
    attached_row = attach_rules.check_detach(volume, owned, request.guest.uuid if request.guest is not None else None)
    return attached_row, volume_states.check_begin_detaching(volume)


def _resume(tx: Transaction, rows: t.Sequence[Attachment]) -> list[Attachment]:
    """Continue these in this run."""
    half = [r for r in rows if r.attach_status in ON_THE_WAY]
    others = [r for r in rows if r.attach_status not in ON_THE_WAY]
    attachments.take_ownership(tx, [r.id for r in others])
    return [*attachments.apply(tx, half, attachment.RESUME, run_id=tx.run.id), *others]


def journal_begin(tx: Transaction, plug: Operation, begun: Begun, ids: t.Sequence[str]) -> Begun:
    """Journal the beginning, and collect the hosts involved."""
    begun.rows = _of_ids(tx, ids)
    volume_ids = {r.volume_id for r in begun.rows}
    pool_hosts = {v.pool_host for v in volumes.select(tx, ids=volume_ids)} if volume_ids else set()
    begun.hosts = sorted({r.attached_host for r in begun.rows if r.attached_host})
    begun.storage_hosts = sorted({extract_host(p, "host") for p in pool_hosts if p})
    volume_history.start_changes(tx, [(r.id, r.volume_id, r.attached_host) for r in begun.rows], plug.name)
    guests = {r.instance_uuid for r in begun.rows}
    operation.start(tx, plug, instances.select_live(tx, uuids=sorted(guests)) if guests else [])
    return begun


# --- done by the hosts --------------------------------------------------------------------------------------------------


def to_attach(tx: Transaction, host: str) -> list[Attachment]:
    """Return attachments of this run for compute host ``host`` to connect and attach; without attachments of its builds."""
    rows = [r for r in _of_host(tx, host, volume_states.ATTACHING) if r.export == DONE]
    return swaps.without_pairs(tx, rows)


def to_detach(tx: Transaction, host: str) -> list[Attachment]:
    """Return attachments of this run for ``host`` to detach and disconnect; without attachments of its builds."""
    rows = swaps.without_pairs(tx, _of_host(tx, host, volume_states.ATTACHED, volume_states.DETACHED))
    return [r for r in rows if r.attach_status == volume_states.ATTACHED or r.connection != NONE]


def _of_host(tx: Transaction, host: str, *attach_statuses: str) -> list[Attachment]:
    """Return this run's attachments on a compute host in one of these statuses.

    Without attachments of instances that are being built or deleted, or whose build ended in ERROR.
    """
    rows = attachments.select(
        tx, attached_host=host, run_id=tx.run.id, attach_statuses=attach_statuses, on_second_host=False
    )
    living = _settled(tx, rows)
    return sorted((r for r in rows if r.instance_uuid in living), key=lambda r: (r.instance_uuid, r.id))


def _settled(tx: Transaction, rows: t.Sequence[Attachment]) -> set[str]:
    """The instances that are neither being built nor deleted, and whose build did not end in ERROR."""
    uuids = sorted({r.instance_uuid for r in rows})
    living = instances.select_live(tx, uuids=uuids) if uuids else []
    return {
        r.uuid for r in living if r.vm_state not in (states.BUILDING, states.ERROR) and r.task_state != states.DELETING
    }


def failed(tx: Transaction, failures: t.Mapping[str, errors.BootflowError]) -> None:
    """Enter failures: an attachment ends when its target is gone, and a volume to detach stays in use. {attachment id: why}"""
    rows = attachments.select(tx, ids=failures, run_id=tx.run.id, lock=True)
    faults = [volume_history.Fault(r.volume_id, failures[r.id], r.attached_host) for r in rows]
    volume_history.add_faults(tx, faults)
    volume_history.note_changes(tx, failures)
    swaps.undo(tx, rows)


# --- finished -----------------------------------------------------------------------------------------------------------


def is_done(plug: Operation, row: Attachment) -> bool:
    if plug is DETACH:
        return row.state is None
    return row.state is not None and row.attach_status == volume_states.ATTACHED


def finish(tx: Transaction, plug: Operation) -> tuple[list[dict[str, t.Any]], list[dict[str, t.Any]]]:
    """The results of what this run began: (done, left with their errors). The latter are rolled back."""
    runs.renew(tx)
    events = volume_history.open_changes(tx, plug.name)
    attachments.select(tx, ids=events, lock=True)
    rows = _of_ids(tx, sorted(events))
    ids = sorted({r.volume_id for r in rows})
    names = volumes.names(tx, ids)
    uuids = sorted({r.instance_uuid for r in rows})
    guests = {r.uuid: r for r in instances.select_live(tx, uuids=uuids)} if uuids else {}
    faults = volume_history.last_faults(tx, ids) if ids else {}
    done, unfinished = [], []
    for row in rows:
        reported: dict[str, t.Any] = {
            "volume": names.get(row.volume_id) or row.volume_id,
            "volume_id": row.volume_id,
            "instance": guests[row.instance_uuid].display_name if row.instance_uuid in guests else row.instance_uuid,
            "instance_uuid": row.instance_uuid,
            "device": row.mountpoint,
            "host": row.attached_host,
        }
        fault = faults.get(row.volume_id)
        if is_done(plug, row):
            done.append(reported)
        else:
            recent = fault is not None and fault["created_at"] >= events[row.id].start_time
            unfinished.append({**reported, "error": history.shown_fault(fault) if recent else None})
    ends = {True: history.SUCCESS, False: history.ERROR}
    volume_history.finish_changes(tx, [(events[r.id], ends[is_done(plug, r)]) for r in rows])
    incomplete = {report["instance_uuid"] for report in unfinished}
    ended = {u: guests[u].host if u in guests else None for u in uuids if u not in incomplete}
    operation.close(tx, plug, ended, sorted(incomplete))
    notifications = [
        (report["instance_uuid"], {"host": report["host"], "volume_id": report["volume_id"]}) for report in done
    ]
    history.notify_all(tx, notifications, "compute.instance.%s" % NOTIFICATIONS[plug.name])
    roll_back_and_release(tx, [r for r in rows if r.state is not None and not is_done(plug, r)])
    return done, unfinished


def _of_ids(tx: Transaction, ids: t.Collection[str]) -> list[Attachment]:
    """Attachments, live or ended, by id."""
    rows = attachments.select(tx, ids=ids, ended=True) if ids else []
    return sorted(rows, key=lambda r: r.id)


# --- rolled back --------------------------------------------------------------------------------------------------------


def roll_back_and_release(tx: Transaction, rows: t.Sequence[Attachment]) -> None:
    """End half attached ones, and set half detached ones in use again; the next run that works on their hosts does the rest."""
    rows = swaps.decidable(tx, rows)
    swaps.undo(tx, rows)
    attachments.release_ownership(tx, [r.id for r in rows])


def abandon_attach(tx: Transaction) -> list[str]:
    """End this run's unfinished attachments to existing instances, and their exports. Returns the volumes.

    Called before the storage hosts are asked again, so that a failed run leaves nothing behind.
    """
    rows = swaps.decidable(tx, attachments.not_attached(tx))
    swaps.undo(tx, rows)
    return sorted({r.volume_id for r in rows})


def adopt_stale_detachments(tx: Transaction, words: t.Collection[str]) -> list[Attachment]:
    """Adopt attachments of these volumes (names or ids) that are to end and whose hosts did not answer before.

    Otherwise a volume whose attachment failed because of a host could not be attached when the host is back.
    """
    rows = attachments.stale_detachments(tx, words)
    attachments.take_ownership(tx, [r.id for r in rows])
    return rows


def begun_by_others(tx: Transaction) -> list[Attachment]:
    """Attachments that other runs, dead or live, began to create or to end for existing instances; without swaps that only an answer of their host ends."""
    rows = swaps.without_undecided(tx, attachments.of_other_runs(tx))
    living = _settled(tx, rows)
    return [r for r in rows if r.instance_uuid in living]


def expire(tx: Transaction, rows: t.Sequence[Attachment]) -> None:
    """Settle attachments of ended runs: half attached ones end, half detached ones are in-use again."""
    before = {r.id: r.run_id for r in rows}
    if not before:
        return
    locked = [r for r in attachments.select(tx, ids=before, lock=True) if r.run_id == before[r.id]]
    locked = swaps.decidable(tx, locked)
    roll_back_and_release(tx, _resume(tx, locked))
