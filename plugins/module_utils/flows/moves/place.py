# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The destination of a moving instance: chosen as the host of a boot, and claimed in addition to the host that has the instance.

source: Nova's MigrationTask and ResourceTracker.resize_claim
"""

from __future__ import annotations

import contextlib
import typing as t
from collections import defaultdict
from dataclasses import dataclass, replace

from ...core import errors
from ...core.instances.server_groups import ServerGroup
from ...core.networks import on_hosts
from ...core.networks.on_hosts import HostNetwork
from ...core.resources.dedicated import DedicatedRequest
from ...core.scheduler.columns import Fleet
from ...core.scheduler.options import SchedulerOptions
from ...core.scheduler.placement import MAKE_NETWORKS, select_destinations
from ...core.scheduler.request_spec import RequestSpec
from ...ledger.compute import claims, cleanups, groups, nodes, ports
from ...ledger.compute.claims import Candidate
from ...ledger.compute.fleet import Needs
from ...ledger.compute.instances import PlacedInstance
from ...ledger.db.transaction import Transaction
from ...ledger.networks import security_groups
from ...ledger.plans import places
from ...ledger.storage import attachments
from ..boot.schedule import MOST_EXPLAINED, needs_of, request_spec, resource_request
from ..instances import elsewhere

ReadFleet = t.Callable[[Transaction, Needs], Fleet]


@dataclass(frozen=True)
class Mover:
    """An instance that needs another host."""

    row: PlacedInstance  # of an unshelve without a host
    spec: t.Mapping[str, t.Any]  # its request, with the flavor that it is to have
    barred: t.Collection[str] = ()  # hosts that cannot be its destination, in addition to its own
    may_stay: bool = False  # its own host can be its destination
    old_disks: t.Sequence[t.Mapping[str, t.Any]] | None = None  # its local disks, where the new flavor changes them
    new_disks: t.Sequence[t.Mapping[str, t.Any]] | None = None
    failed: t.Sequence[str] = ()  # destinations of failed migrations, the last one last: other hosts are preferred
    only: str | None = None  # the only host that can be its destination
    remedy: str = ""  # where the requested host cannot be its destination
    has_security_groups: bool = False  # ports of it have groups other than default; claim() finds out
    networks: t.Sequence[HostNetwork] = ()  # that a host must have for its interfaces; claim() finds them


def claim(
    tx: Transaction,
    movers: t.Sequence[Mover],
    read_fleet: ReadFleet,
    options: SchedulerOptions,
    kind: str = claims.MOVE,
) -> dict[str, Candidate | errors.BootflowError]:
    """Claim destinations for locked instances. Returns uuid -> the claimed host, or why there is none.

    A host with leftovers of an instance cannot be its destination, nor can another name of the same machine, where its disks would be such leftovers. Its
    current host can only if it may stay. A host that the boot request forced does not bind the moves.

    :arg kind: of the claims
    """
    movers = with_networks(tx, movers)
    members = groups.load(tx, {m.row.server_group_id for m in movers if m.row.server_group_id}, lock=True)
    fleet = read_fleet(tx, needs_of([m.spec for m in movers], options))
    barred = hosts_with_leftovers(tx, movers)
    hosts_or_errors: dict[str, Candidate | errors.BootflowError] = {}
    requests = []
    zones = zones_of_volumes(tx, movers)
    explained = 0  # hosts
    for mover in movers:
        uuid = mover.row.uuid
        try:
            if kind != claims.BUILD and mover.row.host in barred[uuid]:
                raise errors.InstanceNotReady(
                    message="Host %s is not cleaned yet of what a resize of instance %s left there"
                    % (mover.row.host, uuid),
                    remedy="bootflow.compute.heartbeat, or any report of the host, does it.",
                )
            explain = replace(options, explain_failures=explained < MOST_EXPLAINED)
            more = (barred[uuid], kind, zones.get(uuid))
            requests.append(_with_its_disks(mover, fleet, explain, members, *more))
        except errors.NoValidHost as e:
            explained += len(fleet)
            e.remedy = mover.remedy or _remedy(e)
            hosts_or_errors[uuid] = e
        except errors.BootflowError as e:
            hosts_or_errors[uuid] = e
    return {**hosts_or_errors, **claims.claim(tx, requests, machines=fleet.machines)}


def give_up_planned(tx: Transaction, uuids: t.Collection[str]) -> None:
    """Give up the hosts that a plan holds for these locked instances, which claim them in this transaction for the moves that the plan is of."""
    if uuids:
        claims.release_planned(tx, uuids)
        places.remove(tx, sorted(uuids))


def hosts_with_leftovers(tx: Transaction, movers: t.Sequence[Mover]) -> dict[str, set[str]]:
    """Return uuid -> the hosts that have something of the instance, with all names of these machines, and other names of its host."""
    uuids = [m.row.uuid for m in movers]
    barred: dict[str, set[str]] = defaultdict(set)
    for due in cleanups.of_instances(tx, uuids):
        barred[due.instance_uuid].add(due.host)
    for uuid, hosts in elsewhere.hosts_of(tx, uuids).items():  # hosts that have something of the instance already
        barred[uuid] |= hosts
    named = nodes.same_machines(tx, {m.row.host for m in movers if m.row.host is not None}.union(*barred.values()))
    for mover in movers:
        for host in {str(mover.row.host), *barred[mover.row.uuid]}:
            barred[mover.row.uuid] |= named.get(host, set())
    return barred


def zones_of_volumes(tx: Transaction, movers: t.Sequence[Mover]) -> dict[str, str | None]:
    """Return uuid -> the availability zone of its volumes, of instances that must be in the same one."""
    bound = [m.row.uuid for m in movers if not m.spec.get("cross_az_attach", True)]
    return attachments.zones_of(tx, bound) if bound else {}


def with_networks(tx: Transaction, movers: t.Sequence[Mover]) -> list[Mover]:
    """Find the networks of the instances' interfaces, including interfaces that guests may still have. Requests may have more networks."""
    asking = [m.row.uuid for m in movers if on_hosts.needed(m.spec["network_definitions"])]
    attached, leaving = ports.ports_of(tx, asking), ports.ports_of(tx, asking, leaving=True)
    definitions = {m.row.uuid: m.spec["network_definitions"] for m in movers}
    definitions.update({u: [vars(n) for _port, n in (*attached[u], *leaving[u])] for u in asking})
    networks = {u: on_hosts.needed(definitions[u]) for u in asking}
    by_hosts = [u for u, of_instance in definitions.items() if on_hosts.filtered_by_hosts(of_instance)]
    grouped = security_groups.instances_with_own(tx, by_hosts)
    return [
        replace(m, networks=networks.get(m.row.uuid, ()), has_security_groups=m.row.uuid in grouped) for m in movers
    ]


def _remedy(error: errors.NoValidHost) -> str:
    """Return the remedy of a move without a valid host. The remedy of a boot names another playbook."""
    if error.remedy == MAKE_NETWORKS:
        return MAKE_NETWORKS
    near = (error.details.get("decision") or {}).get("nearest_miss") or {}
    change = near.get("smallest_change")
    return "Smallest change: %s." % change["text"] if change else "Make room on another host, or add one."


def _with_its_disks(mover: Mover, fleet: Fleet, *more: t.Any) -> claims.ClaimRequest:
    """Return the claim request. Disks in a pool stay there, and take no space of it a second time on another host of the pool."""
    row = mover.row
    disk_mb = request_spec(row.spec, [row.uuid], None, row.project).disk_mb
    fleet.credit(row.host, disk_mb)
    try:
        return _request_elsewhere(mover, fleet, *more)
    except errors.BootflowError:
        fleet.credit(row.host, -disk_mb)
        raise


def _request_elsewhere(
    mover: Mover,
    fleet: Fleet,
    options: SchedulerOptions,
    members: t.Mapping[str, ServerGroup],
    barred: set[str],
    *more: t.Any,
) -> claims.ClaimRequest:
    """Return the claim request without the destinations of failed migrations. Without another valid host, only the last one is left out; then none."""
    for without in (mover.failed, mover.failed[-1:]):
        if without:
            with contextlib.suppress(errors.NoValidHost):
                return _request(
                    mover, fleet, replace(options, explain_failures=False), members, {*barred, *without}, *more
                )
    return _request(mover, fleet, options, members, barred, *more)


def _request(
    mover: Mover,
    fleet: Fleet,
    options: SchedulerOptions,
    members: t.Mapping[str, ServerGroup],
    barred: t.Collection[str],
    kind: str,
    zone: str | None,
) -> claims.ClaimRequest:
    """Return the claim request of an instance, with its candidates.

    :arg zone: of its volumes, if the instance must be in the same one
    :raises NoValidHost: there is no candidate; or a similar error.
    """
    row = mover.row
    group = members.get(row.server_group_id or "")
    own = set() if mover.may_stay or row.host is None else {row.host}
    request = replace(
        spec_elsewhere(mover, zone),
        ignore_hosts=tuple(sorted({*mover.barred, *barred, *_others(mover, fleet)} | own)),
        instance_group=_without(group, row.host) if group is not None else None,
    )
    (candidates,) = claims.candidates_of(select_destinations(fleet, request, options))
    wanted = (resource_request(mover.spec), candidates, DedicatedRequest.from_spec(request), group)
    return claims.ClaimRequest(row.uuid, *wanted, kind=kind, home=row.host)


def spec_elsewhere(mover: Mover, zone: str | None) -> RequestSpec:
    """Return the request of an instance for another host. :arg mover: with its networks. :arg zone: see _request()"""
    request = request_spec(mover.spec, [mover.row.uuid], None, mover.row.project)
    return replace(
        request,
        availability_zone=zone or request.availability_zone,
        networks=mover.networks,
        has_ports=request.has_ports or mover.has_security_groups,
        has_security_groups=mover.has_security_groups,
        force_host=None,
        force_node=None,
    )


def _others(mover: Mover, fleet: Fleet) -> set[str]:
    """Return the hosts that cannot be the destination as another one is named."""
    return set() if mover.only is None else {str(host) for host in fleet.values("host")} - {mover.only}


def _without(group: ServerGroup, host: str | None) -> ServerGroup:
    """Return the group without one member on ``host``, which leaves that host: the scheduler does not count it."""
    counts = {h: n - (h == host) for h, n in group.host_counts.items()}
    return replace(group, host_counts={h: n for h, n in counts.items() if n > 0})
