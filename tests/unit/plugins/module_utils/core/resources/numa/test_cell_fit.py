# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import itertools

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core.resources.numa.cell_fit import fit_cell, page_size
from ansible_collections.bootflow.compute.plugins.module_utils.core.resources.numa.pinning import pack
from ansible_collections.bootflow.compute.plugins.module_utils.core.resources.numa.topology import (
    GuestCell,
    HostCell,
    NUMALimits,
    PagesTopology,
)


def cores(*threads):
    return tuple(frozenset(core) for core in threads)


def host(*threads, pinned=(), memory=1024, used=0, smt=True, usage=0, pages=()):
    sets = cores(*threads)
    return HostCell(
        7, frozenset().union(*sets), memory, usage, used, frozenset(pinned), sets if smt else (), tuple(pages)
    )


def guest(cpus=2, policy=None, memory=512, dedicated=True, pages=None):
    return GuestCell(0, frozenset(range(cpus)), memory, pages, "dedicated" if dedicated else None, policy)


PAIRS = ({0, 1}, {2, 3}, {4, 5})
QUADS = ({0, 1, 2, 3}, {4, 5, 6, 7})


@pytest.mark.parametrize(
    ("policy", "threads", "pinned", "cpus", "pins", "topology"),
    [
        # whole cores first
        (None, PAIRS, (), 2, [0, 1], (1, 1, 2)),
        ("prefer", PAIRS, (), 2, [0, 1], (1, 1, 2)),
        ("prefer", PAIRS, {0}, 2, [2, 3], (1, 1, 2)),
        ("prefer", PAIRS, {0}, 4, [2, 3, 4, 5], (1, 2, 2)),
        ("prefer", PAIRS, (), 6, [0, 1, 2, 3, 4, 5], (1, 3, 2)),
        # an odd CPU is alone on its core: the guest is shown one thread
        ("prefer", PAIRS, (), 3, [0, 1, 2], (1, 3, 1)),
        ("prefer", PAIRS, (), 1, [0], (1, 1, 1)),
        # lone threads, then whatever is left
        ("prefer", PAIRS, {0, 2, 4}, 3, [1, 3, 5], (1, 3, 1)),
        ("prefer", PAIRS, {0, 2}, 3, [1, 3, 4], (1, 3, 1)),
        ("prefer", PAIRS, {0, 2}, 4, [1, 3, 4, 5], (1, 4, 1)),
        ("prefer", PAIRS, {0, 2}, 5, None, None),
        # gcd of the threads and of what is left over
        ("prefer", QUADS, (), 6, [0, 1, 2, 3, 4, 5], (1, 3, 2)),
        ("prefer", QUADS, (), 8, [0, 1, 2, 3, 4, 5, 6, 7], (1, 2, 4)),
        ("prefer", QUADS, {0}, 6, [1, 2, 3, 4, 5, 6], (1, 2, 3)),
        # require takes no lone threads
        ("require", PAIRS, (), 4, [0, 1, 2, 3], (1, 2, 2)),
        ("require", PAIRS, {0}, 2, [2, 3], (1, 1, 2)),
        ("require", PAIRS, {0, 2}, 3, None, None),
        ("require", PAIRS, {0, 2, 4}, 1, None, None),
        ("require", PAIRS, (), 3, [0, 1, 2], (1, 3, 1)),
        ("require", QUADS, {0, 1, 4, 5}, 4, [2, 3, 6, 7], (1, 2, 2)),
        # isolate takes one thread of wholly free cores
        ("isolate", PAIRS, (), 3, [0, 2, 4], (1, 3, 1)),
        ("isolate", PAIRS, (), 4, None, None),
        ("isolate", PAIRS, {2}, 2, [0, 4], (1, 2, 1)),
        ("isolate", PAIRS, {1, 2, 4}, 1, None, None),
        # cores of two kinds
        ("prefer", ({0, 1}, {2}, {3}), (), 2, [0, 1], (1, 1, 2)),
        ("prefer", ({0, 1}, {2}, {3}), (), 4, [0, 1, 2, 3], (1, 4, 1)),
        ("isolate", ({0, 1}, {2}, {3}), (), 2, None, None),
    ],
)
def test_pinning(policy, threads, pinned, cpus, pins, topology):
    found = pack(host(*threads, pinned=pinned), guest(cpus, policy))
    if pins is None:
        assert found is None
        return
    assert [found.cpus[cpu] for cpu in range(cpus)] == pins
    assert found.topology == topology
    assert found.reserved == frozenset()


@pytest.mark.parametrize(
    ("policy", "threads", "pinned", "cpus", "pins", "reserved"),
    [
        ("prefer", PAIRS, (), 2, [0, 1], 2),
        ("prefer", PAIRS, (), 3, [0, 1, 2], 3),
        ("prefer", PAIRS, (), 5, [0, 1, 2, 3, 4], 5),
        ("prefer", PAIRS, (), 6, None, None),
        ("prefer", PAIRS, {5}, 4, [0, 1, 2, 3], 4),
        ("require", PAIRS, {5}, 4, [0, 1, 2, 3], 4),
        ("require", PAIRS, {4, 5}, 4, None, None),
        ("isolate", PAIRS, (), 2, [0, 2], 4),
        ("isolate", PAIRS, (), 3, None, None),
        ("isolate", PAIRS, {5}, 2, None, None),  # the emulator's core has to be wholly free as well
    ],
)
def test_pinning_with_a_cpu_for_the_emulator(policy, threads, pinned, cpus, pins, reserved):
    found = pack(host(*threads, pinned=pinned), guest(cpus, policy), 1)
    if pins is None:
        assert found is None
        return
    assert [found.cpus[cpu] for cpu in range(cpus)] == pins
    assert found.reserved == {reserved}


@pytest.mark.parametrize("policy", [None, "prefer", "isolate"])
def test_without_smt_cpus_are_taken_one_by_one(policy):
    found = pack(host({0, 1, 2, 3}, pinned={1}, smt=False), guest(3, policy))
    assert sorted(found.cpus.items()) == [(0, 0), (1, 2), (2, 3)]
    assert found.topology == (1, 3, 1)


@pytest.mark.parametrize(
    ("policy", "threads", "pinned", "reserve", "lack"),
    [
        (None, PAIRS, (), 0, ""),
        ("prefer", PAIRS, range(6), 0, ""),
        ("require", PAIRS, {0, 2}, 0, ""),
        (
            "require",
            PAIRS,
            {0, 2, 4},
            0,
            "has no CPUs, and no core has free siblings, which thread policy require needs",
        ),
        ("isolate", PAIRS, (), 0, "has no CPUs, which thread policy isolate needs"),
        (None, PAIRS, (), 1, "has no CPUs, so the emulator cannot get a separate one"),
    ],
)
def test_a_cell_with_memory_only(policy, threads, pinned, reserve, lack):
    found = fit_cell(host(*threads, pinned=pinned), guest(0, policy), None, reserve)
    if lack:
        assert found == lack
    else:
        assert (found.host_cell, found.pinning, found.reserved_cpus, found.topology) == (7, {}, frozenset(), None)


def test_the_guests_cpus_need_not_begin_at_zero():
    wish = GuestCell(1, frozenset({4, 6}), 1, cpu_policy="dedicated")
    assert pack(host(*PAIRS), wish).cpus == {4: 0, 6: 1}


@pytest.mark.parametrize("policy", [None, "prefer", "require", "isolate"])
@pytest.mark.parametrize("reserve", [0, 1])
def test_pinning_keeps_its_promises_on_every_small_cell(policy, reserve):
    """All ways to have some of six CPUs taken, all sizes of guests."""
    for pinned in itertools.chain.from_iterable(itertools.combinations(range(6), n) for n in range(7)):
        cell = host(*PAIRS, pinned=pinned)
        whole = sum(1 for core in cell.siblings if not core & cell.pinned_cpus)
        for cpus in range(1, 7):
            found = pack(cell, guest(cpus, policy), reserve)
            room = whole if policy == "isolate" else len(cell.free_cpus)
            if policy in (None, "prefer", "isolate"):
                assert (found is not None) == (cpus + reserve <= room)
            elif found is None:
                assert 2 * whole < cpus or len(cell.free_cpus) < cpus + reserve
            if found is None:
                continue
            taken = list(found.cpus.values()) + sorted(found.reserved)
            assert len(set(taken)) == len(taken) == cpus + reserve
            assert set(taken) <= cell.free_cpus
            sockets, per_socket, threads = found.topology
            assert sockets * per_socket * threads == cpus
            if policy == "isolate":
                assert len({cpu // 2 for cpu in taken}) == len(taken)
            if policy == "require":
                assert all(not core & cell.pinned_cpus for core in cell.siblings if core & set(found.cpus.values()))


# --- the whole cell


@pytest.mark.parametrize(
    ("cell", "wish", "limits", "reserve", "lack"),
    [
        (host(*PAIRS), guest(2, memory=1024), None, 0, None),
        (host(*PAIRS), guest(2, memory=1025), None, 0, "needs 1025 MiB, the whole cell has 1024 MiB"),
        (host(*PAIRS), guest(7), None, 0, "needs 7 CPUs, the whole cell has 6"),
        (host(*PAIRS), guest(6), None, 1, "needs 6 CPUs and 1 for the emulator, the whole cell has 6"),
        (host(*PAIRS, pinned={0, 1, 2}), guest(4), None, 0, "needs 4 CPUs for itself, has 3 free"),
        (host(*PAIRS, used=513), guest(1), None, 0, "needs 512 MiB without over-commit, 511 MiB free"),
        (host(*PAIRS, used=512), guest(1), None, 0, None),
        (host(*PAIRS, smt=False), guest(1, "require"), None, 0, "needs thread siblings, but each core has one thread"),
        (
            host(*PAIRS, pinned={0, 2, 4}),
            guest(2, "require"),
            None,
            0,
            "needs 2 CPUs by thread policy require; 3 are free, but not in that arrangement",
        ),
        # not pinned: limits only when given
        (host(*PAIRS, used=9999, usage=99), guest(6, dedicated=False), None, 0, None),
        (host(*PAIRS, used=1024), guest(1, dedicated=False), NUMALimits(1.0, 1.5), 0, None),
        (
            host(*PAIRS, used=1025),
            guest(1, dedicated=False),
            NUMALimits(1.0, 1.5),
            0,
            "needs 512 MiB, 511 MiB usable (allocation ratio 1.5)",
        ),
        (host(*PAIRS, usage=10), guest(2, dedicated=False), NUMALimits(2.0, 1.0), 0, None),
        (
            host(*PAIRS, usage=11),
            guest(2, dedicated=False),
            NUMALimits(2.0, 1.0),
            0,
            "needs 2 CPUs, 1 usable (allocation ratio 2)",
        ),
        # never against itself, whatever the ratio
        (host(*PAIRS), guest(7, dedicated=False), NUMALimits(16.0, 16.0), 0, "needs 7 CPUs, the whole cell has 6"),
        # pinned: the limits do not loosen anything
        (
            host(*PAIRS, used=600),
            guest(1),
            NUMALimits(16.0, 16.0),
            0,
            "needs 512 MiB without over-commit, 424 MiB free",
        ),
    ],
)
def test_cells(cell, wish, limits, reserve, lack):
    found = fit_cell(cell, wish, limits, reserve)
    if lack is None:
        assert found.host_cell == 7
        assert (found.id, found.cpus, found.memory_mb) == (wish.id, wish.cpus, wish.memory_mb)
    else:
        assert found == lack


# Half of the cell's memory is kept for large pages, and nothing else may have it.
HALF = PagesTopology(4, 131072), PagesTopology(2048, 256)


@pytest.mark.parametrize(
    ("pages", "wish", "lack"),
    [
        (HALF, guest(2), None),
        (HALF, guest(2, memory=513), "needs 513 MiB, 512 MiB free in pages of 4 kB"),
        (HALF, guest(2, memory=513, dedicated=False), "needs 513 MiB, 512 MiB in all in pages of 4 kB"),
        (HALF, guest(2, memory=512, pages=2048), None),
        # what others use is not there for a pinned guest; the others over-commit
        ((PagesTopology(4, 131072, 256), HALF[1]), guest(2), "needs 512 MiB, 511 MiB free in pages of 4 kB"),
        ((PagesTopology(4, 131072, 0, 256), HALF[1]), guest(2), "needs 512 MiB, 511 MiB free in pages of 4 kB"),
        ((PagesTopology(4, 131072, 256), HALF[1]), guest(2, dedicated=False), None),
    ],
)
def test_a_guest_that_requests_no_pages_has_the_smallest(pages, wish, lack):
    found = fit_cell(host(*PAIRS, pages=pages), wish)
    assert found == lack if lack else (found.host_cell, found.page_size_kb) == (7, wish.page_size_kb)


SMALL, LARGE, ANY = -1, -2, -3
K4, M2, G1 = PagesTopology(4, 1048576), PagesTopology(2048, 512), PagesTopology(1048576, 1)


@pytest.mark.parametrize(
    ("offered", "wish", "memory", "size"),
    [
        ((K4, M2, G1), SMALL, 1024, 4),
        ((K4, M2, G1), LARGE, 1024, 1048576),
        ((K4, M2, G1), ANY, 1024, 1048576),
        ((G1, M2, K4), LARGE, 1024, 1048576),  # whatever their order
        ((K4, M2, G1), LARGE, 1022, 2048),  # no multiple of 1 GB
        ((K4, M2, G1), LARGE, 1023, None),
        ((K4, M2, G1), ANY, 1023, 4),
        ((K4, M2, G1), 2048, 1024, 2048),
        ((K4, M2, G1), 2048, 1023, None),
        ((K4, M2, G1), 2048, 1026, None),  # more than there is
        ((K4, M2), 1048576, 1024, None),  # not offered
        ((K4,), LARGE, 1024, None),
        ((K4,), ANY, 1024, 4),
        ((M2,), SMALL, 1024, 2048),  # the smallest there is
        ((), SMALL, 4, None),
        ((), ANY, 4, None),
        ((PagesTopology(2048, 10, used=5, reserved=4), K4), LARGE, 2, 2048),
        ((PagesTopology(2048, 10, used=5, reserved=4), K4), LARGE, 4, None),
        ((PagesTopology(2048, 10, used=9, reserved=4), K4), LARGE, 2, None),
    ],
)
def test_page_sizes(offered, wish, memory, size):
    cell = host(*PAIRS, memory=4096, pages=offered)
    asking = guest(1, memory=memory, pages=wish, dedicated=False)
    assert page_size(cell, asking) == size
    found = fit_cell(cell, asking)
    assert (found.page_size_kb if size else isinstance(found, str)) == (size or True)


def test_pages_are_missed_in_words():
    cell = host(*PAIRS, pages=(PagesTopology(2048, 10, 4, 1), PagesTopology(4, 100)))
    asking = guest(1, memory=512, dedicated=False, pages=2048)
    assert fit_cell(cell, asking) == "needs 512 MiB in pages (2048 kB), pages: 100 free of 4 kB, 5 free of 2048 kB"
    assert fit_cell(host(*PAIRS), guest(1, pages=LARGE)) == "needs 512 MiB in pages (large), pages: none"
