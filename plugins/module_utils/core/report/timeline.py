# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The part of a report on a run: its instances by host, and the steps of each on a common axis of time."""

from __future__ import annotations

import typing as t

from .bars import Segment, placed
from .figures import Report, Run, Span, Work
from .markup import Markup, joined, table, tag
from .words import counted, moment, seconds_between

#: Stages of a build in their order, and their classes; other events have the last one.
STAGES = {"waiting": "waiting", "networking": "s0", "block_device_mapping": "s1", "spawning": "s2"}
OTHER = "s3"
#: Lengths of time between two marks of the axis, in seconds.
STEPS = (0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 1800, 3600, 7200, 21600, 43200, 86400)
MARKS = 6
SCHEDULE = "schedule"  # the event that names the host
NO_HOST = "No host"  # the lane of steps without one


def section(report: Report) -> Markup:
    """Return the section on the run; a sentence where the ledger has none."""
    run = report.run
    heading = tag("h2", "Run", id="run-heading")
    if run is None:
        return tag(
            "section",
            heading,
            tag("p", "The ledger has no run that built instances."),
            id="run",
            aria_labelledby="run-heading",
        )
    end = _end(run, report.moment)
    return tag(
        "section",
        heading,
        tag("p", _sentence(run, report.moment), cls="facts"),
        _legend(run),
        _hidden(run, report.limit),
        [_lane(host, lines, run, end) for host, lines in lanes(run, end)],
        _table(run, report.moment),
        id="run",
        aria_labelledby="run-heading",
    )


def lanes(run: Run, end: float) -> list[tuple[str, list[tuple[Work, list[Span]]]]]:
    """Return (host, [(work, its steps there)]): hosts by name, instances by their begin. An instance that went to several hosts is in each lane."""
    by_host: dict[str, list[tuple[Work, list[Span]]]] = {}
    for work in sorted(run.works, key=lambda work: (work.begin, work.name, work.uuid)):
        of_hosts: dict[str, list[Span]] = {}
        for span in with_waits(work, end):
            of_hosts.setdefault(span.host or NO_HOST, []).append(span)
        for host, spans in of_hosts.items():
            by_host.setdefault(host, []).append((work, spans))
    return sorted(by_host.items(), key=lambda lane: (lane[0] == NO_HOST, lane[0]))


def with_waits(work: Work, end: float) -> list[Span]:
    """Return the steps of an instance, with the time before each placement as a step of the host that it got."""
    spans: list[Span] = []
    last = work.begin
    for span in work.spans:
        begin = min(last, span.begin) if span.stage == SCHEDULE else span.begin
        stage = "waiting" if span.stage == SCHEDULE else span.stage
        spans.append(Span(span.uuid, stage, span.host, begin, span.end, span.result, span.details))
        last = max(last, end if span.end is None else span.end)
    if not spans:
        spans.append(Span(work.uuid, "waiting", None, work.begin, work.end, "Error" if work.failed else None))
    return spans


def _end(run: Run, now: float) -> float:
    ends = [now if run.end is None else run.end, run.begin]
    for work in run.works:
        ends += [span.end for span in work.spans if span.end is not None]
    return max(ends)


def _sentence(run: Run, now: float) -> str:
    actions = sorted({work.action for work in run.works})
    state = "has not ended" if run.end is None else "took %s" % seconds_between(run.begin, run.end)
    text = "%s by %s, %s, began %s and %s: %s" % (
        run.request_id,
        run.user or "nobody",
        ", ".join(actions) or "no action",
        moment(run.begin),
        state,
        counted(run.total, "instances"),
    )
    retried = sum(len(hosts_of(work)) > 1 for work in run.works)
    return "%s, %d failed, %d on more than one host." % (text, run.failed, retried)


def hosts_of(work: Work) -> list[str]:
    """Return the hosts of an instance's steps in their order, each once."""
    return list(dict.fromkeys(span.host for span in work.spans if span.host is not None))


def _hidden(run: Run, limit: int) -> Markup | None:
    hidden = run.total - len(run.works)
    if hidden <= 0:
        return None
    words = "%s of %s are left out: bootflow_report_limit is %d. Failed and slow ones come first."
    return tag("p", words % (counted(hidden, "instances"), counted(run.total, "instances"), limit), cls="note")


def _legend(run: Run) -> Markup:
    stages = {span.stage for work in run.works for span in work.spans}
    parts = [(STAGES["waiting"], "waiting for a host")]
    parts += [(cls, stage.replace("_", " ")) for stage, cls in STAGES.items() if stage in stages]
    others = sorted(stages - {*STAGES, SCHEDULE})
    if others:
        parts.append((OTHER, ", ".join(others)))
    parts.append(("failed", "failed"))
    return tag("p", [tag("span", tag("span", cls="key " + cls), text) for cls, text in parts], cls="legend")


def _lane(host: str, lines: t.Sequence[tuple[Work, t.Sequence[Span]]], run: Run, end: float) -> Markup:
    whole = end - run.begin
    rows = []
    for work, spans in lines:
        drawn = [_segment(span, run, end) for span in spans]
        failed = any(span.result == "Error" for span in spans)
        text = ", ".join(segment.title for _begin, _size, segment in drawn)
        seconds = seconds_between(spans[0].begin, end if spans[-1].end is None else spans[-1].end)
        rows.append(
            (
                work.name,
                placed("%s on %s: %s" % (work.name, host, text), drawn, whole),
                _outcome(work, spans, failed),
                seconds,
            )
        )
    # The axis is in the column of the bars, so that it is as wide as they are.
    head = ("Instance", joined("Steps", _axis(whole)), "Result", "Time")
    return joined(tag("h3", host), tag("div", table("Steps on %s" % host, head, rows, (3,)), cls="lane"))


def _outcome(work: Work, spans: t.Sequence[Span], failed: bool) -> Markup:
    if failed:
        elsewhere = [host for host in hosts_of(work) if host != spans[0].host]
        again = elsewhere and not work.failed and spans[0].host is not None and work.spans[-1].host != spans[0].host
        return tag("span", "failed, went to %s" % work.spans[-1].host if again else "failed", cls="badge bad")
    if any(span.end is None for span in spans):
        return tag("span", "not ended", cls="badge warn")
    return tag("span", "done", cls="badge good")


def _segment(span: Span, run: Run, end: float) -> tuple[float, float, Segment]:
    stop = end if span.end is None else span.end
    cls = STAGES.get(span.stage, OTHER)
    words = "%s %s" % (span.stage.replace("_", " "), seconds_between(span.begin, stop))
    if span.result == "Error":
        cls, words = "failed", "%s, failed%s" % (words, ": " + span.details if span.details else "")
    elif span.end is None:
        words += ", not ended"
    return span.begin - run.begin, stop - span.begin, Segment(1, words, cls)


def ticks(whole: float) -> list[float]:
    """Return the marks of an axis that is so many seconds long."""
    step = next((step for step in STEPS if whole / step <= MARKS), STEPS[-1])
    number = int(whole / step + 1e-9)
    every = max(number // MARKS, 1)
    return [step * position for position in range(0, number + 1, every)]


def _axis(whole: float) -> Markup:
    marks = [
        tag("span", _tick(mark), style="left:%.2f%%" % (100 * mark / whole if whole else 0.0)) for mark in ticks(whole)
    ]
    return tag("div", marks, cls="axis", aria_hidden="true")


def _tick(seconds: float) -> str:
    return (
        "%.10g s" % seconds
        if seconds < 120
        else "%.10g min" % (seconds / 60)
        if seconds < 7200
        else "%.10g h" % (seconds / 3600)
    )


def _table(run: Run, now: float) -> Markup | None:
    if not run.works:
        return None
    rows = []
    for work in sorted(run.works, key=lambda work: (work.begin, work.name, work.uuid)):
        hosts = hosts_of(work)
        result = "failed" if work.failed else "not ended" if work.end is None else "done"
        took = seconds_between(work.begin, now if work.end is None else work.end)
        rows.append(
            (work.name, work.project, work.action, " \u2192 ".join(hosts) or "\u2013", len(hosts), result, took)
        )
    head = ("Instance", "Project", "Action", "Hosts in their order", "Hosts", "Result", "Time")
    return tag("details", tag("summary", "The run as a table"), table("Instances of the run", head, rows, (4, 6)))
