# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The volume scheduler's settings, in Cinder's words."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field

from ...scheduler.options import DeclaredSettings

AUTO = "auto"  # of max_over_subscription_ratio: from what the volumes really use
MOST_ATTEMPTS = 3  # the number of rounds of the playbooks


@dataclass
class VolumeSchedulerOptions(DeclaredSettings):
    """None for filters or weighers: the default ones."""

    enabled_filters: t.Sequence[str] | None = None
    weighers: t.Sequence[str] | None = None
    multipliers: t.Mapping[str, float] = field(default_factory=dict)  # weigher name -> multiplier
    max_attempts: int = 3
    max_over_subscription_ratio: float | str = 20.0  # of backends that report none; a number or auto
    now: float | None = None  # epoch seconds; None: the age of reports is ignored
    service_down_time: float = 60.0  # seconds
    explain: bool = False
    explain_failures: bool = True
    hosts: t.Collection[str] | None = None  # reachable storage hosts, the only ones that take volumes; None: all
