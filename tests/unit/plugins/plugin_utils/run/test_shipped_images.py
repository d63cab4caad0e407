# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The images of the collection: each is valid, and those of the inventory take their places."""

from __future__ import annotations

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core.disks import checksums
from ansible_collections.bootflow.compute.plugins.module_utils.core.request.catalogue import parse_catalogue
from ansible_collections.bootflow.compute.plugins.module_utils.core.settings.request import CATALOGUE
from ansible_collections.bootflow.compute.plugins.plugin_utils.run.ledger_action import read_settings
from ansible_collections.bootflow.compute.plugins.plugin_utils.run.shipped_images import shipped, with_shipped

MINE = {"name": "debian-13", "path": "/srv/mine.raw", "disk_format": "raw", "checksum": "a" * 64}


def images(variables):
    return read_settings(CATALOGUE.options("images"), {}, variables.get)["images"]


def test_every_shipped_image_is_valid_and_has_its_publishers_checksum():
    catalogue = parse_catalogue(None, list(shipped()), None, None)
    assert catalogue.image_errors == {}
    names = {"debian-12", "debian-13", "ubuntu-22.04", "ubuntu-24.04", "ubuntu-26.04", "rocky-9", "almalinux-9"}
    assert names | {"centos-stream-9"} <= set(catalogue.images)
    for image in catalogue.images.values():
        checksum = checksums.parse_checksum(image.checksum)
        assert image.url.startswith("https://") and checksum.address.startswith("https://")
        assert image.min_disk > 0 and image.properties["os_admin_user"] and image.disk_format == "qcow2"


@pytest.mark.parametrize("mine", [[MINE], {"debian-13": {k: v for k, v in MINE.items() if k != "name"}}])
def test_an_image_of_the_inventory_takes_the_place_of_a_shipped_one(mine):
    found = parse_catalogue(None, with_shipped(mine), None, None).images
    assert found["debian-13"].path == "/srv/mine.raw" and found["rocky-9"].url
    assert len(found) == len(shipped())
    other = [{**MINE, "name": "web", "id": "rocky-9"}]
    assert parse_catalogue(None, with_shipped(other), None, None).image("rocky-9").name == "web"


def test_the_setting_decides():
    assert {each["name"] for each in images({})} == {each["name"] for each in shipped()}
    assert images({"bootflow_images": [MINE], "bootflow_shipped_images": False}) == [MINE]
    assert len(images({"bootflow_images": [MINE]})) == len(shipped())
