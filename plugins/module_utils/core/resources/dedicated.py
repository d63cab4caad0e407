# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Dedicated resources of a host: NUMA cells and CPUs, PCI devices and whole disks that only one guest uses.

They are tested and allocated together. The scheduler allocates in memory, the claim in the ledger, both with this code.
source: Nova's Claim._test_numa and _test_pci
"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ..disks.whole_disks import WholeDiskRequest, choose_disks
from .numa import fit as numa_fit
from .numa import usage as numa_usage
from .numa.topology import GuestNUMATopology, HostNUMATopology, NUMALimits
from .pci import pools
from .pci.device import PciDevice
from .pci.request import PciRequest

NUMA_REFUSAL = "Requested instance NUMA topology cannot fit the given host NUMA topology"
NUMA_PCI_REFUSAL = (
    "Requested instance NUMA topology together with requested PCI devices cannot fit the given host NUMA topology"
)
PCI_REFUSAL = "Claim pci failed."
DISK_REFUSAL = "Claim whole disks failed."

Disks = t.Sequence[t.Mapping[str, t.Any]]


class _Requesting(t.Protocol):
    @property
    def numa_topology(self) -> GuestNUMATopology | None: ...

    @property
    def pci_requests(self) -> t.Sequence[PciRequest]: ...

    @property
    def whole_disks(self) -> t.Sequence[WholeDiskRequest]: ...


@dataclass(frozen=True)
class DedicatedRequest:
    """The dedicated resources that one guest requests."""

    numa: GuestNUMATopology | None = None
    pci: t.Sequence[PciRequest] = ()
    disks: t.Sequence[WholeDiskRequest] = ()

    @classmethod
    def from_spec(cls, spec: _Requesting) -> DedicatedRequest:
        return cls(spec.numa_topology, tuple(spec.pci_requests), tuple(spec.whole_disks))

    def __bool__(self) -> bool:
        return bool(self.numa is not None or self.pci or self.disks)


@dataclass(frozen=True)
class Allocation:
    """A guest's resources, and the rest of the host."""

    guest_numa: GuestNUMATopology | None
    pci: t.Sequence[tuple[PciRequest, t.Sequence[PciDevice]]]
    disks: Disks
    numa: HostNUMATopology | None
    free_pci: t.Sequence[PciDevice]
    free_disks: Disks


def refusals(
    numa: HostNUMATopology | None,
    pci: t.Sequence[PciDevice],
    disks: Disks,
    request: DedicatedRequest,
    limits: NUMALimits | None,
) -> list[str]:
    """Why ``request`` does not fit, with Nova's texts and order; empty if it fits.

    A host without reported NUMA cells rejects no guest here: the filter does.
    """
    fitted, numa_reason = _fit(numa, pci, request, limits)
    reasons = [numa_reason] if numa_reason else []
    if request.pci and pools.choose_devices(pci, request.pci, _cells(fitted)) is None:
        reasons.append(PCI_REFUSAL)
    if request.disks and choose_disks(disks, request.disks) is None:
        reasons.append(DISK_REFUSAL)
    return reasons


def allocate(
    numa: HostNUMATopology | None,
    pci: t.Sequence[PciDevice],
    disks: Disks,
    request: DedicatedRequest,
    limits: NUMALimits | None,
) -> Allocation | None:
    """Allocate the resources of ``request``; None if it does not fit."""
    fitted, numa_reason = _fit(numa, pci, request, limits)
    if numa_reason:
        return None
    devices: t.Sequence[tuple[PciRequest, t.Sequence[PciDevice]]] = ()
    if request.pci:
        chosen_devices = pools.choose_devices(pci, request.pci, _cells(fitted))
        if chosen_devices is None:
            return None
        devices = chosen_devices
    whole: Disks = ()
    if request.disks:
        chosen = choose_disks(disks, request.disks)
        if chosen is None:
            return None
        whole = chosen
    given = {d.address for _request, group in devices for d in group}
    paths = {d["path"] for d in whole}
    return Allocation(
        guest_numa=fitted,
        pci=devices,
        disks=whole,
        numa=numa_usage.apply_usage(numa, fitted) if numa is not None and fitted is not None else numa,
        free_pci=pools.free_devices(pci, given) if given else pci,
        free_disks=[d for d in disks if d["path"] not in paths] if paths else disks,
    )


def _fit(
    numa: HostNUMATopology | None, pci: t.Sequence[PciDevice], request: DedicatedRequest, limits: NUMALimits | None
) -> tuple[GuestNUMATopology | None, str]:
    if request.numa is None or numa is None:
        return None, ""
    with_pci = bool(request.pci)
    fitted = numa_fit.fit_to_host(
        numa,
        request.numa,
        limits,
        pci_cells=frozenset(d.numa_node for d in pci if d.numa_node is not None),
        pci_ok=(lambda cells: pools.supports(pci, request.pci, cells)) if with_pci else None,
    )
    return (fitted, "") if fitted is not None else (None, NUMA_PCI_REFUSAL if with_pci else NUMA_REFUSAL)


def _cells(fitted: GuestNUMATopology | None) -> list[int] | None:
    return None if fitted is None else list(fitted.host_cells)
