# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The one resolver of images: a name or id that a request has, among the images of the inventory and of the ledger."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field

from ..disks.image_urls import host_of
from ..errors import ImageAmbiguous, ImageNotFound, ImageNotReadable, LedgerImageNotFound
from ..model import Image
from ..reading.nearest import suggestion
from ..reading.setting import canonical
from . import life
from .image import StoredImage
from .stores.registry import ImageStores
from .stores.store_kind import Source
from .volume_backed import snapshots_in

#: Statuses of images that a request can name. A killed image has no bytes, and never gets any.
_NAMED = (life.QUEUED, life.SAVING, life.ACTIVE)


@dataclass(frozen=True)
class LedgerImages:
    """The images of the ledger that requests may name, and the stores that have their bytes."""

    images: t.Sequence[StoredImage] = ()
    stores: ImageStores = field(default_factory=ImageStores)

    def find(self, word: str, project: str | None) -> list[StoredImage]:
        """Return the images with this id (capitals or not), else with this name. :arg project: of the request; None: an administrator's"""
        named = [image for image in self.images if image.status in _NAMED]
        by_id = [i for i in named if i.id == canonical(word) and i.may_be_used_by(project)]
        return by_id or [i for i in named if i.name == word and i.is_listed_for(project)]

    def as_image(self, stored: StoredImage) -> Image:
        """Return the image in the form of the catalogue's, with how hosts get it.

        :raises ImageNotReadable: it is active, and none of its stores is known.
        """
        has_file = stored.status == life.ACTIVE and not snapshots_in(stored)
        source = self._source(stored) if has_file else Source()
        return Image(
            name=stored.name,
            id=stored.id,
            disk_format=stored.disk_format or "raw",
            checksum=stored.checksum,
            url=source.url,
            path=source.path,
            size=stored.size,
            min_disk=stored.min_disk,
            min_ram=stored.min_ram,
            status=stored.status,
            properties=dict(stored.properties),
        )

    def _source(self, stored: StoredImage) -> Source:
        known = self.stores.known(stored.readable_stores)
        sources = [store.source_of(stored.id) for store in known]
        if sources:
            return min(sources, key=lambda source: bool(host_of(source.url)))  # another host may not answer
        names = ", ".join(stored.readable_stores)
        raise ImageNotReadable(
            image_id=stored.name,
            reason="bootflow_image_stores has none of its stores (%s)" % names,
            remedy="Declare the store again, under the name that it had.",
        )


def resolve(word: str, catalogue: t.Mapping[str, Image], ledger: LedgerImages, project: str | None) -> Image:
    """Return the image that ``word`` names: by its id, else by its name.

    :arg catalogue: images of the inventory, by name. :arg project: of the request; None: an administrator's
    :raises ImageNotFound: no image has this name or id. :raises ImageAmbiguous: several have this name.
    :raises ImageNotReadable: see LedgerImages.as_image().
    """
    for image in catalogue.values():
        if image.id == word:
            return image
    stored = ledger.find(word, project)
    own = catalogue.get(word)
    if own is not None and any(image.id != canonical(word) for image in stored):
        raise ambiguous(word, stored, "%s in bootflow_images" % own.id)
    if own is not None:
        return own
    if not stored:
        known = [*catalogue, *(image.name for image in ledger.images if image.is_listed_for(project))]
        raise ImageNotFound(image_id=word, remedy=suggestion(word, known, "bootflow_images"))
    return ledger.as_image(only(word, stored))


def only(word: str, matches: t.Sequence[StoredImage]) -> StoredImage:
    """Return the one image that matches.

    :raises LedgerImageNotFound: none. :raises ImageAmbiguous: several.
    """
    if not matches:
        raise LedgerImageNotFound(image_id=word)
    if len(matches) > 1:
        raise ambiguous(word, matches)
    return matches[0]


def ambiguous(word: str, stored: t.Iterable[StoredImage], *others: str) -> ImageAmbiguous:
    """Return the error of a name that several images have. :arg others: images that are not of the ledger, in words"""
    named = [*others, *sorted("%s of project %s" % (image.id, image.project) for image in stored)]
    return ImageAmbiguous(name=word, images=", ".join(named))
