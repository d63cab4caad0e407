# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The migrations that empty the most hosts.

One host after the other is emptied, the one with the least to copy first: each of its guests goes to the fullest host that takes it. A host whose guests
cannot all go keeps all of them.

The score is the number of hosts in use, where a host that is being emptied counts by the part of its guests that it still has.
"""

from __future__ import annotations

from ..scheduler.columns import Column, np
from .ground import Ground
from .plan_data import MOVES, NO_GAIN, Aims, Step
from .spread import step_of


class Packing:
    """The steps for one fleet."""

    def __init__(self, ground: Ground, aims: Aims):
        self.ground = ground
        self._aims = aims
        self._on: dict[int, list[int]] = {position: [] for position in ground.positions.values()}
        for guest, row in enumerate(ground.row_of):
            if row in ground.positions:
                self._on[ground.positions[row]].append(guest)
        self._settled: set[int] = set()  # hosts that got a guest, which stays
        self._steps: list[Step] = []
        self._ended = NO_GAIN

    @property
    def in_use(self) -> int:
        """The number of hosts with guests."""
        return sum(1 for guests in self._on.values() if guests)

    def steps(self) -> tuple[list[Step], Ground, str]:
        """Return the steps, the ground after them, and why they end."""
        for position in sorted(self._on, key=self._effort):
            guests = self._on[position]
            if not guests or position in self._settled or not all(self.ground.is_movable(g) for g in guests):
                continue
            if 1.0 / len(guests) < self._aims.least_gain:
                continue
            if self._aims.moves is not None and len(self._steps) + len(guests) > self._aims.moves:
                self._ended = MOVES
                continue
            self._empty(position)
        return self._steps, self.ground, self._ended

    def _effort(self, position: int) -> tuple[int, int, int]:
        guests = self._on[position]
        return sum(self.ground.guests[g].cost for g in guests), len(guests), position

    def _empty(self, position: int) -> None:
        """Have all guests of a host leave, or none."""
        ground = self.ground
        guests = sorted(self._on[position], key=self._size)
        used = float(self.in_use)
        moves: list[tuple[int, int]] = []
        for guest in guests:
            destination = self._destination(guest, position)
            if destination is None:
                for moved, _destination in reversed(moves):
                    ground.undo(moved, int(ground.rows[position]))
                return
            moves.append((guest, destination))
        for number, (guest, destination) in enumerate(moves):
            scores = used - number / len(moves), used - (number + 1) / len(moves)
            self._steps.append(step_of(ground, guest, position, destination, *scores))
            self._on[position].remove(guest)
            self._on[destination].append(guest)
            self._settled.add(destination)

    def _size(self, guest: int) -> tuple[int, int, int, str]:
        this = self.ground.guests[guest]
        return -this.spec.memory_mb, -this.spec.vcpus, -this.spec.disk_gb, this.uuid

    def _destination(self, guest: int, source: int) -> int | None:
        """Move a guest to the fullest host in use that takes it. Returns its position."""
        ground = self.ground
        this = ground.guests[guest]
        usable = ground.rules.steady(ground.kinds[guest])[ground.rows] & ~ground.barred_mask(guest)
        usable &= np.array([bool(self._on[p]) and p != source for p in range(len(ground.rows))], dtype=bool)
        room = ground.rules.room()[ground.rows]
        usable &= (room[:, (0, 2)] >= (this.spec.memory_mb, this.spec.vcpus)).all(axis=1)
        for position in np.argsort(_free(ground), kind="stable").tolist():
            if usable[position] and ground.refusal(guest, int(ground.rows[position])) is None:
                return int(position)
        return None


def _free(ground: Ground) -> Column:
    """Return how empty each host is: its shares of free memory and vCPUs."""
    fleet, rows = ground.fleet, ground.rows
    memory = fleet.free_ram_mb[rows] / np.maximum(fleet.total_ram_mb[rows], 1)
    limit = np.maximum(fleet.vcpus_total[rows] * fleet.cpu_allocation_ratio[rows], 1)
    return memory + (limit - fleet.vcpus_used[rows]) / limit
