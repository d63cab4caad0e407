# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""People who run random playbooks at once, runs that are killed in the middle, and what must be true when all of it is over.

BOOTFLOW_TEST_SEED and BOOTFLOW_TEST_SECONDS choose another history, and a longer one; what each run said is in the test's folder.
"""

from __future__ import annotations

import contextlib
import os
import random
import re
import subprocess
import threading
import time
import typing as t
from xml.etree import ElementTree

from flow import Flow, kill_run

SEED = int(os.environ.get("BOOTFLOW_TEST_SEED", "1"))
SECONDS = float(os.environ.get("BOOTFLOW_TEST_SECONDS", "240"))
LEASE = 30
# What no run may ever print
WRONG = re.compile(r"Traceback|InternalError|UnexpectedError|(Key|Type|Attribute|Index|Value)Error")
VIRSH = ("virsh", "-q", "-c", "qemu:///system")
POWER = {
    "active": "running",
    "paused": "paused",
    "stopped": "shut off",
    "suspended": "shut off",
    "soft-delete": "shut off",
}


class Crowd:
    """Each of them has random numbers of its own."""

    def __init__(self, flow: Flow):
        self.flow = flow
        self.over = threading.Event()
        self.wrong: list[str] = []
        self._lock = threading.Lock()
        self._builds = 0
        self._builds_changed = threading.Condition()
        self._log = (flow.folder / "runs.txt").open("w", buffering=1, encoding="utf-8")
        flow.variables.update(bootflow_lease_seconds=LEASE, bootflow_work_timeout=60)

    def say(self, *words: object) -> None:
        self._log.write(" ".join(map(str, (time.strftime("%X"), *words))) + "\n")

    def play(self, mine: random.Random, playbook: str, *, kills: float = 0.2, **variables: t.Any) -> int:
        """:arg kills: how probable it is that the run is killed in the middle"""
        with self._lock:
            argv = self.flow.arguments(playbook, variables)
            said = self.flow.folder / ("run-%d.log" % self.flow.calls)
        seconds = mine.uniform(0.4, self.longest_kill) if mine.random() < kills else self.longest_run
        with said.open("wb") as file:
            process = subprocess.Popen(
                argv,
                stdout=file,
                stderr=subprocess.STDOUT,
                env=self.flow.environment(),
                cwd=self.flow.folder,
                start_new_session=True,
            )
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            kill_run(process)
            if seconds == self.longest_run:
                self.wrong.append("%s (%s) has no end" % (playbook, said))
        if WRONG.search(said.read_text(errors="replace")):
            self.wrong.append("%s: %s" % (playbook, said))
        self.say(said.name, playbook, variables, "->", process.returncode)
        return process.returncode

    #: Seconds after which a run that is killed is killed at the latest, and those after which any other has no end.
    longest_kill = 6.0
    longest_run = 300.0

    @contextlib.contextmanager
    def building(self) -> t.Iterator[None]:
        with self._builds_changed:
            self._builds += 1
        try:
            yield
        finally:
            with self._builds_changed:
                self._builds -= 1
                self._builds_changed.notify_all()

    @contextlib.contextmanager
    def nobody_builds(self) -> t.Iterator[None]:
        """A build whose host gives no answer goes to another one (docs/architecture.md): its guest could run on both until the first is heard of."""
        with self._builds_changed:
            self._builds_changed.wait_for(lambda: not self._builds)
            yield

    def once(self, mine: random.Random) -> None:
        """What one of them does next."""
        raise NotImplementedError

    def break_something(self, mine: random.Random) -> None:
        """What goes wrong next."""
        raise NotImplementedError

    def able(self, mine: random.Random, states: t.Container[str]) -> list[str]:
        """Some of the instances that are in these states; now and then others."""
        rows = sorted(self.flow.instances().items())
        able = [name for name, row in rows if row["vm_state"] in states or mine.random() < 0.05]
        return mine.sample(able, min(len(able), mine.choice((1, 1, 2, 3))))

    def live(self, people: int, pause: tuple[float, float]) -> None:
        """For SECONDS; something breaks after as many seconds as ``pause`` has between its ends. Raises what anybody met."""
        errors: list[BaseException] = []

        def until_it_is_over(name: str, work: t.Callable[[random.Random], None], wait: tuple[float, float]) -> None:
            mine = random.Random("%s of %d" % (name, SEED))
            try:
                while not self.over.wait(mine.uniform(*wait)):
                    work(mine)
            except BaseException as error:  # is raised below
                errors.append(error)
                self.over.set()

        works = [(str(number), self.once, (0.0, 0.1)) for number in range(1, people + 1)]
        works.append(("hosts", self.break_something, pause))
        threads = [threading.Thread(target=until_it_is_over, args=work) for work in works]
        for thread in threads:
            thread.start()
        self.over.wait(SECONDS)
        self.over.set()
        for thread in threads:
            thread.join()
        assert not errors, errors

    def lose(self, mine: random.Random, host: t.Any) -> None:
        """Its power fails; its instances are evacuated, and it comes back with the disks that it had."""
        with self.nobody_builds():
            host.fail("network")
        host.fail("libvirtd")
        for _again in range(3):  # what works there may start something in this moment
            host.run("sh", "-c", "pkill -KILL python3; pkill -KILL qemu-system; true")
            time.sleep(0.3)
        if self.play(mine, "host", bootflow_host=[host.name], bootflow_host_state="forced_down", kills=0.0) == 0:
            self.play(mine, "evacuate", bootflow_host=[host.name], kills=0.3)
            self.play(mine, "evacuate", bootflow_host=[host.name], kills=0.0)
        host.restore()
        host.restart()
        self.play(mine, "heartbeat", kills=0.0)
        self.play(mine, "host", bootflow_host=[host.name], bootflow_host_state="up", kills=0.0)

    def settle(self) -> None:
        """All hosts are back, the leases of dead runs are over, and what people do then is done."""
        calm = random.Random(SEED)
        every = [host.name for host in self.flow.lab.hosts]
        for host in self.flow.lab.hosts:
            host.restore()
        time.sleep(LEASE + 1.0)
        self.play(calm, "heartbeat", kills=0.0)
        for state in ("up", "enabled"):
            assert self.play(calm, "host", bootflow_host=every, bootflow_host_state=state, kills=0.0) == 0
        for playbook in ("audit", "power_sync"):
            assert self.play(calm, playbook, kills=0.0) == 0, playbook


def break_a_guest(mine: random.Random, hosts: t.Sequence[t.Any]) -> None:
    """Its QEMU ends."""
    host = mine.choice(hosts)
    for uuid in host.run(*VIRSH, "list", "--uuid").stdout.split()[:1]:
        host.run(*VIRSH, "destroy", uuid, check=False)


def places(flow: Flow) -> dict[str, dict[str, str]]:
    """uuid -> host -> state of its domain there"""
    found: dict[str, dict[str, str]] = {}
    for host in flow.lab.hosts:
        for uuid in host.run(*VIRSH, "list", "--all", "--uuid").stdout.split():
            found.setdefault(uuid, {})[host.name] = host.run(*VIRSH, "domstate", uuid).stdout.strip()
    return found


def is_whole(flow: Flow) -> None:
    """Nothing is under way, each guest is where and what the ledger says, and nothing else is anywhere."""
    flow.check_ledger()
    assert not flow.query("SELECT * FROM cleanups")
    there = places(flow)
    for name, row in sorted(flow.instances().items()):
        domains = there.pop(row["uuid"], {})
        said = (name, row["uuid"], row["vm_state"], row["host"], domains)
        assert row["task_state"] is None, (row["task_state"], said)
        if row["vm_state"] in POWER:
            assert domains == {row["host"]: POWER[row["vm_state"]]}, said
        elif row["vm_state"] != "resized":  # in error, or rescued, whether it runs or not
            assert set(domains) <= {row["host"]}, said
    assert not there, "domains of nobody"
    interfaces_are_its_own(flow)


def interfaces_are_its_own(flow: Flow) -> None:
    """No guest has an interface that the ledger has not: its address could be another guest's."""
    owners = {
        row["mac_address"]: row["instance_uuid"] for row in flow.query("SELECT mac_address, instance_uuid FROM ports")
    }
    for host in flow.lab.hosts:
        for uuid in host.run(*VIRSH, "list", "--all", "--uuid").stdout.split():
            for words in ((), ("--inactive",)):
                xml = host.run(*VIRSH, "dumpxml", uuid, *words).stdout
                has = {mac.get("address") for mac in ElementTree.fromstring(xml).iterfind("devices/interface/mac")}
                assert {owners.get(str(mac)) for mac in has} <= {uuid}, (uuid, has, owners)
