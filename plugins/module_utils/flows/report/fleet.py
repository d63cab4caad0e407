# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The hosts of a report, with their claims; and the days of capacity that the ledger has."""

from __future__ import annotations

import typing as t

from ...core.report.figures import Claim, Day, Host, Loss, Room
from ...ledger import capacity, report
from ...ledger.compute import claims, hypervisors, nodes
from ...ledger.db.transaction import Transaction

#: resource -> (field of a view, of the reserve of a node)
_FIELDS = {
    "memory_mb": ("memory_mb", "reserved_memory_mb"),
    "vcpus": ("vcpus", "reserved_vcpus"),
    "disk_gb": ("local_gb", "reserved_disk_gb"),
}


def hosts(tx: Transaction, inventory: t.Iterable[str], service_down_time: float) -> list[Host]:
    """Return all compute nodes, by host. :arg inventory: its compute hosts; hosts that reported are added"""
    wanted = sorted(nodes.hosts(tx).union(inventory))
    reserves = [reserve for _field, reserve in _FIELDS.values()]
    rows = {(row.host, row.node): row for row in nodes.rows(tx, ("id", "host", "node", "reported_at", *reserves))}
    by_node: dict[int, list[Claim]] = {}
    for claim in report.named_claims(tx):
        by_node.setdefault(claim.compute_node_id, []).append(_claim(claim))
    return [
        _host(view, rows.get((view["host"], view["hypervisor_hostname"])), by_node)
        for view in hypervisors.views(tx, wanted, service_down_time)
    ]


def _claim(row: report.NamedClaim) -> Claim:
    amounts = {"memory_mb": row.memory_mb, "vcpus": row.vcpus, "disk_gb": row.disk_gb}
    return Claim(row.uuid, row.display_name, row.project, row.vm_state, amounts, row.kind != claims.BUILD)


def _host(view: t.Mapping[str, t.Any], row: nodes.NodeRow | None, by_node: t.Mapping[int, t.Sequence[Claim]]) -> Host:
    rooms = {
        resource: Room(
            view[field],
            view[field + "_used"],
            0 if row is None else getattr(row, reserve),
            view[field + "_ratio"] or 1.0,
        )
        for resource, (field, reserve) in _FIELDS.items()
    }
    return Host(
        host=view["host"],
        node=view["hypervisor_hostname"],
        zone=view["availability_zone"] or "none",
        up=view["state"] == "up",
        state_known=view["state_known"],
        enabled=view["status"] == "enabled",
        reason=view["disabled_reason"] or "",
        reported_at=None if row is None else row.reported_at,
        instances=view["running_vms"],
        rooms=rooms,
        claims=() if row is None else by_node.get(row.id, ()),
        problems=view["problems"],
    )


def losses(answers: t.Iterable[t.Mapping[str, t.Any]]) -> list[Loss]:
    """Return the answers of flows.boot.whatif.lose() as figures."""
    return [
        Loss(host["host"], len(host["moved"]), [(stuck["name"], stuck["reason"]) for stuck in host["stuck"]])
        for host in answers
    ]


def days(tx: Transaction, number: int) -> list[Day]:
    """Return the latest days of capacity, oldest first. :arg number: how many at most"""
    return [
        Day(
            row.day,
            row.hosts,
            row.instances,
            {"memory_mb": row.memory_mb, "vcpus": row.vcpus, "disk_gb": row.local_gb},
            {"memory_mb": row.memory_mb_used, "vcpus": row.vcpus_used, "disk_gb": row.local_gb_used},
        )
        for row in capacity.latest_days(tx, number)
    ]
