# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pathlib

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.hosts.disks.disk_batch import make_disks

GIB = 1024**3
UUID = "2f4c1c0e-6a0f-4d8e-9f0b-0c6f3f3b2a11"


@pytest.mark.slow
def test_an_image_larger_than_its_instance_claims_is_refused(tmp_path: pathlib.Path) -> None:
    """A disk of the image's size is no larger than what the ledger has counted for it."""
    source = tmp_path / "image"
    with open(source, "wb") as file:
        file.truncate(GIB + 512)
    image = {"id": "i", "disk_format": "raw", "path_on_host": str(source)}
    disk = {"name": "disk", "kind": "image", "image_id": "i", "size_gb": 0, "max_size_gb": 1}

    def error() -> dict[str, str]:
        found = make_disks(str(tmp_path / "instances"), [image], [{"uuid": UUID, "disks": [disk]}], {}, True)
        return found["outcomes"][UUID]["error"]

    assert error()["code"] == "FlavorDiskSmallerThanImage" and "min_disk" in error()["remedy"]
    disk["max_size_gb"] = 2
    assert error() is None
    disk["max_size_gb"] = 1
    # It is in the cache now.
    del image["path_on_host"]
    (tmp_path / "instances" / UUID / "disk").unlink()
    (tmp_path / "instances" / UUID / "disk.info").unlink()
    assert error()["code"] == "FlavorDiskSmallerThanImage"
