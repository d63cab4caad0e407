# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Folders and locks of root on a host that has other users, who act in processes of their own here."""

from __future__ import annotations

import os
import tempfile

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.os import locks, paths
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.volumes.volume_images import TemporaryImages

NOBODY = 65534


def as_nobody(work):
    """Do ``work`` in a child process as another user; whether it succeeded."""
    child = os.fork()
    if not child:
        try:
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
            work()
        except OSError:
            os._exit(1)
        finally:
            os._exit(0)
    return os.waitpid(child, 0)[1] == 0


@pytest.fixture
def everybodys():
    """A folder like /run/lock: everybody may create files in it."""
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        os.chmod(name, 0o1777)
        yield name


def in_locks(everybodys):
    return os.path.join(everybodys, "bootflow")


@pytest.mark.parametrize("mode", [0o700, 0o755, 0o1777])
def test_a_folder_that_another_user_made_first_is_refused(everybodys, mode):
    folder = in_locks(everybodys)

    def plant():
        os.mkdir(folder)
        os.chmod(folder, mode)

    assert as_nobody(plant)
    for use in (paths.make_dirs, lambda path: paths.make_dirs(path + "/below"), hold_a_lock):
        with pytest.raises(errors.UnsafeFolder, match="it belongs to user %d" % NOBODY) as caught:
            use(folder)
        assert folder in caught.value.message and "chown root" in caught.value.remedy
    assert os.listdir(folder) == []


def hold_a_lock(folder):
    with locks.host_lock(folder, "one", timeout=0):
        pass


@pytest.mark.parametrize("target", ["/root", "victim", "../victim"])
def test_a_link_that_another_user_planted_is_not_followed(everybodys, tmp_path, target):
    victim = tmp_path / "victim"
    (victim / "locks").mkdir(parents=True)
    (victim / "locks" / "one").write_text("precious")
    target = str(victim) if target == "victim" else target
    assert as_nobody(lambda: os.symlink(target, in_locks(everybodys)))
    with pytest.raises(errors.UnsafeFolder):
        hold_a_lock(in_locks(everybodys))
    assert (victim / "locks" / "one").read_text() == "precious"


@pytest.mark.parametrize("mode", [0o777, 0o1777, 0o775])
def test_locks_are_not_in_a_folder_that_others_write_to(tmp_path, mode):
    """A lock that another user made first is theirs to hold."""
    folder = tmp_path / "locks"
    folder.mkdir()
    os.chown(folder, 0, NOBODY)
    os.chmod(folder, mode)
    with pytest.raises(errors.UnsafeFolder, match="others may write to it"):
        hold_a_lock(str(tmp_path))
    assert os.listdir(folder) == []
    if mode != 0o1777:
        with pytest.raises(errors.UnsafeFolder):
            paths.make_dirs(str(folder / "below"))


def test_a_lock_that_is_a_link_is_not_opened(tmp_path):
    (tmp_path / "locks").mkdir()
    (tmp_path / "locks" / "one").symlink_to(tmp_path / "victim")
    with pytest.raises(OSError):
        hold_a_lock(str(tmp_path))
    assert not (tmp_path / "victim").exists()


@pytest.mark.parametrize("mask", [0o000, 0o077])
def test_nobody_else_can_touch_what_locks_leave(everybodys, mask):
    old = os.umask(mask)
    try:
        with locks.host_lock(in_locks(everybodys), "one"):
            path = os.path.join(in_locks(everybodys), "locks")
            assert not as_nobody(lambda: os.open(os.path.join(path, "one"), os.O_RDWR))
            assert not as_nobody(lambda: os.open(os.path.join(path, "two"), os.O_RDWR | os.O_CREAT))
            assert not as_nobody(lambda: os.rename(path, path + "2"))
    finally:
        os.umask(old)
    assert os.listdir(path) == []


def test_links_of_the_administrator_are_followed(tmp_path):
    (tmp_path / "real" / "instances").mkdir(parents=True)
    (tmp_path / "relative").symlink_to("real/../real")
    (tmp_path / "absolute").symlink_to(tmp_path / "relative")
    paths.make_dirs(str(tmp_path / "absolute" / "instances" / "x"))
    assert (tmp_path / "real" / "instances" / "x").is_dir()
    (tmp_path / "circle").symlink_to("circle")
    with pytest.raises(OSError, match="symbolic links"):
        paths.make_dirs(str(tmp_path / "circle" / "x"))


def test_leftovers_of_another_user_are_not_removed(everybodys):
    left = os.path.join(everybodys, "image-theirs")
    assert as_nobody(lambda: os.mkdir(left))
    os.mkdir(os.path.join(everybodys, "image-ours"))
    TemporaryImages(everybodys).sweep()
    assert os.listdir(everybodys) == ["image-theirs"]


def test_the_locks_of_storage_are_where_only_root_makes_files():
    assert locks.LOCK_ROOT == "/run/bootflow"
