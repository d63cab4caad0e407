# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""IoOpsFilter and AggregateIoOpsFilter: not too many builds, resizes, snapshots and the like at once."""

from __future__ import annotations

from ....reading.setting import Setting
from ...columns import Column, Fleet
from .host_counts import AggregateCountFilter, CountFilter


class IoOpsFilter(CountFilter):
    """Passes hosts with fewer than max_io_ops_per_host I/O heavy operations."""

    name = "IoOpsFilter"
    settings = (
        Setting(
            "max_io_ops_per_host", int, 8, "IoOpsFilter: a host with this many builds and moves takes no more.", least=1
        ),
    )
    unit = "I/O operations"

    def counts(self, fleet: Fleet) -> Column:
        return fleet.num_io_ops


class AggregateIoOpsFilter(AggregateCountFilter, IoOpsFilter):
    """IoOpsFilter with the least max_io_ops_per_host of the host's aggregates, or the setting."""

    name = "AggregateIoOpsFilter"
    aggregate_keys = ("max_io_ops_per_host",)
