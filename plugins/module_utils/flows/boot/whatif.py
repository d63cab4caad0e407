# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Instances that would fit, and hosts that could be lost, by the state of the ledger: read-only, with few queries."""

from __future__ import annotations

import collections
import typing as t
from dataclasses import dataclass, replace

from ...core import errors
from ...core.instances.request import ServerRequest
from ...core.instances.server_groups import ServerGroup
from ...core.networks.network import Network
from ...core.reading.problems import Problems
from ...core.request import expand
from ...core.scheduler.columns import Fleet
from ...core.scheduler.host_state import HostState
from ...core.scheduler.options import SchedulerOptions
from ...core.scheduler.placement import select_destinations
from ...core.scheduler.request_spec import RequestSpec
from ...core.scheduler.spare import hosts_that_can_be_lost, hosts_that_leave_together
from ...core.scheduler.whatif import WhatIf, how_many
from ...ledger.compute import groups, instances, nodes, requests
from ...ledger.compute.fleet import NEVER_REPORTED, Needs
from ...ledger.compute.nodes import NodeRow
from ...ledger.db.transaction import Transaction
from ..networks import requested_ports
from . import schedule
from .accept import resolved_hints, stored_spec

ReadFleet = t.Callable[[Transaction, Needs], Fleet]

# A host's reserve -> the number of HostState that includes it.
_RESERVES = {
    "reserved_memory_mb": "memory_mb_used",
    "reserved_disk_gb": "local_gb_used",
    "reserved_vcpus": "vcpus_used",
}
_RATIOS = ("ram_allocation_ratio", "disk_allocation_ratio", "cpu_allocation_ratio")


# --- how many more ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Answer:
    """The answer for one request.

    total: how many more fit after the previous requests; remaining_count: the same after its own instances. ``placed`` and
    ``by_host`` are [{host, node, count}]. If the request does not fit completely, nothing of it is placed, as in a boot.
    stopped_by: {reason, filters, decision}, or None if a limit ended the count.
    """

    name: str
    flavor: str
    project: str
    count: int  # requested instances without existing ones
    existing_count: int
    total: int
    remaining_count: int
    by_host: list[dict[str, t.Any]]
    placed: list[dict[str, t.Any]]
    stopped_by: dict[str, t.Any] | None

    @property
    def fits(self) -> bool:
        return self.total >= self.count


def ask(
    tx: Transaction,
    entries: t.Sequence[ServerRequest],
    read_fleet: ReadFleet,
    options: SchedulerOptions,
    limit: int | None = None,
    named: bool = True,
    networks: t.Mapping[str, Network] | None = None,
) -> list[Answer]:
    """For each request, one after the other, how many more fit and where its own would go.

    :arg named: instances of these names that already have a host are not placed.
    :arg networks: of the inventory, by id. Hosts must have the networks that the requests name.
    :raises InvalidRequest: hints with unknown instances; server groups that changed while they have members.
    :raises InvalidInput: neither a limit nor a filter that ends the count.
    """
    problems = Problems()
    stored = [_stored(tx, r, "instances[%d]" % i, problems, networks or {}) for i, r in enumerate(entries)]
    members = _groups(tx, entries, problems)
    problems.raise_if_any()
    existing = _existing(tx, expand.Names.expand(entries)) if named else {}
    fleet = read_fleet(tx, schedule.needs_of(stored, options))
    answers = []
    made: dict[tuple[str, str], set[str]] = {}  # (project, name of an entry) -> names of its instances
    for (project, name), entry in existing.items():
        made.setdefault((project, entry), set()).add(name)
    for request, spec in zip(entries, stored):
        (names,) = expand.Names.expand([request]).with_existing(made).by_request
        living = sum((request.project, name) in existing for name in names)
        asked = replace(
            schedule.request_spec(spec, [], None, request.project),
            instance_group=members.get(request.server_group.id) if request.server_group is not None else None,
        )
        answers.append(_answer(fleet, asked, request, len(names) - living, living, options, limit))
    return answers


def fit_each(
    tx: Transaction, entries: t.Sequence[ServerRequest], read_fleet: ReadFleet, options: SchedulerOptions
) -> list[WhatIf | errors.BootflowError]:
    """For each request how many of its instances fit, as if it were the only one; the error of one that cannot be counted."""
    problems = Problems()
    stored = [_stored(tx, r, "instances[%d]" % i, problems, {}) for i, r in enumerate(entries)]
    problems.raise_if_any()
    fleet = read_fleet(tx, schedule.needs_of(stored, options)) if stored else None
    capacities: list[WhatIf | errors.BootflowError] = []
    for request, spec in zip(entries, stored):
        try:
            asked = schedule.request_spec(spec, [], None, request.project)
            capacities.append(how_many(t.cast(Fleet, fleet), asked, options))
        except errors.BootflowError as error:
            capacities.append(error)
    return capacities


def _answer(
    fleet: Fleet,
    spec: RequestSpec,
    request: ServerRequest,
    count: int,
    existing_count: int,
    options: SchedulerOptions,
    limit: int | None,
) -> Answer:
    capacity = how_many(fleet, spec, options, limit)
    quiet = replace(options, explain=False, max_attempts=1)
    placed: list[dict[str, t.Any]] = []
    remaining_count = capacity.total
    if count and capacity.total >= count:
        uuids = ["%s %d" % (request.name, number) for number in range(count)]
        chosen = select_destinations(fleet, replace(spec, instance_uuids=uuids), quiet)
        places = collections.Counter((s.host, s.nodename) for s in chosen)
        placed = [{"host": host, "node": node, "count": n} for (host, node), n in sorted(places.items())]
        remaining_count = how_many(fleet, spec, quiet, limit).total
    return Answer(
        name=request.name,
        flavor=request.flavor.name,
        project=request.project,
        count=count,
        existing_count=existing_count,
        total=capacity.total,
        remaining_count=remaining_count,
        by_host=capacity.by_host,
        placed=placed,
        stopped_by=capacity.stopped_by,
    )


def _stored(
    tx: Transaction, request: ServerRequest, path: str, problems: Problems, networks: t.Mapping[str, Network]
) -> dict[str, t.Any]:
    """The request as a boot would store it, with everything that the scheduler reads."""
    hints: t.Mapping[str, t.Any] = {}
    with problems.collect(path + ".scheduler_hints"):
        hints = resolved_hints(tx, request)
    refused_ports = Problems()
    (request,) = requested_ports.resolve_boot(tx, [request], [True], networks, refused_ports)
    # An instance of the request may be there, and have the port.
    unknown = [e for e in refused_ports.errors if e["code"] != "PortInUse"]
    problems.extend({**e, "path": path + str(e["path"])[len("instances[0]") :]} for e in unknown)
    known = [(r, networks[r.network]) for r in request.networks if r.network is not None and r.network in networks]
    return stored_spec(request, known, hints)


def _groups(tx: Transaction, entries: t.Sequence[ServerRequest], problems: Problems) -> dict[str, ServerGroup]:
    """The groups of the entries, with their members."""
    requested = {r.server_group.id: r.server_group for r in entries if r.server_group is not None}
    known = groups.load(tx, requested)
    groups_by_id = {}
    for index, request in enumerate(entries):
        group = request.server_group
        if group is None:
            continue
        stored_group = known.get(group.id)
        if stored_group is None or not stored_group.members:
            groups_by_id[group.id] = group
        elif (stored_group.policy, stored_group.max_server_per_host) == (group.policy, group.max_server_per_host):
            groups_by_id[group.id] = stored_group
        else:
            problems.add(
                "instances[%d].scheduler_hints.group" % index,
                errors.InvalidInput(
                    reason="server group %s has %d members under the policy %s (max_server_per_host %d), and cannot change"
                    " to %s (%d)"
                    % (
                        group.name,
                        len(stored_group.members),
                        stored_group.policy,
                        stored_group.max_server_per_host,
                        group.policy,
                        group.max_server_per_host,
                    ),
                    remedy="Declare a group of another name, or delete its members first.",
                ),
            )
    return groups_by_id


def _existing(tx: Transaction, names: expand.Names) -> dict[tuple[str, str], str]:
    """(project, name) of the requested instances that already have a host -> the name of the entry that made it."""
    names_by_project = {p: instances.names_with_host(tx, p, possible) for p, possible in names.by_project().items()}
    return {(p, name): entry for p, made in names_by_project.items() for name, entry in made.items()}


# --- N+1 --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Loads:
    """The guests of hosts: for each host the requests of its instances, grouped by request."""

    by_host: dict[str, list[RequestSpec]]
    stored: list[dict[str, t.Any]]  # the requests as stored, each once
    names: dict[str, str]  # uuid -> name of the instance


def loads(tx: Transaction, hosts: t.Collection[str] | None = None) -> Loads:
    """The live instances with a host, without those being deleted, which need no other host.

    :arg hosts: only of these hosts.
    """
    rows = instances.on_hosts(tx, hosts)
    stored = {i: r.spec for i, r in requests.specs(tx, {r.request_spec_id for r in rows}).items()}
    members = groups.load(tx, {r.server_group_id for r in rows if r.server_group_id})
    together: dict[tuple[t.Any, ...], list[str]] = {}
    for row in rows:
        together.setdefault((row.host, row.request_spec_id, row.project, row.server_group_id), []).append(row.uuid)
    by_host: dict[str, list[RequestSpec]] = {}
    for (host, spec_id, project, group_id), uuids in together.items():
        spec = schedule.request_spec(stored[spec_id], uuids, None, project)
        by_host.setdefault(host, []).append(replace(spec, instance_group=members.get(group_id)))
    return Loads(by_host, list(stored.values()), {r.uuid: r.display_name for r in rows})


def lose(
    tx: Transaction, read_fleet: ReadFleet, options: SchedulerOptions, hosts: t.Collection[str] | None = None
) -> list[dict[str, t.Any]]:
    """core's hosts_that_can_be_lost() for these hosts (all by default), with the names of the instances."""
    named = nodes.same_machines(tx, hosts) if hosts is not None else {}
    load = loads(tx, None if hosts is None else {*hosts, *(name for names in named.values() for name in names)})
    fleet = read_fleet(tx, schedule.needs_of(load.stored, options))
    losses = hosts_that_can_be_lost(fleet, load.by_host, options, hosts)
    for host in losses:
        for instance in [*host["moved"], *host["stuck"]]:
            instance["name"] = load.names[instance["instance_uuid"]]
    return losses


def leave_together(
    tx: Transaction, read_fleet: ReadFleet, options: SchedulerOptions, batches: t.Sequence[t.Sequence[str]]
) -> list[dict[str, t.Any]]:
    """For each batch of hosts core's hosts_that_leave_together(), with the names of the instances and the hosts that they are on (``source``)."""
    hosts = [host for batch in batches for host in batch]
    named = nodes.same_machines(tx, hosts)
    load = loads(tx, {*hosts, *(name for names in named.values() for name in names)})
    fleet = read_fleet(tx, schedule.needs_of(load.stored, options))
    sources = {uuid: host for host, specs in load.by_host.items() for spec in specs for uuid in spec.instance_uuids}
    answers = []
    for batch in batches:
        answer = hosts_that_leave_together(fleet, load.by_host, options, batch)
        for instance in [*answer["moved"], *answer["stuck"]]:
            uuid = instance["instance_uuid"]
            instance.update(name=load.names[uuid], source=sources[uuid])
        answers.append(answer)
    return answers


# --- the hosts as they would be ---------------------------------------------------------------------------------------


def as_configured(tx: Transaction, fleet: Fleet, configurations: t.Mapping[str, t.Mapping[str, t.Any]]) -> Fleet:
    """The fleet with the inventory's current settings, which a boot enters into the ledger before scheduling."""
    changes: dict[int, tuple[NodeRow, dict[str, t.Any]]] = {}
    for row in nodes.rows(tx, ("id", "host", "service_disabled", "service_disabled_reason", *nodes.CONFIGURATION)):
        wanted = configurations.get(row.host) or {}
        new = {k: wanted[k] for k in nodes.CONFIGURATION if k in wanted and getattr(row, k) != wanted[k]}
        if new:
            changes[row.id] = (row, new)
    if not changes:
        return fleet
    hosts = []
    for host in fleet.hosts:
        change = changes.get(t.cast(int, host.node_id))
        hosts.append(host if change is None else replace(host, **_changed(host, *change)))
    return Fleet(hosts, fleet.machines)


def _changed(host: HostState, row: NodeRow, new: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    """Fields of HostState that the settings ``new`` change."""
    values: dict[str, t.Any] = {name: new[name] for name in _RATIOS if name in new}
    for name, used in _RESERVES.items():
        if name in new:
            values[used] = getattr(host, used) + new[name] - getattr(row, name)
    if "availability_zone" in new:
        values["availability_zones"] = (new["availability_zone"],) if new["availability_zone"] else ()
    if "disabled" in new or "disabled_reason" in new:
        disabled = bool(new.get("disabled", row.disabled) or row.service_disabled)
        reason = (row.service_disabled_reason if row.service_disabled else "") or new.get(
            "disabled_reason", row.disabled_reason
        )
        values.update(disabled=disabled, disabled_reason=(reason or "") if disabled else "")
    return values


@dataclass(frozen=True)
class Facts:
    """The age of the ledger's facts: seconds since the oldest report, and the hosts that are down: [{host, reason}]."""

    oldest: float | None
    down: list[dict[str, str]]


def facts(tx: Transaction, hosts: t.Collection[str], service_down_time: float) -> Facts:
    """The state of these hosts as in the ComputeFilter, in their order."""
    names = ("host", "reported_at", "unreachable_reason", "forced_down", "forced_down_reason")
    reasons: dict[str, str] = {}
    ages: dict[str, float] = {}
    for row in nodes.rows(tx, names):
        reason = ""
        if row.forced_down:
            reason = "forced down" + (": %s" % row.forced_down_reason if row.forced_down_reason else "")
        elif row.unreachable_reason is not None:
            reason = "no answer: %s" % row.unreachable_reason
        elif row.reported_at is None:
            reason = NEVER_REPORTED
        elif abs(tx.now - row.reported_at) > service_down_time:
            reason = "last report %.0f s ago, more than %.10g s" % (abs(tx.now - row.reported_at), service_down_time)
        reasons[row.host] = reasons.get(row.host) or reason
        if row.reported_at is not None:
            ages[row.host] = max(ages.get(row.host, 0.0), tx.now - row.reported_at)
    known = [ages[h] for h in hosts if h in ages]
    down = [{"host": h, "reason": reasons.get(h, NEVER_REPORTED)} for h in hosts if reasons.get(h, NEVER_REPORTED)]
    return Facts(oldest=max(known) if known else None, down=down)
