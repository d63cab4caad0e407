# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Volumes that instances exchange for others, without a host."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.flows.attachments import life, moving, swaps
from ansible_collections.bootflow.compute.plugins.module_utils.flows.instances import attach as volume_attach
from ansible_collections.bootflow.compute.plugins.module_utils.flows.instances import swap as volume_swap
from ansible_collections.bootflow.compute.plugins.module_utils.flows.recovery import volume_audit
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.compute import instances
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.schema import tables
from ansible_collections.bootflow.compute.tests.unit.worlds.boot_world import BootWorld, volume_request
from ansible_collections.bootflow.compute.tests.unit.worlds.world import IMAGE

from .test_attach import attach, finish, host_work, refused, uuid_of

WISH = {"instance": "web", "old_volume": "data", "new_volume": "faster"}
REFUSED = errors.LibvirtError(reason="QEMU gave up the copy")


@pytest.fixture
def pair(bworld: BootWorld) -> BootWorld:
    """An instance "web" that has the volume "data", and a larger volume "faster"."""
    bworld.report("h1", memory=9)
    bworld.store()
    bworld.make("data", size=2)
    bworld.make("faster", size=3)
    bworld.boot_of(volume_request("web", image=IMAGE))
    attach(bworld, {"instance": "web", "volume": "data", "delete_on_termination": True}, run="a0")
    return bworld


def swap(world: BootWorld, *wishes: t.Any, run: str = "v") -> volume_attach.Begun:
    with world.ledger.write() as tx:
        return volume_swap.begin_swap(
            tx.for_run(world.context(run)), wishes, "default", world.end, world.cross_az_attach
        )


def connected(world: BootWorld, run: str = "v") -> list[str]:
    """Returns the ids of the new attachments that the host is connected to."""
    with world.ledger.read() as tx:
        pairs, _stale = volume_swap.to_swap(tx.for_run(world.context(run)), "h1")
    world.connect_rows("h1", [p.new for p in pairs], run)
    return [p.new.id for p in pairs]


def write(world: BootWorld, step: t.Any, *arguments: t.Any, run: str = "v") -> t.Any:
    with world.ledger.write() as tx:
        return step(tx.for_run(world.context(run)), *arguments)


def adopted(world: BootWorld, run: str = "w") -> list[swaps.Pair]:
    return t.cast("list[swaps.Pair]", write(world, swaps.adopt_of_dead_runs, run=run))


def die(world: BootWorld, run: str = "v") -> None:
    with world.ledger.write() as tx:
        tx.execute(tables.runs.update().where(tables.runs.c.id == world.context(run).run.id).values(lease_until=0))


def as_before(world: BootWorld) -> None:
    """The guest has the old volume, and the new one is free."""
    assert (world.status("data"), world.status("faster")) == ("in-use", "available")
    assert world.ends("data") == ("attached", "done", "done")
    (disk,) = [d for d in world.disks(uuid_of(world)) if d["kind"] == "volume"]
    assert (disk["volume_id"], disk["device_name"]) == (world.volume("data").id, "/dev/vdb")
    assert [r.volume_id for r in world.live_attachments()] == [world.volume("data").id]
    assert world.connections == {("h1", world.volume("data").id)}


def swapped(world: BootWorld) -> None:
    """The guest has the new volume under the device name of the old one, which is free."""
    assert (world.status("data"), world.status("faster")) == ("available", "in-use")
    assert world.ends("faster") == ("attached", "done", "done")
    (disk,) = [d for d in world.disks(uuid_of(world)) if d["kind"] == "volume"]
    new = world.volume("faster").id
    assert (disk["volume_id"], disk["serial"], disk["name"], disk["size_gb"]) == (new, new, new, 3)
    (row,) = world.live_attachments()
    assert (row.volume_id, row.mountpoint, row.delete_on_termination) == (new, "/dev/vdb", True)
    assert world.connections == {("h1", new)}


def test_swapped(pair: BootWorld) -> None:
    begun = swap(pair, WISH)
    assert (begun.hosts, begun.storage_hosts, begun.unchanged) == (["h1"], ["s1"], [])
    assert (pair.status("data"), pair.status("faster")) == ("detaching", "attaching")
    host_work(pair)
    assert pair.ends("data") == ("attached", "done", "done"), "the guest keeps the old volume until it has the new one"
    pair.storage_round("v")
    host_work(pair)
    assert pair.ends("faster") == ("attaching", "done", "none"), "the new one is not attached as a further disk"
    write(pair, swaps.completed, connected(pair))
    host_work(pair)
    pair.storage_round("v")
    assert finish(pair, volume_attach.SWAP) == (["faster"], [])
    swapped(pair)
    assert swap(pair, WISH, run="w").unchanged == ["faster"], "there is nothing to do"
    (event,) = [e for e in pair.events(pair.volume("faster").id) if e[0] == "swap_volume"]
    assert event == ("swap_volume", "h1", "Success")


def test_a_copy_that_fails(pair: BootWorld) -> None:
    swap(pair, WISH)
    pair.storage_round("v")
    write(pair, volume_swap.failed, dict.fromkeys(connected(pair), REFUSED))
    host_work(pair)
    pair.storage_round("v")
    assert finish(pair, volume_attach.SWAP) == ([], [("faster", "LibvirtError")])
    as_before(pair)


def test_a_volume_that_is_not_exported(pair: BootWorld) -> None:
    swap(pair, WISH)
    pair.storage_round("v", fail_export=errors.ISCSITargetCreateFailed(volume_id="x"))
    write(pair, volume_attach.abandon_attach)
    pair.storage_round("v")
    finish(pair, volume_attach.SWAP)
    as_before(pair)


@pytest.mark.parametrize("gone_over", [False, True])
def test_a_run_that_died_is_settled_by_its_host(pair: BootWorld, gone_over: bool) -> None:
    """No other run decides which volume the guest has."""
    swap(pair, WISH)
    pair.storage_round("v")
    (new,) = connected(pair)
    die(pair)
    write(pair, lambda tx: volume_attach.expire(tx, volume_attach.begun_by_others(tx)), run="x")
    assert (pair.status("data"), pair.status("faster")) == ("detaching", "attaching")
    uuid = uuid_of(pair)
    with pair.ledger.read() as tx:
        (finding,) = volume_audit.half_swapped(tx.for_run(pair.context("x")))
    assert (finding.host, finding.instance, finding.changes) == ("h1", uuid, False) and "swap_volume" in finding.remedy
    for step, wish in (
        (pair.attach, {"instance": "web", "volume": "faster"}),
        (pair.detach, {"volume": "faster"}),
        (pair.detach, {"volume": "data"}),
        (swap_of(pair), WISH),
    ):
        assert [code for _path, code, _message in refused(pair, step, wish, run="x")] == ["SwapUnderWay"]
    with pair.ledger.read() as tx:
        assert moving.refusals(tx, {uuid: "h1"})[uuid].code == "SwapUnderWay"
    (stale,) = adopted(pair)
    assert stale.new.id == new
    with pair.ledger.read() as tx:
        copied, settled = volume_swap.to_swap(tx.for_run(pair.context("w")), "h1")
    assert (copied, [p.new.id for p in settled]) == ([], [new])
    write(pair, swaps.completed if gone_over else swaps.undone, [new], run="w")
    host_work(pair, run="w")
    pair.storage_round("w")
    (swapped if gone_over else as_before)(pair)


def swap_of(world: BootWorld) -> t.Any:
    return lambda *wishes, run: swap(world, *wishes, run=run)


def test_a_run_that_died_before_its_host_began(pair: BootWorld) -> None:
    swap(pair, WISH)
    pair.storage_round("v")
    die(pair)
    write(pair, lambda tx: volume_attach.expire(tx, volume_attach.begun_by_others(tx)), run="x")
    pair.storage_round("x")
    as_before(pair)


def test_a_host_that_did_not_answer_is_asked_by_the_next_run(pair: BootWorld) -> None:
    swap(pair, WISH)
    pair.storage_round("v")
    (new,) = connected(pair)
    assert write(pair, volume_attach.abandon_attach) == []
    assert finish(pair, volume_attach.SWAP) == ([], [("faster", None)])
    assert adopted(pair) == [], "its run lives"
    die(pair)
    assert [p.new.id for p in adopted(pair)] == [new]


def test_an_instance_that_is_deleted_meanwhile(pair: BootWorld) -> None:
    swap(pair, WISH)
    pair.storage_round("v")
    connected(pair)
    write(pair, life.end_with_instances, [uuid_of(pair)], run="x")
    pair.disconnect("h1", [uuid_of(pair)], "x")
    pair.storage_round("x")
    assert pair.status("faster") == "available", "it stays: only the old one goes with the instance"
    assert pair.live_attachments() == []


@pytest.mark.parametrize(
    "wish,code",
    [
        ({**WISH, "instance": "nobody"}, "InstanceNotFound"),
        ({**WISH, "old_volume": "nothing"}, "VolumeNotFound"),
        ({**WISH, "new_volume": "nothing"}, "VolumeNotFound"),
        ({**WISH, "new_volume": "data"}, "InvalidInput"),
        ({"instance": "web", "old_volume": "data"}, "InvalidInput"),
        ({**WISH, "device": "vdc"}, "InvalidInput"),
        ("web", "InvalidInput"),
    ],
)
def test_what_is_refused(pair: BootWorld, wish: t.Any, code: str) -> None:
    assert [c for _path, c, _message in refused(pair, swap_of(pair), wish, run="v")] == [code]


@pytest.mark.parametrize(
    "vm_state,allowed", [("active", True), ("paused", True), ("resized", True), ("stopped", False), ("rescued", False)]
)
def test_states(pair: BootWorld, vm_state: str, allowed: bool) -> None:
    write(pair, lambda tx: instances.write(tx, [uuid_of(pair)], vm_state=vm_state))
    if allowed:
        assert len(swap(pair, WISH).rows) == 1
    else:
        assert [c for _p, c, _m in refused(pair, swap_of(pair), WISH, run="v")] == ["InstanceInvalidState"]


STEPS = ("begun", "exported", "connecting", "connected", "copied")


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("gone_over", [False, True])
def test_killed_anywhere(pair: BootWorld, step: str, gone_over: bool) -> None:
    """What the next run finds on the host decides, once the host may have begun; the swap itself is done by that run then."""
    swap(pair, WISH)
    number = STEPS.index(step)
    if number >= 1:
        pair.storage_round("v")
    if number == 2:
        with pair.ledger.read() as tx:
            (half,), _settled = volume_swap.to_swap(tx.for_run(pair.context("v")), "h1")
        write(pair, life.connecting, [half.new.id])
    elif number >= 3:
        connected(pair)
    die(pair)
    write(pair, lambda tx: volume_attach.expire(tx, volume_attach.begun_by_others(tx)), run="x")
    pair.storage_round("x")
    stale = [p.new.id for p in adopted(pair)]
    assert bool(stale) == (number >= 2)
    has_new = gone_over and step == "copied"
    write(pair, swaps.completed if has_new else swaps.undone, stale, run="w")
    host_work(pair, run="w")
    pair.storage_round("w")
    if not has_new:
        as_before(pair)
        begun = swap(pair, WISH, run="w")
        assert len(begun.rows) == 1
        pair.storage_round("w")
        write(pair, swaps.completed, connected(pair, "w"), run="w")
        host_work(pair, run="w")
        pair.storage_round("w")
    swapped(pair)
