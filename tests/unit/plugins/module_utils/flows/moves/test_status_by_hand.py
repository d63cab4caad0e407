# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A status of a move that was changed by hand and contradicts its instance: the audit names it, and no other instance waits for it."""

from __future__ import annotations

import re
import typing as t

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.core.audit import evidence as host_evidence
from ansible_collections.bootflow.compute.plugins.module_utils.core.audit import plan as core_audit
from ansible_collections.bootflow.compute.plugins.module_utils.core.instances import moves, states
from ansible_collections.bootflow.compute.plugins.module_utils.flows.instances.operation import Selection
from ansible_collections.bootflow.compute.plugins.module_utils.flows.moves import (
    cold_life,
    confirm,
    drain,
    evacuate,
    live_life,
)
from ansible_collections.bootflow.compute.plugins.module_utils.flows.recovery import audit as recovery_audit
from ansible_collections.bootflow.compute.plugins.module_utils.flows.recovery import operations as recovery
from ansible_collections.bootflow.compute.plugins.module_utils.flows.recovery import reset_state
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.compute import cleanups, service_state
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.schema import tables
from ansible_collections.bootflow.compute.tests.unit.worlds.world import World

from .test_cold import other
from .test_live import LiveMovers

NONE = Selection()


class Edited(LiveMovers):
    """A ledger in which a person writes the status of a move."""

    def write_status(self, uuid: str, status: str) -> None:
        c = tables.migrations.c
        with self.ledger.write() as tx:
            tx.execute(tables.migrations.update().where(c.instance_uuid == uuid).values(status=status))

    def plan(self, **power_states: int) -> list[core_audit.Finding]:
        """The plan of an audit that all hosts answer. :arg power_states: by the names of the guests, each on the host that the ledger says"""
        domains: dict[str, list[host_evidence.Domain]] = {"h1": [], "h2": []}
        for name, power_state in power_states.items():
            (row,) = self.rows(tables.instances, tables.instances.c.display_name == name)
            domains[row.host].append(host_evidence.Domain(row.uuid, name, ours=True, power_state=power_state))
        self.time += 1
        snapshots = {
            host: host_evidence.Snapshot(host, host, self.time, its, [d.uuid for d in its])
            for host, its in domains.items()
        }
        self.evidence = host_evidence.Evidence(snapshots=snapshots)
        return t.cast("list[core_audit.Finding]", self.call(recovery_audit.plan, self.evidence, run="z"))


@pytest.fixture(name="world")
def _edited(world: World) -> t.Iterator[Edited]:
    made = Edited(world.url)
    for host in ("h1", "h2"):
        made.report(host)
    yield made
    with made.ledger.read() as tx:
        made.check(tx)
    made.ledger.close()


def on(world: Edited, host: str, *names: str) -> list[str]:
    """Instances on ``host``: the other one takes none meanwhile."""
    world.call(service_state.set_state, [other(host)], service_state.DISABLED, "x")
    uuids = [world.boot(name) for name in names]
    world.call(service_state.set_state, [other(host)], service_state.ENABLED)
    return uuids


def begin(world: Edited, uuid: str, moment: str) -> None:
    """Bring the move of an instance to this moment, at which its run dies."""
    if moment in ("preparing", "live"):
        world.go(uuid)
        if moment == "live":
            world.call(live_life.mark_running, [uuid])
        return
    if moment == "evacuation":
        world.call(service_state.set_state, ["h1"], service_state.FORCED_DOWN)
        wanted = evacuate.Wanted(Selection(uuids=[uuid]))
        assert not world.call(evacuate.begin, wanted, world.fleet, world.options()).failed
        world.call(service_state.set_state, ["h1"], service_state.ENABLED)
        return
    world.set_out(uuids=[uuid])
    if moment in ("switched", "back"):
        world.call(cold_life.switch, [uuid])
    if moment == "back":
        world.call(cold_life.roll_back, [uuid])


#: The moment at which the run dies -> the status at that moment, another one that a person writes, and the host that has the instance.
MOMENTS = {
    "migrating": (moves.MIGRATING, moves.FINISHED, "h1"),
    "switched": (moves.POST_MIGRATING, moves.PRE_MIGRATING, "h2"),
    "back": (moves.REVERTING, moves.FINISHED, "h1"),
    "preparing": (moves.PREPARING, moves.ACCEPTED, "h1"),
    "live": (moves.RUNNING, moves.FINISHED, "h1"),
    "evacuation": (moves.ACCEPTED, moves.RUNNING, "h2"),
}


@pytest.mark.parametrize("moment", MOMENTS)
def test_one_status_by_hand_stops_no_other_instance(world: Edited, moment: str) -> None:
    """The report of the host settles the others; when the status is what the audit says, it settles this one, too."""
    status, written, host = MOMENTS[moment]
    edited, well = on(world, "h1", "edited", "well")
    for uuid in (edited, well):
        begin(world, uuid, moment)
    assert world.row(edited).host == world.row(well).host == host and world.status(edited) == [status]
    world.write_status(edited, written)
    world.time += 100_000
    before = world.state(edited)

    planned = [f for f in world.plan(edited=states.RUNNING, well=states.RUNNING) if f.instance == edited]
    (named,) = [f for f in planned if f.kind in (core_audit.MOVE_STATUS, core_audit.DEAD_OPERATION)]
    assert (named.kind, named.action, named.host, named.old) == (
        core_audit.MOVE_STATUS,
        core_audit.REPORT,
        host,
        written,
    )
    settled = settle(world, host, edited, well)
    assert set(settled) == {well} and world.row(well).task_state is None
    assert world.state(edited) == before and world.status(edited) == [written]

    repaired = re.search(r"UPDATE migrations SET status = '(.*)' WHERE id = (\d+)$", named.remedy)
    running = moves.RUNNING if status == moves.PREPARING else status  # the guest may have begun to move
    assert repaired is not None and repaired.group(1) == running
    with world.ledger.write() as tx:
        its = tables.migrations.c.id == int(repaired.group(2))
        tx.execute(tables.migrations.update().where(its).values(status=repaired.group(1)))
    assert not [f for f in world.plan(edited=states.RUNNING, well=states.RUNNING) if f.kind == core_audit.MOVE_STATUS]
    assert set(settle(world, host, edited, well)) == {edited} and world.row(edited).task_state is None


def settle(world: Edited, host: str, *uuids: str) -> dict[str, str]:
    """A report of ``host``, on which the guests of these instances run."""
    world.time += 100_000

    def report(tx: t.Any) -> dict[str, str]:
        return recovery.settle_operations(tx, host, dict.fromkeys(uuids, states.RUNNING), world.time + 1, moving={})

    return t.cast("dict[str, str]", world.call(report, run="z"))


def test_the_repair_of_the_audit_leaves_it_alone(world: Edited) -> None:
    edited, well = on(world, "h1", "edited", "well")
    for uuid in (edited, well):
        begin(world, uuid, "migrating")
    world.write_status(edited, moves.FINISHED)
    world.time += 100_000
    found = world.plan(edited=states.RUNNING, well=states.RUNNING)
    assert {(f.kind, f.instance) for f in found if f.instance in (edited, well)} >= {
        (core_audit.MOVE_STATUS, edited),
        (core_audit.DEAD_OPERATION, well),
    }
    world.call(recovery_audit.repair, found, world.evidence, run="z")
    assert world.state(well) == ("active", None, "h1") and world.row(edited).task_state == "resize_migrating"
    left = world.plan(edited=states.RUNNING, well=states.RUNNING)
    assert [f.kind for f in left if f.instance == edited] == [core_audit.MOVE_STATUS], "and no second repair"


@pytest.mark.parametrize("status", [moves.MIGRATING, moves.PRE_MIGRATING])
def test_the_others_are_confirmed(world: Edited, status: str) -> None:
    edited, well = on(world, "h1", "edited", "well")
    for uuid in (edited, well):
        world.move(uuid)
    world.write_status(edited, status)
    world.time += 100
    assert world.call(drain.to_confirm, "h1") == [well]
    assert [r.uuid for r in world.call(confirm.confirm, NONE, 50.0).rows] == [well]
    (named,) = [f for f in world.plan(edited=states.RUNNING, well=states.RUNNING) if f.kind == core_audit.MOVE_STATUS]
    assert named.instance == edited and "SET status = 'finished'" in named.remedy
    with pytest.raises(errors.MigrationConflict):
        world.call(confirm.confirm, Selection(uuids=[edited]))


def test_an_instance_that_does_not_move_has_no_open_move(world: Edited) -> None:
    (uuid,) = on(world, "h1", "web")
    world.move(uuid)
    world.call(confirm.confirm, Selection(uuids=[uuid]))
    world.write_status(uuid, moves.RUNNING)
    (named,) = [f for f in world.plan(web=states.RUNNING) if f.kind == core_audit.MOVE_STATUS]
    assert named.old == moves.RUNNING and "SET status = 'error'" in named.remedy


def test_a_live_migration_that_was_ended_by_hand_keeps_its_claim(world: Edited) -> None:
    """The guest may be on the destination."""
    (uuid,) = on(world, "h1", "web")
    begin(world, uuid, "live")
    world.time += 100_000
    assert [f.kind for f in world.plan(web=states.RUNNING) if f.instance == uuid] == [core_audit.DEAD_OPERATION]
    world.write_status(uuid, moves.ERROR)
    with world.ledger.read() as tx:
        found = recovery_audit.plan(tx.for_run(world.context("z")), world.evidence)
    (named,) = [f for f in found if f.instance == uuid]
    assert (named.kind, named.old) == (core_audit.MOVE_STATUS, moves.ERROR) and "'running'" in named.remedy
    world.write_status(uuid, moves.RUNNING)


def test_an_earlier_resize_is_not_taken_for_a_live_migration_whose_row_is_gone(world: Edited) -> None:
    """The audit told a person to write "error" to the confirmed resize, and told so for ever."""
    (uuid,) = on(world, "h1", "web")
    world.move(uuid)
    world.call(confirm.confirm, Selection(uuids=[uuid]))
    world.call(cleanups.done, {("h1", uuid)})
    begin(world, uuid, "live")
    world.time += 100_000
    assert core_audit.DEAD_OPERATION in {f.kind for f in world.plan(web=states.RUNNING) if f.instance == uuid}
    c = tables.migrations.c
    (row,) = world.rows(tables.migrations, c.status == moves.RUNNING)
    with world.ledger.write() as tx:
        tx.execute(tables.migrations.delete().where(c.id == row.id))
    assert world.status(uuid) == [moves.CONFIRMED]
    with world.ledger.read() as tx:
        found = recovery_audit.plan(tx.for_run(world.context("z")), world.evidence)
    kinds = {f.kind for f in found if f.instance == uuid}
    assert core_audit.DEAD_OPERATION in kinds and core_audit.MOVE_STATUS not in kinds
    with world.ledger.write() as tx:
        tx.execute(tables.migrations.insert().values(row._asdict()))


def test_its_state_is_not_reset(world: Edited) -> None:
    """Another host may have something of the instance, and nobody knows which part."""
    (uuid,) = on(world, "h1", "web")
    begin(world, uuid, "migrating")
    world.write_status(uuid, moves.FINISHED)
    world.time += 100_000
    world.call(service_state.set_state, ["h1"], service_state.FORCED_DOWN)
    with pytest.raises(errors.InstanceInvalidState) as refused:
        world.call(reset_state.reset, Selection(uuids=[uuid]), states.ERROR, run="z")
    assert "bootflow.compute.audit" in refused.value.remedy
    world.write_status(uuid, moves.MIGRATING)
    assert world.call(reset_state.reset, Selection(uuids=[uuid]), states.ERROR, run="z").rows
