# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Claim arithmetic: whether a request fits a node, and what it takes of it.

source: Nova's Claim._claim_test and instance_claim; numbers are MB, GB and vCPUs.
"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, replace

from ..errors import ComputeResourcesUnavailable


@dataclass(frozen=True)
class ResourceRequest:
    """The claim of one instance; its disk is root + ephemeral, without swap.

    The hypervisor's own memory is in the host's reserved memory, as with Nova's libvirt driver.
    """

    memory_mb: int
    disk_gb: int
    vcpus: int


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
        return replace(
            usage,
            memory_mb_used=usage.memory_mb_used + self.memory_mb_used,
            local_gb_used=usage.local_gb_used + self.local_gb_used,
            vcpus_used=usage.vcpus_used + self.vcpus_used,
        )


Log = t.Callable[[str], None]


def _unlogged(line: str) -> None:
    """Nobody reads the log."""


def claim_test(
    node: NodeUsage,
    request: ResourceRequest,
    limits: t.Mapping[str, t.Any] | None,
    parts_reasons: t.Sequence[str] = (),
    log: Log = _unlogged,
) -> None:
    """Test a request against a node under the scheduler's limits.

    A missing or None limit means unlimited; 0 is a limit. All tests run, in the order memory, disk, vCPU, NUMA, PCI; the
    caller gives the reasons of the last two (core.resources.dedicated.refusals).
    :arg log: gets the lines with the numbers that Nova writes to its log.
    Raises ComputeResourcesUnavailable with every reason, joined by "; ".
    """
    limits = limits or {}
    tests = (
        ("memory", "MiB", node.memory_mb, node.memory_mb_used, request.memory_mb, limits.get("memory_mb")),
        ("disk", "GiB", node.local_gb, node.local_gb_used, request.disk_gb, limits.get("disk_gb")),
        ("vcpu", "VCPU", node.vcpus, node.vcpus_used, request.vcpus, limits.get("vcpu")),
    )
    reasons = [_test(*test, log) for test in tests]
    found = [r for r in reasons if r is not None] + list(parts_reasons)
    if found:
        raise ComputeResourcesUnavailable(
            reason="; ".join(found),
            remedy="The scheduler tries another host. Free resources on the host, or raise its allocation ratio.",
        )


def _test(kind: str, unit: str, total: float, used: float, requested: int, limit: float | None, log: Log) -> str | None:
    log("Total %s: %d %s, used: %.2f %s" % (kind, total, unit, used, unit))
    if limit is None:
        log("%s limit not specified, defaulting to unlimited" % kind)
        return None
    free = limit - used
    log("%s limit: %.2f %s, free: %.2f %s" % (kind, limit, unit, free, unit))
    if requested <= free:
        return None
    return "Free %s %.2f %s < requested %d %s" % (kind, free, unit, requested, unit)


def usage_delta(request: ResourceRequest, sign: int = 1) -> UsageDelta:
    """What a claim adds to the node's use (``sign`` 1), or releases (-1): exactly the same amounts."""
    if sign not in (1, -1):
        raise ValueError("sign is 1 or -1, not %r" % (sign,))
    return UsageDelta(
        memory_mb_used=sign * request.memory_mb,
        local_gb_used=sign * request.disk_gb,
        vcpus_used=sign * request.vcpus,
        num_instances=sign,
    )
