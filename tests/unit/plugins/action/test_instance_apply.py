# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The action instance_apply, its phases on a real ledger, as playbooks/apply.yml runs them."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.bootflow.compute.plugins.action import (
    boot_accept,
    boot_schedule,
    instance_apply,
    instance_move,
)
from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.core.instances import states
from ansible_collections.bootflow.compute.plugins.module_utils.flows.instances import operation
from ansible_collections.bootflow.compute.plugins.module_utils.flows.instances.operation import Outcome, Selection
from ansible_collections.bootflow.compute.plugins.module_utils.flows.instances.operations import OPERATIONS
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.schema import tables
from ansible_collections.bootflow.compute.tests.unit.worlds.actions import (
    WorldPorts,
    action_of,
    leave_report,
    run_stage,
)
from ansible_collections.bootflow.compute.tests.unit.worlds.world import World

from .test_boot_settings import FLAVOR, IMAGE

CATALOGUE = {
    "bootflow_networks": [{"name": "blue", "subnets": [{"cidr": "10.0.0.0/24"}]}],
    "bootflow_flavors": [
        {**FLAVOR, "name": name, "memory_mb": times * FLAVOR["memory_mb"]}
        for name, times in (("small", 1), ("large", 2), ("huge", 6), ("giant", 64))
    ],
    "bootflow_images": [IMAGE],
}


class Fleet:
    """The playbook's tasks of one file after the other; what hosts do is done by the world."""

    def __init__(self, world: World):
        self.world = world
        self.variables: dict[str, t.Any] = {}
        self.hostvars: dict[str, dict[str, t.Any]] = {"localhost": {}, "h1": {}, "h2": {}}
        self.shown: list[str] = []

    def task(self, module: t.Any, check: bool = False, **options: t.Any) -> dict[str, t.Any]:
        ports = WorldPorts(self.world, "a")
        ports.display.display = lambda text, **_how: self.shown.extend(text.strip().splitlines())
        hosts = {"hostvars": self.hostvars, "groups": {"bootflow_compute": ["h1", "h2"], "all": ["h1", "h2"]}}
        variables = {**CATALOGUE, **self.variables, **hosts, "inventory_hostname": "localhost"}
        return run_stage(action_of(module, ports, variables, check, **options))

    def phase(self, phase: str, check: bool = False, **options: t.Any) -> dict[str, t.Any]:
        return self.task(instance_apply, check, phase=phase, **options)

    def apply(self, *entries: t.Any, check: bool = False, **variables: t.Any) -> dict[str, t.Any]:
        """Returns what the last phase returned; the lines are in ``shown``."""
        self.shown.clear()
        self.variables = {"bootflow_instances": list(entries), **variables}
        begun = self.phase("ask", check)
        if begun["ask"]:
            begun = self.phase("ask", check, ask=False)
        if begun.get("over"):
            return begun
        if check and begun["operations"]:
            moving = {"operation": "resize", "follow_file": True, "uuids": begun["operations"]["resize"]}
            self.task(instance_move, check, phase="begin", **moving)
            self.task(instance_move, check, phase="finish", **moving)
        else:
            self.operate(begun)
        if begun["delete"] and not check:
            for host in self.world.delete("a", uuids=begun["delete"]).hosts:
                self.world.removed(host, [i["uuid"] for i in self.world.of_host(host, "a")], "a")
            self.world.finish("a")
        if begun["boots"]:
            self.task(boot_accept, check, follow_file=True)
            for host in self.task(boot_schedule, check, follow_file=True)["compute"]:
                self.world.build(host)
            if not check:
                self.operate(self.phase("follow"))
        return self.phase("finish", check)

    def operate(self, begun: t.Mapping[str, t.Any]) -> None:
        power = {"stop": states.SHUTDOWN, "start": states.RUNNING}
        for name, uuids in begun["operations"].items():
            with self.world.ledger.write() as tx:
                tx = tx.for_run(self.world.context())
                operation.begin(tx, OPERATIONS[name], Selection(uuids=uuids), {"h1", "h2"})
                operation.finish(tx, OPERATIONS[name], dict.fromkeys(uuids, Outcome(power[name])))

    def refused(self, *entries: t.Any, **variables: t.Any) -> errors.BootflowError:
        before = self.world.everything()
        with pytest.raises(errors.BootflowError) as caught:
            self.apply(*entries, **variables)
        assert self.world.everything() == before
        return caught.value


@pytest.fixture
def fleet(world: World) -> Fleet:
    world.report("h1", memory=9)
    world.report("h2", memory=9)
    return Fleet(world)


def entry(name: str, **more: t.Any) -> dict[str, t.Any]:
    return {"name": name, "flavor": FLAVOR["name"], "image": IMAGE["name"], **more}


def test_a_plan_says_where_and_touches_nothing_and_what_is_applied_is_done(fleet: Fleet) -> None:
    world = fleet.world
    file = [entry("web", count=2), entry("db", state="stopped", locked=True)]
    before = world.everything()
    result = fleet.apply(*file, check=True)
    assert world.everything() == before and result["changed"] and not result.get("failed")
    assert fleet.shown[0] == "Plan (nothing is touched):" and fleet.shown[-1] == "3 to boot; 0 as the file has them."
    hosts = {c["name"]: c["host"] for c in result["changes"]}
    assert set(hosts.values()) <= {"h1", "h2"} and set(hosts) == {"web-1", "web-2", "db"}
    assert "+ db boot on %s, then stop, then lock" % hosts["db"] in fleet.shown

    done = fleet.apply(*file)
    assert done["applied"] == 3 and done["changes"] == [] and not done.get("failed")
    c = tables.instances.c
    rows = {r.display_name: r for r in world.rows(tables.instances, c.deleted == "")}
    assert {n: (r.vm_state, r.locked_by) for n, r in rows.items()} == {
        "db": ("stopped", "ann"),
        "web-1": ("active", None),
        "web-2": ("active", None),
    }
    again = fleet.apply(*file, check=True)
    assert not again["changed"] and fleet.shown[-1] == "nothing to do; 3 as the file has them."


def test_what_the_file_no_longer_has_and_what_is_not_allowed(fleet: Fleet) -> None:
    fleet.apply(entry("web"), entry("old"))
    result = fleet.apply(entry("web", flavor="large", metadata={"a": "b"}), bootflow_prune=True, check=True)
    assert fleet.shown[1:] == [
        "- old: delete",
        "! web flavor small -> large: needs resize in bootflow_apply_allow (resize, restarts the guest)",
        "~ web metadata.a none -> b: the guest's config drive keeps the old one",
        "1 to change, 1 to delete, 1 not allowed; 0 as the file has them.",
    ]
    assert [c["kind"] for c in result["changes"] if c["done"]] == ["delete", "live"]
    assert fleet.refused(entry("web"), bootflow_prune=True, bootflow_prune_max=0).code == "PruneRefused"
    done = fleet.apply(entry("web", flavor="large", metadata={"a": "b"}), bootflow_prune=True)
    assert done["applied"] == 2 and [c["kind"] for c in done["changes"]] == ["resize"]


def test_what_is_deleted_makes_room_in_the_plan_too(fleet: Fleet) -> None:
    """One fits on each host."""
    memory = {"bootflow_quotas": {"instances": 1}}
    fleet.apply(entry("old"), **memory)
    fleet.apply(entry("new"), bootflow_prune=True, check=True, **memory)
    assert fleet.shown[1] == "+ new boot on h1" or fleet.shown[1] == "+ new boot on h2"


def test_guests_that_stopped_by_themselves_are_seen_by_the_plan(fleet: Fleet) -> None:
    fleet.apply(entry("web", state="running"))
    (row,) = fleet.world.rows(tables.instances, tables.instances.c.deleted == "")
    assert fleet.phase("ask")["ask"] == [row.host]
    fleet.world.time += 60
    domains = [{"uuid": row.uuid, "power_state": states.SHUTDOWN}]
    report = {"reported": True, "compute_node": {"domains": domains}}
    leave_report(WorldPorts(fleet.world, "a"), row.host, report)
    fleet.apply(entry("web", state="running"), check=True)
    assert fleet.shown[1:] == ["~ web state stopped -> running: start", "1 to change; 0 as the file has them."]


def test_what_a_file_may_not_have(fleet: Fleet) -> None:
    two = fleet.refused(entry("web"), entry("web", project="other"))
    assert two.code == "InvalidInput" and "default, other" in two.message
    assert "bootflow_project is mine" in fleet.refused(entry("web", project="other"), bootflow_project="mine").message
    assert "bootflow_uuids" in fleet.refused(entry("web"), bootflow_uuids=["x"]).message
    wrong = fleet.refused(entry("web", state="off"))
    assert isinstance(wrong, errors.InvalidRequest) and wrong.errors[0]["path"] == "instances[0].state"
    reason = fleet.refused(entry("web", locked_reason="mine"))
    assert isinstance(reason, errors.InvalidRequest) and reason.errors[0]["path"] == "instances[0].locked_reason"


def test_a_rebuild_where_it_is_allowed(fleet: Fleet) -> None:
    """Its operation is one of test_rebuild: here it is named, once for each instance."""
    images = {"bootflow_images": [IMAGE, {**IMAGE, "name": "other"}]}
    fleet.apply(entry("web"), entry("db"), **images)
    new = {"image": "other", "user_data": "#cloud-config"}
    fleet.variables = {**images, "bootflow_instances": [entry("web", **new, allow=["rebuild"]), entry("db", **new)]}
    planned = fleet.phase("plan")
    assert fleet.shown[-5:] == [
        "! db image tiny -> other: needs rebuild in bootflow_apply_allow (rebuild, replaces the guest's local disks)",
        "! db user_data none -> set: needs rebuild in bootflow_apply_allow (rebuild, replaces the guest's local disks)",
        "~ web image tiny -> other: rebuild, replaces the guest's local disks",
        "~ web user_data none -> set: rebuild, replaces the guest's local disks",
        "1 to change, 2 not allowed; 0 as the file has them.",
    ]
    begun = fleet.phase("begin")
    assert begun["operations"] == {"rebuild": [c["uuid"] for c in planned["changes"] if c["name"] == "web"][:1]}


def test_resizes_to_several_flavors_where_they_are_allowed(fleet: Fleet) -> None:
    fleet.apply(entry("web"), entry("db"))
    file = [entry("web", flavor="large"), entry("db", flavor="huge")]
    fleet.variables = {"bootflow_instances": file, "bootflow_apply_allow": ["resize"]}
    planned = fleet.phase("plan")
    assert fleet.shown[-3:-1] == [
        "~ db flavor small -> huge: resize, restarts the guest",
        "~ web flavor small -> large: resize, restarts the guest",
    ]
    uuids = {c["name"]: c["uuid"] for c in planned["changes"]}
    begun = fleet.phase("begin")
    assert begun["flavors"] == {uuids["web"]: "large", uuids["db"]: "huge"} == planned["resize"]
    assert sorted(begun["operations"]["resize"]) == sorted(uuids.values())
    moving = {"operation": "resize", "follow_file": True, "uuids": begun["operations"]["resize"]}
    assert fleet.task(instance_move, phase="check", **moving)["ask"] == []
    moved = fleet.task(instance_move, phase="begin", **moving)
    assert len(moved["instances"]) == 2 and not moved["not_placed"]
    left = fleet.phase("finish")
    assert left["error_code"] == "ApplyIncomplete" and left["failed_items"][0]["state"] == (
        "db flavor small -> huge: resize, restarts the guest"
    )


def test_hosts_of_boots_in_check_mode_count_what_is_resized_before(fleet: Fleet) -> None:
    """Each host has room for two that are huge."""
    fleet.apply(entry("web"))
    (row,) = fleet.world.rows(tables.instances, tables.instances.c.deleted == "")
    other = {"h1": "h2", "h2": "h1"}[row.host]
    file = [entry("web", flavor="huge", allow=["resize"]), entry("db", flavor="huge")]
    before = fleet.world.everything()
    result = fleet.apply(*file, check=True)
    assert {c["name"]: c["host"] for c in result["changes"]} == {"web": other, "db": row.host}
    assert fleet.shown[1:] == [
        "+ db boot on %s" % row.host,
        "~ web flavor small -> huge: resize, restarts the guest",
        "1 to boot, 1 to change; 0 as the file has them.",
    ]
    too_many = fleet.apply(*file, entry("more", flavor="huge", count=3), check=True)
    assert {i["error"]["code"] for i in too_many["failed_items"]} == {"NoValidHost"}
    assert fleet.world.everything() == before


def test_a_resize_without_a_host_is_told_by_the_plan(fleet: Fleet) -> None:
    fleet.apply(entry("web"))
    failed = fleet.apply(entry("web", flavor="giant", allow=["resize"]), check=True)
    assert failed["error_code"] == "ApplyIncomplete" and failed["failed_items"][0]["error"]["code"] == "NoValidHost"
    assert fleet.shown[1].startswith("! web flavor small -> giant: there is no host for it")
    assert "No valid host" in failed["msg"] and not any("No valid host" in line for line in fleet.shown)
    assert fleet.shown[-1] == "nothing to do, 1 cannot be changed; 0 as the file has them."


def test_what_could_not_be_done_fails_and_says_why(fleet: Fleet) -> None:
    failed = fleet.apply(
        entry("web", flavor="large", count=30), bootflow_quotas={"instances": -1, "cores": -1, "ram": -1}
    )
    assert failed["error_code"] == "ApplyIncomplete" and failed["applied"] < 30
    assert {i["error"]["code"] for i in failed["failed_items"]} == {"NoValidHost"}


def test_a_server_group_is_told_by_its_name(fleet: Fleet) -> None:
    fleet.apply(entry("web"))
    groups = {"bootflow_server_groups": [{"name": "apart", "policy": "anti-affinity"}]}
    fleet.apply(entry("web", scheduler_hints={"group": "apart"}), check=True, **groups)
    assert fleet.shown[1].startswith("! web scheduler_hints.group none -> apart: cannot be changed, ")
