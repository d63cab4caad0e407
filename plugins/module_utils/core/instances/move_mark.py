# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The mark by which a host knows for which move it made the folder of an instance: ``RUN:NUMBER@SECONDS``.

A move that fails removes only what carries its mark. Once the guest has arrived only ``@SECONDS`` is left: a ledger that was restored from a
backup may believe that the move still goes on, and must not remove the guest. The seconds since the epoch are those of the ledger at the
beginning of the move, so that an older pending cleanup of the host does not remove what came later. What a boot or a rebuild made has them, too.
"""

from __future__ import annotations


def made_for(run_id: str, move_id: int, created_at: float) -> str:
    """The mark of a move. :arg created_at: seconds since the epoch"""
    return "%s:%d@%.6f" % (run_id, move_id, created_at)


def made_at(seconds: float) -> str:
    """The mark of a boot or a rebuild, which is no move. :arg seconds: since the epoch, by the ledger"""
    return "@%.6f" % seconds


def arrived(mark: str) -> str:
    """The mark after the guest has arrived."""
    return "@" + mark.rpartition("@")[2]


def is_arrived(mark: str) -> bool:
    """Whether the mark is that of a guest that has arrived."""
    return mark.startswith("@")


def began_at(mark: str) -> float:
    """When the move of the mark began, in seconds since the epoch; 0.0 without one."""
    try:
        return float(mark.rpartition("@")[2])
    except ValueError:
        return 0.0
