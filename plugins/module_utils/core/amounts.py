# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Amounts as people read them: memory in MiB, in GiB where it is much; disk in GiB; things by number."""

from __future__ import annotations

import math
import re
import typing as t

MIB, GIB = 1024**2, 1024**3  # bytes
MUCH_MEMORY_MB = 10 * 1024


def memory(mb: float, up: bool = False, other: float = 0) -> str:
    """:arg up: round up, as needs are; free amounts are rounded down. :arg other: another amount, shown in the same unit."""
    if max(abs(mb), abs(other)) >= MUCH_MEMORY_MB:
        return disk(mb, up)
    return "%d MiB" % (math.ceil(mb) if up else math.floor(mb))


def disk(mb: float, up: bool = False, other: float = 0) -> str:
    """As memory(), always in GiB."""
    tenths = mb * 10 / 1024
    return "%.10g GiB" % ((math.ceil(tenths) if up else math.floor(tenths)) / 10)


def counted(number: float, things: str) -> str:
    """1 host, 2 hosts. :arg things: in the plural, which the first word that ends in s makes."""
    return "%.10g %s" % (number, re.sub(r"s\b", "", things, count=1) if number == 1 else things)


def and_volumes(names: t.Sequence[str]) -> str:
    """Return the words of a deletion for the volumes that are deleted with its instance."""
    return "and its %s %s" % ("volume" if len(names) == 1 else "volumes", ", ".join(names))
