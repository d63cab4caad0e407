# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The room for full qcow2 files, against what qemu-img and mke2fs really make."""

from __future__ import annotations

import json
import os
import re
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.bootflow.compute.plugins.module_utils.hosts.disks.stores import qcow2_room
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.os.command import program

GIB = 1024**3
MIB = 1024**2
BLOCK = 4096


def full_size(size):
    argv = ["qemu-img", "measure", "-O", "qcow2", "--size", str(size), "--output=json"]
    return json.loads(subprocess.run(argv, check=True, capture_output=True, text=True).stdout)["fully-allocated"]


def free_after_mkfs(tmp_path, size):
    """Bytes that files can have on a new file system of that size."""
    path = tmp_path / "volume"
    path.touch()
    os.truncate(path, size)
    subprocess.run([program("mkfs.ext4", "e2fsprogs"), "-q", "-F", *qcow2_room.MKFS_OPTIONS, str(path)], check=True)
    argv = [program("dumpe2fs", "e2fsprogs"), "-h", str(path)]
    text = subprocess.run(argv, check=True, capture_output=True, text=True).stdout
    blocks, free, reserved, size = (
        int(re.search(r"^%s: +(\d+)" % words, text, re.MULTILINE).group(1))
        for words in ("Block count", "Free blocks", "Reserved block count", "Block size")
    )
    assert size == BLOCK
    # The kernel keeps 2 % or 4096 blocks to itself (s_resv_clusters).
    return (free - reserved - min(blocks // 50, 4096)) * BLOCK


@pytest.mark.parametrize(
    "sizes", [[64 * MIB], [GIB], [GIB, GIB, 64 * MIB], [20 * GIB, 512 * MIB], [500 * GIB], [4096 * GIB]]
)
def test_full_files_fit(tmp_path, sizes):
    files = [full_size(size) for size in sizes]
    # At worst each block is a piece of its own: 340 of them in a block of the file's tree, and as many of those in one above.
    blocks = [size // BLOCK + 1 for size in files]
    needed = sum(count + (count // 340 + 1) * 341 // 340 + 1 for count in blocks) * BLOCK
    assert needed <= free_after_mkfs(tmp_path, qcow2_room.volume_room(sizes))


@given(
    st.integers(0, 2000 * GIB),
    st.lists(st.integers(1, 200), min_size=1, max_size=12),
    st.booleans(),
    st.sampled_from([MIB, 4 * MIB, 32 * MIB, 1024 * MIB]),
)
def test_what_is_promised_fits(room, claims, apart, extent):
    """However the GB of a host are spread over instances, and an instance's over disks."""
    left, taken = qcow2_room.promised_gb(room, extent), 0
    for gb in claims:
        gb = min(gb, left)
        if gb:
            size = qcow2_room.volume_room([GIB] * gb if apart else [GIB * gb])
            taken += -(-size // extent) * extent
        left -= gb
    assert taken <= room


def test_a_group_of_one_terabyte_loses_less_than_four_percent():
    assert qcow2_room.promised_gb(1024 * GIB, 4 * MIB) > 1024 * 0.96
