# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The grammar of JsonFilter: ``["and", [">=", "$free_ram_mb", 1024], ["=", "$hypervisor_type", "QEMU"]]``.

A query is a list of an operator and its arguments: values, queries, and texts that begin with $ and name an attribute of
HostState, with dots into mappings. Values that a host lacks are left out of the arguments.

- ``= < > <= >=``: the first argument against all others; ``in``: it equals one of them. False with fewer than two.
- ``and``, ``or``: of all arguments. ``not``: a list with each argument negated; at the top it is true if one entry is,
  and as an argument if it has entries.
- An empty query is true.
"""

from __future__ import annotations

import json
import operator
import typing as t

from ..host_state import HostState

MAX_DEPTH = 100

Arguments = t.List[t.Any]
Value = t.Callable[[HostState], t.Any]


class QueryError(ValueError):
    """The query cannot be read, or cannot be answered for a host."""


def _against_others(op: str, compare: t.Callable[[t.Any, t.Any], bool]) -> t.Callable[[Arguments], bool]:
    def holds(arguments: Arguments) -> bool:
        if len(arguments) < 2:
            return False
        first = arguments[0]
        try:
            verdicts = [compare(first, other) for other in arguments[1:]]
        except TypeError:
            raise QueryError(
                "%r cannot be compared by %s with %s" % (first, op, ", ".join(map(repr, arguments[1:])))
            ) from None
        return all(verdicts)

    return holds


def _in(arguments: Arguments) -> bool:
    return len(arguments) > 1 and arguments[0] in arguments[1:]


def _not(arguments: Arguments) -> list[bool]:
    return [not argument for argument in arguments]


OPERATORS: dict[str, t.Callable[[Arguments], t.Any]] = {
    "=": _against_others("=", operator.eq),
    "<": _against_others("<", operator.lt),
    ">": _against_others(">", operator.gt),
    "in": _in,
    "<=": _against_others("<=", operator.le),
    ">=": _against_others(">=", operator.ge),
    "not": _not,
    "or": any,
    "and": all,
}


def parse_query(given: t.Any) -> t.Any:
    """The query of a hint: JSON text, its parsed value, or a list of one of these. Empty: no query.

    Raises QueryError for text that is not JSON.
    """
    if (
        isinstance(given, (list, tuple))
        and len(given) == 1
        and not (isinstance(given[0], str) and given[0] in OPERATORS)
    ):
        given = given[0]
    if not isinstance(given, str) or not given:
        return given
    try:
        return json.loads(given)
    except (ValueError, RecursionError) as e:
        raise QueryError("%r is not JSON: %s" % (given, e)) from None


def compile_query(query: t.Any) -> t.Callable[[HostState], bool]:
    """The query as a function of a host, which raises QueryError if values of the host cannot be compared.

    Raises QueryError for an invalid query.
    """
    answer = _compile(query, 0)

    def holds(host: HostState) -> bool:
        result = answer(host)
        return any(result) if isinstance(result, list) else bool(result)

    return holds


def _compile(query: t.Any, depth: int) -> Value:
    if not query:
        return lambda host: True
    if not isinstance(query, (list, tuple)):
        raise QueryError("%r is not a list of an operator and its arguments" % (query,))
    if depth > MAX_DEPTH:
        raise QueryError("the query is nested more than %d deep" % MAX_DEPTH)
    name = query[0]
    if not isinstance(name, str) or name not in OPERATORS:
        raise QueryError("%r is not an operator; known operators are %s" % (name, " ".join(OPERATORS)))
    operate = OPERATORS[name]
    values = [_argument(argument, depth) for argument in query[1:]]

    def answer(host: HostState) -> t.Any:
        results = [value(host) for value in values]
        return operate([v for v in results if v is not None])

    return answer


def _argument(argument: t.Any, depth: int) -> Value:
    if isinstance(argument, (list, tuple)):
        return _compile(argument, depth + 1)
    if isinstance(argument, str) and argument.startswith("$"):
        return lambda host: lookup(host, argument)
    constant = None if argument == "" else argument
    return lambda host: constant


def variables(query: t.Any) -> list[str]:
    """The $names in a query, each once, in the order in which they occur."""
    names: dict[str, None] = {}
    for argument in query[1:] if isinstance(query, (list, tuple)) else ():
        if isinstance(argument, str) and argument.startswith("$"):
            names[argument] = None
        elif isinstance(argument, (list, tuple)):
            names.update(dict.fromkeys(variables(argument)))
    return list(names)


def lookup(host: HostState, name: str) -> t.Any:
    """The value of ``$attribute.key.key`` on a host, or None. Raises QueryError for a key of something that is not a mapping.

    A key may contain dots ($metrics.cpu.percent).
    """
    path = name[1:].split(".")
    value = None if path[0].startswith("_") else getattr(host, path[0], None)
    for position, key in enumerate(path[1:], 1):
        if value is None:
            return None
        if not isinstance(value, t.Mapping):
            raise QueryError("%s: %r has no keys" % (name, value))
        rest = ".".join(path[position:])
        if rest in value:
            return value[rest]
        value = value.get(key)
    return value
