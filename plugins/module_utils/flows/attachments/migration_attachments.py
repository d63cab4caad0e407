# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Volumes of guests that migrate: for a time an instance has two attachments to each, its own and one beside it on a second host.

Before the guest goes, the second host is its new one: the volume is exported to it, too, and it connects. When the guest is there, that
attachment is the instance's own, and the former host's is the one beside it, until that host is clean. Where the guest stays, the new
host's ends. A volume needs no multiattach for that: the guest never runs on both.
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
    """uuid -> why the volumes of this instance cannot follow its guest while it runs. Writes nothing.

    :arg places: uuid -> its host. :arg inventory: as of moving.refusals()
    """
    found = moving.refusals(tx, places, inventory=inventory)
    for uuid, rows in attachments.of_instances(tx, places).items():
        for row in rows:
            if uuid in found or row.attach_status != states.ATTACHED:
                continue
            if (row.attached_host, row.connection) != (places[uuid], DONE):
                found[uuid] = errors.InvalidVolume(
                    reason="volume %s of instance %s is not connected since a fault" % (row.volume_id, uuid),
                    remedy="Reboot the instance hard: that connects it. Or migrate it while it is off: bootflow.compute.migrate.",
                )
    return found


def reserve_on_destination(tx: Transaction, connectors: t.Mapping[str, Connector]) -> set[str]:
    """The volumes of these instances, which this run has taken, are to be exported to their new hosts, too. {uuid: the new host}

    Returns the instances that have volumes.
    """
    taken = (states.ATTACHED,)
    rows = attachments.select(tx, instance_uuids=connectors, run_id=tx.run.id, attach_statuses=taken, lock=True)
    if not rows:
        return set()
    known = attachments.volumes_of(tx, rows)
    ids = attachments.reserve(tx, [_second_reservation(r, known[r.volume_id].pool_host) for r in rows])
    fresh = attachments.select(tx, ids=ids)
    bound = {r.id: life.bound_to(connectors[r.instance_uuid], r, known[r.volume_id]) for r in fresh}
    attachments.apply(tx, fresh, attachment.BIND_HOST, bound)
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
        beside=True,
    )


def on_destination(tx: Transaction, host: str, uuids: t.Iterable[str]) -> list[Attachment]:
    """The attachments of these instances, which this run migrates, to their new host."""
    return attachments.select(
        tx, instance_uuids=uuids, attached_host=host, run_id=tx.run.id, attach_statuses=ON_THE_WAY, beside=True
    )


def take_over(tx: Transaction, uuids: t.Iterable[str]) -> None:
    """The guests of these instances are on their new hosts: the attachments there are theirs, and those of the former hosts are to end."""
    rows = attachments.select(tx, instance_uuids=uuids, lock=True)
    new = {(r.instance_uuid, r.volume_id): r for r in rows if r.beside and r.attach_status in ON_THE_WAY}
    old = [r for r in rows if not r.beside and (r.instance_uuid, r.volume_id) in new]
    grown = {(r.instance_uuid, r.volume_id) for r in old if r.rescan}
    # An instance has one attachment of its own to a volume at any time.
    attachments.apply(tx, old, attachment.DETACH, {r.id: {"beside": r.id} for r in old}, run_id=tx.run.id)
    theirs = {r.id: {"rescan": r.rescan or key in grown} for key, r in new.items()}
    fields = {"attached_at": tx.now, "beside": OWN, "run_id": tx.run.id}
    attachments.apply(tx, list(new.values()), attachment.ATTACHED_TO_GUEST, theirs, **fields)


def end_on_destination(tx: Transaction, uuids: t.Iterable[str]) -> None:
    """The guests of these instances stay where they are: the attachments to their new hosts are to end."""
    rows = attachments.select(tx, instance_uuids=uuids, attach_statuses=ON_THE_WAY, beside=True, lock=True)
    life.end_beside(tx, rows)


def release(tx: Transaction, uuids: t.Iterable[str], run_ids: t.Collection[str | None]) -> None:
    """The work of these runs on the volumes of these instances is over; who works on their hosts next does the rest."""
    rows = attachments.select(tx, instance_uuids=uuids)
    attachments.release_ownership(tx, [r.id for r in rows if r.run_id is not None and r.run_id in run_ids])
