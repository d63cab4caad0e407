# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Resize and cold migration in the ledger: what may begin, both hosts claimed, over and back, and what dead runs leave."""

from __future__ import annotations

import dataclasses
import typing as t

import pytest

from ansible_collections.bootflow.compute.plugins.action import instance_confirm, instance_info
from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.core.audit import evidence as host_evidence
from ansible_collections.bootflow.compute.plugins.module_utils.core.audit import plan as core_audit
from ansible_collections.bootflow.compute.plugins.module_utils.core.instances import moves, states
from ansible_collections.bootflow.compute.plugins.module_utils.flows.instances import cleanup, delete
from ansible_collections.bootflow.compute.plugins.module_utils.flows.instances.operation import Outcome, Selection
from ansible_collections.bootflow.compute.plugins.module_utils.flows.moves import (
    cold,
    cold_life,
    confirm,
    evacuate,
    revert,
)
from ansible_collections.bootflow.compute.plugins.module_utils.flows.recovery import audit as recovery_audit
from ansible_collections.bootflow.compute.plugins.module_utils.flows.recovery import moves as recovery_moves
from ansible_collections.bootflow.compute.plugins.module_utils.flows.recovery import operations as recovery
from ansible_collections.bootflow.compute.plugins.module_utils.flows.recovery import reset_state
from ansible_collections.bootflow.compute.plugins.module_utils.flows.recovery.power_sync import Report
from ansible_collections.bootflow.compute.plugins.module_utils.flows.recovery.power_sync import sync as sync_power
from ansible_collections.bootflow.compute.plugins.module_utils.ledger import purge
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.compute import claims, nodes, service_state
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.schema import tables
from ansible_collections.bootflow.compute.tests.unit.worlds.actions import WorldPorts, action_of
from ansible_collections.bootflow.compute.tests.unit.worlds.world import IMAGE, SMALL, World, request

LARGE = dataclasses.replace(SMALL, name="large", memory_mb=2048, vcpus=2, root_gb=3)
QCOW2 = {"h1": "qcow2", "h2": "qcow2", "h3": "qcow2"}
BROKEN = errors.RemoteError(reason="it broke")


class Movers(World):
    """A world whose instances move. Runs have names of one letter; ``m`` moves."""

    settings: t.Mapping[str, t.Any] = {}  # of the run that moves

    def set_out(
        self, run: str = "m", flavor: t.Any = None, backends: t.Mapping[str, str] | None = None, **which: t.Any
    ) -> t.Any:
        backends = QCOW2 if backends is None else backends
        quotas, flavors = which.pop("quotas", {}), which.pop("flavors", {})
        wanted = cold.Wanted(Selection(**which), tuple(backends), backends, flavor, flavors, quotas=quotas)
        with self.ledger.write() as tx:
            return cold.begin(tx.for_run(self.context(run, **self.settings)), wanted, self.fleet, self.options())

    def call(self, function: t.Callable[..., t.Any], *arguments: t.Any, run: str = "m") -> t.Any:
        with self.ledger.write() as tx:
            result = function(tx.for_run(self.context(run)), *arguments)
            self.check(tx)
            return result

    def move(self, uuid: str, flavor: t.Any = None, power_state: int = states.RUNNING) -> None:
        """All the way."""
        begun = self.set_out(uuids=[uuid], flavor=flavor)
        assert not begun.failed
        assert [m.uuid for m in self.call(cold_life.switch, [uuid])] == [uuid]
        its = cold_life.MIGRATE if flavor is None else cold_life.RESIZE
        assert self.call(cold_life.finish, its, {uuid: cold_life.Result(power_state)}) == {}

    def revert(self, uuid: str) -> None:
        self.call(revert.begin_revert, Selection(uuids=[uuid]), tuple(QCOW2))
        assert self.call(cold_life.roll_back, [uuid])
        assert self.call(cold_life.finish, cold_life.REVERT, {uuid: cold_life.Result(states.RUNNING)}) == {}

    def status(self, uuid: str) -> list[str]:
        return [r.status for r in self.rows(tables.migrations, tables.migrations.c.instance_uuid == uuid)]

    def settle(self, host: str, power_states: dict[str, int]) -> dict[str, str]:
        """A report of the host, long after the lease of all runs."""
        self.time += 100_000
        return t.cast(
            "dict[str, str]", self.call(recovery.settle_operations, host, power_states, self.time + 1, run="z")
        )

    def notified(self, uuid: str) -> list[str]:
        """The notifications since the boot."""
        told = [r.event_type for r in self.rows(tables.notifications, tables.notifications.c.instance_uuid == uuid)]
        return [e.replace("compute.instance.", "") for e in told if ".create." not in e and ".update" not in e]

    def cleaned(self, host: str) -> None:
        uuids = [u for u, h in self.cleanups() if h == host]
        self.call(cleanup.finish, {host: uuids}, run="z")

    def size(self, uuid: str) -> tuple[t.Any, ...]:
        row = self.row(uuid)
        with self.ledger.read() as tx:
            root = cold.instances.disks_of(tx, [uuid])[uuid][0]["size_gb"]
            (live,) = cold.instances.select_live(tx, uuids=[uuid])
        return row.memory_mb, row.vcpus, row.root_gb, root, live.spec["flavor"]["name"], live.digest["flavor"]["name"]


OLD, NEW = (1024, 1, 1, 1, "small", "small"), (2048, 2, 3, 3, "large", "large")


@pytest.fixture(name="world")
def _movers(world: World) -> t.Iterator[Movers]:
    made = Movers(world.url)
    for host in ("h1", "h2"):
        made.report(host)
    yield made
    with made.ledger.read() as tx:
        made.check(tx)
    made.ledger.close()


def other(host: str) -> str:
    return {"h1": "h2", "h2": "h1"}[host]


def usage(world: World) -> dict[str, tuple[int, ...]]:
    return {h: world.used(h) for h in ("h1", "h2")}


def test_a_resize_confirmed(world: Movers) -> None:
    uuid = world.boot("web")
    world.boot("neighbour")
    source = world.row(uuid).host
    addresses = world.addresses(uuid)
    begun = world.set_out(uuids=[uuid], flavor=LARGE)
    (moving,) = begun.moving
    assert (moving.move.source_compute, moving.move.dest_compute) == (source, other(source))
    assert world.state(uuid) == ("active", "resize_migrating", source) and world.size(uuid) == OLD
    assert world.claims() >= {(uuid, "h1"), (uuid, "h2")}
    assert world.used(other(source))[0] >= 2048

    world.call(cold_life.switch, [uuid])
    assert world.state(uuid) == ("active", "resize_finish", other(source)) and world.size(uuid) == NEW
    assert world.addresses(uuid) == addresses
    assert {p.host for p in world.rows(tables.ports, tables.ports.c.instance_uuid == uuid)} == {other(source)}
    with world.ledger.read() as tx:
        kinds = {r.compute_node_id: r.kind for r in claims.rows(tx) if r.instance_uuid == uuid}
    assert sorted(kinds.values()) == ["build", "move"]
    assert world.call(cold_life.finish, cold_life.RESIZE, {uuid: cold_life.Result(states.RUNNING)}) == {}
    assert world.state(uuid) == ("resized", None, other(source)) and world.status(uuid) == ["finished"]
    assert world.set_out(uuids=[uuid], flavor=LARGE).unchanged, "the same again has nothing to do"

    done = world.call(confirm.confirm, Selection(uuids=[uuid]))
    assert done.sources == {uuid: source} and world.state(uuid) == ("active", None, other(source))
    assert world.status(uuid) == ["confirmed"] and world.cleanups() == {(uuid, source)}
    assert (uuid, source) in world.claims(), "until it is cleaned"
    world.cleaned(source)
    assert (uuid, source) not in world.claims() and (uuid, other(source)) in world.claims()
    assert world.addresses(uuid) == addresses and world.size(uuid) == NEW


@pytest.mark.parametrize("flavor", [LARGE, None])
def test_the_notifications_are_in_the_order_of_nova(world: Movers, flavor: t.Any) -> None:
    uuid = world.boot("web")
    there = [
        "resize.prep.start", "resize.prep.end", "resize.start", "resize.end", "finish_resize.start", "finish_resize.end"
    ]  # fmt: skip
    world.move(uuid, flavor)
    assert world.notified(uuid) == there
    world.revert(uuid)
    back = ["resize.revert.start", "resize.revert.end"]
    assert world.notified(uuid) == there + back
    world.move(uuid, flavor)
    world.call(confirm.confirm, Selection(uuids=[uuid]))
    assert world.notified(uuid) == there + back + there + ["resize.confirm.start", "resize.confirm.end"]


def test_notifications_say_where_the_instance_is(world: Movers) -> None:
    """They said nothing: later no row of the ledger has it."""
    uuid = world.boot("web")
    old = world.row(uuid).host
    world.move(uuid)
    new = world.row(uuid).host
    world.revert(uuid)
    rows = world.rows(tables.notifications, tables.notifications.c.instance_uuid == uuid)
    told = [
        (r.event_type.replace("compute.instance.", ""), r.payload["host"])
        for r in rows
        if ".create." not in r.event_type
    ]
    assert old != new and told == [
        ("resize.prep.start", old), ("resize.prep.end", new), ("resize.start", old), ("resize.end", old),
        ("finish_resize.start", new), ("finish_resize.end", new), ("resize.revert.start", new), ("resize.revert.end", old),
    ]  # fmt: skip


def test_a_resize_reverted(world: Movers) -> None:
    uuid = world.boot("web")
    world.boot("neighbour")
    source, before = world.row(uuid).host, usage(world)
    world.move(uuid, LARGE)
    world.revert(uuid)
    assert world.state(uuid) == ("active", None, source) and world.size(uuid) == OLD
    assert world.status(uuid) == ["reverted"] and usage(world) == before and not world.cleanups()
    world.move(uuid, LARGE, states.SHUTDOWN)
    world.call(confirm.confirm, Selection(uuids=[uuid]))
    assert world.state(uuid)[0] == "stopped", "its guest is off"


@pytest.mark.parametrize("flavor", [None, LARGE])
def test_a_resized_instance_that_changes_in_place_can_be_reverted(world: Movers, flavor: t.Any) -> None:
    """It is described by its file, before and after the revert, and has the flavor of before."""
    uuid = world.boot("web")
    source = world.row(uuid).host
    world.move(uuid, flavor)
    now = request("web", description="the shop", flavor=SMALL if flavor is None else flavor)
    assert world.accept(now, run="b").updated == [uuid]
    assert world.size(uuid) == (OLD if flavor is None else NEW)
    world.revert(uuid)
    assert world.state(uuid) == ("active", None, source) and world.size(uuid) == OLD
    assert world.status(uuid) == ["reverted"] and not world.cleanups()
    before = world.everything()
    assert world.accept(request("web", description="the shop"), run="c").unchanged == [uuid]
    assert world.everything() == before


def test_several_flavors_in_one_run(world: Movers) -> None:
    world.report("h1", 16)
    world.report("h2", 16)
    one, two, three = world.accept(request("web", 3)).created
    for host in sorted({s.host for s in world.schedule().placed.values()}):
        world.build(host)
    more = dataclasses.replace(LARGE, name="more", vcpus=3)
    flavors = {one: LARGE, two: more, three: LARGE}
    total = {"cores": 3 + 1 + 2, "ram": -1, "instances": -1}
    with pytest.raises(errors.OverQuota):
        world.set_out(uuids=[one, two, three], flavors=flavors, quotas=total)
    begun = world.set_out(uuids=[one, two, three], flavors=flavors, quotas={**total, "cores": 3 + 1 + 2 + 1})
    assert not begun.failed and len({m.move.new_request_spec_id for m in begun.moving}) == 2
    world.call(cold_life.switch, [one, two, three])
    world.call(cold_life.finish, cold_life.RESIZE, dict.fromkeys(flavors, cold_life.Result(states.RUNNING)))
    assert [world.size(u)[1:5:3] for u in (one, two, three)] == [(2, "large"), (3, "more"), (2, "large")]
    assert len(world.set_out(uuids=[one, two, three], flavors=flavors).unchanged) == 3
    world.call(confirm.confirm, Selection(uuids=[one, two, three]))


def test_neighbours_keep_their_flavor(world: Movers) -> None:
    world.report("h1", 8)
    world.report("h2", 8)
    one, two = world.accept(request("web", 2)).created
    placed = world.schedule().placed
    for host in sorted({s.host for s in placed.values()}):
        world.build(host)
    world.move(one, LARGE)
    assert world.size(one) == NEW and world.size(two) == OLD


@pytest.mark.parametrize("after_switch", [False, True])
@pytest.mark.parametrize("cleaned", [False, True])
def test_a_move_that_fails(world: Movers, after_switch: bool, cleaned: bool) -> None:
    """Where its new host has nothing of it, or the disks had not arrived, the guest is where it was."""
    uuid = world.boot("web")
    source, before = world.row(uuid).host, usage(world)
    world.set_out(uuids=[uuid])
    if after_switch:
        world.call(cold_life.switch, [uuid])
        if cleaned:
            world.call(cold_life.roll_back, [uuid])
    power = states.RUNNING if cleaned else states.SHUTDOWN
    failed = world.call(cold_life.finish, cold_life.MIGRATE, {uuid: cold_life.Result(power, BROKEN, cleaned)})
    assert list(failed) == [uuid] and "it broke" in world.fault(uuid).message
    if after_switch and not cleaned:
        assert world.state(uuid) == ("resized", None, other(source)), "it may run there: nothing is started elsewhere"
        world.revert(uuid)
        assert world.state(uuid) == ("active", None, source)
    else:
        assert world.state(uuid) == ("active" if cleaned else "stopped", None, source)
        assert world.status(uuid) == ["error"]
        assert world.cleanups() == (set() if cleaned else {(uuid, other(source))})
        world.cleaned(other(source))
    assert usage(world) == before


def test_no_host_fails_that_one_alone(world: Movers) -> None:
    uuids = [world.boot("web-%d" % n) for n in range(3)]
    for n in range(3, 6):
        world.boot("full-%d" % n)
    assert [world.used(h)[3] for h in ("h1", "h2")] == [3, 3]
    begun = world.set_out(uuids=uuids)
    assert len(begun.moving) == len(begun.failed) + 1 or len(begun.moving) == 2
    for uuid, error in begun.failed.items():
        assert error.code == "NoValidHost" and world.state(uuid)[:2] == ("active", None)
        assert world.fault(uuid).error_code == "NoValidHost"
        assert world.notified(uuid) == ["resize.prep.start", "resize.error", "resize.prep.end"]
    for m in begun.moving:
        world.call(cold_life.finish, cold_life.MIGRATE, {m.uuid: cold_life.Result(states.RUNNING, BROKEN)})


def test_claims_never_exceed_a_host(world: Movers) -> None:
    """A move needs the whole of the new flavor beside what is claimed there."""
    uuid = world.boot("web")
    host = other(world.row(uuid).host)
    while world.used(host)[0] < 3 * 1024 or world.used(other(host))[0] < 3 * 1024:
        world.boot("n%d" % world.count(tables.instances))
    begun = world.set_out(uuids=[uuid], flavor=LARGE)
    error = begun.failed[uuid]
    assert error.code == "NoValidHost" and world.used(host)[0] <= 4096
    assert "RamFilter rejected %s (memory: needs 2048 MiB" % host in error.message
    assert "same boot" not in error.remedy and "Smallest change: " in error.remedy, (
        "a move's why and way out are its own"
    )


def report_pool(world: World, host: str, free_gb: int, place: str = "cluster/vms") -> None:
    facts = {"hypervisor_hostname": host, "memory_mb": 4096, "local_gb": 4000, "vcpus": 500}
    facts.update(host_uuid="", boot_id="", disk_available_least=free_gb, stats={"disk_pool": place})
    settings = {"ram_allocation_ratio": 1.0, "disk_allocation_ratio": 1.0, "cpu_allocation_ratio": 16.0}
    with world.ledger.write() as tx:
        nodes.record_report(tx.for_run(world.context()), host, facts, settings)


@pytest.mark.parametrize(
    "flavor, free_gb, place, moves_there",
    [
        (None, 0, "cluster/vms", True),
        (LARGE, 1, "cluster/vms", False),  # it grows by 2 GiB
        (LARGE, 2, "cluster/vms", True),
        (None, 0, "cluster/other", False),
    ],
)
def test_disks_that_stay_in_their_pool_need_no_more_space_there(
    world: Movers, flavor: t.Any, free_gb: int, place: str, moves_there: bool
) -> None:
    uuid = world.boot("web")
    host = world.row(uuid).host
    report_pool(world, host, free_gb)
    report_pool(world, other(host), free_gb, place)
    begun = world.set_out(uuids=[uuid], flavor=flavor)
    assert ([m.uuid for m in begun.moving] == [uuid]) is moves_there
    if not moves_there:
        assert begun.failed[uuid].code == "NoValidHost" and "DiskFilter" in begun.failed[uuid].message
        return
    world.call(cold_life.finish, cold_life.MIGRATE, {uuid: cold_life.Result(states.RUNNING, BROKEN)})


def test_what_cannot_move(world: Movers) -> None:
    uuid = world.boot("web")
    everything = world.everything()

    def refused(**how: t.Any) -> str:
        with pytest.raises(errors.BootflowError) as e:
            world.set_out(uuids=[uuid], **how)
        assert world.everything() == everything
        return e.value.code

    assert refused(flavor=SMALL) == "CannotResizeToSameFlavor"
    big_root = dataclasses.replace(LARGE, root_gb=0)
    assert refused(flavor=big_root) == "CannotResizeDisk"
    assert refused(flavor=LARGE, quotas={"ram": 1024}) == "OverQuota"
    with pytest.raises(errors.InstanceInvalidState, match="Cannot 'confirmResize' instance"):
        world.call(confirm.confirm, Selection(uuids=[uuid]))
    with pytest.raises(errors.InstanceInvalidState, match="Cannot 'revertResize' instance"):
        world.call(revert.begin_revert, Selection(uuids=[uuid]), tuple(QCOW2))
    only = {"h1": "qcow2", "h2": "raw"}
    begun = world.set_out(uuids=[uuid], backends=only)
    assert begun.failed[uuid].code == "NoValidHost", "its disks are of another backend there"
    world.boot("shrinks", flavor=LARGE)
    with pytest.raises(errors.CannotResizeDisk, match="3 GiB"):
        world.set_out(names=["shrinks"], flavor=SMALL)


def test_a_revert_to_more_counts_for_the_quota(world: Movers) -> None:
    """source: Nova's revert_resize, which checks what a resize down gave back"""
    big = dataclasses.replace(SMALL, name="big", memory_mb=2048, vcpus=2)
    uuid = world.boot("web", flavor=big)
    world.move(uuid, dataclasses.replace(big, name="less", memory_mb=1024, vcpus=1))
    world.boot("neighbour")
    everything = world.everything()
    limits = {"ram": 2048, "instances": -1, "cores": -1}
    with pytest.raises(errors.OverQuota):
        world.call(revert.begin_revert, Selection(uuids=[uuid]), tuple(QCOW2), limits)
    assert world.everything() == everything
    limits["ram"] = 3072
    assert world.call(revert.begin_revert, Selection(uuids=[uuid]), tuple(QCOW2), limits).moving


def test_root_disks_that_are_as_large_as_their_image(world: Movers) -> None:
    """A flavor with root_gb 0: the instance claims the image's size wherever it is, and gets no smaller disk."""
    zero, image = dataclasses.replace(SMALL, name="zero", root_gb=0), dataclasses.replace(IMAGE, min_disk=3)
    uuid = world.boot("web", flavor=zero, image=image)
    source = world.row(uuid).host

    def disk() -> tuple[int, int, int, int]:
        with world.ledger.read() as tx:
            size = cold.instances.disks_of(tx, [uuid])[uuid][0]["size_gb"]
        return world.row(uuid).root_gb, size, world.used("h1")[1], world.used("h2")[1]

    before = disk()
    assert before[:2] == (3, 0)
    with pytest.raises(errors.CannotResizeDisk, match="2 GiB, the instance 3 GiB"):
        world.set_out(uuids=[uuid], flavor=dataclasses.replace(LARGE, root_gb=2))
    world.move(uuid, dataclasses.replace(LARGE, root_gb=4))
    assert disk()[:2] == (4, 4)
    world.revert(uuid)
    assert disk() == before
    world.move(uuid)
    assert disk() == (3, 0, 3, 3), "it can be rebuilt there"
    world.call(confirm.confirm, Selection(uuids=[uuid]))
    world.cleaned(source)


def test_a_resize_asks_of_the_image_what_a_boot_asks(world: Movers) -> None:
    """source: Nova's API.resize, which calls _validate_flavor_image_nostatus"""
    zero = dataclasses.replace(SMALL, name="zero", root_gb=0)
    image = dataclasses.replace(IMAGE, min_disk=3, min_ram=512)
    uuid = world.boot("web", flavor=zero, image=image)
    everything = world.everything()

    def refused(allow_zero_disk: bool, **changes: t.Any) -> list[str]:
        flavor = dataclasses.replace(zero, name="other", **changes)
        wanted = cold.Wanted(Selection(uuids=[uuid]), tuple(QCOW2), QCOW2, flavor, allow_zero_disk=allow_zero_disk)
        with pytest.raises(errors.InvalidRequest) as e, world.ledger.write() as tx:
            cold.begin(tx.for_run(world.context("m")), wanted, world.fleet, world.options())
        assert world.everything() == everything
        return [problem["code"] for problem in e.value.errors]

    assert refused(False, vcpus=2) == ["BootFromVolumeRequiredForZeroDiskFlavor"]
    assert refused(True, memory_mb=256) == ["FlavorMemoryTooSmall"]
    world.move(uuid, dataclasses.replace(zero, name="other", vcpus=2))


def test_confirmed_after_a_while(world: Movers) -> None:
    uuid = world.boot("web")
    world.move(uuid)
    world.time += 100
    assert not world.call(confirm.confirm, Selection(), 200.0).rows
    with pytest.raises(errors.InvalidInput):
        world.call(confirm.confirm, Selection(), 0.0)
    world.time += 100
    assert [r.uuid for r in world.call(confirm.confirm, Selection(), 200.0).rows] == [uuid]
    assert world.state(uuid)[:2] == ("active", None)


@pytest.mark.parametrize("forced", [True, False])
def test_no_time_confirms_what_is_on_a_host_that_does_not_answer(world: Movers, forced: bool) -> None:
    """source: Nova's _poll_unconfirmed_resizes, which runs on the new host"""
    uuid = world.boot("web")
    world.move(uuid)
    host = str(world.row(uuid).host)
    if forced:
        world.call(service_state.set_state, [host], "forced_down", "")
    else:
        world.call(nodes.record_unreachable, host, "no route")
    world.time += 1000
    done = world.call(confirm.confirm, Selection(), 100.0)
    assert (done.rows, [r.uuid for r in done.waiting]) == ([], [uuid]) and not world.cleanups()
    assert world.state(uuid)[:2] == (states.RESIZED, None)
    world.call(confirm.confirm, Selection(uuids=[uuid]))  # a person may
    assert world.state(uuid)[:2] == (states.ACTIVE, None)


def test_a_guest_that_nobody_has_seen_is_not_confirmed(world: Movers) -> None:
    """The new host was cleaned for a revert, and its answer was lost: the former host alone has the guest."""
    uuid = world.boot("web")
    source = world.row(uuid).host
    world.move(uuid, LARGE)
    world.call(revert.begin_revert, Selection(uuids=[uuid]), tuple(QCOW2))
    assert world.call(cold_life.finish, cold_life.REVERT, {uuid: cold_life.Result(error=BROKEN, cleaned=False)})
    assert world.state(uuid) == ("resized", None, other(source))
    with pytest.raises(errors.InstanceInvalidState, match="has not reported the guest") as caught:
        world.call(confirm.confirm, Selection(uuids=[uuid]))
    assert "revert_resize" in caught.value.remedy
    world.time += 1000
    assert world.call(confirm.confirm, Selection(), 100.0).rows == [], "nor after a while"
    world.call(sync_power, {other(source): Report(world.time, {uuid: states.RUNNING})}, run="z")
    assert [r.uuid for r in world.call(confirm.confirm, Selection(uuids=[uuid])).rows] == [uuid], "it was not cleaned"
    world.cleaned(source)


@pytest.mark.parametrize("moment", ["begin", "switch", "finish", "revert", "half", "back"])
def test_a_run_that_dies(world: Movers, moment: str) -> None:
    """The report of the host that the ledger has it on settles it; nothing is lost, and usage ends as the claims say."""
    uuid = world.boot("web")
    source, before = world.row(uuid).host, usage(world)
    if moment in ("begin", "switch"):
        world.set_out(uuids=[uuid], flavor=LARGE)
        if moment == "switch":
            world.call(cold_life.switch, [uuid])
    else:
        world.move(uuid, LARGE)
    if moment in ("revert", "half", "back"):
        world.call(revert.begin_revert, Selection(uuids=[uuid]), tuple(QCOW2))
        if moment == "back":
            world.call(cold_life.roll_back, [uuid])
    host = world.row(uuid).host
    reported = {} if moment == "half" else {uuid: states.RUNNING if moment == "back" else states.SHUTDOWN}
    settled = world.settle(host, reported)
    expected = {
        "begin": ("stopped", source, ["error"]),
        "switch": ("resized", other(source), ["finished"]),
        "finish": ("resized", other(source), ["finished"]),
        "revert": ("resized", other(source), ["finished"]),
        "half": ("stopped", source, ["reverted"]),
        "back": ("active", source, ["reverted"]),
    }[moment]
    vm_state, host, status = expected
    assert settled == ({} if moment == "finish" else {uuid: vm_state})
    assert (world.state(uuid), world.status(uuid)) == ((vm_state, None, host), status)
    if vm_state == "resized":
        world.revert(uuid)
    world.cleaned(other(source))
    assert usage(world) == before and world.size(uuid) == OLD and world.row(uuid).host == source


@pytest.mark.parametrize("moment", ["begin", "switch", "finish"])
def test_delete_cleans_both_hosts(world: Movers, moment: str) -> None:
    uuid = world.boot("web")
    world.set_out(uuids=[uuid])
    if moment != "begin":
        world.call(cold_life.switch, [uuid])
    if moment == "finish":
        world.call(cold_life.finish, cold_life.MIGRATE, {uuid: cold_life.Result(states.RUNNING)})
    assert world.delete(uuids=[uuid]).hosts == ["h1", "h2"]
    assert world.call(cold_life.switch, [uuid]) == [], "a run that still moves it has lost it"
    for host in ("h1", "h2"):
        assert [i["uuid"] for i in world.of_host(host)] == [uuid]
        world.removed(host, [uuid])
    assert world.finish() == (["web"], []) and not world.claims() and not world.addresses()
    for table in (tables.instance_actions, tables.instance_action_events):
        assert not [r for r in world.rows(table) if r.finish_time is None], "the journal is closed"


def test_the_task_states_of_a_move_are_notified_in_their_order(world: Movers) -> None:
    """source: Nova's prep_resize, and resize_instance"""
    uuid = world.boot("web")
    before = len(world.rows(tables.notifications))
    world.settings = {"notify_on_state_change": "vm_and_task_state"}
    world.set_out(uuids=[uuid])
    told = [
        (n.event_type.replace("compute.instance.", ""), n.payload.get("new_task_state"))
        for n in world.rows(tables.notifications)[before:]
    ]
    assert told == [
        ("update", states.RESIZE_PREP),
        ("resize.prep.start", None),
        ("resize.prep.end", None),
        ("update", states.RESIZE_MIGRATING),
        ("resize.start", None),
    ]
    assert world.state(uuid)[:2] == (states.ACTIVE, states.RESIZE_MIGRATING)


def test_one_that_goes_back_is_not_soft_deleted(world: Movers) -> None:
    """Its new host may have lost its disks already, and its former one would be cleaned: there would be nothing to restore."""
    uuid = world.boot("web")
    world.move(uuid)
    which = Selection(uuids=[uuid])
    world.call(revert.begin_revert, which, tuple(QCOW2))
    before = world.everything()
    with pytest.raises(errors.InstanceInvalidState, match="task_state resize_reverting") as refused:
        world.call(lambda tx: delete.begin(tx, which, soft=True), run="d")
    assert "force_delete" in refused.value.remedy and world.everything() == before
    world.call(lambda tx: delete.begin(tx, which), run="d")
    assert not [r for r in world.rows(tables.instance_actions) if r.finish_time is None and r.action != "delete"]


def test_one_whose_new_host_may_have_lost_it_is_not_soft_deleted(world: Movers) -> None:
    """A revert cleaned it there, and the answer was lost: the former host has all that there is of it."""
    uuid = world.boot("web")
    source = world.row(uuid).host
    world.move(uuid)
    which = Selection(uuids=[uuid])
    world.call(revert.begin_revert, which, tuple(QCOW2))
    assert world.call(cold_life.finish, cold_life.REVERT, {uuid: cold_life.Result(error=BROKEN, cleaned=False)})
    before = world.everything()
    with pytest.raises(errors.InstanceInvalidState, match="vm_state resized") as refused:
        world.call(lambda tx: delete.begin(tx, which, soft=True), run="d")
    assert "revert_resize" in refused.value.remedy and world.everything() == before and not world.of_host(source)
    world.time += 1000
    world.call(sync_power, {other(source): Report(world.time, {uuid: states.RUNNING})}, run="z")
    assert world.call(lambda tx: delete.begin(tx, which, soft=True), run="d").hosts == ["h1", "h2"]


def test_a_resized_one_that_can_be_restored_is_confirmed(world: Movers) -> None:
    uuid = world.boot("web")
    source = world.row(uuid).host
    world.move(uuid)
    which = Selection(uuids=[uuid])
    deleting = world.call(lambda tx: delete.begin(tx, which, soft=True), run="d")
    assert deleting.hosts == ["h1", "h2"] and world.status(uuid) == ["confirmed"]
    assert [i["uuid"] for i in world.of_host(source)] == [uuid]
    off = {uuid: Outcome(states.SHUTDOWN)}
    world.call(lambda tx: delete.removed(tx, {source: [uuid]}, {}, powered_off=off), run="d")
    assert world.state(uuid) == ("soft-delete", None, other(source)) and world.claims() == {(uuid, other(source))}
    assert [r.action for r in world.rows(tables.instance_actions)][-1] == "delete", "as Nova has it in the journal"


def test_the_audit_keeps_the_claims_of_a_move(world: Movers) -> None:
    uuid = world.boot("web")
    world.move(uuid, LARGE)

    def findings() -> set[str]:
        with world.ledger.read() as tx:
            found = recovery_audit.plan(tx.for_run(world.context("z")), host_evidence.Evidence())
        return {f.kind for f in found if f.changes}

    assert findings() == set()
    with world.ledger.write() as tx:
        tx.execute(tables.migrations.update().values(status="error"))
    assert findings() == {"stale_claim"}
    with world.ledger.write() as tx:
        tx.execute(tables.migrations.update().values(status=moves.FINISHED))


@pytest.mark.parametrize("moment", ["begin", "switch", "revert", "half", "back"])
def test_the_audit_settles_what_a_dead_run_left(world: Movers, moment: str) -> None:
    uuid = world.boot("web")
    source = world.row(uuid).host
    if moment in ("revert", "half", "back"):
        world.move(uuid)
        world.call(revert.begin_revert, Selection(uuids=[uuid]), tuple(QCOW2))
        if moment == "back":
            world.call(cold_life.roll_back, [uuid])
    else:
        world.set_out(uuids=[uuid])
    if moment == "switch":
        world.call(cold_life.switch, [uuid])
    world.time += 100_000
    domains = [host_evidence.Domain(uuid, "web", power_state=states.SHUTDOWN)]
    has = {h: [] if moment in ("half", "back") and h != source else domains for h in ("h1", "h2")}
    snapshots = {h: host_evidence.Snapshot(h, h, world.time + 1, d, [x.uuid for x in d]) for h, d in has.items()}
    evidence = host_evidence.Evidence(snapshots=snapshots)
    found = world.call(recovery_audit.plan, evidence, run="z")
    vm_state = "resized" if moment in ("switch", "revert") else "stopped"
    planned = [(f.action, f.new) for f in found if f.kind == core_audit.DEAD_OPERATION]
    assert planned == [("settle", vm_state)], "the plan says what becomes of it"
    world.call(recovery_audit.repair, found, evidence, run="z")
    assert world.state(uuid) == (vm_state, None, other(source) if vm_state == "resized" else source)
    assert not {f.kind for f in world.call(recovery_audit.plan, evidence, run="z") if f.changes} - {"cleanup"}


def test_the_former_request_outlives_a_purge(world: Movers) -> None:
    uuid = world.boot("web")
    world.move(uuid, LARGE)
    far = world.time + 10**9
    purge.purge(world.ledger, far)
    world.revert(uuid)
    assert world.size(uuid) == OLD


def test_the_request_that_a_resize_brings_outlives_a_purge_beside_it(world: Movers) -> None:
    uuid = world.boot("web")
    assert not world.set_out(uuids=[uuid], flavor=LARGE).failed
    far = world.time + 10**9
    assert "request_specs" not in {**world.ledger.inspect(purge.plan, far), **purge.purge(world.ledger, far)}
    world.call(cold_life.switch, [uuid])
    assert world.call(cold_life.finish, cold_life.RESIZE, {uuid: cold_life.Result(states.RUNNING)}) == {}
    assert world.size(uuid) == NEW
    world.revert(uuid)
    purge.purge(world.ledger, far)
    (row,) = world.call(lambda tx: cold.instances.select_live(tx, uuids=[uuid]))
    (shown,) = world.call(instance_info.views.details, [row])
    assert [(m["old_flavor"], m["new_flavor"]) for m in shown["migrations"]] == [("small", "large")]


def test_hosts_that_get_other_hostnames_while_an_instance_moves(world: Movers) -> None:
    for host in ("h1", "h2"):
        world.report(host, host_uuid="uuid-%s" % host)
    uuid = world.boot("web")
    source = str(world.row(uuid).host)
    world.set_out(uuids=[uuid], flavor=LARGE)
    for host in ("h1", "h2"):
        world.report(host, node="new-" + host, host_uuid="uuid-%s" % host)
    world.call(cold_life.switch, [uuid])
    assert world.call(cold_life.finish, cold_life.RESIZE, {uuid: cold_life.Result(states.RUNNING)}) == {}
    assert (world.row(uuid).host, world.row(uuid).node) == (other(source), "new-" + other(source))
    world.revert(uuid)
    assert (world.row(uuid).host, world.row(uuid).node) == (source, "new-" + source) and world.size(uuid) == OLD
    assert world.claims() == {(uuid, source)} and len(world.rows(tables.compute_nodes)) == 2


def test_two_runs_want_the_last_place(world: Movers) -> None:
    """Each has read the fleet before the other claims: the second is refused under the lock of the host."""
    one, two = world.boot("one"), world.boot("two")
    world.report("h3", 2)
    with world.ledger.read() as tx:
        tx = tx.for_run(world.context())
        before = [cold.instances.select_live(tx, uuids=[uuid])[0] for uuid in (one, two)]
    assert {r.host for r in before} == {"h1", "h2"}
    world.report("h1", 2)
    world.report("h2", 2)
    outcomes = []
    for uuid, run in ((one, "m"), (two, "n")):
        with world.ledger.read() as tx:
            stale = world.fleet(tx.for_run(world.context(run)))
        outcomes.append((uuid, run, stale))
    found = []
    for uuid, run, stale in outcomes:
        wanted = cold.Wanted(Selection(uuids=[uuid]), tuple(QCOW2), QCOW2, LARGE)
        with world.ledger.write() as tx:
            found.append(cold.begin(tx.for_run(world.context(run)), wanted, lambda *_a, s=stale: s, world.options()))  # type: ignore[misc]
    assert [len(b.moving) for b in found] == [1, 0] and found[0].moving[0].move.dest_compute == "h3"
    assert found[1].failed[two].code == "ComputeResourcesUnavailable"
    assert world.used("h3")[0] == 2048
    world.call(cold_life.finish, cold_life.RESIZE, {one: cold_life.Result(states.RUNNING, BROKEN)})


@pytest.mark.parametrize("far", ["not at all", "over and back"])
def test_what_an_earlier_move_left_keeps_its_claim(world: Movers, far: str) -> None:
    uuid = world.boot("web")
    first = world.row(uuid).host
    world.move(uuid)
    world.call(confirm.confirm, Selection(uuids=[uuid]))
    world.report("h3")
    (moving,) = world.set_out(uuids=[uuid]).moving
    assert (moving.move.source_compute, moving.move.dest_compute) == (other(first), "h3"), "it is still to be cleaned"
    if far == "over and back":
        world.call(cold_life.switch, [uuid])
        world.call(cold_life.roll_back, [uuid])
    world.call(cold_life.finish, cold_life.MIGRATE, {uuid: cold_life.Result(states.RUNNING, BROKEN)})
    assert world.row(uuid).host == other(first) and not any(world.used("h3"))
    assert any(world.used(first)) and world.used(first) == world.used(other(first))
    world.cleaned(first)
    assert not any(world.used(first))


def test_show_and_events_tell_of_moves(world: Movers) -> None:
    uuid = world.boot("web")
    source = world.row(uuid).host
    world.move(uuid, LARGE)
    world.time += 5
    world.revert(uuid)
    world.move(uuid)
    for options in ({"details": True}, {"history": True}):
        ports = WorldPorts(world, "l")
        (found,) = action_of(instance_info, ports, {}, uuids=[uuid], print_table=True, **options).act()["instances"]
        first, second = found["migrations"]
        assert (first["migration_type"], first["status"], first["updated_at"][17:19]) == ("resize", "reverted", "25")
        assert (first["source_compute"], first["dest_compute"]) == (source, other(source))
        assert (first["old_flavor"], first["new_flavor"]) == ("small", "large")
        assert (second["migration_type"], second["status"], second["new_flavor"]) == ("migration", "finished", "small")
        shown = "\n".join(ports.shown)
        assert "migration_type: resize" in shown or "to %s, small -> large" % other(source) in shown
    world.delete(uuids=[uuid])
    for host in ("h1", "h2"):
        world.removed(host, [uuid])
    world.finish()
    ports = WorldPorts(world, "l")
    (found,) = action_of(instance_info, ports, {}, uuids=[uuid], history=True).act()["instances"]
    assert len(found["migrations"]) == 2


def test_the_same_revert_again_goes_on_with_those_that_failed(world: Movers) -> None:
    """The remedy of a revert that failed for one says so: the others came back, and keep it from nothing."""
    back, left = world.boot("web-1"), world.boot("web-2")
    world.move(back)
    world.move(left)
    world.revert(back)
    found = world.call(revert.begin_revert, Selection(uuids=[back, left]), tuple(QCOW2))
    assert ([m.uuid for m in found.moving], [r.uuid for r in found.unchanged]) == ([left], [back])
    assert world.state(back)[:2] == (states.ACTIVE, None) and world.status(back) == [moves.REVERTED]
    with pytest.raises(errors.InstanceInvalidState, match="Cannot 'confirmResize' instance"):
        world.call(confirm.confirm, Selection(uuids=[back]))  # it was not confirmed


def test_an_instance_whose_former_host_does_not_answer_is_not_brought_back(world: Movers) -> None:
    """It works where it is, and that host would be cleaned of it before anyone hears that the other one is gone."""
    first, second = world.boot("web-1"), world.boot("web-2")
    assert world.row(first).host != world.row(second).host
    gone = str(world.row(first).host)
    world.move(first)
    world.move(second)
    which = Selection(uuids=[first, second])
    with world.ledger.read() as tx:
        assert revert.former_hosts(tx.for_run(world.context("m")), which) == {"h1", "h2"}
    silent = {gone: errors.HostUnreachable(host=gone, reason="no route")}
    found = world.call(revert.begin_revert, which, tuple(QCOW2), None, silent)
    assert ([m.uuid for m in found.moving], list(found.failed)) == ([second], [first])
    assert world.state(first)[:2] == (states.RESIZED, None) and world.status(first) == [moves.FINISHED]
    world.call(confirm.confirm, Selection(uuids=[first]))  # it may stay where it is


def test_the_same_confirmation_again_has_nothing_to_do(world: Movers) -> None:
    uuid = world.boot("web")
    world.move(uuid)
    assert [r.uuid for r in world.call(confirm.confirm, Selection(uuids=[uuid])).rows] == [uuid]
    everything = world.everything()
    again = world.call(confirm.confirm, Selection(uuids=[uuid]))
    assert (again.rows, [r.uuid for r in again.unchanged]) == ([], [uuid]) and world.everything() == everything
    with pytest.raises(errors.InstanceInvalidState, match="Cannot 'revertResize' instance"):
        world.call(revert.begin_revert, Selection(uuids=[uuid]), tuple(QCOW2))


def test_a_refused_flavor_names_the_instances_that_it_does_not_suit(world: Movers) -> None:
    world.boot("web-1", flavor=LARGE)
    world.boot("web-2", flavor=LARGE)
    world.boot("db")
    names = {"names": ["web-1", "web-2", "db"]}
    with pytest.raises(errors.CannotResizeToSameFlavor) as same:
        world.set_out(flavor=LARGE, **names)
    assert same.value.message == "When resizing, instances must change flavor!"
    assert same.value.remedy.startswith("web-1, web-2: Name another flavor; ")
    odd = dataclasses.replace(LARGE, name="odd", extra_specs={"hw:cpu_policy": "odd"})
    with pytest.raises(errors.InvalidRequest) as e:
        world.set_out(flavor=odd, **names)
    (error,) = e.value.errors
    assert error["code"] == "InvalidCPUAllocationPolicy" and error["path"].startswith("web-1, web-2, db: flavor")


def test_the_run_died_when_it_had_gone_over_and_its_new_host_is_lost(world: Movers) -> None:
    """Its former host has all of its disks: the way out was to delete it."""
    uuid = world.boot("web")
    source = world.row(uuid).host
    assert world.set_out(uuids=[uuid], flavor=LARGE).moving and world.call(cold_life.switch, [uuid])
    there, chosen = other(source), Selection(uuids=[uuid])
    world.time += 100_000
    with pytest.raises(errors.InstanceInvalidState) as refused:
        world.call(reset_state.reset, chosen, states.ERROR, run="z")
    assert "revert_resize" in refused.value.remedy and source in refused.value.remedy
    world.call(recovery_moves.settle_on_lost_hosts, chosen, run="z")
    assert world.state(uuid) == ("active", "resize_finish", there), "its report will come"
    world.call(service_state.set_state, [there], "forced_down")
    assert world.call(revert.former_hosts, chosen, run="z") == {source}
    world.call(recovery_moves.settle_on_lost_hosts, chosen, run="z")
    assert world.state(uuid) == ("resized", None, there)
    with pytest.raises(errors.InstanceInvalidState) as refused:
        world.call(evacuate.check, evacuate.Wanted(chosen))
    assert "revert_resize" in refused.value.remedy, "evacuated it would lose what it has"
    with pytest.raises(errors.ComputeHostNotFound) as unknown:
        world.call(revert.begin_revert, chosen, (source,), run="z")
    assert "delete" not in unknown.value.remedy
    assert world.call(revert.begin_revert, chosen, tuple(QCOW2), run="z").moving
    assert world.call(cold_life.roll_back, [uuid], [uuid], run="z")
    assert world.call(cold_life.finish, cold_life.REVERT, {uuid: cold_life.Result(states.RUNNING)}, run="z") == {}
    assert world.state(uuid) == ("active", None, source) and world.size(uuid) == OLD
    assert world.cleanups() == {(uuid, there)} and world.claims() == {(uuid, source), (uuid, there)}
    world.cleaned(there)
    assert world.claims() == {(uuid, source)} and world.used(there) == (0, 0, 0, 0)


def test_before_the_window_confirms_it_the_new_host_is_asked(world: Movers) -> None:
    """If that died since the move, the former host has all that there is of it."""
    uuid = world.boot("web")
    source = world.row(uuid).host
    there, none = other(source), Selection()
    world.move(uuid)
    world.time += 100
    assert world.call(confirm.hosts_to_ask, none, 101.0) == world.call(confirm.hosts_to_ask, none, 0.0) == []
    assert world.call(confirm.hosts_to_ask, Selection(uuids=[uuid]), 100.0) == [there]
    assert world.call(confirm.hosts_to_ask, none, 100.0) == [there]

    def timer() -> dict[str, t.Any]:
        hosts = {"groups": {"bootflow_compute": ["h1", "h2"]}, "hostvars": {}, "inventory_hostname": "localhost"}
        action = action_of(instance_confirm, WorldPorts(world, "t"), hosts, False, window=100, ask=True)
        return t.cast("dict[str, t.Any]", action.act())

    asked = timer()
    assert (asked["ask"], asked["instances"]) == ([there], []) and world.state(uuid)[0] == "resized"
    world.call(nodes.record_unreachable, there, "no route")
    assert world.call(confirm.confirm, none, 100.0).waiting and world.state(uuid)[0] == "resized"
    world.report(there)
    done = timer()
    assert (done["ask"], done["hosts"]) == ([], [source]) and world.state(uuid)[0] == "active"


@pytest.mark.parametrize("how", ["forced down", "silent"])
def test_what_is_on_a_host_that_is_down_is_confirmed_by_name_only(world: Movers, how: str) -> None:
    """Its former host may have all that there is of it."""
    uuid = world.boot("web")
    source = world.row(uuid).host
    there = other(source)
    world.move(uuid)
    if how == "silent":
        world.call(nodes.record_unreachable, there, "no route")
    else:
        world.call(service_state.set_state, [there], service_state.FORCED_DOWN)
    for selection in (Selection(hosts=[there]), Selection(project="default", everything=True)):
        with pytest.raises(errors.InstanceInvalidState, match="is down") as refused:
            world.call(confirm.confirm, selection)
        assert "revert_resize" in refused.value.remedy and world.state(uuid)[0] == "resized"
    ports = WorldPorts(world, "t")
    hosts = {"groups": {"bootflow_compute": ["h1", "h2"]}, "hostvars": {}, "inventory_hostname": "localhost"}
    done = action_of(instance_confirm, ports, hosts, False, uuids=[uuid]).act()
    assert [i["left"] for i in done["instances"]] == [source] and world.state(uuid) == ("active", None, there)
    assert len(ports.warnings) == 1 and "may be the only one" in ports.warnings[0]
    assert world.cleanups() == {(uuid, source)}


def test_a_late_end_of_a_cleanup_takes_nothing_from_one_that_came_since(world: Movers) -> None:
    uuid = world.boot("web")
    source = world.row(uuid).host
    world.move(uuid)
    world.call(confirm.confirm, Selection(uuids=[uuid]))
    world.cleaned(source)
    world.move(uuid)
    assert world.state(uuid) == ("resized", None, source)
    before = world.claims(), world.addresses(uuid), world.used(source)
    world.call(cleanup.finish, {source: [uuid]}, run="z")
    assert (world.claims(), world.addresses(uuid), world.used(source)) == before


def test_no_instance_moves_to_another_name_of_its_machine(world: Movers) -> None:
    """It would be copied onto itself, and its clean-up on the former host would remove it."""
    for host in ("h1", "h2"):
        world.report(host, node="same", host_uuid="m")
    uuid = world.boot()
    begun = world.set_out(uuids=[uuid])
    assert [e.code for e in begun.failed.values()] == ["NoValidHost"]
    world.report("h3", node="h3", host_uuid="m")
    (move,) = world.set_out(uuids=[uuid]).moving
    assert move.move.dest_compute == "h3"
