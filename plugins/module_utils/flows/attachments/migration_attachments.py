# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Volumes of guests that migrate live: for a time an instance has two attachments to each volume, its own and a second one.

Before the migration the second attachment is of the destination: the volume is exported to it, too, and it connects. When the migration has
completed, that attachment is the instance's own, and the one of the source host is the second, until that host is clean. Where the guest stays, the
attachment of the destination ends. No volume needs multiattach for that, as the guest never runs on both hosts.
source: Nova's ComputeManager.pre_live_migration, _post_live_migration and _rollback_live_migration; Cinder's attachments
"""

from __future__ import annotations

import typing as t

from ...core import errors
from ...core.volumes import attachment, pool_hosts, states
from ...core.volumes.attachment import DONE, ON_THE_WAY
from ...ledger.db.transaction import Transaction
from ...ledger.storage import attachments
from ...ledger.storage.attachments import OWN, Attachment, Connector, Reservation
from . import life, moving


def refusals(
    tx: Transaction, places: t.Mapping[str, str | None], inventory: t.Collection[str] | None = None
) -> dict[str, errors.BootflowError]:
    """Return uuid -> why the volumes of this instance cannot be connected to a second host. Writes nothing.

    :arg places: uuid -> host of the instance
    :arg inventory: see moving.refusals()
    """
    refused = moving.refusals(tx, places, inventory=inventory)
    for uuid, rows in attachments.of_instances(tx, places).items():
        for row in rows:
            if uuid in refused or row.attach_status != states.ATTACHED:
                continue
            if (row.attached_host, row.connection) != (places[uuid], DONE):
                refused[uuid] = errors.InvalidVolume(
                    reason="volume %s of instance %s is not connected since a fault" % (row.volume_id, uuid),
                    remedy="Reboot the instance hard: that connects it. Or migrate it while it is off: bootflow.compute.migrate.",
                )
    return refused


def reserve_on_destination(tx: Transaction, connectors: t.Mapping[str, Connector]) -> set[str]:
    """Reserve second attachments on the destinations for the volumes of these instances, which this run has adopted.

    :arg connectors: uuid -> connector of the destination
    Returns the instances that have volumes.
    """
    attached = (states.ATTACHED,)
    rows = attachments.select(tx, instance_uuids=connectors, run_id=tx.run.id, attach_statuses=attached, lock=True)
    if not rows:
        return set()
    volumes_by_id = attachments.volumes_of(tx, rows)
    ids = attachments.reserve(tx, [_second_reservation(r, volumes_by_id[r.volume_id].pool_host) for r in rows])
    second = attachments.select(tx, ids=ids)
    bound = {r.id: life.bound_to(connectors[r.instance_uuid], r, volumes_by_id[r.volume_id]) for r in second}
    attachments.apply(tx, second, attachment.BIND_HOST, bound)
    return {r.instance_uuid for r in rows}


def _second_reservation(row: Attachment, pool_host: str | None) -> Reservation:
    return Reservation(
        volume_id=row.volume_id,
        instance_uuid=row.instance_uuid,
        mountpoint=row.mountpoint,
        delete_on_termination=row.delete_on_termination,
        mode=row.attach_mode,
        storage_host=pool_hosts.extract_host(pool_host, "host") if pool_host else None,
        ready=True,
        on_second_host=True,
    )


def on_destination(tx: Transaction, host: str, uuids: t.Iterable[str]) -> list[Attachment]:
    """Return the attachments to the destination ``host`` of instances that this run migrates."""
    return attachments.select(
        tx, instance_uuids=uuids, attached_host=host, run_id=tx.run.id, attach_statuses=ON_THE_WAY, on_second_host=True
    )


def take_over(tx: Transaction, uuids: t.Iterable[str]) -> None:
    """Take over the attachments of the destinations, where the guests of these instances are now. The attachments of the source hosts are to end."""
    rows = attachments.select(tx, instance_uuids=uuids, lock=True)
    new = {(r.instance_uuid, r.volume_id): r for r in rows if r.beside and r.attach_status in ON_THE_WAY}
    old = [r for r in rows if not r.beside and (r.instance_uuid, r.volume_id) in new]
    extended = {(r.instance_uuid, r.volume_id) for r in old if r.rescan}
    # An instance has one own attachment to a volume at any time.
    attachments.apply(tx, old, attachment.DETACH, {r.id: {"beside": r.id} for r in old}, run_id=tx.run.id)
    rescans = {r.id: {"rescan": r.rescan or key in extended} for key, r in new.items()}
    fields = {"attached_at": tx.now, "beside": OWN, "run_id": tx.run.id}
    attachments.apply(tx, list(new.values()), attachment.ATTACHED_TO_GUEST, rescans, **fields)


def end_on_destination(tx: Transaction, uuids: t.Iterable[str]) -> None:
    """End the attachments to the destinations: the guests of these instances stay on their source hosts."""
    rows = attachments.select(tx, instance_uuids=uuids, attach_statuses=ON_THE_WAY, on_second_host=True, lock=True)
    life.end_beside(tx, rows)


def release(tx: Transaction, uuids: t.Iterable[str], run_ids: t.Collection[str | None]) -> None:
    """Release the attachments of these instances from these runs. The next run that works on their hosts ends what is still to end."""
    rows = attachments.select(tx, instance_uuids=uuids)
    attachments.release_ownership(tx, [r.id for r in rows if r.run_id is not None and r.run_id in run_ids])
