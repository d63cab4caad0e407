# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Buses and names, rule by rule. source: Nova's blockinfo (get_disk_bus_for_device_type, find_disk_dev_for_disk_bus)"""

from __future__ import annotations

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.core.disks import disk_names


@pytest.mark.parametrize(
    "rule, device_type, properties, machine, arch, expected",
    [
        ("disks are virtio", "disk", {}, "pc", "x86_64", "virtio"),
        ("the image's bus first", "disk", {"hw_disk_bus": "sata"}, "pc", "x86_64", "sata"),
        ("CD-ROMs are IDE", "cdrom", {}, "pc", "x86_64", "ide"),
        ("SATA with q35", "cdrom", {}, "pc-q35-8.2", "x86_64", "sata"),
        ("whatever a distribution calls it", "cdrom", {}, "ubuntu-q35", "x86_64", "sata"),
        ("SCSI without legacy IDE", "cdrom", {}, "virt", "aarch64", "scsi"),
        ("the image's CD-ROM bus first", "cdrom", {"hw_cdrom_bus": "usb"}, "q35", "x86_64", "usb"),
        ("the disks' bus is not the CD-ROMs'", "cdrom", {"hw_disk_bus": "scsi"}, "pc", "x86_64", "ide"),
        ("floppies", "floppy", {}, "pc", "x86_64", "fdc"),
        ("pass-through needs SCSI", "lun", {}, "pc", "x86_64", "scsi"),
        ("no properties at all", "disk", None, None, "x86_64", "virtio"),
    ],
)
def test_default_bus(rule, device_type, properties, machine, arch, expected):
    assert disk_names.default_bus(device_type, properties, "kvm", machine, arch) == expected, rule


@pytest.mark.parametrize(
    "device_type, properties, machine",
    [
        ("disk", {"hw_disk_bus": "nvme"}, "pc"),
        ("disk", {"hw_disk_bus": "xen"}, "pc"),
        ("disk", {"hw_disk_bus": "fdc"}, "pc"),
        ("disk", {"hw_disk_bus": "ide"}, "ubuntu-q35"),
        ("cdrom", {"hw_cdrom_bus": "virtio"}, "pc"),
        ("cdrom", {"hw_cdrom_bus": ["ide"]}, "pc"),
        ("floppy", {"hw_floppy_bus": "usb"}, "pc"),
        ("lun", {"hw_lun_bus": "ide"}, "pc"),
        ("tape", {}, "pc"),
    ],
)
def test_buses_that_there_are_not(device_type, properties, machine):
    with pytest.raises(errors.UnsupportedHardware) as caught:
        disk_names.default_bus(device_type, properties, "kvm", machine)
    assert caught.value.status == 400


@pytest.mark.parametrize(
    "bus, index, expected",
    [
        ("virtio", 0, "vda"),
        ("virtio", 25, "vdz"),
        ("virtio", 26, "vdaa"),
        ("virtio", 701, "vdzz"),
        ("virtio", 702, "vdaaa"),
        ("virtio", 18277, "vdzzz"),
        ("scsi", 1, "sdb"),
        ("sata", 2, "sdc"),
        ("usb", 3, "sdd"),
        ("ide", 3, "hdd"),
        ("fdc", 1, "fdb"),
    ],
)
def test_names_are_numbered_as_novas(bus, index, expected):
    assert disk_names.disk_name(bus, index) == expected


@pytest.mark.parametrize(
    "bus, taken, last, expected",
    [
        ("virtio", [], False, "vda"),
        ("virtio", ["vda", "vdc"], False, "vdb"),
        ("sata", ["sda"], False, "sdb"),
        ("ide", ["hda", "hdb", "hdc"], False, "hdd"),
        ("virtio", [], True, "vdz"),
        ("virtio", ["vdz"], True, "vda"),
        ("ide", [], True, "hdd"),
    ],
)
def test_the_next_free_name(bus, taken, last, expected):
    assert disk_names.free_name(bus, taken, last) == expected


@pytest.mark.parametrize("bus, limit", [("ide", 4), ("fdc", 2), ("virtio", 702)])
def test_a_bus_that_is_full(bus, limit):
    taken = [disk_names.disk_name(bus, i) for i in range(limit)]
    with pytest.raises(errors.TooManyDiskDevices) as caught:
        disk_names.free_name(bus, taken)
    assert (caught.value.code, caught.value.status) == ("TooManyDiskDevices", 403)
    assert caught.value.message == (
        "The maximum allowed number of disk devices (%d) to attach to a single instance has been exceeded." % limit
    )


@pytest.mark.parametrize("name", ["vdb1", "xvda", "", "vd", "vda\n", "VDA", "../vda", None, 5, ["vda"], b"vda"])
def test_no_names_of_disks(name):
    with pytest.raises(errors.InvalidBDM):
        disk_names.bus_of_name(name)
    with pytest.raises(errors.InvalidBDM):
        disk_names.check_name(name, "virtio")


@pytest.mark.parametrize("bus", ["nvme", "lxc", "", None, 7, ["virtio"], {"virtio"}])
def test_no_buses(bus):
    for call in (
        lambda: disk_names.check_bus(bus),
        lambda: disk_names.disk_name(bus, 0),
        lambda: disk_names.free_name(bus, []),
        lambda: disk_names.check_name("vda", bus),
        lambda: disk_names.check_device("disk", bus),
    ):
        with pytest.raises(errors.UnsupportedHardware):
            call()


@pytest.mark.parametrize("index", [-1, "0", None, 1.5, True])
def test_no_numbers_of_disks(index):
    with pytest.raises(errors.InvalidInput):
        disk_names.disk_name("virtio", index)


@pytest.mark.parametrize("device_type", [None, 3, ["disk"], "fs"])
def test_no_types_of_disks(device_type):
    with pytest.raises(errors.UnsupportedHardware):
        disk_names.check_device(device_type, "virtio")
