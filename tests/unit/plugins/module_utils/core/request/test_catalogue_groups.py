# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import uuid

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core.errors import InstanceGroupNotFound, InvalidRequest
from ansible_collections.bootflow.compute.plugins.module_utils.core.request.catalogue import parse_catalogue


def parse(groups=None, aliases=None, **others):
    return parse_catalogue(None, None, None, None, groups, aliases, **others)


def failures(groups=None, aliases=None):
    with pytest.raises(InvalidRequest) as caught:
        parse(groups, aliases)
    assert all(error["remedy"] for error in caught.value.errors)
    return [(error["path"], error["message"]) for error in caught.value.errors]


GROUPS = [
    {"name": "web", "policy": "anti-affinity", "rules": {"max_server_per_host": 3}},
    {"name": "web", "policy": "affinity", "project": "acme"},
    {"name": "db", "policies": ["soft-anti-affinity"], "id": "0b6e8a3c-1f2d-4c5b-9a7e-6d5c4b3a2f10"},
    {"name": "near", "policy": "soft-affinity", "rules": {}},
]


def test_groups_with_their_defaults():
    found = parse(GROUPS, default_project="ours").server_groups
    assert {key: (g.name, g.project, g.policy, g.max_server_per_host) for key, g in found.items()} == {
        ("ours", "web"): ("web", "ours", "anti-affinity", 3),
        ("acme", "web"): ("web", "acme", "affinity", 1),
        ("ours", "db"): ("db", "ours", "soft-anti-affinity", 1),
        ("ours", "near"): ("near", "ours", "soft-affinity", 1),
    }
    assert not any(g.members or g.host_counts for g in found.values())


def test_an_id_follows_from_project_and_name():
    found = parse(GROUPS).server_groups
    ids = [g.id for g in found.values()]
    assert len(set(ids)) == 4 and all(str(uuid.UUID(i)) == i for i in ids)
    assert found["default", "db"].id == "0b6e8a3c-1f2d-4c5b-9a7e-6d5c4b3a2f10"
    assert parse(GROUPS).server_groups == found
    tricky = [
        {"name": "b/c", "project": "a", "policy": "affinity"},
        {"name": "c", "project": "a/b", "policy": "affinity"},
    ]
    assert len({g.id for g in parse(tricky).server_groups.values()}) == 2


def test_keyed_groups_are_the_same():
    keyed = {"web": {"policy": "anti-affinity", "rules": {"max_server_per_host": "3"}}}
    assert parse(keyed).server_groups == parse(GROUPS[:1]).server_groups
    assert parse(None).server_groups == parse([]).server_groups == {}


def test_a_group_is_found_by_id_or_name_in_its_project_only():
    catalogue = parse(GROUPS)
    web = catalogue.server_groups["default", "web"]
    assert catalogue.server_group("default", "web") is catalogue.server_group("default", web.id) is web
    assert catalogue.server_group("acme", "web").policy == "affinity"
    for project, name in (("acme", "db"), ("acme", web.id), ("default", "nobody"), ("nobody", "web")):
        with pytest.raises(InstanceGroupNotFound, match="could not be found") as caught:
            catalogue.server_group(project, name)
        assert caught.value.status == 400
    assert (
        "has: db, near, web"
        in pytest.raises(InstanceGroupNotFound, catalogue.server_group, "default", "x").value.remedy
    )


@pytest.mark.parametrize(
    "entry, path, message",
    [
        ({"policy": "affinity"}, "server_groups[0].name", "name is missing"),
        ({"name": "g"}, "server_groups[g].policy", "policy is missing"),
        ({"name": "g", "policy": "together"}, "server_groups[g].policy", "policy 'together' is not known"),
        ({"name": "g", "policy": 5}, "server_groups[g].policy", "policy 5 is not known"),
        (
            {"name": "g", "policy": ["affinity", "anti-affinity"]},
            "server_groups[g].policy",
            "policy must be exactly one",
        ),
        (
            {"name": "g", "policies": ["affinity", "anti-affinity"]},
            "server_groups[g].policies",
            "policies must be a list of exactly one policy",
        ),
        ({"name": "g", "policies": []}, "server_groups[g].policies", "policies must be a list of exactly one policy"),
        (
            {"name": "g", "policies": "affinity"},
            "server_groups[g].policies",
            "policies must be a list of exactly one policy",
        ),
        (
            {"name": "g", "policy": "affinity", "policies": ["affinity"]},
            "server_groups[g].policies",
            "policies excludes policy",
        ),
        (
            {"name": "g", "policy": "affinity", "rules": {"max_server_per_host": 2}},
            "server_groups[g].rules",
            "rules are only for the policy anti-affinity",
        ),
        (
            {"name": "g", "policy": "soft-anti-affinity", "rules": {"max_server_per_host": 2}},
            "server_groups[g].rules",
            "rules are only for the policy anti-affinity",
        ),
        (
            {"name": "g", "policy": "anti-affinity", "rules": {"max_server_per_host": 0}},
            "server_groups[g].rules.max_server_per_host",
            "max_server_per_host must be between 1 and",
        ),
        (
            {"name": "g", "policy": "anti-affinity", "rules": {"max_server_per_host": "many"}},
            "server_groups[g].rules.max_server_per_host",
            "max_server_per_host must be an integer",
        ),
        (
            {"name": "g", "policy": "anti-affinity", "rules": {"most": 1}},
            "server_groups[g].rules.most",
            "Unknown field 'most'",
        ),
        ({"name": "g", "policy": "anti-affinity", "rules": [1]}, "server_groups[g].rules", "rules must be a mapping"),
        ({"name": "g", "policy": "affinity", "polcy": 1}, "server_groups[g].polcy", "Unknown field 'polcy'"),
        ({"name": "g\n", "policy": "affinity"}, "server_groups[0].name", "name character 2 (U+000A) is not printable"),
        ({"name": "g", "policy": "affinity", "project": ""}, "server_groups[g].project", "project must have 1 to 255"),
        ("g", "server_groups[0]", "must be a mapping with a name"),
    ],
)
def test_a_group_that_is_wrong(entry, path, message):
    ((where, text),) = failures([entry])
    assert where == path and text.startswith(message)


def test_all_problems_at_once_and_doubles():
    found = failures(
        [
            {"name": "a", "policy": "affinity"},
            {"name": "a", "policy": "affinity", "id": "other"},
            {"name": "b", "policy": "affinity", "id": "i"},
            {"name": "c", "policy": "x", "id": "i"},
        ]
    )
    assert [path for path, _text in found] == [
        "server_groups[a].name",
        "server_groups[c].policy",
        "server_groups[c].id",
    ]
    assert failures("web") == [("server_groups", "must be a list of mappings")]


# --- bootflow_pci_alias -----------------------------------------------------------------------------------------------

GPU = {"name": "gpu", "vendor_id": "10de", "product_id": "1b38", "device_type": "type-PCI"}


def test_aliases_are_read_with_the_catalogue():
    aliases = parse(
        aliases=[
            GPU,
            {"name": "nic", "vendor_id": "8086"},
            '{"name": "gpu", "vendor_id": "10df", "device_type": "type-PCI"}',
        ]
    ).pci_aliases
    assert set(aliases) == {"gpu", "nic"}
    assert [spec["vendor_id"] for spec in aliases["gpu"].spec] == ["10de", "10df"]
    assert not parse(aliases=None).pci_aliases and not parse(aliases=[]).pci_aliases


def test_all_wrong_aliases_at_once():
    found = failures(aliases=[{**GPU, "vendor_id": 10}, GPU, {**GPU, "colour": "red"}, "{"])
    assert [path for path, _text in found] == ["pci_alias[0]", "pci_alias[2]", "pci_alias[3]"]
    assert all(text.startswith("Invalid PCI alias definition") for _path, text in found)
    assert failures(aliases={"gpu": GPU}) == [("pci_alias", "must be a list of mappings")]


def test_two_definitions_of_one_alias_that_contradict():
    ((path, text),) = failures(aliases=[GPU, {**GPU, "device_type": "type-VF"}])
    assert path == "pci_alias" and "Device type mismatch" in text
