# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whether an image goes with a flavor, as far as the catalogue tells. source: 000, API._create_instance; semantics 14."""

from __future__ import annotations

import typing as t

from ..errors import (
    AutoDiskConfigDisabledByImage,
    BootflowError,
    FlavorDiskSmallerThanImage,
    FlavorDiskSmallerThanMinDisk,
    FlavorMemoryTooSmall,
    ImageNotActive,
)
from ..model import Flavor, Image
from .formats import TRUE_WORDS

_GIB = 1024**3


def image_errors(image: Image, flavor: t.Optional[Flavor]) -> t.Iterator[BootflowError]:
    """What speaks against booting ``image`` on a local disk of ``flavor``; root_gb 0 is as large as the image."""
    if image.status != "active":
        yield ImageNotActive(image_id=image.name, remedy="Wait for it, or set its status: active in bootflow_images.")
    if flavor is None:
        return
    if flavor.memory_mb < image.min_ram:
        yield FlavorMemoryTooSmall()
    root = flavor.root_gb * _GIB
    if not root:
        return
    if image.size is not None and image.size > root:
        yield FlavorDiskSmallerThanImage(flavor_size=root, image_size=image.size)
    elif image.min_disk * _GIB > root:
        yield FlavorDiskSmallerThanMinDisk(flavor_size=root, image_min_disk=image.min_disk * _GIB)


def disk_config(wished: t.Optional[str], image: t.Optional[Image]) -> str:
    """AUTO or MANUAL: the wish, else what the image's property auto_disk_config says, else MANUAL (row A20).

    :raises AutoDiskConfigDisabledByImage: AUTO was asked of an image that says Disabled.
    """
    stated = str((image.properties.get("auto_disk_config") if image is not None else None) or "").strip().lower()
    if wished == "AUTO" and stated == "disabled":
        raise AutoDiskConfigDisabledByImage(
            image=image.name if image is not None else "", remedy="Say disk_config: MANUAL, or leave it out."
        )
    if wished:
        return wished
    return "AUTO" if stated in TRUE_WORDS else "MANUAL"
