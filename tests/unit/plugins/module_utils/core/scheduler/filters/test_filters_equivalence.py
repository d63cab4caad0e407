# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The filters over columns and groups against Nova's rules written as a loop over hosts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.bootflow.compute.plugins.module_utils.core.model import Flavor
from ansible_collections.bootflow.compute.plugins.module_utils.core.scheduler.aggregates import Aggregate
from ansible_collections.bootflow.compute.plugins.module_utils.core.scheduler.columns import Fleet
from ansible_collections.bootflow.compute.plugins.module_utils.core.scheduler.host_state import HostState
from ansible_collections.bootflow.compute.plugins.module_utils.core.scheduler.registry import make_filters
from ansible_collections.bootflow.compute.plugins.module_utils.core.scheduler.request_spec import RequestSpec

from ..reference import make_options

ratio_texts = st.sampled_from(["1", "1.5", "2.0", "0.5", "x", "", "1,2", "-1", "16"])
metadata = st.fixed_dictionaries(
    {},
    optional={
        "ram_allocation_ratio": ratio_texts,
        "disk_allocation_ratio": ratio_texts,
        "cpu_allocation_ratio": ratio_texts,
        "max_instances_per_host": st.sampled_from(["1", "3", "x", "2.0"]),
        "ssd": st.sampled_from(["true", "false", "true, false", "a,b"]),
        "availability_zone": st.sampled_from(["az1", "az2", "az1,az2"]),
        "filter_tenant_id": st.sampled_from(["p", "q", "q,p"]),
        "instance_type": st.sampled_from(["f", "g", "f, g"]),
    },
)


@st.composite
def worlds(draw):
    aggregates = [Aggregate("a%d" % i, metadata=draw(metadata)) for i in range(draw(st.integers(0, 3)))]
    hosts = []
    for i in range(draw(st.integers(1, 8))):
        hosts.append(
            HostState(
                "h%d" % i,
                "n%d" % i,
                memory_mb=draw(st.sampled_from([0, 100, 200])),
                memory_mb_used=draw(st.sampled_from([0, 100, 150])),
                local_gb=draw(st.sampled_from([0, 10, 20])),
                local_gb_used=draw(st.sampled_from([0, 5, 20])),
                vcpus=draw(st.sampled_from([0, 2, 4])),
                vcpus_used=draw(st.sampled_from([0, 2, 7])),
                num_instances=draw(st.integers(0, 4)),
                instances=draw(st.dictionaries(st.sampled_from("abc"), st.sampled_from("fg"), max_size=2)),
                aggregates=tuple(a for a in aggregates if draw(st.booleans())),
            )
        )
    flavor = Flavor(
        "f",
        draw(st.sampled_from([0, 50, 100, 150])),
        draw(st.sampled_from([0, 1, 2, 3])),
        root_gb=draw(st.sampled_from([0, 5, 10])),
        swap=draw(st.sampled_from([0, 1])),
        extra_specs=draw(st.sampled_from([{}, {"ssd": "true"}, {"ssd": "<or> a <or> false"}, {"hw:x": "y"}])),
    )
    hints = draw(st.sampled_from([{}, {"same_host": ["a", "b"]}, {"different_host": "a"}]))
    return hosts, RequestSpec(
        ["u"],
        flavor,
        availability_zone=draw(st.sampled_from([None, "az1", "nova"])),
        project="p",
        scheduler_hints=hints,
    )


def least(host, key, cast, own):
    try:
        values = [cast(a.metadata[key]) for a in host.aggregates if key in a.metadata]
    except ValueError:
        return own
    return min(values) if values else own


def entries(host, key):
    return [e.strip() for a in host.aggregates if key in a.metadata for e in a.metadata[key].split(",")]


def ram(host, spec):
    if host.total_usable_ram_mb < spec.flavor.memory_mb:
        return False
    limit = host.memory_mb * least(host, "ram_allocation_ratio", float, host.ram_allocation_ratio)
    return limit - host.memory_mb_used >= spec.flavor.memory_mb


def disk(host, spec):
    need = 1024 * spec.flavor.root_gb + spec.flavor.swap
    if host.local_gb * 1024 < need:
        return False
    limit = host.local_gb * 1024 * least(host, "disk_allocation_ratio", float, host.disk_allocation_ratio)
    return limit - (host.local_gb * 1024 - host.free_disk_mb) >= need


def core(host, spec):
    if not host.vcpus:
        return True
    limit = host.vcpus * least(host, "cpu_allocation_ratio", float, host.cpu_allocation_ratio)
    if limit > 0 and spec.flavor.vcpus > host.vcpus:
        return False
    return limit - host.vcpus_used >= spec.flavor.vcpus


def extra_specs(host, spec):
    for key, accepted in {"true": ["true"], "<or> a <or> false": ["a", "false"]}.items():
        if spec.flavor.extra_specs.get("ssd") == key:
            return any(e in accepted for e in entries(host, "ssd"))
    return True


def zone(host, spec):
    zones = entries(host, "availability_zone") or ["nova"]
    return not spec.availability_zone or spec.availability_zone in zones


LOOPS = {
    "AggregateRamFilter": ram,
    "AggregateDiskFilter": disk,
    "AggregateCoreFilter": core,
    "AggregateNumInstancesFilter": lambda h, s: h.num_instances < least(h, "max_instances_per_host", int, 2),
    "AggregateInstanceExtraSpecsFilter": extra_specs,
    "AvailabilityZoneFilter": zone,
    "AggregateMultiTenancyIsolation": lambda h, s: "p" in (entries(h, "filter_tenant_id") or ["p"]),
    "AggregateTypeAffinityFilter": lambda h, s: "f" in (entries(h, "instance_type") or ["f"]),
    "TypeAffinityFilter": lambda h, s: all(name == "f" for name in h.instances.values()),
    "ExactRamFilter": lambda h, s: h.memory_mb - h.memory_mb_used == s.flavor.memory_mb,
    "ExactDiskFilter": lambda h, s: h.free_disk_mb == 1024 * s.flavor.root_gb + s.flavor.swap,
    "ExactCoreFilter": lambda h, s: h.vcpus > 0 and h.vcpus - h.vcpus_used == s.flavor.vcpus,
    "SameHostFilter": lambda h, s: not s.scheduler_hints.get("same_host") or bool({"a", "b"} & set(h.instances)),
    "DifferentHostFilter": lambda h, s: not s.scheduler_hints.get("different_host") or "a" not in h.instances,
}


@pytest.mark.parametrize("name", list(LOOPS))
@given(world=worlds(), data=st.data())
def test_columns_answer_as_a_loop_over_hosts(name, world, data):
    hosts, request = world
    fleet = Fleet(hosts)
    (filter_,) = make_filters(make_options(enabled_filters=[name], max_instances_per_host=2), {})
    rows = fleet.all_rows()[data.draw(st.lists(st.booleans(), min_size=len(hosts), max_size=len(hosts)))]
    result = filter_.evaluate(fleet, request, rows)
    expected = [bool(LOOPS[name](hosts[row], request)) for row in rows]
    assert result.mask.tolist() == expected
    for position, row in enumerate(rows):
        alone = filter_.evaluate(fleet, request, int(row))
        assert bool(alone.mask) == expected[position]
        assert filter_.passes(fleet, request, int(row)) == expected[position]
        if not expected[position]:
            assert alone.text(0) == result.text(position) != ""
