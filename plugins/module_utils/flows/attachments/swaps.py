# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Pairs of attachments while a guest exchanges a volume for another one: the old one, which it has, and the new one, which is on the way to the same
device name.

No column says that two attachments are a pair: nothing else puts a volume on the way to a device that the instance has. Only the guest's host
knows whether its guest has switched to the new volume. So where the host may have begun, only an answer of the host ends a pair; but for one that is
forced down, whose instance is evacuated: keep_old().
source: Nova's ComputeManager.swap_volume
"""

from __future__ import annotations

import typing as t

from ...core import errors
from ...core.volumes import attachment, states
from ...core.volumes.attachment import NONE, ON_THE_WAY
from ...ledger.compute import instances, runs
from ...ledger.db.transaction import Transaction
from ...ledger.storage import attachments, volume_history, volumes
from ...ledger.storage.attachments import Attachment
from . import life


class Pair(t.NamedTuple):
    """The attachments of one exchange."""

    new: Attachment
    old: Attachment

    @property
    def may_have_begun(self) -> bool:
        """Whether the host may have connected the new volume, and its guest may write to it."""
        return self.new.connection != NONE


def open_pairs(
    tx: Transaction, instance_uuids: t.Collection[str] | None = None, run_id: str | None = None, lock: bool = False
) -> list[Pair]:
    """Return the pairs of these instances, or of all. :arg run_id: only pairs with a new attachment of this run"""
    if instance_uuids is not None and not instance_uuids:
        return []
    on_the_way = attachments.select(
        tx, instance_uuids=instance_uuids, run_id=run_id, attach_statuses=ON_THE_WAY, on_second_host=False
    )
    uuids = {r.instance_uuid for r in on_the_way}
    if not uuids:
        return []
    rows = attachments.select(tx, instance_uuids=uuids, on_second_host=False, lock=lock)
    attached = {(r.instance_uuid, r.mountpoint): r for r in rows if r.attach_status == states.ATTACHED}
    ids = {r.id for r in on_the_way}
    return [
        Pair(r, attached[(r.instance_uuid, r.mountpoint)])
        for r in rows
        if r.id in ids and r.attach_status in ON_THE_WAY and (r.instance_uuid, r.mountpoint) in attached
    ]


def refuse_open(tx: Transaction, instance_uuids: t.Collection[str]) -> dict[str, errors.BootflowError]:
    """Return uuid -> why nothing may be done with the volumes of this instance: one of them is being exchanged."""
    return {p.old.instance_uuid: under_way(p) for p in open_pairs(tx, instance_uuids)}


def under_way(pair: Pair) -> errors.SwapUnderWay:
    old, new = pair.old, pair.new
    return errors.SwapUnderWay(
        old=old.volume_id, new=new.volume_id, instance_uuid=old.instance_uuid, host=old.attached_host or "(none)"
    )


def check_not_swapped(tx: Transaction, rows: t.Iterable[Attachment]) -> None:
    """:raises SwapUnderWay: one of these attachments is one of a pair."""
    rows = list(rows)
    ids = {r.id for r in rows}
    for pair in open_pairs(tx, sorted({r.instance_uuid for r in rows})):
        if ids & {pair.new.id, pair.old.id}:
            raise under_way(pair)


def without_pairs(tx: Transaction, rows: t.Sequence[Attachment]) -> list[Attachment]:
    """Return these attachments, except attachments of pairs."""
    ids = {a.id for pair in open_pairs(tx, sorted({r.instance_uuid for r in rows})) for a in pair}
    return [r for r in rows if r.id not in ids]


def without_undecided(tx: Transaction, rows: t.Sequence[Attachment]) -> list[Attachment]:
    """Return these attachments, except attachments of pairs that only an answer of their host ends."""
    pairs = open_pairs(tx, sorted({r.instance_uuid for r in rows}))
    undecided = {a.id for p in pairs if p.may_have_begun for a in p}
    return [r for r in rows if r.id not in undecided]


def decidable(tx: Transaction, rows: t.Sequence[Attachment]) -> list[Attachment]:
    """Return these attachments without_undecided(), and with both of every other pair."""
    rows = without_undecided(tx, rows)
    ids = {r.id for r in rows}
    pairs = open_pairs(tx, sorted({r.instance_uuid for r in rows}))
    return [*rows, *(p.old for p in pairs if p.new.id in ids and p.old.id not in ids)]


# --- begun ------------------------------------------------------------------------------------------------------------


def begin(
    tx: Transaction,
    old: Attachment,
    new_volume: volumes.VolumeRow,
    detaching: states.Transition,
    connector: attachments.Connector,
    zone: str | None,
    cross_az_attach: bool,
) -> str:
    """Reserve the new volume for the device that the guest has the old one at, and mark the old one as detaching. Returns the new attachment's id.

    :raises InvalidVolume: see life.reserve()
    """
    new_id = life.reserve(
        tx,
        new_volume,
        old.instance_uuid,
        old.mountpoint,
        mode=old.attach_mode,
        instance_zone=zone,
        cross_az_attach=cross_az_attach,
    )
    (new,) = attachments.select(tx, ids=[new_id])
    attachments.apply(tx, [new], attachment.BIND_HOST, {new_id: life.bound_to(connector, new, new_volume)})
    volumes.swap(tx, [old.volume_id], detaching.expected, **detaching.values)
    attachments.take_ownership(tx, [old.id])
    return new_id


def of_dead_runs(tx: Transaction, lock: bool = False) -> list[Pair]:
    """Return all pairs whose runs are dead, to be settled by what their hosts answer."""
    pairs = [p for p in open_pairs(tx, lock=lock) if p.new.run_id != tx.run.id]
    dead = runs.dead_among(tx, {p.new.run_id for p in pairs if p.new.run_id})
    return [p for p in pairs if p.new.run_id is None or p.new.run_id in dead]


def adopt_of_dead_runs(tx: Transaction) -> list[Pair]:
    """Adopt the pairs of_dead_runs(). Returns them."""
    stale = of_dead_runs(tx, lock=True)
    attachments.take_ownership(tx, [a.id for p in stale for a in p])
    return stale


def on_lost_hosts(tx: Transaction, instance_uuids: t.Collection[str], down: t.Collection[str]) -> list[Pair]:
    """Return the pairs of these instances whose runs are dead and whose hosts are forced down: no host can answer, and none may be asked."""
    if not down:
        return []
    pairs = [p for p in open_pairs(tx, instance_uuids) if p.old.attached_host in down]
    dead = runs.dead_among(tx, {p.new.run_id for p in pairs if p.new.run_id})
    return [p for p in pairs if p.new.run_id is None or p.new.run_id in dead]


# --- ended ------------------------------------------------------------------------------------------------------------


def completed(tx: Transaction, new_ids: t.Collection[str]) -> None:
    """The guests have switched to the new volumes: these are in use, in the place of the old ones, whose attachments are to end."""
    for new, old in _own_pairs(tx, new_ids):
        attachments.apply(tx, [old], attachment.DETACH, run_id=tx.run.id, delete_on_termination=False)
        life.attached(tx, [new.id], {new.id: {"delete_on_termination": old.delete_on_termination}})
        size = attachments.volumes_of(tx, [new])[new.volume_id].size
        for disk in instances.disks_of(tx, [new.instance_uuid])[new.instance_uuid]:
            if disk["device_name"] == new.mountpoint:
                instances.exchange_disk(
                    tx, new.instance_uuid, new.mountpoint, disk_of_new_volume(disk, new.volume_id, size)
                )


def disk_of_new_volume(disk: t.Mapping[str, t.Any], volume_id: str, size_gb: int) -> dict[str, t.Any]:
    """Return the planned disk with another volume, which existed before."""
    has = {"name": volume_id, "volume_id": volume_id, "serial": volume_id, "size_gb": size_gb}
    return {**disk, **has, "volume_source": "volume", "image_id": None, "snapshot_id": None}


def undone(tx: Transaction, new_ids: t.Collection[str]) -> None:
    """The guests keep the old volumes: the attachments of the new ones are to end."""
    pairs = _own_pairs(tx, new_ids)
    undo(tx, [a for pair in pairs for a in pair])


def undo(tx: Transaction, rows: t.Sequence[Attachment]) -> None:
    """End half attached ones, and set the volumes of half detached ones in use again."""
    life.end_alone(tx, [r for r in rows if r.attach_status in ON_THE_WAY])
    remaining = [r for r in rows if r.attach_status == states.ATTACHED]
    if remaining:
        transition = states.roll_detaching()
        volumes.swap(tx, {r.volume_id for r in remaining}, transition.expected, **transition.values)
        attachments.release_ownership(tx, [r.id for r in remaining])


def _own_pairs(tx: Transaction, new_ids: t.Collection[str]) -> list[Pair]:
    """Return the pairs of this run with these new attachments, locked."""
    return [p for p in open_pairs(tx, run_id=tx.run.id, lock=True) if p.new.id in set(new_ids)]


def keep_old(tx: Transaction, instance_uuids: t.Collection[str], down: t.Collection[str]) -> None:
    """End the pairs on_lost_hosts() of these instances, which go to other hosts: they keep the old volumes, and the new ones stay with what is on them.

    The old volume has all that the guest wrote before it switched, and the new one may have a part of it only: until then QEMU writes to both. If the guest
    had switched, its last writes are on the new volume. The journal of both says so.
    """
    pairs = on_lost_hosts(tx, instance_uuids, down)
    attachments.take_ownership(tx, [a.id for p in pairs for a in p])
    volume_history.add_faults(
        tx,
        [
            volume_history.Fault(a.volume_id, _cut_short(p), a.attached_host)
            for p in pairs
            if p.may_have_begun
            for a in p
        ],
    )
    undone(tx, [p.new.id for p in pairs])
    attachments.take_ownership(tx, [p.old.id for p in pairs])


def _cut_short(pair: Pair) -> errors.SwapCutShort:
    old, new = pair.old, pair.new
    return errors.SwapCutShort(
        old=old.volume_id, new=new.volume_id, instance_uuid=old.instance_uuid, host=old.attached_host or "(none)"
    )
