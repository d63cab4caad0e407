# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The part of a report on instances in ERROR: the filters that rejected the hosts, and what was missing."""

from __future__ import annotations

import typing as t

from .bars import Segment, stacked
from .figures import Refusal, Report
from .markup import Markup, joined, table, tag
from .words import counted, moment

NAMES_SHOWN = 20


def section(report: Report) -> Markup:
    """Return the section on why instances are in ERROR."""
    shown = report.refusals[: report.limit]
    hidden = len(report.refusals) - len(shown)
    return tag(
        "section",
        tag("h2", "Why", id="why-heading"),
        None if shown else tag("p", "No instance is in ERROR.", cls="good"),
        tag("p", "%s more (bootflow_report_limit)." % counted(hidden, "reasons"), cls="note") if hidden > 0 else None,
        [_refusal(refusal) for refusal in shown],
        id="why",
        aria_labelledby="why-heading",
    )


def _refusal(refusal: Refusal) -> Markup:
    names = ", ".join(refusal.names[:NAMES_SHOWN])
    more = refusal.total - len(refusal.names[:NAMES_SHOWN])
    return tag(
        "article",
        tag("h3", refusal.code, " ", tag("span", counted(refusal.total, "instances"), cls="badge bad")),
        tag("p", names, " and %s more" % "{:,}".format(more) if more > 0 else None, cls="facts"),
        tag("p", refusal.message),
        _filters(refusal) if refusal.rejections else None,
        tag("p", tag("strong", "Nearest miss: "), refusal.nearest) if refusal.nearest else None,
        tag("p", tag("strong", "Smallest change: "), refusal.change)
        if refusal.change and refusal.change not in refusal.remedy
        else None,
        tag("p", tag("strong", "Remedy: "), refusal.remedy) if refusal.remedy else None,
        tag("p", "Last at %s." % moment(refusal.newest), cls="facts"),
        cls="host",
    )


def _filters(refusal: Refusal) -> Markup:
    rows = []
    rest = refusal.hosts
    for rejection in refusal.rejections:
        name = rejection.filter or "Not a candidate"
        label = "%s rejected %d of %s" % (name, rejection.hosts, counted(rest, "hosts"))
        parts = [
            Segment(rejection.hosts, label, "failed"),
            Segment(
                max(rest - rejection.hosts, 0), "%s go on" % counted(max(rest - rejection.hosts, 0), "hosts"), "used"
            ),
        ]
        rest = max(rest - rejection.hosts, 0)
        rows.append(
            (
                name,
                joined(stacked(label, parts, refusal.hosts), str(rejection.hosts)),
                rejection.nearest,
                rejection.reason,
                rejection.missing or "\u2013",
            )
        )
    head = ("Filter", "Hosts that it rejected", "Nearest host", "Why", "Missing")
    return table("Hosts by the filter that rejected them first", head, rows)


def grouped(refusals: t.Iterable[tuple[str, Refusal]]) -> list[Refusal]:
    """Return the refusals of single instances with the same message as one each, the newest first. :arg refusals: (name, refusal)"""
    groups: dict[tuple[str, str], tuple[list[str], Refusal]] = {}
    for name, refusal in refusals:
        names, newest = groups.setdefault((refusal.code, refusal.message), ([], refusal))
        names.append(name)
        if refusal.newest > newest.newest:
            groups[refusal.code, refusal.message] = (names, refusal)
    merged = [
        Refusal(
            sorted(names)[:NAMES_SHOWN],
            len(names),
            newest.code,
            newest.message,
            newest.remedy,
            newest.newest,
            newest.hosts,
            newest.rejections,
            newest.nearest,
            newest.change,
        )
        for names, newest in groups.values()
    ]
    return sorted(merged, key=lambda refusal: (-refusal.newest, refusal.code, refusal.message))
