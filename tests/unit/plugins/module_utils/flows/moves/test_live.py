# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Live migration in the ledger: what may begin, both hosts claimed, over or not, and what dead runs leave to the reports of two hosts."""

from __future__ import annotations

import dataclasses
import typing as t

import pytest
import sqlalchemy as sa

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.core.audit import evidence as host_evidence
from ansible_collections.bootflow.compute.plugins.module_utils.core.audit import plan as core_audit
from ansible_collections.bootflow.compute.plugins.module_utils.core.instances import moves, states
from ansible_collections.bootflow.compute.plugins.module_utils.core.instances.progress import Progress
from ansible_collections.bootflow.compute.plugins.module_utils.core.interfaces.entries import NamedInterface
from ansible_collections.bootflow.compute.plugins.module_utils.core.resources.numa.topology import (
    PAGES_LARGE,
    GuestNUMATopology,
)
from ansible_collections.bootflow.compute.plugins.module_utils.flows.instances import delete, interfaces
from ansible_collections.bootflow.compute.plugins.module_utils.flows.instances.operation import Selection
from ansible_collections.bootflow.compute.plugins.module_utils.flows.moves import live, live_life, live_pins
from ansible_collections.bootflow.compute.plugins.module_utils.flows.recovery import audit as recovery_audit
from ansible_collections.bootflow.compute.plugins.module_utils.flows.recovery import dead_runs
from ansible_collections.bootflow.compute.plugins.module_utils.flows.recovery import operations as recovery
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.compute import claims, nodes, views
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.compute import moves as ledger_moves
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.schema import tables
from ansible_collections.bootflow.compute.plugins.plugin_utils.run import tables as tables_of_actions
from ansible_collections.bootflow.compute.tests.unit.worlds.boot_world import BootWorld
from ansible_collections.bootflow.compute.tests.unit.worlds.taking import cells, pinned
from ansible_collections.bootflow.compute.tests.unit.worlds.world import World

from .test_cold import BROKEN, QCOW2, Movers, other, usage

RUNS, OFF = states.RUNNING, states.SHUTDOWN


class LiveMovers(Movers):
    """``m`` migrates instances whose guests run."""

    def go(self, uuid: str, run: str = "m", to: str | None = None, backends: t.Any = None) -> live.Begun:
        backends = QCOW2 if backends is None else backends
        wanted = live.Wanted(Selection(uuids=[uuid]), tuple(backends), backends, to)
        with self.ledger.write() as tx:
            mine = tx.for_run(self.context(run))
            live.check(mine, wanted)
            return live.begin(mine, wanted, self.fleet, self.options(), BootWorld.end)

    def again(
        self, uuid: str, error: errors.BootflowError, hosts: t.Collection[str], cleaned: bool, backends: t.Any
    ) -> live.Begun:
        wanted = live.Wanted(Selection(uuids=[uuid]), tuple(backends), backends)
        refused = {uuid: live.Refusal(live_life.Result(RUNS, error, cleaned), hosts)}
        return t.cast(
            live.Begun, self.call(live.retry_elsewhere, wanted, refused, self.fleet, self.options(), BootWorld.end)
        )

    def put(self, uuid: str, **values: t.Any) -> None:
        with self.ledger.write() as tx:
            tx.execute(tables.instances.update().where(tables.instances.c.uuid == uuid).values(**values))

    def report_guest(self, host: str, uuid: str, power_state: int | None, moving: str = "") -> dict[str, str]:
        """A report of the host, long after the lease of all runs."""
        self.time += 100_000
        has = {} if power_state is None else {uuid: power_state}
        said = {uuid: moving} if moving else {}

        def settle(tx: t.Any) -> dict[str, str]:
            return recovery.settle_operations(tx, host, has, self.time + 1, moving=said)

        return t.cast("dict[str, str]", self.call(settle, run="z"))

    def actions(self, uuid: str) -> list[tuple[str, str | None]]:
        rows = self.rows(tables.instance_actions, tables.instance_actions.c.instance_uuid == uuid)
        return [(r.action, r.message) for r in rows]

    def event_types(self, uuid: str) -> list[str]:
        rows = self.rows(tables.notifications, tables.notifications.c.instance_uuid == uuid)
        return [r.event_type.replace("compute.instance.", "") for r in rows]


@pytest.fixture(name="world")
def _movers(world: World) -> t.Iterator[LiveMovers]:
    made = LiveMovers(world.url)
    for host in ("h1", "h2"):
        made.report(host)
    yield made
    with made.ledger.read() as tx:
        made.check(tx)
    made.ledger.close()


def test_all_the_way(world: LiveMovers) -> None:
    uuid = world.boot("web")
    source, before, addresses = world.row(uuid).host, usage(world), world.addresses(uuid)
    (moving,) = world.go(uuid).moving
    assert (moving.move.source_compute, moving.move.dest_compute) == (source, other(source))
    assert world.state(uuid) == ("active", "migrating", source) and world.status(uuid) == [moves.PREPARING]
    assert world.claims() >= {(uuid, "h1"), (uuid, "h2")}
    assert world.call(live_life.mark_running, [uuid]) == [uuid] and world.status(uuid) == [moves.RUNNING]
    with pytest.raises(errors.InstanceBusy):
        world.go(uuid, run="b")

    assert [m.uuid for m in world.call(live_life.switch, [uuid])] == [uuid]
    assert world.state(uuid) == ("active", "migrating", other(source)) and world.addresses(uuid) == addresses
    assert world.row(uuid).launched_on == other(source) and (uuid, source) in world.cleanups()
    assert world.call(live_life.finish, {uuid: live_life.Result(RUNS)}) == {}
    assert world.state(uuid) == ("active", None, other(source)) and world.status(uuid) == [moves.COMPLETED]
    assert ("live-migration", None) in world.actions(uuid)
    post = ["live_migration._post", "live_migration.post.dest"]
    assert world.event_types(uuid)[-4:] == [*(p + ".start" for p in post), *(p + ".end" for p in reversed(post))]
    world.cleaned(source)
    assert world.claims() == {(uuid, other(source))} and usage(world)[other(source)] == before[source]


@pytest.mark.parametrize("seen", [True, False])
def test_what_a_guest_is_losing_goes_with_it(world: LiveMovers, seen: bool) -> None:
    """The host gave no answer when the interface was detached: the guest may have it still, and takes it along. :arg seen: by its run"""
    uuid = world.boot("web")
    (address,) = world.addresses(uuid)
    source = world.row(uuid).host
    entry = NamedInterface("interfaces[0]", uuid, network="net-1")
    (left,) = world.call(interfaces.begin_detach, [entry], ["net-1"], None, ["h1", "h2"], run="i").interfaces
    world.go(uuid)
    world.call(live_life.mark_running, [uuid])
    if seen:
        world.call(live_life.switch, [uuid])
        world.call(live_life.finish, {uuid: live_life.Result(RUNS)})
    else:
        world.report_guest(other(source), uuid, RUNS)
    assert world.state(uuid) == ("active", None, other(source)) and (uuid, source) in world.cleanups()
    world.cleaned(source)
    assert world.addresses(uuid) == [address], "the guest may use it on its new host"
    (again,) = world.call(interfaces.begin_detach, [entry], ["net-1"], None, ["h1", "h2"], run="j").interfaces
    assert (again.port.id, again.port.host, again.row.host) == (left.port.id, other(source), other(source))
    assert world.call(interfaces.free_addresses, [left.port.id], other(source), run="j") == {left.port.id}
    assert world.addresses(uuid) == []


@pytest.mark.parametrize("cleaned", [True, False])
@pytest.mark.parametrize(
    "error, status",
    [(BROKEN, moves.ERROR), (errors.LiveMigrationAborted(instance_uuid="u", reason="told"), moves.CANCELLED)],
)
def test_a_guest_that_stays(world: LiveMovers, cleaned: bool, error: errors.BootflowError, status: str) -> None:
    uuid = world.boot("web")
    source = world.row(uuid).host
    world.go(uuid)
    assert world.call(live_life.finish, {uuid: live_life.Result(RUNS, error, cleaned)}) == {uuid: error}
    assert world.state(uuid) == ("active", None, source) and world.status(uuid) == [status]
    assert world.actions(uuid)[-1] == ("live-migration", "Error")
    there = ["live_migration.rollback.dest.start", "live_migration.rollback.dest.end"] if cleaned else []
    assert world.event_types(uuid)[-2 - len(there) :] == [
        "live_migration._rollback.start",
        *there,
        "live_migration._rollback.end",
    ]
    if not cleaned:
        assert world.claims() == {(uuid, "h1"), (uuid, "h2")} and world.cleanups() == {(uuid, other(source))}
        assert "NoValidHost" in [e.code for e in world.go(uuid).failed.values()], "a host with leftovers of it"
        world.cleaned(other(source))
    assert world.claims() == {(uuid, source)}
    assert not world.go(uuid).failed


def test_progress(world: LiveMovers) -> None:
    """Only of a migration that this run has under way."""
    uuid = world.boot("web")
    world.go(uuid)
    its = Progress(memory_total=1000, memory_processed=700, memory_remaining=300, disk_total=5, disk_remaining=1)

    def tell(run: str = "m") -> list[dict[str, t.Any]]:
        world.call(ledger_moves.set_progress, {uuid: (70, its)}, run=run)
        with world.ledger.read() as tx:
            return views.migrations(tx, [uuid])[uuid]

    assert "progress" not in tell()[0], "it has not begun"
    world.call(live_life.mark_running, [uuid])
    assert "progress" not in tell("b")[0], "another run's"
    (seen,) = tell()
    assert (seen["progress"], seen["memory_processed_bytes"], seen["disk_remaining_bytes"]) == (70, 700, 1)
    view = {"name": "web", "uuid": uuid, "vm_state": "active", "migrations": [seen]}
    shown = tables_of_actions.history_table(
        {**view, **dict.fromkeys(("actions", "events", "faults", "notifications"), ())}
    )
    assert "70 % (left: disks 0 of 0 MiB, memory 0 of 0 MiB)" in shown[-1]
    world.call(live_life.switch, [uuid])
    world.call(live_life.finish, {uuid: live_life.Result(RUNS)})


def test_what_is_refused(world: LiveMovers) -> None:
    uuid = world.boot("web")
    source = world.row(uuid).host
    with pytest.raises(errors.UnableToMigrateToSelf):
        world.go(uuid, to=source)
    with pytest.raises(errors.ComputeHostNotFound) as e:
        world.go(uuid, to="h9")
    assert "The list of compute hosts has: " in e.value.remedy
    assert world.go(uuid, backends={**QCOW2, other(source): "raw"}).failed, "disks of another kind"
    assert world.go(uuid, to="h3", run="b").failed, "a host without a report"
    world.put(uuid, power_state=states.SHUTDOWN)  # it shut itself down; source: Nova's _check_instance_is_active
    with pytest.raises(errors.InstanceInvalidState, match="while it is in power_state shutdown"):
        world.go(uuid)
    world.put(uuid, power_state=states.RUNNING)
    for vm_state in (states.STOPPED, states.SUSPENDED, states.ERROR):
        world.put(uuid, vm_state=vm_state)
        with pytest.raises(errors.InstanceInvalidState):
            world.go(uuid)
    world.put(uuid, vm_state=states.PAUSED, locked_by="bob")
    with pytest.raises(errors.InstanceIsLocked):
        world.go(uuid)
    world.put(uuid, locked_by=None)
    assert world.state(uuid) == ("paused", None, source) and world.claims() == {(uuid, source)}
    assert world.go(uuid, to=other(source)).moving
    world.call(live_life.switch, [uuid])
    world.call(live_life.finish, {uuid: live_life.Result(states.POWER_PAUSED)})
    assert world.state(uuid) == ("paused", None, other(source))


@pytest.mark.parametrize("backend, others", [("lvm", "qcow2_on_lvm"), ("qcow2_on_lvm", "qcow2")])
def test_logical_volumes_go_where_others_are(world: LiveMovers, backend: str, others: str) -> None:
    uuid = world.boot("web")
    source = world.row(uuid).host
    (error,) = world.go(uuid, backends={**dict.fromkeys(QCOW2, others), source: backend}).failed.values()
    assert error.code == "NoValidHost"
    backends = {**dict.fromkeys(QCOW2, others), source: backend}
    (error,) = world.go(uuid, to=other(source), backends=backends).failed.values()
    assert error.code == "NoValidHost" and "another kind of local disks" in error.remedy
    (moving,) = world.go(uuid, backends=dict.fromkeys(QCOW2, backend)).moving
    assert moving.move.dest_compute == other(source)


def test_never_to_an_older_hypervisor(world: LiveMovers) -> None:
    uuid = world.boot("web")
    source = world.row(uuid).host
    with world.ledger.write() as tx:
        c = tables.compute_nodes.c
        tx.execute(tables.compute_nodes.update().where(c.host == source).values(hypervisor_version=8_000_000))
    assert world.go(uuid).failed
    (error,) = world.go(uuid, to=other(source)).failed.values()
    assert error.code == "NoValidHost" and "Host %s has an older QEMU" % other(source) in error.remedy
    with world.ledger.write() as tx:
        tx.execute(tables.compute_nodes.update().values(hypervisor_version=8_000_000))
    assert world.go(uuid).moving


def test_hosts_that_refused_the_guest_come_last(world: LiveMovers) -> None:
    """The same again goes elsewhere; where all refused it, not to the last one; one that was aborted does not count."""
    backends = {**QCOW2, "h3": "qcow2"}
    world.report("h3", memory=9999)
    uuid = world.boot("web")
    first = world.row(uuid).host
    refusal = errors.InvalidCPUInfo(reason="x")
    aborted = errors.LiveMigrationAborted(instance_uuid=uuid, reason="told")

    def tried(error: errors.BootflowError | None, to: str | None = None) -> str:
        (moving,) = world.go(uuid, to=to, backends=backends).moving
        if error is not None:
            world.call(live_life.finish, {uuid: live_life.Result(RUNS, error, True)})
        return str(moving.move.dest_compute)

    best = tried(aborted)
    assert tried(refusal) == best
    (second,) = set(backends) - {first, best}
    assert tried(refusal) == second and tried(refusal) == best and tried(refusal) == second
    assert tried(refusal, to=second) == second, "who names a host gets it"


@pytest.mark.parametrize("cleaned", [True, False])
def test_a_guest_whose_new_host_refuses_it_goes_to_another(world: LiveMovers, cleaned: bool) -> None:
    """In one transaction; not to a host that refused it, however good that is. :arg cleaned: the host that refused it has nothing of it"""
    backends = {**QCOW2, "h3": "qcow2"}
    world.report("h3", memory=9999)
    uuid = world.boot("web")
    source = world.row(uuid).host
    (moving,) = world.go(uuid, backends=backends).moving
    first = moving.move.dest_compute
    (second,) = set(backends) - {source, first}
    refusal = errors.InvalidCPUInfo(reason="x")

    (moving,) = world.again(uuid, refusal, {first}, cleaned, backends).moving
    assert moving.move.dest_compute == second and world.state(uuid) == ("active", "migrating", source)
    assert world.status(uuid) == [moves.ERROR, moves.PREPARING]
    assert world.actions(uuid)[-2:] == [("live-migration", "Error"), ("live-migration", None)]
    left = set() if cleaned else {(uuid, first)}
    assert world.claims() == {(uuid, source), (uuid, second)} | left and world.cleanups() == left

    begun = world.again(uuid, refusal, {first, second}, True, backends)
    assert [e.code for e in begun.failed.values()] == ["NoValidHost"] and not begun.moving
    assert world.state(uuid) == ("active", None, source) and world.status(uuid) == [moves.ERROR, moves.ERROR]
    assert world.claims() == {(uuid, source)} | left and world.cleanups() == left
    if not cleaned:
        world.cleaned(first)
    assert world.claims() == {(uuid, source)}


def test_what_another_run_has_taken_is_not_tried_again(world: LiveMovers) -> None:
    backends = {**QCOW2, "h3": "qcow2"}
    world.report("h3")
    uuid = world.boot("web")
    world.go(uuid, backends=backends)
    world.call(live_life.finish, {uuid: live_life.Result(RUNS, BROKEN)})
    before = (world.state(uuid), world.status(uuid), world.claims())
    begun = world.again(uuid, BROKEN, set(), True, backends)
    assert [e.code for e in begun.failed.values()] == ["UnexpectedTaskStateError"] and not begun.moving
    assert (world.state(uuid), world.status(uuid), world.claims()) == before


def with_cells(world: LiveMovers, host: str, pages: t.Sequence[int] = (2048,)) -> None:
    numa = cells()
    for cell in numa["cells"]:
        cell["pages"] = [{"size_kb": size, "total": (4 << 20) // size} for size in pages]
    facts = {"hypervisor_hostname": host, "memory_mb": 8192, "local_gb": 4000, "vcpus": 500, "numa_topology": numa}
    with world.ledger.write() as tx:
        nodes.record_report(tx.for_run(world.context()), host, facts, {"ram_allocation_ratio": 1.0})


def claimed_cpus(world: LiveMovers) -> dict[tuple[str, str], list[int]]:
    """(uuid, host) -> the host's CPUs."""
    n = tables.compute_nodes.c
    with world.ledger.read() as tx:
        query = sa.select(tables.claims.c.instance_uuid, n.host, tables.claims.c.numa)
        rows = tx.execute(query.join(tables.compute_nodes, n.id == tables.claims.c.compute_node_id)).all()
    found = {(r.instance_uuid, r.host): GuestNUMATopology.from_dict(r.numa) for r in rows}
    return {place: sorted(cpu for cell in its.cells for cpu in cell.pinned_cpus) for place, its in found.items()}


def pins_of(world: LiveMovers, begun: live.Begun) -> dict[str, t.Any]:
    with world.ledger.read() as tx:
        return live_pins.pins_on_destination(tx, begun.moving)


@pytest.mark.parametrize("over", [True, False])
def test_a_guest_with_cpus_of_its_own(world: LiveMovers, over: bool) -> None:
    """The claim on the new host gives it others; who stays gives them back."""
    for host in ("h1", "h2"):
        with_cells(world, host)
    uuids = [world.boot("vm%d" % n, numa_topology=pinned(cpus=3)) for n in range(3)]
    had = claimed_cpus(world)
    places = {u: world.row(u).host for u in uuids}
    uuid = next(u for u in uuids if list(places.values()).count(places[u]) == 1)  # it goes to where two are not free
    source = places[uuid]
    neighbour = next(u for u in uuids if places[u] == other(source))
    assert had[uuid, source] == had[neighbour, other(source)] == [0, 1, 2]
    world.delete(uuids=[u for u in uuids if u not in (uuid, neighbour)])
    world.removed(other(source), [u for u in uuids if u not in (uuid, neighbour)])
    begun = world.go(uuid)
    there = claimed_cpus(world)[uuid, other(source)]
    assert there == [4, 5, 6] and claimed_cpus(world)[uuid, source] == [0, 1, 2]
    assert pins_of(world, begun)[uuid] == {
        "vcpus": {"0": "4", "1": "5", "2": "6"},
        "emulator": "4-6",
        "cells": {"0": "1"},
        "memory": "1",
    }
    if over:
        world.call(live_life.switch, [uuid])
    error = None if over else BROKEN
    world.call(live_life.finish, {uuid: live_life.Result(RUNS, error)})
    if over:
        world.cleaned(source)
    with world.ledger.read() as tx:
        numa = GuestNUMATopology.from_dict(claims.allocations_of(tx, [uuid])[uuid]["numa"])
    assert [sorted(c.pinned_cpus) for c in numa.cells] == [[4, 5, 6] if over else [0, 1, 2]]
    assert {h for u, h in claimed_cpus(world) if u == uuid} == {other(source) if over else source}


def test_a_guest_keeps_the_size_of_its_pages(world: LiveMovers) -> None:
    """It asks for large ones, and gets those of 1 GiB; a host that has smaller ones only cannot take it while it runs."""
    with_cells(world, "h1", pages=(2048, 1 << 20))
    large = dataclasses.replace(pinned(cpus=1, memory_mb=1024).cells[0], page_size_kb=PAGES_LARGE)
    wants = GuestNUMATopology((large,))
    uuid = world.boot("web", numa_topology=wants)
    with_cells(world, "h2")
    assert world.row(uuid).host == "h1"
    assert [e.code for e in world.go(uuid).failed.values()] == ["NoValidHost"]
    with_cells(world, "h2", pages=(4, 1 << 20))
    begun = world.go(uuid)
    assert begun.moving and pins_of(world, begun)[uuid]["memory"] == "0"
    world.call(live_life.finish, {uuid: live_life.Result(RUNS, BROKEN)})


def test_a_guest_without_cells_has_no_pins(world: LiveMovers) -> None:
    uuid = world.boot("web")
    assert pins_of(world, world.go(uuid)) == {uuid: {}}
    world.call(live_life.finish, {uuid: live_life.Result(RUNS, BROKEN)})


@pytest.mark.parametrize("field", ["pci_requests", "whole_disks"])
def test_a_guest_with_something_of_its_host(world: LiveMovers, field: str) -> None:
    uuid = world.boot("web")
    with world.ledger.write() as tx:
        (row,) = tx.execute(sa.select(tables.request_specs.c.id, tables.request_specs.c.spec)).all()
        tx.execute(tables.request_specs.update().values(spec={**row.spec, field: [{"count": 1}]}))
    with pytest.raises(errors.MoveNotSupported):
        world.go(uuid)


def test_one_that_migrates_is_not_soft_deleted(world: LiveMovers) -> None:
    """One of its hosts has its disks as they are, the other would be cleaned, and libvirt alone knows which is which."""
    uuid = world.boot("web")
    world.go(uuid)
    world.call(live_life.mark_running, [uuid])
    before = world.everything()
    with pytest.raises(errors.InstanceInvalidState, match="task_state migrating") as refused:
        world.call(lambda tx: delete.begin(tx, Selection(uuids=[uuid]), soft=True), run="d")
    assert "force_delete" in refused.value.remedy and world.everything() == before
    assert world.call(lambda tx: delete.begin(tx, Selection(uuids=[uuid])), run="d").hosts == ["h1", "h2"]


def test_interventions_need_a_migration_that_runs(world: LiveMovers) -> None:
    uuid = world.boot("web")
    chosen = Selection(uuids=[uuid])
    for its in live_life.INTERVENTIONS.values():
        with pytest.raises(errors.InstanceInvalidState):
            world.call(live_life.running_migrations, its, chosen)
    world.go(uuid)
    with pytest.raises(errors.InvalidMigrationState, match="state of instance .* is preparing"):
        world.call(live_life.running_migrations, live_life.ABORT, chosen, run="b")
    world.call(live_life.mark_running, [uuid])
    for its in live_life.INTERVENTIONS.values():
        assert [m.uuid for m in world.call(live_life.running_migrations, its, chosen, run="b")] == [uuid]
    world.call(live_life.journal_intervention, live_life.ABORT, {}, [uuid], run="b")
    world.call(live_life.journal_intervention, live_life.FORCE_COMPLETE, {uuid: "it broke"}, [uuid], run="b")
    assert world.actions(uuid)[-2:] == [("live_migration_cancel", None), ("live_migration_force_complete", "Error")]
    assert world.event_types(uuid)[-3:] == [
        "live.migration.abort.start", "live.migration.abort.end", "live.migration.force.complete.start",
    ]  # fmt: skip
    with pytest.raises(errors.InstanceNotFound):
        world.call(
            live_life.running_migrations, live_life.ABORT, Selection(uuids=["0e7a7fc4-6d5b-5a5e-9d3a-0a4c6e2f7b11"])
        )


# --- dead runs ------------------------------------------------------------------------------------------------------------

SOURCE, TARGET = "source", "target"


@pytest.mark.parametrize(
    "reports, at, vm_state, status",
    [
        ([(SOURCE, RUNS, "")], SOURCE, "active", moves.ERROR),
        ([(SOURCE, RUNS, moves.LEAVES), (TARGET, states.POWER_PAUSED, moves.COMES)], None, "active", moves.RUNNING),
        ([(SOURCE, OFF, moves.LEFT)], TARGET, "active", moves.COMPLETED),
        ([(TARGET, RUNS, "")], TARGET, "active", moves.COMPLETED),
        ([(SOURCE, OFF, "")], None, "active", moves.RUNNING),
        ([(SOURCE, OFF, ""), (TARGET, RUNS, "")], TARGET, "active", moves.COMPLETED),
        ([(SOURCE, OFF, ""), (TARGET, None, "")], SOURCE, "stopped", moves.ERROR),
        ([(SOURCE, None, ""), (TARGET, states.POWER_PAUSED, moves.COMES)], None, "active", moves.RUNNING),
        ([(TARGET, None, ""), (SOURCE, OFF, "")], None, "active", moves.RUNNING),
        # The source's libvirtd forgot why its guest is off; the definition is on the new host, where the guest wrote last.
        ([(TARGET, None, ""), (SOURCE, OFF, ""), (TARGET, OFF, "")], TARGET, "active", moves.COMPLETED),
        ([(SOURCE, OFF, ""), (TARGET, OFF, moves.ENDED_HERE)], TARGET, "active", moves.COMPLETED),
        ([(SOURCE, OFF, ""), (TARGET, OFF, moves.FAILED_HERE)], SOURCE, "stopped", moves.ERROR),
        ([(SOURCE, OFF, moves.ENDED_HERE), (TARGET, OFF, "")], SOURCE, "stopped", moves.ERROR),
        ([(SOURCE, OFF, moves.ENDED_HERE)], None, "active", moves.RUNNING),
    ],
)  # fmt: skip
def test_reports_settle_what_a_dead_run_left(
    world: LiveMovers, reports: t.Any, at: str | None, vm_state: str, status: str
) -> None:
    uuid = world.boot("web")
    source = world.row(uuid).host
    hosts = {SOURCE: source, TARGET: other(source)}
    world.go(uuid)
    world.call(live_life.mark_running, [uuid])
    for which, power_state, moving in reports:
        world.report_guest(hosts[which], uuid, power_state, moving)
    assert world.status(uuid) == [status]
    assert world.state(uuid) == (vm_state, "migrating" if at is None else None, hosts[at or SOURCE])
    with world.ledger.read() as tx:
        assert dead_runs.hosts_to_ask(tx.for_run(world.context("z"))) == (set(hosts.values()) if at is None else set())
    if at is not None:
        left = TARGET if at == SOURCE else SOURCE
        assert world.cleanups() == {(uuid, hosts[left])}
        world.cleaned(hosts[left])
        assert world.claims() == {(uuid, hosts[at])}


def test_a_run_that_died_after_the_switch(world: LiveMovers) -> None:
    """The claim of the new host is the instance's, whoever reports, and the source host keeps its own until it is cleaned."""
    uuid = world.boot("web")
    source = world.row(uuid).host
    target = other(source)
    world.go(uuid)
    world.call(live_life.mark_running, [uuid])
    world.call(live_life.switch, [uuid])
    notified = world.event_types(uuid)
    assert world.report_guest(target, uuid, RUNS) == {uuid: "active"}
    assert (world.state(uuid), world.status(uuid)) == (("active", None, target), [moves.COMPLETED])
    with world.ledger.read() as tx:
        kinds = {r.kind: r.compute_node_id for r in claims.rows(tx) if r.instance_uuid == uuid}
        hosts = {n.id: n.host for n in tx.execute(sa.select(tables.compute_nodes))}
    assert {kind: hosts[node_id] for kind, node_id in kinds.items()} == {claims.BUILD: target, claims.MOVE: source}
    begun = "live_migration.post.dest.start"
    assert notified.count(begun) == world.event_types(uuid).count(begun) == 1
    assert world.cleanups() == {(uuid, source)}
    world.cleaned(source)
    assert world.claims() == {(uuid, target)}


def test_a_living_run_is_left_alone_and_so_is_what_is_not_known(world: LiveMovers) -> None:
    uuid = world.boot("web")
    source = world.row(uuid).host
    world.go(uuid)
    assert world.call(recovery.settle_operations, source, {uuid: RUNS}, world.time + 1, None, False, {}, run="z") == {}
    assert world.state(uuid)[1] == "migrating"
    assert world.settle(source, {uuid: RUNS}) == {}, "power_sync does not know whether it migrates"
    assert world.report_guest(source, uuid, RUNS) == {uuid: "active"}


@pytest.mark.parametrize(
    "here, there, planned, at",
    [
        ((RUNS, ""), None, "active on %(source)s", SOURCE),
        ((RUNS, moves.LEAVES), (states.POWER_PAUSED, moves.COMES), None, None),
        ((OFF, ""), (RUNS, ""), "active on %(target)s", TARGET),
        ((OFF, moves.LEFT), None, "active on %(target)s", TARGET),
        ((OFF, ""), None, "stopped on %(source)s", SOURCE),
        ((OFF, ""), (OFF, ""), "active on %(target)s", TARGET),
        ((OFF, moves.ENDED_HERE), (OFF, ""), "stopped on %(source)s", SOURCE),
    ],
)  # fmt: skip
def test_the_audit_settles_it_too(
    world: LiveMovers, here: t.Any, there: t.Any, planned: str | None, at: str | None
) -> None:
    uuid = world.boot("web")
    source = world.row(uuid).host
    hosts = {SOURCE: source, TARGET: other(source)}
    world.go(uuid)
    world.time += 100_000
    snapshots = {}
    for which, seen in ((SOURCE, here), (TARGET, there)):
        domains = [] if seen is None else [host_evidence.Domain(uuid, "web", power_state=seen[0], moving=seen[1])]
        snapshots[hosts[which]] = host_evidence.Snapshot(
            hosts[which], hosts[which], world.time + 1, domains, [d.uuid for d in domains]
        )
    evidence = host_evidence.Evidence(snapshots=snapshots)
    found = world.call(recovery_audit.plan, evidence, run="z")
    of_run = [f for f in found if f.kind == core_audit.DEAD_OPERATION]
    if planned is None:
        assert [f.action for f in of_run] == ["wait"]
    else:
        assert [(f.action, f.new) for f in of_run] == [("settle", planned % hosts)]
    assert not [f for f in found if f.changes and f.kind != core_audit.DEAD_OPERATION], "nothing of it is an orphan"
    world.call(recovery_audit.repair, found, evidence, run="z")
    assert world.state(uuid)[1:] == (None if at else "migrating", hosts[at or SOURCE])
