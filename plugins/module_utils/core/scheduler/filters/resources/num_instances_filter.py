# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""NumInstancesFilter and AggregateNumInstancesFilter: not too many instances on one host."""

from __future__ import annotations

from ....reading.setting import Setting
from ...columns import Column, Fleet
from .host_counts import AggregateCountFilter, CountFilter


class NumInstancesFilter(CountFilter):
    """Passes hosts with fewer than max_instances_per_host instances."""

    name = "NumInstancesFilter"
    settings = (
        Setting(
            "max_instances_per_host",
            int,
            50,
            "NumInstancesFilter: a host with this many instances takes no more.",
            least=1,
        ),
    )
    unit = "instances"

    def counts(self, fleet: Fleet) -> Column:
        return fleet.num_instances


class AggregateNumInstancesFilter(AggregateCountFilter, NumInstancesFilter):
    """NumInstancesFilter with the least max_instances_per_host of the host's aggregates, or the setting."""

    name = "AggregateNumInstancesFilter"
    aggregate_keys = ("max_instances_per_host",)
