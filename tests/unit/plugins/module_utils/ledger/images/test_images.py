# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Rows of images: what is written, by whom, and what a reader sees."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.core.images import life
from ansible_collections.bootflow.compute.plugins.module_utils.core.images.image import StoredImage
from ansible_collections.bootflow.compute.plugins.module_utils.ledger import purge
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.images import image_views, images
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.schema import image_tables
from ansible_collections.bootflow.compute.tests.unit.worlds.world import World

DAY = 86400.0
SHA = "ab" * 32


def ident(number: int) -> str:
    return "%08d-0000-4000-8000-00000000000a" % number


def make(world: World, number: int = 1, **fields: t.Any) -> str:
    image = StoredImage(id=ident(number), **{"name": "web", "project": "red", "disk_format": "raw", **fields})
    with world.ledger.write() as tx:
        images.create(tx.for_run(world.context()), [image])
    return image.id


def happens(world: World, image_id: str, event: life.Event, run: str = "a", **values: t.Any) -> None:
    with world.ledger.write() as tx:
        images.apply(tx.for_run(world.context(run)), image_id, event, **values)


def upload(world: World, image_id: str, store: str = "here") -> None:
    happens(world, image_id, life.UPLOAD_BEGUN, store=store)
    happens(world, image_id, life.UPLOADED, size=5, checksum=SHA)


def read(world: World, function: t.Callable[..., t.Any], *arguments: t.Any, **more: t.Any) -> t.Any:
    return world.ledger.inspect(function, *arguments, **more)


def test_from_the_record_to_the_bytes_to_nothing(world: World) -> None:
    image_id = make(world, properties={"os_distro": "debian"}, instance_uuid=ident(9))
    (row,) = read(world, images.select)
    assert (row.status, row.size, row.user_name, row.run_id) == ("queued", None, "ann", None)
    happens(world, image_id, life.UPLOAD_BEGUN, store="here")
    (row,) = read(world, images.select, run_id="run-a")
    assert row.status == "saving" and [p.progress for p in read(world, images.places, [image_id])[image_id]] == [
        "begun"
    ]
    happens(world, image_id, life.UPLOADED, size=5, checksum=SHA)
    view = read(world, image_views.image_view, "web", "red")
    assert (view["status"], view["size"], view["checksum"], view["stores"]) == ("active", 5, SHA, ["here"])
    assert view["properties"] == {"os_distro": "debian"} and view["instance_uuid"] == ident(9)
    happens(world, image_id, life.DELETE, run="b")
    assert read(world, images.select) == [] and read(world, image_views.image_views, None, None, None) == []
    assert [(p.image_id, p.store) for p in read(world, images.to_remove)] == [(image_id, "here")]
    assert read(world, images.to_remove, ["other"]) == []
    happens(world, image_id, life.PLACE_REMOVED)
    assert read(world, images.to_remove) == []
    (row,) = read(world, images.select, with_deleted=True)
    assert (row.status, row.deleted, row.deleted_at, row.run_id) == ("deleted", image_id, world.time, "run-b")


def test_an_event_that_the_state_does_not_admit_writes_nothing(world: World) -> None:
    image_id = make(world)
    before = world.ledger.inspect(images.select, with_deleted=True)
    with pytest.raises(errors.ImageStatusConflict, match="queued"):
        happens(world, image_id, life.UPLOADED, size=1, checksum=SHA)
    with pytest.raises(errors.ImageStatusConflict, match="not there"):
        happens(world, ident(7), life.DELETE)
    with pytest.raises(TypeError, match="needs checksum, size"):
        happens(world, image_id, life.UPLOADED)
    assert world.ledger.inspect(images.select, with_deleted=True) == before


def test_a_failed_upload_is_told_with_its_reason_and_its_part_is_to_be_removed(world: World) -> None:
    image_id = make(world)
    happens(world, image_id, life.UPLOAD_BEGUN, store="here")
    happens(world, image_id, life.UPLOAD_FAILED, fault="no room")
    view = read(world, image_views.image_view, "web", None)
    assert (view["status"], view["fault"], view["stores"], view["places"]) == (
        "killed",
        "no room",
        [],
        {"here": "ending"},
    )
    happens(world, image_id, life.PLACE_REMOVED)
    assert read(world, image_views.image_view, "web", None)["places"] == {}


def test_who_sees_what(world: World) -> None:
    private, public, community = (
        make(world),
        make(world, 2, visibility="public"),
        make(world, 3, visibility="community"),
    )

    def seen(project: str | None, ids: t.Any = None, names: t.Any = None) -> list[str]:
        return [v["id"] for v in read(world, image_views.image_views, ids, names, project)]

    assert seen("red") == seen(None) == [private, public, community]
    assert seen("blue") == seen("blue", names=["web"]) == [public]
    assert seen("blue", ids=[private, public, community.upper()]) == [public, community]
    assert seen("red", names=["other"]) == seen("red", ids=[]) == []


def test_a_name_of_two_is_ambiguous_unless_one_has_no_bytes(world: World) -> None:
    one, two = make(world), make(world, 2)
    with pytest.raises(errors.ImageAmbiguous) as caught:
        read(world, image_views.image_view, "web", "red")
    assert one in caught.value.message and two in caught.value.message
    assert read(world, image_views.image_view, two, "red")["id"] == two
    happens(world, one, life.UPLOAD_FAILED, fault="x")
    assert read(world, image_views.image_view, "web", "red")["id"] == two
    for word, project in (("wep", "red"), ("web", "blue"), (two, "blue")):
        with pytest.raises(errors.LedgerImageNotFound) as gone:
            read(world, image_views.image_view, word, project)
        assert gone.value.status == 404


def test_only_deleted_images_without_a_file_are_purged(world: World) -> None:
    gone, left, living = make(world), make(world, 2), make(world, 3)
    for image_id in (gone, left, living):
        upload(world, image_id)
    for image_id in (gone, left):
        happens(world, image_id, life.DELETE)
    happens(world, gone, life.PLACE_REMOVED)
    world.time += 10 * DAY
    late = make(world, 4)
    happens(world, late, life.DELETE)
    limit = world.time - 5 * DAY
    planned = world.ledger.inspect(purge.plan, limit)
    assert planned["images"] == 1
    assert purge.purge(world.ledger, limit)["images"] == 1
    with world.ledger.read() as tx:
        ids = {r.id for r in tx.execute(image_tables.images.select())}
    assert ids == {left, living, late}


def test_an_image_outlives_its_instance(world: World) -> None:
    world.report("h1")
    uuid = world.boot("guest")
    image_id = make(world, instance_uuid=uuid)
    world.delete(uuids=[uuid])
    world.removed("h1", [uuid])
    world.time += 10 * DAY
    purge.purge(world.ledger, world.time)
    assert [r.id for r in read(world, images.select)] == [image_id]


def test_what_is_made_of_an_image_is_checked_with_it(world: World) -> None:
    one, two = make(world), make(world, 2)
    upload(world, one)
    with world.ledger.write() as tx:
        images.check_active(tx, [])
        images.check_active(tx, [one, one])
        with pytest.raises(errors.ImageNotActive, match=two):
            images.check_active(tx, [one, two])
    happens(world, one, life.DELETE)
    with world.ledger.write() as tx, pytest.raises(errors.ImageNotActive, match=one):
        images.check_active(tx, [one])
