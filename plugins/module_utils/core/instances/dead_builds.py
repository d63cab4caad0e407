# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Fate of a build whose run died, by the report of its host.

A host marks the folder of an instance when all of its build is done there, and removes the mark before it removes anything else. So a guest that the ledger
still has as a build may be built: the run died before it could write that, or the ledger is older than its hosts, as one that was restored from a
backup, or that failed over without its last commits. Such a guest is never removed: the instance is active from now on. Where the ledger lacks
a part of what the guest has, or the host does, it ends in ERROR and keeps all that it has.
"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from .moves import COMES, LEAVES, LEFT

ADOPT = "adopt"  # the instance is active: its guest is built
KEEP = "keep"  # the instance ends in ERROR on its host, which keeps what it has
CLEAN = "clean"  # the instance ends in ERROR, and its host is cleaned of it
WAIT = "wait"  # for another report


@dataclass(frozen=True)
class Seen:
    """Report of a host on an instance."""

    is_complete: bool = False  # its build has ended there, or it has arrived from another host
    power_state: int | None = None  # None: there is no domain
    name: str = ""  # of the domain
    moving: str = ""  # one of core.instances.moves.MOVING
    at_work: bool = False  # a module works on its guest


def seen_in(facts: t.Mapping[str, t.Any]) -> dict[str, Seen]:
    """uuid -> what a host's report says of it; of other instances it has nothing. :arg facts: see hosts.facts.compute_node"""
    complete, at_work = set(facts.get("complete_guests") or ()), set(facts.get("at_work") or ())
    domains = {d["uuid"]: d for d in facts.get("domains") or ()}
    seen_by_uuid = {}
    for uuid in {*complete, *at_work, *domains}:
        domain = domains.get(uuid, {})
        guest = (domain.get("power_state"), domain.get("name") or "", domain.get("moving") or "")
        seen_by_uuid[uuid] = Seen(uuid in complete, *guest, at_work=uuid in at_work)
    return seen_by_uuid


def verdict(seen: Seen, in_ledger: bool) -> str:
    """ADOPT, KEEP, CLEAN or WAIT.

    :arg in_ledger: whether the ledger has all that a built guest has: its addresses, and its volumes as connected
    """
    if seen.at_work or seen.moving in (LEAVES, COMES):
        return WAIT
    if not seen.is_complete:
        return CLEAN
    return ADOPT if in_ledger and seen.power_state is not None and seen.moving != LEFT else KEEP
