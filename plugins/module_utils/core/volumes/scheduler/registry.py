# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Filters and weighers of backends by Cinder's names.

Not included: DriverFilter and GoodnessWeigher (they need a driver's functions), JsonFilter and ChanceWeigher.
"""

from __future__ import annotations

import typing as t

from ...errors import InvalidInput
from ...scheduler.registry import check_multiplier, check_names
from .base import BackendFilter, BackendWeigher
from .capacity_filter import CapacityFilter
from .filters import (
    AvailabilityZoneFilter,
    CapabilitiesFilter,
    DifferentBackendFilter,
    IgnoreAttemptedHostsFilter,
    InstanceLocalityFilter,
    SameBackendFilter,
)
from .options import VolumeSchedulerOptions
from .weighers import AllocatedCapacityWeigher, CapacityWeigher, VolumeNumberWeigher

FILTERS: dict[str, type[BackendFilter]] = {
    cls.name: cls
    for cls in (
        AvailabilityZoneFilter,
        CapacityFilter,
        CapabilitiesFilter,
        DifferentBackendFilter,
        SameBackendFilter,
        InstanceLocalityFilter,
        IgnoreAttemptedHostsFilter,
    )
}
WEIGHERS: dict[str, type[BackendWeigher]] = {
    cls.name: cls for cls in (CapacityWeigher, AllocatedCapacityWeigher, VolumeNumberWeigher)
}
DEFAULT_FILTERS = (AvailabilityZoneFilter.name, CapacityFilter.name, CapabilitiesFilter.name)
DEFAULT_WEIGHERS = (CapacityWeigher.name,)
#: hint -> the filter that reads it
FILTER_OF_HINT = {hint: cls.name for cls in FILTERS.values() for hint in cls.hints}


def make_filters(options: VolumeSchedulerOptions) -> list[BackendFilter]:
    """The enabled filters in order. Raises InvalidInput for unknown names."""
    names = _list(
        DEFAULT_FILTERS if options.enabled_filters is None else options.enabled_filters, "bootflow_volume_filters"
    )
    check_names("filter", names, list(FILTERS), "bootflow_volume_filters")
    return [FILTERS[name](options) for name in names]


def make_weighers(options: VolumeSchedulerOptions) -> list[BackendWeigher]:
    """The enabled weighers in order, with their multipliers. Raises InvalidInput for unknown names and bad multipliers."""
    names = _list(DEFAULT_WEIGHERS if options.weighers is None else options.weighers, "bootflow_volume_weighers")
    if not isinstance(options.multipliers, t.Mapping):
        raise InvalidInput(reason="bootflow_volume_weight_multipliers must be a mapping: weigher -> number")
    check_names("weigher", names, list(WEIGHERS), "bootflow_volume_weighers")
    check_names(
        "weigher",
        _list(list(options.multipliers), "bootflow_volume_weight_multipliers"),
        list(WEIGHERS),
        "bootflow_volume_weight_multipliers",
    )
    made = [WEIGHERS[name](options) for name in names]
    for weigher in made:
        wanted = options.multipliers.get(weigher.name, weigher.multiplier)
        weigher.multiplier = check_multiplier(weigher, wanted, "bootflow_volume_weight_multipliers")
    return made


def _list(names: t.Any, setting: str) -> list[str]:
    if not isinstance(names, (list, tuple)) or not all(isinstance(name, str) for name in names):
        raise InvalidInput(reason="%s must be a list of names" % setting)
    return list(names)
