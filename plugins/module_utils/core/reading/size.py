# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The size of a value whose parts repeat each other.

An alias of YAML costs a few bytes and stands for all that it names; aliases of aliases multiply. A walk over such a
value, as Ansible does for templates, never comes to its end. Mappings that make their values when they are read, such as Ansible's
hostvars, are not looked into: they template all variables of all hosts.
"""

from __future__ import annotations

import re
import typing as t

from ..errors import InvalidInput

DEEPEST = 64  # levels of lists and mappings in a value
ENOUGH = 100_000  # values that anything may have
REPEATED = 20  # beyond that: how many times as many values as are written there
WORD = re.compile(r"\w+")
OF_ALL_HOSTS = frozenset(("hostvars", "vars"))  # names of all variables, which a template may write
REMEDY = (
    "Correct it in the inventory (host_vars, group_vars) or where -e sets it; docs/variables.md lists all variables."
)


def too_deep(value: t.Any) -> bool:
    """Whether lists and mappings are nested so deep that reading them would end Python's stack."""
    level = [value]
    for _depth in range(DEEPEST):
        items = (
            item
            for container in level
            if isinstance(container, (list, tuple, dict))
            for item in (container.values() if isinstance(container, dict) else container)
        )
        level = list({id(item): item for item in items}.values())  # what YAML's aliases repeat is looked at once
        if not level:
            return False
    return True


def too_large(value: t.Any) -> bool:
    """Whether aliases make a value, which is not too deep, so large that walking over it takes for ever."""
    sizes: dict[int, int] = {}
    whole = _size(value, sizes)
    if whole <= ENOUGH:
        return False
    return whole > REPEATED * _written(value)


def _size(value: t.Any, sizes: dict[int, int]) -> int:
    """Return the number of values in a value, including repeated ones. :arg sizes: id of a list or mapping -> its size"""
    if not isinstance(value, (list, tuple, dict)):
        return 1
    known = sizes.get(id(value))
    if known is None:
        items = value.values() if isinstance(value, dict) else value
        known = sizes[id(value)] = 1 + sum([_size(item, sizes) for item in items])
    return known


def _written(value: t.Any) -> int:
    """The number of items of all lists and mappings in a value, each counted once."""
    containers: dict[int, t.Any] = {}
    level = [value]
    while level:
        new = {id(e): e for e in level if isinstance(e, (list, tuple, dict)) and id(e) not in containers}
        containers.update(new)
        level = [item for e in new.values() for item in (e.values() if isinstance(e, dict) else e)]
    return sum(len(container) for container in containers.values())


def check_size(value: t.Any, called: str) -> None:
    """Check that all of a value can be read.

    :arg called: its name in messages.
    :raises InvalidInput: it is nested too deep, or its aliases repeat too much.
    """
    if not isinstance(value, (list, tuple, dict)):
        return
    if too_deep(value):
        raise deep(called)
    if too_large(value):
        message = "%s has more than %d values, as aliases in it repeat other aliases" % (called, ENOUGH)
        raise InvalidInput(message=message, remedy="Write such values out, or leave them out. %s" % REMEDY)


def check_variable(name: str, variables: t.Mapping[str, t.Any]) -> None:
    """Check a variable, and all that its templates name, before Ansible evaluates them.

    :arg variables: as they are written, with their templates.
    :raises InvalidInput: one of them is nested too deep, or its aliases repeat too much.
    """
    seen = {name, *OF_ALL_HOSTS}
    waiting = [name]
    while waiting:
        called = waiting.pop()
        value = variables.get(called)
        check_size(value, called)
        named = {word for text in _templates(value) for word in WORD.findall(text)} - seen
        seen |= named
        waiting += [word for word in named if word in variables]


def _templates(value: t.Any) -> set[str]:
    """The templates in a value: what aliases repeat is looked at once."""
    templates = set()
    seen: set[int] = set()
    waiting: list[t.Any] = [[value]]
    while waiting:
        container = waiting.pop()
        for item in container.values() if isinstance(container, dict) else container:
            if isinstance(item, str):
                if "{" in item and ("{{" in item or "{%" in item):
                    templates.add(item)
            elif isinstance(item, (list, tuple, dict)) and id(item) not in seen:
                seen.add(id(item))
                waiting.append(item)
    return templates


def deep(called: str) -> InvalidInput:
    """The error of a value that is nested too deep."""
    return InvalidInput(message="%s must be nested at most %d levels deep" % (called, DEEPEST), remedy=REMEDY)
