# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Finds values that are valid without jsonschema, which takes as long to load as a small request takes to be accepted.

It says yes where jsonschema finds no error, and no where jsonschema has to be asked: about errors, and about anything that is not known here.
"""

from __future__ import annotations

import re
import typing as t

from .formats import FORMATS

Schema = t.Mapping[str, t.Any]

_TYPES: dict[str, tuple[type, ...]] = {
    "array": (list,),
    "boolean": (bool,),
    "integer": (int,),
    "null": (type(None),),
    "number": (int, float),
    "object": (dict,),
    "string": (str,),
}
# What says nothing about the value. jsonschema knows no keyword with x-.
_NOTES = frozenset(("title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly", "$comment"))


def surely_valid(value: t.Any, schema: t.Any) -> bool:
    """Whether a value of plain dicts and lists is valid. False: jsonschema knows."""
    if not isinstance(schema, dict):
        return schema is True
    for keyword, limit in schema.items():
        rule = _RULES.get(keyword)
        if rule is None:
            if keyword not in _NOTES and not keyword.startswith("x-"):
                return False
        elif not rule(value, limit, schema):
            return False
    return True


def _is(value: t.Any, kinds: str | t.Sequence[str]) -> bool:
    for kind in (kinds,) if isinstance(kinds, str) else kinds:
        if isinstance(value, _TYPES.get(kind, ())) and (kind == "boolean" or not isinstance(value, bool)):
            return True
    return False


def _enum(value: t.Any, among: t.Sequence[t.Any], _schema: Schema) -> bool:
    return isinstance(value, str) and value in among  # 1 and true are equal in Python only


def _format(value: t.Any, name: str, _schema: Schema) -> bool:
    if name not in FORMATS:
        return False
    test, types = FORMATS[name]
    if isinstance(value, types) and not isinstance(value, bool):
        try:
            test(value)
        except ValueError:
            return False
    return True


def _unique(value: t.Any, wanted: bool, _schema: Schema) -> bool:
    if not wanted or not isinstance(value, list):
        return True
    return all(isinstance(item, str) for item in value) and len(set(value)) == len(value)


def _properties(value: t.Any, properties: t.Mapping[str, t.Any], _schema: Schema) -> bool:
    if not isinstance(value, dict):
        return True
    return all(name not in properties or surely_valid(item, properties[name]) for name, item in value.items())


def _pattern_properties(value: t.Any, patterns: t.Mapping[str, t.Any], _schema: Schema) -> bool:
    if not isinstance(value, dict):
        return True
    return all(
        surely_valid(item, schema)
        for pattern, schema in patterns.items()
        for name, item in value.items()
        if re.search(pattern, name)
    )


def _additional(value: t.Any, rest: t.Any, schema: Schema) -> bool:
    if not isinstance(value, dict):
        return True
    known, patterns = schema.get("properties", {}), schema.get("patternProperties", {})
    return all(
        name in known or any(re.search(pattern, name) for pattern in patterns) or surely_valid(item, rest)
        for name, item in value.items()
    )


def _one_of(value: t.Any, branches: t.Sequence[t.Any], _schema: Schema) -> bool:
    """One is valid, and the others are for values of other types."""
    if isinstance(value, float):  # 1.0 is an integer, too
        return False
    open_ones = [b for b in branches if not isinstance(b, dict) or "type" not in b or _is(value, b["type"])]
    return len(open_ones) == 1 and surely_valid(value, open_ones[0])


_RULES: dict[str, t.Callable[[t.Any, t.Any, Schema], bool]] = {
    "type": lambda value, kinds, _schema: _is(value, kinds),
    "enum": _enum,
    "format": _format,
    "pattern": lambda value, pattern, _schema: not isinstance(value, str) or re.search(pattern, value) is not None,
    "minLength": lambda value, limit, _schema: not isinstance(value, str) or len(value) >= limit,
    "maxLength": lambda value, limit, _schema: not isinstance(value, str) or len(value) <= limit,
    "minItems": lambda value, limit, _schema: not isinstance(value, list) or len(value) >= limit,
    "maxItems": lambda value, limit, _schema: not isinstance(value, list) or len(value) <= limit,
    "items": lambda value, schema, _schema: not isinstance(value, list) or all(surely_valid(i, schema) for i in value),
    "uniqueItems": _unique,
    "required": lambda value, names, _schema: not isinstance(value, dict) or all(name in value for name in names),
    "properties": _properties,
    "patternProperties": _pattern_properties,
    "additionalProperties": _additional,
    "oneOf": _one_of,
}
