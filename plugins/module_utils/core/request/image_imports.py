# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Entries of bootflow_image_imports: a file that becomes an image of the ledger."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ..disks.checksums import SHA256, parse_checksum
from ..errors import ImageExists, InvalidInput
from ..images.image import PRIVATE, VISIBILITIES, StoredImage, container_format_of
from ..images.snapshot_properties import Inherited, properties_of_instance
from ..images.stores.registry import ImageStores
from ..images.stores.store_kind import ImageStore
from ..model import Image
from ..reading.fields import Fields, read_entries
from .catalogue_images import read_image

#: Fields of bootflow_images that an import does not have, and why.
_REFUSED = {
    "id": "is the ledger's to give",
    "status": "follows from the bytes",
}


@dataclass(frozen=True)
class ImageImport:
    """An entry. ``image``: the file, and how it is fetched, as of an image of the catalogue."""

    field_path: str  # of the entry, for errors
    image: Image
    store: ImageStore
    visibility: str = PRIVATE
    protected: bool = False
    instance: str = ""  # name or UUID of the instance of whose disk the file is a copy

    @property
    def name(self) -> str:
        return self.image.name

    def as_stored(
        self,
        image_id: str,
        project: str,
        user: str,
        instance_uuid: str | None = None,
        from_instance: Inherited | None = None,
    ) -> StoredImage:
        """Return the image that the entry describes, without bytes.

        :arg from_instance: what it inherits from the instance; None: it is not of one
        """
        image = self.image
        properties = dict(image.properties)
        min_disk, min_ram = image.min_disk, image.min_ram
        if from_instance is not None and instance_uuid is not None:
            properties = properties_of_instance(from_instance.properties, instance_uuid, user, extra=properties)
            min_disk, min_ram = max(min_disk, from_instance.min_disk), max(min_ram, from_instance.min_ram)
        return StoredImage(
            id=image_id,
            name=image.name,
            project=project,
            visibility=self.visibility,
            protected=self.protected,
            user=user,
            requested_checksum=image.checksum,
            disk_format=image.disk_format,
            container_format=container_format_of(image.disk_format),
            min_disk=min_disk,
            min_ram=min_ram,
            properties=properties,
            instance_uuid=instance_uuid,
        )

    def check_same(self, active: StoredImage, file_sha256: str = "") -> None:
        """Check that an active image has the content of the entry. Without a checksum, a file elsewhere is taken for unchanged.

        :arg file_sha256: of the controller's file, where the entry has no checksum.
        :raises ImageExists: it differs.
        """
        text = self.image.checksum or file_sha256
        digest = parse_checksum(text) if text else None
        same = digest is None or str(digest) == active.requested_checksum
        same = same or (digest is not None and digest.algorithm == SHA256 and digest.digest == active.checksum)
        if not same:
            wanted, has = str(digest), active.checksum
            if digest is not None and digest.algorithm != SHA256:
                has = active.requested_checksum or "sha256:%s" % has
            raise ImageExists(name=self.name, image_id=active.id, has="checksum %s" % has, wanted=wanted)
        if self.image.disk_format != active.disk_format:
            raise ImageExists(
                name=self.name, image_id=active.id, has="format %s" % active.disk_format, wanted=self.image.disk_format
            )

    def changes(self, image: StoredImage) -> dict[str, tuple[t.Any, t.Any]]:
        """Return the fields of an active image that differ from the entry -> (now, requested). What it once inherited from an instance stays."""
        wanted: dict[str, t.Any] = {"visibility": self.visibility, "protected": self.protected}
        if not self.instance:
            of_file = self.image
            wanted.update(min_disk=of_file.min_disk, min_ram=of_file.min_ram, properties=dict(of_file.properties))
        pairs = {name: (getattr(image, name), value) for name, value in wanted.items()}
        return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}


def read_imports(data: t.Any, stores: ImageStores) -> list[ImageImport]:
    """The entries of bootflow_image_imports.

    :raises InvalidRequest: all errors, the paths beginning with image_imports.
    """
    own_name = "Give each image its own name."
    return read_entries("image_imports", data, lambda fields: _read(fields, stores), remedy=own_name)


def _read(fields: Fields, stores: ImageStores) -> ImageImport | None:
    name = fields.name("name")
    image = read_image(fields, name)
    for field, reason in _REFUSED.items():
        fields.refuse(field, fields.has(field), reason, "Leave it out.")
    if image.url and image.path:
        fields.wrong("path", "is given, and url too", "Leave one of them out.")
    visibility = fields.choice("visibility", VISIBILITIES, PRIVATE)
    protected = fields.boolean("protected")
    instance = fields.name("instance", "")
    store_name = fields.text("store")
    with fields.problems.collect(fields.at("store")):
        store = stores.get(store_name) if store_name else stores.default()
        return ImageImport(fields.path, image, store, visibility, protected, instance)
    return None


def unknown_instance(word: str) -> InvalidInput:
    """Return the error of an entry whose instance is not in the ledger, or is one of several of the name."""
    return InvalidInput(
        message="there is no instance %s, or several have this name" % word,
        remedy="Name it by its UUID; the playbook list shows the instances.",
    )
