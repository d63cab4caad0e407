# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The file that tells how far guests are: whole at any time, for its owner alone, and gone afterwards."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.core.instances import progress as of_core
from ansible_collections.bootflow.compute.plugins.module_utils.core.instances.progress import Progress, remaining
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.live import progress

STATS = {"memory_total": 8 << 20, "memory_remaining": 2 << 20, "disk_total": 4 << 20, "operation": 6}


@pytest.fixture(name="folder")
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for module in (of_core, progress):
        monkeypatch.setattr(module, "FOLDER", str(tmp_path / "bootflow"))
    return tmp_path / "bootflow"


def test_the_file(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "_PAUSE", 0.0)
    told = progress.Told("abc")
    assert not folder.exists()
    told.record_stats("u1", STATS)
    path = folder / "live-abc"
    assert json.loads(path.read_text())["u1"] == {
        "memory_total": 8 << 20, "memory_processed": 0, "memory_remaining": 2 << 20,
        "disk_total": 4 << 20, "disk_processed": 0, "disk_remaining": 0,
    }  # fmt: skip
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    told.record_stats("u2", STATS)
    told.over("u1")
    assert list(json.loads(path.read_text())) == ["u2"]
    told.end()
    told.end()
    assert list(folder.iterdir()) == []


def test_it_is_not_written_more_than_once_a_second(folder: Path) -> None:
    told = progress.Told("abc")
    told.record_stats("u1", STATS)
    told.record_stats("u1", {**STATS, "memory_remaining": 1})
    assert json.loads((folder / "live-abc").read_text())["u1"]["memory_remaining"] == 2 << 20


def test_files_of_killed_modules_are_removed(folder: Path) -> None:
    folder.mkdir(mode=0o700)
    for name, age in (("live-old", 4000), ("live-new", 100), ("build-0", 4000)):
        (folder / name).write_text("")
        at = os.stat(folder / name).st_mtime - age
        os.utime(folder / name, (at, at))
    progress.Told("abc").record_stats("u1", STATS)
    assert {p.name for p in folder.iterdir()} == {"live-abc", "live-new", "build-0"}


def test_a_folder_that_cannot_be_written_ends_nothing(folder: Path) -> None:
    folder.parent.joinpath("bootflow").write_text("a file")
    told = progress.Told("abc")
    told.record_stats("u1", STATS)
    told.over("u1")
    told.end()


def test_without_a_name_nothing_is_written(folder: Path) -> None:
    progress.Told("").record_stats("u1", STATS)
    assert not folder.exists()
    with pytest.raises(errors.InvalidInput):
        progress.Told("../x")


@pytest.mark.parametrize(
    "its, memory_mb, percent",
    [
        (Progress(), 0, 0),
        (Progress(), 512, 0),
        (Progress(disk_total=512 << 20, disk_remaining=0), 512, 50),  # the memory comes afterwards
        (Progress(disk_total=512 << 20, memory_total=512 << 20, memory_remaining=256 << 20), 512, 75),
        (Progress(memory_total=1 << 20, memory_remaining=0), 512, 100),
        (Progress(memory_total=1 << 20, memory_remaining=2 << 20), 512, 0),
    ],
)
def test_percent(its: Progress, memory_mb: int, percent: int) -> None:
    assert its.percent(memory_mb) == percent


def test_what_is_left() -> None:
    its = Progress(disk_total=4 << 20, disk_remaining=1 << 20, memory_total=8 << 20, memory_remaining=2 << 20)
    assert remaining(vars(its)) == "disks 1 of 4 MiB, memory 2 of 8 MiB"
    assert remaining(vars(Progress(memory_total=8 << 20))) == "memory 0 of 8 MiB"
    assert remaining(vars(Progress())) == ""
