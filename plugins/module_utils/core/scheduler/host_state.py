# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A compute node as the scheduler sees it.

The names are those of Nova's HostState and compute node, because flavors ask for them by name
(``capabilities:hypervisor_type``).
"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field

from ..errors import InvalidInput
from .aggregates import Aggregate

if t.TYPE_CHECKING:
    from ..resources.numa.topology import HostNUMATopology
    from ..resources.pci.device import PciDevice

RAM_ALLOCATION_RATIO = 1.5
DISK_ALLOCATION_RATIO = 1.0
CPU_ALLOCATION_RATIO = 16.0


def _ratio(name: str, value: float | None, default: float, host: str) -> float:
    """``default`` for a ratio that is unset (None or 0.0)."""
    if value is None or value == 0:
        return default
    ratio = float(value)
    if not 0 < ratio < float("inf"):
        raise InvalidInput(
            reason="%s of host %s is %s" % (name, host, value),
            remedy="Give a ratio above 0, or 0 for the default (%s)." % default,
        )
    return ratio


@dataclass
class HostState:
    """One compute node. Totals are physical, ``*_used`` is what it reserves plus its claims; MB and GB are MiB and GiB.

    A ratio of None or 0.0 means the default. Raises InvalidInput for a ratio below 0.
    """

    host: str  # inventory name
    nodename: str  # hypervisor_hostname
    host_ip: str = ""
    memory_mb: int = 0
    memory_mb_used: int = 0
    local_gb: int = 0
    local_gb_used: int = 0
    vcpus: int = 0
    vcpus_used: int = 0
    ram_allocation_ratio: float | None = RAM_ALLOCATION_RATIO
    disk_allocation_ratio: float | None = DISK_ALLOCATION_RATIO
    cpu_allocation_ratio: float | None = CPU_ALLOCATION_RATIO
    disk_available_least: int | None = None  # GB that are free on the host's file system once all overlays are full
    hypervisor_type: str = ""
    hypervisor_version: int = 0
    cpu_info: t.Mapping[str, t.Any] = field(default_factory=dict)
    supported_instances: t.Sequence[t.Sequence[str]] = ()  # (arch, hv_type, vm_mode)
    availability_zones: t.Sequence[str] = ()  # none: it is in the default zone
    aggregates: t.Sequence[Aggregate] = ()
    disabled: bool = False
    disabled_reason: str = ""
    forced_down: bool = False
    down_reason: str = ""  # why it is down although it reported: it did not answer, or somebody said so
    updated_at: float | None = None  # epoch seconds of the last report; None: it never reported
    num_instances: int = 0
    num_io_ops: int = 0
    failed_builds: int = 0
    numa_topology: HostNUMATopology | None = None  # with what claims use of it; None: the host told none
    pci_devices: t.Sequence[PciDevice] = ()  # those that are still free to give away
    free_disks: t.Sequence[t.Mapping[str, t.Any]] = ()  # whole disks that nobody has: {path, size_gb, medium}
    instances: t.Mapping[str, str] = field(
        default_factory=dict
    )  # uuid -> flavor name; filled where a filter asks for it
    metrics: t.Mapping[str, float] = field(default_factory=dict)  # name (cpu.percent...) -> last value
    stats: t.Mapping[str, t.Any] = field(default_factory=dict)
    node_id: int | None = None  # of the ledger's row; None: it has none
    vars: t.Mapping[str, t.Any] = field(default_factory=dict)  # the host's inventory variables, for filters of the user

    def __post_init__(self) -> None:
        self.ram_allocation_ratio = _ratio(
            "ram_allocation_ratio", self.ram_allocation_ratio, RAM_ALLOCATION_RATIO, self.host
        )
        self.disk_allocation_ratio = _ratio(
            "disk_allocation_ratio", self.disk_allocation_ratio, DISK_ALLOCATION_RATIO, self.host
        )
        self.cpu_allocation_ratio = _ratio(
            "cpu_allocation_ratio", self.cpu_allocation_ratio, CPU_ALLOCATION_RATIO, self.host
        )

    # What Nova's HostState calls them: reachable through "capabilities:" extra specs and by filters of the user.

    @property
    def hypervisor_hostname(self) -> str:
        return self.nodename

    @property
    def total_usable_ram_mb(self) -> int:
        return self.memory_mb

    @property
    def free_ram_mb(self) -> int:
        """May be negative."""
        return self.memory_mb - self.memory_mb_used

    @property
    def total_usable_disk_gb(self) -> int:
        return self.local_gb

    @property
    def disk_mb_used(self) -> int:
        return self.local_gb_used * 1024

    @property
    def free_disk_mb(self) -> int:
        """What the books say is free, or what the file system says when that is less: overlays may be larger than their content."""
        free_gb = self.local_gb - self.local_gb_used
        if self.disk_available_least is not None:
            free_gb = min(free_gb, self.disk_available_least)
        return free_gb * 1024

    @property
    def vcpus_total(self) -> int:
        return self.vcpus

    @property
    def service(self) -> dict[str, t.Any]:
        return {
            "disabled": self.disabled,
            "disabled_reason": self.disabled_reason,
            "forced_down": self.forced_down,
            "updated_at": self.updated_at,
        }
