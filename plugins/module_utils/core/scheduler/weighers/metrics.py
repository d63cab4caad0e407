# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""MetricsWeigher: hosts by their reported metrics."""

from __future__ import annotations

import math

from ...errors import ComputeHostMetricNotFound
from ...reading.setting import NUMBERS, Setting
from ..columns import Column, Fleet, Rows, np
from ..options import SchedulerOptions
from ..request_spec import RequestSpec
from .base import Changes, Weigher

METRICS_WEIGHT_SETTING = Setting(
    "metrics_weight_setting",
    NUMBERS,
    {},
    "MetricsWeigher, MetricsFilter: metric to ratio, such as `{cpu.percent: -1.0}`.",
)


class MetricsWeigher(Weigher):
    """The sum of metric x ratio over metrics_weight_setting.

    With metrics_required, a host without one of the metrics is an error. Otherwise its sum is metrics_weight_of_unavailable,
    unless the missing metric would not count because its ratio or the host's multiplier is 0.
    """

    name = "MetricsWeigher"
    aggregate_key = "metrics_weight_multiplier"
    needs_metrics = True
    settings = (
        METRICS_WEIGHT_SETTING,
        Setting("metrics_required", bool, True, "MetricsWeigher: a host without such a metric is an error."),
        Setting(
            "metrics_weight_of_unavailable",
            float,
            -10000.0,
            "MetricsWeigher: weight of a host without such a metric, where none is required.",
        ),
    )

    def __init__(self, options: SchedulerOptions):
        super().__init__(options)
        self.setting = list(self.conf.metrics_weight_setting.items())

    def needs(self, spec: RequestSpec) -> frozenset[str]:
        return super().needs(spec) if self.setting else frozenset()

    def raw(self, fleet: Fleet, spec: RequestSpec, rows: Rows) -> Column:
        if not self.setting:
            return np.zeros(np.shape(rows))
        several = np.atleast_1d(rows)
        multipliers = np.broadcast_to(self.multipliers(fleet, several), several.shape)
        values = np.array([self._sum(fleet, int(row), m) for row, m in zip(several, multipliers)], dtype=np.float64)
        return values if np.ndim(rows) else values[0]

    def changes(self, fleet: Fleet, spec: RequestSpec) -> Changes:
        return Changes.NONE

    def _sum(self, fleet: Fleet, row: int, multiplier: float) -> float:
        host = fleet.hosts[row]
        total = 0.0
        for name, ratio in self.setting:
            value = host.metrics.get(name)
            if value is not None and math.isfinite(value):
                total += float(value) * ratio
            elif self.conf.metrics_required:
                raise ComputeHostMetricNotFound(host=host.host, node=host.nodename, name=name)
            elif ratio * multiplier != 0:
                return float(self.conf.metrics_weight_of_unavailable)
        return total
