# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Shelved instances in the ledger: claims, addresses and images at every step, whatever fails or dies."""

from __future__ import annotations

import random
import typing as t

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.core.images import life, shelving
from ansible_collections.bootflow.compute.plugins.module_utils.core.images.resolve import LedgerImages
from ansible_collections.bootflow.compute.plugins.module_utils.core.images.shelving import Wish
from ansible_collections.bootflow.compute.plugins.module_utils.core.images.stores.registry import read_stores
from ansible_collections.bootflow.compute.plugins.module_utils.core.instances import states
from ansible_collections.bootflow.compute.plugins.module_utils.flows.instances import (
    cleanup,
    operation,
    shelve,
    snapshots,
)
from ansible_collections.bootflow.compute.plugins.module_utils.flows.instances.operation import Outcome, Selection
from ansible_collections.bootflow.compute.plugins.module_utils.flows.moves import unshelve
from ansible_collections.bootflow.compute.plugins.module_utils.flows.recovery import audit, operations
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.compute import instances, requests, sightings
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.schema import image_tables, tables
from ansible_collections.bootflow.compute.tests.unit.worlds.world import World

HOSTS = ("h1", "h2")
STORES = read_stores([{"name": "nfs", "path": "/net/images", "kind": "shared"}], HOSTS)
REQUEST = shelving.request_in(STORES.default(), ())
BYTES = {"size": 9, "checksum": "ab" * 32, "disk_format": "qcow2", "error": None}
ANYWHERE = Wish()
BROKEN = errors.LibvirtError(reason="broken")


@pytest.fixture
def web(world: World) -> str:
    for host in HOSTS:
        world.report(host)
    return world.boot("web")


def begin(world: World, uuid: str, run: str = "s") -> t.Any:
    with world.ledger.write() as tx:
        tx = tx.for_run(world.context(run))
        return shelve.begin(tx, Selection(uuids=[uuid]), HOSTS, lambda: REQUEST)


def finish(world: World, uuid: str, made: t.Any, error: t.Any = None, run: str = "s") -> dict[str, t.Any]:
    items = {uuid: {"image": {"id": made[uuid].id}, "host": world.row(uuid).host}}
    with world.ledger.write() as tx:
        tx = tx.for_run(world.context(run))
        outcome = Outcome(states.SHUTDOWN, error, states.STOPPED if error else None)
        failed = operation.finish(tx, shelve.SHELVE, {uuid: outcome})
        failures = snapshots.finish(tx, {uuid: made[uuid].id}, {uuid: BYTES}, failed, "nfs")
        shelve.finish(tx, items, failed, failures)
    return {**failed, **failures}


def shelved(world: World, uuid: str) -> None:
    _begun, made = begin(world, uuid)
    assert finish(world, uuid, made) == {}


def begin_offload(world: World, uuid: str, run: str = "s", **more: t.Any) -> t.Any:
    with world.ledger.write() as tx:
        tx = tx.for_run(world.context(run))
        rows = instances.select_live(tx, uuids=[uuid], lock=True)
        return shelve.begin_offload(tx, rows, HOSTS, **more)


def end_offload(world: World, uuid: str, error: t.Any = None, run: str = "s") -> dict[str, t.Any]:
    host = world.row(uuid).host
    with world.ledger.write() as tx:
        return shelve.finish_offload(
            tx.for_run(world.context(run)), {uuid: Outcome(states.SHUTDOWN, error)}, {uuid: host}
        )


def offloaded(world: World, uuid: str) -> None:
    shelved(world, uuid)
    begin_offload(world, uuid)
    assert end_offload(world, uuid) == {}


def begin_unshelve(world: World, uuid: str, run: str = "u", wish: Wish = ANYWHERE) -> t.Any:
    with world.ledger.write() as tx:
        wanted = unshelve.Wanted(Selection(uuids=[uuid]), HOSTS, wish, LedgerImages((), STORES))
        return unshelve.begin(tx.for_run(world.context(run)), wanted, world.fleet, world.options())


def end_unshelve(
    world: World, uuid: str, error: t.Any = None, cleaned: bool = True, builds: bool = True, run: str = "u"
) -> dict[str, t.Any]:
    with world.ledger.write() as tx:
        tx = tx.for_run(world.context(run))
        outcome = Outcome(states.NOSTATE if error else states.RUNNING, error)
        failed = operation.finish(tx, unshelve.UNSHELVE, {uuid: outcome})
        built = [uuid] if builds and uuid not in failed else []
        started = [uuid] if uuid not in failed else []
        unshelve.finish(tx, started, built, {uuid: cleaned} if builds and uuid in failed else {})
    return failed


def settle(world: World, host: str, powers: dict[str, int]) -> dict[str, str]:
    world.time += 1
    with world.ledger.write() as tx:
        return operations.settle_operations(tx.for_run(world.context("z")), host, powers, world.time, [])


def images(world: World) -> list[str]:
    return [r.status for r in world.rows(image_tables.images) if r.deleted == ""]


def kept(world: World) -> list[str]:
    return [r.instance_uuid for r in world.rows(tables.shelved_instances)]


def bound(world: World, uuid: str) -> set[str | None]:
    return {r.host for r in world.rows(tables.ports) if r.instance_uuid == uuid}


# --- the way there and back -----------------------------------------------------------------------------------------------


def test_the_life_of_a_shelved_instance(world: World, web: str) -> None:
    used, addresses = world.used("h1"), world.addresses(web)
    begun, made = begin(world, web)
    assert world.state(web) == ("active", "shelving_image_uploading", "h1") and images(world) == ["saving"]
    assert [r.uuid for r in begun.rows] == [web]
    assert finish(world, web, made) == {}
    assert world.state(web) == ("shelved", None, "h1") and images(world) == ["active"] and kept(world) == [web]
    assert world.row(web).power_state == states.SHUTDOWN and world.used("h1") == used
    begin_offload(world, web)
    assert world.state(web) == ("shelved", "shelving_offloading", "h1")
    assert end_offload(world, web) == {}
    assert world.state(web) == ("shelved_offloaded", None, None) and world.claims() == set()
    assert world.addresses(web) == addresses and bound(world, web) == {None}
    done = begin_unshelve(world, web)
    assert done.images[web]["name"] == "web-shelved" and done.images[web]["url"].startswith("file:///net/images/")
    host = world.row(web).host
    assert world.state(web) == ("shelved_offloaded", "unshelving", host) and world.claims() == {(web, host)}
    assert bound(world, web) == {host}
    assert end_unshelve(world, web) == {}
    assert world.state(web) == ("active", None, host) and images(world) == kept(world) == []
    assert world.addresses(web) == addresses
    actions = [(r.action, r.message) for r in world.rows(tables.instance_actions)]
    assert actions == [("create", None), ("shelve", None), ("shelveOffload", None), ("unshelve", None)]
    for table in (tables.instance_actions, tables.instance_action_events):
        assert not [r for r in world.rows(table) if r.finish_time is None]
    events = [r.event_type for r in world.rows(tables.notifications)]
    for name in ("shelve", "shelve_offload", "unshelve"):
        assert ["compute.instance.%s.%s" % (name, moment) for moment in ("start", "end")] == [
            e for e in events if e.startswith("compute.instance.%s." % name)
        ]


def test_a_snapshot_of_a_stopped_instance_is_another_image(world: World, web: str) -> None:
    """Nova's names of images are not unique."""
    with world.ledger.write() as tx:
        tx.execute(tables.instances.update().values(vm_state="stopped"))
    shelved(world, web)
    begin_unshelve(world, web)
    assert end_unshelve(world, web, builds=False) == {}
    shelved(world, web)
    assert images(world) == ["active"] and len(world.rows(image_tables.images)) == 2


def test_a_zone_is_pinned(world: World, web: str) -> None:
    world.report("h2", availability_zone="east")
    other = world.boot("db")
    offloaded(world, web)
    with pytest.raises(errors.NoValidHost):
        begin_unshelve(world, web, wish=Wish(zone="west"))
    assert world.state(web) == ("shelved_offloaded", None, None) and world.claims() == {(other, world.row(other).host)}
    spec_id = world.row(web).request_spec_id
    begin_unshelve(world, web, wish=Wish(zone="east"))
    assert end_unshelve(world, web) == {}
    row = world.row(web)
    assert (row.host, row.availability_zone) == ("h2", "east") and row.request_spec_id != spec_id
    offloaded(world, web)
    with pytest.raises(errors.UnshelveHostNotInAZ):
        begin_unshelve(world, web, wish=Wish(host="h1"))
    begin_unshelve(world, web, wish=Wish(host="h1", unpin=True))
    end_unshelve(world, web)
    with world.ledger.read() as tx:
        spec = requests.specs(tx, [world.row(web).request_spec_id])
    assert world.row(web).host == "h1" and {s.spec["availability_zone"] for s in spec.values()} == {None}


def test_what_is_due(world: World, web: str) -> None:
    shelved(world, web)

    def due(seconds: int) -> list[str]:
        with world.ledger.write() as tx:
            return [r.uuid for r in shelve.due(tx.for_run(world.context("p")), seconds)]

    assert due(0) == [web] and due(60) == due(-1) == []
    world.time += 60
    assert due(60) == [web] and due(61) == due(-1) == []
    begin_offload(world, web)
    assert due(0) == [], "a run works on it"
    world.time += 601
    assert due(0) == [web]


# --- what fails -----------------------------------------------------------------------------------------------------------


def test_an_image_that_does_not_arrive(world: World, web: str) -> None:
    _begun, made = begin(world, web)
    assert set(finish(world, web, made, BROKEN)) == {web}
    assert world.state(web) == ("stopped", None, "h1") and images(world) == kept(world) == []


def test_nothing_leaves_without_an_image(world: World, web: str) -> None:
    shelved(world, web)
    with world.ledger.write() as tx:
        tx.execute(tables.shelved_instances.update().values(image_id="none"))
    with pytest.raises(errors.InstanceNotReady, match="has no image"):
        begin_offload(world, web)
    begun, refused = begin_offload(world, web, alone=True)
    assert begun.rows == [] and set(refused) == {web} and world.state(web) == ("shelved", None, "h1")


def test_a_host_that_is_not_cleaned_keeps_its_claim(world: World, web: str) -> None:
    shelved(world, web)
    begin_offload(world, web)
    assert set(end_offload(world, web, BROKEN)) == {web}
    assert world.state(web) == ("shelved", None, "h1") and world.claims() == {(web, "h1")} and kept(world) == [web]


def test_a_host_that_is_forced_down_owes_a_cleanup(world: World, web: str) -> None:
    shelved(world, web)
    with world.ledger.write() as tx:
        tx.execute(tables.compute_nodes.update().where(tables.compute_nodes.c.host == "h1").values(forced_down=True))
    begin_offload(world, web)
    refused = errors.Conflict(message="the guest has power")
    assert end_offload(world, web, refused) == {web: refused}, "a host that refuses to remove it is not lost"
    assert world.state(web) == ("shelved", None, "h1") and world.cleanups() == set()
    begin_offload(world, web)
    assert end_offload(world, web, BROKEN) == {}
    assert world.state(web) == ("shelved_offloaded", None, None)
    assert world.claims() == world.cleanups() == {(web, "h1")}
    begin_unshelve(world, web)
    assert end_unshelve(world, web) == {} and world.state(web) == ("active", None, "h2")
    with world.ledger.write() as tx:
        cleanup.finish(tx.for_run(world.context("c")), {"h1": [web]})
    assert world.claims() == {(web, "h2")} and bound(world, web) == {"h2"}


@pytest.mark.parametrize("cleaned", [True, False])
def test_a_build_that_fails(world: World, web: str, cleaned: bool) -> None:
    offloaded(world, web)
    begin_unshelve(world, web)
    host = world.row(web).host
    assert set(end_unshelve(world, web, BROKEN, cleaned)) == {web}
    assert (
        world.state(web) == ("shelved_offloaded", None, None) and kept(world) == [web] and images(world) == ["active"]
    )
    assert world.claims() == world.cleanups() == (set() if cleaned else {(web, host)})
    begin_unshelve(world, web)
    assert (world.row(web).host == host) is cleaned, "it never comes to a host with leftovers of it"
    assert end_unshelve(world, web) == {}


def test_an_instance_that_is_deleted_meanwhile(world: World, web: str) -> None:
    offloaded(world, web)
    begin_unshelve(world, web)
    host = world.row(web).host
    world.delete(uuids=[web])
    assert end_unshelve(world, web)[web].code == "UnexpectedDeletingTaskStateError"
    world.removed(host, [web])
    world.finish()
    assert images(world) == kept(world) == [] and world.claims() == set()


def test_an_image_that_another_run_deleted(world: World, web: str) -> None:
    """It took this one for dead. The disks on the host are the only copy."""
    _begun, made = begin(world, web)
    with world.ledger.write() as tx:
        snapshots.images.apply(tx.for_run(world.context("t")), made[web].id, life.DELETE)
    assert finish(world, web, made)[web].code == "ImageNotActive"
    assert world.state(web) == ("stopped", None, "h1") and images(world) == kept(world) == []


def test_an_instance_that_is_due_is_not_held_by_a_lock(world: World, web: str) -> None:
    """As in Nova, where a task of the host takes it from there. Others are not stopped by one that cannot leave."""
    db = world.boot("db")
    for uuid in (web, db):
        shelved(world, uuid)
    with world.ledger.write() as tx:
        tx.execute(tables.instances.update().where(tables.instances.c.uuid == web).values(locked_by="other"))
    with pytest.raises(errors.InstanceIsLocked):
        begin_offload(world, web)
    with world.ledger.write() as tx:
        rows = instances.select_live(tx, uuids=[web, db], lock=True)
        known = {str(world.row(web).host)}
        begun, refused = shelve.begin_offload(tx.for_run(world.context("s")), rows, known, alone=True)
    assert web in {r.uuid for r in begun.rows}
    assert {e.code for e in refused.values()} == ({"ComputeHostNotFound"} if world.row(db).host not in known else set())


def test_an_instance_that_came_back_meanwhile_stays(world: World, web: str) -> None:
    shelved(world, web)
    begin_unshelve(world, web)
    assert end_unshelve(world, web, builds=False) == {}
    begun, refused = begin_offload(world, web, alone=True)
    assert begun.rows == [] and refused == {} and world.state(web) == ("active", None, "h1")


@pytest.mark.parametrize(("power_state", "is_old"), [(states.RUNNING, False), (None, False), (states.RUNNING, True)])
def test_a_ledger_that_is_older_than_its_hosts(world: World, web: str, power_state: int | None, is_old: bool) -> None:
    """A host has the instance: it came back since, and nothing starts a second guest. A report from before it left counts for nothing."""
    asked_at = world.time - 1 if is_old else world.time + 2
    offloaded(world, web)
    world.time += 5
    domains = [] if power_state is None else [{"uuid": web, "power_state": power_state}]
    facts = {"domains": domains, "instance_folders": [web]}
    with world.ledger.write() as tx:
        sightings.record(tx.for_run(world.context("r")), "h1", facts, asked_at, "")
    if is_old:
        begin_unshelve(world, web)
        return
    with pytest.raises(errors.InstanceElsewhere, match="is on no host by the ledger, but h1 has"):
        begin_unshelve(world, web)
    assert world.state(web) == ("shelved_offloaded", None, None)


# --- dead runs ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("power", "vm_state"), [(states.RUNNING, "active"), (states.SHUTDOWN, "stopped")])
def test_a_run_that_dies_in_a_shelve(world: World, web: str, power: int, vm_state: str) -> None:
    begin(world, web, "dead")
    world.time += 601
    assert settle(world, "h1", {web: power}) == {web: vm_state}
    assert images(world) == kept(world) == []


@pytest.mark.parametrize("power", [states.RUNNING, states.SHUTDOWN, None])
def test_a_run_that_dies_in_a_build(world: World, web: str, power: int | None) -> None:
    offloaded(world, web)
    begin_unshelve(world, web, "dead")
    host = world.row(web).host
    with pytest.raises(errors.InstanceBusy):
        begin_unshelve(world, web, "other")
    world.time += 601
    vm_state = "active" if power == states.RUNNING else "shelved_offloaded"
    assert settle(world, host, {} if power is None else {web: power}) == {web: vm_state}
    assert (kept(world), images(world)) == (([], []) if vm_state == "active" else ([web], ["active"]))
    assert world.claims() == {(web, host)}
    assert world.cleanups() == (set() if vm_state == "active" else {(web, host)})


def test_a_run_that_dies_in_a_build_on_a_host_that_is_lost(world: World, web: str) -> None:
    """The same again takes the instance to another host."""
    offloaded(world, web)
    begin_unshelve(world, web, "dead")
    host = world.row(web).host
    world.time += 601
    begin_unshelve(world, web)
    assert world.row(web).host not in (None, host)
    assert world.cleanups() == {(web, host)} and len(world.claims()) == 2
    assert end_unshelve(world, web) == {}


# --- the audit, and histories ---------------------------------------------------------------------------------------------


def findings(world: World) -> list[str]:
    with world.ledger.read() as tx:
        planned = audit.plan(tx.for_run(world.context("y")), audit.Evidence())
    return [f.kind for f in planned]


def test_the_audit_finds_nothing(world: World, web: str) -> None:
    shelved(world, web)
    assert findings(world) == []
    begin_offload(world, web)
    end_offload(world, web)
    assert findings(world) == []
    begin_unshelve(world, web)
    assert findings(world) == [], "it is claimed, and not offloaded any more"
    end_unshelve(world, web)
    assert findings(world) == []


class History:
    """Random steps with some instances. A run may fail or die at any step."""

    def __init__(self, world: World, seed: int):
        self.world = world
        self.rng = random.Random(seed)
        self.uuids = [world.boot("web-%d" % n) for n in range(3)]
        self.dead: set[str] = set()

    def step(self, number: int) -> None:
        world, uuid = self.world, self.rng.choice(self.uuids)
        row, run = world.row(uuid), "r%d" % number
        error = self.rng.choice([None, None, BROKEN])
        dies = self.rng.random() < 0.2
        if row.task_state is not None:
            world.time += 601
            powers = {uuid: self.rng.choice([states.RUNNING, states.SHUTDOWN])} if self.rng.random() < 0.8 else {}
            settle(world, row.host, powers)
            return
        if row.vm_state in ("active", "stopped"):
            _begun, made = begin(world, uuid, run)
            if not dies:
                finish(world, uuid, made, error, run)
        elif row.vm_state == "shelved" and self.rng.random() < 0.7:
            begin_offload(world, uuid, run)
            if not dies:
                end_offload(world, uuid, error, run)
        else:
            self._unshelve(uuid, run, error, dies, row.vm_state == "shelved_offloaded")

    def _unshelve(self, uuid: str, run: str, error: t.Any, dies: bool, builds: bool) -> None:
        try:
            begin_unshelve(self.world, uuid, run)
        except errors.NoValidHost:
            self.clean()
            return
        if not dies:
            end_unshelve(self.world, uuid, error, self.rng.random() < 0.5, builds, run)

    def clean(self) -> None:
        for uuid, host in self.world.cleanups():
            with self.world.ledger.write() as tx:
                cleanup.finish(tx.for_run(self.world.context("c")), {host: [uuid]})

    def check(self) -> None:
        world = self.world
        with world.ledger.read() as tx:
            world.check(tx)
        stored = {r.id: r.status for r in world.rows(image_tables.images) if r.deleted == ""}
        for uuid in self.uuids:
            row = world.row(uuid)
            of_instance = [r for r in world.rows(tables.shelved_instances) if r.instance_uuid == uuid]
            assert bool(of_instance) == (row.vm_state in ("shelved", "shelved_offloaded"))
            assert all(stored.get(r.image_id) == "active" for r in of_instance), "a shelved instance has a whole image"
            claimed = {host for u, host in world.claims() if u == uuid}
            owing = {host for u, host in world.cleanups() if u == uuid}
            assert claimed == owing | ({row.host} - {None})
            assert bound(world, uuid) == {row.host}
            assert len(world.addresses(uuid)) == 1


@pytest.mark.parametrize("seed", range(6))
def test_any_history(world: World, seed: int) -> None:
    for host in HOSTS:
        world.report(host)
    history = History(world, seed)
    for number in range(40):
        history.step(number)
        history.check()
    history.clean()
    history.check()
