# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The part of a report on hosts: totals, zones, what instances have claimed on each host, and whether a host can be lost."""

from __future__ import annotations

import typing as t
import zlib

from .. import times
from .bars import Segment, stacked
from .figures import RESOURCES, Claim, Host, Loss, Report, Room
from .markup import Markup, joined, table, tag
from .words import amount, counted, moment, share

COLOURS = 8  # classes c0, c1 and so on of the style sheet
NAMES_SHOWN = 20


def section(report: Report) -> Markup:
    """Return the section on the fleet."""
    shown = shown_hosts(report)
    hidden = len(report.hosts) - len(shown)
    note = None
    if hidden:
        note = tag(
            "p",
            "%s of %s are left out: bootflow_report_limit is %d. Hosts with problems and full hosts come first; totals and zones have all hosts."
            % (counted(hidden, "hosts"), counted(len(report.hosts), "hosts"), report.limit),
            cls="note",
        )
    losses = {loss.host: loss for loss in report.losses or ()}
    return tag(
        "section",
        tag("h2", "Fleet", id="fleet-heading"),
        _totals(report.hosts),
        _n_plus_1(report.losses),
        _zones(report.hosts) if report.hosts else None,
        tag("h3", "Hosts"),
        _legend(),
        note,
        [_host(host, losses.get(host.host), report) for host in shown],
        id="fleet",
        aria_labelledby="fleet-heading",
    )


def shown_hosts(report: Report) -> list[Host]:
    """Return the hosts that are drawn, by zone and name: if there are more than the limit, the ones with problems and the full ones."""

    def urgency(host: Host) -> tuple[t.Any, ...]:
        fullest = max((room.used / room.capacity for room in host.rooms.values() if room.capacity), default=0.0)
        return host.up and host.enabled and not host.problems, -fullest, host.host, host.node

    chosen = sorted(report.hosts, key=urgency)[: report.limit]
    return sorted(chosen, key=lambda host: (host.zone, host.host, host.node))


def _totals(hosts: t.Sequence[Host]) -> Markup:
    up = sum(host.up for host in hosts)
    tiles = [
        (
            "Hosts",
            "{:,}".format(len(hosts)),
            "%d up, %d down, %d disabled" % (up, len(hosts) - up, sum(not h.enabled for h in hosts)),
        ),
        ("Instances", "{:,}".format(sum(host.instances for host in hosts)), "that have a host"),
    ]
    for resource, (heading, _unit) in RESOURCES.items():
        used, capacity = _sums(hosts, resource)
        tiles.append(
            (heading, share(used, capacity), "%s of %s" % (amount(resource, used), amount(resource, capacity)))
        )
    return tag(
        "dl",
        [tag("div", tag("dt", name), tag("dd", value, tag("span", more))) for name, value, more in tiles],
        cls="tiles",
    )


def _sums(hosts: t.Iterable[Host], resource: str) -> tuple[int, int]:
    rooms = [host.rooms[resource] for host in hosts]
    return sum(room.used for room in rooms), sum(room.capacity for room in rooms)


def _n_plus_1(losses: t.Sequence[Loss] | None) -> Markup | None:
    if losses is None:
        return tag(
            "p",
            "N+1 was not checked: bootflow_report_n_plus_1 is false, or not set and there are more hosts than bootflow_report_limit.",
            cls="note",
        )
    stuck = [loss for loss in losses if loss.stuck]
    if not stuck:
        return tag(
            "p", tag("strong", "N+1 holds."), " The instances of any one host would fit on the others.", cls="good"
        )
    rows = []
    for loss in stuck[:NAMES_SHOWN]:
        names = ", ".join(name for name, _reason in loss.stuck[:NAMES_SHOWN])
        more = len(loss.stuck) - NAMES_SHOWN
        rows.append(
            (
                loss.host,
                loss.moved + len(loss.stuck),
                len(loss.stuck),
                names + (" and %d more" % more if more > 0 else ""),
                loss.stuck[0][1],
            )
        )
    hidden = len(stuck) - NAMES_SHOWN
    return joined(
        tag(
            "p",
            tag("strong", "N+1 does not hold."),
            " %s cannot be lost: some of the instances there would find no other host." % counted(len(stuck), "hosts"),
            cls="bad",
        ),
        tag(
            "details",
            tag("summary", "Hosts that cannot be lost"),
            table(
                "Hosts that cannot be lost",
                ("Host", "Instances", "Without another host", "Names", "Why the first one"),
                rows,
                (1, 2),
            ),
            tag("p", "%s more." % counted(hidden, "hosts"), cls="note") if hidden > 0 else None,
        ),
    )


def _zones(hosts: t.Sequence[Host]) -> Markup:
    zones: dict[str, list[Host]] = {}
    for host in hosts:
        zones.setdefault(host.zone, []).append(host)
    rows = []
    for zone, members in sorted(zones.items()):
        row: list[t.Any] = [zone, len(members), sum(host.instances for host in members)]
        for resource, (heading, _unit) in RESOURCES.items():
            used, capacity = _sums(members, resource)
            text = "%s: %s of %s in use" % (heading, amount(resource, used), amount(resource, capacity))
            drawn = stacked("%s, %s" % (zone, text), [Segment(used, text, "used")], capacity)
            row.append(
                (drawn, "%s of %s (%s)" % (amount(resource, used), amount(resource, capacity), share(used, capacity)))
            )
        rows.append(row)
    head = ("Zone", "Hosts", "Instances", *(heading for heading, _unit in RESOURCES.values()))
    return joined(
        tag("h3", "Zones"),
        table("In use by availability zone, of the capacity with allocation ratios", head, rows, (1, 2)),
    )


def _legend() -> Markup:
    parts = (
        ("reserved", "reserved for the host"),
        ("c0", "an instance (each has its colour)"),
        ("c0 moving", "a move that is not decided"),
        ("rest", "used otherwise"),
        ("free", "free"),
    )
    return tag("p", [tag("span", tag("span", cls="key " + cls), text) for cls, text in parts], cls="legend")


def _host(host: Host, loss: Loss | None, report: Report) -> Markup:
    title = host.host if host.node in ("", host.host) else "%s (%s)" % (host.host, host.node)
    facts = ["zone %s" % host.zone, counted(host.instances, "instances"), _reported(host, report.moment)]
    if loss is not None:
        facts.append(
            "cannot be lost: %d of its instances would find no host" % len(loss.stuck) if loss.stuck else "can be lost"
        )
    return tag(
        "article",
        tag("h4", title, " ", _badges(host)),
        tag("p", "; ".join(facts) + ".", cls="facts"),
        tag("ul", [tag("li", problem) for problem in host.problems], cls="problems") if host.problems else None,
        [_resource(host, resource, report.limit) for resource in RESOURCES] if host.reported_at is not None else None,
        _claims(host, report.limit) if host.claims else None,
        cls="host",
    )


def _badges(host: Host) -> Markup:
    badges = [("up", "good") if host.up else ("down", "bad") if host.state_known else ("not asked", "bad")]
    if not host.enabled:
        badges.append(("disabled: %s" % host.reason if host.reason else "disabled", "warn"))
    return joined([(tag("span", text, cls="badge " + cls), " ") for text, cls in badges])


def _reported(host: Host, now: float) -> str:
    if host.reported_at is None:
        return "never reported"
    return "reported %s ago (%s)" % (times.duration(round(now - host.reported_at)), moment(host.reported_at))


def _resource(host: Host, resource: str, limit: int) -> Markup:
    heading, room = RESOURCES[resource][0], host.rooms[resource]
    text = "%s of %s in use" % (amount(resource, room.used), amount(resource, room.capacity))
    how = "%s \u00d7 %.10g" % (amount(resource, room.total), room.ratio)
    over = tag("strong", " over by %s" % amount(resource, -room.free), cls="over") if room.free < 0 else None
    label = "%s of %s: %s, %s free" % (heading, host.host, text, amount(resource, max(room.free, 0)))
    drawn = stacked(label, segments(host, resource, limit), room.capacity, room.capacity if room.free < 0 else None)
    figures = tag("span", text, over, " (%s), %s free" % (how, amount(resource, max(room.free, 0))), cls="figures")
    return tag("div", tag("span", heading, cls="resource"), drawn, figures, cls="row")


def segments(host: Host, resource: str, limit: int) -> list[Segment]:
    """Return the parts of a host's bar: its reserve, the largest claims up to the limit, the sum of the other claims, and other use."""
    room: Room = host.rooms[resource]
    claims = sorted(host.claims, key=lambda claim: (-claim.amounts[resource], claim.name, claim.uuid))
    drawn, others = claims[:limit], claims[limit:]
    order = {id(claim): number for number, claim in enumerate(host.claims)}
    drawn.sort(key=lambda claim: order[id(claim)])
    parts = [Segment(room.reserved, "reserved: %s" % amount(resource, room.reserved), "reserved")]
    parts += [Segment(claim.amounts[resource], _title(claim, resource), _class(claim)) for claim in drawn]
    summed = sum(claim.amounts[resource] for claim in others)
    parts.append(Segment(summed, "%s more: %s" % (counted(len(others), "claims"), amount(resource, summed)), "rest"))
    otherwise = room.used - room.reserved - sum(claim.amounts[resource] for claim in claims)
    parts.append(Segment(otherwise, "used otherwise: %s" % amount(resource, max(otherwise, 0)), "rest"))
    return parts


def _title(claim: Claim, resource: str) -> str:
    return "%s: %s%s" % (claim.name, amount(resource, claim.amounts[resource]), ", of a move" if claim.moving else "")


def _class(claim: Claim) -> str:
    return colour(claim.uuid) + (" moving" if claim.moving else "")


def colour(uuid: str) -> str:
    """Return the class of an instance's colour: the same in each bar, and in each report."""
    return "c%d" % (zlib.crc32(uuid.encode("utf-8", "replace")) % COLOURS)


def _claims(host: Host, limit: int) -> Markup:
    rows = [
        (
            claim.name,
            claim.project,
            claim.state + (", moving" if claim.moving else ""),
            *(amount(resource, claim.amounts[resource]) for resource in RESOURCES),
        )
        for claim in host.claims[:limit]
    ]
    hidden = len(host.claims) - limit
    caption = "Claims on %s" % host.host
    return tag(
        "details",
        tag("summary", counted(len(host.claims), "claims")),
        table(
            caption,
            ("Instance", "Project", "State", *(heading for heading, _unit in RESOURCES.values())),
            rows,
            (3, 4, 5),
        ),
        tag("p", "%s more (bootflow_report_limit)." % counted(hidden, "claims"), cls="note") if hidden > 0 else None,
    )
