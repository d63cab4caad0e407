# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Detaching volumes from instances: begun here, done by the hosts, finished here.

source: Nova's compute API detach_volume (Queens)
"""

from __future__ import annotations

import typing as t

from ...core import errors
from ...core.reading.problems import Problems
from ...core.volumes import attach_rules
from ...core.volumes import states as volume_states
from ...core.volumes.attachment import NONE, ON_THE_WAY
from ...ledger.compute import instances, runs
from ...ledger.compute.instances import Instance
from ...ledger.db.transaction import Transaction
from ...ledger.storage import attachments, volume_history, volumes
from ...ledger.storage.attachments import Attachment
from .. import entry
from . import changes, life, requests
from .changes import Begun
from .requests import AttachmentRequest

DETACH = "detach_volume"  # event, and Nova's action


def begin_detach(tx: Transaction, entries: t.Sequence[t.Mapping[str, t.Any]], project: str | None) -> Begun:
    """Mark the volumes as detaching, including those that a dead run left half attached or half detached.

    :arg entries: bootflow_attachments; ``instance`` is required if a volume has several.
    :raises InvalidRequest: all errors of all entries, with paths attachments[i]; nothing is written then.
    """
    runs.renew(tx)
    refusals = Problems()
    begun = Begun()
    chosen: list[Attachment] = []
    read = requests.read(tx, entries, project, False, refusals)
    there = attachments.of_volumes(tx, [r.volume.id for r in read])
    guests = {
        r.uuid: r for r in instances.select_live(tx, uuids=sorted({a.instance_uuid for g in there.values() for a in g}))
    }
    disks = instances.disks_of(tx, sorted(guests))
    swaps = []
    for request in read:
        with refusals.collect(request.path):
            mine = there.get(request.volume.id, [])
            if request.guest is not None:
                mine = [a for a in mine if a.instance_uuid == request.guest.uuid]
            if not mine:
                begun.unchanged.append(request.volume.name or request.volume.id)
                continue
            row, transition = _check_detach(tx, request, mine, guests, disks)
            chosen.append(row)
            swaps.append((request.volume, transition))
    refusals.raise_if_any()
    for volume, transition in swaps:
        if transition is not None:
            volumes.swap(tx, [volume.id], transition.expected, **transition.values)
    resumed = changes.resume(tx, chosen)
    life.end_alone(tx, [r for r in resumed if r.attach_status in ON_THE_WAY])
    return changes.begin(tx, begun, [r.id for r in chosen], DETACH)


def _check_detach(
    tx: Transaction,
    request: AttachmentRequest,
    mine: t.Sequence[Attachment],
    guests: t.Mapping[str, Instance],
    disks: t.Mapping[str, t.Sequence[t.Mapping[str, t.Any]]],
) -> tuple[Attachment, volume_states.Transition | None]:
    attachments.check_not_locked(tx, request.volume, mine)
    volume = volumes.to_volume(request.volume)
    row = mine[0]
    transition = None
    if len(mine) > 1 or (row.attach_status == volume_states.ATTACHED and volume.status != volume_states.DETACHING):
        found = attach_rules.check_detach(
            volume,
            volumes.attachments_of(tx, [volume.id]).get(volume.id, []),
            request.guest.uuid if request.guest is not None else None,
        )
        transition = volume_states.check_begin_detaching(volume)
        row = next(a for a in mine if a.id == found.id)
    guest = guests.get(row.instance_uuid)
    if guest is None:
        return row, transition  # the instance was deleted by force
    root = [d for d in disks[guest.uuid] if d.get("volume_id") == volume.id and d.get("boot_index") == 0]
    if root:
        raise errors.CannotDetachRootVolume()
    entry.check(tx, DETACH, guest)
    return row, transition


def to_detach(tx: Transaction, host: str) -> list[Attachment]:
    """Attachments of this run for ``host`` to detach and disconnect; without those of its builds."""
    rows = changes.of_host(tx, host, volume_states.ATTACHED, volume_states.DETACHED)
    return [r for r in rows if r.attach_status == volume_states.ATTACHED or r.connection != NONE]


def detach_failed(tx: Transaction, failures: t.Mapping[str, errors.BootflowError]) -> None:
    """Enter failures: these volumes stay in use. {attachment id: why}"""
    rows = attachments.select(tx, ids=failures, run_id=tx.run.id, lock=True)
    for row in rows:
        volume_history.add_fault(tx, row.volume_id, failures[row.id], row.attached_host)
    changes.roll_back_detach(tx, [r for r in rows if r.attach_status == volume_states.ATTACHED])


def finish_detach(tx: Transaction) -> tuple[list[dict[str, t.Any]], list[dict[str, t.Any]]]:
    """The results of this run: (detached, left with their errors). Volumes for which no host was asked stay in use."""
    done, left, rows = changes.finish(tx, DETACH, lambda row: row.state is None)
    live = [r for r in rows if r.state is not None]
    changes.roll_back_detach(tx, [r for r in live if r.attach_status == volume_states.ATTACHED])
    attachments.release_ownership(tx, [r.id for r in live])
    return done, left
