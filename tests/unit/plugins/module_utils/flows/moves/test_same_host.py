# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Resizes on an instance's own host in the ledger: both flavors are claimed there until it is decided, and only a part of it is ever cleaned."""

from __future__ import annotations

import typing as t
from dataclasses import replace

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.core.audit import evidence as host_evidence
from ansible_collections.bootflow.compute.plugins.module_utils.core.audit import plan as core_audit
from ansible_collections.bootflow.compute.plugins.module_utils.core.disks.stores.registry import NAMES
from ansible_collections.bootflow.compute.plugins.module_utils.core.instances import states
from ansible_collections.bootflow.compute.plugins.module_utils.core.instances.server_groups import ServerGroup
from ansible_collections.bootflow.compute.plugins.module_utils.flows.instances import cleanup, delete
from ansible_collections.bootflow.compute.plugins.module_utils.flows.instances.operation import Outcome, Selection
from ansible_collections.bootflow.compute.plugins.module_utils.flows.moves import (
    cold,
    cold_life,
    confirm,
    evacuate,
    revert,
)
from ansible_collections.bootflow.compute.plugins.module_utils.flows.moves.evacuate_life import Result
from ansible_collections.bootflow.compute.plugins.module_utils.flows.moves.evacuate_life import finish as evacuated
from ansible_collections.bootflow.compute.plugins.module_utils.flows.recovery import audit as recovery_audit
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.compute import claims, cleanups, service_state
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.schema import tables
from ansible_collections.bootflow.compute.tests.unit.worlds.world import World, request

from .test_cold import BROKEN, LARGE, NEW, OLD, Movers

APART = ServerGroup(id="apart", name="apart", policy="anti-affinity", max_server_per_host=1)


class Here(Movers):
    """One host, with room for 6 instances."""

    def resize(self, uuid: str, flavor: t.Any = LARGE) -> t.Any:
        wanted = cold.Wanted(
            Selection(uuids=[uuid]), ("h1", "h2"), dict.fromkeys(("h1", "h2"), "qcow2"), flavor, same_host=True
        )
        return self.call(cold.begin, wanted, self.fleet, self.options())

    def resized(self, uuid: str) -> None:
        assert [m.uuid for m in self.resize(uuid).moving] == [uuid]
        assert [m.uuid for m in self.call(cold_life.switch, [uuid])] == [uuid]
        assert self.call(cold_life.finish, cold_life.RESIZE, {uuid: cold_life.Result(states.RUNNING)}) == {}

    def parts(self) -> dict[tuple[str, str], str]:
        return {(r.instance_uuid, r.host): r.part for r in self.rows(tables.cleanups)}

    def planned(self) -> list[core_audit.Finding]:
        with self.ledger.read() as tx:
            return recovery_audit.plan(tx.for_run(self.context("z")), host_evidence.Evidence())

    def findings(self) -> dict[str, core_audit.Finding]:
        return {f.kind: f for f in self.planned() if f.changes}


@pytest.fixture(name="world")
def _here(world: World) -> t.Iterator[Here]:
    made = Here(world.url)
    made.report("h1", memory=6)
    yield made
    with made.ledger.read() as tx:
        made.check(tx)
    made.ledger.close()


def test_both_flavors_are_claimed_until_it_is_confirmed(world: Here) -> None:
    uuid = world.boot("web")
    before = world.used("h1")
    (moving,) = world.resize(uuid).moving
    assert (moving.move.source_compute, moving.move.dest_compute, moving.at_destination) == ("h1", "h1", False)
    both = tuple(a + b for a, b in zip(before, (2048, 3, 2, 0)))
    assert world.used("h1") == both and world.size(uuid) == OLD
    world.call(cold_life.switch, [uuid])
    assert world.state(uuid) == ("active", "resize_finish", "h1") and world.size(uuid) == NEW
    assert world.used("h1") == both and world.findings() == {}
    world.call(cold_life.finish, cold_life.RESIZE, {uuid: cold_life.Result(states.RUNNING)})
    assert (
        world.state(uuid) == ("resized", None, "h1") and world.status(uuid) == ["finished"] and world.findings() == {}
    )
    done = world.call(confirm.confirm, Selection(uuids=[uuid]))
    assert done.sources == {uuid: "h1"} and world.parts() == {(uuid, "h1"): "old"}
    assert world.used("h1") == both, "until the host is cleaned"
    assert {f.kind for f in world.planned()} == {"cleanup"}
    world.cleaned("h1")
    assert world.used("h1") == (2048, 3, 2, 1) and not world.parts() and world.claims() == {(uuid, "h1")}
    assert world.addresses(uuid) and world.size(uuid) == NEW and world.findings() == {}


def test_brought_back(world: Here) -> None:
    uuid = world.boot("web")
    before = world.used("h1")
    world.resized(uuid)
    world.revert(uuid)
    assert world.state(uuid) == ("active", None, "h1") and world.size(uuid) == OLD and world.used("h1") == before
    assert world.status(uuid) == ["reverted"] and not world.parts()


@pytest.mark.parametrize("cleaned", [True, False])
@pytest.mark.parametrize("over", [True, False])
def test_it_fails(world: Here, over: bool, cleaned: bool) -> None:
    uuid = world.boot("web")
    before = world.used("h1")
    world.resize(uuid)
    if over:
        world.call(cold_life.switch, [uuid])
        if cleaned:
            assert world.call(cold_life.roll_back, [uuid])
    failed = cold_life.Result(states.RUNNING, BROKEN, cleaned)
    assert world.call(cold_life.finish, cold_life.RESIZE, {uuid: failed}) == {uuid: BROKEN}
    if over and not cleaned:
        assert world.state(uuid) == ("resized", None, "h1")
        world.revert(uuid)
    assert world.state(uuid) == ("active", None, "h1") and world.size(uuid) == OLD
    assert world.parts() == ({} if cleaned or over else {(uuid, "h1"): "new"})
    world.cleaned("h1")
    assert world.used("h1") == before


@pytest.mark.parametrize("moment", ["begin", "switch", "half", "revert", "back"])
def test_a_run_that_dies(world: Here, moment: str) -> None:
    uuid = world.boot("web")
    before = world.used("h1")
    if moment in ("begin", "switch"):
        world.resize(uuid)
    else:
        world.resized(uuid)
        world.call(revert.begin_revert, Selection(uuids=[uuid]), ("h1",))
    if moment == "switch":
        world.call(cold_life.switch, [uuid])
    if moment == "back":
        world.call(cold_life.roll_back, [uuid])
    settled = world.settle("h1", {} if moment == "half" else {uuid: states.SHUTDOWN})
    vm_state = "resized" if moment in ("switch", "revert") else "stopped"
    assert settled == {uuid: vm_state} and world.size(uuid) == (NEW if vm_state == "resized" else OLD)
    assert world.parts() == ({(uuid, "h1"): "new"} if moment in ("begin", "half", "back") else {})
    if vm_state == "resized":
        world.revert(uuid)
    world.cleaned("h1")
    assert world.used("h1") == before and world.size(uuid) == OLD and world.row(uuid).host == "h1"


def test_no_room_for_both(world: Here) -> None:
    uuid = world.boot("web")
    for n in range(4):
        world.boot("other-%d" % n)
    begun = world.resize(uuid)
    assert isinstance(begun.failed[uuid], errors.NoValidHost) and world.state(uuid) == ("active", None, "h1")


def test_only_where_it_is_allowed(world: Here) -> None:
    uuid = world.boot("web")
    begun = world.set_out(uuids=[uuid], flavor=LARGE, backends={"h1": "qcow2"})
    assert "bootflow_allow_resize_to_same_host" in begun.failed[uuid].remedy
    wanted = cold.Wanted(Selection(uuids=[uuid]), ("h1",), {"h1": "qcow2"}, same_host=True)
    begun = world.call(cold.begin, wanted, world.fleet, world.options())
    assert begun.failed and "same_host" not in begun.failed[uuid].remedy, "a migration goes to another host"


@pytest.mark.parametrize("backend", NAMES)
def test_every_backend_may_stay(world: Here, backend: str) -> None:
    uuid = world.boot("web")
    wanted = cold.Wanted(Selection(uuids=[uuid]), ("h1",), {"h1": backend}, LARGE)
    begun = world.call(cold.begin, wanted, world.fleet, world.options())
    assert "bootflow_allow_resize_to_same_host" in begun.failed[uuid].remedy
    wanted = replace(wanted, same_host=True)
    (moving,) = world.call(cold.begin, wanted, world.fleet, world.options()).moving
    assert moving.move.dest_compute == moving.move.source_compute == "h1"


def test_another_host_is_as_good(world: Here) -> None:
    """The weighers choose: an emptier host is better."""
    uuid = world.boot("web")
    world.report("h2", memory=20)
    (moving,) = world.resize(uuid).moving
    assert moving.move.dest_compute == "h2"


def test_not_before_the_last_one_is_cleaned(world: Here) -> None:
    uuid = world.boot("web")
    world.resized(uuid)
    world.call(confirm.confirm, Selection(uuids=[uuid]))
    world.report("h2", memory=6)
    begun = world.resize(uuid, LARGE.__class__(name="larger", memory_mb=3072, vcpus=2, root_gb=3))
    assert isinstance(begun.failed[uuid], errors.InstanceNotReady) and "h1" in begun.failed[uuid].message
    world.cleaned("h1")
    assert world.resize(uuid, LARGE.__class__(name="larger", memory_mb=3072, vcpus=2, root_gb=3)).moving


@pytest.mark.parametrize("moment", ["begin", "switch", "finish", "confirmed"])
def test_deleted(world: Here, moment: str) -> None:
    uuid = world.boot("web")
    world.resize(uuid)
    if moment != "begin":
        world.call(cold_life.switch, [uuid])
    if moment in ("finish", "confirmed"):
        world.call(cold_life.finish, cold_life.RESIZE, {uuid: cold_life.Result(states.RUNNING)})
    if moment == "confirmed":
        world.call(confirm.confirm, Selection(uuids=[uuid]))
    assert world.delete(uuids=[uuid]).hosts == ["h1"]
    with world.ledger.read() as tx:
        assert cleanups.of_a_part(tx, {("h1", uuid)}) == {}, "all of it"
    assert [i["uuid"] for i in world.of_host("h1")] == [uuid]
    world.removed("h1", [uuid])
    assert world.finish() == (["web"], []) and not world.claims() and not world.addresses() and not world.parts()


def test_deleted_by_force_while_its_host_does_not_answer(world: Here) -> None:
    uuid = world.boot("web")
    world.resized(uuid)
    world.delete(uuids=[uuid])
    assert world.finish(force=True) == (["web"], []) and world.parts() == {(uuid, "h1"): "all"}
    assert world.used("h1")[0] == 1024 + 2048
    world.cleaned("h1")
    assert not world.claims() and world.used("h1") == (0, 0, 0, 0)


def test_one_that_can_be_restored_is_confirmed(world: Here) -> None:
    uuid = world.boot("web")
    world.resized(uuid)
    world.call(lambda tx: delete.begin(tx, Selection(uuids=[uuid]), soft=True), run="d")
    assert world.status(uuid) == ["confirmed"] and world.parts() == {(uuid, "h1"): "old"}
    off = {uuid: Outcome(states.SHUTDOWN)}
    world.call(lambda tx: delete.removed(tx, {"h1": [uuid]}, {}, powered_off=off), run="d")
    assert world.state(uuid) == ("soft-delete", None, "h1")
    assert world.used("h1") == (2048, 3, 2, 1) and world.size(uuid) == NEW and world.addresses(uuid)


def test_evacuated_before_its_host_was_cleaned(world: Here) -> None:
    """What a failed evacuation brings back has the same to clean as before."""
    uuid = world.boot("web")
    world.resized(uuid)
    world.call(confirm.confirm, Selection(uuids=[uuid]))
    world.report("h2", memory=6)
    world.call(service_state.set_state, ["h1"], "forced_down")
    wanted = evacuate.Wanted(Selection(uuids=[uuid]))
    assert world.call(evacuate.begin, wanted, world.fleet, world.options()).rows
    assert world.parts() == {(uuid, "h1"): "all"}
    world.call(evacuated, {uuid: Result(error=BROKEN)})
    assert world.state(uuid) == ("active", None, "h1") and world.parts() == {(uuid, "h1"): "old"}
    world.cleaned("h1")
    assert world.used("h1") == (2048, 3, 2, 1) and world.used("h2") == (0, 0, 0, 0)


def test_evacuated_from_a_host_that_is_being_cleaned_of_it(world: Here) -> None:
    """Its old host came back, and lacks what has been removed by now: the instance does not go back there."""
    uuid = world.boot("web")
    world.report("h2", memory=6)
    world.call(service_state.set_state, ["h1"], "forced_down")
    wanted = evacuate.Wanted(Selection(uuids=[uuid]))
    assert world.call(evacuate.begin, wanted, world.fleet, world.options()).rows
    assert not world.call(cleanups.begin, "h1", [uuid], run="z")
    world.call(evacuated, {uuid: Result(error=BROKEN)})
    assert world.state(uuid) == ("error", None, "h2") and world.parts() == {(uuid, "h1"): "all"}
    world.call(cleanup.finish, {"h1": [uuid]}, run="z")
    assert world.claims() == {(uuid, "h2")} and not world.parts()


def test_evacuated_while_its_host_was_being_cleaned_of_a_resize(world: Here) -> None:
    """The run that began died with the host. It removed nothing of what the instance has, and its host may have it again."""
    uuid = world.boot("web")
    world.resized(uuid)
    world.call(confirm.confirm, Selection(uuids=[uuid]))
    world.call(cleanups.begin, "h1", [uuid], run="z")
    world.report("h2", memory=6)
    world.call(service_state.set_state, ["h1"], "forced_down")
    wanted = evacuate.Wanted(Selection(uuids=[uuid]))
    assert world.call(evacuate.begin, wanted, world.fleet, world.options()).rows
    world.call(evacuated, {uuid: Result(error=BROKEN)})
    assert world.state(uuid) == ("active", None, "h1") and world.parts() == {(uuid, "h1"): "old"}


def test_evacuated_before_its_host_was_cleaned_of_a_resize_that_failed(world: Here) -> None:
    """With "old" for "new" its host would exchange its disks for the copies of that resize, and lose what was written since."""
    uuid = world.boot("web")
    before = world.used("h1")
    world.resize(uuid)
    assert world.settle("h1", {uuid: states.SHUTDOWN}) == {uuid: "stopped"}
    assert world.parts() == {(uuid, "h1"): "new"}
    world.report("h2", memory=6)
    world.call(service_state.set_state, ["h1"], "forced_down")
    wanted = evacuate.Wanted(Selection(uuids=[uuid]))
    assert world.call(evacuate.begin, wanted, world.fleet, world.options()).rows
    world.call(evacuated, {uuid: Result(error=BROKEN)})
    assert world.state(uuid) == ("stopped", None, "h1") and world.parts() == {(uuid, "h1"): "new"}
    world.cleaned("h1")
    assert world.used("h1") == before and world.size(uuid) == OLD


def test_deleted_while_another_run_cleans_what_it_was_before(world: Here) -> None:
    """It was taken for removed: its name and addresses were free while its guest ran on."""
    uuid = world.boot("web")
    world.resized(uuid)
    world.call(confirm.confirm, Selection(uuids=[uuid]))
    partly = cleanup.parts_on("h1", world.call(cleanups.begin, "h1", [uuid], run="z"))
    world.delete(uuids=[uuid])
    world.call(lambda tx: delete.removed(tx, {"h1": [uuid]}, {}, partly=partly), run="z")
    assert world.state(uuid) == ("active", "deleting", "h1") and world.addresses(uuid)
    assert world.claims() == {(uuid, "h1")} and not world.parts()
    assert [i["uuid"] for i in world.of_host("h1")] == [uuid]
    assert [v["uuid"] for v in world.finish()[1]] == [uuid]
    world.removed("h1", [uuid])
    assert world.finish() == (["web"], []) and not world.claims() and not world.addresses()


def test_evacuated_while_another_run_cleans_what_it_was_before(world: Here) -> None:
    """Its old host owed nothing any more, and had the guest."""
    uuid = world.boot("web")
    world.resized(uuid)
    world.call(confirm.confirm, Selection(uuids=[uuid]))
    partly = cleanup.parts_on("h1", world.call(cleanups.begin, "h1", [uuid], run="z"))
    world.report("h2", memory=6)
    world.call(service_state.set_state, ["h1"], "forced_down")
    wanted = evacuate.Wanted(Selection(uuids=[uuid]))
    assert world.call(evacuate.begin, wanted, world.fleet, world.options()).rows
    world.call(cleanup.finish, {"h1": [uuid]}, partly, run="z")
    assert world.parts() == {(uuid, "h1"): "all"} and world.claims() == {(uuid, "h1"), (uuid, "h2")}
    world.call(evacuated, {uuid: Result(states.RUNNING)})
    world.cleaned("h1")
    assert not world.parts() and world.claims() == {(uuid, "h2")}


def test_its_group_counts_it_once(world: Here) -> None:
    """The place of an anti-affinity group goes with the claim that stays."""
    uuid = world.boot("web", server_group=APART)

    def slots() -> dict[str, t.Any]:
        return {r.kind: r.group_slot for r in world.rows(tables.claims, tables.claims.c.instance_uuid == uuid)}

    world.resized(uuid)
    assert slots() == {"build": 0, "move": None}
    other = world.accept(request("second", server_group=APART)).created[0]
    assert other not in world.schedule().placed
    world.revert(uuid)
    assert slots() == {"build": 0}
    world.resized(uuid)
    world.call(confirm.confirm, Selection(uuids=[uuid]))
    world.cleaned("h1")
    assert slots() == {"build": 0}


def test_the_audit_sees_a_claim_that_nobody_needs(world: Here) -> None:
    uuid = world.boot("web")
    world.resized(uuid)
    assert world.findings() == {}
    with world.ledger.write() as tx:
        tx.execute(tables.migrations.update().values(status="confirmed"))
        tx.execute(tables.instances.update().values(vm_state="active"))
    found = world.findings()
    assert set(found) == {"stale_claim"}
    world.call(recovery_audit.repair, list(found.values()), host_evidence.Evidence(), run="z")
    assert world.used("h1") == (2048, 3, 2, 1) and world.findings() == {}
    with world.ledger.read() as tx:
        assert [r.kind for r in claims.rows(tx)] == ["build"]


def test_the_audit_enters_the_claim_of_the_instance_again(world: Here) -> None:
    uuid = world.boot("web")
    world.resized(uuid)
    with world.ledger.write() as tx:
        tx.execute(tables.claims.delete().where(tables.claims.c.kind == "build"))
    found = world.findings()
    assert "missing_claim" in found
    world.call(recovery_audit.repair, list(found.values()), host_evidence.Evidence(), run="z")
    assert world.used("h1") == (1024 + 2048, 4, 3, 1) and world.findings() == {}
