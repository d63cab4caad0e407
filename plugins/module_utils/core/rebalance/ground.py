# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The fleet as guests move: a migration is entered only if all filters accept it at that moment, and each machine that could be lost still can be."""

from __future__ import annotations

import typing as t

from ..scheduler.columns import Column, Fleet, np
from ..scheduler.options import SchedulerOptions
from .evenness import Evenness
from .plan_data import Aims, Guest
from .rules import Rules, light
from .spare_room import SpareRoom

N_PLUS_1 = "N+1"  # in place of the name of a filter


class Ground:
    """Guests on a fleet, which is changed by what is entered.

    ``positions``: row -> its place among the hosts that are compared (``rows``), which are the ones that guests may leave and come to.

    :raises InvalidInput: unknown filters or weighers.
    """

    def __init__(self, fleet: Fleet, guests: t.Sequence[Guest], options: SchedulerOptions, aims: Aims):
        self.fleet = fleet
        rows_by_place = {fleet.place(row)[:2]: row for row in range(len(fleet))}
        self.guests = [g for g in guests if (g.host, g.node) in rows_by_place]
        self.row_of = [rows_by_place[g.host, g.node] for g in self.guests]
        self.index = {g.uuid: number for number, g in enumerate(self.guests)}
        self.rules = Rules(fleet, options)
        self.kinds = [self.rules.kind(g.spec) for g in self.guests]
        self.kept_hosts = kept_hosts(fleet, aims.kept_hosts)
        is_kept = np.array([fleet.place(row)[0] in self.kept_hosts for row in range(len(fleet))], dtype=bool)
        self.rows = np.flatnonzero(~is_kept)
        self.positions = {int(row): position for position, row in enumerate(self.rows)}
        self.spare = SpareRoom(self.rules, options, self.guests, self.kinds, self.row_of)

    def evenness(self) -> Evenness:
        """The numbers of the hosts that are compared, as they are now."""
        return Evenness(self.fleet, self.rules.weighers, self.rows)

    def is_movable(self, guest: int) -> bool:
        return self.guests[guest].stays is None and self.row_of[guest] in self.positions

    def refusal(self, guest: int, row: int) -> str | None:
        """Enter a migration, or return the name of the filter that refuses it (or N_PLUS_1), with nothing entered."""
        this, source = self.guests[guest], self.row_of[guest]
        host = self.fleet.place(row)[0]
        if row == source or row not in self.positions or host in this.barred:
            return "host %s" % host
        lighter = light(this.spec)
        self.fleet.consume(source, lighter, -1)
        refused = self.rules.refusal(self.kinds[guest], this.spec, row)
        if refused is None:
            self.rules.consume(this.spec, row)
            self.row_of[guest] = row
            if self.spare.accept(guest, source, row):
                return None
            self.row_of[guest] = source
            self.fleet.consume(row, this.spec, -1)
            refused = N_PLUS_1
        self.fleet.consume(source, lighter)
        return refused

    def undo(self, guest: int, source: int) -> None:
        """Take the migration that was entered last back."""
        row, this = self.row_of[guest], self.guests[guest]
        self.fleet.consume(row, this.spec, -1)
        self.fleet.consume(source, light(this.spec))
        self.row_of[guest] = source
        self.spare.undo(guest, source, row)

    def why(self, guest: int, row: int) -> str:
        """Return why refusal() refuses a host, in words; "" if N+1 does."""
        this, source = self.guests[guest], self.row_of[guest]
        self.fleet.consume(source, light(this.spec), -1)
        try:
            return self.rules.why(self.kinds[guest], this.spec, row)
        finally:
            self.fleet.consume(source, light(this.spec))

    def barred_mask(self, guest: int) -> Column:
        """Return the positions to which the guest cannot go, whatever the filters say."""
        barred = self.guests[guest].barred
        return np.array([self.fleet.place(int(row))[0] in barred for row in self.rows], dtype=bool)


def kept_hosts(fleet: Fleet, chosen: t.Mapping[str, str]) -> dict[str, str]:
    """Return host -> why nothing leaves it and nothing comes: the chosen ones, and hosts that cannot be compared."""
    reasons: dict[str, str] = {}
    for row in range(len(fleet)):
        host = fleet.place(row)[0]
        state = fleet.hosts[row]
        if host in chosen:
            reasons[host] = chosen[host]
        elif state.forced_down:
            reasons[host] = "it is down"
        elif state.disabled:
            reasons[host] = "it is disabled"
        elif len(fleet.names_of(host)) > 1:
            reasons[host] = "its machine has several names"
    return dict(sorted(reasons.items()))
