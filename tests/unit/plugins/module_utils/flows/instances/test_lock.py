# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Locks of instances: who may lock and unlock, what is refused meanwhile, and what the journal has of it."""

from __future__ import annotations

import dataclasses
import typing as t

import pytest

from ansible_collections.bootflow.compute.plugins.action import instance_lock
from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.core.instances import states
from ansible_collections.bootflow.compute.plugins.module_utils.flows.instances import lock, operation
from ansible_collections.bootflow.compute.plugins.module_utils.flows.instances.operation import Selection
from ansible_collections.bootflow.compute.plugins.module_utils.flows.instances.operations import OPERATIONS
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.compute import history, instances, views
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.schema import tables
from ansible_collections.bootflow.compute.tests.unit.worlds.actions import WorldPorts, action_of
from ansible_collections.bootflow.compute.tests.unit.worlds.world import World


def act(world: World, user: str, function: t.Callable[..., lock.Changed], *arguments: t.Any, **which: t.Any) -> t.Any:
    context = world.context(user)
    context = dataclasses.replace(context, run=dataclasses.replace(context.run, actor=user))
    with world.ledger.write() as tx:
        return function(tx.for_run(context), Selection(**which), *arguments)


def stop(world: World, user: str, name: str) -> operation.Begun:
    context = world.context(user)
    context = dataclasses.replace(context, run=dataclasses.replace(context.run, actor=user))
    with world.ledger.rehearse() as tx:
        return operation.begin(tx.for_run(context), OPERATIONS["stop"], Selection(names=[name]), ["h1"])


def test_who_locked_it_passes_and_others_are_refused(world: World) -> None:
    world.report("h1")
    uuid = world.boot("web")
    assert [r.uuid for r in act(world, "bob", lock.lock, "the backup runs", names=["web"]).rows] == [uuid]
    assert [r.uuid for r in stop(world, "bob", "web").rows] == [uuid]
    with pytest.raises(errors.InstanceIsLocked, match="Instance %s is locked" % uuid) as caught:
        stop(world, "ann", "web")
    assert caught.value.status == 409 and "bob locked it: the backup runs" in caught.value.remedy
    for refused in (
        lambda: act(world, "ann", lock.lock, "", names=["web"]),
        lambda: act(world, "ann", lock.unlock, names=["web"]),
    ):
        with pytest.raises(errors.InstanceIsLocked):
            refused()
    with world.ledger.read() as tx:
        (view,) = views.instance_views(tx.for_run(world.context("v")), instances.select_live(tx, uuids=[uuid]))
    assert (view["locked_by"], view["locked_reason"]) == ("bob", "the backup runs")
    act(world, "bob", lock.unlock, names=["web"])
    assert [r.uuid for r in stop(world, "ann", "web").rows] == [uuid]
    assert (world.row(uuid).locked_by, world.row(uuid).locked_reason) == (None, None)


def test_all_or_none_and_nothing_twice(world: World) -> None:
    world.report("h1")
    one, two = world.boot("one"), world.boot("two")
    act(world, "bob", lock.lock, "", names=["two"])
    before = world.everything()
    with pytest.raises(errors.InstanceIsLocked):
        act(world, "ann", lock.lock, "", names=["one", "two"])
    with pytest.raises(errors.InstanceIsLocked):
        act(world, "ann", lock.unlock, names=["one", "two"])
    with pytest.raises(errors.InstanceNotFound):
        act(world, "ann", lock.lock, "", names=["one", "nobody"])
    with pytest.raises(errors.InvalidInput, match="bootflow_locked_reason has 256 characters"):
        act(world, "ann", lock.lock, "x" * 256, names=["one"])
    assert [r.uuid for r in act(world, "ann", lock.unlock, names=["one"]).unchanged] == [one]
    changed = act(world, "bob", lock.lock, "", names=["two"])
    assert (changed.rows, [r.uuid for r in changed.unchanged]) == ([], [two])
    after = world.everything()
    for seen in (before, after):
        seen.pop("runs", None)
    assert after == before
    assert act(world, "bob", lock.lock, "why", names=["two"]).rows and world.row(two).locked_reason == "why"
    assert [r.uuid for r in act(world, "ann", lock.unlock, True, names=["one", "two"]).rows] == [two], "overridden"


def test_any_state_can_be_locked_and_no_other_is_touched(world: World) -> None:
    world.report("h1")
    uuid = world.boot("web")
    with world.ledger.write() as tx:
        tx.execute(tables.instances.update().values(vm_state=states.ERROR, task_state=states.REBOOTING, run_id="r"))
    act(world, "bob", lock.lock, "", uuids=[uuid])
    row = world.row(uuid)
    assert (row.vm_state, row.task_state, row.run_id, row.locked_by) == (states.ERROR, states.REBOOTING, "r", "bob")
    with world.ledger.write() as tx:
        tx.execute(tables.instances.update().values(vm_state=states.ACTIVE, task_state=None))


def test_a_lock_is_in_the_journal(world: World) -> None:
    world.report("h1")
    uuid = world.boot("web", project="p")
    act(world, "bob", lock.lock, "why", names=["web"])
    world.time += 1
    act(world, "ann", lock.unlock, True, names=["web"])
    actions = [(a.action, a.user_name, a.project, a.message) for a in world.rows(tables.instance_actions)][-2:]
    assert actions == [("lock", "bob", "p", None), ("unlock", "ann", "p", None)]
    assert all(a.finish_time for a in world.rows(tables.instance_actions))
    with world.ledger.read() as tx:
        assert [(e["event"], e["result"]) for e in history.events_of(tx, uuid)][-2:] == [
            ("lock", "Success"),
            ("unlock", "Success"),
        ]
    told = [(n.event_type, n.payload) for n in world.rows(tables.notifications)][-2:]
    assert told == [
        ("compute.instance.lock", {"host": "h1", "locked_reason": "why"}),
        ("compute.instance.unlock", {"host": "h1"}),
    ]


def play(world: World, state: str, check_mode: bool = False, **options: t.Any) -> tuple[dict[str, t.Any], str]:
    ports = WorldPorts(world, "o")
    variables = {"inventory_hostname": "localhost", "hostvars": {"localhost": {}}, "groups": {}}
    result = action_of(instance_lock, ports, variables, check_mode, state=state, **options).act()
    return result, ports.shown[-1]


def test_the_action_asks_no_host(world: World) -> None:
    world.report("h1")
    uuid = world.boot("web")
    before = world.everything()
    result, shown = play(world, "locked", True, names=["web"], reason="why")
    assert result["changed"] and "Would lock" in shown and world.everything() == before
    result, shown = play(world, "locked", names=["web"], reason="why")
    mine = {"name": "web", "uuid": uuid, "host": "h1", "locked_by": "ann", "locked_reason": "why"}
    assert (result["changed"], result["instances"], result["unchanged"]) == (True, [mine], []) and "why" in shown
    assert (result["diff"]["before"], result["diff"]["after"]) == (
        "web %s: unlocked\n" % uuid,
        "web %s: locked by ann\n" % uuid,
    )
    result, shown = play(world, "locked", names=["web"])
    assert (result["changed"], result["instances"], result["unchanged"]) == (
        False,
        [],
        [mine],
    ) and "nothing to do" in shown
    result, _shown = play(world, "unlocked", project="default", all=True)
    assert result["instances"] == [{**mine, "locked_by": None, "locked_reason": None}]
