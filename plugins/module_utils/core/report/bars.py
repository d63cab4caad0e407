# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Bars as SVG: a row of segments, each with its title. A bar has no text, so that it can be as wide as the page."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from .markup import Markup, tag

WIDTH = 1000.0  # of a bar in its own units


@dataclass(frozen=True)
class Segment:
    """A part of a bar. ``cls`` is its class in the style sheet."""

    size: float
    title: str
    cls: str


def stacked(label: str, segments: t.Iterable[Segment], whole: float, mark: float | None = None) -> Markup:
    """Return a bar of segments side by side.

    :arg whole: the size of the whole bar; a bar whose segments are more is as long as they are. :arg mark: where a line is drawn across it
    """
    drawn = [segment for segment in segments if segment.size > 0]
    whole = max(whole, sum(segment.size for segment in drawn)) or 1.0
    parts, position = [], 0.0
    for segment in drawn:
        width = segment.size / whole * WIDTH
        parts.append(tag("rect", tag("title", segment.title), x=position, y=0, width=width, height=20, cls=segment.cls))
        position += width
    if mark is not None:
        line = mark / whole * WIDTH
        parts.append(tag("rect", x=max(min(line, WIDTH) - 2, 0.0), y=0, width=4.0, height=20, cls="limit"))
    return _drawing(label, parts)


def placed(label: str, spans: t.Iterable[tuple[float, float, Segment]], whole: float) -> Markup:
    """Return a bar of segments, each at its place. :arg spans: (begin, size, segment) in the units of ``whole``"""
    whole = whole or 1.0
    parts = []
    for begin, size, segment in spans:
        # A step that took no time is seen all the same.
        width = max(size / whole * WIDTH, 3.0)
        place = min(begin / whole * WIDTH, WIDTH - width)
        parts.append(
            tag("rect", tag("title", segment.title), x=max(place, 0.0), y=0, width=width, height=20, cls=segment.cls)
        )
    return _drawing(label, parts)


def _drawing(label: str, parts: t.Sequence[Markup]) -> Markup:
    background = tag("rect", x=0, y=0, width=WIDTH, height=20, cls="free")
    return tag(
        "svg",
        tag("title", label),
        background,
        parts,
        viewBox="0 0 1000 20",
        preserveAspectRatio="none",
        role="img",
        aria_label=label,
        cls="bar",
    )
