# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import types

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.core.answers.compute import PCI_DEVICES
from ansible_collections.bootflow.compute.plugins.module_utils.core.resources.pci.device import (
    PF,
    STANDARD,
    VF,
    PciDevice,
)
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.facts import pci

CARD, PORT, PLAIN = "0000:0a:00.0", "0000:0a:10.1", "0001:02:1f.7"
DEVICES = [
    PciDevice(CARD, "8086", "10fb", 1, PF),
    PciDevice(PORT, "8086", "10ed", 1, VF, CARD),
    PciDevice(PLAIN, "10de", "1eb8", None, STANDARD),
]


def node_xml(address, vendor, product, numa="", capability=""):
    domain, bus, rest = address.split(":")
    slot, function = rest.split(".")
    numbers = zip(("domain", "bus", "slot", "function"), (domain, bus, slot, function))
    return (
        "<device><name>pci_x</name><driver><name>vfio-pci</name></driver><capability type='pci'>%s%s%s%s%s</capability></device>"
        % (
            "".join("<%s>%d</%s>" % (name, int(number, 16), name) for name, number in numbers),
            "<product id='0x%s'>Thing</product>" % product,
            "<vendor id='0x%s'>Maker</vendor>" % vendor,
            capability,
            numa,
        )
    )


XML = {
    CARD: node_xml(
        CARD,
        "8086",
        "10fb",
        "<numa node='1'/>",
        "<capability type='virt_functions' maxCount='63'>"
        "<address domain='0x0000' bus='0x0a' slot='0x10' function='0x1'/></capability>",
    ),
    PORT: node_xml(
        PORT,
        "8086",
        "10ed",
        "<numa node='1'/>",
        "<capability type='phys_function'>"
        "<address domain='0x0000' bus='0x0a' slot='0x00' function='0x0'/></capability>",
    ),
    PLAIN: node_xml(PLAIN, "10de", "1eb8"),
}


class LibvirtError(Exception):
    pass


class Connection:
    """A libvirt that knows node devices; a text of None is a device that was unplugged meanwhile."""

    def __init__(self, texts=None):
        self.texts = texts

    def listAllDevices(self, flags):
        if self.texts is None:
            raise LibvirtError("this function is not supported")
        return [types.SimpleNamespace(XMLDesc=lambda flags, text=text: self._text(text)) for text in self.texts]

    @staticmethod
    def _text(text):
        if text is None:
            raise LibvirtError("no such device")
        return text


@pytest.fixture(autouse=True)
def libvirt(monkeypatch):
    fake = types.SimpleNamespace(libvirtError=LibvirtError, VIR_CONNECT_LIST_NODE_DEVICES_CAP_PCI_DEV=2)
    monkeypatch.setattr(pci, "libvirt", fake)


@pytest.fixture
def sysfs(tmp_path):
    """A tree as the kernel makes it: devices are links to where they sit."""
    bus = tmp_path / "bus/pci/devices"
    bus.mkdir(parents=True)
    for device, files in (
        (CARD, {"vendor": "0x8086", "device": "0x10fb", "numa_node": "1", "sriov_totalvfs": "63"}),
        (PORT, {"vendor": "0x8086", "device": "0x10ed", "numa_node": "1"}),
        (PLAIN, {"vendor": "0x10de", "device": "0x1eb8", "numa_node": "-1"}),
        ("0000:ff:00.0", {"vendor": "0x1234"}),  # going away
    ):
        real = tmp_path / "devices" / device
        real.mkdir(parents=True)
        for name, text in files.items():
            (real / name).write_text(text + "\n")
        (bus / device).symlink_to(real)
    (tmp_path / "devices" / PORT / "physfn").symlink_to("../" + CARD)
    for name, target in (("eth0", CARD), ("eth1", PLAIN)):
        (tmp_path / "class/net" / name).mkdir(parents=True)
        (tmp_path / "class/net" / name / "device").symlink_to(tmp_path / "devices" / target)
    (tmp_path / "class/net/lo").mkdir()
    return pci.Sysfs(str(tmp_path))


@pytest.mark.parametrize("device", DEVICES, ids=lambda device: device.dev_type)
def test_a_device_as_libvirt_describes_it(device):
    assert pci.device_of_xml(XML[device.address]) == device


def test_a_card_is_a_physical_function_before_it_has_virtual_ones():
    xml = node_xml(CARD, "8086", "10fb", "", "<capability type='virt_functions' maxCount='63'/>")
    assert pci.device_of_xml(xml).dev_type == PF


def test_what_is_on_another_bus_is_no_pci_device():
    assert pci.device_of_xml("<device><name>usb</name><capability type='usb_device'/></device>") is None


def test_a_device_behind_a_controller_of_its_own(sysfs, tmp_path):
    """Intel VMD: its domain has five digits."""
    vmd = "10000:e1:00.0"
    device = PciDevice(vmd, "8086", "0a54", 0, VF, "10000:e0:00.0")
    xml = node_xml(
        vmd,
        "8086",
        "0a54",
        "<numa node='0'/>",
        "<capability type='phys_function'><address domain='0x10000' bus='0xe0' slot='0x00' function='0x0'/></capability>",
    )
    assert pci.device_of_xml(xml) == device
    real = tmp_path / "devices" / vmd
    real.mkdir()
    for name, text in {"vendor": "0x8086", "device": "0x0a54", "numa_node": "0"}.items():
        (real / name).write_text(text)
    (real / "physfn").symlink_to("../10000:e0:00.0")
    (tmp_path / "bus/pci/devices" / vmd).symlink_to(real)
    (tmp_path / "bus/pci/devices" / "slot7").mkdir()
    assert sysfs.devices() == [*DEVICES, device]
    (found,) = pci.pci_passthrough_devices(Connection([xml]), [{"vendor_id": "8086"}], sysfs)
    assert (found["address"], found["dev_id"]) == (vmd, "pci_10000_e1_00_0")
    PCI_DEVICES([found], "pci_passthrough_devices")


def test_a_device_without_ids_is_left_out():
    assert pci.device_of_xml(XML[PLAIN].replace("<vendor id='0x10de'>Maker</vendor>", "")) is None


def test_an_interface_that_is_no_pci_device(sysfs, tmp_path):
    (tmp_path / "devices" / "0003:046D:C52B.0001").mkdir()
    (tmp_path / "class/net/hid0").mkdir()
    (tmp_path / "class/net/hid0/device").symlink_to(tmp_path / "devices" / "0003:046D:C52B.0001")
    assert sysfs.function_of_interface("hid0") == (None, False)


def test_the_kernel_says_the_same_as_libvirt(sysfs):
    assert sysfs.devices() == DEVICES


def test_a_host_without_a_pci_bus_has_no_devices(tmp_path):
    empty = pci.Sysfs(str(tmp_path))
    assert empty.devices() == []
    assert pci.pci_passthrough_devices(Connection(), [{}], empty) == []


def addresses(connection, entries, sysfs):
    return [device["address"] for device in pci.pci_passthrough_devices(connection, entries, sysfs)]


@pytest.mark.parametrize("texts", [None, [], list(XML.values()), [None, *reversed(XML.values())]])
def test_the_devices_come_from_libvirt_or_else_from_the_kernel(texts, sysfs):
    assert addresses(Connection(texts), [{}], sysfs) == [CARD, PORT, PLAIN]
    assert addresses(Connection(texts), [{"vendor_id": "10de"}], sysfs) == [PLAIN]


def test_what_libvirt_knows_is_not_mixed_with_what_the_kernel_knows(sysfs):
    assert addresses(Connection([XML[PLAIN]]), [{}], sysfs) == [PLAIN]


def test_without_entries_nobody_is_asked():
    assert pci.pci_passthrough_devices(None, []) == pci.pci_passthrough_devices(None, None) == []


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ({"devname": "eth0"}, [CARD, PORT]),
        ({"devname": "eth1"}, [PLAIN]),
        ({"devname": "lo"}, []),
        ({"devname": "eth7"}, []),
        ({"devname": "../net/eth1"}, []),
        ({"address": CARD}, [CARD, PORT]),
        ({"address": PLAIN}, [PLAIN]),
        ({"address": {"bus": "0a", "function": "1"}}, [PORT]),
    ],
)
def test_names_and_addresses_of_this_host(entry, expected, sysfs):
    assert addresses(Connection(), [entry], sysfs) == expected


def test_the_facts_are_the_device_with_novas_names(sysfs):
    (fact,) = pci.pci_passthrough_devices(
        Connection(), [{"product_id": "10ed", "physical_network": "p", "trusted": True}], sysfs
    )
    assert fact == {
        "address": PORT,
        "vendor_id": "8086",
        "product_id": "10ed",
        "numa_node": 1,
        "dev_type": "type-VF",
        "parent_addr": CARD,
        "tags": {"physical_network": "p", "trusted": "true"},
        "dev_id": "pci_0000_0a_10_1",
        "label": "label_8086_10ed",
    }
    assert PciDevice.from_dict(fact).parent_addr == CARD


def test_a_wrong_entry_is_refused_before_anything_is_listed():
    with pytest.raises(errors.PciConfigInvalidWhitelist):
        pci.pci_passthrough_devices(None, [{"vendor_id": "nvidia"}])
