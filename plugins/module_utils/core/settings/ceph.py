# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Kinds of settings that describe a pool of a Ceph cluster."""

from __future__ import annotations

import typing as t

from ..errors import BootflowError
from ..reading.setting import Kind, Unfit
from ..volumes import rbd_names


def _checked(check: t.Callable[[t.Any], str]) -> t.Callable[[t.Any], str]:
    def read(value: t.Any) -> str:
        try:
            return check(value)
        except BootflowError:
            raise Unfit from None

    return read


def _monitors(value: t.Any) -> list[str]:
    if not isinstance(value, (list, tuple)) or not value:
        raise Unfit
    monitors = [_checked(rbd_names.monitor)(item) for item in value]
    if len(set(monitors)) < len(monitors):
        raise Unfit(value, "a list of monitors, each named once")
    return monitors


def _key(value: t.Any) -> str:
    """Return the key. The message never has it."""
    try:
        return rbd_names.checked_key(value)
    except BootflowError:
        raise Unfit("no key") from None


POOL = Kind("the name of a pool (letters, digits, _ . -)", _checked(rbd_names.checked_pool), "str")
USER = Kind("the name of a Ceph user without client.", _checked(rbd_names.checked_user), "str")
MONITORS = Kind("a list of monitors (192.0.2.21 or [2001:db8::1]:6789)", _monitors, "list", "str")
FSID = Kind("the id of a cluster, as `ceph fsid` prints it", _checked(rbd_names.checked_fsid), "str")
KEY = Kind("the key of a Ceph user, as `ceph auth print-key` prints it", _key, "str")
