# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Lines of ours in fstab come and go; whatever else is in it stays."""

from __future__ import annotations

import os
import subprocess

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.hosts.os import fstab

ONE, TWO = "11111111-1111-4111-8111-111111111111", "22222222-2222-4222-8222-222222222222"
OTHERS = (
    "# /etc/fstab\nUUID=4a3f /  ext4\terrors=remount-ro 0 1\n\n"
    "# x-bootflow.instance=%s in a comment\n/dev/sdb1 /x-bootflow.instance=%s ext4 defaults 0 2\n" % (ONE, ONE)
)


@pytest.fixture
def table(tmp_path, monkeypatch):
    path = tmp_path / "fstab"
    path.write_bytes(OTHERS.encode() + b"# \xff\n")
    monkeypatch.setattr(fstab, "FSTAB", str(path))
    monkeypatch.setattr(fstab, "LOCK_ROOT", str(tmp_path / "lock"))
    return path


def test_a_line_is_added_once_and_taken_away(table):
    before = table.read_bytes()
    assert fstab.add(ONE, "/dev/vg/one", "/srv/a b/disk") and not fstab.add(ONE, "/dev/vg/one", "/srv/a b/disk")
    assert fstab.add(TWO, "/dev/vg/two", "/srv/two/disk")
    line = "/dev/vg/one /srv/a\\040b/disk ext4 nodev,nosuid,noexec,noatime,nofail,x-bootflow.instance=%s 0 0" % ONE
    assert fstab.lines_of(ONE) == [line]
    assert table.read_bytes().startswith(before) and table.stat().st_mode & 0o777 == 0o644
    assert fstab.remove(ONE) and not fstab.remove(ONE)
    assert fstab.lines_of(ONE) == [] and len(fstab.lines_of(TWO)) == 1
    assert fstab.remove(TWO) and table.read_bytes() == before
    assert os.listdir(table.parent) == ["fstab"] or sorted(os.listdir(table.parent)) == ["fstab", "lock"]


def test_mount_understands_the_line(table):
    fstab.add(ONE, "/dev/vg/one", "/srv/a b/disk")
    done = subprocess.run(
        ["findmnt", "--tab-file", str(table), "--noheadings", "--output", "SOURCE,FSTYPE", "/srv/a b/disk"],
        check=True,
        capture_output=True,
        text=True,
    )
    assert done.stdout.split() == ["/dev/vg/one", "ext4"]


def test_a_line_that_says_something_else_is_corrected(table):
    fstab.add(ONE, "/dev/old/one", "/srv/one/disk")
    assert fstab.add(ONE, "/dev/vg/one", "/srv/one/disk")
    assert [line.split()[0] for line in fstab.lines_of(ONE)] == ["/dev/vg/one"]


def test_without_a_table_and_without_an_end_of_line(table):
    table.write_text("/dev/sda1 / ext4 defaults 0 1")
    assert fstab.add(ONE, "/dev/vg/one", "/srv/one/disk")
    assert table.read_text().splitlines()[0] == "/dev/sda1 / ext4 defaults 0 1"
    table.unlink()
    assert not fstab.remove(ONE) and not table.exists()
    assert fstab.add(ONE, "/dev/vg/one", "/srv/one/disk") and len(table.read_text().splitlines()) == 1


def test_a_link_stays_a_link(table, tmp_path):
    real = tmp_path / "real"
    table.rename(real)
    table.symlink_to(real)
    fstab.add(ONE, "/dev/vg/one", "/srv/one/disk")
    assert table.is_symlink() and ONE in real.read_text(errors="replace").splitlines()[-1]
