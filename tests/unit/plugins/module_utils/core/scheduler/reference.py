# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Nova's loop written down plainly: host by host, everything anew for every instance. The tests hold placement against it."""

from __future__ import annotations

import dataclasses
import random
from dataclasses import dataclass

from ansible_collections.bootflow.compute.plugins.module_utils.core.scheduler.options import SchedulerOptions

OPTIONS = {field.name for field in dataclasses.fields(SchedulerOptions)}


def make_options(**values):
    """SchedulerOptions, the settings of filters and weighers among the others."""
    settings = {name: value for name, value in values.items() if name not in OPTIONS}
    return SchedulerOptions(**{n: v for n, v in values.items() if n in OPTIONS}, settings=settings)


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
    io_ops: int = 0
    free_pci: int = 0
    failed_builds: int = 0
    metrics: dict = None
    instances: set = None  # uuids of what is there, with what was picked
    aggregates: tuple = ()  # their metadata

    def consume(self, spec, uuid):
        self.io_ops += 1
        self.instances.add(uuid)
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
        state.num_io_ops, len(state.pci_devices), state.failed_builds, dict(state.metrics), set(state.instances),
        tuple(a.metadata for a in state.aggregates),
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
    if 1024 * (flavor.root_gb + flavor.ephemeral_gb) + flavor.swap > total:
        return False
    if 1024 * (flavor.root_gb + flavor.ephemeral_gb) + flavor.swap > total * host.disk_ratio - (
        total - host.free_disk_mb
    ):
        return False
    if not host.vcpus:
        return True
    return flavor.vcpus <= host.vcpus and flavor.vcpus <= host.vcpus * host.cpu_ratio - host.vcpus_used


def group_passes(host, hosts, group):
    """Only where the request is in a group; ``hosts``: the whole fleet."""
    if group is None:
        return True
    if group.policy == "anti-affinity":
        return len(host.instances & group.members) < group.max_server_per_host
    if group.policy == "affinity":
        theirs = {h.name for h in hosts if h.instances & group.members}
        return not theirs or host.name in theirs
    return True


def metrics_value(host, options):
    value = 0.0
    for name, ratio in options.settings.get("metrics_weight_setting", {}).items():
        if name in host.metrics:
            value += host.metrics[name] * ratio
        elif ratio * multiplier("MetricsWeigher", host, options.multipliers) != 0:
            return -10000.0
    return value


def soft(policy, host, group):
    return len(host.instances & group.members) if group is not None and group.policy == policy else 0


# name -> (raw number, low end, multiplier, key in aggregates)
WEIGHERS = {
    "RAMWeigher": (lambda h, s, o: h.free_ram, 0, 1.0, "ram_weight_multiplier"),
    "CPUWeigher": (lambda h, s, o: h.vcpus * h.cpu_ratio - h.vcpus_used, 0, 1.0, "cpu_weight_multiplier"),
    "DiskWeigher": (lambda h, s, o: h.free_disk_mb, 0, 1.0, "disk_weight_multiplier"),
    "IoOpsWeigher": (lambda h, s, o: h.io_ops, 0, -1.0, "io_ops_weight_multiplier"),
    "PCIWeigher": (lambda h, s, o: 100 - min(h.free_pci, 99), None, 1.0, "pci_weight_multiplier"),
    "MetricsWeigher": (lambda h, s, o: metrics_value(h, o), None, 1.0, "metrics_weight_multiplier"),
    "BuildFailureWeigher": (lambda h, s, o: h.failed_builds, None, 1000000.0, "build_failure_weight_multiplier"),
    "ServerGroupSoftAffinityWeigher": (
        lambda h, s, o: soft("soft-affinity", h, s.instance_group), None, 1.0, "soft_affinity_weight_multiplier",
    ),
    "ServerGroupSoftAntiAffinityWeigher": (
        lambda h, s, o: -soft("soft-anti-affinity", h, s.instance_group), None, 1.0,
        "soft_anti_affinity_weight_multiplier",
    ),
}  # fmt: skip


def multiplier(name, host, configured):
    _raw, _low, default, key = WEIGHERS[name]
    value = configured.get(name, default)
    given = {metadata[key] for metadata in host.aggregates if key in metadata}
    try:
        value = min(float(v) for v in given) if given else value
    except ValueError:
        pass
    return -value if name == "BuildFailureWeigher" else value


def weigh(hosts, spec, options):
    """(weight, host), best first, equals in the order given; one host is not weighed."""
    if len(hosts) == 1:
        return [(0.0, hosts[0])]
    weights = [0.0] * len(hosts)
    for name in options.weighers or WEIGHERS:
        raw, low = WEIGHERS[name][:2]
        values = [float(raw(h, spec, options)) for h in hosts]
        lo, hi = min(values if low is None else [float(low), *values]), max(values)
        for i, value in enumerate(values):
            part = 0.0 if lo == hi else (value - lo) / (hi - lo)
            weights[i] += multiplier(name, hosts[i], options.multipliers) * part
    return sorted(zip(weights, hosts), key=lambda pair: pair[0], reverse=True)


def sort_hosts(hosts, spec, options, rng, fleet):
    hosts = [h for h in hosts if passes(h, spec) and group_passes(h, fleet, spec.instance_group)]
    if not hosts:
        return []
    ordered = [h for _weight, h in weigh(hosts, spec, options)]
    size = min(max(options.host_subset_size, 1), len(ordered))
    chosen = ordered.pop(rng.randrange(size) if size > 1 else 0)
    return [chosen, *ordered]


def select(states, spec, options):
    """[(host, node)] and the alternates, or None where not all instances find a host."""
    hosts = fleet = [of(s, options.now) for s in states]
    rng = random.Random(spec.instance_uuids[0])
    selected = []
    for uuid in spec.instance_uuids:
        hosts = sort_hosts(hosts, spec, options, rng, fleet)
        if not hosts:
            return None
        selected.append(hosts[0])
        hosts[0].consume(spec, uuid)
    if len(selected) > 1 and options.max_attempts > 1:
        hosts = sort_hosts(hosts, spec, options, rng, fleet)
    rest = [h for h in hosts if h not in selected][: options.max_attempts - 1]
    return [(h.name, h.node) for h in selected], [(h.name, h.node) for h in rest]
