# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""ComputeFilter: hosts that are enabled and up."""

from __future__ import annotations

from ..columns import Fleet, Rows, np
from ..request_spec import RequestSpec
from .base import Filter, FilterResult
from .capacity import at


class ComputeFilter(Filter):
    """Passes hosts that are enabled, not forced down, and whose last report is at most service_down_time seconds away."""

    name = "ComputeFilter"
    run_once_per_request = True

    def evaluate(self, fleet: Fleet, spec: RequestSpec, rows: Rows) -> FilterResult:
        enabled = ~fleet.column("disabled", bool)[rows]
        forced_down = fleet.column("forced_down", bool)[rows]
        reported = fleet.column("updated_at", np.float64)[rows]  # None becomes NaN, and no comparison with NaN holds
        limit = float(self.options.service_down_time)
        alive = ~forced_down
        age = None
        if self.options.now is not None:
            age = np.abs(float(self.options.now) - reported)
            alive = alive & (age <= limit)

        def text(position: int) -> str:
            host = fleet.hosts[at(rows, position)]
            if not at(enabled, position):
                return "disabled: %s" % host.disabled_reason if host.disabled_reason else "disabled"
            if at(forced_down, position):
                return "down: %s" % (host.down_reason or "the host did not answer or was forced down")
            if host.updated_at is None:
                return "the host never reported"
            return "down: last report %.0f s ago, more than %.10g s" % (
                at(age, position) if age is not None else 0,
                limit,
            )

        return FilterResult(
            mask=enabled & alive, available=age, needed=limit, unit="s since the last report", text=text
        )
