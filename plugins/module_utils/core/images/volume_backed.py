# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The rules of an image of an instance whose root is a volume: it has no bytes, and maps block devices to snapshots of the volumes.

source: Nova's API.snapshot_volume_backed, block_device.snapshot_from_bdm and BlockDeviceDict.get_image_mapping
"""

from __future__ import annotations

import dataclasses
import json
import typing as t

from .image import StoredImage

MAPPING, VERSION_2, ROOT_NAME = "block_device_mapping", "bdm_v2", "root_device_name"
LONGEST = 255  # characters of the name of a snapshot

VOLUME = "volume"  # the kind of a planned disk
_SWAP = "swap"

Disk = t.Mapping[str, t.Any]  # core.disks.block_devices.PlannedDisk as plain data

#: Fields of a device in an image. A device that has nothing for a field has None there, as in Nova.
_FIELDS = (
    "source_type", "destination_type", "guest_format", "device_type", "disk_bus", "boot_index", "device_name",
    "delete_on_termination", "snapshot_id", "volume_id", "volume_size", "image_id", "no_device", "tag", "volume_type",
)  # fmt: skip


class VolumeSnapshot(t.NamedTuple):
    """A snapshot of a volume. ``size_gb``: of its volume when it was made"""

    id: str
    size_gb: int


def volumes_of(disks: t.Iterable[Disk]) -> list[Disk]:
    """Return the disks that are volumes."""
    return [disk for disk in disks if disk["kind"] == VOLUME and disk["volume_id"]]


def snapshot_name(image: StoredImage, disk: Disk) -> str:
    """Return the name of a snapshot of one of the volumes. Names of snapshots are unique in a project, so the id of the image is in it."""
    end = ", %s%s" % (str(disk["device_name"]).rpartition("/")[2], _end_of_name(image.id))
    return ("snapshot for %s" % image.name)[: LONGEST - len(end)] + end


def _end_of_name(image_id: str) -> str:
    return ", %s" % image_id


def is_snapshot_of(image_id: str, name: str | None) -> bool:
    """Whether a snapshot of this name was made for the image. A person may import an image that maps snapshots of something else."""
    return (name or "").endswith(_end_of_name(image_id))


def with_mapping(image: StoredImage, disks: t.Sequence[Disk], snapshots: t.Mapping[str, VolumeSnapshot]) -> StoredImage:
    """Return the image of an instance with its block device mapping: local disks first, then volumes.

    :arg disks: of the instance, all. :arg snapshots: by the ids of volumes
    """
    properties = {k: v for k, v in image.properties.items() if k not in (MAPPING, VERSION_2, ROOT_NAME)}
    of_volumes = volumes_of(disks)
    mapping = [_local_device(disk) for disk in disks if disk["kind"] != VOLUME]
    mapping += [_device_of_snapshot(disk, snapshots[disk["volume_id"]]) for disk in of_volumes]
    min_disk = image.min_disk
    for disk in of_volumes:
        if disk.get("boot_index") == 0:
            properties[ROOT_NAME] = str(disk["device_name"])
            # Nova's is that of the flavor, which says nothing of the volume: an image with a smaller one would never boot.
            min_disk = min(min_disk, snapshots[disk["volume_id"]].size_gb)
    properties.update({MAPPING: json.dumps(mapping), VERSION_2: "True"})
    return dataclasses.replace(image, properties=properties, min_disk=min_disk)


def _device_of_snapshot(disk: Disk, snapshot: VolumeSnapshot) -> dict[str, t.Any]:
    return _device(
        disk,
        source_type="snapshot",
        destination_type=VOLUME,
        snapshot_id=snapshot.id,
        volume_size=snapshot.size_gb,
        boot_index=disk.get("boot_index"),
    )


def _local_device(disk: Disk) -> dict[str, t.Any]:
    is_swap = disk["kind"] == _SWAP
    return _device(
        disk,
        source_type="blank",
        destination_type="local",
        volume_size=disk["size_mb"] if is_swap else disk["size_gb"],
        guest_format=_SWAP if is_swap else disk.get("guest_format"),
        boot_index=-1,
    )


def _device(disk: Disk, **fields: t.Any) -> dict[str, t.Any]:
    """Return a device of an image, with the fields that each disk has."""
    common = {name: disk.get(name) for name in ("device_name", "disk_bus", "device_type")}
    common["delete_on_termination"] = bool(disk.get("delete_on_termination"))
    return {**dict.fromkeys(_FIELDS), **common, **fields}


def snapshots_in(image: StoredImage) -> list[str]:
    """Return the ids of the snapshots that the image of an instance maps. An image with bytes maps none."""
    if image.places or not image.instance_uuid:
        return []
    return snapshot_ids_of(image.properties)


def snapshot_ids_of(properties: t.Mapping[str, t.Any]) -> list[str]:
    """Return the ids of the snapshots in a mapping that with_mapping() wrote. A person may have written another one."""
    text = properties.get(MAPPING)
    try:
        devices = json.loads(text) if isinstance(text, str) and VERSION_2 in properties else ()
    except ValueError:
        return []
    mapped = [d for d in devices if isinstance(d, t.Mapping)] if isinstance(devices, list) else ()
    return [str(device["snapshot_id"]) for device in mapped if device.get("snapshot_id")]
