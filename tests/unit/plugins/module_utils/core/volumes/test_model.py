# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.bootflow.compute.plugins.module_utils.core.errors import InvalidInput, InvalidVolume
from ansible_collections.bootflow.compute.plugins.module_utils.core.volumes.model import (
    PoolState,
    VolumeRequest,
    VolumeType,
    capacity_of,
)
from ansible_collections.bootflow.compute.plugins.module_utils.core.volumes.pool_hosts import (
    append_host,
    extract_host,
    same_backend,
)

HOST = "stor1@lvm#vg0"


@pytest.mark.parametrize(
    "record",
    [
        VolumeType("fast", {"medium": "ssd"}, "id", "d", False, ("p",)),
        VolumeRequest(3, volume_type=VolumeType("fast"), scheduler_hints={"same_host": ["x"]}),
        VolumeRequest(3),
        PoolState(HOST, "infinite", "unknown", 3, capabilities={"a": {"b": [1]}}),
    ],
)
def test_what_is_written_as_plain_data_comes_back_the_same(record):
    data = record.as_dict()
    again = type(record).from_dict({**data, "something": "else"})
    assert again.as_dict() == data
    assert all(type(v) in (str, int, float, bool, dict, list, type(None)) for v in data.values())


@pytest.mark.parametrize(
    ("host", "level", "expected"),
    [
        ("A@B#C", "host", "A"),
        ("A@B#C", "backend", "A@B"),
        ("A@B#C", "pool", "C"),
        ("A@B", "backend", "A@B"),
        ("A@B", "pool", ""),
        ("A", "host", "A"),
        ("A#C", "backend", "A"),
        ("A@B#C@D", "backend", "A@B"),
    ],
)
def test_parts_of_a_host(host, level, expected):
    assert extract_host(host, level) == expected


def test_a_missing_pool_has_a_default_name_where_asked():
    assert extract_host("A@B", "pool", default_pool_name=True) == "_pool0"


@pytest.mark.parametrize("host", [None, ""])
def test_no_host_is_refused(host):
    with pytest.raises(InvalidVolume, match="volume is not assigned to a host"):
        extract_host(host)


def test_a_pool_is_appended_where_there_is_one():
    assert append_host("A@B", "C") == "A@B#C"
    assert append_host("A@B", "") == "A@B"


@pytest.mark.parametrize(
    ("wanted", "host", "same"),
    [
        ("A@B#C", "A@B#C", True),
        ("A@B#C", "A@B#D", False),
        ("A@B", "A@B#D", True),
        ("A@B", "A@X#D", False),
        ("A@B#C", "A@B", False),
    ],
)
def test_a_backend_without_pool_means_any_of_its_pools(wanted, host, same):
    assert same_backend(wanted, host) is same


@pytest.mark.parametrize(
    ("given_", "expected"), [(5, 5), ("5", 5.0), ("5.5", 5.5), ("Infinite", "infinite"), ("unknown", "unknown"), (0, 0)]
)
def test_amounts(given_, expected):
    assert capacity_of(given_) == expected


@pytest.mark.parametrize("bad", [None, "", "much", "nan", "inf", float("inf"), True, [], {}])
def test_amounts_that_are_none(bad):
    with pytest.raises(InvalidInput):
        capacity_of(bad)


@pytest.mark.parametrize("field", ["allocated_capacity_gb", "provisioned_capacity_gb", "reserved_percentage"])
def test_only_free_and_total_may_be_words(field):
    with pytest.raises(InvalidInput, match=field):
        PoolState(HOST, 10, 10, **{field: "infinite"})


@pytest.mark.parametrize(
    ("state", "ratio"),
    [
        (PoolState(HOST, 100, 100, thin_provisioning_support=False, max_over_subscription_ratio=7), 1.0),
        (PoolState(HOST, "infinite", 5, thin_provisioning_support=True, max_over_subscription_ratio=7), 1.0),
        (PoolState(HOST, 100, "unknown", thin_provisioning_support=True, max_over_subscription_ratio=7), 1.0),
        (PoolState(HOST, 100, 100, thin_provisioning_support=True, max_over_subscription_ratio=7), 7.0),
        (PoolState(HOST, 100, 100, thin_provisioning_support=True, max_over_subscription_ratio="7.5"), 7.5),
        (PoolState(HOST, 100, 100, thin_provisioning_support=True), 20.0),
        (PoolState(HOST, 100, 100, thin_provisioning_support=True, max_over_subscription_ratio="auto"), 20.0),
        (
            PoolState(HOST, 100, 51, 98, 98, thin_provisioning_support=True, max_over_subscription_ratio="auto"),
            1 + 98 / 50,
        ),
        (PoolState(HOST, 100, 51, 98, thin_provisioning_support=True, max_over_subscription_ratio="auto"), 1 + 98 / 50),
    ],
)
def test_over_subscription(state, ratio):
    assert state.ratio() == ratio


@pytest.mark.parametrize("ratio", ["lots", "nan", "inf", [1], {"a": 1}, "Auto"])
def test_a_ratio_that_is_no_number_is_refused(ratio):
    with pytest.raises(InvalidInput, match="max_over_subscription_ratio"):
        PoolState(HOST, 10, 10, thin_provisioning_support=True, max_over_subscription_ratio=ratio).ratio()


@pytest.mark.parametrize(
    ("record", "values", "text"),
    [
        (VolumeRequest, {}, "volume request has no size"),
        (VolumeRequest, {"size": "3"}, "size of volume request must be a whole number, not '3'"),
        (VolumeRequest, {"size": None}, "size of volume request must be a whole number, not None"),
        (VolumeRequest, {"size": True}, "size of volume request must be a whole number, not True"),
        (VolumeRequest, {"size": 3, "metadata": None}, "metadata of volume request must be a mapping"),
        (VolumeRequest, {"size": 3, "volume_id": None}, "volume_id of volume request must be a text, not None"),
        (VolumeType, {"name": "t", "extra_specs": ["a"]}, "extra_specs of volume type must be a mapping"),
        (VolumeType, {"name": "t", "extra_specs": {1: "a"}}, "extra_specs of volume type must be a mapping"),
        (VolumeRequest, {"size": -1}, "size of volume request must be a whole number, not -1"),
        (VolumeRequest, {"size": 1.5}, "size of volume request must be a whole number, not 1.5"),
        (VolumeRequest, {"size": 1, "new_size": "2"}, "new_size of volume request must be"),
        (VolumeRequest, {"size": 1, "scheduler_hints": []}, "scheduler_hints of volume request must be a mapping"),
        (VolumeRequest, {"size": 1, "availability_zone": 5}, "availability_zone of volume request must be a text"),
        (VolumeRequest, {"size": 1, "volume_type": "fast"}, "must be a volume type, not its name"),
        (PoolState, {"host": 5}, "5 is not of the form host@backend#pool"),
        (PoolState, {"host": HOST, "capabilities": []}, "capabilities of pool state must be a mapping"),
        (PoolState, {"host": HOST, "updated_at": "now"}, "updated_at is 'now'"),
        (PoolState, {"host": HOST, "volume_count": "many"}, "volume_count of pool state must be a whole number"),
        (PoolState, {"host": HOST, "total_capacity_gb": 10**400}, "total_capacity_gb is 1000"),
    ],
)
def test_bad_data_is_refused_where_it_comes_in(record, values, text):
    with pytest.raises(InvalidInput) as caught:
        record.from_dict(values)
    assert text in caught.value.message


@pytest.mark.parametrize("data", [None, [], "x", 5])
@pytest.mark.parametrize("record", [VolumeType, VolumeRequest, PoolState])
def test_a_record_comes_from_a_mapping(record, data):
    with pytest.raises(InvalidInput, match="must be a mapping of its fields"):
        record.from_dict(data)


@pytest.mark.parametrize(("host", "level"), [(5, "host"), (["h"], "pool"), ("A@B", "rack"), ("A@B", None)])
def test_no_part_of_what_is_no_host(host, level):
    with pytest.raises(InvalidInput):
        extract_host(host, level)


def test_a_pool_has_the_capabilities_of_its_backend_and_its_own():
    found = PoolState("stor1@lvm#vg0", 10, 9, multiattach=True, medium="ssd", capabilities={"x": 1}).all_capabilities()
    assert found["volume_backend_name"] == "lvm"
    assert found["pool_name"] == "vg0"
    assert (found["multiattach"], found["medium"], found["x"]) == (True, "ssd", 1)
    assert (found["QoS_support"], found["total_volumes"]) == (False, 0)  # as Cinder's LVM driver reports them
    assert PoolState(HOST, capabilities={"medium": "tape"}).all_capabilities()["medium"] == "tape"


@given(st.integers(1, 10**6), st.integers(1, 10**6))
def test_growing_asks_for_the_difference(size, more):
    assert VolumeRequest(size).requested_size == size
    assert VolumeRequest(size, new_size=size + more).requested_size == more


def test_multiattach_is_a_wish_for_a_backend_that_can():
    assert VolumeRequest(1, multiattach=True).extra_specs == {"multiattach": "<is> True"}
    own = VolumeType("t", {"multiattach": "<is> False"})
    assert VolumeRequest(1, volume_type=own, multiattach=True).extra_specs == {"multiattach": "<is> False"}
    assert own.extra_specs == {"multiattach": "<is> False"}
    assert not own.multiattach
    assert VolumeType("t", {"multiattach": "<is> True"}).multiattach
