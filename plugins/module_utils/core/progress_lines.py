# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Lines about work that takes minutes, for people, and the moments at which they are due."""

from __future__ import annotations

import re

STEP = 10  # per cent
AT_LEAST = 60.0  # seconds between two lines about work that did not gain another STEP
_LINE = re.compile(r"(?P<subject>\S.*?): (?P<percent>\d{1,3}) % after \d+ s( \(left: .*\))?\Z")


def progress_line(subject: str, percent: int, seconds: float, remaining: str = "", rate: float = 0.0) -> str:
    """Return "SUBJECT: 40 % after 12 s (left: 300 of 500 MiB, 25.0 MiB/s)".

    :arg seconds: since the work began. :arg remaining: the rest, for people; "": unknown. :arg rate: bytes a second; 0: unknown
    """
    speed = "%.1f MiB/s" % (rate / 1024**2) if rate > 0 else ""
    rest = ", ".join(filter(None, (remaining, speed))) if remaining else ""
    return "%s: %d %% after %d s%s" % (subject, percent, seconds, rest and " (left: %s)" % rest)


def parse_progress_line(text: str) -> tuple[str, int] | None:
    """Return the subject and per cent of a line of progress_line(); None of any other text."""
    match = _LINE.match(text)
    return (match["subject"], int(match["percent"])) if match else None


class Pace:
    """Decides when the next line about a piece of work is due: at each STEP, and at least once in AT_LEAST seconds."""

    def __init__(self) -> None:
        self._step = -1
        self._at = 0.0

    def is_due(self, percent: int, now: float) -> bool:
        """Whether a line is due, which is printed then. :arg now: in seconds"""
        if percent // STEP <= self._step and now < self._at + AT_LEAST:
            return False
        self._step, self._at = max(self._step, percent // STEP), now
        return True


class Speed:
    """Calculates bytes a second between two lines."""

    def __init__(self) -> None:
        self._last: tuple[float, float] | None = None

    def since_last(self, done: float, now: float) -> float:
        """Return the bytes a second since the last call; 0: there was none. :arg done: bytes until now. :arg now: in seconds"""
        last, self._last = self._last, (done, now)
        if last is None or now <= last[1] or done < last[0]:
            return 0.0
        return (done - last[0]) / (now - last[1])
