# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""States that people write: which are refused, what dead runs left is not forgotten, and the journal."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.bootflow.compute.plugins.action import instance_reset_state
from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.core.instances import moves, states
from ansible_collections.bootflow.compute.plugins.module_utils.flows.instances import lock, operation
from ansible_collections.bootflow.compute.plugins.module_utils.flows.instances.operation import Outcome, Selection
from ansible_collections.bootflow.compute.plugins.module_utils.flows.instances.operations import OPERATIONS
from ansible_collections.bootflow.compute.plugins.module_utils.flows.moves import cold, cold_life, evacuate
from ansible_collections.bootflow.compute.plugins.module_utils.flows.moves.moving_instance import MovingInstance
from ansible_collections.bootflow.compute.plugins.module_utils.flows.recovery import reset_state
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.compute import history, service_state
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.schema import tables
from ansible_collections.bootflow.compute.tests.unit.worlds.actions import WorldPorts, action_of
from ansible_collections.bootflow.compute.tests.unit.worlds.world import World

BACKENDS = dict.fromkeys(("h1", "h2", "h3"), "qcow2")


def call(world: World, run: str, function: t.Callable[..., t.Any], *arguments: t.Any, **settings: t.Any) -> t.Any:
    with world.ledger.write() as tx:
        result = function(tx.for_run(world.context(run, **settings)), *arguments)
        world.check(tx)
        return result


def reset(world: World, vm_state: str = "error", run: str = "p", **which: t.Any) -> reset_state.Reset:
    done = call(world, run, reset_state.reset, Selection(**which), vm_state)
    assert isinstance(done, reset_state.Reset)
    return done


def begin(world: World, what: str, name: str, run: str = "o") -> None:
    call(world, run, operation.begin, OPERATIONS[what], Selection(names=[name]), ["h1"])


def operate(world: World, what: str, name: str, power_state: int) -> None:
    begin(world, what, name)
    uuid = next(r.uuid for r in world.rows(tables.instances) if r.display_name == name)
    call(world, "o", operation.finish, OPERATIONS[what], {uuid: Outcome(power_state)})


def lose(world: World, *hosts: str) -> None:
    """These hosts, and all runs."""
    call(world, "p", service_state.set_state, list(hosts), "forced_down")
    world.time += 601


@pytest.mark.parametrize("vm_state", ["error", "active"])
@pytest.mark.parametrize("before", ["pause", "suspend", "rescue", "stop"])
def test_what_only_the_host_leads_out_of(world: World, before: str, vm_state: str) -> None:
    world.report("h1")
    uuid = world.boot("web")
    operate(world, before, "web", states.SHUTDOWN)
    call(world, "bob", lock.lock, Selection(names=["web"]), "why")
    before_it = world.row(uuid)
    assert [r.uuid for r in reset(world, vm_state, run="ann", names=["web"]).rows] == [uuid], "a lock does not keep it"
    row = world.row(uuid)
    assert (row.vm_state, row.task_state, row.host, row.power_state) == (vm_state, None, "h1", before_it.power_state)
    assert [r.uuid for r in reset(world, vm_state, names=["web"]).unchanged] == [uuid]
    if vm_state == "error":
        lose(world, "h1")
        world.report("h2")
        begun = call(
            world, "e", evacuate.begin, evacuate.Wanted(Selection(names=["web"])), world.fleet, world.options()
        )
        assert [r.host for r in begun.rows] == ["h2"]


def test_a_live_run_is_not_disturbed_and_a_dead_one_ends_in_the_journal(world: World) -> None:
    world.report("h1")
    uuid = world.boot("web")
    begin(world, "rebuild", "web")
    with pytest.raises(errors.InstanceBusy):
        reset(world, names=["web"])
    world.time += 601
    every = {"notify_on_state_change": "vm_and_task_state"}
    call(world, "p", reset_state.reset, Selection(names=["web"]), "error", **every)
    assert world.state(uuid) == ("error", None, "h1")
    failed = call(world, "o", operation.finish, OPERATIONS["rebuild"], {uuid: Outcome(states.RUNNING)})
    assert failed[uuid].code == "UnexpectedTaskStateError", "it was only believed dead"
    assert world.state(uuid) == ("error", None, "h1")
    actions = [(a.action, a.message, a.finish_time) for a in world.rows(tables.instance_actions)]
    assert [a[:2] for a in actions[-2:]] == [("rebuild", "Error"), ("resetState", None)] and all(a[2] for a in actions)
    with world.ledger.read() as tx:
        (rebuilt, told) = history.events_of(tx, uuid)[-2:]
    assert (rebuilt["result"], told["event"], told["result"]) == ("Error", "reset_state", "Success")
    assert "reset_state took its place" in rebuilt["details"]
    changes = [n.payload for n in world.rows(tables.notifications) if n.event_type == "compute.instance.update"]
    assert changes[-1] == {
        "old_state": "active",
        "state": "error",
        "old_task_state": "rebuild_spawning",
        "new_task_state": None,
    }


@pytest.mark.parametrize(("until", "remedy"), [("accepted", "audit settles it"), ("spawning", "audit settles it")])
def test_a_build(world: World, until: str, remedy: str) -> None:
    world.report("h1")
    world.boot("web", until)
    with pytest.raises(errors.InstanceBusy):
        reset(world, names=["web"])
    world.time += 601
    with pytest.raises(errors.InstanceInvalidState, match="vm_state building") as refused:
        reset(world, names=["web"])
    assert remedy in refused.value.remedy


def test_one_that_never_ran_is_not_active(world: World) -> None:
    world.report("h1")
    uuid = world.boot("web", "spawning")
    world.fail("h1", uuid, errors.InvalidInput(reason="x"))
    assert world.state(uuid)[0] == "error" and reset(world, names=["web"]).unchanged
    with pytest.raises(errors.InstanceInvalidState) as refused:
        reset(world, "active", names=["web"])
    assert "never ran" in refused.value.remedy


def test_a_deletion_is_repeated(world: World) -> None:
    world.report("h1")
    uuid = world.boot("web")
    world.delete(names=["web"])
    world.time += 601
    with pytest.raises(errors.InstanceInvalidState, match="task_state deleting") as refused:
        reset(world, names=["web"])
    assert "bootflow_delete_force" in refused.value.remedy and world.state(uuid)[1] == "deleting"


def test_a_soft_deleted_one_counts_again_and_is_meant_by_name(world: World) -> None:
    world.report("h1")
    uuid = world.boot("web")
    operate(world, "soft_delete", "web", states.SHUTDOWN)
    assert world.row(uuid).deleted_at and not reset(world, hosts=["h1"]).rows
    limits = {"instances": 0}
    with pytest.raises(errors.OverQuota):
        call(world, "p", reset_state.reset, Selection(names=["web"]), "error", limits)
    reset(world, names=["web"])
    assert (world.row(uuid).vm_state, world.row(uuid).deleted_at) == ("error", None)


def move(world: World, name: str) -> MovingInstance:
    wanted = cold.Wanted(Selection(names=[name]), ("h1", "h2"), BACKENDS, None)
    (moving,) = call(world, "o", cold.begin, wanted, world.fleet, world.options()).moving
    assert isinstance(moving, MovingInstance)
    return moving


def test_a_move_whose_disks_had_not_arrived_ends_where_its_host_is_lost(world: World) -> None:
    world.report("h1")
    uuid = world.boot("web")
    world.report("h2")
    move(world, "web")
    with pytest.raises(errors.InstanceBusy):
        reset(world, names=["web"])
    world.time += 601
    with pytest.raises(errors.InstanceInvalidState, match="resize_migrating") as refused:
        reset(world, names=["web"])
    assert "the report of h1 settles it" in refused.value.remedy and "force it down" in refused.value.remedy
    lose(world, "h1")
    reset(world, names=["web"])
    assert world.state(uuid) == ("error", None, "h1")
    assert world.cleanups() == {(uuid, "h2")}, "its claim there stays until the host is cleaned"
    assert [m.status for m in world.rows(tables.migrations)] == [moves.ERROR]
    assert all(a.finish_time for a in world.rows(tables.instance_actions))


def test_a_move_whose_disks_had_arrived_and_one_that_waits_are_kept(world: World) -> None:
    world.report("h1")
    uuid = world.boot("web")
    world.report("h2")
    move(world, "web")
    call(world, "o", cold_life.switch, [uuid])
    lose(world, "h1", "h2")
    with pytest.raises(errors.InstanceInvalidState, match="resize_finish") as refused:
        reset(world, names=["web"])
    assert "the report of h2 settles it" in refused.value.remedy
    with world.ledger.write() as tx:
        tx.execute(tables.instances.update().values(vm_state="resized", task_state=None))
    with pytest.raises(errors.InstanceInvalidState, match="resized") as refused:
        reset(world, names=["web"])
    assert "confirm_resize" in refused.value.remedy
    assert world.claims() == {(uuid, "h1"), (uuid, "h2")}


def test_a_live_migration_is_settled_by_reports_alone(world: World) -> None:
    world.report("h1")
    uuid = world.boot("web")
    world.report("h2")
    move(world, "web")
    with world.ledger.write() as tx:
        tx.execute(tables.instances.update().values(task_state="migrating"))
        tx.execute(tables.migrations.update().values(migration_type=moves.LIVE_MIGRATION))
    lose(world, "h1", "h2")
    with pytest.raises(errors.InstanceInvalidState, match="migrating") as refused:
        reset(world, names=["web"])
    assert "the guest may be on h1 or on h2" in refused.value.remedy and world.state(uuid)[1] == "migrating"


def test_an_evacuation_of_a_dead_run_whose_new_host_is_lost_too(world: World) -> None:
    world.report("h1")
    uuid = world.boot("web")
    world.report("h2")
    lose(world, "h1")
    wanted = evacuate.Wanted(Selection(names=["web"]))
    call(world, "o", evacuate.begin, wanted, world.fleet, world.options())
    world.time += 601
    with pytest.raises(errors.InstanceInvalidState, match="rebuilding"):
        reset(world, names=["web"])
    lose(world, "h2")
    reset(world, names=["web"])
    assert world.state(uuid) == ("error", None, "h2") and world.cleanups() == {(uuid, "h1")}
    world.report("h3")
    begun = call(world, "e", evacuate.begin, wanted, world.fleet, world.options())
    assert [r.host for r in begun.rows] == ["h3"]


def play(world: World, check_mode: bool = False, **options: t.Any) -> tuple[dict[str, t.Any], str]:
    ports = WorldPorts(world, "o")
    variables = {"inventory_hostname": "localhost", "hostvars": {"localhost": {}}, "groups": {}}
    result = action_of(instance_reset_state, ports, variables, check_mode, **options).act()
    return result, ports.shown[-1]


def test_the_action(world: World) -> None:
    world.report("h1")
    uuid = world.boot("web")
    operate(world, "pause", "web", states.POWER_PAUSED)
    before = world.everything()
    result, shown = play(world, True, names=["web"])
    assert result["changed"] and "Would reset_state" in shown and world.everything() == before
    result, shown = play(world, names=["web"])
    mine = {"name": "web", "uuid": uuid, "host": "h1", "before": "paused", "vm_state": "error"}
    assert (result["changed"], result["instances"], result["unchanged"]) == (True, [mine], [])
    assert "paused -> error" in shown
    assert (result["diff"]["before"], result["diff"]["after"]) == ("web %s: paused\n" % uuid, "web %s: error\n" % uuid)
    result, shown = play(world, names=["web"])
    assert not result["changed"] and result["unchanged"] == [{**mine, "before": "error"}] and "nothing to do" in shown
    assert play(world, project="default", all=True, state="active")[0]["instances"][0]["vm_state"] == "active"
