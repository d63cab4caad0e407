# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The base of filters that read only a host's aggregates."""

from __future__ import annotations

import abc

from ...aggregates import Membership
from ...columns import Fleet, Rows
from ...memberships import aggregate_groups
from ...request_spec import RequestSpec
from ..base import Filter, FilterResult
from ..verdicts import by_group


class AggregateRule(Filter):
    """Asked once for each set of aggregates that hosts are in: within a request it does not change."""

    run_once_per_request = True

    def evaluate(self, fleet: Fleet, spec: RequestSpec, rows: Rows) -> FilterResult:
        groups = aggregate_groups(fleet)
        return by_group(groups, [self.refusal(membership, spec) for membership in groups.values], rows)

    @abc.abstractmethod
    def refusal(self, membership: Membership, spec: RequestSpec) -> str | None:
        """Why a host in these aggregates is rejected; None: it passes."""
