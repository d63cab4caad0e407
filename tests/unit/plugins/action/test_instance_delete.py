# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A delete through its tasks, as the playbook runs them; the hosts' module is replaced."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.bootflow.compute.plugins.action import instance_delete, instance_remove
from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.core.instances import states
from ansible_collections.bootflow.compute.plugins.module_utils.flows.instances import operation
from ansible_collections.bootflow.compute.plugins.module_utils.flows.instances.operations import OPERATIONS
from ansible_collections.bootflow.compute.plugins.module_utils.flows.recovery import operations as recovery
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.compute import cleanups, history
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.schema import tables
from ansible_collections.bootflow.compute.tests.unit.worlds.actions import WorldPorts, action_of, run_stage
from ansible_collections.bootflow.compute.tests.unit.worlds.world import World, request


class Play:
    """:arg bad: names of instances that their hosts cannot remove. :arg away: hosts whose tasks return nothing."""

    def __init__(self, world: World):
        self.world = world
        self.bad: set[str] = set()
        self.away: set[str] = set()
        self.broken = False
        self.variables: dict[str, t.Any] = {}  # of the inventory
        self.shown: list[str] = []
        self.hosts = ["h1", "h2"]  # of the inventory
        self.hostvars: dict[str, dict[str, t.Any]] = {}

    def remove(self, name: str, arguments: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
        if name == "domain_power":
            return self.power_off(arguments)
        assert name == "instance_cleanup"
        if self.broken:
            raise KeyError("disks")
        found = {}
        for item in arguments["instances"]:
            row = next(r for r in self.world.rows(tables.instances) if r.uuid == item["uuid"])
            bad = errors.RemoteError(reason="busy").as_dict() if row.display_name in self.bad else None
            found[item["uuid"]] = {"changed": bad is None, "error": bad}
        return {"outcomes": found}

    def power_off(self, arguments: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
        assert arguments["state"] == "shutdown"
        assert {d["shutdown_timeout"] for d in arguments["domains"]} == {0.0}, "as Nova: nobody waits for the guest"
        if self.broken:
            raise KeyError("domains")
        bad = errors.RemoteError(reason="busy").as_dict() if self.bad else None
        return {"outcomes": {d["uuid"]: {"power_state": states.SHUTDOWN, "error": bad} for d in arguments["domains"]}}

    def __call__(self, run: str = "d", check_mode: bool = False, **options: t.Any) -> dict[str, t.Any]:
        hosts = self.hosts
        hostvars = self.hostvars = {name: {} for name in ("localhost", *hosts)}
        variables = {
            "groups": {"all": ["localhost", *hosts], "bootflow_compute": hosts},
            "hostvars": hostvars,
            "inventory_hostname": "localhost",
            **self.variables,
        }
        ports = WorldPorts(self.world, run, modules=self.remove)
        ports.shown = self.shown = []
        ports.display.display = lambda text, **_how: self.shown.append(text.strip())

        def task(module: t.Any, **more: t.Any) -> dict[str, t.Any]:
            return run_stage(action_of(module, ports, variables, check_mode, **more))

        self.begun = begun = task(instance_delete, **options)
        for host in begun["compute"]:
            if host not in self.away:
                variables["inventory_hostname"] = host
                task(instance_remove)
        variables["inventory_hostname"] = "localhost"
        task(instance_delete, phase="removed")
        return task(instance_delete, phase="finish")


@pytest.fixture
def play(world: World) -> Play:
    """web-1 and web-2, one on h1 and one on h2."""
    for host in ("h1", "h2"):
        world.report(host, memory=1)
    world.accept(request("web", 2))
    for host in sorted({p.host for p in world.schedule().placed.values()}):
        world.build(host)
    return Play(world)


def test_deleted_from_all_hosts(play: Play) -> None:
    before = play.world.everything()
    assert play(check_mode=True, names=["web-1", "web-2"])["skipped"] and play.world.everything() == before
    result = play(names=["web-1", "web-2"])
    assert (result["deleted"], result["left"]) == (["web-1", "web-2"], [])
    assert not play.world.claims() and not play.world.addresses()


def test_a_name_that_does_not_exist_deletes_nothing(play: Play) -> None:
    before = play.world.everything()
    for check_mode in (True, False):
        with pytest.raises(errors.InstanceNotFound, match="wep-1") as caught:
            play(check_mode=check_mode, names=["web-2", "wep-1"])
        assert caught.value.remedy == "Did you mean web-1? The list of instances has: web-1, web-2."
    with pytest.raises(errors.InstanceNotFound, match="r-nothing"):
        play(reservation_ids=["r-nothing"])
    with pytest.raises(errors.InstanceNotFound) as caught:
        play(names=["web-2"], project="defalt")
    assert caught.value.remedy == "web-2 is in project default: set bootflow_project."
    with pytest.raises(errors.InstanceNotFound) as caught:
        play(names=["wep-1"], project="defalt")
    assert caught.value.remedy == "Did you mean default? The list of projects with instances has: default."
    assert play.world.everything() == before
    assert play(names=["web-2", "wep-1"], missing_ok=True)["deleted"] == ["web-2"]


@pytest.mark.parametrize(
    ("wrong", "near"),
    [
        ("bootflow_projct", "bootflow_project"),
        ("bootflow_hst", "bootflow_host"),
        ("bootflow_reclaim_instance_intervall", "bootflow_reclaim_instance_interval"),
    ],
)
def test_a_mistyped_condition_deletes_nothing(play: Play, wrong: str, near: str) -> None:
    """Without it, more would be deleted than was meant, or for good."""
    before = play.world.everything()
    play.variables = {wrong: "staging", "bootflow_of_ours": 1}
    with pytest.raises(errors.InvalidInput, match=wrong) as refused:
        play(names=["web-1"])
    assert refused.value.remedy == "Did you mean %s? Correct it, or remove it." % near
    assert play.world.everything() == before
    del play.variables[wrong]
    assert play(names=["web-1"])["deleted"] == ["web-1"], "variables of people's own are none of ours"


def test_a_host_that_is_not_in_the_inventory_is_refused_before_anything_is_marked(play: Play) -> None:
    world = play.world
    play.hosts = [h for h in play.hosts if h != of(world, "web-1").host]
    before = world.everything()
    for check_mode in (True, False):
        with pytest.raises(errors.ComputeHostNotFound) as refused:
            play(check_mode=check_mode, names=["web-1", "web-2"])
        assert "bootflow_delete_force" in refused.value.remedy
    assert world.everything() == before
    away = of(world, "web-1").host
    play.variables = {"bootflow_delete_force": True}
    assert play(names=["web-1", "web-2"])["deleted"] == ["web-1", "web-2"]
    told = "web-1 may still run on %s. That host removes the guest when it reports again." % away
    assert play.shown == ["Deleted: web-1, web-2\n" + told], "of the other nothing is left"


def test_one_stays_with_its_fault_and_its_claim(play: Play) -> None:
    play.bad = {"web-2"}
    result = play(names=["web-1", "web-2"])
    assert (result["deleted"], result["error_code"]) == (["web-1"], "DeleteIncomplete")
    (left,) = result["left"]
    assert (left["name"], left["fault"]["code"]) == ("web-2", "RemoteError")
    assert play.world.claims() == {(left["uuid"], left["host"])}
    play.bad.clear()
    assert play(names=["web-2"])["deleted"] == ["web-2"] and not play.world.claims()


def test_a_host_whose_task_returned_nothing_keeps_what_it_has(play: Play) -> None:
    (host,) = {r.host for r in play.world.rows(tables.instances) if r.display_name == "web-1"}
    play.away = {host}
    result = play(names=["web-1", "web-2"])
    assert (result["deleted"], [v["name"] for v in result["left"]]) == (["web-2"], ["web-1"])
    assert {h for _uuid, h in play.world.claims()} == {host}


def test_the_traceback_of_an_unexpected_error_is_in_the_journal(play: Play) -> None:
    """And the task of the host does not fail, so that the others are deleted."""
    play.broken = True
    result = play(names=["web-1"])
    (left,) = result["left"]
    assert (left["fault"]["message"], result["error_code"]) == ("KeyError: 'disks'", "DeleteIncomplete")
    assert ", in remove" not in str([result, play.hostvars]), "of what people and playbooks read"
    with play.world.ledger.read() as tx:
        (event,) = [e for e in history.events_of(tx, left["uuid"]) if e["event"] == "delete"]
    assert (event["result"], event["host"]) == ("Error", left["host"]) and event["finish_time"]
    assert event["details"].startswith("KeyError: 'disks'\n  File ") and ", in remove" in event["details"]
    play.broken = False
    assert play(names=["web-1"])["deleted"] == ["web-1"]


def test_one_that_another_run_deletes_while_what_it_was_is_removed_is_removed_by_that(play: Play) -> None:
    """web-1 was resized on its own host, which is cleaned of that on the way."""
    world = play.world
    one, two = of(world, "web-1"), of(world, "web-2")
    with world.ledger.write() as tx:
        mine = tx.for_run(world.context())
        cleanups.add(mine, cleanups.Due(one.host, one.uuid, one.domain_name, "it was resized there", cleanups.OLD))
        cleanups.add(mine, cleanups.Due(one.host, two.uuid, two.domain_name, "it went away"))
    remove = play.remove

    def removes(name: str, arguments: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
        if name != "instance_disks_resize":
            return remove(name, arguments)
        world.delete("e", uuids=[one.uuid])
        return {"outcomes": {i["uuid"]: {"changed": True, "error": None} for i in arguments["instances"]}}

    play.remove = removes  # type: ignore[method-assign]
    assert play(names=["web-2"])["deleted"] == ["web-2"]
    assert world.state(one.uuid) == (states.ACTIVE, states.DELETING, one.host) and world.claims() == {
        (one.uuid, one.host)
    }
    assert [i["uuid"] for i in world.of_host(one.host, "e")] == [one.uuid]


# --- soft delete ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def keeping(play: Play) -> Play:
    play.variables = {"bootflow_reclaim_instance_interval": 3600}
    return play


def of(world: World, name: str) -> t.Any:
    return next(r for r in world.rows(tables.instances) if r.display_name == name)


def restore(
    world: World, name: str, limits: dict[str, t.Any] | None = None, error: errors.BootflowError | None = None
) -> None:
    its = OPERATIONS["restore"]
    with world.ledger.write() as tx:
        mine = tx.for_run(world.context("r"))
        begun = operation.begin(mine, its, operation.Selection(names=[name]), ("h1", "h2"), limits)
        outcomes = {r.uuid: operation.Outcome(states.NOSTATE if error else states.RUNNING, error) for r in begun.rows}
        assert operation.finish(mine, its, outcomes) == {r.uuid: error for r in begun.rows if error}


def test_a_deleted_instance_is_off_and_keeps_all_it_has_until_it_is_restored(keeping: Play) -> None:
    world = keeping.world
    before = world.claims(), world.addresses()
    assert keeping(check_mode=True, names=["web-1"])["skipped"]
    row = of(world, "web-1")
    would = "%s %s on %s, off, can be restored for 3600 s" % ("web-1", row.uuid, row.host)
    assert row.vm_state == states.ACTIVE
    result = keeping(names=["web-1"])
    assert (result["deleted"], result["soft_deleted"], result["left"]) == ([], ["web-1"], [])
    assert keeping.shown == ["Deleted, can be restored for 3600 s: web-1"]
    assert keeping.begun["diff"]["after"] == would + "\n"
    now = of(world, "web-1")
    assert (now.vm_state, now.task_state, now.power_state, now.host) == (
        states.SOFT_DELETED,
        None,
        states.SHUTDOWN,
        row.host,
    )
    assert now.deleted_at == world.time and (world.claims(), world.addresses()) == before
    kinds = [n.event_type for n in world.rows(tables.notifications) if "soft_delete" in n.event_type]
    assert kinds == ["compute.instance.soft_delete.start", "compute.instance.soft_delete.end"]
    again = keeping(names=["web-1"])
    assert not again["changed"] and again["soft_deleted"] == ["web-1"]
    restore(world, "web-1")
    back = of(world, "web-1")
    assert (back.vm_state, back.power_state, back.deleted_at) == (states.ACTIVE, states.RUNNING, None)


def test_reclaimed_when_its_time_is_over(keeping: Play) -> None:
    world = keeping.world
    keeping(names=["web-1"])
    world.time += 1800
    keeping(names=["web-2"])
    world.time += 1799
    assert keeping(operation="reclaim")["deleted"] == [] and keeping.shown == ["Deleted: nothing"]
    world.time += 1
    assert keeping(operation="reclaim")["deleted"] == ["web-1"]
    assert {r.display_name for r in world.rows(tables.instances) if r.deleted == ""} == {"web-2"}
    keeping.variables = {}
    world.time += 99999
    assert keeping(operation="reclaim")["deleted"] == [], "as Nova: without an interval nothing is reclaimed"
    assert keeping(names=["web-2"])["deleted"] == ["web-2"], "no longer kept: the interval is unset"
    assert not world.claims()


def test_one_whose_host_is_gone_keeps_no_other_from_being_reclaimed(keeping: Play) -> None:
    keeping(names=["web-1", "web-2"])
    keeping.world.time += 3600
    keeping.hosts = [h for h in keeping.hosts if h != of(keeping.world, "web-1").host]
    for run in ("d", "e"):
        result = keeping(run, operation="reclaim")
        assert (result["deleted"], [v["name"] for v in result["left"]]) == (["web-2"] * (run == "d"), ["web-1"])
        keeping.world.time += 3600


def test_a_restore_that_fails_leaves_it_in_the_queue(keeping: Play) -> None:
    world = keeping.world
    keeping(names=["web-1"])
    deleted_at = of(world, "web-1").deleted_at
    restore(world, "web-1", error=errors.RemoteError(reason="busy"))
    row = of(world, "web-1")
    assert (row.vm_state, row.task_state, row.deleted_at) == (states.SOFT_DELETED, None, deleted_at)
    assert keeping(operation="reclaim")["deleted"] == [], "its time is not over"
    world.time += 3600
    assert keeping(operation="reclaim")["deleted"] == ["web-1"]


@pytest.mark.parametrize("power_state", [states.RUNNING, states.SHUTDOWN])
def test_a_restore_whose_run_died(keeping: Play, power_state: int) -> None:
    world = keeping.world
    keeping(names=["web-1"])
    row = of(world, "web-1")
    with world.ledger.write() as tx:
        chosen = operation.Selection(names=["web-1"])
        operation.begin(tx.for_run(world.context("r")), OPERATIONS["restore"], chosen, ("h1", "h2"))
    world.time += 100_000
    with world.ledger.write() as tx:
        recovery.settle_operations(tx.for_run(world.context("s")), row.host, {row.uuid: power_state}, world.time)
    runs = power_state == states.RUNNING
    now = of(world, "web-1")
    assert now.vm_state == (states.ACTIVE if runs else states.SOFT_DELETED)
    assert now.deleted_at == (None if runs else row.deleted_at)
    assert keeping(operation="reclaim")["deleted"] == ([] if runs else ["web-1"])


def test_one_that_a_dead_run_restored_is_not_reclaimed_before_its_host_tells(keeping: Play) -> None:
    """As in Nova: its guest may run. One that was being deleted goes on to be."""
    world = keeping.world
    keeping(names=["web-1", "web-2"])
    with world.ledger.write() as tx:
        chosen = operation.Selection(names=["web-1"])
        operation.begin(tx.for_run(world.context("r")), OPERATIONS["restore"], chosen, ("h1", "h2"))
    world.time += 100_000  # the run is dead
    keeping.away = {of(world, "web-2").host}
    assert [v["name"] for v in keeping("d", operation="reclaim")["left"]] == ["web-2"]
    keeping.away = set()
    world.time += 100_000
    assert keeping("e", operation="reclaim")["deleted"] == ["web-2"]
    row = of(world, "web-1")
    assert (row.vm_state, row.task_state, row.deleted) == (states.SOFT_DELETED, states.RESTORING, "")


def test_a_lock_does_not_keep_anybody_from_being_reclaimed(keeping: Play) -> None:
    """As Nova's own task: one that somebody locked would else keep all the others, too."""
    world = keeping.world
    keeping(names=["web-1", "web-2"])
    with world.ledger.write() as tx:
        tx.execute(tables.instances.update().where(tables.instances.c.display_name == "web-1").values(locked_by="eve"))
    with pytest.raises(errors.InstanceIsLocked):
        keeping(names=["web-1"], operation="force_delete")
    world.time += 3600
    assert keeping(operation="reclaim")["deleted"] == ["web-1", "web-2"]


@pytest.mark.parametrize("options", [{"operation": "force_delete"}, {"force": True}])
def test_deleted_at_once(keeping: Play, options: dict[str, t.Any]) -> None:
    keeping(names=["web-1"])
    assert keeping(names=["web-1", "web-2"], **options)["deleted"] == ["web-1", "web-2"]
    assert not keeping.world.claims()


def test_what_never_ran_is_deleted_at_once(keeping: Play) -> None:
    world = keeping.world
    world.accept(request("new", 1))
    result = keeping(names=["new", "web-1"])
    assert (result["deleted"], result["soft_deleted"]) == (["new"], ["web-1"])


@pytest.mark.parametrize("how", ["bad", "broken", "away"])
def test_a_guest_that_cannot_be_shut_off(keeping: Play, how: str) -> None:
    world = keeping.world
    host = of(world, "web-1").host
    setattr(keeping, how, {"bad": {"web-1"}, "broken": True, "away": {host}}[how])
    result = keeping(names=["web-1"])
    assert (result["soft_deleted"], [v["name"] for v in result["left"]]) == ([], ["web-1"])
    assert result["error_code"] == "DeleteIncomplete"
    row = of(world, "web-1")
    assert row.vm_state == states.ACTIVE
    if how == "away":
        assert row.task_state == states.SOFT_DELETING
        world.time += 100_000  # the run is dead
        with world.ledger.write() as tx:
            recovery.settle_operations(tx.for_run(world.context("s")), host, {row.uuid: states.SHUTDOWN}, world.time)
        assert of(world, "web-1").vm_state == states.SOFT_DELETED
    keeping.bad, keeping.broken, keeping.away = set(), False, set()
    assert keeping(names=["web-1"])["soft_deleted"] == ["web-1"]


def test_a_guest_that_is_gone_has_no_power(keeping: Play) -> None:
    """As Nova's power_off: the instance can be restored by a hard reboot."""
    gone = errors.InstanceNotFound(instance_id="x").as_dict()
    keeping.power_off = lambda arguments: {  # type: ignore[method-assign]
        "outcomes": {d["uuid"]: {"changed": False, "error": gone} for d in arguments["domains"]}
    }
    result = keeping(names=["web-1"])
    assert (result["soft_deleted"], result["left"]) == (["web-1"], [])
    row = of(keeping.world, "web-1")
    assert (row.vm_state, row.task_state, row.power_state) == (states.SOFT_DELETED, None, states.NOSTATE)


def test_its_name_is_taken_and_its_quota_is_free(keeping: Play) -> None:
    world = keeping.world
    keeping(names=["web-1"])
    with pytest.raises(errors.InvalidRequest, match="soft-delete"):
        world.accept(request("web", 2))
    limits = {"instances": 2}
    world.accept(request("other", 1), quotas=limits)
    with pytest.raises(errors.OverQuota, match="Requested 1, but already used 2 of 2 instances"):
        restore(world, "web-1", limits)
    assert of(world, "web-1").vm_state == states.SOFT_DELETED
    restore(world, "web-1", {"instances": 3})


def test_only_what_is_on_a_host_that_is_named(play: Play) -> None:
    """All conditions must hold, here as of other operations; and a host alone selects nothing."""
    host = {r.display_name: r.host for r in play.world.rows(tables.instances)}
    with pytest.raises(errors.InvalidInput, match="no instance is selected"):
        play(hosts=[host["web-1"]])
    with pytest.raises(errors.ComputeHostNotFound, match="h9"):
        play(project="default", all=True, hosts=["h9"])
    with pytest.raises(errors.InstanceNotFound, match="web-2"):
        play(names=["web-1", "web-2"], hosts=[host["web-1"]])
    result = play(project="default", all=True, hosts=[host["web-2"]])
    assert (result["deleted"], result["left"]) == (["web-2"], [])
    assert [r.display_name for r in play.world.rows(tables.instances) if not r.deleted] == ["web-1"]


def test_a_limit_that_leaves_out_its_host_is_refused_before_anything_is_marked(play: Play) -> None:
    """Ansible would skip the tasks there, and the instance would be deleting until somebody deletes it again."""
    host = {r.display_name: r.host for r in play.world.rows(tables.instances)}
    play.variables = {"ansible_play_hosts_all": ["localhost", host["web-1"]]}
    before = play.world.everything()
    for force in (False, True):
        with pytest.raises(errors.InvalidInput, match="leaves out %s" % host["web-2"]):
            play(names=["web-1", "web-2"], run_limit="localhost,h", force=force)
    assert play.world.everything() == before
    assert play(names=["web-1"], run_limit="localhost,h")["deleted"] == ["web-1"]


@pytest.mark.parametrize("chosen", [{"names": ["web-1"]}, {"hosts": ["h1"]}])
def test_reclaim_refuses_what_it_would_not_heed(keeping: Play, chosen: dict[str, t.Any]) -> None:
    keeping(names=["web-1", "web-2"])
    keeping.world.time += 3601
    with pytest.raises(errors.InvalidInput, match="of all projects"):
        keeping(operation="reclaim", **chosen)
    assert keeping(operation="reclaim", project="default")["deleted"] == ["web-1", "web-2"]
