# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Creates a FAT16 file system with long names in memory, as mkfs.vfat and mcopy would, without them and without root.

The same files give the same bytes, because it contains no times and no random serial number.
"""

from __future__ import annotations

import math
import struct
import typing as t

from ....core.errors import InvalidInput

SECTOR = 512
SECTORS_PER_CLUSTER = 4
CLUSTER = SECTOR * SECTORS_PER_CLUSTER
RESERVED_SECTORS = 4
ROOT_ENTRIES = 512
BOOT_CODE = 62  # start of the unused code of the boot sector, which has space for a note of 448 bytes
MIN_SIZE, MAX_SIZE = 9 << 20, 127 << 20  # with this cluster size, within the limits of FAT16

_DIRECTORY, _ARCHIVE, _LABEL, _LONG_NAME = 0x10, 0x20, 0x08, 0x0F
_DATE = 0x0021  # 1980-01-01, the earliest date in FAT


class _Directory:
    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.folders: dict[str, _Directory] = {}


def image(files: t.Mapping[str, bytes], label: str, size: int, note: bytes = b"") -> bytes:
    """The bytes of the file system up to the last used one; the rest up to ``size`` is zero.

    :arg files: relative path -> content; the paths are already checked.
    :arg size: bytes of the whole file system, MIN_SIZE to MAX_SIZE.
    :arg note: bytes for the code area of the boot sector.
    :raises InvalidInput: the files do not fit, or the size or label is not possible with FAT16.
    """
    if not MIN_SIZE <= size <= MAX_SIZE or size % CLUSTER:
        raise InvalidInput(reason="size of a vfat config drive is not valid: %d bytes" % size)
    if not 1 <= len(label.encode("ascii", "replace")) <= 11 or len(note) > SECTOR - BOOT_CODE - 2:
        raise InvalidInput(reason="label of a vfat config drive is not valid: %r" % label)
    sectors = size // SECTOR
    root_sectors = ROOT_ENTRIES * 32 // SECTOR
    # Two bytes of FAT per cluster; two tables; a little more than needed is harmless.
    fat_sectors = math.ceil((sectors / SECTORS_PER_CLUSTER + 2) * 2 / SECTOR)
    clusters = (sectors - RESERVED_SECTORS - 2 * fat_sectors - root_sectors) // SECTORS_PER_CLUSTER

    space = _Space(clusters)
    root = _entries(_tree(files), 0, None, space)
    root = _label_entry(label) + root
    if len(root) > ROOT_ENTRIES * 32:
        raise InvalidInput(reason="root directory of the vfat config drive has too many files")
    fat = struct.pack("<%dH" % len(space.table), *space.table).ljust(fat_sectors * SECTOR, b"\0")
    boot = _boot_sector(sectors, fat_sectors, label, note).ljust(RESERVED_SECTORS * SECTOR, b"\0")
    return boot + fat + fat + root.ljust(root_sectors * SECTOR, b"\0") + b"".join(space.clusters)


class _Space:
    """Allocates clusters in order."""

    def __init__(self, limit: int):
        self.limit = limit
        self.table = [0xFFF8, 0xFFFF]
        self.clusters: list[bytes] = []

    def reserve(self, length: int) -> int:
        """Allocate a chain for ``length`` bytes; returns its first cluster, 0 for no bytes."""
        count = math.ceil(length / CLUSTER)
        if count == 0:
            return 0
        first = len(self.table)
        if first - 2 + count > self.limit:
            raise InvalidInput(
                reason="files do not fit on a vfat config drive of %d bytes" % (self.limit * CLUSTER),
                remedy="Set config_drive_format to iso9660, or shorten user data and files.",
            )
        self.table.extend(range(first + 1, first + count))
        self.table.append(0xFFFF)
        self.clusters.extend([b""] * count)
        return first

    def write(self, first: int, data: bytes) -> None:
        for number in range(math.ceil(len(data) / CLUSTER)):
            self.clusters[first - 2 + number] = data[number * CLUSTER : (number + 1) * CLUSTER].ljust(CLUSTER, b"\0")


def _tree(files: t.Mapping[str, bytes]) -> _Directory:
    root = _Directory()
    for path in sorted(files):
        *folders, name = path.split("/")
        directory = root
        for folder in folders:
            directory = directory.folders.setdefault(folder, _Directory())
            if folder in directory.files:
                raise InvalidInput(reason="%r is both a file and a directory" % path)
        directory.files[name] = files[path]
    return root


def _entries(directory: _Directory, own: int, parent: int | None, space: _Space) -> bytes:
    """The entries of the directory; its content is written to ``space``. ``parent`` is None for the root."""
    result = b""
    if parent is not None:
        result += _short_entry(b".          ", _DIRECTORY, own, 0) + _short_entry(b"..         ", _DIRECTORY, parent, 0)
    number = 0
    for name, below in directory.folders.items():
        number += 1
        # The size of a directory is known before its position: its entries have the same size wherever they point.
        length = 64 + sum(32 * (_long_parts(n) + 1) for n in (*below.folders, *below.files))
        first = space.reserve(length)
        space.write(first, _entries(below, first, own, space))
        result += _named_entries(name, number, _DIRECTORY, first, 0)
    for name, data in directory.files.items():
        number += 1
        first = space.reserve(len(data))
        space.write(first, data)
        result += _named_entries(name, number, _ARCHIVE, first, len(data))
    return result


def _long_parts(name: str) -> int:
    return math.ceil(len(name) / 13)


def _named_entries(name: str, number: int, attributes: int, first: int, size: int) -> bytes:
    """The long name in parts of 13 characters, last part first, followed by the 8.3 entry (for old systems only)."""
    short = b"F%07d   " % number
    checksum = 0
    for byte in short:
        checksum = (((checksum & 1) << 7) + (checksum >> 1) + byte) & 0xFF
    units = name.encode("utf-16-le")
    parts = _long_parts(name)
    if len(name) % 13:
        units = (units + b"\0\0").ljust(parts * 26, b"\xff")
    result = b""
    for order in range(parts, 0, -1):
        part = units[(order - 1) * 26 : order * 26]
        mark = order | 0x40 if order == parts else order
        result += struct.pack("<B10sBBB12sH4s", mark, part[:10], _LONG_NAME, 0, checksum, part[10:22], 0, part[22:])
    return result + _short_entry(short, attributes, first, size)


def _short_entry(name: bytes, attributes: int, first: int, size: int) -> bytes:
    return struct.pack("<11sBBBHHHHHHHI", name, attributes, 0, 0, 0, _DATE, _DATE, 0, 0, _DATE, first, size)


def _label_entry(label: str) -> bytes:
    return _short_entry(label.encode("ascii").ljust(11), _LABEL, 0, 0)


def _boot_sector(sectors: int, fat_sectors: int, label: str, note: bytes) -> bytes:
    small = sectors < 0x10000
    parameters = struct.pack(
        "<3s8sHBHBHHBHHHIIBBBI11s8s",
        b"\xeb\x3c\x90",
        b"BOOTFLOW",
        SECTOR,
        SECTORS_PER_CLUSTER,
        RESERVED_SECTORS,
        2,
        ROOT_ENTRIES,
        sectors if small else 0,
        0xF8,
        fat_sectors,
        32,
        64,
        0,
        0 if small else sectors,
        0x80,
        0,
        0x29,
        0xBF00BF00,
        label.encode("ascii").ljust(11),
        b"FAT16   ",
    )
    return (parameters + note).ljust(SECTOR - 2, b"\0") + b"\x55\xaa"
