# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from hypothesis import assume
from hypothesis import strategies as st

from ansible_collections.bootflow.compute.plugins.module_utils.core.resources.numa.fit import fit_to_host
from ansible_collections.bootflow.compute.plugins.module_utils.core.resources.numa.topology import (
    GuestCell,
    GuestNUMATopology,
    HostCell,
    HostNUMATopology,
    NUMALimits,
    PagesTopology,
)

limits = st.none() | st.builds(NUMALimits, st.sampled_from([0.5, 1.0, 2.0]), st.sampled_from([0.5, 1.0, 1.5]))


@st.composite
def hosts(draw, cells=3):
    """Small hosts, some with SMT, some with cores of different kinds, partly used."""
    made, first = [], 0
    for number in range(draw(st.integers(1, cells))):
        cores = []
        for threads in draw(st.lists(st.sampled_from([1, 2, 2, 4]), min_size=1, max_size=4)):
            cores.append(frozenset(range(first, first + threads)))
            first += threads
        cpus = frozenset().union(*cores)
        pinned = draw(st.frozensets(st.sampled_from(sorted(cpus)), max_size=len(cpus)))
        memory = draw(st.integers(1, 4)) * 4
        pages = []
        for size, share in ((4, 256), (2048, 0.5)):
            if draw(st.booleans()):
                total = int(memory * share)
                used, reserved = draw(st.integers(0, total)), draw(st.integers(0, max(1, total // 4)))
                pages.append(PagesTopology(size, total, used, reserved))
        made.append(
            HostCell(
                number,
                cpus,
                memory,
                draw(st.integers(0, len(cpus) * 2)),
                draw(st.integers(0, memory)),
                pinned,
                tuple(cores) if any(len(core) > 1 for core in cores) and draw(st.booleans()) else (),
                tuple(pages),
            )
        )
    return HostNUMATopology(tuple(made))


@st.composite
def guests(draw, cells=3):
    dedicated = draw(st.booleans())
    policy = draw(st.sampled_from([None, "prefer", "require", "isolate"])) if dedicated else None
    pages = draw(st.sampled_from([None, None, -1, -2, -3, 4, 2048, 1048576]))
    made, first = [], 0
    for number in range(draw(st.integers(1, cells))):
        count = draw(st.integers(1, 4))
        made.append(
            GuestCell(
                number,
                frozenset(range(first, first + count)),
                draw(st.integers(1, 8)),
                pages,
                "dedicated" if dedicated else None,
                policy,
            )
        )
        first += count
    return GuestNUMATopology(tuple(made), "isolate" if dedicated and draw(st.booleans()) else None)


@st.composite
def fitted_pairs(draw):
    """(host, a guest that was fitted to it)"""
    host = draw(hosts())
    fitted = fit_to_host(host, draw(guests(2)), draw(limits))
    assume(fitted is not None)
    return host, fitted
