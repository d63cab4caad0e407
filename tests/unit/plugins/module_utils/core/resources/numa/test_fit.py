# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ansible_collections.bootflow.compute.plugins.module_utils.core.resources.numa import fit
from ansible_collections.bootflow.compute.plugins.module_utils.core.resources.numa.cell_fit import fit_cell
from ansible_collections.bootflow.compute.plugins.module_utils.core.resources.numa.fit import fit_to_host, misfit
from ansible_collections.bootflow.compute.plugins.module_utils.core.resources.numa.topology import (
    GuestCell,
    GuestNUMATopology,
    HostCell,
    HostNUMATopology,
    NUMALimits,
    PagesTopology,
)
from ansible_collections.bootflow.compute.plugins.module_utils.core.resources.numa.usage import apply_usage
from ansible_collections.bootflow.compute.tests.unit.worlds.examples import examples
from ansible_collections.bootflow.compute.tests.unit.worlds.work import lines_run

from .strategies import guests, hosts, limits


def host(*sizes, cpus=4):
    """Cells with that many MB, without SMT."""
    return HostNUMATopology(
        tuple(HostCell(n, frozenset(range(n * cpus, (n + 1) * cpus)), size) for n, size in enumerate(sizes))
    )


def guest(*sizes, cpus=1, emulator=None, **more):
    return GuestNUMATopology(
        tuple(GuestCell(n, frozenset(range(n * cpus, (n + 1) * cpus)), size, **more) for n, size in enumerate(sizes)),
        emulator,
    )


@pytest.mark.parametrize(
    ("there", "wish", "pci_cells", "placed"),
    [
        (host(100, 100), guest(50), (), [0]),
        (host(100, 100), guest(50, 50), (), [0, 1]),
        (host(10, 100), guest(50), (), [1]),
        (host(100, 10), guest(10, 50), (), [1, 0]),
        (host(100, 50, 10), guest(10, 50), (), [0, 1]),  # the first permutation that fits, not the tightest
        (host(100, 50, 10), guest(10, 60), (), [1, 0]),
        (host(100), guest(50, 50), (), None),  # a guest's cells do not share a host's cell
        (host(100, 100), guest(101), (), None),
        # cells with devices are kept for those who ask
        (host(100, 100), guest(50), {0}, [1]),
        (host(100, 100, 100), guest(50, 50), {1}, [0, 2]),
        (host(100, 100), guest(50), {0, 1}, [0]),
        (host(100, 10), guest(50), {0}, [0]),
        (host(100, 100), guest(50), {9}, [0]),
    ],
)
def test_cells_go_to_the_first_that_fit(there, wish, pci_cells, placed):
    found = fit_to_host(there, wish, pci_cells=pci_cells)
    assert (None if found is None else found.host_cells) == placed


def test_who_asks_for_devices_is_not_kept_from_them():
    assert fit_to_host(host(100, 100), guest(50), pci_cells={0}, pci_ok=lambda cells: True).host_cells == [0]


def test_devices_decide_between_cells():
    asked = []

    def only_on_cell_2(cells):
        asked.append(list(cells))
        return 2 in cells

    assert fit_to_host(host(100, 100, 100), guest(50, 50), pci_ok=only_on_cell_2).host_cells == [0, 2]
    assert asked == [[0, 1], [0, 2]]
    assert fit_to_host(host(100, 100), guest(50, 50), pci_ok=only_on_cell_2) is None


@pytest.mark.parametrize(
    ("there", "wish"),
    [(None, guest(1)), (host(1), None), (HostNUMATopology(()), guest(1)), (host(1), GuestNUMATopology(()))],
)
def test_without_cells_there_is_no_fit(there, wish):
    assert fit_to_host(there, wish) is None


def test_a_fit_keeps_the_numbers_of_the_guests_cells():
    found = fit_to_host(host(10, 100), guest(50))
    assert (found.cells[0].id, found.cells[0].host_cell) == (0, 1)


def test_the_emulators_cpu_comes_from_the_first_guest_cell():
    wish = guest(10, 10, cpus=2, emulator="isolate", cpu_policy="dedicated")
    found = fit_to_host(host(100, 100, cpus=3), wish)
    assert [sorted(cell.reserved_cpus) for cell in found.cells] == [[2], []]
    assert found.emulator_isolated
    assert fit_to_host(host(100, 100, cpus=2), wish) is None
    small_first = HostNUMATopology((HostCell(0, frozenset({0, 1}), 100), HostCell(1, frozenset({2, 3, 4}), 100)))
    assert fit_to_host(small_first, wish).host_cells == [1, 0]


def test_a_cell_that_fits_no_guest_cell_does_not_spoil_pages_for_others():
    """Large pages may be of one size on one cell and of another on the next."""
    there = HostNUMATopology(
        (
            HostCell(0, frozenset({0}), 2048, pages=(PagesTopology(4, 9), PagesTopology(1048576, 2))),
            HostCell(1, frozenset({1}), 2048, pages=(PagesTopology(4, 9), PagesTopology(2048, 1024))),
        )
    )
    found = fit_to_host(there, guest(1024, 1024, page_size_kb=-2))
    assert [cell.page_size_kb for cell in found.cells] == [1048576, 2048]


def test_eight_cells_on_eight_cells_do_not_take_every_permutation(monkeypatch):
    looked_at, asked = [], []

    def look(cell, part, *more):
        looked_at.append((cell.id, part.id))
        return fit_cell(cell, part, *more)

    monkeypatch.setattr(fit, "fit_cell", look)
    assert fit_to_host(host(*[100] * 8), guest(*[100] * 8), pci_ok=asked.append) is None
    assert len(looked_at) == len(set(looked_at)) == 64  # each pair of cells once
    assert len(asked) <= 8


def test_sixteen_cells_on_sixteen_cells_end():
    there, wish = host(*[100] * 15, 10), guest(*[100] * 16)
    found = []
    lines_run(lambda: found.append(fit_to_host(there, wish)), most=10_000_000)
    assert found == [None]


# --- laws


def by_brute_force(there, wish, limit):
    """The definition: each permutation of the host's cells, each pair of cells looked at alone."""
    for cells in itertools.permutations(there.cells, len(wish)):
        fits = [
            fit_cell(cell, part, limit, 1 if wish.emulator_isolated and not number else 0)
            for number, (cell, part) in enumerate(zip(cells, wish.cells))
        ]
        if not any(isinstance(fit, str) for fit in fits):
            return [fit.host_cell for fit in fits]
    return None


@settings(max_examples=examples(400))
@given(hosts(), guests(), limits)
def test_a_fit_is_found_exactly_where_there_is_one(there, wish, limit):
    found = fit_to_host(there, wish, limit)
    assert (None if found is None else found.host_cells) == by_brute_force(there, wish, limit)


@settings(max_examples=examples(400))
@given(hosts(), guests(), st.frozensets(st.integers(0, 2)))
def test_where_devices_are_changes_the_order_only(there, wish, pci_cells):
    assert (fit_to_host(there, wish) is None) == (fit_to_host(there, wish, pci_cells=pci_cells) is None)


@settings(max_examples=examples(400))
@given(hosts(), guests(), limits)
def test_a_fit_never_uses_more_than_there_is(there, wish, limit):
    found = fit_to_host(there, wish, limit)
    if found is None:
        return
    assert len(set(found.host_cells)) == len(wish)
    after = apply_usage(there, found)  # raises where a CPU is pinned twice
    cells = {cell.id: cell for cell in after.cells}
    for part, asked in zip(found.cells, wish.cells):
        cell = cells[part.host_cell]
        assert (part.cpus, part.memory_mb) == (asked.cpus, asked.memory_mb)
        assert part.memory_mb <= cell.memory_mb
        if part.dedicated:
            assert set(part.pinning) == part.cpus
            assert len(set(part.pinning.values())) == len(part.cpus)
            assert cell.memory_usage_mb <= cell.memory_mb
        elif limit is not None:
            assert cell.cpu_usage <= len(cell.cpus) * limit.cpu_allocation_ratio
            assert cell.memory_usage_mb <= cell.memory_mb * limit.ram_allocation_ratio
        if asked.page_size_kb:
            pages = cell.pages_of(part.page_size_kb)
            assert pages.free >= 0
            assert part.memory_mb * 1024 % pages.size_kb == 0
    assert bool(found.cells[0].reserved_cpus) == wish.emulator_isolated


@settings(max_examples=examples(200))
@given(hosts(), guests(2))
def test_a_host_is_filled_until_nothing_fits(there, wish):
    limit = NUMALimits(2.0, 2.0)
    placed = []
    while True:
        found = fit_to_host(there, wish, limit)
        if found is None or len(placed) > 200:
            break
        there = apply_usage(there, found)
        placed.append(found)
    assert len(placed) <= 200
    for found in reversed(placed):
        there = apply_usage(there, found, -1)
        assert fit_to_host(there, wish, limit) is not None


# --- why not


@pytest.mark.parametrize(
    ("there", "wish", "text"),
    [
        (None, guest(1), "the guest asks for 1 NUMA cell, the host reports none"),
        (host(9), guest(1, 1), "the guest asks for 2 NUMA cells, the host has 1"),
        (
            host(10, 20),
            guest(10, 50),
            "guest cell 1 fits no cell: "
            + "; ".join("cell %d needs 50 MiB, the whole cell has %d MiB" % cell for cell in ((0, 10), (1, 20))),
        ),
        (host(10, 50), guest(50, 50), "each guest cell fits a host cell, but they do not all fit at once"),
    ],
)
def test_reasons(there, wish, text):
    assert fit_to_host(there, wish) is None
    assert misfit(there, wish) == text


def test_devices_are_the_reason_where_cells_alone_would_fit():
    assert "PCI devices" in misfit(host(100), guest(50), pci_ok=lambda cells: False)
    assert "PCI devices" not in misfit(host(10), guest(50), pci_ok=lambda cells: False)
