# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""DiskFilter: enough local disk, over-committed by the host's ratio."""

from __future__ import annotations

from ..columns import Fleet, Rows
from ..request_spec import RequestSpec
from .base import Filter, FilterResult
from .capacity import capacity_result


class DiskFilter(Filter):
    """Passes where root, ephemeral and swap fit total x disk_allocation_ratio - used (row D07).

    Used is at least what the file system lacks (HostState.free_disk_mb).
    """

    name = "DiskFilter"
    counts_capacity = True

    def evaluate(self, fleet: Fleet, spec: RequestSpec, rows: Rows) -> FilterResult:
        total = fleet.total_disk_mb[rows]
        used = total - fleet.free_disk_mb[rows]
        usable = total * fleet.disk_allocation_ratio[rows] - used
        return capacity_result(spec.disk_mb, usable, None, "MB", "disk", fleet.disk_allocation_ratio[rows])

    def limits(self, fleet: Fleet, row: int) -> dict[str, float]:
        return {"disk_gb": float(fleet.total_disk_mb[row] * fleet.disk_allocation_ratio[row] / 1024)}
