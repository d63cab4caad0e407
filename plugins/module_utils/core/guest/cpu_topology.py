# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Sockets, cores and threads of a guest, from flavor and image. source: Nova's guest CPU topology"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ..errors import (
    ImageVCPULimitsRangeExceeded,
    ImageVCPULimitsRangeImpossible,
    ImageVCPUTopologyRangeExceeded,
    InvalidInput,
)

UNLIMITED = 65536
_NAMES = ("sockets", "cores", "threads")


@dataclass(frozen=True)
class CpuTopology:
    sockets: int
    cores: int
    threads: int


def topology_wanted(flavor_specs: t.Mapping[str, t.Any], image_properties: t.Mapping[str, t.Any]) -> bool:
    """Whether flavor or image have properties of the topology."""
    return any(
        key in source
        for source, pattern in ((flavor_specs, "hw:cpu_%s"), (image_properties, "hw_cpu_%s"))
        for name in _NAMES
        for key in (pattern % name, pattern % ("max_%s" % name))
    )


def best_topology(
    vcpus: int,
    flavor_specs: t.Mapping[str, t.Any],
    image_properties: t.Mapping[str, t.Any],
    numa_threads: int | None = None,
) -> CpuTopology:
    """The topology with ``vcpus`` CPUs within the maxima that satisfies most preferences.

    The flavor's maxima limit the image's; a preference of the image voids all preferences of the flavor, and so does a
    maximum below one of them. Without preferences sockets come before cores before threads. ``numa_threads``: the threads per core that the guest's CPUs are
    pinned to; the topology has at most these, and fewer if fewer are preferred.

    :raises ImageVCPULimitsRangeExceeded: a maximum of the image is above the flavor's.
    :raises ImageVCPUTopologyRangeExceeded: a preference of the image is above a maximum.
    :raises ImageVCPULimitsRangeImpossible: no topology within the maxima has that many vcpus.
    :raises InvalidInput: a value that is not a positive number.
    """
    maximum = _maxima(flavor_specs, image_properties)
    preferred = _preferences(flavor_specs, image_properties, maximum)
    possible = [
        CpuTopology(vcpus // (cores * threads), cores, threads)
        for threads in range(1, min(vcpus, maximum["threads"]) + 1)
        for cores in range(1, min(vcpus, maximum["cores"]) + 1)
        if vcpus % (cores * threads) == 0 and vcpus // (cores * threads) <= maximum["sockets"]
    ]
    if not possible:
        limits: dict[str, t.Any] = dict(maximum)
        raise ImageVCPULimitsRangeImpossible(vcpus=vcpus, **limits)
    if numa_threads:
        possible = _with_threads(possible, min(numa_threads, preferred["threads"] or numa_threads))
    return max(possible, key=lambda topology: _score(topology, preferred))  # max keeps the first of equals


def _with_threads(possible: list[CpuTopology], wanted: int) -> list[CpuTopology]:
    """Return the topologies with the most threads per core up to ``wanted``; 1 is always possible, unless sockets and cores are limited."""
    below = [topology.threads for topology in possible if topology.threads <= wanted]
    return [topology for topology in possible if topology.threads == max(below)] if below else possible


def _score(topology: CpuTopology, preferred: t.Mapping[str, int | None]) -> int:
    return sum(1 for name in _NAMES if preferred[name] is not None and getattr(topology, name) == preferred[name])


def _maxima(flavor: t.Mapping[str, t.Any], image: t.Mapping[str, t.Any]) -> dict[str, int]:
    limits = {name: _number(flavor, "hw:cpu_max_%s" % name) or UNLIMITED for name in _NAMES}
    asked = {name: _number(image, "hw_cpu_max_%s" % name) for name in _NAMES}
    if any((asked[name] or 0) > limits[name] for name in _NAMES):
        raise ImageVCPULimitsRangeExceeded(**_details(asked, limits))
    return {name: asked[name] or limits[name] for name in _NAMES}


def _preferences(
    flavor: t.Mapping[str, t.Any], image: t.Mapping[str, t.Any], maximum: t.Mapping[str, int]
) -> dict[str, int | None]:
    own = {name: _number(flavor, "hw:cpu_%s" % name) for name in _NAMES}
    asked = {name: _number(image, "hw_cpu_%s" % name) for name in _NAMES}
    if any((asked[name] or 0) > maximum[name] for name in _NAMES):
        raise ImageVCPUTopologyRangeExceeded(
            remedy="Choose another flavor, or lower the image's hw_cpu_* properties.", **_details(asked, maximum)
        )
    if any(asked.values()):
        return asked
    if any((own[name] or 0) > maximum[name] for name in _NAMES):
        return dict.fromkeys(_NAMES)
    return own


def _details(asked: t.Mapping[str, int | None], limits: t.Mapping[str, int]) -> dict[str, t.Any]:
    return {
        **{"image_%s" % name: asked[name] or 0 for name in _NAMES},
        **{"max_%s" % name: limits[name] for name in _NAMES},
    }


def _number(source: t.Mapping[str, t.Any], key: str) -> int | None:
    value = source.get(key)
    if value is None:
        return None
    try:
        number = int(str(value))
    except ValueError:
        number = 0
    if number < 1:
        raise InvalidInput(
            reason="%s must be a positive number, got %r" % (key, value), remedy="Write a whole number from 1 on."
        )
    return number
