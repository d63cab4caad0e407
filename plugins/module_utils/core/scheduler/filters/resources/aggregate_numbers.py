# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Numbers that aggregates set for their hosts."""

from __future__ import annotations

import typing as t

from ...columns import Column, Fleet, np
from ...memberships import aggregate_groups


class AggregateNumber:
    """A metadata key of aggregates as a column: the minimum over the aggregates of a host, or the host's own value."""

    def __init__(self, key: str, cast: t.Callable[[str], float] = float):
        self.key = key
        self.cast = cast
        self._made: tuple[Fleet, Column] | None = None  # aggregates stay the same within a request

    def column(self, fleet: Fleet, own: Column) -> Column:
        """One number for each host of the fleet. ``own``: a column, or one number for all."""
        if self._made is None or self._made[0] is not fleet:
            groups = aggregate_groups(fleet)
            least = [membership.minimum(self.key, self.cast) for membership in groups.values]
            given = np.array([number is not None for number in least], dtype=bool)
            numbers = np.array([0 if number is None else number for number in least], dtype=np.float64)
            self._made = (fleet, np.where(given[groups.codes], numbers[groups.codes], own))
        return self._made[1]
