# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Backups of instances in the ledger: the rotation, what stays of it, races and deaths."""

from __future__ import annotations

import threading
import typing as t

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.core.images import backups as rules
from ansible_collections.bootflow.compute.plugins.module_utils.core.images import life
from ansible_collections.bootflow.compute.plugins.module_utils.core.images.stores.registry import read_stores
from ansible_collections.bootflow.compute.plugins.module_utils.core.instances import states
from ansible_collections.bootflow.compute.plugins.module_utils.flows.images import host_images
from ansible_collections.bootflow.compute.plugins.module_utils.flows.instances import backups, operation, snapshots
from ansible_collections.bootflow.compute.plugins.module_utils.flows.instances.operation import Outcome, Selection
from ansible_collections.bootflow.compute.plugins.module_utils.flows.instances.operations import OPERATIONS
from ansible_collections.bootflow.compute.plugins.module_utils.flows.recovery import operations as recovery
from ansible_collections.bootflow.compute.plugins.module_utils.ledger import database
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.compute import instances
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.db.transaction import Transaction
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.images import images
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.schema import image_tables, tables
from ansible_collections.bootflow.compute.tests.unit.worlds.stored_images import store_image
from ansible_collections.bootflow.compute.tests.unit.worlds.world import World

BACKUP = OPERATIONS["create_backup"]
STORE = read_stores([{"name": "nfs", "path": "/net/images", "kind": "shared"}], ["h1"]).get("nfs")
BYTES = {"size": 9, "checksum": "ab" * 32, "disk_format": "qcow2", "error": None}


def begin(
    world: World,
    name: str = "%(name)s-daily",
    kind: str = "daily",
    rotation: int = 2,
    run: str = "o",
    extra: t.Any = None,
    **which: t.Any,
) -> tuple[operation.Begun, snapshots.Images]:
    wanted = rules.read_request(name, kind, rotation, STORE, extra)
    selection = Selection(**(which or {"names": ["web"]}))
    with world.ledger.write() as tx:
        return snapshots.begin(tx.for_run(world.context(run)), BACKUP, selection, ["h1"], wanted)


def finish(
    world: World, made: snapshots.Images, kind: str = "daily", rotation: int = 2, run: str = "o", answer: t.Any = None
) -> tuple[dict[str, t.Any], backups.Rotated]:
    """Write the end of the operation. :arg answer: of the host; by default the bytes arrived. Returns failures, and deleted backups"""
    answers = dict.fromkeys(made, {**BYTES} if answer is None else answer)
    outcomes = {u: Outcome(states.RUNNING, a["error"]) for u, a in answers.items()}
    ids = {u: i.id for u, i in made.items()}
    with world.ledger.write() as tx:
        of_run = tx.for_run(world.context(run))
        failed = operation.finish(of_run, BACKUP, outcomes)
        snapshots.finish(of_run, ids, answers, failed, "nfs")
        done = {u: i for u, i in ids.items() if u not in failed}
        return failed, backups.rotate(of_run, done, kind, rotation)


def back_up(world: World, kind: str = "daily", rotation: int = 2, **more: t.Any) -> str:
    """Make a backup of one instance. Returns its id."""
    world.time += 1
    made = begin(world, kind=kind, rotation=rotation, **more)[1]
    assert finish(world, made, kind, rotation)[0] == {}
    return next(iter(made.values())).id


def active(world: World) -> list[str]:
    """Return the ids of active images, the oldest first."""
    rows = [r for r in world.rows(image_tables.images) if r.status == life.ACTIVE]
    return [r.id for r in sorted(rows, key=lambda r: r.created_at)]


def places(world: World) -> dict[str, str]:
    return {r.image_id: r.progress for r in world.rows(image_tables.image_places)}


@pytest.fixture
def web(world: World) -> str:
    world.report("h1")
    return world.boot("web")


def test_the_oldest_one_goes_when_the_new_one_has_its_bytes(world: World, web: str) -> None:
    first, second = back_up(world), back_up(world)
    assert active(world) == [first, second]
    world.time += 1
    made = begin(world)[1]
    assert world.state(web)[:2] == ("active", "image_backup") and active(world) == [first, second]
    failed, rotated = finish(world, made)
    assert failed == {} and [row.id for row in rotated[web]] == [first]
    assert active(world) == [second, made[web].id] and places(world)[first] == "ending"
    assert world.state(web)[:2] == ("active", None)
    (row,) = [r for r in world.rows(image_tables.images) if r.id == made[web].id]
    assert row.properties["image_type"] == "backup" and row.properties["backup_type"] == "daily"
    assert row.properties["instance_uuid"] == web and row.instance_uuid == web


def test_it_is_told_as_by_nova(world: World, web: str) -> None:
    back_up(world)
    (action,) = [a for a in world.rows(tables.instance_actions) if a.action == "createBackup"]
    assert action.message is None and action.finish_time is not None
    told = [n.event_type for n in world.rows(tables.notifications) if ".snapshot." in n.event_type]
    assert told == ["compute.instance.snapshot.start", "compute.instance.snapshot.end"]


def test_a_smaller_rotation_deletes_several_and_none_the_new_one(world: World, web: str) -> None:
    ids = [back_up(world, rotation=5) for _number in range(4)]
    last = back_up(world, rotation=1)
    assert active(world) == [last] and {places(world)[i] for i in ids} == {"ending"}
    back_up(world, rotation=0)
    assert active(world) == [] and set(places(world).values()) == {"ending"}
    assert world.state(web)[:2] == ("active", None)


def test_other_types_images_and_instances_are_not_touched(world: World, web: str) -> None:
    world.boot("db")
    other = "99999999-0000-4000-8000-00000000000%d"
    weekly, of_db = back_up(world, kind="weekly"), back_up(world, names=["db"])
    imported = store_image(world, other % 1, name="imported")
    snapshot = store_image(
        world, other % 2, name="snap", instance_uuid=web, properties={"image_type": "snapshot", "backup_type": "daily"}
    )
    foreign = store_image(world, other % 3, name="b", properties={"image_type": "backup", "backup_type": "daily"})
    for _number in range(3):
        back_up(world, rotation=0)
    assert set(active(world)) == {weekly, of_db, imported, snapshot, foreign}


def test_several_at_once_rotate_each_for_itself(world: World, web: str) -> None:
    db = world.boot("db")
    first = back_up(world)
    world.time += 1
    made = begin(world, rotation=1, names=["web", "db"])[1]
    rotated = finish(world, made, rotation=1)[1]
    assert {u: [r.id for r in rows] for u, rows in rotated.items()} == {web: [first], db: []}
    with pytest.raises(errors.InvalidInput, match="2 instances are selected"):
        begin(world, "one name", names=["web", "db"])


def test_what_is_protected_or_used_counts_and_stays(world: World, web: str) -> None:
    first, second = back_up(world), back_up(world)
    with world.ledger.write() as tx:
        images.update(tx.for_run(world.context("x")), first, protected=True)
    third = back_up(world)
    assert active(world) == [first, second, third]
    fourth = back_up(world)
    assert active(world) == [first, third, fourth], "the next ones go on"
    building = world.boot("other", until="scheduling")
    (request_id,) = [r.request_spec_id for r in world.rows(tables.instances) if r.uuid == building]
    table = tables.request_specs
    with world.ledger.write() as tx:
        spec = tx.execute(table.select().where(table.c.id == request_id)).one().spec
        changed = {**spec, "image": {**spec["image"], "id": third}}
        tx.execute(table.update().where(table.c.id == request_id).values(spec=changed))
    fifth = back_up(world, rotation=1)
    assert active(world) == [first, third, fifth]


def test_an_equal_name_is_that_of_another_backup_only(world: World, web: str) -> None:
    first, second = back_up(world, name="same"), back_up(world, name="same")
    assert active(world) == [first, second]
    world.boot("db")
    with pytest.raises(errors.ImageExists, match="not a backup of instance db"):
        begin(world, "same", names=["db"])
    store_image(world, name="stored")
    before = world.everything()
    with pytest.raises(errors.ImageExists, match="not a backup of instance web"):
        begin(world, "stored")
    assert world.everything() == before


def test_a_failure_rotates_nothing(world: World, web: str) -> None:
    first, second = back_up(world), back_up(world)
    made = begin(world, rotation=0)[1]
    error = errors.DiskFull(host="h1", path="/x", reason="full")
    failed, rotated = finish(world, made, rotation=0, answer={"error": error, "left": False})
    assert set(failed) == {web} and rotated == {} and active(world) == [first, second]
    assert made[web].id not in places(world) and world.state(web)[:2] == ("active", None)


@pytest.mark.parametrize("vm_state", states.VM_STATES)
def test_every_state(world: World, web: str, vm_state: str) -> None:
    with world.ledger.write() as tx:
        instances.write(tx.for_run(world.context("x")), [web], vm_state=vm_state, locked_by="eve")
    if vm_state in ("active", "stopped", "paused", "suspended"):  # and a lock does not matter
        assert back_up(world, uuids=[web]) and world.state(web)[:2] == (vm_state, None)
        return
    with pytest.raises(errors.InstanceInvalidState, match="Cannot 'create_backup' instance"):
        begin(world, uuids=[web])
    assert active(world) == []


def test_a_root_on_a_volume_is_refused_before_anything_is_written(world: World, web: str) -> None:
    spec = dict(world.rows(tables.request_specs)[0].spec)
    with world.ledger.write() as tx:
        tx.execute(tables.request_specs.update().values(spec={**spec, "is_bfv": True}))
    before = world.everything()
    with pytest.raises(errors.InvalidInput, match="not supported for volume-backed instances: web") as caught:
        begin(world)
    assert caught.value.status == 400 and world.everything() == before


def test_a_dead_run_leaves_no_image_and_rotates_nothing(world: World, web: str) -> None:
    first = back_up(world)
    made = begin(world, run="dead", rotation=0)[1]
    world.time += 601
    with world.ledger.write() as tx:
        of_run = tx.for_run(world.context("s"))
        assert recovery.settle_operations(of_run, "h1", {web: states.RUNNING}, world.time) == {web: "active"}
    assert world.state(web)[:2] == ("active", None) and active(world) == [first]
    assert places(world)[made[web].id] == "ending"
    failed, rotated = finish(world, made, rotation=0, run="dead")
    assert set(failed) == {web} and rotated == {} and active(world) == [first], "it came late"


def test_a_deletion_ends_the_backup_of_a_dead_run(world: World, web: str) -> None:
    made = begin(world, run="dead")[1]
    world.time += 601
    world.delete(names=["web"])
    assert world.state(web)[1] == "deleting" and places(world) == {made[web].id: "ending"}
    assert [r.status for r in world.rows(image_tables.images)] == ["deleted"]


def test_whole_files_of_deleted_backups_are_removed_by_the_next_work(world: World, web: str) -> None:
    first = back_up(world, rotation=1)
    back_up(world, rotation=1)
    half = begin(world, run="dead")[1][web].id
    world.time += 601
    made = begin(world)[1]
    with world.ledger.write() as tx:
        assert host_images.files_to_remove(tx, "nfs") == [first], "a host may still write the half one"
        assert host_images.files_to_remove(tx, "other") == []
    finish(world, made, answer={**BYTES, "removed": [first, "no such image"]})
    assert first not in places(world) and places(world)[half] == "ending"


def test_runs_at_once_make_one_backup_after_the_other(world: World, web: str) -> None:
    """Each that began has its image, and the rotation holds; any other is refused as busy."""
    start = threading.Barrier(4)
    ended: list[str] = []
    others: list[BaseException] = []
    wanted = rules.read_request("%(name)s-daily", "daily", 2, STORE, None)

    def back_up_once(ledger: database.Ledger) -> None:
        try:
            made = ledger.transact(snapshots.begin, BACKUP, Selection(names=["web"]), ["h1"], wanted)[1]
        except (errors.InstanceBusy, errors.ImageInUse):
            return
        ids = {uuid: image.id for uuid, image in made.items()}

        def finish(tx: Transaction) -> None:
            assert operation.finish(tx, BACKUP, {web: Outcome(states.RUNNING)}) == {}
            snapshots.finish(tx, ids, {web: BYTES}, {}, "nfs")
            backups.rotate(tx, ids, "daily", 2)

        ledger.transact(finish)
        ended.extend(ids.values())

    def run(name: str) -> None:
        ledger = database.open_ledger(world.url)
        try:
            start.wait()
            for _number in range(5):
                back_up_once(ledger.for_run(world.context(name)))
        except BaseException as e:
            others.append(e)
        finally:
            ledger.close()

    threads = [threading.Thread(target=run, args=("r%d" % n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert others == [] and len(ended) >= 4
    assert len(active(world)) == 2 and set(active(world)) < set(ended)
    assert world.state(web)[:2] == ("active", None)
    assert sorted(places(world).values()) == ["done"] * 2 + ["ending"] * (len(ended) - 2)
