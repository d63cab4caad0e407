# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The scheduler's settings as options of an action, and the settings of the hosts that it chooses from.

boot_accept checks them with the request, so that wrong settings are reported before anything is written.
source: Nova's [filter_scheduler] and [metrics]
"""

from __future__ import annotations

import os
import typing as t

from ...module_utils.core import errors
from ...module_utils.core.reading.problems import Problems
from ...module_utils.core.reading.setting import PREFIX, Setting
from ...module_utils.core.request.catalogue_aggregates import aggregates_by_host, read_aggregates, zones_by_host
from ...module_utils.core.scheduler import registry
from ...module_utils.core.scheduler.aggregates import Aggregate
from ...module_utils.core.scheduler.options import SchedulerOptions
from ...module_utils.core.scheduler.registry import (
    declared,
    load_user_classes,
    make_filters,
    make_weighers,
    user_classes,
)
from ...module_utils.core.scheduler.unread_settings import unread_settings
from ...module_utils.core.settings.scheduling import FILTERS, SCHEDULER
from ..run import host_settings, host_variables
from ..run.ledger_action import LedgerAction


class Reading(t.NamedTuple):
    """Input of the scheduler: names of the filters and weighers, and the hints they read."""

    filters: tuple[str, ...]
    weighers: tuple[str, ...]
    hints: frozenset[str]


def check(action: LedgerAction, together_with: Problems | None = None) -> None:
    """Every setting of the scheduler and of the hosts that a boot could not work with.

    :arg together_with: gets them, to be raised with others.
    :raises InvalidRequest: all of them at once.
    """
    problems = Problems() if together_with is None else together_with
    for folder in action.options["filter_dirs"] or ():
        if not os.path.isdir(folder):
            problems.add(
                "bootflow_filter_dirs",
                errors.InvalidInput(
                    message="folder %s does not exist" % folder, remedy="Correct the path, or create the folder."
                ),
            )
    with problems.collect("scheduler"):
        options = scheduler_options(action, now=0.0)
        for make in (make_filters, make_weighers):
            with problems.collect("scheduler"):
                make(options, user_classes(options))
    hosts = action.compute_hosts()
    variables = variables_of_hosts(action)
    host_settings.check(variables, hosts, problems)
    host_settings.check_underlay(variables, hosts, problems)
    with problems.collect("bootflow_hosts"):
        host_settings.named_hosts(action, hosts)
    groups = action.task_vars.get("groups") or {}
    for host in action.options["isolated_hosts"]:
        if host not in variables and host not in groups:
            problems.add(
                "bootflow_isolated_hosts",
                errors.ComputeHostNotFound(host=host, remedy="Name compute hosts of the inventory, or groups of them."),
            )
    _read_aggregates(action, variables, problems)
    if together_with is None:
        problems.raise_if_any()


def check_underlay(action: LedgerAction) -> None:
    """Check the underlay addresses of all compute hosts, for what gives guests networks without choosing hosts.

    :raises InvalidRequest: two hosts have one address, or addresses have two IP versions.
    """
    problems = Problems()
    host_settings.check_underlay(variables_of_hosts(action), action.compute_hosts(), problems)
    problems.raise_if_any()


def scheduler_options(action: LedgerAction, now: float, explain: bool = False) -> SchedulerOptions:
    """:raises InvalidInput: a wrong setting of the user's own filters, or a file of theirs that cannot be loaded"""
    option_values = action.options
    settings = {setting.name: option_values[setting.name] for setting in FILTERS}
    settings["isolated_hosts"] = _hosts_of(action, option_values["isolated_hosts"])
    options = SchedulerOptions(
        enabled_filters=option_values["enabled_filters"],
        weighers=option_values["weighers"],
        multipliers=option_values["weight_multipliers"],
        host_subset_size=option_values["host_subset_size"],
        shuffle_best_same_weighed_hosts=option_values["shuffle_best_same_weighed_hosts"],
        max_attempts=option_values["max_attempts"],
        now=now,
        service_down_time=option_values["service_down_time"],
        default_availability_zone=option_values["default_availability_zone"],
        settings=settings,
        user_filter_dirs=tuple(d for d in filter_dirs(action) if os.path.isdir(d)),
        explain=explain,
    )
    for setting in declared(cls for cls, _path in user_classes(options).values()):
        settings.setdefault(setting.name, setting.read(action.variable(setting.variable)))
    return options


def settings_of_users(action: LedgerAction) -> tuple[Setting, ...]:
    """Return the settings that the user's own filters declare; none where one of their files cannot be loaded, which check() reports."""
    given = SCHEDULER.named("filter_dirs").read(action.variable("bootflow_filter_dirs"))
    try:
        classes = load_user_classes(filter_dirs(action) if given is None else given)
    except errors.InvalidInput:
        return ()
    return declared(cls for cls, _path in classes.values())


def _hosts_of(action: LedgerAction, names: t.Iterable[str]) -> tuple[str, ...]:
    """Hosts and groups as hosts, in order."""
    groups = action.task_vars.get("groups") or {}
    return tuple(dict.fromkeys(host for name in names for host in groups.get(name, (name,))))


def reading(options: SchedulerOptions) -> Reading:
    """:raises InvalidInput: unknown names of filters and weighers."""
    user = user_classes(options)
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


def has_own_filters(enabled: t.Iterable[str]) -> bool:
    """Whether filters of the user's own are among these names."""
    return not {cls.name for cls in registry.BUILTIN_FILTERS}.issuperset(enabled)


def unread(action: LedgerAction, aggregates: t.Iterable[Aggregate]) -> list[str]:
    """A sentence for each setting of filters and weighers that are not enabled."""
    options = scheduler_options(action, now=0.0)
    scheduler_reading = reading(options)
    own = {name: cls for name, (cls, _path) in user_classes(options).items()}
    filters: dict[str, type] = {cls.name: cls for cls in registry.BUILTIN_FILTERS}
    filters.update((name, cls) for name, cls in own.items() if not registry.is_weigher(cls))
    weighers: dict[str, type] = {cls.name: cls for cls in registry.BUILTIN_WEIGHERS}
    weighers.update((name, cls) for name, cls in own.items() if registry.is_weigher(cls))
    different = {id(variables): variables for variables in variables_of_hosts(action).values()}.values()
    of_hosts = {name for variables in different for name in variables}
    given = {name for name in of_hosts if name not in action.task_vars}
    for name, value in action.task_vars.items():  # without hostvars, which reads the variables of all hosts to compare
        if name.startswith(PREFIX) and value not in (None, "", [], {}):
            given.add(name)
    given |= {PREFIX + name for name, value in action._task.args.items() if value not in (None, "", [], {})}
    enabled = (*scheduler_reading.filters, *scheduler_reading.weighers)
    return unread_settings(given, options.multipliers, aggregates, filters, weighers, enabled, set(enabled) & set(own))


def filter_dirs(action: LedgerAction) -> list[str]:
    """Return the folders with filters of the user; the one next to the inventory need not be there."""
    given = action.options.get("filter_dirs")
    if given is not None:
        return list(given)
    # localhost is usually implicit and has no inventory_dir; every host has the sources.
    sources = action.task_vars.get("ansible_inventory_sources") or []
    folders = [s if os.path.isdir(s) else os.path.dirname(s) for s in sources if os.path.isabs(s)]
    return [os.path.join(folder, "bootflow_filters") for folder in dict.fromkeys(folders)]


def configurations(action: LedgerAction) -> dict[str, dict[str, t.Any]]:
    """host -> its settings as columns of the ledger, for all compute hosts of the inventory. Hosts with the same may share the object."""
    variables = variables_of_hosts(action)
    problems = Problems()
    zones = zones_by_host(_read_aggregates(action, variables, problems))
    problems.raise_if_any()
    default = action.options["default_availability_zone"]
    read: dict[tuple[int, str], dict[str, t.Any]] = {}  # once for hosts with the same variables in the same zone
    columns_by_host = {}
    for host, host_vars in variables.items():
        zone = zones.get(host, default)
        settings = read.get((id(host_vars), zone))
        if settings is None:
            settings = {"availability_zone": zone, **host_settings.configuration(host_vars, host)}
            read[id(host_vars), zone] = settings
        columns_by_host[host] = settings
    return columns_by_host


def zones(action: LedgerAction) -> frozenset[str] | None:
    """The availability zones of the compute hosts; None where a setting of theirs is wrong, which check() reports."""
    try:
        columns_by_host = configurations(action)
    except errors.InvalidRequest:
        return None
    return frozenset(z.strip() for c in columns_by_host.values() for z in str(c["availability_zone"]).split(","))


def aggregates_of(action: LedgerAction) -> dict[str, tuple[Aggregate, ...]]:
    """host -> its aggregates, for HostState.aggregates; a host that is in none is left out.

    :raises InvalidRequest: bootflow_aggregates is wrong, see check().
    """
    problems = Problems()
    aggregates = _read_aggregates(action, variables_of_hosts(action), problems)
    problems.raise_if_any()
    return aggregates_by_host(aggregates)


def variables_of_hosts(action: LedgerAction) -> dict[str, host_variables.Variables]:
    """Compute host -> its settings, see host_variables.settings_of(); read once a task."""
    variables_by_host: dict[str, host_variables.Variables] | None = action.__dict__.get("_host_variables")
    if variables_by_host is None:
        variables_by_host = action.__dict__["_host_variables"] = host_variables.settings_of(
            action.task_vars["hostvars"], action.compute_hosts()
        )
    return variables_by_host


def vars_for_filters(action: LedgerAction) -> dict[str, t.Any]:
    """Variables of the hosts, for filters of the user: read only when there are such filters."""
    if not any(os.path.isdir(d) for d in filter_dirs(action)):
        return {}
    hostvars = action.task_vars["hostvars"]
    return {host: hostvars[host] for host in action.compute_hosts()}


def _read_aggregates(
    action: LedgerAction, variables: t.Mapping[str, t.Any], problems: Problems
) -> tuple[Aggregate, ...]:
    data = action.options.get("aggregates")
    if not data:
        return ()
    distinct = {id(host_vars): host_vars for host_vars in variables.values()}
    zones = {number: host_vars.get("bootflow_availability_zone") for number, host_vars in distinct.items()}
    return read_aggregates(
        data,
        variables,
        action.task_vars.get("groups") or {},
        {h: str(zones[id(host_vars)]) for h, host_vars in variables.items() if zones[id(host_vars)] is not None},
        problems,
    )
