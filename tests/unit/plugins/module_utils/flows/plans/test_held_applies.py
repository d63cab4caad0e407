# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What plans of apply hold: all or nothing, used once with the first change, given back where a run dies."""

from __future__ import annotations

import dataclasses
import typing as t

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.core.instances import states
from ansible_collections.bootflow.compute.plugins.module_utils.core.instances.request import ServerRequest
from ansible_collections.bootflow.compute.plugins.module_utils.core.plans.plan_file import Plan
from ansible_collections.bootflow.compute.plugins.module_utils.flows.apply import fleet
from ansible_collections.bootflow.compute.plugins.module_utils.flows.boot import accept
from ansible_collections.bootflow.compute.plugins.module_utils.flows.instances import delete
from ansible_collections.bootflow.compute.plugins.module_utils.flows.instances.operation import Selection
from ansible_collections.bootflow.compute.plugins.module_utils.flows.moves import cold
from ansible_collections.bootflow.compute.plugins.module_utils.flows.plans import held, held_applies
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.compute import instances
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.plans import plans
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.schema import tables
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.schema.plan_tables import plan_places
from ansible_collections.bootflow.compute.tests.unit.worlds.world import SMALL, World, request

from ..moves.test_cold import Movers

TTL = 600.0
HOSTS = ("h1", "h2", "h3")
LARGE = dataclasses.replace(SMALL, name="large", memory_mb=2048, vcpus=2, root_gb=3)


@pytest.fixture(name="world")
def _fleet(world: World) -> t.Iterator[Movers]:
    """web and old on h1; h2 and h3 are empty."""
    made = Movers(world.url)
    made.report("h1", memory=2)
    made.boot("web")
    made.boot("old")
    made.report("h2", memory=3)
    made.report("h3", memory=3)
    yield made
    with made.ledger.read() as tx:
        made.check(tx)
    made.ledger.close()


def file(world: Movers, *requests: ServerRequest, **more: t.Any) -> fleet.File:
    """web gets larger, old is deleted, new is booted; unless others are requested."""
    moves = cold.Wanted(Selection(), HOSTS, dict.fromkeys(HOSTS, "qcow2"))
    options = accept.AcceptOptions(networks=world.networks, quotas=more.pop("quotas", {}))
    entries = requests or (request("web", flavor=LARGE, allow=("resize",)), request("new"))
    return fleet.File(entries, options, prune=True, moves=moves, **more)


def look(world: Movers, its: fleet.File, plan: Plan | None = None) -> held_applies.Wanted:
    with world.ledger.rehearse() as tx:
        tx = tx.for_run(world.context("a"))
        if plan is not None:
            held_applies.give_back(tx, plan, "plan.json")
        return held_applies.Wanted(its, fleet.rehearse(tx, its))


def hold(world: Movers, its: fleet.File) -> Plan | None:
    wanted = look(world, its)
    with world.ledger.write() as tx:
        tx = tx.for_run(world.context("a"))
        plan = held_applies.hold(tx, wanted, world.fleet, world.options(), TTL, "ledger")
        world.check(tx)
        return plan


def judge(world: Movers, plan: Plan, its: fleet.File, usable: t.Collection[str] = HOSTS) -> None:
    held_applies.judge_request(plan, look(world, its, plan), {})
    with world.ledger.rehearse() as tx:
        tx = tx.for_run(world.context("m"))
        held_applies.judge_hosts(tx, plan, its, usable, world.fleet, world.options())


def begin(world: Movers, plan: Plan, its: fleet.File, run: str = "m") -> fleet.Begun:
    return t.cast("fleet.Begun", world.call(held_applies.begin, plan, "plan.json", its, HOSTS, run=run))


def kinds(world: Movers) -> list[str]:
    return sorted(r.kind for r in world.rows(tables.claims))


def uuid_of(world: Movers, name: str) -> str:
    with world.ledger.read() as tx:
        (row,) = (r for r in instances.select_live(tx) if r.display_name == name)
        return row.uuid


def write(world: Movers, name: str, **fields: t.Any) -> None:
    uuid = uuid_of(world, name)
    world.call(lambda tx: instances.write(tx, [uuid], **fields))


def test_a_plan_is_begun_as_it_was_made(world: Movers) -> None:
    its = file(world)
    plan = hold(world, its)
    assert plan is not None and kinds(world) == ["build", "build", "build", "plan"]
    of_plan = {i["name"]: i for i in plan["instances"]}
    assert sorted(of_plan) == ["new", "web"] and of_plan["web"]["from"] == "h1" != of_plan["web"]["host"]
    assert [i["name"] for i in plan["request"]["existing"]] == ["old"]
    judge(world, plan, its)
    begun = begin(world, plan, its)
    assert begun.operations == {"resize": [of_plan["web"]["uuid"]]} and uuid_of(world, "new") == of_plan["new"]["uuid"]
    with pytest.raises(errors.PlanUsed):
        begin(world, plan, its)
    same = dataclasses.replace(file(world, request("web"), request("old")), prune=False)
    assert hold(world, same) is None, "there is nothing to do"


def test_each_difference_is_named(world: Movers) -> None:
    its = file(world)
    plan = t.cast(Plan, hold(world, its))
    more = request("web", flavor=LARGE, allow=("resize",))
    with pytest.raises(errors.PlanRequestDiffers, match="max_count was 1, is 2"):
        judge(world, plan, file(world, more, request("new", 2)))
    with pytest.raises(errors.PlanRequestDiffers, match="prune was True, is False"):
        judge(world, plan, dataclasses.replace(its, prune=False))
    for instance in plan["instances"]:
        others = [h for h in HOSTS if h != instance["host"]]
        with pytest.raises(errors.PlanOutdated, match="host %s is not among" % instance["host"]):
            judge(world, plan, its, others)
    write(world, "old", vm_state=states.STOPPED, power_state=states.SHUTDOWN)
    for check in (judge, begin):
        with pytest.raises(errors.PlanOutdated, match="old: vm_state was active, is stopped"):
            check(world, plan, its)
    write(world, "old", vm_state=states.ACTIVE, power_state=states.RUNNING)
    judge(world, plan, its)
    assert kinds(world) == ["build", "build", "build", "plan"]


def test_a_host_without_room_is_named_where_others_have_some(world: Movers) -> None:
    plan = t.cast(Plan, hold(world, file(world)))
    for instance in plan["instances"]:
        for host in HOSTS:
            world.report(host, memory=0 if host == instance["host"] else 9)
        with pytest.raises(errors.PlanOutdated, match="host %s: RamFilter" % instance["host"]):
            judge(world, plan, file(world))


def test_changes_between_judgement_and_beginning_are_found(world: Movers) -> None:
    its = file(world)
    plan = t.cast(Plan, hold(world, its))
    judge(world, plan, its)
    write(world, "web", vm_state=states.PAUSED, power_state=states.POWER_PAUSED)
    with pytest.raises(errors.PlanOutdated, match="web"):
        begin(world, plan, its)
    write(world, "web", vm_state=states.ACTIVE, power_state=states.RUNNING)
    world.report("h2", memory=9)
    world.boot("another")
    with pytest.raises(errors.PlanOutdated, match="another has changed"):
        begin(world, plan, its)
    new = uuid_of(world, "new")
    world.call(lambda tx: delete.withdraw(tx, instances.select_live(tx, uuids=[new]), claimed=[new]))
    with pytest.raises(errors.PlanOutdated, match="instance new does not exist any more"):
        begin(world, plan, its)
    assert plans_of(world) == ["held"]


def plans_of(world: Movers) -> list[str]:
    with world.ledger.read() as tx:
        return [row.state for row in plans.all_of(tx)]


def test_all_or_nothing(world: Movers) -> None:
    large = request("web", flavor=LARGE, allow=("resize",))
    for host in ("h2", "h3"):
        world.report(host, memory=0)
    for its in (file(world), file(world, request("web"), request("new"))):
        with pytest.raises(errors.PlanNotPossible, match="No valid host"):
            hold(world, its)
    for host in ("h2", "h3"):
        world.report(host, memory=3)
    quotas = {"instances": 2}
    with pytest.raises(errors.PlanNotPossible, match="Quota"):
        hold(world, file(world, large, request("new"), quotas=quotas))
    some = dataclasses.replace(request("new", 2), min_count=1)
    with pytest.raises(errors.PlanNotPossible, match="no place for new-2"):
        hold(world, file(world, large, some, quotas={"instances": 3}))
    assert kinds(world) == ["build", "build"] and plans_of(world) == [] and world.count(plan_places) == 0


def test_a_plan_that_only_deletes_or_changes_holds_no_place(world: Movers) -> None:
    tagged = dataclasses.replace(request("web"), metadata={"role": "db"})
    for its in (file(world, tagged), file(world, request("web"))):
        plan = t.cast(Plan, hold(world, its))
        assert plan["instances"] == [] and kinds(world) == ["build", "build"]
        judge(world, plan, its)
        world.call(held.discard, [plan["id"]])
        plan = t.cast(Plan, hold(world, its))
        begin(world, plan, its)
    assert plans_of(world).count("used") == 2 == plans_of(world).count("discarded")


def test_another_instance_of_the_name_is_not_the_planned_one(world: Movers) -> None:
    its = file(world)
    plan = t.cast(Plan, hold(world, its))
    old = uuid_of(world, "old")
    for host in world.delete("b", uuids=[old]).hosts:
        world.removed(host, [old], "b")
    world.finish("b")
    world.boot("old")
    assert uuid_of(world, "old") != old
    with pytest.raises(errors.PlanOutdated, match="old: delete is not in the plan"):
        judge(world, plan, its)
    with pytest.raises(errors.PlanOutdated, match="instance old does not exist any more"):
        begin(world, plan, its)


def test_a_run_that_dies_leaves_nothing_held(world: Movers) -> None:
    its = file(world)
    plan = t.cast(Plan, hold(world, its))
    begin(world, plan, its, run="d")
    assert world.call(plans.any_expired) is False
    world.time += 100_000
    assert world.call(plans.any_expired) is True
    world.call(held.expire)
    assert kinds(world) == ["build", "build", "build"] and world.count(plan_places) == 0
    changed = {c.name: c.kind for c in look(world, its).changes.to_do}
    assert changed == {"web": "resize", "old": "delete", "new": "boot"}, "a run without the plan goes on"


def test_an_expired_plan_gives_all_back(world: Movers) -> None:
    its = file(world)
    plan = t.cast(Plan, hold(world, its))
    world.time += TTL + 1
    with pytest.raises(errors.PlanExpired):
        begin(world, plan, its)
    world.call(held.expire)
    assert kinds(world) == ["build", "build"] and world.count(plan_places) == 0 and plans_of(world) == ["expired"]
