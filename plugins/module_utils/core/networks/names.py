# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Names of network interfaces on a host."""

from __future__ import annotations

import re

from ..errors import InvalidInput

# IFNAMSIZ is 16 with the terminating zero
_INTERFACE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,14}\Z")


def check_interface(name: str) -> str:
    """The name of a network interface, such as a bridge. :raises InvalidInput:"""
    if not isinstance(name, str) or not _INTERFACE.match(name):
        raise InvalidInput(
            message="%r is not the name of a network interface (such as a bridge)" % (name,),
            remedy="A bridge has 1 to 15 letters, digits, _ . or -, and begins with a letter or digit.",
        )
    return name
