# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Images as plain data for people and playbooks."""

from __future__ import annotations

import typing as t

from ...core.images import life
from ...core.images.image import StoredImage
from ...core.images.resolve import only
from ...core.reading.setting import canonical
from ...core.times import utc
from ..db.transaction import Transaction
from . import images
from .images import ImageRow


def image_views(
    tx: Transaction, ids: t.Sequence[str] | None, names: t.Sequence[str] | None, project: str | None
) -> list[dict[str, t.Any]]:
    """One dictionary for each live image that the project sees, by name. :arg project: None: all

    :arg ids: only these, community images included. :arg names: only images of these names; with both, either
    """
    words = None if ids is None and names is None else [*(ids or ()), *(names or ())]
    rows = images.select(tx, words=words)
    by_id = {canonical(i) for i in ids or ()}
    images_by_id = {image.id: image for image in images.stored(tx, rows)}
    seen = [r for r in rows if _is_seen(images_by_id[r.id], r.id in by_id, project)]
    places = images.places(tx, [row.id for row in seen])
    return [_image(row, places[row.id]) for row in seen]


def image_view(tx: Transaction, word: str, project: str | None) -> dict[str, t.Any]:
    """The image that ``word`` names, by its id or its name. A killed one only where no other has the name.

    :raises LedgerImageNotFound: the project sees none. :raises ImageAmbiguous: several have this name.
    """
    rows = {row.id: row for row in images.select(tx, words=[word])}
    named = images.stored(tx, list(rows.values()))
    matches = [i for i in named if i.id == canonical(word) and i.may_be_used_by(project)]
    matches = matches or [i for i in named if i.name == word and i.is_listed_for(project)]
    image = only(word, [i for i in matches if i.status != life.KILLED] or matches)
    return _image(rows[image.id], images.places(tx, [image.id])[image.id])


def _is_seen(image: StoredImage, is_named_by_id: bool, project: str | None) -> bool:
    return image.may_be_used_by(project) if is_named_by_id else image.is_listed_for(project)


def _image(row: ImageRow, places: t.Sequence[images.PlaceRow]) -> dict[str, t.Any]:
    return {
        "id": row.id,
        "name": row.name,
        "project": row.project,
        "user": row.user_name,
        "status": row.status,
        "visibility": row.visibility,
        "protected": row.protected,
        "size": row.size,
        "checksum": row.checksum,
        "disk_format": row.disk_format,
        "container_format": row.container_format,
        "min_disk": row.min_disk,
        "min_ram": row.min_ram,
        "properties": dict(row.properties),
        "instance_uuid": row.instance_uuid,
        "stores": [place.store for place in places if place.progress == life.DONE],
        "places": {place.store: place.progress for place in places},
        "fault": row.fault,
        "created_at": utc(row.created_at),
        "updated_at": utc(row.updated_at),
    }
