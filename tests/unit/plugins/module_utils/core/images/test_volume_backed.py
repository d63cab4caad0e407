# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The image of an instance whose root is a volume: what it maps, as a boot from it reads it again."""

from __future__ import annotations

import json
import typing as t

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.core.disks.block_devices import block_device_plan
from ansible_collections.bootflow.compute.plugins.module_utils.core.images import life
from ansible_collections.bootflow.compute.plugins.module_utils.core.images import volume_backed as rules
from ansible_collections.bootflow.compute.plugins.module_utils.core.images.image import Place, StoredImage
from ansible_collections.bootflow.compute.plugins.module_utils.core.images.resolve import LedgerImages
from ansible_collections.bootflow.compute.plugins.module_utils.core.images.volume_backed import VolumeSnapshot
from ansible_collections.bootflow.compute.plugins.module_utils.core.model import BlockDevice, Flavor, Image
from ansible_collections.bootflow.compute.plugins.module_utils.core.request.image_rules import image_errors
from ansible_collections.bootflow.compute.plugins.module_utils.core.volumes.create_request import check_image

FLAVOR = Flavor("small", 512, 1, root_gb=20, ephemeral_gb=2, swap=64)
ROOT, DATA = "11111111-0000-4000-8000-000000000001", "11111111-0000-4000-8000-000000000002"
SNAPSHOTS = {ROOT: VolumeSnapshot("snap-root", 10), DATA: VolumeSnapshot("snap-data", 3)}


def disks() -> list[dict[str, t.Any]]:
    """Of an instance with a root volume, an ephemeral disk, swap, and a second volume."""
    devices = [
        BlockDevice("volume", "volume", 0, ROOT, device_type="disk", delete_on_termination=True),
        BlockDevice("volume", "volume", None, DATA, tag="data"),
    ]
    planned = block_device_plan(FLAVOR, None, devices)
    return [{**d.as_dict(), "volume_type": "fast"} if d.kind == "volume" else d.as_dict() for d in planned]


def image(**fields: t.Any) -> StoredImage:
    given = {"id": "image-1", "name": "snap", "project": "p", "instance_uuid": "i", "min_disk": 20}
    return rules.with_mapping(StoredImage(**{**given, **fields}), disks(), SNAPSHOTS)


def test_the_mapping_is_as_that_of_nova() -> None:
    made = image(properties={"os_distro": "x", "bdm_v2": "no", "root_device_name": "/dev/sdz"})
    assert {k: v for k, v in made.properties.items() if k != "block_device_mapping"} == {
        "os_distro": "x",
        "bdm_v2": "True",
        "root_device_name": "/dev/vda",
    }
    devices = json.loads(made.properties["block_device_mapping"])
    set_fields = [{k: v for k, v in device.items() if v is not None} for device in devices]
    common = {"disk_bus": "virtio", "device_type": "disk"}
    local = {"source_type": "blank", "destination_type": "local", "boot_index": -1, "delete_on_termination": True}
    volume = {"source_type": "snapshot", "destination_type": "volume"}
    assert set_fields == [
        {**common, **local, "device_name": "/dev/vdb", "volume_size": 2},
        {**common, **local, "device_name": "/dev/vdc", "volume_size": 64, "guest_format": "swap"},
        {**common, **volume, "device_name": "/dev/vda", "volume_size": 10, "snapshot_id": "snap-root"}
        | {"boot_index": 0, "delete_on_termination": True},
        {**common, **volume, "device_name": "/dev/vdd", "volume_size": 3, "snapshot_id": "snap-data"}
        | {"delete_on_termination": False},
    ], "a tag and the type of a volume are not in it, nor the volume itself"
    assert {"tag", "volume_type", "volume_id", "image_id", "no_device"} <= set(devices[2])


@pytest.mark.parametrize(("own", "expected"), [(20, 10), (4, 4)])
def test_the_flavor_does_not_make_the_image_larger_than_its_volume(own: int, expected: int) -> None:
    """Otherwise no boot from it would be accepted: its root has the size of the snapshot."""
    assert image(min_disk=own).min_disk == expected


def test_a_boot_from_it_has_the_same_disks() -> None:
    stored = image(status=life.ACTIVE, size=0)
    booted = LedgerImages().as_image(stored)
    assert not booted.has_bytes and list(image_errors(booted, FLAVOR, BlockDevice("snapshot", "volume", 0))) == []
    again = [disk.as_dict() for disk in block_device_plan(FLAVOR, booted)]
    assert {(d["device_name"], d["kind"], d["snapshot_id"]) for d in again} == {
        ("/dev/vda", "volume", "snap-root"),
        ("/dev/vdb", "ephemeral", None),
        ("/dev/vdc", "swap", None),
        ("/dev/vdd", "volume", "snap-data"),
    }
    assert [d["delete_on_termination"] for d in again if d["kind"] == "volume"] == [True, False]


def test_it_becomes_no_disk_and_no_volume() -> None:
    booted = LedgerImages().as_image(image(status=life.ACTIVE, size=0))
    assert [type(e) for e in image_errors(booted, FLAVOR)] == [errors.ImageUnacceptable]
    with pytest.raises(errors.ImageNotReadable, match="has no bytes"):
        check_image(booted, 100)
    assert Image("x", "x", "raw", url="file:///x", size=0).has_bytes and Image("x", "x", "raw", size=0).has_bytes


def test_an_active_image_whose_store_is_not_declared_is_not_one_without_bytes() -> None:
    stored = StoredImage("image-2", "lost", "p", life.ACTIVE, size=5, places=(Place("gone", life.DONE),))
    with pytest.raises(errors.ImageNotReadable, match="gone"):
        LedgerImages().as_image(stored)


def test_names_of_snapshots_differ_and_fit() -> None:
    names = [rules.snapshot_name(StoredImage(i, "n" * 255, "p"), d) for i in ("a", "b") for d in disks()]
    assert len(set(names)) == 8 and max(map(len, names)) == 255
    assert rules.snapshot_name(StoredImage("a", "web", "p"), disks()[0]) == "snapshot for web, vda, a"


def test_the_snapshots_of_an_image() -> None:
    assert rules.snapshots_in(image()) == ["snap-root", "snap-data"]
    foreign = {"block_device_mapping": '[{"snapshot_id": "s"}]', "bdm_v2": "True"}
    assert rules.snapshots_in(StoredImage("a", "imported", "p", properties=foreign)) == [], "of no instance"
    assert rules.snapshot_ids_of({}) == []
    for text in ("no json", '{"snapshot_id": "s"}', '["s", 1]', '[{"snapshot_id": null}]'):
        assert rules.snapshot_ids_of({"block_device_mapping": text, "bdm_v2": "True"}) == []
    name = rules.snapshot_name(StoredImage("image-1", "n" * 255, "p"), disks()[0])
    assert rules.is_snapshot_of("image-1", name) and not rules.is_snapshot_of("1", name)
    assert not rules.is_snapshot_of("image-1", "monday") and not rules.is_snapshot_of("image-1", None)
