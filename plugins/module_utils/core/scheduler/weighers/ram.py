# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""RAMWeigher: hosts with more free memory first."""

from __future__ import annotations

from ...amounts import memory
from ..columns import Column, Fleet, Rows
from ..request_spec import RequestSpec
from .base import Weigher


class RAMWeigher(Weigher):
    name = "RAMWeigher"
    aggregate_key = "ram_weight_multiplier"
    minval = 0

    def amount(self, raw: float) -> str:
        return memory(raw) + " free"

    def raw(self, fleet: Fleet, spec: RequestSpec, rows: Rows) -> Column:
        return fleet.free_ram_mb[rows] * 1.0
