# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core.errors import InvalidInput
from ansible_collections.bootflow.compute.plugins.module_utils.core.model import Flavor
from ansible_collections.bootflow.compute.plugins.module_utils.core.scheduler.aggregates import Aggregate
from ansible_collections.bootflow.compute.plugins.module_utils.core.scheduler.columns import Fleet
from ansible_collections.bootflow.compute.plugins.module_utils.core.scheduler.host_state import HostState
from ansible_collections.bootflow.compute.plugins.module_utils.core.scheduler.registry import (
    BUILTIN_FILTERS,
    DEFAULT_FILTERS,
    hints_read_by,
    load_user_classes,
    make_filters,
)
from ansible_collections.bootflow.compute.plugins.module_utils.core.scheduler.request_spec import RequestSpec

from .reference import make_options

NAMES = [cls.name for cls in BUILTIN_FILTERS]


def test_names_are_those_of_the_classes_and_the_default_ones_are_known():
    assert NAMES == [cls.__name__ for cls in BUILTIN_FILTERS]
    assert len(set(NAMES)) == len(NAMES)
    assert set(DEFAULT_FILTERS) < set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_each_filter_lets_a_plain_request_on_an_empty_host_that_it_fills(name):
    fleet = Fleet([HostState("h%d" % i, "n", memory_mb=1024, local_gb=1, vcpus=1, updated_at=1.0) for i in range(3)])
    (filter_,) = make_filters(make_options(enabled_filters=[name], now=1.0), {})
    mask = filter_.evaluate(fleet, RequestSpec(["u"], Flavor("f", 1024, 1, 1)), fleet.all_rows()[1:]).mask
    assert mask.tolist() == [True, True]


def test_facts_age_is_a_default_once_there_is_an_age():
    assert "FactsAgeFilter" in DEFAULT_FILTERS
    names = [f.name for f in make_filters(make_options(max_facts_age=5), {})]
    assert names == list(DEFAULT_FILTERS)
    assert [f.name for f in make_filters(make_options(), {})] == [n for n in names if n != "FactsAgeFilter"]
    listed = make_filters(make_options(enabled_filters=["FactsAgeFilter"]), {})
    assert [f.name for f in listed] == ["FactsAgeFilter"]


def test_filters_tell_the_hints_that_they_read_and_what_they_need():
    assert hints_read_by(make_filters(make_options(enabled_filters=["RamFilter", "ComputeFilter"]), {})) == set()
    names = ["SameHostFilter", "DifferentHostFilter", "SimpleCIDRAffinityFilter", "JsonFilter"]
    made = make_filters(make_options(enabled_filters=names), {})
    assert hints_read_by(made) == {"same_host", "different_host", "cidr", "build_near_host_ip", "query"}
    assert hints_read_by(BUILTIN_FILTERS) >= hints_read_by(made)
    assert {"TypeAffinityFilter", "SameHostFilter", "DifferentHostFilter"} <= {
        f.name for f in BUILTIN_FILTERS if f.needs_instances
    }
    assert "MetricsFilter" in [f.name for f in BUILTIN_FILTERS if f.needs_metrics]


def test_filters_of_the_user_tell_it_too(tmp_path):
    (tmp_path / "mine.py").write_text(
        "class Mine:\n    hints = 'rack'\n    needs_instances = True\n"
        "    def host_passes(self, host_state, spec):\n        return True\n"
    )
    (made,) = make_filters(make_options(enabled_filters=["Mine"]), load_user_classes([str(tmp_path)]))
    assert hints_read_by([made]) == {"rack"}
    assert made.needs(RequestSpec(["u"], Flavor("f", 1, 1))) == {"instances"}


def test_a_filter_of_the_user_can_not_take_the_name_of_one_that_is_not_a_default(tmp_path):
    (tmp_path / "mine.py").write_text("class JsonFilter:\n    def host_passes(self, h, s):\n        return True\n")
    with pytest.raises(InvalidInput, match="JsonFilter of .* is already the name of one of bootflow.compute"):
        load_user_classes([str(tmp_path)])


def test_of_hosts_that_are_known_to_be_alike_one_is_looked_at():
    """Filters tell what they look at, so that a fleet that was read as columns makes one HostState of each kind."""
    count, kinds = 600, 3
    aggregates = [(Aggregate("a%d" % i, metadata={"ssd": "true", "availability_zone": "az"}),) for i in range(kinds)]
    made = []

    def make(row):
        made.append(row)
        kind = row % kinds
        return HostState(
            "h%d" % row,
            "n%d" % row,
            host_ip="10.0.0.%d" % kind,
            hypervisor_type="QEMU",
            aggregates=aggregates[kind],
            cpu_info={"arch": "x86_64", "model": "m%d" % kind},
            supported_instances=[("x86_64", "kvm", "hvm")],
        )

    numbers = ("memory_mb", "memory_mb_used", "local_gb", "local_gb_used")
    columns = {
        **{n: [0] * count for n in (*numbers, "num_instances", "num_io_ops", "hypervisor_version")},
        **{n: [1] * count for n in ("vcpus", "vcpus_used")},
        **{n: [1.0] * count for n in ("ram_allocation_ratio", "disk_allocation_ratio", "cpu_allocation_ratio")},
        "disk_available_least": [None] * count,
        "host": ["h%d" % i for i in range(count)],
        "nodename": ["n%d" % i for i in range(count)],
        "host_ip": ["10.0.0.%d" % (i % kinds) for i in range(count)],
        "hypervisor_type": ["QEMU"] * count,
        "disabled": [False] * count,
        "forced_down": [False] * count,
        "updated_at": [1.0] * count,
    }
    label = [i % kinds for i in range(count)]
    same = ("availability_zones", "aggregates", "cpu_info", "supported_instances", "stats", "instances", "metrics")
    fleet = Fleet.of_columns(columns, dict.fromkeys(same, label), make)
    names = [n for n in NAMES if n != "JsonFilter"]
    specs = {"ssd": "true", "capabilities:cpu_info:model": "<or> m0 <or> m1", "capabilities:hypervisor_type": "QEMU"}
    request = RequestSpec(
        ["u"],
        Flavor("f", 0, 0, extra_specs=specs),
        image_properties={"hw_architecture": "x86_64"},
        image_name="plain",
        availability_zone="az",
        retry_hosts=[("h0", "n0")],
        scheduler_hints={"different_host": "a", "build_near_host_ip": "10.0.0.1", "cidr": "/32"},
    )
    options = make_options(enabled_filters=names, now=1.0, max_facts_age=5, isolated_hosts=["h1"])
    rows = fleet.all_rows()
    for filter_ in make_filters(options, {}):
        rows = rows[filter_.evaluate(fleet, request, rows).mask]
    assert rows.tolist() == list(range(4, count, 3))
    assert len(made) == kinds
