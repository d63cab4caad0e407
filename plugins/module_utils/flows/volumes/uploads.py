# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Images of volumes: an image's record before any byte is written, and what becomes of image and volume when the bytes have arrived, or have not.

source: Cinder's API.copy_volume_to_image and VolumeManager.copy_volume_to_image (2026)
"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field

from ...core import errors
from ...core.images import life
from ...core.images.image import StoredImage
from ...core.images.volume_images import VolumeUpload
from ...core.reading.problems import Problems
from ...core.volumes import states
from ...core.volumes.drivers.registry import driver_of
from ...ledger.compute import history, runs
from ...ledger.db.transaction import Transaction
from ...ledger.images import images
from ...ledger.storage import backends, volume_history, volumes
from ...ledger.storage.volumes import PlacedVolume
from ..images import host_images
from . import dead_uploads, requests
from .dead_uploads import EVENT

_FAULT = "Another image of a volume has its name."


@dataclass(frozen=True)
class Upload:
    """An image of a volume. ``row``: the volume as it was. ``volume_group``: of its backend"""

    entry: VolumeUpload
    row: PlacedVolume
    image: StoredImage
    volume_group: str = ""

    @property
    def host(self) -> str:
        """The storage host."""
        return volumes.host_of(self.row.pool_host)


@dataclass
class UploadsBegun:
    made: list[Upload] = field(default_factory=list)
    unchanged: list[Upload] = field(default_factory=list)  # their images are there


def begin(
    tx: Transaction, entries: t.Sequence[VolumeUpload], project: str, enable_force_upload: bool = False
) -> UploadsBegun:
    """Make a record for each entry whose image is not there, and mark its volume as uploading.

    An image of the name whose bytes did not arrive, or that a dead run has left, is replaced.

    :raises InvalidRequest: all refusals (VolumeNotFound, VolumeLocked, InvalidVolume, NotSupportedYet, ImageExists, ImageInUse). Nothing is written
        then.
    """
    runs.renew(tx)
    dead_uploads.end_dead(tx)
    refusals = Problems()
    rows_by_word = volumes.find(tx, [e.volume for e in entries], project, lock=True)
    live_runs = volumes.live_runs(tx, rows_by_word.values())
    of_pools = backends.at_pool_hosts(tx, {r.pool_host for r in rows_by_word.values() if r.pool_host})
    groups = {pool_host: str(b.configuration.get("volume_group") or "") for pool_host, b in of_pools.items()}
    begun = UploadsBegun()
    replaced: set[str] = set()
    expected: dict[str, states.Transition] = {}
    images.lock_names(tx, project, [e.name for e in entries])
    for entry in entries:
        with refusals.collect(entry.path):
            row = rows_by_word.get(entry.volume)
            if row is None:
                raise errors.VolumeNotFound(
                    volume_id=entry.volume, remedy="The playbook volume_list shows the volumes."
                )
            busy: list[errors.BootflowError] = []
            of_name = host_images.named(tx, project, [entry.name], busy).get(entry.name, [])
            for error in busy:
                raise error
            same = entry.existing_of([i for i in of_name if i.status == life.ACTIVE], row.id)
            placed = t.cast(PlacedVolume, row)
            if of_pools.get(placed.pool_host) and not driver_of(of_pools[placed.pool_host].configuration).has_portals:
                raise errors.NotSupportedYet(
                    feature="an image of volume %s, which is in Ceph" % entry.volume,
                    remedy="Make a volume from it on a backend of LVM, and the image of that.",
                )
            if same is not None:
                begun.unchanged.append(Upload(entry, placed, same))
                continue
            if row.id in expected:
                raise errors.InvalidInput(reason="volume %s is named twice" % entry.volume, remedy="Name it once.")
            requests.check_not_busy(tx, row, volumes.BUSY, live_runs)
            expected[row.id] = states.check_upload(volumes.to_volume(row), entry.force, enable_force_upload)
            image = entry.image_of(tx.new_id(), row.id, row.size, row.project, tx.actor, row.image_metadata)
            begun.made.append(Upload(entry, placed, image, groups.get(placed.pool_host, "")))
            replaced |= {i.id for i in of_name}
    refusals.raise_if_any()
    for upload in begun.made:
        transition = expected[upload.row.id]
        volumes.swap(tx, [upload.row.id], transition.expected, **transition.values, run_id=tx.run.id)
        volume_history.start_events(tx, [upload.row.id], EVENT, upload.host)
    for image_id in sorted(replaced):
        images.apply(tx, image_id, life.DELETE, fault=_FAULT)
    host_images.enter(tx, [(u.image, u.entry.store.name) for u in begun.made])
    return begun


def find_lost(tx: Transaction, volume_ids: t.Iterable[str]) -> dict[str, errors.BootflowError]:
    """Return why images of these volumes are no longer this run's: another one took it for dead."""
    wanted = set(volume_ids)
    own_ids = {r.id for r in volumes.select(tx, ids=wanted, run_id=tx.run.id, statuses=(states.UPLOADING,))}
    return {
        volume_id: errors.Conflict(
            message="volume %s is not uploading any more" % volume_id,
            remedy="Another run took this one for dead, and gave the volume its status back. Make the image again.",
        )
        for volume_id in sorted(wanted - own_ids)
    }


def finish(
    tx: Transaction,
    image_ids: t.Mapping[str, t.Mapping[str, str]],
    answers: t.Mapping[str, t.Mapping[str, t.Any]],
    failed: t.Mapping[str, errors.BootflowError],
) -> dict[str, errors.BootflowError]:
    """Write what became of the images that this run ends, and give their volumes the former status. Returns all errors, by the ids of volumes.

    :arg image_ids: name of a store -> id of a volume -> id of its image. :arg answers, failed: see host_images.finish()
    """
    ids = {volume_id for of_store in image_ids.values() for volume_id in of_store}
    rows = volumes.select(tx, ids=ids, run_id=tx.run.id, statuses=(states.UPLOADING,), lock=True) if ids else []
    failures = host_images.finish_stores(tx, image_ids, answers, failed)
    dead_uploads.give_back(tx, rows, failures)
    done = [r.id for r in rows if r.id not in failures]
    volume_history.finish_events(tx, done, EVENT, history.SUCCESS)
    return failures
