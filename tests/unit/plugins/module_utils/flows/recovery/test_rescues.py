# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Rescues that nobody heard of, and what a host reports of them."""

from __future__ import annotations

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.core.instances import states
from ansible_collections.bootflow.compute.plugins.module_utils.flows.instances import operation
from ansible_collections.bootflow.compute.plugins.module_utils.flows.instances.operation import Outcome, Selection
from ansible_collections.bootflow.compute.plugins.module_utils.flows.instances.operations import OPERATIONS
from ansible_collections.bootflow.compute.plugins.module_utils.flows.recovery import operations as recovery
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.compute import history
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.schema import tables
from ansible_collections.bootflow.compute.tests.unit.worlds.world import World


def rescue(world: World, uuid: str, error: errors.BootflowError | None) -> None:
    with world.ledger.write() as tx:
        tx = tx.for_run(world.context("o"))
        operation.begin(tx, OPERATIONS["rescue"], Selection(uuids=[uuid]), ["h1"])
        history.note(tx, {uuid: "image x"}, "rescue")
        operation.finish(tx, OPERATIONS["rescue"], {uuid: Outcome(states.RUNNING, error)})


def settle(world: World, uuid: str, asked_at: float = 0.0, rescued: bool = True, host: str = "h1") -> dict[str, str]:
    with world.ledger.write() as tx:
        ours = tx.for_run(world.context("p"))
        its = [uuid] if rescued else []
        return recovery.settle_operations(ours, host, {uuid: states.RUNNING}, asked_at or world.time, its)


@pytest.mark.parametrize("vm_state", ["active", "stopped", "error"])
def test_the_instance_is_rescued_once_its_host_says_so(world: World, vm_state: str) -> None:
    world.report("h1")
    uuid = world.boot("web")
    with world.ledger.write() as tx:
        tx.execute(tables.instances.update().values(vm_state=vm_state))
    rescue(world, uuid, errors.HostUnreachable(host="h1", reason="no route"))
    assert world.state(uuid) == (vm_state, None, "h1")
    assert settle(world, uuid) == {}, "it was asked before"
    world.time += 1
    assert settle(world, uuid, rescued=False) == {} and settle(world, uuid, host="h2") == {}
    assert settle(world, uuid) == {uuid: "rescued"}
    row = world.row(uuid)
    assert (row.vm_state, row.power_state, row.launched_at) == ("rescued", states.RUNNING, world.time)
    with world.ledger.read() as tx:
        assert "image x" in history.last_details(tx, [uuid], "rescue")[uuid].splitlines()
    assert [(a.action, a.message) for a in world.rows(tables.instance_actions)][-2:] == [
        ("rescue", "Error"),
        ("rescue", None),
    ]
    assert all(a.finish_time for a in world.rows(tables.instance_actions))
    assert world.rows(tables.notifications)[-1].event_type == "compute.instance.rescue.end"
    world.time += 1
    assert settle(world, uuid) == {}


@pytest.mark.parametrize(
    ("vm_state", "task_state"), [("paused", None), ("soft-delete", None), ("active", "powering-off")]
)
def test_what_no_rescue_began_in_is_left_alone(world: World, vm_state: str, task_state: str | None) -> None:
    world.report("h1")
    uuid = world.boot("web")
    with world.ledger.write() as tx:
        tx.execute(tables.instances.update().values(vm_state=vm_state, task_state=task_state, run_id="run-a"))
    world.time += 1
    assert settle(world, uuid) == {} and world.state(uuid)[:2] == (vm_state, task_state)
