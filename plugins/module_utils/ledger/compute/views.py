# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Instances as plain data for people and playbooks: what list, show, boot and delete return."""

from __future__ import annotations

import functools
import ipaddress
import typing as t

from ...core.instances import states
from ...core.instances.progress import FIELDS
from ...core.networks.network import Network
from ...core.networks.network_info import PortRecord, devname
from ...core.times import utc
from ..db.transaction import Transaction
from ..networks import security_groups
from . import claims, history, instances, moves, ports, requests
from .groups import group_names
from .history import LastFault
from .instances import Instance, InstanceRow


def instance_views(tx: Transaction, rows: t.Sequence[Instance]) -> list[dict[str, t.Any]]:
    """One dictionary for each ledger row, in the rows' order; Nova's field names."""
    uuids = [r.uuid for r in rows]
    port_records = ports.ports_of(tx, uuids)
    faults = history.last_faults(
        tx, [r.uuid for r in rows if r.vm_state == states.ERROR or r.task_state == states.DELETING]
    )
    allocations = claims.allocations_of(tx, uuids)
    groups = group_names(tx, {r.server_group_id for r in rows if r.server_group_id})
    shown = [_view(r, port_records[r.uuid], faults.get(r.uuid), tx.now) for r in rows]
    for view, row in zip(shown, rows):
        allocation = allocations.get(row.uuid, {})
        view["server_group"] = groups.get(row.server_group_id or "")
        view["numa_topology"] = allocation.get("numa")
        view["pci_devices"] = [d["address"] for d in allocation.get("pci", ())]
        view["whole_disks"] = [d["path"] for d in allocation.get("disks", ())]
    return shown


def _view(
    row: Instance, port_records: t.Sequence[tuple[PortRecord, Network]], fault: LastFault | None, now: float
) -> dict[str, t.Any]:
    image = row.spec["image"]
    return {
        "name": row.display_name,
        "uuid": row.uuid,
        "project": row.project,
        "user": row.user_name,
        "reservation_id": row.reservation_id,
        "vm_state": row.vm_state,
        "task_state": row.task_state,
        "locked_by": row.locked_by,
        "locked_reason": row.locked_reason,
        "power_state": row.power_state,
        "host": row.host,
        "node": row.node,
        "domain_name": row.domain_name,
        "availability_zone": row.availability_zone,
        "flavor": row.spec["flavor"]["name"],
        "image": image["name"] if image else None,
        "key_name": row.key_name,
        "ssh_host_key": row.ssh_host_key,
        "metadata": row.spec["metadata"],
        "tags": row.spec.get("tags") or [],
        "description": row.spec["description"],
        "access_ip_v4": row.spec.get("access_ip_v4"),
        "access_ip_v6": row.spec.get("access_ip_v6"),
        "disk_config": row.spec.get("disk_config"),
        "extra": row.spec.get("extra") or {},
        "config_drive": row.config_drive,
        "addresses": [a for p, n in port_records for a in _addresses(p, n)],
        "ports": [
            {
                "id": p.id,
                "name": p.name,
                "network": n.name,
                "network_id": n.id,
                "mac_address": p.mac_address,
                "fixed_ips": [dict(f) for f in p.fixed_ips],
                "devname": devname(p.id),
                "preserve_on_delete": p.preserve_on_delete,
                "tag": p.tag,
            }
            for p, n in port_records
        ],
        "created_at": utc(row.created_at),
        "updated_at": utc(row.updated_at),
        "launched_at": utc(row.launched_at),
        "age": round(now - row.created_at),
        "seconds": None if row.launched_at is None else round(row.launched_at - row.created_at, 1),
        "fault": history.shown_fault(fault),
    }


@functools.lru_cache(maxsize=1024)
def _prefix(cidr: str) -> int:
    return ipaddress.ip_network(cidr, strict=False).prefixlen


def _addresses(port: PortRecord, network: Network) -> list[dict[str, t.Any]]:
    subnets = {s.id: s for s in network.subnets}
    addresses = []
    for fixed in port.fixed_ips:
        subnet = subnets.get(fixed["subnet_id"])
        addresses.append(
            {
                "ip_address": fixed["ip_address"],
                "prefix": None if subnet is None else _prefix(subnet.cidr),
                "version": 6 if ":" in fixed["ip_address"] else 4,
                "network": network.name,
                "mac_address": port.mac_address,
            }
        )
    return addresses


def details(tx: Transaction, rows: t.Sequence[Instance]) -> list[dict[str, t.Any]]:
    """instance_views with the flavor's numbers, the kept machine type, the security groups, the disks, the moves and the journal of each."""
    uuids = [r.uuid for r in rows]
    disks, moved = instances.disks_of(tx, uuids), migrations(tx, uuids)
    groups = security_groups.names_of_instances(tx, uuids)
    return [
        {
            **view,
            "flavor_details": row.spec["flavor"],
            "scheduler_hints": row.spec["scheduler_hints"],
            "machine_type": row.machine_type,
            "security_groups": groups[row.uuid],
            "disks": disks[row.uuid],
            "migrations": moved[row.uuid],
            "events": history.events_of(tx, row.uuid),
        }
        for view, row in zip(instance_views(tx, rows), rows)
    ]


def histories(tx: Transaction, rows: t.Sequence[InstanceRow]) -> list[dict[str, t.Any]]:
    """Return the history of each of these instances, live or deleted: see history.all_of(); and its moves."""
    uuids = [r.uuid for r in rows]
    records, moved = history.all_of(tx, uuids), migrations(tx, uuids, precise=True)
    return [
        {
            "name": row.display_name,
            "uuid": row.uuid,
            "project": row.project,
            "host": row.host,
            "vm_state": row.vm_state,
            "task_state": row.task_state,
            "created_at": utc(row.created_at),
            "deleted_at": utc(row.deleted_at),
            **records[row.uuid],
            "migrations": moved[row.uuid],
        }
        for row in rows
    ]


def migrations(tx: Transaction, uuids: t.Sequence[str], precise: bool = False) -> dict[str, list[dict[str, t.Any]]]:
    """uuid -> the moves of the instance, oldest first. :arg precise: times have milliseconds. source: Nova's os-migrations"""
    moves_by_uuid = moves.all_of(tx, uuids)
    ids = {
        i
        for instance_moves in moves_by_uuid.values()
        for m in instance_moves
        for i in (m.old_request_spec_id, m.new_request_spec_id)
    }
    flavors = {key: row.spec["flavor"]["name"] for key, row in requests.specs(tx, ids).items()}
    return {
        uuid: [
            {
                "migration_type": m.migration_type,
                "status": m.status,
                "source_compute": m.source_compute,
                "dest_compute": m.dest_compute,
                "old_flavor": flavors.get(m.old_request_spec_id),  # None: a purge removed that request
                "new_flavor": flavors.get(m.new_request_spec_id),
                "created_at": utc(m.created_at, precise),
                "updated_at": utc(m.updated_at, precise),
                **_progress(m),
            }
            for m in instance_moves
        ]
        for uuid, instance_moves in moves_by_uuid.items()
    }


def _progress(move: moves.MoveRow) -> dict[str, t.Any]:
    """Return the progress of a live migration that has begun. source: Nova's names in os-migrations"""
    if move.progress is None:
        return {}
    return {"progress": move.progress, **{"%s_bytes" % n: getattr(move, n) for n in FIELDS}}
