# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Root disks as layers over their image: qemu-img makes the first one of a size, and the others are what it would make."""

from __future__ import annotations

import os
import stat
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core.errors import CommandFailed, DiskFull
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.disks.stores import files
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.disks.stores.disk_spec import DiskSpec
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.disks.stores.files import ensure_files
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.images.images import BaseImage

MIB, GIB = 1024**2, 1024**3


@pytest.fixture
def base(tmp_path):
    path = tmp_path / "base"
    path.write_bytes(b"the image" + bytes(MIB - 9))
    return BaseImage(str(path), MIB, "0" * 64)


@pytest.fixture
def programs(monkeypatch):
    """The arguments of each program that runs."""
    found, real = [], files.run

    def run(argv, **kwargs):
        found.append(argv)
        return real(argv, **kwargs)

    monkeypatch.setattr(files, "run", run)
    return found


def make(folder, base, size):
    ensure_files(str(folder), [DiskSpec("disk", "image", size, image_id="an-image")], {"an-image": base}, False)
    return folder / "disk"


def test_many_disks_of_a_size_are_made_by_one_program(tmp_path, base, programs):
    with ThreadPoolExecutor(8) as pool:
        disks = list(pool.map(lambda n: make(tmp_path / ("guest-%d" % n), base, GIB), range(12)))
    assert len(programs) == 1
    by_hand = tmp_path / "by-hand"
    argv = ["qemu-img", "create", "-q", "-f", "qcow2", "-F", "raw", "-b", base.path, str(by_hand), str(GIB)]
    subprocess.run(argv, check=True)
    assert {disk.read_bytes() for disk in disks} == {by_hand.read_bytes()}
    assert {stat.S_IMODE(disk.stat().st_mode) for disk in disks} == {0o600}
    subprocess.run(["qemu-img", "check", "-q", str(disks[-1])], check=True)


def test_another_size_or_image_has_its_own(tmp_path, base, programs):
    other = BaseImage(str(tmp_path / "other"), MIB, "1" * 64)
    Path(other.path).write_bytes(bytes(MIB))
    for number, (image, size) in enumerate(((base, GIB), (base, 2 * GIB), (other, GIB), (base, GIB))):
        make(tmp_path / str(number), image, size)
    assert len(programs) == 3
    for number, image in ((0, base), (2, other), (3, base)):
        shown = subprocess.run(
            ["qemu-img", "info", str(tmp_path / str(number) / "disk")], capture_output=True, check=True
        )
        assert ("backing file: %s\n" % image.path).encode() in shown.stdout


def test_where_the_first_one_fails_the_next_is_tried_anew(tmp_path, base, programs):
    gone = Path(base.path).rename(tmp_path / "gone")
    with pytest.raises(CommandFailed):
        make(tmp_path / "1", base, GIB)
    gone.rename(base.path)
    assert make(tmp_path / "2", base, GIB).exists()
    assert len(programs) == 2


def test_no_room_for_a_copy_is_a_full_disk(tmp_path, base, monkeypatch):
    make(tmp_path / "1", base, GIB)

    def full(*_args):
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(DiskFull, match=str(tmp_path / "2" / "disk")):
        make(tmp_path / "2", base, GIB)
    assert os.listdir(tmp_path / "2") == []
