# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The block devices of one request, in the form of version 2. source: Nova's _check_and_transform_bdm.

This module has the rules of the request's form; core.disks.block_devices checks sizes against the flavor and device names.
Like Nova's clients, and unlike its API, volume_id, snapshot_id and image_id may stand for source_type and uuid, and
destination_type and delete_on_termination have defaults. Volumes and snapshots never become local disks: Nova's API
accepts such a mapping, and ignores it.
"""

from __future__ import annotations

import dataclasses
import typing as t

from ..amounts import GIB
from ..disks.block_device_checks import check_disk_bus, check_size, check_words, mapping_of_image, strip_dev
from ..disks.block_device_mapping import (
    DEFAULT_ROOT_DEVICE,
    brings_root,
    from_legacy,
    prepend_dev,
    root_bdm,
    root_device_name,
)
from ..errors import (
    BootflowError,
    ImageError,
    ImageNotActive,
    ImageNotFound,
    InvalidBDMBootSequence,
    InvalidBDMFormat,
    InvalidBDMImage,
    InvalidInput,
    VolumeSmallerThanMinDisk,
)
from ..model import BlockDevice, Image
from ..reading.formats import to_boolean, to_integer
from ..reading.problems import Problems
from ..volumes.create_request import check_image

_ID_FIELDS = {"volume_id": "volume", "snapshot_id": "snapshot", "image_id": "image"}
# Fields of the older form. source: Nova's schema of block_device_mapping (version 1)
_LEGACY_FIELDS = (
    "device_name", "virtual_name", "volume_id", "snapshot_id", "volume_size", "no_device", "delete_on_termination",
)  # fmt: skip

FindImage = t.Callable[[str], Image]


def requested_block_devices(
    requested: t.Sequence[t.Mapping[str, t.Any]],
    has_image: bool,
    max_count: int,
    root_device_name: str,
    path: str,
    problems: Problems,
    find_image: FindImage,
) -> tuple[BlockDevice, ...]:
    """The block devices with source, destination and delete_on_termination filled in, and with ids of images.

    :arg root_device_name: the name of the image's root disk, such as /dev/vda.
    :arg find_image: the catalogue's; it raises ImageNotFound.
    """
    devices = []
    for index, item in enumerate(requested):
        where = "%s[%d]" % (path, index)
        device = None
        with problems.collect(where):
            device = _one(item, has_image)
        if device is None:
            continue
        for error in _refusals(device, has_image, max_count, root_device_name):
            problems.add(where, error)
        with problems.collect(where):
            device = _of_image(device, find_image)
        devices.append(device)
    if len(devices) == len(requested) and not boots(devices, has_image):
        problems.add(
            path, InvalidBDMBootSequence(remedy="Give image, or one device boot_index 0; then 1, 2, ... without gaps.")
        )
    return tuple(devices)


def legacy_block_devices(
    requested: t.Sequence[t.Mapping[str, t.Any]],
    image: t.Optional[Image],
    max_count: int,
    path: str,
    problems: Problems,
) -> tuple[BlockDevice, ...]:
    """Devices of version 1 (device_name, virtual_name, volume_id, snapshot_id, volume_size, no_device), in version 2.

    Without an image the root is the device named vda. With an image it is the image, or the image's own mapping: Nova
    boots a volume with the root's name then, and fetches the image in vain.
    """
    plain = []
    for index, item in enumerate(requested):
        with problems.collect("%s[%d]" % (path, index)):
            plain.append(_legacy(item))
    if len(plain) != len(requested):
        return ()
    name, own_root = DEFAULT_ROOT_DEVICE, False
    with problems.collect(path):
        name, own_root = root_name(image), brings_root(image) is not None
    image_id = image.id if image is not None else None
    devices = from_legacy(plain, image_id, name, own_root)
    for index, device in enumerate(devices[-len(plain) :] if plain else ()):
        for error in _refusals(device, image is not None, max_count, name):
            problems.add("%s[%d]" % (path, index), error)
    if devices and not boots(devices, own_root):
        problems.add(path, InvalidBDMBootSequence(remedy="Give image, or a volume or snapshot to boot from."))
    return tuple(devices)


def root_name(image: t.Optional[Image]) -> str:
    """The name of the root disk before buses are known: the image's, or vda.

    :raises InvalidBDMFormat: the image's mappings are malformed.
    """
    name = root_device_name(image)
    return prepend_dev(name) if name else DEFAULT_ROOT_DEVICE


def _legacy(item: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    _check_mapping(item)
    unknown = sorted(set(item) - set(_LEGACY_FIELDS))
    if unknown:
        raise InvalidBDMFormat(
            details="Following fields are invalid: %s" % " ".join(unknown),
            remedy="Leave legacy_bdm out to write version 2.",
        )
    values = dict(item)
    for flag in ("no_device", "delete_on_termination"):
        if flag in values:
            values[flag] = _value(to_boolean, values[flag], "Invalid %s field." % flag)
    from_legacy([values])  # reports an error at its own device
    return values


def root_image(devices: t.Sequence[BlockDevice], find_image: FindImage) -> t.Optional[Image]:
    """The image that the root volume is made of, which has the guest's properties; None if it is made of none."""
    root = root_bdm([d for d in devices if not d.no_device])
    if root is None or root.source_type != "image" or root.destination_type != "volume" or root.uuid is None:
        return None
    try:
        return find_image(root.uuid)
    except (ImageError, ImageNotFound):
        return None  # already reported


def boots(devices: t.Sequence[BlockDevice], has_image: bool) -> bool:
    """Whether the boot indexes are 0, 1, 2, ...; the image's disk is 0 whether or not the list has it.

    Null and negative indexes are ignored. An empty list is valid.
    """
    if not devices:
        return True
    indexes = [d.boot_index for d in devices if not d.no_device and d.boot_index is not None and d.boot_index >= 0]
    own_row = any(d.source_type == "image" and d.destination_type == "local" and not d.no_device for d in devices)
    if has_image and not own_row:
        indexes.append(0)
    return bool(indexes) and sorted(indexes) == list(range(len(indexes)))


def _check_mapping(item: t.Any) -> None:
    if not isinstance(item, t.Mapping):
        raise InvalidBDMFormat(details="A block device must be a mapping.")


def _value(read: t.Callable[[t.Any], t.Any], value: t.Any, details: str) -> t.Any:
    try:
        return read(value)
    except ValueError:
        raise InvalidBDMFormat(details=details) from None


def _one(item: t.Mapping[str, t.Any], has_image: bool) -> BlockDevice:
    _check_mapping(item)
    if "virtual_name" in item:
        raise InvalidBDMFormat(
            details="Following fields are invalid: virtual_name",
            remedy="The field is of version 1. Set source_type: blank, or legacy_bdm: true.",
        )
    source, uuid = item.get("source_type"), item.get("uuid")
    for field, kind in _ID_FIELDS.items():
        if field in item:
            if uuid is not None or source not in (None, kind):
                raise InvalidBDMFormat(
                    details="%s contradicts source_type or uuid" % field, remedy="Give source_type and uuid only."
                )
            source, uuid = kind, item[field]
    no_device = _value(to_boolean, item.get("no_device", False), "Invalid no_device field.")
    if source is None and not no_device:
        raise InvalidBDMFormat(
            details="Some required fields are missing", remedy="Set source_type to image, volume, snapshot or blank."
        )
    if source is None:
        source = "blank"
    local = source in ("image", "blank")
    destination = item.get("destination_type") or ("local" if local else "volume")
    device = BlockDevice(
        source_type=source,
        destination_type=destination,
        boot_index=_number(item, "boot_index", "Boot index is invalid."),
        uuid=uuid,
        volume_size=_number(item, "volume_size", "Invalid volume_size."),
        device_name=item.get("device_name"),
        disk_bus=item.get("disk_bus"),
        device_type=item.get("device_type"),
        guest_format=item.get("guest_format"),
        # local disks are deleted with the instance; a volume stays unless the request says otherwise
        delete_on_termination=_value(
            to_boolean,
            item.get("delete_on_termination", destination == "local"),
            "Invalid delete_on_termination field.",
        ),
        no_device=no_device,
        tag=item.get("tag"),
        volume_type=item.get("volume_type"),
    )
    check_words(device)
    if not no_device:
        booted = source == "image" and has_image and device.boot_index == 0
        if destination == "local" and source != "blank" and not booted:
            raise mapping_of_image(source, destination)
        check_disk_bus(device)
    return device


def _number(item: t.Mapping[str, t.Any], field: str, details: str) -> t.Optional[int]:
    number: t.Optional[int] = None if item.get(field) is None else _value(to_integer, item[field], details)
    return number


def _of_image(device: BlockDevice, find_image: FindImage) -> BlockDevice:
    """A device made of an image, with the image's id.

    :raises InvalidBDMImage: unknown image. :raises ImageNotActive: :raises VolumeSmallerThanMinDisk: the root's.
    :raises InvalidInput: the volume is too small for the image.
    """
    if (
        device.no_device
        or device.source_type != "image"
        or device.destination_type != "volume"
        or not device.volume_size
    ):
        return device
    try:
        image = find_image(str(device.uuid))
    except (ImageError, ImageNotFound):
        raise InvalidBDMImage(id=device.uuid) from None
    if device.boot_index == 0:
        if image.status != "active":
            raise ImageNotActive(
                image_id=image.name, remedy="Wait for it, or set its status: active in bootflow_images."
            )
        if device.volume_size < image.min_disk:
            raise VolumeSmallerThanMinDisk(volume_size=device.volume_size * GIB, image_min_disk=image.min_disk * GIB)
    check_image(image, device.volume_size)
    return dataclasses.replace(device, uuid=image.id)


def _refusals(device: BlockDevice, has_image: bool, max_count: int, root_device_name: str) -> t.Iterator[BootflowError]:
    if device.no_device or device.destination_type != "volume":
        return
    if device.source_type == "volume" and max_count > 1:
        yield InvalidInput(
            message="Cannot attach one or more volumes to multiple instances",
            remedy="Write one entry per instance and volume.",
        )
    name = device.device_name
    if has_image and name and strip_dev(name) == strip_dev(root_device_name):
        yield InvalidInput(
            message="The volume cannot be assigned the same device name as the root device %s" % root_device_name,
            remedy="Leave device_name out.",
        )
    try:
        check_size(device)
    except BootflowError as error:
        yield error
