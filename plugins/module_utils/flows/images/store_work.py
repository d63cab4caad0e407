# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The work of a store's host: it writes the bytes of images that this run imports, and removes the files of deleted ones."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field

from ...core import errors
from ...core.images import life
from ...core.images.image import StoredImage
from ...core.images.stores.registry import ImageStores
from ...core.images.stores.store_kind import ImageStore
from ...ledger.compute import runs
from ...ledger.db.transaction import Transaction
from ...ledger.images import images


@dataclass
class StoreWork:
    """The work in one store."""

    store: ImageStore
    uploads: list[StoredImage] = field(default_factory=list)
    removals: list[str] = field(default_factory=list)  # ids


@dataclass(frozen=True)
class Uploaded:
    """The bytes of an image that arrived and were verified."""

    size: int
    checksum: str  # sha256


#: What became of an image: its bytes arrived, its file was removed (None), or neither.
StoreOutcome = t.Union[Uploaded, errors.BootflowError, None]


def begin(tx: Transaction, host: str, stores: ImageStores) -> list[StoreWork]:
    """Return the work of this run in the stores of a host. Files of deleted images are removed, whatever run deleted them."""
    works = {store.name: StoreWork(store) for store in stores if store.host == host}
    if not works:
        return []
    runs.renew(tx)
    for image in images.stored(tx, images.select(tx, statuses=[life.SAVING], run_id=tx.run.id)):
        for place in image.places:
            if place.progress == life.BEGUN and place.store in works:
                works[place.store].uploads.append(image)
    for row in images.to_remove(tx, works):
        works[row.store].removals.append(row.image_id)
    return [work for work in works.values() if work.uploads or work.removals]


def finish(
    tx: Transaction,
    store: ImageStore,
    uploads: t.Mapping[str, StoreOutcome],
    removals: t.Mapping[str, StoreOutcome],
    unknown: t.Collection[str] = (),
) -> dict[str, errors.BootflowError]:
    """Write what became of images in a store. Returns id -> the error of each that failed.

    :arg unknown: uploads of which the host has not said what they left: a part may be there, and is removed by the next work of the store.

    A file that was not removed stays in the ledger as one to remove. An image that another run has deleted meanwhile stays deleted: its file
    is removed by the next work of the store.
    """
    runs.renew(tx)
    failed = {i: o for i, o in {**uploads, **removals}.items() if isinstance(o, errors.BootflowError)}
    uploading = {row.id for row in images.select(tx, ids=uploads, statuses=[life.SAVING], run_id=tx.run.id, lock=True)}
    for image_id, outcome in sorted(uploads.items()):
        if image_id not in uploading:
            continue
        if isinstance(outcome, Uploaded):
            images.apply(tx, image_id, life.UPLOADED, store.name, size=outcome.size, checksum=outcome.checksum)
        elif outcome is not None:
            images.apply(tx, image_id, life.UPLOAD_FAILED, store.name, fault=outcome.message)
            if image_id not in unknown:  # a host that answers has removed its part
                images.apply(tx, image_id, life.PLACE_REMOVED, store.name)
    ending = {row.image_id for row in images.to_remove(tx, [store.name])}
    for image_id in sorted(set(removals) & ending - set(failed)):
        images.apply(tx, image_id, life.PLACE_REMOVED, store.name)
    return failed
