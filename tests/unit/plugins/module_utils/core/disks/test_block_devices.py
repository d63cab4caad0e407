# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.core.disks import block_device_checks
from ansible_collections.bootflow.compute.plugins.module_utils.core.disks import block_device_mapping as mapping
from ansible_collections.bootflow.compute.plugins.module_utils.core.disks.block_devices import (
    PlannedDisk,
    attached_disk,
    block_device_plan,
    config_drive_disk,
    on_machine,
    planned_disk,
    resized,
)
from ansible_collections.bootflow.compute.plugins.module_utils.core.model import BlockDevice, Flavor, Image

IMAGE_ID = "11111111-1111-4111-8111-111111111111"
VOLUME_ID = "22222222-2222-4222-8222-222222222222"


def image(disk_format="qcow2", **properties):
    return Image(name="cirros", id=IMAGE_ID, disk_format=disk_format, properties=properties)


def flavor(root=10, ephemeral=0, swap=0):
    return Flavor(name="m1", memory_mb=512, vcpus=1, root_gb=root, ephemeral_gb=ephemeral, swap=swap)


def blank(size=None, boot_index=-1, **more):
    return BlockDevice("blank", "local", boot_index=boot_index, volume_size=size, **more)


def swap(size=None, **more):
    return blank(size, guest_format="swap", **more)


def volume(boot_index=-1, uuid=VOLUME_ID, **more):
    return BlockDevice("volume", "volume", boot_index=boot_index, uuid=uuid, **more)


def root_image(**more):
    return BlockDevice("image", "local", boot_index=0, uuid=IMAGE_ID, **more)


def shape(disks):
    return [(d.name, d.device_name, d.disk_bus, d.size_gb, d.size_mb, d.boot_index) for d in disks]


@pytest.mark.parametrize(
    ("the_flavor", "the_image", "bdms", "expected"),
    [
        (flavor(), image(), (), [("disk", "/dev/vda", "virtio", 10, None, 0)]),
        (flavor(root=0), image(), (), [("disk", "/dev/vda", "virtio", 0, None, 0)]),
        (
            flavor(ephemeral=5, swap=512),
            image(),
            (),
            [
                ("disk", "/dev/vda", "virtio", 10, None, 0),
                ("disk.eph0", "/dev/vdb", "virtio", 5, None, None),
                ("disk.swap", "/dev/vdc", "virtio", None, 512, None),
            ],
        ),
        (  # a swap of its own: the flavor's is not added to it
            flavor(swap=512),
            image(),
            (root_image(), swap(100)),
            [("disk", "/dev/vda", "virtio", 10, None, 0), ("disk.swap", "/dev/vdb", "virtio", None, 100, None)],
        ),
        (  # two ephemerals share the flavor's size, and are told apart by number
            flavor(ephemeral=10),
            image(),
            (blank(4), blank(6)),
            [
                ("disk", "/dev/vda", "virtio", 10, None, 0),
                ("disk.eph0", "/dev/vdb", "virtio", 4, None, None),
                ("disk.eph1", "/dev/vdc", "virtio", 6, None, None),
            ],
        ),
        (  # without a size the flavor's whole
            flavor(ephemeral=7),
            image(),
            (blank(),),
            [("disk", "/dev/vda", "virtio", 10, None, 0), ("disk.eph0", "/dev/vdb", "virtio", 7, None, None)],
        ),
        (  # a size of nought: none, and not the flavor's either
            flavor(ephemeral=7),
            image(),
            (blank(0),),
            [("disk", "/dev/vda", "virtio", 10, None, 0)],
        ),
        (  # names given are kept, others go round them
            flavor(ephemeral=2, swap=1),
            image(),
            (blank(2), swap(1, device_name="/dev/vdb")),
            [
                ("disk", "/dev/vda", "virtio", 10, None, 0),
                ("disk.eph0", "/dev/vdc", "virtio", 2, None, None),
                ("disk.swap", "/dev/vdb", "virtio", None, 1, None),
            ],
        ),
        (  # even the root goes round a name that is taken
            flavor(ephemeral=2),
            image(),
            (blank(2, device_name="/dev/vda"),),
            [("disk", "/dev/vdb", "virtio", 10, None, 0), ("disk.eph0", "/dev/vda", "virtio", 2, None, None)],
        ),
        (
            flavor(swap=8),
            image(hw_disk_bus="scsi"),
            (),
            [("disk", "/dev/sda", "scsi", 10, None, 0), ("disk.swap", "/dev/sdb", "scsi", None, 8, None)],
        ),
        (flavor(), image(hw_disk_bus="ide"), (), [("disk", "/dev/hda", "ide", 10, None, 0)]),
        (flavor(), image(root_device_name="/dev/sda1"), (), [("disk", "/dev/sda", "scsi", 10, None, 0)]),
        (
            flavor(),
            image(mappings=[{"virtual": "root", "device": "/dev/hdb"}]),
            (),
            [("disk", "/dev/hdb", "ide", 10, None, 0)],
        ),
        (  # the device's bus decides; a name decides the bus where none is given
            flavor(ephemeral=3),
            image(),
            (blank(1, disk_bus="sata"), blank(1, disk_bus="ide"), blank(1, device_name="/dev/sdb")),
            None,  # four local disks: see the limit's test
        ),
        (
            flavor(ephemeral=2),
            image(),
            (blank(1, disk_bus="sata"), blank(1, device_name="/dev/sdb")),
            [
                ("disk", "/dev/vda", "virtio", 10, None, 0),
                ("disk.eph0", "/dev/sda", "sata", 1, None, None),
                ("disk.eph1", "/dev/sdb", "scsi", 1, None, None),
            ],
        ),
        (  # the image's own wishes
            flavor(ephemeral=3, swap=64),
            image(
                mappings=[{"virtual": "ephemeral0", "device": "vdc"}, {"virtual": "swap", "device": "vdd"}],
            ),
            (),
            [
                ("disk", "/dev/vda", "virtio", 10, None, 0),
                ("disk.eph0", "/dev/vdc", "virtio", 3, None, None),
                ("disk.swap", "/dev/vdd", "virtio", None, 64, None),
            ],
        ),
        (  # ... which the user's mapping of the same name overrides
            flavor(ephemeral=3),
            image(mappings=[{"virtual": "ephemeral0", "device": "vdc"}]),
            (blank(1, device_name="/dev/vdc"),),
            [("disk", "/dev/vda", "virtio", 10, None, 0), ("disk.eph0", "/dev/vdc", "virtio", 1, None, None)],
        ),
        (  # ... or takes away with no_device; then the flavor's own comes
            flavor(ephemeral=3),
            image(mappings=[{"virtual": "ephemeral0", "device": "vdc"}]),
            (BlockDevice("blank", "local", device_name="/dev/vdc", no_device=True),),
            [("disk", "/dev/vda", "virtio", 10, None, 0), ("disk.eph0", "/dev/vdb", "virtio", 3, None, None)],
        ),
        (
            flavor(),
            image(),
            (volume(),),
            [("disk", "/dev/vda", "virtio", 10, None, 0), (VOLUME_ID, "/dev/vdb", "virtio", None, None, None)],
        ),
        (  # boot from a volume: it is the root, no local disk
            flavor(swap=16),
            None,
            (volume(0),),
            [(VOLUME_ID, "/dev/vda", "virtio", None, None, 0), ("disk.swap", "/dev/vdb", "virtio", None, 16, None)],
        ),
    ],
)
def test_plan(the_flavor, the_image, bdms, expected):
    if expected is None:
        with pytest.raises(errors.InvalidBDMLocalsLimit):
            block_device_plan(the_flavor, the_image, bdms)
        return
    assert shape(block_device_plan(the_flavor, the_image, bdms)) == expected


def test_plan_tells_what_the_disks_are():
    disks = block_device_plan(flavor(ephemeral=1, swap=1), image(), ())
    assert [d.kind for d in disks] == ["image", "ephemeral", "swap"]
    assert [d.guest_format for d in disks] == [None, None, "swap"]
    assert [d.delete_on_termination for d in disks] == [True, True, True]
    assert disks[0].image_id == IMAGE_ID
    assert disks[0].dev == "vda"


def test_plan_of_an_iso_is_a_readonly_cdrom_on_the_cdrom_bus():
    (disk,) = block_device_plan(flavor(), image("iso"))
    assert (disk.device_type, disk.disk_bus, disk.device_name, disk.readonly) == ("cdrom", "ide", "/dev/hda", True)
    (disk,) = block_device_plan(flavor(), image("iso", hw_machine_type="q35"))
    assert (disk.device_type, disk.disk_bus, disk.device_name) == ("cdrom", "sata", "/dev/sda")
    for word in ("aarch64", "arm64"):
        (disk,) = block_device_plan(flavor(), image("iso", hw_architecture=word))
        assert (disk.device_type, disk.disk_bus, disk.device_name) == ("cdrom", "scsi", "/dev/sda")


def test_a_volume_is_not_deleted_but_a_user_may_say_so():
    kept, gone = block_device_plan(flavor(), None, (volume(0), volume(1, IMAGE_ID, delete_on_termination=True)))
    assert (kept.delete_on_termination, gone.delete_on_termination) == (False, True)
    assert kept.serial == VOLUME_ID


@pytest.mark.parametrize(
    ("error", "the_flavor", "the_image", "bdms", "options"),
    [
        (errors.InvalidBDMBootSequence, flavor(), None, (volume(1),), {}),
        (errors.InvalidBDMBootSequence, flavor(), None, (volume(None),), {}),
        (errors.InvalidBDMBootSequence, flavor(), None, (volume(-1),), {}),
        (errors.InvalidBDMBootSequence, flavor(), None, (), {}),
        (errors.InvalidBDMBootSequence, flavor(), image(), (volume(2),), {}),
        (errors.InvalidBDMBootSequence, flavor(), None, (volume(0), volume(0, IMAGE_ID)), {}),
        (errors.InvalidBDMBootSequence, flavor(), image(), (root_image(), volume(0)), {}),
        (errors.InvalidBDMEphemeralSize, flavor(ephemeral=2), image(), (blank(3),), {}),
        (errors.InvalidBDMEphemeralSize, flavor(ephemeral=2), image(), (blank(1), blank(2)), {}),
        (errors.InvalidBDMEphemeralSize, flavor(ephemeral=2), image(), (blank(), blank(1)), {}),
        (errors.InvalidBDMEphemeralSize, flavor(ephemeral=2), image(), (blank(0), blank(1)), {}),
        (errors.InvalidBDMEphemeralSize, flavor(), image(), (blank(1),), {}),
        (errors.InvalidBDMSwapSize, flavor(swap=10), image(), (swap(11),), {}),
        (errors.InvalidBDMSwapSize, flavor(), image(), (swap(1),), {}),
        (errors.InvalidBDMFormat, flavor(swap=10), image(), (swap(1), swap(1)), {}),
        (errors.InvalidBDMLocalsLimit, flavor(ephemeral=3), image(), (blank(1), blank(1), blank(1)), {}),
        (errors.InvalidBDMLocalsLimit, flavor(), image(), (), {"max_local_block_devices": 0}),
        (errors.InvalidBDMFormat, flavor(), image(), (volume(uuid=None),), {}),
        (errors.InvalidBDMFormat, flavor(ephemeral=1), image(), (blank(1, uuid=VOLUME_ID),), {}),
        (errors.InvalidBDMFormat, flavor(), image(), (BlockDevice("disk", "local"),), {}),
        (errors.InvalidBDMFormat, flavor(), image(), (BlockDevice("blank", "cloud"),), {}),
        (errors.InvalidBDMFormat, flavor(ephemeral=1), image(), (blank(-1),), {}),
        (errors.InvalidBDMFormat, flavor(ephemeral=1), image(), (blank(1, device_type="tape"),), {}),
        (errors.InvalidBDMFormat, flavor(ephemeral=1), image(), (blank(1, device_name=""),), {}),
        (errors.InvalidBDMFormat, flavor(ephemeral=1), image(), (blank(1, device_name="/dev/v db"),), {}),
        (errors.InvalidBDMFormat, flavor(ephemeral=1), image(), (blank(1, device_name="v" * 256),), {}),
        (errors.InvalidBDMFormat, flavor(), image(), (BlockDevice("volume", "local", uuid=VOLUME_ID),), {}),
        (errors.InvalidBDMFormat, flavor(), image(), (BlockDevice("snapshot", "local", uuid=VOLUME_ID),), {}),
        (errors.InvalidBDMFormat, flavor(), image(), (BlockDevice("image", "local", 1, uuid=IMAGE_ID),), {}),
        (errors.InvalidBDMFormat, flavor(), image(), (BlockDevice("image", "local", 0, uuid=VOLUME_ID),), {}),
        (errors.InvalidBDM, flavor(), None, (BlockDevice("image", "volume", 0, uuid=IMAGE_ID),), {}),
        (errors.InvalidBDM, flavor(), image(), (BlockDevice("blank", "volume"),), {}),
        (errors.InvalidBDM, flavor(ephemeral=1), image(), (blank(1, device_name="/dev/sdb", disk_bus="virtio"),), {}),
        (errors.InvalidBDM, flavor(ephemeral=1), image(), (blank(1, device_name="../../etc"),), {}),
        (errors.InvalidBDM, flavor(ephemeral=1), image(), (blank(1, device_name="/dev/hde"),), {}),
        (
            errors.InvalidBDM,
            flavor(),
            image(),
            (volume(device_name="/dev/vdb"), volume(uuid=IMAGE_ID, device_name="vdb")),
            {},
        ),
        (errors.InvalidBDMDiskBus, flavor(ephemeral=1), image(), (blank(1, disk_bus="nvme"),), {}),
        (errors.InvalidBDMDiskBus, flavor(ephemeral=1), image(), (blank(1, disk_bus="xen"),), {}),
        (errors.UnsupportedHardware, flavor(), image(hw_disk_bus="ide", hw_machine_type="q35"), (), {}),
        (errors.UnsupportedHardware, flavor(), image(hw_disk_bus="ide", hw_machine_type="pc-q35-7.2"), (), {}),
        (errors.InvalidBDM, flavor(), image(), (volume(),), {"max_count": 2}),
        (errors.InvalidBDM, flavor(), image(), (volume(device_name="/dev/vda"),), {}),
        (errors.InvalidBDM, flavor(), image(root_device_name="/dev/vdb"), (volume(device_name="vdb"),), {}),
    ],
)
def test_refused(error, the_flavor, the_image, bdms, options):
    with pytest.raises(error) as caught:
        block_device_plan(the_flavor, the_image, bdms, **options)
    assert caught.value.code == error.__name__
    assert caught.value.status == 400
    assert not caught.value.retryable


def test_texts_are_novas():
    with pytest.raises(errors.InvalidBDM, match="Cannot attach one or more volumes to multiple instances"):
        mapping.normalise_bdms(flavor(), image(), (volume(),), max_count=2)
    with pytest.raises(errors.InvalidBDM, match="cannot be assigned the same device name as the root device vda$"):
        mapping.normalise_bdms(flavor(), image(), (volume(device_name="/dev/vda"),))


def test_no_limit_of_local_disks():
    many = tuple(blank(1) for dummy in range(30))
    disks = block_device_plan(flavor(ephemeral=30), image(), many, max_local_block_devices=-1)
    assert len(disks) == 31
    assert disks[25].device_name == "/dev/vdz"
    assert disks[26].device_name == "/dev/vdaa"


def test_bus_without_a_free_name():
    bdms = tuple(blank(1, disk_bus="ide") for dummy in range(5))
    with pytest.raises(errors.TooManyDiskDevices, match=r"number of disk devices \(4\) to attach") as caught:
        block_device_plan(flavor(ephemeral=5), image(), bdms, max_local_block_devices=-1)
    assert caught.value.status == 403


def test_an_image_that_brings_its_root_replaces_the_image_disk():
    the_image = image(
        bdm_v2="true",
        block_device_mapping=[
            {"source_type": "snapshot", "snapshot_id": VOLUME_ID, "boot_index": 0, "device_name": "/dev/vda"}
        ],
    )
    bdms = mapping.normalise_bdms(flavor(), the_image, (root_image(),))
    assert [(b.source_type, b.destination_type, b.uuid, b.boot_index) for b in bdms] == [
        ("snapshot", "volume", VOLUME_ID, 0)
    ]


@pytest.mark.parametrize("value", ["vda", [1], {"virtual": "swap"}])
def test_an_image_with_nonsense_for_mappings(value):
    with pytest.raises(errors.InvalidBDMFormat):
        mapping.normalise_bdms(flavor(), image(mappings=value), ())


@pytest.mark.parametrize(
    ("legacy", "image_id", "root", "no_root", "expected"),
    [
        ([], IMAGE_ID, "vda", False, [("image", 0)]),
        ([{"device_name": "/dev/vda", "volume_id": "v"}], IMAGE_ID, "vda", False, [("volume", 0)]),
        ([{"device_name": "vdb", "volume_id": "v"}], IMAGE_ID, "/dev/vda", False, [("image", 0), ("volume", -1)]),
        ([{"virtual_name": "swap"}, {"snapshot_id": "s"}], None, None, False, [("blank", None), ("snapshot", 0)]),
        ([{"device_name": "vdc", "no_device": True}], IMAGE_ID, "vda", False, [("image", 0), ("blank", None)]),
        ([{"volume_id": "v", "device_name": "vda"}], IMAGE_ID, "vda", True, [("volume", -1)]),
    ],
)
def test_legacy_mapping(legacy, image_id, root, no_root, expected):
    bdms = mapping.from_legacy(legacy, image_id, root, no_root)
    assert [(b.source_type, b.boot_index) for b in bdms] == expected


def test_legacy_names():
    eph, swp = mapping.from_legacy([{"virtual_name": "ephemeral0"}, {"virtual_name": "swap"}], no_root=True)
    assert block_device_checks.is_ephemeral(eph) and not block_device_checks.is_swap(eph)
    assert block_device_checks.is_swap(swp) and not block_device_checks.is_ephemeral(swp)
    assert eph.delete_on_termination
    for name in ("ephemeral01", "ephemeral", "swap1", ""):
        with pytest.raises(errors.InvalidBDMFormat):
            mapping.from_legacy([{"virtual_name": name}])


@pytest.mark.parametrize(
    ("drive_format", "machine", "arch", "properties", "expected"),
    [
        ("iso9660", "pc", "x86_64", {}, ("cdrom", "ide", "hda")),
        ("iso9660", None, "x86_64", {}, ("cdrom", "ide", "hda")),
        # clouds' kernels see virtio-scsi, not AHCI
        ("iso9660", "q35", "x86_64", {}, ("cdrom", "scsi", "sda")),
        ("iso9660", "pc-q35-7.2", "x86_64", {}, ("cdrom", "scsi", "sda")),
        ("iso9660", "q35", "x86_64", {"os_type": "windows"}, ("cdrom", "sata", "sda")),
        ("iso9660", "q35", "x86_64", {"hw_disk_bus": "sata"}, ("cdrom", "sata", "sda")),
        ("iso9660", "q35", "x86_64", {"hw_cdrom_bus": "usb"}, ("cdrom", "usb", "sda")),
        ("iso9660", "pc", "x86_64", {"hw_cdrom_bus": "scsi"}, ("cdrom", "scsi", "sda")),
        ("iso9660", "virt", "aarch64", {}, ("cdrom", "scsi", "sda")),
        ("vfat", "pc", "x86_64", {}, ("disk", "virtio", "vdz")),
        ("vfat", "q35", "x86_64", {}, ("disk", "virtio", "vdz")),
        ("vfat", "pc", "x86_64", {"hw_disk_bus": "ide"}, ("disk", "ide", "hdd")),
    ],
)
def test_config_drive(drive_format, machine, arch, properties, expected):
    disk = config_drive_disk((), properties, drive_format, "kvm", machine, arch)
    assert (disk.device_type, disk.disk_bus, disk.dev) == expected
    assert disk.name == "disk.config"
    assert disk.readonly == (expected[0] == "cdrom")
    assert disk.boot_index is None


@pytest.mark.parametrize(
    ("machine", "properties", "expected"),
    [
        (None, {}, [("hda", "ide"), ("sda", "scsi")]),
        ("pc", {}, [("hda", "ide"), ("sda", "scsi")]),
        ("pc-q35-7.2", {}, [("sdb", "sata"), ("sda", "scsi")]),
        ("q35", {"hw_cdrom_bus": "ide"}, [("hda", "ide"), ("sda", "scsi")]),  # refused when it is defined
    ],
)
def test_a_planned_cdrom_has_a_bus_that_its_machine_has(machine, properties, expected):
    disks = [*block_device_plan(flavor(), image("iso")), *block_device_plan(flavor(), image(hw_disk_bus="scsi"))]
    assert [(d.dev, d.disk_bus) for d in on_machine(disks, properties, machine)] == expected
    assert [d.dev for d in disks] == ["hda", "sda"]


def test_a_disk_on_ide_stays_there():
    disks = block_device_plan(flavor(), image(hw_disk_bus="ide"))
    assert [d.disk_bus for d in on_machine(disks, {}, "q35")] == ["ide"]  # refused when it is defined


def test_config_drive_beside_disks_of_its_bus():
    disks = block_device_plan(flavor(swap=1), image(hw_disk_bus="ide"))
    assert config_drive_disk(disks, {}).dev == "hdc"
    disks = block_device_plan(flavor(), image(hw_disk_bus="scsi"))
    assert config_drive_disk(disks, {}, machine="q35").dev == "sdb"


@pytest.mark.parametrize(("drive_format", "bus"), [("tar", None), ("iso9660", "nvme"), ("iso9660", "ide")])
def test_config_drive_refused(drive_format, bus):
    with pytest.raises(errors.InvalidInput):
        config_drive_disk((), {"hw_cdrom_bus": bus}, drive_format, machine="q35")


SIZES = st.one_of(st.none(), st.integers(min_value=0, max_value=3))
BUSES = st.sampled_from([None, "virtio", "scsi", "sata", "ide", "usb"])
BLANKS = st.builds(lambda size, bus: blank(size, disk_bus=bus), SIZES, BUSES)
VOLUMES = st.builds(lambda bus: volume(disk_bus=bus), BUSES)


@given(st.lists(st.one_of(BLANKS, VOLUMES), max_size=6), st.integers(0, 20), st.integers(0, 9), BUSES)
def test_law_every_plan_has_one_root_first_and_no_name_twice(bdms, ephemeral, swap_mb, bus):
    properties = {"hw_disk_bus": bus} if bus else {}
    try:
        disks = block_device_plan(
            flavor(ephemeral=ephemeral, swap=swap_mb),
            image(**properties),
            bdms,
            max_local_block_devices=-1,
        )
    except errors.InvalidBDM:
        return
    names = [disk.device_name for disk in disks]
    assert len(set(names)) == len(names)
    assert [disk.boot_index for disk in disks] == [0] + [None] * (len(disks) - 1)
    assert sum(d.size_gb for d in disks if d.kind == "ephemeral") <= ephemeral
    assert sum(d.size_mb for d in disks if d.kind == "swap") <= swap_mb
    assert [planned_disk(disk.as_dict()) for disk in disks] == disks


def test_planned_disk_from_data():
    (disk,) = block_device_plan(flavor(), image())
    data = dict(dataclasses.asdict(disk), unknown=1)
    assert planned_disk(data) == disk
    del data["device_name"]
    with pytest.raises(errors.InvalidInput, match="device_name"):
        planned_disk(data)


def test_placed():
    (disk,) = block_device_plan(flavor(), image())
    placed = disk.placed("/srv/disk", "qcow2", cache="none")
    assert (placed.path, placed.driver_format, placed.source, placed.cache) == ("/srv/disk", "qcow2", "file", "none")
    assert placed.device_name == disk.device_name


def test_what_a_made_volume_is_made_of_is_kept():
    devices = [
        BlockDevice("snapshot", "volume", 0, uuid="s", volume_size=4, volume_type="fast"),
        BlockDevice("blank", "volume", volume_size=2),
        BlockDevice("volume", "volume", uuid="v"),
    ]
    disks = block_device_plan(flavor(), None, devices)
    assert [(d.volume_source, d.snapshot_id, d.volume_type, d.volume_id, d.size_gb) for d in disks] == [
        ("snapshot", "s", "fast", None, 4),
        ("blank", None, None, None, 2),
        ("volume", None, None, "v", None),
    ]
    known = disks[0].of_volume("id", 4)
    assert (known.name, known.serial, known.volume_id, known.device_name) == ("id", "id", "id", "/dev/vda")
    assert planned_disk(known.as_dict()) == known


def test_the_properties_of_a_root_volume_choose_the_bus():
    root = BlockDevice("volume", "volume", 0, uuid="v")
    (disk,) = block_device_plan(flavor(), None, [root], properties={"hw_disk_bus": "scsi"})
    assert (disk.device_name, disk.disk_bus) == ("/dev/sda", "scsi")


@pytest.mark.parametrize(
    "fields, expected",
    [
        ({}, ("/dev/vdc", "virtio")),
        ({"device_name": "/dev/vdh"}, ("/dev/vdh", "virtio")),
        ({"disk_bus": "scsi"}, ("/dev/sda", "scsi")),
        ({"device_name": "sdb"}, ("/dev/sdb", "scsi")),
    ],
)
def test_attached_disk(fields, expected):
    bdm = BlockDevice("volume", "volume", uuid="v", volume_size=3, **fields)
    disk = attached_disk(flavor(), bdm, {"vda", "vdb"})
    assert (disk.device_name, disk.disk_bus) == expected
    assert (disk.kind, disk.volume_id, disk.size_gb, disk.boot_index) == ("volume", "v", 3, None)


def test_attached_disk_of_a_name_that_is_taken():
    with pytest.raises(errors.DevicePathInUse):
        attached_disk(flavor(), BlockDevice("volume", "volume", uuid="v", device_name="/dev/vdb"), {"vda", "vdb"})
    with pytest.raises(errors.InvalidBDM):
        attached_disk(
            flavor(), BlockDevice("volume", "volume", uuid="v", device_name="sdc", disk_bus="virtio"), {"vda"}
        )


def _there(*disks):
    return [PlannedDisk(**{"disk_bus": "virtio", **disk}) for disk in disks]


def test_resized_leaves_volumes_and_the_root_first():
    volume = {"name": "v", "kind": "volume", "size_gb": 7}
    there = _there(
        {**volume, "device_name": "/dev/vda", "boot_index": 0},
        {"name": "disk.swap", "kind": "swap", "device_name": "/dev/vdb", "size_mb": 8},
        {**volume, "device_name": "/dev/vdd"},
    )
    flavor = Flavor("new", 1, 1, root_gb=9, ephemeral_gb=2, swap=16)
    found = resized(there, {"ephemeral_gb": 0, "swap": 8}, flavor, {}, reserved_names=("vdc",))
    assert [(d.name, d.dev, d.size_gb or d.size_mb) for d in found] == [
        ("v", "vda", 7), ("disk.eph0", "vde", 2), ("disk.swap", "vdb", 16), ("v", "vdd", 7),
    ]  # fmt: skip
    assert all(d.delete_on_termination for d in found if d.name == "disk.eph0")


def test_resized_has_no_name_for_another_disk():
    there = _there(
        *({"name": "disk", "kind": "image", "device_name": "/dev/hd" + n, "disk_bus": "ide"} for n in "abcd")
    )
    with pytest.raises(errors.TooManyDiskDevices):
        resized(there, {"ephemeral_gb": 0, "swap": 0}, Flavor("f", 1, 1, 1, 0, 8), {"hw_disk_bus": "ide"})
    assert len(resized(there, {"ephemeral_gb": 0, "swap": 0}, Flavor("f", 1, 1, 1), {"hw_disk_bus": "ide"})) == 4


def test_resized_does_without_what_the_request_did_not_want():
    """A flavor that had ephemeral disk and swap, and an instance that has neither."""
    there = _there({"name": "disk", "kind": "image", "device_name": "/dev/vda"})
    assert len(resized(there, {"ephemeral_gb": 1, "swap": 8}, Flavor("f", 1, 1, 1, 2, 16), {})) == 1
