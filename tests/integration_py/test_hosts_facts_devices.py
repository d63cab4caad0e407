# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""PCI devices, whole disks and CPU metrics of compute_node_info, against a real libvirtd and the real kernel."""

from __future__ import annotations

import json
import os
import subprocess

import private_libvirt
import pytest
import tiny_guest
from host_python import ModuleRunner

from ansible_collections.bootflow.compute.plugins.module_utils.core.guest.config import (
    GuestSpec,
    HostCapabilities,
    domain_name,
    guest_config,
    render,
)
from ansible_collections.bootflow.compute.plugins.module_utils.core.guest.domain.compare import intent_differences
from ansible_collections.bootflow.compute.plugins.module_utils.core.model import Flavor

UUID = "2f4c1c0e-6a0f-4d8e-9f0b-0c6f3f3b2d01"


@pytest.fixture(scope="module")
def libvirt(tmp_path_factory):
    with private_libvirt.PrivateLibvirt(tmp_path_factory.mktemp("libvirt")) as host:
        yield host


@pytest.fixture
def info(libvirt, tmp_path):
    modules = ModuleRunner(str(tmp_path / "library"), libvirt.prefix)

    def ask(check=False, **args):
        answer = modules(
            "compute_node_info", check=check, instances_path=str(tmp_path / "instances"), virt_type="qemu", **args
        )
        return answer["compute_node"] if "compute_node" in answer else answer

    return ask


@pytest.fixture
def loop(tmp_path):
    """Makes disks: loop devices over files of 1 GiB that take no space."""
    made = []

    def make():
        path = tmp_path / ("disk%d" % len(made))
        with open(path, "wb") as file:
            file.truncate(1024**3)
        device = subprocess.run(["losetup", "--find", "--show", str(path)], check=True, capture_output=True, text=True)
        made.append(device.stdout.strip())
        return made[-1]

    yield make
    for device in made:
        subprocess.run(["umount", device], check=False, capture_output=True)
        subprocess.run(["losetup", "--detach", device], check=False)


def test_pci_devices_are_those_of_the_kernel(info, libvirt):
    assert info()["pci_passthrough_devices"] == []
    found = info(pci_device_spec=[{}])["pci_passthrough_devices"]
    kernel = "/sys/bus/pci/devices"
    assert [device["address"] for device in found] == (sorted(os.listdir(kernel)) if os.path.isdir(kernel) else [])
    for device in found:
        for key, name in (("vendor_id", "vendor"), ("product_id", "device")):
            with open(os.path.join(kernel, device["address"], name)) as file:
                assert file.read().strip() == "0x" + device[key]
    for wanted in found[:2]:
        (same,) = info(pci_device_spec=[{"address": wanted["address"], "trusted": True}])["pci_passthrough_devices"]
        assert same == dict(wanted, tags={"trusted": "true"})


def test_a_wrong_pci_entry_is_told(info):
    answer = info(pci_device_spec=[{"vendor_id": "nvidia"}])
    assert (answer["failed"], answer["error_code"], answer["status"]) == (True, "PciConfigInvalidWhitelist", 400)


def test_a_free_disk_is_offered_and_one_in_use_is_not(info, loop, libvirt, tmp_path):
    free, mounted, volume, guests = [loop() for dummy in range(4)]
    (tmp_path / "mnt").mkdir()
    subprocess.run(["mkfs.ext4", "-q", mounted], check=True)
    subprocess.run(["mount", mounted, str(tmp_path / "mnt")], check=True)
    with open(volume, "r+b") as file:
        file.seek(512)
        file.write(b"LABELONE")
    xml = tiny_guest.domain_xml(UUID, "owner", guests)
    xml = xml.replace("<disk type='file'", "<disk type='block'").replace("<source file=", "<source dev=")
    (tmp_path / "owner.xml").write_text(xml)
    libvirt.run("virsh", "define", str(tmp_path / "owner.xml"))
    (tmp_path / "link").symlink_to(free)
    paths = [str(tmp_path / "link"), free, mounted, volume, guests, str(tmp_path / "owner.xml")]
    try:
        rows = info(isolated_disks=paths)["isolated_disks"]
    finally:
        libvirt.run("virsh", "undefine", UUID)
    assert [row["path"] for row in rows] == paths
    offered = rows[0]
    assert (offered["size_gb"], offered["reason"]) == (1, "") and offered["medium"] in ("ssd", "hdd")
    reasons = [row["reason"] for row in rows[1:]]
    assert reasons[0] == "is the same disk as %s" % paths[0]
    assert "mounted at" in reasons[1] or reasons[1] == "is in use by the kernel"
    assert reasons[2:] == ["the disk is an LVM physical volume", "is used by domain owner", "is not a block device"]
    assert info(isolated_disks=[guests])["isolated_disks"][0]["reason"] == ""


def test_cpu_metrics_go_from_report_to_report(info, tmp_path):
    first = info(check=True)["metrics"]
    assert not (tmp_path / "instances").exists()
    assert len(first) == 10 and first["cpu.idle.time"] > 0
    assert all(0 <= value <= 100 for name, value in first.items() if name.endswith("percent"))
    second = info()["metrics"]
    assert second["cpu.idle.time"] >= first["cpu.idle.time"]
    with open(tmp_path / "instances" / "_probe" / "cpu.json") as file:
        assert json.load(file)["idle"] == second["cpu.idle.time"]


def test_what_libvirt_keeps_of_a_guest_with_devices_of_its_own_is_what_was_wanted(libvirt, loop, tmp_path):
    devices = [{"address": "0000:81:00.1"}, {"address": "0000:82:1f.7"}]
    spec = GuestSpec(
        uuid=UUID,
        name=domain_name("owner", UUID),
        display_name="owner",
        memory_mb=64,
        vcpus=1,
        flavor=Flavor("f", 64, 1),
        disks=[],
        pci_devices=devices,
        whole_disks=[{"path": loop(), "serial": "WD 1/2"}],
    )
    wanted = render(guest_config(spec, HostCapabilities(virt_type="qemu", host="h")))
    (tmp_path / "owner.xml").write_text(wanted)
    libvirt.run("virsh", "define", "--validate", str(tmp_path / "owner.xml"))
    try:
        kept = libvirt.run("virsh", "dumpxml", "--inactive", UUID)
    finally:
        libvirt.run("virsh", "undefine", UUID)
    assert intent_differences(wanted, kept) == []
    assert intent_differences(wanted, kept.replace("bus='0x82'", "bus='0x83'")) != []
    assert intent_differences(wanted.replace("WD_1_2", "other"), kept) != []
