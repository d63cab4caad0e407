# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Rules of backups: the request, the rotation, and the names that an instance's backups share."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.core.images import backups
from ansible_collections.bootflow.compute.plugins.module_utils.core.images.backups import Backup
from ansible_collections.bootflow.compute.plugins.module_utils.core.images.image import StoredImage
from ansible_collections.bootflow.compute.plugins.module_utils.core.images.stores.registry import read_stores

STORE = read_stores([{"name": "nfs", "path": "/net/images", "kind": "shared"}], []).get("nfs")


def request(**changes: t.Any) -> backups.BackupRequest:
    given = {"name": "%(name)s-daily", "backup_type": "daily", "rotation": 2, "store": STORE, "extra": None}
    return backups.read_request(**{**given, **changes})


def image(**fields: t.Any) -> StoredImage:
    given = {"id": "i", "name": "web-daily", "project": "p", "instance_uuid": "u"}
    return StoredImage(**{**given, "properties": {"image_type": "backup"}, **fields})


@pytest.mark.parametrize(
    ("older", "rotation", "deleted"),
    [
        ({}, 0, ["made"]),
        ({}, 1, []),
        ({}, 5, []),
        ({"a": 1.0}, 2, []),
        ({"a": 1.0, "b": 2.0}, 2, ["a"]),
        ({"b": 1.0, "a": 2.0}, 2, ["b"]),
        ({"a": 1.0, "b": 2.0}, 3, []),
        ({"a": 1.0, "b": 2.0}, 1, ["a", "b"]),
        ({"a": 1.0, "b": 2.0}, 0, ["a", "b", "made"]),
        ({"c": 3.0, "a": 1.0, "b": 2.0, "d": 4.0}, 2, ["a", "b", "c"]),  # the rotation was larger before
        ({"b": 1.0, "a": 1.0}, 2, ["a"]),
        ({"a": 99.0, "b": 98.0}, 2, ["b"]),  # by a clock that was ahead: the new one stays
    ],
)
def test_the_oldest_ones_beyond_the_rotation_are_deleted(
    older: dict[str, float], rotation: int, deleted: list[str]
) -> None:
    found = [Backup(created_at, name) for name, created_at in older.items()]
    assert backups.beyond_rotation([Backup(10.0, "made"), *found], rotation, "made") == deleted
    assert backups.beyond_rotation([*reversed(found), Backup(10.0, "made")], rotation, "made") == deleted


@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        ({"name": None}, errors.InvalidInput, "bootflow_backup_name is not set"),
        ({"name": ""}, errors.InvalidInput, "bootflow_backup_name is not set"),
        ({"backup_type": None}, errors.InvalidInput, "bootflow_backup_type is not set"),
        ({"backup_type": ""}, errors.InvalidInput, "1 to 255 characters, has 0"),
        ({"backup_type": "x" * 256}, errors.InvalidInput, "1 to 255 characters, has 256"),
        ({"rotation": None}, errors.InvalidInput, "bootflow_backup_rotation is not set"),
        ({"extra": {"k": [1]}}, errors.InvalidMetadata, "must be a text"),
    ],
)
def test_a_request_that_does_not_fit(changes: dict[str, t.Any], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        request(**changes)


def test_the_name_has_the_instance_and_the_time() -> None:
    named = request(name="%(name)s of %(date)s", date="2026-11-29T16:09:49Z")
    assert named.name_of("web") == "web of 2026-11-29T16:09:49Z"
    assert named.name_of("%(date)s") == "%(date)s of 2026-11-29T16:09:49Z"
    assert request(backup_type="x" * 255, rotation=0).rotation == 0
    with pytest.raises(errors.InvalidInput, match="bootflow_backup_name is one name"):
        request(name="one").check_count(2)
    with pytest.raises(errors.InvalidInput, match="bootflow_backup_name of instance web: must have 1 to 255"):
        request(name="%(name)s" + "x" * 255).name_of("web")


def test_the_properties_of_the_rotation_take_precedence() -> None:
    given = request(extra={"image_type": "snapshot", "backup_type": "other", "os_distro": "debian"})
    properties = given.properties_of({"hw_disk_bus": "scsi", "image_type": "snapshot"}, "u", "ann")
    assert properties == {
        "hw_disk_bus": "scsi",
        "os_distro": "debian",
        "instance_uuid": "u",
        "user_id": "ann",
        "image_type": "backup",
        "backup_type": "daily",
    }
    assert backups.is_of_type(properties, "daily") and not backups.is_of_type(properties, "weekly")
    assert not backups.is_of_type({**properties, "image_type": "snapshot"}, "daily")


def test_only_backups_of_one_instance_share_a_name() -> None:
    wanted = request()
    assert wanted.existing_of([], "web", "u") is None
    assert wanted.existing_of([image(), image(id="j")], "web", "u") is None
    for other in (image(instance_uuid="v"), image(instance_uuid=None), image(properties={"image_type": "snapshot"})):
        with pytest.raises(errors.ImageExists, match="not a backup of instance web"):
            wanted.existing_of([image(), other], "web", "u")


def test_a_root_on_a_volume_is_refused() -> None:
    with pytest.raises(errors.InvalidInput, match="not supported for volume-backed instances: web") as caught:
        request().check_volume_backed("web", "u", "active")
    assert caught.value.status == 400 and "bootflow.compute.snapshot" in caught.value.remedy
