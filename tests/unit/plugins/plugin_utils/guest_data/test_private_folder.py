# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Folders of the controller for secrets, under any umask, and in places of other users."""

from __future__ import annotations

import os
import typing as t
from pathlib import Path

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.plugin_utils.builds import passwords
from ansible_collections.bootflow.compute.plugins.plugin_utils.guest_data import private_folder
from ansible_collections.bootflow.compute.plugins.plugin_utils.watch import events_file

UUID = "2f4c1c0e-6a0f-4d8e-9f0b-0c6f3f3b2a11"
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="gives folders to another user")


@pytest.fixture(name="no_umask", autouse=True)
def _no_umask() -> t.Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o7777


def test_each_folder_that_is_made_is_for_this_user_alone(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "b" / "c"
    passwords.leave_in(str(folder), {UUID: "x"})
    assert [mode(p) for p in (folder, folder.parent, folder.parents[1])] == [0o700] * 3
    assert (folder / UUID).read_text() == "x\n" and mode(folder / UUID) == 0o600
    passwords.leave_in(str(folder), {UUID: "y"})
    assert (folder / UUID).read_text() == "y\n" and os.listdir(folder) == [UUID]


def test_a_link_of_this_user_is_followed(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir(mode=0o755)
    (tmp_path / "link").symlink_to(tmp_path / "real")
    passwords.leave_in(str(tmp_path / "link" / "new"), {UUID: "x"})
    assert (tmp_path / "real" / "new" / UUID).exists()


@pytest.mark.parametrize("wide", [0o777, 0o770, 0o1777, 0o707])
def test_a_folder_that_others_may_write_to(tmp_path: Path, wide: int) -> None:
    """One with the sticky bit, as /tmp, too: others may make the files first."""
    folder = tmp_path / "wide"
    folder.mkdir()
    folder.chmod(wide)
    with pytest.raises(errors.InvalidInput, match="other users may write to") as caught:
        passwords.leave_in(str(folder), {UUID: "x"})
    assert "that no other user may write to" in caught.value.remedy
    with pytest.raises(errors.InvalidInput):
        passwords.check_folder(str(folder))
    assert os.listdir(folder) == []


def test_a_folder_above_that_others_may_write_to(tmp_path: Path) -> None:
    above = tmp_path / "above"
    above.mkdir()
    above.chmod(0o777)
    with pytest.raises(errors.InvalidInput, match="other users may write to"):
        passwords.leave_in(str(above / "new"), {UUID: "x"})
    assert os.listdir(above) == []
    above.chmod(0o1777)
    passwords.leave_in(str(above / "new"), {UUID: "x"})
    assert mode(above / "new") == 0o700


@needs_root
def test_a_folder_of_another_user(tmp_path: Path) -> None:
    for name, below in (("theirs", ""), ("above", "mine")):
        folder = tmp_path / name / below
        folder.mkdir(parents=True, mode=0o755)
        (tmp_path / name).chmod(0o755)
        os.chown(tmp_path / name, 64055, 64055)
        with pytest.raises(errors.InvalidInput, match="belongs to another user"):
            passwords.leave_in(str(folder), {UUID: "x"})
        assert os.listdir(folder) == []


@needs_root
def test_a_link_of_another_user_leads_where_it_leads(tmp_path: Path) -> None:
    """What counts is the real folder."""
    (tmp_path / "wide").mkdir(mode=0o777)
    (tmp_path / "link").symlink_to(tmp_path / "wide")
    with pytest.raises(private_folder.NotPrivate, match="wide"):
        private_folder.make(str(tmp_path / "link"))
    (tmp_path / "file").touch()
    with pytest.raises(errors.InvalidInput, match="Not a directory"):
        passwords.leave_in(str(tmp_path / "file"), {})


def test_events_are_written_by_this_user_alone(tmp_path: Path) -> None:
    with events_file.EventsFile(str(tmp_path / "events")):
        assert mode(tmp_path / "events") == 0o644
