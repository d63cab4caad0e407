# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What an image of an instance inherits, by the rules of Nova 34."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core.images.snapshot_properties import (
    inherited,
    properties_of_instance,
)

OWN: dict[str, t.Any] = {"id": "base", "disk_format": "qcow2", "min_disk": 5, "min_ram": 512, "properties": {}}


def own(**fields: t.Any) -> dict[str, t.Any]:
    return {**OWN, **fields}


def test_properties_of_the_own_image_are_inherited() -> None:
    found = inherited(own(properties={"hw_machine_type": "q35", "os_distro": "debian"}), 20)
    assert found.properties == {"hw_machine_type": "q35", "os_distro": "debian", "base_image_ref": "base"}
    assert found.min_ram == 512


@pytest.mark.parametrize(
    "name",
    [
        "cache_in_nova",
        "bittorrent",
        "cinder_encryption_key_id",
        "cinder_encryption_key_deletion_policy",
        "img_signature",
        "img_signature_hash_method",
        "img_signature_key_type",
        "img_signature_certificate_uuid",
        "os_glance_import_task",
        "os_glance",
        "mappings",
        "block_device_mapping",
        "img_mappings",
        "img_block_device_mapping",
    ],
)
def test_these_are_not(name: str) -> None:
    assert inherited(own(properties={name: "x"}), 20).properties == {"base_image_ref": "base"}


def test_the_setting_names_others_and_never_permits_those_of_one_image() -> None:
    given = {"cache_in_nova": "1", "os_distro": "debian", "img_signature": "s"}
    assert inherited(own(properties=given), 1, ["os_distro"]).properties == {
        "cache_in_nova": "1",
        "base_image_ref": "base",
    }
    assert inherited(own(properties=given), 1, []).properties == {
        "cache_in_nova": "1",
        "os_distro": "debian",
        "base_image_ref": "base",
    }


def test_values_are_texts_of_at_most_255_characters() -> None:
    found = inherited(
        own(properties={"hw_cpu_cores": 4, "os_require_quiesce": True, "long": "x" * 300, "none": None}), 1
    )
    assert found.properties["hw_cpu_cores"] == "4" and found.properties["os_require_quiesce"] == "True"
    assert found.properties["long"] == "x" * 255 and "none" not in found.properties


def test_an_image_of_a_snapshot_names_the_first_of_the_chain() -> None:
    assert inherited(own(properties={"base_image_ref": "first"}), 1).properties == {"base_image_ref": "first"}


@pytest.mark.parametrize(
    ("disk_format", "min_disk", "root_gb", "expected"),
    [("qcow2", 5, 20, 20), ("raw", 30, 20, 30), ("qcow2", 0, 0, 0), ("vhd", 30, 20, 20)],
)
def test_min_disk(disk_format: str, min_disk: int, root_gb: int, expected: int) -> None:
    assert inherited(own(disk_format=disk_format, min_disk=min_disk), root_gb).min_disk == expected


def test_an_instance_without_an_image_has_nothing_to_inherit() -> None:
    assert inherited(None, 7) == ({}, 7, 0)
    assert inherited({"id": "", "properties": {"os_distro": "debian"}}, 7).properties == {"os_distro": "debian"}


def test_what_a_person_gives_takes_precedence() -> None:
    from_image = {"image_type": "other", "os_distro": "debian", "instance_uuid": "old"}
    found = properties_of_instance(from_image, "new", "ann", extra={"os_distro": "mine", "user_id": "bob"})
    assert found == {"image_type": "snapshot", "os_distro": "mine", "instance_uuid": "new", "user_id": "bob"}
