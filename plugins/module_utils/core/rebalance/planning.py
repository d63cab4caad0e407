# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A plan of live migrations for a fleet, and the judgement of its steps when they are due."""

from __future__ import annotations

import typing as t

from ..scheduler.columns import Fleet
from ..scheduler.options import SchedulerOptions
from .ground import N_PLUS_1, Ground
from .pack import Packing
from .plan_data import EVEN, PACK, SMALLEST, Aims, Guest, Plan, Step
from .spread import Spread

ReadFleet = t.Callable[[], Fleet]  # the fleet as it is, each time an independent one


def make_plan(read: ReadFleet, guests: t.Sequence[Guest], options: SchedulerOptions, aims: Aims) -> Plan:
    """Return the fewest migrations that make a fleet even, or that empty the most hosts. The same fleet gives the same plan.

    Each step passes all enabled filters on the fleet as the steps before it leave it, and has a gain; a host whose guests fit on the others at the
    beginning is such a host after each step.

    :raises InvalidInput: unknown filters or weighers; no weigher by which a fleet could be even.
    """
    ground = Ground(read(), guests, options, aims)
    alone, spare = ground.kept_hosts, ground.spare.count
    if aims.policy == PACK:
        packing = Packing(ground, aims)
        before, names = float(packing.in_use), []
        steps, ground, ended = packing.steps()
        after = float(packing.in_use)
    else:
        evenness = ground.evenness()
        before, names = evenness.score, evenness.names
        if before <= aims.tolerance + SMALLEST or len(ground.rows) < 2:
            return Plan([], before, before, EVEN, len(ground.rows), spare, spare, names, alone)
        steps, ground, ended = Spread(lambda: Ground(read(), guests, options, aims), aims).steps()
        after = steps[-1].after if steps else before
    spare_after = ground.spare.recount() if steps else spare
    return Plan(steps, before, after, ended, len(ground.rows), spare, spare_after, names, alone)


def score_of(fleet: Fleet, guests: t.Sequence[Guest], options: SchedulerOptions, aims: Aims) -> float:
    """Return the score of a fleet as it is. :raises InvalidInput: see make_plan()"""
    ground = Ground(fleet, guests, options, aims)
    return float(Packing(ground, aims).in_use) if aims.policy == PACK else ground.evenness().score


def judge(
    fleet: Fleet, guests: t.Sequence[Guest], options: SchedulerOptions, aims: Aims, steps: t.Sequence[Step]
) -> dict[str, str]:
    """Return why steps are not possible any more, on the fleet as it is now and after the steps before them: uuid -> reason."""
    ground = Ground(fleet, guests, options, aims)
    rows = {fleet.place(row)[0]: row for row in ground.positions}
    refused: dict[str, str] = {}
    for step in steps:
        guest, row = ground.index.get(step.uuid), rows.get(step.destination)
        if guest is None or ground.guests[guest].host != step.source:
            refused[step.uuid] = "it is not on %s any more" % step.source
        elif ground.guests[guest].stays is not None:
            refused[step.uuid] = str(ground.guests[guest].stays)
        elif row is None or not ground.is_movable(guest):
            host = step.destination if row is None else step.source
            refused[step.uuid] = "host %s: %s" % (host, ground.kept_hosts.get(host, "it is not in the fleet"))
        else:
            by = ground.refusal(guest, row)
            if by == N_PLUS_1:
                refused[step.uuid] = "guests of a host that can be lost would not fit on the others any more (N+1)"
            elif by is not None:
                refused[step.uuid] = ground.why(guest, row) or by
    return refused
