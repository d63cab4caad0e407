# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""domain_disk exchanges the volumes of real (tiny) guests, against a real libvirtd and QEMU. The volumes are loop devices."""

from __future__ import annotations

import hashlib
import os
import subprocess
import time

import private_libvirt
import pytest
import tiny_guest
from host_python import ModuleRunner

from ansible_collections.bootflow.compute.plugins.module_utils.core.disks.block_devices import PlannedDisk
from ansible_collections.bootflow.compute.plugins.module_utils.core.guest.devices import disk_configs
from ansible_collections.bootflow.compute.plugins.module_utils.core.guest.domain.element import parse, to_text
from ansible_collections.bootflow.compute.plugins.module_utils.core.guest.spec import GuestSpec
from ansible_collections.bootflow.compute.plugins.module_utils.core.model import Flavor

MIB = 1024**2
GUEST = "2f4c1c0e-6a0f-4d8e-9f0b-0c6f3f3b2c02"
OLD = "6a2c1f0e-3c5e-4d7b-8d3f-9f1c2b3a4d11"
NEW = "6a2c1f0e-3c5e-4d7b-8d3f-9f1c2b3a4d12"


@pytest.fixture(scope="module")
def libvirt(tmp_path_factory):
    with private_libvirt.PrivateLibvirt(tmp_path_factory.mktemp("libvirt")) as host:
        yield host


@pytest.fixture
def host(libvirt, tmp_path):
    host = Host(libvirt, libvirt.make_folder(tmp_path.name))
    yield host
    libvirt.run("virsh", "destroy", GUEST, check=False)
    libvirt.run("virsh", "undefine", GUEST, check=False)
    for device in host.devices.values():
        subprocess.run(["losetup", "-d", device], check=False)


class Host:
    """With a guest that has the volume OLD, whose content is random, and a larger volume NEW."""

    def __init__(self, libvirt, folder):
        self.libvirt = libvirt
        self.tmp = folder
        self.modules = ModuleRunner(str(folder / "library"), libvirt.prefix)
        self.devices = {}
        self.content = os.urandom(8 * MIB)
        self.device(OLD, self.content)
        self.device(NEW, b"\xff" * 12 * MIB)
        root = tiny_guest.raw_image(str(folder / "root.raw"), "TINY-GUEST")
        path = folder / "guest.xml"
        path.write_text(tiny_guest.domain_xml(GUEST, "tiny", root, "raw"))
        libvirt.run("virsh", "define", str(path))
        libvirt.run("virsh", "start", GUEST)
        attached = {"id": OLD, "uuid": GUEST, "serial": OLD, "xml": self.xml(OLD)}
        assert self.modules("domain_disk", disks=[attached])["outcomes"][OLD]["error"] is None

    def device(self, volume, content):
        path = self.tmp / volume
        path.write_bytes(content)
        command = ["losetup", "-f", "--show", str(path)]
        self.devices[volume] = subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    def xml(self, volume):
        planned = PlannedDisk(
            volume, "volume", "/dev/vdb", "virtio", path=self.devices[volume], driver_format="raw", serial=volume,
            source="block", cache="none", io="native",
        )  # fmt: skip
        spec = GuestSpec(GUEST, "tiny", "tiny", 64, 1, Flavor("tiny", 64, 1, 1), disks=[planned])
        (found,) = disk_configs(spec, [planned], "qemu", "pc")
        return to_text(found.to_xml())

    def swap(self, state="swapped", check=False, **more):
        disk = {
            "id": "swap", "uuid": GUEST, "serial": OLD, "source": self.devices[OLD], "xml": self.xml(NEW), "state": state,
            "size": 12 * MIB, **more,
        }  # fmt: skip
        return self.modules("domain_disk", check=check, disks=[disk])["outcomes"]["swap"]

    def has(self, *options):
        """The sources of the guest's second disk, and the serials."""
        domain = parse(self.libvirt.run("virsh", "dumpxml", GUEST, *options))
        (disk,) = [d for d in domain.iterfind("devices/disk") if d.find("target").get("dev") == "vdb"]
        return disk.find("source").get("dev"), disk.findtext("serial")

    def size(self):
        """In bytes, as the guest has it."""
        lines = self.libvirt.run("virsh", "domblkinfo", GUEST, "vdb").splitlines()
        return int(next(line for line in lines if line.startswith("Capacity")).split()[1])

    def resize(self, volume, size):
        os.truncate(self.tmp / volume, size)
        subprocess.run(["losetup", "-c", self.devices[volume]], check=True)

    def job(self):
        return self.libvirt.run("virsh", "blockjob", GUEST, "vdb", "--info")

    def copied(self):
        path = self.tmp / NEW
        subprocess.run(["blockdev", "--flushbufs", self.devices[NEW]], check=False)
        data = path.read_bytes()
        return hashlib.sha256(data[: 8 * MIB]).digest() == hashlib.sha256(self.content).digest()


def test_a_running_guest_goes_over_to_a_larger_volume(host):
    planned = host.swap(check=True)
    assert planned["error"] is None and planned["changed"] and host.has() == (host.devices[OLD], OLD)
    done = host.swap()
    assert done["error"] is None and done["changed"] and done["swapped"] and done["target"] == "vdb"
    assert host.has() == (host.devices[NEW], OLD), "the running disk keeps its serial"
    assert host.has("--inactive") == (host.devices[NEW], NEW)
    assert host.size() == 8 * MIB
    assert host.copied() and "No current block job" in host.job()
    again = host.swap()
    assert again["error"] is None and again["swapped"] and not again["changed"]
    assert not host.swap("settled")["changed"] and host.swap("settled")["swapped"]

    # The disk of the guest is the new volume to all that follows.
    volume = {"id": NEW, "uuid": GUEST, "serial": NEW, "state": "attached", "xml": host.xml(NEW)}
    assert not host.modules("domain_disk", disks=[volume])["outcomes"][NEW]["changed"]
    former = {"id": OLD, "uuid": GUEST, "serial": OLD, "state": "detached", "source": host.devices[OLD]}
    assert not host.modules("domain_disk", disks=[former])["outcomes"][OLD]["changed"]
    host.libvirt.run("virsh", "destroy", GUEST)
    host.libvirt.run("virsh", "start", GUEST)
    assert host.has() == (host.devices[NEW], NEW) and host.size() == 12 * MIB


def test_a_volume_of_the_same_size_can_grow_at_once(host):
    host.resize(NEW, 8 * MIB)
    assert host.swap(size=8 * MIB)["swapped"] and host.copied()
    host.resize(NEW, 12 * MIB)
    grown = {"id": NEW, "uuid": GUEST, "serial": NEW, "state": "resized", "size": 12 * MIB}
    assert host.modules("domain_disk", disks=[grown])["outcomes"][NEW]["error"] is None
    assert host.size() == 12 * MIB


def test_a_paused_guest(host):
    host.libvirt.run("virsh", "suspend", GUEST)
    done = host.swap()
    assert done["error"] is None and done["swapped"] and host.copied()
    assert host.libvirt.run("virsh", "domstate", GUEST).strip() == "paused"


def test_a_copy_that_takes_too_long_is_aborted(host):
    done = host.swap(bandwidth=1, copy_timeout=1)
    assert done["error"]["code"] == "WaitTimeout"
    assert host.has() == host.has("--inactive") == (host.devices[OLD], OLD)
    assert "No current block job" in host.job()
    settled = host.swap("settled")
    assert settled["error"] is None and settled["swapped"] is False and not settled["changed"]


def left(host):
    """QEMU's job of a module that was killed: it follows what the guest writes, and never goes over."""
    host.resize(NEW, 8 * MIB)
    host.libvirt.run(
        "virsh", "blockcopy", GUEST, "vdb", "--dest", host.devices[NEW], "--blockdev", "--format", "raw", "--reuse-external",
        "--transient-job",
    )  # fmt: skip
    assert "No current block job" not in host.job()


def test_a_copy_that_a_killed_module_left_goes_on(host):
    left(host)
    done = host.swap()
    assert done["error"] is None and done["swapped"] and host.copied()
    assert host.has("--inactive") == (host.devices[NEW], NEW)


def test_a_copy_that_a_killed_module_left_is_ended(host):
    left(host)
    done = host.swap("settled")
    assert done["error"] is None and done["swapped"] is False and done["changed"]
    assert host.has() == (host.devices[OLD], OLD) and "No current block job" in host.job()


def test_a_module_that_was_killed_after_the_guest_had_gone_over(host):
    left(host)
    deadline = time.monotonic() + 60
    while "100" not in host.job() and time.monotonic() < deadline:
        time.sleep(0.2)
    host.libvirt.run("virsh", "blockjob", GUEST, "vdb", "--pivot")
    done = host.swap("settled")
    assert done["error"] is None and done["swapped"] and done["changed"]
    assert host.has("--inactive") == (host.devices[NEW], NEW)


def test_another_job_is_refused(host):
    host.libvirt.run(
        "virsh", "blockcopy", GUEST, "vdb", "--dest", str(host.tmp / "other.raw"), "--format", "raw", "--transient-job"
    )
    error = host.swap()["error"]
    assert (error["code"], error["status"], error["retryable"]) == ("DiskJobRunning", 409, True)
    assert "No current block job" not in host.job(), "it goes on"
    settled = host.swap("settled")
    assert settled["error"] is None and settled["swapped"] is False and "No current block job" not in host.job()


def test_a_guest_that_is_off(host):
    host.libvirt.run("virsh", "destroy", GUEST)
    assert host.swap()["error"]["code"] == "LibvirtError"
    settled = host.swap("settled")
    assert settled["error"] is None and settled["swapped"] is False


def test_what_is_refused(host):
    for wrong, words in (
        ({"source": ""}, "its source is missing"),
        ({"xml": host.xml(OLD)}, "exchanged for itself"),
        ({"bandwidth": -1}, "must not be negative"),
    ):
        error = host.swap(**wrong)["error"]
        assert error["code"] == "InvalidInput" and words in error["message"]
    assert host.swap(serial="6a2c1f0e-3c5e-4d7b-8d3f-9f1c2b3a4d99")["error"]["code"] == "InstanceNotFound"
