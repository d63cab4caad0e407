# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""CapacityWeigher, AllocatedCapacityWeigher and VolumeNumberWeigher. source: Cinder (Queens)"""

from __future__ import annotations

from ...amounts import disk
from ...scheduler.columns import Column, Rows, np
from ..model import VolumeRequest
from .backends import Backends
from .base import BackendWeigher

# The value of a word when stacking: this much beyond the largest number.
_SPREAD_TIMES = 100.0
_LEAST_OFFSET = 10000.0


def _gib(gigabytes: float) -> str:
    return disk(gigabytes * 1024)


class CapacityWeigher(BackendWeigher):
    """More free space is better, virtual space if the volume may be thin. A negative multiplier stacks.

    Backends without numbers come last: -1 when spreading, else beyond all others. Without any number all weigh the
    same (Cinder raises a ValueError then when stacking). The arithmetic is that of Queens: see CapacityFilter.
    """

    name = "CapacityWeigher"
    multiplier = 1.0
    per_host = False  # the value of a word depends on the other backends

    _of_words: float | None = None  # the raw number of backends that report no number

    def amount(self, raw: float) -> str:
        return "no number of GiB reported" if raw == self._of_words else _gib(raw) + " allocatable"

    def weigh(self, backends: Backends, request: VolumeRequest, rows: Rows) -> Column:
        total = backends.total_gb[rows]
        virtual = total * backends.ratio[rows] - backends.provisioned_gb[rows]
        thin = backends.thin_support[rows] & (not request.thick)
        free = np.where(thin, virtual, backends.free_gb[rows]) - backends.reserved_gb[rows]
        words = backends.free_word[rows] | backends.total_word[rows] | backends.free_unset[rows]
        self._of_words = None
        if not words.any():
            return free
        if self.multiplier > 0:
            self._of_words = -1.0
            return np.where(words, -1.0, free)
        numbers = free[~words]
        if not len(numbers):
            self._of_words = 0.0
            return np.zeros(len(free))
        high = numbers.max()
        offset = (high - numbers.min()) * _SPREAD_TIMES
        self._of_words = float(high + (offset or _LEAST_OFFSET))
        return np.where(words, self._of_words, free)


class AllocatedCapacityWeigher(BackendWeigher):
    """The least allocated first; a positive multiplier stacks."""

    name = "AllocatedCapacityWeigher"
    multiplier = -1.0

    def amount(self, raw: float) -> str:
        return _gib(raw) + " allocated"

    def weigh(self, backends: Backends, request: VolumeRequest, rows: Rows) -> Column:
        return backends.allocated_gb[rows]


class VolumeNumberWeigher(BackendWeigher):
    """The fewest volumes first; a positive multiplier stacks."""

    name = "VolumeNumberWeigher"
    unit = "volumes"
    multiplier = -1.0

    def weigh(self, backends: Backends, request: VolumeRequest, rows: Rows) -> Column:
        return backends.volume_count[rows]
