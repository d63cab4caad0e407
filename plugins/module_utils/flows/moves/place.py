# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A host for an instance that moves, chosen as for a boot, and claimed beside the host where it is.

source: Nova's MigrationTask and ResourceTracker.resize_claim
"""

from __future__ import annotations

import contextlib
import typing as t
from collections import defaultdict
from dataclasses import dataclass, replace

from ...core import errors
from ...core.instances.server_groups import ServerGroup
from ...core.resources.dedicated import DedicatedRequest
from ...core.scheduler.columns import Fleet
from ...core.scheduler.options import SchedulerOptions
from ...core.scheduler.placement import select_destinations
from ...ledger.compute import claims, cleanups, groups, nodes
from ...ledger.compute.claims import Candidate
from ...ledger.compute.fleet import Needs
from ...ledger.compute.instances import PlacedInstance
from ...ledger.db.transaction import Transaction
from ...ledger.storage import attachments
from ..boot.schedule import MOST_EXPLAINED, needs_of, request_spec, resource_request
from ..instances import elsewhere

ReadFleet = t.Callable[[Transaction, Needs], Fleet]


@dataclass(frozen=True)
class Mover:
    """An instance that needs another host."""

    row: PlacedInstance
    spec: t.Mapping[str, t.Any]  # its request, with the flavor that it is to have
    barred: t.Collection[str] = ()  # hosts that it cannot go to, beside its own
    may_stay: bool = False  # its own host is as good as others
    old_disks: t.Sequence[t.Mapping[str, t.Any]] | None = None  # its local disks, where its flavor changes them
    new_disks: t.Sequence[t.Mapping[str, t.Any]] | None = None
    failed: t.Sequence[str] = ()  # hosts that it did not come to, the last one last: others come first


def claim(
    tx: Transaction,
    movers: t.Sequence[Mover],
    read_fleet: ReadFleet,
    options: SchedulerOptions,
    kind: str = claims.MOVE,
) -> dict[str, Candidate | errors.BootflowError]:
    """uuid -> the host that was found and claimed for the move, or why there is none. The rows are locked.

    :arg kind: of the claims.

    An instance never goes to a host with leftovers of it, to another name of its own machine, where it would be its own leftover, and to its own
    host only where it may. A host that its boot forced does not bind its moves.
    """
    uuids = [m.row.uuid for m in movers]
    members = groups.load(tx, {m.row.server_group_id for m in movers if m.row.server_group_id}, lock=True)
    fleet = read_fleet(tx, needs_of([m.spec for m in movers], options))
    barred: dict[str, set[str]] = defaultdict(set)
    for due in cleanups.of_instances(tx, uuids):
        barred[due.instance_uuid].add(due.host)
    for uuid, hosts in elsewhere.hosts_of(tx, uuids).items():  # which have something of it already
        barred[uuid] |= hosts
    named = nodes.same_machines(tx, {m.row.host for m in movers}.union(*barred.values()))
    for mover in movers:
        for host in {mover.row.host, *barred[mover.row.uuid]}:
            barred[mover.row.uuid] |= named.get(host, set())
    found: dict[str, Candidate | errors.BootflowError] = {}
    requests = []
    bound = [m.row.uuid for m in movers if not m.spec.get("cross_az_attach", True)]
    zones = attachments.zones_of(tx, bound) if bound else {}
    explained = 0  # hosts
    for mover in movers:
        uuid = mover.row.uuid
        try:
            if kind == claims.MOVE and mover.row.host in barred[uuid]:
                raise errors.InstanceNotReady(
                    message="Host %s is not cleaned yet of what a resize of instance %s left there"
                    % (mover.row.host, uuid),
                    remedy="bootflow.compute.heartbeat, or any report of the host, does it.",
                )
            told = replace(options, explain_failures=explained < MOST_EXPLAINED)
            requests.append(_request_elsewhere(mover, fleet, told, members, barred[uuid], kind, zones.get(uuid)))
        except errors.NoValidHost as e:
            explained += len(fleet)
            e.remedy = _remedy(e)
            found[uuid] = e
        except errors.BootflowError as e:
            found[uuid] = e
    return {**found, **claims.claim(tx, requests)}


def _remedy(error: errors.NoValidHost) -> str:
    """What leads to a host; that of a boot speaks of its own playbook."""
    near = (error.details.get("decision") or {}).get("nearest_miss") or {}
    change = near.get("smallest_change")
    return "Smallest change: %s." % change["text"] if change else "Make room on another host, or add one."


def _request_elsewhere(
    mover: Mover,
    fleet: Fleet,
    options: SchedulerOptions,
    members: t.Mapping[str, ServerGroup],
    barred: set[str],
    *more: t.Any,
) -> claims.ClaimRequest:
    """_request() without the hosts that it did not come to; where there is no other, without the last one; then with all."""
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
    """:arg zone: of its volumes, where it may not have them from another one. :raises NoValidHost: and its like."""
    row = mover.row
    group = members.get(row.server_group_id or "")
    request = request_spec(mover.spec, [row.uuid], None, row.project)
    request = replace(
        request,
        availability_zone=zone or request.availability_zone,
        ignore_hosts=tuple(sorted({*mover.barred, *barred} | (set() if mover.may_stay else {row.host}))),
        instance_group=_without(group, row.host) if group is not None else None,
        force_host=None,
        force_node=None,
    )
    (candidates,) = claims.candidates_of(select_destinations(fleet, request, options))
    wanted = (resource_request(mover.spec), candidates, DedicatedRequest.of(request), group)
    return claims.ClaimRequest(row.uuid, *wanted, kind=kind, home=row.host if kind == claims.MOVE else None)


def _without(group: ServerGroup, host: str) -> ServerGroup:
    """The group as the scheduler sees it for one of its members on ``host``, which leaves: its own place binds it to nothing."""
    counts = {h: n - (h == host) for h, n in group.host_counts.items()}
    return replace(group, host_counts={h: n for h, n in counts.items() if n > 0})
