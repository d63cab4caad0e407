# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""PciPassthroughFilter: hosts that have the requested PCI devices."""

from __future__ import annotations

import typing as t

from ....resources.pci.device import PciDevice
from ....resources.pci.pools import hand_out
from ....resources.pci.request import PciRequest
from ...columns import Fleet, Rows
from ...request_spec import RequestSpec
from ..base import Filter, FilterResult
from .holdings import holdings_result


class PciPassthroughFilter(Filter):
    """Passes if the free devices satisfy all PCI requests, one after the other, on any NUMA cell.

    NUMATopologyFilter checks the cells. Hosts with the same free devices are asked once.
    """

    name = "PciPassthroughFilter"
    counts_capacity = True
    needs_pci = True

    def concerns(self, spec: RequestSpec) -> bool:
        return bool(spec.pci_requests)

    def evaluate(self, fleet: Fleet, spec: RequestSpec, rows: Rows) -> FilterResult:
        requests = tuple(spec.pci_requests)
        return holdings_result(
            rows,
            needed=sum(request.count for request in requests),
            holding=lambda row: tuple(fleet.pci_devices(row)),
            served=lambda devices: _served(devices, requests),
            unit="devices",
        )


def _served(devices: t.Sequence[PciDevice], requests: t.Sequence[PciRequest]) -> tuple[int, str]:
    chosen = hand_out(devices, requests)
    short = ["needs %s, %d free" % (request, len(picked)) for request, picked in chosen if len(picked) < request.count]
    return (
        sum(len(picked) for dummy, picked in chosen),
        "PCI devices: %s (%d free in all)" % ("; ".join(short), len(devices)) if short else "",
    )
