# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The scheduler's settings. Filters and weighers declare their own (``settings``).

source: Nova's [scheduler], [filter_scheduler] and [metrics]
"""

from __future__ import annotations

import random
import typing as t
from dataclasses import dataclass, field

from ..reading.setting import Setting, Values


@dataclass
class DeclaredSettings:
    """Values of settings that filters and weighers of any scheduler declare."""

    settings: t.Mapping[str, t.Any] = field(default_factory=dict)  # a missing one has its declared default

    def values_of(self, declared: t.Iterable[Setting]) -> Values:
        """The values of declared settings. :raises InvalidInput: a wrong value"""
        if not declared:
            return Values((), {})
        values = Values(declared, {s.variable: self.settings.get(s.name) for s in declared})
        for setting in declared:
            getattr(values, setting.name)
        return values


@dataclass
class SchedulerOptions(DeclaredSettings):
    """None for filters or weighers: the default ones, then all in the user's folders."""

    enabled_filters: t.Sequence[str] | None = None
    weighers: t.Sequence[str] | None = None
    multipliers: t.Mapping[str, float] = field(default_factory=dict)  # weigher name -> multiplier
    host_subset_size: int = 1  # the host is chosen at random from this many of the best; below 1 counts as 1
    shuffle_best_same_weighed_hosts: bool = False  # hosts that weigh as much as the best one are in a random order
    max_attempts: int = 3  # one host and max_attempts - 1 alternates
    now: float | None = None  # epoch seconds; None: the age of reports is ignored
    service_down_time: float = 60.0  # seconds
    default_availability_zone: str = "nova"
    settings: t.Mapping[str, t.Any] = field(
        default_factory=dict
    )  # of filters and weighers; else their declared defaults
    rng: random.Random | None = None  # None: seeded by the request, so that the same request gets the same choice
    user_filter_dirs: t.Sequence[str] = ()
    explain: bool = False  # every decision
    explain_most: int | None = None  # of a request, so many of them
    explain_failures: bool = False  # only what has no host, in the message of NoValidHost
    user_classes: dict[str, tuple[type, str]] | None = field(default=None, repr=False)  # see registry.user_classes()
