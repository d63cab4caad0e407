# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The playbooks of volumes as a user calls them, on real LVM: what the ledger says afterwards is what the host has."""

from __future__ import annotations

import concurrent.futures
import hashlib
import json
import os
import subprocess
import time

import pytest
from flow import kill_run
from storage_host import BIN, GIB, MIB, new_id, noise, sha256

from ansible_collections.bootflow.compute.plugins.module_utils.ledger import database
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.storage import volume_views

pytestmark = pytest.mark.long

THICK, THIN = "house-thick", "house-thin"
# Stands before the real one in the PATH: counts what is asked of LVM, and fails what /run/lvm-fails has.
GUARD = """#!/bin/sh
echo "$@" >>/run/lvm-calls
[ ! -e /run/lvm-fails ] || ! echo "$@" | grep -q -f /run/lvm-fails || { echo "  device error" >&2; exit 5; }
exec /sbin/lvm "$@"
"""
# The conversion can be met in the middle.
SLOW = """#!/bin/sh
[ "$1" != convert ] || { echo $PPID >/run/converting; sleep %d; }
exec /usr/bin/qemu-img "$@"
"""
TYPES = [
    {"name": "thick", "extra_specs": {"volume_backend_name": "thick"}},
    {"name": "thin", "extra_specs": {"volume_backend_name": "thin"}},
]


class House:
    """A storage host with two backends, a ledger of its own, and the playbooks."""

    def __init__(self, storage, ledger):
        self.storage = storage
        self.ledger = str(ledger)
        self.images: list[dict] = []
        storage.inventory = str(storage.folder / "house.json")
        storage.vm.write_inventory(
            storage.inventory,
            {
                "bootflow_storage_backends": [
                    {"name": "thick", "volume_group": THICK, "volume_clear_size_mb": 8},
                    {"name": "thin", "volume_group": THIN, "provisioning": "thin"},
                ]
            },
        )

    @property
    def host(self):
        return self.storage.vm.name

    def variables(self, variables):
        found = {
            "bootflow_ledger_url": self.ledger,
            "bootflow_volume_types": TYPES,
            "bootflow_images": self.images,
        }
        return {**found, **{"bootflow_" + name: value for name, value in variables.items()}}

    def play(self, name, *options, fails=False, **variables):
        """The output of playbook ``name``; the variables are without their prefix."""
        done = self.storage.ansible("bootflow.compute." + name, *options, **self.variables(variables))
        assert (done.returncode != 0) == fails, self.storage.output
        return self.storage.output

    def create(self, *volumes, **kwargs):
        return self.play("volume_create", volumes=list(volumes), **kwargs)

    def begin(self, name, **variables):
        """The same in a process of its own that is not waited for; its output is in the file .output."""
        path = self.storage.folder / ("variables-%s.json" % new_id())
        path.write_text(json.dumps(self.variables(variables)))
        output = path.with_suffix(".log")
        environment = dict(os.environ, ANSIBLE_HOME=str(self.storage.folder / "ansible"), ANSIBLE_NOCOLOR="1")
        environment["ANSIBLE_COLLECTIONS_PATH"] = os.environ.get("PYTHONPATH", "").split(os.pathsep)[0]
        argv = [str(BIN / "ansible-playbook"), "-i", self.storage.inventory, "-e", "@%s" % path]
        with open(output, "w", encoding="utf-8") as file:
            process = subprocess.Popen(
                [*argv, "bootflow.compute." + name],
                stdout=file,
                stderr=subprocess.STDOUT,
                env=environment,
                cwd=self.storage.folder,
                start_new_session=True,
            )
        process.output = output
        return process

    def read(self, view):
        return database.open_ledger("sqlite:///" + self.ledger).inspect(view)

    def volumes(self):
        return {v["name"]: v for v in self.read(volume_views.volumes)}

    def snapshots(self):
        return {s["name"]: s for s in self.read(volume_views.snapshots)}

    def backend(self, name):
        return next(
            b for b in self.read(volume_views.backends) if b["pool_host"] == "%s@%s#%s" % (self.host, name, name)
        )

    def lvs(self, group):
        """Our logical volumes of a group: name -> size in GiB."""
        rows = self.storage.lvs(group)
        return {n: int(r["lv_size"]) / GIB for n, r in rows.items() if n.startswith(("volume-", "_snapshot-"))}

    def image(self, name, data, **differences):
        """A qcow2 image as an entry of the catalogue: a file of the host, or with path of the controller."""
        made = self.storage.put_image(name, data, "qcow2", 16 * MIB)
        entry = {"name": name, "id": made["id"], "checksum": made["checksum"], "disk_format": "qcow2"}
        entry["url"] = "file://" + made["path_on_host"]
        self.images.append({**entry, **differences})
        return made

    def calls(self):
        """What was asked of LVM since the last time."""
        return self.storage.sh("cat /run/lvm-calls 2>/dev/null; rm -f /run/lvm-calls").splitlines()

    def content(self, view, size):
        group = THICK if "@thick#" in view["pool_host"] else THIN
        return self.storage.sha256("/dev/%s/volume-%s" % (group, view["id"]), size)


@pytest.fixture(scope="module")
def groups(storage):
    """A volume group with thick volumes and one with a thin pool; gone at the end."""
    pool = "lvcreate -q -y --type thin-pool -l 80%%VG -n %s-pool %s" % (THIN, THIN)
    thick, thin = storage.vm.disk("pv1"), storage.vm.disk("pv10")
    storage.sh("vgcreate -q %s %s && vgcreate -q %s %s && %s" % (THICK, thick, THIN, thin, pool))
    guard = storage.folder / "guard"
    guard.write_text(GUARD)
    storage.vm.put(guard, "/usr/local/sbin/lvm")
    storage.sh("chmod 755 /usr/local/sbin/lvm")
    yield
    storage.sh("rm /usr/local/sbin/lvm; vgremove -q -y -f %s %s" % (THICK, THIN))


@pytest.fixture
def house(storage, groups, tmp_path):
    """Empty backends and a new ledger."""
    inventory = storage.inventory
    storage.sh(
        "rm -f /run/lvm-fails; lvs=$(lvs --noheadings -o lv_full_name -S lv_tags=bootflow %s %s);"
        ' [ -z "$lvs" ] || lvremove -q -y $lvs; rm -f /run/lvm-calls' % (THICK, THIN)
    )
    yield House(storage, tmp_path / "ledger.db")
    assert storage.temporary_files() == []
    storage.sh("rm -f /run/lvm-fails /usr/local/bin/qemu-img /run/converting")
    storage.inventory = inventory


def slow_conversion(house, seconds):
    path = house.storage.folder / "slow"
    path.write_text(SLOW % seconds)
    house.storage.vm.put(path, "/usr/local/bin/qemu-img")
    house.storage.sh("chmod 755 /usr/local/bin/qemu-img; rm -f /run/converting")


def wait_for(condition, seconds=180):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.2)


def test_the_life_of_volumes(house):
    data = noise(3 * MIB)
    made = house.image("debian", data, min_disk=1)
    house.images[0].pop("url")
    house.images[0]["path"] = str(house.storage.folder / "debian.qcow2")  # of the controller
    wanted = [
        {"name": "data", "size": 1, "volume_type": "thick", "description": "of the shop", "metadata": {"tier": "1"}},
        {"name": "root", "size": 1, "volume_type": "thin", "image": "debian"},
        {"name": "root2", "size": 1, "volume_type": "thick", "image_id": made["id"]},
    ]
    plan = house.play("volume_create", "--check", "--diff", volumes=wanted)
    assert "The plan:" in plan and "data (1 GiB)" in plan and "%s@thick#thick" % house.host in plan
    assert "CapabilitiesFilter" in plan and not os.path.exists(house.ledger)
    assert house.lvs(THICK) == {} and house.lvs(THIN) == {}

    house.create(*wanted)
    found = house.volumes()
    assert {(n, v["status"], v["size"], v["bootable"]) for n, v in found.items()} == {
        ("data", "available", 1, False),
        ("root", "available", 1, True),
        ("root2", "available", 1, True),
    }
    assert house.lvs(THICK) == {"volume-" + found["data"]["id"]: 1, "volume-" + found["root2"]["id"]: 1}
    assert house.lvs(THIN) == {"volume-" + found["root"]["id"]: 1}
    expected = hashlib.sha256(data + bytes(13 * MIB)).hexdigest()
    assert [house.content(found[n], 16 * MIB) for n in ("root", "root2")] == [expected] * 2
    backend = house.backend("thick")
    assert (backend["pending_gb"], backend["free_gb"], backend["volume_count"]) == (0, 4.99, 2)

    house.calls()
    again = house.create(*wanted)
    assert "Nothing to do: 3 volumes already match the request." in again and "changed=0" in again
    assert house.calls() == [] and house.host + " " not in again.partition("PLAY RECAP")[2]
    different = house.play("volume_create", fails=True, volumes=[{**wanted[0], "size": 3}])
    assert "VolumeExists" in different and "volume_extend" in different

    snapshots = [{"name": "monday", "volume": "root"}, {"name": "tuesday", "volume": "data"}]
    house.play("volume_snapshot", snapshots=snapshots)
    ids = {n: s["id"] for n, s in house.snapshots().items()}
    assert set(ids) == {"monday", "tuesday"} and house.lvs(THIN)["_snapshot-" + ids["monday"]] == 1
    house.calls()
    assert "Nothing to do" in house.play("volume_snapshot", snapshots=snapshots) and house.calls() == []
    more = [
        {"name": "restored", "snapshot_id": "monday", "size": 2},
        {"name": "copy", "source_volid": "root2"},
    ]
    house.create(*more)
    found = house.volumes()
    assert (found["restored"]["size"], found["copy"]["size"], found["copy"]["bootable"]) == (2, 1, True)
    assert "@thin#" in found["restored"]["pool_host"] and "@thick#" in found["copy"]["pool_host"]
    assert [house.content(found[n], 16 * MIB) for n in ("restored", "copy")] == [expected] * 2

    grown = {"name": "copy", "size": 2}
    assert "Would extend:" in house.play("volume_extend", "--check", volumes=[grown])
    house.play("volume_extend", volumes=[grown])
    assert house.volumes()["copy"]["size"] == 2 and house.lvs(THICK)["volume-" + found["copy"]["id"]] == 2
    assert "Nothing to do" in house.play("volume_extend", volumes=[grown])
    assert "must be greater" in house.play("volume_extend", fails=True, volumes=[{"name": "copy", "size": 1}])
    listed = house.play("volume_list")
    assert all(name in listed for name in (*found, "monday", "tuesday", house.host + "@thin#thin"))

    refused = house.play("volume_delete", fails=True, volume_names=["root", "copy"])
    assert "InvalidVolume" in refused and "monday" in refused and house.volumes()["copy"]["status"] == "available"
    would = house.play("volume_delete", "--check", "--diff", volume_names=["copy"])
    assert "Would delete:" in would and house.volumes()["copy"]["status"] == "available"
    house.play("volume_snapshot", snapshots=[{**snapshots[0], "state": "absent"}])
    assert set(house.snapshots()) == {"tuesday"} and "_snapshot-" + ids["monday"] not in house.lvs(THIN)
    house.play("volume_delete", volume_names=["root", "root2", "copy", "restored"])
    assert set(house.volumes()) == {"data"}
    house.play("volume_delete", volume_names=["data"], volume_cascade=True)
    assert house.volumes() == {} and house.snapshots() == {}
    assert house.lvs(THICK) == {} and house.lvs(THIN) == {}
    assert "No volumes in the ledger " in house.play("volume_list")


def test_images_of_volumes_have_their_bytes_and_volumes_are_made_of_them(house, tmp_path):
    data = noise(3 * MIB)
    house.image("debian", data, min_disk=1)
    house.create(
        {"name": "thick", "size": 1, "volume_type": "thick", "image": "debian"},
        {"name": "thin", "size": 1, "volume_type": "thin", "image": "debian"},
    )
    found = house.volumes()
    thick, thin = (house.content(found[name], GIB) for name in ("thick", "thin"))
    store = tmp_path / "store"
    store.mkdir()
    house.storage.sh("mkdir -p /srv/images")
    stores = [
        {"name": "here", "path": str(store)},
        {"name": "of-host", "path": "/srv/images", "kind": "host", "host": house.host},
    ]
    wanted = [
        {"name": "one", "volume": "thick"},
        {"name": "two", "volume": "thin", "disk_format": "qcow2", "store": "of-host"},
    ]
    would = house.play("volume_upload_image", "--check", "--diff", volume_uploads=wanted, image_stores=stores)
    assert "Would make" in would and list(store.iterdir()) == []
    house.play("volume_upload_image", volume_uploads=wanted, image_stores=stores)
    assert {v["status"] for v in house.volumes().values()} == {"available"}
    (made,) = store.iterdir()
    assert hashlib.sha256(made.read_bytes()).hexdigest() == thick
    (name,) = house.storage.sh("ls /srv/images").split()
    house.storage.sh("qemu-img convert -f qcow2 -O raw /srv/images/%s /srv/content" % name)
    assert house.storage.sh("sha256sum /srv/content").split()[0] == thin
    house.calls()
    again = house.play("volume_upload_image", volume_uploads=wanted, image_stores=stores)
    assert "Nothing to do: the images are there: one, two" in again and house.calls() == []
    house.create({"name": "copy", "size": 1, "volume_type": "thick", "image": "one"}, image_stores=stores)
    assert house.content(house.volumes()["copy"], GIB) == thick
    house.play("image_delete", image_names=["one", "two"], image_stores=stores)
    assert list(store.iterdir()) == []
    house.storage.sh("rm /srv/content; rmdir /srv/images /var/lib/bootflow/conversion/_snapshots")


@pytest.mark.parametrize("kind", ["killed", "failed"])
def test_an_image_of_a_volume_that_is_not_made_leaves_nothing(house, kind):
    house.create({"name": "data", "size": 1, "volume_type": "thick"})
    house.storage.sh("mkdir -p /srv/images")
    given = {
        "volume_uploads": [{"name": "image", "volume": "data", "disk_format": "qcow2"}],
        "image_stores": [{"name": "of-host", "path": "/srv/images", "kind": "host", "host": house.host}],
    }
    if kind == "killed":
        slow_conversion(house, 6)
        run = house.begin("volume_upload_image", **given)
        wait_for(lambda: house.storage.vm.run("test", "-s", "/run/converting", check=False).returncode == 0)
        assert house.volumes()["data"]["status"] == "uploading"
        kill_run(run)
        house.storage.sh("rm -f /usr/local/bin/qemu-img")
        house.create({"name": "other", "size": 1})
    else:
        house.storage.sh("lvremove -q -y %s/volume-%s" % (THICK, house.volumes()["data"]["id"]))
        assert "VolumeNotFound" in house.play("volume_upload_image", fails=True, **given)
    assert house.volumes()["data"]["status"] == "available"
    if kind == "killed":
        house.play("volume_upload_image", **given)
        house.play("image_delete", image_names=["image"], image_stores=given["image_stores"])
    house.storage.sh("rmdir /srv/images; rmdir /var/lib/bootflow/conversion/_snapshots || true")


def test_bad_input_is_told_at_once_and_nothing_is_touched(house):
    wanted = [
        {"name": "a", "size": 0},
        {"name": "b", "size": 1, "volume_type": "none"},
        {"name": "c", "size": 1, "image": "none"},
        {"name": "d", "size": 1, "color": "red"},
        {"size": 1},
    ]
    output = house.create(*wanted, fails=True, volume_max_attempts=3)
    assert all("volumes[%d]" % number in output for number in range(5))
    assert house.volumes() == {} and house.calls() == []
    output = house.create({"name": "a", "size": 1}, fails=True, volume_max_attempts=9, volume_filters=["SizeFilter"])
    assert "bootflow_volume_max_attempts" in output and "SizeFilter" in output


def test_without_room_anywhere_the_filters_are_told_with_their_counts(house):
    wanted = {"name": "large", "size": 500, "volume_type": "thick"}
    plan = house.play("volume_create", "--check", fails=True, volumes=[wanted])
    assert "NoValidBackend" in plan and not os.path.exists(house.ledger)
    output = house.create(wanted, {"name": "small", "size": 1, "volume_type": "thick"}, fails=True)
    assert "NoValidBackend" in output and "CapacityFilter rejected" in output
    found = house.volumes()
    assert (found["large"]["status"], found["small"]["status"]) == ("error", "available")
    assert found["large"]["fault"]["code"] == "NoValidBackend" and list(house.lvs(THICK).values()) == [1]


def test_an_image_that_lies_is_an_error_at_once_and_tried_once(house):
    made = house.image("liar", noise(MIB, 2), checksum="0" * 64)
    output = house.create({"name": "one", "size": 1, "image": "liar"}, {"name": "two", "size": 1}, fails=True)
    assert "ImageChecksumMismatch" in output and "Remedy:" in output
    found = house.volumes()
    assert (found["one"]["status"], found["two"]["status"]) == ("error", "available")
    assert found["one"]["fault"]["code"] == "ImageChecksumMismatch"
    assert house.lvs(THIN).keys() | house.lvs(THICK).keys() == {"volume-" + found["two"]["id"]}
    # Mended, the same request goes on.
    house.images[0]["checksum"] = made["checksum"]
    house.create({"name": "one", "size": 1, "image": "liar"}, {"name": "two", "size": 1})
    assert house.volumes()["one"]["status"] == "available"


def test_what_fails_on_one_backend_is_made_on_the_next(house):
    # Of a thin pool more may be promised: it is chosen first.
    house.storage.sh("echo 'lvcreate.*%s' >/run/lvm-fails" % THIN)
    output = house.create({"name": "moved", "size": 1}, {"name": "fixed", "size": 1, "volume_type": "thin"}, fails=True)
    found = house.volumes()
    assert found["moved"]["status"] == "available" and "@thick#" in found["moved"]["pool_host"]
    assert found["fixed"]["status"] == "error" and "Exceeded max scheduling attempts 3" in output
    assert house.lvs(THIN) == {} and set(house.lvs(THICK)) == {"volume-" + found["moved"]["id"]}
    assert (house.backend("thin")["pending_gb"], house.backend("thick")["pending_gb"]) == (0, 0)


def test_a_storage_host_that_does_not_answer_never_stops_the_play(house):
    output = house.play("volume_create", "-e", "ansible_port=1", fails=True, volumes=[{"name": "lost", "size": 1}])
    assert "did not report" in output and "NoValidBackend" in output and "unreachable=0" in output
    assert house.volumes()["lost"]["status"] == "error"
    house.create({"name": "lost", "size": 1})
    assert house.volumes()["lost"]["status"] == "available"


@pytest.mark.parametrize("volume_type", ["thick", "thin"])
def test_a_run_that_was_killed_while_it_copied_is_gone_on_with(house, volume_type):
    data = noise(3 * MIB, 3)
    house.image("slow", data)
    wanted = [{"name": "root", "size": 1, "image": "slow", "volume_type": volume_type}, {"name": "data", "size": 1}]
    slow_conversion(house, 6)
    run = house.begin("volume_create", volumes=wanted)
    wait_for(lambda: house.storage.vm.run("test", "-s", "/run/converting", check=False).returncode == 0)
    status = house.volumes()["root"]["status"]
    kill_run(run)
    assert status == "downloading"
    house.create(*wanted)
    found = house.volumes()
    assert {v["status"] for v in found.values()} == {"available"}
    assert house.content(found["root"], 16 * MIB) == sha256(data + bytes(13 * MIB))
    lvs = house.lvs(THICK) | house.lvs(THIN)
    assert set(lvs) == {"volume-" + v["id"] for v in found.values()}
    assert (house.backend("thin")["pending_gb"], house.backend("thick")["pending_gb"]) == (0, 0)


def test_of_two_runs_that_want_the_last_gigabytes_one_gets_them(house):
    house.create({"name": "first", "size": 1, "volume_type": "thick"})
    runs = [
        house.begin("volume_create", volumes=[{"name": name, "size": 5, "volume_type": "thick"}])
        for name in ("one", "two")
    ]
    codes = [run.wait(timeout=300) for run in runs]
    assert sorted(code == 0 for code in codes) == [False, True], [run.output.read_text() for run in runs]
    loser = runs[1 - codes.index(0)].output.read_text()
    assert "NoValidBackend" in loser
    assert sorted(house.lvs(THICK).values()) == [1, 5]
    assert sorted(v["status"] for v in house.volumes().values()) == ["available", "available", "error"]


def test_twenty_volumes_at_once_are_few_lvm_commands(house):
    house.image("many", noise(MIB, 4))
    wanted = [{"name": "v%02d" % n, "size": 1, "volume_type": "thin", "image": "many"} for n in range(20)]
    quotas = {"volumes": 20}
    house.calls()
    house.create(*wanted, quotas=quotas)
    calls = house.calls()
    found = house.volumes()
    assert {v["status"] for v in found.values()} == {"available"} and len(house.lvs(THIN)) == 20
    reports = [call for call in calls if call.startswith("fullreport")]
    # A snapshot and its growth each, the image's volume and its seal, one command for all tags; two reports before the work.
    assert len(calls) - len(reports) <= 2 * len(wanted) + 3 and len(reports) <= 5
    one_more = {"name": "v20", "size": 1, "volume_type": "thin"}
    assert "VolumeLimitExceeded" in house.create(one_more, fails=True, quotas=quotas)
    house.calls()
    house.play("volume_delete", volume_delete_all=True, project="default")
    assert house.lvs(THIN) == {} and len(house.calls()) <= 4


def test_two_deletes_and_a_create_at_once_leave_what_the_ledger_says(house):
    house.create(
        {"name": "old", "size": 1, "volume_type": "thick"}, {"name": "older", "size": 1, "volume_type": "thin"}
    )

    def finish(run):
        return run.wait(timeout=300), run.output.read_text()

    runs = [
        house.begin("volume_delete", volume_names=["old"]),
        house.begin("volume_delete", volume_names=["older"]),
        house.begin("volume_create", volumes=[{"name": "new", "size": 1, "volume_type": "thick"}]),
    ]
    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        ended = list(pool.map(finish, runs))
    assert [code for code, _output in ended] == [0, 0, 0], ended
    assert set(house.volumes()) == {"new"}
    assert set(house.lvs(THICK)) == {"volume-" + house.volumes()["new"]["id"]} and house.lvs(THIN) == {}
    assert house.backend("thick")["free_gb"] == 5.99
