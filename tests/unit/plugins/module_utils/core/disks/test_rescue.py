# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The disks of a rescued guest: Nova's two orders of them, with all of the guest's own disks."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.core.disks.block_devices import PlannedDisk
from ansible_collections.bootflow.compute.plugins.module_utils.core.disks.rescue import rescue_plan, rescue_properties
from ansible_collections.bootflow.compute.plugins.module_utils.core.model import Image

OWN = [
    PlannedDisk("disk", "image", "/dev/vda", "virtio", boot_index=0),
    PlannedDisk("disk.eph0", "ephemeral", "/dev/vdb", "virtio"),
    PlannedDisk("v", "volume", "/dev/sda", "scsi"),
    PlannedDisk("w", "volume", "/dev/vdc", "virtio", boot_index=1),
]


def image(disk_format: str = "qcow2", **properties: t.Any) -> Image:
    return Image("r", "r", disk_format, properties=properties)


def plan(of: Image, **how: t.Any) -> list[tuple[str, str, str, int | None]]:
    return [(d.name, d.dev, d.device_type, d.boot_index) for d in rescue_plan(OWN, of, **how)]


def test_the_rescue_disk_is_first_and_the_root_disk_second() -> None:
    assert plan(image()) == [
        ("disk.rescue", "vda", "disk", 0),
        ("disk", "vdb", "disk", None),
        ("disk.eph0", "vdc", "disk", None),
        ("v", "sda", "disk", None),
        ("w", "vdd", "disk", None),
    ]


@pytest.mark.parametrize(
    ("of", "how", "last"),
    [
        (image(hw_rescue_bus="virtio"), {}, ("disk.rescue", "vdd", "disk", 0)),
        (image(hw_rescue_device="cdrom"), {}, ("disk.rescue", "hda", "cdrom", 0)),
        (image("iso"), {}, ("disk.rescue", "hda", "cdrom", 0)),
        (image("iso"), {"machine": "pc-q35-7.2"}, ("disk.rescue", "sdb", "cdrom", 0)),
        (image(hw_rescue_device="disk", hw_rescue_bus="usb"), {}, ("disk.rescue", "sdb", "disk", 0)),
    ],
)
def test_with_a_device_of_its_own_it_is_last_and_the_others_keep_their_names(
    of: Image, how: dict[str, t.Any], last: tuple[str, str, str, int]
) -> None:
    *others, rescue = plan(of, **how)
    assert rescue == last and [name for name, *_rest in others] == [d.name for d in OWN]
    assert [dev for _name, dev, *_rest in others] == [d.dev for d in OWN]
    assert all(index is None for *_rest, index in others), "only the rescue boots"


@pytest.mark.parametrize(
    "properties", [{"hw_rescue_bus": "floppybus"}, {"hw_rescue_device": "cdrom", "hw_rescue_bus": "virtio"}]
)
def test_a_bus_that_cannot_be(properties: dict[str, t.Any]) -> None:
    with pytest.raises(errors.UnsupportedHardware):
        plan(image(**properties))


def test_only_a_cdrom_is_read_only() -> None:
    assert [d.readonly for d in rescue_plan(OWN, image())] == [False] * 5
    assert rescue_plan(OWN, image("iso"))[-1].readonly


@pytest.mark.parametrize(
    ("bus", "root_bus", "expected"),
    [
        ("scsi", "virtio", [("disk.rescue", "sda", "scsi"), ("disk", "sdb", "scsi"), ("v", "sdc", "scsi")]),
        ("virtio", "sata", [("disk.rescue", "vda", "virtio"), ("disk", "vdb", "virtio"), ("v", "sda", "scsi")]),
        ("ide", "scsi", [("disk.rescue", "hda", "ide"), ("disk", "hdb", "ide"), ("v", "sda", "scsi")]),
        ("sata", "virtio", [("disk.rescue", "sda", "sata"), ("disk", "sdb", "sata"), ("v", "sdc", "scsi")]),
    ],
)
def test_the_root_disk_is_on_the_bus_of_the_rescue_image(
    bus: str, root_bus: str, expected: list[tuple[str, str, str]]
) -> None:
    """Its system may have a driver for no other."""
    root = PlannedDisk("disk", "image", "/dev/vda", root_bus, boot_index=0)
    disks = rescue_plan([root, PlannedDisk("v", "volume", "/dev/sda", "scsi")], image(hw_disk_bus=bus))
    assert [(d.name, d.dev, d.disk_bus) for d in disks] == expected


def test_where_names_are_kept_buses_are_kept() -> None:
    disks = rescue_plan(OWN, image(hw_disk_bus="scsi", hw_rescue_bus="usb"))
    assert [d.disk_bus for d in disks] == ["virtio", "virtio", "scsi", "virtio", "usb"]


def test_a_root_disk_that_is_a_cdrom_stays_on_a_bus_that_has_such() -> None:
    root = PlannedDisk("disk", "image", "/dev/hda", "ide", device_type="cdrom", boot_index=0)
    assert [(d.dev, d.disk_bus) for d in rescue_plan([root], image())] == [("vda", "virtio"), ("hda", "ide")]


def test_a_rescued_guest_has_the_hardware_that_the_rescue_image_needs() -> None:
    own = {
        "hw_disk_bus": "scsi",
        "hw_scsi_model": "lsilogic",
        "hw_vif_model": "e1000",
        "hw_qemu_guest_agent": "yes",
        "hw_firmware_type": "uefi",
        "os_secure_boot": "required",
        "hw_machine_type": "q35",
    }
    assert rescue_properties(own, image(hw_vif_model="rtl8139")) == {
        "hw_qemu_guest_agent": "yes",
        "hw_vif_model": "rtl8139",
    }
    with_uefi = {"hw_firmware_type": "uefi", "hw_machine_type": "q35", "hw_architecture": "x86_64"}
    assert rescue_properties({"architecture": "aarch64"}, image(**with_uefi)) == with_uefi
    stable = image("iso", hw_vif_model="rtl8139", hw_firmware_type="bios")
    assert rescue_properties(own, stable) == own, "its devices stay as they are"


def test_a_guest_in_its_own_image_stays_on_its_machine() -> None:
    """The one that it was booted with, where the image names none."""
    own = {"hw_machine_type": "pc-q35-7.2"}
    assert rescue_properties(own, image(), "pc-q35-7.2") == own
    assert rescue_properties(own, image(hw_machine_type="pc"), "pc-q35-7.2") == {"hw_machine_type": "pc"}


def test_disks_of_another_machine_are_on_a_bus_that_this_one_has() -> None:
    """q35 has no IDE."""
    own = [
        PlannedDisk("disk", "image", "/dev/hda", "ide", boot_index=0),
        PlannedDisk("disk.eph0", "ephemeral", "/dev/hdb", "ide"),
        PlannedDisk("v", "volume", "/dev/hdc", "ide", device_type="cdrom"),
    ]
    expected = [("disk.rescue", "vda"), ("disk", "vdb"), ("disk.eph0", "vdc"), ("v", "sda")]
    found = rescue_plan(own, image(), "pc-q35-7.2")
    assert [(d.name, d.dev) for d in found] == expected and found[-1].disk_bus == "sata"
    assert [d.disk_bus for d in rescue_plan(own, image(), "pc")] == ["virtio", "virtio", "ide", "ide"]
