# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A disk that an instance is to have."""

from __future__ import annotations

import re
import typing as t
from dataclasses import dataclass

from ....core.disks.image_checks import check_fits_disk
from ....core.disks.local import FILE_SYSTEMS
from ....core.disks.stores.registry import DEFAULT, NAMES
from ....core.errors import FlavorDiskSmallerThanImage, InvalidInput
from ...os.paths import checked_disk_name

if t.TYPE_CHECKING:
    from ...images.images import BaseImage

KINDS = ("image", "ephemeral", "swap")
_LABEL = re.compile(r"[A-Za-z0-9_.-]{1,16}\Z")


@dataclass(frozen=True)
class DiskSpec:
    """A requested disk. ``size`` is in bytes; 0 for an image: the size of the image."""

    name: str
    kind: str  # image, ephemeral, swap
    size: int
    backend: str = DEFAULT
    image_id: str = ""
    fs: str = "ext4"  # of an ephemeral disk
    label: str = ""
    max_size: int = 0  # bytes of the image, where the disk has its size; 0: no limit

    def checked(self) -> DiskSpec:
        """Returns itself. Raises InvalidInput if a field has an invalid value, or a size is missing."""
        checked_disk_name(self.name)
        for value, words, what in (
            (self.kind, KINDS, "kind"),
            (self.backend, NAMES, "backend"),
            (self.fs, FILE_SYSTEMS, "fs"),
        ):
            if value not in words:
                raise InvalidInput(
                    reason="%s of disk %s must be one of %s, got %r" % (what, self.name, ", ".join(words), value)
                )
        if self.size < 0 or (self.size == 0 and self.kind != "image"):
            raise InvalidInput(reason="disk %s has no size" % self.name)
        if self.kind == "image" and not self.image_id:
            raise InvalidInput(reason="disk %s has no image_id" % self.name)
        if self.label and not _LABEL.match(self.label):
            raise InvalidInput(reason="label of disk %s is not valid: %r" % (self.name, self.label))
        return self


def disk_size(spec: DiskSpec, base: BaseImage | None) -> int:
    """Size of the disk in bytes.

    :raises FlavorDiskSmallerThanImage: the image is larger than the disk, or than it may be.
    """
    if spec.kind != "image" or base is None:
        return spec.size
    return check_fits(spec, base.virtual_size)


def check_fits(spec: DiskSpec, virtual_size: int) -> int:
    """Size of a disk made from an image of ``virtual_size`` bytes.

    :raises FlavorDiskSmallerThanImage: see disk_size().
    """
    if spec.max_size and not spec.size and virtual_size > spec.max_size:
        raise FlavorDiskSmallerThanImage(
            flavor_size=spec.max_size,
            image_size=virtual_size,
            remedy="Set the image's min_disk in bootflow_images to its virtual size in GiB, rounded up.",
        )
    return check_fits_disk(virtual_size, spec.size)


def needed(base: BaseImage | None, spec: DiskSpec) -> BaseImage:
    """The image of the disk. Raises InvalidInput if it is not in the cache."""
    if base is None:
        raise InvalidInput(reason="image %s of disk %s is not in the cache" % (spec.image_id, spec.name))
    return base
