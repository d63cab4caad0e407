# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Names in plugins/ are nouns of the thing, and verbs with their object.

A name that is a pronoun, an adverb or a participle alone says nothing where it is read: ``row``, ``instance``, ``answer``, ``remaining`` do.
One letter is enough in a comprehension or lambda, which is read at once, for the columns of a table in SQL, and for a type.
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
#: The column of an attachment's row that has this name since the first revision of the ledger; a row has the names of the columns.
COLUMNS = ["module_utils/ledger/storage/attachments.py: beside"]


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


def test_names_say_what_they_are_of() -> None:
    found = [
        "%s: %s" % (path.relative_to(PLUGINS), name)
        for path in sorted(PLUGINS.rglob("*.py"))
        for name, _line in defined_names(ast.parse(path.read_text(encoding="utf-8")))
        if name.strip("_") in EMPTY
    ]
    assert found == COLUMNS


def is_short_for_sql_or_types(value: ast.AST) -> bool:
    """Whether a value is the columns of a table, an alias of one, or a type variable; or a tuple of such values."""
    if isinstance(value, ast.Tuple):
        return all(is_short_for_sql_or_types(item) for item in value.elts)
    if isinstance(value, ast.Call):
        return getattr(value.func, "attr", "") in ("alias", "TypeVar", "ParamSpec")
    return isinstance(value, ast.Attribute) and value.attr == "c"


def names_of_one_letter(tree: ast.AST) -> list[int]:
    """Find the lines that define a name of one letter where it has to be remembered."""
    excused: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp, ast.Lambda)):
            excused.update(id(inner) for inner in ast.walk(node))
        elif isinstance(node, ast.Assign) and is_short_for_sql_or_types(node.value):
            excused.update(id(inner) for target in node.targets for inner in ast.walk(target))
    return [
        node.lineno
        for node in ast.walk(tree)
        if id(node) not in excused
        and isinstance(node, (ast.Name, ast.arg))
        and isinstance(getattr(node, "ctx", ast.Store()), ast.Store)
        and len(name := node.id if isinstance(node, ast.Name) else node.arg) == 1
        and name != "_"
    ]


def test_one_letter_is_a_name_where_it_is_read_at_once() -> None:
    found = {
        str(path.relative_to(PLUGINS)): lines
        for path in sorted(PLUGINS.rglob("*.py"))
        if (lines := names_of_one_letter(ast.parse(path.read_text(encoding="utf-8"))))
    }
    assert found == {}


@pytest.mark.parametrize(
    ("code", "is_found"),
    [
        ("for m in moving: pass", True),
        ("def f(o): pass", True),
        ("o = self.options", True),
        ("with open(path) as f: pass", True),
        ("[m.row for m in moving]", False),
        ("sorted(rows, key=lambda r: r.id)", False),
        ("c, i = claims.c, instances.c", False),
        ("T = t.TypeVar('T')", False),
        ("for _ in rows: pass", False),
        ("try: pass\nexcept E as e: pass", False),
    ],
)
def test_where_a_name_of_one_letter_is_found(code: str, is_found: bool) -> None:
    assert bool(names_of_one_letter(ast.parse(code))) == is_found


def test_a_name_that_says_nothing_is_seen_wherever_it_is_defined() -> None:
    code = "import a as here\ndef back(its, *, mine=1, **told):\n    for each in its: left, _found = each\n    with its as gone: there: int = 1\n"
    names = {name for name, _line in defined_names(ast.parse(code)) if name.strip("_") in EMPTY}
    assert names == {"here", "back", "its", "mine", "told", "each", "left", "_found", "gone", "there"}
