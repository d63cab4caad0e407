# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Snapshots of instances in the ledger: the record before any byte, and what each end, death and deletion leaves of it."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.core.guest import nvram
from ansible_collections.bootflow.compute.plugins.module_utils.core.images import snapshots as rules
from ansible_collections.bootflow.compute.plugins.module_utils.core.images.stores.registry import read_stores
from ansible_collections.bootflow.compute.plugins.module_utils.core.instances import states
from ansible_collections.bootflow.compute.plugins.module_utils.flows.images import dead_images, deletion
from ansible_collections.bootflow.compute.plugins.module_utils.flows.instances import operation, snapshots
from ansible_collections.bootflow.compute.plugins.module_utils.flows.instances.operation import Outcome, Selection
from ansible_collections.bootflow.compute.plugins.module_utils.flows.instances.operations import OPERATIONS
from ansible_collections.bootflow.compute.plugins.module_utils.flows.recovery import operations as recovery
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.compute import instances
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.images import image_views
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.images import images as image_rows
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.schema import image_tables, tables
from ansible_collections.bootflow.compute.tests.unit.worlds.stored_images import store_image
from ansible_collections.bootflow.compute.tests.unit.worlds.world import IMAGE, World

SNAPSHOT = OPERATIONS["snapshot"]
STORES = read_stores(
    [
        {"name": "nfs", "path": "/net/images", "kind": "shared"},
        {"name": "far", "path": "/x", "kind": "host", "host": "h9"},
    ],
    ["h1", "h9"],
)
SHA = "ab" * 32
BYTES = {"size": 9, "checksum": SHA, "disk_format": "qcow2", "error": None}


def begin(
    world: World,
    name: str = "snap",
    run: str = "o",
    store: str = "nfs",
    quotas: t.Any = None,
    extra: t.Any = None,
    **which: t.Any,
) -> tuple[operation.Begun, snapshots.Images]:
    wanted = rules.read_request(name, STORES.get(store), extra, ["cache_in_nova"])
    selection = Selection(**(which or {"names": ["web"]}))
    with world.ledger.write() as tx:
        return snapshots.begin(tx.for_run(world.context(run)), SNAPSHOT, selection, ["h1", "h9"], wanted, quotas)


def finish(world: World, made: snapshots.Images, answer: t.Any = None, run: str = "o") -> dict[str, t.Any]:
    """:arg answer: of the host; by default the bytes arrived"""
    answers = dict.fromkeys(made, {**BYTES} if answer is None else answer)
    outcomes = {u: Outcome(states.RUNNING, a["error"]) for u, a in answers.items()}
    with world.ledger.write() as tx:
        of_run = tx.for_run(world.context(run))
        failed = operation.finish(of_run, SNAPSHOT, outcomes)
        lost = snapshots.finish(of_run, {u: i.id for u, i in made.items()}, answers, failed, "nfs")
    return {**failed, **lost}


def views(world: World) -> list[dict[str, t.Any]]:
    return world.ledger.inspect(image_views.image_views, None, None, None)


def kept(world: World) -> list[tuple[str, str, str]]:
    """(status, run, fault) of all images, deleted ones too."""
    return sorted((r.status, r.run_id, r.fault) for r in world.rows(image_tables.images))


def places(world: World) -> list[tuple[str, str]]:
    return [(r.store, r.progress) for r in world.rows(image_tables.image_places)]


@pytest.fixture
def web(world: World) -> str:
    world.report("h1")
    return world.boot("web")


def test_the_record_is_there_before_the_bytes(world: World, web: str) -> None:
    begun, made = begin(world, extra={"os_distro": "mine", "n": 3})
    assert [r.uuid for r in begun.rows] == [web] and begun.unchanged == []
    assert world.state(web)[:2] == ("active", "image_uploading")
    (view,) = views(world)
    assert (view["id"], view["name"], view["status"], view["places"]) == (
        made[web].id,
        "snap",
        "saving",
        {"nfs": "begun"},
    )
    assert view["instance_uuid"] == web and view["disk_format"] is None
    named = {"base_image_ref": IMAGE.id, "image_type": "snapshot", "instance_uuid": web, "user_id": "ann"}
    assert view["properties"] == {**named, "os_distro": "mine", "n": "3"}
    row = world.row(web)
    assert (view["min_disk"], view["min_ram"]) == (row.root_gb, 0)
    assert finish(world, made) == {}
    (view,) = views(world)
    assert (view["status"], view["stores"], view["size"], view["checksum"]) == ("active", ["nfs"], 9, SHA)
    assert (view["disk_format"], view["container_format"]) == ("qcow2", "bare")
    assert world.state(web)[:2] == ("active", None) and world.row(web).power_state == states.RUNNING


def test_variables_are_kept_with_their_image(world: World, web: str) -> None:
    packed = nvram.pack((bytes(16) + bytes(24) + b"_FVH").ljust(4096, b"\xff"))
    for name, variables in (("with", packed), ("without", "")):
        _begun, made = begin(world, name)
        finish(world, made, {**BYTES, "nvram": variables})
    named = {view["name"]: view["id"] for view in views(world)}
    kept_variables = world.ledger.inspect(image_rows.nvrams, named.values())
    assert kept_variables == {named["with"]: packed}
    with world.ledger.write() as tx:
        deletion.begin(tx.for_run(world.context("d")), ["with"], None, False, STORES)
    assert world.rows(image_tables.image_nvrams) == []


def test_it_is_told_as_by_nova(world: World, web: str) -> None:
    _begun, made = begin(world)
    finish(world, made)
    (action,) = [a for a in world.rows(tables.instance_actions) if a.action == "createImage"]
    assert action.message is None and action.finish_time is not None
    told = [n.event_type for n in world.rows(tables.notifications) if ".snapshot." in n.event_type]
    assert told == ["compute.instance.snapshot.start", "compute.instance.snapshot.end"]


def test_a_second_snapshot_of_the_name_changes_nothing(world: World, web: str) -> None:
    made = begin(world)[1]
    finish(world, made)
    begun, there = begin(world, run="p")
    assert begun.rows == [] and [r.uuid for r in begun.unchanged] == [web] and there[web].id == made[web].id
    assert len(views(world)) == 1 and world.state(web)[1] is None
    assert begin(world, "other", run="q")[0].unchanged == []


def test_the_name_of_another_image_is_refused(world: World, web: str) -> None:
    store_image(world, name="snap")
    with pytest.raises(errors.ImageExists, match="not a snapshot of instance web"):
        begin(world)
    assert world.state(web)[1] is None and len(views(world)) == 1


def test_a_name_of_several_has_the_name_of_the_instance(world: World) -> None:
    world.report("h1")
    uuids = {name: world.boot(name) for name in ("web", "db")}
    with pytest.raises(errors.InvalidInput, match="2 instances are selected"):
        begin(world, names=["web", "db"])
    made = begin(world, "%(name)s of today", names=["web", "db"])[1]
    assert {made[u].name for u in uuids.values()} == {"web of today", "db of today"}


@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        ({"name": ""}, "InvalidInput", "is not set"),
        ({"name": "x" * 256}, "InvalidInput", "256"),
        ({"name": "a\nb"}, "InvalidInput", "printable"),
        ({"extra": {"k": "v" * 256}}, "InvalidMetadata", "255"),
        ({"extra": {"": "v"}}, "InvalidMetadata", "255"),
        ({"extra": {"k": [1]}}, "InvalidMetadata", "text"),
        ({"extra": {"k": 1}, "quotas": {"metadata_items": 0}}, "MetadataLimitExceeded", "exceeds 0"),
        ({"names": ["none"]}, "InstanceNotFound", "none"),
    ],
)
def test_what_does_not_fit_is_refused_before_anything_is_written(
    world: World, web: str, changes: t.Any, error: str, words: str
) -> None:
    before = world.everything()
    with pytest.raises(errors.BootflowError, match=words) as caught:
        begin(world, **changes)
    assert error in (caught.value.code, *(e["code"] for e in getattr(caught.value, "errors", ())))
    assert world.everything() == before


@pytest.mark.parametrize("vm_state", states.VM_STATES)
def test_every_state(world: World, web: str, vm_state: str) -> None:
    with world.ledger.write() as tx:
        instances.write(tx.for_run(world.context("x")), [web], vm_state=vm_state, locked_by="eve")
    if vm_state in ("active", "stopped", "paused", "suspended"):  # and a lock does not matter
        assert finish(world, begin(world, uuids=[web])[1]) == {} and world.state(web)[:2] == (vm_state, None)
        return
    with pytest.raises(errors.InstanceInvalidState, match="Cannot 'snapshot' instance"):
        begin(world, uuids=[web])
    assert views(world) == []


def test_an_agent_that_is_required(world: World, web: str) -> None:
    spec = dict(world.rows(tables.request_specs)[0].spec)

    def change(**fields: t.Any) -> None:
        with world.ledger.write() as tx:
            tx.execute(tables.request_specs.update().values(spec={**spec, **fields}))

    image = {**spec["image"], "properties": {"os_require_quiesce": "yes"}}
    change(image=image)
    with pytest.raises(errors.QemuGuestAgentNotEnabled, match="web"):
        begin(world)
    with world.ledger.write() as tx:
        instances.write(tx.for_run(world.context("x")), [web], vm_state="stopped")
    assert begin(world)[0].rows


@pytest.mark.parametrize(("left", "place"), [(None, [("nfs", "ending")]), (True, [("nfs", "ending")]), (False, [])])
def test_a_failure_deletes_the_image(world: World, web: str, left: bool | None, place: t.Any) -> None:
    made = begin(world)[1]
    error = errors.DiskFull(host="h1", path="/x", reason="full")
    answer = {"error": error, **({} if left is None else {"left": left})}
    assert set(finish(world, made, answer)) == {web}
    assert views(world) == [] and places(world) == place
    assert kept(world) == [("deleted", "run-o", error.message)]
    assert world.state(web)[:2] == ("active", None) and world.fault(web).message == error.message
    assert begin(world, run="p")[0].rows


def test_an_instance_that_vanishes_leaves_no_image(world: World, web: str) -> None:
    """source: Nova's _snapshot_instance"""
    made = begin(world)[1]
    world.delete(names=["web"])
    world.removed("h1", [web])
    world.finish()
    assert set(finish(world, made)) == {web}
    assert views(world) == [] and places(world) == [("nfs", "ending")]


def test_a_deletion_takes_over(world: World, web: str) -> None:
    made = begin(world)[1]
    world.delete(names=["web"])
    assert world.state(web)[1] == "deleting"
    failed = finish(world, made)
    assert set(failed) == {web} and views(world) == [] and world.state(web)[1] == "deleting"


def test_a_dead_run_is_settled_by_the_report_of_the_host(world: World, web: str) -> None:
    begin(world, run="dead")
    with pytest.raises(errors.BootflowError):  # another live run
        begin(world, run="p")
    world.time += 601
    with world.ledger.write() as tx:
        mine = tx.for_run(world.context("s"))
        assert recovery.settle_operations(mine, "h1", {web: states.RUNNING}, world.time, at_work=[web]) == {}
    assert views(world)[0]["status"] == "saving"
    with world.ledger.write() as tx:
        mine = tx.for_run(world.context("s"))
        assert recovery.settle_operations(mine, "h1", {web: states.RUNNING}, world.time) == {web: "active"}
    assert world.state(web)[:2] == ("active", None) and views(world) == [] and places(world) == [("nfs", "ending")]
    assert "run-dead died" in kept(world)[0][2]


def test_a_deletion_ends_the_image_of_a_dead_run(world: World, web: str) -> None:
    begin(world, run="dead")
    world.time += 601
    world.delete(names=["web"])
    assert world.state(web)[1] == "deleting" and views(world) == [] and places(world) == [("nfs", "ending")]


def test_the_next_run_goes_on_where_one_died(world: World, web: str) -> None:
    first = begin(world, run="dead")[1]
    world.time += 601
    second = begin(world, "other", run="p")[1]
    assert finish(world, second, run="p") == {}
    assert [(v["id"], v["status"]) for v in views(world)] == [(second[web].id, "active")]
    late = finish(world, first, run="dead")
    assert set(late) == {web} and [v["id"] for v in views(world)] == [second[web].id], "it came late"


def test_a_run_that_seemed_dead_does_not_claim_an_image_that_is_gone(world: World, web: str) -> None:
    world.boot("db")
    asleep = begin(world, run="o")[1]
    world.time += 601
    begin(world, "other", run="p", names=["db"])
    late = finish(world, asleep, run="o")
    assert isinstance(late[web], errors.ImageNotActive) and "Make it again" in late[web].remedy
    assert [v["name"] for v in views(world)] == ["other"] and world.state(web)[:2] == ("active", None)
    assert world.fault(web).message == late[web].message
    assert finish(world, begin(world, run="q")[1], run="q") == {}


def test_images_of_live_runs_stay(world: World, web: str) -> None:
    begin(world, run="o")
    with world.ledger.write() as tx:
        assert dead_images.end_dead(tx.for_run(world.context("p"))) == []
    assert [view["status"] for view in views(world)] == ["saving"]


@pytest.mark.parametrize(
    ("properties", "vm_state", "expected"),
    [
        ({}, "active", "no"),
        ({"hw_qemu_guest_agent": "yes"}, "active", "try"),
        ({"hw_qemu_guest_agent": "yes", "os_require_quiesce": "yes"}, "active", "require"),
        ({"hw_qemu_guest_agent": "yes", "os_require_quiesce": "yes"}, "paused", "no"),
    ],
)
def test_when_file_systems_stand_still(properties: dict[str, str], vm_state: str, expected: str) -> None:
    assert rules.quiesce_of("web", properties, vm_state) == expected
