# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Filters that count what a host already has: I/O heavy operations and instances."""

from __future__ import annotations

import abc

from ....amounts import counted
from ...columns import Column, Fleet, Rows
from ...options import SchedulerOptions
from ...request_spec import RequestSpec
from ..base import Filter, FilterResult
from ..capacity import at
from .aggregate_numbers import AggregateNumber


class CountFilter(Filter):
    """Passes while a count is below its limit: the filter's one setting, or the least value of the host's aggregates."""

    counts_capacity = True
    unit = ""

    def __init__(self, options: SchedulerOptions):
        super().__init__(options)
        (self.setting,) = (setting.name for setting in self.settings)  # also the metadata key of aggregates
        self.limit: int = getattr(self.conf, self.setting)

    @abc.abstractmethod
    def counts(self, fleet: Fleet) -> Column:
        """The count on each host of the fleet."""

    def limit_of(self, fleet: Fleet, rows: Rows) -> Column:
        return self.limit

    def evaluate(self, fleet: Fleet, spec: RequestSpec, rows: Rows) -> FilterResult:
        count = self.counts(fleet)[rows]
        limit = self.limit_of(fleet, rows)

        def text(position: int) -> str:
            amount = counted(at(count, position), self.unit)
            return "%s, %s allows %d" % (amount, self.setting, at(limit, position))

        return FilterResult(mask=count < limit, available=limit - count, needed=1, unit=self.unit, text=text)


class AggregateCountFilter(CountFilter):
    """A CountFilter whose limit can be set by aggregates."""

    def __init__(self, options: SchedulerOptions):
        super().__init__(options)
        self._limits = AggregateNumber(self.setting, int)

    def limit_of(self, fleet: Fleet, rows: Rows) -> Column:
        return self._limits.column(fleet, self.limit)[rows]
