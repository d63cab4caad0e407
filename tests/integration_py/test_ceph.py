# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Volumes in a real Ceph, on real hosts: created, attached, grown, cloned, and what a cluster does that is full, hangs, or is used by others."""

from __future__ import annotations

import hashlib
import subprocess
import time
import typing as t
from pathlib import Path

import ceph_lab
import pytest
from ceph_flow import BACKEND, POOL, CephFlow
from conftest import _watched
from empty_hosts import empty
from flow import entry
from test_operations import READY, operate, wait_ready

GIB = 1024**3
STRANGER = """
import rados, rbd, sys, time
cluster = rados.Rados(conffile=sys.argv[1])
cluster.connect()
image = rbd.Image(cluster.open_ioctx(sys.argv[2]), sys.argv[3])
image.write(b"x", 0)
time.sleep(600)
"""


@pytest.fixture(scope="module")
def ceph(lab: t.Any, tmp_path_factory: pytest.TempPathFactory) -> t.Iterator[tuple[ceph_lab.CephLab, str]]:
    """A cluster that the lab's hosts reach, with a pool and its user's key."""
    made = ceph_lab.CephLab(tmp_path_factory.mktemp("ceph") / "cluster", lab.controller_address)
    try:
        made.start()
        made.pool(POOL)
        key = made.user(POOL)
        made.wait_for_figures(POOL)
        yield made, key
    finally:
        made.stop()


@pytest.fixture
def linux(lab: t.Any, guest_image: Path, tmp_path: Path, ceph: tuple[ceph_lab.CephLab, str]) -> t.Iterator[CephFlow]:
    """A new ledger and an empty pool; the flow's image "guest" is a Linux, which gives disks back."""
    flow = CephFlow(lab, tmp_path, guest_image, *ceph)
    yield from _watched(lab, flow)
    flow.clear()


@pytest.fixture
def rbd(lab: t.Any, still_image: Path, tmp_path: Path, ceph: tuple[ceph_lab.CephLab, str]) -> t.Iterator[CephFlow]:
    """A new ledger and an empty pool; the flow's image "guest" is the still one."""
    flow = CephFlow(lab, tmp_path, still_image, *ceph)
    yield from _watched(lab, flow)
    flow.clear()
    assert not flow.key_files(), "keys are left on the storage host"


@pytest.fixture
def split(lab: t.Any, still_image: Path, tmp_path: Path, ceph: tuple[ceph_lab.CephLab, str]) -> t.Iterator[CephFlow]:
    """The same, for a test in which a lost host still runs a guest that another one has."""
    flow = CephFlow(lab, tmp_path, still_image, *ceph)
    yield flow
    empty(lab)
    flow.clear()


def on(host: str, name: str = "web", **more: t.Any) -> dict[str, t.Any]:
    wanted = entry(name, availability_zone="nova:%s" % host, **more)
    return {k: v for k, v in wanted.items() if k != "image" or "block_device_mapping" not in more}


def attach(flow: CephFlow, volume: str, instance: str = "web") -> str:
    return flow.must("attach_volume", bootflow_attachments=[{"instance": instance, "volume": volume}])


def disks(flow: CephFlow, host: str, name: str) -> str:
    return flow.virsh(host, "dumpxml", flow.instances()[name]["uuid"])


def digest_of(flow: CephFlow, volume: str) -> str:
    """Return the SHA-256 of the first GiB of a volume."""
    digest, left = hashlib.sha256(), GIB
    argv = ["rbd", "export", "--no-progress", "%s/%s" % (POOL, flow.image(volume)), "-"]
    with subprocess.Popen(argv, env=flow.ceph.environment, stdout=subprocess.PIPE) as export:
        assert export.stdout is not None
        while left and (data := export.stdout.read(min(left, 4 * 1024**2))):
            digest.update(data)
            left -= len(data)
    assert not left, "%s has %d bytes less than a GiB" % (volume, left)
    return digest.hexdigest()


def test_a_volume_is_created_attached_grown_detached_and_deleted(linux: CephFlow) -> None:
    rbd = linux
    rbd.create({"name": "data", "size": 1})
    assert rbd.size("data") == GIB
    rbd.boot(on("compute1"), **READY)
    wait_ready(rbd, "web")
    attach(rbd, "data")
    assert len(rbd.watchers("data")) == 1
    xml = disks(rbd, "compute1", "web")
    assert "protocol='rbd'" in xml and "%s/%s" % (POOL, rbd.image("data")) in xml and rbd.key not in xml
    assert len(rbd.secrets("compute1")) == 1 and not rbd.secrets("compute2")

    rbd.must("volume_extend", bootflow_volumes=[{"name": "data", "size": 2}])
    uuid = rbd.instances()["web"]["uuid"]
    assert rbd.size("data") == 2 * GIB
    assert str(2 * GIB) in rbd.virsh("compute1", "domblkinfo", uuid, "vdb")

    rbd.must("detach_volume", bootflow_attachments=[{"volume": "data"}])
    assert rbd.watchers("data") == [] and rbd.secrets("compute1") == []
    rbd.must("volume_delete", bootflow_volume_names=["data"])
    assert rbd.ceph.images(POOL) == []
    assert rbd.key not in rbd.everything_written()


@pytest.mark.long
def test_copies_share_what_they_do_not_write_and_go_in_any_order(rbd: CephFlow) -> None:
    rbd.create({"name": "root", "size": 1, "image": "guest"})
    rbd.must("volume_snapshot", bootflow_snapshots=[{"name": "monday", "volume": "root"}])
    rbd.create(
        {"name": "of-snapshot", "size": 2, "snapshot_id": "monday"},
        {"name": "of-volume", "size": 1, "source_volid": "root"},
    )
    assert rbd.size("of-snapshot") == 2 * GIB
    for name in ("of-snapshot", "of-volume"):
        said = rbd.ceph.sh("rbd", "info", "%s/%s" % (POOL, rbd.image(name)))
        assert "parent: %s/%s@" % (POOL, rbd.image("root")) in said
    digests = {name: digest_of(rbd, name) for name in ("root", "of-snapshot", "of-volume")}
    assert len(set(digests.values())) == 1
    rbd.create({"name": "root", "size": 1, "image": "guest"})  # changes nothing

    refused = rbd.run("volume_delete", bootflow_volume_names=["root"])
    assert refused.returncode and "snapshot" in refused.output
    root = rbd.image("root")
    rbd.must("volume_delete", bootflow_volume_names=["root"], bootflow_volume_cascade=True)
    assert root + ".deleted" in rbd.ceph.images(POOL) and root not in rbd.ceph.images(POOL)
    assert "parent:" not in rbd.ceph.sh("rbd", "info", "%s/%s" % (POOL, rbd.image("of-snapshot")))
    rbd.must("volume_delete", bootflow_volume_names=["of-snapshot", "of-volume"])
    assert rbd.ceph.images(POOL) == []


@pytest.mark.long
def test_a_guest_starts_from_its_volume_after_the_secret_is_gone(rbd: CephFlow) -> None:
    root = {"uuid": "guest", "source_type": "image", "destination_type": "volume", "volume_size": 1, "boot_index": 0}
    rbd.boot(on("compute1", block_device_mapping=[{**root, "delete_on_termination": True}]))
    (secret,) = rbd.secrets("compute1")
    operate(rbd, "stop", "web", bootflow_shutdown_timeout=1)
    rbd.virsh("compute1", "secret-undefine", secret)
    operate(rbd, "start", "web")
    assert rbd.secrets("compute1") == [secret]
    assert rbd.virsh("compute1", "domstate", rbd.instances()["web"]["uuid"]).strip() == "running"
    operate(rbd, "reboot", "web", bootflow_reboot_type="HARD")
    rbd.delete("web")
    assert rbd.secrets("compute1") == [] and rbd.ceph.images(POOL) == []


@pytest.mark.long
def test_a_root_volume_is_written_again_also_after_a_run_that_was_killed(rbd: CephFlow, tmp_path: Path) -> None:
    file = tmp_path / "newer.raw"
    file.write_bytes(b"\x00\xffnewer" * 1000)
    newer = {
        "name": "newer",
        "path": str(file),
        "disk_format": "raw",
        "checksum": "sha256:" + hashlib.sha256(file.read_bytes()).hexdigest(),
    }
    rbd.variables["bootflow_images"] = [*rbd.variables["bootflow_images"], newer]
    root = {"uuid": "guest", "source_type": "image", "destination_type": "volume", "volume_size": 1, "boot_index": 0}
    rbd.boot(on("compute1", block_device_mapping=[{**root, "delete_on_termination": True}]))
    (image,) = rbd.ceph.images(POOL)

    def rebuilt_from(name: str) -> bytes:
        rbd.must("rebuild", bootflow_names=["web"], bootflow_rebuild_image=name)
        assert rbd.ceph.images(POOL) == [image]
        argv = ["rbd", "export", "--no-progress", "%s/%s" % (POOL, image), "-"]
        return subprocess.run(argv, env=rbd.ceph.environment, check=True, stdout=subprocess.PIPE).stdout

    content = rebuilt_from("newer")
    assert len(content) == GIB and content.startswith(file.read_bytes())
    # As if a run had been killed between the two renames.
    rbd.ceph.sh("rbd", "create", "--size", "1024", "%s/incomplete.%s" % (POOL, image))
    operate(rbd, "stop", "web", bootflow_shutdown_timeout=1)
    rbd.ceph.sh("rbd", "rename", "%s/%s" % (POOL, image), "%s/%s.former" % (POOL, image))
    assert not rebuilt_from("guest").startswith(file.read_bytes())
    rbd.delete("web")
    assert rbd.ceph.images(POOL) == []


@pytest.mark.long
def test_a_volume_that_somebody_else_has_open_is_not_given_to_a_guest(rbd: CephFlow) -> None:
    rbd.create({"name": "data", "size": 1})
    rbd.boot(on("compute1"))
    place = (str(rbd.ceph.folder / "ceph.conf"), POOL, rbd.image("data"))
    with subprocess.Popen(
        ["/usr/bin/python3", "-c", STRANGER, *place],
        env=rbd.ceph.environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as stranger:
        try:
            end = time.monotonic() + 20
            while not rbd.watchers("data"):
                assert time.monotonic() < end
                time.sleep(0.2)
            refused = rbd.run("attach_volume", bootflow_attachments=[{"instance": "web", "volume": "data"}])
            assert refused.returncode and "VolumeOpenElsewhere" in refused.output, refused.output
            assert "vdb" not in disks(rbd, "compute1", "web")
            refused = rbd.run("volume_delete", bootflow_volume_names=["data"])
            assert refused.returncode and rbd.image("data") in rbd.ceph.images(POOL)
        finally:
            stranger.kill()


@pytest.mark.long
def test_a_full_pool_and_a_hung_cluster_are_refused_before_anything_is_claimed(rbd: CephFlow) -> None:
    rbd.create({"name": "data", "size": 1}, {"name": "other", "size": 1})
    rbd.boot(on("compute1"))
    rbd.ceph.sh("ceph", "osd", "pool", "set-quota", POOL, "max_bytes", "1")
    try:
        end = time.monotonic() + 60
        while "full_quota" not in rbd.ceph.sh("ceph", "osd", "dump"):
            assert time.monotonic() < end
            time.sleep(0.5)
        began = time.monotonic()
        refused = rbd.run("volume_create", bootflow_volumes=[{"name": "more", "size": 1}])
        assert refused.returncode and "quota is reached" in refused.output, refused.output
        refused = rbd.run("volume_extend", bootflow_volumes=[{"name": "data", "size": 2}])
        assert refused.returncode and "quota is reached" in refused.output, refused.output
        removed = rbd.run("volume_delete", bootflow_volume_names=["other"])
        gone = "other" not in rbd.volumes()
        assert gone == (removed.returncode == 0), "a deletion that says so has removed the volume"
        if not gone:
            assert rbd.image("other") in rbd.ceph.images(POOL)
        assert time.monotonic() - began < 180
    finally:
        rbd.ceph.sh("ceph", "osd", "pool", "set-quota", POOL, "max_bytes", "0")
    end = time.monotonic() + 60
    while "full_quota" in rbd.ceph.sh("ceph", "osd", "dump"):
        assert time.monotonic() < end
        time.sleep(0.5)
    assert rbd.size("data") == GIB

    rbd.ceph.freeze("osd")
    try:
        began = time.monotonic()
        refused = rbd.run("volume_create", bootflow_volumes=[{"name": "more", "size": 1}])
        assert refused.returncode and "does not answer" in refused.output, refused.output
        refused = rbd.run("attach_volume", bootflow_attachments=[{"instance": "web", "volume": "data"}])
        assert refused.returncode and "does not answer" in refused.output, refused.output
        assert time.monotonic() - began < 120
        assert "vdb" not in disks(rbd, "compute1", "web")
    finally:
        rbd.ceph.thaw("osd")
    attach(rbd, "data")


@pytest.mark.long
def test_hosts_report_their_guests_while_the_cluster_hangs(rbd: CephFlow) -> None:
    rbd.create({"name": "data", "size": 1})
    rbd.boot(on("compute1"), on("compute1", "other"))
    attach(rbd, "data")
    rbd.ceph.freeze("osd")
    try:
        rbd.virsh("compute1", "destroy", rbd.instances()["other"]["uuid"])
        began = time.monotonic()
        said = rbd.must("power_sync")
        assert "other" in said
        rbd.run("heartbeat")
        assert time.monotonic() - began < 300
        assert rbd.virsh("compute1", "domstate", rbd.instances()["web"]["uuid"]).strip() == "running"
    finally:
        rbd.ceph.thaw("osd")


@pytest.mark.long
def test_an_evacuated_guest_starts_after_its_lost_host_is_fenced(split: CephFlow) -> None:
    rbd = split
    root = {"uuid": "guest", "source_type": "image", "destination_type": "volume", "volume_size": 1, "boot_index": 0}
    rbd.boot(on("compute1", block_device_mapping=[root]))
    (image,) = rbd.ceph.images(POOL)
    (watcher,) = rbd.ceph.watchers(POOL, image)
    assert rbd.run("heartbeat").returncode == 0
    rbd.lab.host("compute1").fail("ssh")  # its guest runs on, and reaches Ceph
    rbd.must("host", bootflow_host=["compute1"], bootflow_host_state="forced_down")
    rbd.must("evacuate", bootflow_host=["compute1"])
    assert rbd.instances()["web"]["host"] != "compute1"
    assert watcher in rbd.ceph.sh("ceph", "osd", "blocklist", "ls")
    assert len(rbd.ceph.watchers(POOL, image)) == 1 and rbd.ceph.watchers(POOL, image) != [watcher]


@pytest.mark.long
def test_a_pool_without_a_manager_gets_no_new_volumes(rbd: CephFlow) -> None:
    rbd.create({"name": "data", "size": 1})
    rbd.ceph.kill_daemon("mgr")
    try:
        end = time.monotonic() + 90
        while '"available":true' in rbd.ceph.sh("ceph", "status", "--format", "json").replace(" ", ""):
            assert time.monotonic() < end
            time.sleep(1)
        refused = rbd.run("volume_create", bootflow_volumes=[{"name": "more", "size": 1}])
        assert refused.returncode and "manager" in refused.output, refused.output
        rbd.must("volume_delete", bootflow_volume_names=["data"])
    finally:
        rbd.ceph.start_daemon("mgr")
        rbd.ceph.wait_for_figures(POOL)
    assert BACKEND in rbd.must("volume_list")
