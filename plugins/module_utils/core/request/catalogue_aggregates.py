# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Host aggregates of the catalogue (bootflow_aggregates), their hosts resolved against the inventory.

source: Nova's os-aggregates. A zone is the metadata key availability_zone, as in Nova.
"""

from __future__ import annotations

import math
import re
import typing as t

from ..errors import ComputeHostNotFound, InvalidInput
from ..reading.fields import Fields, entries_of
from ..reading.problems import Problems
from ..scheduler.aggregates import Aggregate

ZONE_KEY = "availability_zone"

#: keys that filters and weighers read as numbers; keys ending in _weight_multiplier are numbers too
_RATIOS = ("ram_allocation_ratio", "disk_allocation_ratio", "cpu_allocation_ratio")
_COUNTS = ("max_io_ops_per_host", "max_instances_per_host")
_MULTIPLIERS = "_weight_multiplier"

_KEY = re.compile(r"[a-zA-Z0-9_:. -]{1,255}\Z")


def read_aggregates(
    data: t.Any,
    hosts: t.Collection[str],
    groups: t.Mapping[str, t.Sequence[str]],
    host_zones: t.Mapping[str, str],
    problems: Problems,
) -> tuple[Aggregate, ...]:
    """The aggregates in their order.

    :arg data: a list of {name, hosts, metadata, availability_zone}, a mapping of them keyed by name, or None.
    :arg hosts: the compute hosts.
    :arg groups: the inventory's groups; a group in an aggregate stands for its compute hosts.
    :arg host_zones: the zones that hosts name themselves; conflicts with aggregates are reported.
    """
    known = frozenset(hosts)
    aggregates = []
    names: set[str] = set()
    for fields in entries_of("aggregates", data, problems):
        name = fields.name("name")
        if name and name in names:
            fields.wrong("name", "%r is used twice" % name, "Give each of the aggregates a unique name.")
        names.add(name)
        aggregates.append(Aggregate(name=name, hosts=_hosts(fields, known, groups), metadata=_metadata(fields)))
        fields.unknown()
    _check_zones(aggregates, host_zones, problems)
    return tuple(aggregates)


def aggregates_by_host(aggregates: t.Iterable[Aggregate]) -> dict[str, tuple[Aggregate, ...]]:
    """host -> its aggregates in order, for hosts in aggregates."""
    aggregates_of: dict[str, list[Aggregate]] = {}
    for aggregate in aggregates:
        for host in aggregate.hosts:
            aggregates_of.setdefault(host, []).append(aggregate)
    return {host: tuple(of_host) for host, of_host in aggregates_of.items()}


def zones_by_host(aggregates: t.Iterable[Aggregate]) -> dict[str, str]:
    """host -> the zone of its aggregates, if they have one."""
    return {
        host: aggregate.metadata[ZONE_KEY]
        for aggregate in aggregates
        if ZONE_KEY in aggregate.metadata
        for host in aggregate.hosts
    }


def _hosts(fields: Fields, known: frozenset[str], groups: t.Mapping[str, t.Sequence[str]]) -> frozenset[str]:
    names: set[str] = set()
    for index, requested in enumerate(fields.items("hosts")):
        name = str(requested)
        if isinstance(requested, str) and name in groups:
            names.update(host for host in groups[name] if host in known)
        elif isinstance(requested, str) and name in known:
            names.add(name)
        else:
            fields.problems.add(
                "%s[%d]" % (fields.at("hosts"), index),
                ComputeHostNotFound(
                    host=name, remedy="Name compute hosts of the inventory, or groups that have such hosts."
                ),
            )
    return frozenset(names)


def _metadata(fields: Fields) -> dict[str, str]:
    metadata: dict[str, str] = {}
    for key, value in fields.mapping("metadata").items():
        if value is None:
            continue
        if not _KEY.match(key):
            fields.wrong("metadata", "key %r must have 1 to 255 letters, digits, blanks and -_:. only" % key)
        elif not isinstance(value, (str, int, float)):
            fields.wrong("metadata", "%s must be a text, a number or a boolean" % key)
        elif len(str(value)) > 255:
            fields.wrong("metadata", "%s must have at most 255 characters" % key)
        else:
            metadata[key] = str(value)
            wanted = _number_wanted(key, metadata[key])
            if wanted:
                fields.wrong("metadata", "%s must be %s, not %s" % (key, wanted, metadata[key]))
    zone = fields.name("availability_zone", "")
    if zone and metadata.setdefault(ZONE_KEY, zone) != zone:
        fields.wrong(
            "availability_zone", "is %s, but its metadata say %s" % (zone, metadata[ZONE_KEY]), "Give it once."
        )
    zone = metadata.get(ZONE_KEY, zone)
    if ":" in zone:
        fields.wrong("availability_zone", "must not have : in it: it separates zone, host and node in a request")
    return metadata


def _number_wanted(key: str, value: str) -> str:
    """Return the form that an invalid value should have; "" if it is valid. Nova checks this only in each filter."""
    ratio, count = key in _RATIOS, key in _COUNTS
    if not (ratio or count or key.endswith(_MULTIPLIERS)):
        return ""
    try:
        number = float(int(value) if count else float(value))
    except (ValueError, OverflowError):
        number = math.nan
    if ratio:
        return "" if 0 < number < math.inf else "a number above 0"
    if count:
        return "" if 0 <= number < math.inf else "a whole number from 0 up"
    return "" if math.isfinite(number) else "a number"


def _check_zones(aggregates: t.Sequence[Aggregate], host_zones: t.Mapping[str, str], problems: Problems) -> None:
    """A host is in one zone (Nova rejects adding it to an aggregate of another zone)."""
    first: dict[str, Aggregate] = {}
    for aggregate in aggregates:
        zone = aggregate.metadata.get(ZONE_KEY)
        if zone is None:
            continue
        for host in sorted(aggregate.hosts):
            other = first.setdefault(host, aggregate)
            if other.metadata[ZONE_KEY] != zone:
                problems.add(
                    "aggregates[%s]" % aggregate.name,
                    InvalidInput(
                        message="Host %s is in zone %s by this aggregate and in zone %s by aggregate %s"
                        % (host, zone, other.metadata[ZONE_KEY], other.name),
                        remedy="Take the host, or the zone, out of one of the two.",
                    ),
                )
            elif other is aggregate and host_zones.get(host) not in (None, "", zone):
                problems.add(
                    "aggregates[%s]" % aggregate.name,
                    InvalidInput(
                        message="Host %s is in zone %s by this aggregate, but its bootflow_availability_zone is %s"
                        % (host, zone, host_zones[host]),
                        remedy="Take the variable away from the host, or the host out of the aggregate.",
                    ),
                )
