# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""CPUWeigher: hosts with more free vCPUs first."""

from __future__ import annotations

from ..columns import Column, Fleet, Rows
from ..request_spec import RequestSpec
from .base import Weigher


class CPUWeigher(Weigher):
    name = "CPUWeigher"
    unit = "vCPUs free"
    aggregate_key = "cpu_weight_multiplier"
    host_settings = ("cpu_allocation_ratio",)
    minval = 0

    def raw(self, fleet: Fleet, spec: RequestSpec, rows: Rows) -> Column:
        return fleet.vcpus_total[rows] * fleet.cpu_allocation_ratio[rows] - fleet.vcpus_used[rows]
