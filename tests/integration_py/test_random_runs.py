# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Random playbooks by several people at once, runs that are killed and hosts that fail, in the lab; then everything is whole again.

That no guest ever runs twice is checked for each test (conftest.py). BOOTFLOW_TEST_SEED and BOOTFLOW_TEST_SECONDS choose another history, and a
longer one; what each run said is in the test's folder.
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

import pytest
from flow import FLAVORS, Flow, entry, kill_run

SEED = int(os.environ.get("BOOTFLOW_TEST_SEED", "1"))
SECONDS = float(os.environ.get("BOOTFLOW_TEST_SECONDS", "240"))
LEASE = 30
NAMES = ("a", "b", "c", "d", "e")
# What no run may ever print
WRONG = re.compile(r"Traceback|InternalError|UnexpectedError|(Key|Type|Attribute|Index|Value)Error")
# Operations, and the vm_states in which they may begin
OPERATIONS = {
    "stop": ("active", "error"),
    "start": ("stopped",),
    "reboot": ("active", "stopped", "paused", "suspended", "error"),
    "pause": ("active",),
    "unpause": ("paused",),
    "suspend": ("active",),
    "resume": ("suspended",),
    "rescue": ("active", "stopped", "error"),
    "unrescue": ("rescued",),
    "rebuild": ("active", "stopped", "error"),
    "resize": ("active", "stopped"),
    "migrate": ("active", "stopped"),
    "confirm_resize": ("resized",),
    "revert_resize": ("resized",),
    "live_migrate": ("active", "paused"),
    "restore": ("soft-delete",),
    "force_delete": ("soft-delete", "error", "resized"),
}
POWER = {
    "active": "running",
    "paused": "paused",
    "stopped": "shut off",
    "suspended": "shut off",
    "soft-delete": "shut off",
}


class Crowd:
    """People who run playbooks on the same instances, and what goes wrong meanwhile. Each has random numbers of its own."""

    def __init__(self, flow: Flow):
        self.flow = flow
        self.over = threading.Event()
        self.wrong: list[str] = []
        self._lock = threading.Lock()
        self._builds = 0
        self._builds_changed = threading.Condition()
        self._log = (flow.folder / "runs.txt").open("w", buffering=1, encoding="utf-8")

    def say(self, *words: object) -> None:
        self._log.write(" ".join(map(str, (time.strftime("%X"), *words))) + "\n")

    def play(self, mine: random.Random, playbook: str, *, kills: float = 0.2, **variables: t.Any) -> int:
        """:arg kills: how probable it is that the run is killed in the middle"""
        with self._lock:
            argv = self.flow.arguments(playbook, variables)
            said = self.flow.folder / ("run-%d.log" % self.flow.calls)
        seconds = mine.uniform(0.4, 6.0) if mine.random() < kills else 300.0
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
            if seconds == 300.0:
                self.wrong.append("%s (%s) has no end" % (playbook, said))
        if WRONG.search(said.read_text(errors="replace")):
            self.wrong.append("%s: %s" % (playbook, said))
        self.say(said.name, playbook, variables, "->", process.returncode)
        return process.returncode

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

    def join_in(self, number: int) -> None:
        mine = random.Random("%d of %d" % (number, SEED))
        while not self.over.is_set():
            self.once(mine)

    def once(self, mine: random.Random) -> None:
        some = mine.sample(NAMES, mine.choice((1, 1, 2, 3)))
        kind = mine.choices(("boot", "apply", "delete", "others", "operation"), (22, 12, 10, 8, 48))[0]
        if kind == "apply":
            prune = mine.random() < 0.4
            with self.building():
                self.play(mine, "apply", bootflow_prune=prune, bootflow_shutdown_timeout=1, **a_file(mine, some))
        elif kind == "delete":
            interval = mine.choice((0, 0, 60))
            self.play(
                mine,
                "delete",
                bootflow_names=some,
                bootflow_missing_ok=True,
                bootflow_reclaim_instance_interval=interval,
            )
        elif kind == "others":
            playbook = mine.choice(("audit", "heartbeat", "power_sync", "reclaim", "drain", "host"))
            every = [h.name for h in self.flow.lab.hosts]
            of_hosts = {"bootflow_host": every, "bootflow_host_state": "enabled"} if playbook == "host" else {}
            self.play(mine, playbook, bootflow_drain_host=mine.choice(every), bootflow_shutdown_timeout=1, **of_hosts)
        elif kind == "boot" or not self.operate(mine):
            with self.building():
                self.play(mine, "boot", bootflow_instances=[entry(n, metadata={"of": kind}) for n in some])

    def operate(self, mine: random.Random) -> bool:
        """Mostly on instances in a state that allows it. Whether there was one."""
        rows = self.flow.instances()
        operation = mine.choice(sorted(OPERATIONS))
        able = [
            n for n, row in sorted(rows.items()) if row["vm_state"] in OPERATIONS[operation] or mine.random() < 0.05
        ]
        if not able:
            return False
        self.play(
            mine,
            operation,
            bootflow_names=mine.sample(able, min(len(able), mine.choice((1, 1, 2, 3)))),
            bootflow_shutdown_timeout=mine.choice((0, 1)),
            bootflow_reboot_type=mine.choice(("SOFT", "HARD")),
            bootflow_wait_soft_reboot_seconds=1,
            bootflow_rescue_image_ref="newer",
            bootflow_rebuild_image=mine.choice(("guest", "newer")),
            bootflow_resize_flavor=mine.choice(("tiny", "more")),
            bootflow_allow_resize_to_same_host=mine.random() < 0.3,
        )
        return True

    # --- what goes wrong ----------------------------------------------------------------------------------------------

    def break_hosts(self) -> None:
        mine = random.Random("hosts of %d" % SEED)
        kinds = ("guest", "guest", "libvirtd", "spawn", "network", "ssh", "restart", "dies", "dies")
        while not self.over.wait(mine.uniform(4.0, 15.0)):
            host, kind = mine.choice(self.flow.lab.hosts), mine.choice(kinds)
            self.say(host.name, kind)
            if kind == "guest":
                for uuid in host.run(*VIRSH, "list", "--uuid").stdout.split()[:1]:
                    host.run(*VIRSH, "destroy", uuid, check=False)
            elif kind == "restart":
                host.restart()
            elif kind == "dies":
                self.lose(mine, host)
            else:
                with self.nobody_builds():
                    host.fail(kind)
                self.over.wait(mine.uniform(1.0, 12.0))
                host.restore()

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


VIRSH = ("virsh", "-q", "-c", "qemu:///system")


def a_file(mine: random.Random, names: t.Sequence[str]) -> dict[str, t.Any]:
    """Variables of apply: these instances as somebody wants to have them."""
    entries = [
        entry(
            name,
            flavor=mine.choice(("tiny", "more")),
            image=mine.choice(("guest", "newer")),
            state=mine.choice(("running", "running", "stopped", "paused", "suspended")),
            metadata={"of": mine.choice(("one", "two"))},
            allow=["rebuild", "resize", "restart"],
        )
        for name in names
    ]
    return {"bootflow_instances": entries, "bootflow_prune_max": len(NAMES)}


def places(flow: Flow) -> dict[str, dict[str, str]]:
    """uuid -> host -> state of its domain there"""
    found: dict[str, dict[str, str]] = {}
    for host in flow.lab.hosts:
        for uuid in host.run(*VIRSH, "list", "--all", "--uuid").stdout.split():
            found.setdefault(uuid, {})[host.name] = host.run(*VIRSH, "domstate", uuid).stdout.strip()
    return found


@pytest.mark.long
@pytest.mark.usefixtures("still_guests")
def test_after_any_history_everything_is_whole(flow: Flow) -> None:
    (image, _linux) = flow.variables["bootflow_images"]
    flow.variables["bootflow_images"] = [image, {**image, "name": "newer"}]
    flow.variables["bootflow_flavors"] = [*FLAVORS, {"name": "more", "vcpus": 1, "memory_mb": 224, "root_gb": 1}]
    flow.variables.update(bootflow_lease_seconds=LEASE, bootflow_work_timeout=60)
    crowd = Crowd(flow)
    errors: list[BaseException] = []

    def until_it_is_over(work: t.Callable[..., None], *arguments: int) -> None:
        try:
            work(*arguments)
        except BaseException as error:  # is raised by the test
            errors.append(error)
            crowd.over.set()

    works = [(crowd.join_in, 1), (crowd.join_in, 2), (crowd.join_in, 3), (crowd.break_hosts,)]
    threads = [threading.Thread(target=until_it_is_over, args=work) for work in works]
    for thread in threads:
        thread.start()
    crowd.over.wait(SECONDS)
    crowd.over.set()
    for thread in threads:
        thread.join()
    assert not errors, errors
    settle(flow, crowd)
    is_whole(flow)
    assert not crowd.wrong, crowd.wrong
    flow.delete(*flow.instances(), bootflow_delete_force=True)
    assert flow.residue() == {}


def settle(flow: Flow, crowd: Crowd) -> None:
    """All hosts are back, the leases of dead runs are over, and what people do then is done."""
    calm = random.Random(SEED)
    every = [host.name for host in flow.lab.hosts]
    for host in flow.lab.hosts:
        host.restore()
    time.sleep(LEASE + 1.0)
    crowd.play(calm, "heartbeat", kills=0.0)
    for state in ("up", "enabled"):
        assert crowd.play(calm, "host", bootflow_host=every, bootflow_host_state=state, kills=0.0) == 0
    for playbook in ("audit", "power_sync"):
        assert crowd.play(calm, playbook, kills=0.0) == 0, playbook


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
