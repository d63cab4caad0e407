# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How long a host may take for a module, and the end of the wait for one that does not answer (S8)."""

from __future__ import annotations

import signal
import subprocess
import time
import typing as t

import pytest

from ansible_collections.bootflow.compute.plugins.action import boot_build
from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.schema import tables
from ansible_collections.bootflow.compute.plugins.plugin_utils.run import time_limits
from ansible_collections.bootflow.compute.tests.unit.worlds.actions import WorldPorts, action_of
from ansible_collections.bootflow.compute.tests.unit.worlds.world import World, request


class Host:
    def __init__(self, **variables: t.Any):
        self.task_vars: dict[str, t.Any] = {"bootflow_" + name: value for name, value in variables.items()}

    def variable(self, name: str, default: t.Any = None) -> t.Any:
        return self.task_vars.get(name, default)


GUEST = {"wait_timeout": 60, "vif_plugging_timeout": 300}
POWER = {"shutdown_timeout": 60, "wait_timeout": 10, "vif_plugging_timeout": 20, "workers": 1}


@pytest.mark.parametrize(
    "module, arguments, seconds",
    [
        ("compute_node_info", {}, 120),
        ("storage_backend_info", {}, 120),
        ("virtual_network", {}, 7),
        ("iscsi_target", {}, 7),
        ("volume_lvm", {}, 86400),
        ("instance_cleanup", {"volume_group": "", "instances": [{"disks": []}]}, 7),
        ("instance_cleanup", {"volume_group": "", "instances": [{"disks": ["/dev/sdx"]}]}, 86400),
        ("instance_cleanup", {"volume_group": "vg", "instances": [{"disks": []}]}, 86400),
        ("instance_disks", {"instances": [{}] * 11, "workers": 10, "place_timeout": 600}, 7200 + 2 * 600),
        ("domain", {"domains": [GUEST], "workers": 1, "place_timeout": 600}, 7 + 600 + 360),
        (
            "domain",
            {"domains": [{**GUEST, "wait_console": {"timeout": 100}}, GUEST], "workers": 1, "place_timeout": 0},
            7 + 2 * 460,
        ),
        ("domain", {"domains": [{**GUEST, "wait_agent": 50}], "workers": 1, "place_timeout": 0}, 7 + 410),
        ("domain", {"domains": [{**GUEST, "wait_cloud_init": {"timeout": 50}}], "workers": 1}, 7 + 410),
        ("domain_info", {}, 120),
        ("domain_power", {"state": "running", "domains": [{}], **POWER}, 7 + 30),
        ("domain_power", {"state": "shutdown", "domains": [{}], **POWER}, 7 + 60),
        ("domain_power", {"state": "shutdown", "domains": [{"shutdown_timeout": 500}], **POWER}, 7 + 500),
        (
            "domain_power",
            {"state": "rebooted", "domains": [{}], "wait_soft_reboot_seconds": 100, **POWER},
            7 + 130,
        ),
        ("domain_power", {"state": "paused", "domains": [{}], **POWER}, 7),
        ("domain_power", {"state": "suspended", "domains": [{}], **POWER}, 7200 + 10),
        ("instance_build", {"domains": [{"shutdown_timeout": 90}], "wait_timeout": 10, "workers": 1}, 7 + 90 + 10),
        ("domain_migration", {"step": "describe"}, 120),
        ("domain_migration", {"step": "prepare"}, 7),
        ("domain_migration", {"step": "migrate", "departing_guests": [{"completion_timeout": 50}] * 2}, 7200 + 200),
        ("domain_migration", {"step": "close"}, 7),
        ("domain_migration", {"step": "intervene"}, 7),
        ("domain_rescue", {"state": "saved", "domains": [{}], **POWER}, 7),
        ("domain_rescue", {"state": "restored", "domains": [{}], **POWER}, 7 + 30),
    ],
)
def test_a_module_has_its_time_and_what_it_waits_for(module: str, arguments: dict[str, t.Any], seconds: float) -> None:
    assert time_limits.limit_of(Host(work_timeout=7), module, arguments) == seconds


def test_what_does_not_answer_ends_with_the_programs_that_it_started() -> None:
    alarm = signal.getsignal(signal.SIGALRM)  # pytest-timeout's, where tests have a limit
    before = signal.getitimer(signal.ITIMER_REAL)[0]
    started: list[subprocess.Popen[bytes]] = []
    begun = time.monotonic()
    with pytest.raises(time_limits.TimeIsUp), time_limits.given(0.3):
        try:
            started.append(subprocess.Popen(["sleep", "60"]))
            started[0].wait()
        except Exception:  # as connection plugins do, which try again
            time.sleep(60)
    assert time.monotonic() - begun < 30
    assert started[0].wait(10) == -signal.SIGKILL
    assert signal.getsignal(signal.SIGALRM) == alarm
    assert signal.getitimer(signal.ITIMER_REAL)[0] == pytest.approx(max(before - (time.monotonic() - begun), 0), abs=20)


def test_a_timeout_of_ansible_that_ends_earlier_holds() -> None:
    class Outer(BaseException):
        pass

    def ring(*_args: t.Any) -> None:
        raise Outer

    before = signal.signal(signal.SIGALRM, ring)
    try:
        signal.setitimer(signal.ITIMER_REAL, 60)
        with time_limits.given(0.2), pytest.raises(time_limits.TimeIsUp), time_limits.given(0.1):
            time.sleep(5)
        assert 50 < signal.getitimer(signal.ITIMER_REAL)[0] <= 60
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        with pytest.raises(Outer), time_limits.given(60):
            time.sleep(5)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_the_builds_of_a_host_that_hangs_are_given_back_and_it_is_left_out(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is asked once: not again to clean it up, which the next report does."""
    monkeypatch.setattr(time_limits, "GRACE", 0.0)
    monkeypatch.setattr(time_limits, "limit_of", lambda *_args: 2.0)
    world.report("h1")
    (uuid,) = world.accept(request("web")).created
    world.schedule()
    calls: list[str] = []

    def hang(name: str, arguments: t.Any) -> t.Any:
        calls.append(name)
        time.sleep(60)

    world.report("h2")
    variables = {"inventory_hostname": "h1", "hostvars": {"h1": {}}, "bootflow_instances": [{"name": "web"}]}
    result = action_of(boot_build, WorldPorts(world, "a", hang), variables).act()
    assert calls == ["virtual_network"]
    assert [f["error"]["code"] for f in result["failed_builds"]] == ["HostTimeout"]
    assert world.state(uuid) == ("building", "scheduling", None)
    assert world.cleanups() == {(uuid, "h1")}
    assert world.used("h1")[0] > world.used("h2")[0], "its claim stays until the host has been cleaned"
    unreachable = {r.host: r.unreachable_reason for r in world.rows(tables.compute_nodes)}
    assert unreachable["h1"] is not None and unreachable["h2"] is None
    world.schedule()
    assert world.state(uuid) == ("building", None, "h2")


def test_a_host_that_ended_the_module_itself_is_cleaned_at_once_and_left_out(world: World) -> None:
    world.report("h1")
    (uuid,) = world.accept(request("web")).created
    world.schedule()
    calls: list[str] = []

    def answer(name: str, arguments: t.Any) -> dict[str, t.Any]:
        calls.append(name)
        if name == "instance_cleanup":
            return {"outcomes": {i["uuid"]: {"changed": True, "error": None} for i in arguments["instances"]}}
        late = errors.HostTimeout(host="h1", module=name, seconds=300).as_dict()
        return {"failed": True, "msg": late.pop("message"), "error_code": late.pop("code"), **late}

    variables = {"inventory_hostname": "h1", "hostvars": {"h1": {}}, "bootflow_instances": [{"name": "web"}]}
    result = action_of(boot_build, WorldPorts(world, "a", answer), variables).act()
    assert calls == ["virtual_network", "instance_cleanup"]
    assert [f["error"]["code"] for f in result["failed_builds"]] == ["HostTimeout"]
    assert world.state(uuid) == ("building", "scheduling", None) and world.cleanups() == set()
    assert all(r.unreachable_reason for r in world.rows(tables.compute_nodes))


def test_a_host_that_does_not_even_start_python_is_given_up_soon(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The module that builds may take long; a host that hangs at once is not waited for so long."""
    monkeypatch.setattr(time_limits, "GRACE", 0.0)
    world.report("h1")
    (uuid,) = world.accept(request("web")).created
    world.schedule()
    variables = {
        "inventory_hostname": "h1",
        "hostvars": {"h1": {}},
        "bootflow_instances": [{"name": "web"}],
        "bootflow_work_timeout": 1,
    }
    ports = WorldPorts(world, "a")
    ports.hangs = True
    begun = time.monotonic()
    (failed,) = action_of(boot_build, ports, variables).act()["failed_builds"]
    assert (failed["error"]["code"], failed["outcome"]) == ("HostTimeout", "rescheduled")
    assert ports.probed == 1 and time.monotonic() - begun < 30
    assert world.cleanups() == {(uuid, "h1")}
