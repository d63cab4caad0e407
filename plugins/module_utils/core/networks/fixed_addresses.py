# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Requested addresses of a port, compared with the addresses that it has."""

from __future__ import annotations

import typing as t


class FixedAddress(t.NamedTuple):
    """``subnet``: its id; None: any. ``address``: in its short form; None: the next free one."""

    subnet: str | None
    address: str | None


def match_addresses(
    wanted: t.Sequence[FixedAddress], has: t.Sequence[tuple[str, str]]
) -> tuple[list[FixedAddress], list[tuple[str, str]]]:
    """Return the wanted addresses that are missing, and the present ones that are not wanted.

    :arg has: (id of the subnet, address)
    """
    surplus = list(has)
    missing: list[FixedAddress] = []
    for one in sorted(wanted, key=lambda w: w.address is None):  # exact ones first
        met = next((h for h in surplus if one.subnet in (None, h[0]) and one.address in (None, h[1])), None)
        if met is None:
            missing.append(one)
        else:
            surplus.remove(met)
    return missing, surplus
