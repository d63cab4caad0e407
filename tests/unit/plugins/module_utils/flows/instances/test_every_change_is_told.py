# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""With notify_on_state_change, the notifications of an instance tell its whole life: no change of vm_state or task_state is missing."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.core.instances import states
from ansible_collections.bootflow.compute.plugins.module_utils.flows.instances import operation
from ansible_collections.bootflow.compute.plugins.module_utils.flows.instances.operations import OPERATIONS
from ansible_collections.bootflow.compute.plugins.module_utils.flows.recovery import leases, power_sync
from ansible_collections.bootflow.compute.plugins.module_utils.flows.recovery import operations as recovery
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.schema import tables
from ansible_collections.bootflow.compute.tests.unit.worlds.world import World, request

State = t.Tuple[t.Optional[str], t.Optional[str]]


@pytest.fixture
def told(world: World, monkeypatch: pytest.MonkeyPatch) -> World:
    """All runs notify of vm_state and task_state. One host has room for one instance."""
    plain = World.context

    def context(self: World, run: str = "a", **fields: t.Any) -> t.Any:
        return plain(self, run, **{"notify_on_state_change": "vm_and_task_state", **fields})

    monkeypatch.setattr(World, "context", context)
    world.report("h1", memory=1)
    return world


def life(world: World, uuid: str) -> list[State]:
    """The states that it passed, as notified; each notification begins where the one before it ended, and the last is in the row."""
    c = tables.notifications.c
    updates = world.rows(tables.notifications, c.instance_uuid == uuid, c.event_type == "compute.instance.update")
    payloads = [u.payload for u in updates]
    assert payloads, "nothing was told"
    first = payloads[0]
    assert (first["old_state"], first["state"]) == (None, states.BUILDING), "from nothing to building"
    passed: list[State] = [(states.BUILDING, states.SCHEDULING)]
    for payload in payloads[1:]:
        assert (payload["old_state"], payload["old_task_state"]) == passed[-1], payloads
        passed.append((payload["state"], payload["new_task_state"]))
    row = world.row(uuid)
    assert passed[-1] == (row.vm_state, row.task_state), payloads
    return passed


def do(world: World, name: str, run: str = "o", end: bool = True) -> None:
    its, power = OPERATIONS[name], {"stop": states.SHUTDOWN, "start": states.RUNNING}[name]
    with world.ledger.write() as tx:
        of_run = tx.for_run(world.context(run))
        rows = operation.begin(of_run, its, operation.Selection(names=["web"]), ("h1", "h2")).rows
        if end:
            operation.finish(of_run, its, {r.uuid: operation.Outcome(power) for r in rows})


def events(world: World, uuid: str) -> list[str]:
    c = tables.notifications.c
    return [n.event_type for n in world.rows(tables.notifications, c.instance_uuid == uuid)]


def test_from_boot_to_delete(told: World) -> None:
    uuid = told.boot("web")
    do(told, "stop")
    do(told, "start")
    told.delete(names=["web"])
    told.removed("h1", [uuid])
    told.finish()
    passed = life(told, uuid)
    build = [None, "networking", "block_device_mapping", "spawning"]
    assert passed[:5] == [(states.BUILDING, task) for task in ("scheduling", *build)]
    assert passed[5:] == [
        ("active", None), ("active", "powering-off"), ("stopped", None), ("stopped", "powering-on"), ("active", None),
        ("active", "deleting"), ("deleted", None),
    ]  # fmt: skip
    names = [name.removeprefix("compute.instance.") for name in events(told, uuid) if not name.endswith(".update")]
    assert names == [
        "create.start", "create.end", "power_off.start", "power_off.end", "power_on.start", "power_on.end",
        "delete.start", "shutdown.start", "shutdown.end", "delete.end",
    ]  # fmt: skip


def test_a_boot_that_is_repeated(told: World) -> None:
    """One that failed begins again; one that a dead run was building goes on."""
    first, second = told.boot("web", until="spawning", run="dead"), told.boot("other", until="accepted", run="dead")
    told.schedule("dead")
    assert life(told, second)[-1] == (states.ERROR, None)
    told.time += 601
    again = told.accept(request("web"), request("other"), run="b")
    assert sorted(again.resumed) == sorted((first, second))
    assert life(told, first)[-2:] == [(states.BUILDING, "spawning"), (states.BUILDING, None)]
    assert life(told, second)[-2:] == [(states.ERROR, None), (states.BUILDING, states.SCHEDULING)]
    told.build("h1", run="b")
    assert life(told, first)[-1] == (states.ACTIVE, None)


def test_a_build_that_goes_to_another_host_and_fails_there(told: World) -> None:
    told.report("h2", memory=1)
    uuid = told.boot("web", until="spawning")
    one = told.row(uuid).host
    told.fail(one, uuid, errors.RemoteError(reason="x"))
    assert life(told, uuid)[-1] == (states.BUILDING, states.SCHEDULING)
    other = told.schedule().placed[uuid].host
    told.build(other, until="spawning")
    told.fail(other, uuid, errors.ImageError(reason="x"))
    assert life(told, uuid)[-1] == (states.ERROR, None)
    assert events(told, uuid).count("compute.instance.create.error") == 2


def test_what_dead_runs_left(told: World) -> None:
    build = told.boot("build", until="spawning", run="dead")
    told.report("h2", memory=1)
    stop = told.boot("web")
    do(told, "stop", "dead", end=False)
    told.time += 601
    with told.ledger.write() as tx:
        of_run = tx.for_run(told.context("s"))
        recovery.settle_operations(of_run, told.row(stop).host, {stop: states.SHUTDOWN}, told.time)
        leases.expire(of_run)
    assert life(told, stop)[-1] == (states.STOPPED, None)
    life(told, build)


def test_a_guest_that_shut_down_by_itself(told: World) -> None:
    uuid = told.boot("web")
    told.time += 1
    with told.ledger.write() as tx:
        power_sync.settle_and_sync(
            tx.for_run(told.context("s")), {"h1": power_sync.Report(told.time, {uuid: states.SHUTDOWN})}
        )
    assert life(told, uuid)[-2:] == [(states.ACTIVE, states.POWERING_OFF), (states.STOPPED, None)]


# Each operation, from each vm_state in which it may begin, with each end.
BEGINNINGS = [(name, vm) for name, o in OPERATIONS.items() for vm in sorted(o.rule.vm_states or (states.ACTIVE,))]
ENDS = {
    "done": operation.Outcome(states.RUNNING),
    "failed": operation.Outcome(states.NOSTATE, errors.LibvirtError(reason="x")),
    "failed, off": operation.Outcome(states.SHUTDOWN, errors.LibvirtError(reason="x")),
    "failed, on": operation.Outcome(states.RUNNING, errors.LibvirtError(reason="x")),
}


@pytest.mark.parametrize(("name", "vm_state"), BEGINNINGS)
def test_each_operation_with_each_end(told: World, name: str, vm_state: str) -> None:
    its = OPERATIONS[name]
    uuid = told.boot("web")
    c = tables.notifications.c
    for end, outcome in ENDS.items():
        with told.ledger.write() as tx:
            before = tables.instances.update().where(tables.instances.c.uuid == uuid)
            tx.execute(before.values(vm_state=vm_state, task_state=None))
        seen = max(n.id for n in told.rows(tables.notifications))
        with told.ledger.write() as tx:
            of_run = tx.for_run(told.context("o"))
            operation.begin(of_run, its, operation.Selection(uuids=[uuid]), ("h1",))
            operation.finish(of_run, its, {uuid: outcome})
        found = told.rows(tables.notifications, c.id > seen)
        updates = [n.payload for n in found if n.event_type == "compute.instance.update"]
        state: State = (vm_state, None)
        for payload in updates:
            assert (payload["old_state"], payload["old_task_state"]) == state, (end, updates)
            state = (payload["state"], payload["new_task_state"])
        row = told.row(uuid)
        assert state == (row.vm_state, row.task_state), (end, updates)
        assert bool(updates) == (its.during is not None)
        moments = [n.event_type.rpartition(".")[2] for n in found if n.event_type != "compute.instance.update"]
        assert moments == (["start", "error" if outcome.error else "end"] if its.notification else []), end
