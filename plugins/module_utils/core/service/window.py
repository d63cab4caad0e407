# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The window of a rolling service: whether another host may begin."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Window:
    """A window of time. ``ends_at``: seconds since the epoch, None without an end; ``expected``: seconds that a host is expected to take."""

    ends_at: float | None
    expected: float

    @classmethod
    def begin(cls, now: float, seconds: float, expected: float, longest: float) -> Window:
        """Return a window that begins now.

        :arg seconds: its length, 0 for no end. :arg expected: of the settings, in seconds. :arg longest: what the hosts of this service took at most
            until now, in seconds: if it is more, the next ones are expected to take it, too.
        """
        return cls(now + seconds if seconds else None, max(expected, longest))

    def has_room(self, now: float) -> bool:
        """Return whether a host that begins now is expected to be done before the window ends."""
        return self.ends_at is None or now + self.expected <= self.ends_at
