# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The images of the collection: each is valid, and those of the inventory take their places."""

from __future__ import annotations

import re

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core.disks import checksums
from ansible_collections.bootflow.compute.plugins.module_utils.core.request.catalogue import parse_catalogue
from ansible_collections.bootflow.compute.plugins.module_utils.core.settings.request import CATALOGUE
from ansible_collections.bootflow.compute.plugins.plugin_utils.run.ledger_action import read_settings
from ansible_collections.bootflow.compute.plugins.plugin_utils.run.shipped_images import shipped, with_shipped

MINE = {"name": "debian-13", "path": "/srv/mine.raw", "disk_format": "raw", "checksum": "a" * 64}


def images(variables):
    return read_settings(CATALOGUE.options("images"), {}, variables.get)["images"]


#: Image -> (os_distro, os_version, the user that logs in). Instances name these, so none of them goes away without a word.
SHIPPED = {
    "debian-12": ("debian", "12", "debian"),
    "debian-13": ("debian", "13", "debian"),
    "ubuntu-22.04": ("ubuntu", "22.04", "ubuntu"),
    "ubuntu-24.04": ("ubuntu", "24.04", "ubuntu"),
    "ubuntu-26.04": ("ubuntu", "26.04", "ubuntu"),
    "rocky-9": ("rocky", "9", "rocky"),
    "rocky-10": ("rocky", "10", "rocky"),
    "almalinux-9": ("almalinux", "9", "almalinux"),
    "almalinux-10": ("almalinux", "10", "almalinux"),
    "fedora-43": ("fedora", "43", "fedora"),
    "centos-stream-9": ("centos", "9", "cloud-user"),
    "centos-stream-10": ("centos", "10", "cloud-user"),
}

UBUNTU = {"22.04": "jammy", "24.04": "noble", "26.04": "resolute"}


def test_these_images_are_shipped_and_no_others():
    catalogue = parse_catalogue(None, list(shipped()), None, None)
    assert catalogue.image_errors == {}
    assert sorted(catalogue.images) == sorted(SHIPPED) and len(shipped()) == len(SHIPPED)


@pytest.mark.parametrize("name", sorted(SHIPPED))
def test_a_shipped_image_has_what_a_boot_needs_of_it(name):
    image = parse_catalogue(None, list(shipped()), None, None).images[name]
    checksum = checksums.parse_checksum(image.checksum)
    assert image.url.startswith("https://") and checksum.address.startswith("https://")
    assert checksum.algorithm in ("sha256", "sha512")
    publisher = [address.split("/")[2] for address in (image.url, checksum.address)]
    assert publisher[0] == publisher[1], "the checksum is of who publishes the image"
    assert image.min_disk > 0 and image.disk_format == "qcow2" and image.url.endswith((".qcow2", ".img"))
    wanted = dict(zip(("os_distro", "os_version", "os_admin_user"), SHIPPED[name], strict=True))
    assert dict(image.properties) == {"os_type": "linux", **wanted}
    release = UBUNTU.get(wanted["os_version"], wanted["os_version"])
    assert re.search(r"\b%s\b" % release, image.url), "the file is of this release"


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
