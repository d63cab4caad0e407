# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which guests the filters let to which hosts, and what of that changes with the load of the hosts."""

from __future__ import annotations

import typing as t
from dataclasses import fields, replace

from ..scheduler.columns import Column, Fleet, np
from ..scheduler.filters.base import Filter
from ..scheduler.filters.resources.core_filter import CoreFilter
from ..scheduler.filters.resources.disk_filter import DiskFilter
from ..scheduler.filters.resources.ram_filter import RamFilter
from ..scheduler.options import SchedulerOptions
from ..scheduler.placement import limits_of
from ..scheduler.registry import make_filters, make_weighers, user_classes
from ..scheduler.request_spec import RequestSpec

#: Filters whose answers do not change as guests move.
_STEADY = frozenset(
    (
        "RetryFilter",
        "AvailabilityZoneFilter",
        "ComputeFilter",
        "FactsAgeFilter",
        "ImagePropertiesFilter",
        "NetworkFilter",
    )
    + ("AggregateImagePropertiesIsolation", "AggregateInstanceExtraSpecsFilter", "AggregateMultiTenancyIsolation")
    + ("AggregateTypeAffinityFilter", "IsolatedHostsFilter", "JsonFilter", "ComputeCapabilitiesFilter")
)
#: Fields of a request that only filters of the user read.
_OF_USERS = ("metadata", "extra")


class Rules:
    """The enabled filters over a fleet. Requests that differ in nothing but their instances are of one kind.

    :raises InvalidInput: unknown filters or weighers.
    """

    def __init__(self, fleet: Fleet, options: SchedulerOptions):
        quiet = replace(options, explain=False)
        user = user_classes(quiet)
        self.fleet = fleet
        self.filters = make_filters(quiet, user)
        self.weighers = make_weighers(quiet, user)
        self.kinds: list[RequestSpec] = []  # one request of each
        self._numbers: dict[str, int] = {}  # what is equal -> the kind
        self._steady: dict[int, Column] = {}
        self._asked: dict[int, list[Filter]] = {}
        skipped = {"instance_uuids", *(() if user else _OF_USERS)}
        self._compared = [f.name for f in fields(RequestSpec) if f.name not in skipped]
        self._reads_limits()

    def _reads_limits(self) -> None:
        """Read the limits of memory, disk and vCPUs on each host; infinite without a filter for them."""
        rows = self.fleet.all_rows().tolist()
        self.limits = np.full((len(rows), 3), np.inf)
        for filter_ in self.filters:
            if not isinstance(filter_, (RamFilter, DiskFilter, CoreFilter)):
                continue
            for row, limits in zip(rows, filter_.limits_each(self.fleet, rows)):
                least = [limits.get("memory_mb"), limits.get("disk_gb"), limits.get("vcpu")]
                for position, limit in enumerate(least):
                    if limit is not None:
                        number = float(limit) * (1024 if position == 1 else 1)
                        self.limits[row, position] = min(self.limits[row, position], number)

    def room(self) -> Column:
        """Return the memory and disk in MiB and the vCPUs that each host could still give: rows by three."""
        fleet = self.fleet
        used = (fleet.total_ram_mb - fleet.free_ram_mb, fleet.total_disk_mb - fleet.free_disk_mb, fleet.vcpus_used)
        return self.limits - np.array(used, dtype=np.float64).T

    def room_of(self, row: int) -> tuple[float, float, float]:
        """Return room() of one host."""
        fleet, limits = self.fleet, self.limits[row]
        return (
            float(limits[0]) - float(fleet.total_ram_mb[row] - fleet.free_ram_mb[row]),
            float(limits[1]) - float(fleet.total_disk_mb[row] - fleet.free_disk_mb[row]),
            float(limits[2]) - float(fleet.vcpus_used[row]),
        )

    def kind(self, spec: RequestSpec) -> int:
        """Return the number of the request's kind."""
        key = repr([getattr(spec, name) for name in self._compared])
        number = self._numbers.setdefault(key, len(self.kinds))
        if number == len(self.kinds):
            self.kinds.append(spec)
        return number

    def asked(self, kind: int) -> list[Filter]:
        """Return the filters that the kind concerns."""
        if kind not in self._asked:
            self._asked[kind] = [f for f in self.filters if f.concerns(self.kinds[kind])]
        return self._asked[kind]

    def is_plain(self, kind: int) -> bool:
        """Return whether filters only compare numbers as guests of the kind move."""
        spec = self.kinds[kind]
        if spec.takes_dedicated or spec.instance_group is not None:
            return False
        return all(f.name in _STEADY or type(f).__module__.endswith(_NUMBERS) for f in self.asked(kind))

    def steady(self, kind: int) -> Column:
        """Return the hosts that guests of the kind may have whatever the load: a mask over all rows."""
        if kind not in self._steady:
            spec, fleet = self.kinds[kind], self.fleet
            mask = self._mask(kind, [f for f in self.asked(kind) if f.name in _STEADY])
            names = {type(f).__module__.rpartition(".")[2] for f in self.asked(kind)}
            if "ram_filter" in names:
                mask &= fleet.total_ram_mb >= spec.memory_mb
            if "disk_filter" in names:
                mask &= fleet.total_disk_mb >= spec.disk_mb
            if "core_filter" in names:
                mask &= fleet.vcpus_total >= spec.vcpus
            self._steady[kind] = mask
        return self._steady[kind]

    def now(self, kind: int) -> Column:
        """Return the hosts that pass as the fleet is, for guests without a server group; with one, steady(): a guest counts as a member where it is."""
        if self.kinds[kind].instance_group is not None:
            return self.steady(kind)
        return self._mask(kind, self.asked(kind))

    def _mask(self, kind: int, filters: t.Sequence[Filter]) -> Column:
        mask = np.zeros(len(self.fleet), dtype=bool)
        rows = self.fleet.all_rows()
        for filter_ in filters:
            if not len(rows):
                break
            rows = rows[np.asarray(filter_.evaluate(self.fleet, self.kinds[kind], rows).mask, dtype=bool)]
        mask[rows] = True
        return mask

    def refusal(self, kind: int, spec: RequestSpec, row: int) -> str | None:
        """Return the name of the first filter that refuses the host, as the fleet is; None: all pass."""
        return next((f.name for f in self.asked(kind) if not f.passes(self.fleet, spec, row)), None)

    def why(self, kind: int, spec: RequestSpec, row: int) -> str:
        """Return the same with the filter's words."""
        for filter_ in self.asked(kind):
            answer = filter_.evaluate(self.fleet, spec, row)
            if not answer.mask:
                return "%s: %s" % (filter_.name, answer.text(0)) if answer.text is not None else filter_.name
        return ""

    def consume(self, spec: RequestSpec, row: int) -> None:
        """Enter a guest on a host."""
        limits = limits_of(self.filters, self.fleet, spec, row) if spec.takes_dedicated else None
        self.fleet.consume(row, spec, limits=limits)


#: Modules of filters that compare memory, disk or vCPUs.
_NUMBERS = ("ram_filter", "disk_filter", "core_filter")


def light(spec: RequestSpec) -> RequestSpec:
    """Return the request without cells and devices. What a guest has of them on a host that it leaves is not counted as free before it has left."""
    if not spec.takes_dedicated:
        return spec
    return replace(spec, numa_topology=None, pci_requests=(), whole_disks=())
