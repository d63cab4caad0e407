# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import dataclasses
import json

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core.model import Image, NetworkRequest
from ansible_collections.bootflow.compute.plugins.module_utils.core.request import expand
from ansible_collections.bootflow.compute.plugins.module_utils.core.request.expand import (
    IN_PLACE,
    Difference,
    Names,
    difference,
    request_digest,
)


def named(requests, existing=None):
    return [list(names) for names in Names.expand(requests).with_existing(existing or {}).by_request]


@pytest.mark.parametrize("count, names", [(1, ("web",)), (2, ("web-1", "web-2")), (3, ("web-1", "web-2", "web-3"))])
def test_the_names_of_a_request(parse, count, names):
    assert Names.expand([parse(count=count)]).by_request == (names,)


def test_all_names_of_a_project(parse):
    """Also those of first instances that were made while the count was another one."""
    names = Names.expand([parse(count=2), parse(name="db"), parse(name="db", project="p")])
    (default,) = {names.requests[0].project}
    assert names.by_project() == {default: ["db", "db-1", "web", "web-1", "web-2"], "p": ["db", "db-1"]}


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
    assert named([request], {(request.project, "web"): there}) == [names]


def test_a_name_that_another_entry_has_is_not_taken_for_a_first_instance(parse):
    """web-1 was made for an entry web of several; the file has both names now."""
    entries = [parse(name="web"), parse(name="web-1"), parse(name="db")]
    there = {(entries[0].project, "web"): {"web-1", "web-2"}}
    assert named(entries, there) == [["web"], ["web-1"], ["db"]]
    assert named(entries[::-1], there) == [["db"], ["web-1"], ["web"]]
    several = {**there, (entries[0].project, "web-1"): {"web-1-1"}}
    assert named(entries, several) == [["web-1"], ["web-1-1"], ["db"]]


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
    assert not difference(digest, request_digest(other))


LEFT_OUT = {"min_count", "max_count", "admin_password"} | {
    # follows from the hint group, or from flavor, image and settings
    "server_group", "check_server_group_quota", "numa_topology", "pci_requests", "whole_disks", "overhead",
    # what apply keeps an instance in: not what the instance is
    "state", "locked", "locked_reason", "allow",
}  # fmt: skip
CHANGES = {
    "name": "x", "project": "x", "user": "x", "description": "x", "availability_zone": "x", "forced_host": "x",
    "forced_node": "x", "user_data": "x", "config_drive": False, "key_name": "x", "key_data": "x", "access_ip_v4": "1.1.1.1",
    "access_ip_v6": "::1", "disk_config": "AUTO", "hostname": "x", "metadata": {"a": "c"}, "tags": ("x",), "scheduler_hints": {"a": 1},
    "extra": {"a": 1}, "security_groups": ("x",), "networks": (), "injected_files": (), "image": None,
    "root_image": Image(name="x", id="x", disk_format="raw"),
}  # fmt: skip


@pytest.mark.parametrize("field", sorted(CHANGES))
def test_a_change_of_any_field_shows(full, field):
    found = difference(request_digest(full), request_digest(dataclasses.replace(full, **{field: CHANGES[field]})))
    lines = found.in_place if field in IN_PLACE else found.drift if field == "key_data" else found.requested
    assert lines and all(line.startswith(field) for line in lines)
    assert len([part for part in (found.in_place, found.drift, found.requested) if part]) == 1


def test_every_field_of_a_request_is_in_the_digest(full):
    fields = {field.name for field in dataclasses.fields(full)}
    assert set(request_digest(full)) == fields - LEFT_OUT
    assert set(CHANGES) == fields - LEFT_OUT - {"flavor", "block_device_mapping"}


def test_an_instance_is_compared_with_its_request_and_not_with_the_catalogue(full):
    flavor, image = dataclasses.replace(full.flavor, vcpus=8), dataclasses.replace(full.image, checksum="ff" * 32)
    other = dataclasses.replace(full, flavor=flavor, image=image)
    assert difference(request_digest(full), request_digest(other)) == Difference(
        drift=(
            "flavor.vcpus: was 1, is 8",
            "image.checksum: was %s, is %s" % (full.image.checksum or "none", "ff" * 32),
        )
    )
    other = dataclasses.replace(full, flavor=dataclasses.replace(flavor, name="big"))
    assert difference(request_digest(full), request_digest(other)).requested == (
        "flavor: is %s, requested big" % full.flavor.name,
    )


def test_differences_in_words(full):
    """Neither UUIDs nor Python's lists."""
    ids = ["%08d-0000-4000-8000-000000000000" % n for n in range(3)]
    one = dataclasses.replace(full, networks=(NetworkRequest(network=ids[0]),), key_name="mine")
    two = dataclasses.replace(full, networks=(NetworkRequest(network=ids[1]),), key_name=None)
    three = dataclasses.replace(full, networks=(NetworkRequest(network=ids[1]), NetworkRequest(network=ids[2])))
    names = {ids[0]: "blue", ids[1]: "red"}
    assert difference(request_digest(one), request_digest(two), names).requested == (
        "key_name: is mine, requested none",
        "networks[0].network: is blue, requested red",
    )
    assert (
        "networks: is blue, requested red, another id"
        in difference(request_digest(one), request_digest(three), names).requested
    )
    other = dataclasses.replace(full, user_data="x", hostname="h")
    assert difference(request_digest(full), request_digest(other)).requested[-1] == "user_data differs"


def test_a_config_drive_that_nobody_asked_for_is_no_difference(parse):
    """User data brings it: the user data differ."""

    def words(old, new):
        return difference(request_digest(parse(**old)), request_digest(parse(**new))).requested

    (alone,) = words({}, {"user_data": "#cloud-config"})
    assert alone.startswith("user_data: ")
    (alone,) = words({"injected_files": [{"path": "/a", "contents": "eA=="}]}, {})
    assert alone.startswith("injected_files")
    assert words({}, {"config_drive": True}) == ("config_drive: is none, requested true",)
    assert words({}, {"config_drive": False}) == ("config_drive: is none, requested false",)


def test_what_is_equal_is_not_walked(full, monkeypatch):
    digest = request_digest(full)
    walked = []
    monkeypatch.setattr(expand, "_differences", lambda _old, _new, field, *_more: walked.append(field) or [])
    assert not difference(digest, json.loads(json.dumps(digest))) and walked == []
    difference(digest, {**digest, "key_name": "another"})
    assert walked == ["key_name"]
