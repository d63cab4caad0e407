# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Snapshots of instances whose root is a volume: one snapshot of each volume, and an image without bytes that maps them. snapshots.py begins and ends them.

The snapshots are entered with the image, before a storage host makes one. Where one of an instance's fails, all of them are given up with its image.
source: Nova's API.snapshot_volume_backed
"""

from __future__ import annotations

import dataclasses
import typing as t

from ...core import errors
from ...core.images import life, volume_backed
from ...core.images.image import StoredImage
from ...core.images.volume_backed import VolumeSnapshot
from ...core.volumes import states
from ...ledger.compute import instances
from ...ledger.compute.instances import Instance
from ...ledger.db.locks import take_turns
from ...ledger.db.transaction import Transaction
from ...ledger.images import images
from ...ledger.storage import snapshots as snapshot_rows
from ...ledger.storage import volume_history, volumes
from ..images import dead_images
from ..volumes import snapshots as volume_snapshots
from ..volumes.requests import VolumeSettings
from ..volumes.snapshots import NewSnapshot

Images = t.Dict[str, StoredImage]  # by the uuids of instances


def is_volume_backed(row: Instance) -> bool:
    """Whether the root of an instance is a volume."""
    return bool(row.spec.get("is_bfv"))


def wait_for_turn(tx: Transaction, rows: t.Iterable[Instance]) -> None:
    """Wait for the turn of the projects whose quotas of volumes snapshots of these instances count for. Before any row is locked."""
    projects = {row.project for row in rows if is_volume_backed(row)}
    if projects:
        take_turns(tx, "project", projects)


def begin(tx: Transaction, rows: t.Sequence[Instance], wanted: Images, settings: VolumeSettings) -> Images:
    """Enter a snapshot of each volume of these instances. Returns their images, with the mappings.

    :raises InvalidRequest: a volume cannot have a snapshot now, or a quota or the room of a backend is exceeded.
    """
    disks = instances.disks_of(tx, [row.uuid for row in rows])
    volumes_of = {row.uuid: volume_backed.volumes_of(disks[row.uuid]) for row in rows}
    ids = {str(disk["volume_id"]) for of_instance in volumes_of.values() for disk in of_instance}
    locked = {volume.id: volume for volume in volumes.select(tx, ids=ids, lock=True)}
    made: Images = {}
    for project in sorted({row.project for row in rows}):
        of_project = [row for row in rows if row.project == project]
        new, owners = [], []
        for row in of_project:
            for disk in volumes_of[row.uuid]:
                path = "%s: volume %s" % (row.display_name, disk["volume_id"])
                name = volume_backed.snapshot_name(wanted[row.uuid], disk)
                new.append(NewSnapshot(path, name, locked[str(disk["volume_id"])]))
                owners.append(row.uuid)
        snapshot_ids = volume_snapshots.add(tx, new, dataclasses.replace(settings, project=project))
        by_instance: dict[str, dict[str, VolumeSnapshot]] = {row.uuid: {} for row in of_project}
        for uuid, snapshot, snapshot_id in zip(owners, new, snapshot_ids):
            by_instance[uuid][snapshot.volume.id] = VolumeSnapshot(snapshot_id, snapshot.volume.size)
        for uuid, of_volumes in by_instance.items():
            made[uuid] = volume_backed.with_mapping(wanted[uuid], disks[uuid], of_volumes)
    return made


def storage_hosts(tx: Transaction, made: t.Iterable[StoredImage]) -> list[str]:
    """Return the storage hosts that make the snapshots of these images."""
    ids = [snapshot_id for image in made for snapshot_id in volume_backed.snapshots_in(image)]
    located = snapshot_rows.located(tx, ids) if ids else []
    return sorted({volumes.host_of(place.pool_host) for place in located if place.pool_host})


def find_failures(tx: Transaction, image_ids: t.Mapping[str, str]) -> dict[str, errors.BootflowError]:
    """Return why snapshots of instances failed, by their uuids. Writes nothing. :arg image_ids: by the uuids of instances"""
    rows = {row.id: row for row in images.select(tx, ids=image_ids.values(), statuses=[life.QUEUED])}
    ids_of = {i: volume_backed.snapshot_ids_of(row.properties) for i, row in rows.items()}
    live_snapshots = {s.id: s for s in snapshot_rows.select(tx, ids={s for ids in ids_of.values() for s in ids})}
    bad = {
        i
        for ids in ids_of.values()
        for i in ids
        if i not in live_snapshots or live_snapshots[i].status != states.AVAILABLE
    }
    faults = volume_history.last_faults(tx, bad, snapshots=True) if bad else {}
    reasons = {snapshot_id: str(fault["message"]) for snapshot_id, fault in faults.items()}
    failures: dict[str, errors.BootflowError] = {}
    for uuid, image_id in sorted(image_ids.items()):
        failed = [i for i in ids_of.get(image_id, ()) if i in bad]
        if failed:
            failures[uuid] = _error(failed, live_snapshots, reasons)
    return failures


def _error(
    failed: t.Sequence[str], live_snapshots: t.Mapping[str, snapshot_rows.SnapshotRow], reasons: t.Mapping[str, str]
) -> errors.BootflowError:
    items = []
    for snapshot_id in failed:
        row = live_snapshots.get(snapshot_id)
        reason = reasons.get(snapshot_id) or "its storage host was not asked, or did not answer"
        volume_id = row.volume_id if row is not None else "unknown"
        items.append("volume %s: %s" % (volume_id, "it was deleted meanwhile" if row is None else reason))
    return errors.RemoteError(
        reason="no snapshot of %s" % "; of ".join(items),
        remedy="The snapshots of the other volumes were given up, too. Look at the storage host, and make the snapshot again.",
    )


def give_up(tx: Transaction, image_ids: t.Mapping[str, str], failed: t.Mapping[str, errors.BootflowError]) -> list[str]:
    """Delete the images of failed instances, and the snapshots of their volumes. Returns the storage hosts that are to remove these.

    :arg image_ids, failed: by the uuids of instances
    """
    ids = [image_id for uuid, image_id in image_ids.items() if uuid in failed]
    reason_of = {image_id: failed[uuid].message for uuid, image_id in image_ids.items() if uuid in failed}
    rows = images.select(tx, ids=ids, statuses=[life.QUEUED], run_id=tx.run.id, lock=True) if ids else []
    hosts: set[str] = set()
    for row in rows:
        hosts.update(dead_images.delete_unfinished(tx, row, reason_of[row.id]))
    return sorted(hosts)
