# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Fences: the clients of a lost host that a cluster refuses. One rule for volumes and for local disks.

A fence is for one client, which is a process, and outlasts the return of its host: a guest that did not write meanwhile would write again. A program that
starts there later is another client. No fence is taken away: users with the capabilities ``profile rbd`` may not, and a client that has ended does not return.

source: Ceph 16 as tried: ``profile rbd`` admits ``osd blocklist add``, not ``rm``, and an ``add`` with less time does not shorten an entry
"""

from __future__ import annotations

import time
import typing as t

from ..os.batch import progress
from .cluster import Cluster

#: Seconds in which a fenced client loses what it has open.
_PATIENCE = 20.0


def clients(cluster: Cluster, names: t.Iterable[str]) -> list[str]:
    """Return the addresses of the clients that have one of these images open, or wrote to it last."""
    return sorted({a for name in names for a in (*cluster.watchers(name), *cluster.lock_owners(name))})


def fence(cluster: Cluster, names: t.Iterable[str], addresses: t.Sequence[str]) -> dict[str, list[str]]:
    """Have the cluster refuse these clients. Returns the images that stay open, with the addresses of their clients."""
    if not addresses:
        return {}
    progress.mark_changed()
    for address in addresses:
        cluster.fence(address)
    end = time.monotonic() + _PATIENCE
    remaining = {name: cluster.watchers(name) for name in names}
    while any(remaining.values()) and time.monotonic() < end:
        time.sleep(0.5)
        remaining = {name: cluster.watchers(name) for name in remaining}
    return {name: watchers for name, watchers in remaining.items() if watchers}
