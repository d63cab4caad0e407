# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.bootflow.compute.plugins.module_utils.core.volumes.model import (
    PoolState,
    VolumeRequest,
    VolumeType,
)
from ansible_collections.bootflow.compute.plugins.module_utils.core.volumes.scheduler.backends import Backends
from ansible_collections.bootflow.compute.plugins.module_utils.core.volumes.scheduler.capacity_filter import (
    CapacityFilter,
)
from ansible_collections.bootflow.compute.plugins.module_utils.core.volumes.scheduler.options import (
    VolumeSchedulerOptions,
)
from ansible_collections.bootflow.compute.plugins.module_utils.core.volumes.scheduler.registry import make_weighers

HOST = "stor1@lvm#vg0"
THICK = VolumeType("thick", {"provisioning:type": "thick"})
THIN = VolumeType("thin", {"provisioning:type": "thin"})


def pool(free=500, total=1000, host=HOST, **more):
    return PoolState(host, total, free, **more)


def thin(free=500, total=1000, provisioned=500, ratio=2.0, **more):
    more.setdefault("thin_provisioning_support", True)
    return pool(free, total, provisioned_capacity_gb=provisioned, max_over_subscription_ratio=ratio, **more)


def ask(state, size=100, **more):
    backends = Backends([state])
    return CapacityFilter(VolumeSchedulerOptions()).judge(backends, VolumeRequest(size, **more), backends.all_rows())


CASES = [
    # pool, size, more of the request, passes, text
    (pool(200), 100, {}, True, ""),
    (pool(100), 100, {}, True, ""),
    (pool(99), 100, {}, False, "disk: needs 100 GiB, 99 GiB usable"),
    (pool(0), 0, {}, True, ""),
    (pool(None), 0, {}, True, ""),
    (pool(None), 100, {}, False, "disk: the backend has not reported its free space"),
    (pool("infinite"), 100, {}, True, ""),
    (pool("unknown"), 100, {}, True, ""),
    (pool("unknown", 0), 100, {}, True, ""),
    (pool("infinite", "unknown", reserved_percentage=5), 100, {}, True, ""),
    (pool(5, "infinite"), 100, {}, True, ""),
    (pool(5, "unknown"), 100, {}, True, ""),
    (
        pool(5000, "infinite", reserved_percentage=5),
        100,
        {},
        False,
        "disk: 5 % of it is reserved, which cannot be calculated",
    ),
    (pool(5000, "unknown", reserved_percentage=5), 100, {}, False, "the backend reports a total of unknown"),
    (pool(5000, 0), 100, {}, False, "disk: needs 100 GiB, the whole backend has 0 GiB"),
    (pool(5000, -1), 100, {}, False, "the whole backend has -1 GiB"),
    # reserved: 5 % of 1000 are 50, 5 % of 999 are 49 (rounded down)
    (pool(150, reserved_percentage=5), 100, {}, True, ""),
    (pool(149, reserved_percentage=5), 100, {}, False, "99 GiB usable, 5 % of it reserved"),
    (pool(149, 999, reserved_percentage=5), 100, {}, True, ""),
    (pool(20, reserved_percentage=5), 100, {}, False, "disk: needs 100 GiB, 0 GiB usable, 5 % of it reserved"),
    (thin(free=20, provisioned=0, reserved_percentage=5), 100, {}, False, " 0 GiB usable (0 GiB free, 5 % of it"),
    # growing asks for the difference
    (pool(50), 100, {"new_size": 150}, True, ""),
    (pool(49), 100, {"new_size": 150}, False, "disk: needs 50 GiB, 49 GiB usable"),
    # thin: promises
    (thin(provisioned=1900), 100, {}, True, ""),
    (
        thin(provisioned=1901),
        100,
        {},
        False,
        "disk: needs 100 GiB, 99 GiB left to provision (1901 GiB provisioned of 1000 GiB",
    ),
    (
        thin(provisioned=2500),
        100,
        {},
        False,
        "0 GiB left to provision (2500 GiB provisioned of 1000 GiB, over-subscription ratio 2)",
    ),
    (thin(provisioned=1950), 100, {"new_size": 150}, True, ""),
    # thin: what is free x ratio
    (thin(free=50), 100, {}, True, ""),
    (thin(free=49), 100, {}, False, "disk: needs 100 GiB, 98 GiB usable (49 GiB free, over-subscription ratio 2)"),
    (thin(free=100, reserved_percentage=5), 100, {}, True, ""),
    (
        thin(free=99, reserved_percentage=5),
        100,
        {},
        False,
        "98 GiB usable (49 GiB free, 5 % of it reserved, over-subscription ratio 2)",
    ),
    # thin: the ratio itself
    (thin(ratio=1.0, provisioned=0), 100, {}, True, ""),
    (
        thin(ratio=0.99, provisioned=0),
        100,
        {},
        False,
        "max_over_subscription_ratio of the backend is 0.99, it must be 1.0 or more",
    ),
    # a type that wants thick takes no part in promises, nor does a backend that is not thin
    (thin(provisioned=5000), 100, {"volume_type": THICK}, True, ""),
    (thin(free=99), 100, {"volume_type": THICK}, False, "disk: needs 100 GiB, 99 GiB usable"),
    (thin(ratio=0.5), 100, {"volume_type": THICK}, True, ""),
    (thin(provisioned=5000), 100, {"volume_type": THIN}, False, "0 GiB left to provision"),
    (thin(provisioned=5000, thin_provisioning_support=False), 100, {}, True, ""),
    (thin(free=99, thin_provisioning_support=False), 100, {}, False, "disk: needs 100 GiB, 99 GiB usable"),
    (thin(provisioned=5000, thick_provisioning_support=True), 100, {}, False, "0 GiB left to provision"),
]


@pytest.mark.parametrize(("state", "size", "more", "passes", "text"), CASES)
def test_room_in_a_pool(state, size, more, passes, text):
    result = ask(state, size, **more)
    assert bool(result.mask[0]) is passes
    assert text in result.text(0)
    assert bool(result.text(0)) is not passes


def passes_by_the_rules(state, request):
    """Semantics 12 step by step, one pool at a time."""
    want = request.requested_size
    if want == 0:
        return True
    free, total = state.free_capacity_gb, state.total_capacity_gb
    if free is None:
        return False
    if free in ("infinite", "unknown"):
        return True
    if total in ("infinite", "unknown"):
        return state.reserved_percentage == 0
    if float(total) <= 0:
        return False
    left = free - math.floor(float(total) * (float(state.reserved_percentage) / 100))
    is_thin = request.volume_type is None or request.volume_type.extra_specs.get("provisioning:type") != "thick"
    if is_thin and state.thin_provisioning_support:
        ratio = state.ratio()
        if ratio < 1:
            return False
        return (state.provisioned + want) / float(total) <= ratio and left * ratio >= want
    return left >= want


amounts = st.one_of(st.integers(0, 300), st.floats(0, 300).map(lambda x: round(x, 2)))
words = st.sampled_from(["infinite", "unknown"])
pools = st.builds(
    PoolState,
    host=st.sampled_from([HOST, "stor2@lvm#vg0", "stor3@lvm#vg0"]),
    total_capacity_gb=st.one_of(amounts, words),
    free_capacity_gb=st.one_of(amounts, words, st.none()),
    allocated_capacity_gb=amounts,
    provisioned_capacity_gb=st.one_of(st.none(), amounts),
    max_over_subscription_ratio=st.sampled_from([None, "auto", 0.5, 1.0, 1.5, 20.0]),
    reserved_percentage=st.sampled_from([0, 3, 10, 99.5, 100]),
    thin_provisioning_support=st.booleans(),
)
requests = st.builds(
    VolumeRequest,
    size=st.integers(0, 200),
    new_size=st.one_of(st.none(), st.integers(200, 300)),
    volume_type=st.sampled_from([None, THICK, THIN]),
)


@given(st.lists(pools, max_size=6), requests)
def test_all_pools_at_once_are_judged_as_one_by_one(states, request):
    backends = Backends(states)
    result = CapacityFilter(VolumeSchedulerOptions()).judge(backends, request, backends.all_rows())
    assert result.mask.tolist() == [passes_by_the_rules(state, request) for state in states]


@given(pools, st.integers(1, 50), st.integers(1, 50))
def test_whatever_was_taken_the_numbers_are_those_of_the_state(state, size, times):
    backends = Backends([state])
    before = backends.state(0)
    request = VolumeRequest(size, volume_id="v")
    for _each in range(times):
        backends.consume(0, request)
    taken = backends.state(0)
    assert taken.allocated_capacity_gb == pytest.approx(state.allocated_capacity_gb + size * times)
    assert taken.provisioned == pytest.approx(state.provisioned + size * times)
    if isinstance(state.free_capacity_gb, (int, float)):
        assert taken.free_capacity_gb == pytest.approx(state.free_capacity_gb - size * times)
    else:
        assert taken.free_capacity_gb == state.free_capacity_gb
    assert taken.volume_count == state.volume_count + times
    for _each in range(times):
        backends.consume(0, request, -1)
    after = backends.state(0)
    assert after.provisioned == pytest.approx(before.provisioned)
    assert after.allocated_capacity_gb == pytest.approx(before.allocated_capacity_gb)
    assert after.volume_count == before.volume_count
    assert backends.volume_hosts == {}


# --- weighers --------------------------------------------------------------------------------------------------------


def raw(name, states, request=None, multiplier=None):
    multipliers = {} if multiplier is None else {name: multiplier}
    (made,) = make_weighers(VolumeSchedulerOptions(weighers=[name], multipliers=multipliers))
    backends = Backends(states)
    return made.weigh(backends, request or VolumeRequest(1), backends.all_rows()).tolist()


@pytest.mark.parametrize(
    ("states", "request_", "multiplier", "expected"),
    [
        ([pool(300), pool(200)], None, None, [300, 200]),
        ([pool(300, reserved_percentage=10), pool(200, 105, reserved_percentage=10)], None, None, [200, 190]),
        ([thin(provisioned=500)], None, None, [1500]),
        ([thin(provisioned=500, reserved_percentage=10)], None, None, [1400]),
        ([thin(provisioned=500, ratio=0.5)], None, None, [0]),
        ([thin(provisioned=5000)], None, None, [-3000]),
        ([thin(provisioned=500)], VolumeRequest(1, volume_type=THICK), None, [500]),
        ([thin(provisioned=500, thin_provisioning_support=False)], None, None, [500]),
        ([pool("infinite"), pool(7), pool(5, "unknown")], None, None, [-1, 7, -1]),
        ([pool("infinite"), pool("unknown")], None, None, [-1, -1]),
        # stacking: what can not tell comes last too, as the largest
        ([pool("infinite"), pool(7), pool(5)], None, -1.0, [7 + 200, 7, 5]),
        ([pool("unknown"), pool(7), pool(7)], None, -1.0, [7 + 10000, 7, 7]),
        ([pool("unknown"), pool("infinite")], None, -1.0, [0, 0]),
        ([pool("unknown"), pool(7)], None, 0.0, [7 + 10000, 7]),
    ],
)
def test_free_space_as_it_is_weighed(states, request_, multiplier, expected):
    assert raw("CapacityWeigher", states, request_, multiplier) == expected


def test_allocated_space_and_number_of_volumes_are_weighed():
    states = [pool(allocated_capacity_gb=5, volume_count=3), pool(allocated_capacity_gb=2, volume_count=4)]
    assert raw("AllocatedCapacityWeigher", states) == [5, 2]
    assert raw("VolumeNumberWeigher", states) == [3, 4]


@given(st.lists(pools, min_size=1, max_size=6), st.sampled_from([1.0, -1.0, 0.0, 2.5]))
def test_weights_are_always_numbers_and_words_never_win(states, multiplier):
    values = np.array(raw("CapacityWeigher", states, None, multiplier))
    assert np.isfinite(values).all()
    told = [
        not isinstance(s.free_capacity_gb, (str, type(None))) and not isinstance(s.total_capacity_gb, str)
        for s in states
    ]
    if multiplier < 0 and any(told):
        assert all(v > values[told].max() for v, t in zip(values, told) if not t)
