# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The backing file of a qcow2 disk, by its header, and the same in a domain's XML.

A domain that names the backing chain of its disks needs no probing by libvirt, and virt-aa-helper, which writes the guest's AppArmor
profile, has to open no disk. The header counts, not the record of the disk: an administrator may have pulled the data of the base image
into the disk (virsh blockpull), and a guest cannot write to the header.
"""

from __future__ import annotations

import os
import stat
import struct
import typing as t
from dataclasses import dataclass

from ...core.disks.local import QCOW2, RAW, image_of_base, local_disks
from ...core.guest.domain.element import parse
from ..os.files import opened

_HEADER = struct.Struct(">4sIQI")  # magic, version, offset and length of the name of the backing file; qcow and qcow2
_MAGIC = b"QFI\xfb"
_LONGEST_NAME = 1023
_FIRST_CLUSTER = 64 * 1024  # bytes; header, extensions and name are in it
_LENGTH_AT, _LENGTH_OF_V2 = 100, 72  # of the header
_EXTENSION = struct.Struct(">II")  # type, bytes
_BACKING_FORMAT = 0xE2792ACA
# The base image is many guests': libvirt would give it to QEMU's user with the first of them, and never back.
_BACKING = (
    "<backingStore type='file'><format type='raw'/><source><seclabel model='dac' relabel='no'/></source>"
    "<backingStore/></backingStore>"
)


@dataclass(frozen=True)
class Backing:
    """The backing file in the header of a disk: ``name`` and ``format`` are empty without one, ``format`` also where the header has none."""

    name: str
    format: str = ""


def read_backing(path: str) -> Backing:
    """Return the backing file of a disk that is a file or block device.

    A guest can write such a header into a raw disk: the caller knows the disk's format, or can bear a wrong answer.

    :raises OSError: the file cannot be read. :raises ValueError: the path has a zero byte.
    """
    mode = os.stat(path).st_mode
    if not (stat.S_ISREG(mode) or stat.S_ISBLK(mode)):
        return Backing("")
    with opened(path, os.O_RDONLY | os.O_NONBLOCK) as fd:
        header = os.pread(fd, _FIRST_CLUSTER, 0)
        if len(header) < _HEADER.size:
            return Backing("")
        magic, version, offset, length = _HEADER.unpack_from(header)
        if magic != _MAGIC or not offset or offset >= 2**63 or length > _LONGEST_NAME:
            return Backing("")
        name = os.fsdecode(os.pread(fd, length, offset))
        return Backing(name, _format_in(header[:offset], version))


def _format_in(header: bytes, version: int) -> str:
    """Return the format in the header's extensions; "" without one."""
    at = _LENGTH_OF_V2
    if version > 2 and len(header) >= _LENGTH_AT + 4:
        (at,) = struct.unpack_from(">I", header, _LENGTH_AT)
    while at + _EXTENSION.size <= len(header):
        kind, length = _EXTENSION.unpack_from(header, at)
        at += _EXTENSION.size
        if kind == 0:
            break
        if kind == _BACKING_FORMAT:
            return header[at : at + length].decode("ascii", "replace")
        at += (length + 7) // 8 * 8
    return ""


def name_chains(root: t.Any, uuid: str, base_folder: str) -> bool:
    """Name the backing chains of the instance's qcow2 files in its domain. Returns whether ``root`` changed.

    A disk that is not there, or whose chain was changed by hand to other files, gets none: libvirt finds it out itself.

    :arg base_folder: the folder of base images
    """
    changed = False
    for _name, disk in local_disks(root, uuid):
        driver, source = disk.find("driver"), disk.find("source")
        if disk.get("type") != "file" or driver is None or driver.get("type") != QCOW2:
            continue
        element = _element(source.get("file"), base_folder)
        for old in disk.findall("backingStore"):
            disk.remove(old)
            changed = True
        if element is not None:
            source.addnext(element)
            changed = True
    return changed


def _element(path: str, base_folder: str) -> t.Any | None:
    try:
        backing = read_backing(path)
    except (OSError, ValueError):
        return None
    if not backing.name:
        return parse("<backingStore/>")
    folder, name = os.path.split(backing.name)
    if folder != base_folder or image_of_base(name) is None or backing.format != RAW:
        return None
    element = parse(_BACKING)
    element.find("source").set("file", backing.name)
    return element
