# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core.errors import NoValidHost
from ansible_collections.bootflow.compute.plugins.module_utils.core.model import Flavor
from ansible_collections.bootflow.compute.plugins.module_utils.core.scheduler.columns import Fleet
from ansible_collections.bootflow.compute.plugins.module_utils.core.scheduler.explain import explanation_text
from ansible_collections.bootflow.compute.plugins.module_utils.core.scheduler.host_state import HostState
from ansible_collections.bootflow.compute.plugins.module_utils.core.scheduler.placement import (
    SchedulerOptions,
    select_destinations,
)
from ansible_collections.bootflow.compute.plugins.module_utils.core.scheduler.request_spec import RequestSpec

OPTIONS = SchedulerOptions(
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
        "MB",
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
        {"name": "RAMWeigher", "raw": 4096.0, "normalised": 0.5, "multiplier": 1.0, "score": 0.5},
        {"name": "DiskWeigher", "raw": 102400.0, "normalised": 1.0, "multiplier": 0.5, "score": 0.5},
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
    quiet = SchedulerOptions(now=100.0, weighers=OPTIONS.weighers, multipliers=OPTIONS.multipliers)
    told = select_destinations(Fleet(hosts()), spec(4), OPTIONS)
    assert [s.host for s in told] == [s.host for s in select_destinations(Fleet(hosts()), spec(4), quiet)]
    assert select_destinations(Fleet(hosts()), spec(), quiet)[0].decision is None


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
    assert "  - b  RamFilter: memory: needs 1024 MB, the whole host has 1000 MB" in lines
    assert lines[-1] == "  nearest miss: b lacks 24 MB"


def test_a_miss_by_two_filters_names_both():
    with pytest.raises(NoValidHost) as caught:
        select_destinations(Fleet([host("a", memory_mb=512, local_gb=1)]), spec(), OPTIONS)
    missing = caught.value.details["decision"]["nearest_miss"]["missing"]
    assert [(m["filter"], m["missing"], m["unit"]) for m in missing] == [
        ("RamFilter", 512, "MB"),
        ("DiskFilter", 9 * 1024, "MB"),
    ]


def test_lines():
    (selection,) = select_destinations(Fleet(hosts()), spec(), OPTIONS)
    lines = explanation_text(selection.decision)
    assert lines[0] == "u0 -> b"
    assert lines[1] == "  alternates: a"
    assert "  + a  weight 1.0000 (RAMWeigher 4096 -> 0.5000 x 1; DiskWeigher 102400 -> 1.0000 x 0.5)" in lines
    assert "  - off  ComputeFilter: disabled: repair" in lines
    assert any(line.startswith("  - full (n5)  DiskFilter: disk: needs 10240 MB, 5120 MB usable") for line in lines)
    short = explanation_text(selection.decision, limit=1)
    assert "  ... and 1 more passed" in short
    assert "  ... and 2 more turned down" in short


def test_forced_and_ignored():
    (selection,) = select_destinations(Fleet(hosts()), spec(force_host="off"), OPTIONS)
    assert selection.decision["forced"]
    assert explanation_text(selection.decision)[0] == "u0 -> off (forced)"
    assert by_host(selection.decision)["a"]["rejected_by"]["reason"] == "another host was forced: off"
    (selection,) = select_destinations(Fleet(hosts()), spec(ignore_hosts=["b"]), OPTIONS)
    assert by_host(selection.decision)["b"]["rejected_by"]["reason"] == "the request ignores this host"
