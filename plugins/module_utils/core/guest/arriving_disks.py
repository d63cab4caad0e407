# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Disks that come from another host, as that host describes them: it may have been taken over, so the ledger says how large they may be."""

from __future__ import annotations

import re
import typing as t

from ..disks.stores.registry import RECORD_FORMATS, STORE_TYPES, is_shared
from ..errors import InvalidDiskInfo
from .nvram import LARGEST_NVRAM, NVRAM

Disk = t.Mapping[str, t.Any]

CONFIG_DRIVE = "disk.config"
#: Bytes of a config drive.
LARGEST_DRIVE = 512 * 1024**2
#: What goes along without a record: its name -> how it is called, and the bytes that it may have.
_BESIDE = {CONFIG_DRIVE: ("a config drive", LARGEST_DRIVE), NVRAM: ("an NVRAM", LARGEST_NVRAM)}
_LARGEST = 2**62
_KINDS = ("image", "ephemeral", "swap")
_ID = re.compile(r"^[A-Za-z0-9][A-Za-z0-9._-]{0,254}$")


def checked_disks(disks: t.Any, limits: t.Mapping[str, int], uuid: str) -> list[dict[str, t.Any]]:
    """The disks of an instance as its present host describes them, with no other fields than a new host needs.

    :arg disks: of each name, allocated (bytes), record (its record in disk.info; None for a config drive and an NVRAM), mounted, and size (bytes of the file or
        logical volume) or target (the guest's name for it).
    :arg limits: bytes that each disk may have, by name; 0: the ledger does not know. :arg uuid: of the instance
    :raises InvalidDiskInfo: the instance has no such disk, it is larger than that, or the description makes no sense.
    """
    if not isinstance(disks, list):
        raise _refused(uuid, "something other than a list of disks")
    checked = [_checked(disk, limits, uuid) for disk in disks]
    if len({disk["name"] for disk in checked}) != len(checked):
        raise _refused(uuid, "a disk twice")
    return checked


def unknown_bytes(disks: t.Sequence[Disk], limits: t.Mapping[str, int]) -> int:
    """Bytes of the disks whose size the ledger does not know: they must have room as a whole."""
    return sum(d["record"]["virtual_size"] for d in disks if d["record"] is not None and not limits[d["name"]])


def check_virtual_size(name: str, virtual_size: int, recorded: int, uuid: str) -> None:
    """Check what the header of a disk says. :raises InvalidDiskInfo: its host described it with another size."""
    if virtual_size != recorded:
        raise _refused(uuid, "disk %s of %d bytes, which has %d" % (name, recorded, virtual_size))


def _refused(uuid: str, what: str) -> InvalidDiskInfo:
    return InvalidDiskInfo(
        reason="the host of instance %s offers %s" % (uuid, what),
        remedy="Compare the instance's disks on that host with its flavor, and look whether the host was taken over.",
    )


def _number(value: t.Any, uuid: str, what: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _LARGEST:
        raise _refused(uuid, "%s of %r bytes" % (what, value))
    return value


def _checked(disk: t.Any, limits: t.Mapping[str, int], uuid: str) -> dict[str, t.Any]:
    if not isinstance(disk, dict) or not isinstance(disk.get("name"), str):
        raise _refused(uuid, "a disk without a name")
    name, record = disk["name"], disk.get("record")
    checked_disk: dict[str, t.Any] = {
        "name": name,
        "allocated": _number(disk.get("allocated"), uuid, "disk %s" % name),
        "mounted": disk.get("mounted") is True,
    }
    if "size" in disk:
        checked_disk["size"] = _number(disk["size"], uuid, "disk %s" % name)
    if "target" in disk:
        checked_disk["target"] = str(disk["target"])
    if name in _BESIDE and record is None:
        called, largest = _BESIDE[name]
        if not 0 < checked_disk.get("size", 1) <= largest:
            raise _refused(uuid, "%s of %d bytes" % (called, checked_disk["size"]))
        return {**checked_disk, "mounted": False, "record": None}
    if name not in limits:
        raise _refused(uuid, "disk %s, which the ledger does not have" % name)
    checked_disk["record"] = _record(name, record, uuid)
    if "size" not in disk and "target" not in disk and not is_shared(checked_disk["record"]):
        raise _refused(uuid, "disk %s without its size" % name)
    _check_size(checked_disk, int(limits[name]), uuid)
    return checked_disk


def _record(name: str, record: t.Any, uuid: str) -> dict[str, t.Any]:
    """The record for disk.info here. The base image and the volume group that the disk has there are not this host's."""
    if not isinstance(record, dict) or record.get("format") not in RECORD_FORMATS:
        raise _refused(uuid, "disk %s of an unknown format" % name)
    image_id, kind = record.get("image_id"), record.get("kind")
    if kind not in _KINDS or not (image_id in (None, "") or (isinstance(image_id, str) and _ID.match(image_id))):
        raise _refused(uuid, "disk %s of an unknown kind or image" % name)
    size = _number(record.get("virtual_size"), uuid, "disk %s" % name)
    if not size:
        raise _refused(uuid, "disk %s of no bytes" % name)
    checked = {"kind": kind, "format": record["format"], "virtual_size": size, "image_id": image_id, "base": ""}
    if is_shared(record):  # where it stays, which this host compares with its own settings
        checked.update({field: str(record.get(field) or "") for field in ("pool", "fsid")})
    return checked


def _check_size(disk: Disk, limit: int, uuid: str) -> None:
    name, size, store = disk["name"], disk["record"]["virtual_size"], STORE_TYPES[disk["record"]["format"]]
    if limit and size > limit + store.rounding:
        raise _refused(uuid, "disk %s of %d MiB, where its flavor has %d" % (name, size >> 20, limit >> 20))
    sent = disk.get("size")
    if sent is not None and not store.has_length(sent, size):
        raise _refused(uuid, "%s for disk %s of %d" % (store.content % sent, name, size))
