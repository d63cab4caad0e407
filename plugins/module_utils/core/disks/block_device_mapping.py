# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Block device mappings: merges the mappings of image, user and flavor into one list in Nova's v2 form.

source: Nova's _check_and_transform_bdm and block_device_mapping v2. block_device_checks.py has the checks, disk_names.py
the names of disks and buses, block_devices.py the plan of disks.
"""

from __future__ import annotations

import dataclasses
import json
import re
import typing as t

from ..errors import InvalidBDM, InvalidBDMFormat
from ..model import BlockDevice, Flavor, Image
from .block_device_checks import (
    SOURCE_TYPES,
    check_words,
    is_ephemeral,
    is_swap,
    strip_dev,
)

DEFAULT_ROOT_DEVICE = "vda"
#: properties of an image that are lists of mappings
IMAGE_LISTS = ("block_device_mapping", "mappings")

_EPHEMERAL = re.compile(r"ephemeral(\d|[1-9]\d+)\Z")
# Fields of an image's device in version 2. source: Nova's BlockDeviceDict; fields of its database are ignored
_IMAGE_FIELDS = frozenset(
    """
    source_type destination_type guest_format device_type disk_bus boot_index device_name delete_on_termination
    snapshot_id volume_id volume_size image_id no_device connection_info tag volume_type encrypted
    encryption_secret_uuid encryption_format encryption_options
    id instance_uuid attachment_id uuid created_at updated_at deleted_at deleted
    """.split()
)
_WORDS = ("destination_type", "guest_format", "device_type", "disk_bus", "device_name", "tag", "volume_type")


def prepend_dev(device_name: str) -> str:
    """``/dev/vda`` of ``vda``."""
    return "/dev/%s" % strip_dev(device_name)


def root_bdm(bdms: t.Iterable[BlockDevice]) -> BlockDevice | None:
    """The mapping with boot_index 0."""
    for bdm in bdms:
        if bdm.boot_index == 0:
            return bdm
    return None


def image_bdm(image_id: str, boot_index: int = 0) -> BlockDevice:
    """The mapping of the booted image."""
    return BlockDevice(
        source_type="image",
        destination_type="local",
        uuid=image_id,
        boot_index=boot_index,
        device_type="disk",
        delete_on_termination=True,
    )


def blank_bdm(size: int | None, guest_format: str | None = None, device_name: str | None = None) -> BlockDevice:
    """An ephemeral disk (size in GB), or with guest_format swap the swap disk (size in MB)."""
    return BlockDevice(
        source_type="blank",
        destination_type="local",
        boot_index=-1,
        volume_size=size,
        device_name=device_name,
        device_type="disk",
        guest_format=guest_format,
        delete_on_termination=True,
    )


def root_device_name(image: Image | None) -> str | None:
    """The image's name of the root device (``root_device_name``, or a ``root`` mapping), without /dev/."""
    return root_name_of(image.properties, image.name) if image is not None else None


def root_name_of(properties: t.Mapping[str, t.Any], image_name: str = "") -> str | None:
    """The same from an image's properties, which a volume made of it has too.

    :raises InvalidBDMFormat: ``mappings`` is not a list of mappings.
    """
    name = None
    for mapping in _image_list(properties, "mappings", image_name):
        if mapping.get("virtual") == "root":
            name = str(mapping.get("device") or "")
    name = str(properties.get("root_device_name") or name or "")
    # The guest gets whole disks: EC2's sda1 means sda.
    return re.sub(r"\d+$", "", strip_dev(name) or "") or None


# --- version 1 --------------------------------------------------------------------------------------------------------


def from_legacy(
    mappings: t.Sequence[t.Mapping[str, t.Any]],
    image_id: str | None = None,
    root_name: str | None = None,
    no_root: bool = False,
) -> list[BlockDevice]:
    """v1 mappings (device_name, virtual_name, volume_id, snapshot_id, volume_size, no_device) in v2 form.

    The root is the volume or snapshot with the root's device name; else the image; without image and root name the
    first that is not blank. With ``no_root`` none of them is bootable, because the root is another device.

    :arg root_name: Nova's API always sets it, see DEFAULT_ROOT_DEVICE.
    :raises InvalidBDMFormat: an entry without a source, or not a mapping; a size that is not a number.
    """
    if not isinstance(mappings, (list, tuple)):
        raise InvalidBDMFormat(details="Unrecognized legacy format.", remedy="Write a list of mappings.")
    bdms = [_one_from_legacy(mapping) for mapping in mappings]
    if no_root:
        return [dataclasses.replace(bdm, boot_index=-1) for bdm in bdms]
    if not root_name and not image_id:
        for index, bdm in enumerate(bdms):
            if bdm.source_type != "blank" and not bdm.no_device:
                bdms[index] = dataclasses.replace(bdm, boot_index=0)
                break
        return bdms
    volume_backed = False
    for index, bdm in enumerate(bdms):
        is_root = bool(root_name) and strip_dev(bdm.device_name) == strip_dev(root_name)
        if is_root and bdm.source_type in ("volume", "snapshot", "image") and not bdm.no_device:
            volume_backed = True
            bdms[index] = dataclasses.replace(bdm, boot_index=0)
        else:
            bdms[index] = dataclasses.replace(bdm, boot_index=None if bdm.no_device else -1)
    if not volume_backed and image_id:
        bdms.insert(0, image_bdm(image_id))
    return bdms


def _one_from_legacy(mapping: t.Mapping[str, t.Any]) -> BlockDevice:
    if not isinstance(mapping, t.Mapping):
        raise InvalidBDMFormat(details="Unrecognized legacy format.", remedy="Each device is a mapping.")
    name = str(mapping.get("virtual_name") or "")
    common: dict[str, t.Any] = {
        "device_name": mapping.get("device_name"),
        "volume_size": _size(mapping.get("volume_size")),
        "delete_on_termination": _true(mapping.get("delete_on_termination")),
        "no_device": _given(mapping.get("no_device")),
    }
    device = None
    if name == "swap" or _EPHEMERAL.match(name):
        common["delete_on_termination"] = True
        guest_format = "swap" if name == "swap" else None
        device = BlockDevice(source_type="blank", destination_type="local", guest_format=guest_format, **common)
    elif mapping.get("snapshot_id"):
        uuid = str(mapping["snapshot_id"])
        device = BlockDevice(source_type="snapshot", destination_type="volume", uuid=uuid, **common)
    elif mapping.get("volume_id"):
        uuid = str(mapping["volume_id"])
        device = BlockDevice(source_type="volume", destination_type="volume", uuid=uuid, **common)
    elif common["no_device"]:
        device = BlockDevice(source_type="blank", destination_type="local", **common)
    if device is None:
        raise InvalidBDMFormat(
            details="Unrecognized legacy format.", remedy="Give volume_id, snapshot_id, virtual_name or no_device."
        )
    check_words(device)
    return device


# --- devices of an image ----------------------------------------------------------------------------------------------


def image_defined_bdms(image: Image, flavor: Flavor) -> list[BlockDevice]:
    """The image's own devices: its properties ``block_device_mapping`` (v2 with ``bdm_v2``) and ``mappings``.

    In version 1 the root is the device with the root's name: the image's root_device_name, or vda. Without it the image
    itself is booted.

    :raises InvalidBDMFormat: a mapping of the image is malformed.
    """
    blanks = []
    for mapping in _image_list(image.properties, "mappings", image.name):
        virtual = str(mapping.get("virtual") or "")
        if virtual != "swap" and not _EPHEMERAL.match(virtual):
            continue
        guest_format = "swap" if virtual == "swap" else mapping.get("guest_format")
        size = flavor.swap if virtual == "swap" else flavor.ephemeral_gb
        device = str(mapping.get("device") or "")
        if size:
            blanks.append(blank_bdm(size, guest_format, prepend_dev(device) if device else None))
    return merge_bdms(blanks, image_devices(image))


def brings_root(image: Image | None) -> BlockDevice | None:
    """The image's own root, a volume: such an image was made of a volume-backed server.

    :raises InvalidBDMFormat: a mapping of the image is malformed.
    """
    return root_bdm(image_devices(image)) if image is not None else None


def image_devices(image: Image) -> list[BlockDevice]:
    """The devices of the property ``block_device_mapping``.

    :raises InvalidBDMFormat: a mapping of the image is malformed.
    """
    defined = _image_list(image.properties, "block_device_mapping", image.name)
    if _true(image.properties.get("bdm_v2")):
        return [_from_dict(mapping) for mapping in defined]
    return from_legacy(defined, None, root_device_name(image) or DEFAULT_ROOT_DEVICE)


def _image_list(properties: t.Mapping[str, t.Any], name: str, image_name: str) -> list[t.Mapping[str, t.Any]]:
    value = properties.get(name) or []
    if isinstance(value, str):
        # Glance's properties are texts, and Nova reads these two as JSON.
        try:
            value = json.loads(value)
        except ValueError:
            value = None
    if not isinstance(value, (list, tuple)) or not all(isinstance(item, t.Mapping) for item in value):
        raise InvalidBDMFormat(
            details="property %s of image %s is not a list of mappings" % (name, image_name),
            remedy="Write it as a YAML list, or as the JSON text of one, in bootflow_images.",
        )
    return list(value)


def _from_dict(mapping: t.Mapping[str, t.Any]) -> BlockDevice:
    """A device of an image in version 2. Encrypted disks, which Nova supports, are rejected and not left unencrypted."""
    unknown = sorted(str(key) for key in set(mapping) - _IMAGE_FIELDS)
    if unknown:
        raise InvalidBDMFormat(details="Following fields are invalid: %s" % " ".join(unknown))
    if _true(mapping.get("encrypted")):
        raise InvalidBDMFormat(details="Encrypted disks are not supported.", remedy="Use an image without them.")
    no_device = _given(mapping.get("no_device"))
    source = mapping.get("source_type") or ("blank" if no_device else None)
    if source is None:
        raise InvalidBDMFormat(details="Some required fields are missing", remedy="Give source_type.")
    if source not in SOURCE_TYPES:
        raise InvalidBDMFormat(details="Invalid source_type field.", remedy="One of %s." % ", ".join(SOURCE_TYPES))
    values: dict[str, t.Any] = {key: mapping.get(key) for key in _WORDS}
    if not values["destination_type"]:
        values["destination_type"] = "local" if source in ("image", "blank") else "volume"
    origin = mapping.get("%s_id" % source) or mapping.get("uuid")
    device = BlockDevice(
        source_type=source,
        uuid=None if origin is None else str(origin),
        boot_index=_integer(mapping.get("boot_index"), "Boot index is invalid."),
        volume_size=_size(mapping.get("volume_size")),
        delete_on_termination=_true(mapping.get("delete_on_termination")),
        no_device=no_device,
        **values,
    )
    check_words(device)
    return device


# --- all of a guest ---------------------------------------------------------------------------------------------------


def merge_bdms(overridable: t.Sequence[BlockDevice], overrider: t.Sequence[BlockDevice]) -> list[BlockDevice]:
    """Return the second list, then the mappings of the first whose device name is not in the second."""
    names = {strip_dev(bdm.device_name) for bdm in overrider if bdm.device_name}
    return list(overrider) + [bdm for bdm in overridable if strip_dev(bdm.device_name) not in names]


def flavor_defined_bdms(flavor: Flavor, bdms: t.Sequence[BlockDevice]) -> list[BlockDevice]:
    """Return the flavor's ephemeral and swap disk, each only if the mappings have none of its kind."""
    result = []
    if flavor.ephemeral_gb and not any(is_ephemeral(bdm) and not bdm.no_device for bdm in bdms):
        result.append(blank_bdm(flavor.ephemeral_gb))
    if flavor.swap and not any(is_swap(bdm) and not bdm.no_device for bdm in bdms):
        result.append(blank_bdm(flavor.swap, "swap"))
    return result


def normalise_bdms(
    flavor: Flavor,
    image: Image | None,
    bdms: t.Sequence[BlockDevice],
    max_count: int = 1,
    meta: Image | None = None,
) -> list[BlockDevice]:
    """User, image and flavor merged, the root first, without the entries with ``no_device``.

    A user's mapping overrides the image's of the same device name, even its root: then another device has to be the root.
    If an image without an own root is booted and no mapping has boot_index 0, the mapping of the image is added, as
    Nova's clients do.

    :arg meta: without an image, the image of the root volume: its mappings count too, its own root before the requested
        volume.
    :raises InvalidBDM: count and an existing volume; a volume on the root's device name.
    :raises InvalidBDMFormat: a malformed mapping, also of the image.
    """
    for bdm in bdms:
        check_words(bdm)
    for bdm in bdms:
        if not bdm.no_device:
            check_root_name(image, bdm)
    source = image if image is not None else meta
    defined = image_defined_bdms(source, flavor) if source is not None else []
    given = list(bdms)
    if root_bdm(defined) is not None:
        # The image has its own root (a snapshot of a volume-backed server): the image itself is not a second one.
        given = [bdm for bdm in given if not (bdm.boot_index == 0 and bdm.source_type == "image")]
    merged = [bdm for bdm in merge_bdms(defined, given) if not bdm.no_device]
    if image is not None and root_bdm(defined) is None and root_bdm(merged) is None:
        merged.insert(0, image_bdm(image.id))
    if max_count > 1 and any(bdm.source_type == "volume" for bdm in merged):
        raise InvalidBDM(
            message="Cannot attach one or more volumes to multiple instances",
            remedy="Boot one instance per entry, or leave the volume out.",
        )
    root = root_bdm(merged)
    if root is not None and root.destination_type == "local" and root.device_name:
        for bdm in merged:
            if bdm is not root:
                check_root_name(image, bdm, root.device_name)
    merged += flavor_defined_bdms(flavor, merged)
    # A stable sort: the root first, the others in their order.
    return sorted(merged, key=lambda bdm: bdm.boot_index != 0)


def check_root_name(image: Image | None, bdm: BlockDevice, root_name: str | None = None) -> None:
    """With a booted image no volume may have the name of the root disk.

    :arg root_name: the request's name of the root; else the image's, or vda.
    :raises InvalidBDM: the volume has it. Nova's InvalidRequest, with its text; Nova detects only vda.
    """
    if image is None or bdm.destination_type != "volume" or not bdm.device_name:
        return
    of_image = root_device_name(image)
    shown = root_name or (prepend_dev(of_image) if of_image else DEFAULT_ROOT_DEVICE)
    if strip_dev(bdm.device_name) == strip_dev(shown):
        raise InvalidBDM(
            message="The volume cannot be assigned the same device name as the root device %s" % shown,
            remedy="Give the volume another device_name, or none.",
        )


# --- values -----------------------------------------------------------------------------------------------------------


def _integer(value: t.Any, details: str) -> int | None:
    """:raises InvalidBDMFormat: neither an integer nor its text."""
    if value is None or (isinstance(value, int) and not isinstance(value, bool)):
        return value
    if isinstance(value, str) and re.match(r"-?[0-9]{1,18}\Z", value):
        return int(value)
    raise InvalidBDMFormat(details=details)


def _size(value: t.Any) -> int | None:
    return _integer(None if value == "" else value, "Invalid volume_size.")


def _true(value: t.Any) -> bool:
    return str(value).strip().lower() in ("1", "t", "true", "on", "y", "yes")


def _given(value: t.Any) -> bool:
    """Whether a flag is set that Nova treats as set with any value; here a false value counts as false."""
    return bool(value) and str(value).strip().lower() not in ("0", "f", "false", "off", "n", "no")
