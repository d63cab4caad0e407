# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a task tells of live migrations while it waits for them."""

from __future__ import annotations

import json
import os
import subprocess
import time
import types
import typing as t
from pathlib import Path

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core.instances.progress import FIELDS, Progress
from ansible_collections.bootflow.compute.plugins.module_utils.ledger import database
from ansible_collections.bootflow.compute.plugins.plugin_utils.moves import live_progress
from ansible_collections.bootflow.compute.plugins.plugin_utils.moves.live_progress import Leaving, Teller, read, watched

GUEST = Leaving("u1", "web-1", "kvm1", "kvm2", 512)
HALF = Progress(memory_total=512 << 20, memory_remaining=256 << 20)


def file_of(its: Progress, uuid: str = "u1") -> str:
    return json.dumps({uuid: vars(its)})


@pytest.mark.parametrize(
    "text",
    [
        "", "{", "[]", "null", '{"u1": 3}', '{"u1": {}}', "[" * 100_000, "{}" + " " * (2 << 20),
        json.dumps({"u1": {**dict.fromkeys(FIELDS, 0), "disk_total": -1}}),
        json.dumps({"u1": {**dict.fromkeys(FIELDS, 0), "disk_total": "1"}}),
    ],
)  # fmt: skip
def test_nonsense_of_a_host_says_nothing(text: str) -> None:
    assert read(text) == {}


def test_what_a_host_says() -> None:
    assert read(file_of(HALF)) == {"u1": HALF}


def test_lines() -> None:
    teller = Teller([GUEST])
    assert teller.news({"stranger": HALF, "u1": HALF}) == {"u1": (50, HALF)}

    def lines(percent: int, now: float) -> list[str]:
        return teller.lines({"u1": (percent, HALF)}, now)

    assert lines(50, 100) == ["live_migrate: web-1 from kvm1 to kvm2: 50 % after 0 s (left: memory 256 of 512 MiB)"]
    assert lines(59, 103) == [] and lines(48, 106) == [] and lines(50, 109) == []
    assert "60 % after 12 s" in lines(60, 112)[0]
    further = Progress(memory_total=512 << 20, memory_remaining=128 << 20, memory_processed=600 << 20)
    assert teller.lines({"u1": (75, further)}, 122)[0].endswith("(left: memory 128 of 512 MiB, 60.0 MiB/s)")
    assert lines(60, 150) == [] and "60 % after 82 s" in lines(60, 182)[0]


class _Host:
    """Reads files of this machine."""

    def output(self, words: t.Sequence[str]) -> str:
        return subprocess.run(words, stdout=subprocess.PIPE, check=False).stdout.decode()


class _Ledger:
    def __init__(self) -> None:
        self.got: list[t.Any] = []
        self.closed = 0

    def for_run(self, _context: t.Any) -> _Ledger:
        return self

    def transact(self, _function: t.Any, news: t.Any) -> None:
        self.got.append(dict(news))

    def close(self) -> None:
        self.closed += 1


def test_the_file_is_followed_while_the_task_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_progress, "PAUSE", 0.05)
    ledger = _Ledger()
    monkeypatch.setattr(database, "open_ledger", lambda *_a, **_k: ledger)
    shown: list[str] = []
    display = types.SimpleNamespace(display=lambda text, stderr=False: shown.append(text))
    action: t.Any = types.SimpleNamespace(
        ports=types.SimpleNamespace(open_own_connection=_Host),
        context=lambda: None,
        options={"ledger_url": ""},
        _display=display,
    )
    path = tmp_path / "live-x"

    def wait(count: int) -> None:
        end = time.monotonic() + 20
        while len(ledger.got) < count:
            assert time.monotonic() < end
            time.sleep(0.02)

    with watched(action, str(path), [GUEST], True):
        time.sleep(0.2)
        assert ledger.got == []
        path.write_text(file_of(HALF))
        wait(1)
        path.write_text("nonsense")
        time.sleep(0.2)
        path.write_text(file_of(Progress(memory_total=512 << 20)))
        wait(2)
    assert [(percent, its.memory_remaining >> 20) for got in ledger.got for percent, its in got.values()] == [
        (50, 256),
        (100, 0),
    ]
    assert len(shown) == 2 and ledger.closed == 2
    path.write_text(file_of(HALF))
    time.sleep(0.2)
    assert len(ledger.got) == 2


def test_a_host_that_hangs_does_not_hold_the_task(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_progress, "PAUSE", 0.2)

    class Hanging:
        def output(self, _words: t.Sequence[str]) -> str:
            return subprocess.run(["sleep", "60"], stdout=subprocess.PIPE, check=False).stdout.decode()

    action: t.Any = types.SimpleNamespace(
        ports=types.SimpleNamespace(open_own_connection=Hanging), context=lambda: None
    )
    begin = time.monotonic()
    with watched(action, "/x", [GUEST], True):
        time.sleep(0.5)
    assert time.monotonic() - begin < 30
    deadline = time.monotonic() + 20  # its thread takes the status of a killed process when it gets the CPU
    while subprocess.run(["pgrep", "-P", str(os.getpid()), "sleep"], stdout=-1, check=False).stdout:
        assert time.monotonic() < deadline
        time.sleep(0.1)
