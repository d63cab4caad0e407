# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Deleting images: their records at once, their files by the hosts of their stores (store_work.py)."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field

from ...core import errors
from ...core.images import life
from ...core.images.image import StoredImage
from ...core.images.resolve import ambiguous
from ...core.images.stores.registry import ImageStores
from ...core.reading.problems import Problems
from ...core.reading.setting import canonical
from ...ledger.compute import runs
from ...ledger.db.transaction import Transaction
from ...ledger.images import image_uses, images
from ...ledger.images.images import ImageRow
from . import dead_images
from .busy import check_not_busy

_FORGOTTEN = (
    "Declare it again in bootflow_image_stores, under the name that it had, and its file is removed. If it is gone for good, declare an empty"
    " directory under that name."
)


@dataclass
class ImagesDeleting:
    """``deleted``: live until now. ``pending``: deleted before, with a file that is still in a store."""

    deleted: list[StoredImage] = field(default_factory=list)
    pending: list[StoredImage] = field(default_factory=list)
    not_found: list[str] = field(default_factory=list)
    hosts: list[str] = field(default_factory=list)

    @property
    def ids(self) -> list[str]:
        return [image.id for image in (*self.deleted, *self.pending)]


def begin(
    tx: Transaction, words: t.Sequence[str], project: str | None, missing_ok: bool, stores: ImageStores
) -> ImagesDeleting:
    """Delete the records of images. :arg words: names and ids. :arg project: None: an administrator's

    :raises InvalidRequest: all refusals (LedgerImageNotFound, ImageAmbiguous, ImageProtected, ImageOfOtherProject, ImageInUse,
        ImageStoreNotFound). Nothing is written then.
    """
    runs.renew(tx)
    problems, deleting = Problems(), ImagesDeleting()
    rows = {row.id: row for row in images.select(tx, words=words, with_deleted=True, lock=True)}
    stored = {image.id: image for image in images.stored(tx, list(rows.values()))}
    active = [row.id for row in rows.values() if row.status == life.ACTIVE]
    uses = image_uses.uses(tx, active)
    for word in dict.fromkeys(words):
        with problems.collect("images[%s]" % word):
            chosen = _chosen(word, stored.values(), project)
            if not chosen and not missing_ok:
                raise errors.LedgerImageNotFound(image_id=word)
            if not chosen:
                deleting.not_found.append(word)
            for image in chosen:
                _check_stores(image, stores)
                if image.id in deleting.ids:
                    continue
                if image.status == life.DELETED:
                    deleting.pending.append(image)
                else:
                    _check(tx, rows[image.id], image, project, uses.get(image.id, ()))
                    deleting.deleted.append(image)
    problems.raise_if_any()
    for image in deleting.deleted:
        if image.status == life.QUEUED:
            dead_images.delete_unfinished(tx, image, "A person deleted it.")
        else:
            images.apply(tx, image.id, life.DELETE)
    for image in deleting.pending:
        images.own(tx, image.id)
    named = [place.store for image in (*deleting.deleted, *deleting.pending) for place in image.places]
    deleting.hosts = sorted({store.host for store in stores.known(named)})
    return deleting


def _chosen(word: str, stored: t.Collection[StoredImage], project: str | None) -> list[StoredImage]:
    """Return the image that the word names; else the deleted ones whose file is still in a store. :raises ImageAmbiguous:"""
    living = [image for image in stored if image.status != life.DELETED]
    matches = [i for i in living if i.id == canonical(word) and i.may_be_used_by(project)]
    matches = matches or [i for i in living if i.name == word and i.is_listed_for(project)]
    if len(matches) > 1:
        matches = [i for i in matches if i.may_be_changed_by(project)] or matches
    if len(matches) > 1:
        raise ambiguous(word, matches)
    if matches:
        return matches
    deleted = [i for i in stored if i.status == life.DELETED and i.places and i.may_be_changed_by(project)]
    return [i for i in deleted if word == i.name or canonical(word) == i.id]


def _check_stores(image: StoredImage, stores: ImageStores) -> None:
    """:raises ImageStoreNotFound: no host could remove the file."""
    for place in image.places:
        try:
            stores.get(place.store)
        except errors.ImageStoreNotFound as e:
            e.remedy = _FORGOTTEN
            raise


def _check(tx: Transaction, row: ImageRow, image: StoredImage, project: str | None, uses: t.Sequence[str]) -> None:
    if not image.may_be_changed_by(project):
        raise errors.ImageOfOtherProject(image_id=image.id, owner=image.project)
    if image.protected and image.status == life.ACTIVE:  # another one has no bytes to protect
        raise errors.ImageProtected(image_id=image.id)
    check_not_busy(tx, row)
    if uses:
        raise errors.ImageInUse(image_id=image.id, reason="; ".join(uses))


def finish(
    tx: Transaction, ids: t.Collection[str] | None = None
) -> tuple[list[dict[str, t.Any]], list[dict[str, t.Any]]]:
    """Return the images that this run deleted and that have no file, and the images with one: {id, name, stores}.

    :arg ids: of the images; None: all of the run
    """
    rows = images.select(tx, ids=ids, statuses=[life.DELETED], run_id=tx.run.id, with_deleted=True)
    views = [
        {"id": image.id, "name": image.name, "stores": [place.store for place in image.places]}
        for image in images.stored(tx, rows)
    ]
    return [view for view in views if not view["stores"]], [view for view in views if view["stores"]]
