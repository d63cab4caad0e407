# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a plan holds, on sqlite and PostgreSQL: against whom, until when, how it is used and given back."""

from __future__ import annotations

import collections
import typing as t
from dataclasses import replace

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.core.instances import states
from ansible_collections.bootflow.compute.plugins.module_utils.core.instances.server_groups import ServerGroup
from ansible_collections.bootflow.compute.plugins.module_utils.core.plans.plan_file import Plan
from ansible_collections.bootflow.compute.plugins.module_utils.core.plans.plan_states import run_of
from ansible_collections.bootflow.compute.plugins.module_utils.flows.boot import accept, builds, schedule
from ansible_collections.bootflow.compute.plugins.module_utils.flows.plans import held
from ansible_collections.bootflow.compute.plugins.module_utils.flows.recovery import leases
from ansible_collections.bootflow.compute.plugins.module_utils.ledger import purge
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.compute import fleet, instances
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.db.transaction import Transaction
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.plans import plans
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.schema import tables
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.schema.plan_tables import plans as plans_table
from ansible_collections.bootflow.compute.tests.unit.worlds.world import World, request

from ..boot.test_races import race

TTL = 600.0


@pytest.fixture(autouse=True)
def _laws(world: World) -> t.Iterator[None]:
    yield
    with world.ledger.read() as tx:
        world.check(tx)


def options(world: World) -> accept.AcceptOptions:
    return accept.AcceptOptions(networks=world.networks)


def hold(world: World, *entries: t.Any, run: str = "a", ttl: float = TTL) -> Plan:
    """A plan of these entries, in one transaction, as a boot in check mode makes it."""
    with world.ledger.write() as tx:
        tx = tx.for_run(world.context(run))
        accepted = accept.accept(tx, entries, options(world))
        held.check_holdable(tx, accepted)
        result = schedule.schedule(tx, world.fleet, world.options(explain_failures=True))
        if result.failed or result.waiting:
            raise errors.NoValidHost(reason="it does not fit")
        rows = [r for r in instances.select_live(tx, uuids=accepted.created) if instances.is_placed(r)]
        return held.hold(tx, "boot", entries, builds.load(tx, rows), ttl, "ledger")


def use(world: World, plan: Plan, *entries: t.Any, run: str = "b") -> accept.Accepted:
    with world.ledger.write() as tx:
        return held.use(tx.for_run(world.context(run)), plan, "plan.json", entries, options(world))


def check(world: World, plan: Plan, usable: t.Collection[str] = ("h1", "h2", "h3"), **fields: t.Any) -> None:
    """Judge the hosts of a plan, and roll back."""
    wanted = {i["host"] for i in plan["instances"]}

    def read(tx: Transaction, needs: fleet.Needs = fleet.NUMBERS_ONLY) -> t.Any:
        return fleet.read(tx, sorted(wanted), needs=needs)

    with world.ledger.rehearse() as tx:
        held.check_hosts(tx.for_run(world.context("b")), plan, set(usable), read, world.options(explain=True, **fields))


def discard(world: World, *ids: str) -> list[str]:
    with world.ledger.write() as tx:
        return held.discard(tx.for_run(world.context("c")), ids)


def expire(world: World) -> list[str]:
    with world.ledger.write() as tx:
        return held.expire(tx.for_run(world.context("c")))


def state(world: World, plan: Plan) -> str:
    return str(world.rows(plans_table, plans_table.c.id == plan["id"])[0].state)


def test_what_is_held_is_what_is_used(world: World) -> None:
    world.report("h1", memory=2)
    world.report("h2", memory=1)
    plan = hold(world, request("web", 3))
    planned = {i["uuid"]: i for i in plan["instances"]}
    assert {world.row(u).run_id for u in planned} == {run_of(plan["id"])}
    before = {table.name: world.rows(table) for table in (tables.claims, tables.ports, tables.ip_allocations)}
    check(world, plan)
    accepted = use(world, plan, request("web", 3))
    assert set(accepted.resumed) == set(planned) and not accepted.created
    assert {table.name: world.rows(table) for table in (tables.claims, tables.ports, tables.ip_allocations)} == before
    assert state(world, plan) == "used"
    for host in ("h1", "h2"):
        world.build(host, run="b")
    for uuid, instance in planned.items():
        assert world.state(uuid) == (states.ACTIVE, None, instance["host"])
        assert world.addresses(uuid) == instance["ports"][0]["addresses"]
    with pytest.raises(errors.PlanUsed):
        use(world, plan, request("web", 3), run="c")


def test_nobody_else_gets_what_is_held(world: World) -> None:
    world.report("h1", memory=2)
    plan = hold(world, request("web", 2))
    refusals = world.refusals(request("web", 2), run="b")
    assert {r["code"] for r in refusals} == {"InstanceBusy"} and "held by the plan" in refusals[0]["message"]
    uuid = world.accept(request("other"), run="b").created[0]
    world.schedule("b")
    assert world.state(uuid)[0] == states.ERROR and world.fault(uuid).error_code == "NoValidHost"
    assert discard(world, plan["id"]) == [plan["id"]]
    assert world.used("h1") == (0, 0, 0, 0)
    assert world.accept(request("web", 2), run="b").created


def test_held_instances_are_no_load_of_a_host(world: World) -> None:
    world.report("h1", memory=9)
    hold(world, request("web", 3))
    with world.ledger.read() as tx:
        assert [h.num_io_ops for h in world.hosts(tx.for_run(world.context("b")))] == [0]
    world.boot("other", "scheduled", run="b")
    with world.ledger.read() as tx:
        assert [h.num_io_ops for h in world.hosts(tx.for_run(world.context("b")))] == [1]


def test_time_gives_it_back(world: World) -> None:
    world.report("h1", memory=2)
    plan = hold(world, request("web", 2))
    world.time += TTL - 1
    assert expire(world) == []
    world.time += 1
    with pytest.raises(errors.PlanExpired):
        use(world, plan, request("web", 2))
    assert expire(world) == [plan["id"]] and expire(world) == []
    assert state(world, plan) == "expired" and world.claims() == set() and world.addresses() == []
    with pytest.raises(errors.PlanExpired):
        use(world, plan, request("web", 2))
    assert world.count(tables.cleanups) == 0, "no host has anything of it"


def test_a_boot_gives_back_what_expired_meanwhile(world: World) -> None:
    """Its leases come after what it accepted; no report of a host decides about instances of plans."""
    world.report("h1", memory=2)
    plan = hold(world, request("web", 2))
    world.time += TTL + 1
    with world.ledger.read() as tx:
        tx = tx.for_run(world.context("b"))
        assert instances.builds_of_expired_runs(tx, tx.run.id) == []
    with world.ledger.write() as tx:
        assert leases.expire(tx.for_run(world.context("b"))) == leases.Expired([], [])
    assert state(world, plan) == "expired" and world.claims() == set()
    assert world.count(tables.instance_faults) == 0


def test_a_plan_that_is_discarded(world: World) -> None:
    world.report("h1", memory=2)
    plan = hold(world, request("web"))
    with pytest.raises(errors.PlanNotFound):
        discard(world, plan["id"], "no-such")
    assert state(world, plan) == "held", "all or nothing"
    assert discard(world, plan["id"], plan["id"]) == [plan["id"]] and discard(world, plan["id"]) == []
    with pytest.raises(errors.PlanDiscarded):
        use(world, plan, request("web"))


def test_what_is_not_as_planned_is_refused_and_nothing_changes(world: World) -> None:
    world.report("h1", memory=4)
    plan = hold(world, request("web", 2))
    everything = world.everything()
    refused: list[tuple[type[errors.BootflowError], Plan, list[t.Any]]] = [
        (errors.PlanNotFound, {**plan, "id": "other"}, [request("web", 2)]),
        (errors.PlanAltered, {**plan, "hash": "0" * 64}, [request("web", 2)]),
        (errors.PlanRequestDiffers, plan, [request("web", 3)]),
    ]
    for kind, given, entries in refused:
        with pytest.raises(kind):
            use(world, given, *entries)
        assert world.everything() == everything


def test_a_deleted_instance_is_named(world: World) -> None:
    world.report("h1", memory=4)
    plan = hold(world, request("web", 2))
    gone = plan["instances"][0]
    world.delete(uuids=[gone["uuid"]])
    world.removed("h1", [gone["uuid"]])
    world.finish()
    for work in (lambda: check(world, plan), lambda: use(world, plan, request("web", 2))):
        with pytest.raises(errors.PlanOutdated, match="instance %s does not exist any more" % gone["name"]):
            work()
    assert state(world, plan) == "held"
    discard(world, plan["id"])
    assert world.claims() == set()


def test_the_filters_judge_each_host_again(world: World) -> None:
    world.report("h1", memory=2)
    world.report("h2", memory=1)
    plan = hold(world, request("web", 3))
    everything = world.everything()
    check(world, plan)
    assert world.everything() == everything, "rolled back"
    with pytest.raises(errors.PlanOutdated, match="host h2 is not among the hosts of this run"):
        check(world, plan, ["h1"])
    world.report("h1", memory=1)
    with pytest.raises(errors.PlanOutdated, match="host h1: RamFilter") as caught:
        check(world, plan)
    assert "h2" not in caught.value.message
    world.report("h1", memory=2)
    check(world, plan)
    world.report("h2", memory=1, disabled=True)
    with pytest.raises(errors.PlanOutdated, match="host h2: ComputeFilter"):
        check(world, plan)


def test_members_of_a_group_do_not_refuse_each_other_or_themselves(world: World) -> None:
    for host in ("h1", "h2", "h3"):
        world.report(host, memory=4)
    group = ServerGroup(id="6f0e0000-0000-4000-8000-000000000001", name="apart", policy="anti-affinity")
    fields = {"server_group": group, "scheduler_hints": {"group": group.id}}
    plan = hold(world, request("web", 2, **fields))
    assert len({i["host"] for i in plan["instances"]}) == 2
    check(world, plan)
    others = hold(world, request("db", 1, **fields))
    assert others["instances"][0]["host"] not in {i["host"] for i in plan["instances"]}
    check(world, others)
    check(world, plan)


def test_what_no_plan_can_hold(world: World) -> None:
    world.report("h1", memory=4)
    world.boot("web")
    with pytest.raises(errors.PlanNotPossible, match="change web in place"):
        hold(world, request("web", description="new"))
    world.boot("db", "scheduled", run="dead")
    world.time += 1000
    with pytest.raises(errors.PlanNotPossible, match="continue with db"):
        hold(world, request("db"), run="z")
    with pytest.raises(errors.NoValidHost):
        hold(world, request("many", 9))
    assert world.count(plans_table) == 0


def test_a_build_of_a_plan_is_not_tried_elsewhere(world: World) -> None:
    world.report("h1", memory=4)
    world.report("h2", memory=3)
    plan = hold(world, request("web"))
    (instance,) = plan["instances"]
    use(world, plan, request("web"))
    world.build(instance["host"], "spawning", run="b")
    outcome = world.fail(instance["host"], instance["uuid"], errors.LibvirtError(reason="no"), run="b")
    assert outcome == "error" and world.state(instance["uuid"])[0] == states.ERROR


def test_lists_and_old_plans(world: World) -> None:
    world.report("h1", memory=4)
    one = hold(world, request("web"))
    world.time += 1
    two = hold(world, request("db"))
    with world.ledger.read() as tx:
        listed = held.listed(tx.for_run(world.context("b")))
    assert [(x.row.id, x.state, [r.display_name for r in x.rows]) for x in listed] == [
        (two["id"], "held", ["db"]),
        (one["id"], "held", ["web"]),
    ]
    discard(world, one["id"])
    world.time += TTL
    with world.ledger.read() as tx:
        assert [x.state for x in held.listed(tx.for_run(world.context("b")))] == ["expired", "discarded"]
    assert purge.purge(world.ledger, world.time + 1).get("plans") == 1
    assert [r.id for r in world.rows(plans_table)] == [two["id"]], "one that holds places is kept"
    expire(world)
    with world.ledger.read() as tx:
        assert not plans.any_expired(tx.for_run(world.context("b")))


@pytest.mark.slow
def test_plans_and_boots_race_for_the_last_places(world: World) -> None:
    """8 processes, half of them make plans and half of them boot, for 10 places: no host ever gives more than it has, and what a plan got it builds."""
    for number in range(2):
        world.report("h%d" % number, memory=5)

    def work(mine: World, number: int) -> list[str]:
        run, answers = "r%d" % number, []
        for turn in range(4):
            name = "p%d-%d" % (number, turn)
            if number % 2:
                uuid = mine.boot(name, "accepted", run=run, networks=())
                while mine.state(uuid)[:2] == (states.BUILDING, states.SCHEDULING):
                    mine.schedule(run)
                answers.append("booted" if mine.state(uuid)[2] else "no host")
                continue
            entry = request(name, networks=())
            try:
                plan = mine.ledger.for_run(mine.context(run)).transact(_hold, mine, entry, collisions=3)
            except errors.BootflowError as e:
                answers.append(e.code)
                continue
            if turn % 2:
                use(mine, plan, entry, run=run)
                answers.append("used")
            else:
                answers.append("held")
        return answers

    answers = collections.Counter(a for some in race(world, work) for a in some)
    assert answers["booted"] + answers["used"] + answers["held"] == 10, answers
    assert [world.used("h%d" % n)[0] for n in range(2)] == [5 * 1024] * 2
    held_now = [r for r in world.rows(tables.instances) if (r.run_id or "").startswith("plan/") and r.host]
    assert len(held_now) == answers["held"]
    world.time += 10 * TTL
    expire(world)
    assert len(world.claims()) == 10 - answers["held"]


def _hold(tx: Transaction, world: World, entry: t.Any) -> Plan:
    accepted = accept.accept(tx, [entry], options(world))
    result = schedule.schedule(tx, world.fleet, replace(world.options(), max_attempts=1))
    if result.failed or result.waiting:
        raise errors.NoValidHost(reason="it does not fit")
    rows = [r for r in instances.select_live(tx, uuids=accepted.created) if instances.is_placed(r)]
    return held.hold(tx, "boot", [entry], builds.load(tx, rows), TTL, "ledger")


@pytest.mark.slow
def test_one_plan_is_used_once_by_many(world: World) -> None:
    world.report("h1", memory=5)
    plan = hold(world, request("web", 2))

    def work(mine: World, number: int) -> list[str]:
        try:
            use(mine, plan, request("web", 2), run="r%d" % number)
        except errors.BootflowError as e:
            return [e.code]
        return ["used"]

    answers = collections.Counter(a for some in race(world, work) for a in some)
    assert answers == {"used": 1, "PlanUsed": 7}
    assert len({r.run_id for r in world.rows(tables.instances)}) == 1
