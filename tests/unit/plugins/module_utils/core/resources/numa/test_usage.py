# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.core.resources.numa.topology import (
    GuestCell,
    GuestNUMATopology,
    HostCell,
    HostNUMATopology,
    PagesTopology,
)
from ansible_collections.bootflow.compute.plugins.module_utils.core.resources.numa.usage import apply_usage
from ansible_collections.bootflow.compute.tests.unit.worlds.examples import examples

from .strategies import fitted_pairs

CORES = (frozenset({0, 1}), frozenset({2, 3}), frozenset({4, 5}))
CELL = HostCell(0, frozenset(range(6)), 1024, siblings=CORES, pages=(PagesTopology(4, 1000), PagesTopology(2048, 256)))
HOST = HostNUMATopology((CELL, HostCell(1, frozenset({6, 7}), 512)))


def cell(cpus=2, memory=256, host_cell=0, pins=None, **more):
    pins = pins or {}
    return GuestCell(
        0,
        frozenset(range(cpus)),
        memory,
        cpu_policy="dedicated" if pins else None,
        pinning=pins,
        host_cell=host_cell,
        **more,
    )


def guest(*cells, emulator=None):
    return GuestNUMATopology(cells, emulator)


def used(host, number=0):
    there = host.cells[number]
    return there.cpu_usage, there.memory_usage_mb, set(there.pinned_cpus)


def test_floating_guests_use_cpus_and_memory():
    assert used(apply_usage(HOST, guest(cell()))) == (2, 256, set())
    assert used(apply_usage(apply_usage(HOST, guest(cell())), guest(cell()))) == (4, 512, set())


def test_other_cells_are_left_alone():
    after = apply_usage(HOST, guest(cell()))
    assert after.cells[1] is HOST.cells[1]
    assert apply_usage(HOST, guest(cell(host_cell=9))) == HOST
    assert apply_usage(HOST, None) == HOST


def test_two_guest_cells_on_one_host_cell_are_both_counted():
    assert used(apply_usage(HOST, guest(cell(1, 100), cell(2, 50)))) == (3, 150, set())


def test_a_guest_that_requests_no_pages_uses_the_smallest():
    taken = apply_usage(HOST, guest(cell(memory=2)))
    assert [(p.size_kb, p.used) for p in taken.cells[0].pages] == [(4, 512), (2048, 0)]
    assert apply_usage(taken, guest(cell(memory=2)), -1) == HOST
    large = apply_usage(HOST, guest(cell(memory=2, page_size_kb=2048)))
    assert [(p.size_kb, p.used) for p in large.cells[0].pages] == [(4, 0), (2048, 1)]


def test_pinned_guests_take_their_cpus():
    assert used(apply_usage(HOST, guest(cell(pins={0: 3, 1: 5})))) == (2, 256, {3, 5})


def test_isolated_threads_take_whole_cores():
    taken = apply_usage(HOST, guest(cell(pins={0: 0, 1: 2}, cpu_thread_policy="isolate")))
    assert used(taken) == (4, 256, {0, 1, 2, 3})


def test_isolated_threads_without_smt_take_their_cpus():
    taken = apply_usage(HOST, guest(cell(pins={0: 6, 1: 7}, host_cell=1, cpu_thread_policy="isolate")))
    assert used(taken, 1) == (2, 256, {6, 7})


@pytest.mark.parametrize(
    ("policy", "cpus", "pinned"), [(None, 2, {0, 4}), ("prefer", 2, {0, 4}), ("isolate", 3, {0, 1, 4, 5})]
)
def test_the_emulators_cpu_is_taken_too(policy, cpus, pinned):
    wish = cell(1, pins={0: 0}, reserved_cpus=frozenset({4}), cpu_thread_policy=policy)
    assert used(apply_usage(HOST, guest(wish, emulator="isolate"))) == (cpus, 256, pinned)


def test_pages():
    after = apply_usage(HOST, guest(cell(memory=256, page_size_kb=2048)))
    assert [pages.used for pages in after.cells[0].pages] == [0, 128]


def test_a_wish_for_pages_that_was_not_fitted_uses_none():
    after = apply_usage(HOST, guest(cell(page_size_kb=-1)))
    assert after.cells[0].pages == HOST.cells[0].pages


def test_a_cpu_is_pinned_once():
    taken = apply_usage(HOST, guest(cell(1, pins={0: 3})))
    with pytest.raises(errors.CPUPinningInvalid, match=r"CPU set to pin \[3\] must be a subset of free CPU set"):
        apply_usage(taken, guest(cell(1, pins={0: 3})))
    with pytest.raises(errors.CPUPinningInvalid):  # the idle sibling is not free
        apply_usage(taken, guest(cell(1, pins={0: 2}, cpu_thread_policy="isolate")))


@pytest.mark.parametrize("policy", [None, "isolate"])
def test_cpus_that_cannot_be(policy):
    with pytest.raises(errors.CPUPinningUnknown):
        apply_usage(HOST, guest(cell(1, pins={0: 99}, cpu_thread_policy=policy)))
    with pytest.raises(errors.CPUUnpinningUnknown):
        apply_usage(HOST, guest(cell(1, pins={0: 99}, cpu_thread_policy=policy)), -1)
    with pytest.raises(errors.CPUUnpinningInvalid):
        apply_usage(HOST, guest(cell(1, pins={0: 0}, cpu_thread_policy=policy)), -1)


def test_usage_is_never_below_zero():
    assert used(apply_usage(HOST, guest(cell()), -1)) == (0, 0, set())


@settings(max_examples=examples(300))
@given(fitted_pairs())
def test_what_is_taken_and_given_back_leaves_nothing(pair):
    host, fitted = pair
    after = apply_usage(host, fitted)
    assert apply_usage(after, fitted, -1) == host


@settings(max_examples=examples(300))
@given(fitted_pairs())
def test_each_cell_takes_what_the_guest_has_there(pair):
    host, fitted = pair
    after = apply_usage(host, fitted)
    memory, pinned = Counter(), Counter()
    for taken in fitted.cells:
        memory[taken.host_cell] += taken.memory_mb
        pinned[taken.host_cell] += len(taken.pinned_cpus)
    for before, now in zip(host.cells, after.cells):
        assert now.memory_usage_mb - before.memory_usage_mb == memory[now.id]
        assert len(now.pinned_cpus) - len(before.pinned_cpus) >= pinned[now.id]
        assert before.pinned_cpus <= now.pinned_cpus <= now.cpus
