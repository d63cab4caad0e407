# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Rotation of backups: the oldest ones of an instance and a type are deleted when a new one has its bytes. snapshots.py makes the images.

source: Nova's ComputeManager._rotate_backups
"""

from __future__ import annotations

import typing as t

from ...core.images import life
from ...core.images.backups import Backup, beyond_rotation, is_of_type
from ...ledger.db.transaction import Transaction
from ...ledger.images import image_uses, images
from ...ledger.images.images import ImageRow

Rotated = t.Dict[str, t.List[ImageRow]]  # by the uuids of instances; the oldest first


def find_excess(tx: Transaction, made: t.Mapping[str, str], backup_type: str, rotation: int) -> Rotated:
    """Return the backups of a type that are deleted when new ones have their bytes.

    A protected one, and one from which something is being made, counts and stays, as in Nova and Glance. The next backup tries again.

    :arg made: the ids of the new ones, by the uuids of instances. :arg rotation: how many of the type each instance keeps
    """
    rows = {row.id: row for row in images.select(tx, instance_uuids=made, statuses=[life.ACTIVE])}
    excess: dict[str, list[str]] = {}
    for uuid, made_id in made.items():
        older = [
            Backup(row.created_at, row.id)
            for row in rows.values()
            if row.instance_uuid == uuid and row.id != made_id and is_of_type(row.properties, backup_type)
        ]
        excess[uuid] = beyond_rotation([*older, Backup(tx.now, made_id)], rotation, made_id)
    ids = sorted({image_id for image_ids in excess.values() for image_id in image_ids})
    used = image_uses.uses(tx, ids)
    return {
        uuid: [rows[i] for i in image_ids if i in rows and i not in used and not rows[i].protected]
        for uuid, image_ids in excess.items()
    }


def rotate(tx: Transaction, made: t.Mapping[str, str], backup_type: str, rotation: int) -> Rotated:
    """Delete the backups beyond the rotation. Returns them. snapshots.finish() has locked all images of the instances.

    :arg made: see find_excess(); the ones without their bytes rotate nothing.
    """
    active_ids = {row.id for row in images.select(tx, instance_uuids=made, statuses=[life.ACTIVE])}
    rotated = find_excess(tx, {u: i for u, i in made.items() if i in active_ids}, backup_type, rotation)
    for image_id in sorted(row.id for rows in rotated.values() for row in rows):
        images.apply(tx, image_id, life.DELETE)
    return rotated
