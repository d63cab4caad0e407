# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""IoOpsWeigher: hosts with fewer builds and moves under way first."""

from __future__ import annotations

from ..columns import Column, Fleet, Rows
from ..request_spec import RequestSpec
from .base import Weigher


class IoOpsWeigher(Weigher):
    name = "IoOpsWeigher"
    unit = "I/O operations"
    multiplier = -1.0
    aggregate_key = "io_ops_weight_multiplier"
    minval = 0

    def raw(self, fleet: Fleet, spec: RequestSpec, rows: Rows) -> Column:
        return fleet.num_io_ops[rows] * 1.0
