# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""MetricsFilter: hosts that have every metric that MetricsWeigher weighs."""

from __future__ import annotations

from ..columns import Fleet, Rows
from ..host_state import HostState
from ..options import SchedulerOptions
from ..request_spec import RequestSpec
from ..weighers.metrics import METRICS_WEIGHT_SETTING
from .base import Filter, FilterResult
from .verdicts import by_group, pass_all


def _metrics(host: HostState) -> frozenset[str]:
    return frozenset(host.metrics)


class MetricsFilter(Filter):
    """Passes hosts that report all metrics of metrics_weight_setting, so that the weigher finds them."""

    name = "MetricsFilter"
    run_once_per_request = True
    needs_metrics = True
    settings = (METRICS_WEIGHT_SETTING,)

    def __init__(self, options: SchedulerOptions):
        super().__init__(options)
        self.wanted = frozenset(self.conf.metrics_weight_setting)

    def concerns(self, spec: RequestSpec) -> bool:
        return bool(self.wanted)

    def evaluate(self, fleet: Fleet, spec: RequestSpec, rows: Rows) -> FilterResult:
        if not self.wanted:
            return pass_all(rows)
        groups = fleet.groups("names of metrics", _metrics, ("metrics",))
        missing = [", ".join(sorted(self.wanted - metric_names)) for metric_names in groups.values]
        return by_group(groups, ["needs the metrics %s, it reports none" % m if m else None for m in missing], rows)
