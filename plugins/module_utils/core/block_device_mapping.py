# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Block device mappings: from what image, user and flavor say to checked mappings in Nova's v2 words.

source: 000, _check_and_transform_bdm (rows A26, A28); Nova's block_device_mapping v2. The naming of disks and buses is
in disk_names.py, the plan of disks in block_devices.py.
"""

from __future__ import annotations

import dataclasses
import re
import typing as t

from .errors import (
    InvalidBDM,
    InvalidBDMBootSequence,
    InvalidBDMEphemeralSize,
    InvalidBDMFormat,
    InvalidBDMLocalsLimit,
    InvalidBDMSwapSize,
)
from .model import BlockDevice, Flavor, Image

SOURCE_TYPES = ("image", "volume", "snapshot", "blank")
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
DEFAULT_ROOT_DEVICE = "vda"

_EPHEMERAL = re.compile(r"^ephemeral(\d|[1-9]\d+)$")


def strip_dev(device_name: str | None) -> str | None:
    """``vda`` of ``/dev/vda``."""
    if device_name and device_name.startswith("/dev/"):
        return device_name[len("/dev/") :]
    return device_name


def prepend_dev(device_name: str) -> str:
    """``/dev/vda`` of ``vda``."""
    return "/dev/%s" % strip_dev(device_name)


def is_swap(bdm: BlockDevice) -> bool:
    return bdm.source_type == "blank" and bdm.destination_type == "local" and bdm.guest_format == "swap"


def is_ephemeral(bdm: BlockDevice) -> bool:
    return bdm.source_type == "blank" and bdm.destination_type == "local" and bdm.guest_format != "swap"


def root_bdm(bdms: t.Iterable[BlockDevice]) -> BlockDevice | None:
    """The mapping with boot_index 0."""
    for bdm in bdms:
        if bdm.boot_index == 0:
            return bdm
    return None


def image_bdm(image_id: str, boot_index: int = 0) -> BlockDevice:
    """The mapping that stands for the image that is booted."""
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
    """What the image says the root device is called (``root_device_name``, or a ``root`` mapping), without /dev/."""
    if image is None:
        return None
    name = None
    for mapping in _image_list(image, "mappings"):
        if mapping.get("virtual") == "root":
            name = str(mapping.get("device") or "")
    name = str(image.properties.get("root_device_name") or name or "")
    # A whole disk is what the guest gets: sda1 is EC2's way to say sda.
    return re.sub(r"\d+$", "", strip_dev(name) or "") or None


def from_legacy(
    mappings: t.Iterable[t.Mapping[str, t.Any]],
    image_id: str | None = None,
    root_name: str | None = None,
    no_root: bool = False,
) -> list[BlockDevice]:
    """v1 mappings (device_name, virtual_name, volume_id, snapshot_id, volume_size, no_device) in v2 words.

    The root is the volume or snapshot that has the root's device name; else the image; without an image and a root name
    the first that is not blank. With ``no_root`` none of them is bootable: something else is the root.

    :raises InvalidBDMFormat: a mapping says nothing of what it maps.
    """
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
    name = str(mapping.get("virtual_name") or "")
    common: dict[str, t.Any] = {
        "device_name": mapping.get("device_name"),
        "volume_size": None if mapping.get("volume_size") is None else int(mapping["volume_size"]),
        "delete_on_termination": bool(mapping.get("delete_on_termination", False)),
    }
    if name == "swap" or _EPHEMERAL.match(name):
        common["delete_on_termination"] = True
        return BlockDevice(
            source_type="blank", destination_type="local", guest_format="swap" if name == "swap" else None, **common
        )
    if mapping.get("snapshot_id"):
        return BlockDevice(
            source_type="snapshot", destination_type="volume", uuid=str(mapping["snapshot_id"]), **common
        )
    if mapping.get("volume_id"):
        return BlockDevice(source_type="volume", destination_type="volume", uuid=str(mapping["volume_id"]), **common)
    if mapping.get("no_device"):
        return BlockDevice(source_type="blank", destination_type="local", no_device=True, **common)
    raise InvalidBDMFormat(
        details="Unrecognized legacy format.", remedy="Give volume_id, snapshot_id, virtual_name or no_device."
    )


def image_defined_bdms(image: Image, flavor: Flavor) -> list[BlockDevice]:
    """What the image itself asks for: its properties ``block_device_mapping`` (v2 where ``bdm_v2``) and ``mappings``.

    :raises InvalidBDMFormat: a mapping of the image cannot be understood.
    """
    defined = _image_list(image, "block_device_mapping")
    if _true(image.properties.get("bdm_v2")):
        bdms = [_from_dict(mapping) for mapping in defined]
    else:
        bdms = from_legacy(defined, None, root_device_name(image))
    blanks = []
    for mapping in _image_list(image, "mappings"):
        virtual = str(mapping.get("virtual") or "")
        if virtual != "swap" and not _EPHEMERAL.match(virtual):
            continue
        guest_format = "swap" if virtual == "swap" else mapping.get("guest_format")
        size = flavor.swap if virtual == "swap" else flavor.ephemeral_gb
        device = str(mapping.get("device") or "")
        if size:
            blanks.append(blank_bdm(size, guest_format, prepend_dev(device) if device else None))
    return merge_bdms(blanks, bdms)


def _image_list(image: Image, name: str) -> list[t.Mapping[str, t.Any]]:
    value = image.properties.get(name) or []
    if not isinstance(value, (list, tuple)) or not all(isinstance(item, t.Mapping) for item in value):
        raise InvalidBDMFormat(
            details="property %s of image %s is no list of mappings" % (name, image.name),
            remedy="Write it as a YAML list in bootflow_images.",
        )
    return list(value)


def _from_dict(mapping: t.Mapping[str, t.Any]) -> BlockDevice:
    known = {field.name for field in dataclasses.fields(BlockDevice)}
    values = {key: value for key, value in mapping.items() if key in known}
    source = values.setdefault("source_type", "blank" if mapping.get("no_device") else None)
    if source not in SOURCE_TYPES:
        raise InvalidBDMFormat(details="Invalid source_type field.")
    values.setdefault("destination_type", "local" if source in ("image", "blank") else "volume")
    if not values.get("uuid"):
        values["uuid"] = mapping.get("%s_id" % source)
    return BlockDevice(**values)


def merge_bdms(overridable: t.Sequence[BlockDevice], overrider: t.Sequence[BlockDevice]) -> list[BlockDevice]:
    """The second list, then those of the first whose device name the second does not have."""
    names = {strip_dev(bdm.device_name) for bdm in overrider if bdm.device_name}
    return list(overrider) + [bdm for bdm in overridable if strip_dev(bdm.device_name) not in names]


def flavor_defined_bdms(flavor: Flavor, bdms: t.Sequence[BlockDevice]) -> list[BlockDevice]:
    """The ephemeral and the swap disk of the flavor, each only where the mappings have none of its kind."""
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
) -> list[BlockDevice]:
    """User, image and flavor merged (row A26), the root first, entries with ``no_device`` gone.

    A user's mapping overrides the image's of the same device name. Where an image is booted and nothing has
    boot_index 0, the mapping of the image is put in, as Nova's clients do.

    :raises InvalidBDM: count and an existing volume (row A27); a volume on the root's device name (row A28).
    :raises InvalidBDMFormat: a mapping of the image cannot be understood.
    """
    defined = image_defined_bdms(image, flavor) if image is not None else []
    given = list(bdms)
    if root_bdm(defined) is not None:
        # The image brings its own root (a snapshot of a volume-backed server): no second one from the image itself.
        given = [bdm for bdm in given if not (bdm.boot_index == 0 and bdm.source_type == "image")]
    merged = [bdm for bdm in merge_bdms(defined, given) if not bdm.no_device]
    if image is not None and root_bdm(merged) is None:
        merged.insert(0, image_bdm(image.id))
    if max_count > 1 and any(bdm.source_type == "volume" for bdm in merged):
        raise InvalidBDM(
            message="Cannot attach one or more volumes to multiple instances",
            remedy="Boot one instance per entry, or leave the volume out.",
        )
    _check_root_name(image, merged)
    merged += flavor_defined_bdms(flavor, merged)
    # A stable sort: the root leads, all else keeps its order.
    return sorted(merged, key=lambda bdm: bdm.boot_index != 0)


def _check_root_name(image: Image | None, bdms: t.Sequence[BlockDevice]) -> None:
    root = root_bdm(bdms)
    if image is None or root is None or root.destination_type != "local":
        return
    name = strip_dev(root.device_name) or root_device_name(image) or DEFAULT_ROOT_DEVICE
    for bdm in bdms:
        if bdm is not root and bdm.destination_type == "volume" and strip_dev(bdm.device_name) == name:
            raise InvalidBDM(
                message="The volume cannot be assigned the same device name as the root device %s" % prepend_dev(name),
                remedy="Give the volume another device_name, or none.",
            )


def validate_bdms(
    bdms: t.Sequence[BlockDevice], flavor: Flavor, image: Image | None, max_local_block_devices: int = 3
) -> None:
    """Nova's checks of the merged mappings (semantics of block devices v2), in Nova's order.

    :arg max_local_block_devices: -1 is unlimited, 0 forbids local disks.
    :raises InvalidBDMBootSequence: boot indexes (those >= 0) that lack 0, repeat or leave gaps.
    :raises InvalidBDM: an illegal pair of source and destination, a volume without size, a device name that repeats.
    :raises InvalidBDMFormat: an unknown word, a missing uuid, more than one swap disk.
    :raises InvalidBDMEphemeralSize: ephemeral disks that exceed the flavor's in sum.
    :raises InvalidBDMSwapSize: swap larger than the flavor's.
    :raises InvalidBDMLocalsLimit: too many local disks.
    """
    for bdm in bdms:
        _check_words(bdm)
        _check_pair(bdm, image)
    _check_names(bdms)
    indexes = sorted(bdm.boot_index for bdm in bdms if bdm.boot_index is not None and bdm.boot_index >= 0)
    if indexes != list(range(len(indexes))) or not indexes:
        raise InvalidBDMBootSequence(
            remedy="Number the bootable devices 0, 1, 2... each once; null or -1 means that a device is not booted from."
        )
    for bdm in bdms:
        _check_size(bdm)
    # A size of 0 counts like no size: the flavor's.
    ephemeral = sum(bdm.volume_size or flavor.ephemeral_gb for bdm in bdms if is_ephemeral(bdm))
    if ephemeral > flavor.ephemeral_gb:
        raise InvalidBDMEphemeralSize(
            remedy="The flavor %s has %d GB of ephemeral disk; the mappings ask for %d GB."
            % (flavor.name, flavor.ephemeral_gb, ephemeral)
        )
    swaps = [bdm for bdm in bdms if is_swap(bdm)]
    if len(swaps) > 1:
        raise InvalidBDMFormat(details="More than one swap drive requested.")
    if swaps and (swaps[0].volume_size or 0) > flavor.swap:
        raise InvalidBDMSwapSize(remedy="The flavor %s has %d MB of swap." % (flavor.name, flavor.swap))
    local = sum(1 for bdm in bdms if bdm.destination_type == "local")
    if 0 <= max_local_block_devices < local:
        raise InvalidBDMLocalsLimit(
            remedy="%d local disks (root, ephemeral, swap) are asked for, max_local_block_devices is %d; -1 lifts it."
            % (local, max_local_block_devices)
        )


def _check_words(bdm: BlockDevice) -> None:
    if bdm.source_type not in SOURCE_TYPES:
        raise InvalidBDMFormat(details="Invalid source_type field.", remedy="One of %s." % ", ".join(SOURCE_TYPES))
    if bdm.destination_type not in DESTINATION_TYPES:
        raise InvalidBDMFormat(details="Invalid destination_type field.", remedy="local or volume.")
    if bdm.device_type is not None and bdm.device_type not in DEVICE_TYPES:
        raise InvalidBDMFormat(details="Invalid device_type field.", remedy="One of %s." % ", ".join(DEVICE_TYPES))
    if bdm.source_type != "blank" and not bdm.uuid:
        raise InvalidBDMFormat(details="Missing device UUID.", remedy="Give the uuid of the %s." % bdm.source_type)
    if bdm.source_type == "blank" and bdm.uuid:
        raise InvalidBDMFormat(details="Invalid device UUID.", remedy="A blank device has no uuid.")
    if bdm.volume_size is not None and bdm.volume_size < 0:
        raise InvalidBDMFormat(details="Invalid volume_size.")
    if bdm.device_name is not None:
        if not 1 <= len(bdm.device_name) <= 255:
            raise InvalidBDMFormat(details="Device name empty or too long.")
        if " " in bdm.device_name:
            raise InvalidBDMFormat(details="Device name contains spaces.")


def _check_pair(bdm: BlockDevice, image: Image | None) -> None:
    if (bdm.source_type, bdm.destination_type) not in LEGAL_PAIRS:
        raise InvalidBDM(reason="Mapping %s to %s is not supported." % (bdm.source_type, bdm.destination_type))
    if (bdm.source_type, bdm.destination_type) == ("image", "local"):
        booted = image is not None and bdm.uuid in (image.id, image.name)
        if bdm.boot_index != 0 or not booted:
            raise InvalidBDM(
                reason="Mapping image to local is not supported.",
                remedy="Only the image that is booted, with boot_index 0, becomes a local disk.",
            )


def _check_size(bdm: BlockDevice) -> None:
    if bdm.destination_type != "volume" or bdm.volume_size:
        return
    if bdm.source_type == "image":
        raise InvalidBDM(reason="Images with destination_type 'volume' need to have a non-zero size specified")
    if bdm.source_type == "blank":
        raise InvalidBDM(reason="Blank volumes (source: 'blank', dest: 'volume') need to have non-zero size")


def _check_names(bdms: t.Sequence[BlockDevice]) -> None:
    seen: set[str] = set()
    for bdm in bdms:
        name = strip_dev(bdm.device_name)
        if name and name in seen:
            raise InvalidBDM(reason="the device name %s is given twice" % prepend_dev(name))
        seen.add(name or "")


def _true(value: t.Any) -> bool:
    return str(value).strip().lower() in ("1", "t", "true", "on", "y", "yes")
