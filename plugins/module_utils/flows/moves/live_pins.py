# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The host CPUs and NUMA cells that the claim on the destination gave a guest that is live-migrated.

source: Nova's NUMA-aware live migration: MoveClaim._test_live_migration_page_size, and _update_numa_xml
"""

from __future__ import annotations

import typing as t
from dataclasses import replace

from ...core.guest.numa import pins
from ...core.guest.spec import GuestSpec, HostCapabilities
from ...core.model import Flavor
from ...core.resources.numa.topology import GuestNUMATopology, HostNUMATopology
from ...ledger.compute import claims, nodes
from ...ledger.db.transaction import Transaction
from .moving_instance import MovingInstance


def as_it_runs(spec: t.Mapping[str, t.Any], claimed: t.Mapping[str, t.Any] | None) -> t.Mapping[str, t.Any]:
    """Return the request of a running guest with the page sizes that it has, which cannot change. A request may leave them open.

    :arg claimed: the topology of the guest, fitted to its host
    """
    if not spec.get("numa_topology") or not claimed:
        return spec
    requested, present = (GuestNUMATopology.from_dict(topology) for topology in (spec["numa_topology"], claimed))
    sizes = {cell.id: cell.page_size_kb for cell in present.cells}
    cells = tuple(replace(c, page_size_kb=c.page_size_kb and sizes.get(c.id, c.page_size_kb)) for c in requested.cells)
    return {**spec, "numa_topology": replace(requested, cells=cells).as_dict()}


def pins_on_destination(tx: Transaction, moving: t.Sequence[MovingInstance]) -> dict[str, dict[str, t.Any]]:
    """Return uuid -> pins of the guest on its destination, see guest.numa.pins(); empty for a guest without cells.

    :raises NUMATopologyUnsupported: the destination lost a cell since it was claimed.
    """
    topologies = claims.numa_of_moves(tx, {(m.move.dest_compute, m.uuid) for m in moving})
    facts = nodes.facts_and_zones(tx, {m.move.dest_compute for m in moving if m.uuid in topologies})
    pins_by_uuid: dict[str, dict[str, t.Any]] = {}
    for moving_instance in moving:
        numa = topologies.get(moving_instance.uuid)
        if not numa:
            pins_by_uuid[moving_instance.uuid] = {}
            continue
        host_facts, _zone = facts.get((moving_instance.move.dest_compute, moving_instance.move.dest_node), ({}, ""))
        host = HostCapabilities(
            host=moving_instance.move.dest_compute,
            numa_topology=HostNUMATopology.from_facts(host_facts.get("numa_topology")),
        )
        guest = GuestSpec(
            uuid=moving_instance.uuid,
            name=moving_instance.row.domain_name,
            display_name=moving_instance.row.display_name,
            memory_mb=moving_instance.row.memory_mb,
            vcpus=moving_instance.row.vcpus,
            flavor=Flavor(**moving_instance.row.spec["flavor"]),
            disks=(),
            image_properties=(moving_instance.row.spec["image"] or {}).get("properties") or {},
            numa_topology=GuestNUMATopology.from_dict(numa),
        )
        pins_by_uuid[moving_instance.uuid] = pins(guest, host)
    return pins_by_uuid
