# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The order of hosts in a rolling service, and which of them may begin now."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, replace

from .host_life import BEGUN, DONE


@dataclass(frozen=True)
class HostInService:
    """A host of the selection. ``zone``: its availability zone; ``state``: see host_life."""

    name: str
    zone: str
    state: str


def in_order(hosts: t.Sequence[HostInService]) -> list[HostInService]:
    """Return the hosts that are not done: hosts that were begun first, then zone by zone. Zones and the hosts of one keep their order."""
    zones = list(dict.fromkeys(h.zone for h in hosts))
    remaining = [h for h in hosts if h.state != DONE]
    return sorted(remaining, key=lambda h: (h.state not in BEGUN, zones.index(h.zone)))


def next_batch(hosts: t.Sequence[HostInService], at_once: int, zone_at_once: int) -> list[HostInService]:
    """Return the hosts that are serviced together now; none if all are done.

    Hosts that were begun are finished first, all together: they are out of use in any case.

    :arg at_once: at most so many. :arg zone_at_once: at most so many of a zone.
    """
    remaining = in_order(hosts)
    begun = [h for h in remaining if h.state in BEGUN]
    if begun:
        return begun
    batch: list[HostInService] = []
    for host in remaining:
        if len(batch) < at_once and sum(other.zone == host.zone for other in batch) < zone_at_once:
            batch.append(host)
    return batch


def batches(hosts: t.Sequence[HostInService], at_once: int, zone_at_once: int) -> list[list[HostInService]]:
    """Return all batches, one after the other, as next_batch() gives them while each goes well."""
    remaining, planned = list(hosts), []
    while batch := next_batch(remaining, at_once, zone_at_once):
        planned.append(batch)
        remaining = [replace(h, state=DONE) if h in batch else h for h in remaining]
    return planned
