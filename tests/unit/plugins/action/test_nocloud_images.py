# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Images that read NoCloud: their guests get its drive at boot and rebuild."""

from __future__ import annotations

import json
import typing as t

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.core.guest.config_drive_rules import DATASOURCE
from ansible_collections.bootflow.compute.plugins.module_utils.core.guest.drive_files import unpack_files
from ansible_collections.bootflow.compute.tests.unit.worlds.world import World, request

from . import test_boot_settings, test_rebuild
from .test_boot_settings import FILE, Boot

NOCLOUD = {DATASOURCE: "NoCloud"}
READING = {**test_boot_settings.IMAGE, "properties": NOCLOUD}


def test_a_guest_gets_the_drive_that_its_image_reads(world: World) -> None:
    boot = Boot(world, images=[READING])
    boot.build(config_drive=True, user_data="#cloud-config\n", admin_password="pw", metadata={"role": "front"})
    (drive,) = boot.given["config_drive"]["drives"]
    files = unpack_files(drive["files"])
    assert drive["label"] == "cidata" and set(files) == {"meta-data", "user-data", "vendor-data"}
    told = json.loads(files["meta-data"])
    assert (told["local-hostname"], told["meta"]) == ("web", {"role": "front"})
    assert files["user-data"] == b"#cloud-config\n" and b"chpasswd" in files["vendor-data"]


def test_other_images_read_a_config_drive(world: World) -> None:
    boot = Boot(world)
    boot.build(config_drive=True)
    (drive,) = boot.given["config_drive"]["drives"]
    assert drive["label"] == "config-2" and "openstack/latest/meta_data.json" in unpack_files(drive["files"])


@pytest.mark.parametrize(
    ("properties", "entry", "path"),
    [
        (NOCLOUD, {"injected_files": [FILE]}, "injected_files"),
        ({DATASOURCE: "nocloud"}, {}, "image"),
        ({**NOCLOUD, "os_type": "windows"}, {}, "image"),
    ],
)
def test_what_no_guest_could_read_is_refused_before_anything_is_claimed(
    world: World, properties: dict[str, str], entry: dict[str, t.Any], path: str
) -> None:
    before = world.everything()
    found = Boot(world, images=[{**READING, "properties": properties}]).errors(**entry)
    assert set(found) == {("instances[0].%s" % path, "InvalidInput", 400)}
    assert world.everything() == before


def test_a_rebuild_with_such_an_image(world: World) -> None:
    world.report("h1")
    world.accept(request("one", config_drive=True))
    world.schedule()
    world.build("h1")
    rebuilding = test_rebuild.Rebuilding(world)
    other = {**test_rebuild.OTHER, "properties": NOCLOUD}
    rebuilding.variables["bootflow_images"] = test_rebuild.catalogue(other)
    before = world.everything()
    rebuilding.variables["bootflow_instances"] = [{"name": "one", "injected_files": [FILE]}]
    with pytest.raises(errors.InvalidInput, match="has no injected files"):
        rebuilding.play("rebuild", names=["one"], rebuild_image="debian")
    assert world.everything() == before and not rebuilding.removed
    rebuilding.variables["bootflow_instances"] = [{"name": "one", "user_data": "#!/bin/sh\n"}]
    rebuilding.play("rebuild", names=["one"], rebuild_image="debian")
    drive = rebuilding.drives[test_rebuild.row_of(world, "one").uuid]
    assert drive["label"] == "cidata" and unpack_files(drive["files"])["user-data"] == b"#!/bin/sh\n"
