# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Every operation, with a run that is killed before, in and after its work on the host: a report settles it, and the same again ends it."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.core.instances import states
from ansible_collections.bootflow.compute.plugins.module_utils.core.model import NetworkRequest
from ansible_collections.bootflow.compute.plugins.module_utils.flows.instances import operation
from ansible_collections.bootflow.compute.plugins.module_utils.flows.instances.operation import Outcome, Selection
from ansible_collections.bootflow.compute.plugins.module_utils.flows.instances.operations import OPERATIONS
from ansible_collections.bootflow.compute.plugins.module_utils.flows.recovery import operations as recovery
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.schema import tables
from ansible_collections.bootflow.compute.tests.unit.worlds.world import World

RUNNING, PAUSED, OFF = states.RUNNING, states.POWER_PAUSED, states.SHUTDOWN


@dataclass(frozen=True)
class Guest:
    """What its host says: the power state, None where there is no guest, and whether its domain is that of a rescue."""

    power: int | None
    rescued: bool = False


@dataclass(frozen=True)
class Course:
    """An operation from a vm_state, with what the guest is before, in the middle of and after its work, and the vm_state that each settles to."""

    name: str
    vm_state: str
    steps: tuple[tuple[Guest, str], ...]
    result: str  # when it is done to its end

    def __str__(self) -> str:
        return "%s-%s" % (self.name, self.vm_state)


def course(
    name: str, vm_state: str, result: str, *steps: tuple[int | None, str] | tuple[int | None, str, bool]
) -> Course:
    return Course(name, vm_state, tuple((Guest(s[0], len(s) > 2), s[1]) for s in steps), result)


COURSES = [
    course("stop", "active", "stopped", (RUNNING, "active"), (OFF, "stopped")),
    course("stop", "error", "stopped", (RUNNING, "error"), (OFF, "stopped")),
    course("start", "stopped", "active", (OFF, "stopped"), (PAUSED, "stopped"), (RUNNING, "active")),
    course("pause", "active", "paused", (RUNNING, "active"), (PAUSED, "paused")),
    course("unpause", "paused", "active", (PAUSED, "paused"), (RUNNING, "active")),
    course("suspend", "active", "suspended", (RUNNING, "active"), (PAUSED, "waits"), (OFF, "suspended")),
    course("resume", "suspended", "active", (OFF, "suspended"), (PAUSED, "suspended"), (RUNNING, "active")),
    course("soft_reboot", "active", "active", (RUNNING, "active"), (OFF, "stopped"), (RUNNING, "active")),
    *(
        course("hard_reboot", before, "active", (now, before), (OFF, off), (RUNNING, "active"))
        for before, now, off in (
            ("active", RUNNING, "stopped"),
            ("stopped", OFF, "stopped"),
            ("suspended", OFF, "suspended"),
            ("error", OFF, "error"),
        )
    ),
    course("hard_reboot", "active", "active", (None, "active"), (RUNNING, "active")),
    course("hard_reboot", "paused", "active", (PAUSED, "paused"), (OFF, "stopped"), (RUNNING, "active")),
    course("rescue", "active", "rescued", (RUNNING, "active"), (OFF, "rescued", True), (RUNNING, "rescued", True)),
    course("rescue", "stopped", "rescued", (OFF, "stopped"), (OFF, "rescued", True), (RUNNING, "rescued", True)),
    course("unrescue", "rescued", "active", (RUNNING, "rescued", True), (OFF, "rescued", True), (OFF, "stopped"), (RUNNING, "active")),
    course("set_admin_password", "active", "active", (RUNNING, "active")),
    *(
        course(name, before, before, (now, before))
        for name in ("snapshot", "create_backup", "incremental_backup")
        for before, now in (("active", RUNNING), ("paused", PAUSED), ("suspended", OFF), ("stopped", OFF))
    ),
    *(
        course("shelve", before, "shelved", (now, before), (OFF, off), (OFF, off))
        for before, now, off in (
            ("active", RUNNING, "stopped"),
            ("paused", PAUSED, "stopped"),
            ("stopped", OFF, "stopped"),
            ("suspended", OFF, "suspended"),
        )
    ),
    course("shelve_offload", "shelved", "shelved_offloaded", (OFF, "shelved"), (None, "shelved")),
    course("unshelve", "shelved", "active", (OFF, "shelved"), (PAUSED, "shelved"), (RUNNING, "active")),
    course("soft_delete", "active", "soft-delete", (RUNNING, "active"), (OFF, "soft-delete")),
    course("restore", "soft-delete", "active", (OFF, "soft-delete"), (PAUSED, "soft-delete"), (RUNNING, "active")),
    course("rebuild", "active", "active", (RUNNING, "error"), (None, "error"), (RUNNING, "error")),
    course("rebuild", "stopped", "stopped", (OFF, "error"), (None, "error"), (OFF, "error")),
    course("revert", "active", "active", (RUNNING, "active"), (OFF, "stopped"), (RUNNING, "active")),
    course("revert", "stopped", "stopped", (OFF, "stopped")),
    course("revert", "error", "active", (RUNNING, "error"), (OFF, "error"), (RUNNING, "error")),
]  # fmt: skip


def test_each_operation_is_there() -> None:
    at_work = {o.name for o in OPERATIONS.values() if o.during is not None}
    assert {c.name for c in COURSES} == at_work


def put(world: World, uuid: str, vm_state: str) -> None:
    its = {"vm_state": vm_state, "deleted_at": world.time if vm_state == states.SOFT_DELETED else None}
    with world.ledger.write() as tx:
        tx.execute(tables.instances.update().where(tables.instances.c.uuid == uuid).values(**its))


def begin(world: World, its: Course, uuid: str, run: str) -> list[str]:
    with world.ledger.write() as tx:
        tx = tx.for_run(world.context(run))
        return [r.uuid for r in operation.begin(tx, OPERATIONS[its.name], Selection(uuids=[uuid]), ["h1"]).rows]


def settle(world: World, uuid: str, guest: Guest) -> dict[str, str]:
    """A report of the host now."""
    world.time += 1
    powers = {} if guest.power is None else {uuid: guest.power}
    rescued = [uuid] if guest.rescued else []
    with world.ledger.write() as tx:
        return recovery.settle_operations(tx.for_run(world.context("z")), "h1", powers, world.time, rescued)


@pytest.mark.parametrize(("its", "step"), [(c, n) for c in COURSES for n in range(len(c.steps))], ids=str)
def test_a_run_is_killed(world: World, its: Course, step: int) -> None:
    world.report("h1")
    world.make_port()
    uuid = world.boot("web", networks=("net-1", NetworkRequest(port="front")))
    put(world, uuid, its.vm_state)
    before = (world.claims(), world.used("h1"), world.addresses(), world.cleanups())
    assert begin(world, its, uuid, "dead") == [uuid]
    guest, expected = its.steps[step]
    assert settle(world, uuid, guest) == {}, "the run may be alive"
    with pytest.raises(errors.InstanceBusy):
        begin(world, its, uuid, "other")

    world.time += 601
    if expected == "waits":
        assert settle(world, uuid, guest) == {}, "the host has not ended it"
        guest, expected = its.steps[step + 1]
    assert settle(world, uuid, guest) == {uuid: expected}
    row = world.row(uuid)
    assert (row.vm_state, row.task_state, row.host) == (expected, None, "h1")
    assert world.port() == (uuid, "h1"), "a port of its project stays the instance's"
    assert row.power_state == (guest.power or states.NOSTATE)
    assert (row.deleted_at is not None) == (expected == states.SOFT_DELETED)
    for table in (tables.instance_actions, tables.instance_action_events):
        assert not [r for r in world.rows(table) if r.finish_time is None], "the journal is closed"
    late = Outcome(its.steps[-1][0].power or states.NOSTATE)
    with world.ledger.write() as tx:
        failed = operation.finish(tx.for_run(world.context("dead")), OPERATIONS[its.name], {uuid: late})
    assert failed[uuid].code == "UnexpectedTaskStateError" and world.row(uuid).vm_state == expected

    if row.vm_state in (states.ACTIONS[its.name].vm_states or (row.vm_state,)) and expected != its.result:
        assert begin(world, its, uuid, "again") == [uuid]
        with world.ledger.write() as tx:
            told = its.result if its.name in ("rebuild", "revert") else None
            done = Outcome(its.steps[-1][0].power or states.NOSTATE, vm_state=told)
            assert not operation.finish(tx.for_run(world.context("again")), OPERATIONS[its.name], {uuid: done})
        assert world.row(uuid).vm_state == its.result
    assert (world.claims(), world.used("h1"), world.addresses(), world.cleanups()) == before
