# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a person may have meant by a name that does not exist."""

from __future__ import annotations

import difflib
import typing as t

LISTED = 12  # names that a remedy lists at most


def suggestion(asked: str, known: t.Iterable[str], where: str) -> str:
    """The remedy for the unknown name: the nearest one, and all if they are few.

    :arg where: what has the names: the variable.
    """
    names = sorted(set(known))
    if not names:
        return "%s is empty." % where
    small = {name.lower(): name for name in names}
    near = difflib.get_close_matches(str(asked).lower(), list(small), 1)
    meant = "Did you mean %s? " % small[near[0]] if near else ""
    if len(names) > LISTED:
        return meant + "%s has %d names." % (where, len(names))
    return meant + "%s has: %s." % (where, ", ".join(names))
