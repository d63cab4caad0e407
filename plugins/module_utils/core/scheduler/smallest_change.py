# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The smallest change of a request or host with which the host would pass all filters."""

from __future__ import annotations

import math
import typing as t
from dataclasses import dataclass, replace

from ..amounts import counted, disk, memory
from ..errors import BootflowError
from .columns import Fleet, np
from .filters.base import Filter
from .filters.capacity import at
from .filters.compute_filter import ComputeFilter
from .request_spec import RequestSpec


@dataclass(frozen=True)
class _Resource:
    """Relation of a filter's number to a flavor."""

    what: str
    unit: str  # of the flavor's value and of ``free``
    words: str
    more: t.Callable[[float], str]  # missing in ``unit``, in words
    scale: int  # of the filter's unit in one ``unit``
    flavor_value: t.Callable[[RequestSpec], int]
    fits_at: t.Callable[[RequestSpec, float], int]  # available in the filter's unit -> the flavor's largest value
    total: t.Callable[[Fleet, int], float]  # of the host, in the filter's unit: the most that can be free
    shrunk: t.Callable[[RequestSpec, int], dict[str, int]]  # the flavor's fields with the smaller value


def _disk_shrunk(spec: RequestSpec, disk_gb: int) -> dict[str, int]:
    """The root disk shrinks first, then the ephemeral one."""
    root = max(disk_gb - spec.flavor.ephemeral_gb, 0)
    return {"root_gb": root, "ephemeral_gb": disk_gb - root}


_MEMORY = _Resource(
    "memory_mb",
    "MiB",
    "MiB of memory",
    lambda missing: memory(missing, up=True) + " of memory",
    1,
    lambda spec: spec.flavor.memory_mb,
    lambda spec, available: math.floor(available) - spec.memory_overhead_mb,
    lambda fleet, row: float(fleet.total_ram_mb[row]),
    lambda spec, value: {"memory_mb": value},
)
_DISK = _Resource(
    "disk_gb",
    "GiB",
    "GiB of disk",
    lambda missing: disk(missing * 1024, up=True) + " of disk",
    1024,
    lambda spec: spec.disk_gb - spec.disk_overhead_gb,
    lambda spec, available: math.floor((available - spec.flavor.swap) / 1024) - spec.disk_overhead_gb,
    lambda fleet, row: math.inf,
    _disk_shrunk,
)
_VCPUS = _Resource(
    "vcpus",
    "vCPUs",
    "vCPUs",
    lambda missing: counted(missing, "vCPUs"),
    1,
    lambda spec: spec.flavor.vcpus,
    lambda spec, available: math.floor(available) - spec.vcpus_overhead,
    lambda fleet, row: float(fleet.vcpus_total[row]),
    lambda spec, value: {"vcpus": value},
)
_RESOURCES = {
    "RamFilter": _MEMORY,
    "AggregateRamFilter": _MEMORY,
    "DiskFilter": _DISK,
    "AggregateDiskFilter": _DISK,
    "CoreFilter": _VCPUS,
    "AggregateCoreFilter": _VCPUS,
}


def lacking(rejection: t.Mapping[str, t.Any]) -> str:
    """Return the missing amount of a resource, in words: 5 GiB of disk."""
    resource = _RESOURCES.get(rejection["filter"])
    if resource is None and rejection["unit"] == _DISK.unit:  # of a backend of volumes
        return _DISK.more(rejection["missing"])
    if resource is None:
        return counted(rejection["missing"], rejection["unit"])
    return resource.more(rejection["missing"] / resource.scale)


def smallest_change(
    fleet: Fleet,
    spec: RequestSpec,
    row: int,
    against: t.Sequence[tuple[Filter, dict[str, t.Any]]],
    filters: t.Sequence[Filter],
) -> dict[str, t.Any] | None:
    """The smallest change with which one host would have passed.

    Returns {changes: [{what, filter, unit, by, flavor_value, fits_at, free}], text}. ``by`` is how much smaller the flavor
    would have to be (``fits_at`` instead of ``flavor_value``; None if no smaller flavor helps), ``free`` how much more the
    host would have to have free (None if even an empty host is too small). A rejection without numbers is
    {what: "setting", filter, text}, given only if it is the host's sole rejection. None: no simple change suffices.

    :arg against: the filters that reject this host, each with its rejection.
    """
    host = fleet.hosts[row].host
    changes: list[dict[str, t.Any]] = []
    smaller: dict[str, int] = {}
    for filter_, rejection in against:
        resource = _RESOURCES.get(filter_.name)
        if rejection["missing"] is None:
            if len(against) > 1:
                return None
            text = _remedy(filter_, fleet, spec, row, rejection)
            return {"changes": [{"what": "setting", "filter": filter_.name, "text": text}], "text": text}
        if resource is None:
            changes.append(_of_things(filter_, rejection))
            continue
        change = _of_resource(fleet, spec, row, filter_, resource, rejection)
        if change["fits_at"] is not None:
            smaller.update(resource.shrunk(spec, change["fits_at"]))
        changes.append(change)
    changes = _strictest(changes)
    if any(c["fits_at"] is None for c in changes) or not _passes(fleet, spec, row, smaller, filters):
        for change in changes:
            change.update(by=None, fits_at=None)
    if any(c["fits_at"] is None and c["free"] is None for c in changes):
        return None
    return {"changes": changes, "text": _text(changes, host)}


def enough_for(
    fleet: Fleet,
    spec: RequestSpec,
    row: int,
    filters: t.Sequence[Filter],
    count: int,
    limits: t.Mapping[str, t.Any],
    placed: int = 0,
) -> str | None:
    """Return how much more a host would have to have free for ``count`` instances of the request, in words.

    None: no amount of memory, disk and vCPUs makes room there for all of them, or the host has not so much.

    :arg limits: limits of a claim on this host. :arg placed: instances of the request that are placed there already.
    """
    amounts = {"memory_mb": spec.memory_mb, "disk_gb": 1024 * spec.disk_gb, "vcpus": spec.vcpus}
    for of_claim, what in (("memory_mb", "memory_mb"), ("vcpu", "vcpus")):
        most = limits.get(of_claim)
        if most is not None and (placed + count) * amounts[what] > most:
            return None
    more: dict[str, int] = {}
    for filter_ in filters:
        resource = _RESOURCES.get(filter_.name)
        if resource is None or resource.total(fleet, row) <= 0:  # 0: not known
            continue
        result = filter_.evaluate(fleet, spec, np.array([row]))
        available, needed = float(at(result.available, 0)), float(at(result.needed, 0))
        missing = math.ceil((needed + (count - 1) * amounts[resource.what] - available) / resource.scale)
        if missing > more.get(resource.what, 0):
            more[resource.what] = missing
    if not more or not _hold(fleet, spec, row, filters, count, limits, more):
        return None
    return " and ".join(r.more(more[r.what]) for r in (_MEMORY, _DISK, _VCPUS) if r.what in more)


def _hold(
    fleet: Fleet,
    spec: RequestSpec,
    row: int,
    filters: t.Sequence[Filter],
    count: int,
    limits: t.Mapping[str, t.Any],
    more: t.Mapping[str, int],
) -> bool:
    """Whether all filters let ``count`` instances pass, one after the other, on the host with ``more`` free."""
    memory_mb, disk_mb, vcpus = more.get("memory_mb", 0), 1024 * more.get("disk_gb", 0), more.get("vcpus", 0)
    placed = 0
    fleet.grant(row, memory_mb, disk_mb, vcpus)
    try:
        while placed < count and all(f.passes(fleet, spec, row) for f in filters):
            fleet.consume(row, spec, limits=limits if spec.takes_dedicated else None)
            placed += 1
    except BootflowError:
        return False
    finally:
        for _instance in range(placed):
            fleet.consume(row, spec, -1)
        fleet.grant(row, -memory_mb, -disk_mb, -vcpus)
    return placed == count


def _strictest(changes: list[dict[str, t.Any]]) -> list[dict[str, t.Any]]:
    """The stricter of two filters that compare the same resource."""
    strictest: dict[str, dict[str, t.Any]] = {}
    for change in changes:
        other = strictest.get(change["what"])
        if other is None or (math.inf if change["free"] is None else change["free"]) > (other["free"] or 0):
            strictest[change["what"]] = change
    return list(strictest.values())


def _of_resource(
    fleet: Fleet, spec: RequestSpec, row: int, filter_: Filter, resource: _Resource, rejection: t.Mapping[str, t.Any]
) -> dict[str, t.Any]:
    value = resource.flavor_value(spec)
    fits_at: int | None = resource.fits_at(spec, rejection["available"])
    if fits_at is None or fits_at < 1:
        fits_at = None
    free: int | None = math.ceil(rejection["missing"] / resource.scale)
    if rejection["needed"] > resource.total(fleet, row):
        free = None
    return {
        "what": resource.what,
        "filter": filter_.name,
        "unit": resource.unit,
        "by": None if fits_at is None else value - fits_at,
        "flavor_value": value,
        "fits_at": fits_at,
        "free": free,
    }


def _of_things(filter_: Filter, rejection: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    """The change for resources without a number in the flavor: devices, instances on the host."""
    return {
        "what": rejection["unit"] or filter_.name,
        "filter": filter_.name,
        "unit": rejection["unit"],
        "by": None,
        "flavor_value": None,
        "fits_at": None,
        "free": math.ceil(rejection["missing"]),
    }


def _passes(
    fleet: Fleet, spec: RequestSpec, row: int, smaller: t.Mapping[str, t.Any], filters: t.Sequence[Filter]
) -> bool:
    changed = replace(spec, flavor=replace(spec.flavor, **smaller))
    try:
        return all(bool(np.all(f.evaluate(fleet, changed, np.array([row])).mask)) for f in filters)
    except BootflowError:
        return False


def _text(changes: t.Sequence[t.Mapping[str, t.Any]], host: str) -> str:
    resources = {r.what: r for r in (_MEMORY, _DISK, _VCPUS)}
    parts = []
    if all(c["fits_at"] is not None for c in changes):
        parts.append(
            "%s would have fitted on %s"
            % (
                " and ".join(
                    "%s instead of %d" % (counted(c["fits_at"], resources[c["what"]].words), c["flavor_value"])
                    for c in changes
                ),
                host,
            )
        )
    if all(c["free"] is not None for c in changes):
        needs = " and ".join(
            resources[c["what"]].more(c["free"]) if c["what"] in resources else counted(c["free"], c["what"])
            for c in changes
        )
        parts.append("%s more free on %s would have been enough" % (needs, host))
    return ", or ".join(parts)


def _remedy(filter_: Filter, fleet: Fleet, spec: RequestSpec, row: int, rejection: t.Mapping[str, t.Any]) -> str:
    """The setting to change, from the filter's ``remedy(fleet, spec, row)`` if it has one."""
    own = getattr(filter_, "remedy", None)
    if callable(own):
        text = own(fleet, spec, row)
        if text:
            return str(text)
    host = fleet.hosts[row]
    if isinstance(filter_, ComputeFilter):
        if host.disabled:
            return "enable host %s" % host.host
        return "bring host %s up, so that it reports" % host.host
    if filter_.name == "AvailabilityZoneFilter":
        zones = rejection["reason"].rpartition(" in ")[2]
        return "ask for zone %s, where %s is" % (zones, host.host)
    if filter_.name == "RetryFilter":
        return "boot the instance again: %s was already tried" % host.host
    return "only %s rules out %s: %s" % (filter_.name, host.host, rejection["reason"] or "the filter gave no reason")
