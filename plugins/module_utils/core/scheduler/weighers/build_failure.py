# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""BuildFailureWeigher: hosts with recently failed builds last."""

from __future__ import annotations

from ..columns import Column, Fleet, Rows, np
from ..request_spec import RequestSpec
from .base import Changes, Weigher


class BuildFailureWeigher(Weigher):
    """Failed builds since the last success count against the host. The multiplier exceeds the sum of all others."""

    name = "BuildFailureWeigher"
    unit = "failed builds"
    multiplier = 1000000.0
    aggregate_key = "build_failure_weight_multiplier"
    negated = True

    def raw(self, fleet: Fleet, spec: RequestSpec, rows: Rows) -> Column:
        return fleet.column("failed_builds", np.int64)[rows] * 1.0

    def changes(self, fleet: Fleet, spec: RequestSpec) -> Changes:
        return Changes.NONE
