# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Pins a guest's CPUs to host CPUs of a cell. source: Nova's _pack_instance_onto_cores

As in Queens, except for the CPU of the emulator's threads, which is chosen as in Rocky, because Queens could pin a guest
without reserving it.
"""

from __future__ import annotations

import itertools
import math
import typing as t
from dataclasses import dataclass

from .topology import ISOLATE, REQUIRE, GuestCell, HostCell

Core = t.List[int]  # the free threads of one core, in order


@dataclass(frozen=True)
class Pinning:
    """Guest CPU -> host CPU, the host CPUs for the emulator, and the guest's (sockets, cores, threads); None where it has no CPUs."""

    cpus: t.Mapping[int, int]
    reserved: frozenset[int]
    topology: tuple[int, int, int] | None


def pack(host: HostCell, guest: GuestCell, reserve: int = 0) -> Pinning | None:
    """Host CPUs for the CPUs of ``guest`` and ``reserve`` more for the emulator; None if its policy cannot be satisfied.

    prefer (the default) takes the cores with the most free threads that hold the guest, or else single threads;
    require takes no single threads; isolate takes one thread of each of as many entirely free cores.
    """
    cores = free_cores(host)
    if not guest.cpus:
        return _without_cpus(cores, guest.cpu_thread_policy, reserve)
    if guest.cpu_thread_policy == ISOLATE:
        whole = [core for core in cores if len(core) >= host.threads_per_core]
        pinning = _pin(guest, [core[:1] for core in whole])
        if pinning is None:
            return None
        # isolate keeps the rest of a core idle, so the emulator's CPU needs its own core.
        unused_cores = [core for core in whole if not set(core) & set(pinning.values())]
        return _with_reserved(pinning, unused_cores, reserve, 1)
    for threads in range(max(map(len, cores), default=0), 0, -1):
        if guest.cpu_thread_policy == REQUIRE and threads == 1:
            continue
        usable = [core for core in cores if len(core) >= threads]
        arrangement = _reserving(guest, _pin(guest, [core[:threads] for core in usable]), cores, reserve, threads)
        if arrangement is not None:
            return arrangement
    if guest.cpu_thread_policy == REQUIRE:
        return None
    return _reserving(guest, _pin(guest, cores), cores, reserve, 1)


def _without_cpus(cores: t.Sequence[Core], policy: str | None, reserve: int) -> Pinning | None:
    """Pin a cell with memory only. As in Nova it takes no CPU for the emulator, is not isolated, and has to be next to free siblings by require."""
    if reserve or policy == ISOLATE or (policy == REQUIRE and not any(len(core) > 1 for core in cores)):
        return None
    return Pinning({}, frozenset(), None)


def free_cores(host: HostCell) -> list[Core]:
    """The free threads of each core that has any, in the host's order; without SMT each CPU is a core."""
    free = set(host.free_cpus)
    if not host.siblings:
        return [[cpu] for cpu in sorted(free)]
    cores = []
    for core in host.siblings:
        if core & free:
            cores.append(sorted(core & free))
            free -= core  # a thread that a host has in two cores counts once
    return cores


def _pin(guest: GuestCell, cores: t.Sequence[Core]) -> dict[int, int] | None:
    if sum(map(len, cores)) < len(guest.cpus):
        return None
    return dict(zip(sorted(guest.cpus), itertools.chain.from_iterable(cores)))


def _reserving(
    guest: GuestCell, pinning: dict[int, int] | None, cores: t.Sequence[Core], reserve: int, threads: int
) -> Pinning | None:
    if pinning is None:
        return None
    pinned = set(pinning.values())
    unused_cores = [[cpu for cpu in core if cpu not in pinned] for core in cores]
    # The number of threads that all cores of the guest can have, including the partly used last one.
    return _with_reserved(pinning, unused_cores, reserve, math.gcd(threads, len(guest.cpus) % threads))


def _with_reserved(
    pinning: dict[int, int], unused_cores: t.Sequence[Core], reserve: int, threads: int
) -> Pinning | None:
    reserved = frozenset(itertools.islice(itertools.chain.from_iterable(unused_cores), reserve))
    if len(reserved) < reserve:
        return None
    return Pinning(pinning, reserved, (1, len(pinning) // threads, threads))
