# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Placement of a guest's NUMA cells on the host's cells: pinning, memory, pages. source: Nova's libvirt driver (_get_guest_numa_config)"""

from __future__ import annotations

import typing as t
from dataclasses import replace

from ..errors import InvalidInput, NUMATopologyUnsupported
from ..resources.numa.cpu_spec import format_cpu_spec
from ..resources.numa.realtime import is_realtime, realtime_cpus
from ..resources.numa.topology import GuestCell, HostCell
from . import constraints, cpu_topology
from .domain.cpu import CpuConfig, CpuTuneConfig
from .domain.numa import (
    HugePageConfig,
    MemNodeConfig,
    MemoryBackingConfig,
    NumaCellConfig,
    NumaTuneConfig,
    VcpuPinConfig,
    VcpuSchedConfig,
)
from .spec import GuestSpec, HostCapabilities

REALTIME_PRIORITY = 1
_KIB_PER_MIB = 1024


class GuestNuma:
    """The parts of a domain's elements from the guest's NUMA topology; nothing for a guest without one.

    :raises InvalidInput: the topology was not fitted to a host.
    :raises NUMATopologyUnsupported: the host lacks the cell that the guest was fitted to.
    """

    def __init__(self, guest: GuestSpec, host: HostCapabilities):
        self.guest = guest
        self.topology = guest.numa_topology
        self.places: list[tuple[GuestCell, HostCell]] = []
        if self.topology is not None:
            if not self.topology.fitted:
                raise InvalidInput(reason="the NUMA topology of %s is not fitted to a host" % guest.name)
            own = {cell.id: cell for cell in host.numa_topology.cells} if host.numa_topology is not None else {}
            for cell in self.topology.cells:
                place = own.get(t.cast(int, cell.host_cell))
                if place is None:
                    raise NUMATopologyUnsupported(
                        remedy="%s has no NUMA cell %s (any more); take another host." % (host.host, cell.host_cell)
                    )
                self.places.append((cell, place))

    def cputune(self, config: CpuTuneConfig | None) -> CpuTuneConfig | None:
        """Pinned CPUs on their host CPUs, others anywhere in their cell; the emulator on its own CPU or on all of them.

        With real-time CPUs the emulator is on the host CPUs of the ordinary ones.
        """
        if self.topology is None:
            return config
        realtime = self._realtime()
        pins: dict[int, frozenset[int]] = {}
        emulator: frozenset[int] = frozenset()
        for cell, place in self.places:
            for cpu in cell.cpus:
                pins[cpu] = frozenset((cell.pinning[cpu],)) if cell.pinning else place.cpus
                if not self.topology.emulator_isolated and cpu not in realtime:
                    emulator |= pins[cpu]
            if self.topology.emulator_isolated:
                emulator |= cell.reserved_cpus
        return replace(
            config or CpuTuneConfig(),
            vcpupins=tuple(VcpuPinConfig(vcpu=cpu, cpuset=format_cpu_spec(pins[cpu])) for cpu in sorted(pins)),
            emulatorpin=format_cpu_spec(emulator) or None,
            vcpuscheds=(VcpuSchedConfig(vcpus=format_cpu_spec(realtime), scheduler="fifo", priority=REALTIME_PRIORITY),)
            if realtime
            else (),
        )

    def numatune(self) -> NumaTuneConfig | None:
        """Memory strictly on the guest's host cells, cell by cell."""
        if self.topology is None:
            return None
        return NumaTuneConfig(
            memory_mode="strict",
            memory_nodeset=format_cpu_spec(place.id for dummy, place in self.places),
            memnodes=tuple(
                MemNodeConfig(cellid=number, mode="strict", nodeset=str(place.id))
                for number, (dummy, place) in enumerate(self.places)
            ),
        )

    def memory_backing(self) -> MemoryBackingConfig | None:
        """The cells' huge pages, without the smallest size, which is the default. Locked for real time, or on request."""
        pages = tuple(
            HugePageConfig(size=t.cast(int, cell.page_size_kb), unit="KiB", nodeset=str(number))
            for number, (cell, place) in enumerate(self.places)
            if _on_huge_pages(cell, place)
        )
        realtime = bool(self._realtime())
        locked = realtime or constraints.locked_memory(self.guest.flavor, self.guest.image_properties)
        if not pages and not locked:
            return None
        return MemoryBackingConfig(hugepages=pages, nosharepages=realtime, locked=locked)

    def cpu(self, config: CpuConfig | None) -> CpuConfig | None:
        """The CPU with the guest's cells, and at most as many threads per core as the pinning keeps together."""
        if self.topology is None:
            return config
        # Huge pages are shared: vhost-user interfaces need it, and one may be plugged at any time.
        access = "shared" if any(_on_huge_pages(cell, place) for cell, place in self.places) else None
        shape = cpu_topology.best_topology(
            self.guest.vcpus,
            self.guest.extra_specs,
            self.guest.image_properties,
            min((cell.topology[2] for cell, dummy in self.places if cell.topology is not None), default=None),
        )
        return replace(
            config or CpuConfig(),
            sockets=shape.sockets,
            cores=shape.cores,
            threads=shape.threads,
            numa_cells=tuple(
                NumaCellConfig(
                    id=number,
                    cpus=format_cpu_spec(cell.cpus) or None,
                    memory=cell.memory_mb * _KIB_PER_MIB,
                    unit="KiB",
                    mem_access=access,
                )
                for number, (cell, dummy) in enumerate(self.places)
            ),
        )

    def _realtime(self) -> frozenset[int]:
        if self.topology is None or not is_realtime(self.guest.extra_specs):
            return frozenset()
        return realtime_cpus(self.guest.flavor, self.guest.image_properties)


def pins(guest: GuestSpec, host: HostCapabilities) -> dict[str, t.Any]:
    """Return the place of a guest with NUMA cells on its host, as plain data for a domain that is defined already.

    {vcpus: {number: host CPUs}, emulator: host CPUs, cells: {number: host cell}, memory: host cells}; sets in libvirt's form.
    :raises InvalidInput, NUMATopologyUnsupported: see GuestNuma.
    """
    numa = GuestNuma(guest, host)
    cpus, memory = numa.cputune(None), numa.numatune()
    if cpus is None or memory is None:
        return {}
    return {
        "vcpus": {str(pin.vcpu): pin.cpuset for pin in cpus.vcpupins},
        "emulator": cpus.emulatorpin,
        "cells": {str(node.cellid): node.nodeset for node in memory.memnodes},
        "memory": memory.memory_nodeset,
    }


def _on_huge_pages(cell: GuestCell, place: HostCell) -> bool:
    smallest = min((pages.size_kb for pages in place.pages), default=0)
    return cell.page_size_kb is not None and cell.page_size_kb > smallest
