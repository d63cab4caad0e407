# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.bootflow.compute.plugins.module_utils.core.reading.problems import Problems
from ansible_collections.bootflow.compute.plugins.module_utils.core.request.catalogue_aggregates import (
    aggregates_by_host,
    read_aggregates,
    zones_by_host,
)

HOSTS = ["kvm1", "kvm2", "kvm3"]
INVENTORY = {"rack_a": ["kvm1", "kvm2", "disks"], "bootflow_compute": HOSTS, "empty": [], "all": [*HOSTS, "disks"]}


def read(data, zones=None):
    problems = Problems()
    found = read_aggregates(data, HOSTS, INVENTORY, zones or {}, problems)
    for error in problems.errors:
        assert error["message"] and error["remedy"]
    return found, [(e["path"], e["code"], e["message"]) for e in problems.errors]


def good(data, zones=None):
    found, errors = read(data, zones)
    assert errors == []
    return found


def test_hosts_and_groups():
    (one,) = good(
        [{"name": "ssd", "hosts": ["rack_a", "kvm3"], "metadata": {"ssd": "true", "n": 4, "r": 1.5, "x": None}}]
    )
    assert one.name == "ssd"
    assert one.hosts == {"kvm1", "kvm2", "kvm3"}  # disks is no compute host
    assert one.metadata == {"ssd": "true", "n": "4", "r": "1.5"}
    (one,) = good({"none": None})
    assert one.hosts == frozenset() and one.metadata == {}
    assert good(None) == good([]) == ()


def test_a_group_goes_before_a_host_of_its_name():
    problems = Problems()
    (one,) = read_aggregates([{"name": "a", "hosts": ["kvm1"]}], HOSTS, {"kvm1": ["kvm2"]}, {}, problems)
    assert one.hosts == {"kvm2"}


def test_the_zone_is_metadata():
    first, second = good(
        [
            {"name": "a", "hosts": ["kvm1"], "availability_zone": "north"},
            {"name": "b", "hosts": ["kvm2"], "metadata": {"availability_zone": "south"}},
        ]
    )
    assert first.metadata == {"availability_zone": "north"} and second.metadata == {"availability_zone": "south"}
    assert zones_by_host([first, second]) == {"kvm1": "north", "kvm2": "south"}
    good([{"name": "a", "metadata": {"availability_zone": "x"}, "availability_zone": "x"}])


def test_by_host_keeps_the_order():
    found = good([{"name": n, "hosts": h} for n, h in (("a", ["kvm1"]), ("b", ["kvm2", "kvm1"]), ("c", ["kvm1"]))])
    by_host = aggregates_by_host(found)
    assert {h: [a.name for a in of_host] for h, of_host in by_host.items()} == {"kvm1": ["a", "b", "c"], "kvm2": ["b"]}


@pytest.mark.parametrize(
    "entry, path, code, message",
    [
        ({"hosts": []}, "aggregates[0].name", "InvalidInput", "name is missing"),
        ({"name": "a", "hosts": ["kvm9"]}, "aggregates[a].hosts[0]", "ComputeHostNotFound", "Compute host kvm9 could"),
        ({"name": "a", "hosts": ["kvm1", "disks"]}, "aggregates[a].hosts[1]", "ComputeHostNotFound", "disks"),
        ({"name": "a", "hosts": [["kvm1"]]}, "aggregates[a].hosts[0]", "ComputeHostNotFound", "kvm1"),
        ({"name": "a", "hosts": "kvm1"}, "aggregates[a].hosts", "InvalidInput", "hosts must be a list"),
        ({"name": "a", "host": ["kvm1"]}, "aggregates[a].host", "InvalidInput", "Unknown field 'host'"),
        ({"name": "a", "metadata": ["x"]}, "aggregates[a].metadata", "InvalidInput", "metadata must be a mapping"),
        ({"name": "a", "metadata": {"x": ["y"]}}, "aggregates[a].metadata", "InvalidInput", "x must be a text"),
        ({"name": "a", "metadata": {"x/y": "z"}}, "aggregates[a].metadata", "InvalidInput", "letters, digits"),
        ({"name": "a", "metadata": {"x" * 256: "z"}}, "aggregates[a].metadata", "InvalidInput", "1 to 255"),
        ({"name": "a", "metadata": {"x": "z" * 256}}, "aggregates[a].metadata", "InvalidInput", "at most 255"),
        (
            {"name": "a", "availability_zone": "n:h"},
            "aggregates[a].availability_zone",
            "InvalidInput",
            "must not have :",
        ),
        (
            {"name": "a", "metadata": {"availability_zone": "n:h"}},
            "aggregates[a].availability_zone",
            "InvalidInput",
            "must not have :",
        ),
        ({"name": "a", "availability_zone": " n"}, "aggregates[a].availability_zone", "InvalidInput", "blanks"),
        (
            {"name": "a", "availability_zone": "n", "metadata": {"availability_zone": "s"}},
            "aggregates[a].availability_zone",
            "InvalidInput",
            "is n, but its metadata say s",
        ),
        (7, "aggregates[0]", "InvalidInput", "must be a mapping with a name"),
    ],
)
def test_an_aggregate_that_is_wrong(entry, path, code, message):
    _found, ((where, kind, text),) = read([entry])
    assert (where, kind) == (path, code) and message in text


@pytest.mark.parametrize(
    "key, good_ones, bad_ones",
    [
        ("ram_allocation_ratio", ["1.5", 2, 0.5], ["0", "-1", "much", "nan", "inf", ""]),
        ("cpu_allocation_ratio", ["16"], [0]),
        ("disk_allocation_ratio", ["1.0"], ["1,5"]),
        ("max_io_ops_per_host", ["8", 0], ["-1", "1.5", "some"]),
        ("max_instances_per_host", [50], ["fifty"]),
        ("ram_weight_multiplier", ["-1.5", 0, "1e3"], ["nan", "inf", "a lot"]),
        ("ratio", ["much", "0"], []),
    ],
)
def test_metadata_that_filters_read_as_numbers(key, good_ones, bad_ones):
    for value in good_ones:
        assert good([{"name": "a", "metadata": {key: value}}])[0].metadata == {key: str(value)}
    for value in bad_ones:
        _found, ((path, _code, text),) = read([{"name": "a", "metadata": {key: value}}])
        assert path == "aggregates[a].metadata" and text.startswith("metadata %s must be a " % key)


def test_all_problems_at_once():
    _found, errors = read([{"name": "a", "hosts": ["x", "y"]}, {"name": "a", "metadata": 5}])
    assert [path for path, _code, _text in errors] == [
        "aggregates[a].hosts[0]",
        "aggregates[a].hosts[1]",
        "aggregates[a].name",
        "aggregates[a].metadata",
    ]


def zoned(**hosts_of):
    return [{"name": "in-%s" % zone, "hosts": hosts, "availability_zone": zone} for zone, hosts in hosts_of.items()]


def test_a_host_is_in_one_zone():
    _found, ((path, code, text),) = read(zoned(north=["rack_a"], south=["kvm2", "kvm3"]))
    assert (path, code) == ("aggregates[in-south]", "InvalidInput")
    assert text == "Host kvm2 is in zone south by this aggregate and in zone north by aggregate in-north"
    good([*zoned(north=["kvm1"]), {"name": "again", "hosts": ["kvm1"], "availability_zone": "north"}])
    good([*zoned(north=["kvm1"]), {"name": "ssd", "hosts": ["kvm1"]}])


def test_the_zone_of_the_variable_and_of_the_aggregate():
    data = zoned(north=["kvm1", "kvm2"])
    good(data, {"kvm1": "north"})
    _found, ((path, code, text),) = read(data, {"kvm1": "south", "kvm2": "north", "kvm3": "south"})
    assert (path, code) == ("aggregates[in-north]", "InvalidInput")
    assert text == "Host kvm1 is in zone north by this aggregate, but its bootflow_availability_zone is south"


@given(st.lists(st.tuples(st.sampled_from("abc"), st.sets(st.sampled_from(HOSTS))), max_size=5))
def test_either_a_conflict_is_told_or_every_host_has_one_zone(wishes):
    data = [{"name": "g%d" % i, "hosts": sorted(h), "availability_zone": z} for i, (z, h) in enumerate(wishes)]
    found, errors = read(data)
    zones = {h: {z for z, hosts in wishes if h in hosts} for h in HOSTS}
    assert bool(errors) == any(len(z) > 1 for z in zones.values())
    if not errors:
        assert zones_by_host(found) == {h: next(iter(z)) for h, z in zones.items() if z}
