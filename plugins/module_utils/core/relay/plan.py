# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The order in which hosts give an image to each other: hosts that lack it form chains, and each gives on what it has received so far.

A host is the first source of one other host at most, so each link carries the image once in each direction. The controller, or the web server,
sends it to one host; to none where a host has it already. An image that only a store of a host has comes from that host, as if it had it.
"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

NEAREST = 8  # hosts before it in its chain that a host may turn to
HOLDERS = 4  # hosts with the whole image that it may turn to
LAST = 3  # hosts at the end of its chain that it may turn to, which give to no host yet

#: What a host answers of an image: it lacks it, it has the very file, another run fetches it, or the file is in one of its stores.
LACKS, WHOLE, BUSY, STORED = "lacks", "whole", "busy", "stored"


@dataclass(frozen=True)
class Peer:
    """A host that takes part. ``size``: bytes that it has already"""

    name: str
    zone: str = ""
    size: int = 0
    is_holder: bool = False  # has the whole image


@dataclass(frozen=True)
class Plan:
    """The chains of hosts that lack an image, and the hosts that have it."""

    chains: tuple[tuple[str, ...], ...]  # of the first one's own source: holders by number
    holders: tuple[str, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The hosts that lack it, in the order in which something else than a host may send it to them."""
        return tuple(name for chain in self.chains for name in chain)

    def before(self, name: str) -> tuple[str, ...]:
        """The hosts that a host asks, the nearest one before it in its chain first."""
        number, chain, place = self._find(name)
        nearest = chain[max(0, place - NEAREST) : place][::-1]
        holders = self.holders[number:] + self.holders[:number]
        return tuple(dict.fromkeys((*nearest, *chain[: min(place, 1)], *holders[:HOLDERS])))

    def origins(self, name: str) -> tuple[str, ...]:
        """Return the hosts that may know the digests of all pieces: holders, and the first hosts of the order, which fetch the image."""
        first = (chain[0] for chain in self.chains[:HOLDERS])
        return tuple(dict.fromkeys((*self.holders[:HOLDERS], *first, *self.names[:NEAREST], *self.before(name))))

    def after(self, name: str) -> tuple[str, ...]:
        """Return the last hosts of its chain, which give it to no other host: it asks them where all others have failed."""
        _number, chain, place = self._find(name)
        return chain[place + 1 :][::-1][:LAST]

    def _find(self, name: str) -> tuple[int, tuple[str, ...], int]:
        number, chain = next((n, c) for n, c in enumerate(self.chains) if name in c)
        return number, chain, chain.index(name)


def givers(states: t.Mapping[str, str], store_host: str = "") -> tuple[str, ...]:
    """Return the hosts that are to give an image; none where no host lacks it.

    :arg states: of the hosts that answered. :arg store_host: the host whose store has the image; "": no store of a host does, or the round lacks the host
    """
    if LACKS not in states.values():
        return ()
    whole = [name for name, state in states.items() if state == WHOLE and name != store_host]
    return (*([store_host] if store_host else []), *whole)[:HOLDERS]


def plan(peers: t.Iterable[Peer]) -> Plan:
    """The hosts that have more of it come first, and hosts of one zone one after the other: a boundary between zones is crossed once for each zone.

    Each holder begins a chain, first with hosts of its zone, and no chain is empty.
    """
    everyone = list(peers)
    holders = [p for p in everyone if p.is_holder]
    lacking = [p for p in everyone if not p.is_holder]
    most = {zone: max(p.size for p in lacking if p.zone == zone) for zone in {p.zone for p in lacking}}
    with_holders = {p.zone for p in holders}
    first = {zone: next(n for n, p in enumerate(lacking) if p.zone == zone) for zone in most}
    zones = sorted(most, key=lambda zone: (zone not in with_holders, -most[zone], first[zone]))
    chains: dict[str, list[str]] = {p.name: [] for p in holders} or {"": []}
    for zone in zones:
        members = [p.name for p in sorted((p for p in lacking if p.zone == zone), key=lambda p: -p.size)]
        near = [p.name for p in holders if p.zone == zone] or [min(chains, key=lambda name: len(chains[name]))]
        share = -(-len(members) // len(near))
        for number, holder in enumerate(near):
            chains[holder] += members[number * share : (number + 1) * share]
    # A chain has the number of its holder: holders without one come after the others.
    order = sorted(chains, key=lambda name: not chains[name])
    return Plan(tuple(tuple(chains[n]) for n in order if chains[n]), tuple(n for n in order if n))
