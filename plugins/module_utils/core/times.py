# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Moments and durations as people and playbooks read them; the ledger counts seconds since the epoch."""

from __future__ import annotations

import datetime

_UNITS = ((86400, "d"), (3600, "h"), (60, "min"))


def utc(seconds: float | None, precise: bool = False) -> str | None:
    """ISO 8601 in UTC, as Nova prints times. :arg precise: with milliseconds"""
    if seconds is None:
        return None
    moment = datetime.datetime.fromtimestamp(seconds, datetime.timezone.utc)
    return moment.isoformat(timespec="milliseconds" if precise else "seconds").replace("+00:00", "Z")


def duration(seconds: float) -> str:
    """Return seconds in the largest unit that gives two or more: 119 s, 2 min, 47 h, 2 d."""
    for size, unit in _UNITS:
        if seconds >= 2 * size:
            return "%d %s" % (seconds // size, unit)
    return "%d s" % max(seconds, 0)
