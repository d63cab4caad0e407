# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Hosts that plans of drains hold: all or none, used step by step, given back where a run dies between the steps."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.core.instances import states
from ansible_collections.bootflow.compute.plugins.module_utils.core.plans.plan_file import Plan
from ansible_collections.bootflow.compute.plugins.module_utils.flows.instances.operation import Selection
from ansible_collections.bootflow.compute.plugins.module_utils.flows.moves import cold, live
from ansible_collections.bootflow.compute.plugins.module_utils.flows.plans import held, held_drains
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.compute import instances, service_state
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.plans import plans
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.schema import tables
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.schema.plan_tables import plan_places
from ansible_collections.bootflow.compute.tests.unit.worlds.world import World

from ..moves.test_cold import Movers

TTL = 600.0
HOSTS = ("h1", "h2", "h3")
BACKENDS = dict.fromkeys(HOSTS, "qcow2")


@pytest.fixture(name="world")
def _movers(world: World) -> t.Iterator[Movers]:
    made = Movers(world.url)
    made.report("h1")
    yield made
    with made.ledger.read() as tx:
        made.check(tx)
    made.ledger.close()


def cold_moves(**more: t.Any) -> cold.Wanted:
    return cold.Wanted(Selection(hosts=["h1"]), HOSTS, BACKENDS, **more)


def wanted(is_live: bool = False, host: str = "h1") -> held_drains.Wanted:
    running = live.Wanted(Selection(hosts=[host]), HOSTS, BACKENDS) if is_live else None
    return held_drains.Wanted(host, cold_moves(), running)


def hold(world: Movers, is_live: bool = False) -> Plan | None:
    with world.ledger.write() as tx:
        tx = tx.for_run(world.context("a"))
        plan = held_drains.hold(tx, wanted(is_live), world.fleet, world.options(), TTL, "ledger")
        world.check(tx)
        return plan


def judge(
    world: Movers, plan: Plan, is_live: bool = False, host: str = "h1", usable: t.Collection[str] = HOSTS
) -> None:
    with world.ledger.rehearse() as tx:
        ask = wanted(is_live, host)
        held_drains.judge(tx.for_run(world.context("m")), plan, ask, usable, world.fleet, world.options())


def use(world: Movers, plan: Plan, is_live: bool = False) -> t.Any:
    return world.call(held_drains.use, plan, "plan.json", wanted(is_live), HOSTS)


def kinds(world: Movers) -> list[str]:
    return sorted(r.kind for r in world.rows(tables.claims))


def is_disabled(world: Movers) -> bool:
    with world.ledger.read() as tx:
        return bool(service_state.states_of(tx, ["h1"])["h1"]["disabled"])


@pytest.mark.parametrize("is_live", [False, True])
def test_each_step_takes_over_what_the_plan_holds(world: Movers, is_live: bool) -> None:
    uuids = sorted(world.boot(name) for name in ("web", "db"))
    world.report("h2", memory=1)
    world.report("h3", memory=1)
    plan = hold(world, is_live)
    assert plan is not None and not is_disabled(world), "nothing is changed but what is held"
    hosts = {i["uuid"]: i["host"] for i in plan["instances"]}
    assert {i["how"] for i in plan["instances"]} == {"live_migrate" if is_live else "migrate"}
    assert sorted(hosts) == uuids and sorted(hosts.values()) == ["h2", "h3"]
    judge(world, plan, is_live)
    drained = use(world, plan, is_live)
    assert drained.disabled and is_disabled(world)
    assert kinds(world) == ["build", "build", "plan", "plan"], "until its migrations begin"
    for uuid in uuids:
        with world.ledger.write() as tx:
            tx = tx.for_run(world.context("m"))
            if is_live:
                ask = live.Wanted(Selection(uuids=[uuid]), HOSTS, BACKENDS, to_hosts=hosts, planned=tuple(hosts))
                (moving,) = live.begin(tx, ask, world.fleet, world.options(), lambda _h, _f: None).moving  # type: ignore[arg-type,return-value]
            else:
                only = cold.Wanted(Selection(uuids=[uuid]), HOSTS, BACKENDS, to_hosts=hosts)
                (moving,) = cold.begin(tx, only, world.fleet, world.options()).moving
            assert moving.move.dest_compute == hosts[uuid]
            world.check(tx)
    assert kinds(world) == ["build", "build", "move", "move"] and world.count(plan_places) == 0


def test_all_of_a_host_or_nothing(world: Movers) -> None:
    uuids = [world.boot(name) for name in ("web", "db")]
    world.report("h2", memory=1)
    with pytest.raises(errors.PlanNotPossible, match="No valid host"):
        hold(world)
    world.report("h2")
    world.call(lambda tx: instances.write(tx, [uuids[0]], vm_state=states.PAUSED))
    with pytest.raises(errors.PlanNotPossible, match="web stays"):
        hold(world)
    assert kinds(world) == ["build", "build"] and world.count(plan_places) == 0


def test_an_empty_host_makes_no_plan(world: Movers) -> None:
    assert hold(world) is None


def test_what_changed_is_named(world: Movers) -> None:
    uuid = world.boot("web")
    world.report("h2")
    world.report("h3")
    plan = hold(world)
    assert plan is not None
    host = plan["instances"][0]["host"]

    def refused(**how: t.Any) -> str:
        before = world.everything()
        with pytest.raises(errors.PlanRefused) as caught:
            judge(world, plan, **how)
        assert world.everything() == before
        return "%s: %s" % (caught.value.code, caught.value.message)

    assert "PlanRequestDiffers" in refused(is_live=True) and "host was h1, is h2" in refused(host="h2")
    assert "is not among the hosts" in refused(usable=["h1"])
    world.call(lambda tx: service_state.set_state(tx, [host], service_state.DISABLED, "power"))
    assert "power" in refused()
    world.call(lambda tx: service_state.set_state(tx, [host], service_state.ENABLED))
    world.call(lambda tx: instances.write(tx, [uuid], vm_state=states.STOPPED))
    assert "web: vm_state was active, is stopped" in refused()
    world.call(lambda tx: instances.write(tx, [uuid], vm_state=states.ACTIVE))
    judge(world, plan)


def test_a_run_that_dies_between_the_steps_gives_back_what_is_held(world: Movers) -> None:
    world.boot("web")
    world.report("h2")
    plan = hold(world)
    assert plan is not None
    use(world, plan)
    with world.ledger.read() as tx:
        assert not plans.any_expired(tx.for_run(world.context("z"))), "its run lives"
    world.time += 100_000
    with world.ledger.read() as tx:
        assert plans.any_expired(tx.for_run(world.context("z")))
    world.call(held.expire, run="z")
    assert kinds(world) == ["build"] and world.count(plan_places) == 0 and world.used("h2") == (0, 0, 0, 0)
    with world.ledger.read() as tx:
        assert not plans.any_expired(tx.for_run(world.context("z")))


def test_what_a_finished_drain_still_holds_is_given_back(world: Movers) -> None:
    world.boot("web")
    world.report("h2")
    plan = hold(world)
    assert plan is not None
    use(world, plan)
    world.call(held.give_places_back, plan["id"])
    assert kinds(world) == ["build"] and world.count(plan_places) == 0
