# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.core.model import Flavor
from ansible_collections.bootflow.compute.plugins.module_utils.core.resources.numa.constraints import numa_constraints

SMALL, LARGE, ANY = -1, -2, -3
PINNED = {"hw:cpu_policy": "dedicated"}


def wish(specs=None, image=None, vcpus=4, memory=1024):
    specs = {k if k.startswith("hw:") else "hw:" + k: v for k, v in (specs or {}).items()}
    image = {k if k.startswith("hw_") else "hw_" + k: v for k, v in (image or {}).items()}
    return numa_constraints(Flavor("f", memory, vcpus, extra_specs=specs), image)


def cells(*args, **more):
    return [(cell.id, sorted(cell.cpus), cell.memory_mb) for cell in wish(*args, **more).cells]


@pytest.mark.parametrize(
    ("specs", "image"),
    [
        ({}, {}),
        ({"numa_cpus.0": "0-3", "numa_mem.0": "1024"}, {}),  # without hw:numa_nodes they say nothing
        ({"cpu_policy": "shared"}, {}),
        ({"cpu_policy": "shared"}, {"cpu_policy": "shared"}),
        ({}, {"cpu_policy": "shared"}),
        ({"cpu_realtime_mask": "^0"}, {}),
        ({"cpu_realtime": "no"}, {}),
        ({"numa_nodes": ""}, {}),
    ],
)
def test_who_asks_for_nothing_wishes_nothing(specs, image):
    assert wish(specs, image) is None


@pytest.mark.parametrize(
    ("specs", "image"), [({"numa_nodes": "2"}, {}), ({}, {"numa_nodes": 2}), ({"numa_nodes": 2}, {})]
)
def test_nodes_share_evenly(specs, image):
    assert cells(specs, image) == [(0, [0, 1], 512), (1, [2, 3], 512)]


@pytest.mark.parametrize(
    ("specs", "image"),
    [
        ({"numa_nodes": "2", "numa_cpus.0": "0-2", "numa_cpus.1": "3", "numa_mem.0": "256", "numa_mem.1": "768"}, {}),
        ({"numa_nodes": "2"}, {"numa_cpus.0": "0-2", "numa_cpus.1": "3", "numa_mem.0": 256, "numa_mem.1": 768}),
        ({"numa_nodes": "2", "numa_cpus.0": "0-3,^3", "numa_cpus.1": "3"}, {"numa_mem.0": "256", "numa_mem.1": "768"}),
        ({}, {"numa_nodes": 2, "numa_cpus.0": "0,1,2", "numa_cpus.1": 3, "numa_mem.0": 256, "numa_mem.1": 768}),
    ],
)
def test_nodes_as_given(specs, image):
    assert cells(specs, image) == [(0, [0, 1, 2], 256), (1, [3], 768)]


@pytest.mark.parametrize(
    ("specs", "image", "pages"),
    [
        ({"mem_page_size": "small"}, {}, SMALL),
        ({"mem_page_size": "large"}, {}, LARGE),
        ({"mem_page_size": "any"}, {}, ANY),
        ({"mem_page_size": "2048"}, {}, 2048),
        ({"mem_page_size": "4KB"}, {}, 4),
        ({"mem_page_size": "2MB"}, {}, 2048),
        ({"mem_page_size": "1GB"}, {}, 1048576),
        ({"mem_page_size": "large"}, {"mem_page_size": "2MB"}, 2048),
        ({"mem_page_size": "any"}, {"mem_page_size": "small"}, SMALL),
        ({"mem_page_size": "any"}, {"mem_page_size": "1GB"}, 1048576),
    ],
)
def test_pages_make_one_cell(specs, image, pages):
    (cell,) = wish(specs, image).cells
    assert (cell.id, sorted(cell.cpus), cell.memory_mb, cell.page_size_kb) == (0, [0, 1, 2, 3], 1024, pages)
    assert cell.cpu_policy is None


def test_pages_are_those_of_every_cell():
    assert [cell.page_size_kb for cell in wish({"numa_nodes": "2", "mem_page_size": "2MB"}).cells] == [2048, 2048]


@pytest.mark.parametrize(
    ("specs", "image", "thread_policy"),
    [
        ({"cpu_policy": "dedicated"}, {}, None),
        ({}, {"cpu_policy": "dedicated"}, None),
        ({"cpu_policy": "dedicated"}, {"cpu_policy": "shared"}, None),
        ({"cpu_policy": "dedicated", "cpu_thread_policy": "require"}, {}, "require"),
        ({"cpu_policy": "dedicated"}, {"cpu_thread_policy": "isolate"}, "isolate"),
        ({"cpu_policy": "dedicated", "cpu_thread_policy": "isolate"}, {"cpu_thread_policy": "isolate"}, "isolate"),
        ({"cpu_policy": "dedicated", "cpu_thread_policy": "prefer"}, {"cpu_thread_policy": "require"}, "prefer"),
        ({"cpu_thread_policy": "require"}, {"cpu_policy": "dedicated"}, "require"),
    ],
)
def test_pinning_makes_one_cell(specs, image, thread_policy):
    (cell,) = wish(specs, image).cells
    assert (sorted(cell.cpus), cell.memory_mb, cell.page_size_kb) == ([0, 1, 2, 3], 1024, None)
    assert (cell.cpu_policy, cell.cpu_thread_policy) == ("dedicated", thread_policy)


def test_policies_are_those_of_every_cell():
    specs = {"numa_nodes": "2", "cpu_policy": "dedicated", "cpu_thread_policy": "require"}
    assert [(c.cpu_policy, c.cpu_thread_policy) for c in wish(specs).cells] == [("dedicated", "require")] * 2


def test_emulator_threads():
    assert wish({**PINNED, "emulator_threads_policy": "isolate"}).emulator_isolated
    assert wish({**PINNED, "emulator_threads_policy": "share"}).emulator_threads_policy == "share"
    assert wish(PINNED).emulator_threads_policy is None
    assert wish({}, {"cpu_policy": "dedicated", "emulator_threads_policy": "isolate"}).emulator_threads_policy is None


def test_realtime_is_for_pinned_cpus_with_a_mask():
    assert wish({**PINNED, "cpu_realtime": "yes", "cpu_realtime_mask": "^0-1"}) is not None
    assert wish({**PINNED, "cpu_realtime": "yes"}, {"cpu_realtime_mask": "^3"}) is not None
    assert wish({**PINNED, "cpu_realtime": "yes", "cpu_realtime_mask": "2-3"}) is not None
    assert wish({**PINNED, "cpu_realtime": "yes", "emulator_threads_policy": "isolate"}) is not None


NODES_FORBIDDEN = (
    "Image property 'hw_numa_nodes' is not permitted to override NUMA configuration set against the flavor"
)
CPUS_FORBIDDEN = "Image property 'hw_numa_cpus' is not permitted to override NUMA configuration set against the flavor"
ASYMMETRIC = (
    "Instance CPUs and/or memory cannot be evenly distributed across instance NUMA nodes. Explicit "
    "assignment of CPUs and memory to nodes is required"
)
PINNING_FORBIDDEN = (
    "Image property 'hw_cpu_policy' is not permitted to override CPU pinning policy set against the flavor"
)
UNKNOWN_POLICY = (
    "CPU policy requested from 'flavor extra specs' is invalid, given: 'mine', available: 'shared, dedicated'."
)
MANUAL = {"numa_nodes": "2", "numa_cpus.0": "0-1", "numa_cpus.1": "2-3", "numa_mem.0": "512", "numa_mem.1": "512"}


@pytest.mark.parametrize(
    ("specs", "image", "error", "text"),
    [
        (
            {"numa_nodes": "0"},
            {},
            "InvalidNUMANodesNumber",
            "The property 'numa_nodes' cannot be '0'. It must be a number greater than 0",
        ),
        ({"numa_nodes": "-1"}, {}, "InvalidNUMANodesNumber", None),
        ({"numa_nodes": "two"}, {}, "InvalidNUMANodesNumber", None),
        ({}, {"numa_nodes": 0}, "InvalidNUMANodesNumber", None),
        ({"numa_nodes": "2"}, {"numa_nodes": 2}, "ImageNUMATopologyForbidden", NODES_FORBIDDEN),
        (MANUAL, {"numa_cpus.0": "0"}, "ImageNUMATopologyForbidden", CPUS_FORBIDDEN),
        (MANUAL, {"numa_mem.0": "512"}, "ImageNUMATopologyForbidden", None),
        ({"numa_nodes": "3"}, {}, "ImageNUMATopologyAsymmetric", ASYMMETRIC),
        ({"numa_nodes": "8"}, {}, "ImageNUMATopologyAsymmetric", None),  # more nodes than CPUs
        (
            {"numa_nodes": "2", "numa_cpus.0": "0-1", "numa_cpus.1": "2-3"},
            {},
            "ImageNUMATopologyIncomplete",
            "CPU and memory allocation must be provided for all NUMA nodes",
        ),
        ({"numa_nodes": "2", "numa_mem.0": "512", "numa_mem.1": "512"}, {}, "ImageNUMATopologyIncomplete", None),
        ({**MANUAL, "numa_nodes": "1"}, {}, "ImageNUMATopologyIncomplete", None),
        ({**MANUAL, "numa_nodes": "3"}, {}, "ImageNUMATopologyIncomplete", None),
        ({**MANUAL, "numa_cpus.1": "3-4"}, {}, "ImageNUMATopologyCPUOutOfRange", "CPU number 4 is larger than max 3"),
        (
            {**MANUAL, "numa_cpus.1": "1-3"},
            {},
            "ImageNUMATopologyCPUDuplicates",
            "CPU number 1 is assigned to two nodes",
        ),
        (
            {**MANUAL, "numa_cpus.1": "3"},
            {},
            "ImageNUMATopologyCPUsUnassigned",
            "CPU number {2} is not assigned to any node",
        ),
        (
            {**MANUAL, "numa_mem.1": "500"},
            {},
            "ImageNUMATopologyMemoryOutOfRange",
            "1012 MB of memory assigned, but expected 1024 MB",
        ),
        ({**MANUAL, "numa_mem.1": "lots"}, {}, "InvalidInput", None),
        (
            {**MANUAL, "numa_cpus.1": "3-2"},
            {},
            "InvalidInput",
            "hw:numa_cpus.1: Invalid input received: Invalid range expression '3-2'",
        ),
        ({"mem_page_size": "foo"}, {}, "MemoryPageSizeInvalid", "Invalid memory page size 'foo'"),
        ({"mem_page_size": "0"}, {}, "MemoryPageSizeInvalid", None),
        ({"mem_page_size": "-1"}, {}, "MemoryPageSizeInvalid", None),
        ({"mem_page_size": "large"}, {"mem_page_size": "foo"}, "MemoryPageSizeInvalid", None),
        ({}, {"mem_page_size": "2MB"}, "MemoryPageSizeForbidden", "Page size 2MB forbidden against '<empty>'"),
        (
            {"mem_page_size": "small"},
            {"mem_page_size": "2MB"},
            "MemoryPageSizeForbidden",
            "Page size 2MB forbidden against 'small'",
        ),
        ({"mem_page_size": "2MB"}, {"mem_page_size": "2MB"}, "MemoryPageSizeForbidden", None),
        ({"cpu_policy": "shared"}, {"cpu_policy": "dedicated"}, "ImageCPUPinningForbidden", PINNING_FORBIDDEN),
        ({"cpu_policy": "mine"}, {}, "InvalidCPUAllocationPolicy", UNKNOWN_POLICY),
        ({}, {"cpu_policy": "mine"}, "InvalidCPUAllocationPolicy", None),
        ({**PINNED, "cpu_thread_policy": "none"}, {}, "InvalidCPUThreadAllocationPolicy", None),
        (PINNED, {"cpu_thread_policy": "none"}, "InvalidCPUThreadAllocationPolicy", None),
        (
            {**PINNED, "cpu_thread_policy": "isolate"},
            {"cpu_thread_policy": "require"},
            "ImageCPUThreadPolicyForbidden",
            None,
        ),
        (
            {"cpu_thread_policy": "isolate"},
            {},
            "CPUThreadPolicyConfigurationInvalid",
            "Cannot set cpu thread pinning policy in a non dedicated cpu pinning policy",
        ),
        ({"numa_nodes": "2"}, {"cpu_thread_policy": "prefer"}, "CPUThreadPolicyConfigurationInvalid", None),
        (
            {"emulator_threads_policy": "isolate"},
            {},
            "BadRequirementEmulatorThreadsPolicy",
            "An isolated CPU emulator threads option requires a dedicated CPU policy option.",
        ),
        ({**PINNED, "emulator_threads_policy": "alone"}, {}, "InvalidEmulatorThreadsPolicy", None),
        (
            {"cpu_realtime": "yes", "cpu_realtime_mask": "^0"},
            {},
            "RealtimeConfigurationInvalid",
            "Cannot set realtime policy in a non dedicated cpu pinning policy",
        ),
        ({**PINNED, "cpu_realtime": "yes"}, {}, "RealtimeMaskNotFoundOrInvalid", None),
        ({**PINNED, "cpu_realtime": "yes", "cpu_realtime_mask": "^0-3"}, {}, "RealtimeMaskNotFoundOrInvalid", None),
        ({**PINNED, "cpu_realtime": "yes", "cpu_realtime_mask": "0-3"}, {}, "RealtimeMaskNotFoundOrInvalid", None),
        ({**PINNED, "cpu_realtime": "yes", "cpu_realtime_mask": "^x"}, {}, "RealtimeMaskNotFoundOrInvalid", None),
        ({**PINNED, "cpu_realtime": "yes", "cpu_realtime_mask": "3-4"}, {}, "RealtimeMaskNotFoundOrInvalid", None),
        (
            {**PINNED, "cpu_realtime": "yes", "emulator_threads_policy": "share"},
            {},
            "RealtimeMaskNotFoundOrInvalid",
            None,
        ),
    ],
)
def test_what_cannot_be_is_the_requests_fault(specs, image, error, text):
    with pytest.raises(errors.InvalidInput) as caught:
        wish(specs, image)
    assert caught.value.code == error
    assert caught.value.status == 400
    assert not caught.value.retryable
    if text:
        assert caught.value.message == text


def test_memory_that_does_not_divide_is_asymmetric():
    with pytest.raises(errors.ImageNUMATopologyAsymmetric):
        wish({"numa_nodes": "2"}, memory=1023)


@given(st.integers(1, 16), st.integers(1, 64), st.integers(1, 4096))
def test_even_nodes_hold_all_cpus_once_and_all_memory(nodes, vcpus, memory):
    try:
        made = wish({"numa_nodes": str(nodes)}, vcpus=vcpus, memory=memory).cells
    except errors.ImageNUMATopologyAsymmetric:
        assert vcpus % nodes or memory % nodes
        return
    assert [cell.id for cell in made] == list(range(nodes))
    assert sorted(cpu for cell in made for cpu in cell.cpus) == list(range(vcpus))
    assert sum(cell.memory_mb for cell in made) == memory
    assert len({(len(cell.cpus), cell.memory_mb) for cell in made}) == 1


# Nova's own kinds of values: none of them may end in anything but a topology or an error of the family.
VALUE = st.sampled_from(
    ["", "0", "1", "2", "-1", "0-1", "^0", "dedicated", "shared", "isolate", "large", "2MB", "x", "512"]
)
NAMES = ["numa_nodes", "numa_cpus.0", "numa_cpus.1", "numa_mem.0", "numa_mem.1", "mem_page_size", "cpu_policy"]
NAMES += ["cpu_thread_policy", "emulator_threads_policy", "cpu_realtime", "cpu_realtime_mask"]


@given(st.dictionaries(st.sampled_from(NAMES), VALUE), st.dictionaries(st.sampled_from(NAMES), VALUE))
def test_every_request_is_understood_or_refused(specs, image):
    try:
        found = wish(specs, image)
    except errors.InvalidInput as error:
        assert error.status == 400
        assert error.message
        return
    if found is not None:
        assert sorted(cpu for cell in found.cells for cpu in cell.cpus) == [0, 1, 2, 3]
        assert sum(cell.memory_mb for cell in found.cells) == 1024


@pytest.mark.parametrize(
    ("specs", "error"),
    [
        ({"numa_cpus.0": "0-3"}, "ImageNUMATopologyIncomplete"),
        ({"numa_mem.0": "1024"}, "ImageNUMATopologyIncomplete"),
        (
            {"numa_cpus.0": "0-1", "numa_mem.0": "512", "numa_cpus.1": "2-3", "numa_mem.1": "512"},
            "ImageNUMATopologyIncomplete",
        ),
        ({"numa_cpus.0": "0-2", "numa_mem.0": "1024"}, "ImageNUMATopologyCPUsUnassigned"),
        ({"numa_cpus.0": "0-3", "numa_mem.0": "512"}, "ImageNUMATopologyMemoryOutOfRange"),
        ({"numa_cpus.0": "x", "numa_mem.0": "1024"}, "InvalidInput"),
    ],
)
def test_cells_of_a_pinned_guest_without_a_number_are_those_of_one(specs, error):
    """Nova since Stein; before, what the flavor says of its cells was ignored."""
    assert cells({**PINNED, "numa_cpus.0": "0-3", "numa_mem.0": "1024"}) == [(0, [0, 1, 2, 3], 1024)]
    with pytest.raises(errors.InvalidInput) as caught:
        wish({**PINNED, **specs})
    assert caught.value.code == error
