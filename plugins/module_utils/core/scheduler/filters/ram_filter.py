# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""RamFilter: enough memory, over-committed by the host's ratio."""

from __future__ import annotations

from ..columns import Fleet, Rows
from ..request_spec import RequestSpec
from .base import Filter, FilterResult
from .capacity import capacity_result


class RamFilter(Filter):
    """Passes where the request fits the physical total and total x ram_allocation_ratio - used (row D07)."""

    name = "RamFilter"
    counts_capacity = True

    def evaluate(self, fleet: Fleet, spec: RequestSpec, rows: Rows) -> FilterResult:
        total = fleet.total_ram_mb[rows]
        used = total - fleet.free_ram_mb[rows]
        usable = total * fleet.ram_allocation_ratio[rows] - used
        return capacity_result(spec.memory_mb, usable, total, "MB", "memory", fleet.ram_allocation_ratio[rows])

    def limits(self, fleet: Fleet, row: int) -> dict[str, float]:
        return {"memory_mb": float(fleet.total_ram_mb[row] * fleet.ram_allocation_ratio[row])}
