# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.core.volumes.model import VolumeRequest
from ansible_collections.bootflow.compute.plugins.module_utils.core.volumes.quotas import DEFAULTS
from ansible_collections.bootflow.compute.plugins.module_utils.flows.attachments import life
from ansible_collections.bootflow.compute.plugins.module_utils.flows.volumes import accept
from ansible_collections.bootflow.compute.plugins.module_utils.flows.volumes import work as volume_work
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.schema import volume_tables
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.storage import deletions
from ansible_collections.bootflow.compute.tests.unit.worlds.volume_world import GIB, REBUILT, VolumeWorld
from ansible_collections.bootflow.compute.tests.unit.worlds.world import IMAGE

PLACE = "s1@lvm#lvm"
BROKEN = errors.VolumeBackendAPIException(data="lvcreate failed")


@pytest.fixture
def vw(vworld: VolumeWorld) -> VolumeWorld:
    vworld.store("s1", lvm=100)
    return vworld


def placed(vw: VolumeWorld, name: str = "v", run: str = "a", **fields: t.Any) -> str:
    (volume_id,) = vw.request({"name": name, "size": 10, **fields}, run=run).created
    assert volume_id in vw.choose(run).placed
    return volume_id


def hosts(vw: VolumeWorld, run: str = "a") -> list[str]:
    with vw.ledger.read() as tx:
        return volume_work.hosts_with_work(tx.for_run(vw.context(run)))


def test_what_the_host_is_told(vw: VolumeWorld) -> None:
    empty, image = placed(vw, "empty"), placed(vw, "image", image="cirros")
    (work,) = vw.work_of()
    assert (work.backend, work.pool_host, work.configuration["provisioning"]) == ("lvm", PLACE, "thick")
    assert sorted(work.volumes, key=len) == [
        {"id": empty, "kind": "volume", "project": "default", "state": "present", "size_gb": 10},
        {
            "id": image,
            "kind": "volume",
            "project": "default",
            "state": "present",
            "size_gb": 10,
            "image_id": IMAGE.id,
        },
    ]
    assert [(i["id"], i["checksum"], i["disk_format"]) for i in work.images] == [(IMAGE.id, IMAGE.checksum, "qcow2")]
    assert "image-secret" not in str(work)
    assert [vw.status("empty"), vw.status("image")] == ["creating", "downloading"]
    assert vw.events(image)[-1] == ("create", "s1", None) and vw.notified(image) == ["volume.create.start"]
    assert vw.worked("s1", {"lvm": vw.storage["s1"].do(work)}).done == sorted([empty, image])
    assert [vw.status("empty"), vw.status("image")] == ["available", "available"]
    assert vw.events(image)[-1] == ("create", "s1", "Success")
    assert vw.notified(image) == ["volume.create.start", "volume.create.end"]
    assert hosts(vw) == [] and vw.work_of() == []


def test_what_a_made_volume_is(vw: VolumeWorld) -> None:
    vw.images["cirros"] = REBUILT
    vw.make("v", 10, image="cirros")
    row = vw.volume("v")
    assert (row.made, row.pending_gb, row.bootable, row.launched_at, row.run_id) == (True, 0, True, vw.time, None)
    assert row.image_metadata == {
        "hw_disk_bus": "scsi",
        "image_id": IMAGE.id,
        "image_name": "cirros",
        "checksum": "1" * 64,
        "container_format": "bare",
        "disk_format": "qcow2",
        "min_disk": 1,
        "min_ram": 0,
        "size": None,
    }
    vw.make("empty", 10)
    assert not vw.volume("empty").bootable and vw.volume("empty").image_metadata == {}
    assert vw.pools()[PLACE].free_capacity_gb == 80


def test_clones_name_their_sources(vw: VolumeWorld) -> None:
    source = vw.make("source", 10)
    vw.snapshot({"name": "snap", "volume": "source"})
    vw.work()
    placed(vw, "clone", source_volid="source", size=None)
    placed(vw, "restored", snapshot_id="snap", size=12)
    (work,) = vw.work_of()
    wishes = {w["id"]: w for w in work.volumes}
    assert wishes[vw.volume("clone").id]["source_volume"] == source
    restored = wishes[vw.volume("restored").id]
    assert restored["source_snapshot"] == vw.volume("restored").snapshot_id and restored["size_gb"] == 12


# --- failures --------------------------------------------------------------------------------------------------------------


def test_one_that_failed_goes_to_another_backend(vw: VolumeWorld) -> None:
    vw.store("s2", lvm=50)
    good, bad = placed(vw, "good"), placed(vw, "bad")
    finished = vw.work(bad=BROKEN)
    assert (finished.done, finished.rescheduled, finished.failed) == ([good], [bad], {})
    row = vw.volume("bad")
    assert (row.status, row.pool_host, row.pending_gb, row.run_id) == ("creating", None, 0, "run-a")
    assert row.retry["backends"] == [PLACE] and row.retry["exc_reason"] == BROKEN.message
    assert vw.events(bad)[-1] == ("create", "s1", "Error")
    assert vw.shown("bad")["tried"] == [{"host": "s1", "code": BROKEN.code, "message": BROKEN.message}]
    assert vw.shown("bad")["fault"] is None
    assert vw.pending_cleanups() == set()  # the host was sure that nothing is left
    assert vw.choose().placed[bad].host == "s2@lvm#lvm"
    assert vw.work("s2").done == [bad]
    assert [a["host"] for a in vw.shown("bad")["tried"]] == ["s1"] and vw.shown("bad")["fault"] is None


@pytest.mark.parametrize(
    "error",
    [
        errors.ImageUnacceptable(image_id="x", reason="backed by"),
        errors.ImageTooBig(image_id="x", reason="y"),
        errors.ImageCopyFailure(reason="x"),
        errors.VolumeNotFound(volume_id="x"),
        errors.SnapshotNotFound(snapshot_id="x"),
    ],
    ids=lambda e: e.code,
)
def test_what_is_not_rescheduled_ends_in_error_at_once(vw: VolumeWorld, error: errors.BootflowError) -> None:
    vw.store("s2", lvm=50)
    volume_id = placed(vw, image="cirros")
    finished = vw.work(v=error)
    assert {i: e.code for i, e in finished.failed.items()} == {volume_id: error.code}
    row = vw.volume("v")
    assert (row.status, row.pool_host, row.run_id, row.made) == ("error", PLACE, None, False)
    fault = vw.shown("v")["fault"]
    assert (fault["code"], fault["status"], fault["host"]) == (error.code, error.status, "s1")


def test_a_copy_that_failed_is_not_rescheduled_whatever_it_was(vw: VolumeWorld) -> None:
    volume_id = placed(vw, image="cirros")
    vw.work_of()
    outcome = {"changed": False, "copying": True, "error": BROKEN.as_dict()}
    result = volume_work.WorkResult({volume_id: outcome}, vw.storage["s1"].capacity())
    assert list(vw.worked("s1", {"lvm": result}).failed) == [volume_id]


def test_with_one_attempt_only_nothing_is_rescheduled(vw: VolumeWorld) -> None:
    vw.max_attempts = 1
    volume_id = placed(vw)
    assert list(vw.work(v=BROKEN).failed) == [volume_id]


def test_what_the_host_did_not_clean_is_removed_before_anything_else(vw: VolumeWorld) -> None:
    """changed: something of it may be left. It keeps its GB until the capacity that has it, and the next work removes it."""
    vw.store("s2", lvm=50)
    volume_id = placed(vw)
    vw.work_of()
    vw.storage["s1"].there["lvm"][volume_id] = 10
    result = volume_work.WorkResult(
        {volume_id: {"changed": True, "error": BROKEN.as_dict()}}, vw.storage["s1"].capacity()
    )
    assert vw.worked("s1", {"lvm": result}).rescheduled == [volume_id]
    assert vw.pending_cleanups() == {(PLACE, volume_id)}
    assert vw.pools()[PLACE].free_capacity_gb == 90  # as the report says, and not twice
    scheduled = vw.choose()
    assert scheduled.placed[volume_id].host == "s2@lvm#lvm"
    assert scheduled.hosts == ["s1", "s2"]  # s1 is to be rid of it
    assert vw.work("s1").done == [volume_id] and vw.work("s2").done == [volume_id]
    assert vw.pending_cleanups() == set() and vw.storage["s1"].there["lvm"] == {}
    assert vw.pools()[PLACE].free_capacity_gb == 100


@pytest.mark.parametrize("attempts", [3, 1])
def test_a_host_that_did_not_answer(vw: VolumeWorld, attempts: int) -> None:
    """It may have made it: the GB stay taken, and nothing is lost, whether there is another attempt or not."""
    vw.max_attempts = attempts
    volume_id = placed(vw)
    work = vw.work_of()
    vw.storage["s1"].do(work[0])  # it did, and nobody heard of it
    error = errors.HostUnreachable(host="s1", reason="no route")
    finished = vw.worked("s1", {"lvm": volume_work.WorkResult(error=error)})
    row = vw.volume("v")
    assert vw.pools()[PLACE].free_capacity_gb == 90
    if attempts > 1:
        assert finished.rescheduled == [volume_id] and row.pool_host is None
        assert vw.pending_cleanups() == {(PLACE, volume_id)}
        (refused,) = vw.choose().failed.values()
        assert "(not ready: " in refused.message
        assert hosts(vw) == []  # nobody waits for a silent host
        vw.reported("s1")
        assert hosts(vw, "later") == ["s1"]
        assert vw.work("s1", run="later").done == [volume_id]
        assert vw.storage["s1"].there["lvm"] == {} and vw.pending_cleanups() == set()
    else:
        assert list(finished.failed) == [volume_id] and (row.status, row.pool_host) == ("error", PLACE)
        vw.remove("v")
        assert vw.work(run="d").done == [volume_id]
        assert vw.storage["s1"].there["lvm"] == {}
    assert vw.pools()[PLACE].free_capacity_gb == 100


def test_a_host_that_did_not_answer_is_away_with_all_of_its_backends(vw: VolumeWorld) -> None:
    """The next attempt is for another host, not for the same one's second backend."""
    vw.store("s2", flash=300, plain=200)
    volume_id = placed(vw)
    (work,) = vw.work_of("s2")
    error = errors.HostUnreachable(host="s2", reason="no route")
    assert vw.worked("s2", {work.backend: volume_work.WorkResult(error=error)}).rescheduled == [volume_id]
    assert vw.choose().placed[volume_id].host == PLACE
    vw.reported("s2")
    busy = errors.VolumeBackendAPIException(data="one backend's own trouble")
    placed(vw, "w")
    (work,) = vw.work_of("s2")
    vw.worked("s2", {work.backend: volume_work.WorkResult(error=busy)})
    assert {r.pool_host: bool(r.error) for r in vw.rows(volume_tables.storage_backends)} == {
        PLACE: False,
        "s2@flash#flash": work.backend == "flash",
        "s2@plain#plain": work.backend == "plain",
    }


def test_a_cleanup_that_fails_stays_pending(vw: VolumeWorld) -> None:
    volume_id = placed(vw)
    vw.storage["s1"].do(vw.work_of()[0])
    vw.worked("s1", {"lvm": volume_work.WorkResult(error=errors.HostUnreachable(host="s1", reason="x"))})
    vw.reported("s1")
    busy = errors.VolumeIsBusy(message="it is in use")
    (work,) = vw.work_of(run="b")
    assert list(vw.worked("s1", {"lvm": vw.storage["s1"].do(work, {volume_id: busy})}, "b").failed) == [volume_id]
    assert vw.pending_cleanups() == {(PLACE, volume_id)}
    assert [r.reason for r in vw.rows(volume_tables.volume_cleanups)] == ["it is in use"]


def test_a_backend_of_which_nothing_was_said(vw: VolumeWorld) -> None:
    """Only the backends that have a result are written."""
    vw.store("s3", one=100, two=100)
    ids = [placed(vw, name) for name in "abc"]
    vw.work("s1")
    works = vw.work_of("s3")
    assert {w.backend for w in works} <= {"one", "two"}
    first = works[0]
    vw.worked("s3", {first.backend: vw.storage["s3"].do(first)})
    done = {w["id"] for w in first.volumes}
    for volume_id in ids:
        row = vw.volume(volume_id)
        assert (row.status == "available") == (volume_id in done or row.pool_host == PLACE)
    second = works[1]
    result = vw.storage["s3"].do(second)
    finished = vw.worked("s3", {second.backend: volume_work.WorkResult({"x": {"error": None}}, result.capacity)})
    assert sorted(finished.rescheduled) == sorted(w["id"] for w in second.volumes)  # it said nothing of them


# --- who comes too late ----------------------------------------------------------------------------------------------------


def test_a_volume_that_was_deleted_while_it_was_made(vw: VolumeWorld) -> None:
    """Force takes it from a live run. Whoever is first on the host, nothing of it stays."""
    volume_id = placed(vw, "v", run="a")
    (mine,) = vw.work_of(run="a")
    vw.remove("v", run="d", force=True)
    assert vw.work(run="d").done == [volume_id]  # nothing was there yet
    late = vw.storage["s1"].do(mine)
    finished = vw.worked("s1", {"lvm": late}, run="a")
    assert (finished.lost_items, finished.done) == ([volume_id], [])
    assert vw.volume(volume_id).status == "deleted"
    assert vw.pending_cleanups() == {(PLACE, volume_id)} and hosts(vw, "a") == ["s1"]
    assert vw.work(run="a").done == [volume_id]
    assert vw.storage["s1"].there["lvm"] == {} and vw.pending_cleanups() == set()


def test_a_late_worker_while_the_deletion_is_under_way(vw: VolumeWorld) -> None:
    volume_id = placed(vw, "v", run="a")
    (mine,) = vw.work_of(run="a")
    vw.remove("v", run="d", force=True)
    (deleting,) = vw.work_of(run="d")
    removed = vw.storage["s1"].do(deleting)
    made = vw.storage["s1"].do(mine)
    assert vw.worked("s1", {"lvm": made}, run="a").lost_items == [volume_id]
    assert vw.worked("s1", {"lvm": removed}, run="d").done == [volume_id]
    assert vw.work(run="d").done == [volume_id]
    assert vw.storage["s1"].there["lvm"] == {}


def test_a_run_that_was_thought_dead_writes_nothing(vw: VolumeWorld) -> None:
    """The next run has the volume in the same pool: what the late one made is that run's now."""
    volume_id = placed(vw, "v", run="a")
    (mine,) = vw.work_of(run="a")
    vw.time += 601
    assert vw.request({"name": "v", "size": 10}, run="b").resumed == [volume_id]
    finished = vw.worked("s1", {"lvm": vw.storage["s1"].do(mine)}, run="a")
    assert (finished.done, finished.lost_items) == ([], [])
    assert vw.status("v") == "creating" and vw.pending_cleanups() == set()
    assert vw.work(run="b").done == [volume_id]


def test_a_late_worker_on_another_host_than_the_one_it_is_on_now(vw: VolumeWorld) -> None:
    vw.store("s2", lvm=50)
    volume_id = placed(vw, "v", run="a")
    (mine,) = vw.work_of("s1", run="a")
    vw.time += 601
    vw.request({"name": "v", "size": 10}, run="b")
    vw.silent("s1", run="b")
    assert vw.choose("b").placed[volume_id].host == "s2@lvm#lvm"
    vw.work("s2", run="b")
    vw.reported("s1")
    assert vw.work("s1", run="c").done == [volume_id]  # nothing was there
    assert vw.worked("s1", {"lvm": vw.storage["s1"].do(mine)}, run="a").lost_items == [volume_id]
    assert vw.work("s1", run="c").done == [volume_id]
    assert vw.storage["s1"].there["lvm"] == {} and vw.storage["s2"].there["lvm"] == {volume_id: 10}


def test_one_run_that_deletes_what_it_is_just_making(vw: VolumeWorld) -> None:
    """The outcome is that of a create, the row says deleting: it is not taken for removed."""
    volume_id = placed(vw, "v", run="a")
    (mine,) = vw.work_of(run="a")
    with vw.ledger.write() as tx:
        deletions.delete(tx.for_run(vw.context("a")), [volume_id])
    finished = vw.worked("s1", {"lvm": vw.storage["s1"].do(mine)}, run="a")
    assert finished.lost_items == [volume_id] and vw.status("v") == "deleting"
    assert vw.work(run="a").done == [volume_id]
    assert vw.storage["s1"].there["lvm"] == {}


def test_killed_in_the_middle_and_taken_over(vw: VolumeWorld) -> None:
    volume_id = placed(vw, "v", run="a", image="cirros")
    vw.work_of(run="a")
    vw.time += 601
    assert vw.request({"name": "v", "size": 10, "image": "cirros"}, run="b").resumed == [volume_id]
    (work,) = vw.work_of(run="b")
    assert [w["id"] for w in work.volumes] == [volume_id] and len(work.images) == 1
    assert vw.worked("s1", {"lvm": vw.storage["s1"].do(work)}, run="b").done == [volume_id]


# --- with instances --------------------------------------------------------------------------------------------------------


def test_a_volume_of_a_boot_is_its_instance_s_when_it_is_made(vw: VolumeWorld) -> None:
    vw.report("h1")
    guest = vw.boot("guest", until="scheduled", networks=())
    with vw.ledger.write() as tx:
        limits = dict.fromkeys(DEFAULTS, -1)
        (volume_id,) = accept.add(tx.for_run(vw.context()), [("", VolumeRequest(size=1), None)], limits, guest)
    with vw.ledger.write() as tx:
        life.reserve(tx.for_run(vw.context()), vw.volume(volume_id), guest, "/dev/vda")
    vw.choose()
    assert vw.work().done == [volume_id]
    row = vw.volume(volume_id)
    assert (row.status, row.run_id, row.made) == ("attaching", "run-a", True)


def test_what_is_exported_is_not_deleted_before_that_ended(vw: VolumeWorld) -> None:
    vw.report("h1")
    guest = vw.boot("guest", networks=())
    volume_id = vw.make("v")
    with vw.ledger.write() as tx:
        life.reserve(tx.for_run(vw.context()), vw.volume("v"), guest, "/dev/vdb")
        tx.execute(volume_tables.volume_attachments.update().values(export="done"))
        deletions.delete(tx.for_run(vw.context("d")), [volume_id])
    assert vw.work_of(run="d") == []
    with vw.ledger.write() as tx:
        tx.execute(volume_tables.volume_attachments.update().values(export="none"))
    assert vw.work(run="d").done == [volume_id]
    assert [r.deleted != "" for r in vw.rows(volume_tables.volume_attachments)] == [True]


def test_sizes_are_told_in_gib(vw: VolumeWorld) -> None:
    volume_id = placed(vw)
    result = vw.storage["s1"].do(vw.work_of()[0])
    assert result.outcomes[volume_id]["size"] == 10 * GIB
    vw.worked("s1", {"lvm": result})
