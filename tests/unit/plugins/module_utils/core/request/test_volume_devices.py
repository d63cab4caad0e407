# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Block devices that are volumes, in a request. source: semantics 10, 14; Nova's API (Queens)"""

from __future__ import annotations

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core.request.catalogue import catalogue_id
from ansible_collections.bootflow.compute.plugins.module_utils.core.request.expand import (
    describe_difference,
    request_digest,
)

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
        "Volume is 9663676416 bytes, minimum is 10737418240 bytes",
    ),
    (boot(source_type="volume", uuid="v"), {"count": 2}, "InvalidInput", "multiple instances"),
    (boot(source_type="volume", uuid="v", volume_type="fast"), {}, "InvalidBDMFormat", "keeps its volume_type"),
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
        ("snapshot", "volume", "s", None, 4, False),
    ]
    with_image = parse(legacy_bdm=True, block_device_mapping=[{"device_name": "vdb", "volume_id": "v"}])
    assert [(d.source_type, d.destination_type, d.boot_index) for d in with_image.block_device_mapping] == [
        ("image", "local", 0),
        ("volume", "volume", -1),
    ]


@pytest.mark.parametrize(
    "device, part",
    [
        ({"source_type": "volume", "uuid": "v"}, "source_type, uuid is not in version 1"),
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

    (line,) = describe_difference(digest(volume_size=2), digest(volume_size=3))
    assert line.startswith("block_device_mapping")
    assert describe_difference(digest(volume_size=2), digest(volume_size=2)) == []
