# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Server groups: instances that share a host, or never do."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field

AFFINITY = "affinity"
ANTI_AFFINITY = "anti-affinity"
SOFT_AFFINITY = "soft-affinity"
SOFT_ANTI_AFFINITY = "soft-anti-affinity"
POLICIES = (AFFINITY, ANTI_AFFINITY, SOFT_AFFINITY, SOFT_ANTI_AFFINITY)


@dataclass(frozen=True)
class ServerGroup:
    """A group for a request: its policy, and the hosts of its members."""

    id: str
    name: str
    policy: str  # one of POLICIES
    max_server_per_host: int = 1  # only for anti-affinity
    project: str = ""
    members: frozenset[str] = frozenset()  # uuids of its instances
    host_counts: t.Mapping[str, int] = field(default_factory=dict, hash=False)  # host -> number of members

    @property
    def hosts(self) -> frozenset[str]:
        return frozenset(h for h, n in self.host_counts.items() if n > 0)


def late_check(group: ServerGroup, host: str, instance_uuid: str) -> str | None:
    """Why an instance may not stay on ``host`` after its claim there, as in Nova; None if it may.

    :arg group: with the hosts of the other members, without ``instance_uuid`` itself.
    """
    if group.policy == ANTI_AFFINITY and group.host_counts.get(host, 0) >= group.max_server_per_host:
        return "Anti-affinity instance group policy was violated."
    if group.policy == AFFINITY and group.hosts and host not in group.hosts:
        return "Affinity instance group policy was violated."
    return None
