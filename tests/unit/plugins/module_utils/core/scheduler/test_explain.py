# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import dataclasses
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ansible_collections.bootflow.compute.plugins.module_utils.core.errors import NoValidHost
from ansible_collections.bootflow.compute.plugins.module_utils.core.model import Flavor
from ansible_collections.bootflow.compute.plugins.module_utils.core.scheduler.aggregates import Aggregate
from ansible_collections.bootflow.compute.plugins.module_utils.core.scheduler.columns import Fleet
from ansible_collections.bootflow.compute.plugins.module_utils.core.scheduler.explain import (
    condensed,
    explanation_text,
    summary,
)
from ansible_collections.bootflow.compute.plugins.module_utils.core.scheduler.host_state import HostState
from ansible_collections.bootflow.compute.plugins.module_utils.core.scheduler.placement import select_destinations
from ansible_collections.bootflow.compute.plugins.module_utils.core.scheduler.request_spec import RequestSpec
from ansible_collections.bootflow.compute.tests.unit.worlds.examples import examples

from .reference import make_options

OPTIONS = make_options(
    now=100.0, explain=True, weighers=["RAMWeigher", "DiskWeigher"], multipliers={"DiskWeigher": 0.5}
)


def host(name, **more):
    return HostState(
        name, more.pop("node", name), **{"memory_mb": 4096, "local_gb": 100, "vcpus": 4, "updated_at": 100.0, **more}
    )


def hosts():
    return [
        host("a"),
        host("b", memory_mb=8192),
        host("off", disabled=True, disabled_reason="repair"),
        host("small", memory_mb=900),
        host("full", node="n5", local_gb_used=95),
    ]


def spec(count=1, **more):
    return RequestSpec(["u%d" % i for i in range(count)], Flavor("f", 1024, 1, 10), **more)


def by_host(decision):
    return {h["host"]: h for h in decision["hosts"]}


def test_a_decision_tells_everything_and_is_plain_data():
    (selection,) = select_destinations(Fleet(hosts()), spec(), OPTIONS)
    decision = selection.decision
    assert json.loads(json.dumps(decision)) == decision
    assert decision["chosen"] == {"host": "b", "node": "b"}
    assert decision["alternates"] == [{"host": "a", "node": "a"}]
    assert [(c["name"], c["start"], c["end"]) for c in decision["filters"]][2:5] == [
        ("ComputeFilter", 5, 4),
        ("RamFilter", 4, 3),
        ("DiskFilter", 3, 2),
    ]
    assert [(h["host"], h["rank"], h["passed"]) for h in decision["hosts"]][:2] == [("b", 1, True), ("a", 2, True)]
    told = by_host(decision)
    assert told["off"]["rejected_by"]["reason"] == "disabled: repair"
    assert told["off"]["filters_passed"] == ["RetryFilter", "AvailabilityZoneFilter"]
    small = told["small"]["rejected_by"]
    assert (small["filter"], small["available"], small["needed"], small["unit"], small["missing"]) == (
        "RamFilter",
        900,
        1024,
        "MiB",
        124,
    )
    full = told["full"]["rejected_by"]
    assert (full["filter"], full["available"], full["needed"], full["missing"]) == (
        "DiskFilter",
        5 * 1024,
        10 * 1024,
        5 * 1024,
    )
    assert told["a"]["weighers"] == [
        {
            "name": "RAMWeigher",
            "text": "4096 MiB free",
            "raw": 4096.0,
            "normalised": 0.5,
            "multiplier": 1.0,
            "score": 0.5,
        },
        {
            "name": "DiskWeigher",
            "text": "100 GiB free",
            "raw": 102400.0,
            "normalised": 1.0,
            "multiplier": 0.5,
            "score": 0.5,
        },
    ]
    assert (told["a"]["weight"], told["b"]["weight"]) == (1.0, 1.5)
    assert (decision["nearest_miss"]["host"], decision["nearest_miss"]["missing"][0]["missing"]) == ("small", 124)


def test_each_instance_sees_what_the_ones_before_took():
    first, second = select_destinations(Fleet([host("a"), host("b", memory_mb=4500)]), spec(2), OPTIONS)
    assert by_host(first.decision)["b"]["weighers"][0]["raw"] == 4500
    assert by_host(second.decision)["b"]["weighers"][0]["raw"] == 4500 - 1024
    assert second.decision["chosen"]["host"] == "a"


def test_one_candidate_has_weight_0():
    (selection,) = select_destinations(Fleet([host("a")]), spec(), OPTIONS)
    assert (selection.decision["hosts"][0]["weight"], selection.decision["hosts"][0]["weighers"]) == (0.0, [])


def test_explaining_changes_no_decision():
    quiet = make_options(now=100.0, weighers=OPTIONS.weighers, multipliers=OPTIONS.multipliers)
    told = select_destinations(Fleet(hosts()), spec(4), OPTIONS)
    assert [s.host for s in told] == [s.host for s in select_destinations(Fleet(hosts()), spec(4), quiet)]
    assert select_destinations(Fleet(hosts()), spec(), quiet)[0].decision is None


def test_as_many_decisions_of_a_request_are_explained_as_are_wanted():
    few = dataclasses.replace(OPTIONS, explain_most=2)
    found = select_destinations(Fleet(hosts()), spec(4), few)
    assert [s.decision is None for s in found] == [False, False, True, True]
    assert [s.host for s in found] == [s.host for s in select_destinations(Fleet(hosts()), spec(4), OPTIONS)]


def test_a_condensed_decision_names_all_hosts_and_has_the_nearest_in_full():
    (selection,) = select_destinations(Fleet(hosts()), spec(), OPTIONS)
    decision = selection.decision
    short = condensed(decision, 1)
    assert [h["host"] for h in short["hosts"]] == ["b", "small"]
    assert by_host(short) == {name: by_host(decision)[name] for name in ("b", "small")}
    assert (short["passed"], short["weights"]) == (["b", "a"], [1.5, 1.0])
    assert short["rejected"] == {"RamFilter": ["small"], "DiskFilter": ["full"], "ComputeFilter": ["off"]}
    assert {k: short[k] for k in decision if k != "hosts"} == {k: v for k, v in decision.items() if k != "hosts"}
    assert [h["host"] for h in condensed(decision, 9)["hosts"]] == ["b", "a", "small", "full", "off"]


def test_no_valid_host_carries_the_nearest_miss():
    fleet = Fleet(
        [
            host("a", memory_mb=512, local_gb=1),
            host("b", memory_mb=1000),
            host("c", memory_mb=600),
            host("off", disabled=True),
        ]
    )
    with pytest.raises(NoValidHost) as caught:
        select_destinations(fleet, spec(), OPTIONS)
    decision = caught.value.details["decision"]
    assert decision["chosen"] is None
    assert decision["nearest_miss"]["host"] == "b"
    lines = explanation_text(decision)
    assert lines[0] == "u0 -> no host"
    assert "  - b  RamFilter: memory: needs 1024 MiB, the whole host has 1000 MiB" in lines
    assert lines[1:5] == [
        "  filters: 0 of 4 hosts passed; rejected by ComputeFilter 1, RamFilter 3",
        "  nearest miss: b lacks 24 MiB of memory",
        "  smallest change: 1000 MiB of memory instead of 1024 would have fitted on b",
        "  - b  RamFilter: memory: needs 1024 MiB, the whole host has 1000 MiB",
    ], "U9: the nearest miss first"
    assert lines[-1].startswith("  - off  ComputeFilter: ")


def test_a_miss_by_two_filters_names_both():
    with pytest.raises(NoValidHost) as caught:
        select_destinations(Fleet([host("a", memory_mb=512, local_gb=1)]), spec(), OPTIONS)
    missing = caught.value.details["decision"]["nearest_miss"]["missing"]
    assert [(m["filter"], m["missing"], m["unit"]) for m in missing] == [
        ("RamFilter", 512, "MiB"),
        ("DiskFilter", 9 * 1024, "MiB"),
    ]


def test_lines():
    (selection,) = select_destinations(Fleet(hosts()), spec(), OPTIONS)
    lines = explanation_text(selection.decision)
    assert lines[0] == "u0 -> b"
    assert lines[1] == "  alternates: a"
    assert (
        "  + a  weight 1.0000: RAMWeigher 1 x 0.5000 for 4096 MiB free; DiskWeigher 0.5 x 1.0000 for 100 GiB free"
        in lines
    )
    assert "  - off  ComputeFilter: disabled: repair" in lines
    assert any(line.startswith("  - full  DiskFilter: disk: needs 10 GiB, 5 GiB usable") for line in lines)
    short = explanation_text(selection.decision, limit=1)
    assert "  ... and 1 more passed" in short
    assert "  ... and 2 more rejected" in short


def test_the_plan_of_one_host_has_no_weights_and_its_node_only_where_it_has_several():
    """(vm) and weight 0.0000"""
    (selection,) = select_destinations(Fleet([host("a", node="vm")]), spec(), OPTIONS)
    assert explanation_text(selection.decision) == ["u0 -> a", "  filters: 1 of 1 host passed", "  + a"]
    nodes = Fleet([host("a", node="n1"), host("a", node="n2")])
    (selection,) = select_destinations(nodes, spec(), OPTIONS)
    assert explanation_text(selection.decision)[0] == "u0 -> a (n1)"


def test_what_is_missing_has_names_and_units():
    """lacks 247334 MB, 4025344 MB, 14 vCPUs"""
    huge = RequestSpec(["u0"], Flavor("f", 256 * 1024, 16, 3941))
    with pytest.raises(NoValidHost) as caught:
        select_destinations(Fleet([host("a", memory_mb=10000, local_gb=10, vcpus=1)]), huge, OPTIONS)
    lines = explanation_text(caught.value.details["decision"])
    assert lines[1] == "  filters: 0 of 1 host passed; rejected by RamFilter 1"
    assert lines[2].startswith("  nearest miss: a lacks 246.3 GiB of memory, 3931 GiB of disk, 15 vCPUs")
    assert lines[-1] == "  - a  RamFilter: memory: needs 256 GiB, the whole host has 9.7 GiB"


def test_what_is_missing_is_the_difference_that_is_shown():
    """Of a swap of 64 MiB; what has to be free is in whole GiB, as hosts report."""
    swap = RequestSpec(["u0"], Flavor("f", 64, 1, 1, swap=64))
    with pytest.raises(NoValidHost) as caught:
        select_destinations(Fleet([host("a", local_gb=1)]), swap, OPTIONS)
    (line,) = [x for x in explanation_text(caught.value.details["decision"]) if "nearest miss" in x]
    assert line.startswith("  nearest miss: a lacks 0.1 GiB of disk")
    assert caught.value.details["decision"]["nearest_miss"]["smallest_change"]["changes"][0]["free"] == 1


def test_forced_and_ignored():
    (selection,) = select_destinations(Fleet(hosts()), spec(force_host="off"), OPTIONS)
    assert selection.decision["forced"]
    assert explanation_text(selection.decision)[0] == "u0 -> off (forced)"
    assert by_host(selection.decision)["a"]["rejected_by"]["reason"] == "another host was forced: off"
    (selection,) = select_destinations(Fleet(hosts()), spec(ignore_hosts=["b"]), OPTIONS)
    assert by_host(selection.decision)["b"]["rejected_by"]["reason"] == "the request ignores this host"


# --- every verdict -------------------------------------------------------------------------------------------------


def verdicts(decision, name):
    return {v["name"]: v for v in by_host(decision)[name]["filters"]}


def test_every_filter_tells_its_verdict_of_every_host():
    (selection,) = select_destinations(Fleet(hosts()), spec(), OPTIONS)
    names = [c["name"] for c in selection.decision["filters"]]
    for entry in selection.decision["hosts"]:
        assert [v["name"] for v in entry["filters"]] == names
        assert entry["passed"] == all(v["passed"] for v in entry["filters"])
    assert verdicts(selection.decision, "a")["RamFilter"] == {
        "name": "RamFilter",
        "passed": True,
        "available": 4096,
        "needed": 1024,
        "unit": "MiB",
        "reason": "",
    }
    off = verdicts(selection.decision, "off")
    assert (off["ComputeFilter"]["passed"], off["RamFilter"]["passed"]) == (
        False,
        True,
    )  # not reached, asked all the same
    assert verdicts(selection.decision, "full")["DiskFilter"]["reason"].startswith("disk: needs 10 GiB, 5 GiB")


def test_a_filter_that_cannot_answer_for_a_host_that_it_was_not_reached_with(tmp_path):
    (tmp_path / "f.py").write_text("class Rack:\n  def host_passes(self, h, s): return h.vars['rack']\n")
    states = [host("a", vars={"rack": True}), host("off", disabled=True)]
    options = dataclasses.replace(OPTIONS, user_filter_dirs=[str(tmp_path)], user_classes=None)
    (selection,) = select_destinations(Fleet(states), spec(), options)
    rack = verdicts(selection.decision, "off")["Rack"]
    assert rack["passed"] is None
    assert "KeyError" in rack["reason"]


def test_the_multiplier_told_is_the_hosts_own():
    stack = Aggregate("stack", metadata={"ram_weight_multiplier": "-2"})
    states = [host("a", aggregates=[stack]), host("b", failed_builds=1)]
    options = make_options(now=100.0, explain=True, weighers=["RAMWeigher", "BuildFailureWeigher"])
    (selection,) = select_destinations(Fleet(states), spec(), options)
    told = {
        h["host"]: {w["name"]: (w["multiplier"], w["score"]) for w in h["weighers"]}
        for h in selection.decision["hosts"]
    }
    assert told["a"] == {"RAMWeigher": (-2, -2), "BuildFailureWeigher": (-1000000, 0)}
    assert told["b"] == {"RAMWeigher": (1, 1), "BuildFailureWeigher": (-1000000, -1000000)}


def test_lines_pass_over_weighers_that_tell_no_host_from_another():
    (selection,) = select_destinations(Fleet(hosts()), spec(), make_options(now=100.0, explain=True))
    lines = explanation_text(selection.decision)
    assert any("RAMWeigher" in line for line in lines)
    assert not any("MetricsWeigher" in line or "SoftAffinity" in line for line in lines)
    assert "  filters: 2 of 5 hosts passed; rejected by ComputeFilter 1, RamFilter 1, DiskFilter 1" in lines


# --- the smallest change -------------------------------------------------------------------------------------------


def refused(states, request, **more):
    with pytest.raises(NoValidHost) as caught:
        select_destinations(Fleet(states), request, dataclasses.replace(OPTIONS, **more))
    return caught.value.details["decision"]


def change(states, request, **more):
    return refused(states, request, **more)["nearest_miss"]["smallest_change"]


@pytest.mark.parametrize(
    ("flavor", "fields", "expected", "text"),
    [
        (
            Flavor("f", 4096, 1, 1),
            {"memory_mb_used": 512, "ram_allocation_ratio": 1.0},
            ("memory_mb", 512, 4096, 3584, 512),
            "3584 MiB of memory instead of 4096 would have fitted on c2, or 512 MiB of memory more free on c2 would have been enough",
        ),
        (
            Flavor("f", 5000, 1, 1),  # more than the whole host: no freeing helps
            {},
            ("memory_mb", 904, 5000, 4096, None),
            "4096 MiB of memory instead of 5000 would have fitted on c2",
        ),
        (
            Flavor("f", 512, 1, 20, 10, swap=100),
            {"local_gb_used": 80},
            ("disk_gb", 11, 30, 19, 11),
            "19 GiB of disk instead of 30 would have fitted on c2, or 11 GiB of disk more free on c2 would have been enough",
        ),
        (
            Flavor("f", 512, 4, 1),
            {"vcpus_used": 61},
            ("vcpus", 1, 4, 3, 1),
            "3 vCPUs instead of 4 would have fitted on c2, or 1 vCPU more free on c2 would have been enough",
        ),
        (
            Flavor("f", 512, 1, 1),
            {"memory_mb_used": 9000},  # over-full: no smaller flavor helps
            ("memory_mb", None, 512, None, 3368),
            "3368 MiB of memory more free on c2 would have been enough",
        ),
    ],
)
def test_the_smallest_change_of_one_number(flavor, fields, expected, text):
    found = change([host("c2", **fields)], RequestSpec(["u"], flavor))
    (one,) = found["changes"]
    assert (one["what"], one["by"], one["flavor_value"], one["fits_at"], one["free"]) == expected
    assert found["text"] == text


def test_two_numbers_at_once():
    found = change([host("a", memory_mb=512, local_gb=5)], spec())
    assert {c["what"]: c["fits_at"] for c in found["changes"]} == {"memory_mb": 512, "disk_gb": 5}
    assert found["text"] == "512 MiB of memory instead of 1024 and 5 GiB of disk instead of 10 would have fitted on a"


def test_what_the_flavor_has_no_number_for():
    full = {"enabled_filters": ["RamFilter", "NumInstancesFilter"], "settings": {"max_instances_per_host": 2}}
    found = change([host("a", num_instances=3)], spec(), **full)
    (one,) = found["changes"]
    assert (one["what"], one["fits_at"], one["free"]) == ("instances", None, 2)
    assert found["text"] == "2 instances more free on a would have been enough"
    near = host("a", num_instances=2, memory_mb=2000, memory_mb_used=1500, ram_allocation_ratio=1.0)
    found = change([near], spec(), **full)
    assert found["text"] == "524 MiB of memory and 1 instance more free on a would have been enough"


LACKS_DISK = (
    "5 GiB of disk instead of 10 would have fitted on a, or 5 GiB of disk more free on a would have been enough"
)
NEXT = "for the next of the %d instances that found no host, "


@pytest.mark.parametrize(
    ("fields", "count", "left", "text", "enough"),
    [
        (
            {"memory_mb": 65536, "vcpus": 64, "local_gb_used": 65},  # 3 of 6 have a disk
            6,
            3,
            LACKS_DISK + "; for all 3, 25 GiB of disk more free there",
            {"local_gb_used": 40},
        ),
        (
            {"local_gb": 1000, "memory_mb_used": 3072, "ram_allocation_ratio": 1.5},
            5,
            2,
            "1024 MiB of memory more free on a would have been enough; for both, 2048 MiB of memory more free there",
            {"memory_mb_used": 1024},
        ),
        (
            {"memory_mb": 65536, "local_gb_used": 95, "vcpus": 4, "vcpus_used": 62},  # CPUs for two, a disk for none
            3,
            3,
            LACKS_DISK + "; for all 3, 25 GiB of disk and 1 vCPU more free there",
            {"local_gb_used": 70, "vcpus_used": 61},
        ),
    ],
)
def test_of_several_instances_the_change_for_the_next_and_that_for_all(fields, count, left, text, enough):
    states = [host("a", **fields), host("off", disabled=True)]
    found = change(states, spec(count))
    assert found["text"] == NEXT % left + text
    mended = {**fields, **enough}
    assert len(select_destinations(Fleet([host("a", **mended)]), spec(count), OPTIONS)) == count
    for name in enough:
        with pytest.raises(NoValidHost):
            select_destinations(Fleet([host("a", **{**mended, name: mended[name] + 1})]), spec(count), OPTIONS)


@pytest.mark.parametrize(
    ("fields", "more"),
    [
        ({"local_gb": 1000, "memory_mb_used": 3072, "ram_allocation_ratio": 1.5}, {}),  # 7 GiB, of 6 to give out
        ({"memory_mb": 65536, "local_gb_used": 65, "num_instances": 1}, {"settings": {"max_instances_per_host": 5}}),
    ],
)
def test_no_amount_is_given_that_is_not_enough_for_all(fields, more):
    enabled = ["ComputeFilter", "RamFilter", "DiskFilter", "NumInstancesFilter"]
    found = change([host("a", **fields)], spec(7), enabled_filters=enabled, **more)
    assert found["text"].startswith("for the next of the ") and "for all" not in found["text"]


def test_the_amounts_for_all_leave_the_fleet_as_it_was():
    fleet = Fleet([host("a", memory_mb=65536, vcpus=64, local_gb_used=65)])
    before = fleet.host_state(0)
    with pytest.raises(NoValidHost):
        select_destinations(fleet, spec(6), OPTIONS)
    assert fleet.host_state(0) == before and int(fleet.free_disk_mb[0]) == before.free_disk_mb


def test_a_host_and_its_aggregate_count_once():
    tight = Aggregate("tight", metadata={"ram_allocation_ratio": "0.25"})
    states = [host("a", aggregates=[tight], ram_allocation_ratio=0.5, memory_mb_used=1200)]
    enabled = ["RamFilter", "AggregateRamFilter"]
    (one,) = change(states, spec(), enabled_filters=enabled)["changes"]
    assert (one["filter"], one["free"], one["fits_at"]) == ("AggregateRamFilter", 1200, None)


def test_overhead_is_not_the_flavors():
    (one,) = change([host("a", memory_mb=1000)], spec(memory_overhead_mb=16))["changes"]
    assert (one["flavor_value"], one["fits_at"]) == (1024, 984)


@pytest.mark.parametrize(
    ("states", "more", "text"),
    [
        ([host("c3", disabled=True)], {}, "enable host c3"),
        ([host("c3", updated_at=0.0)], {}, "bring host c3 up, so that it reports"),
        ([host("c3", availability_zones=["az2"])], {"availability_zone": "az1"}, "ask for zone az2, where c3 is"),
        ([host("c3")], {"retry_hosts": [("c3", "c3")]}, "boot the instance again: c3 was already tried"),
    ],
)
def test_a_setting_where_nothing_else_stands_against(states, more, text):
    decision = refused(states, spec(**more))
    found = decision["nearest_miss"]["smallest_change"]
    assert found["text"] == text
    assert found["changes"][0]["what"] == "setting"
    assert "  smallest change: " + text in explanation_text(decision)
    assert json.loads(json.dumps(decision)) == decision


def test_a_disabled_host_that_is_full_too_is_no_near_miss():
    assert refused([host("a", disabled=True, memory_mb=100)], spec())["nearest_miss"] is None


def test_a_number_is_nearer_than_a_setting():
    assert refused([host("off", disabled=True), host("small", memory_mb=10)], spec())["nearest_miss"]["host"] == "small"


def test_a_filter_may_name_its_own_remedy(tmp_path):
    (tmp_path / "f.py").write_text(
        """
from ansible_collections.bootflow.compute.plugins.module_utils.core.scheduler.columns import np
from ansible_collections.bootflow.compute.plugins.module_utils.core.scheduler.filters.base import Filter, FilterResult


class Door(Filter):
    def evaluate(self, fleet, spec, rows):
        return FilterResult(mask=np.zeros(np.shape(rows), dtype=bool), text=lambda position: "shut")
    def remedy(self, fleet, spec, row):
        return "open the door of %s" % fleet.hosts[row].host
"""
    )
    found = change([host("a")], spec(), user_filter_dirs=[str(tmp_path)], user_classes=None)
    assert found["text"] == "open the door of a"


@settings(max_examples=examples(150), deadline=None)
@given(
    st.lists(
        st.fixed_dictionaries(
            {
                "memory_mb": st.sampled_from([600, 1000, 4000]),
                "memory_mb_used": st.sampled_from([0, 300, 5000]),
                "local_gb": st.sampled_from([4, 9, 100]),
                "vcpus": st.sampled_from([1, 2]),
                "ram_allocation_ratio": st.sampled_from([0.7, 1.0, 1.5]),
                "disk_allocation_ratio": st.sampled_from([0.7, 1.0]),
                "cpu_allocation_ratio": st.sampled_from([1.0, 2.0]),
                "disabled": st.booleans(),
            }
        ),
        min_size=1,
        max_size=4,
    ),
    st.builds(
        Flavor,
        st.just("f"),
        st.sampled_from([500, 2000]),
        st.sampled_from([1, 3]),
        st.sampled_from([1, 5]),
        st.sampled_from([0, 5]),
        st.sampled_from([0, 700]),
    ),
)
def test_the_smaller_flavor_fits_and_the_next_larger_does_not(fields, flavor):
    states = [host("h%d" % i, **f) for i, f in enumerate(fields)]
    try:
        select_destinations(Fleet(states), RequestSpec(["u"], flavor), OPTIONS)
        return
    except NoValidHost as e:
        miss = e.details["decision"]["nearest_miss"]
    found = miss and miss["smallest_change"]
    if not found or found["changes"][0].get("fits_at") is None:
        return
    near = next(s for s in states if s.host == miss["host"])

    def fits(**more):
        numbers = {c["what"]: c["fits_at"] + more.get(c["what"], 0) for c in found["changes"]}
        disk = numbers.pop("disk_gb", None)
        if disk is not None:
            numbers.update(root_gb=disk, ephemeral_gb=0)
        try:
            select_destinations(Fleet([near]), RequestSpec(["u"], dataclasses.replace(flavor, **numbers)), OPTIONS)
        except NoValidHost:
            return False
        return True

    assert fits()
    for c in found["changes"]:
        assert not fits(**{c["what"]: 1})
        assert c["flavor_value"] - c["by"] == c["fits_at"]


def test_what_has_no_host_is_told_in_numbers_by_class_of_host():
    """In the message and the remedy, without a decision for each instance that has one."""
    fleet = [
        host("a", memory_mb=512),
        host("b", memory_mb=1000),
        host("c", local_gb_used=95),
        host("off", disabled=True, disabled_reason="repair"),
    ]
    quiet = make_options(now=100.0, explain_failures=True)
    with pytest.raises(NoValidHost) as caught:
        select_destinations(Fleet(fleet), spec(), quiet)
    assert caught.value.message == (
        "No valid host was found. There are not enough hosts available. Of 4 hosts: ComputeFilter rejected off (disabled: repair);"
        " RamFilter rejected 2 hosts, the nearest is b (memory: needs 1024 MiB, the whole host has 1000 MiB);"
        " DiskFilter rejected c (disk: needs 10 GiB, 5 GiB usable (allocation ratio 1)). Nearest miss: b lacks 24 MiB of memory."
    )
    assert caught.value.remedy == (
        "Smallest change: 1000 MiB of memory instead of 1024 would have fitted on b. With --check the same boot explains each host."
    )
    told = summary(caught.value.details["decision"])
    assert json.loads(json.dumps(told)) == told
    assert [(r["filter"], r["hosts"], r["best"], r["needed"], r["available"]) for r in told["rejected"]] == [
        ("ComputeFilter", 1, "off", 60.0, 0.0),
        ("RamFilter", 2, "b", 1024.0, 1000.0),
        ("DiskFilter", 1, "c", 10240.0, 5120.0),
    ]
    assert told["nearest_miss"]["smallest_change"].startswith("1000 MiB of memory instead of 1024")
    with pytest.raises(
        NoValidHost, match="room for 4 of the 5 instances of this entry, .* Of 1 host: RamFilter rejected x"
    ):
        select_destinations(Fleet([host("x", memory_mb=3000)]), spec(5), quiet)
    (selection,) = select_destinations(Fleet([host("x")]), spec(), quiet)
    assert selection.decision is None
