# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""DiskFilter and AggregateDiskFilter: enough local disk, over-committed by the ratio of the host or of its aggregates."""

from __future__ import annotations

import typing as t

from ....amounts import disk
from ...columns import Column, Fleet, Rows, np
from ...options import SchedulerOptions
from ...request_spec import RequestSpec
from ..base import Filter, FilterResult
from ..capacity import capacity_result
from .aggregate_numbers import AggregateNumber


class DiskFilter(Filter):
    """Passes if root, ephemeral and swap fit the physical total and total x disk_allocation_ratio - used.

    Used is at least what is used on the file system (HostState.free_disk_mb). What is placed on a host whose disks are in a pool is taken from
    all hosts of the pool.
    """

    name = "DiskFilter"
    host_settings = ("disk_allocation_ratio",)
    counts_capacity = True

    def ratios(self, fleet: Fleet) -> Column:
        return fleet.disk_allocation_ratio

    def evaluate(self, fleet: Fleet, spec: RequestSpec, rows: Rows) -> FilterResult:
        if np.ndim(rows):
            self.per_host = not fleet.has_pools
        total = fleet.total_disk_mb[rows]
        ratio = self.ratios(fleet)[rows]
        used = total - fleet.free_disk_mb[rows]
        return capacity_result(spec.disk_mb, total * ratio - used, total, "MiB", "disk", disk, ratio)

    def passes(self, fleet: Fleet, spec: RequestSpec, row: int) -> bool:
        total = int(fleet.total_disk_mb[row])
        used = total - int(fleet.free_disk_mb[row])
        return spec.disk_mb <= total and total * float(self.ratios(fleet)[row]) - used >= spec.disk_mb

    def limits(self, fleet: Fleet, row: int) -> dict[str, t.Any]:
        return {"disk_gb": float(fleet.total_disk_mb[row] * self.ratios(fleet)[row] / 1024)}

    def limits_each(self, fleet: Fleet, rows: t.Sequence[int]) -> list[dict[str, t.Any]]:
        if type(self).limits is not DiskFilter.limits:  # a user's
            return super().limits_each(fleet, rows)
        return [{"disk_gb": limit} for limit in (fleet.total_disk_mb[rows] * self.ratios(fleet)[rows] / 1024).tolist()]


class AggregateDiskFilter(DiskFilter):
    """DiskFilter with the least disk_allocation_ratio of the host's aggregates, or its own."""

    name = "AggregateDiskFilter"
    aggregate_keys = ("disk_allocation_ratio",)

    def __init__(self, options: SchedulerOptions):
        super().__init__(options)
        self._ratio = AggregateNumber("disk_allocation_ratio")

    def ratios(self, fleet: Fleet) -> Column:
        return self._ratio.column(fleet, fleet.disk_allocation_ratio)
