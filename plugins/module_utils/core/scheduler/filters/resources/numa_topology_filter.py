# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""NUMATopologyFilter: hosts whose NUMA cells hold the guest's."""

from __future__ import annotations

import typing as t

from ....resources.numa.fit import PciCheck, fit_to_host, misfit
from ....resources.numa.topology import HostNUMATopology, NUMALimits
from ...columns import Fleet, Rows, np
from ...request_spec import RequestSpec
from ..base import Filter, FilterResult

# A host as this filter sees it: equal hosts are fitted once.
Kind = t.Tuple[t.Optional[HostNUMATopology], float, float, t.Tuple[t.Any, ...]]


class NUMATopologyFilter(Filter):
    """Passes if the guest's cells fit the host's, on cells that also have the requested PCI devices.

    A guest without cells passes everywhere; a guest with cells passes only on hosts that report theirs. CPUs and memory
    of guests that are not pinned are over-committed by the host's ratios, which are limits of the claim too.
    """

    name = "NUMATopologyFilter"
    needs_numa = True

    def concerns(self, spec: RequestSpec) -> bool:
        return spec.numa_topology is not None

    def evaluate(self, fleet: Fleet, spec: RequestSpec, rows: Rows) -> FilterResult:
        guest = spec.numa_topology
        if guest is None:
            return FilterResult(mask=np.ones(np.shape(rows), dtype=bool))
        verdicts: dict[Kind, bool] = {}
        kinds = self._kinds(fleet, spec, np.atleast_1d(rows))
        for kind in kinds:
            if kind not in verdicts:
                host, limits, pci_ok = _parts(kind, spec)
                verdicts[kind] = fit_to_host(host, guest, limits, pci_ok=pci_ok) is not None
        mask = np.array([verdicts[kind] for kind in kinds], dtype=bool).reshape(np.shape(rows))

        def text(position: int) -> str:
            host, limits, pci_ok = _parts(kinds[position], spec)
            return "NUMA topology: %s" % misfit(host, guest, limits, pci_ok)

        return FilterResult(mask=mask, text=text)

    def limits(self, fleet: Fleet, row: int) -> dict[str, t.Any]:
        return {"numa_topology": _limits(*_ratios(fleet, row)).as_dict()}

    def _kinds(self, fleet: Fleet, spec: RequestSpec, rows: t.Any) -> list[Kind]:
        groups = fleet.groups("numa_topology", lambda host: host.numa_topology, attributes=("numa_topology",))
        # The groups are of the hosts as read; those taken from in this request are fitted again.
        changed = fleet.num_instances[rows] != fleet.column("num_instances", np.int64)[rows]
        kinds: list[Kind] = []
        for row, code, was_changed in zip(rows.tolist(), groups.codes[rows].tolist(), changed.tolist()):
            topology = fleet.numa(row) if was_changed else groups.values[code]
            devices = tuple(fleet.pci_devices(row)) if spec.pci_requests else ()
            kinds.append((topology, *_ratios(fleet, row), devices))
        return kinds


def _ratios(fleet: Fleet, row: int) -> tuple[float, float]:
    return float(fleet.cpu_allocation_ratio[row]), float(fleet.ram_allocation_ratio[row])


def _limits(cpu_ratio: float, ram_ratio: float) -> NUMALimits:
    return NUMALimits(cpu_allocation_ratio=cpu_ratio, ram_allocation_ratio=ram_ratio)


def _parts(kind: Kind, spec: RequestSpec) -> tuple[HostNUMATopology | None, NUMALimits, PciCheck | None]:
    topology, cpu_ratio, ram_ratio, devices = kind
    return topology, _limits(cpu_ratio, ram_ratio), _pci_check(spec, devices)


def _pci_check(spec: RequestSpec, devices: t.Sequence[t.Any]) -> PciCheck | None:
    requests = tuple(spec.pci_requests)
    if not requests:
        return None
    from ....resources.pci.pools import supports

    return lambda cells: supports(devices, requests, cells)
