# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Addresses of OVN's databases. source: ovsdb(7), for their form"""

from __future__ import annotations

import re
import typing as t

from ..errors import InvalidInput

_ADDRESS = re.compile(r"(ssl|tcp):(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9.-]+):[0-9]{1,5}|unix:/[^\s,]+")


def checked_addresses(value: t.Any) -> str:
    """Return the addresses of a database with commas between them. :raises InvalidInput: one is not in OVSDB's form"""
    items = value.split(",") if isinstance(value, str) else value if isinstance(value, (list, tuple)) else [value]
    texts = [str(item).strip() for item in items]
    wrong = [text for text in texts if not _ADDRESS.fullmatch(text)]
    if wrong or not texts:
        raise InvalidInput(message="%r is not the address of a database of OVN" % ((wrong or [value])[0],))
    return ",".join(texts)
