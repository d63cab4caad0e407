# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""NUMA cells of a host and of a guest, as plain values with a form for JSON.

Memory is in MB, page sizes are in kB. A guest's topology is at first a request; fitted to a host, each of its cells has
the host's cell and, if pinned, the host's CPU of each of its CPUs.
"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field, replace

from ...errors import InvalidReservedMemoryPagesOption
from .cpu_spec import size_in_kb

DEDICATED = "dedicated"
SHARED = "shared"
PREFER = "prefer"
REQUIRE = "require"
ISOLATE = "isolate"

# Values of a requested page size that are not sizes.
PAGES_SMALL = -1
PAGES_LARGE = -2
PAGES_ANY = -3

Json = t.Dict[str, t.Any]
NO_CPUS: frozenset[int] = frozenset()


@dataclass(frozen=True)
class PagesTopology:
    """The pages of one size on one cell: total, used by guests, reserved."""

    size_kb: int
    total: int
    used: int = 0
    reserved: int = 0

    @property
    def free(self) -> int:
        """May be negative."""
        return self.total - self.used - self.reserved

    @property
    def free_kb(self) -> int:
        return self.free * self.size_kb

    @property
    def total_kb(self) -> int:
        return self.total * self.size_kb

    def as_dict(self) -> Json:
        return {"size_kb": self.size_kb, "total": self.total, "used": self.used, "reserved": self.reserved}

    @classmethod
    def from_dict(cls, data: t.Mapping[str, t.Any]) -> PagesTopology:
        return cls(int(data["size_kb"]), int(data["total"]), int(data.get("used") or 0), int(data.get("reserved") or 0))


@dataclass(frozen=True)
class HostCell:
    """One NUMA cell of a host. ``siblings``: the threads of each core; empty if cores have one thread."""

    id: int
    cpus: frozenset[int]
    memory_mb: int
    cpu_usage: int = 0
    memory_usage_mb: int = 0
    pinned_cpus: frozenset[int] = NO_CPUS
    siblings: tuple[frozenset[int], ...] = ()
    pages: tuple[PagesTopology, ...] = ()

    @property
    def free_cpus(self) -> frozenset[int]:
        return self.cpus - self.pinned_cpus

    @property
    def free_memory_mb(self) -> int:
        return self.memory_mb - self.memory_usage_mb

    @property
    def threads_per_core(self) -> int:
        return max(map(len, self.siblings), default=1)

    @property
    def smallest_pages(self) -> PagesTopology | None:
        """The pages of a guest that requests none; None if the host reports no pages."""
        return min(self.pages, key=lambda pages: pages.size_kb, default=None)

    def pages_of(self, size_kb: int) -> PagesTopology | None:
        return next((pages for pages in self.pages if pages.size_kb == size_kb), None)

    def as_dict(self) -> Json:
        return {
            "id": self.id,
            "cpus": sorted(self.cpus),
            "memory_mb": self.memory_mb,
            "cpu_usage": self.cpu_usage,
            "memory_usage_mb": self.memory_usage_mb,
            "pinned_cpus": sorted(self.pinned_cpus),
            "siblings": [sorted(core) for core in self.siblings],
            "pages": [pages.as_dict() for pages in self.pages],
        }

    @classmethod
    def from_dict(cls, data: t.Mapping[str, t.Any]) -> HostCell:
        return cls(
            id=int(data["id"]),
            cpus=_cpus(data["cpus"]),
            memory_mb=int(data["memory_mb"]),
            cpu_usage=int(data.get("cpu_usage") or 0),
            memory_usage_mb=int(data.get("memory_usage_mb") or 0),
            pinned_cpus=_cpus(data.get("pinned_cpus")),
            siblings=tuple(_cpus(core) for core in data.get("siblings") or ()),
            pages=tuple(PagesTopology.from_dict(pages) for pages in data.get("pages") or ()),
        )


@dataclass(frozen=True)
class HostNUMATopology:
    """The cells of a host, with the guests' use. Equal topologies compare equal and can be keys."""

    cells: tuple[HostCell, ...]
    _hash: int = field(init=False, repr=False, compare=False, default=0)

    def __post_init__(self) -> None:
        # Computed once per host of a fleet, because it has many sets.
        object.__setattr__(self, "_hash", hash(self.cells))

    def __hash__(self) -> int:
        return self._hash

    def __len__(self) -> int:
        return len(self.cells)

    def as_dict(self) -> Json:
        return {"cells": [cell.as_dict() for cell in self.cells]}

    @classmethod
    def from_dict(cls, data: t.Mapping[str, t.Any]) -> HostNUMATopology:
        return cls(tuple(HostCell.from_dict(cell) for cell in data["cells"]))

    @classmethod
    def from_facts(cls, facts: t.Mapping[str, t.Any] | None) -> HostNUMATopology | None:
        """The unused topology of a host's fact ``numa_topology``; None for a host without the fact."""
        if not facts or not facts.get("cells"):
            return None
        return cls(tuple(_cell(cell) for cell in facts["cells"]))


def _cell(facts: t.Mapping[str, t.Any]) -> HostCell:
    cell = HostCell.from_dict(facts)
    cores = sorted((core & cell.cpus for core in cell.siblings), key=sorted)
    cores = [core for core in cores if core]
    if all(len(core) == 1 for core in cores):
        cores = []  # no SMT: CPUs are taken one by one
    return replace(cell, siblings=tuple(cores))


def reserved_pages(settings: t.Sequence[t.Any]) -> dict[tuple[int, int], int]:
    """(cell, page size in kB) -> number of pages that guests do not get, from the setting ``reserved_huge_pages``.

    :raises InvalidReservedMemoryPagesOption: an entry without node, size or count.
    """
    reserved: dict[tuple[int, int], int] = {}
    if settings and not isinstance(settings, (list, tuple)):
        raise InvalidReservedMemoryPagesOption(conf=settings)
    for entry in settings or ():
        try:
            if isinstance(entry, str):
                pairs = [pair.split(":") for pair in entry.split(",")]
                entry = {key.strip(): value.strip() for key, value in pairs}
            size, count = size_in_kb(entry["size"]), int(entry["count"])
            if size is None or count < 0:
                raise ValueError(entry)
            reserved[int(entry["node"]), size] = count
        except (ValueError, TypeError, KeyError, OverflowError):
            raise InvalidReservedMemoryPagesOption(conf=settings) from None
    return reserved


@dataclass(frozen=True)
class GuestCell:
    """One NUMA cell of a guest.

    As requested it has the number of the guest's cell and perhaps PAGES_SMALL, PAGES_LARGE or PAGES_ANY. Fitted, it has
    ``host_cell``, an explicit page size, and if dedicated ``pinning`` (guest CPU -> host CPU), the CPUs reserved for
    the emulator's threads, and the topology (sockets, cores, threads) of its cores.
    """

    id: int
    cpus: frozenset[int]
    memory_mb: int
    page_size_kb: int | None = None
    cpu_policy: str | None = None
    cpu_thread_policy: str | None = None
    pinning: t.Mapping[int, int] = field(default_factory=dict, hash=False)
    reserved_cpus: frozenset[int] = NO_CPUS
    topology: tuple[int, int, int] | None = None
    host_cell: int | None = None

    @property
    def dedicated(self) -> bool:
        return self.cpu_policy == DEDICATED

    @property
    def pinned_cpus(self) -> frozenset[int]:
        """The host's CPUs dedicated to this cell, including the emulator's; without the siblings that isolate keeps idle."""
        return frozenset(self.pinning.values()) | self.reserved_cpus

    def as_dict(self) -> Json:
        return {
            "id": self.id,
            "cpus": sorted(self.cpus),
            "memory_mb": self.memory_mb,
            "page_size_kb": self.page_size_kb,
            "cpu_policy": self.cpu_policy,
            "cpu_thread_policy": self.cpu_thread_policy,
            # JSON does not have numbers as keys.
            "pinning": {str(cpu): self.pinning[cpu] for cpu in sorted(self.pinning)},
            "reserved_cpus": sorted(self.reserved_cpus),
            "topology": None if self.topology is None else list(self.topology),
            "host_cell": self.host_cell,
        }

    @classmethod
    def from_dict(cls, data: t.Mapping[str, t.Any]) -> GuestCell:
        topology, host_cell, pages = data.get("topology"), data.get("host_cell"), data.get("page_size_kb")
        return cls(
            id=int(data["id"]),
            cpus=_cpus(data["cpus"]),
            memory_mb=int(data["memory_mb"]),
            page_size_kb=None if pages is None else int(pages),
            cpu_policy=data.get("cpu_policy"),
            cpu_thread_policy=data.get("cpu_thread_policy"),
            pinning={int(cpu): int(pcpu) for cpu, pcpu in (data.get("pinning") or {}).items()},
            reserved_cpus=_cpus(data.get("reserved_cpus")),
            topology=None if topology is None else (int(topology[0]), int(topology[1]), int(topology[2])),
            host_cell=None if host_cell is None else int(host_cell),
        )


@dataclass(frozen=True)
class GuestNUMATopology:
    """The cells of a guest, as requested or fitted to a host."""

    cells: tuple[GuestCell, ...]
    emulator_threads_policy: str | None = None

    def __len__(self) -> int:
        return len(self.cells)

    @property
    def dedicated(self) -> bool:
        """Whether the CPUs are pinned."""
        return all(cell.dedicated for cell in self.cells)

    @property
    def dedicated_cpus(self) -> tuple[int, ...]:
        """The guest's CPUs that are pinned to a CPU of the host. source: Nova's _get_instance_dedicated_cpus"""
        return tuple(sorted(cpu for cell in self.cells for cpu in cell.pinning))

    @property
    def emulator_isolated(self) -> bool:
        """Whether the emulator's threads get their own host CPU, on the host cell of the guest's first cell."""
        return self.emulator_threads_policy == ISOLATE

    @property
    def host_cells(self) -> list[int]:
        """Return the host's cells of a fitted guest, in the order of the guest's cells; empty before it is fitted."""
        return [cell.host_cell for cell in self.cells if cell.host_cell is not None]

    @property
    def fitted(self) -> bool:
        return len(self.host_cells) == len(self.cells)

    def as_dict(self) -> Json:
        return {
            "cells": [cell.as_dict() for cell in self.cells],
            "emulator_threads_policy": self.emulator_threads_policy,
        }

    @classmethod
    def from_dict(cls, data: t.Mapping[str, t.Any]) -> GuestNUMATopology:
        return cls(tuple(GuestCell.from_dict(cell) for cell in data["cells"]), data.get("emulator_threads_policy"))


@dataclass(frozen=True)
class NUMALimits:
    """The ratios by which guests that are not pinned may over-commit a cell's CPUs and memory."""

    cpu_allocation_ratio: float
    ram_allocation_ratio: float

    def as_dict(self) -> Json:
        return {"cpu_allocation_ratio": self.cpu_allocation_ratio, "ram_allocation_ratio": self.ram_allocation_ratio}

    @classmethod
    def from_dict(cls, data: t.Mapping[str, t.Any]) -> NUMALimits:
        return cls(float(data["cpu_allocation_ratio"]), float(data["ram_allocation_ratio"]))

    @classmethod
    def of_claim(cls, limits: t.Mapping[str, t.Any]) -> NUMALimits | None:
        """Return the limits of cells in the limits of a claim; None: the claim may over-commit the cells as it likes."""
        given = limits.get("numa_topology")
        return None if given is None else cls.from_dict(given)


def _cpus(numbers: t.Iterable[t.Any] | None) -> frozenset[int]:
    return frozenset(int(number) for number in numbers or ())
