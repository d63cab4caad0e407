# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The playbook power_sync over a real ledger and hosts whose modules answer as the real ones do; what reports and list learn."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.bootflow.compute.plugins.action import compute_report, instance_operation, power_sync
from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.core.instances import states
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.compute import service_state
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.schema import tables
from ansible_collections.bootflow.compute.tests.unit.worlds.actions import WorldPorts, action_of, run_stage
from ansible_collections.bootflow.compute.tests.unit.worlds.world import World, request

from .test_evacuate import force_down

RUNNING, PAUSED, OFF = states.RUNNING, states.POWER_PAUSED, states.SHUTDOWN
FACTS = {"memory_mb": 4096, "local_gb": 40, "vcpus": 4}


class Fleet:
    """Three hosts with their guests."""

    def __init__(self, world: World):
        self.world = world
        self.check_mode = False
        self.run = "s"
        self.hostvars: dict[str, dict[str, t.Any]] = {h: {} for h in ("localhost", "h1", "h2", "h3")}
        self.guests: dict[str, dict[str, int]] = {"h1": {}, "h2": {}, "h3": {}}
        self.deaf: set[str] = set()
        self.away: set[str] = set()
        self.stuck: set[str] = set()
        self.boots: dict[str, str] = {"h1": "first", "h2": "first", "h3": "first"}
        self.broken: dict[str, errors.BootflowError] = {}
        self.asked: list[tuple[str, str]] = []
        self.shown: list[str] = []
        self.warned: list[str] = []

    def play(self, run: str = "s") -> dict[str, t.Any]:
        """As playbooks/power_sync.yml."""
        self.run = run
        begun = self.task(power_sync, "localhost", phase="begin")
        for host in begun["compute"]:
            self.task(power_sync, host, phase="ask")
        if begun["again"]:
            for host in self.task(power_sync, "localhost", phase="others")["compute"]:
                self.task(power_sync, host, phase="ask")
        synced = self.task(power_sync, "localhost", phase="sync")
        for host in synced["compute"]:
            self.task(instance_operation, host, operation="stop", phase="work")
        if synced["again"]:
            for host in self.task(power_sync, "localhost", phase="resume")["compute"]:
                how = {"operation": "reboot", "reboot_type": "HARD", "phase": "work"}
                self.task(instance_operation, host, **how)
        return {**self.task(power_sync, "localhost", phase="finish"), "synced": synced}

    def task(self, module: t.Any, host: str, run: str = "", **options: t.Any) -> dict[str, t.Any]:
        self.world.time += 1
        ports = WorldPorts(self.world, run or self.run, lambda name, arguments: self.answer(host, name, arguments))
        ports.shown, ports.warnings = self.shown, self.warned
        ports.display.display = lambda text, **_how: self.shown.append(text)
        ports.display.warning = self.warned.append
        groups = {"bootflow_compute": ["h1", "h2", "h3"], "rack": ["h2"]}
        variables = {**self.hostvars[host], "hostvars": self.hostvars, "groups": groups, "inventory_hostname": host}
        return run_stage(action_of(module, ports, variables, self.check_mode, **options))

    def answer(self, host: str, name: str, arguments: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
        self.asked.append((host, name))
        if host in self.away:
            return {"unreachable": True, "msg": "no route"}
        mine = self.guests[host]
        if name == "domain_info":
            return {"power_states": dict(mine), "boot_id": self.boots[host]}
        if name == "compute_node_info":
            domains = [{"uuid": u, "name": "x", "power_state": p} for u, p in mine.items()]
            return {
                "compute_node": {**FACTS, "hypervisor_hostname": host, "domains": domains, "boot_id": self.boots[host]}
            }
        if name == "virtual_network":
            names = [n["name"] for n in arguments["networks"]]
            return {"outcomes": {n: {"changed": False, "error": None, "active": True} for n in names}}
        if name == "domain":
            return self.reboot(mine, arguments)
        assert name == "domain_power" and arguments["state"] == "shutdown"
        found: dict[str, t.Any] = {}
        for uuid in (d["uuid"] for d in arguments["domains"]):
            if uuid in self.stuck:
                found[uuid] = {"changed": False, "error": errors.LibvirtError(reason="stuck").as_dict()}
                continue
            forced = uuid in self.deaf
            found[uuid] = {"changed": mine[uuid] != OFF, "error": None, "power_state": OFF, "forced": forced}
            mine[uuid] = mine[uuid] if self.check_mode else OFF
        return {"outcomes": found}

    def reboot(self, mine: dict[str, int], arguments: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
        """A hard reboot of guests of a host."""
        domains: dict[str, t.Any] = {}
        for domain in arguments["domains"]:
            uuid = domain["uuid"]
            error = self.broken.get(uuid)
            domains[uuid] = {
                "changed": True,
                "error": error and error.as_dict(),
                "power_state": OFF if error else RUNNING,
            }
            domains[uuid].update({} if error else {"name": domain["name"]})
            mine[uuid] = mine.get(uuid, OFF) if error or self.check_mode else RUNNING
        return {"outcomes": domains}

    def states(self) -> dict[str, tuple[str, int]]:
        rows = [self.world.row(uuid) for guests in self.guests.values() for uuid in guests]
        return {r.display_name: (r.vm_state, r.power_state) for r in rows}


def running_fleet(world: World) -> Fleet:
    """web-1 to web-4 on h1 and h2, which run; nothing on h3."""
    fleet = Fleet(world)
    world.report("h1", memory=2)
    world.report("h2", memory=2)
    world.accept(request("web", 4))
    placed = {uuid: selection.host for uuid, selection in world.schedule().placed.items()}
    for host in sorted(set(placed.values())):
        world.build(host)
    for uuid, host in placed.items():
        fleet.guests[host][uuid] = RUNNING
    return fleet


@pytest.fixture(name="fleet")
def _fleet(world: World) -> Fleet:
    return running_fleet(world)


def uuid_of(fleet: Fleet, name: str) -> str:
    return next(u for guests in fleet.guests.values() for u in guests if fleet.world.row(u).display_name == name)


def power(fleet: Fleet, name: str, power_state: int) -> str:
    """Behind the ledger's back."""
    uuid = uuid_of(fleet, name)
    fleet.guests[fleet.world.row(uuid).host][uuid] = power_state
    return uuid


def test_nothing_differs(fleet: Fleet) -> None:
    result = fleet.play()
    assert not result["changed"] and not result["instances"] and not result["synced"]["changed"]
    assert fleet.asked == [("h1", "domain_info"), ("h2", "domain_info"), ("h3", "domain_info")] and not fleet.warned
    assert "Power sync of 4 instances on 3 hosts: all are as the ledger has them." in fleet.shown[-1]


def test_off_and_on_again_behind_our_back(fleet: Fleet) -> None:
    one, two = power(fleet, "web-1", OFF), power(fleet, "web-2", PAUSED)
    result = fleet.play()
    assert result["synced"]["changed"] and not result["synced"]["compute"], "no host has anything to do"
    assert fleet.states()["web-1"] == (states.STOPPED, OFF) and fleet.states()["web-2"] == (states.ACTIVE, PAUSED)
    by_uuid = {i["uuid"]: i for i in result["instances"]}
    assert (by_uuid[one]["vm_state"], by_uuid[one]["action"], by_uuid[one]["error"]) == ("stopped", "stop", None)
    assert (by_uuid[two]["vm_state"], by_uuid[two]["action"]) == ("active", None)
    lines = {line.split()[0]: line for line in fleet.shown[-1].splitlines() if line.startswith("web-")}
    assert (
        lines["web-1"].split()[3:8] == ["active", "->", "stopped", "RUNNING", "SHUTDOWN"]
        and "shutdown by itself" in lines["web-1"]
    )
    assert "paused unexpectedly" in lines["web-2"]

    power(fleet, "web-1", RUNNING)
    fleet.deaf, fleet.asked = {one}, []
    result = fleet.play()
    assert result["changed"] and fleet.states()["web-1"] == (states.STOPPED, OFF)
    assert [name for _host, name in fleet.asked].count("domain_power") == 1
    (instance,) = [i for i in result["instances"] if i["uuid"] == one]
    assert instance["forced"] and instance["power_state"] == OFF and instance["reported"] == RUNNING
    assert "not stopped. Calling the stop API. The guest was powered off" in fleet.shown[-1]


def test_check_mode_tells_and_writes_nothing(fleet: Fleet) -> None:
    one, two = power(fleet, "web-1", OFF), uuid_of(fleet, "web-2")
    fleet.play()
    power(fleet, "web-1", RUNNING)
    power(fleet, "web-2", OFF)
    fleet.check_mode = True
    before = fleet.world.everything()
    result = fleet.play()
    assert {i["uuid"]: (i["vm_state"], i["action"]) for i in result["instances"]} == {
        one: ("stopped", "force_stop"),
        two: ("stopped", "stop"),
    }
    assert result["changed"] and "would do (nothing is touched)" in fleet.shown[-1]
    assert fleet.world.everything() == before and fleet.guests[fleet.world.row(one).host][one] == RUNNING


def test_a_stop_that_fails_is_told_and_tried_again(fleet: Fleet) -> None:
    one = power(fleet, "web-1", OFF)
    fleet.play()
    power(fleet, "web-1", RUNNING)
    fleet.stuck = {one}
    result = fleet.play()
    assert "failed" not in result and not result["changed"]
    (instance,) = result["instances"]
    assert instance["error"]["code"] == "LibvirtError" and instance["power_state"] == RUNNING
    assert "the next sync tries it again" in fleet.warned[-1] and "LibvirtError" in fleet.shown[-1]
    fleet.stuck = set()
    assert fleet.play()["changed"] and fleet.states()["web-1"] == (states.STOPPED, OFF)


def test_a_host_that_has_no_answer_for_its_stop(fleet: Fleet) -> None:
    one = power(fleet, "web-1", OFF)
    fleet.play()
    power(fleet, "web-1", RUNNING)
    fleet.task(power_sync, "localhost", phase="begin")
    for host in ("h1", "h2", "h3"):
        fleet.task(power_sync, host, phase="ask")
    fleet.task(power_sync, "localhost", phase="sync")
    result = fleet.task(power_sync, "localhost", phase="finish")
    assert "returned no result" in result["instances"][0]["error"]["message"]
    assert fleet.world.state(one)[:2] == (states.STOPPED, None)


def test_silent_hosts_and_bootflow_hosts(fleet: Fleet) -> None:
    power(fleet, "web-1", OFF)
    host = fleet.world.row(uuid_of(fleet, "web-1")).host
    fleet.away = {host}
    result = fleet.play()
    assert result["synced"]["silent"] == [host] and not result["instances"]
    assert "%s did not answer" % host in fleet.warned[0] and host in fleet.shown[-1].splitlines()[-1]
    fleet.away, fleet.asked = set(), []
    fleet.hostvars["localhost"]["bootflow_hosts"] = ["rack"]
    fleet.play()
    assert fleet.asked == [("h2", "domain_info")]
    fleet.hostvars["localhost"]["bootflow_hosts"] = ["nowhere"]
    with pytest.raises(errors.ComputeHostNotFound, match="nowhere"):
        fleet.play()


@pytest.mark.parametrize(("uuid", "power_state"), [("no uuid", RUNNING), ("6a2c1f0e-3c5e-4d7b-8d3f-9f1c2b3a4d01", 9)])
def test_a_host_that_answers_nonsense_did_not_answer(fleet: Fleet, uuid: str, power_state: int) -> None:
    power(fleet, "web-1", OFF)
    host = fleet.world.row(uuid_of(fleet, "web-1")).host
    fleet.guests[host][uuid] = power_state
    assert (
        fleet.play()["synced"]["silent"] == [host]
        and "answer of host %s to domain_info is invalid" % host in fleet.warned[0]
    )
    del fleet.guests[host][uuid]
    assert fleet.states()["web-1"] == (states.ACTIVE, RUNNING)


def test_numbers_that_differ_are_told_in_novas_words(fleet: Fleet) -> None:
    fleet.guests["h3"]["6a2c1f0e-3c5e-4d7b-8d3f-9f1c2b3a4d01"] = OFF
    assert fleet.play()["synced"]["counts"] == {"h3": {"ledger": 0, "host": 1}}
    assert fleet.warned == [
        "h3: While synchronizing instance power states, found 0 instances in the database and 1 instances on the hypervisor."
    ]


def test_a_report_stops_what_is_off_and_leaves_power_alone(fleet: Fleet) -> None:
    """What a boot, a heartbeat or a list with bootflow_list_refresh learns."""
    one = power(fleet, "web-1", OFF)
    host = fleet.world.row(one).host
    result = fleet.task(compute_report, host)
    assert (result["changed"], result["stopped"]) == (True, [one])
    assert fleet.states()["web-1"] == (states.STOPPED, OFF)
    power(fleet, "web-1", RUNNING)
    result = fleet.task(compute_report, host)
    assert (result["changed"], result["stopped"]) == (True, []) and fleet.states()["web-1"] == ("stopped", RUNNING)
    assert not fleet.task(compute_report, host)["changed"]
    assert ("domain_power" not in [name for _host, name in fleet.asked]) and fleet.guests[host][one] == RUNNING


# --- after a restart of a host --------------------------------------------------------------------------------------------


def restart(fleet: Fleet, host: str) -> list[str]:
    """Its guests lose their power. Returns them."""
    fleet.boots[host] += " again"
    fleet.guests[host] = dict.fromkeys(fleet.guests[host], OFF)
    return sorted(fleet.guests[host])


@pytest.fixture
def booted(fleet: Fleet) -> Fleet:
    """A fleet whose hosts' starts are known."""
    fleet.play()
    return fleet


def boot_of(fleet: Fleet, host: str) -> str:
    return next(r.boot_id for r in fleet.world.rows(tables.compute_nodes, tables.compute_nodes.c.host == host))


def test_active_guests_run_again_and_others_stay_off(booted: Fleet) -> None:
    fleet = booted
    stopped = power(fleet, "web-1", OFF)
    fleet.play()
    host = fleet.world.row(stopped).host
    mine = [u for u in restart(fleet, host) if u != stopped]
    report = fleet.task(compute_report, host)
    assert report["to_resume"] == mine and report["stopped"] == [] and "power_sync" in fleet.shown[-1]
    assert {fleet.world.row(u).vm_state for u in mine} == {states.ACTIVE}, "a report neither stops nor starts them"
    assert boot_of(fleet, host) == "first"
    result = fleet.play()
    assert result["changed"]
    assert {fleet.world.state(u)[:2] for u in mine} == {(states.ACTIVE, None)}
    assert {fleet.guests[host][u] for u in mine} == {RUNNING} and fleet.guests[host][stopped] == OFF
    shown = {i["uuid"]: i for i in result["instances"]}
    assert {shown[u]["action"] for u in mine} == {"resume_state_on_host_boot"}
    assert {(shown[u]["vm_state"], shown[u]["power_state"], shown[u]["error"]) for u in mine} == {
        ("active", RUNNING, None)
    }
    assert "The host restarted. Starting the guest again." in fleet.shown[-1] and boot_of(fleet, host) == "first again"
    assert [a.message for a in fleet.world.rows(tables.instance_actions) if a.action == "reboot"] == [None] * len(mine)
    power(fleet, fleet.world.row(mine[0]).display_name, OFF)
    fleet.play()
    assert fleet.world.row(mine[0]).vm_state == states.STOPPED, "afterwards it shuts itself down as ever"


def test_without_the_setting_they_are_stopped(booted: Fleet) -> None:
    fleet = booted
    for host in ("h1", "h2", "h3"):
        fleet.hostvars[host]["bootflow_resume_guests_state_on_host_boot"] = False
    mine = restart(fleet, "h1")
    result = fleet.play()
    assert not result["synced"]["again"] and boot_of(fleet, "h1") == "first again"
    assert {fleet.world.row(u).vm_state for u in mine} == {states.STOPPED}


def test_a_run_that_dies_leaves_them_to_the_next(booted: Fleet) -> None:
    """At its worst moment: they are in a reboot, and nothing was done."""
    fleet = booted
    mine = restart(fleet, "h1")
    fleet.task(power_sync, "localhost", phase="begin")
    for host in ("h1", "h2", "h3"):
        fleet.task(power_sync, host, phase="ask")
    fleet.task(power_sync, "localhost", phase="sync")
    assert {fleet.world.state(u)[1] for u in mine} == {"reboot_started_hard"}
    fleet.task(compute_report, "h1")
    assert boot_of(fleet, "h1") == "first", "a run is at it"
    fleet.world.time += 601
    report = fleet.task(compute_report, "h1", run="t")
    assert set(report["settled"].values()) == {states.ACTIVE} and report["to_resume"] == mine
    result = fleet.play(run="t")
    assert {fleet.world.state(u)[:2] for u in mine} == {(states.ACTIVE, None)}
    assert {fleet.guests["h1"][u] for u in mine} == {RUNNING} and result["changed"]
    assert boot_of(fleet, "h1") == "first again"


def test_one_that_cannot_start_is_in_error_and_a_silent_host_is_tried_again(booted: Fleet) -> None:
    fleet = booted
    broken, *others = restart(fleet, "h1")
    fleet.broken = {broken: errors.InvalidDiskInfo(reason="the disk is gone")}
    result = fleet.play()
    assert fleet.world.row(broken).vm_state == states.ERROR and boot_of(fleet, "h1") == "first again"
    assert {fleet.world.row(u).vm_state for u in others} == {states.ACTIVE}
    (shown,) = [i for i in result["instances"] if i["error"]]
    assert shown["vm_state"] == "error" and "was not started after the restart of its host" in fleet.warned[-1]

    restart(fleet, "h2")
    mine = sorted(fleet.guests["h2"])
    fleet.task(power_sync, "localhost", phase="begin")
    for host in ("h1", "h2", "h3"):
        fleet.task(power_sync, host, phase="ask")
    fleet.task(power_sync, "localhost", phase="sync")
    fleet.task(power_sync, "localhost", phase="resume")
    fleet.task(power_sync, "localhost", phase="finish")  # h2 has no result
    assert {fleet.world.state(u)[:2] for u in mine} == {(states.ACTIVE, None)} and boot_of(fleet, "h2") == "first"
    fleet.play()
    assert {fleet.guests["h2"][u] for u in mine} == {RUNNING} and boot_of(fleet, "h2") == "first again"


@pytest.mark.parametrize(
    "why",
    [
        errors.HypervisorUnavailable(host="h1", reason="it starts"),
        errors.LedgerError(url="pg", reason="it is away"),
        errors.FailedISCSITargetPortalLogin(),
        errors.LibvirtError(
            reason="qemu: iSCSI: Failed to connect to LUN : Failed to start full connect Couldn't connect transport"
        ),
        errors.VolumeDeviceNotFound(device="/dev/disk/by-path/x"),
    ],
)
def test_what_is_away_for_a_while_leaves_none_in_error(booted: Fleet, why: errors.BootflowError) -> None:
    """All guests of a host were in error after a power failure because libvirtd, the ledger, or the storage host was not there yet."""
    first, *_others = restart(booted, "h1")
    booted.broken = {first: why}
    booted.play()
    assert booted.world.row(first).vm_state == states.ACTIVE and boot_of(booted, "h1") == "first"
    booted.broken = {}
    booted.play()
    assert booted.guests["h1"][first] == RUNNING and boot_of(booted, "h1") == "first again"


def test_a_guest_whose_volume_is_refused_for_good_is_in_error(booted: Fleet) -> None:
    """It was tried again at each sync, and as long as that went on, whoever shut down another guest of the host found it started again."""
    first, second, *_others = restart(booted, "h1")
    refused = errors.FailedISCSITargetPortalLogin(message="the target rejected the login")
    refused.retryable = False
    booted.broken = {first: refused}
    booted.play()
    assert booted.world.row(first).vm_state == states.ERROR and boot_of(booted, "h1") == "first again"
    booted.guests["h1"][second] = OFF
    booted.play()
    assert booted.world.state(second)[0] == states.STOPPED and booted.guests["h1"][second] == OFF


def test_on_a_host_that_is_forced_down_none_runs_again_before_it_is_up(booted: Fleet) -> None:
    """An evacuation that failed left them there; who repeats it would run them twice."""
    fleet = booted
    force_down(fleet.world, "h1")
    mine = restart(fleet, "h1")
    for _sync in range(2):
        assert fleet.task(compute_report, "h1")["to_resume"] == []
        result = fleet.play()
        assert not result["synced"]["again"] and boot_of(fleet, "h1") == "first"
        assert {fleet.world.state(u)[:2] for u in mine} == {(states.ACTIVE, None)} and "is forced down" in fleet.shown[
            -1
        ]
        assert {fleet.guests["h1"][u] for u in mine} == {OFF}
    with fleet.world.ledger.write() as tx:
        service_state.set_state(tx.for_run(fleet.world.context()), ["h1"], "up")
    assert fleet.play()["changed"] and boot_of(fleet, "h1") == "first again"
    assert {fleet.guests["h1"][u] for u in mine} == {RUNNING}


def test_one_that_runs_on_another_host_is_not_started_twice(booted: Fleet) -> None:
    """The ledger was restored from before the instance went there, and the machine that it was on came back."""
    fleet = booted
    moved, *others = restart(fleet, "h1")
    assert others
    fleet.guests["h2"][moved] = RUNNING
    for _sync in range(2):
        fleet.play()
        assert fleet.guests["h1"][moved] == OFF and {fleet.guests["h1"][u] for u in others} == {RUNNING}
        assert fleet.world.state(moved)[:2] == (states.ACTIVE, None)
        assert "h2 reports that the guest runs on it, so the guest is not started a second time" in fleet.shown[-1]
        assert boot_of(fleet, "h1") == "first", "it still waits"
    del fleet.guests["h2"][moved]
    assert fleet.play()["changed"] and fleet.guests["h1"][moved] == RUNNING and boot_of(fleet, "h1") == "first again"


def test_a_wrong_report_keeps_no_guest_off_for_ever(booted: Fleet) -> None:
    """Nobody can tell from outside which of two hosts lies: both are named, and who forces one down decides."""
    fleet = booted
    mine = restart(fleet, "h1")
    fleet.guests["h2"].update(dict.fromkeys(mine, RUNNING))
    fleet.play()
    assert {fleet.guests["h1"][u] for u in mine} == {OFF}
    told = fleet.shown[-1]
    assert "Host h1 restarted, and the guest is off there; but h2 reports" in told
    assert "If the report of h2 is wrong, force that host down" in told
    force_down(fleet.world, "h2")
    fleet.play()
    assert {fleet.guests["h1"][u] for u in mine} == {RUNNING} and boot_of(fleet, "h1") == "first again"


@pytest.mark.parametrize("check_mode", [False, True])
def test_a_sync_of_one_host_that_restarted_asks_the_others_as_well(booted: Fleet, check_mode: bool) -> None:
    """As the rulebook's: it started what ran elsewhere, as it had asked nobody else."""
    fleet = booted
    fleet.check_mode, fleet.asked = check_mode, []
    fleet.hostvars["localhost"]["bootflow_hosts"] = ["h1"]
    fleet.play()
    assert [host for host, _name in fleet.asked] == ["h1"], "while none restarted, no other is asked"
    moved, *others = restart(fleet, "h1")
    fleet.guests["h2"][moved] = RUNNING
    fleet.away = {"h3"}
    result = fleet.play()
    assert [i["uuid"] for i in result["instances"] if i["action"]] == others
    assert "h2 reports that the guest runs on it, so the guest is not started a second time" in fleet.shown[-1]
    assert fleet.guests["h1"][moved] == OFF and result["synced"]["asked"] == ["h1"]


def test_check_mode_tells_what_would_run_again(booted: Fleet) -> None:
    fleet = booted
    mine = restart(fleet, "h1")
    fleet.check_mode = True
    before = fleet.world.everything()
    result = fleet.play()
    assert {i["uuid"] for i in result["instances"]} == set(mine) and "would do (nothing is touched)" in fleet.shown[-1]
    assert fleet.world.everything() == before and set(fleet.guests["h1"].values()) == {OFF}
