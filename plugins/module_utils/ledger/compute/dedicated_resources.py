# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Free dedicated resources of a node: its reported NUMA cells, PCI devices and whole disks, less the claimed ones."""

from __future__ import annotations

import contextlib
import typing as t
from collections import defaultdict
from dataclasses import dataclass, replace

from ...core import errors
from ...core.answers.compute import DISKS
from ...core.answers.shapes import Misshapen
from ...core.resources.dedicated import Allocation
from ...core.resources.numa.topology import GuestNUMATopology, HostNUMATopology
from ...core.resources.numa.usage import apply_usage
from ...core.resources.pci.device import PciDevice
from ...core.resources.pci.pools import free_devices
from ..db.sqlalchemy_import import sa
from ..db.transaction import Transaction
from ..fast import bulk
from ..schema.tables import claims, compute_nodes, device_claims, instances, node_facts
from . import nodes, profiles

_T = t.TypeVar("_T")

PCI = "pci"
DISK = "disk"


@dataclass(frozen=True)
class FreeResources:
    """The resources of one node: its cells with their usage, and the unclaimed devices and disks."""

    numa: HostNUMATopology | None = None
    pci: t.Sequence[PciDevice] = ()
    disks: t.Sequence[t.Mapping[str, t.Any]] = ()


NONE_FREE = FreeResources()


def load(
    tx: Transaction, node_ids: t.Sequence[int] | None, numa: bool = True, devices: bool = True
) -> dict[int, FreeResources]:
    """node id -> its free resources, if it has any. ``node_ids`` None: of all nodes."""
    others = {i: [int(r.id) for r in rows] for i, rows in nodes.other_names_of(tx).items()}
    if node_ids is not None and others:  # what is claimed under another name of a machine is taken
        node_ids = sorted({*node_ids, *(o for i in node_ids for o in others.get(i, ()))})
    cells = _numa(tx, node_ids, others) if numa else {}
    pci, disks = _devices(tx, node_ids, others) if devices else ({}, {})
    return {
        n: FreeResources(cells.get(n), pci.get(n, ()), disks.get(n, ()))
        for n in cells.keys() | pci.keys() | disks.keys()
    }


def _among_nodes(tx: Transaction, column: sa.Column[int], node_ids: t.Sequence[int] | None) -> sa.ColumnElement[bool]:
    return sa.true() if node_ids is None else bulk.among(tx, column, node_ids)


def _numa(
    tx: Transaction, node_ids: t.Sequence[int] | None, others: t.Mapping[int, t.Sequence[int]]
) -> dict[int, HostNUMATopology]:
    c = compute_nodes.c
    with_cells = (_among_nodes(tx, c.id, node_ids), c.numa_profile_id.is_not(None))
    profile_of = dict(tx.execute(sa.select(c.id, c.numa_profile_id).where(*with_cells)).all())
    # The same object for equal nodes, so that a filter fits them once.
    empty = {i: _readable(HostNUMATopology.from_facts, p) for i, p in profiles.load(tx, profile_of.values()).items()}
    topologies = {n: t.cast(HostNUMATopology, empty[p]) for n, p in profile_of.items() if empty.get(p) is not None}
    fitted = (_among_nodes(tx, claims.c.compute_node_id, node_ids), claims.c.numa.is_not(sa.null()))
    query = sa.select(claims.c.compute_node_id, claims.c.numa).where(*fitted)
    for row in tx.execute(query.order_by(claims.c.id)):
        for node_id in (row.compute_node_id, *others.get(row.compute_node_id, ())):
            cells = topologies.get(node_id)
            if cells is not None:
                topologies[node_id] = _with_guest(cells, GuestNUMATopology.from_dict(row.numa))
    return topologies


def _with_guest(host: HostNUMATopology, guest: GuestNUMATopology) -> HostNUMATopology:
    """The cells with a guest's usage. CPUs the host no longer reports (for example offlined ones) are ignored: a single host
    with a changed report must not end all scheduling."""
    try:
        return apply_usage(host, guest)
    except errors.BootflowError:
        cells_by_id = {c.id: c for c in host.cells}
        cells = []
        for cell in guest.cells:
            known = cells_by_id.get(t.cast(int, cell.host_cell))
            if known is None:
                continue
            free = known.cpus - known.pinned_cpus
            pinning = {g: p for g, p in cell.pinning.items() if p in free}
            sizes = {p.size_kb for p in known.pages}
            page = cell.page_size_kb if cell.page_size_kb in sizes else None
            reserved = (cell.reserved_cpus & free) - frozenset(pinning.values())
            cells.append(replace(cell, pinning=pinning, reserved_cpus=reserved, page_size_kb=page))
        with contextlib.suppress(errors.BootflowError):
            host = apply_usage(host, replace(guest, cells=tuple(cells)))
        # A CPU that moved to another cell still belongs to this guest.
        guest_cpus = {p for c in guest.cells for p in (*c.pinning.values(), *c.reserved_cpus)}
        pinned_cells = [replace(c, pinned_cpus=c.pinned_cpus | (c.cpus & guest_cpus)) for c in host.cells]
        return replace(host, cells=tuple(pinned_cells))


def less(free: FreeResources, allocation: Allocation) -> FreeResources:
    """Return what another name of a machine has free after an allocation under one of its names."""
    pci = {device.address for _request, devices in allocation.pci for device in devices}
    disks = {disk["path"] for disk in allocation.disks}
    numa = free.numa
    if numa is not None and allocation.guest_numa is not None:
        numa = _with_guest(numa, allocation.guest_numa)
    return FreeResources(
        numa, [d for d in free.pci if d.address not in pci], [d for d in free.disks if d["path"] not in disks]
    )


def _devices(
    tx: Transaction, node_ids: t.Sequence[int] | None, others: t.Mapping[int, t.Sequence[int]]
) -> tuple[dict[int, list[PciDevice]], dict[int, list[dict[str, t.Any]]]]:
    c = compute_nodes.c
    query = sa.select(c.id, c.has_pci, c.has_disks, node_facts.c.facts)
    query = query.join(node_facts, node_facts.c.compute_node_id == c.id)
    rows = tx.execute(query.where(_among_nodes(tx, c.id, node_ids), sa.or_(c.has_pci, c.has_disks))).all()
    if not rows:
        return {}, {}
    claimed_devices: dict[tuple[int, str], set[str]] = defaultdict(set)
    d = device_claims.c
    for row in tx.execute(
        sa.select(d.compute_node_id, d.kind, d.device).where(_among_nodes(tx, d.compute_node_id, node_ids))
    ):
        for node_id in (row.compute_node_id, *others.get(row.compute_node_id, ())):
            claimed_devices[node_id, row.kind].add(row.device)
    pci: dict[int, list[PciDevice]] = {}
    reported: dict[int, list[dict[str, t.Any]]] = {}
    disks: dict[int, list[dict[str, t.Any]]] = {}
    for row in rows:
        if row.has_pci:
            pci[row.id] = list(free_devices(_readable(_pci, row.facts) or (), claimed_devices[row.id, PCI]))
        if row.has_disks:
            reported[row.id] = _readable(_disks, row.facts) or []
    ours = _our_domains(tx, {d["domain"] for some in reported.values() for d in some if d.get("domain")})
    for node_id, some in reported.items():
        claimed_disks = claimed_devices[node_id, DISK]
        disks[node_id] = [d for d in some if _is_offered(d, ours) and d["path"] not in claimed_disks]
    return pci, disks


def _readable(read: t.Callable[[t.Any], _T], facts: t.Any) -> _T | None:
    """Return the facts that a host reported; None if they cannot be read: a single host with a wrong report must not end all scheduling."""
    try:
        return read(facts)
    except (Misshapen, AttributeError, LookupError, OverflowError, TypeError, ValueError):
        return None


def _pci(facts: t.Mapping[str, t.Any]) -> list[PciDevice]:
    return [PciDevice.from_dict(d) for d in facts.get("pci_passthrough_devices") or ()]


def _disks(facts: t.Mapping[str, t.Any]) -> list[dict[str, t.Any]]:
    disks: list[dict[str, t.Any]] = facts.get("isolated_disks") or []
    DISKS(disks, "isolated_disks")
    return disks


def _is_offered(disk: t.Mapping[str, t.Any], ours: t.Collection[str]) -> bool:
    """Whether a node offers this disk. A disk in use is reported with a reason. Use by one of our guests does not count,
    because the claims show whether the guest still has it."""
    return not disk.get("reason") or disk.get("domain") in ours


def _our_domains(tx: Transaction, uuids: t.Collection[str]) -> set[str]:
    if not uuids:
        return set()
    c = instances.c
    return set(tx.execute(sa.select(c.uuid).where(bulk.among(tx, c.uuid, sorted(uuids)))).scalars())
