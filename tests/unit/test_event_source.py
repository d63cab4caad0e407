# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The event source of Event-Driven Ansible, with a program that writes events in place of ansible-playbook."""

from __future__ import annotations

import asyncio
import os
import runpy
import subprocess
import sys
import tempfile
import typing as t
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
EDA = ROOT / "extensions" / "eda"
SOURCE = runpy.run_path(str(EDA / "plugins" / "event_source" / "lifecycle.py"))

# Writes an event with its own arguments, says something, and then waits (or ends).
PROGRAM = """#!%s
import json, os, sys, time
variables = json.load(open(sys.argv[-1][1:]))
line, mode = open("/proc/self/cmdline").read(), os.stat(sys.argv[-1][1:]).st_mode & 0o777
with open(variables.pop("bootflow_watch_events_file"), "a") as file:
    file.write(json.dumps({"event": "Stopped", "pid": os.getpid(), "argv": sys.argv[1:-1], "line": line, "mode": mode, "variables": variables}) + "\\n")
print("no route", flush=True)
time.sleep(%d)
"""


@pytest.fixture
def program(tmp_path: Path) -> t.Callable[[int], str]:
    def make(seconds: int) -> str:
        path = tmp_path / "ansible-playbook"
        path.write_text(PROGRAM % (sys.executable, seconds))
        path.chmod(0o755)
        return str(path)

    return make


@pytest.fixture(autouse=True)
def _temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> t.Iterator[None]:
    """Nothing is left where temporary files are."""
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    yield
    assert not list((tmp_path / "temporary").iterdir())


def run(args: dict[str, t.Any]) -> dict[str, t.Any]:
    """The first event; then the source is cancelled, as by a rulebook that ends."""

    async def first() -> dict[str, t.Any]:
        queue: asyncio.Queue[dict[str, t.Any]] = asyncio.Queue()
        task = asyncio.create_task(SOURCE["main"](queue, args))
        waiting = asyncio.create_task(queue.get())
        await asyncio.wait([task, waiting], timeout=60, return_when=asyncio.FIRST_COMPLETED)
        event = waiting.result()
        task.cancel()
        with pytest.raises((asyncio.CancelledError, RuntimeError)):
            await task
        return event

    return asyncio.run(first())


def test_events_come_into_the_queue_and_nothing_is_left(program: t.Callable[[int], str]) -> None:
    event = run({"inventory": "/inventory", "ansible_playbook": program(600)})
    assert event["argv"] == ["bootflow.compute.watch", "-i", "/inventory", "-e"]
    assert event["variables"] == {"bootflow_watch_write": False}
    with pytest.raises(ProcessLookupError):
        os.kill(event["pid"], 0)


def test_its_arguments_are_variables_of_the_playbook(program: t.Callable[[int], str]) -> None:
    more = {"hosts": ["kvm1"], "write": True, "extra_vars": {"bootflow_project": "web"}}
    event = run({"inventory": ["/a", "/b"], "ansible_playbook": program(600), **more})
    assert event["argv"][1:5] == ["-i", "/a", "-i", "/b"]
    assert event["variables"] == {"bootflow_watch_write": True, "bootflow_hosts": ["kvm1"], "bootflow_project": "web"}


def test_secrets_are_not_on_the_command_line(program: t.Callable[[int], str]) -> None:
    """Everybody on the machine can read it, as long as the playbook runs: for days. Also large ones arrive whole."""
    extra = {"bootflow_ledger_url": "postgresql://u:hunter2@db/x", "much": "x" * 200_000}
    event = run({"inventory": "/i", "ansible_playbook": program(600), "extra_vars": extra})
    assert event["variables"] == {"bootflow_watch_write": False, **extra}
    assert event["mode"] == 0o600
    assert "hunter2" not in event["line"] and "much" not in event["line"]


def test_the_real_program_reads_them(tmp_path: Path) -> None:
    file, book = tmp_path / "variables.json", tmp_path / "book.yml"
    task = {"ansible.builtin.debug": {"var": "given"}}
    book.write_text(yaml.safe_dump([{"hosts": "localhost", "gather_facts": False, "tasks": [task]}]))
    with open(file, "w", encoding="utf-8") as opened:
        given = {"inventory": "localhost,", "extra_vars": {"given": "it's {{ 1 }} \\ %"}}
        argv = SOURCE["command"](given, 1, opened.fileno(), str(file))
    argv[argv.index("bootflow.compute.watch")] = str(book)
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "it's 1" in done.stdout, done.stdout


def test_a_playbook_that_ends_is_an_error_with_what_it_said(program: t.Callable[[int], str]) -> None:
    with pytest.raises(RuntimeError, match="no route"):
        asyncio.run(SOURCE["main"](asyncio.Queue(), {"inventory": "/i", "ansible_playbook": program(0)}))


@pytest.mark.parametrize(
    ("args", "words"), [({}, "needs an inventory"), ({"inventory": "/i", "ansible_playbook": "/nothing"}, "/nothing")]
)
def test_what_cannot_be_started(args: dict[str, t.Any], words: str) -> None:
    before = os.listdir("/proc/self/fd")
    with pytest.raises((ValueError, OSError), match=words):
        asyncio.run(SOURCE["main"](asyncio.Queue(), args))
    assert len(os.listdir("/proc/self/fd")) <= len(before)


def test_documentation_and_rulebook_name_what_there_is() -> None:
    documented = yaml.safe_load(SOURCE["DOCUMENTATION"])["options"]
    text = (EDA / "plugins" / "event_source" / "lifecycle.py").read_text()
    used = {name for name in documented if '"%s"' % name in text}
    assert used == set(documented)
    (rulebook,) = yaml.safe_load((EDA / "rulebooks" / "power_sync.yml").read_text())
    assert [set(s) - {"name"} for s in rulebook["sources"]] == [{"bootflow.compute.lifecycle"}]
    playbooks = {r["action"]["run_playbook"]["name"] for r in rulebook["rules"] if "run_playbook" in r["action"]}
    assert [r["throttle"]["group_by_attributes"] for r in rulebook["rules"] if "throttle" in r] == [["event.host"]]
    assert playbooks == {"bootflow.compute.power_sync"} and (ROOT / "playbooks" / "power_sync.yml").exists()
