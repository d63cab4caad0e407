# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import dataclasses

import pytest
from lxml import etree

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.core.guest.config import guest_config
from ansible_collections.bootflow.compute.plugins.module_utils.core.guest.cpu_topology import CpuTopology, best_topology
from ansible_collections.bootflow.compute.plugins.module_utils.core.guest.domain.compare import intent_differences
from ansible_collections.bootflow.compute.plugins.module_utils.core.model import Flavor
from ansible_collections.bootflow.compute.plugins.module_utils.core.resources.numa.constraints import numa_constraints
from ansible_collections.bootflow.compute.plugins.module_utils.core.resources.numa.fit import fit_to_host
from ansible_collections.bootflow.compute.plugins.module_utils.core.resources.numa.topology import (
    GuestCell,
    GuestNUMATopology,
    HostCell,
    HostNUMATopology,
    PagesTopology,
)

from .domain.schema import assert_valid
from .domain.texts import guest_xml
from .test_guest import KVM, TCG, guest

PAGES = (PagesTopology(4, 1 << 20), PagesTopology(2048, 1024), PagesTopology(1048576, 4))
HOST = HostNUMATopology(
    tuple(
        HostCell(
            n,
            frozenset(range(n * 8, n * 8 + 8)),
            8192,
            siblings=tuple(frozenset({c, c + 1}) for c in range(n * 8, n * 8 + 8, 2)),
            pages=PAGES,
        )
        for n in range(2)
    )
)
NUMA_KVM = dataclasses.replace(KVM, numa_topology=HOST)
PINNED = {"hw:cpu_policy": "dedicated"}


def domain(specs, vcpus=4, memory_mb=2048, properties=None, host=HOST, on=NUMA_KVM):
    """The domain's XML of a guest of that flavor, fitted to the host, valid for libvirt."""
    wish = numa_constraints(Flavor("f", memory_mb, vcpus, extra_specs=specs), properties or {})
    fitted = fit_to_host(host, wish)
    assert fitted is not None
    made = guest(properties, specs, vcpus=vcpus, memory_mb=memory_mb, numa_topology=fitted)
    xml = guest_xml(made, on)
    assert_valid(xml)
    assert intent_differences(xml, xml) == []
    return etree.fromstring(xml)


def pins(root):
    return {int(pin.get("vcpu")): pin.get("cpuset") for pin in root.iterfind("cputune/vcpupin")}


def attributes(root, path):
    return [dict(node.attrib) for node in root.iterfind(path)]


def test_who_has_no_topology_is_as_before():
    root = etree.fromstring(guest_xml(guest(vcpus=4), NUMA_KVM))
    assert guest_xml(guest(vcpus=4), NUMA_KVM) == guest_xml(guest(vcpus=4), KVM)
    for path in ("cputune", "numatune", "memoryBacking", "cpu/numa"):
        assert root.find(path) is None


def test_locked_memory():
    root = domain({"hw:mem_page_size": "large", "hw:locked_memory": "true"})
    assert root.find("memoryBacking/locked") is not None and root.find("memoryBacking/nosharepages") is None
    assert domain({"hw:mem_page_size": "large", "hw:locked_memory": "false"}).find("memoryBacking/locked") is None


def test_floating_cells():
    root = domain({"hw:numa_nodes": "2"})
    assert pins(root) == {0: "0-7", 1: "0-7", 2: "8-15", 3: "8-15"}
    assert root.find("cputune/emulatorpin").get("cpuset") == "0-15"
    assert attributes(root, "numatune/memory") == [{"mode": "strict", "nodeset": "0-1"}]
    assert attributes(root, "numatune/memnode") == [
        {"cellid": "0", "mode": "strict", "nodeset": "0"},
        {"cellid": "1", "mode": "strict", "nodeset": "1"},
    ]
    assert attributes(root, "cpu/numa/cell") == [
        {"id": "0", "cpus": "0-1", "memory": "1048576", "unit": "KiB"},
        {"id": "1", "cpus": "2-3", "memory": "1048576", "unit": "KiB"},
    ]
    assert root.find("memoryBacking") is None


def test_cells_in_another_order():
    small = HostNUMATopology((dataclasses.replace(HOST.cells[0], memory_mb=1024), HOST.cells[1]))
    specs = {"hw:numa_nodes": "2", "hw:numa_cpus.0": "0-2", "hw:numa_cpus.1": "3"}
    specs.update({"hw:numa_mem.0": "1536", "hw:numa_mem.1": "512"})
    root = domain(specs, host=small, on=dataclasses.replace(KVM, numa_topology=small))
    assert pins(root) == {0: "8-15", 1: "8-15", 2: "8-15", 3: "0-7"}
    assert [node.get("nodeset") for node in root.iterfind("numatune/memnode")] == ["1", "0"]
    assert [(c["cpus"], c["memory"]) for c in attributes(root, "cpu/numa/cell")] == [
        ("0-2", str(1536 * 1024)),
        ("3", str(512 * 1024)),
    ]


def test_pinned_cpus():
    root = domain(PINNED)
    assert pins(root) == {0: "0", 1: "1", 2: "2", 3: "3"}
    assert root.find("cputune/emulatorpin").get("cpuset") == "0-3"
    assert attributes(root, "cpu/topology") == [{"sockets": "2", "cores": "1", "threads": "2"}]
    assert attributes(root, "cpu/numa/cell") == [{"id": "0", "cpus": "0-3", "memory": "2097152", "unit": "KiB"}]


def test_isolated_threads_are_shown_as_cores():
    root = domain({**PINNED, "hw:cpu_thread_policy": "isolate"})
    assert pins(root) == {0: "0", 1: "2", 2: "4", 3: "6"}
    assert root.find("cpu/topology").get("threads") == "1"


def test_the_emulator_on_its_own_cpu():
    root = domain({**PINNED, "hw:emulator_threads_policy": "isolate"})
    assert pins(root) == {0: "0", 1: "1", 2: "2", 3: "3"}
    assert root.find("cputune/emulatorpin").get("cpuset") == "4"


@pytest.mark.parametrize(
    ("wish", "size"), [("large", "1048576"), ("2MB", "2048"), ("any", "1048576"), ("small", None), ("4KB", None)]
)
def test_huge_pages(wish, size):
    root = domain({"hw:numa_nodes": "2", "hw:mem_page_size": wish})
    pages = attributes(root, "memoryBacking/hugepages/page")
    access = [cell.get("memAccess") for cell in root.iterfind("cpu/numa/cell")]
    if size is None:  # what every guest has: nothing is said
        assert root.find("memoryBacking") is None
        assert access == [None, None]
    else:
        assert pages == [{"size": size, "unit": "KiB", "nodeset": node} for node in ("0", "1")]
        assert access == ["shared", "shared"]


@pytest.mark.parametrize("mask", ["^0-1", "2-3", "0-3,^0-1"])
def test_real_time(mask):
    """The CPUs of a mask without ^ have it, as in Nova since Victoria: such a mask was refused."""
    root = domain({**PINNED, "hw:cpu_realtime": "yes", "hw:cpu_realtime_mask": mask})
    assert attributes(root, "cputune/vcpusched") == [{"vcpus": "2-3", "scheduler": "fifo", "priority": "1"}]
    assert root.find("cputune/emulatorpin").get("cpuset") == "0-1"
    assert root.find("memoryBacking/locked") is not None
    assert root.find("memoryBacking/nosharepages") is not None
    assert root.find("memoryBacking/hugepages") is None


def test_real_time_of_all_cpus_beside_an_emulator_with_a_cpu_of_its_own():
    root = domain({**PINNED, "hw:cpu_realtime": "yes", "hw:emulator_threads_policy": "isolate"})
    assert attributes(root, "cputune/vcpusched") == [{"vcpus": "0-3", "scheduler": "fifo", "priority": "1"}]
    own = root.find("cputune/emulatorpin").get("cpuset")
    assert own and own not in [pin.get("cpuset") for pin in root.iterfind("cputune/vcpupin")]


def test_quotas_stay():
    root = domain({**PINNED, "quota:cpu_shares": "512"})
    assert root.findtext("cputune/shares") == "512"
    assert len(pins(root)) == 4


def test_without_hardware_virtualisation_cells_are_there_as_well():
    root = domain({"hw:numa_nodes": "2"}, on=dataclasses.replace(TCG, numa_topology=HOST))
    assert len(attributes(root, "cpu/numa/cell")) == 2
    assert root.find("cpu").get("mode") is None


def test_another_pinning_is_a_difference():
    one, other = (
        guest_xml(guest(vcpus=1, numa_topology=GuestNUMATopology((cell,))), NUMA_KVM)
        for cell in (
            GuestCell(0, frozenset({0}), 512, None, "dedicated", pinning={0: cpu}, host_cell=0) for cpu in (1, 2)
        )
    )
    assert any("vcpupin" in line for line in intent_differences(one, other))
    assert intent_differences(guest_xml(guest(vcpus=1), NUMA_KVM), one)


def test_a_wish_is_no_place():
    wish = numa_constraints(Flavor("f", 512, 1, extra_specs=PINNED), {})
    with pytest.raises(errors.InvalidInput, match="not fitted"):
        guest_config(guest(numa_topology=wish), NUMA_KVM)


@pytest.mark.parametrize("topology", [None, HostNUMATopology((HOST.cells[1],))])
def test_a_host_that_lost_the_cell(topology):
    fitted = GuestNUMATopology((GuestCell(0, frozenset({0}), 512, host_cell=0),))
    with pytest.raises(errors.NUMATopologyUnsupported) as caught:
        guest_config(guest(numa_topology=fitted), dataclasses.replace(KVM, numa_topology=topology))
    assert caught.value.retryable
    assert "cell 0" in caught.value.remedy


@pytest.mark.parametrize(
    ("vcpus", "specs", "threads", "expected"),
    [
        (4, {}, None, (4, 1, 1)),
        (4, {}, 1, (4, 1, 1)),
        (4, {}, 2, (2, 1, 2)),
        (6, {}, 4, (2, 1, 3)),  # the closest that is not above
        (4, {"hw:cpu_threads": "1"}, 2, (4, 1, 1)),
        (4, {"hw:cpu_threads": "4"}, 2, (2, 1, 2)),
        (4, {"hw:cpu_max_threads": "1"}, 2, (4, 1, 1)),
        (4, {"hw:cpu_max_sockets": "1"}, 2, (1, 2, 2)),
        (4, {"hw:cpu_cores": "2"}, 2, (1, 2, 2)),
    ],
)
def test_the_guest_sees_the_threads_that_it_is_pinned_to(vcpus, specs, threads, expected):
    assert best_topology(vcpus, specs, {}, threads) == CpuTopology(*expected)
