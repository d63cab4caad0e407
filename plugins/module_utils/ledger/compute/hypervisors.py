# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Compute hosts as plain data for people and playbooks: what the playbook hosts returns. Field names are Nova's."""

from __future__ import annotations

import typing as t

from ...core.audit.evidence import Domain, guests_of_others
from ...core.firewall.driver import NOT_FILTERING
from ...core.scheduler.host_state import HostState
from ...core.times import duration, utc
from ..db.transaction import Transaction
from ..schema.identity import ledger_id
from . import cleanups, fleet, nodes

# The problem of a host whose report is old, and which did not fail to answer: how old that is.
_NOT_ASKED = (
    "not asked for %s, so its state is unknown: hosts report when a playbook asks them. A boot asks them first; run bootflow.compute.heartbeat to ask now,"
    " or set up the timers of the role controller (docs/audit.md, Timers)"
)
# The problem of a host without a working KVM, unless bootflow_virt_type says that it is to emulate: its reason.
EMULATED = "guests run emulated, many times slower than with KVM: %s"
# The problem of a machine that the ledger has as several hosts.
_TWICE = "the same machine as %s: its guests and its room count for both; keep one of them in the inventory"
# The problem of a machine that may be one that the ledger has under another name.
_MAYBE = (
    "has libvirt's UUID of %s, which has not answered since: where it is that machine, renamed and restarted in one go, what it has is given out twice;"
    " give it one of its former names (inventory or hostname) until it has reported"
)
# The problem of a host on which another ledger has guests: its id, then what guests_of_others() counts.
_GUESTS = "guests of ledger %s: %d; no claim counts their memory (%d MiB), vCPUs (%d) and disks (%d GiB)"


def views(tx: Transaction, hosts: t.Sequence[str], service_down_time: float) -> list[dict[str, t.Any]]:
    """One dictionary for each compute node, by host; hosts that never reported come last. Memory is MB, disk GB."""
    leftovers: dict[str, list[str]] = {}
    for cleanup in cleanups.rows(tx):
        leftovers.setdefault(cleanup.host, []).append(cleanup.domain_name)
    columns = (
        "host",
        "node",
        "host_uuid",
        "machine_id",
        "created_at",
        "reported_at",
        "unreachable_reason",
        "forced_down",
    )
    rows = nodes.rows(tx, columns)
    silent = {r.host for r in rows if r.unreachable_reason is not None}
    stopped = {r.host for r in rows if r.forced_down}
    known = {r.host for r in rows}
    own_ledger_id, twice, maybe = ledger_id(tx), _machines(rows), _doubts(rows, set(hosts) - silent)
    others = {
        where: guests_of_others(map(Domain.from_fact, facts), own_ledger_id)
        for where, facts in nodes.domains_on(tx).items()
    }
    hypervisors = []
    for state in fleet.read(tx, hosts, needs=fleet.Needs(networks=True)).hosts:
        age = None if state.updated_at is None else max(tx.now - state.updated_at, 0)
        up = not state.forced_down and age is not None and age <= service_down_time
        # A report that cannot be read has no age: the host is down until it reports again.
        asked = up or state.host in silent or state.host in stopped or (age is None and state.host in known)
        used_disk = state.local_gb - state.free_disk_mb // 1024
        hypervisors.append(
            {
                "host": state.host,
                "hypervisor_hostname": state.nodename,
                "hypervisor_type": state.hypervisor_type,
                "hypervisor_version": state.hypervisor_version,
                "host_ip": state.host_ip,
                "state": "up" if up else "down",
                "state_known": asked,
                "status": "disabled" if state.disabled else "enabled",
                "disabled_reason": state.disabled_reason,
                "availability_zone": next(iter(state.availability_zones), None),
                "running_vms": state.num_instances,
                **_room("memory_mb", state.memory_mb, state.memory_mb_used, state.ram_allocation_ratio),
                **_room("vcpus", state.vcpus, state.vcpus_used, state.cpu_allocation_ratio),
                **_room("local_gb", state.local_gb, used_disk, state.disk_allocation_ratio),
                "networks": state.networks,
                "failed_builds": state.failed_builds,
                "reported_at": utc(state.updated_at),
                "report_age": None if age is None else round(age),
                "problems": [
                    *(_TWICE % other for other in twice.get((state.host, state.nodename), ())),
                    *(_MAYBE % other for other in maybe.get((state.host, state.nodename), ())),
                    *_problems(
                        state, age, service_down_time, state.host in silent, asked, leftovers.get(state.host, ())
                    ),
                    *(
                        _GUESTS % (ledger, *has.values())
                        for ledger, has in others.get((state.host, state.nodename), {}).items()
                    ),
                ],
            }
        )
    return hypervisors


def remedy_of_emulation(reason: str) -> str:
    """Return what to do about guests without KVM. :arg reason: as the host reported it; one about the device has its own remedy"""
    remedy = "Set" if "/dev/kvm" in reason else "Enable virtualization in its firmware, or set"
    return remedy + " bootflow_virt_type to qemu if that is meant."


def _machines(rows: t.Sequence[nodes.NodeRow]) -> dict[tuple[str, str], list[str]]:
    """(host, node) -> the other hosts that are the same machine: two names of it in the inventory, or its former one."""
    hosts: dict[str, list[str]] = {}
    for row in rows:
        if row.machine_id is not None:
            hosts.setdefault(row.machine_id, []).append(row.host)
    return {(r.host, r.node): [h for h in hosts[r.machine_id] if h != r.host] for r in rows if r.machine_id is not None}


def _doubts(rows: t.Sequence[nodes.NodeRow], answering: t.Collection[str]) -> dict[tuple[str, str], list[str]]:
    """(host, node) -> hosts with its UUID that it may have been: they do not answer, and reported for the last time before it did for the first time.

    :arg answering: hosts of the inventory that answered when they were asked last
    """
    silent_rows: dict[str, list[nodes.NodeRow]] = {}
    for row in rows:
        if row.host_uuid and row.host not in answering and row.reported_at is not None:
            silent_rows.setdefault(row.host_uuid, []).append(row)
    return {
        (r.host, r.node): [
            g.host
            for g in silent_rows.get(r.host_uuid, ())
            if (g.reported_at or 0.0) <= r.created_at
            and not (g.machine_id is not None and g.machine_id == r.machine_id)
        ]
        for r in rows
        if r.host in answering
    }


def _room(name: str, total: int, used: int, ratio: float | None) -> dict[str, t.Any]:
    """``free``: what instances can still claim, over-committed by the ratio."""
    return {
        name: total,
        name + "_used": used,
        name + "_free": int(total * (ratio or 1.0) - used),
        name + "_ratio": ratio,
    }


def _problems(
    state: HostState, age: float | None, service_down_time: float, silent: bool, asked: bool, leftovers: t.Sequence[str]
) -> list[str]:
    problems = []
    if silent or (state.forced_down and age is None):
        never = " (run bootflow.compute.heartbeat to ask the host, and to see why it does not answer)"
        problems.append(state.down_reason + (never if age is None and not silent and not state.disabled else ""))
    elif state.forced_down:
        problems.append("forced down: %s" % state.down_reason if state.down_reason else "forced down")
    if age is not None and not asked:
        problems.append(_NOT_ASKED % duration(age))
    elif age is not None and age > service_down_time:
        problems.append("the last report is %s old, more than %s" % (duration(age), duration(service_down_time)))
    if state.stats.get("emulated"):
        problems.append(EMULATED % state.stats["emulated"])
    if state.stats.get("guest_content"):
        problems.append(
            "not safe from what guests write on their disks: %s. Run bootflow.compute.prepare."
            % state.stats["guest_content"]
        )
    if state.stats.get(NOT_FILTERING):
        problems.append("cannot filter the ports of guests: %s" % state.stats[NOT_FILTERING])
    if leftovers:
        problems.append("leftovers have to be removed: %s" % ", ".join(leftovers))
    if state.failed_builds:
        problems.append("builds that failed since the last one that succeeded: %d" % state.failed_builds)
    return problems
