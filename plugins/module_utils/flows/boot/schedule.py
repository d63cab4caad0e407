# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Choosing hosts for what waits in this run, and claiming there, in one transaction.

source: Nova's ComputeTaskManager.build_instances and instance_claim
"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field, replace

from ...core import errors
from ...core.disks.whole_disks import WholeDiskRequest
from ...core.instances import retry, states
from ...core.instances.server_groups import ServerGroup
from ...core.model import Flavor
from ...core.resources.claims import ResourceRequest, estimate_overhead
from ...core.resources.dedicated import Wish as PartsWish
from ...core.resources.numa.topology import GuestNUMATopology
from ...core.resources.pci.request import PciRequest
from ...core.scheduler.columns import Fleet
from ...core.scheduler.options import SchedulerOptions
from ...core.scheduler.placement import Selection, select_destinations
from ...core.scheduler.registry import make_filters, make_weighers, user_classes
from ...core.scheduler.request_spec import RequestSpec
from ...ledger.compute import claims, cleanups, groups, history, instances, ports, runs
from ...ledger.compute.fleet import Needs
from ...ledger.context import Context
from ...ledger.db import bulk
from ...ledger.db.sqlalchemy_import import sa
from ...ledger.schema.tables import instances as instances_table
from ...ledger.storage import attachments
from . import builds, failure


@dataclass
class Scheduled:
    placed: dict[str, Selection] = field(default_factory=dict)  # uuid -> where, with alternates and the explanation
    hosts: list[str] = field(default_factory=list)  # every host with builds of this run
    waiting: list[str] = field(default_factory=list)  # lost their claims to another run: next round
    failed: list[str] = field(default_factory=list)  # ended in ERROR here
    explanations: dict[str, t.Any] = field(
        default_factory=dict
    )  # uuid -> why no host was found, where it was asked for


def schedule(
    conn: t.Any, read_fleet: t.Callable[[t.Any, Needs], Fleet], options: SchedulerOptions, context: Context
) -> Scheduled:
    """Place and claim every instance of this run that waits in task_state scheduling.

    :arg read_fleet: ledger.compute.fleet.read with the inventory's hosts: it is asked once, for what the requests need.

    Entries are all or nothing, as in Nova: where a host is missing for one instance of an entry, all of that entry end in
    ERROR. Refused claims (another run was faster) wait for the next round.
    """
    runs.renew(conn, context.run, context.now, context.lease_seconds)
    result = Scheduled()
    rows = instances.select_live(
        conn, run_id=context.run.id, vm_state=states.BUILDING, task_state=states.SCHEDULING, lock=True
    )
    if rows:
        attachments.lock(conn, [r.uuid for r in rows])
        members = groups.load(conn, {r.server_group_id for r in rows if r.server_group_id}, lock=True)
        fleet = read_fleet(conn, needs_of([r.spec for r in _one_of_each(rows)], options))
        wishes: list[claims.Wish] = []
        retries: dict[str, t.Any] = {}
        barred: dict[
            str, set[str]
        ] = {}  # a host that still has remains of an instance: its cleanup would take the new build too
        for cleanup in cleanups.of_instances(conn, [r.uuid for r in rows]):
            barred.setdefault(cleanup.instance_uuid, set()).add(cleanup.host)
        bound = [r.uuid for r in rows if not r.spec.get("cross_az_attach", True)]
        for group, ignore_hosts, zone in _groups(rows, barred, attachments.zones_of(conn, bound)):
            _select(conn, group, ignore_hosts, zone, fleet, options, context, result, wishes, retries, members)
        _claim(conn, {r.uuid: r for r in rows}, wishes, retries, context, result)
    result.hosts = hosts_of_run(conn, context.run.id)
    return result


def _one_of_each(rows: t.Sequence[t.Any]) -> list[t.Any]:
    return list({r.request_spec_id: r for r in rows}.values())


def needs_of(specs: t.Sequence[t.Mapping[str, t.Any]], options: SchedulerOptions) -> Needs:
    """What these stored requests, and the enabled filters and weighers, look at beside a host's numbers."""
    user = user_classes(options)
    judges: list[t.Any] = [*make_filters(options, user), *make_weighers(options, user)]
    hints = {h for s in specs for h in s["scheduler_hints"]}

    def wanted(flag: str) -> bool:
        return any(getattr(getattr(j, "made", j), flag, False) for j in judges)

    def by_hint(flag: str) -> bool:
        return any(getattr(j, flag, False) and (not j.hints or hints.intersection(j.hints)) for j in judges)

    return Needs(
        numa=any(s.get("numa_topology") for s in specs),
        devices=any(s.get("pci_requests") or s.get("whole_disks") for s in specs) or wanted("needs_pci"),
        instances=by_hint("needs_instances"),
        metrics=wanted("needs_metrics") and bool(options.settings.get("metrics_weight_setting")),
    )


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


def _groups(
    rows: t.Sequence[t.Any], barred: t.Mapping[str, set[str]], zones: t.Mapping[str, str]
) -> list[tuple[list[t.Any], tuple[str, ...], str | None]]:
    """Instances that may be placed by one call (same request, same hosts already tried), the hosts closed to them, and the
    zone that their volumes are in, where they have to be there too.
    """
    groups: dict[t.Any, list[t.Any]] = {}
    for row in rows:
        tried = tuple(map(tuple, (row.retry or {}).get("hosts", ())))
        closed = tuple(sorted(barred.get(row.uuid, ())))
        attempts = (row.retry or {}).get("num_attempts", 0)
        key = (row.request_spec_id, attempts, tried, closed, zones.get(row.uuid))
        groups.setdefault(key, []).append(row)
    return [(group, key[-2], key[-1]) for key, group in groups.items()]


def _select(
    conn: t.Any,
    group: list[t.Any],
    ignore_hosts: t.Sequence[str],
    zone: str | None,
    fleet: Fleet,
    options: SchedulerOptions,
    context: Context,
    result: Scheduled,
    wishes: list[claims.Wish],
    retries: dict[str, t.Any],
    members: t.Mapping[str, ServerGroup],
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
        server_group = members.get(first.server_group_id)
        if first.server_group_id and server_group is None:
            raise errors.InstanceGroupNotFound(group=first.server_group_id)
        request = replace(
            request_spec(spec, uuids, record, first.project),
            ignore_hosts=ignore_hosts,
            instance_group=server_group,
            availability_zone=zone or spec["availability_zone"],
        )
        selections = select_destinations(fleet, request, options)
    except errors.BootflowError as e:
        failure.end_in_error(conn, group, e, None, context)
        result.failed.extend(uuids)
        if e.details.get("decision") is not None:
            result.explanations.update(dict.fromkeys(uuids, e.details["decision"]))
        return
    resources = resource_request(spec)
    parts = PartsWish.of(request)
    for selection in selections:
        places = claims.candidates_of(selection)
        wishes.append(claims.Wish(selection.instance_uuid, resources, places, parts, server_group))
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
                "uuid": uuid,
                "host": outcome.host,
                "node": outcome.node,
                "launched_on": outcome.host,
                "limits": dict(outcome.limits),
                "retry": record,
                "task_state": None,
                "scheduled_at": now,
                "updated_at": now,
            }
        )
    bulk.update(conn, instances_table, "uuid", updates)
    hosts = {u["uuid"]: u["host"] for u in updates}
    history.add_events(conn, hosts, "schedule", history.SUCCESS, now)
    ports.bind_each(conn, hosts)


def request_spec(spec: t.Mapping[str, t.Any], uuids: t.Sequence[str], record: t.Any, project: str) -> RequestSpec:
    """The scheduler's view of a stored request."""
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
        image_id=image.get("id") or "",
        image_name=image.get("name") or "",
        numa_topology=GuestNUMATopology.from_dict(spec["numa_topology"]) if spec.get("numa_topology") else None,
        pci_requests=tuple(PciRequest.from_dict(p) for p in spec.get("pci_requests") or ()),
        whole_disks=tuple(WholeDiskRequest.from_dict(d) for d in spec.get("whole_disks") or ()),
        is_bfv=bool(spec.get("is_bfv")),
    )


def resource_request(spec: t.Mapping[str, t.Any]) -> ResourceRequest:
    """What one instance of a stored request claims (semantics: root + ephemeral, not swap; no root that is a volume)."""
    flavor = spec["flavor"]
    root_gb = 0 if spec.get("is_bfv") else flavor["root_gb"]
    return ResourceRequest(
        memory_mb=flavor["memory_mb"],
        disk_gb=root_gb + flavor["ephemeral_gb"],
        vcpus=flavor["vcpus"],
        memory_overhead_mb=estimate_overhead(flavor["vcpus"], flavor["memory_mb"]),
    )


def give_up(conn: t.Any, options_max_attempts: int, context: Context) -> list[str]:
    """End what still waits after the last round, for a host (MaxRetriesExceeded, or the refusal itself) or for a
    volume (VolumeNotCreated). Returns the uuids.
    """
    late = builds.give_up(conn, options_max_attempts, context)
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
    return [r.uuid for r in rows] + late
