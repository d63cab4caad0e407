# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Limits in bootflow_quotas, of instances and of volumes."""

from __future__ import annotations

import re
import typing as t

from ..errors import InvalidInput
from .formats import MAX_INT

UNLIMITED = -1
VOLUME_RESOURCES = ("volumes", "snapshots", "gigabytes", "per_volume_gigabytes")
PER_VOLUME_TYPE = ("volumes", "gigabytes", "snapshots")  # of these each type has its own: gigabytes_fast

_INTEGER = re.compile(r"-?[0-9]{1,18}\Z")


def limit_of_quota(value: t.Any, where: str, name: t.Any) -> int:
    """:raises InvalidInput: not an integer from -1 to 2147483647."""
    if isinstance(value, str) and _INTEGER.match(value):
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not UNLIMITED <= value <= MAX_INT:
        raise InvalidInput(
            reason="%s: %s must be an integer, -1 for unlimited" % (where, name),
            remedy="Correct it in bootflow_quotas.",
        )
    return value


def is_volume_resource(name: t.Any) -> bool:
    """Whether a key of bootflow_quotas is about volumes: volumes, gigabytes_fast, ..."""
    if not isinstance(name, str):
        return False
    return name in VOLUME_RESOURCES or any(name.startswith(kind + "_") for kind in PER_VOLUME_TYPE)


def mapping_of_quotas(value: t.Any, what: str) -> t.Mapping[str, t.Any]:
    """The mapping; nothing given is an empty one. :raises InvalidInput: something else."""
    if not value:
        return {}
    if not isinstance(value, t.Mapping):
        raise InvalidInput(reason="%s must be a mapping" % what)
    return value
