# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Volumes on real LVM: the modules volume_lvm and storage_backend_info on the lab's storage host."""

from __future__ import annotations

import concurrent.futures
import time
from pathlib import Path

import pytest
from storage_host import GIB, MIB, TEMP, new_id, noise, sha256

THICK = {"volume_group": "thick-vg", "provisioning": "thick"}
THIN = {"volume_group": "thin-vg", "provisioning": "thin"}

# Counts what is asked of LVM: it stands before the real one in the PATH.
COUNTER = """#!/bin/sh
echo "$@" >>/run/lvm-calls
exec /sbin/lvm "$@"
"""


@pytest.fixture(scope="module", autouse=True)
def backends(storage):
    """A thick and a thin backend; gone at the end."""
    pool = "lvcreate -q -y --type thin-pool -l 80%VG -n thin-vg-pool thin-vg"
    storage.sh(
        "vgcreate -q thick-vg %s && vgcreate -q thin-vg %s && %s"
        % (storage.vm.disk("pv1"), storage.vm.disk("pv2"), pool)
    )
    counter = storage.folder / "lvm"
    counter.write_text(COUNTER)
    storage.vm.put(counter, "/usr/local/sbin/lvm")
    storage.sh("chmod 755 /usr/local/sbin/lvm")
    yield
    storage.sh("rm /usr/local/sbin/lvm; vgremove -q -y -f thick-vg thin-vg", check=False)


@pytest.fixture(autouse=True)
def empty(storage):
    """Every test begins with empty backends, and leaves no temporary file."""
    storage.sh(
        "lvs=$(lvs --noheadings -o lv_full_name -S lv_tags=bootflow thick-vg thin-vg);"
        ' [ -z "$lvs" ] || lvremove -q -y $lvs; rm -f /run/lvm-calls'
    )
    yield
    assert storage.temporary_files() == []


def test_empty_volumes_have_the_exact_size_the_name_and_the_tags(storage):
    one, two = new_id(), new_id()
    wanted = [{"id": one, "size_gb": 1, "project": "red"}, {"id": two, "size_gb": 2}]
    for backend in (THICK, THIN):
        planned = storage.volumes(backend, wanted, check=True)
        assert planned["changed"] and planned["diff"]["before"] == {one: None, two: None}
        assert planned["diff"]["after"][two]["size"] == 2 * GIB
        assert not [name for name in storage.lvs(backend["volume_group"]) if name.startswith("volume-")]
        first = storage.volumes(backend, wanted)
        again = storage.volumes(backend, wanted)
        assert first["changed"] and not again["changed"]
        assert [first["outcomes"][key]["error"] for key in (one, two)] == [None, None]
        there = storage.lvs(backend["volume_group"])
        assert there["volume-" + one]["lv_size"] == str(GIB) and there["volume-" + two]["lv_size"] == str(2 * GIB)
        assert set(there["volume-" + one]["lv_tags"].split(",")) == {
            "bootflow",
            "bootflow.volume=" + one,
            "bootflow.project=red",
        }
        other = storage.volumes(backend, [{"id": one, "size_gb": 2}, {"id": two, "size_gb": 2, "project": "blue"}])
        assert [other["outcomes"][key]["error"]["code"] for key in (one, two)] == ["Conflict", "Conflict"]
        assert not other["changed"]


def test_thick_volumes_begin_with_their_images_and_every_run_cleans_up(storage):
    data = noise(3 * MIB)
    images = [storage.put_image("thick", data, image_format, 8 * MIB) for image_format in ("raw", "qcow2", "vmdk")]
    volumes = [{"id": new_id(), "size_gb": 1, "image_id": image["id"]} for image in images]
    made = storage.volumes(THICK, volumes, images=images)["outcomes"]
    for volume in volumes:
        outcome = made[volume["id"]]
        assert outcome["error"] is None and outcome["action"] == "create"
        assert storage.sha256(outcome["path"], 8 * MIB) == sha256(data + bytes(5 * MIB))
    assert not [row for row in storage.lvs("thick-vg").values() if "bootflow.incomplete" in row["lv_tags"]]
    assert storage.temporary_files() == []
    assert not storage.volumes(THICK, volumes, images=images)["changed"]


def test_on_a_thin_backend_the_second_volume_from_an_image_takes_no_copy_and_zeros_no_room(storage):
    data = noise(8 * MIB, 2)
    image = storage.put_image("thin", data, "qcow2", 512 * MIB)
    ids = [new_id() for _index in range(3)]
    first = storage.volumes(THIN, [{"id": ids[0], "size_gb": 1, "image_id": image["id"]}], images=[image])
    assert first["outcomes"][ids[0]]["error"] is None
    storage.sh("rm %s /run/lvm-calls" % image["path_on_host"])
    rest = [{"id": item_id, "size_gb": 2, "image_id": image["id"]} for item_id in ids[1:]]
    second = storage.volumes(THIN, rest, images=[image])
    # A snapshot and its growth each, one command for the tags of both, and the reports.
    assert len(storage.sh("grep -v fullreport /run/lvm-calls").splitlines()) == 2 * len(rest) + 1
    assert [second["outcomes"][item_id]["error"] for item_id in ids[1:]] == [None, None]
    for item_id, size in zip(ids, (1, 2, 2)):
        assert storage.sha256("/dev/thin-vg/volume-" + item_id, 8 * MIB) == sha256(data)
        assert storage.lvs("thin-vg")["volume-" + item_id]["lv_size"] == str(size * GIB)
    assert float(storage.lvs("thin-vg")["thin-vg-pool"]["data_percent"]) < 1.0
    assert second["backend"]["provisioned_capacity_gb"] == 5.5 and second["backend"]["allocated_capacity_gb"] == 5.0
    gone = storage.volumes(THIN, [{"id": item_id, "state": "absent"} for item_id in ids])
    assert gone["changed"] and set(storage.lvs("thin-vg")) == {"thin-vg-pool", "image-" + image["checksum"][:40]}


@pytest.mark.parametrize("backend", [THICK, THIN], ids=["thick", "thin"])
def test_snapshots_and_clones_have_the_sources_data_and_keep_it_from_deletion(storage, backend):
    data = noise(4 * MIB, 3)
    image = storage.put_image("source", data, "raw")
    source, snapshot, clone, restored = (new_id() for _index in range(4))
    made = storage.volumes(
        backend,
        [
            {"id": restored, "source_snapshot": snapshot, "size_gb": 1},
            {"id": clone, "source_volume": source},
            {"id": snapshot, "kind": "snapshot", "source_volume": source},
            {"id": source, "size_gb": 1, "image_id": image["id"]},
        ],
        images=[image],
    )
    assert {key: value["error"] for key, value in made["outcomes"].items()} == dict.fromkeys(made["outcomes"])
    for item_id in (source, clone, restored):
        assert storage.sha256(made["outcomes"][item_id]["path"], 4 * MIB) == sha256(data)
    refused = storage.volumes(backend, [{"id": source, "state": "absent"}])["outcomes"][source]
    assert refused["error"]["code"] == "VolumeIsBusy" and not refused["changed"]
    too_small = storage.volumes(backend, [{"id": new_id(), "source_volume": new_id(), "size_gb": 1}])["outcomes"]
    assert [value["error"]["code"] for value in too_small.values()] == ["VolumeNotFound"]
    gone = storage.volumes(
        backend,
        [
            {"id": source, "state": "absent"},
            {"id": snapshot, "kind": "snapshot", "state": "absent"},
            {"id": clone, "state": "absent"},
            {"id": restored, "state": "absent"},
        ],
        clear_size_mb=1,
    )
    assert {key: value["error"] for key, value in gone["outcomes"].items()} == dict.fromkeys(gone["outcomes"])
    assert not [name for name in storage.lvs(backend["volume_group"]) if "volume-" in name or "snapshot" in name]


def test_extending_keeps_the_data_also_in_use_and_never_shrinks(storage):
    data = noise(MIB, 4)
    image = storage.put_image("grow", data, "raw")
    item_id = new_id()
    storage.volumes(THICK, [{"id": item_id, "size_gb": 1, "image_id": image["id"]}], images=[image])
    path = "/dev/thick-vg/volume-" + item_id
    storage.sh("(sleep 60 <%s >/dev/null 2>&1 & echo $! >/run/holder)" % path)
    grown = storage.volumes(THICK, [{"id": item_id, "state": "extended", "size_gb": 2}])["outcomes"][item_id]
    assert grown["action"] == "extend" and storage.lvs("thick-vg")["volume-" + item_id]["lv_size"] == str(2 * GIB)
    assert storage.sha256(path, MIB) == sha256(data)
    assert not storage.volumes(THICK, [{"id": item_id, "state": "extended", "size_gb": 2}])["changed"]
    shrunk = storage.volumes(THICK, [{"id": item_id, "state": "extended", "size_gb": 1}])["outcomes"][item_id]
    assert shrunk["error"]["status"] == 400 and "must be greater" in shrunk["error"]["message"]
    busy = storage.volumes(THICK, [{"id": item_id, "state": "absent"}])["outcomes"][item_id]
    assert busy["error"]["code"] == "VolumeIsBusy"
    storage.sh("kill $(cat /run/holder)")


def test_the_next_owner_of_the_room_finds_nothing(storage):
    room = Path(storage.vm.directory)

    def secrets():
        with open(room / "pv1.raw", "rb") as file:
            return file.read(64 * MIB).count(b"secret")

    for options in ({}, {"clear": "shred", "clear_size_mb": 16}):
        item = {"id": new_id(), "size_gb": 1}
        path = storage.volumes(THICK, [item])["outcomes"][item["id"]]["path"]
        storage.sh("yes secret | dd of=%s bs=1M count=8 iflag=fullblock oflag=direct status=none" % path)
        assert secrets() > 1000000
        assert storage.volumes(THICK, [{"id": item["id"], "state": "absent"}], **options)["changed"]
        assert secrets() == 0
    assert not storage.volumes(THICK, [{"id": item["id"], "state": "absent"}])["changed"]
    refused = storage.volumes(THICK, [{"id": item["id"], "state": "absent"}], clear="discard")
    assert refused["error_code"] == "InvalidInput" and "old data" in refused["msg"]


def test_discard_gives_a_thin_volumes_room_back_to_the_device_below(storage):
    item = {"id": new_id(), "size_gb": 1}
    path = storage.volumes(THIN, [item])["outcomes"][item["id"]]["path"]
    storage.sh("yes secret | dd of=%s bs=1M count=48 iflag=fullblock oflag=direct status=none" % path)
    disk = Path(storage.vm.directory) / "pv2.raw"
    written = disk.stat().st_blocks * 512
    assert storage.volumes(THIN, [{"id": item["id"], "state": "absent"}], clear="discard")["changed"]
    assert written - disk.stat().st_blocks * 512 > 40 * MIB


def test_a_full_or_missing_backend_says_so_and_spoils_nothing(storage):
    small, large = new_id(), new_id()
    outcomes = storage.volumes(THICK, [{"id": large, "size_gb": 50}, {"id": small, "size_gb": 1}])["outcomes"]
    assert outcomes[small]["error"] is None
    assert outcomes[large]["error"]["code"] == "VolumeBackendAPIException" and outcomes[large]["error"]["retryable"]
    assert "full" in outcomes[large]["error"]["message"] and not outcomes[large]["changed"]
    missing = storage.volumes({"volume_group": "nowhere", "provisioning": "thick"}, [{"id": small, "size_gb": 1}])
    assert missing["failed"] and missing["error_code"] == "DriverNotInitialized" and "nowhere" in missing["msg"]
    no_pool = storage.volumes({"volume_group": "thick-vg", "provisioning": "thin"}, [{"id": small, "size_gb": 1}])
    assert no_pool["error_code"] == "DriverNotInitialized" and "thick-vg-pool" in no_pool["msg"]
    storage.vm.run("lvchange", "-an", "thin-vg/thin-vg-pool")
    try:
        inactive = storage.volumes(THIN, [{"id": small, "size_gb": 1}])
        assert inactive["error_code"] == "DriverNotInitialized" and "not active" in inactive["msg"]
    finally:
        storage.vm.run("lvchange", "-ay", "thin-vg/thin-vg-pool")


def test_a_full_thin_pool_ends_a_copy_with_an_error_and_leaves_no_volume(storage):
    storage.vm.run("vgcreate", "tiny-vg", storage.vm.disk("pv3"))
    storage.vm.run("lvcreate", "--yes", "--type", "thin-pool", "-L", "16m", "-n", "tiny-vg-pool", "tiny-vg")
    storage.vm.run("lvchange", "--errorwhenfull", "y", "tiny-vg/tiny-vg-pool")
    image = storage.put_image("fills", noise(24 * MIB, 5), "qcow2")
    item_id = new_id()
    try:
        backend = {"volume_group": "tiny-vg", "provisioning": "thin"}
        wanted = [{"id": item_id, "size_gb": 1, "image_id": image["id"]}]
        for image_cache in (True, False):
            outcome = storage.volumes(backend, wanted, images=[image], image_cache=image_cache)["outcomes"][item_id]
            assert outcome["error"]["code"] == "ImageCopyFailure"
            assert set(storage.lvs("tiny-vg")) == {"tiny-vg-pool"}
    finally:
        storage.vm.run("vgremove", "-y", "-f", "tiny-vg")


def test_the_image_cache_keeps_to_its_limit_and_volumes_outlive_it(storage):
    data = {name: noise(4 * MIB, seed) for seed, name in enumerate(("one", "two"), 20)}
    images = {name: storage.put_image(name, data[name], "qcow2", 64 * MIB) for name in data}
    ids = {name: new_id() for name in data}
    cached = {name: "image-" + image["checksum"][:40] for name, image in images.items()}
    for name, gone in (("one", []), ("two", [cached["one"]])):
        wanted = [{"id": ids[name], "size_gb": 1, "image_id": images[name]["id"]}]
        result = storage.volumes(THIN, wanted, images=[images[name]], image_cache_max_count=1)
        assert result["outcomes"][ids[name]]["error"] is None
        assert [image["name"] for image in result["evicted"]] == gone
        assert [lv for lv in storage.lvs("thin-vg") if lv.startswith("image-")] == [cached[name]]
        assert (result["backend"]["image_cache_count"], result["backend"]["image_cache_gb"]) == (1, 0.06)
    cache = {"volume_group": "thin-vg"}
    assert storage.module("volume_image_cache", dict(cache, unused=True))["removed"] == []
    planned = storage.module("volume_image_cache", cache, check=True)
    (entry,) = planned["images"]
    assert planned["changed"] and planned["removed"] == [cached["two"]]
    assert (entry["image_ids"], entry["users"], entry["complete"]) == ([images["two"]["id"]], 1, True)
    assert 4 * MIB <= entry["written"] < 8 * MIB and entry["used_at"] > 0
    removed = storage.module("volume_image_cache", dict(cache, discard=True))
    assert removed["removed"] == [cached["two"]] and removed["kept"] == {}
    assert storage.module("volume_image_cache", cache)["changed"] is False
    for name, item_id in ids.items():
        assert storage.sha256("/dev/thin-vg/volume-" + item_id, 4 * MIB) == sha256(data[name])
    assert storage.sh("ls -A /run/bootflow/image-locks") == ""


def test_cached_images_of_nobody_give_way_and_what_is_in_a_full_pool_can_be_deleted(storage):
    storage.vm.run("vgcreate", "tiny-vg", storage.vm.disk("pv3"))
    storage.vm.run("lvcreate", "--yes", "--type", "thin-pool", "-L", "24m", "-n", "tiny-vg-pool", "tiny-vg")
    storage.vm.run("lvchange", "--errorwhenfull", "y", "tiny-vg/tiny-vg-pool")
    backend = {"volume_group": "tiny-vg", "provisioning": "thin"}
    small = storage.put_image("small", noise(16 * MIB, 30), "raw")
    large = storage.put_image("larger", noise(20 * MIB, 31), "raw")
    one, two, three = new_id(), new_id(), new_id()
    try:
        made = storage.volumes(backend, [{"id": one, "size_gb": 1, "image_id": small["id"]}], images=[small])
        assert made["outcomes"][one]["error"] is None and made["backend"]["free_capacity_gb"] == 0.0
        freed = storage.volumes(backend, [{"id": one, "state": "absent"}])
        assert freed["backend"]["free_capacity_gb"] == 0.02 and freed["backend"]["provisioned_capacity_gb"] == 0.0
        made = storage.volumes(backend, [{"id": two, "size_gb": 1, "image_id": large["id"]}], images=[large])
        assert made["outcomes"][two]["error"] is None
        assert [image["checksum"] for image in made["evicted"]] == [small["checksum"]]

        storage.sh("dd if=/dev/zero of=/dev/tiny-vg/volume-%s bs=1M oflag=direct seek=40 count=8" % two, check=False)
        assert float(storage.lvs("tiny-vg")["tiny-vg-pool"]["data_percent"]) == 100.0
        wanted = [{"id": three, "size_gb": 1}, {"id": two, "state": "absent"}]
        outcomes = storage.volumes(backend, wanted)["outcomes"]
        assert outcomes[three]["error"]["code"] == "VolumeBackendAPIException" and outcomes[three]["error"]["retryable"]
        assert outcomes[two]["error"] is None and outcomes[two]["changed"]
        assert storage.volumes(backend, [{"id": three, "size_gb": 1}])["outcomes"][three]["error"] is None
    finally:
        storage.vm.run("vgremove", "-y", "-f", "tiny-vg")


def test_a_full_temporary_directory_ends_before_a_volume_is_made(storage):
    image = storage.put_image("large", noise(6 * MIB, 6), "raw")
    storage.sh("chown nobody %s" % image["path_on_host"])  # somebody may change it: it is not read where it lies
    item_id = new_id()
    storage.sh("mkdir -p %s && mount -t tmpfs -o size=2m full %s" % (TEMP, TEMP))
    try:
        wanted = [{"id": item_id, "size_gb": 1, "image_id": image["id"]}]
        outcome = storage.volumes(THICK, wanted, images=[image])["outcomes"][item_id]
        assert outcome["error"]["code"] == "ImageTooBig" and TEMP in outcome["error"]["remedy"]
        assert not outcome["changed"] and storage.temporary_files() == []
        assert storage.lvs("thick-vg") == {}
    finally:
        storage.vm.run("umount", TEMP)


def test_an_image_that_lies_is_refused_before_a_volume_is_made(storage):
    good = storage.put_image("good", noise(MIB, 7), "qcow2")
    big = storage.put_image("big", noise(MIB, 8), "qcow2", 2 * GIB)
    storage.vm.run(
        "qemu-img", "create", "-q", "-f", "qcow2", "-F", "raw", "-b", "/etc/shadow", "/root/evil.qcow2", "1G"
    )
    evil_sum = storage.vm.run("sha256sum", "/root/evil.qcow2").stdout.split()[0]
    evil = dict(good, id=new_id(), name="evil", path_on_host="/root/evil.qcow2", checksum=evil_sum)
    cases = [
        (dict(good, id=new_id(), disk_format="raw"), "ImageUnacceptable", "the format is qcow2"),
        (dict(good, id=new_id(), checksum="0" * 64), "ImageChecksumMismatch", "sha256"),
        (dict(good, id=new_id(), path_on_host="/root/none"), "ImageDownloadFailed", "No such file"),
        (dict(good, id=new_id(), checksum=""), "ImageUnacceptable", "checksum"),
        (big, "ImageUnacceptable", "2GB and doesn't fit in a volume of size 1GB"),
        (evil, "ImageUnacceptable", "backed by"),
    ]
    volumes = [{"id": new_id(), "size_gb": 1, "image_id": image["id"]} for image, _code, _words in cases]
    result = storage.volumes(THICK, volumes, images=[image for image, _code, _words in cases])
    assert not result["changed"] and storage.lvs("thick-vg") == {}
    for volume, (_image, code, words) in zip(volumes, cases):
        error = result["outcomes"][volume["id"]]["error"]
        assert error["code"] == code and words in error["message"]


def test_without_qemu_img_raw_images_are_copied_and_others_refused(storage):
    data = noise(3 * MIB + 512, 9)
    raw, qcow2 = storage.put_image("plain", data, "raw"), storage.put_image("other", data[:MIB], "qcow2")
    one, two = new_id(), new_id()
    storage.vm.run("mv", "/usr/bin/qemu-img", "/usr/bin/qemu-img.away")
    try:
        wanted = [{"id": one, "size_gb": 1, "image_id": raw["id"]}, {"id": two, "size_gb": 1, "image_id": qcow2["id"]}]
        outcomes = storage.volumes(THICK, wanted, images=[raw, qcow2])["outcomes"]
    finally:
        storage.vm.run("mv", "/usr/bin/qemu-img.away", "/usr/bin/qemu-img")
    assert outcomes[one]["error"] is None and "Only RAW" in outcomes[two]["error"]["message"]
    assert storage.sha256(outcomes[one]["path"], len(data)) == sha256(data)


@pytest.mark.parametrize("backend", [THICK, THIN], ids=["thick", "thin"])
def test_twenty_volumes_at_once_take_few_lvm_commands(storage, backend):
    image = storage.put_image("many", noise(MIB, 10), "qcow2", GIB)
    size = {"image_id": image["id"], "size_gb": 1} if backend is THIN else {"size_gb": 1}
    wanted = [dict(size, id=new_id()) for _index in range(20 if backend is THIN else 5)]
    storage.vm.run("rm", "-f", "/run/lvm-calls")
    made = storage.volumes(backend, wanted, images=[image])
    assert [value["error"] for value in made["outcomes"].values()] == [None] * len(wanted)
    calls = storage.vm.run("cat", "/run/lvm-calls").stdout.splitlines()
    reports = [call for call in calls if call.startswith("fullreport")]
    # One each; thin ones share the making of the image's volume and its seal.
    assert len(calls) - len(reports) <= len(wanted) + (2 if backend is THIN else 0)
    assert len(reports) <= 3
    storage.vm.run("rm", "-f", "/run/lvm-calls")
    gone = storage.volumes(backend, [{"id": item["id"], "state": "absent"} for item in wanted], clear_size_mb=1)
    assert gone["changed"] and not any(value["error"] for value in gone["outcomes"].values())
    assert len(storage.vm.run("cat", "/run/lvm-calls").stdout.splitlines()) <= 4


def test_of_two_runs_that_want_the_last_room_one_gets_it(storage):
    ids = [new_id(), new_id()]
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        results = list(pool.map(lambda item_id: storage.volumes(THICK, [{"id": item_id, "size_gb": 4}]), ids))
    errors = [result["outcomes"][item_id]["error"] for result, item_id in zip(results, ids)]
    assert sorted(error is None for error in errors) == [False, True]
    assert [error["code"] for error in errors if error] == ["VolumeBackendAPIException"]
    assert len(storage.lvs("thick-vg")) == 1


@pytest.mark.parametrize("backend", [THICK, THIN], ids=["thick", "thin"])
def test_a_run_that_was_killed_leaves_only_what_the_next_one_continues(storage, backend):
    data = noise(4 * MIB, 11)
    image = storage.put_image("killed", data, "qcow2")
    item_id = new_id()
    wanted = [{"id": item_id, "size_gb": 1, "image_id": image["id"]}]
    # Made slow: the conversion can be met in the middle.
    slow = '#!/bin/sh\n[ "$1" != convert ] || { echo $PPID >/run/converting; sleep 8; }\nexec /usr/bin/qemu-img "$@"\n'
    path = storage.folder / "slow"
    path.write_text(slow)
    storage.vm.put(path, "/usr/local/bin/qemu-img")
    storage.sh("chmod 755 /usr/local/bin/qemu-img; rm -f /run/converting")
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        running = pool.submit(storage.volumes, backend, wanted, images=[image])
        deadline = time.monotonic() + 180
        while storage.vm.run("test", "-s", "/run/converting", check=False).returncode:
            assert time.monotonic() < deadline
            time.sleep(0.2)
        progress = storage.sh("cat /run/bootflow/progress/*.json")
        storage.sh("rm /usr/local/bin/qemu-img; kill -KILL $(cat /run/converting)")
        assert running.result()["rc"] != 0
    assert '"converting"' in progress or '"downloading"' in progress
    assert storage.vm.run("pgrep", "qemu-img", check=False).stdout == ""
    left = storage.lvs(backend["volume_group"])
    ours = [row for name, row in left.items() if not name.endswith("-pool")]
    assert len(ours) == 1 and "bootflow.incomplete" in ours[0]["lv_tags"]
    again = storage.volumes(backend, wanted, images=[image])["outcomes"][item_id]
    assert again["error"] is None and again["action"] == ("redo" if backend is THICK else "create")
    assert storage.sha256(again["path"], len(data)) == sha256(data)
    assert storage.temporary_files() == []


def test_the_facts_of_the_backends_and_what_nobody_knows(storage):
    known, unknown = new_id(), new_id()
    storage.volumes(THICK, [{"id": known, "size_gb": 1}, {"id": unknown, "size_gb": 1}])
    backends = [
        dict(THICK, name="thick"),
        dict(THIN, name="thin"),
        {"name": "broken", "volume_group": "nowhere", "provisioning": "thick"},
    ]
    facts = storage.module("storage_backend_info", {"backends": backends, "known": [known]})["backends"]
    thick, thin = facts["thick"], facts["thin"]
    assert thick["total_capacity_gb"] == 6.99 and thick["free_capacity_gb"] == 4.99  # less what LVM keeps of a disk
    assert thick["provisioned_capacity_gb"] == 2.0 and not thick["thin_provisioning_support"]
    assert [item["id"] for item in thick["orphans"]] == [unknown]
    assert 3.1 < thin["total_capacity_gb"] < 3.3 and thin["data_percent"] is not None
    assert thin["provisioned_capacity_gb"] == 0.0
    assert facts["broken"]["error"]["code"] == "DriverNotInitialized" and not facts["thick"]["error"]


def test_a_lost_power_keeps_what_was_said_to_be_done(storage):
    data = noise(2 * MIB, 12)
    image = storage.put_image("kept", data, "qcow2")
    item_id = new_id()
    wanted = [{"id": item_id, "size_gb": 1, "image_id": image["id"]}]
    storage.volumes(THICK, wanted, images=[image])
    storage.vm.crash()
    storage.close()
    storage.vm.start(keep=True)
    assert not storage.volumes(THICK, wanted, images=[image])["changed"]
    assert storage.sha256("/dev/thick-vg/volume-" + item_id, len(data)) == sha256(data)
