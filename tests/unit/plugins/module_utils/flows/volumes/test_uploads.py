# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Images of volumes in the ledger: the record before the bytes, the volume's status and what dead runs leave."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.core.images.snapshots import LEFT
from ansible_collections.bootflow.compute.plugins.module_utils.core.images.stores.registry import read_stores
from ansible_collections.bootflow.compute.plugins.module_utils.core.images.volume_images import read_uploads
from ansible_collections.bootflow.compute.plugins.module_utils.flows.volumes import uploads
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.schema import image_tables, volume_tables
from ansible_collections.bootflow.compute.tests.unit.worlds.boot_world import BootWorld, device, volume_request
from ansible_collections.bootflow.compute.tests.unit.worlds.volume_world import VolumeWorld
from ansible_collections.bootflow.compute.tests.unit.worlds.world import IMAGE

from ..instances.test_attach import attach
from ..recovery.test_audit import Auditor

STORES = read_stores([{"name": "nfs", "path": "/net/images", "kind": "shared"}, {"name": "here", "path": "/x"}], [])
DONE = {"size": 5, "checksum": "ab" * 32, "disk_format": "raw"}
FULL = errors.DiskFull(host="s1", path="/net/images", reason="full")


@pytest.fixture
def vw(vworld: VolumeWorld) -> VolumeWorld:
    vworld.store("s1", lvm=100)
    vworld.make("v", 10)
    return vworld


def begin(vw: VolumeWorld, *entries: t.Any, run: str = "u", force: bool = False) -> uploads.UploadsBegun:
    given = [{"name": "image", "volume": "v", **e} for e in entries or ({},)]
    with vw.ledger.write() as tx:
        return uploads.begin(tx.for_run(vw.context(run)), read_uploads(given, STORES), "default", force)


def finish(
    vw: VolumeWorld, begun: uploads.UploadsBegun, run: str = "u", failed_by: t.Any = None, **answer: t.Any
) -> dict[str, t.Any]:
    ids: dict[str, dict[str, str]] = {}
    for upload in begun.made:
        ids.setdefault(upload.entry.store.name, {})[upload.row.id] = upload.image.id
    of_volumes = {volume_id: {**DONE, **answer} for of_store in ids.values() for volume_id in of_store}
    failed = dict.fromkeys(of_volumes, failed_by) if failed_by else {}
    with vw.ledger.write() as tx:
        return uploads.finish(tx.for_run(vw.context(run)), ids, of_volumes, failed)


def refused(vw: VolumeWorld, *entries: t.Any, **how: t.Any) -> list[str]:
    before = vw.everything()
    with pytest.raises(errors.InvalidRequest) as error:
        begin(vw, *entries, **how)
    assert vw.everything() == before
    return ["%s %s" % (e["path"], e["code"]) for e in error.value.errors]


def living(vw: VolumeWorld) -> list[tuple[str, str]]:
    """Name and status of the images that are not deleted."""
    rows = vw.rows(image_tables.images, image_tables.images.c.deleted == "")
    return sorted((r.name, r.status) for r in rows)


def places(vw: VolumeWorld) -> list[tuple[str, str]]:
    return [(r.store, r.progress) for r in vw.rows(image_tables.image_places)]


def set_columns(vw: VolumeWorld, **values: t.Any) -> None:
    with vw.ledger.write() as tx:
        tx.execute(volume_tables.volumes.update().values(**values))


def test_an_image_is_made(vw: VolumeWorld) -> None:
    set_columns(vw, image_metadata={"os_distro": "debian", "image_id": "x", "img_signature": "s"})
    begun = begin(vw, {"visibility": "public"})
    (upload,) = begun.made
    row = vw.volume("v")
    assert (row.status, row.previous_status, row.run_id) == ("uploading", "available", "run-u")
    assert (upload.host, upload.row.id) == ("s1", row.id) and living(vw) == [("image", "saving")]
    assert places(vw) == [("nfs", "begun")]
    assert finish(vw, begun) == {}
    row = vw.volume("v")
    assert (row.status, row.previous_status, row.run_id, row.attach_status) == ("available", None, None, "detached")
    (image,) = vw.rows(image_tables.images)
    assert (image.status, image.size, image.checksum, image.disk_format) == ("active", 5, "ab" * 32, "raw")
    assert (image.min_disk, image.min_ram, image.visibility, image.project) == (10, 0, "public", "default")
    assert image.properties == {"os_distro": "debian", "volume_id": row.id} and places(vw) == [("nfs", "done")]
    assert vw.events(row.id)[-1] == ("upload", "s1", "Success")


def test_it_is_made_once(vw: VolumeWorld) -> None:
    finish(vw, begin(vw))
    again = begin(vw, run="w")
    assert again.made == [] and [u.image.name for u in again.unchanged] == ["image"]
    assert vw.status("v") == "available"
    vw.make("w", 1, run="x")
    assert refused(vw, {"volume": "w"}, run="w") == ["volume_uploads[image] ImageExists"]
    assert refused(vw, {"disk_format": "qcow2"}, run="w") == ["volume_uploads[image] ImageExists"]
    assert len(begin(vw, {"name": "other"}, run="w").made) == 1


def test_what_is_refused(vw: VolumeWorld) -> None:
    assert refused(vw, {"volume": "none"}) == ["volume_uploads[image] VolumeNotFound"]
    both = [{"name": "a"}, {"name": "b", "volume": vw.volume("v").id}]
    assert refused(vw, *both) == ["volume_uploads[b] InvalidInput"], "one volume by two words"
    set_columns(vw, status="in-use", attach_status="attached")
    assert refused(vw) == ["volume_uploads[image] InvalidVolume"]
    assert refused(vw, {"force": True}) == ["volume_uploads[image] InvalidVolume"]
    assert refused(vw, force=True) == ["volume_uploads[image] InvalidVolume"]
    set_columns(vw, status="available", attach_status="detached", image_metadata={"cinder_encryption_key_id": "k"})
    assert refused(vw) == ["volume_uploads[image] NotSupportedYet"]


def test_nothing_else_is_done_with_the_volume_meanwhile(vw: VolumeWorld) -> None:
    begin(vw)
    assert refused(vw, {"name": "other"}, run="w") == ["volume_uploads[other] VolumeLocked"]
    assert refused(vw, run="w") == ["volume_uploads[image] ImageInUse"]
    for work in (
        lambda: vw.extend("v", 20, run="w"),
        lambda: vw.snapshot({"name": "s", "volume": "v", "force": True}, run="w"),
    ):
        with pytest.raises(errors.InvalidRequest) as error:
            work()
        assert [e["code"] for e in error.value.errors] == ["VolumeLocked"]
    for force in (False, True):
        with pytest.raises(errors.VolumeLocked):
            vw.remove("v", run="w", force=force)
    assert vw.status("v") == "uploading"


@pytest.mark.parametrize("known", [False, True])
def test_a_failure_deletes_the_image_and_gives_the_status_back(vw: VolumeWorld, known: bool) -> None:
    """:arg known: the host has said that nothing is left"""
    begun = begin(vw)
    answer = {"error": FULL.as_dict(), **({LEFT: False} if known else {})}
    (error,) = list(finish(vw, begun, failed_by=FULL, **answer).values())
    assert error is FULL and living(vw) == [] and vw.status("v") == "available"
    assert places(vw) == ([] if known else [("nfs", "ending")])
    row = vw.volume("v")
    assert vw.events(row.id)[-1] == ("upload", "s1", "Error") and [
        r.error_code for r in vw.rows(volume_tables.volume_faults)
    ] == ["DiskFull"]
    assert finish(vw, begin(vw, run="w"), run="w") == {} and living(vw) == [("image", "active")]


@pytest.mark.parametrize("work", ["upload", "extend", "snapshot", "delete", "create"])
def test_the_next_work_ends_what_a_dead_run_has_left(vw: VolumeWorld, work: str) -> None:
    first = begin(vw, run="dead")
    vw.time += 601
    if work == "upload":
        assert len(begin(vw, run="p").made) == 1
        assert living(vw) == [("image", "saving")] and vw.volume("v").run_id == "run-p"
    elif work == "extend":
        assert vw.extend("v", 20, run="p").rows
    elif work == "snapshot":
        assert vw.snapshot({"name": "s", "volume": "v"}, run="p").created
    elif work == "delete":
        assert vw.remove("v", run="p").rows
    else:
        vw.request({"name": "w", "size": 1}, run="p")
        assert vw.status("v") == "available"
    if work != "upload":
        assert living(vw) == []
    assert ("nfs", "ending") in places(vw)
    before = vw.status("v"), living(vw)
    (late,) = list(finish(vw, first, run="dead").values())
    assert isinstance(late, errors.ImageNotActive) and (vw.status("v"), living(vw)) == before, "it came late"
    with vw.ledger.write() as tx:
        assert list(uploads.find_lost(tx.for_run(vw.context("dead")), [first.made[0].row.id])) == [first.made[0].row.id]


def test_the_work_of_a_live_run_stays(vw: VolumeWorld) -> None:
    begun = begin(vw)
    vw.request({"name": "w", "size": 1}, run="p")
    assert vw.status("v") == "uploading" and living(vw) == [("image", "saving")]
    with vw.ledger.write() as tx:
        assert uploads.find_lost(tx.for_run(vw.context("u")), [begun.made[0].row.id]) == {}


def test_the_audit_ends_what_a_dead_run_has_left(bworld: BootWorld) -> None:
    bworld.store()
    bworld.make("v", size=2)
    begin(bworld, run="dead")
    auditor = Auditor(bworld)
    assert auditor.all() == [] and bworld.status("v") == "uploading", "the run lives"
    bworld.time += 601
    (found,) = auditor.all()
    assert (found.kind, found.host, found.what, found.old, found.new) == (
        "volume",
        "s1",
        "volume v",
        "uploading",
        "available",
    )
    assert bworld.status("v") == "available" and living(bworld) == [] and auditor.all() == []


@pytest.fixture
def pair(bworld: BootWorld) -> BootWorld:
    """An instance "web" that runs and has the volume "v"."""
    bworld.report("h1", memory=9)
    bworld.store()
    bworld.make("v", size=2)
    bworld.boot_of(volume_request("web", image=IMAGE))
    attach(bworld, {"instance": "web", "volume": "v", "delete_on_termination": True})
    assert bworld.status("v") == "in-use"
    return bworld


def test_a_volume_in_use_is_in_use_afterwards(pair: BootWorld) -> None:
    begun = begin(pair, {"force": True}, force=True)
    assert (pair.status("v"), pair.volume("v").previous_status) == ("uploading", "in-use")
    assert finish(pair, begun) == {} and pair.status("v") == "in-use"
    assert pair.volume("v").attach_status == "attached"


def test_an_instance_that_is_deleted_meanwhile_leaves_the_volume(pair: BootWorld) -> None:
    begun = begin(pair, {"force": True}, force=True)
    uuid = pair.attachment("v").instance_uuid
    pair.delete_all(uuid)
    row = pair.volume("v")
    assert (row.status, row.attach_status, row.deleted) == ("uploading", "detached", ""), "as in Nova, it stays"
    assert finish(pair, begun) == {} and pair.status("v") == "available"


@pytest.mark.parametrize("work", ["attach", "boot"])
def test_a_volume_that_a_dead_run_has_left_is_given_to_an_instance(pair: BootWorld, work: str) -> None:
    pair.make("w", size=1)
    begin(pair, {"volume": "w"}, run="dead")
    pair.time += 601
    pair.report("h1", memory=9)
    pair.reported("s1")
    if work == "attach":
        attach(pair, {"instance": "web", "volume": "w"}, run="p")
    else:
        pair.boot_of(volume_request("db", device("volume", "w"), image=IMAGE), run="p")
    assert pair.status("w") == "in-use" and living(pair) == []


def test_a_live_run_keeps_the_volume_from_boots(pair: BootWorld) -> None:
    pair.make("w", size=1)
    begin(pair, {"volume": "w"})
    with pytest.raises(errors.InvalidRequest):
        pair.boot_of(volume_request("db", device("volume", "w"), image=IMAGE), run="p")
    assert pair.status("w") == "uploading"
