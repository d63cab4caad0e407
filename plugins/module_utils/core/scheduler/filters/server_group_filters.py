# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""ServerGroupAffinityFilter and ServerGroupAntiAffinityFilter."""

from __future__ import annotations

import typing as t

from ...amounts import counted
from ...instances.server_groups import AFFINITY, ANTI_AFFINITY, ServerGroup
from ..columns import Fleet, Rows, np
from ..request_spec import RequestSpec
from .base import Filter, FilterResult
from .capacity import at
from .verdicts import pass_all

HOSTS_NAMED = 5


def _group(spec: RequestSpec, policy: str) -> ServerGroup | None:
    group = spec.instance_group
    return group if group is not None and group.policy == policy else None


def _title(group: ServerGroup) -> str:
    return "server group %s (%s)" % (group.name or group.id, group.policy)


class ServerGroupAntiAffinityFilter(Filter):
    """Passes hosts with fewer than max_server_per_host members, and the current host of an instance that is moved."""

    name = "ServerGroupAntiAffinityFilter"
    hints = ("group",)
    needs_instances = True

    def concerns(self, spec: RequestSpec) -> bool:
        return _group(spec, ANTI_AFFINITY) is not None

    def evaluate(self, fleet: Fleet, spec: RequestSpec, rows: Rows) -> FilterResult:
        group = _group(spec, ANTI_AFFINITY)
        if group is None:
            return pass_all(rows)
        if np.ndim(rows):  # nodes of one host share its members, and so do the names of one machine
            self.per_host = fleet.is_one_row_each
        counts = fleet.group_counts(group)[rows]
        most = group.max_server_per_host
        mask = np.array(counts < most).reshape(np.shape(rows))
        several, flat = np.atleast_1d(rows), mask.reshape(-1)
        for position in np.flatnonzero(~flat):
            guests = fleet.hosts[int(several[position])].instances
            flat[position] = any(uuid in guests for uuid in spec.instance_uuids)

        def text(position: int) -> str:
            members = counted(at(counts, position), "members")
            return "%s: the host has %s, and may have %d" % (_title(group), members, most)

        return FilterResult(mask=mask, available=most - counts, needed=1, unit="members of its group", text=text)


class ServerGroupAffinityFilter(Filter):
    """Passes hosts that have members; any host while the group has none."""

    name = "ServerGroupAffinityFilter"
    hints = ("group",)
    per_host = False  # the first instance placed excludes all other hosts

    def concerns(self, spec: RequestSpec) -> bool:
        return _group(spec, AFFINITY) is not None

    def evaluate(self, fleet: Fleet, spec: RequestSpec, rows: Rows) -> FilterResult:
        group = _group(spec, AFFINITY)
        if group is None:
            return pass_all(rows)
        everywhere = fleet.group_counts(group)
        if not everywhere.any() and not group.hosts:
            return pass_all(rows)
        mask = np.array(everywhere[rows] > 0).reshape(np.shape(rows))

        def text(position: int) -> str:
            member_rows = np.flatnonzero(everywhere > 0)
            names: list[t.Any] = sorted({*group.hosts, *(fleet.hosts[int(row)].host for row in member_rows)})
            more = ", ..." if len(names) > HOSTS_NAMED else ""
            return "%s: the members are on %s%s" % (_title(group), ", ".join(names[:HOSTS_NAMED]), more)

        return FilterResult(mask=mask, text=text)
