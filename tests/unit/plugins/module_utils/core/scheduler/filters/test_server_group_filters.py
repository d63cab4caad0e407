# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import numpy as np
import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core.errors import NoValidHost
from ansible_collections.bootflow.compute.plugins.module_utils.core.instances.server_groups import POLICIES, ServerGroup
from ansible_collections.bootflow.compute.plugins.module_utils.core.model import Flavor
from ansible_collections.bootflow.compute.plugins.module_utils.core.scheduler.columns import Fleet
from ansible_collections.bootflow.compute.plugins.module_utils.core.scheduler.filters.server_group_filters import (
    ServerGroupAffinityFilter,
    ServerGroupAntiAffinityFilter,
)
from ansible_collections.bootflow.compute.plugins.module_utils.core.scheduler.host_state import HostState
from ansible_collections.bootflow.compute.plugins.module_utils.core.scheduler.placement import select_destinations
from ansible_collections.bootflow.compute.plugins.module_utils.core.scheduler.request_spec import RequestSpec

from ..reference import make_options


def fleet(*names, machines=None, **more):
    hosts = [HostState(n, "node-" + n, memory_mb=4096, local_gb=100, vcpus=4, **more.get(n, {})) for n in names]
    return Fleet(hosts, machines)


def group(policy, most=1, **counts):
    return ServerGroup("g1", "web", policy, most, host_counts=counts)


def spec(of_group, *uuids):
    return RequestSpec(list(uuids or ["u"]), Flavor("f", 256, 1), instance_group=of_group)


def passing(cls, of_group, where=None, uuids=()):
    where = where or fleet("a", "b", "c")
    filter_ = cls(make_options())
    result = filter_.evaluate(where, spec(of_group, *uuids), where.all_rows())
    for row in where.all_rows():
        assert bool(filter_.evaluate(where, spec(of_group, *uuids), row).mask) == result.mask[row]
    return [where.hosts[r].host for r in np.flatnonzero(result.mask)]


@pytest.mark.parametrize(
    ("cls", "of_group", "expected"),
    [
        (ServerGroupAntiAffinityFilter, None, "abc"),
        (ServerGroupAntiAffinityFilter, group("anti-affinity"), "abc"),
        (ServerGroupAntiAffinityFilter, group("anti-affinity", a=1, c=1), "b"),
        (ServerGroupAntiAffinityFilter, group("anti-affinity", a=1, b=0), "bc"),
        (ServerGroupAntiAffinityFilter, group("anti-affinity", 2, a=1, b=2, c=3), "a"),
        (ServerGroupAntiAffinityFilter, group("anti-affinity", elsewhere=1), "abc"),
        (ServerGroupAntiAffinityFilter, group("affinity", a=1), "abc"),
        (ServerGroupAntiAffinityFilter, group("soft-anti-affinity", a=1), "abc"),
        (ServerGroupAffinityFilter, None, "abc"),
        (ServerGroupAffinityFilter, group("affinity"), "abc"),
        (ServerGroupAffinityFilter, group("affinity", b=2), "b"),
        (ServerGroupAffinityFilter, group("affinity", b=2, c=1), "bc"),
        (ServerGroupAffinityFilter, group("affinity", elsewhere=1), ""),  # the members are on none of these
        (ServerGroupAffinityFilter, group("anti-affinity", b=2), "abc"),
        (ServerGroupAffinityFilter, group("soft-affinity", b=2), "abc"),
    ],
)
def test_who_passes(cls, of_group, expected):
    assert "".join(passing(cls, of_group)) == expected


# a and b are names of one machine, and so was d, which the inventory has no more.
SAME = {"a": "a", "b": "a", "d": "a"}


@pytest.mark.parametrize(
    ("cls", "of_group", "expected"),
    [
        (ServerGroupAntiAffinityFilter, group("anti-affinity", a=1), "c"),
        (ServerGroupAntiAffinityFilter, group("anti-affinity", d=1), "c"),
        (ServerGroupAntiAffinityFilter, group("anti-affinity", 2, a=1), "abc"),
        (ServerGroupAntiAffinityFilter, group("anti-affinity", 2, a=1, d=1, c=1), "c"),
        (ServerGroupAffinityFilter, group("affinity", b=1), "ab"),
        (ServerGroupAffinityFilter, group("affinity", d=1), "ab"),
    ],
)
def test_names_of_one_machine_are_one_host(cls, of_group, expected):
    assert "".join(passing(cls, of_group, fleet("a", "b", "c", machines=SAME))) == expected


def test_a_member_that_was_just_placed_is_under_each_name_of_its_machine():
    where = fleet("a", "b", "c", machines=SAME)
    of_group = group("anti-affinity")
    assert sorted(place(where, 2, of_group, **FILTERS)) in (["a", "c"], ["b", "c"])
    with pytest.raises(NoValidHost):
        place(fleet("a", "b", "c", machines=SAME), 3, of_group, **FILTERS)
    soft = {"enabled_filters": ["RamFilter"], "weighers": ["ServerGroupSoftAntiAffinityWeigher"]}
    assert "c" in place(fleet("a", "b", "c", machines=SAME), 2, group("soft-anti-affinity"), **soft)
    assert place(fleet("a", "b", "c", machines=SAME), 2, group("soft-anti-affinity", d=1), **soft)[0] == "c"


def test_an_instance_that_is_moved_may_stay():
    where = fleet("a", "b", a={"instances": {"u": "f"}}, b={"instances": {"other": "f"}})
    of_group = group("anti-affinity", a=1, b=1)
    assert passing(ServerGroupAntiAffinityFilter, of_group, where, ["u"]) == ["a"]
    assert passing(ServerGroupAntiAffinityFilter, of_group, where, ["v"]) == []


def place(where, count, of_group, **more):
    request = RequestSpec(["u%d" % i for i in range(count)], Flavor("f", 256, 1), instance_group=of_group)
    return [s.host for s in select_destinations(where, request, make_options(**more))]


FILTERS = {"enabled_filters": ["RamFilter", "ServerGroupAntiAffinityFilter", "ServerGroupAffinityFilter"]}


def test_hosts_just_picked_count():
    assert sorted(place(fleet(*"abc"), 3, group("anti-affinity"), **FILTERS)) == ["a", "b", "c"]
    assert sorted(place(fleet(*"abc"), 5, group("anti-affinity", 2, b=1), **FILTERS)) == ["a", "a", "b", "c", "c"]
    assert len(set(place(fleet(*"abc"), 5, group("affinity"), **FILTERS))) == 1
    assert place(fleet(*"abc"), 5, group("affinity", b=1), **FILTERS) == ["b"] * 5


@pytest.mark.parametrize(
    ("of_group", "count", "text"),
    [
        (group("anti-affinity"), 4, "ServerGroupAntiAffinityFilter: (start: 1, end: 0)"),
        (group("anti-affinity", a=1, b=1, c=1), 1, "ServerGroupAntiAffinityFilter: (start: 3, end: 0)"),
        (group("affinity", x=1), 1, "ServerGroupAffinityFilter: (start: 3, end: 0)"),
    ],
)
def test_no_valid_host_names_the_filter(of_group, count, text):
    where = fleet(*"abc")
    with pytest.raises(NoValidHost) as caught:
        place(where, count, of_group, **FILTERS)
    assert text in caught.value.message
    assert where.group_counts(of_group).tolist() == [of_group.host_counts.get(h, 0) for h in "abc"]


@pytest.mark.parametrize(
    ("cls", "of_group", "row", "text"),
    [
        (
            ServerGroupAntiAffinityFilter,
            group("anti-affinity", 2, b=3),
            1,
            "server group web (anti-affinity): the host has 3 members, and may have 2",
        ),
        (
            ServerGroupAffinityFilter,
            group("affinity", b=3, x=1),
            0,
            "server group web (affinity): the members are on b, x",
        ),
    ],
)
def test_texts(cls, of_group, row, text):
    where = fleet(*"abc")
    result = cls(make_options()).evaluate(where, spec(of_group), where.all_rows())
    assert not result.mask[row]
    assert result.text(row) == text


def test_both_are_enabled_by_default():
    for policy in POLICIES:
        placed = place(fleet(*"abc"), 3, group(policy))
        assert len(set(placed)) == (1 if policy == "affinity" else 3 if policy == "anti-affinity" else len(set(placed)))


def test_nodes_of_one_host_share_its_members():
    def node(name, of):
        return HostState(of, name, memory_mb=4096, local_gb=100, vcpus=4)

    where = Fleet([node("n1", "a"), node("n2", "a"), node("n3", "b")])
    of_group = group("anti-affinity", a=1)
    assert place(where, 1, of_group, **FILTERS) == ["b"]
    with pytest.raises(NoValidHost):
        place(where, 1, of_group, **FILTERS)
