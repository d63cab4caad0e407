# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Guests shut down and started, with a libvirt and a clock of our own."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import subprocess
import sys
import types

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core.errors import (
    BackupRuns,
    InstanceNotFound,
    InvalidInput,
    LibvirtError,
    PciDeviceDetachFailed,
    RemoteError,
    VirtualInterfaceCreateException,
    WaitTimeout,
)
from ansible_collections.bootflow.compute.plugins.module_utils.core.guest.domain.element import parse
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.libvirt import (
    backup_job,
    domain_batch,
    domains,
    pci_devices,
    power,
    running,
)
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.libvirt import connection as libvirt_connection
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.libvirt.domains import DomainSpec, ensure_domain
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.libvirt.power import PowerSpec, ensure_power
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.os import ownership

UUID = "2f4c1c0e-6a0f-4d8e-9f0b-0c6f3f3b2a11"
RUNNING, PAUSED, IN_SHUTDOWN, OFF, CRASHED = 1, 3, 4, 5, 6
NO_DOMAIN, INVALID, INTERNAL = 42, 55, 1
NOW = {"seconds": 1000, "nseconds": 0}


class Error(Exception):
    def __init__(self, code: int, message: str = "no"):
        super().__init__(message)
        self.code = code

    def get_error_code(self) -> int:
        return self.code

    def get_error_domain(self) -> int:
        return 0

    def get_error_message(self) -> str:
        return str(self)


class Domain:
    """One guest. :arg shuts_down: seconds after which it is off once it is asked; None: it is deaf."""

    def __init__(self, clock, state=RUNNING, shuts_down=None, hears=0.0):
        self.clock, self._state, self.shuts_down, self.hears = clock, state, shuts_down, hears
        self.asked, self.calls, self.off_at = [], [], None
        self.saved = self.deaf_agent = False
        self.life = 1  # libvirt numbers domains as they start
        self.starts = True
        self.restarts_at = None

    def state(self):
        if self.off_at is not None and self.clock.now >= self.off_at:
            self._state, self.off_at = OFF, None
        return [self._state, 0]

    def ID(self):
        if self.restarts_at is not None and self.clock.now >= self.restarts_at:
            self.life, self.restarts_at = self.life + 1, None
        return self.life if self.isActive() else -1

    def isActive(self):
        return self.state()[0] != OFF  # also when it has crashed, and was preserved

    def shutdown(self):
        if not self.isActive():
            raise Error(INVALID)
        self.asked.append(self.clock.now)
        if self.shuts_down is not None and self.clock.now >= self.hears:
            self.off_at = self.clock.now + self.shuts_down

    def destroy(self):
        self.calls.append("destroy")
        if not self.isActive():
            raise Error(INVALID)
        self._state = OFF

    def isPersistent(self):
        return 1

    def jobStats(self, _flags=0):  # noqa: N802
        return self.job

    job = {"type": 0}  # noqa: RUF012

    def name(self):
        return "web-1"

    def XMLDesc(self, _flags):
        return "<domain><uuid>%s</uuid><name>web-1</name></domain>" % UUID

    def createWithFlags(self, flags):
        self.calls.append("create paused" if flags else "create")
        if not self.starts:
            raise Error(INTERNAL, "no such machine type")
        self.life += 1
        self.saved = False
        self._state = PAUSED if flags else RUNNING

    def resume(self):
        self.calls.append("resume")
        self._state = RUNNING

    def suspend(self):
        self.calls.append("suspend")
        self._state = PAUSED

    def managedSave(self, _flags):
        self.calls.append("save")
        self._state, self.saved = OFF, True

    def managedSaveRemove(self, _flags):
        self.calls.append("forget")
        self.saved = False

    def injectNMI(self, _flags):
        self.calls.append("interrupt")

    def hasManagedSaveImage(self, _flags):
        return int(self.saved)

    def setTime(self, moment, _flags):
        if self.deaf_agent:
            raise Error(INTERNAL, "Guest agent is not responding")
        self.calls.append(moment)


class Clock:
    def __init__(self):
        self.now = 0.0

    def monotonic(self):
        return self.now

    def time(self):
        return 1000.7 + self.now

    def sleep(self, seconds):
        self.now += max(seconds, 0.001)


class World:
    def __init__(self):
        self.clock = Clock()
        self.domains = {}
        self.closed_at = float("inf")

    def lookupByUUIDString(self, uuid):
        if uuid not in self.domains:
            raise Error(NO_DOMAIN)
        return self.domains[uuid]

    def guest(self, **how):
        self.domains[UUID] = Domain(self.clock, **how)
        return self.domains[UUID]

    def to(self, state, check_mode=False, **fields):
        fields.setdefault("vif_plugging_timeout", 0.0)
        result = ensure_power(self, PowerSpec(UUID, state, **fields), check_mode)
        return result["changed"], result["power_state"], result["forced"]

    def reboot(self, check_mode=False, **fields):
        spec = PowerSpec(UUID, "rebooted", vif_plugging_timeout=0.0, **fields)
        result = ensure_power(self, spec, check_mode)
        return result["changed"], result["restarted"], result["power_state"]

    def restart(self, check_mode=False, **fields):
        guest = self.domains[UUID]
        spec = DomainSpec(UUID, guest.name(), guest.XMLDesc(0), restart=True, vif_plugging_timeout=0.0, **fields)
        result = ensure_domain(self, spec, check_mode)
        return (result["changed"], result["forced"]) if "forced" in result else result["changed"]


@pytest.fixture
def world(monkeypatch):
    names = ("VIR_FROM_REMOTE", "VIR_FROM_RPC", "VIR_ERR_NO_CONNECT", "VIR_ERR_INVALID_CONN", "VIR_ERR_RPC")
    names += ("VIR_ERR_SYSTEM_ERROR", "VIR_ERR_NO_NETWORK", "VIR_ERR_NO_SECRET")
    fake = types.SimpleNamespace(
        libvirtError=Error,
        VIR_ERR_NO_DOMAIN=NO_DOMAIN,
        VIR_ERR_OPERATION_INVALID=INVALID,
        VIR_ERR_INTERNAL_ERROR=INTERNAL,
        VIR_DOMAIN_XML_INACTIVE=2,
        VIR_DOMAIN_AFFECT_LIVE=1,
        VIR_DOMAIN_START_PAUSED=1,
        VIR_DOMAIN_DEFINE_VALIDATE=1,
        VIR_DOMAIN_PAUSED_UNKNOWN=0,
        VIR_DOMAIN_PAUSED_USER=1,
        **{name: 100 + number for number, name in enumerate(names)},
    )
    for module in (power, domains, running, libvirt_connection, pci_devices):
        monkeypatch.setattr(module, "libvirt", fake)
    world = World()
    for module in (power, domains, running, pci_devices):
        monkeypatch.setattr(module, "time", world.clock)
    monkeypatch.setattr(running, "run_is_gone", lambda: world.clock.now >= world.closed_at)
    return world


def test_a_guest_that_shuts_down_when_it_is_asked(world):
    guest = world.guest(shuts_down=3.0)
    assert world.to("shutdown") == (True, 4, False)
    assert guest.asked == [0.0] and guest.calls == [] and 3.0 <= world.clock.now < 4.0


def test_a_guest_is_asked_again_every_ten_seconds(world):
    guest = world.guest(shuts_down=1.0, hears=19.0)  # its init was not there before
    assert world.to("shutdown") == (True, 4, False)
    assert [round(at) for at in guest.asked] == [0, 10, 20] and guest.calls == []


@pytest.mark.parametrize("state", [RUNNING, PAUSED])
@pytest.mark.parametrize(("timeout", "asked"), [(60.0, 6), (25.0, 3), (0.0, 0)])
def test_a_deaf_guest_loses_its_power(world, state, timeout, asked):
    guest = world.guest(state=state)
    assert world.to("shutdown", shutdown_timeout=timeout) == (True, 4, True)
    assert len(guest.asked) == asked and guest.calls == ["destroy"]
    assert timeout <= world.clock.now < timeout + 1


def test_it_is_off_between_the_last_look_and_the_switch(world):
    guest = world.guest()
    guest.destroy = lambda: (setattr(guest, "_state", OFF), Domain.destroy(guest))
    assert world.to("shutdown", shutdown_timeout=1.0) == (True, 4, False)


def test_a_guest_keeps_its_power_when_the_run_is_gone(world):
    guest = world.guest()
    world.closed_at = world.clock.now + 3.0
    with pytest.raises(RemoteError, match="keeps its power"):
        world.to("shutdown", shutdown_timeout=50.0)
    assert guest.calls == [] and guest.isActive() and world.clock.now < 5.0, "the next run need not wait so long"


def test_a_guest_that_is_off_stays_off(world):
    guest = world.guest(state=OFF)
    assert world.to("shutdown")[::2] == (False, False)
    assert (guest.asked, guest.calls) == ([], [])


def test_a_guest_that_is_off_loses_its_saved_memory(world):
    """Its disks and volumes may be others by its next start."""
    guest = world.guest(state=OFF)
    guest.saved = True
    assert world.to("shutdown", check_mode=True) == (True, 4, False) and guest.saved
    assert world.to("shutdown") == (True, 4, False)
    assert guest.calls == ["forget"] and guest.asked == []
    assert world.to("shutdown") == (False, 4, False)


def test_what_is_left_of_a_crashed_guest_goes(world):
    """As Nova's power_off: nobody asks it, and it is SHUTDOWN then."""
    guest = world.guest(state=CRASHED)
    assert world.to("shutdown", check_mode=True)[0] and guest.calls == []
    assert world.to("shutdown") == (True, 4, False)
    assert (guest.asked, guest.calls) == ([], ["destroy"])


def test_what_libvirt_refuses_is_told(world):
    guest = world.guest()

    def refuse():
        raise Error(INTERNAL, "broken")

    guest.shutdown = refuse
    with pytest.raises(LibvirtError, match="broken"):
        world.to("shutdown")


@pytest.mark.parametrize(("state", "there", "changed"), [
    ("shutdown", RUNNING, True), ("shutdown", OFF, False), ("running", OFF, True), ("running", RUNNING, False),
])  # fmt: skip
def test_check_mode_touches_nothing(world, state, there, changed):
    guest = world.guest(state=there)
    assert world.to(state, check_mode=True)[0] is changed
    assert (guest.asked, guest.calls, guest.state()[0]) == ([], [], there)


@pytest.mark.parametrize("state", ["shutdown", "running", "rebooted", "paused", "suspended"])
def test_a_domain_that_is_gone(world, state):
    with pytest.raises(InstanceNotFound) as caught:
        world.to(state)
    assert "boot it again" in caught.value.remedy
    with pytest.raises(InvalidInput):
        ensure_power(world, PowerSpec("../x", state))


@pytest.mark.parametrize(("there", "calls"), [
    (OFF, ["not offered", "create"]), (CRASHED, ["destroy", "not offered", "create"]), (PAUSED, ["resume"]), (RUNNING, []),
])  # fmt: skip
def test_start(world, there, calls, monkeypatch):
    """Nobody copies the disks of a guest that starts to another host."""
    monkeypatch.setattr(running, "wait_plugged", lambda *_a: [])
    guest = world.guest(state=there)
    monkeypatch.setattr(power, "take_back", lambda uuid: guest.calls.append("not offered"))
    assert world.to("running") == (bool(calls), 1, False)
    assert guest.calls == calls


def test_only_a_suspended_guest_is_taken_for_restored_and_goes_on(world, monkeypatch):
    """One that comes from another host looks alike."""
    monkeypatch.setattr(running, "wait_plugged", lambda *_a: [])
    monkeypatch.setattr(running.libvirt, "VIR_DOMAIN_PAUSED", PAUSED, raising=False)
    monkeypatch.setattr(running.libvirt, "VIR_DOMAIN_PAUSED_MIGRATION", 2, raising=False)
    guest = world.guest(state=PAUSED)
    monkeypatch.setattr(guest, "state", lambda: [guest._state, 2])
    with pytest.raises(WaitTimeout):
        world.to("running")
    assert guest.calls == []
    assert world.to("running", restored=True) == (True, 1, False)
    assert guest.calls == ["resume", {"seconds": 1060, "nseconds": 0}]


def test_its_cpus_wait_for_its_interfaces(world, monkeypatch):
    guest = world.guest(state=OFF)
    monkeypatch.setattr(running, "wait_plugged", lambda domain, timeout, fatal: guest.calls.append(timeout) or [])
    assert world.to("running", vif_plugging_timeout=7.0) == (True, 1, False)
    assert guest.calls == ["create paused", 7.0, "resume"]

    def missing(*_arguments):
        raise VirtualInterfaceCreateException(reason="tap0")

    monkeypatch.setattr(running, "wait_plugged", missing)
    guest._state = OFF
    with pytest.raises(VirtualInterfaceCreateException):
        world.to("running", vif_plugging_timeout=7.0)


@pytest.mark.parametrize(("state", "there", "calls", "power"), [
    ("paused", RUNNING, ["suspend"], 3), ("paused", PAUSED, [], 3),
    ("unpaused", PAUSED, ["resume", NOW], 1), ("unpaused", RUNNING, [], 1),
    ("suspended", RUNNING, ["save"], 4), ("suspended", PAUSED, ["save"], 4),
])  # fmt: skip
def test_pause_and_suspend(world, state, there, calls, power):
    guest = world.guest(state=there)
    assert world.to(state, check_mode=True)[0] is bool(calls) and guest.calls == []
    assert world.to(state) == (bool(calls), power, False)
    assert guest.calls == calls
    assert world.to(state)[0] is False and guest.calls == calls, "nothing twice"


@pytest.mark.parametrize("check_mode", [False, True])
def test_a_guest_whose_backup_runs_is_not_suspended(world, check_mode, monkeypatch):
    """libvirt would wait for half a minute, and name the monitor."""
    guest = world.guest(state=RUNNING)
    monkeypatch.setattr(backup_job, "libvirt", power.libvirt)
    monkeypatch.setattr(power.libvirt, "VIR_DOMAIN_JOB_OPERATION_BACKUP", 9, raising=False)
    guest.job = {"type": 2, "operation": 9}
    with pytest.raises(BackupRuns) as refused:
        world.to("suspended", check_mode=check_mode)
    assert refused.value.retryable and guest.calls == []
    guest.job = {"type": 2, "operation": 5}
    assert world.to("suspended", check_mode=check_mode)[0]


@pytest.mark.parametrize("check_mode", [False, True])
@pytest.mark.parametrize("state", ["paused", "unpaused", "suspended", "interrupted"])
@pytest.mark.parametrize("there", [OFF, CRASHED])
def test_a_guest_that_is_off_can_be_neither_paused_nor_suspended(world, state, there, check_mode):
    guest = world.guest(state=there)
    with pytest.raises(LibvirtError, match="is shut down: only one that runs can be %s" % state):
        world.to(state, check_mode=check_mode)
    assert guest.calls == []


@pytest.mark.parametrize("there", [RUNNING, PAUSED])
def test_an_interrupt_each_time_anew(world, there):
    guest = world.guest(state=there)
    assert world.to("interrupted", check_mode=True)[0] and guest.calls == []
    for _number in range(2):
        assert world.to("interrupted")[0]
    assert guest.calls == ["interrupt"] * 2 and guest.state()[0] == there


def test_a_suspended_guest_goes_on_with_the_time_of_now(world, monkeypatch):
    monkeypatch.setattr(running, "wait_plugged", lambda *_a: [])
    guest = world.guest()
    world.to("suspended")
    assert world.to("running", check_mode=True)[0] is True
    assert world.to("running") == (True, 1, False)
    assert guest.calls == ["save", "create", NOW] and not guest.saved
    guest.deaf_agent = True
    world.to("suspended")
    assert world.to("running") == (True, 1, False), "without an agent its clock is the guest's own business"


def test_a_guest_that_shuts_down_when_it_is_rebooted_is_started(world, monkeypatch):
    monkeypatch.setattr(running, "wait_plugged", lambda *_a: [])
    guest = world.guest(shuts_down=3.0)
    assert world.reboot(check_mode=True) == (True, True, 1) and guest.asked == []
    assert world.reboot() == (True, True, 1)
    assert (guest.asked, guest.calls, guest.life) == ([0.0], ["create"], 2) and 3.0 <= world.clock.now < 4.0
    assert world.reboot() == (True, True, 1) and guest.life == 3, "each time anew"


def test_a_guest_that_restarts_by_itself_is_left_to_it(world):
    guest = world.guest()
    guest.restarts_at = 12.0
    assert world.reboot() == (True, True, 1)
    assert guest.calls == [] and [round(at) for at in guest.asked] == [0, 10]


@pytest.mark.parametrize(("seconds", "asked"), [(120.0, 12), (15.0, 2)])
def test_a_guest_that_is_deaf_has_to_be_reset(world, seconds, asked):
    guest = world.guest()
    assert world.reboot(wait_soft_reboot_seconds=seconds) == (True, False, 1)
    assert len(guest.asked) == asked and guest.calls == [] and guest.life == 1
    assert seconds <= world.clock.now < seconds + 1


@pytest.mark.parametrize("there", [OFF, CRASHED, PAUSED])
def test_a_guest_that_does_not_run_is_not_asked(world, there):
    guest = world.guest(state=there)
    assert world.reboot()[:2] == (False, False) and world.reboot(check_mode=True)[:2] == (False, False)
    assert (guest.asked, guest.calls, world.clock.now) == ([], [], 0.0)


def test_a_guest_that_does_not_start_again_has_to_be_reset(world):
    guest = world.guest(shuts_down=1.0)
    guest.starts = False
    assert world.reboot() == (True, False, 4)
    assert guest.calls == ["create"]


@pytest.mark.parametrize(("there", "saved", "calls"), [
    (RUNNING, False, ["destroy", "create"]), (PAUSED, False, ["destroy", "create"]), (OFF, False, ["destroy", "create"]),
    (OFF, True, ["destroy", "forget", "create"]),
])  # fmt: skip
def test_a_restart_takes_power_and_saved_memory(world, there, saved, calls):
    guest = world.guest(state=there)
    guest.saved = saved
    assert world.restart(check_mode=True) and guest.calls == []
    assert world.restart()
    assert guest.calls == calls and guest.state()[0] == RUNNING


@pytest.mark.parametrize(("shuts_down", "forced", "calls"), [
    (3.0, False, ["destroy", "create"]), (None, True, ["destroy", "destroy", "create"]),
])  # fmt: skip
def test_a_restart_asks_the_guest_before(world, shuts_down, forced, calls):
    """What it has in memory belongs on its disks. libvirt refuses the second switch of a guest that is off."""
    guest = world.guest(shuts_down=shuts_down)
    assert world.restart(check_mode=True, shutdown_timeout=20.0) is True and guest.asked == guest.calls == []
    assert world.restart(shutdown_timeout=20.0) == (True, forced)
    assert [round(at) for at in guest.asked] == ([0] if shuts_down else [0, 10])
    assert guest.calls == calls and guest.state()[0] == RUNNING


def test_a_restart_that_nobody_waits_for_any_more_leaves_the_guest_alone(world):
    guest = world.guest()
    world.closed_at = world.clock.now + 3.0
    with pytest.raises(RemoteError, match="keeps its power"):
        world.restart(shutdown_timeout=5.0)
    assert guest.calls == [] and guest.isActive()


def test_a_restart_that_fails_tells_what_became_of_the_guest(world, monkeypatch):
    guest = world.guest()
    guest.starts = False
    monkeypatch.setattr(domain_batch, "connect", lambda *_a: contextlib.nullcontext(world))
    monkeypatch.setattr(domain_batch, "host_place", lambda *_a: contextlib.nullcontext())
    monkeypatch.setattr(domain_batch, "refused_kept", lambda *_a: contextlib.nullcontext())
    of_domain = {name: argument.get("default") for name, argument in domain_batch.DOMAIN_ARGUMENTS.items()}
    wanted = {
        **of_domain,
        "uuid": UUID,
        "name": "web-1",
        "xml": guest.XMLDesc(0),
        "reservations": [],
        "vif_plugging_timeout": 0.0,
    }
    options = {name: argument.get("default") for name, argument in domain_batch.DOMAIN_BATCH_ARGUMENTS.items()}
    for restart, told in ((True, 4), (False, None)):
        domains_of = [{**wanted, "restart": restart}]
        outcome = domain_batch.ensure_domains({**options, "domains": domains_of}, False)["outcomes"][UUID]
        assert outcome["error"]["message"] == "libvirt: no such machine type" and outcome["changed"]
        assert outcome.get("power_state") == told, "the cleanup of a boot removes it anyway"


@pytest.mark.parametrize("ends_build", [True, False])
@pytest.mark.parametrize("starts", [True, False])
def test_a_build_has_ended_when_its_domain_is_as_it_should_be(world, monkeypatch, tmp_path, starts, ends_build):
    guest = world.guest()
    guest.starts = starts
    monkeypatch.setattr(domain_batch, "connect", lambda *_a: contextlib.nullcontext(world))
    monkeypatch.setattr(domain_batch, "host_place", lambda *_a: contextlib.nullcontext())
    monkeypatch.setattr(domain_batch, "refused_kept", lambda *_a: contextlib.nullcontext())
    of_domain = {name: argument.get("default") for name, argument in domain_batch.DOMAIN_ARGUMENTS.items()}
    named = {"uuid": UUID, "name": "web-1", "xml": guest.XMLDesc(0), "reservations": [], "restart": True}
    wanted = {**of_domain, **named, "vif_plugging_timeout": 0.0}
    options = {name: argument.get("default") for name, argument in domain_batch.DOMAIN_BATCH_ARGUMENTS.items()}
    ownership.mark_made_at(str(tmp_path / UUID), 5.0)
    assert of_domain["ends_build"] is True
    given = {**options, "instances_path": str(tmp_path), "domains": [{**wanted, "ends_build": ends_build}]}
    outcome = domain_batch.ensure_domains(given, False)["outcomes"][UUID]
    assert (outcome["error"] is None) is starts
    assert ownership.has_arrived(str(tmp_path / UUID), True) is (starts and ends_build)


def test_whether_somebody_listens():
    """The reader of our output is there, and is gone."""
    code = (
        "import sys, time\n"
        "from ansible_collections.bootflow.compute.plugins.module_utils.hosts.libvirt.running import run_is_gone\n"
        "answers = [run_is_gone()]\n"
        "print('ready', flush=True)\n"
        "sys.stdin.readline()\n"
        "answers.append(run_is_gone())\n"
        "print(answers, file=sys.stderr)\n"
        "os_exit = __import__('os')._exit(0)\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", code], stdin=pipe, stdout=pipe, stderr=pipe, env=environment) as child:
        assert child.stdout.readline() == b"ready\n"
        child.stdout.close()
        child.stdin.write(b"go on\n")
        child.stdin.close()
        assert child.stderr.read().splitlines()[-1] == b"[False, True]"


def test_the_states_of_all_domains_in_one_call(world):
    asked = []

    def stats(what):
        asked.append(what)
        return [(types.SimpleNamespace(UUIDString=lambda n=n: "uuid-%d" % n), {"state.state": n}) for n in range(9)]

    domains.libvirt.VIR_DOMAIN_STATS_STATE = 1
    assert domains.power_states(types.SimpleNamespace(getAllDomainStats=stats)) == {
        "uuid-%d" % n: state for n, state in enumerate((0, 1, 1, 3, 1, 4, 6, 7, 0))
    }
    assert asked == [1]

    def gone(_what):
        raise Error(INTERNAL, "gone")

    with pytest.raises(LibvirtError, match="gone"):
        domains.power_states(types.SimpleNamespace(getAllDomainStats=gone))


# --- restarted by another definition --------------------------------------------------------------------------------------

LOGIN = (
    "<domain><name>web-1</name><uuid>%s</uuid><devices><disk type='network'><source protocol='iscsi' name='iqn.a/1'/>"
    "<auth username='%%s'><secret type='iscsi' usage='iqn.a'/></auth></disk></devices></domain>" % UUID
)


class Logged(Domain):
    """QEMU logs in to its volume as the user ``old``, of a run that is gone."""

    definition = LOGIN % "old"

    def XMLDesc(self, _flags):
        return self.definition


class Coming(Domain):
    """It comes from another host, where its guest is removed at the same moment."""

    def XMLDesc(self, _flags):
        raise Error(NO_DOMAIN)


def test_a_domain_that_is_gone_while_it_is_looked_at_is_removed(world):
    world.domains[UUID] = Coming(world.clock, state=PAUSED)
    assert domains.remove_domain(world, UUID) == []


def test_a_restart_keeps_the_logins_of_other_runs(world):
    """A user of the new run would not be let in: its secret is not the one that libvirt has."""
    guest = world.domains[UUID] = Logged(world.clock)

    def define(xml, _flags):
        guest.definition = xml
        return guest

    world.defineXMLFlags = define
    domains.libvirt.VIR_DOMAIN_DEFINE_VALIDATE = 1
    spec = DomainSpec(
        UUID, "web-1", LOGIN % "new", restart=True, vif_plugging_timeout=0.0, differences=lambda wanted, have: ["x"]
    )
    assert ensure_domain(world, spec)["started"] and 'username="old"' in guest.definition
    guest.starts = False

    def refused(_flags):
        raise Error(INTERNAL, "user old: Authentication failure")

    guest.createWithFlags = refused
    with pytest.raises(LibvirtError) as raised:
        ensure_domain(world, spec)
    assert "old" not in raised.value.message and "Authentication" in raised.value.message


def test_a_target_with_new_credentials_gets_its_new_user():
    before = LOGIN % "old"
    assert "username='new'" in domains.with_logins(LOGIN % "new", before, ["iqn.a"]).replace('"', "'")
    assert "username='old'" in domains.with_logins(LOGIN % "new", before, ["iqn.b"]).replace('"', "'")


@pytest.mark.parametrize("before", ["<domain/>", LOGIN.replace("iqn.a/1", "iqn.b/1") % "old"])
def test_logins_to_other_volumes_are_not_taken(before):
    assert "username='new'" in domains.with_logins(LOGIN % "new", before).replace('"', "'")


# --- devices of the host --------------------------------------------------------------------------------------------------

PLACE = "<source><address domain='0x0000' bus='0x%02x' slot='0x00' function='0x%x'/></source>"
GUEST_PLACE = "<address type='pci' domain='0x0000' bus='0x07' slot='0x00' function='0x0'/>"
CARD = "<hostdev mode='subsystem' type='pci' managed='yes'>%s%s</hostdev>" % (PLACE % (10, 0), GUEST_PLACE)
SECOND = "<hostdev mode='subsystem' type='pci' managed='yes'>%s</hostdev>" % (PLACE % (10, 1))
PORT = "<interface type='hostdev' managed='yes'><mac address='52:54:00:00:00:01'/>%s</interface>" % (PLACE % (11, 0))
TAP = "<interface type='bridge'><source bridge='br0'/></interface>"


class Passed(Domain):
    """A guest with devices of its host. :arg releases: seconds after which it releases one that it is asked for"""

    def __init__(self, clock, releases=1.0, **how):
        super().__init__(clock, **how)
        self.defined = [TAP, CARD, SECOND, PORT]
        self.live = list(self.defined)
        self.releases, self.leaving = releases, {}

    def XMLDesc(self, flags):
        for device, at in self.leaving.items():
            if self.clock.now >= at and device in self.live:
                self.live.remove(device)
        devices = self.defined if flags & 2 or not self.isActive() else self.live
        return super().XMLDesc(flags).replace("</domain>", "<devices>%s</devices></domain>" % "".join(devices))

    def detachDeviceFlags(self, device, flags):
        (found,) = [d for d in self.live if same(d, device)]
        assert flags == 1
        if found in self.leaving:
            raise Error(INTERNAL, "already in the process of unplug")
        self.calls.append("detach %d" % self.defined.index(found))
        if self.releases is not None:
            self.leaving[found] = self.clock.now + self.releases

    def attachDeviceFlags(self, device, flags):
        (found,) = [d for d in self.defined if same(d, device)]
        assert flags == 1 and self.isActive() and found not in self.live
        self.calls.append("attach %d" % self.defined.index(found))
        self.live.append(found)
        self.leaving.pop(found, None)

    def managedSave(self, flags):
        assert self.live == [TAP], "QEMU saves no guest with such devices"
        super().managedSave(flags)


def same(one, other):
    return [e.attrib for e in parse(one).iter()] == [e.attrib for e in parse(other).iter()]


@pytest.fixture
def passed(world, monkeypatch):
    monkeypatch.setattr(running, "wait_plugged", lambda *_a: [])
    world.domains[UUID] = Passed(world.clock)
    return world.domains[UUID]


def test_devices_are_taken_before_the_memory_is_saved_and_given_back_afterwards(world, passed):
    assert world.to("suspended", check_mode=True)[0] and passed.calls == []
    assert world.to("suspended") == (True, 4, False)
    assert passed.calls == ["detach 1", "detach 2", "detach 3", "save"]
    assert world.to("suspended")[0] is False
    assert world.to("running", check_mode=True)[0] and len(passed.calls) == 4
    assert world.to("running") == (True, 1, False)
    assert passed.calls[4:8] == ["create", "attach 1", "attach 2", "attach 3"] and passed.calls[8]["seconds"]
    assert sorted(passed.live) == sorted(passed.defined)
    assert world.to("running")[0] is False and len(passed.calls) == 9, "nothing twice"


def test_a_guest_that_keeps_a_device_gets_the_others_back(world, passed):
    released = passed.detachDeviceFlags

    def keeps(device, flags):
        passed.releases = None if same(device, SECOND) else 1.0
        released(device, flags)

    passed.detachDeviceFlags = keeps
    with pytest.raises(PciDeviceDetachFailed, match="0000:0a:00.1: timeout") as caught:
        world.to("suspended", wait_timeout=25.0)
    assert passed.calls == ["detach 1", "detach 2", "detach 2", "detach 2", "attach 1"], "asked every ten seconds"
    assert "stop the instance" in caught.value.remedy and passed.state()[0] == RUNNING
    assert sorted(passed.live) == sorted(passed.defined)


def test_a_guest_that_cannot_be_saved_gets_its_devices_back(world, passed):
    def refuse(_flags):
        raise Error(INTERNAL, "No space left on device")

    passed.managedSave = refuse
    with pytest.raises(LibvirtError, match="No space left"):
        world.to("suspended")
    assert passed.calls[3:] == ["attach 1", "attach 2", "attach 3"] and sorted(passed.live) == sorted(passed.defined)


def test_a_device_that_did_not_come_back_does_so_when_it_is_asked_again(world, passed):
    world.to("suspended")
    attach = passed.attachDeviceFlags

    def busy(device, flags):
        if same(device, SECOND):
            raise Error(INTERNAL, "in use")
        attach(device, flags)

    passed.attachDeviceFlags = busy
    with pytest.raises(LibvirtError, match="in use"):
        world.to("running")
    assert passed.state()[0] == RUNNING
    passed.attachDeviceFlags = attach
    assert world.to("running") == (True, 1, False)
    assert sorted(passed.live) == sorted(passed.defined)


LOCAL = "<disk type='%s'><driver name='qemu' type='%s'/><source %s='%s'/><target dev='vda'/></disk>"


@pytest.mark.parametrize(("own", "wanted"), [
    (("file", "qcow2", "file", "/i/%s/disk" % UUID), ("file", "raw", "file", "/i/%s/disk" % UUID)),
    (("file", "raw", "file", "/i/%s/disk.swap" % UUID), ("block", "raw", "dev", "/dev/vg/%s_disk.swap" % UUID)),
    (("block", "raw", "dev", "/dev/vg/%s_disk" % UUID), ("file", "qcow2", "file", "/i/%s/disk/disk" % UUID)),
    (("file", "qcow2", "file", "/i/%s/disk" % UUID), ("file", "qcow2", "file", "/elsewhere/%s/disk" % UUID)),
])  # fmt: skip
def test_a_restart_opens_local_disks_as_they_are(world, own, wanted):
    """The settings of the host have changed since they were made: a guest with a disk that is opened in another format destroys it."""
    guest = world.guest()
    defined = []

    def define(xml, _flags):
        defined.append(parse(xml).find("devices/disk"))
        return guest

    world.defineXMLFlags = define
    volume = "<disk type='block'><driver type='raw'/><source dev='/dev/disk/by-path/x'/><target dev='vdb'/></disk>"
    xml = "<domain><uuid>%s</uuid><name>web-1</name><devices>%s%s</devices></domain>"
    guest.XMLDesc = lambda _flags: xml % (UUID, LOCAL % own, volume)
    differs = {"restart": True, "vif_plugging_timeout": 0.0, "differences": lambda _new, _old: ["disks"]}
    spec = DomainSpec(UUID, guest.name(), xml % (UUID, LOCAL % wanted, volume), **differs)
    for keep, expected in ((True, own), (False, wanted)):
        ensure_domain(world, dataclasses.replace(spec, keep_disks=keep))
        disk = defined[-1]
        kind, form, attribute, path = expected
        assert (disk.get("type"), disk.find("driver").get("type")) == (kind, form)
        assert dict(disk.find("source").attrib) == {attribute: path}
