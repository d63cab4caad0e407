# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Quotas of volumes: volumes, snapshots, gigabytes, one volume's gigabytes, and the same for each volume type.

source: Cinder's quota engine and quota_utils (Queens). A limit of -1 is unlimited.
"""

from __future__ import annotations

import typing as t

from ..errors import (
    InvalidInput,
    SnapshotLimitExceeded,
    UnexpectedOverQuota,
    VolumeLimitExceeded,
    VolumeSizeExceedsAvailableQuota,
    VolumeSizeExceedsLimit,
)
from ..reading.limits import (
    PER_VOLUME_TYPE,
    UNLIMITED,
    VOLUME_RESOURCES,
    is_volume_resource,
    limit_of_quota,
    mapping_of_quotas,
)
from ..reading.nearest import question

VOLUMES, SNAPSHOTS, GIGABYTES, PER_VOLUME_GIGABYTES = VOLUME_RESOURCES
DEFAULTS = {VOLUMES: 10, SNAPSHOTS: 10, GIGABYTES: 1000, PER_VOLUME_GIGABYTES: UNLIMITED}

Amounts = t.Mapping[str, int]


def limits_of(quotas: t.Mapping[str, t.Any] | None, project: str, type_names: t.Iterable[str] = ()) -> dict[str, int]:
    """The limits of one project from bootflow_quotas: {volumes, gigabytes_fast, ..., projects: {name: the same}}.

    core.instances.quotas reads the other keys.
    :arg type_names: the known volume types; a quota of another type is an error.
    :raises InvalidInput: not a mapping, an unknown type, or a limit that is not an integer from -1 to 2147483647.
    """
    limits = {**DEFAULTS, **{"%s_%s" % (kind, name): UNLIMITED for name in type_names for kind in PER_VOLUME_TYPE}}
    quotas = mapping_of_quotas(quotas, "the quotas")
    projects = mapping_of_quotas(quotas.get("projects"), "projects of the quotas")
    where_mine = "quotas of project %s" % project
    project_quotas = mapping_of_quotas(projects.get(project), "the " + where_mine)
    for where, source in (("quotas", quotas), (where_mine, project_quotas)):
        for name, value in source.items():
            if not is_volume_resource(name):
                continue
            if name not in limits:
                raise InvalidInput(
                    reason="%s: %s is the quota of a volume type that does not exist" % (where, name),
                    remedy="%sKnown: %s." % (question(str(name), limits), ", ".join(limits)),
                )
            limits[name] = limit_of_quota(value, where, name)
    return limits


# --- what an action takes --------------------------------------------------------------------------------------------


def for_volume(size: int, volume_type: str | None) -> dict[str, int]:
    """A new volume. Negated: a deleted one."""
    return _with_type({VOLUMES: 1, GIGABYTES: _gigabytes(size)}, volume_type)


def for_snapshot(size: int, volume_type: str | None, no_snapshot_gb_quota: bool = False) -> dict[str, int]:
    """A new snapshot of a volume of that size; its gigabytes count unless ``no_snapshot_gb_quota``."""
    amounts = {SNAPSHOTS: 1} if no_snapshot_gb_quota else {SNAPSHOTS: 1, GIGABYTES: _gigabytes(size)}
    return _with_type(amounts, volume_type)


def for_extend(size: int, new_size: int, volume_type: str | None) -> dict[str, int]:
    """A volume that grows."""
    return _with_type({GIGABYTES: _gigabytes(new_size) - _gigabytes(size)}, volume_type)


def total(amounts: t.Iterable[Amounts]) -> dict[str, int]:
    """The sum of several: the amounts of a whole request."""
    sums: dict[str, int] = {}
    for part in amounts:
        for name, amount in part.items():
            sums[name] = sums.get(name, 0) + amount
    return sums


def _gigabytes(size: t.Any) -> int:
    """:raises InvalidInput: not a whole number."""
    if isinstance(size, bool) or not isinstance(size, int):
        raise InvalidInput(reason="%s is not a size in whole GiB" % ascii(size))
    return size


def _with_type(amounts: dict[str, int], volume_type: str | None) -> dict[str, int]:
    if volume_type:
        amounts.update({"%s_%s" % (kind, volume_type): amounts[kind] for kind in PER_VOLUME_TYPE if kind in amounts})
    return amounts


# --- whether it may be taken -----------------------------------------------------------------------------------------


def check_size(size: int, limits: Amounts) -> None:
    """Check one volume's own limit, before all others. :raises VolumeSizeExceedsLimit: (413) :raises InvalidInput: not a size"""
    limit = limits.get(PER_VOLUME_GIGABYTES, UNLIMITED)
    if 0 <= limit < _gigabytes(size):
        raise VolumeSizeExceedsLimit(size=size, limit=limit)


def overs_of(amounts: Amounts, used: Amounts, limits: Amounts) -> list[str]:
    """The names of exceeded resources; a released resource is never exceeded."""
    return sorted(
        name
        for name, amount in amounts.items()
        if amount >= 0 and 0 <= limits.get(name, UNLIMITED) < amount + used.get(name, 0)
    )


def check_reserve(amounts: Amounts, used: Amounts, limits: Amounts, resource: str = VOLUMES, size: int = 0) -> None:
    """Check whether ``amounts`` may be taken.

    :arg used: used and reserved by the project.
    :arg resource: the counted resource, volumes or snapshots. :arg size: GB for the message.
    :raises VolumeSizeExceedsAvailableQuota: gigabytes, reported before the number.
    :raises VolumeLimitExceeded: :raises SnapshotLimitExceeded: the number.
    :raises UnexpectedOverQuota: another resource. All are 413.
    """
    unexpected = []
    for name in overs_of(amounts, used, limits):
        if GIGABYTES in name:
            raise VolumeSizeExceedsAvailableQuota(
                name=name, requested=size or amounts[name], consumed=used.get(name, 0), quota=limits[name]
            )
        if resource in name:
            kind = SnapshotLimitExceeded if resource == SNAPSHOTS else VolumeLimitExceeded
            raise kind(allowed=limits[name], name=name)
        unexpected.append(name)
    if unexpected:
        raise UnexpectedOverQuota(name=", ".join(unexpected))
