# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A variable ``bootflow_*``, declared once: type, default, bounds, help. Options, checks and documents derive from it.

source: oslo.config's Opt
"""

from __future__ import annotations

import dataclasses
import ipaddress
import json
import math
import os
import re
import typing as t
from dataclasses import dataclass

from ..errors import BootflowError, InvalidInput
from .formats import to_boolean, to_integer
from .problems import Problems
from .size import REMEDY, check_size, deep

PREFIX = "bootflow_"
SHOWN = 60  # characters of a wrong value

_WHOLE = object()
_UUID = re.compile(r"[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}")
_BRACKETS = re.compile(r"\s*\[(.*)\]\s*", re.DOTALL)
_QUOTES = re.compile(r"""\A(['"])(.*)\1\Z""", re.DOTALL)


class Unfit(ValueError):
    """A value does not fit its setting. ``got``: its wrong part; ``expects``: what that should be."""

    def __init__(self, got: t.Any = _WHOLE, expects: str = ""):
        super().__init__(expects)
        self.got = got
        self.expects = expects


@dataclass(frozen=True)
class Kind:
    """A type of settings. ``read`` raises Unfit, ValueError or TypeError for a value of another type."""

    expects: str
    read: t.Callable[[t.Any], t.Any]
    type: str = "raw"  # Ansible's, of an option
    elements: str = ""


def structure(value: t.Any) -> t.Any:
    """The list or mapping of a JSON text, the form of extra variables on the command line."""
    if isinstance(value, str) and value.lstrip()[:1] in ("[", "{"):
        try:
            return json.loads(value)
        except ValueError:
            return value
    return value


def to_number(value: t.Any) -> float | None:
    """A finite number, also from its text; None for anything else."""
    if isinstance(value, bool):
        return None
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def _float(value: t.Any) -> float:
    number = to_number(value)
    if number is None:
        raise Unfit
    return number


def _integer(value: t.Any) -> int:
    return to_integer(value.strip() if isinstance(value, str) else value)


def _boolean(value: t.Any) -> bool:
    if isinstance(value, (int, float)) and value in (0, 1):
        return bool(value)
    return to_boolean(value.strip() if isinstance(value, str) else value)


def is_text(value: str) -> bool:
    """Whether a ledger, a host and a file can have it: it has no NUL, and no half characters (of bytes that are not UTF-8)."""
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return "\0" not in value


def _text(value: t.Any) -> str:
    if isinstance(value, (list, tuple, dict, set, bytes)) or not is_text(str(value)):
        raise Unfit
    return str(value)


def _filled(value: t.Any) -> str:
    text = _text(value)
    if not text.strip():
        raise Unfit
    return text


def _list(value: t.Any) -> list[t.Any]:
    value = structure(value)
    if not isinstance(value, (list, tuple)):
        raise Unfit
    return list(value)


def _texts(value: t.Any) -> list[str]:
    """Also accepts "a,b", a single name, and a list without JSON's quotes: a shell takes them off, and YAML has others."""
    value = structure(value)
    if isinstance(value, str):
        inner = _BRACKETS.fullmatch(value)
        parts = (inner.group(1) if inner else value).split(",")
        value = [_QUOTES.sub(r"\2", part.strip()) if inner else part.strip() for part in parts] if value.strip() else []
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        value = [value]
    if not isinstance(value, (list, tuple)):
        raise Unfit
    for item in value:
        if item is None or isinstance(item, (bool, list, tuple, t.Mapping)) or not is_text(str(item)):
            raise Unfit(item)
    return [str(item) for item in value]


def canonical(text: str) -> str:
    """A UUID in small letters, as the ledger has it; any other text as it is."""
    return text.lower() if _UUID.fullmatch(text) else text


def _uuids(value: t.Any) -> list[str]:
    """Also accepts them in capitals."""
    return [canonical(text) for text in _texts(value)]


def _mapping(value: t.Any) -> dict[str, t.Any]:
    value = structure(value)
    if not isinstance(value, t.Mapping):
        raise Unfit
    return {str(key): item for key, item in value.items()}


def _numbers(value: t.Any) -> dict[str, float]:
    numbers = {}
    for key, item in _mapping(value).items():
        number = to_number(item)
        if number is None:
            raise Unfit("%s: %s" % (key, item))
        numbers[key] = number
    return numbers


def _entries(value: t.Any) -> t.Any:
    value = structure(value)
    if not isinstance(value, (list, tuple, t.Mapping)):
        raise Unfit
    return value


def _path(value: t.Any) -> str:
    return os.path.expanduser(os.path.expandvars(_filled(value)))


def _absolute(value: t.Any) -> str:
    text = _filled(value)
    if not text.startswith("/") or ".." in text.split("/") or "\0" in text:
        raise Unfit
    return text.rstrip("/") or "/"


def _absolutes(value: t.Any) -> list[str]:
    paths = _list(value)
    for path in paths:
        if not isinstance(path, str) or not path.startswith("/") or ".." in path.split("/") or "\0" in path:
            raise Unfit(path)
    twice = sorted({p for p in paths if paths.count(p) > 1})
    if twice:
        raise Unfit(", ".join(twice), "a list of absolute paths without duplicates")
    return [str(p) for p in paths]


def is_address(value: t.Any) -> bool:
    """Whether it is an IP address; IPv6 also in brackets."""
    text = str(value)
    try:
        ipaddress.ip_address(text[1:-1] if text.startswith("[") and text.endswith("]") else text)
    except ValueError:
        return False
    return "%" not in text


def _address(value: t.Any) -> str:
    if not is_address(value):
        raise Unfit
    return str(value)


def _pattern(value: t.Any) -> str:
    text = _filled(value)
    try:
        re.compile(text)
    except re.error as error:
        raise Unfit(text, "a regular expression (%s)" % error) from None
    return text


TEXT = Kind("a text", _text, "str")
CAPITALS = Kind("a text", lambda value: _text(value).upper(), "str")  # hard is HARD, as in Nova's API
FILLED = Kind("a text that is not empty", _filled, "str")
PATH = Kind("a path", _path, "path")
PATHS = Kind("a list of paths", lambda value: [_path(item) for item in _texts(value)], "list", "path")
ABSOLUTE = Kind("an absolute path", _absolute, "path")
ABSOLUTES = Kind("a list of absolute paths", _absolutes, "list", "path")
ADDRESS = Kind("an IP address", _address, "str")
NUMBERS = Kind("a mapping of names to numbers", _numbers, "dict")
ENTRIES = Kind("a list of mappings, or a mapping keyed by name", _entries)
REQUESTS = Kind("a list", _list, "list", "raw")
PATTERN = Kind("a regular expression", _pattern, "str")
NAMES = Kind("a list of names", _texts, "list", "str")
UUIDS = Kind("a list of UUIDs", _uuids, "list", "str")


def names_of(known: t.Iterable[str]) -> Kind:
    """A list of some of these names."""
    all_names = list(known)

    def read(value: t.Any) -> list[str]:
        names = _texts(value)
        for name in names:
            if name not in all_names:
                raise Unfit(name)
        return names

    return Kind("a list of " + ", ".join(all_names), read, "list", "str")


_KINDS: dict[t.Any, Kind] = {
    bool: Kind("true or false", _boolean, "bool"),
    int: Kind("a whole number", _integer, "int"),
    float: Kind("a number", _float, "float"),
    str: TEXT,
    list: NAMES,
    dict: Kind("a mapping", _mapping, "dict"),
}


@dataclass(frozen=True)
class Setting:
    """One variable. ``name`` is without the prefix ``bootflow_``.

    ``kind``: a Kind, or bool, int, float, str, list (of names), dict. ``least``, ``most``: bounds of a number; ``unit``: its
    unit. ``default_text``: the default in documents, if it is not a plain value. ``option``: the option's name in
    actions, if it differs. ``secret``: the value is never printed.
    """

    name: str
    kind: t.Any
    default: t.Any = None
    help: str = ""
    least: float | None = None
    most: float | None = None
    choices: tuple[str, ...] = ()
    unit: str = ""
    default_text: str = ""
    option: str = ""
    required: bool = False
    secret: bool = False

    @property
    def variable(self) -> str:
        return PREFIX + self.name

    @property
    def expects(self) -> str:
        """The form of a value, to follow "must be" in a message."""
        if self.choices:
            return "one of %s%s" % (", ".join(c for c in self.choices if c), ", or empty" if "" in self.choices else "")
        words = self.value_kind.expects
        if self.unit:
            words += " of " + self.unit
        if self.least is not None and self.most is not None:
            return words + " from %d to %d" % (self.least, self.most)
        if self.least is not None:
            words += ", at least %g" % self.least
        return words

    @property
    def value_kind(self) -> Kind:
        return self.kind if isinstance(self.kind, Kind) else _KINDS[self.kind]

    def but(self, **changes: t.Any) -> Setting:
        """The variable with changes for an action (another default, not required)."""
        return dataclasses.replace(self, **changes)

    def argument(self) -> dict[str, t.Any]:
        """An option's entry in an argument spec."""
        spec: dict[str, t.Any] = {"type": self.value_kind.type}
        if self.value_kind.elements:
            spec["elements"] = self.value_kind.elements
        if self.choices:
            spec["choices"] = list(self.choices)
        if self.required:
            spec["required"] = True
        return spec

    def read(self, value: t.Any, called: str = "") -> t.Any:
        """``value`` as this setting's type; None gives the default.

        :arg called: its name in messages, by default the variable.
        :raises InvalidInput: naming the variable, what is expected, and the value unless it is secret.
        """
        if value is None:
            default = self.default
            return list(default) if isinstance(default, (list, tuple)) else dict(default) if default == {} else default
        called = called or self.variable
        check_size(value, called)
        try:
            result = self.value_kind.read(value)
            if self.choices and result not in self.choices:
                raise Unfit
            if (self.least is not None and result < self.least) or (self.most is not None and result > self.most):
                raise Unfit
        except BootflowError as error:
            message = "%s: %s" % (called, error.message)
            raise InvalidInput(message=message, remedy=error.remedy or REMEDY) from error
        except RecursionError:  # of a JSON text
            raise deep(called) from None
        except (ValueError, TypeError, OverflowError) as error:
            message = "%s must be %s" % (called, getattr(error, "expects", "") or self.expects)
            if not self.secret:
                got = getattr(error, "got", _WHOLE)
                message += ", got %s" % _shown(value if got is _WHOLE else got)
            raise InvalidInput(message=message, remedy=REMEDY) from None
        return result


def _shown(value: t.Any) -> str:
    text = ascii(str(value) if isinstance(value, str) else value)
    return text if len(text) <= SHOWN else text[: SHOWN - 3] + "..."


class Table(t.Tuple[Setting, ...]):
    """Settings of one subject."""

    def options(self, *names: str) -> dict[str, Setting]:
        """Option -> setting, for an action's ARGUMENTS. :arg names: of settings; by default all."""
        return {s.option or s.name: s for s in ([self.named(n) for n in names] or self)}

    def named(self, name: str) -> Setting:
        return next(s for s in self if s.name == name)

    def read(self, variables: t.Mapping[str, t.Any]) -> Values:
        return Values(self, variables)

    def check(self, variables: t.Mapping[str, t.Any], path: str, problems: Problems) -> None:
        """Add every wrong setting to ``problems``. :arg path: of the errors; "": each has its variable"""
        for setting in self:
            with problems.collect(path or setting.variable):
                setting.read(variables.get(setting.variable))


class Values:
    """Settings of one table by name, each read on first use. :raises InvalidInput: see Setting.read"""

    def __init__(self, table: t.Iterable[Setting], variables: t.Mapping[str, t.Any]):
        self._settings = {setting.name: setting for setting in table}
        self._variables = variables

    def __getattr__(self, name: str) -> t.Any:
        try:
            setting = self._settings[name]
        except KeyError:
            raise AttributeError(name) from None
        value = setting.read(self._variables.get(setting.variable))
        setattr(self, name, value)
        return value
