# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""CoreFilter: enough vCPUs, over-committed by the host's ratio."""

from __future__ import annotations

from ..columns import Fleet, Rows
from ..request_spec import RequestSpec
from .base import Filter, FilterResult
from .capacity import capacity_result


class CoreFilter(Filter):
    """Passes where the request fits the physical CPUs and total x cpu_allocation_ratio - used; where no count is known, too (row D07)."""

    name = "CoreFilter"
    counts_capacity = True

    def evaluate(self, fleet: Fleet, spec: RequestSpec, rows: Rows) -> FilterResult:
        total = fleet.vcpus_total[rows]
        usable = total * fleet.cpu_allocation_ratio[rows] - fleet.vcpus_used[rows]
        result = capacity_result(spec.vcpus, usable, total, "vCPUs", "vcpus", fleet.cpu_allocation_ratio[rows])
        result.mask = result.mask | (total <= 0)
        return result

    def limits(self, fleet: Fleet, row: int) -> dict[str, float]:
        limit = float(fleet.vcpus_total[row] * fleet.cpu_allocation_ratio[row])
        return {"vcpu": limit} if limit > 0 else {}
