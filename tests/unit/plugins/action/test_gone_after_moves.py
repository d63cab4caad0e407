# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A guest that is gone from its host after a move that failed is in error; one of which nobody knows is as it was."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.bootflow.compute.plugins.action import instance_live_migrate, instance_move
from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.core.instances import states
from ansible_collections.bootflow.compute.plugins.module_utils.flows.moves import live_life
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.compute import instances
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.schema import tables
from ansible_collections.bootflow.compute.tests.unit.worlds.world import World

from .test_moves import COLD, Fleet

FAILED = errors.LibvirtError(reason="x").as_dict()
NOT_FOUND = errors.InstanceNotFound(instance_id="x").as_dict()
AWAY = errors.HostUnreachable(host="h1", reason="x").as_dict()

#: (what the former host says of the guest, vm_state and power_state afterwards)
SAID = [
    ({"power_state": states.RUNNING}, states.ACTIVE, states.RUNNING),
    ({"power_state": states.SHUTDOWN}, states.STOPPED, states.SHUTDOWN),
    ({"power_state": states.NOSTATE, "error": FAILED}, states.ERROR, states.NOSTATE),
    ({"error": NOT_FOUND}, states.ERROR, states.NOSTATE),
    ({"error": FAILED}, states.ACTIVE, states.NOSTATE),
    ({"error": AWAY}, states.ACTIVE, states.NOSTATE),
]


@pytest.fixture
def fleet(world: World) -> Fleet:
    world.report("h1")
    world.boot()
    world.report("h2")
    return Fleet(world)


@pytest.mark.parametrize(("said", "vm_state", "power_state"), SAID)
def test_a_cold_migration_that_fails(fleet: Fleet, said: dict[str, t.Any], vm_state: str, power_state: int) -> None:
    (row,) = fleet.world.rows(tables.instances)
    for phase in ("begin", "switch", "back"):
        options = {"names": ["web"]} if phase == "begin" else {}
        fleet.stage(instance_move, phase, **COLD, **options)
    fleet.leave(instance_move, {"phase": "return", "outcomes": {row.uuid: said}}, "h1")
    done = fleet.stage(instance_move, "finish", **COLD)
    after = fleet.world.row(row.uuid)
    assert (after.vm_state, after.task_state, after.power_state) == (vm_state, None, power_state)
    assert [(i["vm_state"], i["power_state"]) for i in done["instances"]] == [(vm_state, power_state)]
    assert fleet.world.claims() == {(row.uuid, "h1")}


@pytest.mark.parametrize("said", [{"power_state": states.NOSTATE, "error": FAILED}, {"error": NOT_FOUND}])
def test_a_guest_that_was_off_is_gone(fleet: Fleet, said: dict[str, t.Any]) -> None:
    """It is defined again where its volumes were detached meanwhile, and that fails."""
    (row,) = fleet.world.rows(tables.instances)
    with fleet.world.ledger.write() as tx:
        instances.write(tx, [row.uuid], vm_state=states.STOPPED, power_state=states.SHUTDOWN)
    fleet.stage(instance_move, "begin", **COLD, names=["web"])
    fleet.stage(instance_move, "switch", **COLD)
    assert fleet.stage(instance_move, "back", **COLD)["start"] == {}
    fleet.leave(instance_move, {"phase": "return", "outcomes": {row.uuid: said}}, "h1")
    fleet.stage(instance_move, "finish", **COLD)
    assert fleet.world.state(row.uuid)[:2] == (states.ERROR, None)


@pytest.mark.parametrize(
    ("said", "vm_state", "power_state"),
    [
        ({"power_state": states.RUNNING}, states.ACTIVE, states.RUNNING),
        ({"power_state": states.POWER_PAUSED}, states.ACTIVE, states.POWER_PAUSED),
        ({"power_state": states.NOSTATE}, states.ERROR, states.NOSTATE),
        ({"error": FAILED}, states.ACTIVE, states.RUNNING),
        (None, states.ACTIVE, states.RUNNING),
    ],
)
def test_a_live_migration_that_fails(
    fleet: Fleet, said: dict[str, t.Any] | None, vm_state: str, power_state: int
) -> None:
    (row,) = fleet.world.rows(tables.instances)
    with fleet.world.ledger.write() as tx:
        instances.write(tx, [row.uuid], power_state=states.RUNNING)
    fleet.stage(instance_live_migrate, "begin", names=["web"])
    fleet.stage(instance_live_migrate, "switch")
    if said is not None:
        fleet.leave(instance_live_migrate, {"phase": "clean", "outcomes": {row.uuid: said}}, "h1")
    (shown,) = fleet.stage(instance_live_migrate, "finish")["instances"]
    after = fleet.world.row(row.uuid)
    assert (after.vm_state, after.task_state, after.power_state) == (vm_state, None, power_state)
    assert shown["vm_state"] == vm_state and fleet.world.claims() == {(row.uuid, "h1")}


@pytest.mark.parametrize(
    ("said", "power_state"),
    [({"power_state": states.NOSTATE}, states.NOSTATE), ({"error": FAILED}, states.RUNNING)],
)
def test_a_guest_that_came_and_is_gone(fleet: Fleet, said: dict[str, t.Any], power_state: int) -> None:
    """As in Nova: the migration was a success, and the power state is that of the guest now."""
    (row,) = fleet.world.rows(tables.instances)
    fleet.stage(instance_live_migrate, "begin", names=["web"])
    with fleet.world.ledger.write() as tx:
        live_life.mark_running(tx.for_run(fleet.world.context("o")), [row.uuid])
    stats = dict.fromkeys(("seconds", "downtime", "transferred"), 1)
    for host, phase, outcome in (
        ("h1", "look", {"guest": {}}),
        ("h2", "prepare", {"devices": {}}),
        ("h1", "migrate", {**stats, "power_state": states.RUNNING}),
    ):
        fleet.leave(instance_live_migrate, {"phase": phase, "outcomes": {row.uuid: outcome}}, host)
    switched = fleet.stage(instance_live_migrate, "switch")
    assert switched["over"] == [row.uuid]
    fleet.leave(instance_live_migrate, {"phase": "settle", "outcomes": {row.uuid: said}}, "h2")
    fleet.stage(instance_live_migrate, "finish")
    after = fleet.world.row(row.uuid)
    assert (after.vm_state, after.host, after.power_state) == (states.ACTIVE, "h2", power_state)
