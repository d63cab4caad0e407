# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Filters and weighers of backends by Cinder's names: the second registry of the one machinery. source: row C12"""

from __future__ import annotations

from ...scheduler.registry import check_multiplier, check_names
from .base import BackendFilter, BackendWeigher
from .capacity_filter import CapacityFilter
from .filters import AvailabilityZoneFilter, CapabilitiesFilter, IgnoreAttemptedHostsFilter
from .hint_filters import DifferentBackendFilter, InstanceLocalityFilter, SameBackendFilter
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


def make_filters(options: VolumeSchedulerOptions) -> list[BackendFilter]:
    """The enabled filters in order. Raises InvalidInput for unknown names."""
    names = DEFAULT_FILTERS if options.enabled_filters is None else options.enabled_filters
    check_names("filter", names, list(FILTERS), "bootflow_volume_filters")
    return [FILTERS[name](options) for name in names]


def make_weighers(options: VolumeSchedulerOptions) -> list[BackendWeigher]:
    """The enabled weighers in order, with their multipliers. Raises InvalidInput for unknown names and bad multipliers."""
    names = DEFAULT_WEIGHERS if options.weighers is None else options.weighers
    check_names("weigher", names, list(WEIGHERS), "bootflow_volume_weighers")
    check_names("weigher", list(options.multipliers), list(WEIGHERS), "bootflow_volume_weight_multipliers")
    made = [WEIGHERS[name](options) for name in names]
    for weigher in made:
        wanted = options.multipliers.get(weigher.name, weigher.multiplier)
        weigher.multiplier = check_multiplier(weigher, wanted, "bootflow_volume_weight_multipliers")
    return made
