# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The ground that the other integration tests stand on: hosts of their own, failures that can be mended, a guest that talks."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import copies
import pytest
import tiny_guest

import lab as lab_module

DOMAIN = """
<domain type='qemu'><name>{name}</name><uuid>{uuid}</uuid><memory unit='MiB'>128</memory><vcpu>1</vcpu>
  <os><type arch='x86_64' machine='{machine}'>hvm</type></os><features><acpi/></features>
  <devices>
    <disk type='file' device='disk'><driver name='qemu' type='qcow2'/><source file='{folder}/disk'/><target dev='vda' bus='virtio'/></disk>
    <disk type='file' device='{drive}'><driver name='qemu' type='raw'/><source file='{folder}/disk.config'/><target dev='{target}' bus='{bus}'/>
      <readonly/></disk>
    <interface type='network'><mac address='52:54:00:12:34:56'/><source network='default'/><model type='virtio'/></interface>
    <serial type='pty'><log file='{folder}/console.log'/></serial>
  </devices>
</domain>
"""
UUID = "11111111-2222-3333-4444-555555555555"


def virsh(host, *arguments, check=True):
    return host.run("virsh", "-c", "qemu:///system", *arguments, check=check).stdout


def config_drive(folder, address):
    latest = folder / "drive" / "openstack" / "latest"
    latest.mkdir(parents=True)
    (folder / "drive" / "openstack" / "content").mkdir()
    (folder / "drive" / "openstack" / "content" / "0000").write_text("hello\n")
    (latest / "user_data").write_text("#!/bin/sh\necho user data of $(hostname)\n")
    (latest / "meta_data.json").write_text(
        json.dumps(
            {
                "uuid": UUID,
                "hostname": "web-1",
                "meta": {"quoted": 'a "b" \\ {c}, [d]'},
                "files": [{"content_path": "/content/0000", "path": "/etc/motd"}],
                "public_keys": {"mine": "ssh-ed25519 AAAA"},
            }
        )
    )
    link = {"id": "tap1", "vif_id": "tap1", "type": "bridge", "mtu": 1400, "ethernet_mac_address": "52:54:00:12:34:56"}
    networks = [
        {
            "id": "network0",
            "type": "ipv4",
            "link": "tap1",
            "ip_address": address,
            "netmask": "255.255.255.0",
            "routes": [{"network": "0.0.0.0", "netmask": "0.0.0.0", "gateway": "192.168.122.1"}],
        },
        {
            "id": "network1",
            "type": "ipv6",
            "link": "tap1",
            "ip_address": "fd00:1::15",
            "netmask": "ffff:ffff:ffff:ffff::",
            "routes": [],
        },
    ]
    (latest / "network_data.json").write_text(json.dumps({"links": [link], "networks": networks, "services": []}))
    drive = folder / "disk.config"
    subprocess.run(
        ["genisoimage", "-quiet", "-J", "-r", "-V", "config-2", "-o", str(drive), str(folder / "drive")], check=True
    )
    return drive


def read_until(path, text, timeout):
    end = time.monotonic() + timeout
    while time.monotonic() < end:
        if path.exists() and text in path.read_text(errors="replace"):
            break
        time.sleep(0.2)
    return path.read_text(errors="replace") if path.exists() else ""


@pytest.fixture
def open_folder():
    """A folder that QEMU, which is not root, can pass through; pytest's own is closed to it."""
    folder = Path(tempfile.mkdtemp(prefix="bootflow-", dir="/var/tmp"))
    folder.chmod(0o711)
    yield folder
    shutil.rmtree(folder)


@pytest.mark.parametrize(
    ("machine", "drive", "target", "bus"),
    [("q35", "disk", "vdb", "virtio"), ("pc", "cdrom", "hda", "ide")],
    ids=["virtio-disk", "ide-cdrom"],
)
def test_guest_says_what_its_config_drive_gave_it(lab, guest_image, open_folder, machine, drive, target, bus):
    tmp_path = open_folder
    host = lab.host("compute1")
    config_drive(tmp_path, "192.168.122.50")
    shutil.copy(guest_image, tmp_path / "disk")
    subprocess.run(["qemu-img", "resize", "-q", str(tmp_path / "disk"), "1G"], check=True)
    xml = tmp_path / "domain.xml"
    xml.write_text(
        DOMAIN.format(name="guest", uuid=UUID, folder=tmp_path, machine=machine, drive=drive, target=target, bus=bus)
    )
    virsh(host, "create", str(xml))
    try:
        console = read_until(tmp_path / "console.log", "BOOTFLOW-GUEST-READY", 60)
        assert (
            "BOOTFLOW-GUEST hostname=web-1 mac=52:54:00:12:34:56 address=192.168.122.50/24 uuid=%s userdata=yes" % UUID
            in console
        )
        assert (
            "BOOTFLOW-GUEST hostname=web-1 mac=52:54:00:12:34:56 address=fd00:1::15/64 uuid=%s userdata=yes" % UUID
            in console
        )
        assert "BOOTFLOW-GUEST-FILE path=/etc/motd bytes=6 " in console
        assert "BOOTFLOW-GUEST-DISK name=vda bytes=1073741824 " in console
        assert "label=config-2" in console
        assert "keys=1" in console
        assert "user data of web-1" in console
        host.run("ping", "-c", "1", "-W", "5", "192.168.122.50")
        virsh(host, "shutdown", "guest")
        lab_module.wait_until(
            lambda: "guest" not in virsh(host, "list", "--name"), 30, "an end of the guest by its power button"
        )
    finally:
        virsh(host, "destroy", "guest", check=False)


def test_hosts_are_separate(lab):
    assert [host.run("hostname").stdout.strip() for host in lab.hosts] == ["compute1", "compute2", "compute3"]
    assert (
        len({host.run("sed", "-n", "s/^host_uuid = //p", "/etc/libvirt/libvirtd.conf").stdout for host in lab.hosts})
        == 3
    )
    host, other = lab.hosts[0], lab.hosts[1]
    host.run("sh", "-c", "touch /etc/lab-was-here /var/lib/lab-was-here /run/lab-was-here")
    for path in ("/etc/lab-was-here", "/var/lib/lab-was-here", "/run/lab-was-here"):
        assert not os.path.exists(path)
        assert other.run("test", "-e", path, check=False).returncode == 1
    assert other.run("ping", "-c", "1", "-w", "20", host.guest_network_address).returncode == 0


def test_failures_and_their_end(lab):
    host = lab.host("compute3")
    host.fail("libvirtd")
    assert "failed to connect" in virsh(host, "list", check=False)
    host.restore()
    assert virsh(host, "list", "--name").strip() == ""

    host.fail("ssh")
    assert not host.ssh_answers()
    host.restore()
    assert host.ssh_answers()

    host.fail("network")
    with pytest.raises(OSError):
        socket.create_connection((host.address, 22), timeout=1).close()
    host.restore()
    assert host.ssh_answers()

    host.fail("disk", "/var/lib/bootflow/instances")
    assert (
        "No space left"
        in host.run("sh", "-c", "head -c 64k /dev/zero > /var/lib/bootflow/instances/file", check=False).stdout
    )
    host.restore()
    host.run(
        "sh", "-c", "head -c 64k /dev/zero > /var/lib/bootflow/instances/file && rm /var/lib/bootflow/instances/file"
    )

    host.fail("spawn")
    xml = "<domain type='qemu'><name>empty</name><memory>65536</memory><os><type arch='x86_64'>hvm</type></os></domain>"
    host.run("sh", "-c", 'echo "$0" > /run/empty.xml', xml)
    assert "the lab was told to fail spawns" in virsh(host, "create", "/run/empty.xml", check=False)
    host.restore()
    virsh(host, "create", "/run/empty.xml")
    virsh(host, "destroy", "empty")
    assert lab.failures() == {}


def test_down_leaves_nothing_after_a_crash(tmp_path):
    crashed = lab_module.Lab(str(tmp_path / "lab"))
    script = "import sys; sys.path.insert(0, sys.argv[1]); import lab; lab.Lab(sys.argv[2]).up(2)"
    process = subprocess.Popen([sys.executable, "-c", script, os.path.dirname(lab_module.__file__), crashed.directory])
    lab_module.wait_until(lambda: lab_module.leftovers(lab_module.PREFIX + crashed.id)[0], 20, "the first namespace")
    process.send_signal(signal.SIGKILL)
    process.wait()
    crashed.down()
    assert lab_module.leftovers(lab_module.PREFIX + crashed.id) == ([], [])
    assert not os.path.exists(crashed.directory)
    with open("/proc/mounts", encoding="utf-8") as mounts:
        assert crashed.directory not in mounts.read()


def test_a_guest_that_runs_twice_is_seen(lab, still_image, open_folder):
    tmp_path = open_folder
    uuid = "22222222-2222-3333-4444-555555555555"
    first, second = lab.hosts[:2]
    xml = {}
    for host in (first, second):
        disk = tmp_path / ("%s.qcow2" % host.name)
        shutil.copy(still_image, disk)
        xml[host.name] = tmp_path / ("%s.xml" % host.name)
        xml[host.name].write_text(tiny_guest.domain_xml(uuid, "twin", str(disk), "qcow2"))
    try:
        with copies.Watch() as watch:
            virsh(first, "create", str(xml[first.name]))
            time.sleep(1)
            assert uuid not in watch.twice
            virsh(second, "create", str(xml[second.name]))
            end = time.monotonic() + 10
            while uuid not in watch.twice:
                assert time.monotonic() < end
                time.sleep(0.1)
    finally:
        for host in (first, second):
            virsh(host, "destroy", uuid, check=False)
