# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Shapes of what a host says: a shape is called with a value and its path, and raises Misshapen for a value that does not fit.

A value that fits can be stored in either database and read again: numbers are finite, texts have no control characters.
"""

from __future__ import annotations

import re
import typing as t
from collections.abc import Mapping
from dataclasses import dataclass

Shape = t.Callable[[t.Any, str], None]


@dataclass(frozen=True)
class Field:
    """A field of an answer, with its documentation. scripts/returns.py writes RETURN of the modules from it.

    :arg shape: None: the controller does not read the field, and any plain value fits.
    :arg help: a text or several, in Ansible's markup. :arg returned: when the field is there.
    :arg type: Ansible's type, where it does not follow from the shape. :arg elements: likewise.
    :arg contains: fields of a mapping that the shape does not name; empty: the fields of the shape are not documented.
    """

    shape: Shape | None
    help: str | tuple[str, ...]
    returned: str = "success"
    type: str = ""
    elements: str = ""
    sample: t.Any = None
    contains: Fields | None = None


Fields = t.Mapping[str, t.Union[Shape, Field]]


class Kind(t.NamedTuple):
    """Documentation of a shape: type in Ansible, type of its elements, and its fields."""

    type: str
    elements: str = ""
    fields: Fields = {}


KINDS: dict[Shape, Kind] = {}

LARGEST = 2**31 - 1  # of an Integer column of PostgreSQL
LARGEST_BIG = 2**63 - 1
TEXT = 4096
MESSAGE = 1_000_000
MANY = 100_000
DEEP = 16  # levels of a value whose fields are not known

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
_UNSTORABLE = re.compile(r"[\x00\ud800-\udfff]")
UUID = re.compile(r"[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}")


class Misshapen(Exception):
    """The value at ``path`` is not what its shape expects."""

    def __init__(self, path: str, expects: str, got: t.Any):
        super().__init__(path, expects, got)
        self.path = path
        self.expects = expects
        self.got = got


def whole(least: int = 0, most: int = LARGEST) -> Shape:
    """A whole number."""

    def check(value: t.Any, path: str) -> None:
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
            raise Misshapen(path, "a whole number from %d to %d" % (least, most), value)

    KINDS[check] = Kind("int")
    return check


def number(least: float = 0, most: float = LARGEST) -> Shape:
    """A finite number."""

    def check(value: t.Any, path: str) -> None:
        if not isinstance(value, (int, float)) or isinstance(value, bool) or not least <= value <= most:
            raise Misshapen(path, "a number from %g to %g" % (least, most), value)

    KINDS[check] = Kind("float")
    return check


def flag(value: t.Any, path: str) -> None:
    """True or false."""
    if not isinstance(value, bool):
        raise Misshapen(path, "true or false", value)


class _Text:
    """See text()."""

    def __init__(self, most: int, least: int, pattern: re.Pattern[str] | None):
        self.most = most
        self.least = least
        self.pattern = pattern

    def __call__(self, value: t.Any, path: str) -> None:
        if not isinstance(value, str) or not self.least <= len(value) <= self.most or _CONTROL.search(value):
            expects = "a text of %d to %d characters without control characters" % (self.least, self.most)
            raise Misshapen(path, expects, value)
        if self.pattern is not None and value and not self.pattern.fullmatch(value):
            raise Misshapen(path, "a text like %s" % self.pattern.pattern, value)

    def fits_all(self, values: t.Sequence[t.Any]) -> bool:
        """Whether each of them surely fits, found out together: the features of a CPU are some hundred texts."""
        if self.pattern is not None or not values or set(map(type, values)) != {str}:
            return False
        sizes = set(map(len, values))
        return self.least <= min(sizes) and max(sizes) <= self.most and not _CONTROL.search("".join(values))


def text(most: int = 255, least: int = 0, pattern: re.Pattern[str] | None = None) -> Shape:
    """A text without control characters. :arg pattern: of a text that is not empty"""
    shape = _Text(most, least, pattern)
    KINDS[shape] = Kind("str")
    return shape


def message(value: t.Any, path: str) -> None:
    """Check a text that a program printed."""
    if not isinstance(value, str) or len(value) > MESSAGE or _UNSTORABLE.search(value):
        raise Misshapen(path, "a text of at most %d characters that can be stored" % MESSAGE, value)


def prose(value: t.Any, path: str) -> None:
    """A part of an error, which errors.from_dict makes legible."""
    if not isinstance(value, str) or len(value) > MESSAGE:
        raise Misshapen(path, "a text of at most %d characters" % MESSAGE, value)


def choice(*values: t.Any) -> Shape:
    """One of these values."""

    def check(value: t.Any, path: str) -> None:
        if not isinstance(value, (str, int)) or isinstance(value, bool) or value not in values:
            raise Misshapen(path, "one of %s" % ", ".join(map(str, values)), value)

    KINDS[check] = Kind("str" if isinstance(values[0], str) else "int")
    return check


def maybe(shape: Shape) -> Shape:
    """The shape, or null."""

    def check(value: t.Any, path: str) -> None:
        if value is not None:
            shape(value, path)

    KINDS[check] = kind_of(shape)
    return check


def items(shape: Shape, most: int = MANY, exactly: int | None = None, unique: str = "") -> Shape:
    """A list. :arg unique: the field in which no two items are equal; "." for items that are different."""

    def check(value: t.Any, path: str) -> None:
        if not isinstance(value, (list, tuple)) or len(value) > most:
            raise Misshapen(path, "a list of at most %d items" % most, value)
        if exactly is not None and len(value) != exactly:
            raise Misshapen(path, "a list of %d items" % exactly, value)
        if not (isinstance(shape, _Text) and shape.fits_all(value)):
            for number, item in enumerate(value):
                shape(item, "%s[%d]" % (path, number))
        if unique:
            keys = [item if unique == "." else item[unique] for item in value]
            if len(set(keys)) < len(keys):
                raise Misshapen(path, "a list in which each %s occurs once" % (unique.strip(".") or "item"), value)

    KINDS[check] = Kind("list", kind_of(shape).type, kind_of(shape).fields)
    return check


def mapping(key: Shape, shape: Shape, most: int = MANY) -> Shape:
    """A mapping of keys that are not known before."""

    def check(value: t.Any, path: str) -> None:
        if not isinstance(value, Mapping) or len(value) > most:
            raise Misshapen(path, "a mapping of at most %d keys" % most, value)
        for item_key, item in value.items():
            key(item_key, path)
            shape(item, "%s.%s" % (path, item_key))

    KINDS[check] = Kind("dict", "", kind_of(shape).fields)
    return check


def record(required: Fields, optional: Fields | None = None) -> Shape:
    """A mapping with these fields. Other fields, of a later version, may have any plain value."""
    known = shapes_of({**required, **(optional or {})})

    def check(value: t.Any, path: str) -> None:
        if not isinstance(value, Mapping):
            raise Misshapen(path, "a mapping", value)
        for name in required:
            if name not in value:
                raise Misshapen(_in(path, name), "given", None)
        for name, item in value.items():
            _NAME(name, path)
            known.get(name, plain)(item, _in(path, name))

    KINDS[check] = Kind("dict", "", {**required, **(optional or {})})
    return check


def shapes_of(fields: Fields) -> dict[str, Shape]:
    """Return the shapes of fields that the controller reads."""
    shapes = {name: item.shape if isinstance(item, Field) else item for name, item in fields.items()}
    return {name: shape for name, shape in shapes.items() if shape is not None}


def kind_of(shape: Shape) -> Kind:
    return KINDS.get(shape) or Kind("dict")


def _in(path: str, name: str) -> str:
    return "%s.%s" % (path, name) if path else name


def plain(value: t.Any, path: str, depth: int = 0) -> None:
    """Anything that JSON can express and both databases can store."""
    if depth > DEEP:
        raise Misshapen(path, "nested at most %d levels deep" % DEEP, value)
    if isinstance(value, str):
        message(value, path)
    elif isinstance(value, (list, tuple)):
        _LIST(value, path)
        for number, item in enumerate(value):
            plain(item, "%s[%d]" % (path, number), depth + 1)
    elif isinstance(value, Mapping):
        _MAPPING(value, path)
        for name, item in value.items():
            plain(item, _in(path, str(name)), depth + 1)
    elif value is not None and not isinstance(value, bool):
        _NUMBER(value, path)


def anything(_value: t.Any, _path: str) -> None:
    """Accept a part of an answer that is never read."""


KINDS.update({flag: Kind("bool"), message: Kind("str"), prose: Kind("str")})

_NAME = text(least=1)
_NUMBER = number(-LARGEST_BIG, LARGEST_BIG)
_LIST = items(anything)
_MAPPING = mapping(_NAME, anything)

name = text(least=1)
uuid = text(36, 36, UUID)
path = text(TEXT)
count = whole()
size = whole(most=LARGEST_BIG)  # bytes
names = items(text(TEXT))
error = maybe(
    record(
        {"code": name, "message": prose},
        {
            "status": whole(100, 599),
            "remedy": prose,
            "retryable": flag,
            "traceback": prose,
            "errors": items(record({})),
            "failed_items": items(record({})),
        },
    )
)
