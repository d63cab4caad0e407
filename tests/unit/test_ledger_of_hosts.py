# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""No task of a host opens the ledger, but for the exceptions of ledger_exceptions.py. Which actions run on hosts is what playbooks say.

The functions that such a task may call are found in the source: by names that are imported, and by methods of the same name in related classes.
tests/simulated_py compares what tasks really open with the same exceptions.
"""

from __future__ import annotations

import ast
import functools
import typing as t
from pathlib import Path

import yaml

from .worlds.ledger_exceptions import EXCEPTIONS, reason

ROOT = Path(__file__).resolve().parents[2]
PLUGINS = ROOT / "plugins"
OPENS = {"open_ledger", "rehearsal_ledger", "write"}  # methods of an action
#: Methods of a Work that run on hosts, besides the stages that on_hosts() names.
OF_WORK = {"on_host", "undo_on_host", "screen", "judged", "freeze", "release", "on_store_host"}

CONTROLLER = (".on_controller", "._run_on_controller")  # of Stages

Function = t.Tuple[str, str]  # file below plugins/, qualified name


class Source:
    """The functions of a file, and what its names mean."""

    def __init__(self, path: Path):
        self.name = path.relative_to(PLUGINS).as_posix()
        self.tree = ast.parse(path.read_text())
        self.functions: dict[str, ast.AST] = {}
        self.classes: dict[str, ast.ClassDef] = {}
        self.names: dict[str, tuple[str, str]] = {}  # name -> (file, function or class; "": the file itself)
        for node in self.tree.body:
            if isinstance(node, ast.FunctionDef):
                self.functions[node.name] = node
            if isinstance(node, ast.ClassDef):
                self.classes[node.name] = node
                methods = [n for n in node.body if isinstance(n, ast.FunctionDef)]
                self.functions.update({"%s.%s" % (node.name, n.name): n for n in methods})
        for imported in ast.walk(self.tree):
            if isinstance(imported, ast.ImportFrom) and imported.level:
                folder = path.parents[imported.level - 1].joinpath(*(imported.module or "").split("."))
                for alias in imported.names:
                    self._learn(folder, alias.asname or alias.name, alias.name)

    def _learn(self, folder: Path, name: str, target: str) -> None:
        if (folder / (target + ".py")).is_file():
            self.names[name] = ((folder / (target + ".py")).relative_to(PLUGINS).as_posix(), "")
        elif folder.with_suffix(".py").is_file():
            self.names[name] = (folder.with_suffix(".py").relative_to(PLUGINS).as_posix(), target)


@functools.lru_cache(maxsize=None)
def sources() -> dict[str, Source]:
    paths = [*(PLUGINS / "action").glob("*.py"), *(PLUGINS / "plugin_utils").rglob("*.py")]
    return {s.name: s for s in map(Source, paths)}


def actions_on_hosts() -> dict[str, set[str]]:
    """Return the actions that playbooks run on hosts, and with which values of ``phase`` ("": without)."""
    found: dict[str, set[str]] = {}
    for path in (ROOT / "playbooks").glob("*.yml"):
        for play in yaml.safe_load(path.read_text()):
            if "localhost'" in str(play.get("hosts")) or str(play.get("hosts")) == "localhost" or "hosts" not in play:
                continue
            for task in play.get("tasks", ()):
                for name, options in task.items():
                    if name.startswith("bootflow.compute."):
                        found.setdefault(name.rpartition(".")[2], set()).add(str((options or {}).get("phase", "")))
    return found


def related(name: str) -> set[str]:
    """Return the names of a class, and of classes that it is made of or that are made of it."""
    bases = {
        n: {getattr(b, "id", getattr(b, "attr", "")) for b in node.bases}
        for s in sources().values()
        for n, node in s.classes.items()
    }
    found, new = set(), {name}
    while new:
        found |= new
        new = {b for n in new for b in bases.get(n, ())} | {n for n, of in bases.items() if of & {name}}
        new -= found
    return found


@functools.lru_cache(maxsize=None)
def methods(class_name: str, name: str) -> tuple[Function, ...]:
    names = related(class_name)
    return tuple(
        (s.name, "%s.%s" % (c, name))
        for s in sources().values()
        for c in s.classes
        if c in names and "%s.%s" % (c, name) in s.functions
    )


def called(function: Function) -> set[Function]:
    """Return the functions that this one may call."""
    source, own_class = sources()[function[0]], function[1].partition(".")[0] if "." in function[1] else ""
    found: set[Function] = set()

    def named(name: str, file: str, members: t.Collection[str] = ()) -> None:
        there = sources().get(file)
        if there is not None and name in there.functions:
            found.add((file, name))
        if there is not None and name in there.classes and name != "LedgerAction":  # of a hint
            for member in {"__init__", "run", *members}:
                found.update(methods(name, member))

    for node in ast.walk(source.functions[function[1]]):
        if isinstance(node, ast.Name):
            named(node.id, source.name)
            named(source.names[node.id][1], source.names[node.id][0]) if node.id in source.names else None
        if isinstance(node, ast.Attribute):
            value = node.value
            if isinstance(value, ast.Name) and value.id == "self" and own_class:
                of_class = methods(own_class, node.attr)
                found.update(f for f in of_class if own_class != "ActionModule" or f[0] == source.name)
            elif isinstance(value, ast.Name) and value.id in source.names and not source.names[value.id][1]:
                named(node.attr, source.names[value.id][0])
            elif isinstance(value, ast.Name) and value.id == "work":
                found.update(methods("BuildWork", node.attr))
    return found


def opens(function: Function) -> bool:
    """Whether it opens a ledger itself."""
    nodes = ast.walk(sources()[function[0]].functions[function[1]])
    actions = ("self.action", "action", "self")
    return any(
        isinstance(n, ast.Attribute) and n.attr in OPENS and ast.unparse(n.value) in actions
        or isinstance(n, ast.Attribute) and ast.unparse(n) == "database.open_ledger"
        for n in nodes
    )  # fmt: skip


def roots() -> set[Function]:
    """Return the functions in which tasks of hosts begin."""
    on_hosts = actions_on_hosts()
    found: set[Function] = set()
    for source in sources().values():
        for name in source.functions:
            owner, _dot, method = name.rpartition(".")
            if method == "on_hosts":
                found |= called((source.name, name))
            if method in OF_WORK and "Work" in related(owner):
                found.add((source.name, name))
    for action, phases in on_hosts.items():
        source = sources().get("action/%s.py" % action)
        stages = {"ActionModule._%s" % phase for phase in phases if phase} or {"ActionModule.act"}
        found |= {(source.name, s) for s in stages if source is not None and s in source.functions}
    return found


def reached() -> set[Function]:
    found: set[Function] = set()
    new = roots()
    while new:
        found |= new
        new = {f for function in new if not function[1].endswith(CONTROLLER) for f in called(function)} - found
    return found


def _word(function: Function) -> str:
    return "%s %s" % (function[0], function[1].rpartition(".")[2])


def test_actions_on_hosts_are_known() -> None:
    on_hosts = actions_on_hosts()
    assert {"boot_build", "instance_remove", "storage_stage", "compute_report"} <= set(on_hosts)
    assert "work" in on_hosts["instance_operation"] and "finish" not in on_hosts["instance_operation"]
    assert len(roots()) > 50


def test_tasks_of_hosts_open_the_ledger_only_where_that_is_an_exception() -> None:
    opening = sorted({_word(f) for f in reached() if opens(f)})
    assert [word for word in opening if reason(word) is None] == []
    assert len(opening) > 20, "the exceptions are found"


def test_each_exception_is_needed() -> None:
    opening = {
        _word(f) for source in sources().values() for name in source.functions if opens(f := (source.name, name))
    }
    assert [b for b in EXCEPTIONS if not any(word.startswith(b) for word in opening)] == []
