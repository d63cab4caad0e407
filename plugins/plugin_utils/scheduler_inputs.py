# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The scheduler's settings as options of an action, and the settings of the hosts that it chooses from.

boot_accept checks them with the request, so that a setting which is wrong is told before anything is written.
"""

from __future__ import annotations

import os
import typing as t

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.core.request.problems import Problems
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
}


def check(action: LedgerAction) -> None:
    """:raises InvalidRequest: every setting of the scheduler and of the hosts that a boot could not work with."""
    problems = Problems()
    attempts = action.options["max_attempts"]
    if not 1 <= attempts <= MOST_ATTEMPTS:
        problems.add(
            "bootflow_max_attempts",
            errors.InvalidInput(
                message="it is %d" % attempts, remedy="Give 1 to %d: a boot has so many rounds." % MOST_ATTEMPTS
            ),
        )
    for folder in action.options["filter_dirs"] or ():
        if not os.path.isdir(folder):
            problems.add(
                "bootflow_filter_dirs",
                errors.InvalidInput(
                    message="there is no folder %s" % folder, remedy="Correct the path, or make the folder."
                ),
            )
    options = scheduler_options(action, now=0.0)
    for make in (make_filters, make_weighers):
        with problems.collect("scheduler"):
            make(options, options.load_user_classes())
    host_settings.check(action.task_vars["hostvars"], action.compute_hosts(), problems)
    problems.raise_if_any()


def scheduler_options(action: LedgerAction, now: float, explain: bool = False) -> SchedulerOptions:
    o = action.options
    return SchedulerOptions(
        enabled_filters=o["enabled_filters"],
        weighers=o["weighers"],
        multipliers=o["weight_multipliers"],
        host_subset_size=o["host_subset_size"],
        max_attempts=o["max_attempts"],
        now=now,
        service_down_time=o["service_down_time"],
        default_availability_zone=o["default_availability_zone"],
        user_filter_dirs=tuple(d for d in filter_dirs(action) if os.path.isdir(d)),
        explain=explain,
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
    hostvars = action.task_vars["hostvars"]
    found = {h: host_settings.configuration(hostvars[h], h) for h in action.compute_hosts()}
    for host, settings in found.items():
        if hostvars[host].get("bootflow_availability_zone") is None:
            settings["availability_zone"] = action.options["default_availability_zone"]
    return found
