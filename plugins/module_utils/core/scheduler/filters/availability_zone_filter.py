# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""AvailabilityZoneFilter: hosts of the zone asked for."""

from __future__ import annotations

import typing as t

from ..columns import Fleet, Rows, np
from ..host_state import HostState
from ..request_spec import RequestSpec
from .base import Filter, FilterResult


def zones_of(host: HostState) -> tuple[str, ...]:
    """The zones that a host says it is in; an entry may be a comma list."""
    return tuple(z.strip() for entry in host.availability_zones if entry for z in entry.split(",") if z.strip())


class AvailabilityZoneFilter(Filter):
    """Passes hosts in the zone asked for; a host without a zone is in the default zone (row D09)."""

    name = "AvailabilityZoneFilter"
    run_once_per_request = True

    def evaluate(self, fleet: Fleet, spec: RequestSpec, rows: Rows) -> FilterResult:
        wanted = spec.availability_zone
        if not wanted:
            return FilterResult(mask=np.ones(len(rows), dtype=bool))
        groups = fleet.groups("availability_zones", zones_of)
        default = (self.options.default_availability_zone,)
        zones: list[t.Any] = [value or default for value in groups.values]
        mask = groups.spread([wanted in value for value in zones], rows)

        def text(position: int) -> str:
            return "zone %s asked for, it is in %s" % (wanted, ", ".join(zones[groups.codes[rows[position]]]))

        return FilterResult(mask=mask, text=text)
