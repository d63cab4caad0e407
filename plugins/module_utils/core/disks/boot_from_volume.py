# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A guest whose root disk is a volume: its properties, the checks of its flavor, its zone.

source: Nova's get_bdm_image_metadata, get_image_metadata_from_volume, _validate_flavor_image_nostatus and _validate_vol_az_for_create
"""

from __future__ import annotations

import typing as t
from dataclasses import replace

from ..amounts import GIB
from ..errors import (
    FlavorMemoryTooSmall,
    InvalidBDMVolumeNotBootable,
    InvalidInput,
    MismatchVolumeAZException,
    VolumeSmallerThanMinDisk,
)
from ..model import Flavor, Image

#: an image's fields that are not properties: Cinder keeps both in one table (volume_image_metadata)
IMAGE_ATTRIBUTES = (
    "image_id", "image_name", "size", "checksum", "container_format", "disk_format", "min_ram", "min_disk",
)  # fmt: skip


def image_of_volume(image_metadata: t.Mapping[str, t.Any] | None, size_gb: int | None) -> Image:
    """The image of a guest that boots from this volume: active, and as large as the volume.

    :arg image_metadata: the volume's volume_image_metadata. Its values are texts in Cinder.
    :raises InvalidInput: not a mapping, or a min_ram or min_disk that is not a number.
    """
    if image_metadata is not None and not isinstance(image_metadata, t.Mapping):
        raise InvalidInput(reason="the image metadata of a volume must be a mapping")
    properties = dict(image_metadata or {})
    given = {name: properties.pop(name, None) for name in IMAGE_ATTRIBUTES}
    return Image(
        name="",
        id="",
        disk_format="",
        size=(size_gb or 0) * GIB,
        min_ram=_number(given["min_ram"], "min_ram"),
        min_disk=_number(given["min_disk"], "min_disk"),
        properties=properties,
    )


def anonymous(image: Image) -> Image:
    """The properties of an image that a disk was made of, without its source: nothing is fetched for the guest."""
    return replace(image, name="", id="", checksum="", url="", path="")


def check_volume_flavor(image: Image, flavor: Flavor, volume_size: int | None) -> None:
    """Check memory and volume size; the flavor's root_gb does not count. An existing volume was checked when it was made.

    :arg volume_size: requested GB; None: not given.
    :raises FlavorMemoryTooSmall: :raises VolumeSmallerThanMinDisk: (400)
    """
    if flavor.memory_mb < image.min_ram:
        raise FlavorMemoryTooSmall()
    if volume_size is not None and volume_size < image.min_disk:
        raise VolumeSmallerThanMinDisk(volume_size=volume_size * GIB, image_min_disk=image.min_disk * GIB)


def check_bootable(volume_id: str, bootable: bool, boot_index: int | None) -> None:
    """Check the root's flag; a snapshot has that of its volume. Other devices need not be bootable.

    :raises InvalidBDMVolumeNotBootable: (400)
    """
    if boot_index == 0 and not bootable:
        raise InvalidBDMVolumeNotBootable(id=volume_id)


def volume_zone(instance_zone: str | None, zones: t.Sequence[str], cross_az_attach: bool) -> str | None:
    """The zone that an instance has to be in because of its volumes. None: any.

    Nova sets no zone for an instance without one if its volumes are in the default zone; here the default zone is
    enforced like any other.

    :arg zones: of all its existing volumes.
    :raises MismatchVolumeAZException: (400) the volumes are in several zones, or not in the instance's.
    """
    if cross_az_attach or not zones:
        return instance_zone
    if len(set(zones)) > 1:
        raise MismatchVolumeAZException(reason="Volumes are in different availability zones: %s" % ",".join(zones))
    if instance_zone is not None and instance_zone != zones[0]:
        raise MismatchVolumeAZException(
            reason="Server and volumes are not in the same availability zone. Server is in: %s. Volumes are in: %s"
            % (instance_zone, zones[0])
        )
    return zones[0]


def _number(value: t.Any, name: str) -> int:
    try:
        return int(value or 0)
    except (TypeError, ValueError, OverflowError):
        raise InvalidInput(reason="%s of a volume's image must be a number, got %s" % (name, ascii(value))) from None
