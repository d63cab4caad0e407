# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The networks and bridges that domains of this host use."""

from __future__ import annotations

import typing as t

from ....core.guest.domain.element import parse
from ..domains import definitions


def used_by_domains(connection: t.Any) -> set[str]:
    """Return the names of the networks and bridges of all domains, running and defined."""
    names: set[str] = set()
    for definition in definitions(connection):
        for source in parse(definition).iterfind(".//interface/source"):
            names.update(source.get(name) for name in ("network", "bridge") if source.get(name))
    return names
