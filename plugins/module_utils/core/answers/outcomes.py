# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Answers of modules that work on many items: an outcome of each, by its key."""

from __future__ import annotations

import typing as t

from ..instances.progress import FIELDS
from .shapes import KINDS, LARGEST_BIG, Field, Fields, Kind, Shape, error, flag, mapping, name, record, whole

_ERROR = (
    "Why this item failed, with C(code), C(status), C(message), C(remedy) and C(retryable); null on success.",
    "That of an unexpected error has its C(traceback) too, without values.",
)


def outcome_fields(changed: str, others: Fields) -> Fields:
    """Return the fields of an outcome. :arg changed: documentation of the field ``changed``. :arg others: fields besides ``changed`` and ``error``"""
    return {"changed": Field(flag, changed, "always"), **others, "error": Field(error, _ERROR, "always")}


def outcomes(text: str, changed: str, required: Fields | None = None, optional: Fields | None = None) -> Field:
    """Return the field ``outcomes``.

    :arg text: its documentation. :arg changed: documentation of ``changed``. :arg required: of an item that did not fail
    """
    fields = outcome_fields(changed, {**(required or {}), **(optional or {})})
    failed = record({}, fields)
    done = record(required or {}, {n: item for n, item in fields.items() if n not in (required or {})})

    def outcome(value: t.Any, where: str) -> None:
        bad = isinstance(value, t.Mapping) and value.get("error") is not None
        (failed if bad else done)(value, where)

    KINDS[outcome] = Kind("dict", "", fields)
    return Field(mapping(name, outcome), text)


ANY: Shape = t.cast("Shape", outcomes("", "").shape)
#: What a host tells of guests that leave it, while they do.
PROGRESS: Shape = mapping(name, record(dict.fromkeys(FIELDS, whole(0, LARGEST_BIG))), most=1000)
