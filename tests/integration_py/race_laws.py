# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What holds at every moment of a ledger, looked at from one snapshot of it while others write."""

from __future__ import annotations

import collections
import typing as t

import sqlalchemy as sa

from ansible_collections.bootflow.compute.plugins.module_utils.core.instances import states
from ansible_collections.bootflow.compute.plugins.module_utils.core.instances.server_groups import (
    AFFINITY,
    ANTI_AFFINITY,
)
from ansible_collections.bootflow.compute.plugins.module_utils.core.resources.numa.topology import GuestNUMATopology
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.db.transaction import Transaction
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.schema import tables


def violations(tx: Transaction) -> list[str]:
    """Every law that is broken in this snapshot; none of them is."""
    nodes = {r.id: r for r in tx.execute(sa.select(tables.compute_nodes))}
    claims = tx.execute(sa.select(tables.claims)).all()
    instances = {r.uuid: r for r in tx.execute(sa.select(tables.instances).where(tables.instances.c.deleted == ""))}
    remains = {(r.instance_uuid, r.host) for r in tx.execute(sa.select(tables.cleanups))}
    found = _usage(nodes, claims)
    found += _owners(nodes, claims, instances, remains)
    found += _groups(tx, nodes, claims, instances)
    found += _parts(tx, nodes, claims)
    found += _addresses(tx, instances, remains)
    return found


def _usage(nodes: dict[int, t.Any], claims: list[t.Any]) -> list[str]:
    found = []
    by_node = collections.defaultdict(list)
    for claim in claims:
        by_node[claim.compute_node_id].append(claim)
    for node in nodes.values():
        mine = by_node[node.id]
        for what, used, reserved, parts, limit in (
            ("memory", node.memory_mb_used, node.reserved_memory_mb, [c.memory_mb for c in mine],
             node.memory_mb * node.ram_allocation_ratio),
            ("disk", node.local_gb_used, node.reserved_disk_gb, [c.disk_gb for c in mine],
             node.local_gb * node.disk_allocation_ratio),
            ("vcpus", node.vcpus_used, node.reserved_vcpus, [c.vcpus for c in mine],
             node.vcpus * node.cpu_allocation_ratio),
        ):  # fmt: skip
            if used != reserved + sum(parts):
                found.append("%s: %s used %d, but %d + %d" % (node.host, what, used, reserved, sum(parts)))
            if used > limit:
                found.append("%s: oversubscribed: %s used %d of %d" % (node.host, what, used, limit))
        guests = len({c.instance_uuid for c in mine})
        if node.num_instances != guests:
            found.append("%s: %d instances, but %d have claims" % (node.host, node.num_instances, guests))
    return found


def _owners(
    nodes: dict[int, t.Any], claims: list[t.Any], instances: dict[str, t.Any], remains: set[tuple[str, str]]
) -> list[str]:
    """Each claim is of an instance that is there or of one that a host is still to be rid of; who is there has a claim."""
    found = []
    places = collections.Counter((c.instance_uuid, nodes[c.compute_node_id].host) for c in claims)
    for (uuid, host), count in places.items():
        row = instances.get(uuid)
        if count > 1:
            found.append("%s has %d claims on %s" % (uuid, count, host))
        if (row is None or row.host != host) and (uuid, host) not in remains:
            found.append("the claim of %s on %s is nobody's" % (uuid, host))
    for row in instances.values():
        if (
            row.host is not None
            and row.vm_state in (states.ACTIVE, states.BUILDING)
            and (row.uuid, row.host) not in places
        ):
            found.append("%s is on %s without a claim" % (row.uuid, row.host))
    return found


def _groups(tx: Transaction, nodes: dict[int, t.Any], claims: list[t.Any], instances: dict[str, t.Any]) -> list[str]:
    groups = {r.id: r for r in tx.execute(sa.select(tables.server_groups))}
    wanted = {r.server_group_id for r in instances.values() if r.server_group_id is not None}
    found = ["group %s is gone, it has living members" % g for g in sorted(wanted - set(groups))]
    where: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    for claim in claims:
        if claim.server_group_id is not None:
            where[claim.server_group_id][nodes[claim.compute_node_id].host] += 1
    for group_id, hosts in where.items():
        group = groups.get(group_id)
        if group is None:
            continue  # what hosts are still to be rid of
        if group.policy == ANTI_AFFINITY and max(hosts.values()) > group.max_server_per_host:
            found.append("anti-affinity group %s shares a host: %s" % (group.name, dict(hosts)))
        elif group.policy == AFFINITY and len(hosts) > 1:
            found.append("affinity group %s is split: %s" % (group.name, dict(hosts)))
    return found


def _parts(tx: Transaction, nodes: dict[int, t.Any], claims: list[t.Any]) -> list[str]:
    found = []
    pinned = collections.Counter(
        (nodes[c.compute_node_id].host, cpu)
        for c in claims
        if c.numa is not None
        for cell in GuestNUMATopology.from_dict(c.numa).cells
        for cpu in cell.pinned_cpus
    )
    found += ["CPU %d of %s is pinned %d times" % (cpu, host, n) for (host, cpu), n in pinned.items() if n > 1]
    held = {(c.instance_uuid, c.compute_node_id) for c in claims}
    devices: collections.Counter[t.Any] = collections.Counter()
    owners: dict[tuple[int, str], str] = {}
    for row in tx.execute(sa.select(tables.device_claims)):
        devices[row.compute_node_id, row.kind, row.device] += 1
        owners[row.compute_node_id, row.device] = row.detail.get("parent_addr") or ""
        if (row.instance_uuid, row.compute_node_id) not in held:
            found.append("%s holds %s without a claim" % (row.instance_uuid, row.device))
    found += ["device %s is given %d times" % (key, n) for key, n in devices.items() if n > 1]
    for (node, device), parent in owners.items():
        if parent and (node, parent) in owners:
            found.append("function %s and its card %s are both given" % (device, parent))
    return found


def _addresses(tx: Transaction, instances: dict[str, t.Any], remains: set[tuple[str, str]]) -> list[str]:
    found = []
    a, p = tables.ip_allocations, tables.ports
    rows = tx.execute(
        sa.select(a.c.subnet_id, a.c.ip_address, p.c.instance_uuid, p.c.host).join(p, p.c.id == a.c.port_id)
    ).all()
    taken = collections.Counter((r.subnet_id, r.ip_address) for r in rows)
    found += ["address %s is given %d times" % (key, n) for key, n in taken.items() if n > 1]
    for row in rows:
        if row.instance_uuid not in instances and (row.instance_uuid, row.host) not in remains:
            found.append("address %s is held for nobody" % row.ip_address)
    return found
