# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Amounts of storage: numbers of GB, or words of backends that cannot report a number. source: Cinder's utils (Queens)"""

from __future__ import annotations

import math
import typing as t

from ..errors import InvalidInput

INFINITE = "infinite"
UNKNOWN = "unknown"
WORDS = (INFINITE, UNKNOWN)
AUTO = "auto"
INITIAL_AUTO_RATIO = 20.0  # while nothing is provisioned yet

Capacity = t.Union[float, str]  # a number of GB, or one of WORDS


def capacity_of(value: t.Any, what: str = "capacity") -> Capacity:
    """A number of GB (also given as text), or ``infinite`` or ``unknown``.

    :raises InvalidInput: neither.
    """
    if isinstance(value, str) and value.strip().lower() in WORDS:
        return value.strip().lower()
    if not isinstance(value, bool):
        try:
            number = float(value)
        except (TypeError, ValueError, OverflowError):
            number = math.nan
        if math.isfinite(number):
            return value if isinstance(value, int) else number
    raise InvalidInput(reason="%s is %r" % (what, value), remedy="Set a number of GB, or one of %s." % ", ".join(WORDS))


def oversubscription_ratio(
    configured: float | str, total: Capacity | None, free: Capacity | None, provisioned: float, thin: bool
) -> float:
    """max_over_subscription_ratio as a number. ``auto``: 20 while nothing is provisioned, then 1 + provisioned / (used + 1).

    A ratio below 1.0 is accepted here; CapacityFilter rejects such a pool for thin volumes.

    :raises InvalidInput: neither a number nor ``auto``.
    """
    if not thin or isinstance(total, str) or isinstance(free, str):
        return 1.0  # unused for thick pools
    if configured == AUTO:
        if not provisioned:
            return INITIAL_AUTO_RATIO
        used = (total or 0) - (free or 0)
        return 1 + float(provisioned) / ((used + 1) or 1)  # a pool may report more free than there is
    try:
        ratio = float(configured)
    except (TypeError, ValueError, OverflowError):
        ratio = math.nan
    if not math.isfinite(ratio):
        raise InvalidInput(
            reason="max_over_subscription_ratio is %r" % (configured,), remedy="Set a number of 1.0 or more, or auto."
        )
    return ratio
