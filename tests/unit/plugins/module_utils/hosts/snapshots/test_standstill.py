# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""File systems that stand still from one module to the next one, and the process that ends it without one."""

from __future__ import annotations

import subprocess
import sys
import time
import typing as t
from pathlib import Path

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.os import locks
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.snapshots import standstill

from .conftest import OFF, PAUSED, RUNS, UUID, Error, Guest

STUB = """
class libvirtError(Exception): pass
def registerErrorHandler(*arguments): pass
class Domain:
    def __init__(self, log): self.log = log
    def lookupByUUIDString(self, uuid):
        self.note(uuid)
        return self
    def note(self, line):
        with io_open(self.log, "a") as file: file.write(line + "\\n")
    def fsThaw(self):
        self.note("thaw")
        self.thaws = getattr(self, "thaws", 0) + 1
        if self.thaws < 2: raise libvirtError
io_open = open
def open(uri): return Domain(uri)
"""


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str, float]]:
    """UUID, path and seconds of the processes that were left behind; none is."""
    found: list[tuple[str, str, float]] = []

    def start(uri: str, uuid: str, path: str, seconds: float) -> None:
        assert uri == "test:///" and Path(path).exists(), "it would end at once"
        found.append((uuid, path, seconds))

    monkeypatch.setattr(standstill, "_start", start)
    monkeypatch.setattr(standstill, "refuse_gone", lambda _uuid: None)
    return found


def hold(guest: Guest, quiesce: str = "try", check_mode: bool = False) -> dict[str, t.Any]:
    return standstill.hold(guest, "test:///", UUID, quiesce, 60.0, check_mode)


def files() -> list[str]:
    folder = Path(locks.LOCK_ROOT) / "frozen"
    return [path.name for path in folder.iterdir()] if folder.exists() else []


def test_they_stand_still_until_they_are_released(tmp_path: Path, started: list[tuple[str, str, float]]) -> None:
    guest = Guest(tmp_path / "disk", "raw", RUNS)
    held = hold(guest)
    assert (held["changed"], held["quiesced"], held["power_state"]) == (True, True, 1)
    assert guest.calls == ["freeze"] and files() == [held["token"]]
    assert started == [(UUID, str(Path(locks.LOCK_ROOT) / "frozen" / held["token"]), 60.0)]
    assert standstill.release(guest, UUID, held["token"]) == {"changed": True, "quiesced": True, "power_state": 1}
    assert guest.calls == ["freeze", "thaw"] and files() == []


def test_a_release_that_comes_too_late(tmp_path: Path, started: list[tuple[str, str, float]]) -> None:
    guest = Guest(tmp_path / "disk", "raw", RUNS)
    held = hold(guest)
    Path(started[0][1]).unlink()  # the process has let them go on
    assert standstill.release(guest, UUID, held["token"])["quiesced"] is False
    assert guest.calls[-1] == "thaw", "the process may have failed"


def test_an_agent_that_cannot(tmp_path: Path, started: list[tuple[str, str, float]]) -> None:
    guest = Guest(tmp_path / "disk", "raw", RUNS)
    guest.fails["freeze"] = Error("OPERATION_FAILED", "no answer")
    held = hold(guest)
    assert (held["quiesced"], held["token"]) == (False, "") and files() == [] and len(started) == 1
    with pytest.raises(errors.InstanceQuiesceNotSupported, match="no answer"):
        hold(guest, "require")
    assert files() == []


def test_file_systems_that_may_stand_still_are_left_to_the_process(
    tmp_path: Path, started: list[tuple[str, str, float]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def freeze(*_arguments: t.Any) -> bool:
        raise errors.LibvirtError(reason="the file systems may stand still")

    monkeypatch.setattr(standstill, "freeze", freeze)
    with pytest.raises(errors.LibvirtError):
        hold(Guest(tmp_path / "disk", "raw", RUNS))
    assert files() == [Path(started[0][1]).name], "the process ends without this file"


@pytest.mark.parametrize("state", [OFF, PAUSED])
def test_a_guest_that_does_not_run(tmp_path: Path, started: list[tuple[str, str, float]], state: int) -> None:
    guest = Guest(tmp_path / "disk", "raw", state)
    assert hold(guest)["quiesced"] is False
    with pytest.raises(errors.InstanceQuiesceNotSupported, match="does not run"):
        hold(guest, "require")
    assert guest.calls == [] and started == []


def test_a_domain_that_is_gone(tmp_path: Path, started: list[tuple[str, str, float]]) -> None:
    guest = Guest(tmp_path / "disk", "raw", RUNS)
    other = "0" * 8 + UUID[8:]
    for work in (
        lambda: standstill.hold(guest, "test:///", other, "try", 1.0),
        lambda: standstill.release(guest, other, "x"),
    ):
        with pytest.raises(errors.InstanceNotFound):
            work()
    assert started == []


def test_check_mode_asks_no_agent(tmp_path: Path, started: list[tuple[str, str, float]]) -> None:
    guest = Guest(tmp_path / "disk", "raw", RUNS)
    assert hold(guest, check_mode=True)["changed"] is True
    assert standstill.release(guest, UUID, "word", check_mode=True)["quiesced"] is False
    assert guest.calls == [] and started == [] and files() == []


def test_what_a_dead_run_left_does_not_end_the_next_one(tmp_path: Path, started: list[tuple[str, str, float]]) -> None:
    guest = Guest(tmp_path / "disk", "raw", RUNS)
    first = hold(guest)
    second = hold(guest)
    assert files() == [second["token"]] and first["token"] != second["token"]
    with pytest.raises(errors.InvalidInput):
        standstill.release(guest, UUID, "../" + second["token"])


def test_file_systems_that_do_not_go_on(tmp_path: Path, started: list[tuple[str, str, float]]) -> None:
    guest = Guest(tmp_path / "disk", "raw", RUNS)
    held = hold(guest)
    guest.fails["thaw"] = Error("OPERATION_FAILED", "stuck")
    with pytest.raises(errors.LibvirtError, match="stand still: stuck"):
        standstill.release(guest, UUID, held["token"])


# --- the process --------------------------------------------------------------------------------------------------------


def process(tmp_path: Path, path: Path, seconds: float) -> subprocess.Popen[bytes]:
    (tmp_path / "libvirt.py").write_text(STUB)
    argv = [sys.executable, "-c", standstill.PROGRAM, str(tmp_path / "log"), UUID, str(path), str(seconds), "3"]
    return subprocess.Popen(argv, env={"PYTHONPATH": str(tmp_path)})


def test_the_process_lets_them_go_on_when_nobody_comes(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.touch()
    assert process(tmp_path, path, 0.2).wait(30) == 0
    assert not path.exists() and (tmp_path / "log").read_text().splitlines() == [UUID, "thaw", "thaw"]


def test_the_process_ends_when_they_are_released(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.touch()
    running = process(tmp_path, path, 600)
    time.sleep(0.2)
    assert running.poll() is None
    path.unlink()
    assert running.wait(30) == 0 and not (tmp_path / "log").exists()


def test_the_process_outlives_the_module(tmp_path: Path) -> None:
    path = tmp_path / "token"
    code = (
        "import sys; sys.path[:0] = %r\n"
        "from ansible_collections.bootflow.compute.plugins.module_utils.hosts.snapshots import standstill\n"
        "open(%r, 'w').close()\n"
        "standstill._start('none:///', %r, %r, 600)\n" % (sys.path, str(path), UUID, str(path))
    )
    begin = time.monotonic()
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60, stdout=subprocess.PIPE)
    assert time.monotonic() - begin < 30, "whoever reads its output is not kept waiting"
    listed = subprocess.run(["pgrep", "-f", str(path)], check=False, capture_output=True, text=True)
    assert listed.stdout.strip()
    path.unlink()
    for _turn in range(100):
        if not subprocess.run(["pgrep", "-f", str(path)], check=False, capture_output=True).stdout:
            return
        time.sleep(0.1)
    raise AssertionError("it does not end")
