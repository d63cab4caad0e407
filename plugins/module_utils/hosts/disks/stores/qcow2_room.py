# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The space that full qcow2 files need on their own ext4 file system, and how many GB of disks fit.

A qcow2 file of V bytes ends with V bytes of clusters (64 KiB each) and, for each cluster, 8 bytes in a table and 2 in the
count of references: less than V/4096, and some clusters more. ext4 needs 12 bytes for each piece of a file, which at worst
is a block of 4096: V/341 and its index, of V/256; its bitmaps are less than what is left of that.
"""

from __future__ import annotations

import typing as t

from ....core.amounts import GIB, MIB

#: A journal of 4 MiB, 16 MiB reserved by the kernel, and the first clusters of several files.
_FIXED = 32 * MIB
#: For a few large files: few inodes, no blocks reserved for root, and none for growth.
MKFS_OPTIONS = ("-b", "4096", "-m", "0", "-i", "4194304", "-J", "size=4", "-O", "^resize_inode")


def volume_room(sizes: t.Iterable[int]) -> int:
    """Size in bytes of a logical volume that can hold full qcow2 files of these virtual sizes."""
    full = sum(size + size // 4096 for size in sizes)
    return full + full // 256 + _FIXED


def promised_gb(room: int, extent_size: int) -> int:
    """GB of disks that fit into the space, however they are spread over instances: as if each had only one."""
    one = -(-volume_room([GIB]) // extent_size) * extent_size
    return room // one
