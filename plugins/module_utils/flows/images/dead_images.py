# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Images of instances and volumes whose runs died: the next snapshot, the report of the instance's host and the deletion of the instance end them.

flows/volumes/uploads.py ends them with the work on their volumes.
"""

from __future__ import annotations

from ...core.images import life, volume_backed
from ...core.images.image import StoredImage
from ...core.images.snapshot_properties import VOLUME_ID
from ...ledger.compute import runs
from ...ledger.db.transaction import Transaction
from ...ledger.images import images
from ...ledger.images.images import ImageRow
from ...ledger.storage import snapshots
from . import snapshots_of_image


def end_dead(tx: Transaction) -> list[str]:
    """Delete the images of instances and volumes whose bytes dead runs did not write to the end. Returns their ids.

    What a store has of them is removed by the next work of that store.
    """
    rows = [
        r for r in images.select(tx, statuses=life.BUSY) if r.instance_uuid is not None or VOLUME_ID in r.properties
    ]
    dead = runs.dead_among(tx, [r.run_id for r in rows])
    dead_ids = [r.id for r in rows if r.run_id in dead]
    ended = images.select(tx, ids=dead_ids, statuses=life.BUSY, lock=True) if dead_ids else []
    for row in ended:
        delete_unfinished(tx, row, "Run %s died while it wrote the bytes." % row.run_id)
    return [row.id for row in ended]


def delete_unfinished(tx: Transaction, row: ImageRow | StoredImage, fault: str) -> list[str]:
    """Delete an image that never became active, and the snapshots of volumes that were made for it. The image is locked.

    Returns the storage hosts that are to remove the snapshots.
    """
    images.apply(tx, row.id, life.DELETE, fault=fault)
    if row.status != life.QUEUED:
        return []
    mapped = snapshots.select(tx, ids=volume_backed.snapshot_ids_of(row.properties))
    own_ids = [snapshot.id for snapshot in mapped if volume_backed.is_snapshot_of(row.id, snapshot.name)]
    return snapshots_of_image.give_up(tx, own_ids, fault)
