# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""MetricsWeigher: hosts by what they measured of themselves."""

from __future__ import annotations

import math
import typing as t

from ...errors import ComputeHostMetricNotFound, InvalidInput
from ..columns import Column, Fleet, Rows, np
from ..request_spec import RequestSpec
from .base import Changes, Weigher

if t.TYPE_CHECKING:
    from ..placement import SchedulerOptions


class MetricsWeigher(Weigher):
    """The sum of metric x ratio over metrics_weight_setting.

    A host that lacks one of them is an error while metrics_required is set; else it counts metrics_weight_of_unavailable
    in all, unless the ratio or the host's multiplier is 0, and the missing metric would not have counted anyway.
    """

    name = "MetricsWeigher"
    aggregate_key = "metrics_weight_multiplier"
    needs_metrics = True

    def __init__(self, options: SchedulerOptions):
        super().__init__(options)
        self.setting = [
            (str(name), _ratio(name, value)) for name, value in dict(options.metrics_weight_setting).items()
        ]
        self.unavailable = float(options.metrics_weight_of_unavailable)

    def raw(self, fleet: Fleet, spec: RequestSpec, rows: Rows) -> Column:
        if not self.setting:
            return np.zeros(np.shape(rows))
        several = np.atleast_1d(rows)
        multipliers = np.broadcast_to(self.multipliers(fleet, several), several.shape)
        values = np.array([self._sum(fleet, int(row), m) for row, m in zip(several, multipliers)], dtype=np.float64)
        return values if np.ndim(rows) else values[0]

    def changes(self, fleet: Fleet, spec: RequestSpec) -> Changes:
        return Changes.NOBODY

    def _sum(self, fleet: Fleet, row: int, multiplier: float) -> float:
        host = fleet.hosts[row]
        total = 0.0
        for name, ratio in self.setting:
            value = host.metrics.get(name)
            if value is not None and math.isfinite(value):
                total += float(value) * ratio
            elif self.options.metrics_required:
                raise ComputeHostMetricNotFound(host=host.host, node=host.nodename, name=name)
            elif ratio * multiplier != 0:
                return self.unavailable
        return total


def _ratio(name: str, value: t.Any) -> float:
    try:
        ratio = float(value)
    except (TypeError, ValueError):
        ratio = math.nan
    if not math.isfinite(ratio):
        raise InvalidInput(
            reason="metrics_weight_setting gives %s the ratio %r" % (name, value), remedy="Give a number, such as -1.0."
        )
    return ratio
