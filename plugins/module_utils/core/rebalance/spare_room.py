# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""N+1 as guests move: for each machine that could be lost, a place for each of its guests on the others.

Such places are kept, and only the ones that a migration touches are looked for again. Guests whose filters only compare numbers are placed by columns,
others as core.scheduler.spare does it.
"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field

from ..scheduler.columns import Column, np
from ..scheduler.options import SchedulerOptions
from ..scheduler.spare import hosts_that_can_be_lost
from .plan_data import Guest
from .rules import Rules

_NO_NEED = np.zeros(3)


@dataclass
class Refuge:
    """Where the guests of a machine go when it is lost. places: guest -> row; reserved: row -> what they need there."""

    rows: list[int]
    holds: bool = False
    is_plain: bool = True
    places: dict[int, int] = field(default_factory=dict)
    reserved: dict[int, Column] = field(default_factory=dict)

    def copy(self) -> Refuge:
        reserved = {row: need.copy() for row, need in self.reserved.items()}
        return Refuge(self.rows, self.holds, self.is_plain, dict(self.places), reserved)


class SpareRoom:
    """The refuges of all machines of a fleet.

    :arg kinds: kind of each guest, see Rules. :arg rows: where each guest is now; the caller keeps it up to date, and the fleet of ``rules``
    """

    def __init__(
        self,
        rules: Rules,
        options: SchedulerOptions,
        guests: t.Sequence[Guest],
        kinds: t.Sequence[int],
        rows: list[int],
    ):
        self._rules = rules
        self._options = options
        self._guests = guests
        self._kinds = kinds
        self._rows = rows
        fleet = rules.fleet
        machines: dict[str, int] = {}
        self._machine_of = [machines.setdefault(name, len(machines)) for name in fleet.machine_names()]
        self.refuges = [Refuge([]) for _machine in machines]
        for row, machine in enumerate(self._machine_of):
            self.refuges[machine].rows.append(row)
        self._guests_on: list[set[int]] = [set() for _machine in machines]
        for guest, row in enumerate(rows):
            self._guests_on[self._machine_of[row]].add(guest)
        self._places_on: dict[int, set[int]] = {}  # row -> machines whose guests have places there
        self._needs: dict[int, Column] = {}
        self._accepted: list[dict[int, Refuge]] = []  # of each migration: the refuges before it
        for machine in range(len(self.refuges)):
            self._look_for_places(machine)

    @property
    def count(self) -> int:
        """The number of hosts that can be lost."""
        return sum(len(refuge.rows) for refuge in self.refuges if refuge.holds)

    # --- a migration --------------------------------------------------------------------------------------------------

    def accept(self, guest: int, source: int, destination: int) -> bool:
        """Enter a migration, after the fleet and the rows have it. Returns False, with nothing entered, if a machine could not be lost any more."""
        leaves, gets = self._machine_of[source], self._machine_of[destination]
        touched = set(self._places_on.get(destination, ())) | {leaves, gets}
        touched |= {m for m in self._places_on.get(source, ()) if not self.refuges[m].is_plain}
        before = {m: self.refuges[m].copy() for m in sorted(touched)}
        self._guests_on[leaves].discard(guest)
        self._guests_on[gets].add(guest)
        for machine in before:
            if before[machine].holds and not self._still_holds(machine, guest, destination):
                self._guests_on[gets].discard(guest)
                self._guests_on[leaves].add(guest)
                for changed, refuge in before.items():
                    self._put(changed, refuge)
                return False
        self._accepted.append(before)
        return True

    def undo(self, guest: int, source: int, destination: int) -> None:
        """Take the migration that was accepted last back."""
        self._guests_on[self._machine_of[destination]].discard(guest)
        self._guests_on[self._machine_of[source]].add(guest)
        for machine, refuge in self._accepted.pop().items():
            self._put(machine, refuge)

    def recount(self) -> int:
        """Look again at machines that could not be lost before. Returns count."""
        for machine, refuge in enumerate(self.refuges):
            if not refuge.holds:
                self._look_for_places(machine)
        return self.count

    def _still_holds(self, machine: int, guest: int, destination: int) -> bool:
        refuge = self.refuges[machine]
        if not refuge.is_plain or not self._rules.is_plain(self._kinds[guest]):
            self._look_for_places(machine)
            return self.refuges[machine].holds
        displaced = [g for g, row in refuge.places.items() if row == destination]
        fits = not displaced or self._fits(refuge, destination)
        again = [] if fits else displaced
        if guest in refuge.places and guest not in self._guests_on[machine]:
            self._release(machine, guest)
            again = [g for g in again if g != guest]
        elif guest in self._guests_on[machine] and guest not in refuge.places:
            again = [*again, guest]
        if not again:
            return True
        for other in again:
            if other in refuge.places:
                self._release(machine, other)
        if all(self._place(machine, other) for other in sorted(again, key=self._size)):
            return True
        self._look_for_places(machine)
        return self.refuges[machine].holds

    def _fits(self, refuge: Refuge, row: int) -> bool:
        need = refuge.reserved.get(row, _NO_NEED)
        return all(room >= amount for room, amount in zip(self._rules.room_of(row), need.tolist()))

    # --- places -------------------------------------------------------------------------------------------------------

    def _put(self, machine: int, refuge: Refuge) -> None:
        for row in set(self.refuges[machine].places.values()):
            self._places_on[row].discard(machine)
        self.refuges[machine] = refuge
        for row in set(refuge.places.values()):
            self._places_on.setdefault(row, set()).add(machine)

    def _size(self, guest: int) -> tuple[int, int, int, str]:
        """The order in which guests are placed: the largest first."""
        spec = self._guests[guest].spec
        return -spec.memory_mb, -spec.vcpus, -spec.disk_gb, self._guests[guest].uuid

    def _need(self, guest: int) -> Column:
        """Memory and disk in MiB and vCPUs that the guest needs on another host."""
        kind = self._kinds[guest]
        if kind not in self._needs:
            spec = self._guests[guest].spec
            self._needs[kind] = np.array([spec.memory_mb, spec.disk_mb, spec.vcpus], dtype=np.float64)
        return self._needs[kind]

    def _look_for_places(self, machine: int) -> None:
        """Look for the places of all guests of a machine."""
        rows = self.refuges[machine].rows
        guests = sorted(self._guests_on[machine], key=self._size)
        is_plain = not self._rules.fleet.has_pools and all(self._rules.is_plain(self._kinds[g]) for g in guests)
        self._put(machine, Refuge(rows, True, is_plain))
        if is_plain and (self._place_all(machine, guests) or not self._could_fit(machine, guests)):
            return
        self._put(machine, self._as_scheduled(machine, guests, is_plain))

    def _place_all(self, machine: int, guests: t.Sequence[int]) -> bool:
        """Place guests by columns. Returns whether all have a place; if not, the machine cannot be lost."""
        room = self._rules.room()
        room[self.refuges[machine].rows] = -1.0
        for guest in guests:
            best = self._best(room, guest)
            if best is None:
                self._put(machine, Refuge(self.refuges[machine].rows))
                return False
            room[best] -= self._need(guest)
            self._reserve(machine, guest, best)
        return True

    def _place(self, machine: int, guest: int) -> bool:
        """Place one guest more. Returns whether it has a place."""
        refuge = self.refuges[machine]
        room = self._rules.room()
        room[refuge.rows] = -1.0
        for row, need in refuge.reserved.items():
            room[row] -= need
        best = self._best(room, guest)
        if best is not None:
            self._reserve(machine, guest, best)
        return best is not None

    def _best(self, room: Column, guest: int) -> int | None:
        """Return the host with the most memory among the ones with room."""
        mask = self._rules.steady(self._kinds[guest]) & (room >= self._need(guest)).all(axis=1)
        if not mask.any():
            return None
        return int(np.where(mask, room[:, 0], -np.inf).argmax())

    def _reserve(self, machine: int, guest: int, row: int) -> None:
        refuge = self.refuges[machine]
        refuge.places[guest] = row
        refuge.reserved[row] = refuge.reserved.get(row, _NO_NEED) + self._need(guest)
        self._places_on.setdefault(row, set()).add(machine)

    def _release(self, machine: int, guest: int) -> None:
        refuge = self.refuges[machine]
        row = refuge.places.pop(guest)
        refuge.reserved[row] = refuge.reserved[row] - self._need(guest)
        if row not in refuge.places.values():
            del refuge.reserved[row]
            self._places_on[row].discard(machine)

    def _could_fit(self, machine: int, guests: t.Sequence[int]) -> bool:
        """Return False if the other hosts together have not what the guests need."""
        room = np.maximum(self._rules.room(), 0.0)
        room[self.refuges[machine].rows] = 0.0
        usable = np.zeros(len(room), dtype=bool)
        for kind in {self._kinds[g] for g in guests}:
            usable |= self._rules.steady(kind)
        needed = sum((self._need(g) for g in guests), _NO_NEED)
        return bool((room[usable].sum(axis=0) >= needed).all())

    def _as_scheduled(self, machine: int, guests: t.Sequence[int], is_plain: bool) -> Refuge:
        """Place guests as the scheduler would."""
        fleet = self._rules.fleet
        rows = self.refuges[machine].rows
        hosts = [fleet.place(row)[0] for row in rows]
        specs = [self._guests[g].spec for g in guests]
        (answer, *_others) = hosts_that_can_be_lost(fleet, {hosts[0]: specs}, self._options, hosts[:1])
        refuge = Refuge(rows, bool(answer["fits"]), is_plain)
        if refuge.holds:
            places = {fleet.place(row)[:2]: row for row in range(len(fleet))}
            by_uuid = {self._guests[g].uuid: g for g in guests}
            for moved in answer["moved"]:
                guest, row = by_uuid[moved["instance_uuid"]], places[moved["host"], moved["node"]]
                refuge.places[guest] = row
                refuge.reserved[row] = refuge.reserved.get(row, _NO_NEED) + self._need(guest)
        return refuge
