# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Block devices that are volumes, in a request. source: Nova's API (Queens)"""

from __future__ import annotations

import json

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core.errors import InvalidRequest
from ansible_collections.bootflow.compute.plugins.module_utils.core.reading.problems import Problems
from ansible_collections.bootflow.compute.plugins.module_utils.core.request.catalogue import (
    catalogue_id,
    parse_catalogue,
)
from ansible_collections.bootflow.compute.plugins.module_utils.core.request.expand import (
    difference,
    request_digest,
)
from ansible_collections.bootflow.compute.plugins.module_utils.core.request.options import RequestOptions
from ansible_collections.bootflow.compute.plugins.module_utils.core.request.requested_block_devices import (
    legacy_block_devices,
    requested_block_devices,
)
from ansible_collections.bootflow.compute.plugins.module_utils.core.request.server_request import parse_requests

TINY = catalogue_id("image", "tiny")


def boot(**fields):
    return {"boot_index": 0, "destination_type": "volume", **fields}


def shape(device):
    return (
        device.source_type,
        device.destination_type,
        device.uuid,
        device.boot_index,
        device.volume_size,
        device.delete_on_termination,
    )


@pytest.mark.parametrize(
    "device, expected",
    [
        (boot(source_type="image", uuid="tiny", volume_size=2), ("image", "volume", TINY, 0, 2, False)),
        (boot(image_id=TINY, volume_size="2"), ("image", "volume", TINY, 0, 2, False)),
        (boot(source_type="volume", uuid="data"), ("volume", "volume", "data", 0, None, False)),
        (
            boot(volume_id="data", delete_on_termination=True, destination_type=None),
            ("volume", "volume", "data", 0, None, True),
        ),
        (boot(source_type="snapshot", uuid="s", volume_size=3), ("snapshot", "volume", "s", 0, 3, False)),
        (boot(snapshot_id="s"), ("snapshot", "volume", "s", 0, None, False)),
        (boot(source_type="blank", volume_size=3), ("blank", "volume", None, 0, 3, False)),
    ],
)
def test_a_root_that_is_a_volume_needs_no_image(parse, device, expected):
    request = parse(image=None, block_device_mapping=[{k: v for k, v in device.items() if v is not None}])
    (found,) = request.block_device_mapping
    assert shape(found) == expected
    assert request.image is None
    assert request.volume_backed


@pytest.mark.parametrize("property_", ["img_config_drive", "os_shutdown_timeout"])
def test_properties_of_the_image_of_a_root_volume_are_checked(property_):
    odd = {"name": "odd", "disk_format": "raw", "path": "/odd", "allow_unverified": True}
    images = [{**odd, "properties": {property_: "always"}}]
    flavors = [{"name": "small", "memory_mb": 512, "vcpus": 1}]
    device = boot(source_type="image", uuid="odd", volume_size=2)
    entry = {"name": "web", "flavor": "small", "networks": "none", "block_device_mapping": [device]}
    with pytest.raises(InvalidRequest) as caught:
        parse_requests([entry], parse_catalogue(flavors, images, [], []), RequestOptions())
    ((path, code),) = [(e["path"], e["code"]) for e in caught.value.errors]
    assert (path, code) == ("instances[0].block_device_mapping", "InvalidInput")


def test_the_image_of_the_root_volume_is_what_properties_come_from(parse):
    request = parse(image=None, block_device_mapping=[boot(source_type="image", uuid="tiny", volume_size=2)])
    assert request.root_image.name == "tiny"
    assert parse(image=None, block_device_mapping=[boot(source_type="volume", uuid="v")]).root_image is None
    beside = parse(
        block_device_mapping=[{"source_type": "image", "uuid": "tiny", "destination_type": "volume", "volume_size": 1}]
    )
    assert (beside.root_image, beside.image.name, beside.volume_backed) == (None, "tiny", False)


def test_volumes_beside_a_local_root_swap_and_ephemeral(parse):
    request = parse(
        flavor="big",
        block_device_mapping=[
            {"source_type": "volume", "uuid": "data"},
            {"source_type": "blank", "destination_type": "volume", "volume_size": 5, "volume_type": "fast"},
            {"source_type": "blank", "guest_format": "swap", "volume_size": 100},
            {"source_type": "blank", "volume_size": 5},
        ],
    )
    assert [(d.source_type, d.destination_type, d.delete_on_termination) for d in request.block_device_mapping] == [
        ("volume", "volume", False),
        ("blank", "volume", False),
        ("blank", "local", True),
        ("blank", "local", True),
    ]
    assert request.block_device_mapping[1].volume_type == "fast"
    assert not request.volume_backed


# (block device, entry, code, part of the message)
REFUSED = [
    (boot(source_type="image", uuid="tiny"), {}, "InvalidBDM", "need to have a non-zero size"),
    (boot(source_type="blank"), {}, "InvalidBDM", "need to have non-zero size"),
    (
        boot(source_type="image", uuid="none-such", volume_size=1),
        {},
        "InvalidBDMImage",
        "failed to get image none-such",
    ),
    (
        boot(source_type="image", uuid="fat", volume_size=9),
        {"flavor": "big"},
        "VolumeSmallerThanMinDisk",
        "Volume size is 9663676416 bytes, minimum size is 10737418240 bytes.",
    ),
    (boot(source_type="volume", uuid="v"), {"count": 2}, "InvalidInput", "multiple instances"),
    (
        boot(source_type="volume", uuid="v", volume_type="fast"),
        {},
        "InvalidBDMFormat",
        "Specifying volume type to existing volume is not supported.",
    ),
    (boot(source_type="volume"), {}, "InvalidBDMFormat", "Missing device UUID"),
    (boot(source_type="volume", uuid="v", destination_type="local"), {}, "InvalidBDMFormat", "volume to local"),
    (boot(source_type="volume", uuid="v", virtual_name="swap"), {}, "InvalidBDMFormat", "virtual_name"),
]


@pytest.mark.parametrize("device, entry, code, part", REFUSED)
def test_refused(errors, device, entry, code, part):
    ((path, its_code, status, message),) = errors(image=None, block_device_mapping=[device], **entry)
    assert (path, its_code, status) == ("block_device_mapping[0]", code, 400)
    assert part in message


def test_a_type_for_a_local_disk_is_refused(errors):
    ((path, code, _status, message),) = errors(block_device_mapping=[{"source_type": "blank", "volume_type": "fast"}])
    assert (path, code) == ("block_device_mapping[0]", "InvalidBDMFormat")
    assert "Specifying a volume_type with destination_type=local is not supported." in message


def test_a_volume_that_is_too_small_beside_the_root(errors):
    device = {"source_type": "image", "uuid": "fat", "destination_type": "volume", "volume_size": 9}
    ((path, code, _status, message),) = errors(block_device_mapping=[device])
    assert (path, code) == ("block_device_mapping[0]", "InvalidInput")
    assert "Volume size 9GB cannot be smaller than the image minDisk size 10GB" in message


def test_memory_that_the_image_of_the_root_volume_wants(errors):
    device = boot(source_type="image", uuid="hungry", volume_size=1)
    ((path, code, _status, _message),) = errors(image=None, block_device_mapping=[device])
    assert (path, code) == ("block_device_mapping", "FlavorMemoryTooSmall")


@pytest.mark.parametrize(
    "image, indexes, good",
    [
        (None, [0], True),
        (None, [None], False),
        (None, [1], False),
        (None, [0, 1, None, -1], True),
        (None, [0, 0], False),
        (None, [0, 2], False),
        ("tiny", [None, -1], True),
        ("tiny", [1], True),
        ("tiny", [0], False),
    ],
)
def test_boot_indexes(parse, errors, image, indexes, good):
    devices = [
        {"source_type": "blank", "destination_type": "volume", "volume_size": 1, "boot_index": i} for i in indexes
    ]
    if good:
        assert len(parse(image=image, block_device_mapping=devices).block_device_mapping) == len(indexes)
    else:
        ((path, code, _status, _message),) = errors(image=image, block_device_mapping=devices)
        assert (path, code) == ("block_device_mapping", "InvalidBDMBootSequence")


def test_several_instances_each_with_a_volume_of_its_own(parse):
    request = parse(image=None, count=3, block_device_mapping=[boot(source_type="image", uuid="tiny", volume_size=2)])
    assert request.max_count == 3


def test_version_1(parse):
    request = parse(
        image=None,
        legacy_bdm=True,
        block_device_mapping=[
            {"device_name": "vda", "volume_id": "v"},
            {"device_name": "vdb", "snapshot_id": "s", "volume_size": "4"},
        ],
    )
    assert [shape(d) for d in request.block_device_mapping] == [
        ("volume", "volume", "v", 0, None, False),
        ("snapshot", "volume", "s", -1, 4, False),
    ]
    with_image = parse(legacy_bdm=True, block_device_mapping=[{"device_name": "vdb", "volume_id": "v"}])
    assert [(d.source_type, d.destination_type, d.boot_index) for d in with_image.block_device_mapping] == [
        ("image", "local", 0),
        ("volume", "volume", -1),
    ]


@pytest.mark.parametrize(
    "device, part",
    [
        ({"source_type": "volume", "uuid": "v"}, "Following fields are invalid: source_type uuid"),
        ({"device_name": "vdb"}, "Unrecognized legacy format."),
    ],
)
def test_what_is_wrong_in_version_1(errors, device, part):
    ((path, code, _status, message),) = errors(legacy_bdm=True, block_device_mapping=[device])
    assert (path, code) == ("block_device_mapping[0]", "InvalidBDMFormat")
    assert part in message


def test_a_changed_mapping_is_a_difference(parse):
    def digest(**fields):
        return request_digest(
            parse(image=None, block_device_mapping=[boot(source_type="image", uuid="tiny", **fields)])
        )

    (line,) = difference(digest(volume_size=2), digest(volume_size=3)).requested
    assert line.startswith("block_device_mapping")
    assert not difference(digest(volume_size=2), digest(volume_size=2))


# --- Nova's rules, each with its error and text ------------------------------------------------------------------------------

PREFIX = "Block Device Mapping is Invalid: "
LOCAL = {"source_type": "blank", "guest_format": "ext4", "volume_size": 1}
RULES = [
    ("blank has no uuid", None, boot(source_type="blank", uuid="u", volume_size=1), "InvalidBDMFormat",
     PREFIX + "Invalid device UUID."),
    ("all others have", None, boot(source_type="snapshot"), "InvalidBDMFormat", PREFIX + "Missing device UUID."),
    ("image to local without an image", None, {"source_type": "image", "uuid": "tiny", "boot_index": 0},
     "InvalidBDMFormat", PREFIX + "Mapping image to local is not supported."),
    ("image to local without boot_index 0", "tiny", {"source_type": "image", "uuid": "tiny", "boot_index": 1},
     "InvalidBDMFormat", PREFIX + "Mapping image to local is not supported."),
    ("virtual_name is of version 1", "tiny", {**LOCAL, "virtual_name": "swap"}, "InvalidBDMFormat",
     PREFIX + "Following fields are invalid: virtual_name"),
    ("image to volume has a size", None, boot(source_type="image", uuid="tiny"), "InvalidBDM",
     "Images with destination_type 'volume' need to have a non-zero size specified"),
    ("blank to volume has a size", None, boot(source_type="blank"), "InvalidBDM",
     "Blank volumes (source: 'blank', dest: 'volume') need to have non-zero size"),
    ("an image that there is", None, boot(source_type="image", uuid="none", volume_size=1), "InvalidBDMImage",
     PREFIX + "failed to get image none."),
    ("no volume has the root's name", "tiny", {"source_type": "volume", "uuid": "v", "device_name": "/dev/vda"},
     "InvalidInput", "The volume cannot be assigned the same device name as the root device vda"),
    ("nor several instances", None, boot(source_type="volume", uuid="v"), "InvalidInput",
     "Cannot attach one or more volumes to multiple instances"),
]  # fmt: skip


@pytest.mark.parametrize("rule, image, device, code, text", RULES, ids=[r[0] for r in RULES])
def test_rule(errors, rule, image, device, code, text):
    count = {"count": 2} if rule == "nor several instances" else {}
    ((path, its_code, status, message),) = errors(image=image, block_device_mapping=[device], **count)
    assert (path, its_code, status, message) == ("block_device_mapping[0]", code, 400, text)


@pytest.mark.parametrize("size", [2**31, str(2**31), 10**30, 1e300])
@pytest.mark.parametrize("kind", [{"destination_type": "volume"}, {"guest_format": "ext4"}, {"guest_format": "swap"}])
def test_a_size_beyond_nova_s_largest(errors, size, kind):
    """source: Nova's parameter_types.volume_size"""
    device = {"source_type": "blank", **kind, "volume_size": size}
    ((path, _code, status, message),) = errors(block_device_mapping=[device])
    assert (path, status) == ("block_device_mapping[0].volume_size", 400)
    assert "must be 2147483647 or less" in message


@pytest.mark.parametrize("index, text", [(2**31, "2147483647 or less"), (str(-(2**40)), "-2147483647 or more")])
def test_a_boot_index_that_no_ledger_holds(errors, index, text):
    ((path, _code, status, message),) = errors(block_device_mapping=[{**LOCAL, "boot_index": index}])
    assert (path, status) == ("block_device_mapping[0].boot_index", 400) and text in message


def test_an_unknown_bus(errors):
    ((path, code, status, message),) = errors(block_device_mapping=[{**LOCAL, "disk_bus": "nvme"}])
    assert (path, code, status) == ("block_device_mapping[0].disk_bus", "InvalidBDMDiskBus", 400)
    assert "'nvme' must be one of virtio, scsi, sata, ide, usb, fdc" in message


def test_version_1_without_what_is_called_vda_has_no_root(errors):
    """Nova takes the first device as root only where it knows no root's name, and its API always does."""
    ((path, code, _status, _message),) = errors(
        image=None, legacy_bdm=True, block_device_mapping=[{"device_name": "vdb", "volume_id": "v"}]
    )
    assert (path, code) == ("block_device_mapping", "InvalidBDMBootSequence")


@pytest.mark.parametrize(
    "item",
    [
        None, "vda", 5, [], {"source_type": "blank", "boot_index": "x"}, {"source_type": "blank", "volume_size": "x"},
        {"source_type": "blank", "no_device": "perhaps"}, {"source_type": "blank", "delete_on_termination": 7},
        {"source_type": "tape"}, {"source_type": ["volume"]}, {"source_type": "volume", "uuid": 5},
        {"source_type": "blank", "volume_size": 2**31}, {"source_type": "blank", "boot_index": -(2**31)},
        {"source_type": "blank", "device_name": 5}, {"source_type": "blank", "tag": "a,b"}, {"device_type": "tape"},
    ],
)  # fmt: skip
@pytest.mark.parametrize("legacy", [False, True])
def test_what_is_no_device_is_told_without_the_schema_too(catalogue, item, legacy):
    problems = Problems()
    if legacy:
        legacy_block_devices([item], None, 1, "b", problems)
    else:
        requested_block_devices([item], True, 1, "vda", "b", problems, catalogue.image)
    assert [e["path"] for e in problems.errors][:1] == ["b[0]"]
    assert {e["code"] for e in problems.errors} <= {"InvalidBDMFormat", "InvalidBDMBootSequence"}


# --- images that map devices -------------------------------------------------------------------------------------------------


def images(**properties):
    entry = {"name": "own", "disk_format": "raw", "checksum": "ab" * 32, "path": "/images/own.raw", "min_disk": 10}
    return parse_catalogue(
        [{"name": "small", "memory_mb": 512, "vcpus": 1, "root_gb": 1}, {"name": "nil", "memory_mb": 512, "vcpus": 1}],
        [{**entry, "properties": properties}],
        [{"name": "blue", "subnets": [{"cidr": "10.0.0.0/24"}]}],
        [],
    )


NOTHING_ASKED = {"name": "web", "flavor": "small", "image": "own", "networks": ["blue"]}


def codes(catalogue, options=None, **fields):
    entry = {**NOTHING_ASKED, **fields}
    with pytest.raises(InvalidRequest) as caught:
        parse_requests([entry], catalogue, options or RequestOptions())
    return [(e["path"], e["code"], e["status"]) for e in caught.value.errors]


SNAPSHOT = {"source_type": "snapshot", "snapshot_id": "s", "boot_index": 0, "device_name": "/dev/vda"}


def test_an_image_that_brings_its_root_is_not_compared_with_the_flavors_disk():
    assert codes(images()) == [("instances[0].image", "FlavorDiskSmallerThanMinDisk", 400)]
    brought = images(bdm_v2=True, block_device_mapping=[{**SNAPSHOT, "volume_size": 10}])
    (request,) = parse_requests([dict(NOTHING_ASKED)], brought, RequestOptions())
    assert request.image.name == "own"
    as_text = images(bdm_v2="True", block_device_mapping=json.dumps([SNAPSHOT]))
    assert parse_requests([dict(NOTHING_ASKED)], as_text, RequestOptions())
    small = images(bdm_v2=True, block_device_mapping=[{**SNAPSHOT, "volume_size": 9}])
    assert codes(small) == [("instances[0].image", "VolumeSmallerThanMinDisk", 400)]


@pytest.mark.parametrize("legacy", [False, True])
@pytest.mark.parametrize(
    "properties",
    [
        {"mappings": ["vda"]},
        {"mappings": "[{"},
        {"block_device_mapping": [{"virtual_name": "nothing"}]},
        {"block_device_mapping": '[{"virtual_name": "nothing"}]'},
        {"block_device_mapping": 5},
    ],
)
def test_an_image_whose_mappings_are_nonsense(properties, legacy):
    found = codes(images(**properties), legacy_bdm=legacy)
    assert {(code, status) for _path, code, status in found} == {("InvalidBDMFormat", 400)}


def test_an_image_of_an_encrypted_volume():
    found = codes(images(cinder_encryption_key_id="k"), flavor="nil")
    assert found == [("instances[0].image", "ImageUnacceptable", 400)]


@pytest.mark.parametrize("properties", [{"kernel_id": "k"}, {"ramdisk_id": "r"}, {"kernel_id": "", "ramdisk_id": 5}])
def test_an_image_without_its_kernel(properties):
    """Its guest would not boot: Nova gives both to QEMU."""
    assert codes(images(**properties), RequestOptions(allow_zero_disk=True), flavor="nil") == [
        ("instances[0].image", "NotSupportedYet", 400)
    ]


def test_an_image_with_its_kernel():
    """source: Nova's _handle_kernel_and_ramdisk"""
    catalogue = images(kernel_id="nokernel", ramdisk_id="r")
    (request,) = parse_requests([{**NOTHING_ASKED, "flavor": "nil"}], catalogue, RequestOptions(allow_zero_disk=True))
    assert request.image.name == "own"


def test_an_image_that_says_nonsense_of_its_config_drive():
    """Nova tells it when the server is asked for, not when it is built."""
    assert codes(images(img_config_drive="always"), flavor="nil") == [("instances[0].image", "InvalidInput", 400)]
