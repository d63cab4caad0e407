# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.flows.volumes import delete
from ansible_collections.bootflow.compute.plugins.module_utils.flows.volumes import work as volume_work
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.schema import volume_tables
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.storage import deletions
from ansible_collections.bootflow.compute.tests.unit.worlds.volume_world import VolumeWorld

PLACE = "s1@lvm#lvm"


@pytest.fixture
def vw(vworld: VolumeWorld) -> VolumeWorld:
    vworld.store("s1", lvm=100)
    return vworld


def set_status(vw: VolumeWorld, name: str, **values: t.Any) -> None:
    c = volume_tables.volumes.c
    with vw.ledger.write() as tx:
        tx.execute(volume_tables.volumes.update().where(c.name == name, c.deleted == "").values(**values))


def code_of(vw: VolumeWorld, *names: str, **how: t.Any) -> str:
    before = vw.everything()
    try:
        vw.remove(*names, **how)
    except errors.BootflowError as e:
        assert vw.everything() == before
        return e.code
    return ""


def test_a_volume_goes_and_its_name_is_free(vw: VolumeWorld) -> None:
    volume_id = vw.make("v", 10)
    begun = vw.remove("v")
    assert [r.id for r in begun.rows] == [volume_id] and begun.hosts == ["s1"] and begun.without_host == []
    assert vw.status("v") == "deleting"
    (work,) = vw.work_of(run="d")
    assert work.volumes == [{"id": volume_id, "kind": "volume", "project": "default", "state": "absent"}]
    vw.worked("s1", {"lvm": vw.storage["s1"].do(work)}, "d")
    shown = {"id": volume_id, "name": "v", "project": "default", "pool_host": PLACE, "fault": None}
    assert vw.removed_all() == ([shown], [])
    row = vw.volume(volume_id)
    assert (row.status, row.deleted, row.deleted_at, row.made) == ("deleted", volume_id, vw.time, False)
    assert vw.notified(volume_id)[-2:] == ["volume.delete.start", "volume.delete.end"]
    assert vw.events(volume_id)[-1] == ("delete", "s1", "Success")
    assert vw.pools()[PLACE].free_capacity_gb == 100
    vw.make("v", 10)
    assert vw.remove("nothing", run="e", missing_ok=True).rows == []


def test_one_that_was_never_placed_is_gone_at_once(vw: VolumeWorld) -> None:
    (volume_id,) = vw.request({"name": "v", "size": 10}, run="d").created
    begun = vw.remove("v")
    assert begun.without_host == [{"id": volume_id, "name": "v"}] and begun.hosts == []
    assert vw.removed_all()[0][0]["id"] == volume_id


def test_nothing_on_a_frozen_backend_is_deleted(vw: VolumeWorld) -> None:
    vw.make("v", 10)
    vw.make("other", 10)
    vw.reported("s1", frozen=True)
    assert code_of(vw, "v") == code_of(vw, "v", force=True) == code_of(vw, "v", cascade=True) == "InvalidInput"
    assert code_of(vw, "v", "other") == "InvalidRequest"
    (volume_id,) = vw.request({"name": "unplaced", "size": 10}, run="d").created
    assert vw.remove("unplaced").without_host == [{"id": volume_id, "name": "unplaced"}]
    vw.reported("s1")
    assert vw.remove("v").hosts == ["s1"]


def test_something_has_to_say_which(vw: VolumeWorld) -> None:
    for which in ({}, {"everything": True}, {"project": "default"}):
        with vw.ledger.write() as tx, pytest.raises(errors.InvalidInput, match="no volumes are selected"):
            delete.begin(tx.for_run(vw.context("d")), **which)
    vw.make("v", 1)
    vw.request({"name": "v", "size": 1}, project="other")
    with (
        vw.ledger.write() as tx,
        pytest.raises(errors.InvalidInput, match="volume v exists in the projects default, other"),
    ):
        delete.begin(tx.for_run(vw.context("d")), names=["v"])
    with vw.ledger.write() as tx, pytest.raises(errors.ProjectNotFound, match="othr") as caught:
        delete.begin(tx.for_run(vw.context("d")), project="othr", everything=True)
    assert "Did you mean other?" in caught.value.remedy
    with vw.ledger.write() as tx:
        begun = delete.begin(tx.for_run(vw.context("a")), project="other", everything=True)
    assert [g["name"] for g in begun.without_host] == ["v"]
    with vw.ledger.write() as tx:
        begun = delete.begin(tx.for_run(vw.context("d")), ids=[vw.volume("v").id])
    assert [r.project for r in begun.rows] == ["default"]


@pytest.mark.parametrize(
    ("values", "code", "forced"),
    [
        ({"status": "available"}, "", ""),
        ({"status": "error"}, "", ""),
        ({"status": "error_extending"}, "", ""),
        ({"status": "error_deleting"}, "", ""),  # it is asked for again
        ({"status": "in-use", "attach_status": "attached"}, "InvalidVolume", "InvalidVolume"),
        ({"status": "maintenance"}, "InvalidVolume", ""),
        ({"status": "reserved"}, "InvalidVolume", ""),
        ({"status": "available", "migration_status": "starting"}, "InvalidVolume", "InvalidVolume"),
        ({"status": "creating", "made": False}, "", ""),  # its run is dead
        ({"status": "downloading", "made": False}, "", ""),
        ({"status": "extending", "new_size": 20}, "", ""),
        ({"status": "attaching"}, "InvalidVolume", ""),
        ({"status": "deleting"}, "", ""),
    ],
    ids=lambda v: v.get("status") if isinstance(v, dict) else v or "goes",
)
def test_what_may_be_deleted(vw: VolumeWorld, values: t.Any, code: str, forced: str) -> None:
    vw.make("v", 10)
    set_status(vw, "v", run_id="run-dead", **values)
    got = code_of(vw, "v")
    assert got == code
    if got:
        assert code_of(vw, "v", force=True) == forced
    if not got or not forced:
        vw.work(run="d")
        assert len(vw.removed_all()[0]) == 1
    else:
        set_status(vw, "v", status="available", attach_status="detached", migration_status=None)


@pytest.mark.parametrize(
    ("status", "forced"),
    [("creating", ""), ("extending", ""), ("attaching", "VolumeLocked"), ("deleting", "VolumeLocked")],
)
def test_what_a_live_run_is_at(vw: VolumeWorld, status: str, forced: str) -> None:
    vw.make("v", 10)
    vw.request({"name": "other", "size": 1}, run="live")
    set_status(vw, "v", run_id="run-live", status=status, made=status != "creating")
    assert code_of(vw, "v") == "VolumeLocked"
    assert code_of(vw, "v", force=True) == forced


def test_all_refusals_of_several(vw: VolumeWorld) -> None:
    for name in "abc":
        vw.make(name, 1)
    set_status(vw, "a", status="maintenance")
    set_status(vw, "c", status="reserved")
    with pytest.raises(errors.InvalidRequest) as refused:
        vw.remove("a", "b", "c")
    assert sorted((e["path"], e["code"]) for e in refused.value.errors) == [
        ("volumes[a]", "InvalidVolume"),
        ("volumes[c]", "InvalidVolume"),
    ]
    assert vw.status("b") == "available"


def test_snapshots_stay_in_the_way_or_go_with_it(vw: VolumeWorld) -> None:
    vw.make("v", 10)
    vw.snapshot({"name": "one", "volume": "v"}, {"name": "two", "volume": "v"})
    vw.work()
    with pytest.raises(errors.InvalidVolume) as refused:
        vw.remove("v")
    assert "has snapshots: delete" in refused.value.remedy
    assert code_of(vw, "v", force=True) == "InvalidVolume"
    vw.remove("v", cascade=True)
    (work,) = vw.work_of(run="d")
    assert sorted((w["kind"], w["state"]) for w in work.volumes) == [
        ("snapshot", "absent"),
        ("snapshot", "absent"),
        ("volume", "absent"),
    ]
    vw.worked("s1", {"lvm": vw.storage["s1"].do(work)}, "d")
    assert {r.status for r in vw.rows(volume_tables.volume_snapshots)} == {"deleted"}
    assert vw.storage["s1"].there["lvm"] == {}


def test_a_source_waits_for_what_is_made_from_it(vw: VolumeWorld) -> None:
    vw.make("v", 10)
    vw.request({"name": "clone", "source_volid": "v"})
    assert code_of(vw, "v") == "VolumeIsBusy"
    vw.choose()
    vw.work()
    assert code_of(vw, "v") == ""


def test_one_that_could_not_be_deleted_stays_with_its_fault_and_is_deleted_later(vw: VolumeWorld) -> None:
    volume_id = vw.make("v", 10)
    vw.remove("v")
    busy = errors.VolumeIsBusy(message="it is in use")
    assert list(vw.work(run="d", v=busy).failed) == [volume_id]
    deleted, left = vw.removed_all()
    assert deleted == [] and [(x["name"], x["fault"]["code"]) for x in left] == [("v", "VolumeIsBusy")]
    assert vw.status("v") == "error_deleting" and vw.shown("v")["fault"]["message"] == "it is in use"
    vw.remove("v", run="e")
    vw.work(run="e")
    assert len(vw.removed_all("e")[0]) == 1


@pytest.mark.parametrize("told", [True, False])
def test_a_silent_host_keeps_its_volumes(vw: VolumeWorld, told: bool) -> None:
    volume_id = vw.make("v", 10)
    vw.remove("v")
    if told:
        assert list(vw.silent(run="d").failed) == [volume_id]
    deleted, left = vw.removed_all(ids=[volume_id])
    assert deleted == [] and left[0]["fault"]["code"] == "HostUnreachable"
    assert vw.status("v") == "error_deleting" and vw.pools()[PLACE].free_capacity_gb == 90
    assert vw.removed_all(ids=[]) == ([], [])
    vw.remove("v", run="e")
    assert vw.work(run="e").done == [volume_id]


def test_volumes_that_go_with_their_instance(vw: VolumeWorld) -> None:
    made = vw.make("made", 10)
    (waiting,) = vw.request({"name": "waiting", "size": 1}).created
    with vw.ledger.write() as tx:
        deletions.delete(tx.for_run(vw.context("d")), [made, waiting])
        assert volume_work.hosts_with_work(tx.for_run(vw.context("d"))) == ["s1"]
        deletions.delete(tx.for_run(vw.context("e")), [made, waiting])
    assert (vw.volume(made).status, vw.volume(made).run_id) == ("deleting", "run-d")
    assert vw.status(waiting) == "deleted"
    vw.work(run="d")
    assert {d["id"] for d in vw.removed_all()[0]} == {made, waiting}
