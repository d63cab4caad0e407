# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""docs/uninstall.md lists each path that roles and modules write on hosts and on the controller."""

from __future__ import annotations

import ast
import fnmatch
import re
import typing as t
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "uninstall.md"
#: Below these folders what is written stays over a restart. Expressions of Jinja stand for any name.
PATH = re.compile(r"(?:/etc|/var/lib)/(?:[\w./@*-]|\{\{[^}]*\}\})+")
#: Paths that are only read, or that hold files of others.
READ = {
    "/etc/lvm/lvm.conf",
    "/etc/qemu/firmware",
}


def paths(text: str) -> set[str]:
    return {re.sub(r"\{\{[^}]*\}\}", "*", found).rstrip("/.") for found in PATH.findall(text)}


def of_roles() -> t.Iterator[tuple[str, str]]:
    """(file, path) of tasks, defaults, variables and templates; comments are left out."""
    for folder in ("tasks", "handlers", "defaults", "vars", "templates"):
        for file in sorted((ROOT / "roles").glob("*/%s/*" % folder)):
            lines = (re.sub(r"(^|\s)#.*", "", line) for line in file.read_text().splitlines())
            for found in sorted(paths("\n".join(lines))):
                yield str(file.relative_to(ROOT)), found


def of_code() -> t.Iterator[tuple[str, str]]:
    """(file, path) of the texts in code that runs on hosts, and of the defaults of settings; docstrings are left out."""
    folders = ("module_utils/hosts", "module_utils/core/settings", "modules")
    for file in sorted(f for folder in folders for f in (ROOT / "plugins" / folder).rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " not in node.value:
                for found in sorted(paths(node.value)):
                    yield str(file.relative_to(ROOT)), found


def is_listed(path: str, listed: t.Collection[str]) -> bool:
    """Whether the path, one above it, or a file in it is listed."""
    return any(
        fnmatch.fnmatch(path, one)
        or fnmatch.fnmatch(one, path)
        or fnmatch.fnmatch(str(Path(one).parent), path)
        or path.startswith(one + "/")
        for one in listed
    )


@pytest.mark.parametrize("written", [of_roles, of_code])
def test_each_path_that_is_written_is_listed(written: t.Callable[[], t.Iterator[tuple[str, str]]]) -> None:
    listed = paths(PAGE.read_text())
    found = list(written())
    assert len(found) > 10
    missing = {"%s: %s" % (file, path) for file, path in found if path not in READ and not is_listed(path, listed)}
    assert missing == set()


def test_each_path_that_is_listed_is_written() -> None:
    written = {path for each in (of_roles, of_code) for _file, path in each()}
    rows = re.findall(r"^\| `([^|]+) \|", PAGE.read_text(), re.MULTILINE)
    assert len(rows) > 10
    for path in paths("\n".join(rows)):
        assert is_listed(path, written) or any(one.startswith(path + "/") for one in written), path
