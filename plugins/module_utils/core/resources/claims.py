# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Claim arithmetic: whether a request fits a node, and what it takes of it.

source: Nova's Claim._claim_test and instance_claim; numbers are MB, GB and vCPUs.
"""

from __future__ import annotations

import math
import typing as t
from dataclasses import dataclass

from ..errors import ComputeResourcesUnavailable

#: What bootflow_instance_overhead may have.
OVERHEADS = ("memory_mb", "memory_mb_per_vcpu", "memory_percent", "disk_gb", "vcpus")


@dataclass(frozen=True)
class Overhead:
    """Amounts that the hypervisor needs for one instance beyond its flavor."""

    memory_mb: int = 0
    disk_gb: int = 0
    vcpus: int = 0


@dataclass(frozen=True)
class ResourceRequest:
    """The claim of one instance: root + ephemeral disk without swap, and the hypervisor's overhead."""

    memory_mb: int
    disk_gb: int
    vcpus: int
    memory_overhead_mb: int = 0
    disk_overhead_gb: int = 0
    vcpus_overhead: int = 0

    @property
    def total_memory_mb(self) -> int:
        return self.memory_mb + self.memory_overhead_mb

    @property
    def total_disk_gb(self) -> int:
        return self.disk_gb + self.disk_overhead_gb

    @property
    def total_vcpus(self) -> int:
        return self.vcpus + self.vcpus_overhead


@dataclass(frozen=True)
class NodeUsage:
    """Totals and use of a compute node; free (total - used) may be negative."""

    memory_mb: int
    memory_mb_used: int
    local_gb: int
    local_gb_used: int
    vcpus: int
    vcpus_used: int

    @property
    def free_ram_mb(self) -> int:
        return self.memory_mb - self.memory_mb_used


@dataclass(frozen=True)
class UsageDelta:
    """An addition to a node's use; negative to release."""

    memory_mb_used: int
    local_gb_used: int
    vcpus_used: int
    num_instances: int

    def apply(self, usage: NodeUsage) -> NodeUsage:
        return NodeUsage(
            memory_mb=usage.memory_mb,
            memory_mb_used=usage.memory_mb_used + self.memory_mb_used,
            local_gb=usage.local_gb,
            local_gb_used=usage.local_gb_used + self.local_gb_used,
            vcpus=usage.vcpus,
            vcpus_used=usage.vcpus_used + self.vcpus_used,
        )


Log = t.Callable[[str], None]


def claim_test(
    node: NodeUsage,
    request: ResourceRequest,
    limits: t.Mapping[str, t.Any] | None,
    parts_reasons: t.Sequence[str] = (),
    log: Log | None = None,
) -> None:
    """Test a request against a node under the scheduler's limits.

    A missing or None limit means unlimited; 0 is a limit. All tests run, in the order memory, disk, vCPU, NUMA, PCI; the
    caller gives the reasons of the last two (core.resources.dedicated.refusals).
    :arg log: gets the lines with the numbers that Nova writes to its log; None: they are not read.
    Raises ComputeResourcesUnavailable with every reason, joined by "; ".
    """
    limits = limits or {}
    if log is None and not parts_reasons and _fits(node, request, limits):
        return
    tests = (
        ("memory", "MB", node.memory_mb, node.memory_mb_used, request.total_memory_mb, limits.get("memory_mb")),
        ("disk", "GB", node.local_gb, node.local_gb_used, request.total_disk_gb, limits.get("disk_gb")),
        ("vcpu", "VCPU", node.vcpus, node.vcpus_used, request.total_vcpus, limits.get("vcpu")),
    )
    reasons = [_test(*test, log) for test in tests]
    refusals = [r for r in reasons if r is not None] + list(parts_reasons)
    if refusals:
        raise ComputeResourcesUnavailable(
            reason="; ".join(refusals),
            remedy="The scheduler tries another host. Free resources on the host, or raise its allocation ratio.",
        )


def _fits(node: NodeUsage, request: ResourceRequest, limits: t.Mapping[str, t.Any]) -> bool:
    """Whether all tests succeed, without their words: nearly every claim does."""
    memory, disk, vcpu = limits.get("memory_mb"), limits.get("disk_gb"), limits.get("vcpu")
    return (
        (memory is None or request.total_memory_mb <= memory - node.memory_mb_used)
        and (disk is None or request.total_disk_gb <= disk - node.local_gb_used)
        and (vcpu is None or request.total_vcpus <= vcpu - node.vcpus_used)
    )


def _test(
    kind: str, unit: str, total: float, used: float, requested: int, limit: float | None, log: Log | None
) -> str | None:
    if log is not None:
        log("Total %s: %d %s, used: %.2f %s" % (kind, total, unit, used, unit))
    if limit is None:
        if log is not None:
            log("%s limit not specified, defaulting to unlimited" % kind)
        return None
    free = limit - used
    if log is not None:
        log("%s limit: %.2f %s, free: %.2f %s" % (kind, limit, unit, free, unit))
    if requested <= free:
        return None
    return "Free %s %.2f %s < requested %d %s" % (kind, free, unit, requested, unit)


def usage_delta(request: ResourceRequest, sign: int = 1) -> UsageDelta:
    """Return the amounts that a claim adds to the node's use (``sign`` 1), or releases (-1): exactly the same amounts."""
    if sign not in (1, -1):
        raise ValueError("sign is 1 or -1, not %r" % (sign,))
    return UsageDelta(
        memory_mb_used=sign * request.total_memory_mb,
        local_gb_used=sign * request.total_disk_gb,
        vcpus_used=sign * request.total_vcpus,
        num_instances=sign,
    )


def estimate_overhead(
    vcpus: int, memory_mb: int, fixed_mb: float = 0, per_vcpu_mb: float = 0, percent: float = 0
) -> int:
    """MB that the hypervisor needs for a guest beyond its memory, rounded up.

    Without settings 0, as in Nova's libvirt driver; there the host's reserved memory covers it.
    """
    return math.ceil(fixed_mb + per_vcpu_mb * vcpus + memory_mb * percent / 100)


def overhead_of(
    vcpus: int, memory_mb: int, settings: t.Mapping[str, float], emulator_isolated: bool = False
) -> Overhead:
    """Return the overhead of a flavor. source: estimate_instance_overhead of Nova's libvirt driver

    :arg settings: bootflow_instance_overhead, some of OVERHEADS.
    :arg emulator_isolated: the emulator's threads get their own CPU.
    """
    amounts = {name: settings.get(name, 0) for name in OVERHEADS}
    return Overhead(
        memory_mb=estimate_overhead(
            vcpus, memory_mb, amounts["memory_mb"], amounts["memory_mb_per_vcpu"], amounts["memory_percent"]
        ),
        disk_gb=math.ceil(amounts["disk_gb"]),
        vcpus=math.ceil(amounts["vcpus"]) + emulator_isolated,
    )
