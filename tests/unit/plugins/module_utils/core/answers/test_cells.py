# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A CPU that a host has twice is not believed: two guests would be pinned to it."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core.answers.compute import NODE
from ansible_collections.bootflow.compute.plugins.module_utils.core.answers.shapes import Misshapen
from ansible_collections.bootflow.compute.plugins.module_utils.core.resources.numa.fit import fit_to_host
from ansible_collections.bootflow.compute.plugins.module_utils.core.resources.numa.topology import (
    GuestCell,
    GuestNUMATopology,
    HostNUMATopology,
)


def node(*cells: dict[str, t.Any]) -> dict[str, t.Any]:
    numbered = [{"id": number, "memory_mb": 4096, **cell} for number, cell in enumerate(cells)]
    totals = {"memory_mb": 8192, "local_gb": 100, "vcpus": 8}
    return {"hypervisor_hostname": "h1", **totals, "domains": [], "numa_topology": {"cells": numbered}}


@pytest.mark.parametrize(
    "cells",
    [
        ({"cpus": [0, 1]}, {"cpus": [2, 3]}),
        ({"cpus": [0, 1, 2, 3], "siblings": [[0, 2], [1, 3]]}, {"cpus": [4, 5], "siblings": [[4], [5]]}),
        ({"cpus": [0, 1], "siblings": []}, {"cpus": []}),
    ],
)
def test_cells_of_hosts(cells: tuple[dict[str, t.Any], ...]) -> None:
    NODE(node(*cells), "node")


@pytest.mark.parametrize(
    ("cells", "path", "twice"),
    [
        (({"cpus": [0, 1]}, {"cpus": [1, 2]}), "node.numa_topology.cells", [1]),
        (
            ({"cpus": [0, 1]}, {"cpus": [2, 3, 4], "siblings": [[2, 3], [3, 4]]}),
            "node.numa_topology.cells[1].siblings",
            [3],
        ),
    ],
)
def test_a_cpu_that_is_there_twice(cells: tuple[dict[str, t.Any], ...], path: str, twice: list[int]) -> None:
    with pytest.raises(Misshapen) as caught:
        NODE(node(*cells), "node")
    assert (caught.value.path, caught.value.got) == (path, twice)


def test_a_thread_in_two_cores_is_pinned_once() -> None:
    """Of a report that was taken before it was looked at so."""
    host = HostNUMATopology.from_facts(
        node({"cpus": [0, 1, 2, 3], "siblings": [[0, 1], [1, 2], [2, 3]]})["numa_topology"]
    )
    guest = GuestNUMATopology((GuestCell(0, frozenset(range(4)), 512, cpu_policy="dedicated"),))
    fitted = fit_to_host(host, guest)
    assert fitted is not None and sorted(fitted.cells[0].pinning.values()) == [0, 1, 2, 3]
