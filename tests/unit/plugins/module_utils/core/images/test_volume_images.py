# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The rules of an image of a volume: what entries may say, and what the image has of the volume."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.core.images import volume_images as rules
from ansible_collections.bootflow.compute.plugins.module_utils.core.images.image import StoredImage
from ansible_collections.bootflow.compute.plugins.module_utils.core.images.snapshot_properties import is_layer
from ansible_collections.bootflow.compute.plugins.module_utils.core.images.stores.registry import read_stores

STORES = read_stores([{"name": "here", "path": "/a"}, {"name": "nfs", "path": "/b", "kind": "shared"}], [])
NO_STORES = read_stores([], [])


def entry(**fields: t.Any) -> rules.VolumeUpload:
    (read,) = rules.read_uploads([{"name": "image", "volume": "data", **fields}], STORES)
    return read


def refused(*entries: t.Any, stores: t.Any = STORES) -> list[tuple[str, str]]:
    with pytest.raises(errors.InvalidRequest) as caught:
        rules.read_uploads(list(entries), stores)
    return [(e["path"], e["code"]) for e in caught.value.errors]


def stored(properties: dict[str, t.Any], **fields: t.Any) -> StoredImage:
    given = {"id": "i", "name": "image", "project": "p", "disk_format": "raw", **fields}
    return StoredImage(properties=properties, **given)


def test_the_defaults_are_cinders() -> None:
    read = entry()
    assert (read.name, read.volume, read.store.name, read.disk_format) == ("image", "data", "here", "raw")
    assert (read.visibility, read.protected, read.force) == ("private", False, False)
    given = {"store": "nfs", "disk_format": "qcow2", "visibility": "community", "protected": "yes", "force": True}
    read = entry(**given)
    assert (read.store.name, read.disk_format, read.visibility) == ("nfs", "qcow2", "community")
    assert read.protected and read.force


@pytest.mark.parametrize(
    ("fields", "path", "code"),
    [
        ({"name": None}, ".name", "InvalidInput"),
        ({"name": ""}, ".name", "InvalidInput"),
        ({"name": "x" * 256}, ".name", "InvalidInput"),
        ({"volume": None}, ".volume", "InvalidInput"),
        ({"disk_format": "vmdk"}, ".disk_format", "InvalidInput"),
        ({"container_format": "compressed"}, ".container_format", "InvalidInput"),
        ({"visibility": "shared"}, ".visibility", "InvalidInput"),
        ({"protected": "perhaps"}, ".protected", "InvalidInput"),
        ({"force": "perhaps"}, ".force", "InvalidInput"),
        ({"store": "none"}, ".store", "ImageStoreNotFound"),
    ],
)
def test_what_an_entry_may_not_say(fields: dict[str, t.Any], path: str, code: str) -> None:
    ((where, what),) = refused({"name": "image", "volume": "data", **fields})
    assert where.endswith(path) and what == code


def test_names_and_volumes_are_named_once_and_there_is_a_store() -> None:
    assert len(refused({"name": "a", "volume": "v"}, {"name": "a", "volume": "w"})) == 1
    assert len(refused({"name": "a", "volume": "v"}, {"name": "b", "volume": "v"})) == 1
    assert refused({"name": "a", "volume": "v"}, stores=NO_STORES)[0][1] == "ImageStoreNotFound"


# Each key of a volume's image metadata -> whether the image has it. source: Cinder's _merge_volume_image_meta
KEYS = {
    **dict.fromkeys(rules.CORE, False),
    "img_signature": False,
    "img_signature_hash_method": False,
    "img_signature_certificate_uuid": False,
    "img_signature_key_type": False,
    "signature_verified": False,
    "os_glance_import_task": False,
    "cinder_encryption_key_deletion_policy": False,
    "block_device_mapping": False,
    "mappings": False,
    "os_distro": True,
    "hw_disk_bus": True,
    "image_type": True,
    "base_image_ref": True,
    "cache_in_nova": True,
}


@pytest.mark.parametrize("key", sorted(KEYS))
def test_which_metadata_of_the_volume_the_image_has(key: str) -> None:
    found = rules.properties_of({key: "x"}, "v1")
    assert found == {"volume_id": "v1", **({key: "x"} if KEYS[key] else {})}


def test_properties_are_texts_and_name_this_volume() -> None:
    found = rules.properties_of({"volume_id": "v0", "hw_cpu_cores": 2, "empty": None}, "v1")
    assert found == {"volume_id": "v1", "hw_cpu_cores": "2"}


def test_the_image_is_of_the_size_of_the_volume() -> None:
    image = entry(disk_format="qcow2", visibility="public", protected=True).image_of(
        "i1", "v1", 7, "p", "ann", {"os_distro": "debian", "min_disk": 1, "min_ram": 512, "disk_format": "raw"}
    )
    assert (image.id, image.name, image.project, image.user) == ("i1", "image", "p", "ann")
    assert (image.min_disk, image.min_ram, image.disk_format, image.container_format) == (7, 0, "qcow2", "bare")
    assert (image.visibility, image.protected, image.instance_uuid) == ("public", True, None)
    assert image.properties == {"os_distro": "debian", "volume_id": "v1"}
    assert is_layer("qcow2", image.properties) and not is_layer("raw", image.properties)


def test_an_encrypted_volume_is_refused() -> None:
    with pytest.raises(errors.NotSupportedYet, match="encrypted"):
        entry().image_of("i1", "v1", 7, "p", "ann", {"cinder_encryption_key_id": "k"})


@pytest.mark.parametrize(
    ("named", "expected"),
    [
        ([], None),
        ([stored({"volume_id": "v1"})], "same"),
        ([stored({"volume_id": "v2"})], "other content"),
        ([stored({})], "other content"),
        ([stored({"volume_id": "v1"}, instance_uuid="u")], "other content"),
        ([stored({"volume_id": "v1"}), stored({"volume_id": "v1"})], "other content"),
        ([stored({"volume_id": "v1"}, disk_format="qcow2")], "disk_format qcow2"),
        ([stored({"volume_id": "v1"}, visibility="public")], "visibility public"),
        ([stored({"volume_id": "v1"}, protected=True)], "protected True"),
    ],
)
def test_an_image_that_is_there(named: list[StoredImage], expected: str | None) -> None:
    if expected in (None, "same"):
        assert entry().existing_of(named, "v1") == (named[0] if named else None)
        return
    with pytest.raises(errors.ImageExists, match=expected):
        entry().existing_of(named, "v1")
