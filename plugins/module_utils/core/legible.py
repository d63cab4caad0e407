# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Text of others, as a terminal may show it and a database may store it."""

from __future__ import annotations

import re

# Controls but tab and newline, marks and overrides of direction, halves of surrogate pairs.
_UNSEEN = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def legible(text: str) -> str:
    """The text with what would not be seen, or would change how the rest is seen, as escapes."""
    return _UNSEEN.sub(lambda match: ascii(match.group())[1:-1], text)
