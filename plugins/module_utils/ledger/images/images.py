# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Rows of images and of their places in stores: read, locked, and changed from state to state.

Only create() and apply() write the status of an image and the progress of its places, by the events of core.images.life.
"""

from __future__ import annotations

import typing as t

from ...core.errors import ImageNotActive, ImageStatusConflict
from ...core.images import life
from ...core.images.image import Place, StoredImage
from ...core.images.life import Event, State
from ...core.reading.setting import canonical
from ..db.locks import take_turns
from ..db.sqlalchemy_import import sa
from ..db.transaction import Transaction
from ..fast import bulk
from ..schema.image_tables import image_nvrams, image_places, images

LIVE = ""  # the column ``deleted`` of an image that is not deleted

#: Columns of events whose values apply() knows.
_WRITTEN = {"run_id", "deleted", "deleted_at"}

_i = images.c
_p = image_places.c


class ImageRow:
    """A row of images. Times are seconds since the epoch."""

    id: str
    project: str
    user_name: str
    name: str
    status: str  # core.images.life.STATUSES
    visibility: str
    protected: bool
    size: int | None  # bytes
    checksum: str
    requested_checksum: str
    disk_format: str | None
    container_format: str
    min_disk: int  # GB
    min_ram: int  # MB
    properties: dict[str, t.Any]
    instance_uuid: str | None
    fault: str
    run_id: str | None  # the run that writes its bytes
    created_at: float
    updated_at: float
    deleted_at: float | None
    deleted: str


class PlaceRow:
    """A row of image_places: what a store has, or may have, of an image."""

    image_id: str
    store: str
    progress: str
    created_at: float
    updated_at: float


# --- reading -------------------------------------------------------------------------------------------------------------


def select(
    tx: Transaction,
    ids: t.Iterable[str] | None = None,
    words: t.Iterable[str] | None = None,
    statuses: t.Iterable[str] | None = None,
    run_id: str | None = None,
    with_deleted: bool = False,
    lock: bool = False,
    instance_uuids: t.Iterable[str] | None = None,
) -> list[ImageRow]:
    """Rows of the images that meet every given condition, by name, creation and id.

    :arg words: names or ids. :arg instance_uuids: of the instances that they are of
    :arg with_deleted: deleted ones too. :arg lock: lock the rows until the transaction ends, by id
    """
    query = sa.select(images)
    if not with_deleted:
        query = query.where(_i.deleted == LIVE)
    if ids is not None:
        query = query.where(bulk.among(tx, _i.id, sorted(set(ids))))
    if words is not None:
        named = list(words)
        query = query.where(bulk.any_among(tx, images, {"id": sorted({canonical(w) for w in named}), "name": named}))
    if statuses is not None:
        query = query.where(_i.status.in_(sorted(set(statuses))))
    if run_id is not None:
        query = query.where(_i.run_id == run_id)
    if instance_uuids is not None:
        query = query.where(bulk.among(tx, _i.instance_uuid, sorted(set(instance_uuids))))
    if lock:
        return tx.rows(query.order_by(_i.id).with_for_update(), ImageRow)
    return tx.rows(query.order_by(_i.name, _i.created_at, _i.id), ImageRow)


def check_active(tx: Transaction, ids: t.Iterable[str]) -> None:
    """Check that images are active, and keep them so until the transaction ends: what is made of them is written before one is deleted.

    :raises ImageNotActive: one is not.
    """
    wanted = sorted(set(ids))
    if not wanted:
        return
    query = sa.select(_i.id).where(bulk.among(tx, _i.id, wanted), _i.deleted == LIVE, _i.status == life.ACTIVE)
    active = set(tx.execute(query.order_by(_i.id).with_for_update(read=True)).scalars())
    for image_id in wanted:
        if image_id not in active:
            raise ImageNotActive(image_id=image_id, remedy="It was deleted meanwhile: name another image.")


def places(tx: Transaction, ids: t.Iterable[str], lock: bool = False) -> dict[str, list[PlaceRow]]:
    """Id of an image -> its places, by store; an image without places has an empty list."""
    by_image: dict[str, list[PlaceRow]] = {image_id: [] for image_id in ids}
    if by_image:
        query = (
            sa.select(image_places).where(bulk.among(tx, _p.image_id, sorted(by_image))).order_by(_p.image_id, _p.store)
        )
        for row in tx.rows(query.with_for_update() if lock else query, PlaceRow):
            by_image[row.image_id].append(row)
    return by_image


def failed_since(tx: Transaction, moment: float) -> list[str]:
    """Return the ids of images that were deleted after their bytes did not arrive. :arg moment: not before, in seconds since the epoch"""
    query = sa.select(_i.id).where(_i.deleted_at >= moment, _i.fault != "")
    return list(tx.execute(query.order_by(_i.id)).scalars())


def to_remove(tx: Transaction, stores: t.Iterable[str] | None = None) -> list[PlaceRow]:
    """Return the places whose files are to be removed, by image. :arg stores: only in these"""
    query = sa.select(image_places).where(_p.progress == life.ENDING).order_by(_p.image_id, _p.store)
    if stores is not None:
        query = query.where(bulk.among(tx, _p.store, sorted(set(stores))))
    return tx.rows(query, PlaceRow)


def nvrams(tx: Transaction, ids: t.Iterable[str]) -> dict[str, str]:
    """Return id of an image -> its UEFI variables, see core.guest.nvram.pack(); an image without variables is not in it."""
    c = image_nvrams.c
    query = sa.select(c.image_id, c.data).where(bulk.among(tx, c.image_id, sorted(set(ids))))
    return {row.image_id: row.data for row in tx.execute(query)}


def stored(tx: Transaction, rows: t.Sequence[ImageRow]) -> list[StoredImage]:
    """Return the rows in the form of core's rules, with their places."""
    by_image = places(tx, [row.id for row in rows])
    return [
        StoredImage(
            id=row.id,
            name=row.name,
            project=row.project,
            status=row.status,
            visibility=row.visibility,
            protected=row.protected,
            user=row.user_name,
            size=row.size,
            checksum=row.checksum,
            requested_checksum=row.requested_checksum,
            disk_format=row.disk_format,
            container_format=row.container_format,
            min_disk=row.min_disk,
            min_ram=row.min_ram,
            properties=dict(row.properties),
            instance_uuid=row.instance_uuid,
            fault=row.fault,
            places=tuple(Place(place.store, place.progress) for place in by_image[row.id]),
        )
        for row in rows
    ]


# --- writing -------------------------------------------------------------------------------------------------------------


def lock_names(tx: Transaction, project: str, names: t.Iterable[str]) -> None:
    """Wait until no other transaction makes images of these names in the project. Before any lock of an image."""
    take_turns(tx, "image", ["%s %s" % (project, name) for name in names])


def create(tx: Transaction, made: t.Sequence[StoredImage]) -> None:
    """Enter new images, in the state of the event ``create``."""
    first = life.CREATE.after(None)
    rows = [
        {
            "id": image.id,
            "project": image.project,
            "user_name": image.user or tx.actor,
            "name": image.name,
            "status": first.status,
            "visibility": image.visibility,
            "protected": image.protected,
            "size": None,
            "checksum": "",
            "requested_checksum": image.requested_checksum,
            "disk_format": image.disk_format,
            "container_format": image.container_format,
            "min_disk": image.min_disk,
            "min_ram": image.min_ram,
            "properties": dict(image.properties),
            "instance_uuid": image.instance_uuid,
            "fault": "",
            "run_id": None,
            "created_at": tx.now,
            "updated_at": tx.now,
            "deleted_at": None,
            "deleted": LIVE,
        }
        for image in made
    ]
    if rows:
        tx.execute(images.insert(), rows)


def update(tx: Transaction, image_id: str, **values: t.Any) -> None:
    """Write columns that no event writes: visibility, protected, min_disk, min_ram, properties."""
    tx.execute(images.update().where(_i.id == image_id).values(**values, updated_at=tx.now))


def own(tx: Transaction, image_id: str) -> None:
    """Make this run the one that worked on the image last."""
    tx.execute(images.update().where(_i.id == image_id).values(run_id=tx.run.id))


def keep_nvram(tx: Transaction, image_id: str, packed: str) -> None:
    """Write the UEFI variables of an image, see core.guest.nvram.pack()."""
    tx.execute(image_nvrams.insert(), {"image_id": image_id, "data": packed})


def apply(tx: Transaction, image_id: str, event: Event, store: str = "", **values: t.Any) -> None:
    """Apply ``event`` to an image and to its places, which are locked.

    :arg store: the only place that the event is of; "": all of the image. An event that begins a place names it.
    :arg values: columns of the image that are written with it.
    :raises ImageStatusConflict: the state of the image, or of a place, does not admit the event.
    """
    missing = sorted({*event.needs} - {*values} - _WRITTEN)
    if missing:
        raise TypeError("the event %s needs %s" % (event.name, ", ".join(missing)))
    rows = select(tx, ids=[image_id], with_deleted=True, lock=True)
    if not rows:
        raise ImageStatusConflict(image_id=image_id, state="not there", event=event.name)
    (row,) = rows
    of_event = [p for p in places(tx, [image_id], lock=True)[image_id] if store in ("", p.store)]
    status = row.status
    for name, progress in [(p.store, p.progress) for p in of_event] or [(store, life.NONE)]:
        after = event.after(State(row.status, progress), image_id)
        status = after.status
        if after.progress != progress:
            _write_place(tx, image_id, name, after.progress, is_new=progress == life.NONE)
    written: dict[str, t.Any] = {"status": status, "updated_at": tx.now, **values}
    if "run_id" in event.needs:
        written["run_id"] = tx.run.id
    if "deleted" in event.needs:
        written.update(deleted=image_id, deleted_at=tx.now)
        tx.execute(image_nvrams.delete().where(image_nvrams.c.image_id == image_id))
    tx.execute(images.update().where(_i.id == image_id).values(**written))


def _write_place(tx: Transaction, image_id: str, store: str, progress: str, is_new: bool) -> None:
    """Write how far a place is; one that has nothing has no row."""
    is_place = (_p.image_id == image_id, _p.store == store)
    if progress == life.NONE:
        tx.execute(image_places.delete().where(*is_place))
    elif is_new:
        row = {"image_id": image_id, "store": store, "progress": progress, "created_at": tx.now, "updated_at": tx.now}
        tx.execute(image_places.insert(), row)
    else:
        tx.execute(image_places.update().where(*is_place).values(progress=progress, updated_at=tx.now))
