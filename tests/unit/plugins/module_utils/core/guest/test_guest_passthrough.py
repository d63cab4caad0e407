# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from lxml import etree

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.core.disks.block_devices import block_device_plan
from ansible_collections.bootflow.compute.plugins.module_utils.core.guest.config import (
    GuestOptions,
    GuestSpec,
    HostCapabilities,
    domain_name,
)
from ansible_collections.bootflow.compute.plugins.module_utils.core.model import Flavor, Image

from .domain.schema import assert_valid
from .domain.texts import guest_xml

UUID = "12522ab8-703f-4528-beb0-5ae5767a0a42"
HOST = HostCapabilities(machine_types=("pc", "q35"), uefi=True, libvirt_version=9000000)


def xml_of(pci_devices=(), whole_disks=(), properties=None, machine="q35", swap=0, options=None):
    properties = {"hw_machine_type": machine, **(properties or {})}
    flavor = Flavor("f", 512, 1, 1, 0, swap)
    image = Image("i", "11111111-1111-4111-8111-111111111111", "qcow2", properties=properties)
    spec = GuestSpec(
        uuid=UUID,
        name=domain_name("web", UUID),
        display_name="web",
        memory_mb=512,
        vcpus=1,
        flavor=flavor,
        disks=[d.placed("/i/" + d.name, "qcow2") for d in block_device_plan(flavor, image)],
        image_properties=properties,
        config_drive="/i/disk.config",
        options=GuestOptions(**(options or {})),
        pci_devices=pci_devices,
        whole_disks=whole_disks,
    )
    text = guest_xml(spec, HOST)
    assert_valid(text)
    return etree.fromstring(text)


def disk_rows(xml):
    return [(d.find("target").get("dev"), d.find("target").get("bus"), d.get("type")) for d in xml.iter("disk")]


def test_without_them_there_is_nothing_of_them():
    xml = xml_of()
    assert xml.find("devices/hostdev") is None
    assert disk_rows(xml) == [("vda", "virtio", "file"), ("sda", "scsi", "file")]


def test_pci_devices_are_managed_host_devices_in_their_order():
    xml = xml_of([{"address": "0000:81:00.1", "vendor_id": "8086"}, {"address": "0001:02:1f.7"}])
    found = xml.findall("devices/hostdev")
    assert [dict(device.attrib) for device in found] == [{"mode": "subsystem", "type": "pci", "managed": "yes"}] * 2
    assert [dict(device.find("source/address").attrib) for device in found] == [
        {"domain": "0x0000", "bus": "0x81", "slot": "0x00", "function": "0x1"},
        {"domain": "0x0001", "bus": "0x02", "slot": "0x1f", "function": "0x7"},
    ]


@pytest.mark.parametrize("device", [{}, {"address": "81:00.1"}, {"address": "0000:81:00"}])
def test_a_pci_device_without_an_address_is_refused(device):
    with pytest.raises(errors.PciDeviceWrongAddressFormat):
        xml_of([device])


def test_whole_disks_are_raw_and_pass_by_the_cache_and_follow_the_planned_disks():
    xml = xml_of(
        whole_disks=[{"path": "/dev/disk/by-id/a", "serial": " WD 1/2 "}, {"path": "/dev/sdb", "serial": None}],
        swap=64,
    )
    assert disk_rows(xml) == [
        ("vda", "virtio", "file"),
        ("vdb", "virtio", "file"),
        ("vdc", "virtio", "block"),
        ("vdd", "virtio", "block"),
        ("sda", "scsi", "file"),
    ]
    first, second = [d for d in xml.iter("disk") if d.get("type") == "block"]
    assert (first.get("device"), first.find("source").get("dev")) == ("disk", "/dev/disk/by-id/a")
    assert dict(first.find("driver").attrib) == {"name": "qemu", "type": "raw", "cache": "none", "io": "native"}
    assert (first.findtext("serial"), second.find("serial")) == ("WD_1_2", None)
    assert first.find("iotune") is None and first.find("boot") is None and first.find("shareable") is None


def test_the_operators_cache_mode_is_not_for_whole_disks():
    xml = xml_of(whole_disks=[{"path": "/dev/sdb"}], options={"disk_cachemodes": {"block": "writeback"}})
    assert xml.find("devices/disk[@type='block']/driver").get("cache") == "none"


def test_the_guest_still_boots_from_its_root():
    xml = xml_of(whole_disks=[{"path": "/dev/sdb"}])
    assert [boot.get("dev") for boot in xml.iterfind("os/boot")] == ["hd"]
    assert disk_rows(xml)[0][0] == "vda"


def test_an_image_without_virtio_gets_them_on_its_own_bus():
    xml = xml_of(whole_disks=[{"path": "/dev/sdb"}], properties={"hw_disk_bus": "sata"})
    assert disk_rows(xml)[:2] == [("sda", "sata", "file"), ("sdb", "sata", "block")]


@pytest.mark.parametrize(
    ("disks", "text"),
    [
        ([{"path": "sdb"}], "no absolute path"),
        ([{}], "no absolute path"),
        ([{"path": "/dev/sdb"}, {"path": "/dev/sdb"}], "twice"),
        ([{"path": "/i/disk"}], "twice"),
    ],
)
def test_whole_disks_that_cannot_be(disks, text):
    with pytest.raises(errors.InvalidInput, match=text):
        xml_of(whole_disks=disks)
