# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Guests whose local disks are in a real Ceph, on real hosts: booted from clones, moved without a copy, grown, evacuated, removed."""

from __future__ import annotations

import json
import subprocess
import time
import typing as t
from pathlib import Path

import ceph_lab
import pytest
from ceph_flow import CephFlow
from conftest import _watched
from empty_hosts import empty
from flow import FLAVORS, entry
from test_ceph import STRANGER, on
from test_moves import COUNTING, wait_boots
from test_operations import READY, operate, wait_ready

POOL = "vms"
GIB = 1024**3
GROWN = {"name": "grown", "vcpus": 1, "memory_mb": 192, "root_gb": 2, "swap": 64}
HALF = {"name": "half", "vcpus": 1, "memory_mb": 192, "root_gb": 6}  # more than half of the pool


@pytest.fixture(scope="module")
def ceph(lab: t.Any, tmp_path_factory: pytest.TempPathFactory) -> t.Iterator[tuple[ceph_lab.CephLab, str]]:
    """A cluster that the lab's hosts reach, with a pool for guests and its user's key."""
    made = ceph_lab.CephLab(tmp_path_factory.mktemp("ceph") / "cluster", lab.controller_address)
    try:
        made.start()
        made.pool(POOL)
        key = made.user(POOL)
        made.wait_for_figures(POOL, 180)
        yield made, key
    finally:
        made.stop()


class DisksFlow(CephFlow):
    """A new ledger, and three compute hosts of one pool."""

    pool = POOL

    def __init__(self, lab: t.Any, folder: Path, image: Path, ceph: ceph_lab.CephLab, key: str):
        super().__init__(lab, folder, image, ceph, key)
        Path(self.inventory).write_text("{}")  # no storage host
        self.variables.update(
            bootflow_disk_backend="rbd",
            bootflow_disk_rbd_pool=POOL,
            bootflow_disk_rbd_user=ceph_lab.USER,
            bootflow_disk_rbd_monitors=ceph.monitors,
            bootflow_disk_rbd_fsid=ceph.fsid,
            bootflow_disk_rbd_key=key,
            bootflow_flavors=[*FLAVORS, GROWN, HALF],
        )

    def disk(self, name: str = "web", disk: str = "disk") -> str:
        return "%s_%s" % (self.instances()[name]["uuid"], disk)

    def bytes_of(self, image: str) -> int:
        return int(json.loads(self.ceph.sh("rbd", "info", "--format", "json", "%s/%s" % (POOL, image)))["size"])

    def parent(self, image: str) -> str:
        said = json.loads(self.ceph.sh("rbd", "info", "--format", "json", "%s/%s" % (POOL, image)))
        return str((said.get("parent") or {}).get("image") or "")

    def disks(self) -> list[str]:
        """The images of instances: all but those of the catalogue."""
        return [name for name in self.ceph.images(POOL) if not name.startswith("bootflow-image.")]

    def open_at(self, image: str) -> list[str]:
        return self.ceph.watchers(POOL, image)

    def snapshots(self, image: str) -> list[str]:
        said = self.ceph.sh("rbd", "snap", "ls", "--format", "json", "%s/%s" % (POOL, image)) or "[]"
        return [row["name"] for row in json.loads(said)]


@pytest.fixture
def linux(lab: t.Any, guest_image: Path, tmp_path: Path, ceph: tuple[ceph_lab.CephLab, str]) -> t.Iterator[DisksFlow]:
    """A new ledger and an empty pool; the flow's image "guest" is a Linux."""
    flow = DisksFlow(lab, tmp_path, guest_image, *ceph)
    yield from _watched(lab, flow)
    flow.clear()


@pytest.fixture
def still(lab: t.Any, still_image: Path, tmp_path: Path, ceph: tuple[ceph_lab.CephLab, str]) -> t.Iterator[DisksFlow]:
    """The same with a guest of one sector that only waits."""
    flow = DisksFlow(lab, tmp_path, still_image, *ceph)
    yield from _watched(lab, flow)
    flow.clear()
    assert not flow.key_files(), "keys are left on a host"


@pytest.fixture
def split(lab: t.Any, still_image: Path, tmp_path: Path, ceph: tuple[ceph_lab.CephLab, str]) -> t.Iterator[DisksFlow]:
    """The same, for a test in which a lost host still runs a guest that another one has."""
    flow = DisksFlow(lab, tmp_path, still_image, *ceph)
    yield flow
    empty(lab)
    flow.clear()


def test_guests_boot_from_clones_of_one_image_stop_start_and_are_deleted(linux: DisksFlow) -> None:
    linux.boot(on("compute1", flavor="full"), on("compute2", "other"), **READY)
    wait_ready(linux, "web")
    (base,) = [name for name in linux.ceph.images(POOL) if name not in linux.disks()]
    assert linux.snapshots(base) == ["snap"]
    assert sorted(linux.disks()) == sorted(
        [linux.disk("web", "disk"), linux.disk("web", "disk.eph0"), linux.disk("web", "disk.swap"), linux.disk("other")]
    )
    assert linux.parent(linux.disk()) == linux.parent(linux.disk("other")) == base
    assert linux.bytes_of(linux.disk()) == GIB and len(linux.open_at(linux.disk())) == 1
    xml = linux.virsh("compute1", "dumpxml", linux.instances()["web"]["uuid"])
    assert "protocol='rbd'" in xml and "%s/%s" % (POOL, linux.disk()) in xml and linux.key not in xml

    operate(linux, "stop", "web", bootflow_shutdown_timeout=1)
    assert linux.open_at(linux.disk()) == []
    for secret in linux.secrets("compute1"):  # as after a new installation
        linux.virsh("compute1", "secret-undefine", secret)
    operate(linux, "start", "web", **READY)
    wait_ready(linux, "web")
    operate(linux, "reboot", "web", bootflow_reboot_type="HARD", **READY)
    assert len(linux.open_at(linux.disk())) == 1

    linux.must("heartbeat")
    (node,) = linux.query("SELECT local_gb, disk_available_least FROM compute_nodes WHERE host = 'compute1'")
    assert 5 < node["disk_available_least"] < node["local_gb"] <= 10
    linux.delete("web", "other")
    assert linux.ceph.images(POOL) == [base]
    assert linux.key not in linux.everything_written()


@pytest.mark.long
def test_a_guest_moves_grows_and_comes_back_without_a_copy(linux: DisksFlow) -> None:
    linux.boot(on("compute1", user_data=COUNTING), **READY)
    wait_boots(linux, "web", 1)
    operate(linux, "migrate", "web", **READY)
    host = linux.instances()["web"]["host"]
    assert host != "compute1"
    wait_boots(linux, "web", 2)
    assert len(linux.snapshots(linux.disk())) == 1
    operate(linux, "revert_resize", "web", **READY)
    assert linux.instances()["web"]["host"] == "compute1"
    wait_boots(linux, "web", 2)  # what it wrote there is not here
    assert linux.snapshots(linux.disk()) == []

    operate(linux, "resize", "web", bootflow_resize_flavor="grown", **READY)
    wait_boots(linux, "web", 3)
    assert linux.instances()["web"]["host"] != "compute1"
    assert linux.bytes_of(linux.disk()) == 2 * GIB and linux.disk("web", "disk.swap") in linux.disks()
    operate(linux, "confirm_resize", "web")
    assert linux.snapshots(linux.disk()) == [] and len(linux.open_at(linux.disk())) == 1
    operate(linux, "reboot", "web", **READY)
    wait_boots(linux, "web", 4)
    linux.delete("web")
    assert linux.disks() == []


@pytest.mark.long
def test_a_guest_is_resized_on_its_host_and_back(still: DisksFlow) -> None:
    here = {"bootflow_allow_resize_to_same_host": True}
    still.boot(on("compute1"))
    for name in ("compute2", "compute3"):
        still.must("host", bootflow_host=[name], bootflow_host_state="disabled")
    operate(still, "resize", "web", bootflow_resize_flavor="grown", **here)
    assert still.bytes_of(still.disk()) == 2 * GIB and still.disk("web", "disk.swap") in still.disks()
    operate(still, "revert_resize", "web")
    assert still.bytes_of(still.disk()) == GIB and still.snapshots(still.disk()) == []
    operate(still, "resize", "web", bootflow_resize_flavor="grown", **here)
    operate(still, "confirm_resize", "web")
    assert still.bytes_of(still.disk()) == 2 * GIB and still.snapshots(still.disk()) == []
    refused = still.run("resize", bootflow_names=["web"], bootflow_resize_flavor="tiny", **here)
    assert refused.returncode and "CannotResizeDisk" in refused.output, refused.output
    assert still.bytes_of(still.disk()) == 2 * GIB and len(still.open_at(still.disk())) == 1
    still.delete("web")
    assert still.disks() == []


@pytest.mark.long
def test_a_guest_goes_over_while_it_runs_and_nothing_is_copied(linux: DisksFlow) -> None:
    linux.boot(on("compute1", flavor="full"), **READY)
    (watcher,) = linux.open_at(linux.disk())
    disks = linux.disks()
    assert len(disks) == 3
    operate(linux, "live_migrate", "web")
    assert linux.instances()["web"]["host"] != "compute1"
    (now,) = linux.open_at(linux.disk())
    assert now != watcher and linux.disks() == disks
    operate(linux, "reboot", "web", **READY)
    wait_ready(linux, "web")


@pytest.mark.long
def test_a_guest_is_rebuilt_and_rescued(linux: DisksFlow) -> None:
    linux.boot(on("compute1", user_data=COUNTING), **READY)
    wait_boots(linux, "web", 1)
    operate(linux, "rescue", "web")
    assert len(linux.open_at(linux.disk())) == 1, "the rescued guest has its disk beside that of the rescue"
    operate(linux, "unrescue", "web", **READY)
    wait_boots(linux, "web", 2)
    operate(linux, "rebuild", "web", **READY)
    wait_boots(linux, "web", 1)
    assert linux.disks() == [linux.disk()]


@pytest.mark.long
def test_an_evacuated_guest_keeps_its_disk_and_the_lost_host_is_fenced(split: DisksFlow) -> None:
    split.boot(on("compute1", flavor="full"))
    disks = split.disks()
    assert len(disks) == 3
    subprocess.run(
        ["rbd", "image-meta", "set", "%s/%s" % (POOL, split.disk()), "of", "the first host"],
        env=split.ceph.environment,
        check=True,
    )
    (watcher,) = split.open_at(split.disk())
    assert split.run("heartbeat").returncode == 0
    split.lab.host("compute1").fail("ssh")  # its guest runs on, and reaches Ceph
    split.must("host", bootflow_host=["compute1"], bootflow_host_state="forced_down")
    split.must("evacuate", bootflow_host=["compute1"])
    assert split.instances()["web"]["host"] != "compute1"
    assert watcher in split.ceph.sh("ceph", "osd", "blocklist", "ls")
    assert len(split.open_at(split.disk())) == 1 and split.open_at(split.disk()) != [watcher]
    assert "the first host" in split.ceph.sh("rbd", "image-meta", "list", "%s/%s" % (POOL, split.disk()))
    # The former host is back, and what it has left of the instance goes: the disk stays.
    split.lab.host("compute1").restore()
    split.must("host", bootflow_host=["compute1"], bootflow_host_state="enabled")
    split.must("heartbeat")
    assert split.disks() == disks and len(split.open_at(split.disk())) == 1
    operate(split, "reboot", "web", bootflow_reboot_type="HARD")
    split.delete("web")
    assert split.disks() == []


@pytest.mark.long
def test_an_instance_whose_host_is_lost_keeps_its_disks_until_the_host_can_delete_them(split: DisksFlow) -> None:
    split.boot(on("compute1"))
    disks = split.disks()
    split.lab.host("compute1").fail("network")  # its guest runs on
    split.must("host", bootflow_host=["compute1"], bootflow_host_state="forced_down")
    assert split.run("delete", bootflow_names=["web"]).returncode
    assert split.disks() == disks and split.instances()["web"]["task_state"] == "deleting"
    split.lab.host("compute1").restore()
    split.must("host", bootflow_host=["compute1"], bootflow_host_state="enabled")
    split.delete("web")
    assert split.disks() == [] and "web" not in split.instances()


@pytest.mark.long
def test_guests_of_one_run_share_the_space_of_the_pool_and_a_move_takes_none(still: DisksFlow) -> None:
    refused = still.run("boot", bootflow_instances=[entry("many", flavor="half", min_count=2)])
    assert refused.returncode and "There is room for 1 of the 2 instances" in refused.output, refused.output
    assert still.disks() == []
    still.boot(entry("web", flavor="half"))
    still.must("heartbeat")
    operate(still, "stop", "web", bootflow_shutdown_timeout=1)  # so that nothing has its disk open
    host = still.instances()["web"]["host"]
    operate(still, "migrate", "web")
    assert still.instances()["web"]["host"] != host
    operate(still, "confirm_resize", "web")
    assert still.disks() == [still.disk()] and still.snapshots(still.disk()) == []
    still.delete("web", "many-1", "many-2")


@pytest.mark.long
def test_a_disk_with_a_snapshot_of_another_program_is_kept(still: DisksFlow) -> None:
    still.boot(on("compute1"))
    place = "%s/%s" % (POOL, still.disk())
    still.ceph.sh("rbd", "snap", "create", "--no-progress", place + "@theirs")
    still.ceph.sh("rbd", "snap", "protect", place + "@theirs")
    still.ceph.sh("rbd", "clone", place + "@theirs", "%s/child" % POOL)
    refused = still.run("delete", bootflow_names=["web"])
    assert refused.returncode and "theirs" in refused.output, refused.output
    disk = next(name for name in still.disks() if name != "child")
    still.ceph.sh("rbd", "rm", "--no-progress", "%s/child" % POOL)
    still.ceph.sh("rbd", "snap", "unprotect", "%s/%s@theirs" % (POOL, disk))
    still.ceph.sh("rbd", "snap", "rm", "--no-progress", "%s/%s@theirs" % (POOL, disk))
    still.delete("web")
    assert still.disks() == []


@pytest.mark.long
def test_what_cannot_be_done_is_refused_before_anything_is_touched(still: DisksFlow, tmp_path: Path) -> None:
    still.variables["bootflow_image_stores"] = [{"name": "here", "path": str(tmp_path / "store")}]
    still.boot(on("compute1"))
    for playbook, more in (
        ("snapshot", {"bootflow_snapshot_name": "monday"}),
        (
            "create_backup",
            {"bootflow_backup_name": "b", "bootflow_backup_type": "daily", "bootflow_backup_rotation": 1},
        ),
        ("incremental_backup", {}),
        ("shelve", {}),
    ):
        done = still.run(playbook, bootflow_names=["web"], **more)
        assert done.returncode and "NotSupportedYet" in done.output, done.output
        assert still.instances()["web"]["vm_state"] == "active" and not still.instances()["web"]["task_state"]
    assert len(still.open_at(still.disk())) == 1


@pytest.mark.long
def test_a_disk_that_somebody_else_has_open_a_full_pool_and_a_hung_cluster(still: DisksFlow) -> None:
    still.boot(on("compute1"))
    operate(still, "stop", "web", bootflow_shutdown_timeout=1)
    place = (str(still.ceph.folder / "ceph.conf"), POOL, still.disk())
    with subprocess.Popen(
        ["/usr/bin/python3", "-c", STRANGER, *place],
        env=still.ceph.environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as stranger:
        try:
            end = time.monotonic() + 20
            while not still.open_at(still.disk()):
                assert time.monotonic() < end
                time.sleep(0.2)
            refused = still.run("start", bootflow_names=["web"])
            assert refused.returncode and "DiskOpenElsewhere" in refused.output, refused.output
            refused = still.run("delete", bootflow_names=["web"])
            assert refused.returncode and still.disk() in still.disks(), refused.output
        finally:
            stranger.kill()
    still.ceph.freeze("osd")
    try:
        began = time.monotonic()
        refused = still.run("boot", bootflow_instances=[entry("more")])
        assert refused.returncode and "NoValidHost" in refused.output, refused.output
        assert not still.query("SELECT * FROM claims WHERE instance_uuid NOT IN (SELECT uuid FROM instances)")
        still.must("heartbeat")  # other facts of the hosts still come
        assert time.monotonic() - began < 300
    finally:
        still.ceph.thaw("osd")
    still.delete("web", "more")
    assert still.disks() == []
