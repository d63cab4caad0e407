# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The mark by which a host knows for what it made the folder of an instance: ``RUN:NUMBER@SECONDS`` of a move, ``build@SECONDS`` of a boot or rebuild.

A move that fails removes only what carries its mark. Once the guest has arrived, or is built, only ``@SECONDS`` is left: a ledger that was restored
from a backup may have the move or the build as unfinished, and must not remove the guest. The seconds since the epoch are the ledger's
at the beginning, so that an older pending cleanup of the host does not remove what came later.
"""

from __future__ import annotations

BUILD = "build"


def made_for(run_id: str, move_id: int, created_at: float) -> str:
    """The mark of a move. :arg created_at: seconds since the epoch"""
    return "%s:%d@%.6f" % (run_id, move_id, created_at)


def made_at(seconds: float) -> str:
    """Return the mark of a boot or a rebuild. :arg seconds: since the epoch, by the ledger"""
    return "%s@%.6f" % (BUILD, seconds)


def arrived(mark: str) -> str:
    """The mark after the guest has arrived, or is built."""
    return "@" + mark.rpartition("@")[2]


def is_arrived(mark: str) -> bool:
    """Whether the mark is that of a guest that has arrived, or is built."""
    return mark.startswith("@")


def is_complete(mark: str, has_domain: bool) -> bool:
    """Whether the guest has arrived, or is built. Older folders have no mark: there its domain tells, which a build defines last."""
    return is_arrived(mark) if mark else has_domain


def incomplete(mark: str) -> str:
    """Return the mark of an arrived guest that is being removed: all that is left of it counts as a build that did not end."""
    return BUILD + mark


def began_at(mark: str) -> float:
    """Return the time when the move of the mark began, in seconds since the epoch; 0.0 without one."""
    try:
        return float(mark.rpartition("@")[2])
    except ValueError:
        return 0.0
