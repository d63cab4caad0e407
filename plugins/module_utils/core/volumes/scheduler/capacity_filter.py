# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""CapacityFilter: pools with enough space. source: Cinder's capacity_filter (Queens)"""

from __future__ import annotations

import typing as t

from ...amounts import disk
from ...scheduler.columns import Rows, np
from ...scheduler.filters.base import FilterResult
from ..model import VolumeRequest
from .backends import Backends
from .base import BackendFilter

# The cases in order: the first that applies to a pool decides.
_PASS = 0
_NO_REPORT = 1
_RESERVED_OF_WORD = 2
_NO_TOTAL = 3
_OVER_PROMISED = 4
_NO_VIRTUAL_SPACE = 5
_BAD_RATIO = 6
_NO_SPACE = 7


class CapacityFilter(BackendFilter):
    """Passes pools with space for the size, or for the volume's growth.

    Thin: provisioned space is at most total x ratio, and the size at most free x ratio. Reserved space is not free.
    The arithmetic is that of Queens. Later releases subtract reserved space from the total before they multiply by the
    ratio, and check provisioned space of thick pools too.
    """

    name = "CapacityFilter"
    counts_capacity = True

    def judge(self, backends: Backends, request: VolumeRequest, rows: Rows) -> FilterResult:
        size = request.requested_size
        total = backends.total_gb[rows]
        reserved_percentage = backends.reserved_percentage[rows]
        total_word = backends.total_word[rows]
        free = backends.free_gb[rows] - backends.reserved_gb[rows]
        thin = backends.thin_support[rows] & (not request.thick)
        ratio = backends.ratio[rows]
        sound = thin & (ratio >= 1)
        promised = np.divide(
            backends.provisioned_gb[rows] + size, total, out=np.full(len(rows), np.inf), where=total > 0
        )
        virtual = free * ratio
        everyone = np.ones(len(rows), dtype=bool)
        case = np.select(
            [
                everyone & (size == 0),
                backends.free_unset[rows],
                backends.free_word[rows],
                total_word & (reserved_percentage == 0),
                total_word,
                total <= 0,
                sound & (promised > ratio),
                sound & (virtual >= size),
                sound,
                thin,
                free >= size,
            ],
            [
                _PASS,
                _NO_REPORT,
                _PASS,
                _PASS,
                _RESERVED_OF_WORD,
                _NO_TOTAL,
                _OVER_PROMISED,
                _PASS,
                _NO_VIRTUAL_SPACE,
                _BAD_RATIO,
                _PASS,
            ],
            default=_NO_SPACE,
        )
        # The largest possible request: thin pools are bounded by provisioned space and by free x ratio.
        room = np.where(sound, np.minimum(total * ratio - backends.provisioned_gb[rows], virtual), free)
        unmeasured = backends.free_unset[rows] | backends.free_word[rows] | total_word
        room = np.where(unmeasured, np.nan, room)

        def text(position: int) -> str:
            row = rows[position]
            reserved = reserved_percentage[position]
            return _TEXTS[int(case[position])] % {
                "total": _gib(total[position]),
                "total_word": backends.states[row].total_capacity_gb,
                "reserved": reserved,
                "less": ", %.10g %% of it reserved" % reserved if reserved else "",
                "provisioned": _gib(backends.provisioned_gb[row]),
                "left": _gib(max(total[position] * ratio[position] - backends.provisioned_gb[row], 0.0)),
                "ratio": ratio[position],
                # Less than nothing where more is reserved than is left.
                "virtual": _gib(max(virtual[position], 0.0)),
                "free": _gib(max(free[position], 0.0)),
                "size": _gib(size, up=True),
            }

        return FilterResult(
            mask=case == _PASS, available=room, needed=_needed_in_rows(size, rows), unit="GiB", text=text
        )


def _gib(gigabytes: float, up: bool = False) -> str:
    return disk(float(gigabytes) * 1024, up)


def _needed_in_rows(size: int, rows: Rows) -> t.Any:
    return np.full(len(rows), float(size))


_TEXTS = {
    _PASS: "",
    _NO_REPORT: "disk: the backend has not reported its free space",
    _RESERVED_OF_WORD: "disk: %(reserved).10g %% of it is reserved, which cannot be calculated: the backend reports a total of %(total_word)s",
    _NO_TOTAL: "disk: needs %(size)s, the whole backend has %(total)s",
    _OVER_PROMISED: (
        "disk: needs %(size)s, %(left)s left to provision (%(provisioned)s provisioned of %(total)s, over-subscription ratio"
        " %(ratio).10g)"
    ),
    _NO_VIRTUAL_SPACE: (
        "disk: needs %(size)s, %(virtual)s usable (%(free)s free%(less)s, over-subscription ratio %(ratio).10g)"
    ),
    _BAD_RATIO: "max_over_subscription_ratio of the backend is %(ratio).10g, it must be 1.0 or more",
    _NO_SPACE: "disk: needs %(size)s, %(free)s usable%(less)s",
}
