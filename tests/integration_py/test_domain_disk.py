# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""domain_disk and iscsi_secret against a real libvirtd with real (tiny) guests.

A boot sector does not answer a request to unplug a PCI device, so that a virtio disk shows the guest that keeps its disk, and
a USB disk, which goes without being asked for, the one that lets it go.
"""

from __future__ import annotations

import os
import re

import private_libvirt
import pytest
import tiny_guest
from host_python import ModuleRunner

from ansible_collections.bootflow.compute.plugins.module_utils.core.disks.block_devices import PlannedDisk
from ansible_collections.bootflow.compute.plugins.module_utils.core.guest.devices import disk_configs
from ansible_collections.bootflow.compute.plugins.module_utils.core.guest.domain.disk import DiskConfig
from ansible_collections.bootflow.compute.plugins.module_utils.core.guest.domain.element import parse, to_text
from ansible_collections.bootflow.compute.plugins.module_utils.core.guest.spec import GuestSpec
from ansible_collections.bootflow.compute.plugins.module_utils.core.model import Flavor

MIB = 1024**2
GUEST = "2f4c1c0e-6a0f-4d8e-9f0b-0c6f3f3b2c01"
VOLUME = "6a2c1f0e-3c5e-4d7b-8d3f-9f1c2b3a4d01"
OTHER = "6a2c1f0e-3c5e-4d7b-8d3f-9f1c2b3a4d02"
IQN = "iqn.2010-10.org.openstack:volume-" + VOLUME
SECRET = "Abcdefgh12345678"


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


class Host:
    def __init__(self, libvirt, folder):
        self.libvirt = libvirt
        self.tmp = folder
        self.modules = ModuleRunner(str(folder / "library"), libvirt.prefix)

    def guest(self, start=True):
        root = tiny_guest.raw_image(str(self.tmp / "root.raw"), "TINY-GUEST")
        path = self.tmp / "guest.xml"
        xml = tiny_guest.domain_xml(GUEST, "tiny", root, "raw")
        path.write_text(xml.replace("<devices>", "<devices><controller type='usb' index='0' model='piix3-uhci'/>"))
        self.libvirt.run("virsh", "define", str(path))
        if start:
            self.libvirt.run("virsh", "start", GUEST)

    def disk(self, volume=VOLUME, target="sda", bus="usb", size=MIB, **more):
        path = self.tmp / volume
        if not path.exists():
            path.write_bytes(b"")
            os.truncate(path, size)
        planned = PlannedDisk(
            volume, "volume", "/dev/" + target, bus, path=str(path), driver_format="raw", serial=volume
        )
        spec = GuestSpec(GUEST, "tiny", "tiny", 64, 1, Flavor("tiny", 64, 1, 1), disks=[planned])
        (found,) = disk_configs(spec, [planned], "qemu", "pc")
        return {"id": volume, "uuid": GUEST, "serial": volume, "xml": to_text(found.to_xml()), **more}

    def __call__(self, *disks, check=False, diff=False, **more):
        return self.modules("domain_disk", check=check, diff=diff, disks=list(disks), **more)

    def one(self, disk, **more):
        answer = self(disk, **more)
        outcome = answer["outcomes"][disk["id"]]
        assert answer["changed"] == outcome["changed"]
        return outcome

    def volumes(self, *options):
        domain = parse(self.libvirt.run("virsh", "dumpxml", GUEST, *options))
        found = (DiskConfig.from_xml(node).known_as for node in domain.iterfind("devices/disk"))
        return [volume for volume in found if volume is not None]


def test_into_a_running_guest_and_out_again(host):
    host.guest()
    disk = host.disk()
    planned = host(disk, check=True, diff=True)
    assert planned["changed"] and planned["outcomes"][VOLUME]["target"] == "sda"
    assert planned["diff"][0]["before"] == "" and VOLUME in planned["diff"][0]["after"]
    assert host.volumes() == host.volumes("--inactive") == []

    done = host.one(disk, diff=True)
    assert done["error"] is None and done["changed"] and done["live"] and done["config"]
    assert host.volumes() == host.volumes("--inactive") == [VOLUME]
    for check in (True, False):
        again = host(disk, check=check, diff=True)
        assert not again["changed"] and again["diff"] == []

    gone = {**disk, "state": "detached", "xml": None}
    assert host(gone, check=True)["changed"] and host.volumes() == [VOLUME]
    done = host(gone, diff=True)
    assert done["outcomes"][VOLUME]["error"] is None and done["changed"]
    assert VOLUME in done["diff"][0]["before"] and done["diff"][0]["after"] == ""
    assert host.volumes() == host.volumes("--inactive") == []
    for check in (True, False):
        assert not host(gone, check=check)["changed"]


def test_what_is_half_done_is_completed(host):
    host.guest()
    disk = host.disk()
    path = host.tmp / "disk.xml"
    path.write_text(disk["xml"].replace("sda", "sdb"))
    host.libvirt.run("virsh", "attach-device", GUEST, str(path), "--live")
    done = host.one(disk)
    assert done["error"] is None and done["changed"] and done["target"] == "sdb"
    assert host.volumes() == host.volumes("--inactive") == [VOLUME]
    assert "<target dev='sdb' bus='usb'/>" in host.libvirt.run("virsh", "dumpxml", GUEST, "--inactive")

    host.libvirt.run("virsh", "detach-disk", GUEST, "sdb", "--live")
    assert host.one({**disk, "state": "detached"})["changed"]
    assert host.volumes("--inactive") == []


def test_a_guest_that_does_not_run(host):
    host.guest(start=False)
    disk = host.disk(target="vdb", bus="virtio")
    done = host.one(disk)
    assert done["error"] is None and done["config"] and not done["live"]
    assert host.volumes("--inactive") == [VOLUME] and not host.one(disk)["changed"]
    assert not host.one({**disk, "state": "resized", "size": 2 * MIB})["changed"]
    assert host.one({**disk, "state": "detached"})["changed"] and host.volumes("--inactive") == []


def test_a_guest_that_keeps_its_disk(host):
    host.guest()
    disk = host.disk(target="vdb", bus="virtio")
    assert host.one(disk)["error"] is None
    kept = host({**disk, "state": "detached"}, host.disk(OTHER, "sda"), detach_tries=3, detach_wait=0.3)
    error = kept["outcomes"][VOLUME]["error"]
    assert (error["code"], error["status"]) == ("DeviceDetachFailed", 500)
    assert error["message"].startswith(
        "Device detach failed for /dev/vdb: Unable to detach the device from the live config after 3 tries."
    )
    assert kept["outcomes"][VOLUME]["changed"]  # it is out of the definition
    assert kept["outcomes"][OTHER]["error"] is None  # and its neighbour is there
    assert host.volumes("--inactive") == [OTHER] and sorted(host.volumes()) == [VOLUME, OTHER]
    host.libvirt.run("virsh", "destroy", GUEST)
    assert not host.one({**disk, "state": "detached"})["changed"]


def test_a_disk_that_grew(host):
    host.guest()
    disk = host.disk()
    host.one(disk)
    larger = {**disk, "state": "resized", "size": 3 * MIB}
    assert host.one(larger, check=True)["changed"]
    done = host.one(larger)
    assert done["error"] is None and done["changed"] and done["size"] == 3 * MIB
    assert re.search(r"Capacity:\s+%d" % (3 * MIB), host.libvirt.run("virsh", "domblkinfo", GUEST, "sda"))
    assert not host.one(larger)["changed"]
    error = host.one({**larger, "size": MIB})["error"]
    assert error["code"] == "InvalidInput" and "cannot shrink" in error["message"]
    error = host.one({**larger, "serial": OTHER})["error"]
    assert error["code"] == "InvalidInput" and "has no disk" in error["message"]


def test_what_is_refused(host):
    host.guest()
    disk = host.disk()
    host.one(disk)
    other = host.disk(OTHER, "sda")
    error = host.one(other)["error"]
    assert (error["code"], error["status"]) == ("DevicePathInUse", 409)
    assert error["message"] == "The supplied device path (/dev/sda) is in use."
    for wrong, words in (
        ({"xml": disk["xml"].replace(' type="raw"', "")}, "no driver type"),
        ({"xml": disk["xml"].replace("ua-" + VOLUME, "ua-" + OTHER)}, "has another serial"),
        ({"xml": "<disk"}, "cannot be parsed"),
        ({"xml": "<interface/>"}, "must be a disk"),
        ({"serial": "a b"}, "not a valid disk serial"),
        ({"uuid": "x"}, "x"),
        ({"state": "resized", "size": 513}, "multiple of 512"),
    ):
        error = host.one({**disk, **wrong})["error"]
        assert error["code"] in ("InvalidInput", "InvalidUUID") and words in error["message"], wrong
    assert host.volumes() == [VOLUME]
    nobody = {**disk, "uuid": OTHER}
    assert host.one(nobody)["error"]["code"] == "InstanceNotFound"
    assert host.one({**nobody, "state": "detached"})["error"] is None
    assert host(disk, {**disk, "state": "detached"})["error_code"] == "InvalidInput"


def test_secrets(host):
    def secrets(check=False, **secret):
        answer = host.modules("iscsi_secret", check=check, diff=True, secrets=[{"iqn": IQN, **secret}])
        assert SECRET not in str(answer)
        assert answer["outcomes"][IQN]["error"] is None
        return answer

    def there():
        return host.libvirt.run("virsh", "-q", "secret-list")

    planned = secrets(check=True, value=SECRET)
    assert planned["changed"] and planned["diff"]["after"] == {IQN: "defined"} and there() == ""
    done = secrets(value=SECRET)
    uuid = done["outcomes"][IQN]["uuid"]
    assert done["changed"] and uuid in there() and IQN in there()
    kept = host.libvirt.run("sh", "-c", "stat -c %%a /etc/libvirt/secrets/%s.base64" % uuid)
    assert kept == "600"  # it outlives libvirtd, for guests that are started again
    assert host.libvirt.run("virsh", "secret-get-value", uuid, check=False) == ""  # and nobody is told
    for check in (True, False):
        assert not secrets(check=check, value=SECRET)["changed"]
    assert secrets(check=True, state="absent")["changed"] and uuid in there()
    assert secrets(state="absent")["changed"] and there() == ""
    assert host.libvirt.run("ls", "/etc/libvirt/secrets") == ""
    assert not secrets(state="absent")["changed"]
