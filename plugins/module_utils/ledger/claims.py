# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Claims: taking a host's resources for an instance and giving them back.

source: 000, instance_claim (rows A70-A83). The nodes that may be touched are locked (nodes.lock), tested
with core.claims against the usage under that lock, and written in the same transaction: no number of runs can take a
node past its limits, and a node's usage is always what it reserves plus the sum of its claims.
"""

from __future__ import annotations

import typing as t
from collections import defaultdict
from dataclasses import dataclass

from ..core import errors
from ..core.claims import NodeUsage, ResourceRequest, claim_test, usage_delta
from . import nodes
from .history import chunks
from .libraries import sa
from .tables import claims, compute_nodes


@dataclass(frozen=True)
class Candidate:
    """A place that the scheduler found: the host it chose, or an alternate."""

    host: str
    node: str
    limits: t.Mapping[str, t.Any]


@dataclass(frozen=True)
class Wish:
    """One instance and where it may go, best first."""

    instance_uuid: str
    request: ResourceRequest
    candidates: t.Sequence[Candidate]


def take(
    conn: t.Any, wishes: t.Sequence[Wish], now: float
) -> dict[str, Candidate | errors.ComputeResourcesUnavailable]:
    """Claim for each wish the first candidate that still has room under the lock.

    Returns uuid -> where it was claimed, or the refusal of its last candidate (all reasons joined).
    """
    places = {(c.host, c.node) for w in wishes for c in w.candidates}
    rows = _lock(conn, places)
    usage = {(r.host, r.node): _usage(r) for r in rows}
    ids = {(r.host, r.node): r.id for r in rows}
    taken: dict[int, list[int]] = defaultdict(lambda: [0, 0, 0, 0])
    inserts: list[dict[str, t.Any]] = []
    results: dict[str, Candidate | errors.ComputeResourcesUnavailable] = {}
    for wish in wishes:
        request = wish.request
        outcome: Candidate | errors.ComputeResourcesUnavailable = errors.ComputeResourcesUnavailable(
            reason="the host is gone from the ledger"
        )
        for candidate in wish.candidates:
            place = (candidate.host, candidate.node)
            if place not in usage:
                continue
            try:
                claim_test(usage[place], request, candidate.limits)
            except errors.ComputeResourcesUnavailable as e:
                outcome = e
                continue
            outcome = candidate
            delta = usage_delta(request)
            usage[place] = delta.apply(usage[place])
            node_id = ids[place]
            amounts = (delta.memory_mb_used, delta.local_gb_used, delta.vcpus_used, delta.num_instances)
            taken[node_id] = [before + more for before, more in zip(taken[node_id], amounts)]
            inserts.append(
                {
                    "instance_uuid": wish.instance_uuid,
                    "compute_node_id": node_id,
                    "memory_mb": delta.memory_mb_used,
                    "disk_gb": delta.local_gb_used,
                    "vcpus": delta.vcpus_used,
                    "created_at": now,
                }
            )
            break
        results[wish.instance_uuid] = outcome
    if inserts:
        conn.execute(claims.insert(), inserts)
        c = compute_nodes.c
        conn.execute(
            compute_nodes.update()
            .where(c.id == sa.bindparam("node_id"))
            .values(
                memory_mb_used=c.memory_mb_used + sa.bindparam("memory"),
                local_gb_used=c.local_gb_used + sa.bindparam("disk"),
                vcpus_used=c.vcpus_used + sa.bindparam("cpus"),
                num_instances=c.num_instances + sa.bindparam("count"),
            ),
            [
                {"node_id": n, "memory": v[0], "disk": v[1], "cpus": v[2], "count": v[3]}
                for n, v in sorted(taken.items())
            ],
        )
    return results


def release(conn: t.Any, uuids: t.Sequence[str], host: str | None = None) -> int:
    """Give back the claims of these instances (on ``host`` only, when given). A second time does nothing (row A83)."""
    conditions = []
    for part in chunks(list(uuids)):
        wanted = claims.c.instance_uuid.in_(part)
        if host is not None:
            wanted = sa.and_(
                wanted, claims.c.compute_node_id.in_(sa.select(compute_nodes.c.id).where(compute_nodes.c.host == host))
            )
        conditions.append(wanted)
    node_ids = {
        r.compute_node_id for w in conditions for r in conn.execute(sa.select(claims.c.compute_node_id).where(w))
    }
    if not node_ids:
        return 0
    nodes.lock(conn, node_ids)
    released = sum(conn.execute(claims.delete().where(w)).rowcount for w in conditions)
    nodes.recount(conn, sorted(node_ids))
    return released


def _lock(conn: t.Any, places: t.Collection[tuple[str, str]]) -> list[t.Any]:
    c = compute_nodes.c
    ids = []
    for part in chunks(sorted({host for host, _node in places})):
        rows = conn.execute(sa.select(c.id, c.host, c.node).where(c.host.in_(part)))
        ids += [r.id for r in rows if (r.host, r.node) in places]
    return nodes.lock(conn, ids)


def _usage(row: t.Any) -> NodeUsage:
    return NodeUsage(
        memory_mb=row.memory_mb,
        memory_mb_used=row.memory_mb_used,
        local_gb=row.local_gb,
        local_gb_used=row.local_gb_used,
        vcpus=row.vcpus,
        vcpus_used=row.vcpus_used,
    )
