# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Evacuations, all phases on a real ledger, with hosts whose modules answer as the real ones do."""

from __future__ import annotations

import typing as t
from dataclasses import replace

import pytest

from ansible_collections.bootflow.compute.plugins.action import instance_evacuate
from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.core.instances import states
from ansible_collections.bootflow.compute.plugins.module_utils.flows.instances import lock, operation
from ansible_collections.bootflow.compute.plugins.module_utils.flows.instances.operation import Selection
from ansible_collections.bootflow.compute.plugins.module_utils.flows.instances.operations import OPERATIONS
from ansible_collections.bootflow.compute.plugins.module_utils.flows.recovery import operations as recovery
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.compute import cleanups, nodes, service_state
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.schema import tables
from ansible_collections.bootflow.compute.plugins.plugin_utils.operations.rebuilds import rebuild
from ansible_collections.bootflow.compute.tests.unit.worlds.actions import (
    WorldPorts,
    action_of,
    leave_report,
    run_stage,
)
from ansible_collections.bootflow.compute.tests.unit.worlds.world import World, request

from .test_instance_operation import vm_states
from .test_rebuild import Rebuilding, row_of

HOSTS = ("h1", "h2", "h3")


class Evacuating(Rebuilding):
    def __init__(self, world: World):
        super().__init__(world)
        self.hostvars["h3"] = {}
        self.silent: set[str] = set()  # modules without an answer
        self.keeps = False  # hosts keep what is not of the cleanup's move

    def answer(self, host: str, name: str, arguments: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
        if name in self.silent:
            return {"unreachable": True, "msg": "no route"}
        if name == "instance_cleanup" and self.keeps:
            kept = {"changed": False, "removed": [], "kept": True, "error": None}
            return {"outcomes": {i["uuid"]: kept for i in arguments["instances"]}}
        if name == "instance_disks_fetch":  # which makes the folders of the instances, and refuses those that are there
            assert all(i["made_for"] and not i["files"] for i in arguments["instances"])
            return {"outcomes": {i["uuid"]: self.outcome(name, i["uuid"], disks=[]) for i in arguments["instances"]}}
        return super().answer(host, name, arguments)

    def makes_disks(self, arguments: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
        self.disks.update({i["uuid"]: i["disks"] for i in arguments["instances"]})
        return {
            i["uuid"]: self.outcome("instance_disks", i["uuid"], disks=[], pending=[]) for i in arguments["instances"]
        }

    def phase(self, host: str, phase: str, **options: t.Any) -> dict[str, t.Any]:
        self.hostvars[host].update(self.variables)
        ports = WorldPorts(self.world, "o", lambda name, arguments: self.answer(host, name, arguments))
        ports.display.display = lambda text, **_how: self.shown.append(text)
        hosts = {"hostvars": self.hostvars, "groups": {"bootflow_compute": list(HOSTS)}}
        variables = {**self.hostvars[host], **hosts, "inventory_hostname": host, "ansible_play_hosts_all": list(HOSTS)}
        action = action_of(instance_evacuate, ports, variables, self.check_mode, phase=phase, **options)
        return run_stage(action)

    def evacuate(self, **options: t.Any) -> dict[str, t.Any]:
        self.phase("localhost", "check", **options)
        begun = self.phase("localhost", "begin", **options)
        for host in begun["compute"]:
            self.phase(host, "build")
        return self.phase("localhost", "finish", **options)


@pytest.fixture
def fleet(world: World) -> Evacuating:
    """web-1 and web-2 on h1; h2 has room for one of them."""
    world.report("h1", memory=2)
    world.accept(request("web", 2))
    world.schedule()
    world.build("h1")
    world.report("h2", memory=1)
    return Evacuating(world)


def force_down(world: World, host: str = "h1") -> None:
    with world.ledger.write() as tx:
        service_state.set_state(tx.for_run(world.context()), [host], "forced_down", "dead")


def claims_of(world: World) -> list[tuple[str, str, str]]:
    hosts = {n.id: n.host for n in world.rows(tables.compute_nodes)}
    names = {r.uuid: r.display_name for r in world.rows(tables.instances)}
    return sorted((names[c.instance_uuid], hosts[c.compute_node_id], c.kind) for c in world.rows(tables.claims))


def test_a_host_that_is_not_forced_down(fleet: Evacuating) -> None:
    before = fleet.world.everything()
    with pytest.raises(errors.ComputeServiceInUse, match="Compute service of h1 is still in use"):
        fleet.evacuate(hosts=["h1"])
    assert fleet.world.everything() == before


def test_over_to_another_host_and_the_old_one_is_cleaned(fleet: Evacuating) -> None:
    world = fleet.world
    world.report("h3", memory=1)
    force_down(world)
    addresses = world.rows(tables.ip_allocations)
    done = fleet.evacuate(hosts=["h1"])
    assert done["changed"] and "failed" not in done
    rows = {n: row_of(world, n) for n in ("web-1", "web-2")}
    assert sorted(str(r.host) for r in rows.values()) == ["h2", "h3"] and set(fleet.disks) == {
        r.uuid for r in rows.values()
    }
    assert vm_states(world) == dict.fromkeys(rows, (states.ACTIVE, None))
    assert claims_of(world) == sorted(
        [(n, str(r.host), "build") for n, r in rows.items()] + [(n, "h1", "build") for n in rows]
    )
    assert {p.host for p in world.rows(tables.ports)} == {"h2", "h3"} and world.rows(tables.ip_allocations) == addresses
    assert [(m.migration_type, m.status) for m in world.rows(tables.migrations)] == [("evacuation", "done")] * 2
    with world.ledger.write() as tx:
        due = cleanups.of_host(tx.for_run(world.context()), "h1")
        assert {c.instance_uuid for c in due} == {r.uuid for r in rows.values()}
        cleanups.done(tx.for_run(world.context()), {("h1", c.instance_uuid) for c in due})
    assert claims_of(world) == sorted((n, str(r.host), "build") for n, r in rows.items()), "the old host is free again"
    assert world.rows(tables.ip_allocations) == addresses
    actions = {(a.action, a.message) for a in world.rows(tables.instance_actions) if a.action != "create"}
    assert actions == {("evacuate", None)}


@pytest.mark.parametrize("firmware", ["uefi", "bios"])
def test_uefi_variables_are_lost_with_a_host_and_that_is_told(fleet: Evacuating, firmware: str) -> None:
    facts = {"memory_mb": 2048, "local_gb": 4000, "vcpus": 500, "host_uuid": "", "uefi": True}
    with fleet.world.ledger.write() as tx:
        its = tx.for_run(fleet.world.context())
        for host in HOSTS:
            nodes.record_report(its, host, {"hypervisor_hostname": host, **facts}, {"ram_allocation_ratio": 1.0})
    fleet.variables["bootflow_firmware"] = firmware
    force_down(fleet.world)
    done = fleet.evacuate(hosts=["h1"])
    assert "failed" not in done
    assert fleet.shown[-1].count("UEFI variables: new") == (2 if firmware == "uefi" else 0), fleet.shown[-1]


def test_the_same_again_goes_on_with_those_that_are_left(fleet: Evacuating) -> None:
    """Of those that are named, some are on hosts that work. It told to force these down."""
    world = fleet.world
    force_down(world)
    named = {"names": ["web-1", "web-2"]}
    assert fleet.evacuate(**named)["failed"], "h2 has room for one"
    gone = {n for n in ("web-1", "web-2") if row_of(world, n).host == "h2"}
    assert len(gone) == 1
    world.report("h3", memory=1)
    done = fleet.evacuate(**named)
    assert "failed" not in done and [i["name"] for i in done["instances"]] == sorted({"web-1", "web-2"} - gone)
    assert {str(row_of(world, n).host) for n in named["names"]} == {"h2", "h3"}
    (line,) = [line for line in fleet.shown[-1].splitlines() if "was evacuated before" in line]
    assert line.split()[0] in gone
    with pytest.raises(errors.ComputeServiceInUse):  # who means all of them means other hosts
        fleet.evacuate(**named)


@pytest.mark.parametrize(
    "name, at_work", [("stop", "powering-off"), ("hard_reboot", "reboot_started_hard"), ("rebuild", "rebuild_spawning")]
)
def test_what_a_run_did_on_the_dead_host_does_not_keep_an_instance_there(
    fleet: Evacuating, name: str, at_work: str
) -> None:
    """Nor does a lock: both as in Nova."""
    world = fleet.world
    world.report("h3", memory=1)
    with world.ledger.write() as tx:
        operation.begin(tx.for_run(world.context("x")), OPERATIONS[name], Selection(names=["web-1"]), HOSTS)
    with world.ledger.write() as tx:
        other = replace(world.context("l"), run=replace(world.context("l").run, actor="bob"))
        lock.lock(tx.for_run(other), Selection(names=["web-2"]))
    assert vm_states(world)["web-1"] == (states.ACTIVE, at_work)
    force_down(world)
    done = fleet.evacuate(hosts=["h1"])
    assert "failed" not in done and vm_states(world) == dict.fromkeys(("web-1", "web-2"), (states.ACTIVE, None))
    called = OPERATIONS[name].called
    (left,) = [a for a in world.rows(tables.instance_actions) if a.action == called]
    assert left.finish_time is not None and left.message == "Error"
    events = [e for e in world.rows(tables.instance_action_events) if e.event == name]
    assert ["evacuate took its place" in str(e.details) for e in events] == [True] * len(events)


@pytest.mark.parametrize("task_state", [states.DELETING, states.RESIZE_MIGRATING, states.REBUILDING])
def test_what_is_not_of_one_host_alone_is_not_evacuated(fleet: Evacuating, task_state: str) -> None:
    force_down(fleet.world)
    with fleet.world.ledger.write() as tx:
        tx.execute(tables.instances.update().values(task_state=task_state, run_id="gone"))
    with pytest.raises(errors.InstanceInvalidState, match="task_state %s" % task_state):
        fleet.evacuate(hosts=["h1"])


def test_one_that_cannot_be_evacuated_keeps_no_other_on_a_dead_host(fleet: Evacuating) -> None:
    fleet.play("pause", names=["web-1"])
    force_down(fleet.world)
    before = fleet.world.everything()
    with pytest.raises(errors.InstanceInvalidState, match="while it is in vm_state paused") as refused:
        fleet.evacuate(names=["web-1", "web-2"])
    assert "Bring the host back" in refused.value.remedy and "unpause" not in refused.value.remedy
    assert fleet.world.everything() == before, "it was named: all or none"
    done = fleet.evacuate(hosts=["h1"])
    assert done["failed"] and done["changed"]
    (stays,) = done["failed_items"]
    assert (stays["name"], stays["error"]["code"]) == ("web-1", "InstanceInvalidState")
    assert {n: str(row_of(fleet.world, n).host) for n in ("web-1", "web-2")} == {"web-1": "h1", "web-2": "h2"}
    assert vm_states(fleet.world) == {"web-1": (states.PAUSED, None), "web-2": (states.ACTIVE, None)}
    with pytest.raises(errors.InstanceInvalidState):
        fleet.evacuate(hosts=["h1"])


def test_check_mode_knows_what_hosts_report_in_its_run(fleet: Evacuating) -> None:
    force_down(fleet.world)
    fleet.check_mode = True
    assert "h3" in fleet.phase("localhost", "check", hosts=["h1"])["ask"]
    facts = {"hypervisor_hostname": "h3", "memory_mb": 4096, "local_gb": 4000, "vcpus": 500, "domains": []}
    leave_report(WorldPorts(fleet.world, "o"), "h3", {"reported": True, "compute_node": facts})
    before = fleet.world.everything()
    begun = fleet.phase("localhost", "begin", hosts=["h1"])
    assert not begun["not_placed"] and "h3" in {i["destination"] for i in begun["instances"]}
    assert fleet.world.everything() == before


def test_one_for_which_there_is_no_host_stays(fleet: Evacuating) -> None:
    force_down(fleet.world)
    done = fleet.evacuate(hosts=["h1"])
    assert [i["error"]["code"] for i in done["failed_items"]] == ["NoValidHost"]
    hosts = sorted(str(row_of(fleet.world, n).host) for n in ("web-1", "web-2"))
    assert hosts == ["h1", "h2"] and set(vm_states(fleet.world).values()) == {(states.ACTIVE, None)}
    assert len(claims_of(fleet.world)) == 3


def test_one_that_was_off_stays_off(fleet: Evacuating) -> None:
    fleet.play("stop", names=["web-1"])
    force_down(fleet.world)
    done = fleet.evacuate(names=["web-1"])
    assert [(i["vm_state"], i["power_state"], i["host"]) for i in done["instances"]] == [("stopped", 4, "h2")]


@pytest.mark.parametrize("module", ["domain", "instance_disks"])
def test_a_new_host_that_fails(fleet: Evacuating, module: str) -> None:
    force_down(fleet.world)
    fleet.fails = {module: row_of(fleet.world, "web-1").uuid}
    before = claims_of(fleet.world)
    done = fleet.evacuate(names=["web-1"])
    assert [(i["host"], i["vm_state"], bool(i["error"])) for i in done["instances"]] == [("h1", "active", True)]
    assert not fleet.world.rows(tables.cleanups) and claims_of(fleet.world) == before
    fleet.fails = {}
    assert "failed" not in fleet.evacuate(names=["web-1"])
    assert row_of(fleet.world, "web-1").host == "h2"


def test_a_new_host_that_had_not_begun_to_start_the_guest_and_is_not_cleaned(fleet: Evacuating) -> None:
    force_down(fleet.world)
    uuid = row_of(fleet.world, "web-1").uuid
    fleet.silent = {"instance_disks", "instance_cleanup"}
    fleet.variables["bootflow_wait_console"] = "login:"  # stage by stage
    before = claims_of(fleet.world)
    done = fleet.evacuate(names=["web-1"])
    assert [(i["host"], i["vm_state"], bool(i["error"])) for i in done["instances"]] == [("h1", "active", True)]
    assert [(c.host, c.instance_uuid) for c in fleet.world.rows(tables.cleanups)] == [("h2", uuid)]
    assert claims_of(fleet.world) == sorted([*before, ("web-1", "h2", "build")])
    fleet.world.report("h3", memory=1)
    fleet.silent = set()
    assert "failed" not in fleet.evacuate(names=["web-1"])
    assert row_of(fleet.world, "web-1").host == "h3", "not where leftovers of it are"


def test_a_guest_that_is_to_stay_off_cannot_run_on_its_new_host(fleet: Evacuating) -> None:
    fleet.play("stop", names=["web-1"])
    force_down(fleet.world)
    fleet.silent = {"domain", "instance_cleanup"}
    done = fleet.evacuate(names=["web-1"])
    assert [(i["host"], i["vm_state"], bool(i["error"])) for i in done["instances"]] == [("h1", "stopped", True)]


def test_a_definition_that_is_not_written_leaves_the_guest_on_its_new_host(
    fleet: Evacuating, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The guest runs there: the instance is there, and the other instances of the run are not affected."""
    force_down(fleet.world)

    def breaks(_work: rebuild.Rebuilding) -> t.NoReturn:
        raise OSError("no space left")

    monkeypatch.setattr(rebuild.Rebuilding, "write_domains", breaks)
    done = fleet.evacuate(names=["web-1", "web-2"])
    assert {(i["host"], i["vm_state"]) for i in done["instances"]} == {("h2", "active")}
    assert set(vm_states(fleet.world).values()) == {(states.ACTIVE, None)}


@pytest.mark.parametrize("how", ["no answer", "fails after its start", "no result", "is kept"])
def test_a_guest_that_may_run_on_its_new_host_is_started_nowhere_else(fleet: Evacuating, how: str) -> None:
    """It was back on the old host, and evacuated again: two copies ran."""
    world = fleet.world
    force_down(world)
    uuid = row_of(world, "web-1").uuid
    if how == "fails after its start":
        fleet.fails = {"domain": uuid, "instance_cleanup": uuid}
    elif how == "is kept":  # its start gave the folder another mark, and then the answer was lost
        fleet.silent, fleet.keeps = {"domain"}, True
    else:
        fleet.silent = {"domain", "instance_cleanup"}
    fleet.phase("localhost", "begin", names=["web-1"])
    if how != "no result":
        fleet.phase("h2", "build")
    done = fleet.phase("localhost", "finish", names=["web-1"])
    (found,) = done["instances"]
    assert (found["host"], found["vm_state"]) == ("h2", "error") and "may run on h2" in found["error"]["remedy"]
    assert [(c.host, c.instance_uuid) for c in world.rows(tables.cleanups)] == [("h1", uuid)]
    fleet.fails, fleet.silent, fleet.keeps = {}, set(), False
    world.report("h3", memory=1)
    with pytest.raises(errors.ComputeServiceInUse, match="h2"):
        fleet.evacuate(names=["web-1"])
    if how == "no result":
        assert "failed" not in fleet.play("rebuild", names=["web-1"])
        assert vm_states(world)["web-1"] == (states.ACTIVE, None) and row_of(world, "web-1").host == "h2"
        return
    force_down(world, "h2")
    assert "failed" not in fleet.evacuate(names=["web-1"])
    assert (row_of(world, "web-1").host, vm_states(world)["web-1"]) == ("h3", (states.ACTIVE, None))
    assert {c.host for c in world.rows(tables.cleanups)} == {"h1", "h2"}


def test_the_old_host_was_cleaned_before_the_new_one_failed(fleet: Evacuating) -> None:
    world = fleet.world
    force_down(world)
    uuid = row_of(world, "web-1").uuid
    fleet.fails = {"domain": uuid}
    fleet.phase("localhost", "begin", names=["web-1"])
    fleet.phase("h2", "build")
    with world.ledger.write() as tx:
        cleanups.done(tx.for_run(world.context()), {("h1", uuid)})
    done = fleet.phase("localhost", "finish", names=["web-1"])
    assert [(i["host"], i["vm_state"]) for i in done["instances"]] == [("h2", "error")]
    fleet.fails = {}
    assert "failed" not in fleet.play("rebuild", names=["web-1"])
    assert vm_states(world)["web-1"] == (states.ACTIVE, None)


@pytest.mark.parametrize(
    ("power_state", "vm_state"),
    [(states.RUNNING, states.ACTIVE), (states.SHUTDOWN, states.ERROR), (None, states.ERROR)],
)
def test_a_dead_run_is_settled_by_the_new_host(fleet: Evacuating, power_state: int | None, vm_state: str) -> None:
    world = fleet.world
    force_down(world)
    fleet.phase("localhost", "begin", names=["web-1"])
    row = row_of(world, "web-1")
    assert (row.host, row.task_state) == ("h2", states.REBUILDING)
    world.time += 10_000
    with world.ledger.write() as tx:
        reported = {} if power_state is None else {row.uuid: power_state}
        assert recovery.settle_operations(tx.for_run(world.context("z")), "h2", reported, world.time) == {
            row.uuid: vm_state
        }
    assert vm_states(world)["web-1"] == (vm_state, None)
    assert [m.status for m in world.rows(tables.migrations)] == ["done" if vm_state == states.ACTIVE else "failed"]


def test_check_mode_tells_where_to(fleet: Evacuating) -> None:
    force_down(fleet.world)
    fleet.check_mode = True
    before = fleet.world.everything()
    done = fleet.evacuate(names=["web-1"])
    assert [(i["source"], i["destination"], i["vm_state"]) for i in done["instances"]] == [("h1", "h2", "active")]
    assert fleet.world.everything() == before and not fleet.disks and "Would evacuate" in fleet.shown[-1]
