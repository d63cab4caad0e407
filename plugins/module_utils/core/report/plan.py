# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The part of a report on a plan: the hosts that get its instances, before and after."""

from __future__ import annotations

import typing as t

from ..plans.plan_states import DISCARDED, EXPIRED, HELD, USED
from .bars import Segment, stacked
from .figures import RESOURCES, Host, Place, Plan, Report
from .fleet import colour
from .markup import Markup, joined, table, tag
from .words import amount, counted, moment, share

#: State of a plan -> a sentence, with the moment of that.
STATES = {
    HELD: "It holds these places until %s: the other parts of this page count them as used.",
    USED: "It was used at %s. Before and after are with all else as it is now.",
    EXPIRED: "It expired at %s, and its places were given back: after is as it would have been.",
    DISCARDED: "It was discarded at %s, and its places were given back: after is as it would have been.",
}


def section(report: Report, plan: Plan) -> Markup:
    """Return the section on the plan."""
    places: dict[tuple[str, str], list[Place]] = {}
    for place in plan.places:
        places.setdefault((place.host, place.node), []).append(place)
    hosts = {(host.host, host.node): host for host in report.hosts}
    shown = sorted(places)[: report.limit]
    hidden = len(places) - len(shown)
    note = "%s more (bootflow_report_limit)." % counted(hidden, "hosts") if hidden else ""
    return tag(
        "section",
        tag("h2", "Plan", id="plan-heading"),
        tag(
            "p",
            "%s %s, made by %s at %s: %s on %s. "
            % (
                *("The plan of", plan.kind, plan.actor, moment(plan.created)),
                counted(len(plan.places), "instances"),
                counted(len(places), "hosts"),
            ),
            STATES[plan.state] % moment(plan.since),
            cls="facts",
        ),
        tag("p", "Id: ", plan.id, cls="facts"),
        _fleet(report.hosts, plan.places),
        tag("h3", "Hosts of the plan"),
        [_host(key, hosts.get(key), places[key]) for key in shown],
        tag("p", note, cls="note") if note else None,
        tag("h3", "Instances of the plan"),
        _instances(plan.places, report.limit),
        id="plan",
        aria_labelledby="plan-heading",
    )


def before_and_after(host: Host, places: t.Iterable[Place], resource: str) -> tuple[int, int]:
    """Return what is in use on a host without the places of a plan, and with all of them, whether they are claimed now or not."""
    claimed_uuids = {claim.uuid for claim in host.claims}
    sizes = [(place.uuid in claimed_uuids, place.amounts[resource]) for place in places]
    before = host.rooms[resource].used - sum(size for claimed, size in sizes if claimed)
    return before, before + sum(size for _claimed, size in sizes)


def _fleet(hosts: t.Sequence[Host], places: t.Sequence[Place]) -> Markup:
    of_host: dict[tuple[str, str], list[Place]] = {}
    for place in places:
        of_host.setdefault((place.host, place.node), []).append(place)
    rows = []
    for resource, (heading, _unit) in RESOURCES.items():
        pairs = [before_and_after(host, of_host.get((host.host, host.node), ()), resource) for host in hosts]
        before, after = sum(pair[0] for pair in pairs), sum(pair[1] for pair in pairs)
        capacity = sum(host.rooms[resource].capacity for host in hosts)
        cells = [
            "%s of %s (%s)" % (amount(resource, used), amount(resource, capacity), share(used, capacity))
            for used in (before, after)
        ]
        rows.append((heading, *cells))
    return table("The fleet before and after", ("In use", "Before", "After"), rows)


def _host(key: tuple[str, str], host: Host | None, places: t.Sequence[Place]) -> Markup:
    name, node = key
    title = name if node in ("", name) else "%s (%s)" % (name, node)
    if host is None or host.reported_at is None:
        lacking = tag("p", "The ledger has no report of this host.", cls="facts")
        return tag("article", tag("h4", title), lacking, cls="host")
    return tag(
        "article",
        tag("h4", title),
        tag("p", "zone %s; %s of the plan." % (host.zone, counted(len(places), "instances")), cls="facts"),
        [_rows(host, places, resource) for resource in RESOURCES],
        cls="host",
    )


def _rows(host: Host, places: t.Sequence[Place], resource: str) -> Markup:
    """The two bars of a resource, of the same length."""
    heading, capacity = RESOURCES[resource][0], host.rooms[resource].capacity
    before, after = before_and_after(host, places, resource)
    whole = max(capacity, after)
    used = Segment(before, "before: %s" % amount(resource, before), "rest")
    added = [
        Segment(
            place.amounts[resource], "%s: %s" % (place.name, amount(resource, place.amounts[resource])), colour(place.uuid)
        )
        for place in places
    ]  # fmt: skip
    rows = []
    for word, size, segments in (("before", before, [used]), ("after", after, [used, *added])):
        text = "%s of %s (%s)" % (amount(resource, size), amount(resource, capacity), share(size, capacity))
        label = "%s of %s %s: %s" % (heading, host.host, word, text)
        drawn = stacked(label, segments, whole, capacity if size > capacity else None)
        name = tag("span", heading if word == "before" else "", cls="resource")
        rows.append(tag("div", name, drawn, tag("span", "%s: %s" % (word, text), cls="figures"), cls="row"))
    return joined(rows)


def _instances(places: t.Sequence[Place], limit: int) -> Markup:
    rows = [
        (
            place.name,
            place.project,
            place.flavor,
            place.host,
            ", ".join(place.addresses),
            *(amount(resource, place.amounts[resource]) for resource in RESOURCES),
        )
        for place in places[:limit]
    ]
    head = ("Instance", "Project", "Flavor", "Host", "Addresses", *(heading for heading, _unit in RESOURCES.values()))
    hidden = len(places) - limit
    more = "%s more (bootflow_report_limit)." % counted(hidden, "instances") if hidden > 0 else None
    return joined(
        table("Instances of the plan", head, rows, (5, 6, 7)), tag("p", more, cls="note") if more is not None else None
    )
