# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Cold and live migrations whose hosts say nothing, or fail in a way that nobody foresaw. That hosts do their parts is shown by the lab."""

from __future__ import annotations

import dataclasses
import typing as t

import pytest

from ansible_collections.bootflow.compute.plugins.action import instance_live_migrate, instance_move
from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.core.instances import states
from ansible_collections.bootflow.compute.plugins.module_utils.flows.instances.operation import Selection
from ansible_collections.bootflow.compute.plugins.module_utils.flows.moves import cold_life, revert
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.compute import instances, service_state
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.schema import tables
from ansible_collections.bootflow.compute.tests.unit.worlds.actions import (
    WorldPorts,
    action_of,
    leave_report,
    limit_run,
    results_of,
    run_stage,
)
from ansible_collections.bootflow.compute.tests.unit.worlds.boot_world import BootWorld, from_image, volume_request
from ansible_collections.bootflow.compute.tests.unit.worlds.world import World, network

HOSTS = ("h1", "h2")
COLD = {"operation": "migrate"}


class Fleet:
    """The stages of a playbook one after the other; hosts that run a module fail."""

    def __init__(self, world: World, hosts: t.Sequence[str] = HOSTS):
        self.world, self.hosts = world, hosts
        self.hostvars: dict[str, dict[str, t.Any]] = {name: {} for name in ("localhost", *hosts)}
        self.shown: list[str] = []
        self.asked: list[str] = []  # modules
        self.check_mode = False

    @property
    def ports(self) -> WorldPorts:
        return WorldPorts(self.world, "o", self.answer)

    def stage(self, module: t.Any, phase: str, host: str = "localhost", **options: t.Any) -> dict[str, t.Any]:
        ports = self.ports
        ports.display.display = lambda text, **_how: self.shown.extend(text.strip().splitlines())
        names = list(self.hosts)
        hosts = {"hostvars": self.hostvars, "groups": {"bootflow_compute": names, "all": [*names, "s1"]}}
        variables = {**self.hostvars[host], **hosts, "inventory_hostname": host, "ansible_play_hosts_all": names}
        return t.cast(
            "dict[str, t.Any]", run_stage(action_of(module, ports, variables, self.check_mode, phase=phase, **options))
        )

    def leave(self, module: t.Any, result: dict[str, t.Any], host: str = "localhost") -> None:
        """Leave ``result`` as that of a stage of ``host``."""
        family = module.__name__.rpartition(".")[2]
        results_of(WorldPorts(self.world, "o"), family).leave(result["phase"], host, result)

    def answer(self, name: str, _arguments: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
        self.asked.append(name)
        raise ZeroDivisionError(name)


@pytest.fixture
def fleet(world: World) -> Fleet:
    """h1, where web is, and h2."""
    world.report("h1")
    world.boot()
    world.report("h2")
    return Fleet(world)


def test_an_instance_stays_whose_host_says_nothing_of_its_cold_migration(fleet: Fleet) -> None:
    (row,) = fleet.world.rows(tables.instances)
    assert fleet.stage(instance_move, "check", **COLD, names=["web"])["ask"] == []
    begun = fleet.stage(instance_move, "begin", **COLD, names=["web"])
    (item,) = begun["instances"]
    assert (item["source"], item["destination"]) == ("h1", "h2")
    switched = fleet.stage(instance_move, "switch", **COLD)
    assert switched["problems"][row.uuid]["code"] == "HostUnreachable" and switched["to_settle"] == []
    back = fleet.stage(instance_move, "back", **COLD)
    assert back["start"] == {"h1": [row.uuid]}
    done = fleet.stage(instance_move, "finish", **COLD)
    (failed,) = done["failed_items"]
    assert (failed["error"]["code"], failed["host"]) == ("HostUnreachable", "h1") and not done["changed"]
    assert fleet.shown[0] == "migrate:" and fleet.shown[-1].split()[-1] == "HostUnreachable"
    assert fleet.world.state(row.uuid)[1] is None and fleet.world.row(row.uuid).host == "h1"


class Keeping(Fleet):
    """Hosts keep what another move, or none, has made."""

    def answer(self, name: str, arguments: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
        if name != "instance_cleanup":
            return super().answer(name, arguments)
        assert all(i["made_for"] for i in arguments["instances"])
        kept = {"changed": False, "removed": [], "kept": True, "error": None}
        return {"outcomes": {i["uuid"]: kept for i in arguments["instances"]}}


@pytest.mark.parametrize("arrived", [True, False])
def test_a_guest_that_was_started_on_its_new_host_is_started_nowhere_else(fleet: Fleet, arrived: bool) -> None:
    """Its start gave the folder another mark, and then the answer was lost. A folder that was there before the move is none of it."""
    fleet = Keeping(fleet.world)
    (row,) = fleet.world.rows(tables.instances)
    fleet.stage(instance_move, "begin", **COLD, names=["web"])
    fleet.leave(instance_move, {"phase": "depart", "outcomes": {row.uuid: {"files": []}}}, "h1")
    there = errors.InstanceElsewhere(instance_uuid=row.uuid, host="h2", found="x").as_dict()
    said: dict[str, t.Any] = {"changed": True} if arrived else {"error": there}
    fleet.leave(instance_move, {"phase": "arrive", "outcomes": {row.uuid: said}}, "h2")
    fleet.stage(instance_move, "switch", **COLD)
    fleet.stage(instance_move, "settle", "h2", **COLD)
    back = fleet.stage(instance_move, "back", **COLD)
    assert (back["start"] == {}) == arrived
    fleet.stage(instance_move, "finish", **COLD)
    after = fleet.world.row(row.uuid)
    assert (after.host, after.vm_state) == (("h2", states.RESIZED) if arrived else ("h1", states.ACTIVE))
    assert fleet.world.claims() == ({(row.uuid, "h1"), (row.uuid, "h2")} if arrived else {(row.uuid, "h1")})


LARGE = {"name": "large", "vcpus": 2, "memory_mb": 2048, "root_gb": 1}
RESIZE: dict[str, t.Any] = {"operation": "resize", "flavor": "large", "flavors": [LARGE]}


@pytest.mark.parametrize("move", [COLD, RESIZE], ids=["migrate", "resize"])
def test_a_move_says_what_now_and_so_does_the_refusal_of_another_one(fleet: Fleet, move: dict[str, t.Any]) -> None:
    """A resized instance is confirmed or reverted first: at the move's end, and where somebody overlooked that."""
    fleet = Keeping(fleet.world)
    (row,) = fleet.world.rows(tables.instances)
    fleet.stage(instance_move, "begin", **move, names=["web"])
    fleet.leave(instance_move, {"phase": "depart", "outcomes": {row.uuid: {"files": []}}}, "h1")
    fleet.leave(instance_move, {"phase": "arrive", "outcomes": {row.uuid: {"changed": True}}}, "h2")
    fleet.stage(instance_move, "switch", **move)
    fleet.stage(instance_move, "settle", "h2", **move)
    fleet.stage(instance_move, "back", **move)
    fleet.stage(instance_move, "finish", **move)
    assert fleet.world.row(row.uuid).vm_state == states.RESIZED
    assert fleet.shown[-1] == (
        "web: bootflow.compute.confirm_resize keeps this, bootflow.compute.revert_resize brings back what was."
        " Until then the room of both is reserved."
    )
    before = fleet.world.everything()
    for again in (COLD, {**RESIZE, "flavor": "huge", "flavors": [{**LARGE, "name": "huge", "vcpus": 3}]}):
        with pytest.raises(errors.BootflowError) as refused:
            fleet.stage(instance_move, "begin", **again, names=["web"])
        assert "vm_state resized" in refused.value.message
        assert "Run bootflow.compute.confirm_resize or bootflow.compute.revert_resize first." in refused.value.paragraph
    assert fleet.world.everything() == before


@pytest.mark.parametrize(("age", "answers"), [(59, None), (61, True), (61, False), (61, None)])
def test_a_guest_runs_on_whose_new_host_does_not_answer(fleet: Fleet, age: int, answers: bool | None) -> None:
    """A new host that was not heard of for a minute is asked before a guest is shut down for it. :arg answers: None: no task says so"""
    fleet.world.time += age
    begun = fleet.stage(instance_move, "begin", **COLD, names=["web"])
    assert begun["ask"] == (["h2"] if age > 60 else [])
    if answers is not None:
        gone = errors.HostUnreachable(host="h2", reason="no route").as_dict()
        leave_report(fleet.ports, "h2", {"reported": answers, "error": None if answers else gone})
    departed = fleet.stage(instance_move, "depart", "h1", **COLD)
    (outcome,) = departed["outcomes"].values()
    if age < 60 or answers:
        assert fleet.asked == ["domain_power"]
        return
    assert outcome["error"]["code"] == "HostUnreachable" and fleet.asked == []
    switched = fleet.stage(instance_move, "switch", **COLD)
    assert switched["to_settle"] == switched["compute"] == []
    back = fleet.stage(instance_move, "back", **COLD)
    (uuid,) = departed["outcomes"]
    running = {"outcomes": {uuid: {"power_state": states.RUNNING}}, "phase": "return"}
    assert back["start"] == {"h1": [uuid]}
    fleet.leave(instance_move, running, "h1")
    (failed,) = fleet.stage(instance_move, "finish", **COLD)["failed_items"]
    assert failed["error"]["code"] == "HostUnreachable" and fleet.world.state(uuid) == ("active", None, "h1")
    assert fleet.world.claims() == {(uuid, "h1")} and not fleet.world.cleanups()


@pytest.mark.parametrize(("module", "options"), [(instance_move, COLD), (instance_live_migrate, {})])
def test_a_limit_that_leaves_out_the_host_of_a_guest_is_refused(
    fleet: Fleet, module: t.Any, options: dict[str, t.Any]
) -> None:
    """Ansible would skip the tasks there, and the move would fail on its way."""
    limit_run(fleet.ports, ["localhost", "h2"])
    before = fleet.world.everything()
    with pytest.raises(errors.InvalidInput, match="the limit of this run leaves out h1"):
        fleet.stage(module, "begin", **options, names=["web"])
    assert fleet.world.everything() == before


@pytest.mark.parametrize(("module", "options"), [(instance_move, COLD), (instance_live_migrate, {})])
def test_a_limit_that_leaves_out_the_storage_host_of_a_guest_is_refused(
    bworld: BootWorld, module: t.Any, options: dict[str, t.Any]
) -> None:
    """The guest was shut down, its host let its volumes go, and no storage host exported them again."""
    bworld.report("h1")
    bworld.store()
    bworld.boot_of(volume_request("web", from_image()))
    bworld.report("h2")
    fleet = Fleet(bworld)
    for host in HOSTS:
        fleet.hostvars[host]["bootflow_volume_attach"] = "qemu"
    limit_run(fleet.ports, ["localhost", *HOSTS])
    before = bworld.everything()
    with pytest.raises(errors.InvalidInput, match="the limit of this run leaves out s1"):
        fleet.stage(module, "begin", **options, names=["web"])
    assert bworld.everything() == before
    limit_run(fleet.ports, None)
    assert fleet.stage(module, "begin", **options, names=["web"])["instances"]


@pytest.mark.parametrize("live", [False, True])
def test_the_host_that_a_guest_leaves_is_told_which_volumes_it_has(
    bworld: BootWorld, monkeypatch: pytest.MonkeyPatch, live: bool
) -> None:
    """It refuses a guest that has the overlay of a snapshot, or a copy, in place of one."""
    bworld.report("h1")
    bworld.store()
    bworld.boot_of(volume_request("web", from_image()))
    bworld.report("h2")
    (row,) = bworld.rows(tables.instances)
    (volume,) = bworld.live_attachments()
    fleet = Fleet(bworld)
    told: list[tuple[str, t.Mapping[str, t.Any]]] = []
    for host in HOSTS:
        fleet.hostvars[host]["bootflow_volume_attach"] = "qemu"
    module, options, phase = (instance_live_migrate, {}, "look") if live else (instance_move, COLD, "depart")
    fleet.stage(module, "begin", **options, names=["web"])

    def answer(name: str, arguments: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
        told.append((name, arguments))
        return {"outcomes": {}}

    monkeypatch.setattr(fleet, "answer", answer)
    fleet.stage(module, phase, "h1", **options)
    (name, arguments) = told[0]
    assert (name, arguments.get("step")) == (("domain_migration", "describe") if live else ("domain_power", None))
    given = arguments["volumes"][row.uuid] if live else arguments["domains"][0]["volumes"]
    assert given == {volume.volume_id: volume.device_path} and volume.device_path


def test_an_unforeseen_error_of_a_host_fails_the_instance_and_is_journalled_with_its_traceback(fleet: Fleet) -> None:
    (row,) = fleet.world.rows(tables.instances)
    fleet.stage(instance_move, "begin", **COLD, names=["web"])
    departed = fleet.stage(instance_move, "depart", "h1", **COLD)
    assert departed["changed"] and departed["outcomes"][row.uuid]["error"]["code"] == "RemoteError"
    assert any("ZeroDivisionError" in str(e.details) for e in fleet.world.rows(tables.instance_action_events))


def test_an_instance_stays_whose_host_says_nothing_of_its_live_migration(fleet: Fleet) -> None:
    (row,) = fleet.world.rows(tables.instances)
    begun = fleet.stage(instance_live_migrate, "begin", names=["web"])
    assert [i["destination"] for i in begun["instances"]] == ["h2"]
    switched = fleet.stage(instance_live_migrate, "switch")
    assert switched["problems"][row.uuid]["code"] == "HostUnreachable" and switched["unknown"] == []
    done = fleet.stage(instance_live_migrate, "finish")
    (failed,) = done["failed_items"]
    assert (failed["error"]["code"], failed["host"]) == ("HostUnreachable", "h1") and not done["changed"]
    assert fleet.shown[0] == "live_migrate:" and fleet.shown[-1].split()[-1] == "HostUnreachable"
    assert fleet.world.state(row.uuid)[1] is None and fleet.world.row(row.uuid).host == "h1"


def test_check_mode_tells_both_states(fleet: Fleet) -> None:
    fleet.check_mode = True
    begun = fleet.stage(instance_move, "begin", **COLD, names=["web"])
    assert [i["destination"] for i in begun["instances"]] == ["h2"]
    assert (begun["sources"], begun["destinations"]) == ([], []), "no task is for a host that does nothing"
    live = fleet.stage(instance_live_migrate, "begin", names=["web"])
    assert [i["destination"] for i in live["instances"]] == ["h2"] and not live["sources"] + live["destinations"]
    done = fleet.stage(instance_move, "finish", **COLD)
    assert [i["vm_state"] for i in done["instances"]] == ["resized"]
    assert fleet.shown[0] == "Would migrate (nothing is touched):" and " active -> resized" in fleet.shown[-1]


@pytest.mark.parametrize(
    ("power_state", "told"),
    [
        (states.RUNNING, "nothing to do"),
        (states.SHUTDOWN, "is back: start it"),
        (states.NOSTATE, "is back: start it"),
        (states.POWER_PAUSED, "is back: unpause it"),
    ],
)
def test_the_same_revert_again_says_what_leads_on(fleet: Fleet, power_state: int, told: str) -> None:
    """Of an instance that is back, and whose guest the module did not start, or left standing when it was killed."""
    (row,) = fleet.world.rows(tables.instances)
    fleet.stage(instance_move, "begin", **COLD, names=["web"])
    with fleet.world.ledger.write() as tx:
        tx = tx.for_run(fleet.world.context("o"))
        cold_life.switch(tx, [row.uuid])
        cold_life.finish(tx, cold_life.MIGRATE, {row.uuid: cold_life.Result(states.RUNNING)})
        revert.begin_revert(tx, Selection(names=["web"]), frozenset(HOSTS))
        cold_life.roll_back(tx, [row.uuid])
        cold_life.finish(tx, cold_life.REVERT, {row.uuid: cold_life.Result(power_state, None, cleaned=True)})
        instances.write(tx, [row.uuid], vm_state=states.ACTIVE, power_state=power_state)
    back = {"operation": "revert_resize"}
    leave_report(fleet.ports, "h1", {"reported": True})
    begun = fleet.stage(instance_move, "begin", **back, names=["web"])
    assert (begun["instances"], [i["name"] for i in begun["unchanged"]]) == ([], ["web"])
    for phase in ("switch", "back"):
        fleet.stage(instance_move, phase, **back)
    fleet.stage(instance_move, "finish", **back)
    assert fleet.shown[-1].endswith(told)


def test_a_revert_leads_from_the_new_host_to_the_former_one(fleet: Fleet) -> None:
    (row,) = fleet.world.rows(tables.instances)
    large = {"name": "large", "vcpus": 2, "memory_mb": 2048, "root_gb": 2}
    resize, revert = {"operation": "resize", "flavor": "large", "flavors": [large]}, {"operation": "revert_resize"}
    begun = fleet.stage(instance_move, "begin", **resize, names=["web"])
    said = begun["diff"]
    assert said["before"] == "web %s: h1, flavor small, disk 1 GiB\n" % row.uuid
    assert said["after"] == "web %s: h2, flavor large, disk 2 GiB\n" % row.uuid
    with fleet.world.ledger.write() as tx:
        tx = tx.for_run(fleet.world.context("o"))
        cold_life.switch(tx, [row.uuid])
        cold_life.finish(tx, cold_life.RESIZE, {row.uuid: cold_life.Result(states.RUNNING)})
    with pytest.raises(errors.InvalidRequest, match="bootflow_shutdown_timeout must be a number"):
        fleet.hostvars["localhost"]["bootflow_shutdown_timeout"] = "abc"
        fleet.stage(instance_move, "check", **revert, names=["web"])
    del fleet.hostvars["localhost"]["bootflow_shutdown_timeout"]
    assert fleet.stage(instance_move, "check", **revert, names=["web"])["ask"] == ["h1"]
    everything = fleet.world.everything()
    gone = errors.HostUnreachable(host="h1", reason="no route")
    leave_report(fleet.ports, "h1", {"reported": False, "error": gone.as_dict()})
    begun = fleet.stage(instance_move, "begin", **revert, names=["web"])
    assert fleet.world.everything() == everything, "it works where it is, and could run nowhere else"
    for phase in ("switch", "back"):
        assert fleet.stage(instance_move, phase, **revert)["compute"] == []
    done = fleet.stage(instance_move, "finish", **revert)
    assert [(i["name"], i["host"], i["error"]["code"]) for i in done["failed_items"]] == [
        ("web", "h2", "HostUnreachable")
    ]
    assert fleet.shown[-2].split()[2:] == ["h2", "resized", "RUNNING", "HostUnreachable"]
    assert "confirm_resize keeps this" in fleet.shown[-1]
    leave_report(fleet.ports, "h1", {"reported": True, "error": None})
    for left_out in HOSTS:
        limit = ["localhost", *(h for h in HOSTS if h != left_out)]
        limit_run(fleet.ports, limit)
        with pytest.raises(errors.InvalidInput, match="leaves out %s" % left_out):
            fleet.stage(instance_move, "begin", **revert, names=["web"])
    limit_run(fleet.ports, None)
    begun = fleet.stage(instance_move, "begin", **revert, names=["web"])
    assert begun["diff"]["before"] == said["after"] and begun["diff"]["after"] == said["before"]
    fleet.stage(instance_move, "switch", **revert)
    fleet.stage(instance_move, "back", **revert)
    fleet.shown.clear()
    fleet.stage(instance_move, "finish", **revert)
    assert fleet.shown[0] == "revert_resize:", "the name of the playbook"
    assert fleet.shown[-2].split()[2:5] == ["h2", "h1", "resized"]


@pytest.mark.parametrize("answers", [False, True, None])
@pytest.mark.parametrize("down", [True, False])
def test_a_revert_from_a_new_host_that_is_lost(fleet: Fleet, down: bool, answers: bool | None) -> None:
    """The former host has all the disks. A new host that is not forced down, or answers that it failed (None), may run the guest still."""
    world = fleet.world
    (row,) = world.rows(tables.instances)
    revert = {"operation": "revert_resize"}
    fleet.stage(instance_move, "begin", **COLD, names=["web"])
    with world.ledger.write() as tx:
        tx = tx.for_run(world.context("o"))
        cold_life.switch(tx, [row.uuid])
        cold_life.finish(tx, cold_life.MIGRATE, {row.uuid: cold_life.Result(states.RUNNING)})
        if down:
            service_state.set_state(tx, ["h2"], "forced_down", "dead")
    leave_report(fleet.ports, "h1", {"reported": True, "error": None})

    def answer(name: str, arguments: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
        fleet.asked.append(name)
        if name == "domain_power":
            return {"outcomes": {d["uuid"]: {"power_state": states.RUNNING} for d in arguments["domains"]}}
        if answers is False:
            return {"unreachable": True, "msg": "no route"}
        busy = None if answers else errors.RemoteError(reason="busy").as_dict()
        return {"outcomes": {i["uuid"]: {"changed": True, "error": busy} for i in arguments["instances"]}}

    fleet.answer = answer  # type: ignore[method-assign]
    fleet.stage(instance_move, "begin", **revert, names=["web"])
    assert fleet.stage(instance_move, "switch", **revert)["compute"] == ["h2"]
    fleet.stage(instance_move, "settle", "h2", **revert)
    assert fleet.asked == ["instance_cleanup"], "it may answer"
    back = fleet.stage(instance_move, "back", **revert)
    for host in back["compute"]:
        fleet.stage(instance_move, "return", host, **revert)
    done = fleet.stage(instance_move, "finish", **revert)
    if not (answers or (down and answers is False)):
        (failed,) = done["failed_items"]
        assert (
            ("force it down" in failed["error"]["remedy"]) == (answers is False)
            and world.state(row.uuid) == ("resized", None, "h2")
            and not world.cleanups()
        )
        return
    assert "failed" not in done and world.state(row.uuid) == ("active", None, "h1")
    assert world.cleanups() == (set() if answers else {(row.uuid, "h2")})
    assert world.claims() == {(row.uuid, "h1")} | world.cleanups()


VXLAN = dataclasses.replace(network(2), type="vxlan", source="vxbr100", vni=100, mtu=1430)
ADDRESSES = {"h1": "10.0.0.1", "h2": "10.0.0.2", "h3": "10.0.0.3"}


@pytest.mark.parametrize("answers", [True, False])
def test_a_guest_that_comes_back_has_its_tunnel_before_it_starts(world: World, answers: bool) -> None:
    """h3 came while the guest was away, and the former host sends to it, too."""
    world.know(VXLAN)
    world.report("h1")
    uuid = world.boot(networks=("net-2",))
    world.report("h2")
    fleet = Fleet(world, ("h1", "h2", "h3"))
    for name, address in ADDRESSES.items():
        fleet.hostvars[name]["bootflow_vxlan_address"] = address
    fleet.stage(instance_move, "begin", **COLD, names=["web"])
    with world.ledger.write() as tx:
        tx = tx.for_run(world.context("o"))
        cold_life.switch(tx, [uuid])
        cold_life.finish(tx, cold_life.MIGRATE, {uuid: cold_life.Result(states.RUNNING)})
    leave_report(fleet.ports, "h1", {"reported": True, "error": None})
    given: dict[str, t.Mapping[str, t.Any]] = {}

    def answer(name: str, arguments: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
        fleet.asked.append(name)
        given[name] = arguments
        if name == "virtual_network":
            problem = None if answers else errors.NetworkError(message="no room", remedy="Write another.").as_dict()
            return {"outcomes": {n["name"]: {"error": problem} for n in arguments["networks"]}}
        items = arguments.get("domains") or arguments["instances"]
        return {"outcomes": {i["uuid"]: {"changed": True, "power_state": states.RUNNING} for i in items}}

    fleet.answer = answer  # type: ignore[method-assign]
    revert = {"operation": "revert_resize"}
    fleet.stage(instance_move, "begin", **revert, names=["web"])
    fleet.stage(instance_move, "switch", **revert)
    fleet.stage(instance_move, "settle", "h2", **revert)
    fleet.stage(instance_move, "back", **revert)
    fleet.stage(instance_move, "return", "h1", **revert)
    done = fleet.stage(instance_move, "finish", **revert)
    assert fleet.asked == ["instance_cleanup", "virtual_network", *(["domain_power"] if answers else [])]
    tunnels = given["virtual_network"]
    assert (tunnels["vxlan_address"], tunnels["vxlan_peers"]) == ("10.0.0.1", ["10.0.0.2", "10.0.0.3"])
    assert [n["vni"] for n in tunnels["networks"]] == [100]
    assert [i["error"]["code"] for i in done.get("failed_items", ())] == ([] if answers else ["NetworkError"])
    assert world.row(uuid).host == "h1"


def test_a_revert_is_refused_while_underlay_addresses_have_two_ip_versions(fleet: Fleet) -> None:
    fleet.hostvars["h1"]["bootflow_vxlan_address"], fleet.hostvars["h2"]["bootflow_vxlan_address"] = (
        "10.0.0.1",
        "fd00::2",
    )
    with pytest.raises(errors.InvalidRequest, match="a VXLAN network has one IP version"):
        fleet.stage(instance_move, "check", operation="revert_resize", names=["web"])
