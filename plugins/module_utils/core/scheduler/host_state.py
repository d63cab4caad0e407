# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A compute node as the scheduler sees it.

The names are the ones of Nova's HostState and compute node, because flavors refer to them
(``capabilities:hypervisor_type``).
"""

from __future__ import annotations

import functools
import typing as t
from dataclasses import dataclass, field, fields

from ..errors import InvalidInput
from ..networks.on_hosts import Reported
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


_field = functools.partial(field)  # made here, used in the class below


def stored(default: t.Any, *, column: str = "", reported: bool = False, if_unreported: t.Any = None) -> t.Any:
    """A field whose value is a column of compute_nodes. The ledger's fleet and reports read these declarations.

    :arg default: the value for a host that never reported.
    :arg column: the column's name, if it is not the field's.
    :arg reported: whether the value is a fact of the host, under the field's name.
    :arg if_unreported: the value for a report without the fact; None: the default.
    """
    unreported = default if if_unreported is None else if_unreported
    return _field(default=default, metadata={"column": column, "reported": reported, "unreported": unreported})


@dataclass
class HostState:
    """One compute node. Totals are physical, ``*_used`` is the host's reserve plus its claims; MB and GB are MiB and GiB.

    A ratio of None or 0.0 means the default. Raises InvalidInput for a ratio below 0.
    """

    host: str  # inventory name
    nodename: str  # hypervisor_hostname
    host_ip: str = stored("", reported=True)
    memory_mb: int = stored(0, reported=True)
    memory_mb_used: int = stored(0)
    local_gb: int = stored(0, reported=True)
    local_gb_used: int = stored(0)
    vcpus: int = stored(0, reported=True)
    vcpus_used: int = stored(0)
    ram_allocation_ratio: float | None = stored(RAM_ALLOCATION_RATIO)
    disk_allocation_ratio: float | None = stored(DISK_ALLOCATION_RATIO)
    cpu_allocation_ratio: float | None = stored(CPU_ALLOCATION_RATIO)
    # GB that are free on the host's file system once all overlays are full
    disk_available_least: int | None = stored(None, reported=True)
    hypervisor_type: str = stored("", reported=True, if_unreported="QEMU")
    hypervisor_version: int = stored(0, reported=True)
    cpu_info: t.Mapping[str, t.Any] = field(default_factory=dict)
    supported_instances: t.Sequence[t.Sequence[str]] = ()  # (arch, hv_type, vm_mode)
    availability_zones: t.Sequence[str] = ()  # empty: the default zone
    aggregates: t.Sequence[Aggregate] = ()
    disabled: bool = False
    disabled_reason: str = ""
    forced_down: bool = False
    down_reason: str = ""  # why it is down although it reported: unreachable or forced down
    # Epoch seconds of the last report; None: it never reported
    updated_at: float | None = stored(None, column="reported_at")
    num_instances: int = stored(0)
    num_io_ops: int = 0
    failed_builds: int = stored(0)
    numa_topology: HostNUMATopology | None = None  # with the claims' use; None: the host reported none
    pci_devices: t.Sequence[PciDevice] = ()  # free ones only
    free_disks: t.Sequence[t.Mapping[str, t.Any]] = ()  # free whole disks: {path, size_gb, medium}
    networks: Reported = None  # type -> name -> whether it is active; None: not known
    instances: t.Mapping[str, str] = field(default_factory=dict)  # uuid -> flavor name; filled if a filter needs it
    metrics: t.Mapping[str, float] = field(default_factory=dict)  # name (cpu.percent...) -> last value
    stats: t.Mapping[str, t.Any] = field(default_factory=dict)
    node_id: int | None = stored(None, column="id")  # of the ledger's row; None: no row
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

    # Names of Nova's HostState, for "capabilities:" extra specs and the user's filters.

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
        """Free by the claims, or on the file system if that is less: overlays may be larger than their content."""
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


# Field of HostState -> its column of compute_nodes.
# Fields that the ledger fills in only if a filter or weigher needs them, with the names of these needs.
ON_DEMAND = {
    "instances": "instances",
    "metrics": "metrics",
    "numa_topology": "numa",
    "pci_devices": "pci",
    "free_disks": "pci",
    "networks": "networks",
}
NEEDS = frozenset(ON_DEMAND.values())


def declared_needs(judge: object) -> frozenset[str]:
    """The needs that a filter or weigher declares as ``needs_instances`` and so on."""
    return frozenset(need for need in NEEDS if getattr(judge, "needs_" + need, False))


COLUMNS: dict[str, str] = {
    "host": "host",
    "nodename": "node",
    **{f.name: f.metadata["column"] or f.name for f in fields(HostState) if "column" in f.metadata},
}
# Field -> its value on a host that never reported.
DEFAULTS: dict[str, t.Any] = {
    f.name: f.default for f in fields(HostState) if f.name in COLUMNS and "column" in f.metadata
}
# Fact of a host's report, and column -> the value for a report without it.
REPORTED: dict[str, t.Any] = {f.name: f.metadata["unreported"] for f in fields(HostState) if f.metadata.get("reported")}
