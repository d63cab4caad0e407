# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The metrics of a ledger: capacity and claims of hosts, instances, volumes, moves, actions, runs.

A time is when something happened, in seconds since 1970. Prometheus knows what time it is, and reckons ages.
"""

from __future__ import annotations

import typing as t

from ...module_utils.core.amounts import GIB, MIB
from ...module_utils.ledger import metrics
from ...module_utils.ledger.compute import hypervisors, nodes
from ...module_utils.ledger.db.transaction import Transaction
from ...module_utils.ledger.storage import volume_views
from .exposition import Gauge

#: resource -> (field of a host, bytes of its unit, words)
_RESOURCES = {
    "memory_bytes": ("memory_mb", MIB, "Memory in bytes"),
    "vcpus": ("vcpus", 1, "vCPUs"),
    "disk_bytes": ("local_gb", GIB, "Local disk in bytes"),
}
#: what of a resource -> (suffix of the field, words)
_PARTS = {
    "physical": ("", "as the host has it"),
    "used": ("_used", "reserved and claimed"),
    "free": ("_free", "free for new instances, with the allocation ratio"),
}


def gauges_of(tx: Transaction, hosts: t.Iterable[str], service_down_time: float) -> list[Gauge]:
    """Return all metrics. :arg hosts: of the inventory; hosts that reported are added"""
    shown = sorted(nodes.hosts(tx).union(hosts))
    return [
        *_host_gauges(hypervisors.views(tx, shown, service_down_time), nodes.rows(tx, ("host", "reported_at"))),
        *_instance_gauges(tx),
        *_volume_gauges(tx),
        *_work_gauges(tx),
    ]


def _host_gauges(views: t.Sequence[t.Mapping[str, t.Any]], rows: t.Sequence[t.Any]) -> list[Gauge]:
    up = Gauge("bootflow_host_up", "Whether the compute host reported in time and is not forced down.")
    enabled = Gauge("bootflow_host_enabled", "Whether the compute host gets new instances.")
    reported = Gauge("bootflow_host_last_report_timestamp_seconds", "When the compute host reported for the last time.")
    running = Gauge("bootflow_host_instances", "Instances of the compute host.")
    failed = Gauge("bootflow_host_failed_builds", "Builds that failed on the compute host since one succeeded.")
    problems = Gauge("bootflow_host_problems", "Problems of the compute host, as bootflow.compute.hosts lists them.")
    room = {
        (part, resource): Gauge("bootflow_host_%s_%s" % (part, resource), "%s, %s." % (words, of_part))
        for resource, (_field, _unit, words) in _RESOURCES.items()
        for part, (_suffix, of_part) in _PARTS.items()
    }
    zones = {}
    for view in views:
        host = view["host"]
        labels = {"host": host, "zone": view["availability_zone"]}
        zones[host] = labels["zone"]
        up.add(int(view["state"] == "up"), **labels)
        enabled.add(int(view["status"] == "enabled"), **labels)
        running.add(view["running_vms"], **labels)
        failed.add(view["failed_builds"], **labels)
        problems.add(len(view["problems"]), **labels)
        for (part, resource), gauge in room.items():
            name, unit, _words = _RESOURCES[resource]
            number = view[name + _PARTS[part][0]]
            gauge.add(None if number is None else number * unit, **labels)
    for row in rows:
        reported.add(row.reported_at, host=row.host, zone=zones.get(row.host))
    return [up, enabled, reported, running, failed, problems, *room.values()]


def _instance_gauges(tx: Transaction) -> list[Gauge]:
    number = Gauge("bootflow_instances", "Instances by project and vm_state.")
    vcpus = Gauge("bootflow_instances_vcpus", "vCPUs of the instances.")
    memory = Gauge("bootflow_instances_memory_bytes", "Memory of the instances in bytes.")
    disk = Gauge("bootflow_instances_disk_bytes", "Local disks of the instances in bytes.")
    busy = Gauge("bootflow_instances_busy", "Instances that something works on, by task_state.")
    for row in metrics.instance_counts(tx):
        labels = {"project": row["project"], "state": row["state"]}
        number.add(row["instances"], **labels)
        vcpus.add(row["vcpus"], **labels)
        memory.add(row["memory_mb"] * MIB, **labels)
        disk.add(row["disk_gb"] * GIB, **labels)
    for row in metrics.task_counts(tx):
        busy.add(row["instances"], task=row["task"])
    return [number, vcpus, memory, disk, busy]


def _volume_gauges(tx: Transaction) -> list[Gauge]:
    number = Gauge("bootflow_volumes", "Volumes by project and status.")
    size = Gauge("bootflow_volumes_size_bytes", "Size of the volumes in bytes.")
    total = Gauge("bootflow_storage_backend_total_bytes", "Size of the storage backend in bytes.")
    free = Gauge("bootflow_storage_backend_free_bytes", "Room in the storage backend in bytes, as it reported.")
    allocated = Gauge(
        "bootflow_storage_backend_allocated_bytes", "Size of the volumes of the storage backend in bytes."
    )
    for row in metrics.volume_counts(tx):
        labels = {"project": row["project"], "status": row["status"]}
        number.add(row["volumes"], **labels)
        size.add(row["size_gb"] * GIB, **labels)
    for view in volume_views.backends(tx):
        for gauge, field in ((total, "total_gb"), (free, "free_gb"), (allocated, "allocated_gb")):
            if isinstance(view[field], (int, float)):  # a word where the backend cannot know
                gauge.add(view[field] * GIB, pool=view["pool_host"])
    return [number, size, total, free, allocated]


def _work_gauges(tx: Transaction) -> list[Gauge]:
    moves = Gauge("bootflow_moves", "Moves that have not ended, by type and status.")
    actions = Gauge(
        "bootflow_instance_actions_last_day", "Actions on instances that began in the last 24 hours, by result."
    )
    active = Gauge("bootflow_runs_active", "Runs that work on the ledger.")
    last = Gauge("bootflow_last_run_start_timestamp_seconds", "When the newest run that writes to the ledger began.")
    for row in metrics.move_counts(tx):
        moves.add(row["moves"], type=row["type"], status=row["status"])
    for row in metrics.action_counts(tx):
        actions.add(row["actions"], action=row["action"], result=row["result"])
    counted = metrics.run_counts(tx)
    active.add(counted["runs"])
    last.add(counted["last_started"])
    return [moves, actions, active, last]
