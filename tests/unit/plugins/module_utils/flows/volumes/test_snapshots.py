# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.flows.volumes import snapshots
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.schema import volume_tables
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.storage import volume_views
from ansible_collections.bootflow.compute.tests.unit.worlds.volume_world import VolumeWorld

PLACE = "s1@lvm#lvm"


@pytest.fixture
def vw(vworld: VolumeWorld) -> VolumeWorld:
    vworld.store("s1", lvm=100)
    vworld.make("v", 10)
    return vworld


def refused(vw: VolumeWorld, *entries: t.Any, run: str = "a") -> list[str]:
    before = vw.everything()
    with pytest.raises(errors.InvalidRequest) as error:
        vw.snapshot(*entries, run=run)
    assert vw.everything() == before
    return ["%s %s" % (e["path"], e["code"]) for e in error.value.errors]


def finished(vw: VolumeWorld, run: str = "a") -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    with vw.ledger.write() as tx:
        found = snapshots.finish(tx.for_run(vw.context(run)))
    done, left = ([(s["name"], s["status"]) for s in found[key]] for key in ("done", "left"))
    return done, left


def shown(vw: VolumeWorld, name: str) -> dict[str, t.Any]:
    with vw.ledger.read() as tx:
        return volume_views.snapshots(tx, names=[name])[0]


def test_a_snapshot_is_made_and_goes(vw: VolumeWorld) -> None:
    entry = {"name": "s", "volume": "v", "description": "d", "metadata": {"a": "b"}}
    begun = vw.snapshot(entry)
    (snapshot_id,) = begun.created
    assert begun.hosts == ["s1"]
    (row,) = vw.rows(volume_tables.volume_snapshots)
    assert (row.status, row.volume_size, row.pending_gb, row.run_id) == ("creating", 10, 11, "run-a")
    assert vw.pools()[PLACE].free_capacity_gb == 79  # all of the volume, and what LVM keeps beside it
    (work,) = vw.work_of()
    volume_id = vw.volume("v").id
    assert work.volumes == [
        {
            "id": snapshot_id,
            "kind": "snapshot",
            "project": "default",
            "state": "present",
            "source_volume": volume_id,
        }
    ]
    assert vw.worked("s1", {"lvm": vw.storage["s1"].do(work)}).done == [snapshot_id]
    assert finished(vw) == ([("s", "available")], [])
    view = shown(vw, "s")
    assert (view["volume_name"], view["size"], view["pool_host"], view["fault"]) == ("v", 10, PLACE, None)
    assert vw.snapshot(entry, run="b").unchanged == [snapshot_id]
    assert vw.snapshot({"name": "s", "state": "absent"}, run="c").deleting == [snapshot_id]
    assert vw.work(run="c").done == [snapshot_id]
    assert finished(vw, "c") == ([("s", "deleted")], [])
    assert vw.snapshot({"name": "s", "state": "absent"}, run="e").deleting == []
    assert vw.notified(volume_id)[2:] == [
        "snapshot.create.start",
        "snapshot.create.end",
        "snapshot.delete.start",
        "snapshot.delete.end",
    ]


def test_what_is_refused(vw: VolumeWorld) -> None:
    vw.request({"name": "new", "size": 1}, run="a")
    assert refused(
        vw,
        {"volume": "v"},
        {"name": "a"},
        {"name": "b", "volume": "none"},
        {"name": "c", "volume": "new"},
        {"name": "d", "volume": "v", "colour": "red"},
        {"name": "e", "volume": "v", "state": "gone"},
        {"name": "f", "volume": "v", "metadata": {"a": 1}},
        {"name": "g", "volume": "v", "force": "perhaps"},
        {"name": "h", "volume": "v"},
        {"name": "h", "volume": "v"},
    ) == [
        "snapshots[0].name InvalidInput",
        "snapshots[1] InvalidInput",
        "snapshots[4] InvalidInput",
        "snapshots[5] InvalidInput",
        "snapshots[6] InvalidVolumeMetadata",
        "snapshots[7] InvalidInput",
        "snapshots[9].name InvalidInput",
        "snapshots[2] VolumeNotFound",
        "snapshots[3] InvalidVolume",
    ]
    assert refused(vw, {"name": "c", "volume": "new"}, run="b") == ["snapshots[0] VolumeLocked"]
    vw.snapshot({"name": "s", "volume": "v"}, run="a")
    assert refused(vw, {"name": "s", "volume": "v"}, run="b") == ["snapshots[0] VolumeLocked"]
    assert refused(vw, {"name": "s", "state": "absent"}, run="b") == ["snapshots[0] VolumeLocked"]
    vw.work()
    assert refused(vw, {"name": "s", "volume": "v", "description": "x"}) == ["snapshots[0] SnapshotExists"]
    vw.snapshot({"name": "s", "state": "absent"})
    assert refused(vw, {"name": "s", "volume": "v"}) == ["snapshots[0] InvalidSnapshot"]


def test_a_frozen_backend_gets_and_loses_no_snapshot(vw: VolumeWorld) -> None:
    vw.snapshot({"name": "s", "volume": "v"})
    vw.work()
    vw.reported("s1", frozen=True)
    assert refused(vw, {"name": "t", "volume": "v", "force": True}, {"name": "s", "state": "absent"}) == [
        "snapshots[0] InvalidInput",
        "snapshots[1] InvalidInput",
    ]
    vw.reported("s1")
    assert vw.snapshot({"name": "s", "state": "absent"}).hosts == ["s1"]


def test_a_volume_in_use_only_by_force(vw: VolumeWorld) -> None:
    with vw.ledger.write() as tx:
        tx.execute(volume_tables.volumes.update().values(status="in-use", attach_status="attached"))
    assert refused(vw, {"name": "s", "volume": "v"}) == ["snapshots[0] InvalidVolume"]
    assert vw.snapshot({"name": "s", "volume": "v", "force": "yes"}).created


def test_quotas(vw: VolumeWorld) -> None:
    vw.quotas = {"snapshots": 1}
    wishes = [{"name": n, "volume": "v"} for n in "ab"]
    assert refused(vw, *wishes) == ["quotas SnapshotLimitExceeded"]
    vw.quotas = {"gigabytes": 15}
    assert refused(vw, wishes[0]) == ["quotas VolumeSizeExceedsAvailableQuota"]
    vw.no_snapshot_gb_quota = True
    assert vw.snapshot(wishes[0]).created


def test_gigabytes_of_snapshots_count_nowhere_where_the_quota_leaves_them_out(vw: VolumeWorld) -> None:
    """Of what volumes take, neither. source: Cinder's no_snapshot_gb_quota"""
    vw.no_snapshot_gb_quota = True
    vw.quotas = {"gigabytes": 12}
    vw.snapshot({"name": "s", "volume": "v"})  # 10 GB of a volume of 10 GB
    vw.work("s1")
    vw.make("small", 1)
    assert vw.extend("v", 11).rows
    vw.no_snapshot_gb_quota = False
    with pytest.raises(errors.InvalidRequest):
        vw.make("one more", 1)


def test_thick_snapshots_need_all_the_room_and_thin_ones_none(vw: VolumeWorld) -> None:
    vw.make("large", 60)  # 30 are left
    assert refused(vw, {"name": "s", "volume": "large"}) == ["snapshots[0] NoValidBackend"]
    wishes = [{"name": n, "volume": "v"} for n in "abc"]
    assert refused(vw, *wishes) == ["snapshots[2] NoValidBackend"]
    vw.store("s2", thin=True, lvm=1000)
    vw.make("thin", 60)
    assert vw.volume("thin").pool_host == "s2@lvm#lvm"
    vw.snapshot({"name": "t", "volume": "thin"})
    assert [r.pending_gb for r in vw.rows(volume_tables.volume_snapshots)] == [0]
    vw.work("s2")


def test_one_that_failed_is_made_again(vw: VolumeWorld) -> None:
    (snapshot_id,) = vw.snapshot({"name": "s", "volume": "v"}).created
    (work,) = vw.work_of()
    error = errors.VolumeBackendAPIException(data="x")
    vw.worked("s1", {"lvm": vw.storage["s1"].do(work, {snapshot_id: error})})
    assert finished(vw) == ([], [("s", "error")])
    assert shown(vw, "s")["fault"]["code"] == "VolumeBackendAPIException"
    assert vw.shown("v")["fault"] is None and vw.shown("v")["tried"] == []
    assert vw.pools()[PLACE].free_capacity_gb == 90
    assert vw.snapshot({"name": "s", "volume": "v"}, run="b").resumed == [snapshot_id]
    assert vw.pools()[PLACE].free_capacity_gb == 79
    assert vw.work(run="b").done == [snapshot_id]


@pytest.mark.parametrize("told", [True, False])
def test_a_silent_host(vw: VolumeWorld, told: bool) -> None:
    (snapshot_id,) = vw.snapshot({"name": "s", "volume": "v"}).created
    if told:
        vw.silent()
    assert finished(vw) == ([], [("s", "error")])
    assert vw.pools()[PLACE].free_capacity_gb == 79  # it may be there
    vw.reported("s1")
    assert vw.snapshot({"name": "s", "volume": "v"}, run="b").resumed == [snapshot_id]
    vw.work(run="b")
    vw.snapshot({"name": "s", "state": "absent"}, run="c")
    assert finished(vw, "c") == ([], [("s", "error_deleting")])
    assert vw.snapshot({"name": "s", "state": "absent"}, run="e").deleting == [snapshot_id]
    assert vw.work(run="e").done == [snapshot_id]


def test_one_that_a_dead_run_left_is_taken_over(vw: VolumeWorld) -> None:
    (snapshot_id,) = vw.snapshot({"name": "s", "volume": "v"}).created
    vw.time += 601
    assert vw.snapshot({"name": "s", "volume": "v"}, run="b").resumed == [snapshot_id]
    assert vw.work(run="b").done == [snapshot_id]


def test_one_that_a_volume_is_being_made_from_stays(vw: VolumeWorld) -> None:
    vw.snapshot({"name": "s", "volume": "v"})
    vw.work()
    vw.request({"name": "restored", "snapshot_id": "s"})
    assert refused(vw, {"name": "s", "state": "absent"}) == ["snapshots[0] SnapshotIsBusy"]


def test_a_late_snapshot_is_removed(vw: VolumeWorld) -> None:
    (snapshot_id,) = vw.snapshot({"name": "s", "volume": "v"}, run="a").created
    (mine,) = vw.work_of(run="a")
    vw.time += 601
    vw.snapshot({"name": "s", "state": "absent"}, run="b")
    assert vw.work(run="b").done == [snapshot_id]
    assert vw.worked("s1", {"lvm": vw.storage["s1"].do(mine)}, run="a").lost_items == [snapshot_id]
    assert vw.work(run="a").done == [snapshot_id]
    assert snapshot_id not in vw.storage["s1"].there["lvm"]
