#!/usr/bin/env python
# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Prints all texts that a user may read, one per line and sorted: scripts/messages.py > tests/unit/messages.txt

These are the string literals of two or more words in the plugins (messages, reasons, remedies, warnings, printed texts), and the names and
failure messages of tasks. Documentation, docstrings, regular expressions and SQL are left out.
"""

from __future__ import annotations

import ast
import re
import typing as t
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[1]
DOCUMENTATION = {"DOCUMENTATION", "EXAMPLES", "RETURN"}
#: Calls whose texts no user reads.
INTERNAL = {
    "compile",
    "text",
    "DDL",
    "CheckConstraint",
    "_one_of",
    "cast",
    "search",
    "match",
    "sub",
    "split",
    "startswith",
    "endswith",
    "partition",
    "index",
}
SENTENCE = re.compile(r"[A-Za-z]{2,}[,;:.]? [A-Za-z%{(]")
#: SQL, types and templates of variables.
CODE = re.compile(r"(\{%-|deleted = |CAST\(|PRAGMA |BEGIN |\w+\[\w+, )")
TASKS = ("playbooks/*.yml", "roles/*/tasks/*.yml", "roles/*/handlers/*.yml")


def _called(node: ast.Call) -> str:
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")


def texts_of(node: ast.AST) -> t.Iterator[str]:
    """The texts of a module's syntax tree."""
    if isinstance(node, ast.Assign) and any(getattr(target, "id", "") in DOCUMENTATION for target in node.targets):
        return
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return  # a docstring
    if isinstance(node, ast.Call) and _called(node) in INTERNAL:
        return
    if isinstance(node, ast.JoinedStr):
        yield "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values)
        return
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    for child in ast.iter_child_nodes(node):
        yield from texts_of(child)


def task_texts(node: t.Any) -> t.Iterator[str]:
    """The names and failure messages of plays, tasks and handlers."""
    if isinstance(node, dict):
        if len(node) > 1 and isinstance(node.get("name"), str):
            yield node["name"]
        yield from (value for key, value in node.items() if key in ("fail_msg", "msg") and isinstance(value, str))
    for child in node.values() if isinstance(node, dict) else node if isinstance(node, list) else ():
        yield from task_texts(child)


def texts() -> dict[str, str]:
    """Text -> the first file that has it."""
    found: dict[str, str] = {}
    for path in sorted((ROOT / "plugins").rglob("*.py")):
        if "doc_fragments" not in path.parts:
            for text in texts_of(ast.parse(path.read_text())):
                if SENTENCE.search(text) and not CODE.match(text):
                    found.setdefault(" ".join(text.split()), str(path.relative_to(ROOT)))
    for path in sorted(path for pattern in TASKS for path in ROOT.glob(pattern)):
        for text in task_texts(yaml.safe_load(path.read_text())):
            if " " in text:
                found.setdefault(" ".join(text.split()), str(path.relative_to(ROOT)))
    return dict(sorted(found.items(), key=lambda item: (item[0].lower(), item[0])))


if __name__ == "__main__":
    for line in texts():
        print(line)
