# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""DiskWeigher: hosts with more free disk first."""

from __future__ import annotations

from ...amounts import disk
from ..columns import Column, Fleet, Rows
from ..request_spec import RequestSpec
from .base import Weigher


class DiskWeigher(Weigher):
    name = "DiskWeigher"
    aggregate_key = "disk_weight_multiplier"
    minval = 0

    def amount(self, raw: float) -> str:
        return disk(raw) + " free"

    def raw(self, fleet: Fleet, spec: RequestSpec, rows: Rows) -> Column:
        return fleet.free_disk_mb[rows] * 1.0
