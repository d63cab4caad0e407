# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The rules of an image of a volume: the entries of bootflow_volume_uploads, and what the image has of the volume.

source: Cinder's os-volume_upload_image and API.copy_volume_to_image (2026)
"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ..disks.local import QCOW2, RAW
from ..errors import ImageExists, NotSupportedYet
from ..reading.fields import Fields, read_entries
from .image import PRIVATE, VISIBILITIES, StoredImage, container_format_of
from .snapshot_properties import NOT_KEPT, VOLUME_ID
from .stores.registry import ImageStores
from .stores.store_kind import ImageStore

FORMATS = (RAW, QCOW2)

#: Fields of Glance's images that are not properties. source: Cinder's glance_core_properties
CORE = frozenset(
    ("checksum", "container_format", "disk_format", "image_name", "image_id", "min_disk", "min_ram", "name", "size")
)
#: Properties that begin with these belong to one image. source: Cinder's GLANCE_RESERVED_NAMESPACES
RESERVED_BEGINNINGS = ("os_glance", "img_signature", "signature_verified")
#: The property of an image whose bytes are encrypted: the key.
ENCRYPTION_KEY = "cinder_encryption_key_id"
ENCRYPTION = frozenset((ENCRYPTION_KEY, "cinder_encryption_key_deletion_policy"))


@dataclass(frozen=True)
class VolumeUpload:
    """An entry. ``volume``: name or id"""

    path: str  # of the entry, for errors
    name: str  # of the image
    volume: str
    store: ImageStore
    disk_format: str = RAW
    visibility: str = PRIVATE
    protected: bool = False
    force: bool = False

    def image_of(
        self,
        image_id: str,
        volume_id: str,
        size: int,
        project: str,
        user: str,
        image_metadata: t.Mapping[str, t.Any],
    ) -> StoredImage:
        """Return the image, without bytes. :arg size: of the volume, in GB. :arg image_metadata: of the volume

        :raises NotSupportedYet: the volume is encrypted.
        """
        refuse_encrypted(self.volume, image_metadata)
        return StoredImage(
            id=image_id,
            name=self.name,
            project=project,
            user=user,
            visibility=self.visibility,
            protected=self.protected,
            disk_format=self.disk_format,
            container_format=container_format_of(self.disk_format),
            min_disk=size,
            properties=properties_of(image_metadata, volume_id),
        )

    def existing_of(self, named: t.Sequence[StoredImage], volume_id: str) -> StoredImage | None:
        """Return the image of the volume that need not be made again. :arg named: active images of its name in the project

        :raises ImageExists: the name is that of another image, or the image is not as requested.
        """
        if not named:
            return None
        for image in named:
            if len(named) > 1 or not is_of(image, volume_id):
                raise self._exists(image, "other content", "an image of volume %s" % self.volume)
            for field in ("disk_format", "visibility", "protected"):
                has, wanted = getattr(image, field), getattr(self, field)
                if has != wanted:
                    raise self._exists(image, "%s %s" % (field, has), str(wanted))
        return named[0]

    def _exists(self, image: StoredImage, has: str, wanted: str) -> ImageExists:
        return ImageExists(name=image.name, image_id=image.id, has=has, wanted=wanted)


def is_of(image: StoredImage, volume_id: str) -> bool:
    """Whether an image is of this volume, not of an instance that was made from such an image."""
    return image.instance_uuid is None and image.properties.get(VOLUME_ID) == volume_id


def properties_of(image_metadata: t.Mapping[str, t.Any], volume_id: str) -> dict[str, str]:
    """Return the properties of an image of a volume.

    :arg image_metadata: of the volume: of the image that it was made from. source: Cinder's _merge_volume_image_meta
    """
    copied = {
        key: str(value)
        for key, value in image_metadata.items()
        if value is not None
        and key not in CORE
        and key not in NOT_KEPT
        and key not in ENCRYPTION
        and not key.startswith(RESERVED_BEGINNINGS)
    }
    return {**copied, VOLUME_ID: volume_id}


def refuse_encrypted(volume: str, image_metadata: t.Mapping[str, t.Any]) -> None:
    """:raises NotSupportedYet: the volume was made from an image whose bytes are encrypted."""
    if image_metadata.get(ENCRYPTION_KEY):
        raise NotSupportedYet(
            feature="An image of volume %s, which is encrypted," % volume,
            remedy="There is no key manager that could give the image a key: copy the files of the guest.",
        )


def read_uploads(data: t.Any, stores: ImageStores) -> list[VolumeUpload]:
    """Return the entries of bootflow_volume_uploads. :raises InvalidRequest: all errors, the paths beginning with volume_uploads"""
    return read_entries("volume_uploads", data, lambda fields: _read(fields, stores), ("name", "volume"))


def _read(fields: Fields, stores: ImageStores) -> VolumeUpload | None:
    name, volume = fields.name("name"), fields.name("volume")
    disk_format = fields.choice("disk_format", FORMATS, RAW)
    visibility = fields.choice("visibility", VISIBILITIES, PRIVATE)
    protected, force = fields.boolean("protected"), fields.boolean("force")
    store_name = fields.text("store")
    with fields.problems.collect(fields.at("store")):
        store = stores.get(store_name) if store_name else stores.default()
        return VolumeUpload(fields.path, name, volume, store, disk_format, visibility, protected, force)
    return None
