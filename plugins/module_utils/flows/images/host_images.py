# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Images that hosts make of their disks: found again by their names, and what becomes of them when their bytes have arrived, or have not.

source: Nova's ComputeManager._snapshot_instance and delete_image_on_error, Cinder's VolumeManager.copy_volume_to_image
"""

from __future__ import annotations

import contextlib
import typing as t

from ...core import errors
from ...core.images import life
from ...core.images.image import StoredImage, container_format_of
from ...core.images.snapshots import LEFT, REMOVED
from ...core.images.stores.store_kind import ImageStore
from ...ledger.db.transaction import Transaction
from ...ledger.images import images
from . import dead_images
from .busy import check_not_busy

#: Seconds: older files of images that failed are removed by their age.
LATELY = 24 * 3600.0

_LOST = "It was deleted while its bytes were written, as this run seemed to be dead. Make it again."

Answer = t.Mapping[str, t.Any]


def named(
    tx: Transaction, project: str, names: t.Collection[str], refused: list[errors.BootflowError]
) -> dict[str, list[StoredImage]]:
    """Return name -> the project's images of these names. Images that live runs write are refused."""
    rows_of_name = [
        r for r in images.select(tx, words=sorted(names), lock=True) if r.project == project and r.name in names
    ]
    by_name: dict[str, list[StoredImage]] = {}
    for row in rows_of_name:
        try:
            check_not_busy(tx, row)
        except errors.ImageInUse as e:
            refused.append(e)
    for image in images.stored(tx, rows_of_name):
        by_name.setdefault(image.name, []).append(image)
    return by_name


def enter(tx: Transaction, made: t.Sequence[tuple[StoredImage, str]]) -> None:
    """Make the records of images whose bytes are about to be written. :arg made: each with the name of its store"""
    images.create(tx, [image for image, _store in made])
    for image, store in made:
        images.apply(tx, image.id, life.UPLOAD_BEGUN, store=store)


def files_to_remove(tx: Transaction, store: str) -> list[str]:
    """Return the ids of deleted images whose whole files the store has. A host may still write to a part of a file: that one waits."""
    ending = [row.image_id for row in images.to_remove(tx, [store])]
    return [row.id for row in images.select(tx, ids=ending, with_deleted=True) if row.size is not None]


def finish_stores(
    tx: Transaction,
    image_ids: t.Mapping[str, t.Mapping[str, str]],
    answers: t.Mapping[str, Answer],
    failed: t.Mapping[str, errors.BootflowError],
) -> dict[str, errors.BootflowError]:
    """Write what became of the images of several stores. Returns all errors, by the keys of items.

    :arg image_ids: name of a store -> key of an item -> id of its image. :arg answers, failed: see finish()
    """
    failures = dict(failed)
    all_images = [image_id for of_store in image_ids.values() for image_id in of_store.values()]
    for store, of_store in sorted(image_ids.items()):
        failures.update(finish(tx, of_store, answers, failed, store, all_images))
    return failures


def finish(
    tx: Transaction,
    image_ids: t.Mapping[str, str],
    answers: t.Mapping[str, Answer],
    failed: t.Mapping[str, errors.BootflowError],
    store: str,
    others: t.Iterable[str] = (),
) -> dict[str, errors.BootflowError]:
    """Write what became of images that this run ends: bytes that arrived make an image active, any other is deleted.

    Returns the errors of images that were deleted meanwhile, as another run took this one for dead, by the same keys.

    :arg image_ids: by the ids of the instances or volumes whose disks they have
    :arg answers: of their hosts; REMOVED: deleted images of which the store has nothing any more
    :arg failed: why some failed. :arg store: the name of the store. :arg others: ids of images that are written after this, too
    """
    removed = {image_id for answer in answers.values() for image_id in answer.get(REMOVED) or ()}
    images.select(tx, ids=[*others, *image_ids.values(), *removed], with_deleted=True, lock=True)  # all in their order
    for row in images.to_remove(tx, [store]) if removed else ():
        if row.image_id in removed:
            images.apply(tx, row.image_id, life.PLACE_REMOVED, store)
    own = {
        r.id: r for r in images.select(tx, ids=image_ids.values(), run_id=tx.run.id, lock=True) if r.status in life.BUSY
    }
    failures: dict[str, errors.BootflowError] = {}
    for key, image_id in sorted(image_ids.items()):
        if image_id not in own:
            if key not in failed:
                failures[key] = errors.ImageNotActive(image_id=image_id, remedy=_LOST)
            continue
        answer, error = answers.get(key, {}), failed.get(key)
        if own[image_id].status == life.QUEUED:  # without bytes: it maps snapshots of volumes
            if error is not None:
                dead_images.delete_unfinished(tx, own[image_id], error.message)
            else:
                images.apply(tx, image_id, life.COMPOSED, size=0)
            continue
        if error is not None:
            images.apply(tx, image_id, life.DELETE, fault=error.message)
            if answer.get("error") and answer.get(LEFT) is False:
                images.apply(tx, image_id, life.PLACE_REMOVED, store)
            continue
        disk_format = str(answer["disk_format"])
        images.apply(
            tx,
            image_id,
            life.UPLOADED,
            store,
            size=answer["size"],
            checksum=answer["checksum"],
            disk_format=disk_format,
            container_format=container_format_of(disk_format),
        )
        if answer.get("nvram"):
            images.keep_nvram(tx, image_id, str(answer["nvram"]))
    return failures


def failed_lately(tx: Transaction) -> list[str]:
    """Return the ids of failed images, of which hosts may have files."""
    return images.failed_since(tx, tx.now - LATELY)


def remove_ended(tx: Transaction, store: ImageStore, remove: t.Callable[[str], None]) -> None:
    """Remove what a store of the controller has of deleted images. The next work of the store tries again where that fails.

    :arg remove: removes the files of one, by its id
    """
    ids = {place.image_id for place in images.to_remove(tx, [store.name])}
    images.select(tx, ids=ids, with_deleted=True, lock=True)  # before the places are read
    for place in images.to_remove(tx, [store.name]):
        if place.image_id in ids:
            with contextlib.suppress(OSError):
                remove(place.image_id)
                images.apply(tx, place.image_id, life.PLACE_REMOVED, store.name)


def unanswered(answers: t.Mapping[str, Answer]) -> list[str]:
    """Return the keys of answers that lack what an image needs, without an error."""
    fields = ("size", "checksum", "disk_format")
    return [key for key, a in answers.items() if not a.get("error") and any(not a.get(name) for name in fields)]
