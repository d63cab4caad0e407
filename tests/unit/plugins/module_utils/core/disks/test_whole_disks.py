# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import itertools
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.core.disks.whole_disks import (
    WholeDiskRequest,
    choose_disks,
    whole_disk_requests,
)
from ansible_collections.bootflow.compute.plugins.module_utils.core.model import Flavor
from ansible_collections.bootflow.compute.tests.unit.worlds.examples import examples


def wish(count=None, min_gb=None, medium=None):
    given_ = {"s": count, "_min_gb": min_gb, "_medium": medium}
    specs = {"bootflow:whole_disk" + end: value for end, value in given_.items() if value is not None}
    return whole_disk_requests(Flavor("f", 1, 1, extra_specs=specs))


def disk(path, size_gb, medium="hdd"):
    return {"path": path, "size_gb": size_gb, "medium": medium, "serial": "s-" + path}


@pytest.mark.parametrize(
    ("given_", "expected"),
    [
        ((), ()),
        (("0",), ()),
        (("0", "5"), ()),
        (("2",), (WholeDiskRequest(0, "", 2),)),
        ((2, 100, "SSD"), (WholeDiskRequest(100, "ssd", 2),)),
        (("1", "", ""), (WholeDiskRequest(0, "", 1),)),
    ],
)
def test_what_a_flavor_asks(given_, expected):
    assert wish(*given_) == expected


@pytest.mark.parametrize(
    "given_",
    [
        ("two",),
        ("-1",),
        ("1.5",),
        ("\u0662",),
        ("1", "x"),
        ("1", "-1"),
        ("1", "0", "tape"),
        (None, "5"),
        (None, None, "ssd"),
    ],
)
def test_wrong_wishes_are_refused(given_):
    with pytest.raises(errors.InvalidInput, match="flavor f") as caught:
        wish(*given_)
    assert caught.value.remedy and "whole_disk" in caught.value.message


def test_a_request_survives_as_dict_and_reads_well():
    request = WholeDiskRequest(100, "nvme", 2)
    assert WholeDiskRequest.from_dict(json.loads(json.dumps(request.as_dict()))) == request
    assert (str(request), str(WholeDiskRequest())) == ("2 nvme disks of 100 GiB", "1 disk")


@pytest.mark.parametrize(
    ("free", "requests", "expected"),
    [
        ([], [], []),
        ([], [WholeDiskRequest()], None),
        ([("b", 10), ("a", 10), ("c", 5)], [WholeDiskRequest()], ["c"]),
        ([("b", 10), ("a", 10), ("c", 5)], [WholeDiskRequest(6)], ["a"]),
        ([("b", 10), ("a", 10), ("c", 5)], [WholeDiskRequest(6, "", 2)], ["a", "b"]),
        ([("b", 10), ("a", 10), ("c", 5)], [WholeDiskRequest(6, "", 3)], None),
        ([("a", 10), ("b", 20, "ssd")], [WholeDiskRequest(0, "ssd")], ["b"]),
        ([("a", 10), ("b", 20, "nvme")], [WholeDiskRequest(0, "ssd")], None),
        ([("a", 10, "ssd"), ("b", 20)], [WholeDiskRequest(), WholeDiskRequest(0, "ssd")], ["b", "a"]),
        ([("a", 10), ("b", 20)], [WholeDiskRequest(), WholeDiskRequest(15)], ["a", "b"]),
        ([("a", 10), ("b", 20)], [WholeDiskRequest(), WholeDiskRequest(5)], ["b", "a"]),
        ([("a", 10), ("b", 20)], [WholeDiskRequest(10)], ["a"]),
        ([("a", 10), ("a", 10)], [WholeDiskRequest(0, "", 2)], None),  # one disk named twice is one disk
    ],
)
def test_the_smallest_that_will_do(free, requests, expected):
    chosen = choose_disks([disk(*item) for item in free], requests)
    assert (None if chosen is None else [d["path"] for d in chosen]) == expected


DISKS = st.lists(st.tuples(st.integers(1, 4), st.sampled_from(["hdd", "ssd"])), max_size=5).map(
    lambda items: [disk("/dev/%d" % n, *item) for n, item in enumerate(items)]
)
REQUESTS = st.lists(
    st.builds(WholeDiskRequest, st.integers(0, 4), st.sampled_from(["", "hdd", "ssd"]), st.integers(0, 2)), max_size=3
)


@settings(max_examples=examples(300))
@given(DISKS, REQUESTS)
def test_disks_are_found_wherever_there_is_a_way(free, requests):
    chosen = choose_disks(free, requests)
    assert choose_disks(list(reversed(free)), requests) == chosen
    single = [request for request in requests for dummy in range(request.count)]
    possible = any(
        all(request.accepts(d) for request, d in zip(single, way)) for way in itertools.permutations(free, len(single))
    )
    assert (chosen is not None) == possible
    if chosen is not None:
        assert len({d["path"] for d in chosen}) == len(single) == len(chosen)
        assert all(request.accepts(d) and d in free for request, d in zip(single, chosen))
