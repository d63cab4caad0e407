# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A guess that is wrong misleads more than none."""

from __future__ import annotations

import pathlib

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core.errors import InvalidInput
from ansible_collections.bootflow.compute.plugins.module_utils.core.instances import quotas
from ansible_collections.bootflow.compute.plugins.module_utils.core.reading.fields import Fields
from ansible_collections.bootflow.compute.plugins.module_utils.core.reading.nearest import field_suggestion, nearest
from ansible_collections.bootflow.compute.plugins.module_utils.core.reading.problems import Problems
from ansible_collections.bootflow.compute.plugins.module_utils.core.scheduler.registry import check_names
from ansible_collections.bootflow.compute.plugins.module_utils.core.settings import table

FIELDS = ("flavor", "image", "key_name", "metadata", "networks", "security_groups", "tags", "user_data", "volume_type")


@pytest.mark.parametrize(
    "asked, near",
    [
        ("flavour", "flavor"),
        ("falvor", "flavor"),
        ("userData", "user_data"),
        ("user-data", "user_data"),
        ("securitygroups", "security_groups"),
        ("Tags", "tags"),
        ("gats", "tags"),
        ("type", "volume_type"),
        ("server_group", ""),
        ("mode", ""),
        ("dns", ""),
        ("ip", ""),
        ("", ""),
        ("x" * 100_000, ""),
    ],
)
def test_only_what_is_near_is_named(asked: str, near: str) -> None:
    assert nearest(asked, FIELDS) == near


def test_without_a_near_one_all_are_listed_where_they_are_few() -> None:
    assert field_suggestion("dns", FIELDS, "docs/x.md") == "Known fields: %s." % ", ".join(FIELDS)
    assert field_suggestion("dns", [*FIELDS, *"abcdef"], "docs/x.md") == "Remove it; docs/x.md lists the fields."


@pytest.mark.parametrize(
    "asked, known, near",
    [
        ("image_id", ("image", "name"), "image"),
        ("imageRef", ("image", "name"), "image"),
        ("flavorRef", ("flavor", "flavorid"), "flavor"),
        ("ram", ("memory_mb", "root_gb", "vcpus"), "memory_mb"),
        ("vcpu", ("memory_mb", "root_gb", "vcpus"), "vcpus"),
        ("cores", ("memory_mb", "root_gb", "vcpus"), "vcpus"),
        ("disk", ("memory_mb", "root_gb", "vcpus"), "root_gb"),
        ("OS-FLV-EXT-DATA:ephemeral", ("ephemeral_gb", "root_gb"), "ephemeral_gb"),
        ("properties", ("extra_specs", "name"), "extra_specs"),
        ("property", ("metadata", "name"), "metadata"),
        ("nics", ("name", "networks"), "networks"),
        ("key", ("key_name", "name"), "key_name"),
        ("key-name", ("key_name", "name"), "key_name"),
        ("user-data", ("user_data", "user_data_base64"), "user_data"),
        ("adminPass", ("admin_password", "name"), "admin_password"),
        ("accessIPv4", ("access_ip_v4", "access_ip_v6"), "access_ip_v4"),
        ("OS-DCF:diskConfig", ("disk_config", "name"), "disk_config"),
        ("os:scheduler_hints", ("scheduler_hints", "name"), "scheduler_hints"),
        ("net-id", ("network", "uuid"), "network"),
        ("v4-fixed-ip", ("network", "fixed_ip"), "fixed_ip"),
        ("gateway", ("cidr", "gateway_ip"), "gateway_ip"),
        ("subnet-range", ("cidr", "gateway_ip"), "cidr"),
        ("server", ("instance", "volume"), "instance"),
        ("disk-format", ("disk_format",), "disk_format"),
        # A short word with another letter is another word.
        ("mode", ("node",), ""),
        ("time", ("type",), ""),
        ("port", ("host",), ""),
        ("flavors", ("flavor",), "flavor"),
        ("policy", ("policies",), "policies"),
    ],
)
def test_words_of_the_clients_of_openstack(asked: str, known: tuple[str, ...], near: str) -> None:
    assert nearest(asked, known) == near


@pytest.mark.parametrize(
    "asked, near",
    [
        ("bootflow_flavor", "bootflow_flavors"),
        ("bootflow_servers", "bootflow_instances"),
        ("bootflow_keypair", "bootflow_keypairs"),
        ("bootflow_max_atempts", "bootflow_max_attempts"),
        ("bootflow_tenant", "bootflow_project"),
        ("bootflow_alt", ""),  # bootflow_all, but for a third of its letters
        ("bootflow_rack", ""),
        ("bootflow_site", ""),
    ],
)
def test_a_variable_is_near_by_what_follows_the_prefix(asked: str, near: str) -> None:
    assert table.unknown([asked]) == {asked: near}


def test_a_field_that_the_entry_refuses_is_not_named() -> None:
    problems = Problems()
    fields = Fields({"header": {}, "pth": "/x"}, "images[a]", problems)
    fields.text("path")
    fields.mapping("headers")
    fields.refuse("headers", fields.has("headers"), "has no effect")
    fields.unknown()
    assert {e["path"]: e["remedy"] for e in problems.errors} == {
        "images[a].header": "Known fields: path.",
        "images[a].pth": "Did you mean path?",
    }


def test_whatever_lists_names_asks_for_the_nearest() -> None:
    with pytest.raises(InvalidInput) as caught:
        quotas.limits_of({"instnaces": 1}, "p")
    assert caught.value.remedy.startswith("Did you mean instances? Known: ")
    with pytest.raises(InvalidInput) as caught:
        check_names("filter", ["RamFiltr"], ["DiskFilter", "RamFilter"], "bootflow_enabled_filters")
    assert caught.value.remedy == "Did you mean RamFilter? bootflow_enabled_filters may hold: DiskFilter, RamFilter."


def test_nothing_else_compares_names_by_itself() -> None:
    plugins = pathlib.Path(__file__).parents[6] / "plugins"
    users = [path for path in plugins.rglob("*.py") if "difflib" in path.read_text("utf-8")]
    assert plugins.is_dir() and not users, users
