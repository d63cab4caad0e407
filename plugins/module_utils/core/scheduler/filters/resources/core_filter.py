# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""CoreFilter and AggregateCoreFilter: enough vCPUs, over-committed by the ratio of the host or of its aggregates."""

from __future__ import annotations

import typing as t

from ...columns import Column, Fleet, Rows
from ...options import SchedulerOptions
from ...request_spec import RequestSpec
from ..base import Filter, FilterResult
from ..capacity import capacity_result, vcpus
from .aggregate_numbers import AggregateNumber


class CoreFilter(Filter):
    """Passes if the request fits the physical CPUs and total x cpu_allocation_ratio - used, or if no count is known."""

    name = "CoreFilter"
    host_settings = ("cpu_allocation_ratio",)
    counts_capacity = True

    def ratios(self, fleet: Fleet) -> Column:
        return fleet.cpu_allocation_ratio

    def evaluate(self, fleet: Fleet, spec: RequestSpec, rows: Rows) -> FilterResult:
        total = fleet.vcpus_total[rows]
        ratio = self.ratios(fleet)[rows]
        usable = total * ratio - fleet.vcpus_used[rows]
        result = capacity_result(spec.vcpus, usable, total, "vCPUs", "vCPUs", vcpus, ratio)
        result.mask = result.mask | (total <= 0)
        return result

    def passes(self, fleet: Fleet, spec: RequestSpec, row: int) -> bool:
        total = int(fleet.vcpus_total[row])
        usable = total * float(self.ratios(fleet)[row]) - int(fleet.vcpus_used[row])
        return total <= 0 or (spec.vcpus <= total and usable >= spec.vcpus)

    def limits(self, fleet: Fleet, row: int) -> dict[str, t.Any]:
        limit = float(fleet.vcpus_total[row] * self.ratios(fleet)[row])
        return {"vcpu": limit} if limit > 0 else {}

    def limits_each(self, fleet: Fleet, rows: t.Sequence[int]) -> list[dict[str, t.Any]]:
        if type(self).limits is not CoreFilter.limits:  # a user's
            return super().limits_each(fleet, rows)
        limits = (fleet.vcpus_total[rows] * self.ratios(fleet)[rows]).tolist()
        return [{"vcpu": limit} if limit > 0 else {} for limit in limits]


class AggregateCoreFilter(CoreFilter):
    """CoreFilter with the least cpu_allocation_ratio of the host's aggregates, or its own."""

    name = "AggregateCoreFilter"
    aggregate_keys = ("cpu_allocation_ratio",)

    def __init__(self, options: SchedulerOptions):
        super().__init__(options)
        self._ratio = AggregateNumber("cpu_allocation_ratio")

    def ratios(self, fleet: Fleet) -> Column:
        return self._ratio.column(fleet, fleet.cpu_allocation_ratio)
