# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Nova's rules of block device mappings, each with its error, code and text.

source: Nova's BlockDeviceDict.from_api and _validate, API._check_and_transform_bdm, API._validate_bdm
"""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.core.disks import block_device_mapping as mapping
from ansible_collections.bootflow.compute.plugins.module_utils.core.disks.block_device_checks import check_words
from ansible_collections.bootflow.compute.plugins.module_utils.core.disks.block_devices import (
    attached_disk,
    block_device_plan,
    planned_disk,
)
from ansible_collections.bootflow.compute.plugins.module_utils.core.model import BlockDevice, Flavor, Image

IMAGE_ID = "11111111-1111-4111-8111-111111111111"
PREFIX = "Block Device Mapping is Invalid: "
EPHEMERAL_TEXT = (
    "Ephemeral disks requested are larger than the instance type allows. If no size is given in one block device mapping, "
    "flavor ephemeral size will be used."
)
SEQUENCE_TEXT = PREFIX + "Boot sequence for the instance and image/block device mapping combination is not valid."


def image(disk_format="qcow2", **properties):
    return Image(name="cirros", id=IMAGE_ID, disk_format=disk_format, properties=properties)


def flavor(ephemeral=10, swap=100):
    return Flavor(name="m1", memory_mb=512, vcpus=1, root_gb=10, ephemeral_gb=ephemeral, swap=swap)


def bdm(source, destination, boot_index=-1, **more):
    uuid = None if source == "blank" else more.pop("uuid", "u")
    return BlockDevice(source, destination, boot_index=boot_index, uuid=uuid, **more)


def swap(size=None, **more):
    return bdm("blank", "local", guest_format="swap", volume_size=size, **more)


# (rule, booted image?, mappings, error, text)
RULES = [
    ("a blank device has no uuid", True, [BlockDevice("blank", "local", uuid="u")], "InvalidBDMFormat",
     PREFIX + "Invalid device UUID."),
    ("all others have one", True, [bdm("volume", "volume", uuid=None)], "InvalidBDMFormat",
     PREFIX + "Missing device UUID."),
    ("image to local: the booted image only", False, [bdm("image", "local", 0)], "InvalidBDMFormat",
     PREFIX + "Mapping image to local is not supported."),
    ("image to local: with boot_index 0 only", True, [bdm("image", "local", 1, uuid=IMAGE_ID)], "InvalidBDMFormat",
     PREFIX + "Mapping image to local is not supported."),
    ("no type of a local disk", True, [bdm("blank", "local", volume_size=1, volume_type="fast")], "InvalidBDMFormat",
     PREFIX + "Specifying a volume_type with destination_type=local is not supported."),
    ("no type of a volume that exists", True, [bdm("volume", "volume", volume_type="fast")], "InvalidBDMFormat",
     PREFIX + "Specifying volume type to existing volume is not supported."),
    ("names are not empty", True, [bdm("blank", "local", device_name="")], "InvalidBDMFormat",
     PREFIX + "Device name empty or too long."),
    ("names have no spaces", True, [bdm("blank", "local", device_name="/dev/v db")], "InvalidBDMFormat",
     PREFIX + "Device name contains spaces."),
    ("sizes are numbers", True, [bdm("blank", "local", volume_size="x")], "InvalidBDMFormat",
     PREFIX + "Invalid volume_size."),
    ("boot indexes are numbers", True, [bdm("blank", "local", "x")], "InvalidBDMFormat",
     PREFIX + "Boot index is invalid."),
    ("something is booted from", False, [bdm("volume", "volume", None)], "InvalidBDMBootSequence", SEQUENCE_TEXT),
    ("the first is 0", False, [bdm("volume", "volume", 1)], "InvalidBDMBootSequence", SEQUENCE_TEXT),
    ("no gaps", False, [bdm("volume", "volume", 0), bdm("volume", "volume", 2)], "InvalidBDMBootSequence",
     SEQUENCE_TEXT),
    ("none twice", False, [bdm("volume", "volume", 0), bdm("volume", "volume", 0)], "InvalidBDMBootSequence",
     SEQUENCE_TEXT),
    ("the sequence is looked at before sizes", False, [bdm("blank", "volume", 3)], "InvalidBDMBootSequence",
     SEQUENCE_TEXT),
    ("a volume of an image has a size", False, [bdm("image", "volume", 0)], "InvalidBDM",
     "Images with destination_type 'volume' need to have a non-zero size specified"),
    ("not 0", False, [bdm("image", "volume", 0, volume_size=0)], "InvalidBDM",
     "Images with destination_type 'volume' need to have a non-zero size specified"),
    ("a blank volume has a size", True, [bdm("blank", "volume")], "InvalidBDM",
     "Blank volumes (source: 'blank', dest: 'volume') need to have non-zero size"),
    ("buses", True, [bdm("blank", "local", volume_size=1, disk_bus="nvme")], "InvalidBDMDiskBus",
     "Block Device Mapping is invalid: The provided disk bus nvme is not valid."),
    ("ephemerals in sum", True, [bdm("blank", "local", volume_size=6), bdm("blank", "local", volume_size=5)],
     "InvalidBDMEphemeralSize", EPHEMERAL_TEXT),
    ("one without size is as large as the flavor's", True, [bdm("blank", "local"), bdm("blank", "local", volume_size=1)],
     "InvalidBDMEphemeralSize", EPHEMERAL_TEXT),
    ("one swap", True, [swap(1), swap(1)], "InvalidBDMFormat", PREFIX + "More than one swap drive requested."),
    ("swap up to the flavor's", True, [swap(101)], "InvalidBDMSwapSize",
     "Swap drive requested is larger than instance type allows."),
    ("local disks: the image, three ephemerals", True, [bdm("blank", "local", volume_size=1)] * 3,
     "InvalidBDMLocalsLimit", PREFIX + "You specified more local devices than the limit allows"),
    ("no volume has the root's name", True, [bdm("volume", "volume", device_name="/dev/vda")], "InvalidBDM",
     "The volume cannot be assigned the same device name as the root device vda"),
]  # fmt: skip


@pytest.mark.parametrize("rule, with_image, bdms, code, text", RULES, ids=[r[0] for r in RULES])
def test_rule(rule, with_image, bdms, code, text):
    with pytest.raises(errors.InvalidBDM) as caught:
        block_device_plan(flavor(), image() if with_image else None, bdms)
    assert (caught.value.code, caught.value.status, caught.value.message) == (code, 400, text), rule


@pytest.mark.parametrize(
    "source, destination, legal",
    [
        ("image", "volume", True),
        ("volume", "volume", True),
        ("snapshot", "volume", True),
        ("blank", "volume", True),
        ("blank", "local", True),
        ("volume", "local", False),
        ("snapshot", "local", False),
        ("image", "local", False),
    ],
)
def test_pairs(source, destination, legal):
    device = bdm(source, destination, volume_size=1)
    if legal:
        assert len(block_device_plan(flavor(), image(), [device])) >= 2
    else:
        with pytest.raises(errors.InvalidBDMFormat, match="Mapping %s to local is not supported" % source):
            block_device_plan(flavor(), image(), [device])


def test_the_limit_counts_local_disks_only():
    volumes = [bdm("blank", "volume", volume_size=1) for dummy in range(9)]
    assert len(block_device_plan(flavor(0, 0), image(), volumes, max_local_block_devices=1)) == 10
    with pytest.raises(errors.InvalidBDMLocalsLimit):
        block_device_plan(flavor(), image(), volumes, max_local_block_devices=2)


# --- what an image maps ----------------------------------------------------------------------------------------------------

SNAPSHOT = {"device_name": "/dev/vda", "snapshot_id": "s"}


def shape(bdms):
    return [(b.source_type, b.destination_type, b.uuid, b.boot_index) for b in bdms]


BOOTED = ("image", "local", IMAGE_ID, 0)


@pytest.mark.parametrize(
    "rule, properties, given, expected",
    [
        ("version 1: what is called vda is the root", {"block_device_mapping": [SNAPSHOT]}, [],
         [("snapshot", "volume", "s", 0)]),
        ("version 1: nothing else is, the image is booted",
         {"block_device_mapping": [{"device_name": "vdb", "volume_id": "v"}]}, [],
         [BOOTED, ("volume", "volume", "v", -1)]),
        ("version 1: the image's word for the root",
         {"root_device_name": "/dev/vdb", "block_device_mapping": [{"device_name": "vdb", "volume_id": "v"}]}, [],
         [("volume", "volume", "v", 0)]),
        ("version 2", {"bdm_v2": True, "block_device_mapping": [
            {"source_type": "snapshot", "snapshot_id": "s", "boot_index": "0", "volume_size": "3", "tag": None,
             "destination_type": "volume", "delete_on_termination": "false", "connection_info": None}]}, [],
         [("snapshot", "volume", "s", 0)]),
        ("version 2: uuid is the row's, the snapshot's is in snapshot_id", {"bdm_v2": True, "block_device_mapping": [
            {"source_type": "snapshot", "snapshot_id": "s", "uuid": "row", "boot_index": 0}]}, [],
         [("snapshot", "volume", "s", 0)]),
        ("as Glance has it: JSON in a text", {"block_device_mapping": '[{"device_name": "vda", "snapshot_id": "s"}]'}, [],
         [("snapshot", "volume", "s", 0)]),
        ("the image's own root replaces the client's", {"block_device_mapping": [SNAPSHOT]},
         [bdm("image", "local", 0, uuid=IMAGE_ID)], [("snapshot", "volume", "s", 0)]),
        ("a user's device of the name overrides", {"block_device_mapping": [{"device_name": "vdb", "volume_id": "v"}]},
         [bdm("volume", "volume", uuid="mine", device_name="/dev/vdb")], [BOOTED, ("volume", "volume", "mine", -1)]),
        ("what the user asks for comes before what the image maps",
         {"block_device_mapping": [{"device_name": "vdb", "volume_id": "v"}]},
         [bdm("image", "local", 0, uuid=IMAGE_ID), bdm("blank", "volume", volume_size=1)],
         [BOOTED, ("blank", "volume", None, -1), ("volume", "volume", "v", -1)]),
        ("no_device takes it away", {"block_device_mapping": [{"device_name": "vdb", "volume_id": "v"}]},
         [BlockDevice("blank", "local", device_name="vdb", no_device=True)], [BOOTED]),
        ("a volume that is not there in version 1", {"block_device_mapping": [
            {"device_name": "vdb", "volume_id": "v", "no_device": True}]}, [], [BOOTED]),
        ("swap and ephemerals of mappings have the flavor's size, ami and root are passed over", {"mappings": [
            {"virtual": "ami", "device": "sda1"}, {"virtual": "ephemeral0", "device": "vdd"},
            {"virtual": "swap", "device": "vde"}]}, [],
         [BOOTED, ("blank", "local", None, -1), ("blank", "local", None, -1)]),
    ],
)  # fmt: skip
def test_what_an_image_maps(rule, properties, given, expected):
    sizes = flavor() if "mappings" in properties else flavor(0, 0)
    assert shape(mapping.normalise_bdms(sizes, image(**properties), given)) == expected, rule


@pytest.mark.parametrize(
    "other",
    [BlockDevice("blank", "local", device_name="vdb", no_device=True), swap(1, device_name="/dev/vdb")],
)
def test_an_image_whose_own_root_was_taken_away_has_none(other):
    """Nova took the client's mapping of the image out before."""
    own = image(root_device_name="vdb", block_device_mapping=[{"device_name": "vdb", "snapshot_id": "s"}])
    with pytest.raises(errors.InvalidBDMBootSequence):
        block_device_plan(flavor(), own, [bdm("image", "local", 0, uuid=IMAGE_ID), other])


def test_the_image_of_a_root_volume_maps_too():
    """Nova: the mapping that stands for the image goes where the image brings a root of its own."""
    root = bdm("image", "volume", 0, uuid=IMAGE_ID, volume_size=5)
    own = image(block_device_mapping=[SNAPSHOT])
    assert shape(mapping.normalise_bdms(flavor(0, 0), None, [root], meta=own)) == [("snapshot", "volume", "s", 0)]
    plain = mapping.normalise_bdms(flavor(0, 0), None, [root], meta=image())
    assert shape(plain) == [("image", "volume", IMAGE_ID, 0)]


@pytest.mark.parametrize(
    "device, text",
    [
        ({"source_type": "snapshot", "snapshot_id": "s", "colour": 1}, "Following fields are invalid: colour"),
        ({"snapshot_id": "s"}, "Some required fields are missing"),
        ({"source_type": "tape"}, "Invalid source_type field."),
        ({"source_type": ["volume"]}, "Invalid source_type field."),
        ({"source_type": "volume"}, "Missing device UUID."),
        ({"source_type": "volume", "volume_id": "v", "boot_index": "first"}, "Boot index is invalid."),
        ({"source_type": "volume", "volume_id": "v", "volume_size": "big"}, "Invalid volume_size."),
        ({"source_type": "volume", "volume_id": "v", "volume_size": True}, "Invalid volume_size."),
        ({"source_type": "volume", "volume_id": "v", "device_name": 5}, "Device name empty or too long."),
        ({"source_type": "blank", "encrypted": True}, "Encrypted disks are not supported."),
    ],
)
def test_an_image_with_a_mapping_that_is_none(device, text):
    with pytest.raises(errors.InvalidBDMFormat) as caught:
        mapping.normalise_bdms(flavor(), image(bdm_v2="True", block_device_mapping=[device]), [])
    assert caught.value.message == PREFIX + text


@pytest.mark.parametrize(
    "device, text",
    [
        ({}, "Unrecognized legacy format."),
        ("vda", "Unrecognized legacy format."),
        (None, "Unrecognized legacy format."),
        ({"volume_id": "v", "volume_size": "big"}, "Invalid volume_size."),
        ({"volume_id": "v", "volume_size": -1}, "Invalid volume_size."),
        ({"volume_id": "v", "device_name": "v da"}, "Device name contains spaces."),
        ({"volume_id": "v", "device_name": 7}, "Device name empty or too long."),
    ],
)
def test_a_version_1_mapping_that_is_none(device, text):
    with pytest.raises(errors.InvalidBDMFormat) as caught:
        mapping.from_legacy([device], IMAGE_ID, "vda")
    assert caught.value.message == PREFIX + text


@pytest.mark.parametrize(
    "value, expected", [("false", False), ("True", True), (None, False), (1, True), (False, False)]
)
def test_delete_on_termination_of_version_1_is_a_word(value, expected):
    (device,) = mapping.from_legacy([{"volume_id": "v", "delete_on_termination": value}], no_root=True)
    assert device.delete_on_termination is expected


def test_who_goes_with_the_instance():
    """Local disks and what the flavor adds do, volumes stay."""
    given = [bdm("volume", "volume"), bdm("blank", "volume", volume_size=1)]
    found = mapping.normalise_bdms(flavor(), image(), given)
    assert [(b.source_type, b.destination_type, b.delete_on_termination) for b in found] == [
        ("image", "local", True),
        ("volume", "volume", False),
        ("blank", "volume", False),
        ("blank", "local", True),
        ("blank", "local", True),
    ]


# --- the plan --------------------------------------------------------------------------------------------------------------


def plan(*bdms, with_image=None, meta=None, properties=None, sizes=None, **options):
    disks = block_device_plan(sizes or flavor(0, 0), with_image, bdms, properties, meta, **options)
    return [(d.kind, d.dev, d.disk_bus, d.device_type) for d in disks]


@pytest.mark.parametrize(
    "rule, bdms, how, expected",
    [
        ("an ISO is a CD-ROM, whatever its mapping says",
         [bdm("image", "local", 0, uuid=IMAGE_ID, disk_bus="virtio")], {"with_image": image("iso")},
         [("image", "hda", "ide", "cdrom")]),
        ("an ISO keeps its bus beside a name of another",
         [], {"with_image": image("iso", root_device_name="/dev/vda")}, [("image", "hda", "ide", "cdrom")]),
        ("an ISO on a volume", [bdm("image", "volume", 0, volume_size=1)],
         {"meta": image("iso", hw_machine_type="q35")}, [("volume", "sda", "sata", "cdrom")]),
        ("a volume has the properties of the image that it is made of", [bdm("image", "volume", 0, volume_size=1)],
         {"meta": image(hw_disk_bus="scsi")}, [("volume", "sda", "scsi", "disk")]),
        ("the root's name is in a volume's properties too", [bdm("volume", "volume", 0)],
         {"properties": {"root_device_name": "/dev/vdc"}}, [("volume", "vdc", "virtio", "disk")]),
        ("but not on another bus", [bdm("volume", "volume", 0, disk_bus="scsi")],
         {"properties": {"root_device_name": "/dev/vdc"}}, [("volume", "sda", "scsi", "disk")]),
        ("the image's bus before the root's name", [],
         {"with_image": image(hw_disk_bus="scsi", root_device_name="/dev/vdb")}, [("image", "sdb", "scsi", "disk")]),
        ("and before a local disk's, whose letter stays if it is free",
         [bdm("blank", "local", device_name="vdb"), swap(device_name="sda")],
         {"with_image": image(hw_disk_bus="sata"), "sizes": flavor(1, 1)},
         [("image", "sdb", "sata", "disk"), ("ephemeral", "sdc", "sata", "disk"), ("swap", "sda", "sata", "disk")]),
        ("not before a volume's", [bdm("volume", "volume", device_name="vdb")], {"with_image": image(hw_disk_bus="scsi")},
         [("image", "sda", "scsi", "disk"), ("volume", "vdb", "virtio", "disk")]),
        ("a root volume that the image maps is on the image's bus", [],
         {"with_image": image(hw_disk_bus="scsi", block_device_mapping=[{"device_name": "vda", "snapshot_id": "s"}])},
         [("volume", "sda", "scsi", "disk")]),
        ("a lun is on SCSI", [bdm("volume", "volume", 0), bdm("volume", "volume", device_type="lun")], {},
         [("volume", "vda", "virtio", "disk"), ("volume", "sda", "scsi", "lun")]),
        ("a floppy", [bdm("volume", "volume", 0), bdm("volume", "volume", device_type="floppy")], {},
         [("volume", "vda", "virtio", "disk"), ("volume", "fda", "fdc", "floppy")]),
        ("a volume as CD-ROM", [bdm("volume", "volume", 0), bdm("volume", "volume", device_type="cdrom")],
         {"properties": {"hw_machine_type": "ubuntu-q35"}}, [("volume", "vda", "virtio", "disk"), ("volume", "sda", "sata", "cdrom")]),
        ("a volume's name decides its bus", [bdm("volume", "volume", 0), bdm("volume", "volume", device_name="sdc")], {},
         [("volume", "vda", "virtio", "disk"), ("volume", "sdc", "scsi", "disk")]),
        ("volumes behind local disks", [bdm("volume", "volume", 0), bdm("volume", "volume")],
         {"sizes": flavor(1, 1)},
         [("volume", "vda", "virtio", "disk"), ("ephemeral", "vdb", "virtio", "disk"), ("swap", "vdc", "virtio", "disk"),
          ("volume", "vdd", "virtio", "disk")]),
    ],
)  # fmt: skip
def test_plan(rule, bdms, how, expected):
    assert plan(*bdms, **how) == expected, rule


@pytest.mark.parametrize(
    "device_type, bus",
    [("cdrom", "virtio"), ("floppy", "ide"), ("disk", "fdc"), ("lun", "sata"), ("lun", "ide")],
)
def test_devices_that_a_bus_does_not_carry(device_type, bus):
    with pytest.raises(errors.UnsupportedHardware, match="%s on %s" % (device_type, bus)):
        plan(bdm("volume", "volume", 0), bdm("volume", "volume", device_type=device_type, disk_bus=bus))


def test_ephemerals_beside_one_that_is_the_root_have_files_of_their_own():
    bdms = [bdm("blank", "local", 0, volume_size=1), bdm("blank", "local", volume_size=2), swap(3, boot_index=1)]
    disks = block_device_plan(flavor(), None, bdms)
    assert [(d.name, d.dev, d.size_gb, d.size_mb) for d in disks] == [
        ("disk.eph0", "vda", 1, None),
        ("disk.eph1", "vdb", 2, None),
        ("disk.swap", "vdc", None, 3),
    ]


# --- nonsense --------------------------------------------------------------------------------------------------------------

ANYTHING = st.one_of(
    st.none(), st.booleans(), st.integers(-3, 3), st.floats(), st.text(max_size=6), st.lists(st.integers(), max_size=1),
    st.dictionaries(st.text(max_size=2), st.integers(), max_size=1), st.binary(max_size=2),
    st.sampled_from(["image", "volume", "snapshot", "blank", "local", "vda", "/dev/vdb", "virtio", "cdrom", "swap", 0, 1]),
)  # fmt: skip
FIELDS = [field.name for field in dataclasses.fields(BlockDevice)]


@given(st.lists(st.fixed_dictionaries(dict.fromkeys(FIELDS, ANYTHING)), max_size=3))
def test_law_any_mapping_gives_a_plan_or_an_error_of_the_family(values):
    bdms = [BlockDevice(**each) for each in values]
    for booted in (image(), None):
        try:
            disks = block_device_plan(flavor(), booted, bdms)
        except errors.BootflowError as error:
            assert error.status in (400, 403)
        else:
            assert len({d.name or d.dev for d in disks}) == len(disks)


@given(
    st.one_of(ANYTHING, st.lists(st.dictionaries(st.sampled_from([*FIELDS, "volume_id", "virtual_name"]), ANYTHING)))
)
def test_law_any_property_of_an_image_gives_mappings_or_an_error_of_the_family(value):
    for properties in (
        {"block_device_mapping": value},
        {"block_device_mapping": value, "bdm_v2": "1"},
        {"mappings": value},
    ):
        try:
            block_device_plan(flavor(), image(**properties), [])
        except errors.BootflowError as error:
            assert error.status in (400, 403)


@pytest.mark.parametrize("device", [None, "vda", {"source_type": "volume"}, 5])
def test_what_is_no_mapping(device):
    for call in (
        lambda: check_words(device),
        lambda: block_device_plan(flavor(), image(), [device]),
        lambda: attached_disk(flavor(), device, {"vda"}),
    ):
        with pytest.raises(errors.InvalidBDMFormat):
            call()


@pytest.mark.parametrize(
    "data", [None, 5, "disk", [], {}, {"name": 1, "kind": "image", "device_name": "a", "disk_bus": "b"}]
)
def test_what_is_no_planned_disk(data):
    with pytest.raises(errors.InvalidInput):
        planned_disk(data)
