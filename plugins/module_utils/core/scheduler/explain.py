# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Why: every decision as plain data, and as lines for people."""

from __future__ import annotations

import math
import typing as t

from .columns import Column, Fleet, np
from .filters.base import Filter, FilterResult
from .filters.capacity import at
from .request_spec import RequestSpec
from .weighing import Ranking


def explain(
    fleet: Fleet,
    spec: RequestSpec,
    filters: t.Sequence[Filter],
    candidates: Column,
    instance_uuid: str,
    ranking: Ranking | None = None,
    chosen: int | None = None,
) -> dict[str, t.Any]:
    """One decision over the fleet as it stands, before the chosen host is taken from.

    Returns {instance_uuid, forced, chosen: {host, node}|None, filters: [{name, start, end}], hosts, nearest_miss}. A host is
    {host, node, passed, filters_passed: [names], rejected_by: {filter, reason, available, needed, unit, missing}|None,
    rank: 1 is the best|None, weight, weighers: [{name, raw, normalised, multiplier, score}]}; those that passed come
    first, best first. available, needed and missing (how much less would have been enough) are None where no numbers
    were compared.
    """
    entries = {row: _entry(fleet, row) for row in range(len(fleet))}
    counts: list[dict[str, t.Any]] = []
    rejections: dict[int, list[dict[str, t.Any]]] = {}
    rows = np.asarray(candidates, dtype=np.int64)
    for row in set(entries) - {int(r) for r in rows}:
        entries[row]["rejected_by"] = _outside(spec)
    if not spec.forced:
        for filter_ in filters:
            if not len(rows):
                break
            result = filter_.evaluate(fleet, spec, rows)
            mask = np.asarray(result.mask, dtype=bool)
            for position in np.flatnonzero(~mask):
                rejection = _rejection(filter_, result, int(position))
                entries[int(rows[position])]["rejected_by"] = rejection
                rejections[int(rows[position])] = [rejection]
            for row in rows[mask]:
                entries[int(row)]["filters_passed"].append(filter_.name)
            counts.append({"name": filter_.name, "start": len(rows), "end": int(mask.sum())})
            rows = rows[mask]
    for row in rows:
        entries[int(row)]["passed"] = True
    ordered = [int(r) for r in rows]
    if ranking is not None and len(ranking):
        ordered = _weights(entries, ranking)
    _further_rejections(fleet, spec, filters, rejections)
    rest = [row for row in entries if not entries[row]["passed"]]
    return {
        "instance_uuid": instance_uuid,
        "forced": spec.forced,
        "chosen": None if chosen is None else {"host": fleet.hosts[chosen].host, "node": fleet.hosts[chosen].nodename},
        "filters": counts,
        "hosts": [entries[row] for row in ordered + rest],
        "nearest_miss": _nearest_miss(entries, rejections),
    }


def _entry(fleet: Fleet, row: int) -> dict[str, t.Any]:
    host = fleet.hosts[row]
    return {
        "host": host.host,
        "node": host.nodename,
        "passed": False,
        "filters_passed": [],
        "rejected_by": None,
        "rank": None,
        "weight": None,
        "weighers": [],
    }


def _outside(spec: RequestSpec) -> dict[str, t.Any]:
    if spec.forced:
        reason = "another host was forced: %s" % ":".join(x or "" for x in (spec.force_host, spec.force_node)).rstrip(
            ":"
        )
    else:
        reason = "the request ignores this host"
    return {"filter": "", "reason": reason, "available": None, "needed": None, "unit": "", "missing": None}


def _number(value: t.Any, position: int) -> float | None:
    if value is None:
        return None
    number = float(at(value, position))
    return None if math.isnan(number) else number  # NaN: nothing known


def _rejection(filter_: Filter, result: FilterResult, position: int) -> dict[str, t.Any]:
    available, needed = _number(result.available, position), _number(result.needed, position)
    return {
        "filter": filter_.name,
        "reason": result.text(position) if result.text is not None else "",
        "available": available,
        "needed": needed,
        "unit": result.unit,
        "missing": needed - available if available is not None and needed is not None and needed > available else None,
    }


def _weights(entries: dict[int, dict[str, t.Any]], ranking: Ranking) -> list[int]:
    """Enter weights of the hosts that passed. Returns their rows, best first."""
    ordered = []
    weighed = len(ranking) > 1
    for rank, position in enumerate(ranking.order, 1):
        row = int(ranking.rows[position])
        ordered.append(row)
        entries[row].update(rank=rank, weight=float(ranking.score[position]))
        for scale in ranking.scales if weighed else ():
            raw = float(scale.raw[position])
            entries[row]["weighers"].append(
                {
                    "name": scale.weigher.name,
                    "raw": raw,
                    "normalised": float(scale.normalised(raw)),
                    "multiplier": float(scale.weigher.multiplier),
                    "score": float(scale.part[position]),
                }
            )
    return ordered


def _further_rejections(
    fleet: Fleet, spec: RequestSpec, filters: t.Sequence[Filter], rejections: dict[int, list[dict[str, t.Any]]]
) -> None:
    """What else would have turned these hosts down, by the filters that compare numbers: how near a miss was."""
    for filter_ in filters:
        rows = np.array([r for r, found in rejections.items() if found[0]["filter"] != filter_.name], dtype=np.int64)
        if not filter_.counts_capacity or not len(rows):
            continue
        result = filter_.evaluate(fleet, spec, rows)
        for position in np.flatnonzero(~np.asarray(result.mask, dtype=bool)):
            rejections[int(rows[position])].append(_rejection(filter_, result, int(position)))


def _nearest_miss(
    entries: dict[int, dict[str, t.Any]], rejections: dict[int, list[dict[str, t.Any]]]
) -> dict[str, t.Any] | None:
    """The host that lacks least: the fewest filters against it, then the smallest part of the need missing."""
    best: tuple[t.Any, int] | None = None
    for row, found in rejections.items():
        if any(r["missing"] is None for r in found):
            continue
        key = (len(found), max(r["missing"] / r["needed"] for r in found))
        if best is None or key < best[0]:
            best = (key, row)
    if best is None:
        return None
    row = best[1]
    return {"host": entries[row]["host"], "node": entries[row]["node"], "missing": rejections[row]}


def explanation_text(decision: t.Mapping[str, t.Any], limit: int | None = None) -> list[str]:
    """The decision as lines: the choice, the order with weights, who was turned down by what, the nearest miss.

    :arg limit: at most this many hosts are listed of each kind; the rest is counted.
    """
    chosen = decision["chosen"]
    where = "no host" if chosen is None else _name(chosen) + (" (forced)" if decision["forced"] else "")
    lines = ["%s -> %s" % (decision["instance_uuid"], where)]
    if decision.get("alternates"):
        lines.append("  alternates: %s" % ", ".join(_name(a) for a in decision["alternates"]))
    if decision["filters"]:
        lines.append(
            "  filters: %s" % ", ".join("%s %d->%d" % (c["name"], c["start"], c["end"]) for c in decision["filters"])
        )
    passed = [h for h in decision["hosts"] if h["passed"]]
    rejected = [h for h in decision["hosts"] if not h["passed"]]
    for host in passed[:limit]:
        parts = [
            "%s %.10g -> %.4f x %.10g" % (w["name"], w["raw"], w["normalised"], w["multiplier"])
            for w in host["weighers"]
        ]
        weight = "" if host["weight"] is None else "  weight %.4f" % host["weight"]
        lines.append("  + %s%s%s" % (_name(host), weight, " (%s)" % "; ".join(parts) if parts else ""))
    lines.extend(_more(passed, limit, "passed"))
    for host in rejected[:limit]:
        why = host["rejected_by"] or {"filter": "", "reason": "not reached"}
        lines.append("  - %s  %s%s" % (_name(host), why["filter"] + ": " if why["filter"] else "", why["reason"]))
    lines.extend(_more(rejected, limit, "turned down"))
    miss = decision["nearest_miss"]
    if chosen is None and miss is not None:
        lacks = ", ".join("%.10g %s" % (m["missing"], m["unit"]) for m in miss["missing"])
        lines.append("  nearest miss: %s lacks %s" % (_name(miss), lacks))
    return lines


def _name(place: t.Mapping[str, t.Any]) -> str:
    return str(place["host"]) if place["node"] in ("", place["host"]) else "%s (%s)" % (place["host"], place["node"])


def _more(hosts: t.Sequence[t.Any], limit: int | None, what: str) -> list[str]:
    hidden = 0 if limit is None else len(hosts) - limit
    return ["  ... and %d more %s" % (hidden, what)] if hidden > 0 else []
