# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""ComputeCapabilitiesFilter: hosts whose facts satisfy the flavor's extra specs."""

from __future__ import annotations

import dataclasses
import json
import typing as t

from ...reading.extra_specs_ops import match
from ..columns import Column, Fleet, Rows, np
from ..host_state import ON_DEMAND, HostState
from ..request_spec import RequestSpec
from .base import Filter, FilterResult
from .capacity import at
from .verdicts import pass_all

SCOPE = "capabilities"


# Attributes that requests take from are read as they are; all others once for all hosts that are equal in them.
LIVE = frozenset(
    (
        "memory_mb_used",
        "free_ram_mb",
        "local_gb_used",
        "disk_mb_used",
        "disk_available_least",
        "free_disk_mb",
        "vcpus_used",
        "num_instances",
        "num_io_ops",
        "numa_topology",
        "pci_devices",
        "free_disks",
    )
)
# Property of HostState -> the attribute it is computed from.
MADE_FROM = {
    "hypervisor_hostname": "nodename",
    "total_usable_ram_mb": "memory_mb",
    "total_usable_disk_gb": "local_gb",
    "vcpus_total": "vcpus",
}
ATTRIBUTES = frozenset(f.name for f in dataclasses.fields(HostState))
#: What hosts report besides. source: hosts.facts
STATS = frozenset(("disk_backend", "disk_medium", "disk_pool", "disk_refusal", "guest_content", "emulated"))
#: Names that are facts of a host without a scope.
FACTS = ATTRIBUTES | STATS | frozenset(MADE_FROM) | frozenset(n for n in vars(HostState) if not n.startswith("_"))


class ComputeCapabilitiesFilter(Filter):
    """Passes hosts that satisfy ``capabilities:a:b`` specs, and unscoped specs that name one of their facts.

    Other scopes (hw:, quota:, aggregate_instance_extra_specs:...) are ignored.
    """

    name = "ComputeCapabilitiesFilter"
    run_once_per_request = True

    def needs(self, spec: RequestSpec) -> frozenset[str]:
        heads = (path[0] for _key, path, _requirement in _requirements(spec.flavor.extra_specs))
        return frozenset(ON_DEMAND[head] for head in heads if head in ON_DEMAND)

    def evaluate(self, fleet: Fleet, spec: RequestSpec, rows: Rows) -> FilterResult:
        requirements = _requirements(spec.flavor.extra_specs)
        if not requirements:
            return pass_all(rows)
        mask = np.ones(np.shape(rows), dtype=bool)
        answers: list[tuple[Column, list[str | None]]] = []
        for required in requirements:
            codes, values = _values(fleet, required, rows)
            refusals = [_refusal(required, value) for value in values]
            mask = mask & np.array([refusal is None for refusal in refusals], dtype=bool)[codes]
            answers.append((codes, refusals))

        def text(position: int) -> str:
            refusals_of_host = (refusals[at(codes, position)] for codes, refusals in answers)
            return next((refusal for refusal in refusals_of_host if refusal is not None), "")

        return FilterResult(mask=mask, text=text)


Requirement = t.Tuple[str, t.List[str], str]  # the key as written, the path, the requirement
Value = t.Tuple[bool, t.Optional[str]]  # whether the requirement concerns the host, and the host's value


def _requirements(extra_specs: t.Mapping[str, t.Any]) -> list[Requirement]:
    requirements: list[Requirement] = []
    for key, requirement in extra_specs.items():
        path = key.split(":")
        if key == "hw:maxphysaddr_bits":
            requirements.append((key, ["cpu_info", "maxphysaddr", "bits"], ">= %s" % requirement))
        elif len(path) == 1:
            requirements.append((key, path, str(requirement)))
        elif path[0] == SCOPE:
            requirements.append((key, path[1:], str(requirement)))
    return requirements


def _values(fleet: Fleet, required: Requirement, rows: Rows) -> tuple[Column, list[Value]]:
    """The hosts' values for a requirement: the index of each row's value, and the values."""
    key, path, dummy = required

    def value(host: HostState) -> Value:
        # an unscoped key that the host does not know concerns other filters
        concerned = ":" in key or hasattr(host, key) or key in host.stats
        host_value = capability(host, path) if concerned else None
        return concerned, None if host_value is None else str(host_value)

    if path[0] in LIVE:
        seen: dict[Value, int] = {}
        codes = [seen.setdefault(value(fleet.host_state(int(row))), len(seen)) for row in np.atleast_1d(rows)]
        return np.array(codes, dtype=np.int64).reshape(np.shape(rows)), list(seen)
    head = MADE_FROM.get(path[0], path[0])
    attributes = (head, "stats") if head in ATTRIBUTES else () if hasattr(HostState, head) else ("stats",)
    groups = fleet.groups("capability %s" % key, value, attributes)
    return groups.codes[rows], groups.values


def _refusal(required: Requirement, value: Value) -> str | None:
    key, dummy, requirement = required
    concerned, host_value = value
    if not concerned:
        return None
    if host_value is None:
        return "%s: needs %s, the host reports nothing of the kind" % (key, requirement)
    if not match(host_value, requirement):
        return "%s: needs %s, the host has %s" % (key, requirement, host_value)
    return None


def capability(host: HostState, path: t.Sequence[str]) -> t.Any:
    """Walk from the host over attributes (or its stats), mappings and JSON texts; None where the path ends early."""
    value: t.Any = host
    for name in path:
        if isinstance(value, str):
            try:
                value = json.loads(value)
            except ValueError:
                return None
        if isinstance(value, t.Mapping):
            value = value.get(name)
        elif value is host:
            attribute = None if name.startswith("_") else getattr(host, name, None)
            value = host.stats.get(name) if attribute is None else attribute
        else:
            return None
        if value is None:
            return None
    return value
