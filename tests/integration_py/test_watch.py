# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Events of real guests: the ledger knows within two seconds that a guest powered itself off, by the playbook watch and by Event-Driven Ansible."""

from __future__ import annotations

import contextlib
import json
import os
import re
import sqlite3
import subprocess
import time
import typing as t
from pathlib import Path

import pytest
import yaml
from flow import CACHE, PLAYBOOK, Flow, entry, image_file

RUNNING, OFF = 1, 4
SOON = 2.0  # seconds
SOURCE = Path(__file__).resolve().parents[2] / "extensions" / "eda" / "plugins" / "event_source" / "lifecycle.py"
EDA = CACHE / "venv-eda" / "bin"


@pytest.fixture
def guests(flow: Flow, key_image: Path) -> dict[str, sqlite3.Row]:
    """web-1 to web-3, which power themselves off when a key is pressed."""
    flow.variables["bootflow_images"][0].update(image_file(key_image))
    flow.boot(entry("web", max_count=3))
    return flow.instances()


def virsh(flow: Flow, row: sqlite3.Row, command: str, *words: str) -> str:
    argv = ("virsh", "-c", "qemu:///system", command, row["uuid"], *words)
    return flow.lab.host(row["host"]).run(*argv).stdout.strip()


def wait(what: str, condition: t.Callable[[], bool], seconds: float = 30.0) -> float:
    """The seconds until it is true."""
    begun = time.monotonic()
    while not condition():
        assert time.monotonic() - begun < seconds, what
        time.sleep(0.02)
    return time.monotonic() - begun


def power_off(flow: Flow, row: sqlite3.Row) -> None:
    """Press a key: the guest powers itself off. Returns when it is off."""
    virsh(flow, row, "send-key", "KEY_ENTER")
    wait("the guest is off", lambda: virsh(flow, row, "domstate") == "shut off")


def is_now(flow: Flow, name: str) -> tuple[str, int, str | None]:
    row = flow.instances()[name]
    return row["vm_state"], row["power_state"], row["task_state"]


def listeners(flow: Flow) -> list[str]:
    """The listeners on all hosts."""
    return [
        line
        for host in flow.lab.hosts
        for line in host.run("pgrep", "-af", "sys.stdin.read", check=False).stdout.splitlines()
    ]


@contextlib.contextmanager
def event_source(flow: Flow) -> t.Iterator[t.TextIO]:
    """What the event source puts into the queue of a rulebook, one line of JSON each."""
    environment = flow.environment(PATH="%s:%s" % (Path(PLAYBOOK).parent, os.environ["PATH"]))
    argv = [str(Path(PLAYBOOK).parent / "python"), str(SOURCE), flow.lab.inventory]
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, env=environment, cwd=flow.folder)
    assert process.stdout is not None
    try:
        yield process.stdout
    finally:
        process.kill()
        process.wait()


def test_a_guest_that_powers_itself_off_is_stopped_at_once(flow: Flow, guests: dict[str, sqlite3.Row]) -> None:
    one, two, three = guests["web-1"], guests["web-2"], guests["web-3"]
    log = flow.folder / "killed.log"
    process = flow.start("watch", {})
    try:
        with event_source(flow) as lines:
            names = {h.name for h in flow.lab.hosts}
            wait(
                "all hosts are listened to",
                lambda: set(re.findall(r"Listening to (\w+)", log.read_text())) == names,
                90,
            )
            events = [json.loads(lines.readline()) for _host in flow.lab.hosts]
            assert {(e["event"], e["host"]) for e in events} == {("Listening", h.name) for h in flow.lab.hosts}
            power_off(flow, one)
            assert wait("it is stopped", lambda: is_now(flow, "web-1") == ("stopped", OFF, None), 20) < SOON
            stopped = json.loads(lines.readline())
        expected = {"host": one["host"], "uuid": one["uuid"], "event": "Stopped", "power_state": OFF, "late": False}
        assert stopped == {**expected, "at": stopped["at"]} and time.time() - stopped["at"] < 2 * SOON
        virsh(flow, two, "destroy")
        assert wait("it is stopped", lambda: is_now(flow, "web-2") == ("stopped", OFF, None), 20) < SOON
        virsh(flow, one, "start")
        assert wait("it is told", lambda: is_now(flow, "web-1") == ("stopped", RUNNING, None), 20) < SOON

        # An operation of ours: its events are late, or its instances are at work.
        assert flow.run("stop", bootflow_names=["web-3"], bootflow_shutdown_timeout=1).returncode == 0
        assert flow.run("start", bootflow_names=["web-2", "web-3"]).returncode == 0
        assert is_now(flow, "web-3") == is_now(flow, "web-2") == ("active", RUNNING, None)

        # A host that is gone for a while: what happened meanwhile is found when it is back.
        flow.lab.host(three["host"]).run("pkill", "-f", "sys.stdin.read")
        virsh(flow, three, "destroy")
        wait("it is found", lambda: is_now(flow, "web-3") == ("stopped", OFF, None))
        wait("it is told", lambda: log.read_text().count("Instance shutdown by itself.") == 3)
        wait("it is listened to again", lambda: "Listening again to %s" % three["host"] in log.read_text())
    finally:
        flow.kill(process)
    text = log.read_text()
    assert text.count("Instance shutdown by itself.") == 3, text
    assert text.count("Instance is not stopped. Calling the stop API. The next power_sync stops it.") == 1, text
    ended = "SELECT result FROM instance_action_events WHERE event = 'stop' AND instance_uuid = ?"
    assert [[r["result"] for r in flow.query(ended, row["uuid"])] for row in (one, two, three)] == [
        ["Success"],
        ["Success"],
        ["Success", "Success"],
    ]
    wait("no listener is left on a host", lambda: listeners(flow) == [])
    flow.check_ledger()


@pytest.mark.long
def test_a_guest_that_somebody_starts_is_stopped_again(flow: Flow, guests: dict[str, sqlite3.Row]) -> None:
    one, two = guests["web-1"], guests["web-2"]
    assert flow.run("stop", bootflow_names=["web-1", "web-2"], bootflow_shutdown_timeout=0).returncode == 0
    log = flow.folder / "killed.log"
    variables = {"bootflow_watch_sync": True, "bootflow_hosts": [one["host"]], "bootflow_shutdown_timeout": 0}
    process = flow.start("watch", variables)
    try:
        wait("its host is listened to", lambda: "Listening to %s" % one["host"] in log.read_text(), 90)
        virsh(flow, one, "start")
        wait("it is told", lambda: "power_sync stops it now." in log.read_text(), 20)
        took = wait("it is off again", lambda: virsh(flow, one, "domstate") == "shut off", 60)
        wait("the ledger knows", lambda: is_now(flow, "web-1") == ("stopped", OFF, None), 60)
        wait("the table of power_sync", lambda: "Power sync of " in log.read_text(), 60)
    finally:
        flow.kill(process)
    text = log.read_text()
    assert took < 30 and text.count("Calling the stop API. power_sync stops it now.") == 1, text
    ended = "SELECT result FROM instance_action_events WHERE event = 'stop' AND instance_uuid = ?"
    assert [r["result"] for r in flow.query(ended, one["uuid"])] == ["Success", "Success"], "by us, and by the sync"
    assert is_now(flow, "web-2") == ("stopped", OFF, None) and two["vm_state"] == "active"
    wait("no listener is left on a host", lambda: listeners(flow) == [])
    flow.check_ledger()


@pytest.mark.long
@pytest.mark.rulebook
def test_event_driven_ansible_runs_power_sync(flow: Flow, guests: dict[str, sqlite3.Row]) -> None:
    """The real ansible-rulebook with the rulebook of the collection."""
    assert (EDA / "ansible-rulebook").exists(), "scripts/test integration_all installs it"
    variables, log = flow.folder / "eda.json", flow.folder / "eda.log"
    inventory = (
        flow.folder / "inventory.yml"
    )  # with what the playbooks get by -e elsewhere; the rulebook hands on this file alone
    hosts = yaml.safe_load(Path(flow.lab.inventory).read_text())
    hosts["all"].setdefault("vars", {}).update(flow.variables)
    inventory.write_text(json.dumps(hosts))
    variables.write_text(json.dumps({"inventory": str(inventory)}))
    environment = flow.environment(PATH="%s:%s" % (EDA, os.environ["PATH"]), HOME=str(flow.folder))
    argv = [str(EDA / "ansible-rulebook"), "-r", "bootflow.compute.power_sync", "-i", str(inventory)]
    with log.open("wb") as file:
        process = subprocess.Popen(
            [*argv, "--vars", str(variables)],
            stdout=file,
            stderr=subprocess.STDOUT,
            env=environment,
            cwd=flow.folder,
            start_new_session=True,
        )
    try:
        # Each host is listened to, and synced then: in one run, or in few.
        wait("all are synced", lambda: sum(map(int, re.findall(r"on (\d) hosts?", log.read_text()))) >= 3, 120)
        power_off(flow, guests["web-1"])
        wait("it is stopped", lambda: is_now(flow, "web-1") == ("stopped", OFF, None), 60)
        syncs = log.read_text().count("Power sync of ")
        for name in ("web-2", "web-3"):
            virsh(flow, guests[name], "destroy")
        wait("the others are", lambda: is_now(flow, "web-2") == is_now(flow, "web-3") == ("stopped", OFF, None), 60)
        assert log.read_text().count("Power sync of ") <= syncs + 1, "one run for both"
        flow.lab.host(guests["web-2"]["host"]).fail("network")
        wait("the host is lost", lambda: '"Lost"' in log.read_text() or "'Lost'" in log.read_text(), 90)
    except BaseException:
        print(log.read_text()[-5000:])
        raise
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            flow.kill(process)
    flow.lab.host(guests["web-2"]["host"]).restore()
    wait("no listener is left on a host", lambda: listeners(flow) == [], 60)
    ended = "SELECT result FROM instance_action_events WHERE event = 'stop' AND instance_uuid = ?"
    assert [r["result"] for r in flow.query(ended, guests["web-1"]["uuid"])] == ["Success"]
