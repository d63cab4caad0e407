# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Local disks in a volume group of the compute host: real LVM, file systems and guests, and runs that are killed in the middle.

Every playbook takes many seconds on emulated CPUs, so each test is one life of an instance.
"""

from __future__ import annotations

import json
import re
import subprocess
import time
import typing as t

import firmware_variables
import kernel_way
import pytest
import sizing_guest
import storage_vm
from flow import CACHE
from kernel_way import WORDS, ComputeHost
from local_flow import GIB, GROUP, INSTANCES, MIB, LocalFlow

pytestmark = pytest.mark.long

STRANGER = "11111111-1111-4111-8111-111111111111"

# Has the root disk open for a second more than its guest, and tells then what is on it.
HOLDER = (
    'exec 3<%s; while pidof qemu-system-x86_64 >/dev/null; do sleep 0.2; done; sleep 1; head -c 512 <&3 | grep -a -o "'
    + WORDS
    + '"'
)


@pytest.fixture(scope="module")
def compute() -> t.Iterator[ComputeHost]:
    """A compute host of this file's own, with a volume group in which somebody else has a logical volume."""
    image = storage_vm.build_image(CACHE / "storage")
    vm = storage_vm.StorageVM(
        str(CACHE / "local-lvm"), image, disks={"pv1": 4 * GIB}, number=8, kind="compute", host_link=True
    )
    with kernel_way.compute_host(vm) as host:
        host.sh("vgcreate -q %s %s && lvcreate -q -y -n others -L 64M %s" % (GROUP, vm.disk("pv1"), GROUP))
        yield host


def is_on_disk(compute: ComputeHost, words: str) -> bool:
    """Whether the words are anywhere on the volume group's disk."""
    compute.sh("sync; blockdev --flushbufs %s" % compute.vm.disk("pv1"))
    argv = ["grep", "-q", "-a", "-F", words, compute.vm.directory + "/pv1.raw"]
    return subprocess.run(argv, check=False).returncode == 0


def nothing_left(flow: LocalFlow) -> None:
    assert flow.residue() == {}
    assert list(flow.volumes()) == ["others"]
    assert "x-bootflow" not in flow.compute.sh("cat /etc/fstab 2>/dev/null || true")
    assert INSTANCES not in flow.compute.sh("cat /proc/mounts")


def rescued_and_back(flow: LocalFlow, uuid: str) -> None:
    """The guest of the rescue boots a file of the image's size, the guest's own disks stay where they are, and it gets them back."""
    folder, sh = "%s/%s" % (INSTANCES, uuid), flow.compute.sh
    definition = "virsh -c qemu:///system dumpxml --inactive --security-info %s" % uuid
    before, own = sh(definition), [d.find("source").attrib for d in flow.disks(uuid).values()]

    def wait_said(size: int) -> None:
        deadline = time.monotonic() + 120
        while sizing_guest.said(WORDS, size) not in flow.console("compute", uuid):
            assert time.monotonic() < deadline, flow.console("compute", uuid)
            time.sleep(0.5)

    done = flow.run("rescue", bootflow_names=["app"])
    assert done.returncode == 0 and flow.instances()["app"]["vm_state"] == "rescued", done.output
    wait_said(MIB)
    rescue, *others = flow.disks(uuid).values()
    assert rescue.find("source").get("file") == folder + "/disk.rescue" and rescue.find("driver").get("type") == "qcow2"
    assert others.pop().find("source").get("file") == folder + "/disk.config.rescue"
    assert [{k: v for k, v in d.find("source").attrib.items() if k != "index"} for d in others] == [
        {k: v for k, v in each.items() if k != "index"} for each in own
    ]
    done = flow.run("unrescue", bootflow_names=["app"])
    assert done.returncode == 0 and flow.instances()["app"]["vm_state"] == "active", done.output
    wait_said(GIB)
    assert sh(definition) == before and "rescue" not in sh("ls " + folder)


def test_disks_that_are_logical_volumes(compute: ComputeHost, tmp_path) -> None:
    """A run is killed while it makes the last of three disks; the same boot goes on. Deleted, nothing of the guest can be read."""
    flow = LocalFlow(compute, tmp_path, "lvm")
    flow.killed_in("mkswap", "three")
    uuid = flow.instances()["app"]["uuid"]
    sizes = {uuid + "_disk": GIB, uuid + "_disk.eph0": GIB, uuid + "_disk.swap": 64 * MIB}
    left = flow.volumes()
    assert {name for name, lv in left.items() if "bootflow.incomplete" in lv["tags"]} == set(sizes)
    # What is on the root disk now is not what belongs there.
    compute.sh("echo 'not the image' | dd of=/dev/%s/%s_disk conv=notrunc status=none" % (GROUP, uuid))

    flow.boot(flow.entry("three"), bootflow_wait_console=flow.said())
    assert flow.instances()["app"]["vm_state"] == "active"
    found = flow.volumes()
    assert found.pop("others") == {"size": 64 * MIB, "tags": set()}
    assert {name: lv["size"] for name, lv in found.items()} == sizes
    (marker,) = compute.sh("ls %s/_base | grep json" % INSTANCES).split()
    source = "bootflow.source=image/" + marker.replace(".json", "")
    for name, lv in found.items():
        assert lv["tags"] == flow.tags(uuid) | ({source} if name == uuid + "_disk" else set())
    disks = flow.disks(uuid)
    devices = ["/dev/%s/%s_%s" % (GROUP, uuid, name) for name in ("disk", "disk.eph0", "disk.swap")]
    assert [(d.get("type"), d.get("device"), d.find("source").get("dev")) for d in disks.values()] == [
        ("block", "disk", device) for device in devices
    ]
    assert list(disks) == ["vda", "vdb", "vdc"]
    for disk in disks.values():
        driver = disk.find("driver")
        assert (driver.get("type"), driver.get("cache"), driver.get("io")) == ("raw", "none", "native")
    seen = [
        compute.sh("blkid -p -o value -s %s %s" % it).strip()
        for it in zip(("TYPE", "LABEL", "TYPE"), devices[1:2] + devices[1:])
    ]
    assert seen == ["ext4", "ephemeral0", "swap"]
    assert is_on_disk(compute, WORDS)
    node = flow.query("SELECT local_gb, disk_available_least FROM compute_nodes")[0]
    assert tuple(node) == (3, 3), "as reported while nothing was there: a volume group of 4 GiB less its metadata"

    again = flow.boot(flow.entry("three"))
    assert not re.search(r"changed=[1-9]", again.output) and flow.instances()["app"]["uuid"] == uuid

    rescued_and_back(flow, uuid)
    compute.sh("printf '%%s' >/run/lab/holder '%s'" % (HOLDER % devices[0]))
    compute.sh("sh /run/lab/holder >/run/lab/held 2>&1 </dev/null &")
    flow.delete("app")
    assert compute.sh("cat /run/lab/held").strip() == WORDS, "what is open is not wiped"
    nothing_left(flow)
    assert not is_on_disk(compute, WORDS)

    # Of an instance that this ledger never had; its folder is gone, and its domain.
    tags = "--addtag bootflow --addtag bootflow.instance=" + STRANGER
    compute.sh("lvcreate -q -y -Wn -L 64M -n %s_disk %s %s" % (STRANGER, tags, GROUP))
    compute.sh("echo '%s' | dd of=/dev/%s/%s_disk conv=notrunc status=none" % (WORDS, GROUP, STRANGER))
    told = flow.run("audit")
    assert "orphan_disk" in told.output and STRANGER in told.output and STRANGER + "_disk" in flow.volumes()
    removed = flow.run("audit", bootflow_audit_remove_orphans=True)
    assert removed.returncode == 0, removed.output
    nothing_left(flow)
    assert not is_on_disk(compute, WORDS)
    again = flow.run("audit", bootflow_audit_remove_orphans=True)
    assert "orphan_disk" not in again.output and not re.search(r"changed=[1-9]", again.output)


def test_qcow2_files_on_a_logical_volume(compute: ComputeHost, tmp_path) -> None:
    """The host loses its power while the guest is started. Its line in fstab mounts the volume again, and so does the boot that goes on."""
    flow = LocalFlow(compute, tmp_path, "qcow2_on_lvm")
    flow.crashed_in("spawning", "two")
    uuid = flow.instances()["app"]["uuid"]
    place, device = "%s/%s/disk" % (INSTANCES, uuid), "/dev/mapper/nova--local-%s_disk" % uuid.replace("-", "--")
    compute.sh("mount -a && findmnt -n %s && umount %s" % (place, place))
    flow.boot(flow.entry("two"), bootflow_wait_console=flow.said())
    assert flow.instances()["app"]["vm_state"] == "active"

    source, kind, free = compute.sh("df -B1 --output=source,fstype,avail %s | tail -n 1" % place).split()
    assert (source, kind) == (device, "ext4")
    assert flow.volumes()[uuid + "_disk"]["tags"] == flow.tags(uuid)
    full = 0
    for name, size in (("disk", GIB), ("disk.swap", 64 * MIB)):
        info = json.loads(compute.sh("qemu-img info -U --output=json %s/%s" % (place, name)))
        assert (info["format"], info["virtual-size"]) == ("qcow2", size)
        measured = json.loads(compute.sh("qemu-img measure -O qcow2 --size %d --output=json" % size))
        full += measured["fully-allocated"] - info["actual-size"]
        if name == "disk":
            assert (
                info["backing-filename"].startswith(INSTANCES + "/_base/") and info["backing-filename-format"] == "raw"
            )
    assert full <= int(free), "the disks can become full"
    disks = flow.disks(uuid)
    assert [d.find("source").get("file") for d in disks.values()] == [place + "/disk", place + "/disk.swap"]
    for disk in disks.values():
        driver = disk.find("driver")
        assert disk.get("type") == "file" and (driver.get("type"), driver.get("cache")) == ("qcow2", "writeback")

    flow.delete("app")
    nothing_left(flow)


@pytest.mark.parametrize("backend", ["lvm", "qcow2_on_lvm"])
def test_uefi_variables_beside_logical_volumes(compute: ComputeHost, tmp_path, backend: str) -> None:
    """Nothing on its root disk boots by UEFI: its firmware says so."""
    flow = LocalFlow(compute, tmp_path, backend)
    flow.variables["bootflow_images"][0]["properties"] = firmware_variables.UEFI
    flow.variables["bootflow_flavors"].append(
        {**flow.variables["bootflow_flavors"][0], **firmware_variables.FLAVOR, "ephemeral_gb": 0, "swap": 0}
    )
    flow.boot(flow.entry("firmware"))
    uuid = flow.instances()["app"]["uuid"]
    assert uuid + "_disk" in flow.volumes()
    firmware_variables.live_and_die(flow, "app", compute)
    nothing_left(flow)


@pytest.mark.parametrize("backend", ["lvm", "qcow2_on_lvm"])
def test_images_of_guests_with_logical_volumes(compute: ComputeHost, tmp_path, backend: str) -> None:
    """While it runs and while it is off: the image has the bytes of the disk, and boots."""
    flow = LocalFlow(compute, tmp_path, backend)
    images = tmp_path / "images"
    images.mkdir()
    flow.variables["bootflow_image_stores"] = [{"name": "here", "path": str(images)}]
    flow.variables["bootflow_snapshot_image_format"] = "qcow2"
    flow.boot(flow.entry("two"), bootflow_wait_console=flow.said())
    before = compute.virsh("dumpxml", "--inactive", flow.instances()["app"]["uuid"])
    for name in ("live", "off"):
        if name == "off":
            assert flow.run("stop", bootflow_names=["app"], bootflow_shutdown_timeout=0).returncode == 0
        done = flow.run("snapshot", bootflow_names=["app"], bootflow_snapshot_name=name)
        assert done.returncode == 0, done.output
        (row,) = flow.query("SELECT * FROM images WHERE name = ? AND deleted = ''", name)
        content = tmp_path / name
        subprocess.run(["qemu-img", "convert", "-O", "raw", str(images / row["id"]), str(content)], check=True)
        assert content.stat().st_size == GIB and (images / row["id"]).stat().st_size < 16 * MIB
        with content.open("rb") as file:
            assert file.read(MIB) == flow.image.read_bytes()
            assert not any(file.read(16 * MIB))
    assert compute.virsh("dumpxml", "--inactive", flow.instances()["app"]["uuid"]) == before
    assert compute.sh("ls -A %s/_snapshots" % INSTANCES) == ""
    flow.delete("app")
    nothing_left(flow)
    flow.boot({**flow.entry("two"), "image": "live"}, bootflow_wait_console=flow.said())
    flow.delete("app")
    nothing_left(flow)
