# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""RamFilter and AggregateRamFilter: enough memory, over-committed by the ratio of the host or of its aggregates."""

from __future__ import annotations

import typing as t

from ....amounts import memory
from ...columns import Column, Fleet, Rows
from ...options import SchedulerOptions
from ...request_spec import RequestSpec
from ..base import Filter, FilterResult
from ..capacity import capacity_result
from .aggregate_numbers import AggregateNumber


class RamFilter(Filter):
    """Passes if the request fits the physical total and total x ram_allocation_ratio - used."""

    name = "RamFilter"
    host_settings = ("ram_allocation_ratio",)
    counts_capacity = True

    def ratios(self, fleet: Fleet) -> Column:
        return fleet.ram_allocation_ratio

    def evaluate(self, fleet: Fleet, spec: RequestSpec, rows: Rows) -> FilterResult:
        total = fleet.total_ram_mb[rows]
        ratio = self.ratios(fleet)[rows]
        used = total - fleet.free_ram_mb[rows]
        return capacity_result(spec.memory_mb, total * ratio - used, total, "MiB", "memory", memory, ratio)

    def passes(self, fleet: Fleet, spec: RequestSpec, row: int) -> bool:
        total = int(fleet.total_ram_mb[row])
        used = total - int(fleet.free_ram_mb[row])
        return spec.memory_mb <= total and total * float(self.ratios(fleet)[row]) - used >= spec.memory_mb

    def limits(self, fleet: Fleet, row: int) -> dict[str, t.Any]:
        return {"memory_mb": float(fleet.total_ram_mb[row] * self.ratios(fleet)[row])}

    def limits_each(self, fleet: Fleet, rows: t.Sequence[int]) -> list[dict[str, t.Any]]:
        if type(self).limits is not RamFilter.limits:  # a user's
            return super().limits_each(fleet, rows)
        return [{"memory_mb": limit} for limit in (fleet.total_ram_mb[rows] * self.ratios(fleet)[rows]).tolist()]


class AggregateRamFilter(RamFilter):
    """RamFilter with the least ram_allocation_ratio of the host's aggregates, or its own."""

    name = "AggregateRamFilter"
    aggregate_keys = ("ram_allocation_ratio",)

    def __init__(self, options: SchedulerOptions):
        super().__init__(options)
        self._ratio = AggregateNumber("ram_allocation_ratio")

    def ratios(self, fleet: Fleet) -> Column:
        return self._ratio.column(fleet, fleet.ram_allocation_ratio)
