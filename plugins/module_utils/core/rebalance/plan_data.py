# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The guests of a fleet, and a plan of live migrations: plain data."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field

from ..amounts import MIB
from ..scheduler.request_spec import RequestSpec

SPREAD, PACK = POLICIES = ("spread", "pack")

SMALLEST = 1e-6  # points of the score that count

#: Why a plan ends where it does.
EVEN, MOVES, NO_GAIN = "even", "moves", "no gain"


@dataclass(frozen=True)
class Guest:
    """An instance on its host.

    spec: its request alone, as for another host. barred: hosts that cannot be its destination. disk_bytes: of local disks that a live migration copies.
    stays: why it is not migrated; None: it can be.
    """

    uuid: str
    name: str
    host: str
    node: str
    spec: RequestSpec
    barred: frozenset[str] = frozenset()
    disk_bytes: int = 0
    stays: str | None = None

    @property
    def cost(self) -> int:
        """Bytes that its migration copies at least."""
        return self.spec.flavor.memory_mb * MIB + self.disk_bytes


@dataclass(frozen=True)
class Aims:
    """The limits of a plan. moves: the most steps; None: no limit. least_gain and tolerance: in points of the score."""

    policy: str = SPREAD
    moves: int | None = None
    least_gain: float = 0.0
    tolerance: float = 0.0
    kept_hosts: t.Mapping[str, str] = field(default_factory=dict)  # nothing leaves them, and nothing comes: host -> why


@dataclass(frozen=True)
class Step:
    """One live migration. before and after: the score."""

    uuid: str
    name: str
    source: str
    destination: str
    memory_bytes: int
    disk_bytes: int
    before: float
    after: float

    @property
    def gain(self) -> float:
        return self.before - self.after

    @property
    def cost(self) -> int:
        return self.memory_bytes + self.disk_bytes


@dataclass(frozen=True)
class Plan:
    """Steps in their order. spare_before and spare_after: the number of hosts whose guests would fit on the other hosts."""

    steps: t.Sequence[Step]
    before: float
    after: float
    ended: str
    hosts: int = 0  # that the score is about
    spare_before: int = 0
    spare_after: int = 0
    counted: t.Sequence[str] = ()  # weighers of the score
    kept_hosts: t.Mapping[str, str] = field(default_factory=dict)  # host that is left alone -> why

    @property
    def cost(self) -> int:
        return sum(step.cost for step in self.steps)


def waits_for(steps: t.Sequence[Step]) -> list[list[int]]:
    """Return for each step the earlier ones that make room for it: guests that leave its destination."""
    earlier: dict[str, list[int]] = {}
    needed = []
    for number, step in enumerate(steps):
        needed.append(list(earlier.get(step.destination, ())))
        earlier.setdefault(step.source, []).append(number)
    return needed


def first_round(steps: t.Sequence[Step], at_once: t.Mapping[str, int]) -> list[Step]:
    """Return the first steps that can be done together: none waits for another one, and no host sends more than it does at once.

    :arg at_once: host -> guests that leave it at the same time; 1 for a host that is not in it
    """
    first: list[Step] = []
    leaving: dict[str, int] = {}
    for step in steps:
        if step.destination in leaving or leaving.get(step.source, 0) >= at_once.get(step.source, 1):
            break
        leaving[step.source] = leaving.get(step.source, 0) + 1
        first.append(step)
    return first


def rounds(steps: t.Sequence[Step], at_once: t.Mapping[str, int]) -> list[list[Step]]:
    """Return all rounds, one after the other, if each step goes well."""
    remaining, planned = list(steps), []
    while remaining:
        planned.append(first_round(remaining, at_once))
        remaining = remaining[len(planned[-1]) :]
    return planned


def without_dependents(steps: t.Sequence[Step], failed: t.Collection[str]) -> tuple[list[Step], list[Step]]:
    """Return (the steps that can still be done, the ones that wait for a step that failed). :arg failed: uuids of steps"""
    undone = set(failed)
    possible, dependents = [], []
    for step, needed in zip(steps, waits_for(steps)):
        if step.uuid in failed:
            continue
        if any(steps[number].uuid in undone for number in needed):
            undone.add(step.uuid)
            dependents.append(step)
        else:
            possible.append(step)
    return possible, dependents
