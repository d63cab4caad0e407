# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""AggregateInstanceExtraSpecsFilter: what the flavor's extra specs ask of the host's aggregates."""

from __future__ import annotations

from ....reading.extra_specs_ops import match
from ...aggregates import Membership
from ...request_spec import RequestSpec
from .aggregate_rule import AggregateRule

SCOPE = "aggregate_instance_extra_specs"


class AggregateInstanceExtraSpecsFilter(AggregateRule):
    """Passes hosts whose aggregates satisfy every extra spec that has the filter's scope or none.

    Other scopes are ignored. A metadata value is a comma list; one of its entries has to match.
    """

    name = "AggregateInstanceExtraSpecsFilter"

    def refusal(self, membership: Membership, spec: RequestSpec) -> str | None:
        for written, requirement in spec.flavor.extra_specs.items():
            scope, colon, key = written.partition(":")
            if not colon:
                key = written
            elif scope != SCOPE:
                continue
            entries = sorted(membership.entries(key))
            if not entries:
                return "%s: needs %s, none of its aggregates (%s) has it" % (written, requirement, membership.names)
            if not any(match(entry, str(requirement)) for entry in entries):
                return "%s: needs %s, its aggregates have %s" % (written, requirement, ", ".join(entries))
        return None
