# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Formats and names of local disks, and the place of images. stores/ has the types of stores."""

from __future__ import annotations

import posixpath
import re
import typing as t

#: Formats in which QEMU opens local disks.
QCOW2, RAW = "qcow2", "raw"
ZERO, SHRED, NONE = "zero", "shred", "none"
#: How the data of a deleted instance's logical volume are cleared.
CLEARS = (ZERO, SHRED, NONE)
#: Of ephemeral disks.
FILE_SYSTEMS = ("ext4", "ext3", "ext2", "xfs", "vfat", NONE)
#: Of an instance with a file system for its disks: its one logical volume, and the folder where that is mounted.
DISK = "disk"
#: Below instances_path: verified images.
BASE = "_base"
# libvirt's rules for AppArmor let virt-aa-helper read a disk's backing file by its ending; QEMU may open none that it has not read.
_ENDING = ".raw"
_BASE_FILE = re.compile(r"(?P<id>[A-Za-z0-9][A-Za-z0-9_-]{0,127})-[0-9a-f]{16}(?:\.raw)?\Z")

#: Name, in the stats of a host, of the pool in which its guests have their disks.
POOL_STAT = "disk_pool"


def volume_name(uuid: str, disk: str) -> str:
    """The logical volume of an instance's disk, with Nova's name."""
    return "%s_%s" % (uuid, disk)


def local_disks(root: t.Any, uuid: str) -> t.Iterator[tuple[str, t.Any]]:
    """(name, <disk>) of each disk of a domain's XML that is in the instance's folder, or its logical volume, or its image in a pool."""
    for disk in root.iterfind("devices/disk"):
        source = disk.find("source")
        path = "" if source is None else str(source.get("file") or source.get("dev") or source.get("name") or "")
        folder, _slash, name = path.rpartition("/")
        if name.startswith(volume_name(uuid, "")):
            yield name[len(volume_name(uuid, "")) :], disk
        elif uuid in folder.split("/"):
            yield name, disk


def base_file(image_id: str, sha256: str) -> str:
    """The file in _base of an image whose fetched file has that sha256."""
    return "%s-%s%s" % (image_id, sha256[:16], _ENDING)


def is_confinable(name: str) -> bool:
    """Whether a file of _base has a name that a confined QEMU can open."""
    return name.endswith(_ENDING)


def image_of_base(name: str) -> str | None:
    """The image of a file in _base, with or without an ending; None: the file belongs to no image."""
    match = _BASE_FILE.match(name)
    return match["id"] if match else None


def image_marker(image_id: str) -> str:
    """The file in _base that says that the image is complete."""
    return image_id + ".json"


def image_marker_path(instances_path: str, image_id: str) -> str:
    return posixpath.join(instances_path, BASE, image_marker(image_id))
