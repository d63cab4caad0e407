# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The NUMA topology requested by a flavor and an image. source: Nova's numa_get_constraints"""

from __future__ import annotations

import typing as t
from dataclasses import replace

from ... import errors
from ...model import Flavor
from .cpu_spec import parse_cpu_spec, size_in_kb
from .realtime import check_realtime
from .topology import (
    DEDICATED,
    ISOLATE,
    PAGES_ANY,
    PAGES_LARGE,
    PAGES_SMALL,
    PREFER,
    REQUIRE,
    SHARED,
    GuestCell,
    GuestNUMATopology,
)

Properties = t.Mapping[str, t.Any]

CPU_POLICIES = (SHARED, DEDICATED)
THREAD_POLICIES = (PREFER, ISOLATE, REQUIRE)
EMULATOR_POLICIES = (ISOLATE, "share")
NODES_MAX = 128
_PAGE_WORDS = {"small": PAGES_SMALL, "large": PAGES_LARGE, "any": PAGES_ANY}


def numa_constraints(flavor: Flavor, image_properties: Properties) -> GuestNUMATopology | None:
    """The NUMA cells that a guest of this flavor and image requests; None if it requests none.

    A page size or a dedicated CPU policy makes one cell if no number of nodes is given, and the cells' CPUs and memory that
    are given have to be of that number. The image must not contradict
    the flavor, but may set what the flavor leaves open; pages only if the flavor permits it.

    :raises InvalidInput: an error of core.errors.numa, with status 400.
    """
    specs = flavor.extra_specs
    nodes = _nodes(specs, image_properties)
    pages = _page_size(specs, image_properties)
    cpu_policy = cpu_policy_of(specs, image_properties)
    cells: tuple[GuestCell, ...] = ()
    if nodes or pages or cpu_policy == DEDICATED:
        cells = tuple(replace(cell, page_size_kb=pages) for cell in _cells(nodes or 1, flavor, specs, image_properties))
    thread_policy = _thread_policy(specs, image_properties)
    emulator_policy = _emulator_policy(specs, cpu_policy)
    check_realtime(flavor, image_properties, cpu_policy)
    if cpu_policy == SHARED:
        if thread_policy:
            raise errors.CPUThreadPolicyConfigurationInvalid()
        return GuestNUMATopology(cells) if cells else None
    return GuestNUMATopology(
        tuple(replace(cell, cpu_policy=cpu_policy, cpu_thread_policy=thread_policy) for cell in cells),
        emulator_policy,
    )


def _both(name: str, specs: Properties, image: Properties) -> tuple[str | None, str | None]:
    """The flavor's hw:<name> and the image's hw_<name> as text; None if missing or empty."""
    return _text(specs.get("hw:%s" % name)), _text(image.get("hw_%s" % name))


def _text(value: t.Any) -> str | None:
    text = "" if value is None else str(value).strip()
    return text or None


def _nodes(specs: Properties, image: Properties) -> int | None:
    own, asked = _both("numa_nodes", specs, image)
    if own and asked:
        raise errors.ImageNUMATopologyForbidden(name="hw_numa_nodes")
    value = own or asked
    if value is None:
        return None
    if not (value.isascii() and value.isdigit()) or int(value) < 1:
        raise errors.InvalidNUMANodesNumber(nodes=value)
    return int(value)


def _page_size(specs: Properties, image: Properties) -> int | None:
    own, asked = _both("mem_page_size", specs, image)
    if own is None:
        if asked is not None:
            raise errors.MemoryPageSizeForbidden(pagesize=asked, against="<empty>")
        return None
    pages = _page_size_of(own)
    if asked is None:
        return pages
    if pages not in (PAGES_ANY, PAGES_LARGE):
        raise errors.MemoryPageSizeForbidden(pagesize=asked, against=own)
    return _page_size_of(asked)


def _page_size_of(value: str) -> int:
    word = _PAGE_WORDS.get(value)
    size = size_in_kb(value) if word is None else word
    if size is None:
        raise errors.MemoryPageSizeInvalid(pagesize=value)
    return size


def _cells(nodes: int, flavor: Flavor, specs: Properties, image: Properties) -> list[GuestCell]:
    cpus = _numbered("numa_cpus", specs, image, parse_cpu_spec)
    memory = _numbered("numa_mem", specs, image, _memory)
    if cpus is None and memory is None:
        return _even_cells(nodes, flavor)
    if cpus is None or memory is None or len(cpus) != nodes or len(memory) != nodes:
        raise errors.ImageNUMATopologyIncomplete()
    return _given_cells(flavor, cpus, memory)


def _numbered(name: str, specs: Properties, image: Properties, read: t.Callable[[t.Any], t.Any]) -> list[t.Any] | None:
    """The values of hw:<name>.0, .1 and so on up to the first missing one; the image's if the flavor has none."""
    own = _row("hw:%s.%%d" % name, specs, read)
    asked = _row("hw_%s.%%d" % name, image, read)
    if own is not None and asked is not None:
        raise errors.ImageNUMATopologyForbidden(name="hw_%s" % name)
    return asked if own is None else own


def _row(pattern: str, source: Properties, read: t.Callable[[t.Any], t.Any]) -> list[t.Any] | None:
    values = []
    for number in range(NODES_MAX):
        if pattern % number not in source:
            break
        try:
            values.append(read(source[pattern % number]))
        except errors.InvalidInput as error:
            raise errors.InvalidInput(
                message="%s: %s" % (pattern % number, error.message), remedy=error.remedy
            ) from error
    return values or None


def _memory(value: t.Any) -> int:
    text = str(value).strip()
    if not (text.isascii() and text.isdigit()):
        raise errors.InvalidInput(reason="%r is not a number of MiB" % (value,))
    return int(text)


def _even_cells(nodes: int, flavor: Flavor) -> list[GuestCell]:
    if flavor.vcpus % nodes or flavor.memory_mb % nodes:
        raise errors.ImageNUMATopologyAsymmetric(
            remedy="%d vCPUs and %d MiB do not divide by %d nodes: give hw:numa_cpus.N and hw:numa_mem.N."
            % (flavor.vcpus, flavor.memory_mb, nodes)
        )
    share, memory = flavor.vcpus // nodes, flavor.memory_mb // nodes
    return [GuestCell(node, frozenset(range(node * share, (node + 1) * share)), memory) for node in range(nodes)]


def _given_cells(flavor: Flavor, cpus: list[frozenset[int]], memory: list[int]) -> list[GuestCell]:
    unassigned = set(range(flavor.vcpus))
    for cell in cpus:
        for cpu in sorted(cell):
            if cpu >= flavor.vcpus:
                raise errors.ImageNUMATopologyCPUOutOfRange(cpunum=cpu, cpumax=flavor.vcpus - 1)
            if cpu not in unassigned:
                raise errors.ImageNUMATopologyCPUDuplicates(cpunum=cpu)
            unassigned.remove(cpu)
    if unassigned:
        raise errors.ImageNUMATopologyCPUsUnassigned(cpuset=str(unassigned))
    if sum(memory) != flavor.memory_mb:
        raise errors.ImageNUMATopologyMemoryOutOfRange(memsize=sum(memory), memtotal=flavor.memory_mb)
    return [GuestCell(node, cpus[node], memory[node]) for node in range(len(cpus))]


def cpu_policy_of(specs: Properties, image: Properties) -> str:
    """``shared`` or ``dedicated``: the flavor's, else the image's, else shared.

    :raises InvalidCPUAllocationPolicy: another word.
    :raises ImageCPUPinningForbidden: the flavor says shared and the image dedicated.
    """
    own, asked = _policies("cpu_policy", specs, image, CPU_POLICIES, errors.InvalidCPUAllocationPolicy)
    if own == SHARED and asked == DEDICATED:
        raise errors.ImageCPUPinningForbidden()
    return own or asked or SHARED


def _thread_policy(specs: Properties, image: Properties) -> str | None:
    own, asked = _policies("cpu_thread_policy", specs, image, THREAD_POLICIES, errors.InvalidCPUThreadAllocationPolicy)
    if own not in (None, PREFER) and asked and asked != own:
        raise errors.ImageCPUThreadPolicyForbidden()
    return own or asked


def _policies(
    name: str, specs: Properties, image: Properties, known: t.Sequence[str], error: type[errors.InvalidInput]
) -> tuple[str | None, str | None]:
    own, asked = _both(name, specs, image)
    for source, value in (("flavor extra specs", own), ("image properties", asked)):
        if value and value not in known:
            raise error(source=source, requested=value, available=", ".join(known))
    return own, asked


def _emulator_policy(specs: Properties, cpu_policy: str) -> str | None:
    policy = _text(specs.get("hw:emulator_threads_policy"))
    if policy is None:
        return None
    if policy not in EMULATOR_POLICIES:
        raise errors.InvalidEmulatorThreadsPolicy(requested=policy, available=", ".join(EMULATOR_POLICIES))
    if policy == ISOLATE and cpu_policy != DEDICATED:
        raise errors.BadRequirementEmulatorThreadsPolicy()
    return policy
