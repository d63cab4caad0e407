# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Explanation of a volume's destination: the decision as plain data, and as lines for people."""

from __future__ import annotations

import math
import typing as t

from ...errors import BootflowError
from ...scheduler.columns import Column, np
from ...scheduler.filters.base import FilterResult
from ...scheduler.weighing import Ranking
from ..model import PoolState, VolumeRequest
from .backends import Backends
from .base import BackendFilter


def explain(
    backends: Backends,
    request: VolumeRequest,
    filters: t.Sequence[BackendFilter],
    candidates: Column,
    why_out: t.Callable[[PoolState], str],
    ranking: Ranking,
    order: t.Sequence[int],
) -> dict[str, t.Any]:
    """One decision over the backends as they are, before anything is taken from the chosen one.

    Returns {volume_id, size, chosen: host|None, filters: [{name, start, end}], backends}. A backend is {host, passed,
    rejected_by: {filter, reason, available, needed, unit}|None, filters: [{name, passed, available, needed, unit, reason}],
    rank: 1 is the best|None, weight, weighers: [{name, raw, normalised, multiplier, score}]}; those that may take the volume
    come first, best first. ``filters`` of a backend has the verdicts of all filters, also of those not reached.
    """
    entries = {row: _entry(state) for row, state in enumerate(backends.states)}
    for row in set(entries) - {int(r) for r in candidates}:
        entries[row]["rejected_by"] = _refusal("", why_out(backends.states[row]))
    counts = []
    alive = np.ones(len(candidates), dtype=bool)
    for filter_ in filters:
        start = int(alive.sum())
        try:
            result = filter_.judge(backends, request, candidates)
        except BootflowError as e:
            for row in candidates.tolist():
                entries[row]["filters"].append(
                    {**_numbers(None, 0), "name": filter_.name, "passed": None, "reason": e.message}
                )
            continue
        for position, row in enumerate(candidates.tolist()):
            passed = bool(result.mask[position])
            reason = "" if passed or result.text is None else result.text(position)
            verdict = {"name": filter_.name, "passed": passed, "reason": reason, **_numbers(result, position)}
            entries[row]["filters"].append(verdict)
            if alive[position] and not passed:
                entries[row]["rejected_by"] = {
                    "filter": filter_.name,
                    "reason": reason,
                    **_numbers(result, position),
                }
        alive &= np.asarray(result.mask, dtype=bool)
        counts.append({"name": filter_.name, "start": start, "end": int(alive.sum())})
    for place in ranking.order.tolist():
        row = int(ranking.rows[place])
        entries[row]["weight"] = float(ranking.score[place])
        entries[row]["weighers"] = [
            {
                "name": scale.weigher.name,
                "raw": float(scale.raw[place]),
                "normalised": float(scale.normalised(scale.raw[place])),
                "multiplier": scale.multiplier_at(place),
                "score": float(scale.part[place]),
            }
            for scale in ranking.scales
        ]
        if row not in order:
            entries[row]["rejected_by"] = _refusal("", "the source is on %s" % request.resource_backend)
    for rank, row in enumerate(order, 1):
        entries[row].update(rank=rank, passed=True)
    rest = [row for row in entries if row not in set(order)]
    return {
        "volume_id": request.volume_id,
        "size": request.requested_size,
        "chosen": backends.states[order[0]].host if order else None,
        "filters": counts,
        "backends": [entries[row] for row in [*order, *rest]],
    }


def explanation_text(decision: t.Mapping[str, t.Any], limit: int | None = None) -> list[str]:
    """The decision as lines. :arg limit: the maximum of backends listed; the rest is counted."""
    lines = ["volume %s (%s GB) -> %s" % (decision["volume_id"], decision["size"], decision["chosen"] or "no backend")]
    for entry in decision["backends"][:limit]:
        if entry["passed"]:
            parts = ["%s %.10g" % (w["name"], w["raw"]) for w in entry["weighers"]]
            lines.append("  + %s  weight %.4f (%s)" % (entry["host"], entry["weight"], "; ".join(parts)))
        else:
            why = entry["rejected_by"] or _refusal("", "")
            lines.append("  - %s  %s%s" % (entry["host"], why["filter"] + ": " if why["filter"] else "", why["reason"]))
    hidden = 0 if limit is None else len(decision["backends"]) - limit
    return lines + (["  ... and %d more" % hidden] if hidden > 0 else [])


def _entry(state: PoolState) -> dict[str, t.Any]:
    return {
        "host": state.host,
        "passed": False,
        "rejected_by": None,
        "filters": [],
        "rank": None,
        "weight": None,
        "weighers": [],
    }


def _refusal(filter_name: str, reason: str) -> dict[str, t.Any]:
    return {"filter": filter_name, "reason": reason, **_numbers(None, 0)}


def _numbers(result: FilterResult | None, position: int) -> dict[str, t.Any]:
    if result is None:
        return {"available": None, "needed": None, "unit": ""}
    return {
        "available": _number(result.available, position),
        "needed": _number(result.needed, position),
        "unit": result.unit,
    }


def _number(column: t.Any, position: int) -> float | None:
    if column is None:
        return None
    value = float(column[position])
    return value if math.isfinite(value) else None
