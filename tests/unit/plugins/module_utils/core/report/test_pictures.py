# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Pictures of the report: their lengths are the figures', and their markup holds whatever text."""

from __future__ import annotations

import datetime
import typing as t
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.bootflow.compute.plugins.module_utils.core.report import (
    bars,
    capacity,
    fleet,
    page,
    plan,
    refusals,
    timeline,
    words,
)
from ansible_collections.bootflow.compute.plugins.module_utils.core.report.figures import (
    Claim,
    Day,
    Host,
    Loss,
    Place,
    Plan,
    Refusal,
    Report,
    Room,
    Run,
    Span,
    Work,
)
from ansible_collections.bootflow.compute.plugins.module_utils.core.report.markup import Markup, escaped, joined, tag

NOW = 1_796_061_600.0


def xml(text: str) -> ElementTree.Element:
    return ElementTree.fromstring(text)


def widths(picture: str) -> list[float]:
    return [float(rect.get("width", "")) for rect in xml(picture).iter("rect")][1:]


def host(
    name: str = "h1", claims: t.Sequence[int] = (), total: int = 1000, used: int | None = None, **fields: t.Any
) -> Host:
    amounts = [{"memory_mb": size, "vcpus": 1, "disk_gb": 1} for size in claims]
    rooms = {
        "memory_mb": Room(total, 100 + sum(claims) if used is None else used, 100, 1.0),
        "vcpus": Room(4, len(claims), 0, 2.0),
        "disk_gb": Room(50, len(claims), 0, 1.0),
    }
    made = [Claim("u%d" % i, "i%d" % i, "p", "active", amount) for i, amount in enumerate(amounts)]
    values = {"zone": "z", "up": True, "state_known": True, "enabled": True, "reason": "", "reported_at": NOW, **fields}
    return Host(host=name, node=name, instances=len(made), rooms=rooms, claims=made, **values)


# --- markup ---------------------------------------------------------------------------------------------------------


@given(st.text())
def test_every_text_is_read_back_as_text(text: str) -> None:
    element = xml(tag("p", text, title=text))
    assert not list(element)
    # A parser turns line breaks of an attribute into spaces.
    assert element.text in (escaped_back(text) or None,) or (element.text or "") == escaped_back(text)
    assert str(element.get("title")).split() == escaped_back(text).split()


def escaped_back(text: str) -> str:
    plain = escaped(text)
    for code, character in (("&lt;", "<"), ("&gt;", ">"), ("&quot;", '"'), ("&#39;", "'"), ("&amp;", "&")):
        plain = plain.replace(code, character)
    return plain


def test_markup_is_not_escaped_twice_and_none_is_nothing() -> None:
    assert joined("<", Markup("<b></b>"), None, ["a", [1, tag("br")]]) == "&lt;<b></b>a1<br/>"
    assert (
        tag("a", "x", cls="c", aria_label="l", href=None, width=2.5, height=3.0)
        == '<a class="c" aria-label="l" width="2.5" height="3">x</a>'
    )


# --- bars ------------------------------------------------------------------------------------------------------------


@given(st.lists(st.integers(0, 10**7), max_size=30), st.integers(0, 10**8))
def test_segments_are_as_long_as_their_sizes(sizes: list[int], whole: int) -> None:
    picture = bars.stacked("bar", [bars.Segment(size, str(size), "c0") for size in sizes], whole)
    drawn = [size for size in sizes if size]
    length = max(whole, sum(sizes)) or 1
    assert widths(picture) == pytest.approx([size / length * 1000 for size in drawn], abs=0.006)
    assert sum(widths(picture)) <= 1000 + 0.006 * len(drawn)


def test_the_parts_of_a_host_are_its_use() -> None:
    parts = fleet.segments(host(claims=[300, 200, 100], used=750), "memory_mb", 200)
    assert [(part.size, part.title) for part in parts if part.size] == [
        (100, "reserved: 100 MiB"),
        (300, "i0: 300 MiB"),
        (200, "i1: 200 MiB"),
        (100, "i2: 100 MiB"),
        (50, "used otherwise: 50 MiB"),
    ]
    limited = [part for part in fleet.segments(host(claims=[100, 300, 200], used=700), "memory_mb", 1) if part.size]
    assert [(part.size, part.title) for part in limited] == [
        (100, "reserved: 100 MiB"),
        (300, "i1: 300 MiB"),
        (300, "2 claims more: 300 MiB"),
    ]


def test_a_host_that_gave_out_too_much_has_a_mark_at_its_capacity() -> None:
    report = Report(NOW, "ledger", [host(claims=[900, 250])])
    text = fleet.section(report)
    (limit,) = [rect for rect in xml(text).iter("rect") if rect.get("class") == "limit"]
    assert float(limit.get("x", "")) == pytest.approx(1000 / 1250 * 1000 - 2, abs=0.01)
    assert "over by 250 MiB" in text


def test_the_most_urgent_hosts_are_shown() -> None:
    hosts = [host("idle"), host("full", [880]), host("down", up=False), host("half", [400])]
    report = Report(NOW, "ledger", hosts, limit=2)
    assert [shown.host for shown in fleet.shown_hosts(report)] == ["down", "full"]
    assert "2 hosts of 4 hosts are left out" in fleet.section(report)


@pytest.mark.parametrize(
    ("losses", "expected"),
    [
        (None, "N+1 was not checked"),
        ([], "N+1 holds."),
        ([Loss("h1", 2)], "N+1 holds."),
        ([Loss("h1", 2, [("web", "no room")]), Loss("h2", 1)], "1 host cannot be lost"),
    ],
)
def test_the_sentence_on_n_plus_1(losses: list[Loss] | None, expected: str) -> None:
    assert expected in fleet.section(Report(NOW, "ledger", [host()], losses))


# --- a plan ----------------------------------------------------------------------------------------------------------


def place(uuid: str, size: int, where: str = "h1") -> Place:
    amounts = {"memory_mb": size, "vcpus": 1, "disk_gb": 1}
    return Place(uuid, "web-" + uuid, "p", "small", where, where, amounts, ["192.0.2.10"])


def plan_of(*places: Place, state: str = "held") -> Plan:
    return Plan("an-id", "boot", state, NOW, "ann", NOW - 60, places)


@pytest.mark.parametrize("claims", [(200, 300), (200,)])
def test_a_plan_is_shown_whether_its_places_are_claimed_or_not(claims: tuple[int, ...]) -> None:
    """The host has a reserve of 100 MiB and a claim of 200 MiB; the one of the plan, u1, is 300 MiB."""
    assert plan.before_and_after(host(claims=claims), [place("u1", 300)], "memory_mb") == (300, 600)


@given(st.lists(st.integers(0, 500), max_size=5), st.lists(st.integers(1, 400), min_size=1, max_size=5))
def test_the_bars_of_a_plan_differ_by_its_instances(claims: list[int], sizes: list[int]) -> None:
    places = [place("new%d" % i, size) for i, size in enumerate(sizes)]
    text = plan.section(Report(NOW, "ledger", [host(claims=claims)]), plan_of(*places))
    first, second = list(xml(text).iter("svg"))[:2]
    ends = [
        [float(r.get("width", "")) for r in svg.iter("rect") if r.get("class") not in ("free", "limit")]
        for svg in (first, second)
    ]
    whole = max(1000, 100 + sum(claims) + sum(sizes))
    assert sum(ends[1]) - sum(ends[0]) == pytest.approx(sum(sizes) / whole * 1000, abs=0.05)
    assert "before: %s" % words.amount("memory_mb", 100 + sum(claims)) in text


@pytest.mark.parametrize("state", plan.STATES)
def test_each_state_of_a_plan_has_a_sentence(state: str) -> None:
    report = Report(NOW, "ledger", [host()], plan=plan_of(place("u9", 10), place("u8", 10, "gone"), state=state))
    text = page.page(report)
    assert plan.STATES[state].partition("%s")[0] in text and 'href="#plan"' in text
    assert "2 instances on 2 hosts" in text and "The ledger has no report of this host." in text


def test_more_hosts_of_a_plan_than_the_limit_are_counted() -> None:
    places = [place("u%d" % i, 10, "h%d" % i) for i in range(5)]
    text = plan.section(Report(NOW, "ledger", [host("h%d" % i) for i in range(5)], limit=2), plan_of(*places))
    assert "3 hosts more" in text and "3 instances more" in text


def test_a_page_without_a_plan_has_no_such_part() -> None:
    assert "#plan" not in page.page(Report(NOW, "ledger", [host()]))


# --- a run -----------------------------------------------------------------------------------------------------------


def span(stage: str, where: str | None, begin: float, end: float | None, result: str | None = "Success") -> Span:
    return Span("u", stage, where, NOW + begin, None if end is None else NOW + end, result)


def test_lanes_begin_with_the_wait_for_the_host() -> None:
    spans = [
        span("schedule", "h2", 2, 2),
        span("spawning", "h2", 3, 5, "Error"),
        span("schedule", "h1", 6, 6),
        span("spawning", "h1", 6, None, None),
    ]
    work = Work("u", "web", "p", "create", NOW, None, False, spans)
    run = Run("req-1", "ann", NOW, None, 1, 0, [work])
    lanes = timeline.lanes(run, NOW + 10)
    assert [
        (where, [(s.stage, s.begin - NOW, s.end and s.end - NOW) for s in lines[0][1]]) for where, lines in lanes
    ] == [
        ("h1", [("waiting", 5, 6), ("spawning", 6, None)]),
        ("h2", [("waiting", 0, 2), ("spawning", 3, 5)]),
    ]
    assert timeline.hosts_of(work) == ["h2", "h1"]
    text = timeline.section(Report(NOW + 10, "ledger", [], run=run))
    assert "failed, went to h1" in text and "not ended" in text and "has not ended" in text
    lane = xml(text).findall(".//svg")[0]
    rects = [(float(r.get("x", "")), float(r.get("width", ""))) for r in lane.iter("rect")][1:]
    assert rects == [(500, 100), (600, 400)]


@given(st.floats(0.001, 10**7))
def test_an_axis_has_few_marks_within_it(whole: float) -> None:
    marks = timeline.ticks(whole)
    assert marks[0] == 0 and marks[-1] <= whole * 1.0001 and 1 <= len(marks) <= 2 * timeline.MARKS + 1


# --- why, and capacity -------------------------------------------------------------------------------------------------


def test_the_same_reason_is_told_once() -> None:
    def refusal(message: str, newest: float) -> Refusal:
        return Refusal(["x"], 1, "NoValidHost", message, "", newest)

    grouped = refusals.grouped([("b", refusal("m", 1)), ("a", refusal("m", 3)), ("c", refusal("other", 2))])
    assert [(r.names, r.total, r.message, r.newest) for r in grouped] == [
        (["a", "b"], 2, "m", 3),
        (["c"], 1, "other", 2),
    ]


def days(*used: int, start: str = "2026-11-01", gap: int = 1) -> list[Day]:
    first = datetime.date.fromisoformat(start)
    return [
        Day(
            (first + datetime.timedelta(days=gap * i)).isoformat(),
            1,
            1,
            dict.fromkeys(("memory_mb", "vcpus", "disk_gb"), 100),
            dict.fromkeys(("memory_mb", "vcpus", "disk_gb"), value),
        )
        for i, value in enumerate(used)
    ]


def test_days_are_where_the_calendar_has_them() -> None:
    three = [*days(0, 50), *days(100, start="2026-11-05")]
    points = capacity.points(three, [0, 50, 100], 100)
    assert [x for x, _y in points] == pytest.approx(
        [capacity.LEFT, capacity.LEFT + (capacity.RIGHT - capacity.LEFT) / 4, capacity.RIGHT]
    )
    assert [y for _x, y in points] == pytest.approx(
        [capacity.BOTTOM, (capacity.BOTTOM + capacity.TOP) / 2, capacity.TOP]
    )


def test_two_days_make_a_line() -> None:
    text = capacity.section(Report(NOW, "ledger", [], days=days(20, 40)))
    assert text.count("<polyline") == 6 and "20 GiB of 100 GiB (20 %)" in text and "2026-11-02" in text
    assert "one day so far" in capacity.section(Report(NOW, "ledger", [], days=days(20)))


# --- the page ----------------------------------------------------------------------------------------------------------


def test_the_page_of_many_hosts_is_of_sane_size() -> None:
    hosts = [host("h%04d" % i, [80] * 10) for i in range(1000)]
    text = page.page(Report(NOW, "ledger", hosts))
    assert xml(text.partition("\n")[2]).tag == "html" and len(text) < 2_500_000
    assert "800 hosts of 1,000 hosts are left out" in text
    assert text == page.page(Report(NOW, "ledger", hosts))


def test_amounts_and_times() -> None:
    assert [words.amount(r, 20480) for r in ("memory_mb", "vcpus", "disk_gb")] == ["20 GiB", "20480", "20480 GiB"]
    assert (words.share(1, 3), words.share(1, 0)) == ("33 %", "\u2013")
    assert (words.moment(None), words.moment(0)) == ("never", "1970-01-01 00:00:00 UTC")
    assert [words.seconds_between(0, end) for end in (0.25, 119.96, 7200)] == ["0.2 s", "120.0 s", "2 h"]
    assert [words.counted(n, "hosts") for n in (1, 1200)] == ["1 host", "1,200 hosts"]
