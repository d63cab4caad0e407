# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import contextlib
import os
import typing as t
import uuid
from pathlib import Path

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.os.command import TIMED_OUT, Completed
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.rbd import access, fences, pool_facts, volume_batch
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.rbd.cluster import (
    FENCE_SECONDS,
    Cluster,
    full_reason,
)
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.rbd.images import MAX_CLONE_DEPTH, Images
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.rbd.plan import depth, images_of, plan
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.rbd.pool_facts import amounts, pools_facts
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.rbd.volume_batch import Settings, make_volumes
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.volumes.plan import desired_volume

from .pool import BUSY, FSID, GIB, HUNG, KEY, REFUSED, Pool, answering

LEDGER, OTHER = (str(uuid.UUID(int=n, version=4)) for n in (99, 98))
A, B, C, S = (str(uuid.UUID(int=n, version=4)) for n in (1, 2, 3, 4))


@pytest.fixture
def pool(monkeypatch: pytest.MonkeyPatch) -> Pool:

    monkeypatch.setattr(volume_batch, "item_locks", lambda ids: contextlib.nullcontext())
    return answering(monkeypatch)


@pytest.fixture
def cluster(pool: Pool, tmp_path: Path) -> t.Iterator[Cluster]:
    with Cluster("volumes", ["192.0.2.1", "192.0.2.2:3300"], "compute", KEY, str(tmp_path)) as made:
        yield made


def make(cluster: Cluster, tmp_path: Path, *volumes: dict[str, t.Any], **settings: t.Any) -> dict[str, t.Any]:
    made = make_volumes(cluster, Settings(temp_dir=str(tmp_path / "conversion"), ledger_id=LEDGER, **settings), volumes)
    return {
        item_id: outcome["error"] and outcome["error"]["code"] or outcome["action"]
        for item_id, outcome in made["outcomes"].items()
    }


# --- the programs -------------------------------------------------------------------------------------------------------


def test_the_key_is_in_a_private_file_while_the_module_works_and_in_no_argument(pool: Pool, tmp_path: Path) -> None:
    with Cluster("volumes", ["192.0.2.1"], "compute", KEY, str(tmp_path)) as cluster:
        assert cluster.names() == set()
    assert pool.key_files == [(KEY, 0o600, 0o700)] and os.listdir(tmp_path) == []
    with pytest.raises(ZeroDivisionError), Cluster("volumes", ["192.0.2.1"], "compute", KEY, str(tmp_path)):
        raise ZeroDivisionError
    assert os.listdir(tmp_path) == []


def test_each_program_has_limits_and_no_file_of_the_host(cluster: Cluster) -> None:
    argv = cluster.argv("rbd", "ls")
    said = " ".join(argv)
    assert "-c /dev/null -m 192.0.2.1:6789,192.0.2.2:3300 --id compute" in said
    assert "--client_mount_timeout 5 --rados_osd_op_timeout 5" in said


@pytest.mark.parametrize(
    ("done", "reason"),
    [
        (Completed(110, "", HUNG), "rbd: listing images failed: (110) Connection timed out"),
        (Completed(13, "", REFUSED), "user compute is not admitted"),
        (Completed(TIMED_OUT, "", "killed: not finished after 60 s"), "no answer within 60 s"),
    ],
)
def test_a_cluster_that_does_not_answer_is_told_apart(
    pool: Pool, cluster: Cluster, done: Completed, reason: str
) -> None:
    pool.broken["rbd ls"] = done
    with pytest.raises(errors.StorageClusterUnavailable) as raised:
        cluster.state()
    assert reason in raised.value.message and raised.value.retryable and raised.value.status == 503


def test_a_pool_that_does_not_exist_is_named(pool: Pool, tmp_path: Path) -> None:
    with (
        Cluster("others", ["192.0.2.1"], "compute", KEY, str(tmp_path)) as cluster,
        pytest.raises(errors.StorageClusterUnavailable, match="no pool"),
    ):
        cluster.state()


@pytest.mark.parametrize(
    ("flags", "of_pool", "reason"),
    [
        ("sortbitwise", "hashpspool", ""),
        ("sortbitwise", "hashpspool,full,full_quota", "its quota is reached"),
        ("sortbitwise", "hashpspool,full", "the disks of the cluster are full"),
        ("full,sortbitwise", "hashpspool", "the disks of the cluster are full"),
        ("nearfull", "nearfull", ""),
    ],
)
def test_a_pool_is_full_by_its_flags(flags: str, of_pool: str, reason: str) -> None:
    assert full_reason({"flags": flags}, {"flags_names": of_pool}) == reason


@pytest.mark.parametrize("wrong", [{"key": "secret"}, {"user": "client.x"}, {"pool": "a/b"}, {"monitors": ["a b"]}])
def test_what_is_no_name_is_refused_without_the_key(wrong: dict[str, t.Any]) -> None:
    args = {"pool": "volumes", "monitors": ["192.0.2.1"], "user": "compute", "key": KEY, **wrong}
    with pytest.raises(errors.InvalidInput) as raised:
        Cluster(**args)
    assert "secret" not in raised.value.message and KEY not in raised.value.message


# --- volumes ------------------------------------------------------------------------------------------------------------


def test_a_volume_has_its_name_when_it_is_complete(pool: Pool, cluster: Cluster, tmp_path: Path) -> None:
    assert make(cluster, tmp_path, {"id": A, "size_gb": 2, "project": "p"}) == {A: "create"}
    assert set(pool.images) == {"volume-" + A} and pool.images["volume-" + A]["size"] == 2 * GIB
    assert pool.images["volume-" + A]["meta"] == {"bootflow.ledger": LEDGER, "bootflow.project": "p"}
    created = next(line for line in pool.lines if line.startswith("rbd create"))
    assert created.endswith("volumes/incomplete.volume-" + A)
    assert make(cluster, tmp_path, {"id": A, "size_gb": 2, "project": "p"}) == {A: "nothing"}
    assert make(cluster, tmp_path, {"id": A, "size_gb": 3}) == {A: "Conflict"}


def test_what_a_killed_run_left_is_made_again_and_a_failure_leaves_nothing(
    pool: Pool, cluster: Cluster, tmp_path: Path
) -> None:
    pool.add("incomplete.volume-" + A)
    assert make(cluster, tmp_path, {"id": A, "size_gb": 1}) == {A: "create"}
    assert set(pool.images) == {"volume-" + A}
    pool.broken["rbd image-meta set"] = Completed(5, "", "rbd: setting metadata failed: (5) Input/output error\n")
    assert make(cluster, tmp_path, {"id": B, "size_gb": 1}) == {B: "RbdFailed"}
    assert set(pool.images) == {"volume-" + A}


@pytest.mark.parametrize(("left", "size"), [([".former"], 1), (["", ".former"], 2)])
def test_the_next_run_settles_an_exchange_that_was_killed(
    pool: Pool, cluster: Cluster, tmp_path: Path, left: list[str], size: int
) -> None:
    for suffix in left:
        pool.add("volume-" + A + suffix, 2 * GIB if suffix == "" else GIB, meta={"bootflow.ledger": LEDGER})
    wanted = {"id": A, "state": "extended", "size_gb": size}
    assert make(cluster, tmp_path, wanted, check_mode=True) == {A: "nothing"} and len(pool.images) == len(left)
    assert make(cluster, tmp_path, wanted) == {A: "nothing"}
    assert {name: row["size"] for name, row in pool.images.items()} == {"volume-" + A: size * GIB}


def test_an_exchange_of_another_ledger_is_not_settled(pool: Pool, cluster: Cluster, tmp_path: Path) -> None:
    pool.add("volume-%s.former" % A, meta={"bootflow.ledger": OTHER})
    assert make(cluster, tmp_path, {"id": A, "state": "absent"}) == {A: "Conflict"}
    assert set(pool.images) == {"volume-%s.former" % A}


def rewritten(cluster: Cluster) -> None:
    images = images_of(cluster.rows())
    desired = desired_volume({"id": A, "state": "reimaged", "image_id": C, "size_gb": 1})
    made = plan(desired, images, cluster.metadata, LEDGER)
    Images(cluster, LEDGER, watch_timeout=0.0).write_again(made, "/image.raw", images, verify=False)


def test_a_volume_is_written_again_by_an_image_that_is_complete(pool: Pool, cluster: Cluster) -> None:
    pool.add("volume-" + A, GIB, meta={"bootflow.ledger": LEDGER, "old": "yes"})
    rewritten(cluster)
    assert set(pool.images) == {"volume-" + A} and "old" not in pool.images["volume-" + A]["meta"]
    changes = [line.split()[1] for line in pool.lines if line.split()[1] in ("import", "rename", "rm")]
    assert changes == ["import", "rename", "rename", "rm"]


@pytest.mark.parametrize("step", ["rbd import", "rbd image-meta set", "rbd rename volumes/incomplete"])
def test_a_volume_that_could_not_be_written_again_is_as_before(pool: Pool, cluster: Cluster, step: str) -> None:
    pool.add("volume-" + A, GIB, meta={"bootflow.ledger": LEDGER, "old": "yes"})
    pool.broken[step] = Completed(5, "", "rbd: failed: (5) Input/output error\n")
    with pytest.raises(errors.RbdFailed):
        rewritten(cluster)
    assert set(pool.images) == {"volume-" + A} and pool.images["volume-" + A]["meta"]["old"] == "yes"


def test_a_copy_is_of_now_also_after_a_run_that_was_killed(pool: Pool, cluster: Cluster, tmp_path: Path) -> None:
    only_for_clone = "volume-%s.clone_snap" % B
    parent = {"pool": "volumes", "image": "volume-" + A, "snapshot": only_for_clone}
    pool.add("volume-" + A, 2 * GIB, snapshots={only_for_clone: GIB})
    pool.add("incomplete.volume-" + B, GIB, parent=parent)
    assert make(cluster, tmp_path, {"id": B, "source_volume": A}) == {B: "create"}
    assert pool.images["volume-" + B]["size"] == 2 * GIB and pool.images["volume-" + B]["parent"] == parent


def test_a_removal_takes_what_a_killed_run_left_and_no_snapshot_of_others(
    pool: Pool, cluster: Cluster, tmp_path: Path
) -> None:
    pool.add("volume-" + A, snapshots={"nightly": GIB})
    pool.add("incomplete.volume-" + A)
    assert make(cluster, tmp_path, {"id": A, "state": "absent"}) == {A: "VolumeIsBusy"}
    assert set(pool.images) == {"volume-" + A} and pool.images["volume-" + A]["snapshots"] == {"nightly": GIB}


def test_a_volume_of_another_ledger_is_not_touched(pool: Pool, cluster: Cluster, tmp_path: Path) -> None:
    pool.add("volume-" + A, meta={"bootflow.ledger": OTHER})
    for wanted in ({"size_gb": 1}, {"state": "absent"}, {"state": "extended", "size_gb": 9}):
        assert make(cluster, tmp_path, {"id": A, **wanted}) == {A: "Conflict"}
    assert pool.images["volume-" + A]["size"] == GIB


def test_a_volume_grows_and_never_shrinks(pool: Pool, cluster: Cluster, tmp_path: Path) -> None:
    pool.add("volume-" + A, 4 * GIB)
    assert make(cluster, tmp_path, {"id": A, "state": "extended", "size_gb": 5}) == {A: "extend"}
    assert make(cluster, tmp_path, {"id": A, "state": "extended", "size_gb": 5}) == {A: "nothing"}
    assert make(cluster, tmp_path, {"id": A, "state": "extended", "size_gb": 3}) == {A: "InvalidInput"}
    assert make(cluster, tmp_path, {"id": B, "state": "extended", "size_gb": 3}) == {B: "VolumeNotFound"}
    assert [line for line in pool.lines if "resize" in line] == ["rbd resize --size 5120M volumes/volume-" + A]


def test_a_deleted_volume_stays_for_its_clones_and_goes_with_the_last(
    pool: Pool, cluster: Cluster, tmp_path: Path
) -> None:
    pool.add("volume-" + A)
    assert make(cluster, tmp_path, {"id": B, "source_volume": A}, {"id": C, "source_volume": B}) == {
        B: "create",
        C: "create",
    }
    assert make(cluster, tmp_path, {"id": A, "state": "absent"}, {"id": B, "state": "absent"}) == {
        A: "remove",
        B: "remove",
    }
    assert set(pool.images) == {"volume-%s.deleted" % A, "volume-%s.deleted" % B, "volume-" + C}
    assert make(cluster, tmp_path, {"id": C, "state": "absent"}) == {C: "remove"}
    assert pool.images == {}


def test_a_snapshot_makes_its_clones_independent_before_it_goes(pool: Pool, cluster: Cluster, tmp_path: Path) -> None:
    pool.add("volume-" + A)
    snapshot = {"id": S, "kind": "snapshot", "source_volume": A}
    assert make(cluster, tmp_path, snapshot, {"id": B, "source_snapshot": S, "size_gb": 3}) == {
        S: "create",
        B: "create",
    }
    assert pool.images["volume-" + B]["size"] == 3 * GIB
    assert make(cluster, tmp_path, {"id": A, "state": "absent"}) == {A: "VolumeIsBusy"}
    gone = make(cluster, tmp_path, {"id": A, "state": "absent"}, {"id": S, "kind": "snapshot", "state": "absent"})
    assert gone == {A: "remove", S: "remove"}
    assert set(pool.images) == {"volume-" + B} and pool.images["volume-" + B]["parent"] is None


def test_a_chain_of_clones_ends(pool: Pool, cluster: Cluster, tmp_path: Path) -> None:
    ids = [str(uuid.UUID(int=n, version=4)) for n in range(100, 100 + MAX_CLONE_DEPTH + 2)]
    pool.add("volume-" + ids[0])
    for source, wanted in zip(ids, ids[1:]):
        assert make(cluster, tmp_path, {"id": wanted, "source_volume": source}) == {wanted: "create"}
    images = images_of(cluster.rows())
    assert [depth(images, "volume-" + i, "volumes") for i in ids] == [*range(MAX_CLONE_DEPTH + 1), 0]
    assert images["volume-" + ids[-2]].snapshots == {}, "the snapshot that only served the last clone is gone"


def test_not_found_is_no_removal(pool: Pool, cluster: Cluster, tmp_path: Path) -> None:
    pool.add("volume-" + A)
    pool.keeps = True
    assert make(cluster, tmp_path, {"id": A, "state": "absent"}) == {A: "VolumeBackendAPIException"}
    pool.keeps = False
    assert make(cluster, tmp_path, {"id": A, "state": "absent"}) == {A: "remove"}
    assert make(cluster, tmp_path, {"id": A, "state": "absent"}) == {A: "nothing"}


def test_a_volume_in_use_is_not_removed(
    pool: Pool, cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(volume_batch, "Images", lambda cluster, ledger_id: Images(cluster, ledger_id, 0.0))
    pool.add("volume-" + A, watchers=["192.0.2.9:0/1"])
    assert make(cluster, tmp_path, {"id": A, "state": "absent"}) == {A: "VolumeIsBusy"}
    assert "volume-" + A in pool.images


def test_a_full_pool_is_refused_before_anything_but_a_deletion(pool: Pool, cluster: Cluster, tmp_path: Path) -> None:
    pool.add("volume-" + A)
    pool.flags = "hashpspool,full,full_quota"
    for wanted in ({"id": B, "size_gb": 1}, {"id": A, "state": "extended", "size_gb": 2}):
        with pytest.raises(errors.StorageClusterFull) as raised:
            make(cluster, tmp_path, wanted)
        assert raised.value.status == 507
    assert make(cluster, tmp_path, {"id": A, "state": "absent"}) == {A: "remove"}


def test_check_mode_changes_nothing(pool: Pool, cluster: Cluster, tmp_path: Path) -> None:
    pool.add("volume-" + A)
    wanted = [{"id": B, "size_gb": 1}, {"id": A, "state": "absent"}, {"id": C, "source_volume": A}]
    made = make(cluster, tmp_path, *wanted, check_mode=True)
    assert made == {A: "remove", B: "create", C: "create"} and set(pool.images) == {"volume-" + A}
    assert {line.split()[1] for line in pool.lines if line.startswith("rbd")} <= {"ls", "image-meta", "info"}


def test_a_snapshot_that_stays_protected_is_busy(pool: Pool, cluster: Cluster, tmp_path: Path) -> None:
    pool.add("volume-" + A, snapshots={"snapshot-" + S: GIB})
    pool.broken["rbd snap unprotect"] = Completed(16, "", BUSY)
    assert make(cluster, tmp_path, {"id": S, "kind": "snapshot", "state": "absent"}) == {S: "SnapshotIsBusy"}


# --- capacity -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("stored", "available", "quota", "total", "free"),
    [
        (2, 10, 0, 12, 10),
        (2, 10, 5, 5, 3),
        (2, 1, 5, 5, 1),
        (9, 10, 5, 5, 0),
        (0, 0, 0, 0, 0),
    ],
)
def test_capacity_by_cinders_rules(stored: int, available: int, quota: int, total: float, free: float) -> None:
    assert amounts(stored * GIB, available * GIB, quota * GIB) == (total, free)


def facts(
    pool: Pool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, known: list[str] | None = None
) -> dict[str, t.Any]:
    monkeypatch.setattr(pool_facts, "Cluster", lambda *args: Cluster(*args, parent=str(tmp_path)))
    wanted = {"name": "ceph", "pool": "volumes", "monitors": ["192.0.2.1"], "user": "compute", "key": KEY}
    return pools_facts([wanted], known, LEDGER)["ceph"]


def test_a_pool_reports_its_volumes(pool: Pool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pool.add("volume-" + A, 3 * GIB, snapshots={"snapshot-" + S: GIB})
    pool.add("volume-" + B, GIB, meta={"bootflow.ledger": OTHER})
    pool.add("volume-" + C, GIB, meta={"bootflow.ledger": LEDGER}, watchers=["192.0.2.9:0/1"])
    pool.add("of-others", 5 * GIB)
    said = facts(pool, monkeypatch, tmp_path, [A, S])
    assert said["error"] is None and said["fsid"] == FSID
    assert (said["total_capacity_gb"], said["free_capacity_gb"], said["provisioned_capacity_gb"]) == (12.0, 10.0, 10.0)
    assert {(v["kind"], v["id"]) for v in said["volumes"]} == {("volume", A), ("snapshot", S), ("volume", C)}
    assert [(o["id"], o["open"]) for o in said["orphans"]] == [(C, True)]
    assert said["other_ledgers"] == {OTHER: {"volumes": 1, "size_gb": 1.0}}


def test_figures_without_a_manager_are_none(pool: Pool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pool.manager = False
    said = facts(pool, monkeypatch, tmp_path)
    assert said["error"]["code"] == "StorageClusterUnavailable" and "manager" in said["error"]["message"]


def test_volumes_are_made_without_figures(pool: Pool, cluster: Cluster, tmp_path: Path) -> None:
    pool.manager = False
    made = make_volumes(
        cluster, Settings(temp_dir=str(tmp_path / "conversion"), ledger_id=LEDGER), [{"id": A, "size_gb": 1}]
    )
    assert made["backend"] is None and made["outcomes"][A]["action"] == "create"


# --- who has it open ----------------------------------------------------------------------------------------------------


def ensure(cluster: Cluster, **wanted: t.Any) -> dict[str, t.Any]:
    return access.ensure(Images(cluster, watch_timeout=0.0), {"id": A, **wanted})


def test_a_stranger_keeps_a_guest_from_a_volume(pool: Pool, cluster: Cluster) -> None:
    pool.add("volume-" + A)
    assert ensure(cluster)["watchers"] == []
    pool.images["volume-" + A]["watchers"] = ["192.0.2.9:0/1"]
    with pytest.raises(errors.VolumeOpenElsewhere, match="192.0.2.9:0/1"):
        ensure(cluster)
    assert ensure(cluster, users=1)["watchers"] == ["192.0.2.9:0/1"]
    pool.images["volume-" + A]["watchers"].append("192.0.2.8:0/1")
    with pytest.raises(errors.VolumeOpenElsewhere):
        ensure(cluster, users=1)


def test_a_volume_that_is_gone_is_given_to_nobody(cluster: Cluster) -> None:
    with pytest.raises(errors.VolumeNotFound):
        ensure(cluster)
    assert ensure(cluster, state="absent")["watchers"] == []


def test_a_volume_is_not_taken_from_a_guest_that_has_it_open(pool: Pool, cluster: Cluster) -> None:
    pool.add("volume-" + A, watchers=["192.0.2.9:0/1"])
    with pytest.raises(errors.VolumeIsBusy):
        ensure(cluster, state="absent")
    assert pool.fenced == []


def test_a_lost_host_is_fenced_also_if_only_its_lock_is_left(
    pool: Pool, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool.add("volume-" + A, watchers=["192.0.2.9:0/1"], locks=["192.0.2.9:0/1", "192.0.2.9:0/2"])
    assert ensure(cluster, state="absent", force=True)["fenced"] == ["192.0.2.9:0/1", "192.0.2.9:0/2"]
    assert pool.fenced == ["192.0.2.9:0/1", "192.0.2.9:0/2"]
    assert {line.split()[-1] for line in pool.lines if "blocklist" in line} == {FENCE_SECONDS}
    pool.images["volume-" + A]["watchers"] = ["192.0.2.7:0/1", "192.0.2.8:0/1"]
    with pytest.raises(errors.VolumeIsBusy, match="other guests") as refused:
        ensure(cluster, state="absent", force=True, users=1)
    assert FENCE_SECONDS in str(refused.value.remedy)
    pool.unfenced = True
    monkeypatch.setattr(fences, "_PATIENCE", 0)
    with pytest.raises(errors.VolumeIsBusy, match="192.0.2.7:0/1, 192.0.2.8:0/1, which was fenced"):
        ensure(cluster, state="absent", force=True)
