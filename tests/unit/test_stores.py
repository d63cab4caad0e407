# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The types of stores for local disks are named in their own files and in the settings: all other files ask the type, or the store."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core.disks.stores.registry import (
    NAMES,
    NEED_GROUP,
    RECORD_FORMATS,
    SHARED,
    STORE_TYPES,
    places,
    type_of_record,
)

ROOT = Path(__file__).resolve().parents[2]
PLUGINS = ROOT / "plugins"
#: Names that no image format has, and constants with them.
TYPES = {"lvm", "qcow2_on_lvm"}
CONSTANTS = {"LVM", "QCOW2_ON_LVM", "ON_LVM"}
#: Names of types that are also image formats: they mean a type where they are compared with one of SUBJECTS, or are its value.
FORMATS = {"raw", "qcow2", "RAW", "QCOW2"}
SUBJECTS = {"format", "backend", "disk_backend"}
PROGRAMS = {"program", "which"}  # they are called with the name of a program of the host
OWN = tuple(
    "module_utils/%s/" % room
    for room in (
        "core/disks/stores",
        "core/settings",
        "core/volumes/drivers",  # of volumes: another kind with the same name
        "hosts/disks/arrivals",
        "hosts/disks/resizes",
        "hosts/disks/stores",
    )
)


def name_of(node: ast.AST) -> str:
    """The text of a literal, or the name of a variable, attribute, key of a subscript, or argument of get()."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "get" and node.args:
        return name_of(node.args[0])
    if isinstance(node, ast.Subscript):
        return name_of(node.slice)
    found = getattr(node, "attr", getattr(node, "id", getattr(node, "value", "")))
    return found if isinstance(found, str) else ""


def is_subject(node: ast.AST) -> bool:
    is_of_image = isinstance(node, ast.Attribute) and node.attr == "format"  # of the header of a file
    return name_of(node) in SUBJECTS and not is_of_image


def values(node: ast.AST) -> list[ast.AST]:
    return list(node.elts) if isinstance(node, (ast.Tuple, ast.List, ast.Set)) else [node]


def pairs(node: ast.AST) -> list[tuple[ast.AST, ast.AST]]:
    """The sides of comparisons, assignments and keyword arguments: of names and of values."""
    if isinstance(node, ast.Compare):
        sides = [node.left, *node.comparators]
        return [(a, b) for a in sides for b in sides if a is not b]
    if isinstance(node, ast.Assign):
        return [(target, node.value) for target in node.targets]
    if isinstance(node, ast.AnnAssign) and node.value is not None:
        return [(node.target, node.value)]
    if isinstance(node, ast.Dict):
        return [(key, value) for key, value in zip(node.keys, node.values) if key is not None]
    if isinstance(node, ast.Call):
        return [(ast.Name(word.arg or ""), word.value) for word in node.keywords]
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        names = [*node.args.posonlyargs, *node.args.args]
        defaults = list(zip(reversed(names), reversed(node.args.defaults)))
        defaults += [(name, value) for name, value in zip(node.args.kwonlyargs, node.args.kw_defaults) if value]
        return [(ast.Name(name.arg), value) for name, value in defaults]
    return []


def named_types(text: str) -> list[int]:
    """The lines of a module that name a type of store."""
    tree = ast.parse(text)
    programs = {
        id(arg)
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and name_of(node.func) in PROGRAMS
        for arg in node.args
    }
    found = set()
    for node in ast.walk(tree):
        line = getattr(node, "lineno", 0)
        if isinstance(node, ast.ImportFrom):
            names = {alias.name for alias in node.names} & CONSTANTS
            names |= (
                {node.module}
                if re.search(r"\bdisks\.stores\.(qcow2|raw|lvm|qcow2_on_lvm)$", node.module or "")
                else set()
            )
        elif isinstance(node, ast.Constant):
            names = TYPES & {node.value} if id(node) not in programs else set()
        elif isinstance(node, (ast.Name, ast.Attribute)):
            names = {name_of(node)} & CONSTANTS
        else:
            names = set()
        if names:
            found.add(line)
        for name, value in pairs(node):
            if is_subject(name) and any(name_of(each) in FORMATS for each in values(value)):
                found.add(line)
    return sorted(found)


def naming() -> dict[str, list[int]]:
    paths = {path: path.relative_to(PLUGINS).as_posix() for path in sorted(PLUGINS.rglob("*.py"))}
    found = {name: named_types(path.read_text()) for path, name in paths.items() if not name.startswith(OWN)}
    return {name: lines for name, lines in found.items() if lines}


def test_types_of_stores_are_named_in_their_own_files() -> None:
    assert naming() == {}


@pytest.mark.parametrize(
    "code",
    [
        "record['format'] == 'qcow2'",
        "record.get('format') not in ('qcow2', 'raw')",
        "x = 'lvm'",
        "from a import QCOW2_ON_LVM",
        "local.LVM == x",
        "f(backend='raw')",
        "backend: str = 'qcow2'",
        "def f(a, disk_backend='qcow2'): pass",
        "x = RAW if settings.disk_backend == RAW else y",
        "{'backend': 'raw'}",
        "spec.backend in ON_LVM",
        "from ...core.disks.stores.lvm import Lvm",
    ],
)
def test_a_name_of_a_type_is_found(code: str) -> None:
    assert named_types(code) == [1]


@pytest.mark.parametrize(
    "code",
    [
        "program('lvm', 'lvm2')",
        "driver == 'qcow2'",
        "backing.format != RAW",
        "from ...core.disks.stores.registry import NAMES",
        "convert(path, 'raw')",
        "'''Disks of lvm.'''",
        "record['format'] == form",
        "shutil.which('lvm', path='/sbin')",
    ],
)
def test_other_words_are_no_names_of_types(code: str) -> None:
    assert named_types(code) == []


def test_the_role_installs_programs_for_the_types_that_need_a_volume_group_or_a_pool() -> None:
    text = (ROOT / "roles" / "compute_host" / "vars" / "main.yml").read_text()
    assert "if compute_host_needs_lvm | bool else" in text
    found = re.findall(r"compute_host_disk_backend in \[(.*?)\]", text)
    assert [[name.strip("' ") for name in names.split(",")] for names in found] == [list(NEED_GROUP), list(SHARED)]


def test_a_disk_is_where_its_type_says() -> None:
    found = {name: tuple(each.source("U", "disk.swap", "/i/U", "vg"))[:3] for name, each in STORE_TYPES.items()}
    assert found == {
        "qcow2": ("/i/U/disk.swap", "qcow2", "file"),
        "raw": ("/i/U/disk.swap", "raw", "file"),
        "lvm": ("/dev/vg/U_disk.swap", "raw", "block"),
        "qcow2_on_lvm": ("/i/U/disk/disk.swap", "qcow2", "file"),
        "rbd": ("", "raw", "network"),
    }
    assert places("/i/U") == ["/i/U", "/i/U/disk"]


def test_the_type_of_a_disk_is_that_of_its_record() -> None:
    assert {name: type_of_record({"format": name}) for name in NAMES} == STORE_TYPES
    assert [type_of_record(record) for record in (None, {}, {"format": "vmdk"}, {"format": ["raw"]}, "raw")] == [
        None
    ] * 5
    assert RECORD_FORMATS == ("qcow2", "raw", "lvm", "rbd")
