# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How even a fleet is, by the weighers in use: a score, and the gain of each migration, computed from what changes."""

from __future__ import annotations

import typing as t

from ..errors import InvalidInput
from ..scheduler.columns import Column, Fleet, np
from ..scheduler.request_spec import RequestSpec
from ..scheduler.weighers.base import Weigher
from ..scheduler.weighers.cpu import CPUWeigher
from ..scheduler.weighers.disk import DiskWeigher
from ..scheduler.weighers.ram import RAMWeigher

#: Weigher -> (its number of an empty host, what an instance takes of that number).
_AMOUNTS: t.Mapping[str, tuple[t.Callable[[Fleet], Column], t.Callable[[RequestSpec], float]]] = {
    RAMWeigher.name: (lambda fleet: fleet.total_ram_mb * 1.0, lambda spec: float(spec.memory_mb)),
    CPUWeigher.name: (lambda fleet: fleet.vcpus_total * fleet.cpu_allocation_ratio, lambda spec: float(spec.vcpus)),
    DiskWeigher.name: (lambda fleet: fleet.total_disk_mb * 1.0, lambda spec: 1024.0 * spec.disk_gb),
}
_NOTHING = RequestSpec([], None)  # type: ignore[arg-type]  # weighers of amounts do not read the request


def counted_weighers(fleet: Fleet, weighers: t.Sequence[Weigher]) -> list[Weigher]:
    """Return the weighers that a migration changes: of free memory, vCPUs and disk, with a multiplier above 0. Free disk does not count where hosts have
    their disks in a pool, which is as full wherever its guests run.
    """
    names = set(_AMOUNTS) - ({DiskWeigher.name} if fleet.has_pools else set())
    return [w for w in weighers if w.name in names and w.multiplier > 0]


class Evenness:
    """The numbers of the weighers on hosts, as shares of a mean host.

    The score is the standard deviation of a host from the others in percent of a mean host, as the mean of the weighers by their multipliers.

    :arg rows: of the fleet: the hosts that are compared
    :raises InvalidInput: no weigher counts.
    """

    def __init__(self, fleet: Fleet, weighers: t.Sequence[Weigher], rows: Column):
        chosen = counted_weighers(fleet, weighers)
        scales = {w.name: float(_AMOUNTS[w.name][0](fleet)[rows].mean()) if len(rows) else 0.0 for w in chosen}
        chosen = [w for w in chosen if scales[w.name] > 0]
        if not chosen and len(rows):
            raise InvalidInput(
                reason="no weigher in use prefers hosts with more free memory, vCPUs or disk, by which a fleet could be even",
                remedy="Set bootflow_rebalance_policy: pack, or give one of %s a multiplier above 0."
                % ", ".join(_AMOUNTS),
            )
        self.names = [w.name for w in chosen]
        self._scales = np.array([scales[name] for name in self.names])
        self._of_spec = [_AMOUNTS[name][1] for name in self.names]
        multipliers = np.array([float(w.multiplier) for w in chosen])
        self._shares = multipliers / multipliers.sum() if chosen else multipliers
        raw = [w.raw(fleet, _NOTHING, rows) for w in chosen]
        self.numbers = np.array(raw).T / self._scales if len(rows) else np.zeros((0, len(chosen)))
        self._refresh()

    def _refresh(self) -> None:
        """Compute the sums of squares from the numbers."""
        count = len(self.numbers)
        self.squares = ((self.numbers - self.numbers.mean(axis=0)) ** 2).sum(axis=0) if count else np.zeros(0)

    def amounts(self, spec: RequestSpec) -> Column:
        """Return the shares of a mean host that an instance takes, one for each weigher."""
        return np.array([amount(spec) for amount in self._of_spec]) / self._scales

    @property
    def score(self) -> float:
        return float(self.scores(self.squares))

    def scores(self, squares: Column) -> Column:
        """Return the scores of fleets with these sums of squares, whose last axis has the weighers."""
        if not len(self.numbers):
            return np.zeros(np.shape(squares)[:-1])
        deviations = np.sqrt(np.maximum(squares, 0.0) / len(self.numbers))
        return 100.0 * (deviations * self._shares).sum(axis=-1)

    def squares_after(self, amounts: Column, sources: Column, destinations: Column) -> Column:
        """Return the sums of squares after a migration, for arrays of positions and amounts of one shape, with the weighers as the last axis."""
        change = 2.0 * amounts * (self.numbers[sources] - self.numbers[destinations] + amounts)
        return self.squares + change

    def weights(self, amounts: Column) -> Column:
        """Return for kinds of guests how much each host would be missed: the linear part of the gain. Kinds by weighers in, kinds by hosts out."""
        deviations = np.sqrt(np.maximum(self.squares, 1e-12) / max(len(self.numbers), 1))
        return (amounts * (self._shares / deviations)) @ self.numbers.T

    def move(self, amounts: Column, source: int, destination: int) -> None:
        """Enter a migration. :arg source: and destination: positions among the rows"""
        self.numbers[source] += amounts
        self.numbers[destination] -= amounts
        self._refresh()  # exactly: small errors would add up
