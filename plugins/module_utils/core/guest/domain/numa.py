# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Cells, pinning and pages of a guest. source: libvirt's domain format.

Sets of CPUs and of cells are texts in libvirt's form: ``0-2,5``.
"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from .element import Element, at, many


@dataclass(frozen=True)
class NumaCellConfig(Element):
    """One of the guest's own cells, in ``<cpu><numa>``; ``memory`` is a number of ``unit`` (KiB)."""

    TAG: t.ClassVar[str] = "cell"

    id: int = at("@id", "int", default=0)
    cpus: t.Optional[str] = at("@cpus")  # of the guest; None: a cell of memory alone
    memory: int = at("@memory", "int", default=0)
    unit: t.Optional[str] = at("@unit")
    mem_access: t.Optional[str] = at("@memAccess")  # shared, private


@dataclass(frozen=True)
class VcpuPinConfig(Element):
    """The host CPUs of one guest CPU."""

    TAG: t.ClassVar[str] = "vcpupin"

    vcpu: int = at("@vcpu", "int", default=0)
    cpuset: t.Optional[str] = at("@cpuset")


@dataclass(frozen=True)
class VcpuSchedConfig(Element):
    """The scheduler of some of the guest's CPUs."""

    TAG: t.ClassVar[str] = "vcpusched"

    vcpus: t.Optional[str] = at("@vcpus")
    scheduler: t.Optional[str] = at("@scheduler")  # fifo, rr, batch, idle
    priority: t.Optional[int] = at("@priority", "int")  # of fifo and rr: 1 to 99


@dataclass(frozen=True)
class MemNodeConfig(Element):
    """The host's cells that hold the memory of one of the guest's cells."""

    TAG: t.ClassVar[str] = "memnode"

    cellid: int = at("@cellid", "int", default=0)
    mode: t.Optional[str] = at("@mode")  # strict, preferred, interleave
    nodeset: t.Optional[str] = at("@nodeset")


@dataclass(frozen=True)
class NumaTuneConfig(Element):
    """``<numatune>``: the host cells of the guest's memory, for the whole guest and cell by cell."""

    TAG: t.ClassVar[str] = "numatune"

    memory_mode: t.Optional[str] = at("memory/@mode")
    memory_nodeset: t.Optional[str] = at("memory/@nodeset")
    memnodes: t.Tuple[MemNodeConfig, ...] = many(MemNodeConfig)


@dataclass(frozen=True)
class HugePageConfig(Element):
    """The page size of some of the guest's cells (``nodeset``); ``size`` is a number of ``unit`` (KiB)."""

    TAG: t.ClassVar[str] = "page"

    size: int = at("@size", "int", default=0)
    unit: t.Optional[str] = at("@unit")
    nodeset: t.Optional[str] = at("@nodeset")


@dataclass(frozen=True)
class MemoryBackingConfig(Element):
    TAG: t.ClassVar[str] = "memoryBacking"

    hugepages: t.Tuple[HugePageConfig, ...] = many(HugePageConfig, "hugepages/page")
    nosharepages: bool = at("nosharepages", "flag")
    locked: bool = at("locked", "flag")
