# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Ephemeral disks and swap of instances that get another flavor, in the ledger: refused, grown, made, left, and as before after a revert."""

from __future__ import annotations

import dataclasses
import typing as t

import pytest
import sqlalchemy as sa

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.core.instances import states
from ansible_collections.bootflow.compute.plugins.module_utils.core.model import BlockDevice
from ansible_collections.bootflow.compute.plugins.module_utils.flows.instances import attach
from ansible_collections.bootflow.compute.plugins.module_utils.flows.instances.operation import Selection
from ansible_collections.bootflow.compute.plugins.module_utils.flows.moves import (
    cold_life,
    evacuate,
    local_disks,
    revert,
)
from ansible_collections.bootflow.compute.plugins.module_utils.flows.moves.moving_instance import MovingInstance
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.compute import instances, service_state
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.schema import tables
from ansible_collections.bootflow.compute.tests.unit.worlds.world import SMALL, World

from .test_cold import LARGE, QCOW2, Movers, other

GIB = 1024**3
WIDE = dataclasses.replace(SMALL, name="wide", ephemeral_gb=2, swap=64)
WIDER = dataclasses.replace(WIDE, name="wider", root_gb=2, ephemeral_gb=3, swap=32)
BARE = dataclasses.replace(WIDER, name="bare", swap=0)
Disk = t.Tuple[str, str, int]


@pytest.fixture(name="world")
def _movers(world: World) -> t.Iterator[Movers]:
    made = Movers(world.url)
    for host in ("h1", "h2"):
        made.report(host)
    yield made
    with made.ledger.read() as tx:
        made.check(tx)
    made.ledger.close()


def disks(world: Movers, uuid: str) -> list[Disk]:
    """(name, device, size) in order."""
    with world.ledger.read() as tx:
        found = instances.disks_of(tx, [uuid])[uuid]
    return [(d["name"], d["device_name"], d["size_mb"] or d["size_gb"]) for d in found]


def journey(world: Movers, moving: MovingInstance) -> local_disks.Journey:
    with world.ledger.read() as tx:
        return local_disks.journeys(tx, [moving.move])[moving.uuid]


def blank(size: int | None = None, guest_format: str | None = None) -> BlockDevice:
    return BlockDevice("blank", "local", volume_size=size, guest_format=guest_format, boot_index=-1)


OLD = [("disk", "/dev/vda", 1), ("disk.eph0", "/dev/vdb", 2), ("disk.swap", "/dev/vdc", 64)]


def test_grown_and_as_before(world: Movers) -> None:
    uuid = world.boot("web", flavor=WIDE)
    source = world.row(uuid).host
    assert disks(world, uuid) == OLD
    before = world.used(source)
    (moving,) = world.set_out(uuids=[uuid], flavor=WIDER).moving
    on_the_way = journey(world, moving)
    assert on_the_way.sizes == {"disk": 2 * GIB, "disk.eph0": 3 * GIB} and on_the_way.left_behind == ["disk.swap"]
    assert on_the_way.limits == {"disk": GIB, "disk.eph0": 2 * GIB}, "as they are before"
    assert [(d["name"], d["size_mb"]) for d in on_the_way.made] == [("disk.swap", 32)]
    assert disks(world, uuid) == OLD and world.used(other(source))[1] == 5
    world.call(cold_life.switch, [uuid])
    new = [("disk", "/dev/vda", 2), ("disk.eph0", "/dev/vdb", 3), ("disk.swap", "/dev/vdc", 32)]
    row = world.row(uuid)
    assert disks(world, uuid) == new and (row.root_gb, row.ephemeral_gb, row.swap_mb) == (2, 3, 32)
    world.call(cold_life.finish, cold_life.RESIZE, {uuid: cold_life.Result(states.RUNNING)})
    world.revert(uuid)
    row = world.row(uuid)
    assert disks(world, uuid) == OLD and (row.root_gb, row.ephemeral_gb, row.swap_mb) == (1, 2, 64)
    assert world.used(source) == before


def test_made_and_left(world: Movers) -> None:
    """The first ephemeral disk and swap of a flavor are made; swap that the next one has not is left."""
    uuid = world.boot("web")
    plain = disks(world, uuid)
    (moving,) = world.set_out(uuids=[uuid], flavor=WIDER).moving
    on_the_way = journey(world, moving)
    assert [d["name"] for d in on_the_way.made] == ["disk.eph0", "disk.swap"] and on_the_way.left_behind == []
    assert [d["guest_format"] for d in on_the_way.made] == [None, "swap"]
    assert local_disks.changes(moving.move.old_disks or (), moving.move.new_disks or ()) == [
        "disk 1 GiB -> 2 GiB", "disk.eph0 none -> 3 GiB", "disk.swap none -> 32 MiB",
    ]  # fmt: skip
    world.call(cold_life.switch, [uuid])
    world.call(cold_life.finish, cold_life.RESIZE, {uuid: cold_life.Result(states.RUNNING)})
    assert disks(world, uuid) == [("disk", "/dev/vda", 2), ("disk.eph0", "/dev/vdb", 3), ("disk.swap", "/dev/vdc", 32)]
    world.revert(uuid)
    assert disks(world, uuid) == plain
    uuid = world.boot("swaps", flavor=dataclasses.replace(WIDE, ephemeral_gb=3))
    (moving,) = world.set_out(uuids=[uuid], flavor=BARE).moving
    assert journey(world, moving).left_behind == ["disk.swap"] and journey(world, moving).made == []
    world.call(cold_life.switch, [uuid])
    world.call(cold_life.finish, cold_life.RESIZE, {uuid: cold_life.Result(states.RUNNING)})
    assert disks(world, uuid) == [("disk", "/dev/vda", 2), ("disk.eph0", "/dev/vdb", 3)]
    with world.ledger.read() as tx:
        (row,) = instances.select_live(tx, uuids=[uuid])
        names = attach._Names(tx.for_run(world.context("m")), [row])
    assert names._used_names(row, {}) >= {"vda", "vdb", "vdc"}, (
        "a volume does not get the name of what a revert brings back"
    )
    world.revert(uuid)
    assert disks(world, uuid)[2] == ("disk.swap", "/dev/vdc", 64)


def test_keys_of_secure_boot_are_in_the_uefi_variables(world: Movers) -> None:
    """A guest whose secure boot begins or ends with its flavor gets new ones: with the old ones its firmware would verify as before."""
    secure = dataclasses.replace(LARGE, name="secure", extra_specs={"os:secure_boot": "required"})
    (one, two) = (world.boot(name) for name in ("one", "two"))
    (moving,) = world.set_out(uuids=[one], flavor=secure).moving
    assert journey(world, moving).left_behind == ["disk.nvram"]
    (moving,) = world.set_out(uuids=[two], flavor=LARGE).moving
    assert journey(world, moving).left_behind == []


def test_a_migration_makes_swap_anew(world: Movers) -> None:
    uuid = world.boot("web", flavor=WIDE)
    (moving,) = world.set_out(uuids=[uuid]).moving
    on_the_way = journey(world, moving)
    assert on_the_way.sizes == {"disk": 0, "disk.eph0": 0} and on_the_way.left_behind == ["disk.swap"]
    assert [(d["name"], d["size_mb"]) for d in on_the_way.made] == [("disk.swap", 64)]
    world.call(cold_life.switch, [uuid])
    assert disks(world, uuid) == OLD
    world.call(cold_life.finish, cold_life.MIGRATE, {uuid: cold_life.Result(states.RUNNING)})


def test_several_that_the_request_gave(world: Movers) -> None:
    """Disks with a size of their own keep it; the flavor may have less than the former one, but not less than they need."""
    flavor = dataclasses.replace(WIDE, ephemeral_gb=4, swap=0)
    uuid = world.boot("web", flavor=flavor, block_device_mapping=(blank(1), blank(2)))
    mine = [("disk.eph0", "/dev/vdb", 1), ("disk.eph1", "/dev/vdc", 2)]
    assert disks(world, uuid) == [("disk", "/dev/vda", 1), *mine]
    everything = world.everything()
    with pytest.raises(errors.CannotResizeDisk, match="2 GiB of ephemeral disk, the instance 3 GiB") as e:
        world.set_out(uuids=[uuid], flavor=dataclasses.replace(WIDER, ephemeral_gb=2))
    assert e.value.remedy and world.everything() == everything
    world.move(uuid, WIDER)
    assert disks(world, uuid) == [("disk", "/dev/vda", 2), *mine, ("disk.swap", "/dev/vdd", 32)]
    world.revert(uuid)
    assert disks(world, uuid) == [("disk", "/dev/vda", 1), *mine]


def test_swap_that_the_request_gave(world: Movers) -> None:
    uuid = world.boot("web", flavor=WIDE, block_device_mapping=(blank(16, "swap"),))
    for swap, expected in ((8, 8), (128, 16)):
        world.move(uuid, dataclasses.replace(WIDER, swap=swap))
        assert disks(world, uuid)[1:] == [("disk.eph0", "/dev/vdb", 3), ("disk.swap", "/dev/vdc", expected)]
        world.revert(uuid)
        assert disks(world, uuid)[2] == ("disk.swap", "/dev/vdc", 16)


def test_a_smaller_ephemeral_disk_is_refused(world: Movers) -> None:
    uuid = world.boot("web", flavor=WIDE)
    everything = world.everything()
    with pytest.raises(errors.CannotResizeDisk, match="1 GiB of ephemeral disk, the instance 2 GiB"):
        world.set_out(uuids=[uuid], flavor=dataclasses.replace(WIDER, ephemeral_gb=1))
    assert world.everything() == everything


def test_the_same_disks_are_not_written(world: Movers) -> None:
    uuid = world.boot("web", flavor=WIDE)
    (moving,) = world.set_out(uuids=[uuid], flavor=dataclasses.replace(WIDE, name="fast", vcpus=2)).moving
    assert moving.move.old_disks is None and moving.move.new_disks is None
    assert journey(world, moving).sizes == {"disk": 0, "disk.eph0": 0}
    world.call(cold_life.switch, [uuid])
    assert disks(world, uuid) == OLD and world.row(uuid).vcpus == 2


def test_a_move_that_began_before_the_lists_were_kept(world: Movers) -> None:
    uuid = world.boot("web")
    world.move(uuid, LARGE)
    with world.ledger.write() as tx:
        tx.execute(tables.migrations.update().values(old_disks=None, new_disks=None))
    world.call(revert.begin_revert, Selection(uuids=[uuid]), tuple(QCOW2))
    world.call(cold_life.roll_back, [uuid])
    assert disks(world, uuid)[0][2] == 1
    assert world.call(cold_life.finish, cold_life.REVERT, {uuid: cold_life.Result(states.RUNNING)}) == {}


def test_whole_disks_stay_where_they_are(world: Movers) -> None:
    """What is on them would be lost: no operation leaves them behind, and each says what leads on."""
    uuid = world.boot("web")
    host = world.row(uuid).host
    plain = dataclasses.replace(LARGE, name="own", extra_specs={"bootflow:whole_disks": "1"})
    with pytest.raises(errors.MoveNotSupported, match="the flavor own has whole disks, which only a boot gives"):
        world.set_out(uuids=[uuid], flavor=plain)
    with world.ledger.write() as tx:
        (row,) = tx.execute(sa.select(tables.request_specs.c.spec)).all()
        tx.execute(tables.request_specs.update().values(spec={**row.spec, "whole_disks": [{"count": 1}]}))
    everything = world.everything()
    for flavor in (None, LARGE):
        with pytest.raises(
            errors.MoveNotSupported, match="whole disks of host %s, and what is on them stays" % host
        ) as e:
            world.set_out(uuids=[uuid], flavor=flavor)
        assert "delete this one" in e.value.remedy
    assert world.everything() == everything
    world.call(service_state.set_state, [host], service_state.FORCED_DOWN)
    with pytest.raises(errors.MoveNotSupported, match="whole disks of host %s" % host) as e:
        world.call(evacuate.begin, evacuate.Wanted(Selection(uuids=[uuid])), world.fleet, world.options())
    assert "Bring the host back" in e.value.remedy
