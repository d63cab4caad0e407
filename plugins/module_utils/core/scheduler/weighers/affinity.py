# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""ServerGroupSoftAffinityWeigher and ServerGroupSoftAntiAffinityWeigher: members of a group together, or apart, where possible."""

from __future__ import annotations

from ...instances.server_groups import SOFT_AFFINITY, SOFT_ANTI_AFFINITY
from ..columns import Column, Fleet, Rows, np
from ..request_spec import RequestSpec
from .base import Changes, Weigher


class _SoftGroupWeigher(Weigher):
    """Members of the request's group on a host, including those placed in this request; 0 for other policies."""

    policy = ""
    sign = 1.0
    least_multiplier = 0.0

    def _concerned(self, spec: RequestSpec) -> bool:
        return spec.instance_group is not None and spec.instance_group.policy == self.policy

    def raw(self, fleet: Fleet, spec: RequestSpec, rows: Rows) -> Column:
        if spec.instance_group is None or not self._concerned(spec):
            return np.zeros(np.shape(rows))
        return fleet.group_counts(spec.instance_group)[rows] * self.sign

    def changes(self, fleet: Fleet, spec: RequestSpec) -> Changes:
        if not self._concerned(spec):
            return Changes.NONE
        return Changes.PICKED if fleet.is_one_row_each else Changes.ALL


class ServerGroupSoftAffinityWeigher(_SoftGroupWeigher):
    name = "ServerGroupSoftAffinityWeigher"
    unit = "members"
    policy = SOFT_AFFINITY
    aggregate_key = "soft_affinity_weight_multiplier"


class ServerGroupSoftAntiAffinityWeigher(_SoftGroupWeigher):
    name = "ServerGroupSoftAntiAffinityWeigher"
    unit = "members"
    policy = SOFT_ANTI_AFFINITY
    sign = -1.0
    aggregate_key = "soft_anti_affinity_weight_multiplier"
