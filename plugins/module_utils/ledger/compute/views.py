# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Instances as plain data for people and playbooks, the results of list, boot and delete."""

from __future__ import annotations

import datetime
import typing as t

from ...core.instances import states
from ...core.model import Network
from ...core.networks.network_info import PortRecord
from ..db.transaction import Transaction
from . import claims, history, ports
from .groups import group_names
from .history import LastFault
from .instances import Instance


def instance_views(tx: Transaction, rows: t.Sequence[Instance]) -> list[dict[str, t.Any]]:
    """One dictionary for each ledger row, in the rows' order; Nova's field names."""
    uuids = [r.uuid for r in rows]
    port_records = ports.ports_of(tx, uuids)
    faults = history.last_faults(
        tx, [r.uuid for r in rows if r.vm_state == states.ERROR or r.task_state == states.DELETING]
    )
    allocations = claims.allocations_of(tx, uuids)
    groups = group_names(tx, {r.server_group_id for r in rows if r.server_group_id})
    shown = [_view(r, port_records[r.uuid], faults.get(r.uuid)) for r in rows]
    for view, row in zip(shown, rows):
        its = allocations.get(row.uuid, {})
        view["server_group"] = groups.get(row.server_group_id or "")
        view["numa_topology"] = its.get("numa")
        view["pci_devices"] = [d["address"] for d in its.get("pci", ())]
        view["whole_disks"] = [d["path"] for d in its.get("disks", ())]
    return shown


def _view(
    row: Instance, port_records: t.Sequence[tuple[PortRecord, Network]], fault: LastFault | None
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
        "power_state": row.power_state,
        "host": row.host,
        "node": row.node,
        "domain_name": row.domain_name,
        "availability_zone": row.availability_zone,
        "flavor": row.spec["flavor"]["name"],
        "image": image["name"] if image else None,
        "key_name": row.key_name,
        "metadata": row.spec["metadata"],
        "description": row.spec["description"],
        "config_drive": row.config_drive,
        "addresses": [f["ip_address"] for p, _n in port_records for f in p.fixed_ips],
        "ports": [
            {"id": p.id, "network": n.name, "mac_address": p.mac_address, "fixed_ips": [dict(f) for f in p.fixed_ips]}
            for p, n in port_records
        ],
        "created_at": utc(row.created_at),
        "launched_at": utc(row.launched_at),
        "seconds": None if row.launched_at is None else round(row.launched_at - row.created_at, 1),
        "fault": fault,
    }


def utc(seconds: float | None) -> str | None:
    """ISO 8601 in UTC, as Nova prints times."""
    if seconds is None:
        return None
    moment = datetime.datetime.fromtimestamp(seconds, datetime.timezone.utc)
    return moment.isoformat(timespec="seconds").replace("+00:00", "Z")
