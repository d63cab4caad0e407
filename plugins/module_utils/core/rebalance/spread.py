# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The fewest migrations that make a fleet even.

The migration with the greatest gain comes first, then the next one, until the fleet is even. Where this leaves room, each migration is then taken out and
exchanged for the best one in its place, as long as that makes the same number of them better.
"""

from __future__ import annotations

import typing as t

from .ground import Ground
from .plan_data import EVEN, MOVES, NO_GAIN, SMALLEST, Aims, Step
from .search import Search

_PASSES = 4  # over all migrations, while they get better
_EFFORT = 300_000_000  # numbers that are looked at for better ones
_PER_HOST = 20  # numbers of each kind and host in a look

Moves = t.List[t.Tuple[int, int, int]]  # guest, position that it leaves, position that it comes to


class Spread:
    """The steps for one fleet. ``make``: gives the ground as it is at the beginning, each time."""

    def __init__(self, make: t.Callable[[], Ground], aims: Aims):
        self._make = make
        self._aims = aims
        self._least = max(aims.least_gain, SMALLEST)

    def steps(self) -> tuple[list[Step], Ground, str]:
        """Return the steps, the ground after them, and why they end."""
        first = self._attempt({})
        if not first.moves or first.search.evenness.score <= SMALLEST:
            return first.result()
        better = self._refined(first.moves)
        if better is None:
            return first.result()
        second = self._attempt(better)
        return min((second, first), key=lambda attempt: attempt.rank).result()

    def _attempt(self, wanted: t.Mapping[int, int]) -> _Attempt:
        """Do the ``wanted`` migrations (guest -> position) as far as they are possible, the one with the greatest gain first, then the best ones."""
        attempt = _Attempt(self._make(), self._aims, self._least)
        attempt.do_wanted(wanted)
        attempt.do_best()
        return attempt

    def _refined(self, moves: Moves) -> dict[int, int] | None:
        """Return guest -> position of as many migrations that leave the fleet more even; None if there are none. Only numbers and steady filters count here."""
        search = Search(self._make())
        search.allowed = search.steady.copy()
        chosen = list(moves)
        for move in chosen:
            search.enter(*move)
        before = search.evenness.score
        looks = _EFFORT // (max(search.counts.shape[0], 1) * max(search.counts.shape[1], 1) * _PER_HOST) + 50
        for _pass in range(_PASSES):
            at_begin = search.evenness.score
            for number, move in enumerate(chosen):
                if looks <= 0:
                    break
                looks -= 1
                score = search.evenness.score
                search.leave(*move)
                choice = search.best()
                if choice is not None and search.evenness.score - choice.gain < score - SMALLEST:
                    chosen[number] = (search.guest(choice), choice.source, choice.destination)
                search.enter(*chosen[number])
            if search.evenness.score > at_begin - SMALLEST:
                break
        if search.evenness.score > before - SMALLEST:
            return None
        return {guest: destination for guest, _source, destination in chosen}


class _Attempt:
    """Migrations that are entered one after the other."""

    def __init__(self, ground: Ground, aims: Aims, least: float):
        self.ground = ground
        self.search = Search(ground)
        self.moves: Moves = []
        self._aims = aims
        self._least = least
        self._steps: list[Step] = []
        self._ended = NO_GAIN

    @property
    def rank(self) -> tuple[bool, float, float]:
        """The less the better: an even fleet first, with fewer steps; else a more even one."""
        score = self.search.evenness.score
        even = score <= self._aims.tolerance + SMALLEST
        return not even, float(len(self._steps)) if even else score, score

    def result(self) -> tuple[list[Step], Ground, str]:
        return self._steps, self.ground, self._ended

    def _is_over(self) -> bool:
        if self.search.evenness.score <= self._aims.tolerance + SMALLEST:
            self._ended = EVEN
        elif self._aims.moves is not None and len(self._steps) >= self._aims.moves:
            self._ended = MOVES
        else:
            return False
        return True

    def do_wanted(self, wanted: t.Mapping[int, int]) -> None:
        """Enter these migrations; one that is not possible now is looked at again when others are done."""
        remaining = sorted(wanted.items())
        while remaining and not self._is_over():
            gains = self.search.gains(remaining)
            for number in (-gains).argsort(kind="stable").tolist():
                if gains[number] < self._least:
                    return
                if self._enter(*remaining[number]):
                    del remaining[number]
                    break
            else:
                return

    def do_best(self) -> None:
        """Enter the best migration, again and again."""
        while not self._is_over():
            choice = self.search.best()
            if choice is None or choice.gain < self._least:
                return
            guest = self.search.guest(choice)
            if not self._enter(guest, choice.destination):
                self.search.exclude(guest, choice.destination)

    def _enter(self, guest: int, destination: int) -> bool:
        ground, search = self.ground, self.search
        source = ground.positions[ground.row_of[guest]]
        before = search.evenness.score
        if ground.refusal(guest, int(ground.rows[destination])) is not None:
            return False
        search.enter(guest, source, destination)
        self.moves.append((guest, source, destination))
        self._steps.append(step_of(ground, guest, source, destination, before, search.evenness.score))
        return True


def step_of(ground: Ground, guest: int, source: int, destination: int, before: float, after: float) -> Step:
    """:arg source: and destination: positions. :arg before: and after: the score"""
    this = ground.guests[guest]
    leaves, gets = (ground.fleet.place(int(ground.rows[position]))[0] for position in (source, destination))
    memory_bytes = this.cost - this.disk_bytes
    return Step(this.uuid, this.name, leaves, gets, memory_bytes, this.disk_bytes, before, after)
