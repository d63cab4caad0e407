# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Scheduler hints as filters read them. source: Nova's build_instances"""

from __future__ import annotations

import typing as t

from ...errors import InvalidInput
from ..request_spec import RequestSpec


def hint(spec: RequestSpec, name: str, default: t.Any = None) -> t.Any:
    """One hint; a list of one value is that value."""
    value = spec.scheduler_hints.get(name, default)
    return value[0] if isinstance(value, (list, tuple)) and len(value) == 1 else value


def text_hint(spec: RequestSpec, name: str, default: str = "") -> str:
    """A hint that is text. Raises InvalidInput for anything else."""
    value = hint(spec, name, default)
    if value is None:
        return default
    if not isinstance(value, str):
        raise bad_hint(name, "is %r" % (value,), "Give one text.")
    return value


def uuids_hint(spec: RequestSpec, name: str) -> tuple[str, ...]:
    """A hint that names instances: one uuid, or a list of them. Raises InvalidInput for anything else."""
    value = hint(spec, name)
    if not value:
        return ()
    uuids = (value,) if isinstance(value, str) else value
    if not isinstance(uuids, (list, tuple, set, frozenset)) or not all(isinstance(u, str) and u for u in uuids):
        raise bad_hint(name, "is %r" % (value,), "Give the UUID of an instance, or a list of UUIDs.")
    return tuple(dict.fromkeys(uuids))


def bad_hint(name: str, reason: str, remedy: str) -> InvalidInput:
    """The error for a hint that cannot be used."""
    return InvalidInput(reason="the scheduler hint %s %s" % (name, reason), remedy=remedy)
