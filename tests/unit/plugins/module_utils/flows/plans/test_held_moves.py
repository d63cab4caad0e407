# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Hosts that plans of moves hold for instances that exist: against whom, until when, how they are used and given back."""

from __future__ import annotations

import collections
import dataclasses
import typing as t

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.core.audit import evidence as host_evidence
from ansible_collections.bootflow.compute.plugins.module_utils.core.audit import plan as core_audit
from ansible_collections.bootflow.compute.plugins.module_utils.core.instances import states
from ansible_collections.bootflow.compute.plugins.module_utils.core.instances.server_groups import ServerGroup
from ansible_collections.bootflow.compute.plugins.module_utils.core.plans.plan_file import Plan
from ansible_collections.bootflow.compute.plugins.module_utils.flows.instances.operation import Selection
from ansible_collections.bootflow.compute.plugins.module_utils.flows.moves import cold, cold_life, confirm
from ansible_collections.bootflow.compute.plugins.module_utils.flows.plans import held, held_moves
from ansible_collections.bootflow.compute.plugins.module_utils.flows.recovery import audit as recovery_audit
from ansible_collections.bootflow.compute.plugins.module_utils.ledger import purge
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.compute import claims, instances, service_state
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.plans import places
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.schema import tables
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.schema.plan_tables import plan_places
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.schema.plan_tables import plans as plans_table
from ansible_collections.bootflow.compute.tests.unit.worlds.world import World

from ..boot.test_races import race
from ..moves.test_cold import LARGE, Movers

TTL = 600.0
HOSTS = ("h1", "h2", "h3")


@pytest.fixture(name="world")
def _movers(world: World) -> t.Iterator[Movers]:
    made = Movers(world.url)
    for host in ("h1", "h2"):
        made.report(host)
    yield made
    with made.ledger.read() as tx:
        made.check(tx)
    made.ledger.close()


def wanted(flavor: t.Any = LARGE, **which: t.Any) -> cold.Wanted:
    more = {n: which.pop(n) for n in ("same_host", "quotas") if n in which}
    return cold.Wanted(Selection(**which), HOSTS, dict.fromkeys(HOSTS, "qcow2"), flavor, **more)


def hold(world: Movers, flavor: t.Any = LARGE, ttl: float = TTL, **which: t.Any) -> Plan | None:
    with world.ledger.write() as tx:
        tx = tx.for_run(world.context("a"))
        plan = held_moves.hold(tx, wanted(flavor, **which), world.fleet, world.options(), ttl, "ledger")
        world.check(tx)
        return plan


def held_plan(world: Movers, flavor: t.Any = LARGE, **which: t.Any) -> Plan:
    plan = hold(world, flavor, **which)
    assert plan is not None
    return plan


def use(
    world: Movers, plan: Plan, flavor: t.Any = LARGE, run: str = "m", usable: t.Collection[str] = HOSTS, **which: t.Any
) -> cold.Begun:
    with world.ledger.write() as tx:
        tx = tx.for_run(world.context(run))
        ask = wanted(flavor, **which)
        begun = held_moves.begin(tx, plan, "plan.json", ask, usable, world.fleet, world.options())
        world.check(tx)
        return begun


def refused(world: Movers, plan: Plan, *arguments: t.Any, **which: t.Any) -> str:
    """The plan is refused, and nothing is changed."""
    before = world.everything()
    with pytest.raises(errors.PlanRefused) as caught:
        use(world, plan, *arguments, **which)
    assert world.everything() == before
    return "%s: %s" % (caught.value.code, caught.value.message)


def discard(world: Movers, *ids: str) -> list[str]:
    return t.cast("list[str]", world.call(held.discard, ids))


def state(world: Movers, plan: Plan) -> str:
    return str(world.rows(plans_table, plans_table.c.id == plan["id"])[0].state)


def kinds(world: Movers, uuid: str) -> list[str]:
    return sorted(r.kind for r in world.rows(tables.claims, tables.claims.c.instance_uuid == uuid))


def test_an_instance_stays_as_it_is_while_a_plan_holds_a_host_for_it(world: Movers) -> None:
    uuid = world.boot("web")
    before = world.row(uuid)
    plan = held_plan(world, uuids=[uuid])
    (planned,) = plan["instances"]
    other = {"h1": "h2", "h2": "h1"}[before.host]
    assert (plan["kind"], planned["from"], planned["host"]) == ("resize", before.host, other)
    assert (planned["flavor"], planned["new_flavor"]) == ("small", "large")
    assert (planned["claims"]["memory_mb"], planned["claims"]["vcpus"]) == (2048, 2)
    assert planned["ports"][0]["addresses"] == world.addresses(uuid)
    assert world.row(uuid) == before and kinds(world, uuid) == ["build", "plan"]
    assert world.used(other)[0] == 2048

    begun = use(world, plan, uuids=[uuid])
    assert [m.move.dest_compute for m in begun.moving] == [other]
    assert state(world, plan) == "used" and kinds(world, uuid) == ["build", "move"] and world.count(plan_places) == 0
    world.call(cold_life.switch, [uuid])
    world.call(cold_life.finish, cold_life.RESIZE, {uuid: cold_life.Result(states.RUNNING)})
    world.call(confirm.confirm, Selection(uuids=[uuid]))
    assert world.state(uuid) == ("active", None, other)
    assert refused(world, plan, uuids=[uuid]).startswith("PlanUsed")


def test_a_plan_of_migrations(world: Movers) -> None:
    uuids = [world.boot("web"), world.boot("db")]
    plan = held_plan(world, None, uuids=uuids)
    assert plan["kind"] == "migrate" and [i["new_flavor"] for i in plan["instances"]] == [None, None]
    begun = use(world, plan, None, uuids=uuids)
    assert {m.uuid: m.move.dest_compute for m in begun.moving} == {i["uuid"]: i["host"] for i in plan["instances"]}


def test_two_plans_and_a_move_compete_for_the_last_room(world: Movers) -> None:
    """A third host has the only room."""
    for host in ("h1", "h2"):
        world.report(host, memory=1)
    one, two = world.boot("one"), world.boot("two")
    world.report("h3", memory=2)
    plan = held_plan(world, uuids=[one])
    assert plan["instances"][0]["host"] == "h3"
    with pytest.raises(held_moves.Unplaced):
        hold(world, uuids=[two])
    assert set(world.set_out(uuids=[two], flavor=LARGE).failed) == {two}
    assert world.used("h3")[0] == 2048 and use(world, plan, uuids=[one]).moving


def test_plans_race_for_the_last_room(world: Movers) -> None:
    for host in ("h1", "h2"):
        world.report(host, memory=4)
    uuids = [world.boot("web-%d" % n) for n in range(8)]
    world.report("h3", memory=4)

    def work(mine: World, number: int) -> list[str]:
        try:
            with mine.ledger.write() as tx:
                tx = tx.for_run(mine.context("r%d" % number))
                plan = held_moves.hold(tx, wanted(uuids=[uuids[number]]), mine.fleet, mine.options(), TTL, "ledger")
                return ["held" if plan else "nothing"]
        except held_moves.Unplaced:
            return ["full"]

    answers = collections.Counter(a for some in race(world, work) for a in some)
    assert answers == {"held": 2, "full": 6} and world.used("h3")[0] == 4096


def test_an_instance_is_in_one_plan(world: Movers) -> None:
    uuid = world.boot("web")
    plan = held_plan(world, uuids=[uuid])
    with pytest.raises(errors.PlanNotPossible, match="the plan %s holds a host for web" % plan["id"]):
        hold(world, uuids=[uuid])
    discard(world, plan["id"])
    assert hold(world, uuids=[uuid])


def test_a_request_that_differs(world: Movers) -> None:
    uuid, other = world.boot("web"), world.boot("db")
    plan = held_plan(world, uuids=[uuid])
    bigger = dataclasses.replace(LARGE, memory_mb=3000)
    assert "flavor.memory_mb was 2048, is 3000" in refused(world, plan, bigger, uuids=[uuid])
    renamed = dataclasses.replace(LARGE, name="huge")
    assert "PlanRequestDiffers" in refused(world, plan, renamed, uuids=[uuid])
    assert "db is not in the plan" in refused(world, plan, uuids=[uuid, other])
    assert "web is not selected any more" in refused(world, plan, uuids=[other])
    assert state(world, plan) == "held" and use(world, plan, uuids=[uuid]).moving


def test_an_instance_that_changed(world: Movers) -> None:
    uuid = world.boot("web")
    plan = held_plan(world, uuids=[uuid])
    source = plan["instances"][0]["from"]
    world.call(lambda tx: instances.write(tx, [uuid], vm_state=states.STOPPED))
    assert "web: vm_state was active, is stopped" in refused(world, plan, uuids=[uuid])
    world.call(lambda tx: instances.write(tx, [uuid], vm_state=states.ACTIVE))
    other = plan["instances"][0]["host"]
    assert "is not among the hosts" in refused(world, plan, uuids=[uuid], usable=[source])
    world.call(lambda tx: service_state.set_state(tx, [other], service_state.DISABLED, "power"))
    text = refused(world, plan, uuids=[uuid])
    assert "PlanOutdated" in text and other in text and "ComputeFilter" in text and "power" in text
    world.call(lambda tx: service_state.set_state(tx, [other], service_state.ENABLED))
    world.report(other, memory=1)
    assert "host %s: RamFilter" % other in refused(world, plan, uuids=[uuid])
    world.report(other)
    world.move(uuid, None)  # without the plan
    assert "web: host was %s, is %s" % (source, other) in refused(world, plan, uuids=[uuid])


def test_a_deleted_instance(world: Movers) -> None:
    uuid = world.boot("web")
    plan = held_plan(world, uuids=[uuid])
    host = world.row(uuid).host
    world.delete(uuids=[uuid])
    world.removed(host, [uuid])
    world.finish()
    assert kinds(world, uuid) == [] and world.used(plan["instances"][0]["host"])[0] == 0
    assert "instance web does not exist any more" in refused(world, plan, uuids=[uuid])
    assert discard(world, plan["id"]) == [plan["id"]]


def test_an_expired_plan_gives_its_hosts_back(world: Movers) -> None:
    uuid = world.boot("web")
    plan = held_plan(world, uuids=[uuid])
    other = plan["instances"][0]["host"]
    world.time += TTL + 1
    world.report(other)
    world.call(held.expire)
    assert refused(world, plan, uuids=[uuid]).startswith("PlanExpired")
    assert (state(world, plan), kinds(world, uuid), world.used(other)) == ("expired", ["build"], (0, 0, 0, 0))
    assert world.count(plan_places) == 0


def test_discard_gives_back_once(world: Movers) -> None:
    uuid = world.boot("web")
    plan = held_plan(world, uuids=[uuid])
    assert [p.display_name for p in world.call(held.listed)[0].places] == ["web"]
    assert discard(world, plan["id"]) == [plan["id"]] and discard(world, plan["id"]) == []
    assert kinds(world, uuid) == ["build"] and refused(world, plan, uuids=[uuid]).startswith("PlanDiscarded")
    world.time += 10**6
    with world.ledger.read() as tx:
        assert purge.plan(tx, world.time)["plans"] == 1
    purge.purge(world.ledger, world.time)
    assert world.count(plans_table) == 0


def test_a_resize_on_its_own_host(world: Movers) -> None:
    uuid = world.boot("web")
    host = world.row(uuid).host
    world.call(
        lambda tx: service_state.set_state(tx, [{"h1": "h2", "h2": "h1"}[host]], service_state.DISABLED, "power")
    )
    plan = held_plan(world, uuids=[uuid], same_host=True)
    assert plan["instances"][0]["host"] == host and world.used(host)[3] == 1
    assert "PlanOutdated" in refused(world, plan, uuids=[uuid])  # without same_host
    assert use(world, plan, uuids=[uuid], same_host=True).moving


def test_a_place_of_a_group_stays_with_the_move_that_is_there(world: Movers) -> None:
    group = ServerGroup(id="apart", name="apart", policy="anti-affinity", max_server_per_host=1)
    uuid = world.boot("web", server_group=group)
    plan = held_plan(world, uuids=[uuid])
    with (
        world.ledger.write() as tx
    ):  # without the plan, to the same host; a filter would leave that out, as it has a member
        tx = tx.for_run(world.context("m"))
        (moving,) = cold.begin(
            tx, wanted(uuids=[uuid]), world.fleet, world.options(enabled_filters=("RamFilter",))
        ).moving
    assert moving.move.dest_compute == plan["instances"][0]["host"] and kinds(world, uuid) == ["build", "move", "plan"]
    discard(world, plan["id"])
    slots = {r.kind: r.group_slot for r in world.rows(tables.claims, tables.claims.c.instance_uuid == uuid)}
    assert slots == {"build": 0, "move": 0}


def test_an_audit_keeps_what_plans_hold(world: Movers) -> None:
    """A claim of a plan without a place is released."""
    uuid = world.boot("web")
    plan = held_plan(world, uuids=[uuid])

    def stale() -> list[core_audit.Finding]:
        with world.ledger.read() as tx:
            found = recovery_audit.plan(tx.for_run(world.context("z")), host_evidence.Evidence())
        return [f for f in found if f.kind == core_audit.STALE_CLAIM]

    assert stale() == []
    with world.ledger.write() as tx:
        places.remove(tx, [uuid])
    (finding,) = stale()
    assert (finding.instance, finding.host) == (uuid, plan["instances"][0]["host"])
    world.call(recovery_audit.repair, [finding], host_evidence.Evidence())
    assert stale() == [] and kinds(world, uuid) == ["build"]


def test_quotas_are_asked_again(world: Movers) -> None:
    uuid = world.boot("web")
    quotas = {"cores": 1}
    with pytest.raises(errors.BootflowError, match="[Qq]uota"):
        hold(world, uuids=[uuid], quotas=quotas)
    plan = held_plan(world, uuids=[uuid])
    with pytest.raises(errors.BootflowError, match="[Qq]uota"):
        use(world, plan, uuids=[uuid], quotas=quotas)
    assert state(world, plan) == "held"


def test_nothing_to_move_makes_no_plan(world: Movers) -> None:
    uuid = world.boot("web")
    world.move(uuid, LARGE)
    assert hold(world, uuids=[uuid]) is None and world.count(plans_table) == 0
    assert claims.PLAN not in kinds(world, uuid)
