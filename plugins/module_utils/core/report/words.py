# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Amounts, moments and states as the report writes them."""

from __future__ import annotations

from .. import amounts, times
from .figures import RESOURCES


def amount(resource: str, number: float) -> str:
    """Return an amount of a resource with its unit: memory in MiB or, where it is much, GiB."""
    if resource == "memory_mb":
        return amounts.memory(number)
    return ("%d %s" % (number, RESOURCES[resource][1])).rstrip()


def share(part: float, whole: float) -> str:
    """Return a part of a whole in per cent; a dash where there is no whole."""
    return "%.0f %%" % (100.0 * part / whole) if whole > 0 else "\u2013"


def moment(seconds: float | None) -> str:
    """Return a moment in UTC; never for none."""
    text = times.utc(seconds)
    return "never" if text is None else text.replace("T", " ").replace("Z", " UTC")


def seconds_between(begin: float, end: float) -> str:
    """Return a time that something took: tenths of a second below two minutes."""
    length = max(end - begin, 0.0)
    return "%.1f s" % length if length < 120 else times.duration(length)


def counted(number: int, things: str) -> str:
    """Return 1 host, 2 hosts, 1,000 hosts. :arg things: in the plural"""
    text = amounts.counted(number, things)
    return text.replace(str(number), "{:,}".format(number), 1)
