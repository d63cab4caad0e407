# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Instances and volumes that are being made from images, rescued with them, shelved in them, or go back to them: those images are not deleted meanwhile."""

from __future__ import annotations

import typing as t

from ...core.instances import states
from ...core.volumes import states as volume_states
from ...core.volumes.reimage import UNDER_WAY
from ..compute import history
from ..compute.instances import select_live
from ..db.sqlalchemy_import import sa
from ..db.transaction import Transaction
from ..fast import bulk
from ..schema.tables import instances, request_specs, shelved_instances
from ..schema.volume_tables import volumes

#: Task states in which a host makes an instance's root disk from its image again.
_REMAKING = (states.REBUILDING, states.REBUILD_SPAWNING)
#: In the journal, of what takes another image than the instance's own: a rescue, or a revert.
IMAGE_NOTE = "image %s"
#: Event of these -> the task_state while a host takes the image, and the words for it.
_NOTED = {
    "rescue": (states.RESCUING, "is being rescued with it"),
    "revert": (states.REBUILD_BLOCK_DEVICE_MAPPING, "goes back to it"),
}
_MAKING = (volume_states.CREATING, volume_states.DOWNLOADING)


def uses(tx: Transaction, image_ids: t.Iterable[str]) -> dict[str, list[str]]:
    """Id of an image -> what is being made from it, or is in it alone, in words; an image without a use is left out."""
    wanted = sorted(set(image_ids))
    if not wanted:
        return {}
    by_image: dict[str, list[str]] = {}
    image_id = request_specs.c.spec["image"]["id"].as_string()
    c = instances.c
    at_work = sa.or_(c.vm_state == states.BUILDING, c.task_state.in_(_REMAKING))
    query = (
        sa.select(c.display_name, image_id.label("image_id"))
        .join(request_specs, request_specs.c.id == c.request_spec_id)
        .where(c.deleted == "", at_work, image_id.in_(wanted))
        .order_by(c.display_name)
    )
    for row in tx.execute(query):
        by_image.setdefault(row.image_id, []).append("instance %s is being built from it" % row.display_name)
    s = shelved_instances.c
    query = sa.select(c.display_name, s.image_id).join(shelved_instances, s.instance_uuid == c.uuid)
    for row in tx.execute(query.where(c.deleted == "", s.image_id.in_(wanted)).order_by(c.display_name)):
        by_image.setdefault(row.image_id, []).append("instance %s is shelved in it" % row.display_name)
    v = volumes.c
    query = sa.select(v.name, v.id, v.image_id).where(
        v.deleted == "", v.status.in_(_MAKING), bulk.among(tx, v.image_id, wanted)
    )
    for row in tx.execute(query.order_by(v.id)):
        by_image.setdefault(row.image_id, []).append("volume %s is being created from it" % (row.name or row.id))
    new_image_id = v.spec["reimage"]["image"]["id"].as_string()
    query = sa.select(v.name, v.id, new_image_id.label("image_id")).where(
        v.deleted == "", v.status.in_(UNDER_WAY), new_image_id.in_(wanted)
    )
    for row in tx.execute(query.order_by(v.id)):
        by_image.setdefault(row.image_id, []).append("volume %s is being written again from it" % (row.name or row.id))
    for event, (task_state, words) in _NOTED.items():
        for noted_image_id, name in _noted(tx, wanted, event, task_state):
            by_image.setdefault(noted_image_id, []).append("instance %s %s" % (name, words))
    return by_image


def _noted(tx: Transaction, image_ids: t.Sequence[str], event: str, task_state: str) -> t.Iterator[tuple[str, str]]:
    """Yield an image and the name of an instance in ``task_state`` whose journal has the image with ``event``."""
    rows = {row.uuid: row for row in select_live(tx, task_state=task_state)}
    noted = {u: details.splitlines() for u, details in history.last_details(tx, list(rows), event).items()}
    for image_id in image_ids:
        for name in sorted(rows[u].display_name for u, lines in noted.items() if IMAGE_NOTE % image_id in lines):
            yield image_id, name
