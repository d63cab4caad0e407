# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Listeners that are kept up: real processes here, which say what the test writes into a file."""

from __future__ import annotations

import json
import os
import sys
import time
import typing as t
from pathlib import Path

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core.answers.lifecycle import Event
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.db.this_run import process_started
from ansible_collections.bootflow.compute.plugins.plugin_utils.watch import listening
from ansible_collections.bootflow.compute.plugins.plugin_utils.watch.listening import Heard, Listening, Lost

UUID = "6a2c1f0e-3c5e-4d7b-8d3f-9f1c2b3a4d01"
OTHER = "6a2c1f0e-3c5e-4d7b-8d3f-9f1c2b3a4d02"

# Says that it listens; from then on the lines of the file "say", and to each question the states of the file "states". Ends with its input.
HOST = """
import json, os, select, sys, time
folder = sys.argv[1]
source = sys.stdin.buffer.raw.read(1 << 20)
assert b"virDomainState" in source, source
open(folder + "/pid", "w").write(str(os.getpid()))
print("Last login: never")
print('bootflow {"listening": true}', flush=True)
done = 0
while True:
    if select.select([0], [], [], 0.01)[0]:
        question = os.read(0, 65536)
        if not question:
            break
        asked = json.loads(question)
        open(folder + "/asked", "a").write(json.dumps(asked["uuids"]) + "\\n")
        states = json.load(open(folder + "/states"))
        print("bootflow " + json.dumps({"answer": asked["ask"], "states": states}), flush=True)
    lines = open(folder + "/say").read().splitlines()
    for line in lines[done:]:
        print(line, flush=True)
    done = len(lines)
"""


class Host:
    def __init__(self, folder: Path):
        folder.mkdir()
        self.folder = folder
        self.argv = [sys.executable, "-c", HOST, str(folder)]
        self.states(**{UUID: 1})
        (folder / "say").touch()

    def states(self, **states: int) -> None:
        (self.folder / "new").write_text(json.dumps(states))
        (self.folder / "new").rename(self.folder / "states")

    def say(self, **words: t.Any) -> None:
        self.print("bootflow " + json.dumps(words))

    def print(self, line: str) -> None:
        with (self.folder / "say").open("a") as file:
            file.write(line + "\n")

    def event(self, number: int, uuid: str = UUID) -> None:
        self.say(event=[number, 0, -1], uuid=uuid)

    @property
    def asked(self) -> list[list[str] | None]:
        return [json.loads(line) for line in (self.folder / "asked").read_text().splitlines()]

    @property
    def pid(self) -> int:
        return int((self.folder / "pid").read_text())


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path / "h1")


def until(listeners: Listening, kind: type, number: int = 1) -> list[t.Any]:
    """What is heard until there are as many of this kind."""
    found: list[t.Any] = []
    end = time.monotonic() + 20
    while len([f for f in found if isinstance(f, kind)]) < number:
        assert time.monotonic() < end, found
        found += listeners.wait(0.1)
    return found


def test_an_event_is_heard_with_the_state_that_was_asked_after_it(host: Host) -> None:
    moments = iter(range(1000, 2000))
    with Listening({"h1": host.argv}, lambda: float(next(moments))) as listeners:
        (first,) = until(listeners, Heard)
        assert first == Heard("h1", 1000.0, {UUID: 1}, None) and host.asked == [None]
        host.states(**{UUID: 5})
        host.event(5)
        (second,) = until(listeners, Heard)
        assert second == Heard("h1", 1001.0, {UUID: 4}, [Event(UUID, "Stopped")]) and host.asked[1:] == [[UUID]]
        assert listeners.wait(0.2) == []
        pid = host.pid
        assert process_started(pid) is not None
    assert process_started(pid) is None, "nothing is left"


def test_events_while_a_question_is_open_are_asked_about_next(host: Host) -> None:
    with Listening({"h1": host.argv}) as listeners:
        until(listeners, Heard)
        lines = [
            "bootflow " + json.dumps({"event": [n, 0, -1], "uuid": u}) for n, u in ((5, UUID), (2, UUID), (5, OTHER))
        ]
        host.print("\n".join(lines))
        events: list[Event] = []
        while len(events) < len(lines):  # how many questions they are is a matter of timing
            events += [event for heard in until(listeners, Heard) for event in heard.events]
        assert events == [Event(UUID, "Stopped"), Event(UUID, "Started"), Event(OTHER, "Stopped")]


def test_many_guests_are_asked_for_together(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listening, "MOST_NAMED", 1)
    with Listening({"h1": host.argv}) as listeners:
        until(listeners, Heard)
        host.print("\n".join("bootflow " + json.dumps({"event": [5, 0, -1], "uuid": u}) for u in (UUID, OTHER)))
        until(listeners, Heard)
        assert host.asked[-1] is None or [UUID] in host.asked


def test_a_listener_that_ends_is_started_again_and_compares_all(host: Host) -> None:
    with Listening({"h1": host.argv}) as listeners:
        until(listeners, Heard)
        pid = host.pid
        os.kill(pid, 9)
        begun = time.monotonic()
        lost, heard = until(listeners, Heard)
        assert (lost.host, lost.pause, heard.events) == ("h1", listening.FIRST_PAUSE, None)
        assert time.monotonic() - begun >= listening.FIRST_PAUSE and host.pid != pid


def test_the_pause_grows_up_to_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listening, "FIRST_PAUSE", 0.05)
    monkeypatch.setattr(listening, "LONGEST_PAUSE", 0.2)
    argv = ["/bin/sh", "-c", "echo first >&2; echo no route >&2; exit 255"]
    with Listening({"h1": argv, "h2": [str(tmp_path / "nothing")]}) as listeners:
        found = until(listeners, Lost, 8)
    assert [f.pause for f in found if f.host == "h1"][:4] == [0.05, 0.1, 0.2, 0.2]
    reasons = {f.host: f.reason for f in found}
    assert reasons["h1"] == "first no route" and reasons["h2"].endswith("nothing: No such file or directory")


SAYS = [
    ("bootflow {}}", "to the listener is invalid"),
    ('bootflow {"event": [5, 0, -1], "uuid": "web"}', "uuid must be"),
    ('bootflow {"error": "the connection to libvirt broke"}', "the connection to libvirt broke"),
]


@pytest.mark.parametrize(("line", "reason"), SAYS)
def test_one_that_says_nonsense_is_ended(host: Host, line: str, reason: str) -> None:
    with Listening({"h1": host.argv}) as listeners:
        until(listeners, Heard)
        pid = host.pid
        host.print(line)
        (lost,) = until(listeners, Lost)
        assert reason in lost.reason and process_started(pid) is None


def test_a_line_without_an_end_is_ended(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listening.lifecycle, "LONGEST_LINE", 1000)
    argv = ["/bin/sh", "-c", "while :; do printf xxxxxxxxxxxxxxxxxxxxxxxx; done"]
    with Listening({"h1": argv}) as listeners:
        (lost,) = until(listeners, Lost)
    assert "a line of more than" in lost.reason


def test_silence_ends_a_listener_and_a_line_keeps_it(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listening, "SILENCE", 2.0)
    with Listening({"h1": host.argv}) as listeners:
        until(listeners, Heard)
        for _second in range(4):
            host.say(alive=True)
            assert listeners.wait(0.2) == []
        (lost,) = until(listeners, Lost)
    assert "it said nothing for" in lost.reason


def test_one_that_lives_and_does_not_answer_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listening, "SILENCE", 2.0)
    lives = "echo 'bootflow {\"listening\": true}'; while :; do echo 'bootflow {\"alive\": true}'; sleep 0.1; done"
    with Listening({"h1": ["/bin/sh", "-c", lives]}) as listeners:
        (lost,) = until(listeners, Lost)
    assert "it did not answer for" in lost.reason


def test_hosts_do_not_wait_for_each_other(tmp_path: Path) -> None:
    hosts = {"h%d" % n: Host(tmp_path / ("h%d" % n)) for n in range(3)}
    with Listening({**{h: its.argv for h, its in hosts.items()}, "deaf": ["sleep", "60"]}) as listeners:
        assert {h.host for h in until(listeners, Heard, 3)} == set(hosts)
        listeners.ask(["h1"])
        (again,) = until(listeners, Heard)
        assert (again.host, again.events) == ("h1", None)


def test_no_more_than_some_start_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listening, "STARTING", 2)
    hosts = {"h%d" % n: Host(tmp_path / ("h%d" % n)) for n in range(5)}
    with Listening({h: its.argv for h, its in hosts.items()}) as listeners:
        listeners.wait(0)
        assert sum(each.process is not None for each in listeners._listeners.values()) == 2
        assert {h.host for h in until(listeners, Heard, 5)} == set(hosts)
