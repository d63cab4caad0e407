# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""RetryFilter: not where this build was tried already."""

from __future__ import annotations

from ..columns import Fleet, Rows, np
from ..request_spec import RequestSpec
from .base import Filter, FilterResult


class RetryFilter(Filter):
    """Passes all but the (host, node) pairs of the retry record (row D09)."""

    name = "RetryFilter"
    run_once_per_request = True  # the record does not change within a request

    def evaluate(self, fleet: Fleet, spec: RequestSpec, rows: Rows) -> FilterResult:
        tried = {tuple(pair) for pair in spec.retry_hosts}
        mask = np.ones(len(rows), dtype=bool)
        if tried:
            mask = np.array([(fleet.hosts[r].host, fleet.hosts[r].nodename) not in tried for r in rows], dtype=bool)
        return FilterResult(mask=mask, text=lambda position: "this build was tried there already")
