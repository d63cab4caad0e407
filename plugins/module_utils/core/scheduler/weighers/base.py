# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a weigher is: one raw number per host; placement normalises, multiplies and adds."""

from __future__ import annotations

import abc
import typing as t

from ..columns import Column, Fleet, Rows
from ..request_spec import RequestSpec

if t.TYPE_CHECKING:
    from ..placement import SchedulerOptions


class Weigher(abc.ABC):
    """Base of the weighers.

    ``minval`` and ``maxval`` are the ends of the scale where they are fixed (row D17). ``per_host``: the number of a host
    depends on that host alone, so that after a pick only that host is weighed again.
    """

    name = ""
    multiplier = 1.0
    minval: float | None = None
    maxval: float | None = None
    per_host = True

    def __init__(self, options: SchedulerOptions):
        self.options = options

    @abc.abstractmethod
    def raw(self, fleet: Fleet, spec: RequestSpec, rows: Rows) -> Column:
        """float64, one for each of ``rows`` (or one, where it is a number). More is better."""
