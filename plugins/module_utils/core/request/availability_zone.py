# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The zone string of a request: zone, zone:host, zone:host:node, zone::node."""

from __future__ import annotations

import typing as t

from ..errors import InvalidInput


def parse_az(
    text: t.Optional[str], default: t.Optional[str] = None
) -> tuple[t.Optional[str], t.Optional[str], t.Optional[str]]:
    """(zone, forced host, forced node); a missing part is None, a missing zone ``default``.

    source: Nova's _handle_availability_zone.

    :raises InvalidInput: more than three parts, or not a text.
    """
    parts = text.split(":") if isinstance(text, str) else [""]
    if len(parts) > 3 or not isinstance(text or "", str):
        raise InvalidInput(
            reason="Unable to parse availability_zone",
            remedy="Write zone, zone:host, zone:host:node or zone::node.",
        )
    zone, host, node = (parts + ["", ""])[:3]
    return zone or default or None, host or None, node or None
