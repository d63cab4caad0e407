# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Claims made by hand, without the scheduler: instances that wait, claim requests, and what a node has left."""

from __future__ import annotations

import typing as t

import sqlalchemy as sa

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.core.disks.whole_disks import WholeDiskRequest
from ansible_collections.bootflow.compute.plugins.module_utils.core.instances import states
from ansible_collections.bootflow.compute.plugins.module_utils.core.instances.server_groups import ServerGroup
from ansible_collections.bootflow.compute.plugins.module_utils.core.resources.claims import ResourceRequest
from ansible_collections.bootflow.compute.plugins.module_utils.core.resources.dedicated import DedicatedRequest
from ansible_collections.bootflow.compute.plugins.module_utils.core.resources.numa.topology import (
    GuestCell,
    GuestNUMATopology,
)
from ansible_collections.bootflow.compute.plugins.module_utils.core.resources.pci.request import PciRequest
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.compute import (
    claims,
    dedicated_resources,
    groups,
    nodes,
)
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.db.transaction import Transaction
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.schema import tables

from .world import World, request

PF = "0000:81:00.0"
VFS = tuple("0000:81:10.%d" % n for n in range(3))
PLAIN = ("0000:05:00.0", "0000:06:00.0")
CARD: list[dict[str, t.Any]] = [
    {"address": PF, "vendor_id": "8086", "product_id": "10c9", "dev_type": "type-PF"},
    *({"address": a, "vendor_id": "8086", "product_id": "10ca", "dev_type": "type-VF", "parent_addr": PF} for a in VFS),
    *({"address": a, "vendor_id": "10de", "product_id": "1eb8", "dev_type": "type-PCI"} for a in PLAIN),
]
DISKS: list[dict[str, t.Any]] = [
    {"path": "/dev/sdb", "size_gb": 100, "medium": "ssd"},
    {"path": "/dev/sdc", "size_gb": 200, "medium": "hdd"},
    {"path": "/dev/sdd", "size_gb": 900, "medium": "ssd", "reason": "it is in use by the host"},
]
A_CARD = PciRequest(1, ({"vendor_id": "8086", "product_id": "10c9", "dev_type": "type-PF"},), "card")
A_FUNCTION = PciRequest(1, ({"vendor_id": "8086", "product_id": "10ca", "dev_type": "type-VF"},), "function")
A_GPU = PciRequest(1, ({"vendor_id": "10de", "product_id": "1eb8"},), "gpu")
A_DISK = WholeDiskRequest(min_gb=50)


def cells(count: int = 2, cpus: int = 4, memory_mb: int = 4096) -> dict[str, t.Any]:
    """The fact numa_topology: cell n has the CPUs from n * ``cpus``."""
    return {
        "cells": [
            {
                "id": n,
                "memory_mb": memory_mb,
                "cpus": list(range(n * cpus, (n + 1) * cpus)),
                "siblings": [],
                "pages": [{"size_kb": 4, "total": memory_mb * 256}, {"size_kb": 2048, "total": 100}],
            }
            for n in range(count)
        ]
    }


def pinned(cpus: int = 2, memory_mb: int = 512, guest_cells: int = 1) -> GuestNUMATopology:
    """``cpus`` in each of the guest's cells."""
    return GuestNUMATopology(
        tuple(
            GuestCell(
                id=n, cpus=frozenset(range(n * cpus, (n + 1) * cpus)), memory_mb=memory_mb, cpu_policy="dedicated"
            )
            for n in range(guest_cells)
        )
    )


def node(world: World, host: str = "h1", memory_mb: int = 4096, **facts: t.Any) -> int:
    configuration = facts.pop("configuration", {})
    facts = {"hypervisor_hostname": host, "memory_mb": memory_mb, "local_gb": 100, "vcpus": 100, **facts}
    settings = {"ram_allocation_ratio": 1.0, "disk_allocation_ratio": 1.0, "cpu_allocation_ratio": 1.0}
    with world.ledger.write() as tx:
        return nodes.record_report(tx.for_run(world.context()), host, facts, {**settings, **configuration})


def waiting(world: World, count: int = 1, name: str = "vm", **fields: t.Any) -> list[str]:
    return world.accept(*(request("%s%d" % (name, n), networks=(), **fields) for n in range(count))).created


def asked(
    uuid: str,
    *hosts: str,
    memory: int = 100,
    disk: int = 1,
    vcpus: int = 1,
    limits: t.Mapping[str, t.Any] | None = None,
    group: ServerGroup | None = None,
    numa: GuestNUMATopology | None = None,
    pci: t.Sequence[PciRequest] = (),
    disks: t.Sequence[WholeDiskRequest] = (),
) -> claims.ClaimRequest:
    return claims.ClaimRequest(
        uuid,
        ResourceRequest(memory, disk, vcpus),
        [claims.Candidate(h, h, limits if limits is not None else {}) for h in hosts or ("h1",)],
        DedicatedRequest(numa, tuple(pci), tuple(disks)),
        group,
    )


def claim(world: World, *requests: claims.ClaimRequest) -> dict[str, str]:
    """uuid -> the host, or the text of the refusal. Who got a place is a running guest there from then on."""
    with world.ledger.write() as tx:
        groups.load(tx, {r.group.id for r in requests if r.group is not None}, lock=True)
        found = claims.claim(tx.for_run(world.context()), requests)
        for one in requests:
            outcome = found[one.instance_uuid]
            if isinstance(outcome, claims.Candidate):
                live(tx, one.instance_uuid, outcome.host)
    laws_hold(world)
    return {u: o.message if isinstance(o, errors.BootflowError) else o.host for u, o in found.items()}


def live(tx: Transaction, uuid: str, host: str | None) -> None:
    table = tables.instances
    values = {"host": host, "node": host, "vm_state": states.ACTIVE if host else states.BUILDING, "task_state": None}
    tx.execute(table.update().where(table.c.uuid == uuid).values(**values))


def release(world: World, *uuids: str, host: str | None = None) -> int:
    with world.ledger.write() as tx:
        if host is None:
            released = claims.release(tx, uuids)
        else:
            released = claims.release_on(tx, {(host, uuid) for uuid in uuids})
        for uuid in uuids:
            row = tx.execute(sa.select(tables.claims.c.id).where(tables.claims.c.instance_uuid == uuid)).first()
            if row is None:
                live(tx, uuid, None)
    laws_hold(world)
    return released


def laws_hold(world: World) -> None:
    """The sums, where an instance may hold two claims. From one snapshot: others may be writing."""
    with world.ledger.read() as tx:
        _laws(tx)


def _laws(tx: Transaction) -> None:
    claimed = tx.execute(sa.select(tables.claims)).all()
    for row in tx.execute(sa.select(tables.compute_nodes)):
        mine = [c for c in claimed if c.compute_node_id == row.id]
        assert row.memory_mb_used == row.reserved_memory_mb + sum(c.memory_mb for c in mine)
        assert row.local_gb_used == row.reserved_disk_gb + sum(c.disk_gb for c in mine)
        assert row.vcpus_used == row.reserved_vcpus + sum(c.vcpus for c in mine)
        assert row.num_instances == len({c.instance_uuid for c in mine})
    held = {(c.instance_uuid, c.compute_node_id) for c in claimed}
    devices = tx.execute(sa.select(tables.device_claims)).all()
    assert {(d.instance_uuid, d.compute_node_id) for d in devices} <= held


def free(world: World, node_id: int) -> dedicated_resources.FreeResources:
    with world.ledger.read() as tx:
        return dedicated_resources.load(tx, [node_id]).get(node_id, dedicated_resources.NONE_FREE)


def allocation_of(world: World, uuid: str) -> dict[str, t.Any]:
    with world.ledger.read() as tx:
        return claims.allocations_of(tx, [uuid])[uuid]


def devices_of(world: World, uuid: str) -> list[str]:
    found = allocation_of(world, uuid)
    return [d["address"] for d in found["pci"]] + [d["path"] for d in found["disks"]]


def pins(world: World, uuid: str) -> list[int]:
    """The host's CPUs that the instance has for itself."""
    topology = GuestNUMATopology.from_dict(allocation_of(world, uuid)["numa"])
    return sorted(cpu for cell in topology.cells for cpu in cell.pinned_cpus)
