# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What leaves a host that is drained, what stays, and which moves are confirmed."""

from __future__ import annotations

import dataclasses
import typing as t

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.core.instances import states
from ansible_collections.bootflow.compute.plugins.module_utils.flows.instances.operation import Selection
from ansible_collections.bootflow.compute.plugins.module_utils.flows.moves import cold, cold_life, confirm, drain
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.compute import nodes, service_state
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.schema import tables
from ansible_collections.bootflow.compute.tests.unit.worlds.world import World

from .test_cold import LARGE, QCOW2, Movers


@pytest.fixture(name="world")
def _movers(world: World) -> t.Iterator[Movers]:
    made = Movers(world.url)
    made.report("h1", memory=9)
    yield made
    with made.ledger.read() as tx:
        made.check(tx)
    made.ledger.close()


def begin(world: Movers, host: str = "h1") -> drain.Drained:
    wanted = cold.Wanted(Selection(hosts=[host]), tuple(QCOW2), QCOW2)
    return t.cast(drain.Drained, world.call(drain.begin, host, wanted))


def put(world: Movers, uuid: str, **values: t.Any) -> None:
    with world.ledger.write() as tx:
        tx.execute(tables.instances.update().where(tables.instances.c.uuid == uuid).values(**values))


def names(world: Movers) -> dict[str, str]:
    return {r.uuid: r.display_name for r in world.rows(tables.instances)}


def test_what_leaves_and_what_stays(world: Movers) -> None:
    uuids = {name: world.boot(name) for name in ("web", "off", "paused", "busy", "kept")}
    put(world, uuids["off"], vm_state=states.STOPPED, power_state=states.SHUTDOWN)
    put(world, uuids["paused"], vm_state=states.PAUSED)
    put(world, uuids["busy"], task_state=states.POWERING_OFF, run_id="another")
    begun = begin(world)
    assert begun.disabled and {r.display_name for r in begun.leaves} == {"web", "off", "kept"}
    assert {names(world)[u]: e.code for u, e in begun.stays.items()} == {
        "paused": "InstanceInvalidState",
        "busy": "InstanceInvalidState",
    }
    again = begin(world)
    assert not again.disabled and len(again.leaves) == 3
    (node,) = world.rows(tables.compute_nodes)
    assert (node.service_disabled, node.service_disabled_reason) == (True, "drained")


def test_who_disabled_it_before_keeps_the_reason(world: Movers) -> None:
    world.call(service_state.set_state, ["h1"], "disabled", "a fan")
    assert not begin(world).disabled
    assert [n.service_disabled_reason for n in world.rows(tables.compute_nodes)] == ["a fan"]
    with pytest.raises(errors.ComputeHostNotFound):
        begin(world, "h9")


def test_migrations_are_confirmed_and_resizes_are_not(world: Movers) -> None:
    migrated, resized, crashed = (world.boot(name) for name in ("a", "b", "c"))
    world.report("h2")
    begin(world)
    world.move(migrated)
    world.move(resized, dataclasses.replace(LARGE, root_gb=1))
    world.move(crashed, power_state=states.SHUTDOWN)
    world.call(service_state.set_state, ["h2"], "forced_down", "")
    assert world.call(drain.to_confirm, "h1") == [], "h1 may have all that there is of it"
    world.call(service_state.set_state, ["h2"], "up", "")
    assert world.call(drain.to_confirm, "h1") == [migrated]
    left = world.call(drain.remaining_instances, "h1")
    assert set(left) == {migrated, resized, crashed}
    assert {error.code for _row, error in left.values()} == {"InstanceInvalidState"}

    world.call(confirm.confirm, Selection(uuids=[migrated]))
    left = world.call(drain.remaining_instances, "h1")
    assert "not cleaned" in left[migrated][1].message
    world.cleaned("h1")
    assert set(world.call(drain.remaining_instances, "h1")) == {resized, crashed}
    world.revert(resized)
    world.call(confirm.confirm, Selection(uuids=[crashed]))
    world.cleaned("h1")
    ((uuid, (row, error)),) = world.call(drain.remaining_instances, "h1").items()
    assert (uuid, row.host, error) == (resized, "h1", None), "it came back, and is there"


def test_a_move_under_way_keeps_the_host(world: Movers) -> None:
    uuid = world.boot("a")
    world.report("h2")
    assert [m.uuid for m in world.set_out(uuids=[uuid]).moving] == [uuid]
    assert uuid in world.call(drain.remaining_instances, "h1")
    world.call(cold_life.switch, [uuid])
    assert world.call(drain.to_confirm, "h1") == [] and uuid in world.call(drain.remaining_instances, "h1")


def test_one_that_somebody_locked_keeps_no_other_from_being_confirmed(world: Movers) -> None:
    free, kept = world.boot("a"), world.boot("b")
    world.report("h2")
    begin(world)
    world.move(free)
    world.move(kept)
    put(world, kept, locked_by="eve")
    uuids = world.call(drain.to_confirm, "h1")
    assert uuids == [free] and world.call(confirm.confirm, Selection(uuids=uuids)).sources == {free: "h1"}
    assert world.call(drain.remaining_instances, "h1")[kept][1].code == "InstanceIsLocked"


def test_hosts_of_what_an_earlier_run_migrated_are_asked_first(world: Movers) -> None:
    """If one died since, its former host, which is drained, has all that there is of the instance."""
    uuid = world.boot("a")
    world.report("h2")
    begin(world)
    world.move(uuid)
    world.time += 100
    assert world.call(drain.hosts_to_ask, "h1", run="m") == [], "this run has just heard of it"
    assert (
        world.call(drain.hosts_to_ask, "h1", run="n") == ["h2"] and world.call(drain.hosts_to_ask, "h2", run="n") == []
    )
    world.call(nodes.record_unreachable, "h2", "no route")
    assert world.call(drain.to_confirm, "h1", run="n") == []
    world.report("h2")
    assert world.call(drain.hosts_to_ask, "h1", run="n") == [] and world.call(drain.to_confirm, "h1", run="n") == [uuid]
