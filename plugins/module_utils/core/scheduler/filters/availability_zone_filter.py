# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""AvailabilityZoneFilter: hosts of the requested zone."""

from __future__ import annotations

import typing as t

from ..columns import Fleet, Rows, np
from ..host_state import HostState
from ..memberships import aggregate_groups
from ..request_spec import RequestSpec
from .base import Filter, FilterResult
from .capacity import at
from .verdicts import pass_all

KEY = "availability_zone"


def zones_of(host: HostState) -> tuple[str, ...]:
    """The zones that a host states; an entry may be a comma list."""
    return tuple(z.strip() for entry in host.availability_zones if entry for z in entry.split(",") if z.strip())


class AvailabilityZoneFilter(Filter):
    """Passes hosts in the requested zone. The host or its aggregates name zones; otherwise it is in the default zone."""

    name = "AvailabilityZoneFilter"
    run_once_per_request = True

    def evaluate(self, fleet: Fleet, spec: RequestSpec, rows: Rows) -> FilterResult:
        wanted = spec.availability_zone
        if not wanted:
            return pass_all(rows)
        own = fleet.groups("availability_zones", zones_of, ("availability_zones",))
        shared = aggregate_groups(fleet)
        of_aggregates = [sorted(membership.entries(KEY) - {""}) for membership in shared.values]
        named = np.array([bool(zones) for zones in own.values], dtype=bool)[own.codes[rows]]
        named = named | np.array([bool(zones) for zones in of_aggregates], dtype=bool)[shared.codes[rows]]
        mask = np.array([wanted in zones for zones in own.values], dtype=bool)[own.codes[rows]]
        mask = mask | np.array([wanted in zones for zones in of_aggregates], dtype=bool)[shared.codes[rows]]
        if wanted == self.options.default_availability_zone:
            mask = mask | ~named

        def text(position: int) -> str:
            row = at(rows, position)
            zones: t.Iterable[str] = dict.fromkeys([*own.values[own.codes[row]], *of_aggregates[shared.codes[row]]])
            return "zone %s requested, the host is in %s" % (
                wanted,
                ", ".join(zones) or self.options.default_availability_zone,
            )

        return FilterResult(mask=mask, text=text)
