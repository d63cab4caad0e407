# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Nova's loop written down plainly: host by host, everything anew for every instance. The tests hold placement against it."""

from __future__ import annotations

import random
from dataclasses import dataclass


@dataclass(eq=False)
class Host:
    """Nova's HostState, as far as the filters and weighers of this issue read it."""

    name: str
    node: str
    total_ram: int
    free_ram: int
    total_disk_gb: int
    free_disk_mb: int
    vcpus: int
    vcpus_used: int
    ram_ratio: float
    disk_ratio: float
    cpu_ratio: float
    enabled: bool
    age: float
    zones: tuple

    def consume(self, spec):
        self.free_ram -= spec.flavor.memory_mb + spec.memory_overhead_mb
        self.free_disk_mb -= (spec.flavor.root_gb + spec.flavor.ephemeral_gb) * 1024
        self.vcpus_used += spec.flavor.vcpus


def of(state, now):
    free_gb = state.local_gb - state.local_gb_used
    if state.disk_available_least is not None and state.disk_available_least < free_gb:
        free_gb = state.disk_available_least
    return Host(
        state.host, state.nodename, state.memory_mb, state.memory_mb - state.memory_mb_used, state.local_gb, free_gb * 1024,
        state.vcpus, state.vcpus_used, state.ram_allocation_ratio, state.disk_allocation_ratio, state.cpu_allocation_ratio,
        not state.disabled, now - state.updated_at, tuple(state.availability_zones) or ("nova",),
    )  # fmt: skip


def passes(host, spec):
    flavor = spec.flavor
    if (host.name, host.node) in spec.retry_hosts:
        return False
    if spec.availability_zone and spec.availability_zone not in host.zones:
        return False
    if not host.enabled or host.age > 60:
        return False
    ram = flavor.memory_mb + spec.memory_overhead_mb
    if ram > host.total_ram or ram > host.total_ram * host.ram_ratio - (host.total_ram - host.free_ram):
        return False
    total = host.total_disk_gb * 1024
    if 1024 * (flavor.root_gb + flavor.ephemeral_gb) + flavor.swap > total * host.disk_ratio - (
        total - host.free_disk_mb
    ):
        return False
    if not host.vcpus:
        return True
    return flavor.vcpus <= host.vcpus and flavor.vcpus <= host.vcpus * host.cpu_ratio - host.vcpus_used


WEIGHERS = {
    "RAMWeigher": lambda h: h.free_ram,
    "CPUWeigher": lambda h: h.vcpus * h.cpu_ratio - h.vcpus_used,
    "DiskWeigher": lambda h: h.free_disk_mb,
}


def weigh(hosts, multipliers):
    """(weight, host), best first, equals in the order given; one host is not weighed."""
    if len(hosts) == 1:
        return [(0.0, hosts[0])]
    weights = [0.0] * len(hosts)
    for name, raw in WEIGHERS.items():
        values = [float(raw(h)) for h in hosts]
        lo, hi = min([0.0, *values]), max(values)
        for i, value in enumerate(values):
            weights[i] += multipliers.get(name, 1.0) * (0.0 if lo == hi else (value - lo) / (hi - lo))
    return sorted(zip(weights, hosts), key=lambda pair: pair[0], reverse=True)


def sort_hosts(hosts, spec, options, rng):
    hosts = [h for h in hosts if passes(h, spec)]
    if not hosts:
        return []
    ordered = [h for _weight, h in weigh(hosts, options.multipliers)]
    size = min(max(options.host_subset_size, 1), len(ordered))
    chosen = ordered.pop(rng.randrange(size) if size > 1 else 0)
    return [chosen, *ordered]


def select(states, spec, options):
    """[(host, node)] and the alternates, or None where not all instances find a host."""
    hosts = [of(s, options.now) for s in states]
    rng = random.Random(spec.instance_uuids[0])
    selected = []
    for _uuid in spec.instance_uuids:
        hosts = sort_hosts(hosts, spec, options, rng)
        if not hosts:
            return None
        selected.append(hosts[0])
        hosts[0].consume(spec)
    if len(selected) > 1 and options.max_attempts > 1:
        hosts = sort_hosts(hosts, spec, options, rng)
    rest = [h for h in hosts if h not in selected][: options.max_attempts - 1]
    return [(h.name, h.node) for h in selected], [(h.name, h.node) for h in rest]
