# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The disks of a domain, rule by rule.

source: Nova's libvirt driver (config.LibvirtConfigGuestDisk, volume drivers' get_config, _set_cache_mode,
_get_guest_storage_config) and libvirt's domain format
"""

from __future__ import annotations

import pytest
from lxml import etree

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.core.disks.block_devices import PlannedDisk
from ansible_collections.bootflow.compute.plugins.module_utils.core.guest.config import (
    GuestOptions,
    GuestSpec,
    HostCapabilities,
    guest_config,
)
from ansible_collections.bootflow.compute.plugins.module_utils.core.guest.domain.disk import identify_disk
from ansible_collections.bootflow.compute.plugins.module_utils.core.model import Flavor
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.libvirt.domain_disks import desired_disk

from .domain.schema import assert_valid
from .domain.texts import guest_xml

UUID = "33333333-3333-4333-8333-333333333333"
VOLUME = "22222222-2222-4222-8222-222222222222"
DEV = "/dev/disk/by-path/ip-192.0.2.1:3260-iscsi-iqn.2010-10.org.openstack:volume-1-lun-0"


def disk(dev="vda", bus="virtio", boot_index=None, kind="volume", source="block", **more):
    values = {"path": DEV, "driver_format": "raw", "serial": VOLUME if kind == "volume" else None}
    values.update(more)
    return PlannedDisk(VOLUME, kind, "/dev/" + dev, bus, boot_index=boot_index, source=source, **values)


def local(dev, boot_index=None, bus="virtio", **more):
    values = {"path": "/srv/" + dev, "driver_format": "qcow2", **more}
    return disk(dev, bus, boot_index, "ephemeral", "file", **values)


def spec(*disks, properties=None, specs=None, whole_disks=(), **options):
    return GuestSpec(
        uuid=UUID,
        name="web-" + UUID,
        display_name="web",
        memory_mb=512,
        vcpus=1,
        flavor=Flavor("m1", 512, 1, 1, extra_specs=specs or {}),
        disks=disks,
        image_properties=properties or {},
        whole_disks=whole_disks,
        options=GuestOptions(**options),
    )


def config(*disks, **more):
    return guest_config(spec(*disks, **more), HostCapabilities())


def nodes(*disks, **more):
    xml = guest_xml(spec(*disks, **more), HostCapabilities())
    assert_valid(xml)
    return etree.fromstring(xml).findall("devices/disk")


def test_a_volume_as_novas_iscsi_driver_writes_it():
    (node,) = nodes(disk(boot_index=0, cache="none", io="native"))
    assert dict(node.attrib) == {"type": "block", "device": "disk"}
    assert dict(node.find("driver").attrib) == {"name": "qemu", "type": "raw", "cache": "none", "io": "native"}
    assert node.find("source").get("dev") == DEV
    assert dict(node.find("target").attrib) == {"dev": "vda", "bus": "virtio"}
    assert node.findtext("serial") == VOLUME
    assert [child.tag for child in node] == ["driver", "source", "target", "serial"]


@pytest.mark.parametrize(
    "rule, the_disk, options, expected",
    [
        ("block devices: none and native", disk(), {}, ("none", "native", None)),
        ("a setting wins over the volume's own", disk(cache="none", io="native"), {"disk_cachemodes": {"block": "writeback"}},
         ("writeback", "threads", None)),
        ("native needs O_DIRECT", disk(io="native"), {"disk_cachemodes": {"block": "unsafe"}}, ("unsafe", "threads", None)),
        ("directsync has it", disk(io="native"), {"disk_cachemodes": {"block": "directsync"}},
         ("directsync", "native", None)),
        ("shared: never cached", disk(shareable=True, cache="writeback"), {"disk_cachemodes": {"block": "writeback"}},
         ("none", "native", None)),
        ("files", local("vda"), {}, ("writeback", None, None)),
        ("files without cache", local("vda"), {"disk_cachemodes": {"file": "none"}}, ("none", None, None)),
        ("discard is for local disks", local("vda"), {"disk_discard": "unmap"}, ("writeback", None, "unmap")),
        ("not for volumes", disk(), {"disk_discard": "unmap"}, ("none", "native", None)),
        ("unless their connection says so", disk(connection={"discard": True}), {}, ("none", "native", "unmap")),
        ("in so many words", disk(connection={"discard": "no"}), {}, ("none", "native", None)),
    ],
)  # fmt: skip
def test_cache_io_and_discard(rule, the_disk, options, expected):
    (found,) = config(the_disk, **options).disks
    assert (found.driver_cache, found.driver_io, found.driver_discard) == expected, rule


def test_readonly_and_shareable():
    plain, ro, shared = nodes(disk(), disk("vdb", readonly=True), disk("vdc", shareable=True))
    assert [[n.find(tag) is not None for tag in ("readonly", "shareable")] for n in (plain, ro, shared)] == [
        [False, False],
        [True, False],
        [False, True],
    ]


def test_limits_of_the_flavor_are_for_local_disks():
    found = config(local("vda"), disk("vdb"), specs={"quota:disk_read_iops_sec": "7"}).disks
    assert [d.iotune and d.iotune.read_iops_sec for d in found] == [7, None]


# --- boot order --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "rule, disks, boot_devs, orders",
    [
        ("one disk", [disk(boot_index=0)], ("hd",), [None]),
        ("one lun", [disk("sda", "scsi", 0, device_type="lun")], ("hd",), [None]),
        ("a CD-ROM", [disk("hda", "ide", 0, device_type="cdrom"), disk("vda")], ("cdrom",), [None, None]),
        ("a floppy", [disk("fda", "fdc", 0, device_type="floppy")], ("fd",), [None]),
        ("none", [disk()], (), [None]),
        ("several: in their order", [disk(boot_index=0), local("vdb", 2), disk("hda", "ide", 1, device_type="cdrom")], (),
         [1, 3, 2]),
        ("a root that another disk's name is before", [disk("vdb", boot_index=0), local("vda")], (), [1, None]),
        ("vdb is before vdaa", [disk("vdb", boot_index=0), local("vdaa")], ("hd",), [None, None]),
        ("a root behind another disk of its kind", [local("vda"), disk("sda", "scsi", 0)], (), [None, 1]),
        ("other buses do not matter", [disk("sda", "scsi", 0), local("vda")], ("hd",), [None, None]),
    ],
)  # fmt: skip
def test_what_is_booted(rule, disks, boot_devs, orders):
    found = config(*disks)
    assert (found.os.boot_devs, [d.boot_order for d in found.disks]) == (boot_devs, orders), rule
    assert_valid(guest_xml(spec(*disks), HostCapabilities()))


# --- SCSI ------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "rule, disks, properties, controllers, units",
    [
        ("virtio-scsi, one unit after the other, the root first",
         [disk("sda", "scsi", 0), local("vda"), disk("sdb", "scsi")], {}, ["virtio-scsi"], ["0", None, "1"]),
        ("none without SCSI", [disk()], {}, [], [None]),
        ("the image's, for disks to come", [disk()], {"hw_scsi_model": "virtio-scsi"}, ["virtio-scsi"], [None]),
        ("others number their own", [disk("sda", "scsi"), disk("sdb", "scsi")], {"hw_scsi_model": "lsilogic"}, ["lsilogic"],
         [None, None]),
    ],
)  # fmt: skip
def test_scsi(rule, disks, properties, controllers, units):
    found = config(*disks, properties=properties)
    assert [c.model for c in found.controllers] == controllers, rule
    assert [d.address and d.address.unit for d in found.disks] == units, rule


@pytest.mark.parametrize("model", ["vmpvscsi", "lsisas1068"])
def test_scsi_controllers_with_a_target_for_each_disk(model):
    """QEMU starts no guest whose disks are the units that libvirt would give them there."""
    disks = disk("sda", "scsi", 0), local("vda"), disk("sdb", "scsi")
    found = config(*disks, properties={"hw_scsi_model": model}).disks
    places = [d.address and (d.address.target, d.address.unit) for d in found]
    assert places == [("0", "0"), None, ("1", "0")]


def test_a_lun_has_the_serial_of_the_real_disk():
    """QEMU's scsi-block has no serial to be set: Nova leaves it out. The alias says which volume it is."""
    (node,) = nodes(disk("sda", "scsi", 0, device_type="lun"))
    assert node.get("device") == "lun"
    assert (node.find("serial"), node.find("alias").get("name")) == (None, "ua-" + VOLUME)
    (found,) = config(disk("sda", "scsi", 0, device_type="lun")).disks
    assert (found.known_as, found.serial) == (VOLUME, None)
    assert config(disk()).disks[0].known_as == VOLUME
    xml = etree.tostring(node, encoding="unicode")
    assert desired_disk({"uuid": UUID, "serial": VOLUME, "xml": xml}).xml == xml
    with pytest.raises(errors.InvalidInput, match="has another serial"):
        desired_disk({"uuid": UUID, "serial": "another", "xml": xml})


@pytest.mark.parametrize("bus, length", [("usb", 20), ("scsi", 36), ("virtio", 36), ("sata", 36)])
def test_a_serial_is_as_long_as_the_bus_takes_it(bus, length):
    """QEMU 10 starts no guest, and plugs no disk, with a longer one."""
    (node,) = nodes(disk("sda" if bus != "virtio" else "vda", bus, 0))
    assert node.findtext("serial") == VOLUME[:length]
    alias = node.find("alias")
    assert (None if alias is None else alias.get("name")) == ("ua-" + VOLUME if length < 36 else None)
    xml = etree.tostring(node, encoding="unicode")
    assert desired_disk({"uuid": UUID, "serial": VOLUME, "xml": xml}).xml == xml
    with pytest.raises(errors.InvalidInput, match="has another serial"):
        desired_disk({"uuid": UUID, "serial": VOLUME[:length] + "x", "xml": xml})


@pytest.mark.parametrize("bus, length", [("usb", 20), ("scsi", 36)])
def test_the_serial_of_a_physical_disk_is_cut_too(bus, length):
    more = {"whole_disks": [{"path": "/dev/sdb", "serial": "S" * 40}], "properties": {"hw_disk_bus": bus}}
    node = nodes(local("sda", bus=bus), **more)[-1]
    assert (node.findtext("serial"), node.find("alias")) == ("S" * length, None)


@pytest.mark.parametrize(
    "alias, serial, uuid",
    [
        (None, VOLUME, VOLUME),
        ("virtio-disk0", VOLUME, VOLUME),
        ("ua-of-an-administrator", VOLUME, VOLUME),
        ("ua-" + VOLUME, VOLUME[:20], VOLUME),
        ("ua-" + VOLUME, None, VOLUME),
        ("ua-" + VOLUME, "", VOLUME),
        ("usb-disk0", VOLUME[:20], VOLUME[:20]),
        ("ua-", VOLUME, VOLUME),
        (None, None, None),
    ],
)
def test_what_identifies_a_disk(alias, serial, uuid):
    assert identify_disk(alias, serial) == uuid


@pytest.mark.parametrize(
    "error, bad",
    [
        (errors.InvalidInput, local("sda", bus="scsi", device_type="lun")),
        (errors.InvalidInput, disk(device_type="tape")),
        (errors.UnsupportedHardware, disk(device_type="cdrom")),
        (errors.UnsupportedHardware, disk("vda", "fdc")),
        (errors.UnsupportedHardware, disk("vda", "nvme")),
        (errors.InvalidInput, disk(source="tape")),
        (errors.InvalidInput, disk(path="sdb")),
        (errors.InvalidInput, disk(driver_format=None)),
        (errors.InvalidInput, disk(cache="fast")),
    ],
)
def test_refused(error, bad):
    with pytest.raises(error):
        config(bad)
