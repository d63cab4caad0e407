# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The order of the hosts that passed, kept up to date while instances are picked off its top.

After a pick only the picked host's numbers change. Nova weighs and sorts all hosts anew; this gives the same numbers
and the same order (to the last bit and among equals), but touches all hosts only when an end of a weigher's scale moved.
source: semantics 13; rows D16, D17
"""

from __future__ import annotations

import typing as t

from .columns import Column, Fleet, np
from .request_spec import RequestSpec
from .weighers.base import Weigher


class Scale:
    """One weigher over the hosts of a Ranking: raw numbers, the ends of the scale, and multiplier x normalised."""

    def __init__(self, weigher: Weigher, raw: Column):
        self.weigher = weigher
        self.raw = np.array(raw, dtype=np.float64)
        self.lo, self.hi = self._ends()
        self.part = self._parts()

    def _ends(self) -> tuple[float, float]:
        """The seen values, and the fixed ends where there are: a seen value beyond a fixed end stretches the scale."""
        if not len(self.raw):
            return 0.0, 0.0
        lo, hi = float(self.raw.min()), float(self.raw.max())
        if self.weigher.minval is not None:
            lo = min(lo, float(self.weigher.minval))
        if self.weigher.maxval is not None:
            hi = max(hi, float(self.weigher.maxval))
        return lo, hi

    def normalised(self, values: t.Any) -> t.Any:
        """0 to 1; 0 for all when they are all equal."""
        if self.lo == self.hi:
            return values * 0.0
        return (values - self.lo) / (self.hi - self.lo)

    def _parts(self) -> Column:
        return self.weigher.multiplier * self.normalised(self.raw)

    def refresh(self) -> None:
        """All numbers anew, from raw."""
        self.lo, self.hi = self._ends()
        self.part = self._parts()

    def change(self, position: int, value: float) -> bool:
        """One host's raw number changed. True when the scale moved, so that every host's part is another."""
        old = self.raw[position]
        self.raw[position] = value
        moved = False
        if (old == self.hi or old == self.lo or value > self.hi or value < self.lo) and value != old:
            ends = self._ends()
            moved = ends != (self.lo, self.hi)
            self.lo, self.hi = ends
        if moved:
            self.part = self._parts()
        else:
            self.part[position] = self.weigher.multiplier * self.normalised(value)
        return moved

    def drop(self, position: int) -> bool:
        """The host leaves. True when the scale moved."""
        self.raw = np.delete(self.raw, position)
        ends = self._ends()
        moved = ends != (self.lo, self.hi)
        self.lo, self.hi = ends
        self.part = self._parts() if moved else np.delete(self.part, position)
        return moved


class Ranking:
    """The hosts that passed (``rows`` of the fleet), best first.

    Equals keep the order that they had before: Nova (since alternates came) hands the sorted list, chosen host first, to
    the next instance's sort, which is stable.
    """

    def __init__(self, fleet: Fleet, spec: RequestSpec, rows: Column, weighers: t.Sequence[Weigher]):
        self.fleet = fleet
        self.spec = spec
        self.weighers = weighers
        self.rows = np.array(rows)
        self.order = np.arange(len(self.rows))  # positions among rows, best first
        self.scales = [Scale(w, w.raw(fleet, spec, self.rows)) for w in weighers] if len(self.rows) else []
        self._moved = True  # a scale moved since the last sort
        self._sort()

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
            score += scale.part
        self.score = score
        keys = -score[self.order]
        if np.any(keys[1:] < keys[:-1]):
            again = np.argsort(keys, kind="stable")
            self.order = self.order[again]
            keys = keys[again]
        self.keys = keys

    def pick(self, index: int = 0) -> int:
        """Take the host at this place of the order to its top, where Nova leaves the chosen one. Returns its row."""
        if index:
            for array in (self.order, self.keys):
                chosen = array[index]
                array[1 : index + 1] = array[:index].copy()
                array[0] = chosen
        return int(self.rows[self.order[0]])

    def _position(self, row: int) -> int | None:
        """Where a row of the fleet stands among ``rows``, which ascend; None when it left."""
        position = int(np.searchsorted(self.rows, row))
        return position if position < len(self.rows) and self.rows[position] == row else None

    def drop(self, row: int) -> None:
        """This host no longer passes. The order is as it was until update()."""
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
        """Only hosts that ``mask`` (as long as ``rows``) lets through stay. The order is as it was until update()."""
        if mask.all():
            return
        new_position = np.cumsum(mask) - 1
        self.order = new_position[self.order[mask[self.order]]]
        self.rows = self.rows[mask]
        for scale in self.scales:
            scale.raw = scale.raw[mask]
            scale.refresh()
        self._moved = True

    def update(self, row: int) -> None:
        """Put the hosts in order again, after the one picked last (``row``, at the top if it did not leave) was taken from."""
        position = self._position(row)
        for scale in self.scales:
            if not scale.weigher.per_host:
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
        """Move the host at the top to its place by its new score: after the better ones, before its equals."""
        score = 0.0
        for scale in self.scales:
            score += scale.part[position]
        self.score[position] = score
        place = int(np.searchsorted(self.keys[1:], -score, side="left"))
        self.order[:place] = self.order[1 : place + 1].copy()
        self.keys[:place] = self.keys[1 : place + 1].copy()
        self.order[place] = position
        self.keys[place] = -score
