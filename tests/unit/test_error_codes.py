# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Error codes: one family, documented, and nothing outside of it."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import typing as t
from pathlib import Path

import yaml

from ansible_collections.bootflow.compute.plugins.doc_fragments.attributes import ModuleDocFragment
from ansible_collections.bootflow.compute.plugins.module_utils.core import errors

ROOT = Path(__file__).resolve().parents[2]
PLUGINS = ROOT / "plugins"
FAMILY = PLUGINS / "module_utils" / "core" / "errors"
MODULES = sorted((PLUGINS / "modules").glob("*.py"))
FAILURE_FIELDS = ("error_code", "status", "remedy", "retryable")


def family(cls: type[errors.BootflowError] = errors.BootflowError) -> t.Iterator[type[errors.BootflowError]]:
    for child in cls.__subclasses__():
        yield child
        yield from family(child)


CLASSES = sorted({c for c in family() if c.__module__.startswith(errors.__name__ + ".")}, key=lambda c: c.__name__)
CODES = {c.__name__ for c in CLASSES}


def sources() -> dict[Path, str]:
    paths = [*PLUGINS.rglob("*.py"), *PLUGINS.rglob("*.json")]
    return {p: p.read_text() for p in paths if FAMILY not in p.parents}


def returned(path: Path) -> dict[str, t.Any]:
    text = re.search(r'^RETURN = r?"""(.*?)^"""', path.read_text(), re.DOTALL | re.MULTILINE)
    assert text is not None, path
    return t.cast("dict[str, t.Any]", yaml.safe_load(text.group(1)))


def test_the_page_of_errors_is_that_of_the_classes() -> None:
    script = [sys.executable, str(ROOT / "scripts" / "error_codes.py")]
    page = subprocess.run(script, capture_output=True, text=True, check=True).stdout
    assert (ROOT / "docs" / "errors.md").read_text() == page, "run scripts/error_codes.py > docs/errors.md"
    assert set(re.findall(r"^\| `(\w+)` \| \d", page, re.MULTILINE)) == CODES


def test_every_class_says_what_it_means() -> None:
    assert not [c.__name__ for c in CLASSES if not c.__dict__.get("__doc__")]


def made(text: str) -> set[str]:
    """The names that a module uses otherwise than to import, to look for (in tuples of classes, isinstance, except) or to annotate."""
    tree = ast.parse(text)
    skipped: list[ast.AST | None] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Tuple):
            skipped += node.elts
        elif isinstance(node, ast.ExceptHandler):
            skipped.append(node.type)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "isinstance":
            skipped.append(node.args[1])
        elif isinstance(node, (ast.AnnAssign, ast.arg)):
            skipped.append(node.annotation)
        elif isinstance(node, ast.FunctionDef):
            skipped.append(node.returns)
    looked_for = {id(node) for node in skipped}
    found = set()
    for node in ast.walk(tree):
        if id(node) not in looked_for and isinstance(node, (ast.Name, ast.Attribute)):
            found.add(node.id if isinstance(node, ast.Name) else node.attr)
    return found


def test_every_class_is_used() -> None:
    """Raised, returned or handed on. A kind that others are derived from may serve only to look for them."""
    found = set()
    for path, text in sources().items():
        found |= made(text) if path.suffix == ".py" else set(re.findall(r'"x-code": "(\w+)"', text))
    assert not [c.__name__ for c in CLASSES if c.__name__ not in found and not c.__subclasses__()]


def test_every_code_is_of_the_family() -> None:
    literal = re.compile(
        r"""(?:\berror_code=|["'](?:error_)?code["']\]? *(?::|==|!=|in)|["']x-code["']:) *["'](\w+)["']"""
    )
    text = sources()
    unknown = {(p.name, code) for p in text for code in literal.findall(text[p]) if code not in CODES}
    assert not unknown
    root = re.compile(r"(?<!class )\bBootflowError\(")
    assert not [p for p in text if root.search(text[p])], "the root of the family is not a code"


def test_every_module_documents_its_failure() -> None:
    """RETURN has no fragments: what all modules return on failure is a note of the fragment that all have."""
    (note,) = yaml.safe_load(ModuleDocFragment.DOCUMENTATION)["notes"]
    assert re.findall(r"C\((\w+)\)", note) == list(FAILURE_FIELDS)
    for path in MODULES:
        found = re.search(r'^DOCUMENTATION = r"""(.*?)^"""', path.read_text(), re.DOTALL | re.MULTILINE)
        assert found is not None, path
        assert "bootflow.compute.attributes" in yaml.safe_load(found.group(1))["extends_documentation_fragment"], path
        assert not set(FAILURE_FIELDS) & set(returned(path)), path


def fields(values: dict[str, t.Any], of: str = "") -> t.Iterator[tuple[str, dict[str, t.Any]]]:
    for name, field in values.items():
        yield of + name, field
        yield from fields(field.get("contains", {}), of + name + ".")


SAME = ("errors", "failed_items", "outcomes.error", "image_outcomes.error", "builds", "failed_builds")


def test_modules_document_the_same_field_in_the_same_words() -> None:
    """RETURN has no fragments: the text stands in each module, and only its sample may differ."""
    texts: dict[str, dict[str, list[str]]] = {}
    for path in MODULES:
        for name, field in fields(returned(path)):
            if name in SAME and (path.stem, name) != ("storage_stage", "failed_items"):  # a mapping, of a success
                text = str(sorted((key, value) for key, value in field.items() if key != "sample"))
                texts.setdefault(name.replace("image_", ""), {}).setdefault(text, []).append(path.stem)
    assert texts.keys() == {name.replace("image_", "") for name in SAME}
    assert {name: text for name, text in texts.items() if len(text) > 1} == {}
