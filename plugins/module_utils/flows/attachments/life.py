# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The life of attachments, and the effects of each event on the volume: reserved, bound to a host, connected, ended.

core.volumes.attachment has the table of events; exports has the storage host's part.
source: Cinder's attachments and Nova's block devices (Queens)
"""

from __future__ import annotations

import typing as t

from ...core import errors
from ...core.volumes import attach_rules, attachment, model, names, pool_hosts, states
from ...core.volumes.attachment import DONE, IDLE, NONE, ON_THE_WAY
from ...core.volumes.connectors.registry import CONNECTOR_TYPES
from ...core.volumes.reimage import UNDER_WAY
from ...ledger.compute import history, instances, nodes
from ...ledger.db.transaction import Transaction
from ...ledger.storage import attachments, backends, deletions, volume_history, volumes
from ...ledger.storage.attachments import Attachment, Connector, Reservation
from ...ledger.storage.volumes import VolumeRow

Connectors = t.Callable[[str, t.Mapping[str, t.Any]], Connector]  # of a host, by the facts of its node


# --- reserved -------------------------------------------------------------------------------------------------------


def reserve(
    tx: Transaction,
    volume_row: VolumeRow,
    instance_uuid: str,
    mountpoint: str | None,
    mode: str = "rw",
    delete_on_termination: bool = False,
    instance_zone: str | None = None,
    cross_az_attach: bool = True,
) -> str:
    """Reserve a volume for an instance. Returns the attachment's id.

    A volume that is still being created for this instance becomes attaching when it exists. A volume with multiattach
    may be in use, and reserved for several instances by one run.

    :raises InvalidVolume: not available, already attached to the instance, reserved for another, or in another zone.
    :raises InvalidVolumeAttachMode: an unknown mode, or a read-only volume.
    :raises VolumeLocked: another run works on another attachment of the volume.
    """
    volume_attachments = attachments.of_volumes(tx, [volume_row.id]).get(volume_row.id, [])
    making = volume_row.instance_uuid == instance_uuid and volume_row.status in (states.CREATING, states.DOWNLOADING)
    if not making:
        check_not_reserved(volume_row, volume_attachments, instance_uuid)
        together = check_others(tx, volume_row, instance_uuid)
        transition = attach_rules.check_attach_to_instance(
            volumes.to_volume(volume_row),
            instance_uuid,
            volume_attachments,
            instance_zone,
            cross_az_attach,
            mode,
            together,
        )
        _swap_or_raise(tx, volume_row, transition)
    reservation = Reservation(
        volume_id=volume_row.id,
        instance_uuid=instance_uuid,
        mountpoint=mountpoint,
        delete_on_termination=delete_on_termination,
        mode=mode,
        storage_host=pool_hosts.extract_host(volume_row.pool_host, "host") if volume_row.pool_host else None,
        ready=not making,
    )
    return attachments.reserve(tx, [reservation])[0]


def check_others(tx: Transaction, volume_row: VolumeRow, instance_uuid: str) -> bool:
    """Whether this run works on all attachments of a volume with multiattach that are on the way.

    Only the run that set an attachment's credentials knows them, and one session of a host may serve several attachments,
    so one run at a time works on them. source: Cinder's _attachment_reserve ("contention issues with shared connections")

    :raises VolumeLocked: another run works on one of the attachments.
    :raises InvalidVolume: the volume is still being detached from the same instance.
    :raises VolumeIsBusy: it is being copied.
    """
    _check_not_copied(tx, volume_row)
    if not volume_row.multiattach:
        return False
    rows = attachments.select(tx, volume_ids=[volume_row.id])
    attachments.check_not_locked(tx, volume_row, rows)
    if any(r.instance_uuid == instance_uuid and r.attach_status == states.DETACHED for r in rows):
        raise errors.InvalidVolume(
            reason="volume %s already attached" % volume_row.id,
            remedy="The volume is still being detached from instance %s: wait until that is done." % instance_uuid,
        )
    return all(r.run_id == tx.run.id for r in rows if r.attach_status in ON_THE_WAY)


def _check_not_copied(tx: Transaction, volume_row: VolumeRow) -> None:
    """Check that no copy reads the volume. A thick volume without attachments is copied as it is: a guest that writes meanwhile would spoil the copy. Of
    a thin one, and of one in use, a snapshot is copied.
    """
    if volume_row.status != states.AVAILABLE or not volume_row.pool_host:
        return
    creations = volumes.being_created_from(tx, [volume_row.id])
    rows = volumes.select(tx, ids=[reader for reader, *_more in creations]) if creations else []
    alive = volumes.live_runs(tx, rows)
    names = [r.name or r.id for r in rows if r.run_id in alive]
    if names and not backends.is_thin(tx, volume_row.pool_host):
        raise errors.VolumeIsBusy(
            message="volume %s is being copied to %s" % (volume_row.name or volume_row.id, ", ".join(names)),
            remedy="Wait until that volume has been created.",
        )


def check_not_reserved(
    volume_row: VolumeRow, volume_attachments: t.Sequence[model.Attachment], instance_uuid: str
) -> None:
    """Reject a volume created for another instance, which is available for a moment before it is attaching."""
    for other in volume_attachments:
        if other.instance_uuid != instance_uuid and other.attach_status == states.RESERVED:
            raise errors.InvalidVolume(
                reason="Volume status must be available to reserve, but the status is %s." % states.RESERVED,
                remedy="Volume %s is being created for instance %s." % (volume_row.id, other.instance_uuid),
            )


def _swap_or_raise(tx: Transaction, volume_row: VolumeRow, transition: states.Transition) -> None:
    moved = volumes.swap(tx, [volume_row.id], transition.expected, **transition.values)
    if volume_row.id not in moved:
        raise errors.InvalidVolume(
            reason="Volume status must be available to reserve, but another request took volume %s." % volume_row.id,
            remedy="Choose another volume, or wait until it is available.",
        )


def resume(tx: Transaction, instance_uuids: t.Iterable[str]) -> None:
    """Adopt the attachments of half-built instances, and their volumes that are on the way."""
    rows = attachments.select(
        tx, instance_uuids=instance_uuids, attach_statuses=ON_THE_WAY, on_second_host=False, lock=True
    )
    attachments.apply(tx, rows, attachment.RESUME, run_id=tx.run.id)
    volumes.take_ownership(tx, {r.volume_id for r in rows})


def reserve_again(tx: Transaction, row: Attachment) -> None:
    """Reserve an attachment again that was to end, because its instance is built again.

    :raises InvalidVolume: a host that could not be cleaned may still use the volume.
    """
    if not attachment.RESERVE_AGAIN.admits(row.state):
        raise errors.InvalidVolume(
            reason="volume %s is still connected to host %s" % (row.volume_id, row.attached_host),
            remedy="Bring the host back: it is cleaned when it reports.",
        )
    busy = {"status": (states.DETACHING, states.ATTACHING), "multiattach": (False,)}
    volumes.swap(tx, [row.volume_id], busy, status=states.ATTACHING, run_id=tx.run.id)
    attachments.apply(tx, [row], attachment.RESERVE_AGAIN, run_id=tx.run.id)


# --- bound to a host ------------------------------------------------------------------------------------------------


def bind_waiting(tx: Transaction, connectors: Connectors) -> list[str]:
    """Bind the attachments of this run's instances that have a host now. Returns the instances.

    Scheduling cannot do this: its transaction has locked nodes, and volumes are never locked after nodes. If a run is
    killed in between, the next one binds them here.
    """
    places = attachments.instances_to_bind(tx)
    if not places:
        return []
    known = {where: connectors(where[0], nodes.node_facts(tx, *where)) for where in sorted(set(places.values()))}
    bind_hosts(tx, {uuid: known[where] for uuid, where in places.items()})
    return sorted(places)


def bind_hosts(tx: Transaction, connectors: t.Mapping[str, Connector]) -> None:
    """Bind this run's attachments to the hosts of their instances, which determine the initiators of the exports: those on the way, and those
    of guests that move.

    Volumes that are still connected elsewhere are left alone, and their instances are not ready.
    """
    statuses = (*ON_THE_WAY, states.ATTACHED)
    rows = attachments.select(
        tx, instance_uuids=connectors, run_id=tx.run.id, attach_statuses=statuses, on_second_host=False, lock=True
    )
    rows = [r for r in rows if r.attach_status != states.ATTACHED or r.connection == NONE]
    known = attachments.volumes_of(tx, rows)
    bound, values, again = [], {}, set()
    for row in rows:
        connector = connectors[row.instance_uuid]
        if row.attached_host != connector.host and row.connection != NONE:
            continue
        bound.append(row)
        values[row.id] = bound_to(connector, row, known.get(row.volume_id))
        if row.export == DONE and row.initiator != values[row.id]["initiator"]:
            again.add(row.id)
    bound = attachments.apply(tx, bound, attachment.BIND_HOST, values)
    attachments.apply(tx, [r for r in bound if r.id in again], attachment.EXPORT_AGAIN)
    _into_zones(tx, rows)


def bound_to(connector: Connector, row: Attachment, volume: VolumeRow | None) -> dict[str, str]:
    """Return the fields that an attachment has of the host that it is bound to."""
    initiator = _initiator(connector, row, volume)
    # Of a volume that is exported by its own connector, that is the host's, too.
    kind = str((row.connection_info or {}).get("connector") or connector.kind)
    return {"attached_host": connector.host, "initiator": initiator, "connector": kind}


def _initiator(connector: Connector, row: Attachment, volume: VolumeRow | None) -> str:
    """Return the host's initiator, whose one session serves all guests. Where guests log in, each guest of a shared volume, or of one that two hosts have,
    has its own initiator.
    """
    shared = row.beside != attachments.OWN or (volume is not None and volume.multiattach)
    if shared and not CONNECTOR_TYPES[connector.kind].host_logs_in:
        return names.attachment_initiator(row.id)
    return connector.initiator


def _into_zones(tx: Transaction, rows: t.Sequence[Attachment]) -> None:
    """Put volumes created for an instance into its zone, without cross_az_attach. source: Nova's _get_volume_create_az_value"""
    guests = {r.uuid: r for r in instances.select_live(tx, uuids=sorted({r.instance_uuid for r in rows}))}
    known = attachments.volumes_of(tx, rows)
    zones = nodes.zones(tx)
    for row in rows:
        guest, volume = guests.get(row.instance_uuid), known.get(row.volume_id)
        if guest is None or volume is None or guest.spec.get("cross_az_attach", True):
            continue
        zone = zones.get(guest.host or "")
        if zone and volume.instance_uuid == guest.uuid and not volume.pool_host and volume.availability_zone != zone:
            attachments.set_zone(tx, volume, zone)


def unbind_hosts(tx: Transaction, instance_uuids: t.Iterable[str]) -> None:
    """Unbind builds that go to another host from their clean host; the reservations stay."""
    rows = attachments.select(tx, instance_uuids=instance_uuids, attach_statuses=ON_THE_WAY, connected=False, lock=True)
    attachments.apply(tx, rows, attachment.UNBIND_HOST)


def unbind_lost(tx: Transaction, instance_uuids: t.Iterable[str]) -> None:
    """Unbind instances without a host from lost hosts, which are cut off. The volumes stay attached."""
    rows = attachments.select(
        tx, instance_uuids=instance_uuids, attach_statuses=(states.ATTACHED,), connected=False, lock=True
    )
    attachments.apply(tx, rows, attachment.UNBIND_HOST)


# --- connected -------------------------------------------------------------------------------------------------------


def connecting(tx: Transaction, ids: t.Iterable[str]) -> set[str]:
    """Mark these as connecting. Returns those the host may connect: without those to end, or adopted by another run."""
    rows = attachments.select(tx, ids=ids, run_id=tx.run.id, lock=True)
    rows = [r for r in rows if attachment.CONNECTING.admits(r.state)]
    return {r.id for r in attachments.apply(tx, rows, attachment.CONNECTING)}


def connected(tx: Transaction, paths: t.Mapping[str, str | None]) -> None:
    """Mark these as connected: {id: device path on the host; None if QEMU logs in by itself}."""
    rows = attachments.select(tx, ids=paths, run_id=tx.run.id, lock=True)
    rows = [r for r in rows if attachment.CONNECTED.admits(r.state)]
    attachments.apply(tx, rows, attachment.CONNECTED, {r.id: {"device_path": paths[r.id]} for r in rows})


def attached(
    tx: Transaction, ids: t.Iterable[str], values_by_id: t.Mapping[str, t.Mapping[str, t.Any]] | None = None
) -> None:
    """Mark these as attached, and their volumes as in-use. :arg values_by_id: attachment id -> more columns of it"""
    rows = attachments.select(tx, ids=ids, run_id=tx.run.id, lock=True)
    rows = [r for r in rows if attachment.ATTACHED_TO_GUEST.admits(r.state)]
    if not rows:
        return
    attachments.apply(tx, rows, attachment.ATTACHED_TO_GUEST, values_by_id, attached_at=tx.now)
    volumes.swap(
        tx,
        sorted({r.volume_id for r in rows}),
        {"status": (states.ATTACHING, states.IN_USE)},
        status=states.IN_USE,
        attach_status=states.ATTACHED,
        run_id=None,
        instance_uuid=None,
    )
    details = [(r.volume_id, {"instance_uuid": r.instance_uuid, "mountpoint": r.mountpoint}) for r in rows]
    volume_history.notify_each(tx, details, "volume.attach.end")


def disconnected(tx: Transaction, ids: t.Iterable[str]) -> None:
    """Mark these as disconnected: their targets are to be removed, and attachments that are to end do so.

    A volume that a guest had is detached by this, and stays.
    """
    rows = attachments.select(tx, ids=ids, lock=True)
    attached_rows = _keep_volumes(tx, [r for r in rows if r.attach_status == states.ATTACHED])
    others = [r for r in rows if r.attach_status != states.ATTACHED]
    rows = attachments.apply(tx, [*attached_rows, *others], attachment.DISCONNECTED, run_id=tx.run.id)
    _end(tx, rows)


def hosts_cleaned(tx: Transaction, cleaned: t.Collection[tuple[str, str]]) -> None:
    """The hosts have nothing of these instances, nor of their volumes: exports to them end. {(host, instance's uuid)}"""
    rows = attachments.select(tx, instance_uuids={uuid for _host, uuid in cleaned}, lock=True) if cleaned else []
    rows = [r for r in rows if (r.attached_host, r.instance_uuid) in cleaned]
    attachments.apply(tx, [r for r in rows if attachment.DISCONNECTED.admits(r.state)], attachment.DISCONNECTED)
    attached_rows = [r for r in rows if attachment.LEFT_HOST.admits(r.state)]
    if attached_rows:
        attached_rows = attachments.apply(tx, attached_rows, attachment.LEFT_HOST)
        placed = instances.placed_on(tx, {r.instance_uuid for r in attached_rows})
        attachments.apply(tx, [r for r in attached_rows if r.instance_uuid not in placed], attachment.UNBIND_HOST)


# --- ended -----------------------------------------------------------------------------------------------------------


def end_with_instances(tx: Transaction, instance_uuids: t.Iterable[str]) -> None:
    """End the attachments of ended instances, each as soon as neither host has a part of it.

    Volumes with delete_on_termination are deleted then, unless snapshots or other volumes need them; others become available. A volume of a
    boot that was never placed on a backend is deleted too, because Nova would not have created it.
    """
    rows = attachments.select(tx, instance_uuids=instance_uuids, lock=True)
    if not rows:
        return
    detached = attachments.apply(tx, rows, attachment.DETACH, run_id=tx.run.id)
    volumes.swap(
        tx,
        sorted({r.volume_id for r in rows if r.attach_status == states.ATTACHED}),
        {"status": (states.IN_USE,), "multiattach": (False,)},
        status=states.DETACHING,
    )
    down = nodes.forced_down(tx) if any(r.connection != NONE for r in detached) else set()
    cut_off = attachments.apply(tx, [r for r in detached if _may_never_disconnect(r, down)], attachment.CUT_OFF)
    _end(tx, [*(r for r in detached if r.id not in {c.id for c in cut_off}), *cut_off])


def deleted_with(tx: Transaction, instance_uuids: t.Collection[str]) -> dict[str, list[str]]:
    """uuid -> the names of the volumes that are deleted with the instance, where all of these are. Asked before they are marked."""
    rows = [
        r
        for r in attachments.select(tx, instance_uuids=instance_uuids, on_second_host=False)
        if r.delete_on_termination
    ]
    known = attachments.volumes_of(tx, rows)
    users = attachments.of_volumes(tx, known) if known else {}
    needed = deletions.needed(tx, known)
    volume_names: dict[str, list[str]] = {}
    for row in rows:
        if row.volume_id in needed:
            continue
        if {user.instance_uuid for user in users.get(row.volume_id, ())} <= set(instance_uuids):
            volume_names.setdefault(row.instance_uuid, []).append(known[row.volume_id].name or row.volume_id)
    return {uuid: sorted(names) for uuid, names in volume_names.items()}


def storage_hosts_of(tx: Transaction, instance_uuids: t.Collection[str]) -> set[str]:
    """The storage hosts that have work when these instances go, or go to other hosts: exports to end, or volumes to delete. Asked before they
    are marked as deleting.
    """
    return set().union(*storage_hosts_by_instance(tx, instance_uuids).values())


def storage_hosts_by_instance(tx: Transaction, instance_uuids: t.Collection[str]) -> dict[str, set[str]]:
    """uuid -> its part of storage_hosts_of(); instances without any are left out."""
    rows = attachments.select(tx, instance_uuids=instance_uuids) if instance_uuids else []
    known = attachments.volumes_of(tx, rows)
    storage_hosts: dict[str, set[str]] = {}
    for row in rows:
        volume = known.get(row.volume_id)
        if volume is not None and volume.pool_host and (row.export != NONE or row.delete_on_termination):
            storage_hosts.setdefault(row.instance_uuid, set()).add(volumes.host_of(volume.pool_host))
    return storage_hosts


def cut_off_ended(tx: Transaction, hosts: t.Collection[str]) -> None:
    """These hosts are forced down, and may never disconnect what has ended: their storage hosts cut them off. Called before any node is locked."""
    rows = attachments.select(tx, attach_statuses=(states.DETACHED,), connected=True)
    ids = [r.id for r in rows if r.attached_host in hosts]
    rows = attachments.select(tx, ids=ids, lock=True) if ids else []
    attachments.apply(tx, [r for r in rows if _may_never_disconnect(r, hosts)], attachment.CUT_OFF)


def _may_never_disconnect(row: Attachment, down: t.Collection[str]) -> bool:
    ended = row.attach_status == states.DETACHED and row.attached_host in down
    return ended and attachment.CUT_OFF.admits(row.state)


def end_alone(tx: Transaction, rows: t.Sequence[Attachment]) -> None:
    """End these attachments of existing instances; the volumes stay."""
    _end(tx, _keep_volumes(tx, rows))


def end_beside(tx: Transaction, rows: t.Sequence[Attachment]) -> None:
    """End these attachments of second hosts; the instances have their own."""
    _end(tx, attachments.apply(tx, rows, attachment.DETACH))


def _keep_volumes(tx: Transaction, rows: t.Sequence[Attachment]) -> list[Attachment]:
    """Remove the disks from the instances' block device mappings, without deleting volumes. The disk of a volume that another one was to replace stays."""
    detached = attachments.apply(tx, rows, attachment.DETACH, delete_on_termination=False)
    uuids = {r.instance_uuid for r in rows}
    had = attachments.select(tx, instance_uuids=uuids, attach_statuses=(states.ATTACHED,), on_second_host=False)
    remaining = {(r.instance_uuid, r.mountpoint) for r in had}
    disks = [(r.instance_uuid, r.mountpoint) for r in rows]
    instances.remove_disks(tx, [disk for disk in disks if disk not in remaining])
    return detached


def unexported(tx: Transaction, rows: t.Sequence[Attachment]) -> None:
    """Mark these as unexported. Attachments that are to end do so. No run works any more on volumes of instances without a host."""
    ended = attachments.apply(tx, rows, attachment.UNEXPORTED)
    attachments.release_ownership(
        tx, [r.id for r in ended if r.attach_status == states.ATTACHED and r.attached_host is None]
    )
    _end(tx, ended)


def release_instances(tx: Transaction, instance_uuids: t.Iterable[str]) -> None:
    """Leave the rest of these instances' attachments to the next run that works on their hosts."""
    attachments.release_ownership(tx, [r.id for r in attachments.select(tx, instance_uuids=instance_uuids)])


def _end(tx: Transaction, rows: t.Sequence[Attachment]) -> None:
    """End the attachments that neither host has a part in: their volumes become free, or are deleted."""
    over = attachments.apply(tx, [r for r in rows if r.state == IDLE], attachment.END)
    if not over:
        return
    known = attachments.volumes_of(tx, over)
    ended = [(r, known[r.volume_id]) for r in over if r.volume_id in known]
    details = [(v.id, {"instance_uuid": r.instance_uuid}) for r, v in ended]
    volume_history.notify_each(tx, details, "volume.detach.end")
    # The instance has the volume, with any fate of a second host.
    ended = [(r, v) for r, v in ended if r.beside == attachments.OWN]
    # The instance no longer waits for the volume; a failed creation is tried again with its instance.
    volumes.forget_instance(
        tx, [v.id for r, v in ended if v.instance_uuid == r.instance_uuid and v.status != states.ERROR]
    )
    others = attachments.of_volumes(tx, known)
    free: dict[str, list[str]] = {states.IN_USE: [], states.ATTACHING: [], states.AVAILABLE: []}
    for volume_id in sorted({v.id for _r, v in ended}):
        free[_status_with(others.get(volume_id, ()))].append(volume_id)
    for status, ids in free.items():
        _release(tx, ids, status)  # before the deletion: an attached volume cannot be deleted
    unused = set(free[states.AVAILABLE])
    doomed = {v.id for r, v in ended if v.id in unused and (r.delete_on_termination or _never_placed(v))}
    # As in Nova, where Cinder refuses to delete them: they stay.
    needed = deletions.needed(tx, doomed)
    volume_history.add_events(tx, [(i, None, e.message) for i, e in needed.items()], "delete", history.ERROR)
    volume_history.add_faults(tx, [volume_history.Fault(i, e, None) for i, e in needed.items()])
    if doomed - set(needed):
        deletions.delete(tx, doomed - set(needed))


def _status_with(remaining: t.Collection[Attachment]) -> str:
    """The status of a volume with these remaining attachments."""
    statuses = {r.attach_status for r in remaining} - {states.DETACHED}
    if states.ATTACHED in statuses:
        return states.IN_USE
    return states.ATTACHING if statuses else states.AVAILABLE


def _never_placed(volume: VolumeRow) -> bool:
    return bool(volume.instance_uuid) and volume.status == states.CREATING and not volume.pool_host


def _release(tx: Transaction, ids: t.Sequence[str], status: str) -> None:
    if not ids:
        return
    attach_status = states.ATTACHED if status == states.IN_USE else states.DETACHED
    busy = (states.RESERVED, states.ATTACHING, states.DETACHING, states.IN_USE)
    values: dict[str, t.Any] = {"attach_status": attach_status}
    if status == states.AVAILABLE:
        # One whose extension failed, or is not over, or of which an image is made, is what it was before that, but not attached any more.
        at_work = {"status": (states.EXTENDING, states.ERROR_EXTENDING, states.UPLOADING)}
        volumes.swap(tx, ids, at_work, previous_status=states.AVAILABLE, **values)
        # The content of one that was written again, and is not done, is not known.
        torn = {"attach_status": (states.ATTACHED,)}
        for expected in ({"status": (states.ERROR,)}, {"status": UNDER_WAY, "previous_status": (states.ERROR,)}):
            volumes.swap(
                tx, ids, {**torn, **expected}, status=states.ERROR, previous_status=None, run_id=None, **values
            )
        values["run_id"] = None
    volumes.swap(tx, ids, {"status": busy}, status=status, **values)
