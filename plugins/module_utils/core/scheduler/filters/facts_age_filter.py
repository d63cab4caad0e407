# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""FactsAgeFilter: hosts whose facts are recent enough."""

from __future__ import annotations

from ...reading.setting import Setting
from ..columns import Fleet, Rows, np
from ..request_spec import RequestSpec
from .base import Filter, FilterResult
from .capacity import at
from .verdicts import pass_all


class FactsAgeFilter(Filter):
    """Passes hosts whose last report is at most max_facts_age seconds old; without that setting (or a clock) all hosts."""

    name = "FactsAgeFilter"
    run_once_per_request = True

    settings = (
        Setting(
            "max_facts_age",
            int,
            help="FactsAgeFilter: age at which a host's facts are too old for new instances.",
            least=1,
            unit="seconds",
            default_text="any age",
        ),
    )

    def evaluate(self, fleet: Fleet, spec: RequestSpec, rows: Rows) -> FilterResult:
        limit = self.conf.max_facts_age
        if limit is None or self.options.now is None:
            return pass_all(rows)
        reported = fleet.column("updated_at", np.float64)[rows]  # None becomes NaN, and no comparison with NaN holds
        age = float(self.options.now) - reported

        def text(position: int) -> str:
            if np.isnan(at(age, position)):
                return "the host has reported no facts (they may be %.10g s old)" % limit
            return "the facts of the host are %.0f s old, more than %.10g s" % (at(age, position), limit)

        return FilterResult(mask=age <= limit, available=age, needed=limit, unit="s since the last report", text=text)
