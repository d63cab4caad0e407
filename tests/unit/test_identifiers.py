# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Names in plugins/ are nouns of the thing, and verbs with their object.

A name that is a pronoun, an adverb or a participle alone says nothing where it is read: ``row``, ``instance``, ``answer``, ``remaining`` do.
"""

from __future__ import annotations

import ast
import typing as t
from pathlib import Path

import pytest

PLUGINS = Path(__file__).resolve().parents[2] / "plugins"
#: Names that say nothing, of values and of functions.
EMPTY = frozenset(
    "back beside each follow found gone here its kept left lost mine of settle taken there those told".split()
)
#: How many definitions still have such a name. Lower the number with each that gets a better one; it never grows.
REMAINING = {"action": 0, "core": 0, "flows": 0, "hosts": 84, "ledger": 1, "plugin_utils": 0, "others": 0}


def floor(path: Path) -> str:
    parts = path.relative_to(PLUGINS).parts
    name = parts[1] if parts[0] == "module_utils" else parts[0]
    return name if name in REMAINING else "others"


def defined_names(tree: ast.AST) -> t.Iterator[tuple[str, int]]:
    """The names of arguments, variables, functions, classes and imported modules that a file defines, with their lines."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id, node.lineno
        elif isinstance(node, ast.arg):
            yield node.arg, node.lineno
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield node.name, node.lineno
        elif isinstance(node, ast.alias) and node.asname:
            yield node.asname, node.lineno


def empty_names(of_floor: str) -> list[str]:
    return [
        "%s:%d: %s" % (path.relative_to(PLUGINS), line, name)
        for path in sorted(PLUGINS.rglob("*.py"))
        if floor(path) == of_floor
        for name, line in defined_names(ast.parse(path.read_text(encoding="utf-8")))
        if name.strip("_") in EMPTY
    ]


@pytest.mark.parametrize("of_floor", REMAINING)
def test_names_say_what_they_are_of(of_floor: str) -> None:
    found = empty_names(of_floor)
    assert len(found) <= REMAINING[of_floor], "\n".join(found[-20:])
    assert len(found) == REMAINING[of_floor], "fewer than the test permits: write %d" % len(found)


def test_a_name_that_says_nothing_is_seen_wherever_it_is_defined() -> None:
    code = "import a as here\ndef back(its, *, mine=1, **told):\n    for each in its: left, _found = each\n    with its as gone: there: int = 1\n"
    names = {name for name, _line in defined_names(ast.parse(code)) if name.strip("_") in EMPTY}
    assert names == {"here", "back", "its", "mine", "told", "each", "left", "_found", "gone", "there"}
