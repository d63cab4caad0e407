# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Fits the cells of a guest to cells of a host. source: Nova's numa_fit_instance_to_host"""

from __future__ import annotations

import typing as t

from .cell_fit import Fit, fit_cell
from .topology import GuestCell, GuestNUMATopology, HostCell, HostNUMATopology, NUMALimits

# Whether the devices of these host cells (in any order) satisfy the PCI requests.
PciCheck = t.Callable[[t.Sequence[int]], bool]


def fit_to_host(
    host: HostNUMATopology | None,
    guest: GuestNUMATopology | None,
    limits: NUMALimits | None = None,
    pci_cells: t.Collection[int] = frozenset(),
    pci_ok: PciCheck | None = None,
) -> GuestNUMATopology | None:
    """The guest's topology fitted to that host; None if it does not fit or either has none.

    Of all assignments of guest cells to different host cells, in the order of the host's cells, the first that fits.
    Without ``pci_ok`` (no PCI request) cells with PCI devices, ``pci_cells``, come last. The arguments are not changed.
    """
    if host is None or guest is None or not host.cells or not guest.cells:
        return None
    return _Search(host, guest, limits, pci_cells, pci_ok).run()


def misfit(
    host: HostNUMATopology | None,
    guest: GuestNUMATopology,
    limits: NUMALimits | None = None,
    pci_ok: PciCheck | None = None,
) -> str:
    """Why fit_to_host returns None: what each guest cell lacks on each host cell, as text."""
    if host is None or not host.cells:
        return "the guest asks for %s, the host reports none" % _cells(len(guest))
    if len(host) < len(guest):
        return "the guest asks for %s, the host has %d" % (_cells(len(guest)), len(host))
    search = _Search(host, guest, limits, (), None)
    for number, guest_cell in enumerate(guest.cells):
        lacks = [(cell.id, search.fit(number, place)) for place, cell in enumerate(search.cells)]
        if all(isinstance(lack, str) for dummy, lack in lacks):
            return "guest cell %d fits no cell: %s" % (guest_cell.id, "; ".join("cell %d %s" % lack for lack in lacks))
    if pci_ok is not None and search.run() is not None:
        return "the guest's cells fit, but not on the cells of the requested PCI devices"
    return "each guest cell fits a host cell, but they do not all fit at once"


def _cells(count: int) -> str:
    return "%d NUMA cell%s" % (count, "" if count == 1 else "s")


class _Search:
    """A search over the permutations: each pair of cells and each dead end is evaluated once."""

    def __init__(
        self,
        host: HostNUMATopology,
        guest: GuestNUMATopology,
        limits: NUMALimits | None,
        pci_cells: t.Collection[int],
        pci_ok: PciCheck | None,
    ):
        self.guest = guest
        self.limits = limits
        self.pci_ok = pci_ok
        self.cells: list[HostCell] = list(host.cells)
        if pci_ok is None:
            self.cells.sort(key=lambda cell: cell.id in pci_cells)
        self._fits: dict[tuple[int, int], Fit] = {}
        self._dead: set[int] = set()

    def fit(self, number: int, place: int) -> Fit:
        """The fit of guest cell ``number`` on the host cell at ``place``. The emulator's CPU belongs to the first guest cell."""
        key = (number, place)
        if key not in self._fits:
            reserve = 1 if self.guest.emulator_isolated and number == 0 else 0
            self._fits[key] = fit_cell(self.cells[place], self.guest.cells[number], self.limits, reserve)
        return self._fits[key]

    def run(self) -> GuestNUMATopology | None:
        if len(self.cells) < len(self.guest):
            return None
        guest_cells = self._walk((), 0)
        return None if guest_cells is None else GuestNUMATopology(guest_cells, self.guest.emulator_threads_policy)

    def _walk(self, fitted_cells: tuple[GuestCell, ...], used: int) -> tuple[GuestCell, ...] | None:
        """``used``: one bit for each host cell of ``fitted_cells``. The rest of the search depends on that set alone."""
        number = len(fitted_cells)
        if number == len(self.guest):
            hosts = [cell.host_cell for cell in fitted_cells if cell.host_cell is not None]
            return fitted_cells if self.pci_ok is None or self.pci_ok(hosts) else None
        if used in self._dead:
            return None
        for place in range(len(self.cells)):
            if used >> place & 1:
                continue
            fitted = self.fit(number, place)
            if isinstance(fitted, str):
                continue
            guest_cells = self._walk((*fitted_cells, fitted), used | 1 << place)
            if guest_cells is not None:
                return guest_cells
        self._dead.add(used)
        return None
