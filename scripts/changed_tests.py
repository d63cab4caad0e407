#!/usr/bin/env python
# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Print the unit tests that are nearest to what was changed, a file a line, the nearest first.

Usage: scripts/changed_tests.py [BASE]

Changed is what differs from the commit BASE (by default the last one), and what git does not know yet. A test is near to a Python file
by the imports between them, and to any other file by its name in the test's text. Farther tests are counted on stderr.
"""

from __future__ import annotations

import ast
import collections
import functools
import re
import subprocess
import sys
import typing as t
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
COLLECTION = ("ansible_collections", "bootflow", "compute")
TESTS = Path("tests/unit")
#: How many files of tests are run within a minute on two cores, with some room.
MOST = 24


def git(*arguments: str) -> list[str]:
    done = subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(done.stderr.strip())
    return done.stdout.splitlines()


def changed(base: str) -> list[Path]:
    """Files relative to the top that differ from a commit. A file that was removed or renamed has its former name, too."""
    known = git("diff", "--name-only", "--no-renames", base)
    return [Path(name) for name in sorted({*known, *git("ls-files", "--others", "--exclude-standard")})]


def module_name(path: Path) -> tuple[str, ...]:
    """The parts of a module's full name, as the collection is imported."""
    parts = path.with_suffix("").parts
    return COLLECTION + (parts[:-1] if parts[-1] == "__init__" else parts)


def imported(path: Path) -> t.Iterator[tuple[str, ...]]:
    """Full names of modules, and of what is imported from them, in a Python file."""
    name = module_name(path)
    package = name if path.name == "__init__.py" else name[:-1]
    for node in ast.walk(ast.parse((ROOT / path).read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (tuple(alias.name.split(".")) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            base += tuple((node.module or "").split(".")) if node.module else ()
            yield base
            yield from (base + (alias.name,) for alias in node.names)


@functools.lru_cache(maxsize=None)
def importers() -> dict[tuple[str, ...], set[Path]]:
    """The name of a module or of a thing in it -> the files of plugins/ and of the unit tests that import it."""
    found: dict[tuple[str, ...], set[Path]] = collections.defaultdict(set)
    for folder in ("plugins", TESTS):
        for path in (ROOT / folder).rglob("*.py"):
            for name in imported(path.relative_to(ROOT)):
                found[name].add(path.relative_to(ROOT))
    return found


def is_test(path: Path) -> bool:
    return path.is_relative_to(TESTS) and path.name.startswith("test_") and path.suffix == ".py"


def nearest(paths: t.Iterable[Path]) -> dict[Path, int]:
    """Tests -> their distance from these files: how many imports lie between."""
    distance = {path: 0 for path in paths if path.suffix == ".py"}
    waiting = collections.deque(distance)
    while waiting:
        path = waiting.popleft()
        # A conftest.py is used by the tests of its folder without an import.
        users = set((ROOT / path).parent.rglob("test_*.py")) if path.name == "conftest.py" else set()
        for user in {*importers()[module_name(path)], *(user.relative_to(ROOT) for user in users)}:
            if user not in distance:
                distance[user] = distance[path] + 1
                waiting.append(user)
    return {path: steps for path, steps in distance.items() if is_test(path) and (ROOT / path).exists()}


def named(paths: t.Iterable[Path]) -> set[Path]:
    """Tests whose text has the name of such a file (a page, a task file, a script), or of a folder in which it is."""
    words = {
        word
        for path in paths
        if path.suffix != ".py" or path.parts[0] == "scripts"
        for word in (path.name, *path.parts[:-1])
    }
    words -= {"main.yml", "tasks", "tests", "plugins"}  # of many
    name = re.compile(r"""["'/](%s)["'/ ]""" % "|".join(map(re.escape, sorted(words))))
    tests = [
        path for path in (ROOT / TESTS).rglob("test_*.py") if words and name.search(path.read_text(encoding="utf-8"))
    ]
    return {path.relative_to(ROOT) for path in tests}


def chosen(paths: t.Collection[Path]) -> list[Path]:
    """All tests that have to do with these files, the nearest first."""
    distance = dict.fromkeys(named(paths), 2)
    distance.update(nearest(paths))
    return sorted(distance, key=lambda path: (distance[path], path))


def main() -> None:
    if sys.argv[1:] in (["-h"], ["--help"]):
        print(__doc__.strip())
        return
    tests = chosen(changed(sys.argv[1] if sys.argv[1:] else "HEAD"))
    for path in tests[:MOST]:
        print(path)
    if tests[MOST:]:
        print("%d files of tests are farther away: scripts/test units" % len(tests[MOST:]), file=sys.stderr)


if __name__ == "__main__":
    main()
