# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The rolling service in the ledger: who works on it, states of hosts, what left and comes back."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.core.service.host_life import (
    DONE,
    DRAIN,
    PENDING,
    REPORT,
    RETURN,
    TASKS,
)
from ansible_collections.bootflow.compute.plugins.module_utils.flows.instances.operation import Selection
from ansible_collections.bootflow.compute.plugins.module_utils.flows.moves import cold, confirm
from ansible_collections.bootflow.compute.plugins.module_utils.flows.service import rolling
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.compute import service_state
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.schema import tables
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.service import services
from ansible_collections.bootflow.compute.tests.unit.worlds.world import World

from ..moves.test_cold import QCOW2, Movers

ZONES = {"h1": "east", "h2": "west"}


@pytest.fixture(name="world")
def _movers(world: World) -> t.Iterator[Movers]:
    made = Movers(world.url)
    made.report("h1", memory=9)
    made.report("h2", memory=9)
    yield made
    with made.ledger.read() as tx:
        made.check(tx)
    made.ledger.close()


def states(world: Movers, zones: t.Mapping[str, str] | None = None) -> dict[str, str]:
    return {h.name: h.state for h in world.call(rolling.overview, "spring", zones or ZONES).hosts}


def enter(world: Movers, restart: bool = False, name: str = "spring", run: str | None = None) -> rolling.Overview:
    more = {} if run is None else {"run": run}
    return t.cast(rolling.Overview, world.call(rolling.enter, name, ZONES, restart, **more))


def finish(world: Movers, host: str) -> None:
    world.call(rolling.begin, "spring", [host])
    for state in (DRAIN, TASKS, REPORT, RETURN):
        assert not world.call(rolling.step, "spring", host, state, True)


def disabled(world: Movers) -> dict[str, str]:
    return {n.host: n.service_disabled_reason for n in world.rows(tables.compute_nodes) if n.service_disabled}


def test_a_host_is_disabled_until_it_has_reported(world: Movers) -> None:
    enter(world)
    world.call(rolling.begin, "spring", ["h1"])
    assert disabled(world) == {"h1": "service spring"}
    for state, following in ((DRAIN, TASKS), (TASKS, REPORT)):
        assert world.call(rolling.step, "spring", "h1", state, False) and states(world)["h1"] == state
        assert not world.call(rolling.step, "spring", "h1", state, True) and states(world)["h1"] == following
    assert not world.call(rolling.has_reported, "spring", "h1")
    world.time += 5
    world.report("h1", memory=9)
    assert world.call(rolling.has_reported, "spring", "h1")
    world.call(rolling.step, "spring", "h1", REPORT, True)
    assert disabled(world) == {} and states(world) == {"h1": RETURN, "h2": PENDING}


@pytest.mark.parametrize("when", ["before", "meanwhile"])
def test_a_host_that_a_person_disabled_stays_disabled(world: Movers, when: str) -> None:
    enter(world)
    if when == "before":
        world.call(service_state.set_state, ["h1"], "disabled", "a fan")
    world.call(rolling.begin, "spring", ["h1"])
    if when == "meanwhile":
        world.call(service_state.set_state, ["h1"], "disabled", "a fan")
    for state in (DRAIN, TASKS, REPORT, RETURN):
        world.call(rolling.step, "spring", "h1", state, True)
    assert disabled(world) == {"h1": "a fan"} and states(world)["h1"] == DONE


def test_what_is_done_is_serviced_again_only_if_that_is_wanted(world: Movers) -> None:
    enter(world)
    finish(world, "h1")
    world.call(rolling.begin, "spring", ["h2"])
    assert {h.name: h.state for h in enter(world).hosts} == {"h1": DONE, "h2": DRAIN}
    assert {h.name: h.state for h in enter(world, restart=True).hosts} == {"h1": PENDING, "h2": DRAIN}
    assert world.call(rolling.overview, "spring", {"h1": "east"}).unselected == ["h2"]


def test_one_run_at_a_time_and_none_after_it_was_taken_over(world: Movers) -> None:
    enter(world, run="first")
    for name in ("spring", "summer"):
        with pytest.raises(errors.ServiceBusy, match="The run run-first works on the service spring"):
            enter(world, name=name, run="second")
    world.call(services.leave, "spring", 7.0, run="first")
    enter(world, run="second")
    for function, arguments in ((rolling.begin, ["h1"]), (rolling.step, "h1")):
        more = (DRAIN, True) if function is rolling.step else ()
        with pytest.raises(errors.ServiceBusy, match="second"):
            world.call(function, "spring", arguments, *more, run="first")
    assert states(world) == {"h1": PENDING, "h2": PENDING} and disabled(world) == {}
    assert world.call(rolling.overview, "spring", ZONES).longest == 7.0


def test_unknown_hosts(world: Movers) -> None:
    with pytest.raises(errors.ComputeHostNotFound, match="h7"):
        world.call(rolling.enter, "spring", {"h1": "east", "h7": "east"}, False)
    assert world.call(services.read, "spring") is None


def test_what_left_comes_back_and_what_cannot_leave_is_refused(world: Movers) -> None:
    world.call(service_state.set_state, ["h2"], "disabled", "")
    uuids = {name: world.boot(name) for name in ("web", "db", "paused")}
    world.call(service_state.set_state, ["h2"], "enabled", "")
    put(world, uuids["paused"], vm_state="paused")
    wanted = cold.Wanted(Selection(), tuple(QCOW2), QCOW2)
    refused = world.call(rolling.refusals, ["h1"], wanted, None)
    assert {row.display_name: e.code for row, e in refused.values()} == {"paused": "InstanceInvalidState"}
    enter(world)
    world.call(rolling.begin, "spring", ["h1"])
    for name in ("web", "db"):
        world.move(uuids[name])
        world.call(confirm.confirm, Selection(uuids=[uuids[name]]), tuple(QCOW2))
        world.cleaned("h1")
    assert {r.display_name for r in world.call(rolling.absent, "spring", "h1")} == {"web", "db"}
    put(world, uuids["db"], vm_state="paused")
    back = world.call(rolling.to_return, "spring", "h1", wanted, None)
    assert [r.display_name for r in back.leaves] == ["web"] and set(back.stays) == {uuids["db"]}
    for state in (DRAIN, TASKS, REPORT):
        world.call(rolling.step, "spring", "h1", state, True)
    world.move(uuids["web"])
    assert world.call(rolling.to_confirm, "spring", "h1") == [uuids["web"]]
    assert [r.display_name for r in world.call(rolling.absent, "spring", "h1")] == ["db"]


def put(world: Movers, uuid: str, **values: t.Any) -> None:
    with world.ledger.write() as tx:
        tx.execute(tables.instances.update().where(tables.instances.c.uuid == uuid).values(**values))
