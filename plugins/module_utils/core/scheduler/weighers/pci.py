# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""PCIWeigher: hosts with few free PCI devices first."""

from __future__ import annotations

from ..columns import Column, Fleet, Rows, np
from ..host_state import HostState
from ..request_spec import RequestSpec
from .base import Changes, Weigher

#: From one less than this, more free devices make no difference: such hosts are not short of devices.
PLENTY = 100


def _devices(host: HostState) -> int:
    return len(host.pci_devices)


class PCIWeigher(Weigher):
    """100 less the free devices, at least 1.

    Guests with devices are stacked, so that hosts with many keep them; guests without devices avoid such hosts.
    """

    name = "PCIWeigher"
    least_multiplier = 0.0
    aggregate_key = "pci_weight_multiplier"
    needs_pci = True

    def raw(self, fleet: Fleet, spec: RequestSpec, rows: Rows) -> Column:
        groups = fleet.groups("count of PCI devices", _devices, ("pci_devices",))
        free = np.array(groups.values, dtype=np.float64)[groups.codes[rows]]
        if not np.ndim(rows):
            if free:
                free = np.float64(len(fleet.pci_devices(int(rows))))
            return PLENTY - np.minimum(free, PLENTY - 1)
        for position in np.flatnonzero(free):
            free[position] = len(fleet.pci_devices(int(rows[position])))
        return PLENTY - np.minimum(free, PLENTY - 1)

    def changes(self, fleet: Fleet, spec: RequestSpec) -> Changes:
        return Changes.PICKED if spec.pci_requests else Changes.NONE
