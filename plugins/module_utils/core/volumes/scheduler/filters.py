# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""AvailabilityZoneFilter, CapabilitiesFilter, and IgnoreAttemptedHostsFilter. source: Cinder's scheduler filters (Queens)"""

from __future__ import annotations

from ...scheduler.columns import Rows, np
from ...scheduler.filters.base import FilterResult
from ...scheduler.filters.verdicts import pass_all
from ..model import VolumeRequest
from .backends import Backends
from .base import BackendFilter
from .extra_specs import satisfies


class AvailabilityZoneFilter(BackendFilter):
    """Passes pools of the requested zone."""

    name = "AvailabilityZoneFilter"
    run_once_per_request = True

    def judge(self, backends: Backends, request: VolumeRequest, rows: Rows) -> FilterResult:
        wanted = request.availability_zone
        if not wanted:
            return pass_all(rows)
        return FilterResult(
            mask=np.asarray(backends.zones[rows] == wanted, dtype=bool),
            text=lambda position: "zone %s requested, the host is in %s" % (wanted, backends.zones[rows[position]]),
        )


class CapabilitiesFilter(BackendFilter):
    """Passes pools whose capabilities satisfy the extra specs of the volume type."""

    name = "CapabilitiesFilter"

    def judge(self, backends: Backends, request: VolumeRequest, rows: Rows) -> FilterResult:
        extra_specs = request.extra_specs
        if not extra_specs:
            return pass_all(rows)
        asked = repr(extra_specs)
        against = []
        for row in rows.tolist():
            judged = backends.judged[row]
            if asked not in judged:  # the volumes of a run have few types, and each changes one row
                judged[asked] = satisfies(backends.capabilities_of(row), extra_specs)
            against.append(judged[asked])

        def text(position: int) -> str:
            refusal = against[position]
            if refusal is None:
                return ""
            return 'Volume type extra spec requirement "%s=%s" does not match reported capability "%s"' % refusal

        return FilterResult(mask=np.array([refusal is None for refusal in against], dtype=bool), text=text)


class IgnoreAttemptedHostsFilter(BackendFilter):
    """Passes pools that have not failed this volume. Not enabled unless listed."""

    name = "IgnoreAttemptedHostsFilter"

    def judge(self, backends: Backends, request: VolumeRequest, rows: Rows) -> FilterResult:
        tried = set((request.retry or {}).get("backends", ()))
        return FilterResult(
            mask=np.array([backends.ids[row] not in tried for row in rows], dtype=bool),
            text=lambda position: "%s was already tried for this volume" % backends.ids[rows[position]],
        )
