# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""RetryFilter: no host on which this build was already tried."""

from __future__ import annotations

from ..columns import Fleet, Rows, np
from ..request_spec import RequestSpec
from .base import Filter, FilterResult
from .verdicts import pass_all


class RetryFilter(Filter):
    """Passes all but the (host, node) pairs of the retry record."""

    name = "RetryFilter"
    run_once_per_request = True  # the record does not change within a request

    def evaluate(self, fleet: Fleet, spec: RequestSpec, rows: Rows) -> FilterResult:
        tried = {tuple(pair) for pair in spec.retry_hosts}
        if not tried:
            return pass_all(rows)
        pairs = zip(fleet.values("host"), fleet.values("nodename"))
        mask = np.array([pair not in tried for pair in pairs], dtype=bool)[rows]

        def text(position: int) -> str:
            return "the build was already tried on %s" % ", ".join(sorted("%s/%s" % pair for pair in tried))

        return FilterResult(mask=mask, text=text)
