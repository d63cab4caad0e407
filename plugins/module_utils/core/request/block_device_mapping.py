# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The block devices of one request, in the form of version 2. source: 000, _check_and_transform_bdm; semantics 10.

Here are the rules of the request's form; sizes against the flavor and device names are core.block_devices' matter.
"""

from __future__ import annotations

import typing as t

from ..errors import (
    BootflowError,
    InvalidBDMBootSequence,
    InvalidBDMFormat,
    InvalidInput,
    NotSupportedYet,
    PolicyNotAuthorized,
)
from ..model import BlockDevice
from .formats import to_boolean, to_integer
from .options import RequestOptions
from .problems import Problems

_ID_FIELDS = {"volume_id": "volume", "snapshot_id": "snapshot", "image_id": "image"}
_VOLUMES = "Booting from and attaching volumes"


def requested_block_devices(
    wished: t.Sequence[t.Mapping[str, t.Any]],
    has_image: bool,
    max_count: int,
    root_device_name: str,
    options: RequestOptions,
    path: str,
    problems: Problems,
) -> tuple[BlockDevice, ...]:
    """The block devices with source, destination and delete_on_termination filled in.

    :arg root_device_name: what the image's root disk is called, such as /dev/vda.
    """
    found = []
    for index, item in enumerate(wished):
        where = "%s[%d]" % (path, index)
        device = None
        with problems.collect(where):
            device = _one(item, has_image)
        if device is None:
            continue
        for error in _refusals(device, has_image, max_count, root_device_name, options):
            problems.add(where, error)
        found.append(device)
    if len(found) == len(wished) and not boots(found, has_image):
        problems.add(
            path, InvalidBDMBootSequence(remedy="Give image, or one device boot_index 0; then 1, 2, ... without gaps.")
        )
    return tuple(found)


def boots(devices: t.Sequence[BlockDevice], has_image: bool) -> bool:
    """Whether the boot indexes are 0, 1, 2, ...; the image's disk is 0 whether it has a row of its own or not.

    Null and negative indexes do not take part. No devices at all are fine where nothing was asked.
    """
    if not devices:
        return True
    indexes = [d.boot_index for d in devices if not d.no_device and d.boot_index is not None and d.boot_index >= 0]
    own_row = any(d.source_type == "image" and d.destination_type == "local" and not d.no_device for d in devices)
    if has_image and not own_row:
        indexes.append(0)
    return bool(indexes) and sorted(indexes) == list(range(len(indexes)))


def _one(item: t.Mapping[str, t.Any], has_image: bool) -> BlockDevice:
    source, uuid = item.get("source_type"), item.get("uuid")
    for field, kind in _ID_FIELDS.items():
        if field in item:
            if uuid is not None or source not in (None, kind):
                raise InvalidBDMFormat(
                    details="%s contradicts source_type or uuid" % field, remedy="Give source_type and uuid only."
                )
            source, uuid = kind, item[field]
    no_device = to_boolean(item.get("no_device", False))
    if source is None and not no_device:
        raise InvalidBDMFormat(
            details="source_type is missing", remedy="Say source_type: image, volume, snapshot or blank."
        )
    if source is None:
        source = "blank"
    local = source in ("image", "blank")
    destination = item.get("destination_type") or ("local" if local else "volume")
    boot_index = to_integer(item["boot_index"]) if "boot_index" in item else None
    if not no_device:
        _check_pair(source, destination, uuid, boot_index, has_image)
    return BlockDevice(
        source_type=source,
        destination_type=destination,
        boot_index=boot_index,
        uuid=uuid,
        volume_size=to_integer(item["volume_size"]) if "volume_size" in item else None,
        device_name=item.get("device_name"),
        disk_bus=item.get("disk_bus"),
        device_type=item.get("device_type"),
        guest_format=item.get("guest_format"),
        # what is local goes with the instance; a volume stays unless told otherwise
        delete_on_termination=to_boolean(item.get("delete_on_termination", destination == "local")),
        no_device=no_device,
        tag=item.get("tag"),
        volume_type=item.get("volume_type"),
    )


def _check_pair(
    source: str, destination: str, uuid: t.Optional[str], boot_index: t.Optional[int], has_image: bool
) -> None:
    """:raises InvalidBDMFormat: no legal pair, or what the pair needs is not there."""
    if source == "blank" and uuid is not None:
        raise InvalidBDMFormat(details="a blank device has no uuid", remedy="Leave uuid out.")
    if source != "blank" and uuid is None:
        raise InvalidBDMFormat(details="Missing device UUID.", remedy="Say which %s: uuid." % source)
    if source in ("volume", "snapshot") and destination == "local":
        raise InvalidBDMFormat(
            details="Mapping %s to local is not supported." % source, remedy="Say destination_type: volume."
        )
    if source == "image" and destination == "local" and not (has_image and boot_index == 0):
        raise InvalidBDMFormat(
            details="Mapping image to local is not supported.",
            remedy="Give image, and boot_index 0; or destination_type: volume.",
        )


def _refusals(
    device: BlockDevice, has_image: bool, max_count: int, root_device_name: str, options: RequestOptions
) -> t.Iterator[BootflowError]:
    if device.no_device or device.destination_type != "volume":
        return
    if "create:attach_volume" in options.denied_policies:
        yield PolicyNotAuthorized(action="create:attach_volume")
    if device.source_type == "volume" and max_count > 1:
        yield InvalidInput(
            message="Cannot attach one or more volumes to multiple instances",
            remedy="Write one entry per instance and volume.",
        )
    name = device.device_name
    if has_image and name and _plain(name) == _plain(root_device_name):
        yield InvalidInput(
            message="The volume cannot be assigned the same device name as the root device %s" % root_device_name,
            remedy="Leave device_name out.",
        )
    yield NotSupportedYet(
        feature=_VOLUMES, remedy="Use local disks: the image, and blank devices with destination_type: local."
    )


def _plain(device_name: str) -> str:
    return device_name[5:] if device_name.startswith("/dev/") else device_name
