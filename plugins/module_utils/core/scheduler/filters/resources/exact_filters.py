# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""ExactRamFilter, ExactDiskFilter and ExactCoreFilter: the request takes all that a host has free. source: Nova up to Pike"""

from __future__ import annotations

import abc
import typing as t

from ....amounts import counted
from ...columns import Column, Fleet, Rows
from ...request_spec import RequestSpec
from ..base import Filter, FilterResult
from ..capacity import at


class ExactFilter(Filter):
    """Passes if the free amount equals the request; nothing is over-committed."""

    what = ""
    unit = ""

    @abc.abstractmethod
    def needed(self, spec: RequestSpec) -> int:
        """By one instance."""

    @abc.abstractmethod
    def free(self, fleet: Fleet) -> Column:
        """Return the free amount of every host."""

    def evaluate(self, fleet: Fleet, spec: RequestSpec, rows: Rows) -> FilterResult:
        free, needed = self.free(fleet)[rows], self.needed(spec)
        return FilterResult(
            mask=free == needed,
            text=lambda position: (
                "%s: needs a host with exactly %s free, this has %s"
                % (self.what, counted(needed, self.unit), counted(at(free, position), self.unit))
            ),
        )


class ExactRamFilter(ExactFilter):
    name = "ExactRamFilter"
    what, unit = "memory", "MiB"

    def needed(self, spec: RequestSpec) -> int:
        return spec.memory_mb

    def free(self, fleet: Fleet) -> Column:
        return fleet.free_ram_mb

    def limits(self, fleet: Fleet, row: int) -> dict[str, t.Any]:
        return {"memory_mb": float(fleet.total_ram_mb[row])}


class ExactDiskFilter(ExactFilter):
    """Compares root, ephemeral and swap."""

    name = "ExactDiskFilter"
    what, unit = "disk", "MiB"

    def needed(self, spec: RequestSpec) -> int:
        return spec.disk_mb

    def free(self, fleet: Fleet) -> Column:
        self.per_host = not fleet.has_pools
        return fleet.free_disk_mb

    def limits(self, fleet: Fleet, row: int) -> dict[str, t.Any]:
        return {"disk_gb": float(fleet.total_disk_mb[row] / 1024)}


class ExactCoreFilter(ExactFilter):
    """Passes no host whose number of CPUs is unknown."""

    name = "ExactCoreFilter"
    what, unit = "vCPUs", "vCPUs"

    def needed(self, spec: RequestSpec) -> int:
        return spec.vcpus

    def free(self, fleet: Fleet) -> Column:
        return fleet.vcpus_total - fleet.vcpus_used

    def evaluate(self, fleet: Fleet, spec: RequestSpec, rows: Rows) -> FilterResult:
        result = super().evaluate(fleet, spec, rows)
        result.mask = result.mask & (fleet.vcpus_total[rows] > 0)
        return result

    def limits(self, fleet: Fleet, row: int) -> dict[str, t.Any]:
        return {"vcpu": float(fleet.vcpus_total[row])}
