# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The hosts of a fleet by their aggregates."""

from __future__ import annotations

from .aggregates import Membership
from .columns import Fleet, Groups
from .host_state import HostState


def aggregate_groups(fleet: Fleet) -> Groups:
    """Hosts in the same aggregates; the value of a group is its Membership.

    Aggregates are compared by identity, so hosts should share the objects.
    """
    made: dict[tuple[int, ...], Membership] = {}

    def key(host: HostState) -> Membership:
        ids = tuple(map(id, host.aggregates))
        membership = made.get(ids)
        if membership is None:
            membership = made[ids] = Membership(host.aggregates)
        return membership

    return fleet.groups("aggregates", key, ("aggregates",))
