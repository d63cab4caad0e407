# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The part of a report on capacity over time: a line for what the fleet has, one for what is in use, and what still fits."""

from __future__ import annotations

import datetime
import typing as t

from .bars import Segment, stacked
from .figures import RESOURCES, Day, Fit, Report
from .markup import Child, Markup, joined, table, tag
from .words import amount, counted, share

WIDTH, HEIGHT = 360.0, 190.0
LEFT, RIGHT, TOP, BOTTOM = 8.0, 352.0, 24.0, 166.0  # of the plot
FEW = 31  # days that are drawn with a point each


def section(report: Report) -> Markup:
    """Return the section on capacity: the lines need two days, the table of flavors none."""
    return tag(
        "section",
        tag("h2", "Capacity", id="capacity-heading"),
        _lines(report.days),
        _fits(report.fits),
        id="capacity",
        aria_labelledby="capacity-heading",
    )


def _lines(days: t.Sequence[Day]) -> Markup:
    heading = tag("h3", "Over time")
    if len(days) < 2:
        text = "The ledger has %s so far. The playbook heartbeat writes one a day." % ("one day" if days else "no day")
        return joined(heading, tag("p", text, cls="note"))
    pictures = [tag("div", _picture(resource, days), cls="chart") for resource in RESOURCES]
    rows: list[list[Child]] = [
        [day.day, day.hosts, day.instances, *(_use_on(day, resource) for resource in RESOURCES)]
        for day in reversed(days)
    ]
    head = ("Day", "Hosts", "Instances", *(heading for heading, _unit in RESOURCES.values()))
    figures = table("In use and capacity by day", head, rows, (1, 2, 3, 4, 5))
    return joined(
        heading,
        tag("p", _key("capacity", "capacity"), _key("inuse", "in use"), cls="legend"),
        tag("div", pictures, cls="charts"),
        tag("details", tag("summary", "The days as a table"), figures),
    )


def _key(cls: str, words: str) -> Markup:
    return tag("span", tag("span", cls="key line " + cls), words)


def _use_on(day: Day, resource: str) -> str:
    used, capacity = day.used[resource], day.capacity[resource]
    return "%s of %s (%s)" % (amount(resource, used), amount(resource, capacity), share(used, capacity))


def points(days: t.Sequence[Day], values: t.Sequence[int], top: float) -> list[tuple[float, float]]:
    """Return a point of the plot for each day: the days are where the calendar has them. :arg top: the value at the upper edge"""
    ordinals = [datetime.date.fromisoformat(day.day).toordinal() for day in days]
    length = (ordinals[-1] - ordinals[0]) or 1
    return [
        (LEFT + (RIGHT - LEFT) * (ordinal - ordinals[0]) / length, BOTTOM - (BOTTOM - TOP) * value / (top or 1))
        for ordinal, value in zip(ordinals, values)
    ]


def _picture(resource: str, days: t.Sequence[Day]) -> Markup:
    capacity, used = [day.capacity[resource] for day in days], [day.used[resource] for day in days]
    top = float(max(*capacity, *used, 1))
    first, last = days[0], days[-1]
    heading = RESOURCES[resource][0]
    label = "%s from %s to %s: in use %s, then %s" % (
        heading,
        first.day,
        last.day,
        _use_on(first, resource),
        _use_on(last, resource),
    )
    lines = [
        tag("polyline", points=_coordinates(points(days, values, top)), cls="line " + cls)
        for values, cls in ((capacity, "capacity"), (used, "inuse"))
    ]
    area = [*points(days, used, top), (RIGHT, BOTTOM), (LEFT, BOTTOM)]
    dots = [
        tag(
            "circle",
            tag("title", "%s: %s" % (day.day, _use_on(day, resource))),
            cx=x,
            cy=y,
            r=3.5 if len(days) <= FEW else 2.0,
            cls="dot",
        )
        for day, (x, y) in zip(days, points(days, used, top))
    ]
    grid = [tag("line", x1=LEFT, x2=RIGHT, y1=y, y2=y, cls="grid") for y in (TOP, (TOP + BOTTOM) / 2, BOTTOM)]
    texts = [
        tag("text", heading, x=LEFT, y=14, cls="title"),
        tag("text", amount(resource, top), x=RIGHT, y=14, text_anchor="end"),
        tag("text", first.day, x=LEFT, y=HEIGHT - 6),
        tag("text", last.day, x=RIGHT, y=HEIGHT - 6, text_anchor="end"),
    ]
    return tag(
        "svg",
        tag("title", label),
        grid,
        tag("polygon", points=_coordinates(area), cls="area"),
        lines,
        dots,
        texts,
        viewBox="0 0 %d %d" % (WIDTH, HEIGHT),
        role="img",
        aria_label=label,
    )


def _coordinates(places: t.Iterable[tuple[float, float]]) -> str:
    return " ".join("%.1f,%.1f" % place for place in places)


def _fits(fits: t.Sequence[Fit]) -> Markup:
    heading = tag("h3", "How many more fit")
    if not fits:
        return joined(heading, tag("p", "No flavor was asked about.", cls="note"))
    most = max((fit.total or 0 for fit in fits), default=0)
    rows = []
    for fit in fits:
        size = "%s of memory, %s, %s of disk" % (
            amount("memory_mb", fit.amounts["memory_mb"]),
            counted(fit.amounts["vcpus"], "vCPUs"),
            amount("disk_gb", fit.amounts["disk_gb"]),
        )
        number: t.Any = "\u2013"
        if fit.total is not None:
            label = "%s: %d more fit" % (fit.flavor, fit.total)
            number = joined(stacked(label, [Segment(fit.total, label, "used")], most), "{:,}".format(fit.total))
        rows.append((fit.flavor, size, number, fit.hosts, fit.reason))
    head = ("Flavor", "Size", "More instances", "Hosts with room", "What stops the next one")
    text = "Each flavor alone, with the filters and settings of a boot and the last reports of the hosts (playbook whatif)."
    return joined(heading, tag("p", text, cls="facts"), table("Instances that still fit, by flavor", head, rows, (3,)))
