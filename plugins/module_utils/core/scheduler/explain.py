# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Explanations: every decision as plain data, and as lines for people."""

from __future__ import annotations

import collections
import math
import typing as t

from ..amounts import counted
from ..errors import BootflowError
from .columns import Column, Fleet, np
from .filters.base import Filter, FilterResult
from .filters.capacity import at
from .request_spec import RequestSpec
from .smallest_change import lacking, smallest_change
from .weighing import Ranking

Named = t.Callable[[t.Mapping[str, t.Any]], str]  # {host, node} -> what it is called
Against = t.Tuple[Filter, t.Dict[str, t.Any]]  # a filter that rejected a host, and its rejection


def explain(
    fleet: Fleet,
    spec: RequestSpec,
    filters: t.Sequence[Filter],
    candidates: Column,
    instance_uuid: str,
    ranking: Ranking | None = None,
    chosen: int | None = None,
) -> dict[str, t.Any]:
    """Explain one decision over the fleet as it is, before anything is taken from the chosen host.

    Returns {instance_uuid, forced, chosen: {host, node}|None, filters: [{name, start, end}], hosts, nearest_miss}. A host is
    {host, node, passed, filters_passed: [names], rejected_by: {filter, reason, available, needed, unit, missing}|None,
    filters: [{name, passed, available, needed, unit, reason}], rank: 1 is the best|None, weight,
    weighers: [{name, text, raw, normalised, multiplier, score}]}; accepted hosts come first, best first. Its ``filters`` have
    the verdicts of all filters, also of filters not reached; passed is None if a filter could not answer for the host.
    available, needed and missing (how much less would have sufficed) are None if no numbers were compared.
    nearest_miss: {host, node, missing: [rejections], smallest_change: see there|None}, or None.
    """
    entries = {row: entry(h.host, h.nodename) for row, h in enumerate(fleet.hosts)}
    candidates = np.asarray(candidates, dtype=np.int64)
    for row in set(entries) - {int(r) for r in candidates}:
        entries[row]["rejected_by"] = outside(_why_outside(spec))
    counts, rows, against = verdicts(fleet, spec, binding(filters, spec), candidates, entries)
    for row in rows:
        entries[int(row)]["passed"] = True
    ordered = [int(r) for r in rows]
    if ranking is not None and len(ranking):
        ordered = _weights(entries, ranking)
    rest_rows = [row for row in entries if not entries[row]["passed"]]
    return {
        "instance_uuid": instance_uuid,
        "forced": spec.forced,
        "chosen": None if chosen is None else {"host": fleet.hosts[chosen].host, "node": fleet.hosts[chosen].nodename},
        "filters": counts,
        "hosts": [entries[row] for row in ordered + rest_rows],
        "nearest_miss": _nearest_miss(fleet, spec, filters, entries, against),
    }


def binding(filters: t.Sequence[Filter], spec: RequestSpec) -> list[Filter]:
    """Return the filters that a host has to pass: of a forced one only the filters that bind it too."""
    return [f for f in filters if f.binds_forced and f.concerns(spec)] if spec.forced else list(filters)


def verdicts(
    fleet: Fleet,
    spec: RequestSpec,
    filters: t.Sequence[Filter],
    candidates: Column,
    entries: dict[int, dict[str, t.Any]],
) -> tuple[list[dict[str, t.Any]], Column, dict[int, list[Against]]]:
    """Enter what each filter says of each candidate. Returns the counts, the rows that passed all, and what is against the others."""
    counts: list[dict[str, t.Any]] = []
    against: dict[int, list[Against]] = {}
    alive = np.ones(len(candidates), dtype=bool)
    for filter_ in filters:
        reached = alive.copy()
        rows = candidates[reached]
        if len(rows):
            mask = _judge(filter_, filter_.evaluate(fleet, spec, rows), rows, entries, against, reached=True)
            counts.append({"name": filter_.name, "start": len(rows), "end": int(mask.sum())})
            alive[np.flatnonzero(reached)[~mask]] = False
        rest = candidates[~reached]
        if len(rest):
            try:
                result = filter_.evaluate(fleet, spec, rest)
            except BootflowError as e:  # selection never asked it about these hosts, so it may fail on them
                for row in rest:
                    entries[int(row)]["filters"].append(_verdict(filter_.name, None, None, None, "", e.message))
            else:
                _judge(filter_, result, rest, entries, against, reached=False)
    return counts, candidates[alive], against


def _judge(
    filter_: Filter,
    result: FilterResult,
    rows: Column,
    entries: dict[int, dict[str, t.Any]],
    against: dict[int, list[Against]],
    reached: bool,
) -> Column:
    """Enter one filter's verdicts on these hosts. Returns the hosts that passed."""
    mask = np.broadcast_to(np.asarray(result.mask, dtype=bool), rows.shape)
    for position, row in enumerate(rows.tolist()):
        entry = entries[row]
        if mask[position]:
            available, needed = _number(result.available, position), _number(result.needed, position)
            entry["filters"].append(_verdict(filter_.name, True, available, needed, result.unit, ""))
            if reached:
                entry["filters_passed"].append(filter_.name)
            continue
        rejection = _rejection(filter_, result, position)
        entry["filters"].append(
            _verdict(
                filter_.name,
                False,
                rejection["available"],
                rejection["needed"],
                result.unit,
                rejection["reason"],
            )
        )
        if reached:
            entry["rejected_by"] = rejection
        against.setdefault(row, []).append((filter_, rejection))
    return mask


def _verdict(
    name: str, passed: bool | None, available: float | None, needed: float | None, unit: str, reason: str
) -> dict[str, t.Any]:
    return {
        "name": name,
        "passed": passed,
        "available": available,
        "needed": needed,
        "unit": unit,
        "reason": reason,
    }


def entry(host: str, node: str) -> dict[str, t.Any]:
    """A host of a decision, before anything is known of it."""
    return {
        "host": host,
        "node": node,
        "passed": False,
        "filters_passed": [],
        "rejected_by": None,
        "filters": [],
        "rank": None,
        "weight": None,
        "weighers": [],
    }


def outside(reason: str) -> dict[str, t.Any]:
    """The rejection of a host that no filter was asked about."""
    return {"filter": "", "reason": reason, "available": None, "needed": None, "unit": "", "missing": None}


def _why_outside(spec: RequestSpec) -> str:
    if not spec.forced:
        return "the request ignores this host"
    return "another host was forced: %s" % ":".join(x or "" for x in (spec.force_host, spec.force_node)).rstrip(":")


def _number(value: t.Any, position: int) -> float | None:
    if value is None:
        return None
    number = float(at(value, position))
    return number if math.isfinite(number) else None  # NaN: nothing known


def _rejection(filter_: Filter, result: FilterResult, position: int) -> dict[str, t.Any]:
    available, needed = _number(result.available, position), _number(result.needed, position)
    lacks = filter_.counts_capacity and available is not None and needed is not None and needed > available
    return {
        "filter": filter_.name,
        "reason": result.text(position) if result.text is not None else "",
        "available": available,
        "needed": needed,
        "unit": result.unit,
        "missing": needed - available if lacks and available is not None and needed is not None else None,
    }


def _weights(entries: dict[int, dict[str, t.Any]], ranking: Ranking) -> list[int]:
    """Enter weights of the hosts that passed. Returns their rows, best first."""
    ordered = []
    weighed = len(ranking) > 1
    for rank, position in enumerate(ranking.order, 1):
        row = int(ranking.rows[position])
        ordered.append(row)
        entries[row].update(rank=rank, weight=float(ranking.score[position]))
        if weighed:
            entries[row]["weighers"] = scores(ranking, int(position))
    return ordered


def scores(ranking: Ranking, position: int) -> list[dict[str, t.Any]]:
    """Return the score that each weigher gives to the host at a position of the ranking."""
    entries = []
    for scale in ranking.scales:
        raw = float(scale.raw[position])
        entries.append(
            {
                "name": scale.weigher.name,
                "text": scale.weigher.amount(raw),
                "raw": raw,
                "normalised": float(scale.normalised(raw)),
                "multiplier": scale.multiplier_at(position),
                "score": float(scale.part[position]),
            }
        )
    return entries


def _nearest_miss(
    fleet: Fleet,
    spec: RequestSpec,
    filters: t.Sequence[Filter],
    entries: dict[int, dict[str, t.Any]],
    against: dict[int, list[Against]],
) -> dict[str, t.Any] | None:
    row = nearest(entries, against)
    if row is None:
        return None
    return {
        **miss(entries[row], against[row]),
        "smallest_change": smallest_change(fleet, spec, row, against[row], filters),
    }


def nearest(entries: dict[int, dict[str, t.Any]], against: dict[int, list[Against]]) -> int | None:
    """The host that lacks least: rejected by the fewest filters, the fewest of them without numbers, with the smallest part missing.

    A host rejected without numbers qualifies only if that is its sole rejection.
    """
    best: tuple[t.Any, int] | None = None
    for row, rejections in against.items():
        unmeasured = sum(r["missing"] is None for dummy, r in rejections)
        if entries[row]["passed"] or (unmeasured and len(rejections) > 1):
            continue
        if any(verdict["passed"] is None for verdict in entries[row]["filters"]):
            continue
        gap = max(r["missing"] / r["needed"] if r["missing"] is not None else 0.0 for dummy, r in rejections)
        key = (len(rejections), unmeasured, gap)
        if best is None or key < best[0]:
            best = (key, row)
    return None if best is None else best[1]


def miss(host: t.Mapping[str, t.Any], rejections: t.Sequence[Against]) -> dict[str, t.Any]:
    """The host of a nearest miss, and all that is against it."""
    return {"host": host["host"], "node": host["node"], "missing": [rejection for dummy, rejection in rejections]}


def explanation_text(decision: t.Mapping[str, t.Any], limit: int | None = None, things: str = "hosts") -> list[str]:
    """The decision as lines: the choice, or the nearest miss; the order with weights; each rejection, the nearest host first.

    :arg limit: the maximum of hosts listed of each kind; the rest is counted. :arg things: what the hosts are, in the plural.
    """
    named = _names(decision)
    chosen = decision["chosen"]
    where = "no " + things[:-1] if chosen is None else named(chosen) + (" (forced)" if decision["forced"] else "")
    lines = ["%s -> %s" % (decision["instance_uuid"], where)]
    if decision.get("alternates"):
        lines.append("  alternates: %s" % ", ".join(named(a) for a in decision["alternates"]))
    if decision["filters"]:
        lines.append("  filters: " + filter_counts(decision["filters"], things))
    near = decision["nearest_miss"]
    if chosen is None and near is not None:
        lines.append("  nearest miss: %s" % _lacks(near, named))
        if near.get("smallest_change"):
            lines.append("  smallest change: %s" % near["smallest_change"]["text"])
    passed, rejected = _in_order(decision)
    telling = {w["name"] for h in passed for w in h["weighers"] if w["score"]}
    for host in passed[:limit]:
        parts = [
            "%s %.10g x %.4f for %s" % (w["name"], w["multiplier"], w["normalised"], w["text"])
            for w in host["weighers"]
            if w["name"] in telling
        ]
        lines.append("  + " + named(host) + ("  weight %.4f: %s" % (host["weight"], "; ".join(parts)) if parts else ""))
    lines.extend(_more(passed, limit, "passed"))
    for host in rejected[:limit]:
        why = host["rejected_by"] or {"filter": "", "reason": "not reached"}
        lines.append("  - %s  %s%s" % (named(host), why["filter"] + ": " if why["filter"] else "", why["reason"]))
    lines.extend(_more(rejected, limit, "rejected"))
    return lines


def condensed(decision: t.Mapping[str, t.Any], limit: int) -> dict[str, t.Any]:
    """The decision with at most ``limit`` hosts of each kind in full: the best that passed, and the nearest that were rejected.

    All are there by name: ``passed``, best first, with their ``weights``, and ``rejected``: filter -> hosts, the nearest first.
    """
    named = _names(decision)
    passed, rejected = _in_order(decision)
    names: dict[str, list[str]] = {}
    for host in rejected:
        names.setdefault((host["rejected_by"] or {"filter": ""})["filter"], []).append(named(host))
    return {
        **decision,
        "hosts": passed[:limit] + rejected[:limit],
        "passed": [named(host) for host in passed],
        "weights": [host["weight"] for host in passed],
        "rejected": names,
    }


def _in_order(decision: t.Mapping[str, t.Any]) -> tuple[list[dict[str, t.Any]], list[dict[str, t.Any]]]:
    """Return the accepted hosts of a decision, best first, and the rejected ones, the nearest first."""
    near = decision["nearest_miss"]
    rejected = sorted((h for h in decision["hosts"] if not h["passed"]), key=lambda h: _distance(h, near))
    return [h for h in decision["hosts"] if h["passed"]], rejected


def filter_counts(counts: t.Sequence[t.Mapping[str, t.Any]], things: str) -> str:
    """Return the number of accepted hosts, and how many each filter rejected. :arg things: hosts."""
    some = ["%s %d" % (c["name"], c["start"] - c["end"]) for c in counts if c["start"] != c["end"]]
    text = "%d of %s passed" % (counts[-1]["end"], counted(counts[0]["start"], things))
    return "%s; rejected by %s" % (text, ", ".join(some)) if some else text


def _distance(host: t.Mapping[str, t.Any], near: t.Mapping[str, t.Any] | None) -> tuple[t.Any, ...]:
    """The sort key of a rejected host: the nearest miss, then by the filters that it passed, then by what it lacks."""
    is_nearest = near is not None and (near["host"], near["node"]) == (host["host"], host["node"])
    why = host["rejected_by"] or {"missing": None, "needed": None}
    gap = why["missing"] / why["needed"] if why["missing"] is not None else math.inf
    return not is_nearest, -len(host["filters_passed"]), gap


def _lacks(near: t.Mapping[str, t.Any], named: Named) -> str:
    lacks = ", ".join(lacking(m) for m in near["missing"] if m["missing"] is not None)
    others = "; ".join("%s: %s" % (m["filter"], m["reason"]) for m in near["missing"] if m["missing"] is None)
    return "%s %s" % (named(near), "lacks " + lacks if lacks else "- " + others)


def summary(decision: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    """Why no host was chosen, without the single hosts: {hosts, rejected, nearest_miss}.

    ``rejected``: for each filter {filter, hosts: how many, best: the host that lacks least, reason, available, needed, unit, missing}.
    ``nearest_miss``: {host, text, smallest_change: text|None}, or None.
    """
    named = _names(decision)
    classes: dict[str, list[t.Mapping[str, t.Any]]] = {count["name"]: [] for count in decision["filters"]}
    for host in decision["hosts"]:
        if not host["passed"] and host["rejected_by"]:
            classes.setdefault(host["rejected_by"]["filter"], []).append(host)
    rejected = []
    for name, hosts in classes.items():
        if hosts:
            best = min(hosts, key=lambda h: math.inf if (m := h["rejected_by"]["missing"]) is None else m)
            rejected.append({**best["rejected_by"], "filter": name, "hosts": len(hosts), "best": named(best)})
    near = decision["nearest_miss"]
    change = near and near["smallest_change"]
    return {
        "hosts": len(decision["hosts"]),
        "rejected": rejected,
        "nearest_miss": near
        and {"host": near["host"], "text": _lacks(near, named), "smallest_change": change["text"] if change else None},
    }


def summary_text(overview: t.Mapping[str, t.Any], things: str = "hosts") -> str:
    """A summary in sentences, without the smallest change. :arg things: what the hosts are, in the plural."""
    classes = []
    for rejection_class in overview["rejected"]:
        several = "%d %s, %s%s" % (
            rejection_class["hosts"],
            things,
            "the nearest is " if rejection_class["missing"] is not None else "as ",
            rejection_class["best"],
        )
        who = rejection_class["best"] if rejection_class["hosts"] == 1 else several
        reason = rejection_class["reason"].rstrip(".")
        classes.append(
            "%s%s (%s)" % (rejection_class["filter"] + " rejected " if rejection_class["filter"] else "", who, reason)
        )
    text = "Of %s: %s." % (counted(overview["hosts"], things), "; ".join(classes))
    return (
        "%s Nearest miss: %s." % (text, overview["nearest_miss"]["text"].rstrip("."))
        if overview["nearest_miss"]
        else text
    )


def _names(decision: t.Mapping[str, t.Any]) -> Named:
    """Return the names of the decision's hosts: with their node only where a host has several."""
    nodes = collections.Counter(h["host"] for h in decision["hosts"])
    return lambda place: "%s (%s)" % (place["host"], place["node"]) if nodes[place["host"]] > 1 else str(place["host"])


def _more(hosts: t.Sequence[t.Any], limit: int | None, what: str) -> list[str]:
    hidden = 0 if limit is None else len(hosts) - limit
    return ["  ... and %d more %s" % (hidden, what)] if hidden > 0 else []
