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


def test_a_name_that_says_nothing_is_seen_wherever_it_is_defined() -> None:
    code = "import a as here\ndef back(its, *, mine=1, **told):\n    for each in its: left, _found = each\n    with its as gone: there: int = 1\n"
    names = {name for name, _line in defined_names(ast.parse(code)) if name.strip("_") in EMPTY}
    assert names == {"here", "back", "its", "mine", "told", "each", "left", "_found", "gone", "there"}
