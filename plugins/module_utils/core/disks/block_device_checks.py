# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Checks of block device mappings in v2 form: each by itself, and all of a guest together.

source: Nova's BlockDeviceDict (from_api, _validate) and API._validate_bdm
"""

from __future__ import annotations

import re
import typing as t

from ..errors import (
    InvalidBDM,
    InvalidBDMBootSequence,
    InvalidBDMDiskBus,
    InvalidBDMEphemeralSize,
    InvalidBDMFormat,
    InvalidBDMLocalsLimit,
    InvalidBDMSwapSize,
)
from ..reading.formats import MAX_INT
from .disk_names import VALID_BUSES

if t.TYPE_CHECKING:
    from ..model import BlockDevice, Flavor, Image

SOURCE_TYPES = ("image", "volume", "snapshot", "blank")
MAX_LOCAL_BLOCK_DEVICES = 3  # Nova's default
DESTINATION_TYPES = ("local", "volume")
DEVICE_TYPES = ("disk", "cdrom", "floppy", "lun")
LEGAL_PAIRS = frozenset(
    {
        ("image", "local"),
        ("image", "volume"),
        ("volume", "volume"),
        ("snapshot", "volume"),
        ("blank", "local"),
        ("blank", "volume"),
    }
)

# Nova's texts
MISSING_UUID = "Missing device UUID."
BLANK_WITH_UUID = "Invalid device UUID."
IMAGE_WITHOUT_SIZE = "Images with destination_type 'volume' need to have a non-zero size specified"
BLANK_WITHOUT_SIZE = "Blank volumes (source: 'blank', dest: 'volume') need to have non-zero size"
TYPE_OF_LOCAL = "Specifying a volume_type with destination_type=local is not supported."
TYPE_OF_EXISTING = "Specifying volume type to existing volume is not supported."

_DEV = "/dev/"
_TAG = re.compile(r"[^,/]{1,60}\Z")


def strip_dev(device_name: str | None) -> str | None:
    """``vda`` of ``/dev/vda``."""
    if device_name and device_name.startswith(_DEV):
        return device_name[len(_DEV) :]
    return device_name


def is_swap(bdm: BlockDevice) -> bool:
    return bdm.source_type == "blank" and bdm.destination_type == "local" and bdm.guest_format == "swap"


def is_ephemeral(bdm: BlockDevice) -> bool:
    return bdm.source_type == "blank" and bdm.destination_type == "local" and bdm.guest_format != "swap"


def mapping_of_image(source_type: str, destination_type: str) -> InvalidBDMFormat:
    """The error of an unsupported pair."""
    return InvalidBDMFormat(
        details="Mapping %s to %s is not supported." % (source_type, destination_type),
        remedy="Only the image that is booted, with boot_index 0, becomes a local disk; for any other image set destination_type: volume.",
    )


def check_words(bdm: BlockDevice) -> None:
    """Check the form of one mapping. With ``no_device`` only its name is checked.

    :raises InvalidBDMFormat: an invalid word, number or name; a superfluous or missing uuid; a volume_type of a device
        that is not a new volume.
    """
    from .. import model  # the settings need only numbers of this file

    if not isinstance(bdm, model.BlockDevice):
        raise InvalidBDMFormat(details="%s is not a mapping." % ascii(bdm)[:100])
    _check_name(bdm.device_name)
    if bdm.no_device:
        return
    for name, words in (("source_type", SOURCE_TYPES), ("destination_type", DESTINATION_TYPES)):
        if getattr(bdm, name) not in words:
            raise InvalidBDMFormat(details="Invalid %s field." % name, remedy="One of %s." % ", ".join(words))
    if bdm.device_type is not None and bdm.device_type not in DEVICE_TYPES:
        raise InvalidBDMFormat(details="Invalid device_type field.", remedy="One of %s." % ", ".join(DEVICE_TYPES))
    for name in ("uuid", "disk_bus", "guest_format", "tag", "volume_type"):
        if getattr(bdm, name) is not None and not isinstance(getattr(bdm, name), str):
            raise InvalidBDMFormat(details="Invalid %s field." % name)
    if bdm.source_type != "blank" and not bdm.uuid:
        raise InvalidBDMFormat(details=MISSING_UUID, remedy="Give the uuid of the %s." % bdm.source_type)
    if bdm.source_type == "blank" and bdm.uuid:
        raise InvalidBDMFormat(details=BLANK_WITH_UUID, remedy="A blank device has no uuid.")
    if bdm.volume_size is not None and (not _is_integer(bdm.volume_size) or not 0 <= bdm.volume_size <= MAX_INT):
        raise InvalidBDMFormat(details="Invalid volume_size.", remedy="A whole number of GiB from 0 to %d." % MAX_INT)
    if bdm.boot_index is not None and (not _is_integer(bdm.boot_index) or abs(bdm.boot_index) > MAX_INT):
        raise InvalidBDMFormat(details="Boot index is invalid.", remedy="0 for the root disk, 1, 2 and so on, or none.")
    if bdm.tag is not None and not _TAG.match(bdm.tag):
        raise InvalidBDMFormat(details="Invalid tag field.", remedy="1 to 60 characters, no comma and no slash.")
    check_volume_type(bdm.volume_type, bdm.source_type, bdm.destination_type)


def check_volume_type(volume_type: str | None, source_type: str, destination_type: str) -> None:
    """:raises InvalidBDMFormat: a type for a device that is not a new volume."""
    if volume_type and destination_type == "local":
        raise InvalidBDMFormat(details=TYPE_OF_LOCAL)
    if volume_type and source_type == "volume":
        raise InvalidBDMFormat(details=TYPE_OF_EXISTING, remedy="Leave volume_type out of that device.")


def check_size(bdm: BlockDevice) -> None:
    """:raises InvalidBDM: a new volume without size; a snapshot has its own size."""
    if bdm.destination_type != "volume" or bdm.volume_size:
        return
    if bdm.source_type == "image":
        raise InvalidBDM(message=IMAGE_WITHOUT_SIZE, remedy="Set volume_size, in GiB.")
    if bdm.source_type == "blank":
        raise InvalidBDM(message=BLANK_WITHOUT_SIZE, remedy="Set volume_size, in GiB.")


def check_disk_bus(bdm: BlockDevice) -> None:
    """:raises InvalidBDMDiskBus: a bus that QEMU guests do not have (Nova knows buses of other hypervisors too)."""
    if bdm.disk_bus and bdm.disk_bus not in VALID_BUSES:
        raise InvalidBDMDiskBus(disk_bus=bdm.disk_bus)


def validate_bdms(
    bdms: t.Sequence[BlockDevice],
    flavor: Flavor,
    image: Image | None,
    max_local_block_devices: int = MAX_LOCAL_BLOCK_DEVICES,
) -> None:
    """Nova's checks of the merged mappings, in Nova's order.

    Stricter than Nova on purpose: the image of a local disk must be the booted one, and device names must differ.
    In Nova the first boots another image than requested, and the second fails on the host.

    :arg max_local_block_devices: -1 is unlimited, 0 forbids local disks.
    :raises InvalidBDMFormat: see check_words(); an illegal pair of source and destination, more than one swap disk.
    :raises InvalidBDMBootSequence: boot indexes (those >= 0) that lack 0, repeat or leave gaps.
    :raises InvalidBDM: a volume without size, a device name that repeats.
    :raises InvalidBDMDiskBus: an unknown bus.
    :raises InvalidBDMEphemeralSize: ephemeral disks that exceed the flavor's in sum.
    :raises InvalidBDMSwapSize: swap larger than the flavor's.
    :raises InvalidBDMLocalsLimit: too many local disks.
    """
    for bdm in bdms:
        check_words(bdm)
    bdms = [bdm for bdm in bdms if not bdm.no_device]
    for bdm in bdms:
        _check_pair(bdm, image)
    check_boot_sequence(bdm.boot_index for bdm in bdms)
    for bdm in bdms:
        check_size(bdm)
        check_disk_bus(bdm)
    # A size of 0 means the flavor's, like a missing size.
    ephemeral = sum(bdm.volume_size or flavor.ephemeral_gb for bdm in bdms if is_ephemeral(bdm))
    if ephemeral > flavor.ephemeral_gb:
        raise InvalidBDMEphemeralSize(
            remedy="The flavor %s has %d GiB of ephemeral disk; the mappings ask for %d GiB."
            % (flavor.name, flavor.ephemeral_gb, ephemeral)
        )
    swaps = [bdm for bdm in bdms if is_swap(bdm)]
    if len(swaps) > 1:
        raise InvalidBDMFormat(details="More than one swap drive requested.")
    if swaps and (swaps[0].volume_size or 0) > flavor.swap:
        raise InvalidBDMSwapSize(remedy="The flavor %s has %d MiB of swap." % (flavor.name, flavor.swap))
    local = sum(1 for bdm in bdms if bdm.destination_type == "local")
    if 0 <= max_local_block_devices < local:
        raise InvalidBDMLocalsLimit(
            remedy="%d local disks (root, ephemeral, swap) are requested, bootflow_max_local_block_devices is %d; -1 removes the limit."
            % (local, max_local_block_devices)
        )
    _check_names(bdms)


def check_boot_sequence(boot_indexes: t.Iterable[int | None]) -> None:
    """Bootable devices are numbered 0, 1, 2... each once; null and negative indexes are ignored.

    :raises InvalidBDMBootSequence: another numbering, or no bootable device.
    """
    indexes = sorted(index for index in boot_indexes if index is not None and index >= 0)
    if not indexes or indexes != list(range(len(indexes))):
        raise InvalidBDMBootSequence(
            remedy="Number the bootable devices 0, 1, 2... each once; null or -1 means that a device is not booted from."
        )


def _check_name(name: t.Any) -> None:
    if name is None:
        return
    if not isinstance(name, str) or not 1 <= len(name) <= 255:
        raise InvalidBDMFormat(details="Device name empty or too long.")
    if " " in name:
        raise InvalidBDMFormat(details="Device name contains spaces.")


def _check_pair(bdm: BlockDevice, image: Image | None) -> None:
    pair = (bdm.source_type, bdm.destination_type)
    booted = image is not None and bdm.boot_index == 0 and bdm.uuid in (image.id, image.name)
    if pair not in LEGAL_PAIRS or (pair == ("image", "local") and not booted):
        raise mapping_of_image(*pair)


def _check_names(bdms: t.Sequence[BlockDevice]) -> None:
    seen: set[str] = set()
    for bdm in bdms:
        name = strip_dev(bdm.device_name)
        if name and name in seen:
            raise InvalidBDM(reason="the device name /dev/%s is given twice" % name)
        seen.add(name or "")


def _is_integer(value: t.Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
