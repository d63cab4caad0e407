# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The bases of filters and weighers of backends.

They are filters and weighers of hosts that read Backends and a VolumeRequest instead of a Fleet and a RequestSpec.
"""

from __future__ import annotations

import abc
import typing as t

from ...scheduler.columns import Column, Rows
from ...scheduler.filters.base import Filter, FilterResult
from ...scheduler.weighers.base import Weigher
from ..model import VolumeRequest
from .backends import Backends


class BackendFilter(Filter):
    """A filter with judge() in place of evaluate(); ``rows`` is always an array."""

    def __init__(self, options: t.Any):
        super().__init__(options)

    def evaluate(self, fleet: t.Any, spec: t.Any, rows: Rows) -> FilterResult:
        return self.judge(fleet, spec, rows)

    @abc.abstractmethod
    def judge(self, backends: Backends, request: VolumeRequest, rows: Rows) -> FilterResult:
        """Return the ``rows`` that pass, and the numbers that were compared."""


class BackendWeigher(Weigher):
    """A weigher with weigh() in place of raw(); ``rows`` is always an array."""

    def __init__(self, options: t.Any):
        super().__init__(options)

    def raw(self, fleet: t.Any, spec: t.Any, rows: Rows) -> Column:
        return self.weigh(fleet, spec, rows)

    @abc.abstractmethod
    def weigh(self, backends: Backends, request: VolumeRequest, rows: Rows) -> Column:
        """float64, one for each of ``rows``. More is better."""
