# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The action watch over a real ledger, with listeners that say what the test has them say."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shlex
import sys
import threading
import time
import typing as t
from pathlib import Path

import jsonschema
import pytest

from ansible_collections.bootflow.compute.plugins.action import watch
from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.core.instances import states
from ansible_collections.bootflow.compute.plugins.module_utils.core.instances.power_sync import EVENTS
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.compute import nodes
from ansible_collections.bootflow.compute.plugins.plugin_utils.watch import events_file, watcher
from ansible_collections.bootflow.compute.tests.unit.worlds.actions import WorldPorts, action_of
from ansible_collections.bootflow.compute.tests.unit.worlds.world import World

# The guest of argv[1] has each of these states when its host is asked, and powers itself off after each answer. Then the connection breaks.
GUEST = """
import json, sys
uuid, states = sys.argv[1], json.loads(sys.argv[2])
sys.stdin.read(int(sys.stdin.readline()))
say = lambda **words: print("bootflow " + json.dumps(words), flush=True)
say(listening=True, boot_id=sys.argv[3])
for line in sys.stdin:
    question = json.loads(line)
    say(answer=question["ask"], states={uuid: states.pop(0)})
    if not states:
        say(error="broken")
    say(event=[5, 0, -1], uuid=uuid)
"""
SYNC = "import sys; print('power_sync with ' + sys.argv[-1]); sys.exit(int(sys.argv[1]))"
ROOT = Path(__file__).resolve().parents[4]
EVENT_SCHEMA = ROOT / "extensions" / "eda" / "plugins" / "event_source" / "lifecycle_event.json"
ON, OFF = 1, 5  # virDomainState


class Watch:
    def __init__(self, world: World, monkeypatch: pytest.MonkeyPatch):
        self.world = world
        self.parent = os.getppid()
        monkeypatch.setattr(watcher.os, "getppid", lambda: self.parent)
        self.uuid = world.boot("web")
        self.states = [ON, OFF]
        self.variables: dict[str, t.Any] = {}  # of the hosts
        self.lines: list[str] = []
        self.sync_ends = 0  # as power_sync does
        self.boot_id = ""  # of the hosts
        self.deaf = {"h2"}

    def __call__(self, check_mode: bool = False, **options: t.Any) -> dict[str, t.Any]:
        self.ports = ports = WorldPorts(self.world, "w")
        ports.program = self.program  # type: ignore[method-assign]
        ports.power_sync = lambda: [sys.executable, "-c", SYNC, str(self.sync_ends)]  # type: ignore[method-assign]
        ports.display.display = self.display
        hostvars = {h: {"ansible_host": "192.0.2.1", **self.variables} for h in ("h1", "h2")}
        variables = {
            "hostvars": hostvars,
            "groups": {"bootflow_compute": ["h1", "h2"]},
            "inventory_hostname": "localhost",
        }
        self.world.time += 10
        action = action_of(watch, ports, {**variables, **self.variables}, check_mode, **{"seconds": 60.0, **options})
        return t.cast("dict[str, t.Any]", action.act())

    def program(self, host: str, variables: t.Mapping[str, t.Any], line: str) -> list[str]:
        self.lines.append(line)
        if host in self.deaf:
            raise errors.HostUnreachable(host=host, reason="events need an SSH key")
        return [sys.executable, "-c", GUEST, self.uuid, json.dumps(self.states), self.boot_id]

    def display(self, text: str, **_how: t.Any) -> None:
        if text.startswith("[WARNING]: "):
            self.warning(text.removeprefix("[WARNING]: "))
        else:
            self.ports.shown.append(text)

    def warning(self, text: str) -> None:
        self.ports.warnings.append(text)
        if "broken" in text:
            self.parent += 1  # ansible-playbook ended

    @property
    def is_now(self) -> tuple[str, int]:
        row = self.world.row(self.uuid)
        return row.vm_state, row.power_state


@pytest.fixture
def watching(world: World, monkeypatch: pytest.MonkeyPatch) -> Watch:
    world.report("h1")
    return Watch(world, monkeypatch)


def test_a_guest_that_powers_itself_off_is_stopped(watching: Watch) -> None:
    result = watching()
    assert result == {"changed": True, "hosts": ["h1"], "events": 1, "late": 0, "written": 1, "stopped": 1, "syncs": 0}
    assert watching.is_now == (states.STOPPED, states.SHUTDOWN)
    listening, stopped = watching.ports.shown
    assert listening == "Listening to h1, which has 1 domain."
    assert stopped.startswith("web on h1 (%s, active) is SHUTDOWN. Instance shutdown by itself." % watching.uuid)
    assert stopped.endswith("It is stopped in the ledger.")
    first, second = watching.ports.warnings
    assert "events need an SSH key" in first and "Host h1 is unreachable: broken" in second
    assert second.endswith("The next try is in 1 s.")


def test_an_event_that_comes_late(watching: Watch) -> None:
    watching.states = [ON, ON]
    result = watching()
    assert {k: result[k] for k in ("changed", "events", "late")} == {"changed": False, "events": 1, "late": 1}
    assert watching.is_now == (states.ACTIVE, states.RUNNING)


def test_what_happened_before_is_found_at_the_beginning(watching: Watch) -> None:
    watching.states = [OFF]
    assert watching()["stopped"] == 1 and watching.is_now == (states.STOPPED, states.SHUTDOWN)
    watching.states = [ON]
    assert watching()["stopped"] == 0 and watching.is_now == (states.STOPPED, states.RUNNING)
    assert watching.ports.shown[-1].endswith("Calling the stop API. The next power_sync stops it.")


@pytest.mark.parametrize("ends", [0, 2])
def test_what_somebody_started_is_stopped_by_a_sync(
    watching: Watch, ends: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def goes_on(text: str) -> None:
        watching.ports.warnings.append(text)

    watching.states = [OFF]
    assert watching(sync=True)["syncs"] == 0, "it is off, so that its host has nothing to do"
    watching.states, watching.sync_ends = [ON, ON], ends
    monkeypatch.setattr(watching, "warning", goes_on)
    assert watching(sync=True, seconds=1.0)["syncs"] > 0
    started = (
        "web on h1 (%s, stopped) is RUNNING. Instance is not stopped. Calling the stop API. power_sync stops it now."
    )
    assert started % watching.uuid in watching.ports.shown
    assert 'power_sync with {"bootflow_hosts": ["h1"]}' in watching.ports.shown
    failed = "power_sync of h1 failed. The next one tries it again."
    assert (failed in watching.ports.warnings) == bool(ends)


def test_before_guests_are_started_again_all_hosts_say_what_they_run(
    watching: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watching, "warning", lambda text: None)
    with watching.world.ledger.write() as tx:
        nodes.record_boots(tx, {"h1": "first"})
    watching.states, watching.boot_id, watching.deaf = [OFF, OFF], "second", set()
    watching(sync=True, seconds=1.5)
    assert 'power_sync with {"bootflow_hosts": ["h1", "h2"]}' in watching.ports.shown


def test_a_sync_is_run_only_where_the_ledger_is_written(watching: Watch) -> None:
    watching.states = [OFF]
    watching()
    for how in ({"check_mode": True}, {"write": False}, {"sync": False}):
        watching.states = [ON]
        result = watching(**{"sync": True, **how})
        assert result["syncs"] == 0 and not [line for line in watching.ports.shown if "now" in line], how


def test_check_mode_writes_nothing(watching: Watch) -> None:
    before = watching.world.everything()
    assert watching(check_mode=True)["changed"] and watching.world.everything() == before
    assert watching.ports.shown[-1].endswith("It would be stopped in the ledger.")


def test_the_file_of_events(watching: Watch, tmp_path: Path) -> None:
    path = tmp_path / "events"
    assert watching(write=False, events_file=str(path))["written"] == 0
    assert watching.is_now == (states.ACTIVE, states.RUNNING)
    first, second, third = map(json.loads, path.read_text().splitlines())
    assert (third["event"], third["host"], third["reason"]) == ("Lost", "h1", "broken")
    assert (first["event"], first["host"], first["uuid"]) == ("Listening", "h1", None)
    assert second == {
        "host": "h1",
        "at": second["at"],
        "uuid": watching.uuid,
        "event": "Stopped",
        "power_state": states.SHUTDOWN,
        "late": False,
    }
    schema = json.loads(EVENT_SCHEMA.read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    for event in (first, second, third):
        jsonschema.validate(event, schema)
        for wrong in ({**event, "more": 1}, {**event, "event": "Burnt"}, {n: v for n, v in event.items() if n != "at"}):
            assert not jsonschema.Draft202012Validator(schema).is_valid(wrong)


def test_the_schema_of_events_knows_all_of_them() -> None:
    guest, listening, lost = (kind["properties"] for kind in json.loads(EVENT_SCHEMA.read_text())["oneOf"])
    assert set(guest["event"]["enum"]) == set(EVENTS)
    assert (listening["event"]["const"], lost["event"]["const"]) == (watcher.LISTENING, watcher.LOST)
    assert set(guest["power_state"]["enum"]) >= set(EVENTS.values())


def test_it_ends_when_nobody_reads_the_pipe(watching: Watch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    read: list[bytes] = []

    def read_one_line() -> None:
        with path.open("rb") as file:
            read.append(file.readline())

    reader = threading.Thread(target=read_one_line)
    reader.start()
    begun = time.monotonic()
    monkeypatch.setattr(watcher, "LOOK", 0.1)
    watching.states = [ON] * 2  # then nothing happens any more
    monkeypatch.setattr(watching, "warning", lambda text: None)
    watching(write=False, events_file=str(path))
    reader.join()
    assert time.monotonic() - begun < 30 and b"Listening" in read[0]


def test_who_does_not_read_the_pipe_does_not_keep_the_ledger_from_following(
    watching: Watch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    filler = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
    try:
        fcntl.fcntl(filler, fcntl.F_SETPIPE_SZ, 4096)
        os.write(filler, b"x" * 4095 + b"\n")  # there is no room now
        monkeypatch.setattr(events_file, "MOST_WAITING", 2)
        watching.states = [ON, OFF] * 4
        assert watching(events_file=str(path))["stopped"] == 1 and watching.is_now == (states.STOPPED, states.SHUTDOWN)
        assert len([w for w in watching.ports.warnings if "The events in %s have no reader" % path in w]) == 1
    finally:
        os.close(filler)
        os.close(reader)


def test_what_was_left_out_is_found_by_listening_anew(
    watching: Watch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    filler = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
    read: list[bytes] = []

    def told(text: str) -> None:
        if "have no reader" in text:
            threading.Thread(target=lambda: read.append(os.read(reader, 1 << 20)), daemon=True).start()

    monkeypatch.setattr(watching, "warning", told)
    monkeypatch.setattr(events_file, "MOST_WAITING", 1)
    try:
        fcntl.fcntl(filler, fcntl.F_SETPIPE_SZ, 4096)
        os.write(filler, b"x" * 4095 + b"\n")
        watching.states = [ON] * 30
        watching(write=False, seconds=3.0, events_file=str(path))
        with contextlib.suppress(BlockingIOError):
            read.append(os.read(reader, 1 << 20))
    finally:
        os.close(filler)
        os.close(reader)
    filling, *lines = b"".join(read).decode().splitlines()
    assert set(filling) == {"x"} and "Listening" in [json.loads(line)["event"] for line in lines]


@pytest.mark.parametrize("where", ["no/such", "/dev/full"])
def test_a_file_that_cannot_be_written(watching: Watch, tmp_path: Path, where: str) -> None:
    with pytest.raises(errors.InvalidInput, match="cannot be written") as refused:
        watching(write=False, events_file=str(tmp_path / where))
    assert "bootflow_watch_events_file" in refused.value.remedy


def test_a_ledger_that_is_away_is_written_later(watching: Watch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watcher, "PAUSE_OF_LEDGER", 0.1)
    watching.states = [ON, OFF, ON, OFF]
    real, calls = watcher._compare, []

    def away_once(*arguments: t.Any) -> t.Any:
        calls.append(arguments)
        if len(calls) == 2:
            raise errors.LedgerError(url="x", reason="away")
        return real(*arguments)

    monkeypatch.setattr(watcher, "_compare", away_once)
    watching()
    assert watching.is_now == (states.STOPPED, states.SHUTDOWN)
    assert any("The answer of h1 was not recorded" in w for w in watching.ports.warnings)


def test_a_host_without_events_is_not_listened_to(watching: Watch) -> None:
    watching.variables = {"bootflow_handle_virt_lifecycle_events": False}
    assert watching()["hosts"] == [] and watching.ports.warnings == ["There is no host to listen to."]


def test_hosts_are_selected_and_listen_with_their_own_python(watching: Watch) -> None:
    watching.variables = {
        "bootflow_hosts": ["h1"],
        "ansible_python_interpreter": "/opt/py thon",
        "bootflow_libvirt_uri": "qemu+x:///$y",
    }
    watching()
    (line,) = watching.lines
    words = shlex.split(line)
    assert words[:3] == ["exec", "/opt/py thon", "-c"] and words[-1] == "qemu+x:///$y"
