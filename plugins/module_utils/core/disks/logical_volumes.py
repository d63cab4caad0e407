# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Names and paths of logical volumes."""

from __future__ import annotations

import re
import typing as t

from ..errors import InvalidInput

_NAME = re.compile(r"[A-Za-z0-9_+.][A-Za-z0-9_+.-]{0,126}\Z")


def checked_lvm_name(value: t.Any, what: str) -> str:
    """The name of a volume group or pool, in LVM's alphabet.

    :raises InvalidInput: other characters, a leading "-", "." or "..", or longer than 127.
    """
    if not isinstance(value, str) or not _NAME.match(value) or value in (".", ".."):
        raise InvalidInput(reason="%s %r is not a valid LVM name (letters, digits, + _ . -)" % (what, value))
    return value


def device_path(vg: str, name: str) -> str:
    """The path of an active logical volume."""
    return "/dev/%s/%s" % (vg, name)
