# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Choosing hosts for this run's waiting instances, and claiming their resources, in one transaction.

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
from ...core.networks import on_hosts
from ...core.request.image_rules import local_root_gb, zero_disk_gb
from ...core.resources.claims import Overhead, ResourceRequest
from ...core.resources.dedicated import DedicatedRequest
from ...core.resources.numa.topology import GuestNUMATopology
from ...core.resources.pci.request import PciRequest
from ...core.scheduler.columns import Fleet
from ...core.scheduler.filters.base import Filter
from ...core.scheduler.options import SchedulerOptions
from ...core.scheduler.placement import Selection, select_destinations
from ...core.scheduler.registry import make_filters, make_weighers, user_classes
from ...core.scheduler.request_spec import RequestSpec
from ...core.scheduler.weighers.base import Weigher
from ...ledger.compute import claims, cleanups, groups, history, instances, nodes, ports, runs
from ...ledger.compute.fleet import Needs
from ...ledger.compute.instances import Instance
from ...ledger.db.transaction import Transaction
from ...ledger.fast import bulk
from ...ledger.storage import attachments
from . import builds, failure
from .planned import may_have_volumes

# Hosts for which a boot prints in numbers what they lack for requests without a host, added up over the requests: instances and nodes
# are locked meanwhile.
MOST_EXPLAINED = 30_000


@dataclass
class Scheduled:
    placed: dict[str, Selection] = field(default_factory=dict)  # uuid -> host, alternates and explanation
    names: dict[str, str] = field(default_factory=dict)  # uuid -> name of each instance that waited
    hosts: list[str] = field(default_factory=list)  # every host with builds of this run
    with_attachments: bool = False  # whether this run attaches volumes
    waiting: list[str] = field(default_factory=list)  # lost their claims to another run: next round
    failed: list[str] = field(default_factory=list)  # ended in ERROR here
    explanations: dict[str, t.Any] = field(default_factory=dict)  # uuid -> why no host was found, where requested
    warnings: list[str] = field(default_factory=list)
    emulated: dict[str, str] = field(default_factory=dict)  # chosen host -> why it has no KVM
    log: list[str] = field(default_factory=list)  # of claims, where requested

    def add(self, later: Scheduled) -> None:
        """Add what a later round did with the instances that waited for it."""
        self.placed.update(later.placed)
        self.names.update(later.names)
        self.failed += later.failed
        self.waiting = later.waiting
        self.explanations.update(later.explanations)
        self.emulated.update(later.emulated)
        self.hosts = later.hosts

    def add_failed(self, rows: t.Sequence[Instance], error: errors.BootflowError) -> None:
        uuids = [r.uuid for r in rows]
        self.failed.extend(uuids)
        if error.details.get("decision") is not None:
            self.explanations.update(dict.fromkeys(uuids, error.details["decision"]))


def schedule(
    tx: Transaction,
    read_fleet: t.Callable[[Transaction, Needs], Fleet],
    options: SchedulerOptions,
    log_claims: bool = False,
) -> Scheduled:
    """Place and claim every instance of this run that waits in task_state scheduling.

    :arg read_fleet: ledger.compute.fleet.read with the inventory's hosts; called once, with the needs of the requests.
    :arg log_claims: whether the result has the lines that Nova's resource tracker logs.

    Entries are all or nothing, as in Nova: if one instance of an entry has no host, all of that entry end in
    ERROR. Refused claims (another run was faster) wait for the next round.
    """
    runs.renew(tx)
    result = Scheduled()
    own_builds = instances.BuildsOfRun(tx)
    rows = instances.select_live(
        tx, run_id=tx.run.id, vm_state=states.BUILDING, task_state=states.SCHEDULING, lock=True
    )
    result.names = {r.uuid: r.display_name for r in rows}
    hosts, result.with_attachments = own_builds.hosts, own_builds.with_attachments
    if rows:
        with_volumes = [r for r in rows if may_have_volumes(r)]
        zones: dict[str, str | None] = {}
        if with_volumes:
            attachments.lock(tx, [r.uuid for r in with_volumes])
            bound = [r.uuid for r in with_volumes if not r.spec.get("cross_az_attach", True)]
            zones = attachments.zones_of(tx, bound)
        members = groups.load(tx, {r.server_group_id for r in rows if r.server_group_id}, lock=True)
        fleet = read_fleet(tx, needs_of([r.spec for r in _one_of_each(rows)], options))
        grouped: t.Collection[str] = ()
        if tx.filters_ports or any(_may_have_groups(r.spec) for r in rows):
            from ...ledger.networks import security_groups

            grouped = security_groups.instances_with_own(tx, [r.uuid for r in rows])
        selected: list[Selected] = []
        explained = 0  # hosts
        for together in _place_together(tx, rows, zones):
            if explained >= MOST_EXPLAINED:
                options = replace(options, explain_failures=False)
            try:
                selected += _select(together, fleet, options, members, grouped)
            except errors.BootflowError as e:
                explained += len(fleet)
                result.add_failed(together.rows, e)
                failure.not_placed(tx, together.rows, e)
        result.warnings = [_host_is_set(s.row) for s in selected if s.row.host or s.row.node]
        with bulk.together(tx):
            _claim(tx, selected, fleet, result, log_claims)
        chosen = {selection.host for selection in result.placed.values()}
        result.emulated = _emulated(fleet, chosen)
        hosts.update(chosen)
        waiting = set(result.waiting)
        hosts.update(r.host for r in rows if r.host is not None and r.uuid in waiting)
    result.hosts = sorted(hosts)
    return result


def _emulated(fleet: Fleet, chosen: t.Collection[str]) -> dict[str, str]:
    """Find the chosen hosts that reported that KVM does not work. Returns host -> reason."""
    reasons = fleet.groups("emulated", lambda host: host.stats.get("emulated") or "", ("stats",))
    if not any(reasons.values):
        return {}
    host_codes = zip(fleet.values("host"), reasons.codes)
    return {str(host): reasons.values[code] for host, code in host_codes if host in chosen and reasons.values[code]}


def _one_of_each(rows: t.Sequence[Instance]) -> list[Instance]:
    return list({r.request_spec_id: r for r in rows}.values())


def needs_of(specs: t.Sequence[t.Mapping[str, t.Any]], options: SchedulerOptions) -> Needs:
    """Return the needs of these stored requests, and of the enabled filters and weighers, in addition to a host's numbers."""
    user = user_classes(options)
    judges: list[Filter | Weigher] = [*make_filters(options, user), *make_weighers(options, user)]
    requests = [request_spec(s, [], None, "") for s in specs]
    needed = {need for judge in judges for request in requests for need in judge.needs(request)}
    return Needs(
        numa="numa" in needed or any(r.numa_topology is not None for r in requests),
        # Cells without PCI devices are taken first: the claim looks at the devices of each guest with cells.
        devices="pci" in needed or any(r.takes_dedicated for r in requests),
        instances="instances" in needed,
        metrics="metrics" in needed,
        networks="networks" in needed,
    )


def faults(tx: Transaction, uuids: t.Sequence[str]) -> dict[str, dict[str, t.Any] | None]:
    """uuid -> why it was not placed."""
    return {uuid: history.shown_fault(fault) for uuid, fault in history.last_faults(tx, uuids).items()}


@dataclass(frozen=True)
class Together:
    """Instances that one call of the scheduler may place: of the same request, and with the same hosts tried before."""

    rows: list[Instance]
    ignore_hosts: tuple[str, ...]  # with leftovers of these instances
    zone: str | None  # of their volumes, if the instances have to be in the same


@dataclass(frozen=True)
class Selected:
    """The scheduler's selection for one instance, and its claim."""

    row: Instance
    selection: Selection
    claim: claims.ClaimRequest
    retry: dict[str, t.Any] | None


def _place_together(tx: Transaction, rows: t.Sequence[Instance], zones: t.Mapping[str, str | None]) -> list[Together]:
    """Group the instances. An instance never goes to a host with its leftovers: their cleanup would remove the new build too."""
    barred: dict[str, set[str]] = {}
    been = [r.uuid for r in rows if r.launched_on is not None]
    open_cleanups = cleanups.of_instances(tx, been) if been else ()
    named = nodes.same_machines(tx, {cleanup.host for cleanup in open_cleanups}) if open_cleanups else {}
    for cleanup in open_cleanups:
        barred.setdefault(cleanup.instance_uuid, set()).update({cleanup.host, *named.get(cleanup.host, ())})
    alike: dict[tuple[t.Any, ...], list[Instance]] = {}
    for row in rows:
        tried = tuple(map(tuple, (row.retry or {}).get("hosts", ())))
        attempts = (row.retry or {}).get("num_attempts", 0)
        closed = tuple(sorted(barred.get(row.uuid, ())))
        key = (row.request_spec_id, attempts, tried, closed, zones.get(row.uuid))
        alike.setdefault(key, []).append(row)
    return [Together(group, key[-2], key[-1]) for key, group in alike.items()]


def _select(
    together: Together,
    fleet: Fleet,
    options: SchedulerOptions,
    members: t.Mapping[str, ServerGroup],
    grouped: t.Container[str] = (),
) -> list[Selected]:
    """:arg grouped: instances whose ports have security groups other than default

    :raises BootflowError: NoValidHost and its like, for all of them.
    """
    first = together.rows[0]
    spec = first.spec
    record = retry.populate_retry(
        first.retry,
        max_attempts=options.max_attempts,
        instance_uuid=first.uuid,
        force_hosts=[spec["forced_host"]] if spec["forced_host"] else [],
        force_nodes=[spec["forced_node"]] if spec["forced_node"] else [],
    )
    server_group = members.get(first.server_group_id or "")
    if first.server_group_id and server_group is None:
        raise errors.InstanceGroupNotFound(group=first.server_group_id)
    request = replace(
        request_spec(spec, [r.uuid for r in together.rows], record, first.project),
        ignore_hosts=together.ignore_hosts,
        instance_group=server_group,
        has_security_groups=on_hosts.filtered_by_hosts(spec["network_definitions"])
        and any(r.uuid in grouped for r in together.rows),
        availability_zone=together.zone or spec["availability_zone"],
    )
    resources, dedicated = resource_request(spec), DedicatedRequest.from_spec(request)
    rows = {r.uuid: r for r in together.rows}
    selections_of_rows = []
    selections = select_destinations(fleet, request, options)
    for selection, candidates in zip(selections, claims.candidates_of(selections)):
        uuid = selection.instance_uuid
        wanted = claims.ClaimRequest(uuid, resources, candidates, dedicated, server_group)
        selections_of_rows.append(Selected(rows[uuid], selection, wanted, record))
    return selections_of_rows


def refusals_on(
    tx: Transaction,
    rows: t.Sequence[Instance],
    places: t.Mapping[str, str],
    read_fleet: t.Callable[[Transaction, Needs], Fleet],
    options: SchedulerOptions,
) -> dict[str, errors.BootflowError]:
    """Place these waiting instances of this run on given hosts, by all filters and claims. Returns host -> its first refusal.

    :arg places: uuid -> host. :arg read_fleet: may read other hosts, too, which get none of them.
    """
    refused: dict[str, errors.BootflowError] = {}
    grouped: t.Collection[str] = ()
    if tx.filters_ports or any(_may_have_groups(r.spec) for r in rows):
        from ...ledger.networks import security_groups

        grouped = security_groups.instances_with_own(tx, [r.uuid for r in rows])
    fleet = read_fleet(tx, needs_of([r.spec for r in _one_of_each(rows)], options))
    hosts = sorted({*places.values(), *map(str, fleet.values("host"))})
    by_host: dict[str, list[Instance]] = {}
    for row in rows:
        by_host.setdefault(places[row.uuid], []).append(row)
    for host, on_host in sorted(by_host.items()):
        others = tuple(h for h in hosts if h != host)
        for together in _place_together(tx, on_host, {}):
            members = groups.load(tx, {r.server_group_id for r in together.rows if r.server_group_id}, lock=True)
            try:
                selected = _select(
                    replace(together, ignore_hosts=(*together.ignore_hosts, *others)), fleet, options, members, grouped
                )
            except errors.BootflowError as e:
                refused.setdefault(host, e)
                continue
            outcomes = claims.claim(tx, [s.claim for s in selected], None, fleet.machines)
            placements: list[dict[str, t.Any]] = []
            for uuid, outcome in outcomes.items():
                if isinstance(outcome, errors.BootflowError):
                    refused.setdefault(host, outcome)
                    continue
                limits = dict(outcome.limits)
                placements.append(
                    {"uuid": uuid, "host": outcome.host, "node": outcome.node, "limits": limits, "retry": None}
                )
            instances.place(tx, placements)
    return refused


def _may_have_groups(spec: t.Mapping[str, t.Any]) -> bool:
    """Whether ports of the instance may have security groups, whatever hosts do now: it names groups, or ports that have theirs."""
    return bool(spec.get("security_groups")) or any(n.get("port") is not None for n in spec["networks"])


def _host_is_set(row: Instance) -> str:
    """source: Nova's ResourceTracker.instance_claim, which warns of it and continues"""
    place = row.host if row.node in (None, row.host) else "%s (node %s)" % (row.host, row.node)
    return "%s: the ledger had a host before the claim, %s. The instance gets the host of its claim." % (
        row.display_name,
        place,
    )


def _claim(tx: Transaction, selected: t.Sequence[Selected], fleet: Fleet, result: Scheduled, log: bool) -> None:
    outcomes = claims.claim(tx, [s.claim for s in selected], result.log if log else None, fleet.machines)
    placements: list[dict[str, t.Any]] = []
    for one in selected:
        uuid, selection, outcome = one.row.uuid, one.selection, outcomes[one.row.uuid]
        if isinstance(outcome, errors.BootflowError):
            record = retry.record_failure(one.retry, selection.host, selection.nodename, outcome)
            failure.refused(tx, one.row, outcome, record, selection.host)
            (result.waiting if record is not None else result.failed).append(uuid)
            continue
        if (outcome.host, outcome.node) != (selection.host, selection.nodename):
            selection = replace(selection, host=outcome.host, nodename=outcome.node, limits=dict(outcome.limits))
        result.placed[uuid] = selection
        placements.append(
            {
                "uuid": uuid,
                "host": outcome.host,
                "node": outcome.node,
                "limits": dict(outcome.limits),
                "retry": retry.record_host(one.retry, outcome.host, outcome.node),
            }
        )
    instances.place(tx, placements)
    hosts = {p["uuid"]: p["host"] for p in placements}
    history.add_events(tx, hosts.items(), "schedule", history.SUCCESS)
    with_ports = {s.row.uuid for s in selected if s.row.spec["networks"]}
    ports.bind_each(tx, {uuid: host for uuid, host in hosts.items() if uuid in with_ports})


def request_spec(
    spec: t.Mapping[str, t.Any], uuids: t.Sequence[str], record: t.Mapping[str, t.Any] | None, project: str
) -> RequestSpec:
    """The scheduler's view of a stored request."""
    image, overhead = spec["image"] or {}, _overhead(spec)
    by_hosts = on_hosts.filtered_by_hosts(spec["network_definitions"])
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
        extra=dict(spec.get("extra") or {}),
        project=project,
        memory_overhead_mb=overhead.memory_mb,
        disk_overhead_gb=overhead.disk_gb,
        vcpus_overhead=overhead.vcpus,
        image_id=image.get("id") or "",
        image_name=image.get("name") or "",
        numa_topology=GuestNUMATopology.from_dict(spec["numa_topology"]) if spec.get("numa_topology") else None,
        pci_requests=tuple(PciRequest.from_dict(p) for p in spec.get("pci_requests") or ()),
        whole_disks=tuple(WholeDiskRequest.from_dict(d) for d in spec.get("whole_disks") or ()),
        networks=on_hosts.needed(spec["network_definitions"]),
        has_ports=bool(spec["networks"]) and by_hosts,
        has_security_groups=bool(spec.get("security_groups")) and by_hosts,
        is_bfv=bool(spec.get("is_bfv")),
        zero_disk_gb=zero_disk_gb(spec.get("image")),
    )


def resource_request(spec: t.Mapping[str, t.Any]) -> ResourceRequest:
    """The claim of one instance of a stored request: root + ephemeral, without swap and without a root that is a volume."""
    flavor, overhead = spec["flavor"], _overhead(spec)
    root_gb = local_root_gb(flavor["root_gb"], spec.get("image"), bool(spec.get("is_bfv")))
    return ResourceRequest(
        memory_mb=flavor["memory_mb"],
        disk_gb=root_gb + flavor["ephemeral_gb"],
        vcpus=flavor["vcpus"],
        memory_overhead_mb=overhead.memory_mb,
        disk_overhead_gb=overhead.disk_gb,
        vcpus_overhead=overhead.vcpus,
    )


def _overhead(spec: t.Mapping[str, t.Any]) -> Overhead:
    """Requests of older versions have none."""
    return Overhead(**(spec.get("overhead") or {}))


def give_up(tx: Transaction, options_max_attempts: int, untaken: t.Collection[str] = ()) -> list[str]:
    """End instances that still wait after the last round, for a host (MaxRetriesExceeded, or the refusal itself) or for a
    volume (VolumeNotCreated). Returns the uuids.

    :arg untaken: see builds.give_back()
    """
    builds.give_back(tx, last=True, untaken=untaken)
    late = builds.give_up(tx, options_max_attempts)
    rows = instances.select_live(
        tx, run_id=tx.run.id, vm_state=states.BUILDING, task_state=states.SCHEDULING, lock=True
    )
    for row in rows:
        try:
            retry.populate_retry(
                row.retry, max_attempts=options_max_attempts, instance_uuid=row.uuid, force_hosts=[], force_nodes=[]
            )
            error: errors.BootflowError = errors.NoValidHost(reason="The boot had no round left to build the instance.")
        except errors.BootflowError as e:
            error = e
        failure.not_placed(tx, [row], error)
    return [r.uuid for r in rows] + late
