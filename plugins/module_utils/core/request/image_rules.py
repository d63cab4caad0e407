# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Check that an image fits a flavor, by the catalogue. source: Nova's API._create_instance."""

from __future__ import annotations

import functools
import typing as t

from ..amounts import GIB
from ..errors import (
    AutoDiskConfigDisabledByImage,
    BootflowError,
    BootFromVolumeRequiredForZeroDiskFlavor,
    FlavorDiskSmallerThanImage,
    FlavorDiskSmallerThanMinDisk,
    FlavorMemoryTooSmall,
    ImageNotActive,
    ImageUnacceptable,
    InvalidInput,
    VolumeSmallerThanMinDisk,
)
from ..guest.config_drive_rules import config_drive_wanted, datasource
from ..images.snapshot_properties import is_layer
from ..reading.formats import TRUE_WORDS
from .later import later_properties

if t.TYPE_CHECKING:
    from ..model import BlockDevice, Flavor, Image

SHUTDOWN_TIMEOUT = "os_shutdown_timeout"  # seconds that a guest gets to shut down


def image_errors(
    image: Image,
    flavor: t.Optional[Flavor],
    root: t.Optional[BlockDevice] = None,
    allow_zero_disk: bool = True,
) -> t.Iterator[BootflowError]:
    """The errors of booting ``image`` on a local disk of ``flavor``; root_gb 0 means as large as the image.

    :arg allow_zero_disk: Nova's policy create:zero_disk_flavor.
    :arg root: the image's own mapping of the root. If it is a volume, the flavor's root_gb does not count.
    source: Nova's _detect_nonbootable_image_from_properties and _validate_flavor_image_nostatus
    """
    yield from property_errors(image.properties)
    if image.properties.get("cinder_encryption_key_id"):
        yield ImageUnacceptable(
            image_id=image.name,
            reason="Direct booting of an image uploaded from an encrypted volume is unsupported.",
        )
    if image.status != "active":
        yield ImageNotActive(image_id=image.name, remedy="Wait for it, or set its status: active in bootflow_images.")
    if flavor is None:
        return
    if flavor.memory_mb < image.min_ram:
        yield FlavorMemoryTooSmall()
    if root is not None and root.destination_type == "volume":
        if root.volume_size is not None and root.volume_size < image.min_disk:
            yield VolumeSmallerThanMinDisk(volume_size=root.volume_size * GIB, image_min_disk=image.min_disk * GIB)
        return
    if not image.has_bytes:
        yield without_bytes(image)
        return
    disk = flavor.root_gb * GIB
    if not disk:
        if not allow_zero_disk:
            yield BootFromVolumeRequiredForZeroDiskFlavor()
        elif not zero_disk_gb({"min_disk": image.min_disk, "disk_format": image.disk_format, "size": image.size}):
            yield ImageUnacceptable(
                image_id=image.name,
                reason="it has no min_disk, which an instance of a flavor with root_gb 0 claims",
                remedy="Set its min_disk in bootflow_images: its virtual size (qemu-img info) in GiB, rounded up.",
            )
        return
    if image.size is not None and image.size > disk and not is_layer(image.disk_format, image.properties):
        yield FlavorDiskSmallerThanImage(flavor_size=disk, image_size=image.size)
    elif image.min_disk * GIB > disk:
        yield FlavorDiskSmallerThanMinDisk(flavor_size=disk, image_min_disk=image.min_disk * GIB)


def without_bytes(image: Image) -> ImageUnacceptable:
    """Return the error of an image that is to become a disk, and has no bytes."""
    return ImageUnacceptable(
        image_id=image.name,
        reason="it has no bytes: it is of an instance whose root is a volume, and maps snapshots of volumes",
        remedy="Boot an instance from it, or make volumes of its snapshots.",
    )


def property_errors(properties: t.Mapping[str, t.Any]) -> t.Iterator[BootflowError]:
    """Yield the errors of properties that only this collection's controller reads, with any boot source of the guest."""
    wanted = functools.partial(config_drive_wanted, False, None)
    for rule in (wanted, datasource, shutdown_timeout):
        try:
            rule(properties)
        except InvalidInput as error:
            yield error
    yield from later_properties(properties)


def zero_disk_gb(image: t.Mapping[str, t.Any] | None) -> int:
    """GB that the root disk of a flavor with root_gb 0 can become: a larger image is refused by the host; 0: not known.

    :arg image: the fields min_disk, disk_format and size.
    """
    if image is None:
        return 0
    raw = -(-(image["size"] or 0) // GIB) if image["disk_format"] == "raw" else 0
    return max(int(image["min_disk"]), raw)


def local_root_gb(flavor_gb: int, image: t.Mapping[str, t.Any] | None, volume_backed: bool) -> int:
    """GB that an instance claims for its root disk. :arg flavor_gb: root_gb of its flavor. :arg image: see zero_disk_gb()"""
    return 0 if volume_backed else flavor_gb or zero_disk_gb(image)


def shutdown_timeout(properties: t.Mapping[str, t.Any]) -> t.Optional[int]:
    """Return the image's seconds; None: the host's seconds. source: Nova's _get_power_off_values

    :raises InvalidInput: not a whole number.
    """
    value = properties.get(SHUTDOWN_TIMEOUT)
    text = "" if value is None else str(value).strip()
    if not text:
        return None
    if not (text.isascii() and text.isdigit()):
        raise InvalidInput(
            reason="image property %s must be a whole number of seconds, got %r" % (SHUTDOWN_TIMEOUT, value),
            remedy="Write the seconds in digits, or leave it out.",
        )
    return int(text)


def disk_config(requested: t.Optional[str], image: t.Optional[Image]) -> str:
    """AUTO or MANUAL: as requested, else the image's property auto_disk_config, else MANUAL.

    :raises AutoDiskConfigDisabledByImage: AUTO was requested for an image with Disabled.
    """
    stated = str((image.properties.get("auto_disk_config") if image is not None else None) or "").strip().lower()
    if requested == "AUTO" and stated == "disabled":
        raise AutoDiskConfigDisabledByImage(
            image=image.name if image is not None else "", remedy="Write disk_config: MANUAL, or leave it out."
        )
    if requested:
        return requested
    return "AUTO" if stated in TRUE_WORDS else "MANUAL"
