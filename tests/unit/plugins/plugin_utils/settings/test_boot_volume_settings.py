# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whether a boot has to do with volumes at all: of its request, or of what its image maps."""

from __future__ import annotations

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core.instances.request import ServerRequest
from ansible_collections.bootflow.compute.plugins.module_utils.core.model import BlockDevice, Flavor, Image
from ansible_collections.bootflow.compute.plugins.plugin_utils.settings.boot_volume_settings import (
    makes_volumes,
    uses_volumes,
)

FLAVOR = Flavor(name="m1", memory_mb=512, vcpus=1, root_gb=1, ephemeral_gb=1)


def image(**properties):
    return Image(name="i", id="i", disk_format="raw", properties=properties)


def request(*devices, booted=None, root=None):
    return ServerRequest(name="web", flavor=FLAVOR, image=booted, root_image=root, block_device_mapping=devices)


EXISTING = BlockDevice("volume", "volume", 0, uuid="v")
NEW = BlockDevice("image", "volume", 0, uuid="i", volume_size=1)
MAPS_NEW = {"block_device_mapping": [{"device_name": "vda", "snapshot_id": "s"}]}
MAPS_EXISTING = {"block_device_mapping": [{"device_name": "vdb", "volume_id": "v"}]}


@pytest.mark.parametrize(
    "case, the_request, uses, makes",
    [
        ("an image", request(booted=image()), False, False),
        ("local disks", request(BlockDevice("blank", "local", volume_size=1), booted=image()), False, False),
        ("a volume that exists", request(EXISTING), True, False),
        ("one of an image", request(NEW, root=image()), True, True),
        (
            "taken away",
            request(BlockDevice("volume", "volume", uuid="v", no_device=True), booted=image()),
            False,
            False,
        ),
        ("the image maps a snapshot", request(booted=image(**MAPS_NEW)), True, True),
        ("the image maps a volume", request(booted=image(**MAPS_EXISTING)), True, False),
        ("the root volume's image does", request(EXISTING, root=image(**MAPS_NEW)), True, True),
        ("it maps nonsense, told elsewhere", request(booted=image(block_device_mapping=["x"])), False, False),
    ],
)
def test_volumes_of_a_boot(case, the_request, uses, makes):
    assert (uses_volumes([the_request]), makes_volumes([the_request])) == (uses, makes), case
    assert (uses_volumes([request(booted=image()), the_request]), makes_volumes([])) == (uses, False)
