# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""TypeAffinityFilter and AggregateTypeAffinityFilter: one flavor to a host, certain flavors to an aggregate."""

from __future__ import annotations

from ...aggregates import Membership
from ...columns import Fleet, Rows
from ...host_state import HostState
from ...request_spec import RequestSpec
from ..base import Filter, FilterResult
from ..verdicts import by_group
from .aggregate_rule import AggregateRule

KEY = "instance_type"


def _flavors(host: HostState) -> frozenset[str]:
    return frozenset(host.instances.values())


class TypeAffinityFilter(Filter):
    """Passes hosts that run nothing, or only instances of the same flavor."""

    name = "TypeAffinityFilter"
    run_once_per_request = True  # instances placed meanwhile have the same flavor
    needs_instances = True

    def evaluate(self, fleet: Fleet, spec: RequestSpec, rows: Rows) -> FilterResult:
        groups = fleet.groups("flavors of instances", _flavors, ("instances",))
        wanted = spec.flavor.name
        others = [", ".join(sorted(flavors - {wanted})) for flavors in groups.values]
        return by_group(groups, ["flavor %s: it runs %s" % (wanted, o) if o else None for o in others], rows)


class AggregateTypeAffinityFilter(AggregateRule):
    """Passes hosts whose aggregates name the flavor in instance_type (a comma list), or name none."""

    name = "AggregateTypeAffinityFilter"
    aggregate_keys = (KEY,)

    def refusal(self, membership: Membership, spec: RequestSpec) -> str | None:
        flavors = membership.entries(KEY)
        if not flavors or spec.flavor.name in flavors:
            return None
        return "flavor %s: its aggregates are kept for %s" % (spec.flavor.name, ", ".join(sorted(flavors)))
