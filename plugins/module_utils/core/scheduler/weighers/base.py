# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The base of weighers: a weigher gives one raw number per host; weighing normalises, multiplies and adds."""

from __future__ import annotations

import abc
import enum
import typing as t

from ...amounts import counted
from ...reading.setting import Setting
from ..columns import Column, Fleet, Rows, np
from ..host_state import declared_needs
from ..memberships import aggregate_groups
from ..options import SchedulerOptions
from ..request_spec import RequestSpec


class Changes(enum.Enum):
    """The hosts whose raw numbers may change when an instance is placed."""

    NONE = 0
    PICKED = 1
    ALL = 2


class Weigher(abc.ABC):
    """Base of the weighers.

    ``unit``: of the raw numbers, in the plural. ``minval`` and ``maxval``: the ends of the scale, if fixed. ``per_host``: the number of a host
    depends on that host alone; after a pick only that host is weighed again.
    ``multiplier``: the configured one; ``least_multiplier``: its minimum. ``aggregate_key``: the metadata
    key of aggregates that replaces it for their hosts. ``negated``: the number counts against the host.
    ``settings``: the variables it reads, as attributes of ``conf``. ``host_settings``: variables of a host that it reads, without their prefix, and
    otherwise only some filters. ``needs_*``: the fields of HostState that the ledger fills in.
    """

    name = ""
    unit = ""
    multiplier = 1.0
    least_multiplier: float | None = None
    aggregate_key = ""
    negated = False
    minval: float | None = None
    maxval: float | None = None
    per_host = True
    settings: tuple[Setting, ...] = ()
    host_settings: tuple[str, ...] = ()
    needs_instances = False
    needs_numa = False
    needs_pci = False
    needs_metrics = False

    def __init__(self, options: SchedulerOptions):
        self.options = options
        self.conf = options.values_of(self.settings)

    def needs(self, spec: RequestSpec) -> frozenset[str]:
        """Return the data that the ledger has to read of hosts for this request, of host_state.NEEDS."""
        return declared_needs(self)

    @abc.abstractmethod
    def raw(self, fleet: Fleet, spec: RequestSpec, rows: Rows) -> Column:
        """float64, one for each of ``rows`` (or one, where it is a number). More is better."""

    def amount(self, raw: float) -> str:
        """A raw number in words."""
        return counted(raw, self.unit) if self.unit else "%.10g" % raw

    def changes(self, fleet: Fleet, spec: RequestSpec) -> Changes:
        return Changes.PICKED if self.per_host else Changes.ALL

    def multipliers(self, fleet: Fleet, rows: Rows) -> t.Any:
        """The multipliers of the normalised numbers: one for each of ``rows``, or one number for all.

        The least value of a host's aggregates; the configured one if they have none, or a value that is not a number.
        """
        sign = -1.0 if self.negated else 1.0
        configured = float(self.multiplier)
        if self.aggregate_key:
            groups = aggregate_groups(fleet)
            least = [membership.minimum(self.aggregate_key) for membership in groups.values]
            if any(number is not None for number in least):
                numbers = np.array([configured if n is None else n for n in least], dtype=np.float64)
                return sign * numbers[groups.codes[rows]]
        return sign * configured
