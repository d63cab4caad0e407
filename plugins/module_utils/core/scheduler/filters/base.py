# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a filter is.

A filter is a class with a ``name``. It is made once per request with the SchedulerOptions and asked with
``evaluate(fleet, spec, rows)`` about the hosts that passed the filters before it (or about one of them, where ``rows``
is a number). Mask and explanation come from the same arrays, so they can not disagree.
"""

from __future__ import annotations

import abc
import typing as t
from dataclasses import dataclass

from ...reading.setting import Setting
from ..columns import Column, Fleet, Rows
from ..options import SchedulerOptions
from ..request_spec import RequestSpec


@dataclass
class FilterResult:
    """One filter's answer; arrays are as long as the ``rows`` asked about."""

    mask: Column  # True: passes
    available: Column = None  # number that was compared, where there is one
    needed: Column = None  # number that it was compared with
    unit: str = ""
    text: t.Callable[[int], str] | None = None  # position among the rows -> why that host was turned down


class Filter(abc.ABC):
    """Base of the filters.

    ``run_once_per_request``: the answer can not change between the instances of a request.
    ``per_host``: what it says of a host depends on that host alone, so that after a pick only that host is asked again.
    ``settings``: variables that it reads, as attributes of ``conf``.
    ``hints``: the scheduler hints that it reads. ``needs_*``: what the ledger has to fill in of HostState for it.
    """

    name = ""
    hints: tuple[str, ...] = ()
    needs_instances = False
    needs_numa = False
    needs_pci = False
    needs_metrics = False
    run_once_per_request = False
    per_host = True
    settings: tuple[Setting, ...] = ()
    counts_capacity = False  # compares a need with what is left: its shortfalls are what "nearest miss" weighs up

    def __init__(self, options: SchedulerOptions):
        self.options = options
        self.conf = options.of(self.settings)

    def concerns(self, spec: RequestSpec) -> bool:
        """Whether the filter has anything to say to such a request; where not, it passes every host and is not asked again."""
        return True

    @abc.abstractmethod
    def evaluate(self, fleet: Fleet, spec: RequestSpec, rows: Rows) -> FilterResult:
        """Which of ``rows`` pass, and the numbers that were compared."""

    def passes(self, fleet: Fleet, spec: RequestSpec, row: int) -> bool:
        """evaluate() for one host, by filters that are asked after every pick without making what only people read."""
        return bool(self.evaluate(fleet, spec, row).mask)

    def limits(self, fleet: Fleet, row: int) -> dict[str, t.Any]:
        """What this filter wants the claim to hold on to, as plain JSON."""
        return {}
