# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json

import pytest
from hypothesis import given

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.core.resources.numa.topology import (
    GuestCell,
    GuestNUMATopology,
    HostCell,
    HostNUMATopology,
    NUMALimits,
    PagesTopology,
    reserved_pages,
)

from .strategies import fitted_pairs, guests, hosts

FACTS = {
    "cells": [
        {
            "id": 0,
            "memory_mb": 1024,
            "cpus": [0, 1, 4, 5],
            "siblings": [[0, 4], [1, 5]],
            "pages": [{"size_kb": 4, "total": 1000}, {"size_kb": 2048, "total": 64}],
        },
        {"id": 1, "memory_mb": 2048, "cpus": [2, 3], "siblings": [[2], [3]], "pages": []},
    ]
}


def test_from_facts():
    host = HostNUMATopology.from_facts(FACTS)
    assert host == HostNUMATopology(
        (
            HostCell(
                0,
                frozenset({0, 1, 4, 5}),
                1024,
                siblings=(frozenset({0, 4}), frozenset({1, 5})),
                pages=(PagesTopology(4, 1000), PagesTopology(2048, 64)),
            ),
            HostCell(1, frozenset({2, 3}), 2048),  # cores with one thread have no siblings
        )
    )
    assert host.cells[0].threads_per_core > 1


@pytest.mark.parametrize("facts", [None, {}, {"cells": []}])
def test_a_host_that_told_no_cells_has_no_topology(facts):
    assert HostNUMATopology.from_facts(facts) is None


@pytest.mark.parametrize(
    "setting",
    [
        [{"node": 0, "size": 2048, "count": 10}],
        [{"node": "0", "size": "2048", "count": "10"}],
        [{"node": 0, "size": "2MB", "count": 10}],
        ["node:0,size:2048,count:10"],
        ["node: 0, size: 2MB, count: 10"],
        [{"node": 0, "size": 2048, "count": 1}, {"node": 0, "size": 2048, "count": 10}],
        [{"node": 0, "size": 2048, "count": 10}, {"node": 7, "size": 4, "count": 1}],
    ],
)
def test_reserved_huge_pages_are_not_free(setting):
    assert reserved_pages(setting)[0, 2048] == 10
    large = PagesTopology(2048, 64, reserved=10)
    assert (large.free, large.free_kb) == (54, 54 * 2048)


@pytest.mark.parametrize(
    "setting",
    [
        [{"node": 0, "size": 2048}],
        [{"size": 2048, "count": 1}],
        [{"node": 0, "size": "big", "count": 1}],
        [{"node": 0, "size": 2048, "count": -1}],
        [{"node": "a", "size": 2048, "count": 1}],
        ["node=0"],
        [None],
        [7],
    ],
)
def test_bad_reserved_huge_pages(setting):
    with pytest.raises(errors.InvalidReservedMemoryPagesOption) as caught:
        reserved_pages(setting)
    assert caught.value.status == 400
    assert caught.value.remedy


def through_json(value):
    return type(value).from_dict(json.loads(json.dumps(value.as_dict())))


@given(hosts())
def test_hosts_survive_json(host):
    assert through_json(host) == host
    assert hash(through_json(host)) == hash(host)


@given(guests())
def test_wishes_survive_json(guest):
    assert through_json(guest) == guest


@given(fitted_pairs())
def test_fitted_guests_survive_json(pair):
    dummy, fitted = pair
    assert through_json(fitted) == fitted
    assert fitted.fitted


def test_a_fitted_guest_survives_json_in_every_field():
    cell = GuestCell(
        1, frozenset({2, 3}), 512, 2048, "dedicated", "isolate", {2: 5, 3: 7}, frozenset({9}), (1, 2, 1), host_cell=4
    )
    topology = GuestNUMATopology((cell,), "isolate")
    assert through_json(topology) == topology
    assert topology.host_cells == [4]
    assert cell.pinned_cpus == {5, 7, 9}


def test_limits_survive_json():
    assert through_json(NUMALimits(16.0, 1.5)) == NUMALimits(16.0, 1.5)


def test_sets_are_written_in_order():
    cell = HostCell(0, frozenset({9, 1, 5}), 1, pinned_cpus=frozenset({5, 1}), siblings=(frozenset({9, 1}),))
    data = cell.as_dict()
    assert (data["cpus"], data["pinned_cpus"], data["siblings"]) == ([1, 5, 9], [1, 5], [[1, 9]])


def test_a_wish_is_not_fitted():
    assert not GuestNUMATopology((GuestCell(0, frozenset({0}), 1, host_cell=0), GuestCell(1, frozenset({1}), 1))).fitted
