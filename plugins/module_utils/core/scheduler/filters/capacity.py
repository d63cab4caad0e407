# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The comparison of RamFilter, DiskFilter and CoreFilter: a need against usable capacity."""

from __future__ import annotations

import typing as t

from ...amounts import counted
from ..columns import Column
from .base import FilterResult


def at(column: t.Any, position: int) -> t.Any:
    """The value at a position of a column, or the single value."""
    return column[position] if getattr(column, "ndim", 0) else column


# A number, whether to round it up, and the number next to it -> the number with its unit.
Amount = t.Callable[[float, bool, float], str]


def vcpus(number: float, up: bool = False, other: float = 0) -> str:
    return counted(number, "vCPUs")


def capacity_result(
    needed: int, usable: Column, physical: Column | None, unit: str, what: str, amount: Amount, ratio: Column
) -> FilterResult:
    """Passes if ``needed`` fits ``usable`` and, if given, the ``physical`` total: a guest never over-commits against itself.

    :arg unit: of all the numbers. :arg amount: the text of one.
    """
    mask = usable >= needed
    available = usable
    if physical is not None:
        alone = physical >= needed
        mask = mask & alone

    def both(have: float) -> tuple[str, str]:
        return amount(needed, True, have), amount(have, False, needed)

    def text(position: int) -> str:
        if physical is not None and not at(physical, position) >= needed:
            return "%s: needs %s, the whole host has %s" % (what, *both(at(physical, position)))
        free = at(usable, position)
        over = ", %s more than that are claimed" % amount(-free, True, needed) if free < 0 else ""
        return "%s: needs %s, %s usable%s (allocation ratio %.10g)" % (
            what,
            *both(max(free, 0)),
            over,
            at(ratio, position),
        )

    return FilterResult(mask=mask, available=_smaller(available, physical), needed=needed, unit=unit, text=text)


def _smaller(usable: Column, physical: Column | None) -> Column:
    if physical is None:
        return usable
    return (usable < physical) * usable + (usable >= physical) * physical
