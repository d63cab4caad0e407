# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Reads the fields of one catalogue entry: each wrong one is recorded with its path and replaced by a default."""

from __future__ import annotations

import typing as t
import uuid
from collections.abc import Mapping

from ..errors import InvalidInput
from .formats import MAX_INT, check_name, to_boolean, to_integer
from .nearest import field_suggestion
from .problems import Problems

_MISSING = object()
Entry = t.TypeVar("Entry")


def catalogue_id(kind: str, name: str) -> str:
    """The id of an entry without one: always the same for the same name.

    A lone surrogate is accepted here; it is reported as an error of the name.
    """
    whole = name.encode("utf-8", "replace").decode()
    return str(uuid.uuid5(uuid.NAMESPACE_URL, "bootflow:%s:%s" % (kind, whole)))


class Fields:
    """One mapping of the inventory. Take the fields, then call L(unknown)."""

    def __init__(self, data: t.Mapping[str, t.Any], path: str, problems: Problems):
        self.data = data
        self.path = path
        self.problems = problems
        self._read_names: list[str] = []
        self._refused: set[str] = set()

    def at(self, name: str) -> str:
        return "%s.%s" % (self.path, name)

    def wrong(self, name: str, reason: str, remedy: str = "") -> None:
        self.problems.add(
            self.at(name),
            InvalidInput(message="%s %s" % (name, reason), remedy=remedy or "Correct it in the inventory."),
        )

    def refuse(self, name: str, given: bool, reason: str, remedy: str = "") -> None:
        """Refuse the field in this entry, where it is ``given``. No remedy names it."""
        self._refused.add(name)
        if given:
            self.wrong(name, reason, remedy)

    def has(self, name: str) -> bool:
        """Whether the field is given; null counts."""
        return name in self.data

    def raw(self, name: str) -> t.Any:
        """The value unchanged; None if it is missing."""
        self._read_names.append(name)
        return self.data.get(name)

    def _value(self, name: str, default: t.Any) -> t.Any:
        value = self.raw(name)
        if value is not None:
            return value
        if default is _MISSING:
            self.wrong(name, "is missing", "Add %s." % name)
        return _MISSING

    def name(self, name: str, default: t.Any = _MISSING, maximum: int = 255) -> str:
        """A text of 1 to ``maximum`` printable characters; numbers become text."""
        value = self._value(name, default)
        if value is _MISSING:
            return "" if default is _MISSING else default
        if isinstance(value, int) and not isinstance(value, bool):
            value = str(value)
        if not isinstance(value, str):
            self.wrong(name, "must be a text")
            return "" if default is _MISSING else default
        if not 1 <= len(value) <= maximum:
            self.wrong(name, "must have 1 to %d characters, has %d" % (maximum, len(value)))
        try:
            check_name(value)
        except ValueError as error:
            self.wrong(name, str(error))
        return str(value)

    def text(self, name: str, default: str = "") -> str:
        value = self._value(name, default)
        if value is _MISSING:
            return default
        if not isinstance(value, str):
            self.wrong(name, "must be a text")
            return default
        return str(value)

    def choice(self, name: str, choices: t.Sequence[str], default: t.Any = _MISSING) -> str:
        value = self._value(name, default)
        if value is _MISSING:
            return choices[0] if default is _MISSING else default
        if value not in choices:
            self.wrong(name, "must be one of %s" % ", ".join(choices))
            return choices[0]
        return str(value)

    def integer(self, name: str, minimum: int, default: t.Any = _MISSING, maximum: int = MAX_INT) -> t.Any:
        """An integer; ``default`` may be None."""
        value = self._value(name, default)
        if value is _MISSING:
            return minimum if default is _MISSING else default
        try:
            number = to_integer(value)
        except ValueError as error:
            self.wrong(name, str(error))
            return minimum
        if not minimum <= number <= maximum:
            self.wrong(name, "must be between %d and %d, got %d" % (minimum, maximum, number))
        return number

    def boolean(self, name: str, default: bool = False) -> bool:
        value = self._value(name, default)
        if value is _MISSING:
            return default
        try:
            return to_boolean(value)
        except ValueError as error:
            self.wrong(name, str(error))
            return default

    def mapping(self, name: str) -> dict[str, t.Any]:
        value = self._value(name, None)
        if value is _MISSING:
            return {}
        if not isinstance(value, Mapping):
            self.wrong(name, "must be a mapping")
            return {}
        return {str(key): item for key, item in value.items()}

    def items(self, name: str) -> list[t.Any]:
        value = self._value(name, None)
        if value is _MISSING:
            return []
        if not isinstance(value, (list, tuple)):
            self.wrong(name, "must be a list")
            return []
        return list(value)

    def unknown(self) -> None:
        """Report every field that was not read."""
        known = [name for name in self._read_names if name not in self._refused]
        for name in self.data:
            if name not in self._read_names:
                self.problems.add(
                    self.at(str(name)),
                    InvalidInput(
                        message="Unknown field %r" % str(name),
                        remedy=field_suggestion(str(name), known, "docs/variables.md"),
                    ),
                )


def _named(entry: t.Any, index: int) -> str | int:
    name = entry.get("name") if isinstance(entry, Mapping) else None
    return name if isinstance(name, str) and name.isprintable() and 1 <= len(name) <= 64 else index


def entries_of(kind: str, data: t.Any, problems: Problems, short: str = "") -> list[Fields]:
    """The entries of a catalogue variable: a list of mappings with a name each, or a mapping keyed by name.

    :arg short: in the keyed form a plain text means the mapping {short: text}.
    """
    if data is None:
        return []
    pairs: list[tuple[str, t.Any]] = []
    if isinstance(data, Mapping):
        for key, value in data.items():
            value = {short: value} if short and isinstance(value, str) else {} if value is None else value
            if isinstance(value, Mapping):
                value = {"name": key, **value}
            pairs.append(("%s[%s]" % (kind, key), value))
    elif isinstance(data, (list, tuple)):
        pairs = [("%s[%s]" % (kind, _named(value, index)), value) for index, value in enumerate(data)]
    else:
        problems.add(kind, InvalidInput(message="must be a list of mappings", remedy="Write one list item per entry."))
    entries = []
    for path, value in pairs:
        if isinstance(value, Mapping):
            entries.append(Fields(value, path, problems))
        else:
            problems.add(
                path,
                InvalidInput(
                    message="must be a mapping with a name", remedy="Write name: and the other fields below it."
                ),
            )
    return entries


def read_entries(
    kind: str,
    data: t.Any,
    read: t.Callable[[Fields], Entry | None],
    unique: t.Sequence[str] = ("name",),
    remedy: str = "Name it once.",
) -> list[Entry]:
    """Read the entries of a request. :arg read: returns None for an entry with errors. :arg unique: attributes of which no two entries have the same value

    :raises InvalidRequest: all errors, the paths beginning with ``kind``.
    """
    problems = Problems()
    entries: list[Entry] = []
    seen: set[tuple[str, str]] = set()
    for fields in entries_of(kind, data, problems):
        entry = read(fields)
        fields.unknown()
        if entry is None:
            continue
        for name in unique:
            value = getattr(entry, name)
            if value and (name, value) in seen:
                fields.wrong(name, "%r is used twice" % value, remedy)
            seen.add((name, value))
        entries.append(entry)
    problems.raise_if_any()
    return entries
