# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Compute nodes in the ledger: what they reported, how the inventory configures them, and as the scheduler sees them.

source: 001 section 8.5.6 (rows B32-B36)
"""

from __future__ import annotations

import typing as t

from ..core.scheduler.host_state import HostState
from .history import chunks
from .libraries import sa
from .locks import insert_new
from .tables import claims, compute_nodes

# Inventory variable -> column: the configuration of a host is read fresh for each run, its facts are reported.
CONFIGURATION = (
    "ram_allocation_ratio",
    "disk_allocation_ratio",
    "cpu_allocation_ratio",
    "reserved_memory_mb",
    "reserved_disk_gb",
    "reserved_vcpus",
    "availability_zone",
    "disabled",
    "disabled_reason",
)


def record_report(
    conn: t.Any, host: str, facts: t.Mapping[str, t.Any], configuration: t.Mapping[str, t.Any], now: float
) -> int:
    """Enter what a host reported; usage is what the node reserves plus the sum of its claims. Returns the node's id.

    A second report updates the row of (host, node); it never makes a second one (row B32).
    """
    c = compute_nodes.c
    node = facts["hypervisor_hostname"]
    values = {
        "host_uuid": facts.get("host_uuid") or "",
        "memory_mb": facts["memory_mb"],
        "local_gb": facts["local_gb"],
        "vcpus": facts["vcpus"],
        "disk_available_least": facts.get("disk_available_least"),
        "hypervisor_type": facts.get("hypervisor_type") or "QEMU",
        "hypervisor_version": facts.get("hypervisor_version") or 0,
        "facts": dict(facts),
        "reported_at": now,
        "unreachable_reason": None,
        **{k: configuration[k] for k in CONFIGURATION if k in configuration},
    }
    mine = sa.and_(c.host == host, c.node == node)
    if conn.execute(compute_nodes.update().where(mine).values(**values)).rowcount == 0:
        if not insert_new(conn, compute_nodes, host=host, node=node, created_at=now, **values):
            conn.execute(compute_nodes.update().where(mine).values(**values))  # another run was faster
    node_id = conn.execute(sa.select(c.id).where(mine)).scalar_one()
    recount(conn, [node_id])
    return int(node_id)


def record_unreachable(conn: t.Any, host: str, reason: str) -> None:
    """The host was asked and did not answer: down at once, until it reports again."""
    conn.execute(compute_nodes.update().where(compute_nodes.c.host == host).values(unreachable_reason=reason[:1000]))


def lock(conn: t.Any, node_ids: t.Collection[int]) -> list[t.Any]:
    """Lock the rows of these nodes, always in the order of their ids, until the transaction ends. Returns them."""
    c = compute_nodes.c
    columns = (c.id, c.host, c.node, c.memory_mb, c.memory_mb_used, c.local_gb, c.local_gb_used, c.vcpus, c.vcpus_used)
    found: list[t.Any] = []
    for part in chunks(sorted(set(node_ids))):
        found.extend(conn.execute(sa.select(*columns).where(c.id.in_(part)).order_by(c.id).with_for_update()))
    return found


def recount(conn: t.Any, node_ids: t.Sequence[int]) -> None:
    """Set usage from scratch: reserved + the sum of the claims, for these nodes (whose rows the caller has locked)."""
    c = compute_nodes.c
    for node_id in sorted(node_ids):
        mine = claims.c.compute_node_id == node_id

        def total(column: t.Any, mine: t.Any = mine) -> t.Any:
            return sa.select(sa.func.coalesce(sa.func.sum(column), 0)).where(mine).scalar_subquery()

        conn.execute(
            compute_nodes.update()
            .where(c.id == node_id)
            .values(
                memory_mb_used=c.reserved_memory_mb + total(claims.c.memory_mb),
                local_gb_used=c.reserved_disk_gb + total(claims.c.disk_gb),
                vcpus_used=c.reserved_vcpus + total(claims.c.vcpus),
                num_instances=sa.select(sa.func.count()).select_from(claims).where(mine).scalar_subquery(),
            )
        )


def configure(conn: t.Any, configurations: t.Mapping[str, t.Mapping[str, t.Any]]) -> list[str]:
    """Bring the inventory's settings into the rows that differ. Returns the hosts that changed."""
    changed: dict[str, int] = {}
    reserves: list[int] = []
    columns = [compute_nodes.c[k] for k in CONFIGURATION]
    rows = conn.execute(
        sa.select(compute_nodes.c.id, compute_nodes.c.host, *columns).order_by(compute_nodes.c.id)
    ).all()
    for row in rows:
        wanted = configurations.get(row.host)
        if wanted is None:
            continue
        values = {k: wanted[k] for k in CONFIGURATION if k in wanted and getattr(row, k) != wanted[k]}
        if values:
            conn.execute(compute_nodes.update().where(compute_nodes.c.id == row.id).values(**values))
            changed[row.host] = row.id
            if any(k.startswith("reserved_") for k in values):
                reserves.append(row.id)
    recount(conn, reserves)
    return sorted(changed)


def stale_hosts(conn: t.Any, hosts: t.Iterable[str], now: float, max_age: float) -> list[str]:
    """Those of the inventory's hosts that never reported, whose report is older than ``max_age`` seconds, or that did not answer last time."""
    c = compute_nodes.c
    fresh = {
        r.host
        for r in conn.execute(sa.select(c.host, c.reported_at, c.unreachable_reason))
        if r.reported_at is not None and now - r.reported_at <= max_age and r.unreachable_reason is None
    }
    return [h for h in hosts if h not in fresh]


def host_states(
    conn: t.Any, hosts: t.Collection[str], host_vars: t.Mapping[str, t.Mapping[str, t.Any]] | None = None
) -> list[HostState]:
    """The inventory's hosts as the scheduler sees them, in one query, ordered by host and node."""
    wanted = set(hosts)
    rows = conn.execute(sa.select(compute_nodes).order_by(compute_nodes.c.host, compute_nodes.c.node))
    return [_host_state(r, (host_vars or {}).get(r.host)) for r in rows if r.host in wanted]


def _host_state(row: t.Any, variables: t.Mapping[str, t.Any] | None) -> HostState:
    facts = row.facts
    return HostState(
        host=row.host,
        nodename=row.node,
        memory_mb=row.memory_mb,
        memory_mb_used=row.memory_mb_used,
        local_gb=row.local_gb,
        local_gb_used=row.local_gb_used,
        vcpus=row.vcpus,
        vcpus_used=row.vcpus_used,
        ram_allocation_ratio=row.ram_allocation_ratio,
        disk_allocation_ratio=row.disk_allocation_ratio,
        cpu_allocation_ratio=row.cpu_allocation_ratio,
        disk_available_least=row.disk_available_least,
        hypervisor_type=row.hypervisor_type,
        hypervisor_version=row.hypervisor_version,
        cpu_info=facts.get("cpu_info") or {},
        supported_instances=[tuple(s) for s in facts.get("supported_instances") or []],
        availability_zones=(row.availability_zone,),
        disabled=row.disabled,
        disabled_reason=row.disabled_reason or "",
        forced_down=row.unreachable_reason is not None,
        updated_at=row.reported_at,
        num_instances=row.num_instances,
        num_io_ops=row.num_io_ops,
        failed_builds=row.failed_builds,
        vars=dict(variables or {}),
    )


def node_facts(conn: t.Any, host: str, node: str) -> dict[str, t.Any]:
    """The facts that a node last reported; empty when it never did."""
    c = compute_nodes.c
    row = conn.execute(sa.select(c.facts).where(c.host == host, c.node == node)).first()
    return dict(row.facts) if row is not None else {}


def count_failed_build(conn: t.Any, host: str, failed: bool) -> None:
    """Builds that failed there since the last success (row D18)."""
    c = compute_nodes.c
    if failed:
        conn.execute(compute_nodes.update().where(c.host == host).values(failed_builds=c.failed_builds + 1))
    else:
        conn.execute(compute_nodes.update().where(c.host == host, c.failed_builds != 0).values(failed_builds=0))
