# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Variables of scheduling: the scheduler's own, and the variables that its filters and weighers declare."""

from __future__ import annotations

from ..reading.setting import ENTRIES, NUMBERS, PATHS, Setting, Table
from ..scheduler.registry import BUILTIN_FILTERS, BUILTIN_WEIGHERS, declared
from .run import RUN

MOST_ATTEMPTS = 3  # the number of rounds in boot.yml

FILTERS = Table(declared((*BUILTIN_FILTERS, *BUILTIN_WEIGHERS)))

SCHEDULER = Table(
    (
        Setting(
            "max_attempts",
            int,
            3,
            "How many hosts a build or a live migration may be tried on.",
            least=1,
            most=MOST_ATTEMPTS,
        ),
        Setting(
            "enabled_filters",
            list,
            help="Filters in order, Nova's names.",
            default_text="see [scheduler.md](scheduler.md)",
        ),
        Setting("weighers", list, help="Weighers, Nova's names.", default_text="see [scheduler.md](scheduler.md)"),
        Setting("weight_multipliers", NUMBERS, {}, "Multipliers of weighers that differ from the default."),
        Setting("host_subset_size", int, 1, "Number of best hosts from which the host is chosen at random.", least=1),
        Setting(
            "shuffle_best_same_weighed_hosts",
            bool,
            False,
            "The hosts that weigh as much as the best one are in a random order, so that runs at the same time choose others.",
        ),
        Setting(
            "allow_resize_to_same_host",
            bool,
            False,
            "A resize may choose the instance's own host, which then needs room for both flavors. A single compute host needs it.",
        ),
        Setting(
            "filter_dirs",
            PATHS,
            help="Folders with filters of your own (`*.py`).",
            default_text="`bootflow_filters` next to the inventory",
        ),
        Setting(
            "aggregates",
            ENTRIES,
            (),
            "Host aggregates: `name`, `hosts` (compute hosts, or groups of the inventory), `metadata`, `availability_zone`.",
        ),
        *FILTERS,
        *(RUN.named(n) for n in ("service_down_time", "lease_seconds", "consecutive_build_service_disable_threshold")),
    )
)
