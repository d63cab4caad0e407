# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.bootflow.compute.plugins.module_utils.core.errors import InvalidRequest
from ansible_collections.bootflow.compute.plugins.module_utils.core.reading.problems import Problems
from ansible_collections.bootflow.compute.plugins.module_utils.core.request.catalogue import parse_catalogue
from ansible_collections.bootflow.compute.plugins.module_utils.core.request.expand import request_digest
from ansible_collections.bootflow.compute.plugins.module_utils.core.request.hints import requested_hints
from ansible_collections.bootflow.compute.plugins.module_utils.core.request.options import RequestOptions
from ansible_collections.bootflow.compute.plugins.module_utils.core.request.server_request import parse_requests

from .conftest import FLAVORS, IMAGES, NETWORKS

A = "0b6e8a3c-1f2d-4c5b-9a7e-6d5c4b3a2f10"
B = "1b6e8a3c-1f2d-4c5b-9a7e-6d5c4b3a2f10"
GROUPS = [
    {"name": "apart", "policy": "anti-affinity", "rules": {"max_server_per_host": 2}},
    {"name": "together", "policy": "affinity"},
    {"name": "rather-apart", "policy": "soft-anti-affinity"},
    {"name": "rather-together", "policy": "soft-affinity"},
    {"name": "theirs", "policy": "affinity", "project": "acme"},
]
CATALOGUE = parse_catalogue(FLAVORS, IMAGES, NETWORKS, None, GROUPS)
BASE = {"name": "web", "flavor": "small", "image": "tiny", "networks": ["blue"]}


def parse(hints, options=None, **fields):
    entry = {**BASE, "scheduler_hints": hints, **fields}
    return parse_requests([entry], CATALOGUE, options or RequestOptions())[0]


def errors(hints, options=None, **fields):
    with pytest.raises(InvalidRequest) as caught:
        parse(hints, options, **fields)
    assert all(e["message"] and e["remedy"] for e in caught.value.errors)
    return [
        (e["path"].replace("instances[0].scheduler_hints.", ""), e["code"], e["status"], e["message"], e["remedy"])
        for e in caught.value.errors
    ]


@pytest.mark.parametrize(
    "hints, found",
    [
        ({}, {}),
        ({"same_host": A}, {"same_host": [A]}),
        ({"same_host": [A, B, A]}, {"same_host": [A, B]}),
        ({"same_host": A.upper()}, {"same_host": [A]}),
        ({"different_host": [A.replace("-", ""), "db-1"]}, {"different_host": [A, "db-1"]}),
        ({"same_host": "db"}, {"same_host": ["db"]}),
        ({"same_host": []}, {}),
        ({"same_host": [A], "different_host": [B]}, {"same_host": [A], "different_host": [B]}),
        ({"query": '[">=", "$free_ram_mb", 1024]'}, {"query": '[">=", "$free_ram_mb", 1024]'}),
        ({"query": [">=", "$free_ram_mb", 1024]}, {"query": '[">=", "$free_ram_mb", 1024]'}),
        ({"query": "[]"}, {}),
        ({"query": ""}, {}),
        ({"query": []}, {}),
        ({"query": ["not", ["=", "$host", "kvm1"]]}, {"query": '["not", ["=", "$host", "kvm1"]]'}),
        ({"build_near_host_ip": "192.0.2.7"}, {"build_near_host_ip": "192.0.2.7"}),
        ({"build_near_host_ip": "2001:DB8:0::1", "cidr": "/64"}, {"build_near_host_ip": "2001:db8::1", "cidr": "/64"}),
        ({"build_near_host_ip": "192.0.2.7", "cidr": "/24"}, {"build_near_host_ip": "192.0.2.7", "cidr": "/24"}),
        (
            {"build_near_host_ip": "192.0.2.7", "cidr": "/255.255.255.0"},
            {"build_near_host_ip": "192.0.2.7", "cidr": "/255.255.255.0"},
        ),
    ],
)
def test_hints_come_out_in_one_form(hints, found):
    assert parse(hints).scheduler_hints == found


@pytest.mark.parametrize(
    "hints, path, message",
    [
        ({"same_host": 5}, "same_host", "must be a text or a list"),
        ({"same_host": {"a": 1}}, "same_host", ""),
        ({"same_host": [5]}, "same_host[0]", "must be a text"),
        ({"same_host": ""}, "same_host", "at least 1"),
        ({"different_host": ["a\x00"]}, "different_host[0]", "not printable"),
        ({"same_host": None}, "same_host", ""),
        ({"same_host": [A, "db"], "different_host": ["db", B]}, "same_host", "both name 'db'"),
        ({"same_host": A.upper(), "different_host": A}, "same_host", "both name '%s'" % A),
        ({"group": ["apart", "together"]}, "group", "must be a text, not a list"),
        ({"group": ""}, "group", "at least 1"),
        ({"query": "{"}, "query", "not JSON"),
        ({"query": '"free"'}, "query", "not a list"),
        ({"query": "5"}, "query", "not a list"),
        ({"query": '{"=": 1}'}, "query", "not a list"),
        ({"query": {"=": 1}}, "query", "must be a text or a list"),
        ({"query": ["~", 1]}, "query", "not an operator"),
        ({"query": [5, 1]}, "query", "not an operator"),
        ({"query": ["and", ["xor", 1, 2]]}, "query", "'xor' is not an operator"),
        ({"query": ["in", "$host", ["kvm1", "kvm2"]]}, "query", "'kvm1' is not an operator"),
        ({"query": '["not",' * 500 + "1" + "]" * 500}, "query", "nested"),
        ({"query": '["not",' * 90000 + "1" + "]" * 90000}, "query", "is not valid"),
        ({"build_near_host_ip": "kvm1"}, "build_near_host_ip", "is not an IP address"),
        ({"build_near_host_ip": "fe80::1%eth0"}, "build_near_host_ip", "is not an IP address"),
        ({"build_near_host_ip": "192.0.2.7", "cidr": "24"}, "cidr", "must be the length of a prefix"),
        ({"build_near_host_ip": "192.0.2.7", "cidr": "/33"}, "cidr", "192.0.2.7/33 is not a network"),
        ({"build_near_host_ip": "2001:db8::1", "cidr": "/129"}, "cidr", "is not a network"),
        ({"cidr": "/24"}, "cidr", "would be ignored without build_near_host_ip"),
        ({"mine": 1}, "mine", "no filter reads it"),
        ({"sam_host": A}, "sam_host", "no filter reads it"),
    ],
)
def test_hints_that_cannot_be(hints, path, message):
    found = errors(hints)
    assert {where for where, *_rest in found} == {path}
    assert all((code, status) == ("InvalidInput", 400) for _w, code, status, *_rest in found)
    assert any(message in text for _w, _c, _s, text, _r in found)


@pytest.mark.parametrize(
    "read, near",
    [(None, "Did you mean same_host? Leave"), (("same_host",), "Did you mean same_host? Leave"), ((), "Leave")],
)
def test_the_nearest_hint_is_one_that_something_reads(read, near):
    ((_path, _code, _status, _message, remedy),) = errors({"same-hosts": A}, RequestOptions(hints_read=read))
    assert remedy.startswith(near)


def test_every_wrong_hint_is_told():
    found = errors({"group": "nobody", "same_host": [A], "different_host": [A], "query": "{", "cidr": "/24", "mine": 1})
    assert sorted(path for path, *_rest in found) == ["cidr", "group", "mine", "query", "same_host"]


def test_the_users_own_hints_are_handed_on_as_they_are():
    own = RequestOptions(extra_hint_names=["rack", "query", "cidr", "same_host", "different_host"], hints_read=())
    hints = {"rack": {"row": [4]}, "query": "free text", "cidr": "/1", "same_host": ["x"], "different_host": ["x"]}
    assert parse(hints, own).scheduler_hints == hints
    assert parse({"zone": None}, RequestOptions(hints_read=["zone"])).scheduler_hints == {"zone": None}


# --- what reads a hint ------------------------------------------------------------------------------------------------

HINTS = {
    "same_host": (A, "SameHostFilter"),
    "different_host": (A, "DifferentHostFilter"),
    "query": ('["=", 1, 1]', "JsonFilter"),
    "build_near_host_ip": ("192.0.2.1", "SimpleCIDRAffinityFilter"),
}


@pytest.mark.parametrize("name", sorted(HINTS))
def test_a_hint_that_no_enabled_filter_reads(name):
    value, wanted = HINTS[name]
    ((path, code, status, message, remedy),) = errors({name: value}, RequestOptions(hints_read=()))
    assert (path, code, status) == (name, "InvalidInput", 400)
    assert message == "Scheduler hint %s would be ignored: %s is not enabled" % (name, wanted)
    assert remedy.startswith("Add %s to bootflow_enabled_filters" % wanted)
    assert name in parse({name: value}, RequestOptions(hints_read=[name])).scheduler_hints
    assert name in parse({name: value}, RequestOptions(hints_read=None)).scheduler_hints


# --- server groups ----------------------------------------------------------------------------------------------------


def test_a_group_by_name_and_by_id_is_the_same_request():
    group = CATALOGUE.server_groups["default", "apart"]
    by_name, by_id = parse({"group": "apart"}), parse({"group": group.id})
    assert by_name.server_group is by_id.server_group is group
    assert by_name.scheduler_hints == {"group": group.id}
    assert request_digest(by_name) == request_digest(by_id)
    assert parse({}).server_group is None


def test_a_group_of_the_entrys_project():
    assert parse({"group": "theirs"}, project="acme").server_group.project == "acme"
    for hints, fields in (({"group": "theirs"}, {}), ({"group": "apart"}, {"project": "acme"}), ({"group": A}, {})):
        ((path, code, status, message, _remedy),) = errors(hints, **fields)
        assert (path, code, status) == ("group", "InstanceGroupNotFound", 400)
        assert message == "Instance group %s could not be found." % hints["group"]


@pytest.mark.parametrize(
    "group, wanted, setting",
    [
        ("apart", "ServerGroupAntiAffinityFilter", "bootflow_enabled_filters"),
        ("together", "ServerGroupAffinityFilter", "bootflow_enabled_filters"),
        ("rather-apart", "ServerGroupSoftAntiAffinityWeigher", "bootflow_weighers"),
        ("rather-together", "ServerGroupSoftAffinityWeigher", "bootflow_weighers"),
    ],
)
def test_a_policy_that_nothing_keeps(group, wanted, setting):
    bare = RequestOptions(hints_read=(), enabled_filters=["RamFilter"], enabled_weighers=["RAMWeigher"])
    ((path, code, status, message, remedy),) = errors({"group": group}, bare)
    assert (path, code, status) == ("group", "UnsupportedPolicyException", 400)
    assert message == "ServerGroup policy is not supported: %s not configured" % wanted
    assert remedy.startswith("Add %s to %s" % (wanted, setting))
    field = "enabled_filters" if setting == "bootflow_enabled_filters" else "enabled_weighers"
    enough = RequestOptions(**{"enabled_filters": ["x"], "enabled_weighers": ["x"], field: [wanted]})
    assert parse({"group": group}, enough).server_group.name == group


def test_who_may_leave_the_quota_of_members_out():
    ordinary = RequestOptions(allow_forced_host=False)
    assert parse({"group": "apart"}, ordinary).check_server_group_quota is True
    assert parse({"group": "apart"}, ordinary, check_server_group_quota="yes").check_server_group_quota is True
    assert parse({}, ordinary, check_server_group_quota=False).check_server_group_quota is False
    assert parse({"group": "apart"}, check_server_group_quota="no").check_server_group_quota is False
    ((path, code, status, _message, remedy),) = errors({"group": "apart"}, ordinary, check_server_group_quota=False)
    assert (path, code, status) == ("instances[0].check_server_group_quota", "PolicyNotAuthorized", 403)
    assert "bootflow_allow_forced_host" in remedy


# --- laws -------------------------------------------------------------------------------------------------------------

json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(max_size=6)
    | st.sampled_from(["=", "and", "not", "$host"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=12,
)


@given(json_values)
def test_a_query_is_refused_or_means_the_same_afterwards(value):
    problems = Problems()
    found, _group = requested_hints({"query": json.dumps(value)}, "p", CATALOGUE, RequestOptions(), "h", problems)
    if problems.errors:
        assert value and (not isinstance(value, list) or "query" not in found)
    elif value:
        assert json.loads(found["query"]) == value
    else:
        assert found == {}


@given(st.lists(st.sampled_from([A, B, "a", "b"])), st.lists(st.sampled_from([A, B, "a", "b"])))
def test_same_and_different_never_name_one_instance(same, different):
    problems = Problems()
    hints = {"same_host": same, "different_host": different}
    found, _group = requested_hints(hints, "p", CATALOGUE, RequestOptions(), "h", problems)
    assert bool(problems.errors) == bool(set(same) & set(different))
    assert set(found.get("same_host", ())) == set(same) and set(found.get("different_host", ())) == set(different)
