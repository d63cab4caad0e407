# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""One at a time defines, starts and stops a guest: the module of a run that was killed works on beside that of the next one."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import types
import typing as t

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core.errors import Conflict, WaitTimeout
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.disks import rescue
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.disks.rescue import RescuedSpec
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.libvirt import connection as libvirt_connection
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.libvirt import domains, power
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.libvirt.domain_waits import ConsoleWait
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.libvirt.domains import DomainSpec
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.libvirt.power import PowerSpec
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.os import locks
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.os.locks import at_work, guest_lock, guests_at_work

UUID = "2f4c1c0e-6a0f-4d8e-9f0b-0c6f3f3b2a11"
XML = "<domain><uuid>%s</uuid><name>web</name></domain>" % UUID


class Held:
    """The guest is in other hands until leave(); ``steps`` tells what happened in which order."""

    def __init__(self, steps: list[str]):
        self.steps = steps
        self.taken, self.done = threading.Event(), threading.Event()
        self.thread = threading.Thread(target=self._hold)
        self.thread.start()
        assert self.taken.wait(10)

    def _hold(self) -> None:
        with guest_lock(UUID):
            self.taken.set()
            self.done.wait(10)
            self.steps.append("the other has ended")

    def leave(self) -> None:
        self.done.set()
        self.thread.join()


def beside(held: Held, work: t.Callable[[], t.Any]) -> None:
    """The work begins while the other has the guest, and ends after it."""
    thread = threading.Thread(target=work)
    thread.start()
    thread.join(0.3)
    assert thread.is_alive(), "it waits"
    held.leave()
    thread.join(10)
    assert not thread.is_alive()


def test_a_start_waits_for_the_module_of_another_run(monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[str] = []
    domain = types.SimpleNamespace()
    monkeypatch.setattr(power, "find_domain", lambda _connection, _uuid: steps.append("looked") or domain)
    monkeypatch.setattr(power, "power_state", lambda _domain: 1)
    monkeypatch.setitem(power._STATES, "running", lambda *_args: steps.append("started") or {"changed": True})
    beside(Held(steps), lambda: power.ensure_power(None, PowerSpec(UUID, "running")))
    assert steps == ["the other has ended", "looked", "started"]


def test_check_mode_does_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(power, "find_domain", lambda _connection, _uuid: object())
    monkeypatch.setattr(power, "power_state", lambda _domain: 1)
    monkeypatch.setitem(power._STATES, "running", lambda *_args: {"changed": False})
    held = Held([])
    try:
        assert power.ensure_power(None, PowerSpec(UUID, "running"), check_mode=True)["power_state"] == 1
    finally:
        held.leave()


def test_a_build_waits_and_lets_go_before_it_waits_for_the_guest(monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[str] = []
    domain = types.SimpleNamespace(
        name=lambda: "web",
        XMLDesc=lambda _flags: XML,
        isPersistent=lambda: True,
        isActive=lambda: True,
    )
    fake = types.SimpleNamespace(VIR_DOMAIN_XML_INACTIVE=2, libvirtError=ValueError)
    for module in (domains, libvirt_connection):
        monkeypatch.setattr(module, "libvirt", fake)
    monkeypatch.setattr(domains, "find_domain", lambda _connection, _uuid: steps.append("looked") or domain)
    for name, value in (("was_paused", False), ("is_active", True), ("power_state", 1), ("wait_for_state", None)):
        monkeypatch.setattr(domains, name, lambda *_args, value=value: value)

    def waited(*_args: t.Any) -> str:
        with guest_lock(UUID, timeout=0):
            steps.append("free while the console is waited for")
        return "login:"

    monkeypatch.setattr(domains, "wait_for_console", waited)
    spec = DomainSpec(UUID, "web", XML, wait_console=ConsoleWait("login:", "/log"))
    beside(Held(steps), lambda: domains.ensure_domain(None, spec))
    assert steps == ["the other has ended", "looked", "free while the console is waited for"]


@pytest.mark.parametrize(("runs", "restart", "steps"), [
    (False, False, ["not offered", "started"]), (True, True, ["off", "not offered", "started"]), (True, False, []),
])  # fmt: skip
def test_nobody_copies_the_disks_of_a_guest_that_is_built_to_another_host(
    monkeypatch: pytest.MonkeyPatch, runs: bool, restart: bool, steps: list[str]
) -> None:
    done: list[str] = []
    domain = types.SimpleNamespace(XMLDesc=lambda _flags: XML, isPersistent=lambda: True, isActive=lambda: runs)
    fake = types.SimpleNamespace(VIR_DOMAIN_XML_INACTIVE=2, libvirtError=ValueError)
    for module in (domains, libvirt_connection):
        monkeypatch.setattr(module, "libvirt", fake)
    monkeypatch.setattr(domains, "find_domain", lambda _connection, _uuid: domain)
    monkeypatch.setattr(domains, "was_paused", lambda _domain: False)
    monkeypatch.setattr(domains, "is_active", lambda _domain: runs)
    monkeypatch.setattr(domains, "power_state", lambda _domain: 1)
    monkeypatch.setattr(domains, "cut_off", lambda _domain: runs and done.append("off"))
    monkeypatch.setattr(domains, "take_back", lambda uuid: done.append("not offered"))
    monkeypatch.setattr(domains, "start", lambda _domain, paused: done.append("started"))
    monkeypatch.setattr(domains, "wait_for_state", lambda *_args: None)
    domains.ensure_domain(None, DomainSpec(UUID, "web", XML, restart=restart, vif_plugging_timeout=0))
    assert done == steps


class Guest:
    """One that runs and belongs to the ledger A."""

    def __init__(self, steps: list[str]):
        self.steps, self.runs = steps, True

    def name(self) -> str:
        return "web"

    def XMLDesc(self, _flags: int) -> str:
        return "<domain><metadata><b:owner xmlns:b='urn:bootflow:compute:owner:1' ledger='A'/></metadata></domain>"

    def isPersistent(self) -> bool:
        return True

    def isActive(self) -> bool:
        return self.runs

    def destroy(self) -> None:
        self.steps.append("destroyed")
        self.runs = False

    def undefineFlags(self, _flags: int) -> None:
        self.steps.append("undefined")


def test_a_removal_takes_the_power_first_so_that_nobody_waits_for_a_shutdown(monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[str] = []
    guest = Guest(steps)
    monkeypatch.setattr(domains, "find_domain", lambda _connection, _uuid: guest)
    monkeypatch.setattr(domains, "libvirt", types.SimpleNamespace(VIR_DOMAIN_XML_INACTIVE=2))
    monkeypatch.setattr(domains, "release_of_domain", lambda *_args: [])
    held = Held(steps)
    beside(held, lambda: domains.remove_domain(None, UUID, ledger_id="A"))
    assert steps == ["destroyed", "the other has ended", "undefined"]


def test_a_removal_of_a_guest_without_power_waits_and_leaves_one_that_was_started_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The module of a run that was given up may work on after an unshelve."""
    steps: list[str] = []
    monkeypatch.setattr(domains, "find_domain", lambda _connection, _uuid: Guest(steps))

    def remove() -> None:
        with pytest.raises(Conflict, match="guest of instance %s has power" % UUID):
            domains.remove_domain(None, UUID, ledger_id="A", without_power=True)
        steps.append("refused")

    monkeypatch.setattr(domains, "libvirt", types.SimpleNamespace(VIR_DOMAIN_XML_INACTIVE=2))
    beside(Held(steps), remove)
    assert steps == ["the other has ended", "refused"]


def test_a_removal_leaves_the_guest_of_another_ledger_alone_while_it_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[str] = []
    monkeypatch.setattr(domains, "find_domain", lambda _connection, _uuid: Guest(steps))
    held = Held(steps)
    try:
        with pytest.raises(Conflict, match="belongs to the ledger A"):
            domains.remove_domain(None, UUID, ledger_id="B")
        assert steps == []
    finally:
        held.leave()


def test_a_rescue_looks_at_the_guest_when_it_has_it(monkeypatch: pytest.MonkeyPatch, tmp_path: t.Any) -> None:
    """It kept the definition that a killed rescue had just made as the guest's own, which was lost."""
    steps: list[str] = []
    monkeypatch.setattr(
        rescue, "_look", lambda *_args: steps.append("looked") or rescue._Found(None, False, False, False)
    )
    spec = RescuedSpec(UUID, XML)
    beside(Held(steps), lambda: rescue.save(None, str(tmp_path), spec))
    assert steps == ["the other has ended", "looked"]
    steps.clear()
    monkeypatch.setattr(rescue, "_define", lambda *_args: False)
    monkeypatch.setattr(rescue, "find_domain", lambda *_args: None)
    beside(Held(steps), lambda: rescue.restore(None, str(tmp_path), RescuedSpec(UUID, XML, False), None))
    assert steps == ["the other has ended", "looked"]


GONE = """
import os, sys
from ansible_collections.bootflow.compute.plugins.module_utils.core.errors import RemoteError
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.disks import rescue
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.libvirt import domains, power
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.os import locks
root, uuid, xml, word = sys.argv[1:]
locks.LOCK_ROOT = root + "/run"
does = {
    "power": lambda: power.ensure_power(None, power.PowerSpec(uuid, "running")),
    "domain": lambda: domains.ensure_domain(None, domains.DomainSpec(uuid, "web", xml)),
    "save": lambda: rescue.save(None, root, rescue.RescuedSpec(uuid, xml)),
    "restore": lambda: rescue.restore(None, root, rescue.RescuedSpec(uuid, xml, False), None),
}
sys.stdin.readline()
try:
    does[word]()
except RemoteError as error:
    sys.stderr.write("refused: %s" % error)
"""


@pytest.mark.parametrize("word", ["power", "domain", "save", "restore"])
def test_the_module_of_a_run_that_is_gone_does_no_more(tmp_path: t.Any, word: str) -> None:
    """Its output has nobody who reads it. libvirt is not even asked."""
    argv = [sys.executable, "-c", GONE, str(tmp_path), UUID, XML, word]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(argv, text=True, **pipes) as process:  # type: ignore[call-overload]
        process.stdout.close()
        process.stdin.write("go\n")
        process.stdin.close()
        said = process.stderr.read()
        process.wait()
    assert said == "refused: guest %s is left as it is: the run that asked for this is gone" % UUID
    assert not (tmp_path / UUID).exists()


def test_who_waits_too_long_is_told() -> None:
    held = Held([])
    try:
        with (
            pytest.raises(WaitTimeout, match="release of guest %s by the module of another run" % UUID) as caught,
            guest_lock(UUID, timeout=0),
        ):
            pass
        assert "Run the same command again then" in caught.value.remedy and caught.value.retryable
    finally:
        held.leave()


WORK = """
import sys
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.os import locks
locks.LOCK_ROOT = sys.argv[1]
with locks.at_work(sys.argv[2:]):
    print("works", flush=True)
    sys.stdin.read()
"""


def working(*uuids: str) -> subprocess.Popen[str]:
    argv = [sys.executable, "-c", WORK, locks.LOCK_ROOT, *uuids]
    process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdout.readline() == "works\n"
    return process


def test_a_report_tells_on_which_guests_modules_work() -> None:
    """Several may work on one, also while it is in nobody's hands: a rescue makes its disk."""
    assert guests_at_work() == set()
    other = UUID.replace("2", "3")
    first, second = working(UUID.upper(), other), working(UUID)
    with guest_lock(UUID):
        assert guests_at_work() == {UUID, other}
    first.communicate("")
    assert guests_at_work() == {UUID}
    second.kill()
    second.communicate()
    assert guests_at_work() == set()
    assert os.listdir(os.path.join(locks.LOCK_ROOT, locks.LOCKS)) == [], "a killed one leaves nothing for long"
    with at_work([UUID], check_mode=True):
        assert guests_at_work() == set()
