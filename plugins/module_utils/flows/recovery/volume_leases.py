# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Unfinished work of ended runs: creations of volumes end in error, and so do root volumes that were being written again; this run adopts
deletions and extensions.

Volumes of builds are settled with their builds.
"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field

from ...core import errors
from ...core.volumes.reimage import UNDER_WAY
from ...ledger.compute import instances, runs
from ...ledger.db.transaction import Transaction
from ...ledger.storage import snapshots, volumes
from ...ledger.storage.attachments import Attachment
from ...ledger.storage.snapshots import SnapshotRow
from ...ledger.storage.volumes import VolumeRow
from ..instances import attach
from ..volumes import reimage, schedule


@dataclass
class Leftovers:
    """Rows that dead runs owned."""

    attachments: list[Attachment] = field(default_factory=list)
    volumes: list[VolumeRow] = field(default_factory=list)
    snapshots: list[SnapshotRow] = field(default_factory=list)

    @property
    def volume_ids(self) -> set[str]:
        ids = {r.volume_id for r in self.attachments} | {r.volume_id for r in self.snapshots}
        return ids | {r.id for r in self.volumes}

    def of_instances(self, uuids: t.Collection[str]) -> Leftovers:
        """The volumes that are created for these instances."""
        return Leftovers(volumes=[r for r in self.volumes if r.instance_uuid in uuids])

    def __bool__(self) -> bool:
        return bool(self.attachments or self.volumes or self.snapshots)


def find_leftovers(
    tx: Transaction,
    ended: t.Callable[[Transaction, t.Iterable[str | None]], set[str]] = runs.out_of_lease,
    instance_uuids: t.Collection[str] = (),
) -> Leftovers:
    """The rows that ended runs still own.

    :arg ended: selects the ended runs out of some; runs.dead_among() also checks their processes.
    :arg instance_uuids: builds that end now, and no longer wait for their volumes.
    """
    of_volumes = volumes.at_work_by_others(tx)
    of_snapshots = snapshots.at_work_by_others(tx)
    of_attachments = attach.begun_by_others(tx)
    held: list[volumes.Owned] = [*of_volumes, *of_snapshots, *of_attachments]
    run_ids = {r.run_id for r in held}
    over = ended(tx, run_ids)
    builds = instances.living(tx, {r.instance_uuid for r in of_volumes if r.instance_uuid} - set(instance_uuids))
    return Leftovers(
        attachments=[r for r in of_attachments if r.run_id in over],
        volumes=[
            r
            for r in of_volumes
            if r.run_id in over and not (r.status in volumes.BEING_CREATED and r.instance_uuid in builds)
        ],
        snapshots=[r for r in of_snapshots if r.run_id in over],
    )


def expire(tx: Transaction, leftovers: Leftovers) -> None:
    """End creations, adopt the rest. The volumes are locked and read again; rows changed meanwhile are left alone."""
    attach.expire(tx, leftovers.attachments)
    before = {r.id: r for r in leftovers.volumes}
    rows = [
        r
        for r in (volumes.select(tx, ids=sorted(before)) if before else ())
        if (r.status, r.run_id) == (before[r.id].status, before[r.id].run_id)
    ]
    volumes.take_ownership(tx, [r.id for r in rows])
    reimage.end_dead(tx, [r for r in rows if r.status in UNDER_WAY])
    being_created = [r for r in rows if r.status in volumes.BEING_CREATED]
    schedule.end_in_error(tx, being_created, {r.id: died_error(r) for r in being_created})
    snapshots.take_ownership(tx, [r.id for r in leftovers.snapshots])


def died_error(row: VolumeRow) -> errors.BootflowError:
    """The fault of a volume whose run is dead."""
    return errors.VolumeBackendAPIException(
        data="run %s died while it created volume %s" % (row.run_id, row.name or row.id),
        remedy="Request the same volume again: its creation starts over.",
    )
