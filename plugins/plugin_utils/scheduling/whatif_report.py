# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The answers of what-if as data, and for people."""

from __future__ import annotations

import typing as t

from ...module_utils.core.scheduler import explain
from ...module_utils.flows.boot.whatif import Answer, Facts
from ..run import tables

HOSTS_PRINTED = 50
REFRESH = "Facts are from the last report; ansible-playbook bootflow.compute.heartbeat updates them."

Lost = t.Mapping[str, t.Any]  # a host that would be lost, and its instances


# --- as data ----------------------------------------------------------------------------------------------------------


def answer_data(answer: Answer) -> dict[str, t.Any]:
    """Return an answer as data. Of the explanation it has the filter that turned down each host, and the nearest miss."""
    stopped = None
    if answer.stopped_by is not None:
        decision = answer.stopped_by["decision"]
        stopped = {
            "reason": answer.stopped_by["reason"],
            "filters": answer.stopped_by["filters"],
            "turned_down": [
                {"host": h["host"], "node": h["node"], **(h["rejected_by"] or {})} for h in decision["hosts"]
            ],
            "nearest_miss": decision["nearest_miss"],
        }
    return {
        "name": answer.name,
        "flavor": answer.flavor,
        "project": answer.project,
        "count": answer.count,
        "there": answer.existing_count,
        "total": answer.total,
        "left": answer.remaining_count,
        "fits": answer.fits,
        "by_host": answer.by_host,
        "placed": answer.placed,
        "stopped_by": stopped,
    }


def problems_of(answers: t.Sequence[Answer], losses: t.Sequence[Lost]) -> list[str]:
    """Return a sentence for each request, and each lost host, that does not fit."""
    problems = [
        "%s: %d of flavor %s requested, %d fit." % (a.name, a.count, a.flavor, a.total) for a in answers if not a.fits
    ]
    problems += [
        "%s: %d of its %d instances would find no host."
        % (h["host"], len(h["stuck"]), len(h["stuck"]) + len(h["moved"]))
        for h in losses
        if not h["fits"]
    ]
    return problems


# --- for people -------------------------------------------------------------------------------------------------------


def whatif_lines(
    answers: t.Sequence[Answer], losses: t.Sequence[Lost], facts: Facts, asks_for_liveness: bool
) -> list[str]:
    """Return all lines. :arg asks_for_liveness: a filter turns down hosts that are down"""
    parts = (_question_lines(answers), _loss_lines(losses), _facts_lines(facts, asks_for_liveness))
    return "\n\n".join("\n".join(p) for p in parts if p).split("\n")


def _question_lines(answers: t.Sequence[Answer]) -> list[str]:
    if not answers:
        return []
    lines = ["What if (nothing is changed):"]
    head = ("REQUEST", "FLAVOR", "COUNT", "FIT", "FITS", "LEFT AFTER IT")
    lines += tables.table(
        head,
        [
            (a.name, a.flavor, a.count, _number(a, a.total), "yes" if a.fits else "no", a.remaining_count)
            for a in answers
        ],
    )
    for answer in answers:
        lines += _answer_lines(answer)
    return lines


def _answer_lines(answer: Answer) -> list[str]:
    lines = ["", "%s (%s): %s more fit" % (answer.name, answer.flavor, _number(answer, answer.total))]
    if answer.existing_count:
        lines.append("  %d of the requested instances already have a host" % answer.existing_count)
    if answer.by_host:
        count_by_place = {(p["host"], p["node"]): p["count"] for p in answer.placed}
        shown = sorted(answer.by_host, key=lambda h: (-h["count"], h["host"], h["node"]))
        rows = [
            (_place(h), h["count"], count_by_place.get((h["host"], h["node"])) or "-") for h in shown[:HOSTS_PRINTED]
        ]
        lines += ["  " + line for line in tables.table(("HOST", "FIT", "WOULD TAKE"), rows)]
        lines += _more(shown, "with room")
    if answer.stopped_by is not None:
        # The filters' own line says it better, where any was asked.
        reason = "" if answer.stopped_by["filters"] else " " + answer.stopped_by["reason"]
        lines.append("  what stops the next one:" + reason)
        lines += explain.explanation_text(answer.stopped_by["decision"], HOSTS_PRINTED)[1:]
    return lines


def _number(answer: Answer, number: int) -> str:
    return str(number) if answer.stopped_by is not None else "%d (the limit)" % number


def _loss_lines(losses: t.Sequence[Lost]) -> list[str]:
    if not losses:
        return []
    lines = ["If one of these hosts were lost (nothing is touched):"]
    rows = [
        (h["host"], len(h["moved"]) + len(h["stuck"]), "yes" if h["fits"] else "no, %d stuck" % len(h["stuck"]))
        for h in losses
    ]
    lines += tables.table(("HOST", "INSTANCES", "ROOM ELSEWHERE"), rows)
    for host in losses:
        stuck = host["stuck"]
        if stuck:
            lines += ["", "%s:" % host["host"]]
            lines += ["  %s: %s" % (s["name"], _why(s)) for s in stuck[:HOSTS_PRINTED]]
            lines += _more(stuck, "stuck")
    return lines


def _why(stuck: t.Mapping[str, t.Any]) -> str:
    """Return the number of hosts after each filter that turned some down; the whole reason where none did."""
    some = any(f["start"] != f["end"] for f in stuck["filters"])
    return explain.filter_counts(stuck["filters"], "other hosts") if some else str(stuck["reason"])


def _place(place: t.Mapping[str, t.Any]) -> str:
    return str(place["host"]) if place["node"] == place["host"] else "%s (%s)" % (place["host"], place["node"])


def _more(shown: t.Sequence[t.Any], what: str) -> list[str]:
    hidden = len(shown) - HOSTS_PRINTED
    return ["  ... and %d more %s" % (hidden, what)] if hidden > 0 else []


def _facts_lines(facts: Facts, asks_for_liveness: bool) -> list[str]:
    lines: list[str] = []
    if asks_for_liveness:
        lines += ["%s counts as down: %s" % (d["host"], d["reason"]) for d in facts.down[:HOSTS_PRINTED]]
        lines += _more(facts.down, "down")
    lines.append(REFRESH + ("" if facts.oldest is None else " The oldest are of %.0f s ago." % facts.oldest))
    return lines
