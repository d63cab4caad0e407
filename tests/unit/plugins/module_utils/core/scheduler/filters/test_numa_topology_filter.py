# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import numpy as np
import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core.model import Flavor
from ansible_collections.bootflow.compute.plugins.module_utils.core.resources.numa.topology import (
    GuestCell,
    GuestNUMATopology,
    HostCell,
    HostNUMATopology,
)
from ansible_collections.bootflow.compute.plugins.module_utils.core.resources.numa.usage import apply_usage
from ansible_collections.bootflow.compute.plugins.module_utils.core.resources.pci.device import PciDevice
from ansible_collections.bootflow.compute.plugins.module_utils.core.resources.pci.request import PciRequest
from ansible_collections.bootflow.compute.plugins.module_utils.core.scheduler.columns import Fleet
from ansible_collections.bootflow.compute.plugins.module_utils.core.scheduler.filters.resources.numa_topology_filter import (
    NUMATopologyFilter,
)
from ansible_collections.bootflow.compute.plugins.module_utils.core.scheduler.host_state import HostState
from ansible_collections.bootflow.compute.plugins.module_utils.core.scheduler.request_spec import RequestSpec

from ..reference import make_options


def topology(*sizes, used=0):
    return HostNUMATopology(
        tuple(
            HostCell(n, frozenset(range(n * 4, n * 4 + 4)), size, memory_usage_mb=used) for n, size in enumerate(sizes)
        )
    )


def wish(*sizes, cpus=2, **more):
    return GuestNUMATopology(
        tuple(GuestCell(n, frozenset(range(n * cpus, (n + 1) * cpus)), size, **more) for n, size in enumerate(sizes))
    )


def fleet_of(*topologies, **more):
    return Fleet([HostState("h%d" % n, "n%d" % n, numa_topology=found, **more) for n, found in enumerate(topologies)])


def spec(numa=None, **more):
    return RequestSpec(["u"], Flavor("f", 1, 1), numa_topology=numa, **more)


def ask(fleet, request):
    result = NUMATopologyFilter(make_options()).evaluate(fleet, request, fleet.all_rows())
    one_by_one = [
        bool(NUMATopologyFilter(make_options()).evaluate(fleet, request, row).mask) for row in fleet.all_rows()
    ]
    assert result.mask.tolist() == one_by_one
    return result


@pytest.mark.parametrize(
    ("there", "numa", "passes"),
    [
        (None, None, True),
        (topology(100), None, True),
        (None, wish(1), False),
        (topology(100), wish(100), True),
        (topology(100), wish(101), False),
        (topology(100), wish(50, 50), False),
        (topology(100, 100), wish(50, 50), True),
        # the host's ratios: 1.5 for memory, 16 for CPUs
        (topology(100, used=50), wish(100), True),
        (topology(100, used=51), wish(100), False),
        (topology(100, used=50), wish(100, cpu_policy="dedicated"), False),
        (topology(100), wish(50, cpus=4, cpu_policy="dedicated", cpu_thread_policy="require"), False),
        (topology(100), wish(50, page_size_kb=2048), False),
    ],
)
def test_hosts(there, numa, passes):
    assert ask(fleet_of(there), spec(numa)).mask.tolist() == [passes]


def test_ratios_are_the_hosts_own():
    there = topology(100, used=100)
    assert ask(fleet_of(there, ram_allocation_ratio=2.0), spec(wish(100))).mask[0]
    assert not ask(fleet_of(there, ram_allocation_ratio=1.9), spec(wish(100))).mask[0]


def test_limits_are_the_hosts_ratios():
    fleet = fleet_of(topology(100), cpu_allocation_ratio=4.0, ram_allocation_ratio=1.25)
    assert NUMATopologyFilter(make_options()).limits(fleet, 0) == {
        "numa_topology": {"cpu_allocation_ratio": 4.0, "ram_allocation_ratio": 1.25}
    }


def test_reasons():
    result = ask(fleet_of(None, topology(10), topology(100)), spec(wish(50)))
    assert result.mask.tolist() == [False, False, True]
    assert result.text(0) == "NUMA topology: the guest asks for 1 NUMA cell, the host reports none"
    assert result.text(1) == (
        "NUMA topology: guest cell 0 fits no cell: cell 0 needs 50 MiB, the whole cell has 10 MiB"
    )


def test_what_was_taken_in_this_request_counts():
    fleet = fleet_of(topology(100), topology(100))
    request = spec(wish(60, cpu_policy="dedicated"))
    assert ask(fleet, request).mask.tolist() == [True, True]
    fleet.consume(0, request)
    assert ask(fleet, request).mask.tolist() == [False, True]
    fleet.consume(0, request, -1)
    assert ask(fleet, request).mask.tolist() == [True, True]


def devices(node):
    return [PciDevice("0000:00:0%d.0" % node, "8086", "1521", numa_node=node)]


GPU = PciRequest(1, ({"vendor_id": "8086", "product_id": "1521"},), "nic")


def test_devices_have_to_be_on_the_guests_cells():
    there = topology(10, 100)
    fleet = Fleet(
        [
            HostState("near", "n", numa_topology=there, pci_devices=devices(1)),
            HostState("far", "n", numa_topology=there, pci_devices=devices(0)),
            HostState("none", "n", numa_topology=there),
        ]
    )
    result = ask(fleet, spec(wish(50), pci_requests=(GPU,)))
    assert result.mask.tolist() == [True, False, False]
    assert "PCI devices" in result.text(1)
    assert ask(fleet, spec(wish(50))).mask.all()


def test_hosts_that_are_alike_are_fitted_once(monkeypatch):
    from ansible_collections.bootflow.compute.plugins.module_utils.core.scheduler.filters.resources import (
        numa_topology_filter,
    )

    fitted = []
    real = numa_topology_filter.fit_to_host
    monkeypatch.setattr(
        numa_topology_filter, "fit_to_host", lambda *args, **more: fitted.append(1) or real(*args, **more)
    )
    empty = topology(100, 100)
    taken = apply_usage(empty, GuestNUMATopology((GuestCell(0, frozenset({0}), 60, host_cell=0),)))
    copies = [HostNUMATopology.from_dict((empty if n % 2 else taken).as_dict()) for n in range(1000)]
    fleet = fleet_of(*copies)
    rule = NUMATopologyFilter(make_options())
    mask = rule.evaluate(fleet, spec(wish(50, 95)), fleet.all_rows()).mask
    assert len(fitted) == 2
    assert mask.all()
    assert mask.dtype == np.bool_


def test_only_this_host_is_asked_again_after_a_pick():
    assert NUMATopologyFilter.per_host
    assert not NUMATopologyFilter.run_once_per_request
    assert NUMATopologyFilter.needs_numa
