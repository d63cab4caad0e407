# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The volumes of instances that go from host to host: taken by the run, disconnected where they were, connected where they are to be.

A volume stays attached meanwhile. It is exported to one host of its instance at a time: only when the former host has disconnected its
target goes, and only then there is one for the next host. The same steps connect volumes again that a fault has left without a connection.
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
from . import life


def refusals(
    tx: Transaction,
    places: t.Mapping[str, str | None],
    down: t.Collection[str] = (),
    inventory: t.Collection[str] | None = None,
) -> dict[str, errors.BootflowError]:
    """uuid -> why the volumes of this instance cannot be taken. Writes nothing.

    :arg places: uuid -> its host. :arg down: hosts that are forced down, and that storage hosts can cut off
    :arg inventory: the hosts that plays reach: others export nothing to another host; None: any host
    """
    of_instances = attachments.of_instances(tx, places)
    rows = [r for group in of_instances.values() for r in group]
    known = attachments.volumes_of(tx, rows)
    others = attachments.of_volumes(tx, known)
    found: dict[str, errors.BootflowError] = {}
    for row in rows:
        if row.instance_uuid in found:
            continue
        volume = known.get(row.volume_id)
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
                attachments.check_not_locked(tx, volume, others[volume.id])
            if row.connection != NONE and row.attached_host not in (places[row.instance_uuid], *down):
                raise errors.InvalidVolume(
                    reason="volume %s is still connected to host %s" % (row.volume_id, row.attached_host),
                    remedy="Bring the host back: it is cleaned when it reports.",
                )
        except errors.BootflowError as e:
            found[row.instance_uuid] = e
    return found


def _check_storage_host(row: Attachment, volume: VolumeRow | None, inventory: t.Collection[str] | None) -> None:
    """:raises MoveNotSupported: no play reaches the storage host of a volume, which alone lets another host in"""
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
    """Take the attachments of these instances into this run, which moves them. Their volumes are locked before any node is."""
    rows = attachments.select(tx, instance_uuids=uuids, attach_statuses=(states.ATTACHED,), lock=True)
    return attachments.apply(tx, rows, attachment.RESUME, run_id=tx.run.id)


def adopt_unconnected(
    tx: Transaction, places: t.Mapping[str, str | None], connectors: life.Connectors, gone: t.Collection[str] = ()
) -> list[str]:
    """Take what a fault has left without a connection, to be connected where these locked instances are. Returns their uuids.

    :arg places: uuid -> its host. :arg gone: those of them whose domains their hosts have lost: where guests log in, only these had the users
    :raises InvalidVolume, VolumeLocked: another host may still be connected, or another run works on it.
    """
    its = attachments.select(tx, instance_uuids=gone, attach_statuses=(states.ATTACHED,)) if gone else []
    left = {
        r.id: r.instance_uuid
        for r in its
        if not connector_type(r.connector).host_logs_in and attachment.QEMU_GONE.admits(r.state)
    }
    lost = sorted({*left.values(), *(r.instance_uuid for r in _unconnected_attachments(tx, places))})
    if not lost:
        return []
    for problem in refusals(tx, {u: places[u] for u in lost}).values():
        raise problem
    rows = attachments.select(tx, instance_uuids=lost, attach_statuses=(states.ATTACHED,), lock=True)
    if left:
        attachments.apply(
            tx, [r for r in rows if r.id in left and attachment.QEMU_GONE.admits(r.state)], attachment.QEMU_GONE
        )
        rows = attachments.select(tx, instance_uuids=lost, attach_statuses=(states.ATTACHED,), lock=True)
    attachments.apply(tx, [r for r in rows if r.connection != DONE], attachment.RESUME, run_id=tx.run.id)
    life.bind_waiting(tx, connectors)
    return lost


def cut_off(tx: Transaction, uuids: t.Iterable[str]) -> None:
    """Give the volumes of these instances up where they may be connected: the instances leave hosts that are forced down. What was to end
    there ends when its storage host is asked next.
    """
    rows = attachments.select(tx, instance_uuids=uuids, connected=True, lock=True)
    attachments.apply(tx, [r for r in rows if attachment.CUT_OFF.admits(r.state)], attachment.CUT_OFF)


def open_exports(tx: Transaction, uuids: t.Iterable[str]) -> dict[str, errors.BootflowError]:
    """uuid -> why another host cannot have the volumes of this instance: a storage host still lets the former one in."""
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
    """These attachments, whose instances are back on hosts that are forced down, are what they were: their storage hosts did not end them."""
    rows = attachments.select(tx, ids=ids, attach_statuses=(states.ATTACHED,), lock=True)
    rows = [r for r in rows if attachment.STILL_ADMITTED.admits(r.state)]
    guests = instances.select_live(tx, uuids=sorted({r.instance_uuid for r in rows})) if rows else []
    ends = {g.uuid: connectors(g.host, nodes.node_facts(tx, g.host, g.node)) for g in guests if instances.is_placed(g)}
    known = attachments.volumes_of(tx, rows)
    values = {r.id: life.bound_to(ends[r.instance_uuid], r, known.get(r.volume_id)) for r in rows}
    attachments.apply(tx, attachments.apply(tx, rows, attachment.BIND_HOST, values), attachment.STILL_ADMITTED)


def rebind_to_current_host(
    tx: Transaction, uuids: t.Iterable[str], connectors: life.Connectors
) -> tuple[list[str], set[str]]:
    """Bind the volumes that this run's instances have left to the hosts where these are now.

    Returns the storage hosts that have to follow, and those of ``uuids`` whose volumes are to be connected.
    """
    life.bind_waiting(tx, connectors)
    lacking = {r.instance_uuid for r in _unconnected_attachments(tx, uuids) if r.run_id == tx.run.id}
    return (storage_hosts(tx) if lacking else []), lacking


def attachments_to_connect(tx: Transaction, host: str, uuids: t.Collection[str]) -> list[Attachment]:
    """What ``host`` has to connect of these instances for this run: it lacks, or may lack, these volumes of their guests."""
    return [r for r in _unconnected_attachments(tx, uuids) if (r.attached_host, r.run_id) == (host, tx.run.id)]


def _unconnected_attachments(tx: Transaction, uuids: t.Iterable[str]) -> list[Attachment]:
    rows = attachments.select(tx, instance_uuids=uuids, attach_statuses=(states.ATTACHED,))
    return [r for r in rows if r.connection != DONE]


def mark_disconnected(tx: Transaction, ids: t.Iterable[str]) -> None:
    """The hosts of these attachments are disconnected. Those that guests have stay attached; those that are to end do so."""
    rows = attachments.select(tx, ids=ids, lock=True)
    attachments.apply(tx, [r for r in rows if r.attach_status == states.ATTACHED], attachment.LEFT_HOST)
    life.disconnected(tx, [r.id for r in rows if r.attach_status != states.ATTACHED])


def release_moved(tx: Transaction, uuids: t.Iterable[str]) -> None:
    """This run's work on the volumes of these instances is over; what is not connected now, their next start connects."""
    rows = attachments.select(tx, instance_uuids=uuids, run_id=tx.run.id, attach_statuses=(states.ATTACHED,))
    attachments.release_ownership(tx, [r.id for r in rows])


def release_after_crash(tx: Transaction, uuids: t.Iterable[str]) -> None:
    """The same after the death of the run that moved these instances."""
    rows = attachments.select(tx, instance_uuids=uuids, attach_statuses=(states.ATTACHED,))
    attachments.release_ownership(tx, [r.id for r in rows])


def storage_hosts(tx: Transaction) -> list[str]:
    """The storage hosts that this run has to ask: for new exports, and for those of former hosts that end."""
    return sorted(attachments.hosts_to_export(tx) | attachments.hosts_to_unexport(tx))
