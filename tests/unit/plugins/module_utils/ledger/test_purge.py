# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import typing as t

import pytest
import sqlalchemy as sa

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.ledger import purge
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.compute import history, runs
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.schema import tables, volume_tables
from ansible_collections.bootflow.compute.tests.unit.worlds.world import World, at

DAY = 86400.0


def gone(world: World, *names: str, at: float) -> list[str]:
    """Instances of these names that were active and were deleted at this time."""
    world.time = at - 100
    world.report("h1", memory=50)
    uuids = [world.boot(name) for name in names]
    with world.ledger.write() as tx:
        history.add_fault(tx.for_run(world.context()), uuids[0], errors.NoValidHost(reason="x"), "h1")
    world.time = at
    world.delete(uuids=uuids)
    world.removed("h1", uuids)
    deleted, left = world.finish()
    assert sorted(deleted) == sorted(names) and not left
    return uuids


def of(world: World, uuids: t.Collection[str]) -> dict[str, int]:
    """table -> rows that have to do with these instances."""
    found = {}
    for name, rows in world.everything().items():
        count = sum(any(v in uuids for v in r) for r in rows)
        if count:
            found[name] = count
    return found


def old_world(world: World) -> tuple[list[str], list[str], list[str]]:
    """Instances deleted 100 days ago, deleted 10 days ago, and living ones as old as the first; now is day 0."""
    now = world.time
    old = gone(world, "old-1", "old-2", "old-3", at=now - 100 * DAY)
    world.time = now - 100 * DAY
    living = [world.boot("living"), world.boot("building", until="networking"), world.boot("waiting", until="accepted")]
    with world.ledger.write() as tx:
        history.add_fault(tx.for_run(world.context()), living[0], errors.NoValidHost(reason="x"), "h1")
    recent = gone(world, "recent", at=now - 10 * DAY)
    world.time = now
    return old, recent, living


def test_what_is_long_over_goes_and_nothing_else(world: World) -> None:
    old, recent, living = old_world(world)
    before = world.everything()
    keep = {"recent": of(world, recent), "living": of(world, living)}
    limit = purge.cutoff(world.time, 30)
    assert limit == world.time - 30 * DAY
    planned = world.ledger.inspect(purge.plan, limit)
    assert world.everything() == before
    removed = purge.purge(world.ledger, limit, batch=2)
    assert removed == planned
    assert removed["instances"] == 3 and removed["reservations"] == 3 and removed["request_specs"] == 3
    assert removed["instance_actions"] == 6 and removed["instance_faults"] == 1
    assert of(world, old) == {}
    left = of(world, recent)
    assert left.pop("notifications", 0) <= keep["recent"].pop("notifications", 0)
    assert left == keep["recent"] and of(world, living) == keep["living"]
    assert purge.purge(world.ledger, limit) == {} == world.ledger.inspect(purge.plan, limit)
    # and the living go on
    world.ledger.for_run(world.context()).transact(runs.renew)
    world.delete(names=["living"])
    world.removed("h1", [living[0]])
    assert world.finish()[0] == ["living"]
    with world.ledger.read() as tx:
        assert tx.execute(sa.select(tables.instances.c.uuid).where(tables.instances.c.deleted == "")).all()


def test_zero_keeps_for_ever() -> None:
    assert purge.cutoff(1e9, 0) is None and purge.cutoff(1e9, -1) is None
    assert purge.cutoff(10 * DAY, 0.5) == 9.5 * DAY


def test_the_moment_itself_is_kept(world: World) -> None:
    now = world.time
    gone(world, "a", at=now)
    assert purge.purge(world.ledger, now).get("instances") is None
    assert purge.purge(world.ledger, now + 0.001)["instances"] == 1


def test_a_name_is_free_as_before_and_its_instances_are_told_apart(world: World) -> None:
    now = world.time
    gone(world, "web", at=now - 50 * DAY)
    gone(world, "web", at=now - 5 * DAY)
    world.time = now - 40 * DAY
    living = world.boot("web", run="b")
    world.time = now
    assert purge.purge(world.ledger, now - 30 * DAY)["instances"] == 1
    assert world.count(tables.instances) == 2 and world.row(living).deleted == ""


@pytest.mark.parametrize("what", ["claims", "cleanups"])
def test_what_a_host_still_has_keeps_its_instance(world: World, what: str) -> None:
    now = world.time
    world.time = now - 60 * DAY
    world.report("h1", memory=50)
    uuid = world.boot("web")
    world.delete(uuids=[uuid])
    world.finish(force=True)  # the host did not answer
    world.time = now
    assert {u for u, _h in world.cleanups()} == {uuid}
    counts = world.ledger.inspect(purge.plan, now - DAY)
    removed = purge.purge(world.ledger, now - DAY)
    assert removed == counts and "instances" not in removed
    assert of(world, [uuid])[what] == 1 and of(world, [uuid])["instance_actions"] == 2
    world.removed("h1", [uuid])
    assert purge.purge(world.ledger, now - DAY)["instances"] == 1 and of(world, [uuid]) == {}


def test_instances_of_one_reservation_go_one_by_one(world: World) -> None:
    now = world.time
    world.time = now - 60 * DAY
    world.report("h1", memory=50)
    first, second = world.boot("web", min_count=2, max_count=2), None
    for placed in world.rows(tables.instances):
        second = placed.uuid if placed.uuid != first else second
    world.delete(uuids=[first])
    world.removed("h1", [first])
    world.finish()
    world.time = now
    removed = purge.purge(world.ledger, now - DAY)
    assert removed["instances"] == 1 and "reservations" not in removed and "request_specs" not in removed
    assert [r.uuid for r in world.rows(tables.instances)] == [second]


def test_runs_that_are_over_go_unless_somebody_living_is_theirs(world: World) -> None:
    now = world.time
    world.report("h1", memory=50)
    world.time = now - 60 * DAY
    for run in ("x", "y"):
        world.ledger.for_run(world.context(run)).transact(runs.renew)
    waiting = world.boot("waiting", until="accepted", run="z")
    world.time = now
    world.ledger.for_run(world.context("fresh")).transact(runs.renew)
    assert world.row(waiting).run_id == "run-z"
    assert purge.purge(world.ledger, now - DAY) == {"runs": 2}
    assert [r.id for r in world.rows(tables.runs)] == ["run-fresh", "run-z"]


def test_notifications_of_nobody_go_when_they_are_old(world: World) -> None:
    now = world.time
    world.report("h1", memory=50)
    uuid = world.boot("web")
    with world.ledger.write() as tx:
        history.notify(at(tx, now - 60 * DAY), ["nobody", uuid], "x", {})
        history.notify(at(tx, now - DAY / 2), ["nobody", uuid], "x", {})
    count = world.count(tables.notifications)
    assert purge.purge(world.ledger, now - DAY) == {"notifications": 1}
    assert world.count(tables.notifications) == count - 1


def test_transactions_stay_short(world: World) -> None:
    now = world.time
    gone(world, *["n%d" % i for i in range(12)], at=now - 60 * DAY)
    sizes: list[int] = []
    real = world.ledger.transact

    class Counting:
        @staticmethod
        def transact(function: t.Any, *arguments: t.Any) -> t.Any:
            done = real(function, *arguments)
            if isinstance(done, dict) and "instances" in done:
                sizes.append(done["instances"])
            return done

    assert purge.purge(Counting(), now - DAY, batch=5)["instances"] == 12
    assert sizes == [5, 5, 2, 0]


def test_every_table_is_thought_of() -> None:
    """A table that refers to an instance either keeps it from going or goes with it, volumes apart; the same for volumes."""
    going = {table.name for table in purge._referrers()}
    for table in tables.metadata.tables.values():
        refers = "instance_uuid" in table.c or any(
            key.column.table.name == "instances" for column in table.c for key in column.foreign_keys
        )
        assert refers == (table.name in going or table.name in purge.HOLDING + purge.NOT_ITS), table.name
        assert ("volume_id" in table.c) == (table in purge.OF_VOLUMES or table is volume_tables.volume_cleanups), (
            table.name
        )
