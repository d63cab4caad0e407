# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The search for the migration that makes a fleet most even, over all guests and hosts at once.

The gain of a migration is nearly linear: how much its source is missed less than its destination. So the best destination of a kind of guests hardly
depends on the source, and only the few best of both are compared exactly.
"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ..scheduler.columns import Column, np
from .evenness import Evenness
from .ground import Ground

_FEW = 8  # of the best sources and destinations of each kind, that are compared exactly
_EXACT = 400_000  # so many pairs of hosts, times kinds, are all compared
_EQUAL = 1e-9  # points of the score


@dataclass(frozen=True)
class Choice:
    """A migration: positions of hosts, and the kind of the guest."""

    kind: int
    source: int
    destination: int
    gain: float


class Search:
    """Guests that can be migrated, by kinds and hosts. A guest is migrated once.

    Guests of a kind have the same request, and cannot go to the same hosts.
    """

    def __init__(self, ground: Ground):
        self.ground = ground
        self.evenness: Evenness = ground.evenness()
        numbers: dict[tuple[int, frozenset[str]], int] = {}
        members: list[int] = []
        self.kind_of: dict[int, int] = {}  # guest -> kind
        for guest in range(len(ground.guests)):
            if ground.is_movable(guest):
                key = ground.kinds[guest], ground.guests[guest].barred
                self.kind_of[guest] = numbers.setdefault(key, len(numbers))
                if self.kind_of[guest] == len(members):
                    members.append(guest)
        count = len(ground.rows)
        weighers = len(self.evenness.names)
        self.amounts = np.array([self.evenness.amounts(ground.guests[g].spec) for g in members]).reshape(-1, weighers)
        self.waiting: dict[tuple[int, int], list[int]] = {}  # (kind, position) -> guests, the cheapest last
        self.counts = np.zeros((len(members), count), dtype=np.int64)
        for guest, kind in self.kind_of.items():
            position = ground.positions[ground.row_of[guest]]
            self.counts[kind, position] += 1
            self.waiting.setdefault((kind, position), []).append(guest)
        for guests in self.waiting.values():
            guests.sort(key=lambda g: (-ground.guests[g].cost, ground.guests[g].uuid))
        self.steady = np.zeros((len(members), count), dtype=bool)
        self.allowed = np.zeros((len(members), count), dtype=bool)
        for kind, guest in enumerate(members):
            usable = ~ground.barred_mask(guest)
            self.steady[kind] = ground.rules.steady(ground.kinds[guest])[ground.rows] & usable
            self.allowed[kind] = ground.rules.now(ground.kinds[guest])[ground.rows] & usable

    def best(self) -> Choice | None:
        """Return the migration with the greatest gain; None if no guest can be migrated."""
        kinds, count = self.counts.shape
        if not kinds or count < 2:
            return None
        if kinds * count * count <= _EXACT:
            everyone = np.tile(np.arange(count), (kinds, 1))
            return self._exactly(everyone, everyone)
        weights = self.evenness.weights(self.amounts)
        most = min(_FEW, count)
        sources = np.where(self.counts > 0, weights, np.inf)
        destinations = np.where(self.allowed, -weights, np.inf)
        return self._exactly(
            np.sort(np.argpartition(sources, most - 1, axis=1)[:, :most], axis=1),
            np.sort(np.argpartition(destinations, most - 1, axis=1)[:, :most], axis=1),
        )

    def _exactly(self, sources: Column, destinations: Column) -> Choice | None:
        """Compare all pairs of these positions: kinds by positions."""
        every = np.arange(len(sources))[:, None]
        possible = (self.counts[every, sources] > 0)[:, :, None] & self.allowed[every, destinations][:, None, :]
        possible &= sources[:, :, None] != destinations[:, None, :]
        if not possible.any():
            return None
        squares = self.evenness.squares_after(
            self.amounts[:, None, None, :], sources[:, :, None], destinations[:, None, :]
        )
        gains = np.where(possible, self.evenness.score - self.evenness.scores(squares), -np.inf)
        best = np.flatnonzero(gains >= gains.max() - _EQUAL)[0]
        kind, source, destination = np.unravel_index(best, gains.shape)
        choice = int(sources[kind, source]), int(destinations[kind, destination])
        return Choice(int(kind), *choice, float(gains[kind, source, destination]))

    def gain(self, guest: int, destination: int) -> float:
        """Return the gain of one migration. :arg destination: a position"""
        source = self.ground.positions[self.ground.row_of[guest]]
        amounts = self.amounts[self.kind_of[guest]]
        after = self.evenness.squares_after(amounts, source, destination)
        return self.evenness.score - float(self.evenness.scores(after))

    def gains(self, pairs: t.Sequence[tuple[int, int]]) -> Column:
        """Return the gains of these migrations: guest, position of the destination."""
        kinds = np.array([self.kind_of[guest] for guest, _destination in pairs])
        sources = np.array([self.ground.positions[self.ground.row_of[guest]] for guest, _destination in pairs])
        destinations = np.array([destination for _guest, destination in pairs])
        after = self.evenness.squares_after(self.amounts[kinds], sources, destinations)
        return self.evenness.score - self.evenness.scores(after)

    def guest(self, choice: Choice) -> int:
        """Return the guest that a choice means: the one of its kind that costs least."""
        return self.waiting[choice.kind, choice.source][-1]

    def enter(self, guest: int, source: int, destination: int) -> None:
        """Enter a migration. :arg source: and destination: positions"""
        kind = self.kind_of[guest]
        self.waiting[kind, source].remove(guest)
        self.counts[kind, source] -= 1
        self.evenness.move(self.amounts[kind], source, destination)
        self.allowed[:, source] = self.steady[:, source]  # it has more room now

    def leave(self, guest: int, source: int, destination: int) -> None:
        """Take a migration back."""
        kind = self.kind_of[guest]
        self.waiting[kind, source].append(guest)
        self.counts[kind, source] += 1
        self.evenness.move(self.amounts[kind], destination, source)

    def exclude(self, guest: int, destination: int) -> None:
        """Note that a host does not take guests of this kind now."""
        self.allowed[self.kind_of[guest], destination] = False
