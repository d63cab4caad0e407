# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""source: Nova's get_image_metadata_from_volume, _validate_flavor_image_nostatus, _validate_vol_az_for_create"""

from __future__ import annotations

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.core.disks import boot_from_volume
from ansible_collections.bootflow.compute.plugins.module_utils.core.model import Flavor, Image

GIB = 1024**3
TOO_SMALL = (
    "Volume is smaller than the minimum size specified in image metadata. Volume size is 4294967296 bytes, minimum size "
    "is 5368709120 bytes."
)


def flavor(memory_mb=512, root_gb=1):
    return Flavor(name="m1", memory_mb=memory_mb, vcpus=1, root_gb=root_gb)


def image(**more):
    return Image(name="i", id="i", disk_format="raw", **more)


def test_the_image_of_a_volume():
    metadata = {
        "image_id": "i", "image_name": "n", "size": "1", "checksum": "c", "container_format": "bare",
        "disk_format": "iso", "min_ram": "256", "min_disk": "3", "hw_disk_bus": "scsi", "os_type": "linux",
    }  # fmt: skip
    found = boot_from_volume.image_of_volume(metadata, 7)
    assert found.properties == {"hw_disk_bus": "scsi", "os_type": "linux"}
    assert (found.size, found.min_ram, found.min_disk, found.status) == (7 * GIB, 256, 3, "active")
    assert (found.id, found.name, found.disk_format) == ("", "", "")
    assert "image_id" in metadata


@pytest.mark.parametrize("metadata, size", [(None, None), ({}, 0), ({"min_ram": ""}, None), ({"min_disk": None}, 0)])
def test_a_volume_that_was_made_of_no_image(metadata, size):
    found = boot_from_volume.image_of_volume(metadata, size)
    assert (found.properties, found.size, found.min_ram, found.min_disk) == ({}, 0, 0, 0)


@pytest.mark.parametrize("metadata", [{"min_ram": "much"}, {"min_disk": [1]}, {"min_ram": {1: 2}}, "x", 3, [1]])
def test_metadata_that_are_none(metadata):
    with pytest.raises(errors.InvalidInput):
        boot_from_volume.image_of_volume(metadata, 1)


@pytest.mark.parametrize(
    "rule, the_image, volume_size, code, text",
    [
        ("root_gb does not count", image(min_disk=5, size=9 * GIB), 5, None, ""),
        ("what exists was compared when it was made", image(min_disk=5), None, None, ""),
        ("min_disk", image(min_disk=5), 4, "VolumeSmallerThanMinDisk",
         TOO_SMALL),
        ("min_ram", image(min_ram=513), None, "FlavorMemoryTooSmall",
         "Flavor's memory is too small for requested image."),
        ("memory first", image(min_ram=513, min_disk=5), 4, "FlavorMemoryTooSmall",
         "Flavor's memory is too small for requested image."),
    ],
)  # fmt: skip
def test_flavor(rule, the_image, volume_size, code, text):
    if code is None:
        boot_from_volume.check_volume_flavor(the_image, flavor(), volume_size)
        return
    with pytest.raises(errors.ImageError) as caught:
        boot_from_volume.check_volume_flavor(the_image, flavor(), volume_size)
    assert (caught.value.code, caught.value.status, caught.value.message) == (code, 400, text), rule


@pytest.mark.parametrize(
    "boot_index, bootable, good", [(0, True, True), (0, False, False), (1, False, True), (None, False, True)]
)
def test_bootable(boot_index, bootable, good):
    if good:
        boot_from_volume.check_bootable("v", bootable, boot_index)
        return
    with pytest.raises(errors.InvalidBDMVolumeNotBootable, match="^Block Device v is not bootable.$"):
        boot_from_volume.check_bootable("v", bootable, boot_index)


@pytest.mark.parametrize(
    "rule, zone, zones, cross, expected",
    [
        ("zones do not matter", "north", ["south", "east"], True, "north"),
        ("no volumes", "north", [], False, "north"),
        ("no zone: the volumes'", None, ["south", "south"], False, "south"),
        ("the default zone is one too", None, ["nova"], False, "nova"),
        ("the same", "south", ["south"], False, "south"),
    ],
)
def test_zone(rule, zone, zones, cross, expected):
    assert boot_from_volume.volume_zone(zone, zones, cross) == expected, rule


@pytest.mark.parametrize(
    "zone, zones, text",
    [
        (None, ["south", "north"], "Volumes are in different availability zones: south,north."),
        ("north", ["south", "north"], "Volumes are in different availability zones: south,north."),
        ("north", ["south"],
         "Server and volumes are not in the same availability zone. Server is in: north. Volumes are in: south."),
    ],
)  # fmt: skip
def test_zones_that_do_not_match(zone, zones, text):
    with pytest.raises(errors.MismatchVolumeAZException) as caught:
        boot_from_volume.volume_zone(zone, zones, False)
    assert caught.value.status == 400
    assert caught.value.message == (
        "The availability zone between the server and its attached volumes do not match: " + text
    )
