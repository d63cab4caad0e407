# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import dataclasses
import json

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core.model import Image
from ansible_collections.bootflow.compute.plugins.module_utils.core.request.expand import (
    describe_difference,
    instance_names,
    names_with,
    request_digest,
    server_names,
)


@pytest.mark.parametrize("count, names", [(1, ["web"]), (2, ["web-1", "web-2"]), (0, [])])
def test_instance_names(parse, count, names):
    assert instance_names(parse(), count) == names


@pytest.mark.parametrize(
    ("count", "there", "names"),
    [
        (3, (), ["web-1", "web-2", "web-3"]),
        (3, ("web",), ["web", "web-2", "web-3"]),
        (3, ("web", "web-2"), ["web", "web-2", "web-3"]),
        (3, ("web", "web-1"), ["web-1", "web-2", "web-3"]),
        (1, ("web-1", "web-2"), ["web-1"]),
        (1, ("web-2",), ["web"]),
        (1, ("web", "web-1"), ["web"]),
    ],
)
def test_the_first_instance_keeps_its_name_when_the_count_changes(parse, count, there, names):
    request = parse(count=count)
    assert names_with(request, server_names(request), there) == names


def test_server_names(parse):
    assert server_names(parse(count=3)) == ["web-1", "web-2", "web-3"]
    assert server_names(parse()) == ["web"]


@pytest.fixture(name="full")
def full_fixture(parse):
    return parse(
        user_data="SECRET-1",
        injected_files=[{"path": "/a", "contents": "U0VDUkVULTI="}],
        admin_password="SECRET-3",
        metadata={"a": "b"},
        key_name="mine",
    )


def test_the_digest_is_plain_data_without_secrets(full):
    text = json.dumps(request_digest(full))
    assert json.loads(text) == request_digest(full)
    assert "SECRET" not in text and "U0VDUkVULTI=" not in text


def test_the_digest_ignores_counts_password_and_where_the_image_is(full):
    digest = request_digest(full)
    image = dataclasses.replace(full.image, url="http://elsewhere/x")
    other = dataclasses.replace(full, min_count=2, max_count=9, admin_password="x", image=image)
    assert request_digest(other) == digest
    assert describe_difference(digest, request_digest(other)) == []


LEFT_OUT = {"min_count", "max_count", "admin_password"} | {
    # follows from the hint group, or from flavor and image, which are there
    "server_group", "check_server_group_quota", "numa_topology", "pci_requests", "whole_disks",
}  # fmt: skip
CHANGES = {
    "name": "x", "project": "x", "user": "x", "description": "x", "availability_zone": "x", "forced_host": "x",
    "forced_node": "x", "user_data": "x", "config_drive": False, "key_name": "x", "key_data": "x", "access_ip_v4": "1.1.1.1",
    "access_ip_v6": "::1", "disk_config": "AUTO", "hostname": "x", "metadata": {"a": "c"}, "scheduler_hints": {"a": 1},
    "extra": {"a": 1}, "security_groups": ("x",), "networks": (), "injected_files": (), "image": None,
    "root_image": Image(name="x", id="x", disk_format="raw"),
}  # fmt: skip


@pytest.mark.parametrize("field", sorted(CHANGES))
def test_a_change_of_any_field_shows(full, field):
    lines = describe_difference(
        request_digest(full), request_digest(dataclasses.replace(full, **{field: CHANGES[field]}))
    )
    assert lines and all(line.startswith(field) for line in lines)


def test_every_field_of_a_request_is_in_the_digest(full):
    fields = {field.name for field in dataclasses.fields(full)}
    assert set(request_digest(full)) == fields - LEFT_OUT
    assert set(CHANGES) == fields - LEFT_OUT - {"flavor", "block_device_mapping"}


def test_differences_name_the_path(full):
    other = dataclasses.replace(full, flavor=dataclasses.replace(full.flavor, vcpus=8))
    assert describe_difference(request_digest(full), request_digest(other)) == ["flavor.vcpus: 1 -> 8"]
    other = dataclasses.replace(full, metadata={"a": "c"})
    assert describe_difference(request_digest(full), request_digest(other)) == ["metadata.a: 'b' -> 'c'"]
