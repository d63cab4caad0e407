# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a run that died held goes back when its lease is out, and never before."""

from __future__ import annotations

import typing as t

import pytest
import sqlalchemy as sa

from ansible_collections.bootflow.compute.plugins.module_utils.core.instances import states
from ansible_collections.bootflow.compute.plugins.module_utils.flows.instances import cleanup
from ansible_collections.bootflow.compute.plugins.module_utils.flows.recovery import leases
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.compute import before_boot, runs
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.db import this_run
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.fast import bulk
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.schema import tables
from ansible_collections.bootflow.compute.tests.unit.worlds.world import World, request


def expire(world: World, run: str) -> list[str]:
    before = world.everything()
    with world.ledger.write() as tx:
        due = before_boot.look(tx.for_run(world.context(run)), 300.0).left_work
        hosts = leases.expire(tx.for_run(world.context(run))).to_clean
    assert due == (world.everything() != before), "the look before says whether there is something to do"
    return hosts


def test_a_build_goes_back_when_the_lease_is_out_and_its_host_was_cleaned(world: World) -> None:
    world.report("h1", memory=1)
    uuid = world.boot("left", "scheduled", run="dead")
    assert expire(world, "other") == []  # it may still be working
    assert world.used("h1")[0] == 1024
    world.time += this_run.LEASE_SECONDS + 1
    assert expire(world, "other") == ["h1"]
    assert world.state(uuid) == (states.ERROR, None, None)
    (fault,) = world.rows(tables.instance_faults, tables.instance_faults.c.instance_uuid == uuid)
    assert "run-dead" in fault.message
    assert world.used("h1")[0] == 1024  # a guest may run there: not before the host was looked at
    with world.ledger.write() as tx:
        cleanup.finish(tx, {"h1": [uuid]})
    assert world.used("h1")[0] == 0
    assert expire(world, "third") == []


def test_what_waited_for_a_host_ends_at_once(world: World) -> None:
    uuid = world.boot("waiting", "accepted", run="dead")
    world.time += this_run.LEASE_SECONDS + 1
    assert expire(world, "other") == []
    assert world.state(uuid) == (states.ERROR, None, None)
    assert world.addresses(uuid) == []


def test_a_run_that_renews_loses_nothing(world: World) -> None:
    world.report("h1")
    uuid = world.boot("mine", "scheduled", run="slow")
    for _each in range(5):
        world.time += this_run.LEASE_SECONDS - 1
        with world.ledger.write() as tx:
            runs.renew(tx.for_run(world.context("slow")))
        assert expire(world, "other") == []
    assert world.state(uuid)[0] == states.BUILDING


def test_running_guests_have_no_lease(world: World) -> None:
    world.report("h1")
    uuid = world.boot("up", "active", run="gone")
    world.time += this_run.LEASE_SECONDS * 100
    assert expire(world, "other") == []
    assert world.state(uuid)[0] == states.ACTIVE


def test_the_lease_is_as_long_as_the_run_said(world: World) -> None:
    world.report("h1")
    accepted = world.accept(request("left"), run="dead", lease_seconds=30.0)
    (uuid,) = accepted.created
    world.time += 29
    expire(world, "other")
    assert world.state(uuid)[0] == states.BUILDING
    world.time += 2
    expire(world, "other")
    assert world.state(uuid)[0] == states.ERROR


def _rows_read(plan: t.Mapping[str, t.Any]) -> float:
    """Of all steps of a plan that was carried out: what they gave on and what they left out, each time they ran."""
    removed = sum(v for name, v in plan.items() if name.startswith("Rows Removed by"))
    own = float((plan["Actual Rows"] + removed) * plan["Actual Loops"])
    return own + sum(_rows_read(each) for each in plan.get("Plans", ()))


def test_the_look_before_a_boot_is_linear_in_what_is_being_built(world: World) -> None:
    """Of tables that have grown since it looked, PostgreSQL reads the one again for each row of the other where it joins them."""
    if not world.ledger.is_server:
        pytest.skip("of PostgreSQL's plans")
    uuid = world.boot("first", "accepted", run="r")
    (instance,) = world.rows(tables.instances, tables.instances.c.uuid == uuid)
    count = 300
    with world.ledger.write() as tx:
        tx.execute(sa.text("ANALYZE"))
        (run,) = tx.execute(sa.select(tables.runs)).mappings().all()
        bulk.insert(tx, tables.runs, [{**run, "id": "r%d" % i} for i in range(count)])
        changed = [{"uuid": "%036d" % i, "display_name": "vm-%d" % i, "run_id": "r%d" % i} for i in range(count)]
        bulk.insert(tx, tables.instances, [{**instance._mapping, **values} for values in changed])
    with world.ledger.read() as tx:
        query = sa.text("EXPLAIN (ANALYZE, FORMAT JSON) SELECT " + runs.LEFT_WORK)
        ((found,),) = tx.execute(query, {"run": "other", "now": world.time}).all()
    assert _rows_read(found[0]["Plan"]) < 20 * count
