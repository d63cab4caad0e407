# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Choosing hosts for what waits in this run, and claiming there, in one transaction.

source: 000, ComputeTaskManager.build_instances and instance_claim (rows A39-A43, A70-A83, D01-D04, D19)
"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field, replace

from ..core import errors, retry, states
from ..core.claims import ResourceRequest, estimate_overhead
from ..core.model import Flavor
from ..core.scheduler.columns import Fleet
from ..core.scheduler.host_state import HostState
from ..core.scheduler.placement import SchedulerOptions, Selection, select_destinations
from ..core.scheduler.request_spec import RequestSpec
from . import claims, cleanups, failure, history, instances, ports, runs
from .context import Context
from .libraries import sa
from .tables import instances as instances_table


@dataclass
class Scheduled:
    placed: dict[str, Selection] = field(default_factory=dict)  # uuid -> where, with alternates and the explanation
    hosts: list[str] = field(default_factory=list)  # every host with builds of this run
    waiting: list[str] = field(default_factory=list)  # lost their claims to another run: next round
    failed: list[str] = field(default_factory=list)  # ended in ERROR here
    explanations: dict[str, t.Any] = field(
        default_factory=dict
    )  # uuid -> why no host was found, where it was asked for


def schedule(conn: t.Any, host_states: t.Sequence[HostState], options: SchedulerOptions, context: Context) -> Scheduled:
    """Place and claim every instance of this run that waits in task_state scheduling.

    Entries are all or nothing, as in Nova: where a host is missing for one instance of an entry, all of that entry end in
    ERROR (row A40, D01). Refused claims (another run was faster) wait for the next round.
    """
    runs.renew(conn, context.run, context.now)
    result = Scheduled()
    rows = instances.select_live(
        conn, run_id=context.run.id, vm_state=states.BUILDING, task_state=states.SCHEDULING, lock=True
    )
    if rows:
        fleet = Fleet(host_states)
        wishes: list[claims.Wish] = []
        retries: dict[str, t.Any] = {}
        barred: dict[
            str, set[str]
        ] = {}  # a host that still has remains of an instance: its cleanup would take the new build too
        for cleanup in cleanups.of_instances(conn, [r.uuid for r in rows]):
            barred.setdefault(cleanup.instance_uuid, set()).add(cleanup.host)
        for group, ignore_hosts in _groups(rows, barred):
            _select(conn, group, ignore_hosts, fleet, options, context, result, wishes, retries)
        _claim(conn, {r.uuid: r for r in rows}, wishes, retries, context, result)
    result.hosts = hosts_of_run(conn, context.run.id)
    return result


def waiting(conn: t.Any, run_id: str) -> bool:
    """Whether an instance of this run waits for a host."""
    c = instances_table.c
    query = sa.select(c.uuid).where(
        c.run_id == run_id,
        c.deleted == instances.LIVE,
        c.vm_state == states.BUILDING,
        c.task_state == states.SCHEDULING,
    )
    return conn.execute(query.limit(1)).first() is not None


def faults(conn: t.Any, uuids: t.Sequence[str]) -> dict[str, dict[str, t.Any]]:
    """uuid -> why it was not placed."""
    return history.last_faults(conn, uuids)


def hosts_of_run(conn: t.Any, run_id: str) -> list[str]:
    """Hosts on which this run has builds."""
    c = instances_table.c
    rows = conn.execute(
        sa.select(c.host)
        .where(c.run_id == run_id, c.deleted == instances.LIVE, c.vm_state == states.BUILDING, c.host.is_not(None))
        .distinct()
    )
    return sorted(r.host for r in rows)


def _groups(rows: t.Sequence[t.Any], barred: t.Mapping[str, set[str]]) -> list[tuple[list[t.Any], tuple[str, ...]]]:
    """Instances that may be placed by one call (same request, same hosts already tried), and the hosts closed to them."""
    groups: dict[t.Any, list[t.Any]] = {}
    for row in rows:
        tried = tuple(map(tuple, (row.retry or {}).get("hosts", ())))
        closed = tuple(sorted(barred.get(row.uuid, ())))
        groups.setdefault((row.request_spec_id, (row.retry or {}).get("num_attempts", 0), tried, closed), []).append(
            row
        )
    return [(group, key[-1]) for key, group in groups.items()]


def _select(
    conn: t.Any,
    group: list[t.Any],
    ignore_hosts: t.Sequence[str],
    fleet: Fleet,
    options: SchedulerOptions,
    context: Context,
    result: Scheduled,
    wishes: list[claims.Wish],
    retries: dict[str, t.Any],
) -> None:
    first = group[0]
    spec = first.spec
    uuids = [r.uuid for r in group]
    try:
        record = retry.populate_retry(
            first.retry,
            max_attempts=options.max_attempts,
            instance_uuid=first.uuid,
            force_hosts=[spec["forced_host"]] if spec["forced_host"] else [],
            force_nodes=[spec["forced_node"]] if spec["forced_node"] else [],
        )
        request = replace(request_spec(spec, uuids, record, first.project), ignore_hosts=ignore_hosts)
        selections = select_destinations(fleet, request, options)
    except errors.BootflowError as e:
        failure.end_in_error(conn, group, e, None, context)
        result.failed.extend(uuids)
        if e.details.get("decision") is not None:
            result.explanations.update(dict.fromkeys(uuids, e.details["decision"]))
        return
    resources = resource_request(spec)
    for selection in selections:
        places = [claims.Candidate(selection.host, selection.nodename, selection.limits)]
        places += [claims.Candidate(a.host, a.nodename, a.limits) for a in selection.alternates]
        wishes.append(claims.Wish(selection.instance_uuid, resources, places))
        retries[selection.instance_uuid] = record
        result.placed[selection.instance_uuid] = selection


def _claim(
    conn: t.Any,
    rows: t.Mapping[str, t.Any],
    wishes: t.Sequence[claims.Wish],
    retries: t.Mapping[str, t.Any],
    context: Context,
    result: Scheduled,
) -> None:
    now = context.now
    updates: list[dict[str, t.Any]] = []
    for uuid, outcome in claims.take(conn, wishes, now).items():
        record = retries[uuid]
        if isinstance(outcome, errors.BootflowError):
            chosen = result.placed.pop(uuid)
            record = retry.record_failure(record, chosen.host, chosen.nodename, outcome)
            failure.refused(conn, rows[uuid], outcome, record, chosen.host, context)
            (result.waiting if record is not None else result.failed).append(uuid)
            continue
        placed = result.placed[uuid]
        if (outcome.host, outcome.node) != (placed.host, placed.nodename):
            placed = replace(placed, host=outcome.host, nodename=outcome.node, limits=dict(outcome.limits))
            result.placed[uuid] = placed
        record = retry.record_host(record, outcome.host, outcome.node)
        updates.append(
            {
                "row": uuid,
                "new_host": outcome.host,
                "new_node": outcome.node,
                "new_limits": dict(outcome.limits),
                "new_retry": record,
                "at": now,
            }
        )
    if not updates:
        return
    c = instances_table.c
    b = sa.bindparam
    conn.execute(
        instances_table.update()
        .where(c.uuid == b("row"))
        .values(
            host=b("new_host"),
            node=b("new_node"),
            launched_on=b("new_host"),
            limits=b("new_limits", type_=sa.JSON),
            retry=b("new_retry", type_=sa.JSON(none_as_null=True)),
            task_state=sa.null(),
            scheduled_at=b("at"),
            updated_at=b("at"),
        ),
        updates,
    )
    by_host: dict[str, list[str]] = {}
    for u in updates:
        by_host.setdefault(u["new_host"], []).append(u["row"])
    for host, uuids in by_host.items():
        history.start_events(conn, uuids, "schedule", host, now)
        history.finish_events(conn, uuids, "schedule", history.SUCCESS, now)
        ports.bind(conn, uuids, host)


def request_spec(spec: t.Mapping[str, t.Any], uuids: t.Sequence[str], record: t.Any, project: str) -> RequestSpec:
    """The scheduler's view of a stored request (row A31)."""
    image = spec["image"] or {}
    return RequestSpec(
        instance_uuids=list(uuids),
        flavor=Flavor(**spec["flavor"]),
        image_properties=dict(image.get("properties") or {}),
        availability_zone=spec["availability_zone"],
        force_host=spec["forced_host"],
        force_node=spec["forced_node"],
        retry_hosts=[tuple(h) for h in (record or {}).get("hosts", ())],
        scheduler_hints=dict(spec["scheduler_hints"]),
        metadata=dict(spec["metadata"]),
        project=project,
        memory_overhead_mb=estimate_overhead(spec["flavor"]["vcpus"], spec["flavor"]["memory_mb"]),
    )


def resource_request(spec: t.Mapping[str, t.Any]) -> ResourceRequest:
    """What one instance of a stored request claims (semantics: root + ephemeral, not swap)."""
    flavor = spec["flavor"]
    return ResourceRequest(
        memory_mb=flavor["memory_mb"],
        disk_gb=flavor["root_gb"] + flavor["ephemeral_gb"],
        vcpus=flavor["vcpus"],
        memory_overhead_mb=estimate_overhead(flavor["vcpus"], flavor["memory_mb"]),
    )


def give_up(conn: t.Any, options_max_attempts: int, context: Context) -> list[str]:
    """End what still waits after the last round: MaxRetriesExceeded, or the refusal itself (row D04). Returns the uuids."""
    rows = instances.select_live(
        conn, run_id=context.run.id, vm_state=states.BUILDING, task_state=states.SCHEDULING, lock=True
    )
    for row in rows:
        try:
            retry.populate_retry(
                row.retry, max_attempts=options_max_attempts, instance_uuid=row.uuid, force_hosts=[], force_nodes=[]
            )
            error: errors.BootflowError = errors.NoValidHost(reason="No round was left to build it in.")
        except errors.BootflowError as e:
            error = e
        failure.end_in_error(conn, [row], error, None, context)
    return [r.uuid for r in rows]
