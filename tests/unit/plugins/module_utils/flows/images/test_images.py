# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Imports and deletions of images: what is written before a store is asked, and what of each answer and each death."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.core.images import life
from ansible_collections.bootflow.compute.plugins.module_utils.core.images.stores.registry import read_stores
from ansible_collections.bootflow.compute.plugins.module_utils.core.request.image_imports import read_imports
from ansible_collections.bootflow.compute.plugins.module_utils.flows.images import deletion, imports, store_work
from ansible_collections.bootflow.compute.plugins.module_utils.flows.images.imports import ImportsBegun
from ansible_collections.bootflow.compute.plugins.module_utils.flows.images.store_work import Uploaded
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.images import image_views, images
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.schema import image_tables
from ansible_collections.bootflow.compute.tests.unit.worlds.world import IMAGE, World

STORES = read_stores(
    [{"name": "here", "path": "/srv/images"}, {"name": "far", "path": "/srv/images", "kind": "host", "host": "kvm1"}],
    ["kvm1"],
)
SHA, OTHER = "ab" * 32, "cd" * 32
ENTRY = {"name": "web", "path": "/tmp/web.qcow2", "checksum": "sha256:" + SHA, "disk_format": "qcow2"}
DONE = Uploaded(9, SHA)


def begin(world: World, *entries: t.Mapping[str, t.Any], run: str = "a", **digests: str) -> ImportsBegun:
    with world.ledger.write() as tx:
        wanted = read_imports(list(entries) or [ENTRY], STORES)
        return imports.begin(tx.for_run(world.context(run)), wanted, "default", ["cache_in_nova"], digests)


def work(
    world: World, host: str = "localhost", run: str = "a", removals: t.Any = None, **uploads: t.Any
) -> list[t.Any]:
    """The works of a host's stores. :arg uploads: name -> outcome; by default all arrive"""
    with world.ledger.write() as tx:
        works = store_work.begin(tx.for_run(world.context(run)), host, STORES)
    for each in works:
        arrived = {image.id: uploads.get(image.name, DONE) for image in each.uploads}
        gone = dict.fromkeys(each.removals, removals)
        with world.ledger.write() as tx:
            unknown = [i for i, outcome in arrived.items() if isinstance(outcome, errors.HostUnreachable)]
            store_work.finish(tx.for_run(world.context(run)), each.store, arrived, gone, unknown)
    return works


def finish(world: World, function: t.Any = imports.finish, run: str = "a") -> tuple[list[t.Any], list[t.Any]]:
    with world.ledger.write() as tx:
        done: tuple[list[t.Any], list[t.Any]] = function(tx.for_run(world.context(run)))
        return done


def imported(world: World, *entries: t.Mapping[str, t.Any], run: str = "a", host: str = "localhost") -> list[str]:
    begun = begin(world, *entries, run=run)
    work(world, host, run)
    assert len(finish(world, run=run)[0]) == len(begun.created)
    return begun.created


def delete(world: World, *words: str, run: str = "d", project: str | None = None, **more: t.Any) -> t.Any:
    with world.ledger.write() as tx:
        of_run = tx.for_run(world.context(run))
        return deletion.begin(of_run, words, project, more.get("missing_ok", False), STORES)


def refused(caught: pytest.ExceptionInfo[errors.InvalidRequest]) -> list[str]:
    return [error["code"] for error in caught.value.errors]


def views(world: World) -> list[dict[str, t.Any]]:
    return world.ledger.inspect(image_views.image_views, None, None, None)


# --- import ---------------------------------------------------------------------------------------------------------------


def test_the_record_is_there_before_the_bytes(world: World) -> None:
    begun = begin(world, {**ENTRY, "properties": {"os_distro": "debian"}, "min_disk": 3, "visibility": "public"})
    (view,) = views(world)
    assert begun.hosts == ["localhost"] and begun.created == [view["id"]]
    assert (view["status"], view["places"], view["size"]) == ("saving", {"here": "begun"}, None)
    (of_store,) = work(world)
    assert (of_store.store.name, [i.name for i in of_store.uploads], of_store.removals) == ("here", ["web"], [])
    active, killed = finish(world)
    assert killed == [] and active == views(world)
    (view,) = active
    assert (view["status"], view["stores"], view["size"], view["checksum"]) == ("active", ["here"], 9, SHA)
    assert (view["min_disk"], view["visibility"], view["properties"]) == (3, "public", {"os_distro": "debian"})
    assert finish(world) == (active, []) and work(world) == []


def test_the_second_import_changes_nothing(world: World) -> None:
    ids = imported(world)
    before = world.rows(image_tables.images)
    begun = begin(world, run="b")
    assert (begun.created, begun.unchanged, begun.changes, begun.hosts) == ([], ids, [], [])
    assert world.rows(image_tables.images) == before


def test_fields_that_differ_are_changed_in_place(world: World) -> None:
    (image_id,) = imported(world)
    begun = begin(world, {**ENTRY, "protected": True, "min_ram": 64}, run="b")
    assert [(c["id"], c["field"], c["from"], c["to"]) for c in begun.changes] == [
        (image_id, "protected", False, True),
        (image_id, "min_ram", 0, 64),
    ]
    assert begun.created == begun.unchanged == []
    assert begin(world, {**ENTRY, "protected": True, "min_ram": 64}, run="b").unchanged == [image_id]


@pytest.mark.parametrize(
    ("fields", "digest", "words"),
    [
        ({"checksum": "sha256:" + OTHER}, "", OTHER),
        ({"checksum": "sha512:" + "0" * 128}, "", "sha512"),
        ({"disk_format": "raw"}, "", "format qcow2"),
        ({"checksum": "", "allow_unverified": True}, OTHER, OTHER),
    ],
)
def test_other_content_under_the_name_is_refused(world: World, fields: t.Any, digest: str, words: str) -> None:
    imported(world)
    with pytest.raises(errors.InvalidRequest) as caught:
        begin(world, {**ENTRY, **fields}, {**ENTRY, "name": "new"}, run="b", **({"web": digest} if digest else {}))
    assert refused(caught) == ["ImageExists"] and words in caught.value.errors[0]["message"]
    assert len(views(world)) == 1


def test_without_a_checksum_the_file_of_the_controller_tells(world: World) -> None:
    imported(world)
    entry = {**ENTRY, "checksum": "", "allow_unverified": True}
    assert len(begin(world, entry, run="b", web=SHA).unchanged) == 1
    elsewhere = {**entry, "path": "", "url": "http://images.example/web"}
    assert len(begin(world, elsewhere, run="b").unchanged) == 1


def test_a_failed_upload_is_killed_with_its_reason_and_the_next_one_takes_its_place(world: World) -> None:
    (first,) = begin(world).created
    work(world, web=errors.DiskFull(host="h", path="/srv", reason="full"))
    active, (killed,) = finish(world)
    assert active == [] and (killed["id"], killed["status"], killed["places"]) == (first, "killed", {})
    assert "full" in killed["fault"]
    (second,) = imported(world, run="b")
    assert second != first and [(v["id"], v["status"]) for v in views(world)] == [(second, "active")]


def test_a_host_that_does_not_answer_may_have_a_part_which_is_removed_later(world: World) -> None:
    (image_id,) = begin(world, {**ENTRY, "store": "far"}).created
    work(world, "kvm1", web=errors.HostUnreachable(host="kvm1", reason="no route"))
    _active, (killed,) = finish(world)
    assert killed["places"] == {"far": "ending"}
    (of_store,) = work(world, "kvm1", run="b")
    assert of_store.removals == [image_id] and views(world)[0]["places"] == {}


def test_a_host_without_a_task_is_one_that_does_not_answer(world: World) -> None:
    begin(world, {**ENTRY, "store": "far"})
    _active, (killed,) = finish(world)
    assert (killed["status"], killed["places"]) == ("killed", {"far": "ending"}) and killed["fault"]


def test_two_runs_never_write_the_same_image(world: World) -> None:
    (first,) = begin(world).created
    with pytest.raises(errors.InvalidRequest) as caught:
        begin(world, run="b")
    assert refused(caught) == ["ImageInUse"] and "run-a" in caught.value.errors[0]["message"]
    with pytest.raises(errors.InvalidRequest) as caught:
        delete(world, "web")
    assert refused(caught) == ["ImageInUse"]
    world.time += 10_000  # the lease is over
    (second,) = begin(world, run="b").created
    assert second != first
    (of_store,) = work(world, run="b")
    assert of_store.removals == [first] and [i.id for i in of_store.uploads] == [second]
    # The late worker of the dead run loses.
    with world.ledger.write() as tx:
        store_work.finish(tx.for_run(world.context("a")), STORES.get("here"), {first: DONE}, {})
    assert [(v["id"], v["status"]) for v in views(world)] == [(second, "active")]


def test_an_image_of_an_instance(world: World) -> None:
    world.report("h1")
    uuid = world.boot("guest")
    for run, word in (("x", "guest"), ("y", uuid.upper())):
        entry = {**ENTRY, "name": word, "instance": word, "properties": {"os_distro": "mine"}}
        (image_id,) = imported(world, entry, run=run)
        view = world.ledger.inspect(image_views.image_view, image_id, None)
        assert view["properties"] == {
            "base_image_ref": IMAGE.id,
            "instance_uuid": uuid,
            "user_id": "ann",
            "image_type": "snapshot",
            "os_distro": "mine",
        }
        assert (view["instance_uuid"], view["min_disk"], view["min_ram"]) == (uuid, 1, 0)
    world.delete(uuids=[uuid])
    world.removed("h1", [uuid])
    world.finish()
    entry = {**ENTRY, "name": "guest", "instance": "guest"}
    assert len(begin(world, entry, run="b").unchanged) == 1  # what it has inherited stays
    with pytest.raises(errors.InvalidRequest) as caught:
        begin(world, {**entry, "name": "another"}, run="b")
    assert refused(caught) == ["InvalidInput"] and "guest" in caught.value.errors[0]["message"]


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"checksum": ""}, "checksum is missing"),
        ({"url": "http://images.example/x"}, "path is given, and url too"),
        ({"store": "nfs"}, "Image store nfs could not be found"),
        ({"visibility": "shared"}, "visibility must be one of private, public, community"),
        ({"id": "x"}, "id is the ledger's to give"),
        ({"status": "active"}, "status follows from the bytes"),
        ({"color": "red"}, "Unknown field 'color'"),
    ],
)
def test_entries_that_do_not_fit(fields: dict[str, t.Any], words: str) -> None:
    with pytest.raises(errors.InvalidRequest) as caught:
        read_imports([{**ENTRY, **fields}], STORES)
    (error,) = caught.value.errors
    assert words in error["message"] and error["path"].startswith("image_imports[web]")


def test_an_import_needs_a_store_and_names_each_image_once() -> None:
    with pytest.raises(errors.InvalidRequest) as caught:
        read_imports([ENTRY], read_stores(None, []))
    assert "bootflow_image_stores" in caught.value.errors[0]["remedy"]
    with pytest.raises(errors.InvalidRequest, match="used twice"):
        read_imports([ENTRY, ENTRY], STORES)


# --- delete ---------------------------------------------------------------------------------------------------------------


def test_a_deleted_image_is_gone_at_once_and_its_file_when_the_host_says_so(world: World) -> None:
    (image_id,) = imported(world, {**ENTRY, "store": "far"}, host="kvm1")
    deleting = delete(world, "web")
    assert ([i.id for i in deleting.deleted], deleting.hosts, views(world)) == ([image_id], ["kvm1"], [])
    work(world, "kvm1", "d", removals=errors.HostUnreachable(host="kvm1", reason="no route"))
    assert finish(world, deletion.finish, "d") == ([], [{"id": image_id, "name": "web", "stores": ["far"]}])
    again = delete(world, "web", run="e")
    assert ([i.id for i in again.pending], again.deleted, again.hosts) == ([image_id], [], ["kvm1"])
    work(world, "kvm1", "e")
    assert finish(world, deletion.finish, "e") == ([{"id": image_id, "name": "web", "stores": []}], [])
    with pytest.raises(errors.InvalidRequest) as caught:
        delete(world, "web", run="f")
    assert refused(caught) == ["LedgerImageNotFound"] and caught.value.status == 404
    assert delete(world, "web", run="f", missing_ok=True).not_found == ["web"]


def test_what_is_refused_is_refused_as_a_whole(world: World) -> None:
    imported(world, {**ENTRY, "protected": True, "visibility": "public"}, {**ENTRY, "name": "other"})
    with pytest.raises(errors.InvalidRequest) as caught:
        delete(world, "web", "other", "third")
    assert refused(caught) == ["ImageProtected", "LedgerImageNotFound"] and len(views(world)) == 2
    begin(world, {**ENTRY, "visibility": "public"}, run="b")
    with pytest.raises(errors.InvalidRequest) as caught:
        delete(world, "web", project="blue")
    assert refused(caught) == ["ImageOfOtherProject"] and caught.value.status == 403
    with pytest.raises(errors.InvalidRequest) as caught:
        delete(world, "other", project="blue")
    assert refused(caught) == ["LedgerImageNotFound"]
    assert len(delete(world, "web", "web").deleted) == 1


def test_an_image_from_which_something_is_being_made_is_kept(world: World) -> None:
    (image_id,) = imported(world)
    world.report("h1")
    uuid = world.boot("guest", "spawning", image=IMAGE.__class__(**{**vars(IMAGE), "id": image_id}))
    with pytest.raises(errors.InvalidRequest) as caught:
        delete(world, "web")
    assert refused(caught) == ["ImageInUse"] and "instance guest is being built" in caught.value.errors[0]["message"]
    world.spawned("h1", [uuid])
    assert world.state(uuid)[0] == "active"
    assert len(delete(world, "web").deleted) == 1


def test_a_file_in_a_store_that_the_inventory_does_not_have_is_not_forgotten(world: World) -> None:
    imported(world)
    with world.ledger.write() as tx, pytest.raises(errors.InvalidRequest) as caught:
        deletion.begin(tx.for_run(world.context()), ["web"], None, False, read_stores(None, []))
    assert refused(caught) == ["ImageStoreNotFound"] and views(world)[0]["status"] == life.ACTIVE
    assert "under the name that it had" in caught.value.errors[0]["remedy"]


def test_an_image_that_is_deleted_while_its_bytes_arrive_stays_deleted(world: World) -> None:
    (image_id,) = begin(world).created
    with world.ledger.write() as tx:
        of_run = tx.for_run(world.context("a"))
        works = store_work.begin(of_run, "localhost", STORES)
        images.apply(of_run, image_id, life.DELETE)
    with world.ledger.write() as tx:
        store_work.finish(tx.for_run(world.context()), works[0].store, {image_id: DONE}, {})
    assert views(world) == [] and [p.image_id for p in world.ledger.inspect(images.to_remove)] == [image_id]
