# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Platforms of molecule as requested instances."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.core.molecule_platforms import (
    Platform,
    instance_config,
    inventory,
    project_name,
    read_platforms,
)

FIELDS = {"flavor": "small", "image": "debian"}
WEB = {"name": "web", "bootflow": FIELDS}
GUESTS = {"web": {"ansible_host": "10.0.0.2", "ansible_ssh_common_args": "-o X=y"}}


def refusals(platforms: t.Any) -> list[tuple[str, str]]:
    with pytest.raises(errors.InvalidRequest) as raised:
        read_platforms({"platforms": platforms})
    assert all(error["remedy"] for error in raised.value.errors)
    return [(error["path"], error["message"]) for error in raised.value.errors]


def test_platforms_have_the_logins_of_the_scenario_where_they_have_none() -> None:
    entries = [WEB, {**WEB, "name": "db", "user": "root", "identity_file": "/k", "port": 2222, "groups": ["x"]}]
    assert read_platforms({"platforms": entries}, "debian", "/key") == [
        Platform("web", FIELDS, "debian", "/key", 22),
        Platform("db", FIELDS, "root", "/k", 2222),
    ]


@pytest.mark.parametrize("config", [None, [], {}, {"platforms": None}, {"platforms": []}, {"platforms": {"a": 1}}])
def test_a_file_without_platforms(config: t.Any) -> None:
    with pytest.raises(errors.InvalidRequest, match="has no platforms"):
        read_platforms(config)


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ("web", "a platform is a mapping, got 'web'"),
        ({}, "the name of a platform is the hostname of its guest, got None"),
        ({**WEB, "name": "a_b"}, "got 'a_b'"),
        ({**WEB, "name": "-a"}, "got '-a'"),
        ({**WEB, "name": "a\n"}, "got 'a\\n'"),
        ({**WEB, "name": "a" * 64}, "has 64 characters, and a hostname at most 63"),
        ({"name": "web"}, "platform web has no mapping bootflow"),
        ({"name": "web", "bootflow": {"image": "debian"}}, "platform web has no flavor"),
        ({"name": "web", "bootflow": {"flavor": "small"}}, "platform web has no image"),
        ({"name": "web", "bootflow": {**FIELDS, "count": 2}}, "platform web has bootflow.count"),
        ({"name": "web", "bootflow": {**FIELDS, "project": "x"}}, "platform web has bootflow.project"),
        ({**WEB, "port": 0}, "platform web has the port 0"),
        ({**WEB, "port": True}, "platform web has the port True"),
        ({**WEB, "user": 3}, "platform web has the user 3"),
    ],
)
def test_a_platform_that_cannot_be_booted(entry: t.Any, message: str) -> None:
    ((path, said),) = refusals([entry])
    assert path == "platforms[0]" and message in said


def test_all_errors_are_reported_together() -> None:
    assert [path for path, _said in refusals([WEB, {**WEB, "name": "WEB"}, "x"])] == ["platforms[1]", "platforms[2]"]


def test_a_root_disk_may_be_a_volume() -> None:
    fields = {"flavor": "small", "block_device_mapping": [{"boot_index": 0}]}
    assert read_platforms({"platforms": [{"name": "a" * 63, "bootflow": fields}]})[0].fields == fields


def test_each_job_has_its_project() -> None:
    names = {project_name("", machine, folder) for machine in ("a", "b") for folder in ("/x", "/y")}
    assert len(names) == 4 and all(name.startswith("molecule-") and len(name) == 25 for name in names)
    assert project_name("", "a", "/x") in names and project_name("ci-42", "a", "/x") == "molecule-ci-42"


@pytest.mark.parametrize("run", ["a b", "-a", "a/b", "a" * 101, "a\n"])
def test_a_run_whose_name_cannot_be_one(run: str) -> None:
    with pytest.raises(errors.InvalidInput, match="bootflow_molecule_run is"):
        project_name(run, "a", "/x")


def test_what_molecule_reads() -> None:
    platforms = [Platform("web", FIELDS, "debian", "/k", 22)]
    assert instance_config(platforms, GUESTS) == [
        {"instance": "web", "address": "10.0.0.2", "port": 22, "user": "debian", "identity_file": "/k"}
    ]
    assert inventory(platforms, GUESTS, 60)["molecule_guests"]["hosts"]["web"] == {
        **GUESTS["web"],
        "ansible_port": 22,
        "ansible_user": "debian",
        "ansible_ssh_private_key_file": "/k",
    }
    bare = [Platform("web", FIELDS, "", "", 22)]
    assert instance_config(bare, GUESTS) == [{"instance": "web", "address": "10.0.0.2", "port": 22}]
    assert inventory(bare, GUESTS, 60) == {
        "molecule_guests": {
            "hosts": {"web": {**GUESTS["web"], "ansible_port": 22}},
            "vars": {"bootflow_molecule_wait": 60},
        }
    }
