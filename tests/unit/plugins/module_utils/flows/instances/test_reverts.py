# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Reverts in the ledger: which image each instance gets, that it is kept meanwhile, and that nothing else of the instance changes."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.core.images.resolve import LedgerImages
from ansible_collections.bootflow.compute.plugins.module_utils.core.images.stores.registry import read_stores
from ansible_collections.bootflow.compute.plugins.module_utils.core.instances import states
from ansible_collections.bootflow.compute.plugins.module_utils.flows.instances import operation, reverts
from ansible_collections.bootflow.compute.plugins.module_utils.flows.instances.operation import Outcome, Selection
from ansible_collections.bootflow.compute.plugins.module_utils.flows.instances.operations import OPERATIONS
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.images import images
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.schema import tables
from ansible_collections.bootflow.compute.tests.unit.worlds.stored_images import (
    ID,
    STORES,
    delete_image,
    store_image,
)
from ansible_collections.bootflow.compute.tests.unit.worlds.world import World

REVERT = OPERATIONS["revert"]
SECOND = "99999999-0000-4000-8000-00000000000b"
NAMES = {"names": ["web"]}


@pytest.fixture
def uuid(world: World) -> str:
    """An active instance, with a snapshot of it in the ledger."""
    world.report("h1")
    made = world.boot("web")
    store_image(world, name="web-snap", instance_uuid=made)
    return made


def known(world: World) -> LedgerImages:
    stored = world.ledger.inspect(lambda tx: images.stored(tx, images.select(tx)))
    return LedgerImages(stored, read_stores(STORES, []))


def begin(world: World, word: str = "%(name)s-snap", run: str = "o", **which: t.Any) -> tuple[operation.Begun, t.Any]:
    read = which.pop("known", None) or known(world)
    with world.ledger.write() as tx:
        of_run = tx.for_run(world.context(run))
        return reverts.begin(of_run, REVERT, Selection(**(which or NAMES)), ["h1"], word, read)


def test_an_instance_goes_back_and_keeps_what_it_has(world: World, uuid: str) -> None:
    before = world.row(uuid)
    begun, chosen = begin(world)
    assert [r.uuid for r in begun.rows] == [uuid] and chosen[uuid].id == ID
    assert world.row(uuid).task_state == states.REBUILD_BLOCK_DEVICE_MAPPING
    with world.ledger.write() as tx:
        of_run = tx.for_run(world.context("o"))
        assert not operation.finish(of_run, REVERT, {uuid: Outcome(states.RUNNING, vm_state="active")})
    after = world.row(uuid)
    assert (after.vm_state, after.task_state, after.power_state) == ("active", None, states.RUNNING)
    for name in ("host", "request_spec_id", "key_name", "launched_at", "display_name", "config_drive"):
        assert getattr(after, name) == getattr(before, name), name
    (event,) = [e for e in world.rows(tables.instance_action_events) if e.event == "revert"]
    assert event.details == "image %s" % ID and event.result == "Success"


def test_nobody_deletes_the_image_meanwhile(world: World, uuid: str) -> None:
    begin(world)
    with pytest.raises(errors.BootflowError, match="instance web goes back to it"):
        delete_image(world, ID)
    with world.ledger.write() as tx:
        operation.finish(tx.for_run(world.context("o")), REVERT, {uuid: Outcome(states.RUNNING, vm_state="active")})
    delete_image(world, ID)


def test_an_image_that_was_deleted_since_it_was_looked_up(world: World, uuid: str) -> None:
    read = known(world)
    delete_image(world, ID)
    with pytest.raises(errors.ImageNotActive):
        begin(world, known=read)
    assert world.row(uuid).task_state is None


@pytest.mark.parametrize("vm_state", states.VM_STATES)
def test_the_states_are_those_of_a_rebuild(world: World, uuid: str, vm_state: str) -> None:
    if vm_state == states.DELETED:
        return
    with world.ledger.write() as tx:
        tx.execute(tables.instances.update().values(vm_state=vm_state))
    if vm_state in (states.ACTIONS["rebuild"].vm_states or ()):
        assert begin(world, uuids=[uuid])[1]
    else:
        with pytest.raises(errors.InstanceInvalidState, match="Cannot 'revert' instance"):
            begin(world, uuids=[uuid])


def test_a_lock_is_obeyed(world: World, uuid: str) -> None:
    with world.ledger.write() as tx:
        tx.execute(tables.instances.update().values(locked_by="bob"))
    with pytest.raises(errors.InstanceIsLocked):
        begin(world)


def test_all_or_none(world: World, uuid: str) -> None:
    """The second one has no snapshot of its own: neither begins."""
    other = world.boot("db")
    store_image(world, SECOND, name="db-snap", instance_uuid=uuid)
    before = world.everything()
    with pytest.raises(errors.ImageUnacceptable) as caught:
        begin(world, names=["web", "db"])
    assert "not of instance db (%s)" % other in caught.value.message and world.everything() == before


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"min_disk": 1000}, errors.FlavorDiskSmallerThanMinDisk),
        ({"min_ram": 1_000_000}, None),  # it has run with what it has now
    ],
)
def test_only_the_size_of_the_disk_matters(world: World, uuid: str, fields: dict[str, int], error: t.Any) -> None:
    store_image(world, SECOND, name="large", instance_uuid=uuid, **fields)
    if error is None:
        assert begin(world, "large")[1][uuid].id == SECOND
        return
    with pytest.raises(error):
        begin(world, "large")
    assert world.row(uuid).task_state is None


def test_the_same_again_adopts_what_a_dead_run_began(world: World, uuid: str) -> None:
    begin(world, run="dead")
    with pytest.raises(errors.InstanceBusy):
        begin(world, run="p")
    world.time += 10_000
    begun, chosen = begin(world, run="p")
    assert [r.uuid for r in begun.rows] == [uuid] and chosen[uuid].id == ID
