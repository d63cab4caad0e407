# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core.errors import InvalidInput
from ansible_collections.bootflow.compute.plugins.module_utils.core.model import Flavor
from ansible_collections.bootflow.compute.plugins.module_utils.core.scheduler.aggregates import Aggregate, Membership
from ansible_collections.bootflow.compute.plugins.module_utils.core.scheduler.columns import Fleet
from ansible_collections.bootflow.compute.plugins.module_utils.core.scheduler.host_state import HostState
from ansible_collections.bootflow.compute.plugins.module_utils.core.scheduler.memberships import aggregate_groups
from ansible_collections.bootflow.compute.plugins.module_utils.core.scheduler.placement import select_destinations
from ansible_collections.bootflow.compute.plugins.module_utils.core.scheduler.request_spec import RequestSpec

from ..reference import make_options
from .test_filters import verdict


def member_of(*metadata):
    return {"aggregates": tuple(Aggregate("agg%d" % i, frozenset("h"), m) for i, m in enumerate(metadata))}


@pytest.mark.parametrize(
    ("texts", "cast", "least"),
    [
        ([], float, None),
        (["2.0"], float, 2.0),
        (["2.0", "1.25"], float, 1.25),
        (["10", "9"], int, 9),  # numbers, not texts
        (["2.0", "many"], float, None),  # one that is no number, and the host's own holds
        (["1.0,2.0"], float, None),
        ([""], float, None),
        (["8.0"], int, None),
        ([" 8 "], int, 8),
        (["nan"], float, None),
        (["inf"], float, None),
        (["9" * 400], int, None),
        (["0"], float, 0.0),
        ([1.5], float, 1.5),
    ],
)
def test_the_minimum_over_aggregates(texts, cast, least):
    membership = Membership([Aggregate("a%d" % i, metadata={"key": text}) for i, text in enumerate(texts)])
    assert membership.minimum("key", cast) == least
    assert membership.minimum("other", cast) is None


def test_metadata_of_all_aggregates_with_its_comma_lists():
    membership = Membership([Aggregate("a", metadata={"k": "x, y ,", "l": "1"}), Aggregate("b", metadata={"k": "z"})])
    assert membership.metadata == {"k": {"x", "y", "", "z"}, "l": {"1"}}
    assert membership.entries("k") == {"x", "y", "", "z"}
    assert membership.entries("m") == frozenset()
    assert membership.values("k") == {"x, y ,", "z"}
    assert (membership.names, Membership().names) == ("a, b", "none")


def test_hosts_in_the_same_aggregates_are_one_group():
    a, b = Aggregate("a", metadata={"k": "1"}), Aggregate("b", metadata={"k": "2"})
    sets = [(a,), (a, b), (), (a,), (a, b), ()]
    groups = aggregate_groups(Fleet([HostState("h%d" % i, "n", aggregates=s) for i, s in enumerate(sets)]))
    assert groups.codes.tolist() == [0, 1, 2, 0, 1, 2]
    assert [m.aggregates for m in groups.values] == [(a,), (a, b), ()]


# (the filter, the host's total, used, own ratio in the words of the host; then the same need under metadata)
RAM = ("AggregateRamFilter", "memory_mb", "ram_allocation_ratio", lambda n: {"memory_mb": n})
DISK = ("AggregateDiskFilter", "local_gb", "disk_allocation_ratio", lambda n: {"root_gb": n})
CORE = ("AggregateCoreFilter", "vcpus", "cpu_allocation_ratio", lambda n: {"vcpus": n})


@pytest.mark.parametrize("kind", [RAM, DISK, CORE], ids=lambda kind: kind[0])
@pytest.mark.parametrize(
    ("total", "used", "own", "texts", "need", "passes"),
    [
        (100, 100, 1.0, [], 1, False),
        (100, 100, 1.0, ["2.0"], 100, True),
        (100, 101, 1.0, ["2.0"], 100, False),
        (100, 50, 4.0, ["1.0"], 51, False),  # less than its own, too
        (100, 100, 1.0, ["2.0", "1.5"], 50, True),
        (100, 100, 1.0, ["2.0", "1.5"], 51, False),
        (100, 100, 2.0, ["XXX"], 100, True),
        (100, 100, 2.0, ["XXX", "1.0"], 100, True),
        (100, 0, 1.0, ["16"], 101, False),  # never against itself
        (100, 0, 1.0, ["0"], 1, False),
        (100, 0, 1.0, ["-1"], 1, False),
    ],
)
def test_ratios_of_aggregates(kind, total, used, own, texts, need, passes):
    name, attribute, ratio, flavor = kind
    host = {attribute: total, attribute + "_used": used, ratio: own, **member_of(*({ratio: x} for x in texts))}
    assert verdict(name, host, flavor(need))[0] == passes


def test_a_host_without_a_count_of_vcpus_passes_with_aggregates_too():
    assert verdict("AggregateCoreFilter", {"vcpus": 0, **member_of({"cpu_allocation_ratio": "1"})}, {"vcpus": 9})[0]


def test_the_ratio_of_aggregates_is_in_the_text_and_in_the_limits():
    host = {"memory_mb": 100, "memory_mb_used": 60, **member_of({"ram_allocation_ratio": "1.25"})}
    assert verdict("AggregateRamFilter", host, {"memory_mb": 70})[1] == (
        "memory: needs 70 MiB, 65 MiB usable (allocation ratio 1.25)"
    )
    ratios = {"ram_allocation_ratio": "2", "disk_allocation_ratio": "3", "cpu_allocation_ratio": "4"}
    fleet = Fleet([HostState("h", "n", memory_mb=100, local_gb=10, vcpus=2, **member_of(ratios))])
    names = ["AggregateRamFilter", "AggregateDiskFilter", "AggregateCoreFilter"]
    (selection,) = select_destinations(
        fleet, RequestSpec(["u"], Flavor("f", 1, 1, 1)), make_options(enabled_filters=names)
    )
    assert selection.limits == {"memory_mb": 200.0, "disk_gb": 30.0, "vcpu": 8.0}


def test_a_ratio_of_zero_leaves_no_limit_of_vcpus():
    fleet = Fleet([HostState("h", "n", vcpus=2, **member_of({"cpu_allocation_ratio": "0"}))])
    (selection,) = select_destinations(
        fleet, RequestSpec(["u"], Flavor("f", 0, 0)), make_options(enabled_filters=["AggregateCoreFilter"])
    )
    assert selection.limits == {}


COUNTS = [
    ("IoOpsFilter", "AggregateIoOpsFilter", "num_io_ops", "max_io_ops_per_host", 8),
    ("NumInstancesFilter", "AggregateNumInstancesFilter", "num_instances", "max_instances_per_host", 50),
]


@pytest.mark.parametrize("kind", COUNTS, ids=lambda kind: kind[0])
def test_counts_stay_below_the_setting(kind):
    name, of_aggregate, count, setting, default = kind
    for which in (name, of_aggregate):
        assert verdict(which, {count: default - 1})[0]
        assert not verdict(which, {count: default})[0]
        assert verdict(which, {count: 2}, options={setting: 3})[0]
        ok, reason = verdict(which, {count: 3}, options={setting: 3})
        assert not ok
        assert reason.startswith("3 ")
        assert reason.endswith("%s allows 3" % setting)


@pytest.mark.parametrize("kind", COUNTS, ids=lambda kind: kind[0])
@pytest.mark.parametrize(
    ("texts", "count", "passes"),
    [
        (["6"], 5, True),
        (["6"], 6, False),
        (["60"], 59, True),
        (["60", "55"], 55, False),
        (["60", "55"], 54, True),
        (["XXX"], 6, True),
        (["XXX"], 7, False),
        (["6", "XXX"], 6, True),
        (["6.0"], 6, True),  # no whole number
        (["0"], 0, False),
    ],
)
def test_counts_of_aggregates(kind, texts, count, passes):
    name, of_aggregate, attribute, setting, dummy = kind
    host = {attribute: count, **member_of(*({setting: x} for x in texts))}
    assert verdict(of_aggregate, host, options={setting: 7})[0] == passes
    assert verdict(name, host, options={setting: 7})[0] == (count < 7)  # which does not look at aggregates


@pytest.mark.parametrize(
    ("filter_", "setting", "value"),
    [
        ("IoOpsFilter", "max_io_ops_per_host", "many"),
        ("IoOpsFilter", "max_io_ops_per_host", 0),
        ("IoOpsFilter", "max_io_ops_per_host", 1.5),
        ("AggregateIoOpsFilter", "max_io_ops_per_host", float("inf")),
        ("NumInstancesFilter", "max_instances_per_host", 0),
        ("AggregateNumInstancesFilter", "max_instances_per_host", -1),
        ("NumInstancesFilter", "max_instances_per_host", True),
    ],
)
def test_a_setting_that_is_no_count(filter_, setting, value):
    with pytest.raises(InvalidInput, match="bootflow_%s must be a whole number, at least 1, got" % setting):
        verdict(filter_, options={setting: value})


def test_counts_grow_within_a_request():
    fleet = Fleet([HostState("a", "a", num_instances=1), HostState("b", "b")])
    options = make_options(enabled_filters=["NumInstancesFilter"], max_instances_per_host=2)
    chosen = select_destinations(fleet, RequestSpec(["1", "2", "3"], Flavor("f", 0, 0)), options)
    assert sorted(s.host for s in chosen) == ["a", "b", "b"]


SCOPED = "aggregate_instance_extra_specs:"


@pytest.mark.parametrize(
    ("specs", "metadata", "passes"),
    [
        ({}, [], True),
        ({"ssd": "true"}, [], False),
        ({"ssd": "true"}, [{"ssd": "true"}], True),
        ({"ssd": "true"}, [{"ssd": "false"}], False),
        ({"ssd": "true"}, [{"SSD": "true"}], False),
        ({"ssd": "true"}, [{"ssd": "True"}], False),
        ({SCOPED + "ssd": "true"}, [{"ssd": "true"}], True),
        ({SCOPED + "ssd": "true"}, [{"ssd": "false"}], False),
        ({SCOPED + "ssd": "true"}, [], False),
        ({SCOPED + "a:b": "1"}, [{"a:b": "1"}], True),  # only the scope is cut off
        ({SCOPED + "a:b": "1"}, [{"b": "1"}], False),
        ({"hw:cpu_policy": "dedicated", "quota:x": "1", "capabilities:y": "2"}, [], True),
        ({"aggregate_instance_extra_specs": "1"}, [], False),  # a key, no scope
        ({"a": "1", "b": "2"}, [{"a": "1"}, {"b": "2"}], True),  # of all aggregates together
        ({"a": "1", "b": "2"}, [{"a": "1"}, {"b": "3"}], False),
        ({"a": "1"}, [{"a": "2"}, {"a": "1"}], True),
        ({"a": "y"}, [{"a": "x, y ,z"}], True),
        ({"a": "x, y"}, [{"a": "x, y"}], False),
        ({"a": "<or> 1 <or> 2"}, [{"a": "2,3"}], True),
        ({"a": ">= 8"}, [{"a": "4,16"}], True),
        ({"a": ">= 8"}, [{"a": "4,6"}], False),
        ({"a": "s== x"}, [{"a": "x"}], True),
        ({"a": "<in> x86"}, [{"a": "x86_64"}], True),
        ({"a": "!= 4"}, [{"a": "4,5"}], True),  # one entry that satisfies it will do
        ({"a": ""}, [{"a": "x,"}], True),
        ({"a": 1}, [{"a": "1"}], True),
    ],
)
def test_extra_specs_of_aggregates(specs, metadata, passes):
    ok, reason = verdict("AggregateInstanceExtraSpecsFilter", member_of(*metadata), {"extra_specs": specs})
    assert ok == passes
    if not ok:
        assert any(reason.startswith("%s: needs %s, " % item) for item in specs.items())


def test_extra_specs_reasons_and_bad_requirements():
    host = member_of({"ssd": "x,a"})
    assert verdict("AggregateInstanceExtraSpecsFilter", host, {"extra_specs": {"ssd": "b"}})[1] == (
        "ssd: needs b, its aggregates have a, x"
    )
    assert verdict("AggregateInstanceExtraSpecsFilter", host, {"extra_specs": {"hdd": "b"}})[1] == (
        "hdd: needs b, none of its aggregates (agg0) has it"
    )
    with pytest.raises(InvalidInput, match="'lots' in the requirement"):
        verdict("AggregateInstanceExtraSpecsFilter", host, {"extra_specs": {"ssd": ">= lots"}})


@pytest.mark.parametrize(
    ("props", "metadata", "namespace", "separator", "passes"),
    [
        ({}, [], "", ".", True),
        ({"hw_vm_mode": "hvm"}, [], "", ".", True),
        ({"hw_vm_mode": "hvm"}, [{"hw_vm_mode": "hvm"}], "", ".", True),
        ({"hw_vm_mode": "hvm"}, [{"hw_vm_mode": "xen, hvm"}], "", ".", True),
        ({"hw_vm_mode": "xen"}, [{"hw_vm_mode": "hvm"}], "", ".", False),
        ({"os_distro": "windows,"}, [{"os_distro": "windows,linux"}], "", ".", False),
        ({}, [{"hw_vm_mode": "hvm"}], "", ".", True),  # the image says nothing of it
        ({"hw_vm_mode": ""}, [{"hw_vm_mode": "hvm"}], "", ".", True),
        ({"hw_cpu_cores": 2, "hw_vm_mode": "hvm"}, [{"hw_cpu_cores": "2", "hw_vm_mode": "hvm"}], "", ".", True),
        ({"hw_cpu_cores": 2, "hw_vm_mode": "hvm"}, [{"hw_cpu_cores": "1"}, {"hw_vm_mode": "hvm"}], "", ".", False),
        ({"os_type": "linux"}, [{"os": "linux"}], "", ".", True),
        ({"os_type": "linux"}, [{"os_type": "linux"}, {"os_type": "windows"}], "", ".", True),
        (
            {"hw_vm_mode": "hvm", "img_owner_id": "wrong"},
            [{"hw_vm_mode": "hvm", "img_owner_id": "foo"}],
            "hw",
            "_",
            True,
        ),
        ({"hw_vm_mode": "xen"}, [{"hw_vm_mode": "hvm"}], "hw", "_", False),
        ({"hw_vm_mode": "xen"}, [{"hw_vm_mode": "hvm"}], "hw", ".", True),
        ({"win.os": "10"}, [{"win.os": "11"}], "win", ".", False),
        ({"win.os": "10"}, [{"win.os": "11"}], "w", ".", True),
        ({"architecture": "aarch64"}, [{"hw_architecture": "x86_64"}], "", ".", False),  # Glance's older name
    ],
)
def test_image_properties_isolation(props, metadata, namespace, separator, passes):
    options = {
        "aggregate_image_properties_isolation_namespace": namespace,
        "aggregate_image_properties_isolation_separator": separator,
    }
    host = member_of(*metadata)
    ok, reason = verdict("AggregateImagePropertiesIsolation", host, options=options, image_properties=props)
    assert ok == passes
    assert ok or reason.startswith("the image has ")


def test_image_properties_isolation_with_a_namespace_that_is_no_text():
    with pytest.raises(InvalidInput, match="isolation_namespace"):
        verdict("AggregateImagePropertiesIsolation", options={"aggregate_image_properties_isolation_namespace": ["hw"]})


@pytest.mark.parametrize(
    ("metadata", "project", "passes"),
    [
        ([], "p", True),
        ([{"other": "q"}], "p", True),
        ([{"filter_tenant_id": "p"}], "p", True),
        ([{"filter_tenant_id": "q"}], "p", False),
        ([{"filter_tenant_id": "q, p"}], "p", True),
        ([{"filter_tenant_id": "q,r"}], "p", False),
        ([{"filter_tenant_id": "q"}, {"filter_tenant_id": "p"}], "p", True),
        ([{"filter_tenant_id": "q"}, {}], "p", False),
        ([{"filter_tenant_id": "P"}], "p", False),
        ([{"filter_tenant_id": "q"}], "", False),
    ],
)
def test_multi_tenancy_isolation(metadata, project, passes):
    ok, reason = verdict("AggregateMultiTenancyIsolation", member_of(*metadata), project=project)
    assert ok == passes
    assert ok or ("project %s" % (project or "(none)") in reason and "kept for" in reason)


@pytest.mark.parametrize(
    ("metadata", "passes"),
    [
        ([], True),
        ([{"instance_type": "f"}], True),
        ([{"instance_type": "g"}], False),
        ([{"instance_type": "g, f"}], True),
        ([{"instance_type": "g"}, {"instance_type": "f"}], True),
        ([{"instance_type": "g"}, {}], False),
        ([{"instance_type": "ff"}], False),
        ([{"instance_type": ""}], False),
    ],
)
def test_type_affinity_of_aggregates(metadata, passes):
    ok, reason = verdict("AggregateTypeAffinityFilter", member_of(*metadata))
    assert ok == passes
    assert ok or reason.startswith("flavor f: its aggregates are kept for ")
