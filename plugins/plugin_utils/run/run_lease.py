# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Knowledge that the tasks of a run have of its lease, without asking the ledger: since when it has never been over, and until when it lasts.

A run that stands still (its controller sleeps, is stopped, or cannot reach the ledger) loses its lease, and others take over what it had. When
it continues in the middle of a task, what that task read in the ledger before is not true any more. So hosts get nothing from it
that rests on such a reading: see LedgerAction.check_lease().
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from pathlib import Path

FILE = "lease"
# The part of a lease for which a reading holds though the lease was over: another run would have to find that out and do its work on hosts in it.
TRUSTED = 1 / 10
LEAST_TRUSTED = 30.0  # seconds, of what is true for a while only: a host may take so long to accept a connection


class RunLease:
    """The lease of this run, as its tasks' processes renew it; in a file of their common folder.

    :arg folder: see Ports.folder(). :arg seconds: the duration of the lease
    """

    def __init__(self, folder: Path, seconds: float):
        self._path = folder / FILE
        self.seconds = seconds
        self.read_at: float | None = None  # when this task last began to read the ledger

    def looked(self, at: float) -> None:
        """The ledger was read. :arg at: when that began"""
        self.read_at = at if self.read_at is None else max(at, self.read_at)

    def renewed(self, at: float) -> None:
        """The lease counts from ``at`` now. If it was over by then, it is another one: the run may have lost what it had."""
        self._path.parent.mkdir(mode=0o700, exist_ok=True)
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        with open(descriptor, "r+", encoding="ascii") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            known = _parsed(file.read())
            since, until = known or (0.0, at)
            file.seek(0)
            file.write("%r %r\n" % (at if at > until else since, max(until, at + self.seconds)))
            file.truncate()

    def remaining_seconds(self, now: float) -> float:
        """Return how many seconds the lease lasts, by this machine's clock."""
        known = self._known()
        return known[1] - now if known is not None else 0.0

    def holds(self, now: float, newly: bool = False, read_at: float | None = None) -> bool:
        """Whether what was read in the ledger is this run's still: no other run can have taken it over.

        :arg newly: it is true for a while only, whether the lease is kept or not. :arg read_at: None: when this task last read it
        """
        at = self.read_at if read_at is None else read_at
        if at is None or now - at <= max(self.seconds * TRUSTED, LEAST_TRUSTED if newly else 0.0):
            return True
        known = None if newly else self._known()
        return known is not None and known[0] <= at and now < known[1]

    def _known(self) -> tuple[float, float] | None:
        """(since when it was never over, until when it lasts)"""
        with contextlib.suppress(OSError), open(self._path, encoding="ascii") as file:
            fcntl.flock(file, fcntl.LOCK_SH)
            return _parsed(file.read())
        return None


def _parsed(text: str) -> tuple[float, float] | None:
    words = text.split()
    return (float(words[0]), float(words[1])) if len(words) == 2 else None
