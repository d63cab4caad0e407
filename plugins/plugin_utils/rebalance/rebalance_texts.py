# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Lines about a rebalance for the person at the terminal."""

from __future__ import annotations

import typing as t

from ...module_utils.core.amounts import MIB, counted, memory
from ...module_utils.core.rebalance.plan_data import EVEN, MOVES, PACK, Plan, Step
from ..run import tables

HEAD = ("STEP", "INSTANCE", "FROM", "TO", "COPIES", "SCORE", "GAIN")
SHOWN = 20  # instances that stay, hosts that are left alone


def copied(size: int) -> str:
    """Return bytes in words."""
    return memory(size / MIB)


def step_data(step: Step) -> dict[str, t.Any]:
    """Return a step as plain data of a result."""
    return {
        "name": step.name,
        "uuid": step.uuid,
        "source": step.source,
        "destination": step.destination,
        "memory_bytes": step.memory_bytes,
        "disk_bytes": step.disk_bytes,
        "score_before": round(step.before, 4),
        "score_after": round(step.after, 4),
    }


def plan_lines(
    plan: Plan,
    options: t.Mapping[str, t.Any],
    stays: t.Sequence[tuple[str, str, str, str]],
    rounds: int,
    is_rehearsed: bool,
) -> list[str]:
    """Return the lines of a plan. :arg stays: (name, uuid, host, why) of instances that are not migrated"""
    title = "Plan of a rebalance (%s, nothing is touched):" if is_rehearsed else "Plan of a rebalance (%s):"
    lines = [title % options["policy"]]
    if plan.steps:
        rows = [
            (n, s.name, s.source, s.destination, copied(s.cost), "%.2f -> %.2f" % (s.before, s.after), "%.2f" % s.gain)
            for n, s in enumerate(plan.steps, 1)
        ]
        lines += tables.table(HEAD, rows)
    lines += _limited(["! %s stays on %s: %s" % (name, host, why) for name, _uuid, host, why in stays], "instances")
    lines += _limited(["! %s is left alone: %s" % item for item in plan.kept_hosts.items()], "hosts")
    lines.append(totals(plan, options, rounds))
    lines.append(
        "N+1: the guests of %d hosts would fit on the others%s."
        % (plan.spare_before, "" if not plan.steps else ", of %d afterwards" % plan.spare_after)
    )
    return lines


def _limited(lines: t.Sequence[str], what: str) -> list[str]:
    shown = list(lines[:SHOWN])
    if len(lines) > SHOWN:
        shown.append("! and %d more %s" % (len(lines) - SHOWN, what))
    return shown


def totals(plan: Plan, options: t.Mapping[str, t.Any], rounds: int) -> str:
    """Return what the plan comes to."""
    is_pack = options["policy"] == PACK
    if not plan.steps:
        if is_pack:
            return "Nothing to do: %d hosts are in use, and none can be emptied." % plan.before
        if plan.ended == EVEN:
            return "Nothing to do: the fleet is even, its score of %.2f is not above %.2f." % (
                plan.before,
                options["tolerance"],
            )
        return "Nothing to do: no live migration makes the score of %.2f better." % plan.before
    done = "%s in %s, %s to copy" % (
        counted(len(plan.steps), "live migrations"),
        counted(rounds, "rounds"),
        copied(plan.cost),
    )
    if is_pack:
        text = "%s; %d hosts in use, %d afterwards." % (done, plan.before, plan.after)
    else:
        text = "%s; score %.2f, %.2f afterwards." % (done, plan.before, plan.after)
    return text + (" More would need more than %d moves." % options["moves"] if plan.ended == MOVES else "")


def round_line(number: int, steps: t.Sequence[Step]) -> str:
    """Return what is printed when a round begins."""
    return "Round %d: %s" % (number, ", ".join("%s to %s" % (s.name, s.destination) for s in steps))


def end_lines(done: t.Sequence[Step], plan: Plan, after: float, problems: t.Mapping[str, str]) -> list[str]:
    """Return the lines after the last round. :arg after: the score then"""
    if not plan.steps:
        return []
    names = {step.uuid: step for step in plan.steps}
    lines = ["! %s stays on %s: %s" % (names[u].name, names[u].source, why) for u, why in problems.items()]
    score = "score %.2f, was %.2f" % (after, plan.before)
    return [*lines, "rebalance: %d of %s done; %s." % (len(done), counted(len(plan.steps), "live migrations"), score)]
