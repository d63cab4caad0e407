# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ansible_collections.bootflow.compute.plugins.module_utils.core.errors import InvalidInput
from ansible_collections.bootflow.compute.plugins.module_utils.core.instances.server_groups import ServerGroup
from ansible_collections.bootflow.compute.plugins.module_utils.core.model import Flavor
from ansible_collections.bootflow.compute.plugins.module_utils.core.scheduler.columns import Fleet
from ansible_collections.bootflow.compute.plugins.module_utils.core.scheduler.host_state import HostState
from ansible_collections.bootflow.compute.plugins.module_utils.core.scheduler.request_spec import RequestSpec
from ansible_collections.bootflow.compute.plugins.module_utils.core.scheduler.spare import (
    hosts_that_can_be_lost,
    hosts_that_leave_together,
)
from ansible_collections.bootflow.compute.tests.unit.worlds.examples import examples

from .reference import make_options

NOW = 1000.0
OPTIONS = make_options(now=NOW)


def host(name, used=0, **more):
    fields = {"memory_mb": 4096, "local_gb": 100, "vcpus": 4, "ram_allocation_ratio": 1.0, "updated_at": NOW, **more}
    return HostState(name, fields.pop("node", name), memory_mb_used=used, **fields)


def guests(memory_mb, *uuids, **more):
    return RequestSpec(list(uuids), Flavor("f%d" % memory_mb, memory_mb, 1, 1), **more)


def ask(states, loads, **more):
    fleet = Fleet(states)
    before = fleet.free_ram_mb.tolist()
    found = {f["host"]: f for f in hosts_that_can_be_lost(fleet, loads, OPTIONS, **more)}
    assert fleet.free_ram_mb.tolist() == before
    return found


def test_which_can_be_lost():
    hosts = [host("a", 1024), host("b", 3072), host("c", 4096)]
    loads = {"a": [guests(1024, "a1")], "b": [guests(1536, "b1", "b2")], "c": [guests(2048, "c1", "c2")]}
    found = ask(hosts, loads)
    assert {h: f["fits"] for h, f in found.items()} == {"a": True, "b": True, "c": False}
    assert found["a"]["moved"] == [{"instance_uuid": "a1", "host": "b", "node": "b"}]
    assert [m["host"] for m in found["b"]["moved"]] == ["a", "a"]
    assert [m["instance_uuid"] for m in found["c"]["moved"]] == ["c1"]
    (stuck,) = found["c"]["stuck"]
    assert stuck["instance_uuid"] == "c2"
    assert "RamFilter: (start: 1, end: 0)" in stuck["reason"]
    assert stuck["filters"][-1]["end"] == 0


def test_an_empty_host_can_always_be_lost():
    assert ask([host("a")], {}) == {"a": {"host": "a", "fits": True, "moved": [], "stuck": []}}


def test_only_those_asked_about_and_each_once():
    hosts = [host("a", node="n1"), host("a", node="n2"), host("b")]
    assert list(ask(hosts, {})) == ["a", "b"]
    assert list(ask(hosts, {}, hosts=["b"])) == ["b"]


def test_the_other_node_of_a_lost_host_is_lost_too():
    hosts = [host("a", node="n1"), host("a", node="n2")]
    assert not ask(hosts, {"a": [guests(100, "u")]})["a"]["fits"]


def test_the_largest_go_first():
    """Small ones first would leave no room for the large one."""
    hosts = [host("a", 4096), host("b", 2048), host("c", 3072)]
    found = ask(hosts, {"a": [guests(1024, "s"), guests(2048, "l")]})["a"]
    assert found["fits"]
    assert [m["instance_uuid"] for m in found["moved"]] == ["l", "s"]


def test_filters_hold_and_forced_hosts_do_not():
    hosts = [host("a", 1024), host("b", disabled=True)]
    assert not ask(hosts, {"a": [guests(1024, "u")]})["a"]["fits"]
    hosts = [host("a", 1024), host("b")]
    found = ask(hosts, {"a": [guests(1024, "u", force_host="a", retry_hosts=[("b", "b")])]})["a"]
    assert found["moved"][0]["host"] == "b"


def test_anti_affinity_is_kept():
    group = ServerGroup("g", "g", "anti-affinity", host_counts={"a": 1, "b": 1})
    load = {"a": [guests(100, "u", instance_group=group)]}
    assert not ask([host("a"), host("b")], load)["a"]["fits"]
    assert ask([host("a"), host("b"), host("c")], load)["a"]["moved"][0]["host"] == "c"


def test_a_machine_is_lost_with_all_of_its_names():
    group = ServerGroup("g", "g", "anti-affinity", host_counts={"a": 1, "c": 1})
    loads = {"a": [guests(100, "u", instance_group=group)], "b": [guests(200, "v")]}
    fleet = Fleet([host("a"), host("b"), host("c"), host("d")], {"a": "a", "b": "a"})
    for name in "ab":
        (found,) = hosts_that_can_be_lost(fleet, loads, OPTIONS, hosts=[name])
        assert found["fits"] and {m["instance_uuid"] for m in found["moved"]} == {"u", "v"}
        assert {m["host"] for m in found["moved"]} <= {"c", "d"}
        assert [m["host"] for m in found["moved"] if m["instance_uuid"] == "u"] == ["d"]


def test_an_affinity_group_moves_together():
    group = ServerGroup("g", "g", "affinity", host_counts={"a": 3})
    load = {"a": [guests(1024, "u", "v", instance_group=group), guests(512, "w", instance_group=group)]}
    found = ask([host("a"), host("b"), host("c")], load)["a"]
    assert found["fits"]
    assert len({m["host"] for m in found["moved"]}) == 1
    assert not ask([host("a"), host("b", 3000), host("c", 3000)], load)["a"]["fits"]


def test_unknown_names():
    with pytest.raises(InvalidInput):
        hosts_that_can_be_lost(Fleet([host("a")]), {}, make_options(enabled_filters=["X"]))


@settings(max_examples=examples(100), deadline=None)
@given(
    st.lists(st.lists(st.sampled_from([256, 512, 1024]), max_size=4), min_size=1, max_size=5),
)
def test_whoever_moves_fits_and_nobody_is_lost_from_sight(sizes):
    names = ["h%d" % i for i in range(len(sizes))]
    hosts = [host(n, sum(s), memory_mb=3000) for n, s in zip(names, sizes)]
    loads = {n: [guests(m, "%s-%d" % (n, i)) for i, m in enumerate(s)] for n, s in zip(names, sizes)}
    size_of = {u: g.flavor.memory_mb for load in loads.values() for g in load for u in g.instance_uuids}
    for name, found in ask(hosts, loads).items():
        mine = {u for g in loads[name] for u in g.instance_uuids}
        assert {m["instance_uuid"] for m in found["moved"]} | {s["instance_uuid"] for s in found["stuck"]} == mine
        assert found["fits"] == (not found["stuck"])
        for i, other in enumerate(names):
            arrived = sum(size_of[m["instance_uuid"]] for m in found["moved"] if m["host"] == other)
            assert sum(sizes[i]) + arrived <= max(3000, sum(sizes[i]))
            assert other != name or not arrived


def test_hosts_that_leave_together_do_not_take_each_others_guests():
    hosts = [host("a", 1024), host("b", 1024), host("c", 3072)]
    loads = {"a": [guests(1024, "a1")], "b": [guests(1024, "b1")], "c": []}
    fleet = Fleet(hosts)
    before = fleet.free_ram_mb.tolist()
    assert all(f["fits"] for f in hosts_that_can_be_lost(fleet, loads, OPTIONS))
    answer = hosts_that_leave_together(fleet, loads, OPTIONS, ["a", "b", "unknown"])
    assert not answer["fits"] and [m["host"] for m in answer["moved"]] == ["c"] and len(answer["stuck"]) == 1
    assert hosts_that_leave_together(fleet, loads, OPTIONS, ["a"])["fits"]
    assert fleet.free_ram_mb.tolist() == before
    with pytest.raises(InvalidInput, match="NoSuchFilter"):
        hosts_that_leave_together(fleet, loads, make_options(now=NOW, enabled_filters=("NoSuchFilter",)), ["a"])
