# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.bootflow.compute.plugins.module_utils.core.errors import ComputeResourcesUnavailable
from ansible_collections.bootflow.compute.plugins.module_utils.core.resources.claims import (
    NodeUsage,
    ResourceRequest,
    claim_test,
    estimate_overhead,
    usage_delta,
)

NODE = NodeUsage(memory_mb=8192, memory_mb_used=4096, local_gb=100, local_gb_used=40, vcpus=8, vcpus_used=6)
REQUEST = ResourceRequest(memory_mb=4096, disk_gb=60, vcpus=2)


@pytest.mark.parametrize(
    "limits",
    [
        pytest.param(None, id="no limits"),
        pytest.param({}, id="empty limits"),
        pytest.param({"memory_mb": None, "disk_gb": None, "vcpu": None}, id="each none"),
        pytest.param({"memory_mb": 8192}, id="memory fits exactly"),
        pytest.param({"disk_gb": 100.0}, id="disk fits exactly"),
        pytest.param({"vcpu": 8}, id="vcpu fits exactly"),
        pytest.param({"memory_mb": 8192, "disk_gb": 100, "vcpu": 8}, id="all fit exactly"),
    ],
)
def test_accepts(limits):
    assert claim_test(NODE, REQUEST, limits) is None


@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        ({"memory_mb": 8191}, "Free memory 4095.00 MB < requested 4096 MB"),
        ({"memory_mb": 0}, "Free memory -4096.00 MB < requested 4096 MB"),
        ({"memory_mb": 8191.995}, "Free memory 4095.99 MB < requested 4096 MB"),
        ({"disk_gb": 99}, "Free disk 59.00 GB < requested 60 GB"),
        ({"vcpu": 7}, "Free vcpu 1.00 VCPU < requested 2 VCPU"),
        (
            {"vcpu": 0, "disk_gb": 0, "memory_mb": 4000},
            "Free memory -96.00 MB < requested 4096 MB; Free disk -40.00 GB < requested 60 GB; Free vcpu -6.00 VCPU < requested 2 VCPU",
        ),
    ],
)
def test_refuses_with_every_reason(limits, reason):
    with pytest.raises(ComputeResourcesUnavailable) as caught:
        claim_test(NODE, REQUEST, limits)
    assert caught.value.message == "Insufficient compute resources: %s." % reason
    assert caught.value.retryable


def test_the_log_has_the_numbers_of_every_test():
    lines = []
    claim_test(NODE, REQUEST, {"memory_mb": 8192.0, "vcpu": 128}, log=lines.append)
    assert lines == [
        "Total memory: 8192 MB, used: 4096.00 MB",
        "memory limit: 8192.00 MB, free: 4096.00 MB",
        "Total disk: 100 GB, used: 40.00 GB",
        "disk limit not specified, defaulting to unlimited",
        "Total vcpu: 8 VCPU, used: 6.00 VCPU",
        "vcpu limit: 128.00 VCPU, free: 122.00 VCPU",
    ]


def test_a_node_far_over_its_limit():
    node = NodeUsage(1, 30000, 1, 0, 1, 0)
    with pytest.raises(ComputeResourcesUnavailable, match=r"Free memory -29999\.00 MB < requested 4096 MB"):
        claim_test(node, REQUEST, {"memory_mb": 1})


def test_overhead_counts_at_the_border():
    limits = {"memory_mb": 8192}
    assert claim_test(NODE, ResourceRequest(4032, 0, 0, memory_overhead_mb=64), limits) is None
    with pytest.raises(ComputeResourcesUnavailable, match="requested 4097 MB"):
        claim_test(NODE, ResourceRequest(4033, 0, 0, memory_overhead_mb=64), limits)
    with pytest.raises(ComputeResourcesUnavailable, match="requested 61 GB"):
        claim_test(NODE, ResourceRequest(0, 60, 0, disk_overhead_gb=1), {"disk_gb": 100})
    with pytest.raises(ComputeResourcesUnavailable, match="requested 3 VCPU"):
        claim_test(NODE, ResourceRequest(0, 0, 2, vcpus_overhead=1), {"vcpu": 8})


def test_a_failed_test_changes_nothing():
    before = (NODE, REQUEST)
    with pytest.raises(ComputeResourcesUnavailable):
        claim_test(NODE, REQUEST, {"memory_mb": 0})
    assert (NODE, REQUEST) == before


def test_delta_amounts():
    delta = usage_delta(ResourceRequest(1024, 20, 2, memory_overhead_mb=64, disk_overhead_gb=1))
    assert (delta.memory_mb_used, delta.local_gb_used, delta.vcpus_used, delta.num_instances) == (1088, 21, 2, 1)
    used = delta.apply(NODE)
    assert (used.memory_mb_used, used.local_gb_used, used.vcpus_used) == (5184, 61, 8)
    assert used.free_ram_mb == 3008
    with pytest.raises(ValueError):
        usage_delta(REQUEST, 0)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, 0),
        ({"fixed_mb": 64}, 64),
        ({"fixed_mb": 64, "per_vcpu_mb": 10}, 84),
        ({"percent": 1.5}, 16),
        ({"percent": 100}, 1024),
    ],
)
def test_overhead(settings, expected):
    assert estimate_overhead(2, 1024, **settings) == expected


amounts = st.integers(min_value=0, max_value=10**7)
requests = st.builds(ResourceRequest, amounts, amounts, amounts, amounts, amounts, amounts)
nodes = st.builds(NodeUsage, amounts, amounts, amounts, amounts, amounts, amounts)


@given(nodes, st.lists(requests, max_size=20), st.randoms())
def test_claims_release_exactly_what_they_took(node, wishes, rng):
    usage = node
    for request in wishes:
        usage = usage_delta(request).apply(usage)
    assert usage.memory_mb_used == node.memory_mb_used + sum(r.total_memory_mb for r in wishes)
    rng.shuffle(wishes)
    for request in wishes:
        usage = usage_delta(request, -1).apply(usage)
    assert usage == node


@given(nodes, requests, st.floats(min_value=0, max_value=10**8) | st.integers(min_value=0, max_value=10**8))
def test_what_is_accepted_never_passes_the_limit(node, request, limit):
    limits = {"memory_mb": limit, "disk_gb": limit, "vcpu": limit}
    after = usage_delta(request).apply(node)
    fits = after.memory_mb_used <= limit and after.local_gb_used <= limit and after.vcpus_used <= limit
    try:
        claim_test(node, request, limits)
        accepted = True
    except ComputeResourcesUnavailable:
        accepted = False
    if isinstance(limit, int):
        assert accepted == fits
    elif accepted:  # the subtraction may round, by less than half a unit
        assert after.memory_mb_used <= limit + 0.5
