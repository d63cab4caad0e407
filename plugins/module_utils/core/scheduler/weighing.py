# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The order of the hosts that passed, kept up to date while hosts are picked from its top.

After a pick only the picked host's numbers change. Nova weighs and sorts all hosts again; this gives the same numbers
and the same order (to the last bit and among equals), but recomputes all hosts only if an end of a weigher's scale moved.
Multipliers may differ from host to host (aggregates set them).
"""

from __future__ import annotations

import math
import random
import typing as t

from .columns import Column, Fleet, np
from .filters.capacity import at
from .request_spec import RequestSpec
from .weighers.base import Changes, Weigher


class Scale:
    """One weigher over the hosts of a Ranking: raw numbers, the ends of the scale, and multiplier x normalised.

    :arg multiplier: one number, or one for each host.
    """

    def __init__(self, weigher: Weigher, raw: Column, multiplier: t.Any = 1.0, changes: Changes = Changes.PICKED):
        self.weigher = weigher
        self.multiplier = multiplier
        self.one_multiplier = None if np.ndim(multiplier) else float(multiplier)
        self.changes = changes
        self.raw = np.array(raw, dtype=np.float64)
        self.refresh()

    def _find_ends(self) -> None:
        """The ends of the seen values or the fixed ends: a seen value beyond a fixed end stretches the scale."""
        lo = hi = 0.0
        if len(self.raw):
            lo, hi = float(self.raw.min()), float(self.raw.max())
            if self.weigher.minval is not None:
                lo = min(lo, float(self.weigher.minval))
            if self.weigher.maxval is not None:
                hi = max(hi, float(self.weigher.maxval))
        self.lo, self.hi = lo, hi
        self._counted = False

    def _count_ends(self) -> None:
        """The number of hosts at each end, before the first of them changes; a fixed end stays when they leave."""
        self._counted = True
        self._at_lo = math.inf if self.lo == self.weigher.minval else int((self.raw == self.lo).sum())
        self._at_hi = math.inf if self.hi == self.weigher.maxval else int((self.raw == self.hi).sum())

    def normalised(self, values: t.Any) -> t.Any:
        """0 to 1; 0 for all if all are equal."""
        if self.lo == self.hi:
            return values * 0.0
        return (values - self.lo) / (self.hi - self.lo)

    def multiplier_at(self, position: int) -> float:
        return float(at(self.multiplier, position))

    def refresh(self) -> None:
        """Compute all numbers from raw."""
        self._find_ends()
        self.part = self.multiplier * self.normalised(self.raw)
        # All numbers are equal and stay so, whichever hosts leave: true of most weighers without configuration.
        self.flat = self.changes is Changes.NONE and self.lo == self.hi

    def _ends_moved(self) -> bool:
        ends = self.lo, self.hi
        self._find_ends()
        return ends != (self.lo, self.hi)

    def change(self, position: int, value: float) -> bool:
        """Enter one host's new raw number. True if the scale moved, which changes every host's score."""
        old = self.raw.item(position)
        if value == old:
            return False
        if not self._counted:
            self._count_ends()
        lo, hi = self.lo, self.hi
        self.raw[position] = value
        self._at_lo += (value == lo) - (old == lo)
        self._at_hi += (value == hi) - (old == hi)
        if (value > hi or value < lo or not self._at_lo or not self._at_hi) and self._ends_moved():
            self.part = self.multiplier * self.normalised(self.raw)
            return True
        multiplier = self.one_multiplier
        if multiplier is None:
            multiplier = self.multiplier_at(position)
        self.part[position] = multiplier * self.normalised(value)
        return False

    def drop(self, position: int) -> bool:
        """Remove the host. True if the scale moved."""
        if np.ndim(self.multiplier):
            self.multiplier = np.delete(self.multiplier, position)
        if self.flat:
            self.raw, self.part = self.raw[1:], self.part[1:]
            return False
        if not self._counted:
            self._count_ends()
        old = self.raw[position]
        self.raw = np.delete(self.raw, position)
        self.part = np.delete(self.part, position)
        self._at_lo -= int(old == self.lo)
        self._at_hi -= int(old == self.hi)
        if (not self._at_lo or not self._at_hi) and self._ends_moved():
            self.part = self.multiplier * self.normalised(self.raw)
            return True
        return False

    def keep(self, mask: Column) -> None:
        """Keep only these hosts."""
        self.raw = self.raw[mask]
        if np.ndim(self.multiplier):
            self.multiplier = self.multiplier[mask]
        self.refresh()


class Ranking:
    """The hosts that passed (``rows`` of the fleet), best first.

    Equals keep their previous order: Nova (since it has alternates) passes the sorted list, chosen host first, to
    the next instance's stable sort.

    :arg weigh_one: weigh a single host too, as Cinder does; its weight is 0 either way.
    """

    def __init__(
        self,
        fleet: Fleet,
        spec: RequestSpec,
        rows: Column,
        weighers: t.Sequence[Weigher],
        weigh_one: bool = False,
    ):
        self.fleet = fleet
        self.spec = spec
        self.weighers = weighers
        self.rows = np.array(rows)
        self.order = np.arange(len(self.rows))  # positions among rows, best first
        # A single host is not weighed, and hosts are only ever removed.
        self.scales = [self._scale(w) for w in weighers] if len(self.rows) > (0 if weigh_one else 1) else []
        self._changing = [scale for scale in self.scales if scale.changes is not Changes.NONE]
        self._moved = True  # a scale moved since the last sort
        self._sort()

    def _scale(self, weigher: Weigher) -> Scale:
        return Scale(
            weigher,
            weigher.raw(self.fleet, self.spec, self.rows),
            weigher.multipliers(self.fleet, self.rows),
            weigher.changes(self.fleet, self.spec),
        )

    def __len__(self) -> int:
        return len(self.order)

    def _sort(self) -> None:
        self._moved = False
        if len(self.rows) <= 1:  # one candidate is not weighed: weight 0
            self.score = np.zeros(len(self.rows))
            self.keys = np.zeros(len(self.rows))
            return
        score = np.zeros(len(self.rows))
        for scale in self.scales:
            if not scale.flat:
                score += scale.part
        self.score = score
        keys = -score[self.order]
        if np.any(keys[1:] < keys[:-1]):
            again = np.argsort(keys, kind="stable")
            self.order = self.order[again]
            keys = keys[again]
        self.keys = keys

    @property
    def best(self) -> int:
        """The number of hosts at the top that weigh the same."""
        keys = self.keys
        return int(np.searchsorted(keys, keys[0], side="right")) if len(keys) else 0

    def shuffle_best(self, rng: random.Random) -> None:
        """Put these hosts into a random order. source: Nova's shuffle_best_same_weighed_hosts"""
        best = self.order[: self.best].tolist()
        rng.shuffle(best)
        self.order[: len(best)] = best

    def pick(self, index: int = 0) -> int:
        """Move the host at this index of the order to its top, where Nova leaves the chosen one. Returns its row."""
        if index:
            for array in (self.order, self.keys):
                chosen = array[index]
                array[1 : index + 1] = array[:index].copy()
                array[0] = chosen
        return int(self.rows[self.order[0]])

    def _position(self, row: int) -> int | None:
        """The position of a row of the fleet in ``rows`` (ascending); None if it was removed."""
        rows = self.rows
        position = int(rows.searchsorted(row))
        return position if position < len(rows) and rows.item(position) == row else None

    def has(self, row: int) -> bool:
        """Return whether a row of the fleet was not removed."""
        return self._position(row) is not None

    def drop(self, row: int) -> None:
        """Remove a host that no longer passes. The order stays until update()."""
        position = self._position(row)
        if position is None:
            raise KeyError(row)
        place = int(np.flatnonzero(self.order == position)[0])
        self.order = np.delete(self.order, place)
        self.order -= self.order > position
        self.keys = np.delete(self.keys, place)
        self.rows = np.delete(self.rows, position)
        self.score = np.delete(self.score, position)
        for scale in self.scales:
            self._moved = scale.drop(position) or self._moved

    def keep(self, mask: Column) -> None:
        """Keep the hosts of ``mask`` (as long as ``rows``). The order stays until update()."""
        if mask.all():
            return
        new_position = np.cumsum(mask) - 1
        self.order = new_position[self.order[mask[self.order]]]
        self.rows = self.rows[mask]
        for scale in self.scales:
            scale.keep(mask)
        self._moved = True

    def update(self, row: int) -> None:
        """Restore the order after the host picked last (``row``, at the top unless removed) was taken from."""
        position = self._position(row)
        for scale in self._changing:
            if scale.changes is Changes.ALL:
                scale.raw = np.array(scale.weigher.raw(self.fleet, self.spec, self.rows), dtype=np.float64)
                scale.refresh()
                self._moved = True
            elif position is not None:
                value = float(scale.weigher.raw(self.fleet, self.spec, row))
                self._moved = scale.change(position, value) or self._moved
        if self._moved or len(self.rows) <= 1:
            self._sort()
        elif position is not None:
            self._replace_top(position)

    def _replace_top(self, position: int) -> None:
        """Move the top host to the place of its new score: after better ones, before equals."""
        score = 0.0
        for scale in self.scales:
            if not scale.flat:
                score += scale.part.item(position)
        self.score[position] = score
        place = int(self.keys[1:].searchsorted(-score, side="left"))
        self.order[:place] = self.order[1 : place + 1].copy()
        self.keys[:place] = self.keys[1 : place + 1].copy()
        self.order[place] = position
        self.keys[place] = -score
