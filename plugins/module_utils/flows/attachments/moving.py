# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The volumes of moving instances: adopted by the run, disconnected from the source host, connected to the destination.

A volume stays attached meanwhile. It is exported to one host of its instance at a time: its target ends when the source host has disconnected, and
only then the destination gets one. The same steps reconnect volumes that a fault left without a connection.
source: Nova's ComputeManager._terminate_volume_connections and _finish_resize
"""

from __future__ import annotations

import typing as t

from ...core import errors
from ...core.volumes import attachment, states
from ...core.volumes.attachment import DONE, ENDING, NONE
from ...core.volumes.connectors.registry import connector_type
from ...ledger.compute import instances, nodes
from ...ledger.db.transaction import Transaction
from ...ledger.storage import attachments, volumes
from ...ledger.storage.attachments import Attachment
from ...ledger.storage.volumes import VolumeRow
from . import life, swaps


def refusals(
    tx: Transaction,
    places: t.Mapping[str, str | None],
    down: t.Collection[str] = (),
    inventory: t.Collection[str] | None = None,
    keeps_old: bool = False,
) -> dict[str, errors.BootflowError]:
    """Return uuid -> why the volumes of this instance cannot be adopted. Writes nothing.

    :arg places: uuid -> host of the instance
    :arg down: hosts that are forced down, and that storage hosts can cut off
    :arg inventory: hosts that plays reach, the storage hosts among them; None: any host
    :arg keeps_old: the caller calls swaps.keep_old() for the instances that it moves
    """
    of_instances = attachments.of_instances(tx, places)
    rows = [r for group in of_instances.values() for r in group]
    volumes_by_id = attachments.volumes_of(tx, rows)
    of_volumes = attachments.of_volumes(tx, volumes_by_id)
    ends = {p.new.id for p in swaps.on_lost_hosts(tx, list(places), down)} if keeps_old else set()
    refused: dict[str, errors.BootflowError] = {
        p.old.instance_uuid: swaps.under_way(p) for p in swaps.open_pairs(tx, list(places)) if p.new.id not in ends
    }
    for row in rows:
        if row.instance_uuid in refused or row.id in ends:
            continue
        volume = volumes_by_id.get(row.volume_id)
        try:
            if row.attach_status == states.DETACHED and (row.connection == NONE or row.attached_host in down):
                continue  # only its target is to go
            if row.attach_status != states.ATTACHED:
                raise errors.InvalidVolume(
                    reason="volume %s of instance %s is %s" % (row.volume_id, row.instance_uuid, row.attach_status),
                    remedy="Wait until the run that attaches or detaches it is over; if it is dead, run bootflow.compute.audit.",
                )
            _check_storage_host(row, volume, inventory)
            if volume is not None:  # one session may serve several guests: one run at a time works on them
                attachments.check_not_locked(tx, volume, of_volumes[volume.id])
            if row.connection != NONE and row.attached_host not in (places[row.instance_uuid], *down):
                raise errors.InvalidVolume(
                    reason="volume %s is still connected to host %s" % (row.volume_id, row.attached_host),
                    remedy="Bring the host back: it is cleaned when it reports.",
                )
        except errors.BootflowError as e:
            refused[row.instance_uuid] = e
    return refused


def _check_storage_host(row: Attachment, volume: VolumeRow | None, inventory: t.Collection[str] | None) -> None:
    """Check that a play reaches the storage host of a volume, which alone can export it to another host.

    :raises MoveNotSupported: no play does.
    """
    if inventory is None or volume is None or not volume.pool_host:
        return
    host = volumes.host_of(volume.pool_host)
    if host not in inventory:
        raise errors.MoveNotSupported(
            instance_uuid=row.instance_uuid,
            reason="its volume %s is on storage host %s, which is not in the inventory" % (volume.id, host),
            remedy="Put that host back into the inventory.",
        )


def adopt(tx: Transaction, uuids: t.Iterable[str]) -> list[Attachment]:
    """Adopt the attachments of instances that this run moves. To be called before any node is locked, as it locks volumes.

    Returns the attachments.
    """
    rows = attachments.select(tx, instance_uuids=uuids, attach_statuses=(states.ATTACHED,), lock=True)
    return attachments.apply(tx, rows, attachment.RESUME, run_id=tx.run.id)


def adopt_attachments(tx: Transaction, ids: t.Collection[str]) -> None:
    """Adopt these attachments, whose volumes are to be disconnected from their hosts, and connected again."""
    rows = attachments.select(tx, ids=ids, attach_statuses=(states.ATTACHED,), lock=True) if ids else []
    attachments.apply(tx, rows, attachment.RESUME, run_id=tx.run.id)


def adopt_unconnected(
    tx: Transaction,
    places: t.Mapping[str, str | None],
    connectors: life.Connectors,
    without_domain: t.Collection[str] = (),
    powered_off: t.Collection[str] = (),
) -> list[str]:
    """Adopt the attachments that a fault left without a connection, to connect them to the hosts of these locked instances.

    :arg places: uuid -> host of the instance
    :arg without_domain: instances whose domains their hosts have lost. A session of QEMU ended with its domain.
    :arg powered_off: instances whose guests are off: their storage host looks at the clients of their volumes, where only that keeps two guests apart
    :raises InvalidVolume, VolumeLocked: another host may still be connected, or another run works on a volume.
    Returns the uuids of the instances that have such attachments.
    """
    attached_rows = (
        attachments.select(tx, instance_uuids=[*without_domain, *powered_off], attach_statuses=(states.ATTACHED,))
        if without_domain or powered_off
        else []
    )
    ended = {
        r.id: r.instance_uuid
        for r in attached_rows
        if attachment.QEMU_GONE.admits(r.state)
        and (
            connector_type(r.connector).is_watched
            or (r.instance_uuid in without_domain and not connector_type(r.connector).host_logs_in)
        )
    }
    uuids = sorted({*ended.values(), *(r.instance_uuid for r in _unconnected_attachments(tx, places))})
    if not uuids:
        return []
    for problem in refusals(tx, {u: places[u] for u in uuids}).values():
        raise problem
    rows = attachments.select(tx, instance_uuids=uuids, attach_statuses=(states.ATTACHED,), lock=True)
    if ended:
        attachments.apply(
            tx, [r for r in rows if r.id in ended and attachment.QEMU_GONE.admits(r.state)], attachment.QEMU_GONE
        )
        rows = attachments.select(tx, instance_uuids=uuids, attach_statuses=(states.ATTACHED,), lock=True)
    attachments.apply(tx, [r for r in rows if r.connection != DONE], attachment.RESUME, run_id=tx.run.id)
    life.bind_waiting(tx, connectors)
    return uuids


def cut_off(tx: Transaction, uuids: t.Iterable[str]) -> None:
    """Cut the volumes of these instances off from hosts that are forced down. Their storage hosts end the exports when they are asked next."""
    rows = attachments.select(tx, instance_uuids=uuids, connected=True, lock=True)
    attachments.apply(tx, [r for r in rows if attachment.CUT_OFF.admits(r.state)], attachment.CUT_OFF)


def open_exports(tx: Transaction, uuids: t.Iterable[str]) -> dict[str, errors.BootflowError]:
    """Return uuid -> why the destination cannot connect the volumes of this instance: they are still exported to the source host."""
    rows = attachments.select(tx, instance_uuids=uuids, run_id=tx.run.id, attach_statuses=(states.ATTACHED,))
    return {
        r.instance_uuid: errors.VolumeBackendAPIException(
            data="storage host %s did not end the export of volume %s to the former host"
            % (r.storage_host, r.volume_id),
            remedy="Bring the storage host back, then run the same command again.",
        )
        for r in rows
        if r.export == ENDING
    }


def restore_to_source_host(tx: Transaction, ids: t.Iterable[str], connectors: life.Connectors) -> None:
    """Restore the attachments that no storage host has cut off, of instances that are back on hosts that are forced down."""
    rows = attachments.select(tx, ids=ids, attach_statuses=(states.ATTACHED,), lock=True)
    rows = [r for r in rows if attachment.STILL_ADMITTED.admits(r.state)]
    guests = instances.select_live(tx, uuids=sorted({r.instance_uuid for r in rows})) if rows else []
    ends = {g.uuid: connectors(g.host, nodes.node_facts(tx, g.host, g.node)) for g in guests if instances.is_placed(g)}
    volumes_by_id = attachments.volumes_of(tx, rows)
    values = {r.id: life.bound_to(ends[r.instance_uuid], r, volumes_by_id.get(r.volume_id)) for r in rows}
    attachments.apply(tx, attachments.apply(tx, rows, attachment.BIND_HOST, values), attachment.STILL_ADMITTED)


def rebind_to_current_host(
    tx: Transaction, uuids: t.Iterable[str], connectors: life.Connectors
) -> tuple[list[str], set[str]]:
    """Bind the disconnected volumes of this run's instances to the hosts where the instances are now.

    Returns the storage hosts to be asked, and the instances of ``uuids`` whose volumes are to be connected.
    """
    life.bind_waiting(tx, connectors)
    unconnected = {r.instance_uuid for r in _unconnected_attachments(tx, uuids) if r.run_id == tx.run.id}
    return (storage_hosts(tx) if unconnected else []), unconnected


def attachments_to_connect(tx: Transaction, host: str, uuids: t.Collection[str]) -> list[Attachment]:
    """Return the attachments of these instances that ``host`` is to connect for this run. It may be connected to some of them."""
    return [r for r in _unconnected_attachments(tx, uuids) if (r.attached_host, r.run_id) == (host, tx.run.id)]


def _unconnected_attachments(tx: Transaction, uuids: t.Iterable[str]) -> list[Attachment]:
    rows = attachments.select(tx, instance_uuids=uuids, attach_statuses=(states.ATTACHED,))
    return [r for r in rows if r.connection != DONE]


def mark_disconnected(tx: Transaction, ids: t.Iterable[str]) -> None:
    """Mark these attachments as disconnected from their hosts. An attached volume stays attached; an attachment that is to end ends."""
    rows = attachments.select(tx, ids=ids, lock=True)
    attachments.apply(tx, [r for r in rows if r.attach_status == states.ATTACHED], attachment.LEFT_HOST)
    life.disconnected(tx, [r.id for r in rows if r.attach_status != states.ATTACHED])


def release_moved(tx: Transaction, uuids: t.Iterable[str]) -> None:
    """Release the attachments of instances that this run moved. Their next start connects the volumes that are not connected."""
    rows = attachments.select(tx, instance_uuids=uuids, run_id=tx.run.id, attach_statuses=(states.ATTACHED,))
    attachments.release_ownership(tx, [r.id for r in rows])


def release_after_crash(tx: Transaction, uuids: t.Iterable[str]) -> None:
    """Release the attachments of these instances, whose run died."""
    rows = attachments.select(tx, instance_uuids=uuids, attach_statuses=(states.ATTACHED,))
    attachments.release_ownership(tx, [r.id for r in rows])


def storage_hosts(tx: Transaction) -> list[str]:
    """Return the storage hosts that this run is to ask: for new exports, and for the end of exports to former hosts."""
    return sorted(attachments.hosts_to_export(tx) | attachments.hosts_to_unexport(tx))
