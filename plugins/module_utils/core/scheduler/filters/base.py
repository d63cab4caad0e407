# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The base of filters.

A filter is a class with a ``name``. It is made once per request with the SchedulerOptions and asked with
``evaluate(fleet, spec, rows)`` about the hosts that passed the filters before it (or one of them, if ``rows``
is a number). Mask and explanation come from the same arrays, so they cannot disagree.
"""

from __future__ import annotations

import abc
import typing as t
from dataclasses import dataclass

from ...reading.setting import Setting
from ..columns import Column, Fleet, Rows
from ..host_state import declared_needs
from ..options import SchedulerOptions
from ..request_spec import RequestSpec


@dataclass
class FilterResult:
    """One filter's answer; its arrays are as long as ``rows``."""

    mask: Column  # True: passes
    available: Column = None  # the number compared, if there is one
    needed: Column = None  # the number it was compared with
    unit: str = ""
    text: t.Callable[[int], str] | None = None  # position among the rows -> why that host was rejected


class Filter(abc.ABC):
    """Base of the filters.

    ``run_once_per_request``: the answer is the same for all instances of a request.
    ``run_on_rebuild``: it is asked too whether an instance may get another image where it is (Nova's RUN_ON_REBUILD).
    ``binds_forced``: it is asked about a forced host too, where no build succeeds that it refuses.
    ``per_host``: the answer for a host depends on that host alone; after a pick only that host is asked again.
    ``settings``: the variables it reads, as attributes of ``conf``.
    ``host_settings``: variables of a host that only it and its kin read, without their prefix. ``aggregate_keys``: likewise, the metadata of aggregates.
    ``hints``: the scheduler hints it reads. ``needs_*``: the fields of HostState that the ledger has to fill in for it; for a
    filter with hints only if the request has one of them.
    """

    name = ""
    hints: tuple[str, ...] = ()
    needs_instances = False
    needs_numa = False
    needs_pci = False
    needs_metrics = False
    needs_networks = False
    run_once_per_request = False
    run_on_rebuild = False
    binds_forced = False
    per_host = True
    settings: tuple[Setting, ...] = ()
    host_settings: tuple[str, ...] = ()
    aggregate_keys: tuple[str, ...] = ()
    counts_capacity = False  # compares a need with free capacity; "nearest miss" compares its shortfalls

    def __init__(self, options: SchedulerOptions):
        self.options = options
        self.conf = options.values_of(self.settings)

    def concerns(self, spec: RequestSpec) -> bool:
        """Whether the filter applies to the request; otherwise it passes every host and is not asked again."""
        return True

    def needs(self, spec: RequestSpec) -> frozenset[str]:
        """Return the data that the ledger has to read of hosts for this request, of host_state.NEEDS."""
        asked = any(h in spec.scheduler_hints for h in self.hints) if self.hints else self.concerns(spec)
        return declared_needs(self) if asked else frozenset()

    @abc.abstractmethod
    def evaluate(self, fleet: Fleet, spec: RequestSpec, rows: Rows) -> FilterResult:
        """Return the ``rows`` that pass, and the numbers that were compared."""

    def passes(self, fleet: Fleet, spec: RequestSpec, row: int) -> bool:
        """evaluate() for one host without explanation; filters asked after every pick override it."""
        return bool(self.evaluate(fleet, spec, row).mask)

    def limits(self, fleet: Fleet, row: int) -> dict[str, t.Any]:
        """The limits that the claim has to respect, as plain JSON."""
        return {}

    def limits_each(self, fleet: Fleet, rows: t.Sequence[int]) -> list[dict[str, t.Any]]:
        """The same of each of these hosts; filters whose limits are numbers calculate them at once."""
        return [self.limits(fleet, row) for row in rows]
