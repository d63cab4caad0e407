# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The floors: imports go down only, without circles, and the core stands alone.

What an ``if TYPE_CHECKING`` or a function imports counts too.
"""

from __future__ import annotations

import ast
import functools
import re
import subprocess
import sys
import typing as t
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FLOORS = ROOT / "plugins" / "module_utils"
PREFIX = "ansible_collections.bootflow.compute.plugins."

# What a floor may import: floors of ours, and libraries beside the standard library.
FLOOR: dict[str, tuple[set[str], set[str]]] = {
    "core": (set(), {"jsonschema", "lxml", "numpy"}),
    "ledger": ({"core"}, {"alembic", "psycopg", "sqlalchemy"}),
    "hosts": ({"core"}, {"libvirt", "lxml", "pycdlib"}),
    "flows": ({"core", "ledger"}, set()),
    "plugin_utils": ({"core", "ledger", "flows"}, {"ansible"}),
    "action": ({"core", "ledger", "flows", "plugin_utils"}, {"ansible"}),
    "inventory": ({"core", "ledger", "flows", "plugin_utils"}, {"ansible"}),
    "modules": ({"core", "hosts"}, {"ansible", "libvirt"}),
    "doc_fragments": (set(), set()),
}
IMPURE = {"sqlite3", "subprocess"}  # of the standard library, for the core
OPEN_URL = ("hosts.images.web", "ansible")  # of Ansible's library for modules, which every host gets with them
FILES_OF_A_FOLDER = 20
FILES_OF_A_ROOM = 12  # of plugin_utils
OF_ANSIBLE = {"action", "modules"}  # finds them in these folders only


def python(code: str) -> str:
    done = subprocess.run([sys.executable, "-I", "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_example_of_the_documentation_runs() -> None:
    text = (ROOT / "docs" / "core.md").read_text()
    code = re.search(r"```python\n(.*?)```", text, re.DOTALL)
    assert code is not None
    answer = python(code.group(1)).splitlines()
    assert [line.split()[:2] for line in answer] == [["one", "kvm2"], ["two", "kvm1"]]


def test_the_table_of_the_documentation_names_what_there_is() -> None:
    rows = re.findall(r"^\| [^|]+ \| ([^|]+) \| ([^|]+) \|$", (ROOT / "docs" / "core.md").read_text(), re.MULTILINE)[1:]
    assert len(rows) > 20
    for where, what in rows:
        folder = re.search(r"in `(\w+/)`", where)
        text = ""
        for name in re.findall(r"`([\w/]+(?:\.py|/))`", where):
            path = FLOORS / "core" / (folder.group(1) if folder and not name.endswith("/") else "") / name
            assert path.exists(), path
            text += "".join(p.read_text() for p in (path.glob("**/*.py") if path.is_dir() else [path]))
        for name in re.findall(r"`(\w+)[(`]", what):
            assert re.search(r"^ *(?:def |class )?%s\b" % name, text, re.MULTILINE), (where, name)


class Plugins:
    """The modules of plugins/ by their short names (core.model, action.audit), and what each imports."""

    def __init__(self) -> None:
        self.packages = set()
        self.paths: dict[str, Path] = {}
        for path in sorted((ROOT / "plugins").rglob("*.py")):
            parts = list(path.relative_to(ROOT / "plugins").with_suffix("").parts)
            if parts[-1] == "__init__":
                parts.pop()
                self.packages.add(short(".".join(parts)))
            self.paths[short(".".join(parts))] = path
        self.libraries: dict[str, set[str]] = {name: set() for name in self.paths}
        self.imports: dict[str, set[str]] = {name: set() for name in self.paths}
        for name in self.paths:
            self._read(name)

    def _read(self, name: str) -> None:
        here = name.split(".") if name in self.packages else name.split(".")[:-1]
        for node in ast.walk(ast.parse(self.paths[name].read_text())):
            if isinstance(node, ast.Import):
                self.libraries[name].update(alias.name.split(".")[0] for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                module = node.module or ""
                if node.level:
                    base = short(".".join([*here[: len(here) - node.level + 1], *([module] if module else [])]))
                elif module.startswith(PREFIX):
                    base = short(module[len(PREFIX) :])
                else:
                    self.libraries[name].add(module.split(".")[0])
                    continue
                for alias in node.names:
                    if alias.name == "sa":  # ledger.db has loaded it, or says that it is missing
                        self.libraries[name].add("sqlalchemy")
                    inner = "%s.%s" % (base, alias.name)
                    self.imports[name].add(inner if inner in self.paths else base)
        self.imports[name].discard(name)

    def room(self, name: str) -> str:
        """The folder of a module. A file beside folders stands for itself: what is below it may import it, or it them."""
        folder = name if name in self.packages else name.rpartition(".")[0]
        has_folders = any(other != folder and other.rpartition(".")[0] == folder for other in self.packages)
        return name if has_folders else folder


def short(name: str) -> str:
    return name[len("module_utils.") :] if name.startswith("module_utils.") else name


@functools.lru_cache(maxsize=None)
def plugins() -> Plugins:
    return Plugins()


def of_floor(floor: str) -> list[str]:
    return [name for name in plugins().paths if name.split(".")[0] == floor]


def circles(graph: t.Mapping[str, t.Collection[str]]) -> list[set[str]]:
    """The strongly connected parts of more than one node (Tarjan)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[set[str]] = []

    def visit(node: str) -> None:
        index[node] = low[node] = len(index)
        stack.append(node)
        for other in graph.get(node, ()):
            if other not in index:
                visit(other)
                low[node] = min(low[node], low[other])
            elif other in stack:
                low[node] = min(low[node], index[other])
        if low[node] == index[node]:
            part = set()
            while node not in part:
                part.add(stack.pop())
            if len(part) > 1:
                found.append(part)

    for node in list(graph):
        if node not in index:
            visit(node)
    return found


def test_the_core_runs_without_the_rest() -> None:
    python(
        "import sys, pkgutil, importlib\n"
        "sys.path.insert(0, 'plugins/module_utils')\n"
        "import core\n"
        "for m in pkgutil.walk_packages(core.__path__, 'core.'): importlib.import_module(m.name)\n"
        "bad = ('ansible', 'sqlalchemy', 'alembic', 'psycopg', 'libvirt')\n"
        "assert not [m for m in sys.modules if m.split('.')[0] in bad], sys.modules\n"
    )


@pytest.mark.parametrize("floor", FLOOR)
def test_a_floor_imports_floors_below_it_only(floor: str) -> None:
    below, _libraries = FLOOR[floor]
    upward = {
        (name, imported)
        for name in of_floor(floor)
        for imported in plugins().imports[name]
        if imported.split(".")[0] not in {floor, *below}
    }
    assert upward == set()


@pytest.mark.parametrize("floor", FLOOR)
def test_a_floor_uses_its_own_libraries_only(floor: str) -> None:
    allowed = FLOOR[floor][1] | set(sys.stdlib_module_names) - (IMPURE if floor == "core" else set())
    foreign = {(name, library) for name in of_floor(floor) for library in plugins().libraries[name] - allowed}
    assert foreign - {OPEN_URL} == set()


def test_no_module_imports_itself_by_others() -> None:
    assert circles(plugins().imports) == []


def with_subfolders(name: str) -> str:
    """The folder of a floor in which a module is, at any depth; a file beside these folders stands for itself."""
    return ".".join(name.split(".")[:2]) if name.count(".") > 1 or name in plugins().packages else name


@pytest.mark.parametrize(
    "room", [Plugins.room, lambda _plugins, name: with_subfolders(name)], ids=["folder", "with_subfolders"]
)
def test_no_folder_imports_itself_by_others(room: t.Callable[[Plugins, str], str]) -> None:
    graph: dict[str, set[str]] = {}
    for name, imported in plugins().imports.items():
        here = room(plugins(), name)
        graph.setdefault(here, set()).update(room(plugins(), i) for i in imported)
        graph[here].discard(here)
    assert circles(graph) == []


def test_a_folder_can_be_taken_in_at_a_glance() -> None:
    count: dict[str, int] = {}
    for name in plugins().paths:
        if name not in plugins().packages:
            folder = name.rpartition(".")[0]
            count[folder] = count.get(folder, 0) + 1
    larger = {
        folder: number
        for folder, number in count.items()
        if number > (FILES_OF_A_ROOM if folder.startswith("plugin_utils.") else FILES_OF_A_FOLDER)
    }
    assert set(larger) == OF_ANSIBLE, larger


def words_of_dialects(tree: ast.AST) -> list[int]:
    """Lines that ask for the name of a dialect, or compare with one."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr == "name":
            of = node.value
            if getattr(of, "attr", getattr(of, "id", "")) == "dialect":
                found.append(node.lineno)
        elif isinstance(node, ast.Compare):
            values = [node.left, *node.comparators]
            if any(isinstance(v, ast.Constant) and v.value in ("postgresql", "sqlite") for v in values):
                found.append(node.lineno)
    return found


def test_who_needs_to_know_the_database_asks_for_a_difference_by_its_name() -> None:
    """Of ledger.db.database_kind. Only the rooms of the engine and of what is there for speed may ask for the dialect itself."""
    asking = {
        (name, line)
        for name, path in plugins().paths.items()
        if not name.startswith(("ledger.db.", "ledger.fast."))
        for line in words_of_dialects(ast.parse(path.read_text()))
    }
    assert asking == set()
    for code in ("tx.dialect.name", "a(b.dialect.name)", "dialect.name", "'sqlite' != x", "x.name == 'postgresql'"):
        assert words_of_dialects(ast.parse(code)) == [1], code


def test_what_is_there_for_speed_says_what_it_sends_and_what_it_gains() -> None:
    files = [name for name in plugins().paths if name.startswith("ledger.fast.")]
    assert len(files) >= 6
    for name in files:
        text = ast.get_docstring(ast.parse(plugins().paths[name].read_text())) or ""
        assert re.search(r"^SQL: .*``", text, re.MULTILINE), name
        bench = re.search(r"^Bench: `scripts/bench (\w+)`, (.*)\.$", text, re.MULTILINE)
        assert bench is not None, name
        lines = (ROOT / "benchmarks" / (bench.group(1) + ".py")).read_text()
        named = re.findall(r'"([^"]+)"', bench.group(2))
        assert named and [line for line in named if line not in lines] == [], name
