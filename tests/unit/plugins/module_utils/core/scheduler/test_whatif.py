# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import copy
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ansible_collections.bootflow.compute.plugins.module_utils.core.disks.whole_disks import WholeDiskRequest
from ansible_collections.bootflow.compute.plugins.module_utils.core.errors import InvalidInput, NoValidHost
from ansible_collections.bootflow.compute.plugins.module_utils.core.instances.server_groups import ServerGroup
from ansible_collections.bootflow.compute.plugins.module_utils.core.model import Flavor
from ansible_collections.bootflow.compute.plugins.module_utils.core.scheduler import registry
from ansible_collections.bootflow.compute.plugins.module_utils.core.scheduler.aggregates import Aggregate
from ansible_collections.bootflow.compute.plugins.module_utils.core.scheduler.columns import Fleet
from ansible_collections.bootflow.compute.plugins.module_utils.core.scheduler.filters.resources.whole_disk_filter import (
    WholeDiskFilter,
)
from ansible_collections.bootflow.compute.plugins.module_utils.core.scheduler.host_state import HostState
from ansible_collections.bootflow.compute.plugins.module_utils.core.scheduler.placement import select_destinations
from ansible_collections.bootflow.compute.plugins.module_utils.core.scheduler.request_spec import RequestSpec
from ansible_collections.bootflow.compute.plugins.module_utils.core.scheduler.whatif import how_many
from ansible_collections.bootflow.compute.tests.unit.worlds.examples import examples

from .reference import make_options

NOW = 1000.0
OPTIONS = make_options(now=NOW)


def host(name, **more):
    fields = {"memory_mb": 4096, "local_gb": 100, "vcpus": 4, "ram_allocation_ratio": 1.0, "updated_at": NOW, **more}
    return HostState(name, fields.pop("node", name), **fields)


def spec(memory_mb=1024, vcpus=1, root_gb=1, uuids=("u0",), **more):
    return RequestSpec(list(uuids), Flavor("f", memory_mb, vcpus, root_gb), **more)


def columns(fleet):
    numbers = (fleet.free_ram_mb, fleet.free_disk_mb, fleet.vcpus_used, fleet.num_instances, fleet.num_io_ops)
    return [c.tolist() for c in numbers]


def counts(answer):
    return {p["node"]: p["count"] for p in answer.by_host}


def test_each_host_to_its_own_end():
    fleet = Fleet([host("a"), host("b", memory_mb=2047), host("c", disabled=True), host("d", local_gb=2)])
    answer = how_many(fleet, spec(), OPTIONS)
    assert answer.total == 7
    assert answer.by_host == [
        {"host": "a", "node": "a", "count": 4},
        {"host": "b", "node": "b", "count": 1},
        {"host": "d", "node": "d", "count": 2},
    ]
    turned_down = {f["name"]: f["start"] - f["end"] for f in answer.stopped_by["filters"]}
    assert {k: v for k, v in turned_down.items() if v} == {"ComputeFilter": 1, "RamFilter": 2, "DiskFilter": 1}
    assert answer.stopped_by["reason"] == "rejected by: ComputeFilter 1, RamFilter 2, DiskFilter 1"
    assert answer.stopped_by["decision"] is None
    assert answer.as_dict()["total"] == 7


def test_explained():
    answer = how_many(Fleet([host("a")]), spec(900), make_options(now=NOW, explain=True))
    miss = answer.stopped_by["decision"]["nearest_miss"]
    assert (answer.total, miss["smallest_change"]["changes"][0]["fits_at"]) == (4, 496)


def test_none_fits():
    answer = how_many(Fleet([host("a")]), spec(9999), OPTIONS)
    assert (answer.total, answer.by_host) == (0, [])
    assert answer.stopped_by["reason"] == "rejected by: RamFilter 1"


def test_no_hosts():
    assert how_many(Fleet([]), spec(), OPTIONS).stopped_by["reason"] == "There is no compute host."
    answer = how_many(Fleet([host("a")]), spec(ignore_hosts=["a"]), OPTIONS)
    assert (answer.total, answer.stopped_by["reason"]) == (0, "All hosts are ignored (ignore_hosts a).")


@pytest.mark.parametrize(("limit", "expected"), [(0, {}), (1, {"b": 1}), (3, {"b": 3}), (99, {"a": 4, "b": 8})])
def test_a_limit_fills_in_the_order_of_the_weighers(limit, expected):
    fleet = Fleet([host("a"), host("b", memory_mb=8192)])
    answer = how_many(fleet, spec(), make_options(now=NOW, weighers=["RAMWeigher"]), limit)
    assert counts(answer) == expected
    assert (answer.stopped_by is None) == (limit < 12)


def test_what_is_refused():
    with pytest.raises(InvalidInput, match="the limit is -1"):
        how_many(Fleet([host("a")]), spec(), OPTIONS, -1)
    with pytest.raises(InvalidInput, match="unknown weigher X"):
        how_many(Fleet([host("a")]), spec(), make_options(weighers=["X"]))


@pytest.mark.parametrize("of_group", [None, ServerGroup("g", "g", "affinity")])
def test_a_flavor_that_takes_nothing_needs_a_limit(of_group):
    fleet = Fleet([host("a")])
    nothing = spec(0, 0, 0, instance_group=of_group)
    before = columns(fleet)
    with pytest.raises(InvalidInput, match="no enabled filter ends how many of flavor f fit on host a"):
        how_many(fleet, nothing, OPTIONS)
    assert how_many(fleet, nothing, OPTIONS, 1000).total == 1000
    assert columns(fleet) == before


def test_a_forced_host_holds_what_the_claim_holds():
    fleet = Fleet([host("a"), host("b", disabled=True)])
    assert counts(how_many(fleet, spec(force_host="b"), OPTIONS)) == {"b": 4}
    assert counts(how_many(fleet, spec(force_host="b"), OPTIONS, 2)) == {"b": 2}


def test_whole_disks_end_it(monkeypatch):
    monkeypatch.setattr(registry, "BUILTIN_FILTERS", (*registry.BUILTIN_FILTERS, WholeDiskFilter))
    disks = [{"path": "/dev/sd%s" % c, "size_gb": 100, "medium": "ssd"} for c in "abc"]
    fleet = Fleet([host("a", free_disks=disks), host("b", free_disks=disks[:1]), host("c")])
    options = make_options(now=NOW, enabled_filters=["RamFilter", "WholeDiskFilter"])
    answer = how_many(fleet, spec(whole_disks=[WholeDiskRequest(min_gb=10)]), options)
    assert counts(answer) == {"a": 3, "b": 1}
    assert [len(fleet.free_disks(r)) for r in range(3)] == [3, 1, 0]


def test_a_filter_of_the_user_is_asked_each_time(tmp_path):
    (tmp_path / "f.py").write_text("class Odd:\n  def host_passes(self, h, s): return h.num_instances != 2\n")
    options = make_options(now=NOW, user_filter_dirs=[str(tmp_path)])
    assert counts(how_many(Fleet([host("a"), host("b", num_instances=3)]), spec(), options)) == {"a": 2, "b": 4}


def test_many_hosts_and_many_instances():
    rng = random.Random(1)
    states = [host("h%d" % i, memory_mb=50 * 1024 + rng.randrange(1024), vcpus=64, local_gb=999) for i in range(10000)]
    answer = how_many(Fleet(states), spec(), OPTIONS)
    assert answer.total == 500000


# --- the law: the same as placing one by one -----------------------------------------------------------------------

MEMBERS = {"x": "h0", "y": "h1"}


@st.composite
def questions(draw):
    small = Aggregate("small", metadata={"ram_allocation_ratio": "0.5", "max_io_ops_per_host": "2"})
    states = []
    for i in range(draw(st.integers(1, 5))):
        name = "h%d" % i
        states.append(
            host(
                name,
                memory_mb=draw(st.sampled_from([0, 512, 1000, 2048, 5000])),
                memory_mb_used=draw(st.sampled_from([0, 0, 300])),
                ram_allocation_ratio=draw(st.sampled_from([1.0, 1.5])),
                local_gb=draw(st.sampled_from([3, 40])),
                vcpus=draw(st.sampled_from([0, 1, 2])),
                cpu_allocation_ratio=draw(st.sampled_from([1.0, 16.0])),
                num_io_ops=draw(st.sampled_from([0, 0, 1])),
                num_instances=draw(st.sampled_from([0, 3])),
                disabled=draw(st.integers(0, 5)) == 0,
                aggregates=draw(st.sampled_from([[], [], [small]])),
                instances={u: "f" for u, where in MEMBERS.items() if where == name},
            )
        )
    policy = draw(st.sampled_from([None, None, "affinity", "anti-affinity", "soft-affinity", "soft-anti-affinity"]))
    of_group = None
    if policy:
        there = draw(st.sampled_from([{}, {"h0": 1}, {"h0": 1, "h1": 1}]))
        of_group = ServerGroup("g", "g", policy, draw(st.integers(1, 2)), host_counts=there)
    hints = draw(st.sampled_from([{}, {}, {"query": '["not", ["=", "$num_instances", 2]]'}]))
    request = spec(
        draw(st.sampled_from([256, 500, 1000])),
        draw(st.integers(0, 1)),
        draw(st.sampled_from([0, 1])),
        instance_group=of_group,
        scheduler_hints=hints,
    )
    enabled = ["ComputeFilter", "RamFilter", "DiskFilter", "CoreFilter", "ServerGroupAntiAffinityFilter"]
    enabled.append("ServerGroupAffinityFilter")
    enabled += draw(
        st.lists(
            st.sampled_from(
                ["AggregateRamFilter", "IoOpsFilter", "AggregateIoOpsFilter", "NumInstancesFilter", "JsonFilter"]
            ),
            unique=True,
        )
    )
    options = make_options(
        now=NOW,
        enabled_filters=enabled,
        max_io_ops_per_host=3,
        max_instances_per_host=5,
        host_subset_size=draw(st.sampled_from([1, 1, 2])),
    )
    return states, request, options


def one_by_one(states, request, options, limit):
    """The largest request that finds a host for all of its instances, and where they go."""
    placed = []
    for count in range(1, limit + 1):
        uuids = ["u%d" % i for i in range(count)]
        whole = copy.copy(request)
        whole.instance_uuids = uuids
        try:
            placed = select_destinations(Fleet(states), whole, options)
        except NoValidHost:
            break
    found = {}
    for s in placed:
        found[s.nodename] = found.get(s.nodename, 0) + 1
    return found


@settings(max_examples=examples(200), deadline=None)
@given(questions(), st.sampled_from([None, None, 1, 4]))
def test_equals_placing_one_by_one(question, limit):
    states, request, options = question
    fleet = Fleet(states)
    before = columns(fleet)
    answer = how_many(fleet, request, options, limit)
    assert counts(answer) == one_by_one(states, request, options, limit or 200)
    assert answer.total == sum(counts(answer).values())
    assert columns(fleet) == before
    if request.instance_group is not None:
        there = request.instance_group.host_counts
        assert fleet.group_counts(request.instance_group).tolist() == [there.get(s.host, 0) for s in states]
    if answer.stopped_by is not None:
        filters = answer.stopped_by["filters"]
        assert not filters or filters[-1]["end"] == 0  # one more finds no host
