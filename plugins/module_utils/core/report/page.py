# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The whole page: one document without scripts, which loads nothing. It is well-formed XML too."""

from __future__ import annotations

from . import capacity, fleet, plan, refusals, timeline
from .figures import Report
from .markup import Markup, joined, tag
from .style import CSS
from .words import moment

#: Anchor -> words.
SECTIONS = {"fleet": "Fleet", "plan": "Plan", "run": "Run", "why": "Why", "capacity": "Capacity"}
#: A browser loads nothing for the page, even if something in it asked for it.
POLICY = "default-src 'none'; style-src 'unsafe-inline'"


def page(report: Report) -> str:
    """Return the page. The same figures give the same page."""
    title = "Fleet report"
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", http_equiv="Content-Security-Policy", content=POLICY),
        tag("meta", name="color-scheme", content="light dark"),
        tag("title", title),
        tag("style", Markup(CSS)),
    )
    planned = None if report.plan is None else plan.section(report, report.plan)
    anchors = [anchor for anchor in SECTIONS if anchor != "plan" or planned is not None]
    links = [tag("li", tag("a", SECTIONS[anchor], href="#" + anchor)) for anchor in anchors]
    body = tag(
        "body",
        tag("a", "Skip to the fleet", href="#fleet", cls="skip"),
        tag(
            "header",
            tag("h1", title),
            tag("p", "As of %s, from the ledger %s." % (moment(report.moment), report.ledger), cls="facts"),
            tag("nav", tag("ul", links), aria_label="Sections"),
        ),
        tag(
            "main",
            fleet.section(report),
            planned,
            timeline.section(report),
            refusals.section(report),
            capacity.section(report),
        ),
        tag(
            "footer",
            tag(
                "p",
                "From the ledger only: no host was asked. Sizes are what instances have claimed, not what they use.",
            ),
        ),
    )
    return "<!DOCTYPE html>\n" + joined(tag("html", head, body, "\n", lang="en")).replace("\n\n", "\n") + "\n"
