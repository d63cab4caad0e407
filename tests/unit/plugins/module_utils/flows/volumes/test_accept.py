# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.core.volumes import quotas
from ansible_collections.bootflow.compute.plugins.module_utils.core.volumes.create_request import CreateOptions
from ansible_collections.bootflow.compute.plugins.module_utils.core.volumes.model import VolumeRequest
from ansible_collections.bootflow.compute.plugins.module_utils.flows.volumes import accept
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.schema import volume_tables
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.storage import snapshots
from ansible_collections.bootflow.compute.tests.unit.worlds.volume_world import FAST, REBUILT, VolumeWorld
from ansible_collections.bootflow.compute.tests.unit.worlds.world import IMAGE


@pytest.fixture
def vw(vworld: VolumeWorld) -> VolumeWorld:
    vworld.store("s1", lvm=100)
    return vworld


def test_the_row_that_a_volume_begins_as(vw: VolumeWorld) -> None:
    accepted = vw.request(
        {
            "display_name": " v ",
            "size": "10",
            "description": "mine",
            "imageRef": "cirros",
            "volume_type": "fast",
            "metadata": {"a": "b"},
            "scheduler_hints": {},
        }
    )
    assert accepted.changed and not accepted.resumed and not accepted.unchanged
    row = vw.volume(accepted.created[0])
    assert (row.name, row.size, row.status, row.attach_status) == ("v", 10, "creating", "detached")
    assert (row.description, row.meta, row.volume_type) == ("mine", {"a": "b"}, "fast")
    assert (row.pool_host, row.pending_gb, row.made, row.bootable, row.run_id) == (None, 0, False, False, "run-a")
    assert (row.image_id, row.availability_zone, row.user_name) == (IMAGE.id, "nova", "ann")
    assert row.spec["image"]["checksum"] == IMAGE.checksum and "image-secret" not in str(row)
    assert row.spec["volume_id"] == row.id


def test_the_same_again_changes_nothing(vw: VolumeWorld) -> None:
    entry = {"name": "v", "size": 10, "image": "cirros", "volume_type": "fast"}
    volume_id = vw.make(**entry)
    for other in (
        entry,
        {**entry, "size": "10", "description": "", "metadata": {}},
        {**entry, "image": IMAGE.id, "volume_type": FAST.id},
    ):
        assert vw.request(other, run="b").unchanged == [volume_id]
    # a default that was changed meanwhile makes no difference
    other = vw.make("w", 1)
    options = CreateOptions(default_volume_type="fast")
    assert vw.request({"name": "w", "size": 1}, options=options).unchanged == [other]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"size": 12}, "size is 10 GiB, not 12 (volume_extend enlarges it)"),
        ({"size": 8}, "size is 10 GiB, not 8"),
        ({"description": "x"}, "description is none, not x"),
        ({"volume_type": "fast"}, "volume_type is none, not fast"),
        ({"image": "cirros"}, "image is none, not cirros"),
        ({"metadata": {"a": "b"}}, "metadata is none, not {'a': 'b'}"),
        ({"multiattach": True}, "multiattach is False, not True"),
    ],
)
def test_another_definition_is_refused_and_says_what_differs(vw: VolumeWorld, change: t.Any, words: str) -> None:
    vw.make("v", 10)
    with pytest.raises(errors.InvalidRequest) as refused:
        vw.request({"name": "v", "size": 10, **change})
    assert refused.value.status == 409
    assert refused.value.errors[0]["path"] == "volumes[0].name"
    assert refused.value.errors[0]["code"] == "VolumeExists"
    assert words in refused.value.errors[0]["message"]


def test_a_volume_that_was_extended_is_what_was_asked_either_way(vw: VolumeWorld) -> None:
    volume_id = vw.make("v", 10)
    vw.extend("v", 20)
    vw.work()
    for size in (10, 20):
        assert vw.request({"name": "v", "size": size}).unchanged == [volume_id]
    assert vw.refused({"name": "v", "size": 15}) == [("volumes[0].name", "VolumeExists")]


def test_a_source_that_is_gone_makes_no_difference(vw: VolumeWorld) -> None:
    vw.make("old", 10)
    volume_id = vw.make("new", None, source_volid="old")
    vw.remove("old")
    vw.work(run="d")
    assert vw.request({"name": "new", "source_volid": "old"}).unchanged == [volume_id]


def test_all_refusals_at_once_and_nothing_is_written(vw: VolumeWorld) -> None:
    before = vw.everything()
    assert vw.refused(
        {"size": 1},
        {"name": "a", "size": "ten"},
        {"name": "b", "size": 1, "colour": "red"},
        {"name": "c", "size": 1, "volume_type": "slow"},
        {"name": "d", "size": 1, "snapshot_id": "none"},
        {"name": "e", "size": 1, "source_volid": "none"},
        {"name": "f", "size": 1, "image": "none"},
        {"name": "g", "size": 1, "availability_zone": "mars"},
        {"name": "h", "size": 1},
        {"name": "h", "size": 1},
    ) == [
        ("volumes[0].name", "InvalidInput"),
        ("volumes[2]", "InvalidInput"),
        ("volumes[9].name", "InvalidInput"),
        ("volumes[1]", "InvalidInput"),
        ("volumes[3]", "VolumeTypeNotFoundByName"),
        ("volumes[4]", "SnapshotNotFound"),
        ("volumes[5]", "VolumeNotFound"),
        ("volumes[6]", "ImageNotFound"),
        ("volumes[7]", "InvalidAvailabilityZone"),
    ]
    assert vw.everything() == before


@pytest.mark.parametrize(
    ("limits", "entries", "code", "path"),
    [
        ({"gigabytes": 20}, [15, 10], "VolumeSizeExceedsAvailableQuota", "quotas"),
        ({"volumes": 1}, [1, 1], "VolumeLimitExceeded", "quotas"),
        ({"volumes": 0, "gigabytes": 1}, [2], "VolumeSizeExceedsAvailableQuota", "quotas"),  # gigabytes first
        ({"per_volume_gigabytes": 5}, [5, 6], "VolumeSizeExceedsLimit", "volumes[1].size"),
        ({"gigabytes_fast": 3}, [2, 2], "VolumeSizeExceedsAvailableQuota", "quotas"),
        ({"projects": {"default": {"volumes": 1}}}, [1, 1], "VolumeLimitExceeded", "quotas"),
    ],
)
def test_quotas_of_the_whole_request(vw: VolumeWorld, limits: t.Any, entries: list[int], code: str, path: str) -> None:
    vw.quotas = limits
    wishes = [{"name": "v%d" % i, "size": size, "volume_type": "fast"} for i, size in enumerate(entries)]
    with pytest.raises(errors.InvalidRequest) as refused:
        vw.request(*wishes)
    assert [(e["path"], e["code"]) for e in refused.value.errors] == [(path, code)]
    assert refused.value.status == 413
    assert vw.rows(volume_tables.volumes) == []


def test_what_lives_counts_and_what_is_deleted_does_not(vw: VolumeWorld) -> None:
    vw.quotas = {"volumes": 2, "gigabytes": 20, "snapshots": 1}
    vw.make("a", 10)
    vw.make("b", 10)
    assert vw.refused({"name": "c", "size": 1}) == [("quotas", "VolumeSizeExceedsAvailableQuota")]
    vw.remove("b")
    assert vw.refused({"name": "c", "size": 1}) == [("quotas", "VolumeSizeExceedsAvailableQuota")]  # not gone yet
    vw.work(run="d")
    assert vw.request({"name": "c", "size": 10}).created


def test_a_live_run_is_not_robbed_and_a_dead_one_is_taken_over(vw: VolumeWorld) -> None:
    entry = {"name": "v", "size": 10}
    (volume_id,) = vw.request(entry, run="a").created
    vw.choose("a")
    assert vw.refused(entry, run="b") == [("volumes[0].name", "VolumeLocked")]
    vw.time += 601
    accepted = vw.request(entry, run="b")
    assert accepted.resumed == [volume_id]
    assert (vw.volume("v").run_id, vw.volume("v").pool_host) == ("run-b", "s1@lvm#lvm")  # it goes on where it was
    assert vw.choose("b").hosts == ["s1"]
    assert vw.work(run="b").done == [volume_id]


def test_one_that_failed_begins_anew_with_the_image_of_today(vw: VolumeWorld) -> None:
    entry = {"name": "v", "size": 10, "image": "cirros"}
    (volume_id,) = vw.request(entry).created
    vw.choose()
    assert list(vw.work(v=errors.ImageUnacceptable(image_id="x", reason="other")).failed) == [volume_id]
    row = vw.volume("v")
    assert (row.status, row.pool_host, row.made, row.pending_gb) == ("error", "s1@lvm#lvm", False, 0)
    vw.images["cirros"] = REBUILT
    assert vw.request(entry, run="b").resumed == [volume_id]
    row = vw.volume("v")
    assert (row.status, row.pool_host, row.retry, row.spec["image"]["checksum"]) == ("creating", None, None, "1" * 64)
    assert vw.pending_cleanups() == {("s1@lvm#lvm", volume_id)}  # it may have left something there
    vw.choose("b")
    assert vw.pending_cleanups() == set()  # and is made there again
    assert vw.work(run="b").done == [volume_id]
    assert vw.volume("v").image_metadata["hw_disk_bus"] == "scsi"


def test_one_that_is_being_deleted_is_not_wished_back(vw: VolumeWorld) -> None:
    vw.make("v", 10)
    vw.remove("v")
    assert vw.refused({"name": "v", "size": 10}, run="d") == [("volumes[0].name", "InvalidVolume")]
    vw.work(run="d")
    assert vw.request({"name": "v", "size": 10}).created


def test_a_volume_is_made_where_its_source_is_and_gets_what_it_has(vw: VolumeWorld) -> None:
    vw.store("s2", lvm=1000)
    vw.images["cirros"] = REBUILT
    vw.request({"name": "boot", "size": 10, "image": "cirros"})
    vw.choose(max_over_subscription_ratio=1.0)
    pool_host = vw.volume("boot").pool_host
    vw.work(pool_host.partition("@")[0])
    assert vw.volume("boot").bootable
    vw.snapshot({"name": "snap", "volume": "boot"})
    vw.work(pool_host.partition("@")[0])
    for name, source in (("clone", {"source_volid": "boot"}), ("restored", {"snapshot_id": "snap"})):
        vw.request({"name": name, **source})
        row = vw.volume(name)
        assert row.size == 10 and row.spec["resource_backend"] == pool_host
        vw.choose()
        assert vw.volume(name).pool_host == pool_host
        vw.work(pool_host.partition("@")[0])
        row = vw.volume(name)
        assert row.bootable and row.image_metadata["image_name"] == "cirros"
        assert row.image_metadata == vw.volume("boot").image_metadata
    assert vw.shown("clone")["source"] == "volume %s" % vw.volume("boot").id
    assert vw.shown("boot")["source"] == "image cirros"


def test_hints_name_volumes_and_instances_by_name(vw: VolumeWorld) -> None:
    vw.store("s2", lvm=100)
    first = vw.make("first", 1)
    vw.report("h1")
    guest = vw.boot("guest", networks=())
    hints = {"different_host": ["first"], "local_to_instance": "guest", "same_host": "first"}
    vw.request({"name": "v", "size": 1, "scheduler_hints": hints})
    assert vw.volume("v").spec["scheduler_hints"] == {
        "different_host": [first],
        "local_to_instance": guest,
        "same_host": first,
    }
    assert vw.volume("v").digest["scheduler_hints"] == hints
    vw.snapshot({"name": "snap", "volume": first.upper()})
    vw.work()
    capitals = {"different_host": [first.upper()], "local_to_instance": guest.upper(), "same_host": first.upper()}
    vw.request({"name": "w", "source_volid": first.upper(), "scheduler_hints": capitals})
    assert vw.volume("w").spec["scheduler_hints"] == vw.volume("v").spec["scheduler_hints"]
    assert vw.volume("w").source_volid == first
    with vw.ledger.read() as tx:
        (snap,) = snapshots.find(tx, ["snap"], None).values()
    vw.request({"name": "x", "snapshot_id": snap.id.upper()})
    assert vw.volume("x").snapshot_id == snap.id


def test_names_are_the_projects_own(vw: VolumeWorld) -> None:
    one = vw.request({"name": "v", "size": 1}).created
    two = vw.request({"name": "v", "size": 1}, project="other").created
    assert one and two and one != two
    assert vw.refused({"name": "w", "source_volid": one[0]}, project="other") == [("volumes[0]", "VolumeNotFound")]


# --- volumes of a boot ---------------------------------------------------------------------------------------------------

GUEST = "6b1d4a44-0000-4000-8000-000000000001"


def add(vw: VolumeWorld, *wishes: tuple[str, VolumeRequest], **limits: int) -> list[str]:
    with vw.ledger.write() as tx:
        return accept.add(
            tx.for_run(vw.context()),
            [(path, request, IMAGE if request.image_id else None) for path, request in wishes],
            {**dict.fromkeys(quotas.DEFAULTS, -1), **limits},
            GUEST,
        )


def test_volumes_of_a_boot_have_no_name_and_wait_for_its_host(vw: VolumeWorld) -> None:
    ids = add(
        vw,
        ("instances[0].block_device_mapping[0]", VolumeRequest(size=10, image_id=IMAGE.id)),
        ("instances[0].block_device_mapping[1]", VolumeRequest(size=5)),
    )
    rows = [vw.volume(i) for i in ids]
    assert [(r.size, r.name, r.instance_uuid, r.status) for r in rows] == [
        (10, None, GUEST, "creating"),
        (5, None, GUEST, "creating"),
    ]
    assert rows[0].spec["image"]["id"] == IMAGE.id and rows[1].spec["image"] is None
    scheduled = vw.choose()
    assert not scheduled.placed and not scheduled.failed and scheduled.hosts == []


def test_quotas_and_names_of_a_boot_s_volumes_have_its_paths(vw: VolumeWorld) -> None:
    vw.make("taken", 1)

    def refusals(*wishes: tuple[str, VolumeRequest], **limits: int) -> list[tuple[str, str]]:
        with pytest.raises(errors.InvalidRequest) as refused:
            add(vw, *wishes, **limits)
        return [(e["path"], e["code"]) for e in refused.value.errors]

    wishes = [("a", VolumeRequest(size=10, name="taken")), ("b", VolumeRequest(size=5))]
    assert refusals(*wishes) == [("a", "VolumeExists")]
    assert refusals(*wishes[1:], per_volume_gigabytes=4) == [("b", "VolumeSizeExceedsLimit")]
    assert refusals(*wishes[1:], gigabytes=5) == [("b", "VolumeSizeExceedsAvailableQuota")]
    assert refusals(*wishes[1:], volumes=1) == [("b", "VolumeLimitExceeded")]
    assert [r.name for r in vw.rows(volume_tables.volumes)] == ["taken"]


def test_a_build_that_is_taken_over_brings_its_volumes(vw: VolumeWorld) -> None:
    vw.report("h1")
    guest = vw.boot("guest", until="scheduled", networks=())
    with vw.ledger.write() as tx:
        context = vw.context()
        limits = dict.fromkeys(quotas.DEFAULTS, -1)
        ids = [accept.add(tx.for_run(context), [("", VolumeRequest(size=n), None)], limits, guest)[0] for n in (1, 200)]
    scheduled = vw.choose()
    assert list(scheduled.placed) == ids[:1] and list(scheduled.failed) == ids[1:]
    vw.time += 601
    with vw.ledger.write() as tx:
        accept.take_over(tx.for_run(vw.context("b")), [guest])
    rows = [vw.volume(i) for i in ids]
    assert [(r.status, r.run_id, r.pool_host) for r in rows] == [
        ("creating", "run-b", "s1@lvm#lvm"),
        ("creating", "run-b", None),
    ]
