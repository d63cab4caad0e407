# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""AggregateMultiTenancyIsolation: aggregates that belong to certain projects."""

from __future__ import annotations

from ...aggregates import Membership
from ...request_spec import RequestSpec
from .aggregate_rule import AggregateRule

KEY = "filter_tenant_id"


class AggregateMultiTenancyIsolation(AggregateRule):
    """Passes hosts whose aggregates name the project in filter_tenant_id (a comma list), or name none."""

    name = "AggregateMultiTenancyIsolation"
    aggregate_keys = (KEY,)

    def refusal(self, membership: Membership, spec: RequestSpec) -> str | None:
        projects = membership.entries(KEY)
        if not projects or spec.project in projects:
            return None
        return "project %s: its aggregates are kept for %s" % (spec.project or "(none)", ", ".join(sorted(projects)))
