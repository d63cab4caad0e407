# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The scheduler's settings as options of an action, and the settings of the hosts that it chooses from.

boot_accept checks them with the request, so that a setting which is wrong is told before anything is written.
source: Nova's [filter_scheduler] and [metrics]
"""

from __future__ import annotations

import math
import os
import typing as t

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.core.reading.problems import Problems
from ansible_collections.bootflow.compute.plugins.module_utils.core.request.catalogue_aggregates import (
    aggregates_by_host,
    read_aggregates,
    zones_by_host,
)
from ansible_collections.bootflow.compute.plugins.module_utils.core.scheduler import registry
from ansible_collections.bootflow.compute.plugins.module_utils.core.scheduler.aggregates import Aggregate
from ansible_collections.bootflow.compute.plugins.module_utils.core.scheduler.placement import SchedulerOptions
from ansible_collections.bootflow.compute.plugins.module_utils.core.scheduler.registry import (
    make_filters,
    make_weighers,
)
from ansible_collections.bootflow.compute.plugins.plugin_utils import host_settings
from ansible_collections.bootflow.compute.plugins.plugin_utils.ledger_action import LedgerAction

# boot.yml has so many rounds.
MOST_ATTEMPTS = 3

SCHEDULER_ARGUMENTS: dict[str, dict[str, t.Any]] = {
    "max_attempts": {"type": "int", "variable": "bootflow_max_attempts", "fallback_default": 3},
    "service_down_time": {"type": "int", "variable": "bootflow_service_down_time", "fallback_default": 900},
    "enabled_filters": {"type": "list", "elements": "str", "variable": "bootflow_enabled_filters"},
    "weighers": {"type": "list", "elements": "str", "variable": "bootflow_weighers"},
    "weight_multipliers": {"type": "dict", "variable": "bootflow_weight_multipliers", "fallback_default": {}},
    "host_subset_size": {"type": "int", "variable": "bootflow_host_subset_size", "fallback_default": 1},
    "filter_dirs": {"type": "list", "elements": "path", "variable": "bootflow_filter_dirs"},
    "aggregates": {"type": "raw", "variable": "bootflow_aggregates", "fallback_default": []},
    "max_io_ops_per_host": {"type": "int", "variable": "bootflow_max_io_ops_per_host", "fallback_default": 8},
    "max_instances_per_host": {
        "type": "int",
        "variable": "bootflow_max_instances_per_host",
        "fallback_default": 50,
    },
    "isolated_hosts": {
        "type": "list",
        "elements": "str",
        "variable": "bootflow_isolated_hosts",
        "fallback_default": [],
    },
    "isolated_images": {
        "type": "list",
        "elements": "str",
        "variable": "bootflow_isolated_images",
        "fallback_default": [],
    },
    "restrict_isolated_hosts_to_isolated_images": {
        "type": "bool",
        "variable": "bootflow_restrict_isolated_hosts_to_isolated_images",
        "fallback_default": True,
    },
    "aggregate_image_properties_isolation_namespace": {
        "type": "str",
        "variable": "bootflow_aggregate_image_properties_isolation_namespace",
        "fallback_default": "",
    },
    "aggregate_image_properties_isolation_separator": {
        "type": "str",
        "variable": "bootflow_aggregate_image_properties_isolation_separator",
        "fallback_default": ".",
    },
    "metrics_weight_setting": {
        "type": "dict",
        "variable": "bootflow_metrics_weight_setting",
        "fallback_default": {},
    },
    "metrics_required": {"type": "bool", "variable": "bootflow_metrics_required", "fallback_default": True},
    "metrics_weight_of_unavailable": {
        "type": "float",
        "variable": "bootflow_metrics_weight_of_unavailable",
        "fallback_default": -10000.0,
    },
    "max_facts_age": {"type": "int", "variable": "bootflow_max_facts_age"},
    "lease_seconds": {"type": "int", "variable": "bootflow_lease_seconds", "fallback_default": 600},
    "consecutive_build_service_disable_threshold": {
        "type": "int",
        "variable": "bootflow_consecutive_build_service_disable_threshold",
        "fallback_default": 10,
    },
}

# option -> (the least, why)
LEAST: dict[str, tuple[int, str]] = {
    "service_down_time": (1, "seconds without a report after which a host is down"),
    "host_subset_size": (1, "the host is drawn from this many of the best"),
    "max_io_ops_per_host": (1, "a host with as many builds and moves takes no more"),
    "max_instances_per_host": (1, "a host with as many instances takes no more"),
    "max_facts_age": (1, "seconds after which a host's facts are too old"),
    "lease_seconds": (30, "seconds after which the claims of a run that died are given back"),
    "consecutive_build_service_disable_threshold": (0, "failed builds of a host; 0 does not count them"),
}


class Reading(t.NamedTuple):
    """What the scheduler looks at: names of the filters and weighers, and the hints that they read."""

    filters: tuple[str, ...]
    weighers: tuple[str, ...]
    hints: frozenset[str]


def check(action: LedgerAction) -> None:
    """:raises InvalidRequest: every setting of the scheduler and of the hosts that a boot could not work with."""
    problems = Problems()
    _check_numbers(action.options, problems)
    for folder in action.options["filter_dirs"] or ():
        if not os.path.isdir(folder):
            problems.add(
                "bootflow_filter_dirs",
                errors.InvalidInput(
                    message="there is no folder %s" % folder, remedy="Correct the path, or make the folder."
                ),
            )
    options = scheduler_options(action, now=0.0)
    options.max_facts_age = None  # it has been looked at
    for make in (make_filters, make_weighers):
        with problems.collect("scheduler"):
            make(options, options.load_user_classes())
    hosts = action.compute_hosts()
    variables = _variables(action)
    host_settings.check(variables, hosts, problems)
    groups = action.task_vars.get("groups") or {}
    for host in action.options["isolated_hosts"]:
        if host not in variables and host not in groups:
            problems.add(
                "bootflow_isolated_hosts",
                errors.ComputeHostNotFound(host=host, remedy="Name compute hosts of the inventory, or groups of them."),
            )
    _read_aggregates(action, variables, problems)
    problems.raise_if_any()


def _check_numbers(options: t.Mapping[str, t.Any], problems: Problems) -> None:
    attempts = options["max_attempts"]
    if not 1 <= attempts <= MOST_ATTEMPTS:
        problems.add(
            "bootflow_max_attempts",
            errors.InvalidInput(
                message="it is %d" % attempts, remedy="Give 1 to %d: a boot has so many rounds." % MOST_ATTEMPTS
            ),
        )
    for name, (least, why) in LEAST.items():
        value = options.get(name)
        if value is not None and value < least:
            problems.add(
                "bootflow_%s" % name,
                errors.InvalidInput(message="it is %d" % value, remedy="Give %d or more: %s." % (least, why)),
            )
    for name in ("weight_multipliers", "metrics_weight_setting"):
        for key, value in options[name].items():
            if host_settings.to_number(value) is None:
                problems.add(
                    "bootflow_%s" % name,
                    errors.InvalidInput(
                        message="that of %s is %s, which is no number" % (key, str(value)[:60]),
                        remedy="Give a number, such as 1.0 or -1.0.",
                    ),
                )
    if not math.isfinite(options["metrics_weight_of_unavailable"]):
        problems.add(
            "bootflow_metrics_weight_of_unavailable",
            errors.InvalidInput(message="it is no finite number", remedy="Give a number, such as -10000.0."),
        )


def _numbers(values: t.Mapping[str, t.Any]) -> dict[str, float]:
    """The values that are numbers; of the others check() has told."""
    found = {str(key): host_settings.to_number(value) for key, value in values.items()}
    return {key: number for key, number in found.items() if number is not None}


def scheduler_options(action: LedgerAction, now: float, explain: bool = False) -> SchedulerOptions:
    o = action.options
    return SchedulerOptions(
        enabled_filters=o["enabled_filters"],
        weighers=o["weighers"],
        multipliers=_numbers(o["weight_multipliers"]),
        host_subset_size=o["host_subset_size"],
        max_attempts=o["max_attempts"],
        now=now,
        service_down_time=o["service_down_time"],
        max_facts_age=o["max_facts_age"],
        default_availability_zone=o["default_availability_zone"],
        max_io_ops_per_host=o["max_io_ops_per_host"],
        max_instances_per_host=o["max_instances_per_host"],
        isolated_hosts=_hosts_of(action, o["isolated_hosts"]),
        isolated_images=tuple(o["isolated_images"]),
        restrict_isolated_hosts_to_isolated_images=o["restrict_isolated_hosts_to_isolated_images"],
        aggregate_image_properties_isolation_namespace=o["aggregate_image_properties_isolation_namespace"],
        aggregate_image_properties_isolation_separator=o["aggregate_image_properties_isolation_separator"],
        metrics_weight_setting=_numbers(o["metrics_weight_setting"]),
        metrics_required=o["metrics_required"],
        metrics_weight_of_unavailable=o["metrics_weight_of_unavailable"],
        user_filter_dirs=tuple(d for d in filter_dirs(action) if os.path.isdir(d)),
        explain=explain,
    )


def _hosts_of(action: LedgerAction, names: t.Iterable[str]) -> tuple[str, ...]:
    """Hosts and groups as hosts, in order."""
    groups = action.task_vars.get("groups") or {}
    return tuple(dict.fromkeys(host for name in names for host in groups.get(name, (name,))))


def reading(options: SchedulerOptions) -> Reading:
    """:raises InvalidInput: unknown names of filters and weighers."""
    user = options.load_user_classes()
    filters = make_filters(options, user)
    return Reading(
        filters=tuple(f.name for f in filters),
        weighers=tuple(w.name for w in make_weighers(options, user)),
        hints=registry.hints_read_by(filters),
    )


def reading_of(action: LedgerAction) -> Reading:
    """The same of an action; by names alone while its settings are wrong, which check() tells."""
    try:
        return reading(scheduler_options(action, now=0.0))
    except errors.InvalidInput:
        return reading_by_names(action.options["enabled_filters"], action.options["weighers"])


def reading_by_names(filters: t.Sequence[str] | None, weighers: t.Sequence[str] | None) -> Reading:
    """The same of the settings alone: the user's own filters count by name, but what they read is not known."""
    known = {cls.name: cls for cls in registry.BUILTIN_FILTERS}
    names = tuple(registry.DEFAULT_FILTERS if filters is None else filters)
    return Reading(
        filters=names,
        weighers=tuple(registry.DEFAULT_WEIGHERS if weighers is None else weighers),
        hints=registry.hints_read_by(known[n] for n in names if n in known),
    )


def filter_dirs(action: LedgerAction) -> list[str]:
    """The folders with filters of the user; the one beside the inventory need not be there."""
    given = action.options["filter_dirs"]
    if given is not None:
        return list(given)
    # localhost is usually implicit and has no inventory_dir; the sources are told to every host.
    sources = action.task_vars.get("ansible_inventory_sources") or []
    folders = [s if os.path.isdir(s) else os.path.dirname(s) for s in sources if os.path.isabs(s)]
    return [os.path.join(folder, "bootflow_filters") for folder in dict.fromkeys(folders)]


def configurations(action: LedgerAction) -> dict[str, dict[str, t.Any]]:
    """host -> its settings as columns of the ledger, for all compute hosts of the inventory."""
    variables = _variables(action)
    found = {h: host_settings.configuration(v, h) for h, v in variables.items()}
    problems = Problems()
    zones = zones_by_host(_read_aggregates(action, variables, problems))
    problems.raise_if_any()
    for host, settings in found.items():
        if variables[host].get("bootflow_availability_zone") is None:
            settings["availability_zone"] = zones.get(host, action.options["default_availability_zone"])
    return found


def aggregates_of(action: LedgerAction) -> dict[str, tuple[Aggregate, ...]]:
    """host -> its aggregates, for HostState.aggregates; a host that is in none is left out.

    :raises InvalidRequest: bootflow_aggregates is wrong, see check().
    """
    problems = Problems()
    aggregates = _read_aggregates(action, _variables(action), problems)
    problems.raise_if_any()
    return aggregates_by_host(aggregates)


def _variables(action: LedgerAction) -> dict[str, t.Any]:
    """host -> its variables. Each look into hostvars puts them together anew, so it is made once."""
    hostvars = action.task_vars["hostvars"]
    return {host: hostvars[host] for host in action.compute_hosts()}


def _read_aggregates(
    action: LedgerAction, variables: t.Mapping[str, t.Any], problems: Problems
) -> tuple[Aggregate, ...]:
    data = action.options.get("aggregates")
    if not data:
        return ()
    zones = {h: v.get("bootflow_availability_zone") for h, v in variables.items()}
    return read_aggregates(
        data,
        variables,
        action.task_vars.get("groups") or {},
        {h: str(zone) for h, zone in zones.items() if zone is not None},
        problems,
    )
