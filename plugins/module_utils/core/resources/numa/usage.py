# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Guests' use of a host's cells. source: Nova's numa_usage_from_instances"""

from __future__ import annotations

from dataclasses import replace

from ... import errors
from .topology import ISOLATE, NO_CPUS, GuestCell, GuestNUMATopology, HostCell, HostNUMATopology, PagesTopology

_KB_PER_MB = 1024


def apply_usage(host: HostNUMATopology, guest: GuestNUMATopology | None, sign: int = 1) -> HostNUMATopology:
    """The host after a fitted guest's resources were taken (``sign`` 1) or released (-1: the exact inverse).

    CPUs, memory, pages and pinned CPUs; for a guest that isolates its threads the idle siblings are pinned too and
    counted as used. Cells that the host does not have (any more) are skipped.

    :raises CPUPinningInvalid: a CPU to pin is already pinned.
    :raises CPUUnpinningInvalid: a CPU to release is not pinned.
    :raises CPUPinningUnknown: a CPU that is not in that cell; CPUUnpinningUnknown on release.
    """
    if guest is None:
        return host
    cells = list(host.cells)
    for position, cell in enumerate(cells):
        for number, guest_cell in enumerate(guest.cells):
            if guest_cell.host_cell == cell.id:
                reserved = len(guest_cell.reserved_cpus) if number == 0 and guest.emulator_isolated else 0
                cell = _changed(cell, guest_cell, guest.dedicated, reserved, sign)
        cells[position] = cell
    return HostNUMATopology(tuple(cells))


def _changed(cell: HostCell, guest: GuestCell, dedicated: bool, reserved: int, sign: int) -> HostCell:
    isolated = guest.cpu_thread_policy == ISOLATE
    cpus = len(guest.cpus) * (cell.threads_per_core if isolated else 1) + reserved
    pinned = cell.pinned_cpus
    if dedicated:
        wanted = guest.pinned_cpus
        if isolated and cell.siblings:
            _check_known(cell, wanted, sign)
            wanted = NO_CPUS.union(*(core for core in cell.siblings if core & wanted))
        pinned = _pinned(cell, wanted, sign)
    small = cell.smallest_pages
    size_kb = guest.page_size_kb or (None if small is None else small.size_kb)
    return replace(
        cell,
        cpu_usage=max(0, cell.cpu_usage + sign * cpus),
        memory_usage_mb=max(0, cell.memory_usage_mb + sign * guest.memory_mb),
        pinned_cpus=pinned,
        pages=tuple(_used(pages, size_kb, guest.memory_mb, sign) for pages in cell.pages),
    )


def _check_known(cell: HostCell, cpus: frozenset[int], sign: int) -> None:
    if cpus - cell.cpus:
        error = errors.CPUPinningUnknown if sign > 0 else errors.CPUUnpinningUnknown
        raise error(requested=sorted(cpus), cpuset=sorted(cell.cpus))


def _pinned(cell: HostCell, cpus: frozenset[int], sign: int) -> frozenset[int]:
    _check_known(cell, cpus, sign)
    if sign > 0:
        if cpus & cell.pinned_cpus:
            raise errors.CPUPinningInvalid(requested=sorted(cpus), free=sorted(cell.free_cpus))
        return cell.pinned_cpus | cpus
    if cpus - cell.pinned_cpus:
        raise errors.CPUUnpinningInvalid(requested=sorted(cpus), pinned=sorted(cell.pinned_cpus))
    return cell.pinned_cpus - cpus


def _used(pages: PagesTopology, size_kb: int | None, memory_mb: int, sign: int) -> PagesTopology:
    if pages.size_kb != size_kb:
        return pages
    return replace(pages, used=max(0, pages.used + sign * (memory_mb * _KB_PER_MB // pages.size_kb)))
