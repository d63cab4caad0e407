# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Fit of one cell of a guest on one cell of a host, and if not why. source: Nova's _numa_fit_instance_cell"""

from __future__ import annotations

import typing as t
from dataclasses import replace

from ...amounts import memory
from .pinning import pack
from .topology import PAGES_ANY, PAGES_LARGE, PAGES_SMALL, REQUIRE, GuestCell, HostCell, NUMALimits

_PAGE_WORDS = {PAGES_SMALL: "small", PAGES_LARGE: "large", PAGES_ANY: "any"}
_KB_PER_MB = 1024


def fit_cell(host: HostCell, guest: GuestCell, limits: NUMALimits | None = None, reserve: int = 0) -> GuestCell | str:
    """The guest's cell fitted to that host cell, or the text of what it lacks there.

    A guest never over-commits against itself. A pinned guest over-commits nothing; others are checked only if ``limits``
    are given. Pages are never over-committed; a guest that requests none has the cell's smallest ones, because what is kept for
    larger pages is not there for it. ``reserve``: host CPUs for the emulator's threads.
    """
    if guest.memory_mb > host.memory_mb:
        return "needs %s, the whole cell has %s" % _memory(guest, host.memory_mb)
    lack = None if guest.page_size_kb else _lack_of_small_pages(host, guest)
    if lack is not None:
        return lack
    if len(guest.cpus) + reserve > len(host.cpus):
        return "needs %s, the whole cell has %d" % (_cpus(guest, reserve), len(host.cpus))
    fitted = replace(guest, host_cell=host.id)
    if guest.dedicated:
        pinned = _pinned(host, fitted, reserve)
        if isinstance(pinned, str):
            return pinned
        fitted = pinned
    elif limits is not None:
        lack = _beyond(host, guest, limits)
        if lack is not None:
            return lack
    if not guest.page_size_kb:
        return fitted
    size = page_size(host, guest)
    if size is None:
        return _page_lack(host, guest)
    return replace(fitted, page_size_kb=size)


def _lack_of_small_pages(host: HostCell, guest: GuestCell) -> str | None:
    """Return the lack of pages for a guest that requests none; only a pinned one is refused pages in use. source: Nova's _numa_fit_instance_cell since Train"""
    small = host.smallest_pages
    if small is None:
        return None
    available_mb = (small.free_kb if guest.dedicated else small.total_kb) // _KB_PER_MB
    if guest.memory_mb <= available_mb:
        return None
    what = "free" if guest.dedicated else "in all"
    return "needs %s, %s " % _memory(guest, available_mb) + "%s in pages of %d kB" % (what, small.size_kb)


def _pinned(host: HostCell, guest: GuestCell, reserve: int) -> GuestCell | str:
    if len(host.free_cpus) < len(guest.cpus) + reserve:
        return "needs %s for itself, has %d free" % (_cpus(guest, reserve), len(host.free_cpus))
    if host.free_memory_mb < guest.memory_mb:
        return "needs %s without over-commit, %s free" % _memory(guest, host.free_memory_mb)
    if guest.cpu_thread_policy == REQUIRE and not host.siblings:
        return "needs thread siblings, but each core has one thread"
    arrangement = pack(host, guest, reserve)
    if arrangement is None and not guest.cpus:
        if reserve:
            return "has no CPUs, so the emulator cannot get a separate one"
        if guest.cpu_thread_policy == REQUIRE:
            return "has no CPUs, and no core has free siblings, which thread policy require needs"
        return "has no CPUs, which thread policy %s needs" % guest.cpu_thread_policy
    if arrangement is None:
        return "needs %s by thread policy %s; %d are free, but not in that arrangement" % (
            _cpus(guest, reserve),
            guest.cpu_thread_policy or "prefer",
            len(host.free_cpus),
        )
    return replace(guest, pinning=arrangement.cpus, reserved_cpus=arrangement.reserved, topology=arrangement.topology)


def _beyond(host: HostCell, guest: GuestCell, limits: NUMALimits) -> str | None:
    usable = host.memory_mb * limits.ram_allocation_ratio - host.memory_usage_mb
    if guest.memory_mb > usable:
        return "needs %s, %s usable (allocation ratio %.10g)" % (
            *_memory(guest, usable),
            limits.ram_allocation_ratio,
        )
    cpus = len(host.cpus) * limits.cpu_allocation_ratio
    if host.cpu_usage + len(guest.cpus) > cpus:
        return "needs %s, %.10g usable (allocation ratio %.10g)" % (
            _cpus(guest, 0),
            cpus - host.cpu_usage,
            limits.cpu_allocation_ratio,
        )
    return None


def page_size(host: HostCell, guest: GuestCell) -> int | None:
    """The largest page size in kB that the guest's cell may have and that fits on that cell; None: none fits.

    Memory has to be a multiple of the page size, and enough pages have to be free.
    """
    offered = sorted((pages.size_kb for pages in host.pages), reverse=True)
    requested = guest.page_size_kb or 0
    if requested == PAGES_SMALL:
        sizes = offered[-1:]
    elif requested == PAGES_LARGE:
        sizes = offered[:-1]
    elif requested == PAGES_ANY:
        sizes = offered
    else:
        sizes = [requested]
    return next((size for size in sizes if _holds(host, size, guest.memory_mb * _KB_PER_MB)), None)


def _holds(host: HostCell, size_kb: int, memory_kb: int) -> bool:
    pages = host.pages_of(size_kb)
    return pages is not None and memory_kb <= pages.free_kb and memory_kb % size_kb == 0


def _page_lack(host: HostCell, guest: GuestCell) -> str:
    requested = guest.page_size_kb or 0
    wanted = _PAGE_WORDS.get(requested, "%d kB" % requested)
    offered = ["%d free of %d kB" % (p.free, p.size_kb) for p in sorted(host.pages, key=lambda p: p.size_kb)]
    return "needs %s in pages (%s), pages: %s" % (memory(guest.memory_mb, True), wanted, ", ".join(offered) or "none")


def _memory(guest: GuestCell, have: float) -> tuple[str, str]:
    return memory(guest.memory_mb, True, have), memory(have, other=guest.memory_mb)


def _cpus(guest: GuestCell, reserve: int) -> str:
    text = "%d CPU%s" % (len(guest.cpus), "" if len(guest.cpus) == 1 else "s")
    return text + (" and %d for the emulator" % reserve if reserve else "")


Fit = t.Union[GuestCell, str]
