#!/usr/bin/env python
# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Names the modules of hosts whose RETURN differs from their answers in plugins/module_utils/core/answers; with --write it writes RETURN."""

from __future__ import annotations

import importlib
import sys
import textwrap
import typing as t
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[1]
MODULES = ROOT / "plugins" / "modules"
BEGIN, END = 'RETURN = r"""\n', '"""\n'
WIDTH = 156
sys.path.insert(0, str(ROOT / "plugins" / "module_utils"))
shapes: t.Any = importlib.import_module("core.answers.shapes")  # core is no package of the collection here
ANSWERS: t.Any = importlib.import_module("core.answers.answer").ANSWERS


def described(fields: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    """The fields with documentation, by their names."""
    return {name: field for name, field in fields.items() if isinstance(field, shapes.Field)}


def fields_of(field: t.Any) -> dict[str, t.Any]:
    """The described fields of a mapping, or of the mappings in a list or mapping."""
    if field.contains is not None:
        return described(field.contains)
    return described(shapes.kind_of(field.shape).fields) if field.shape is not None else {}


def value(field: t.Any) -> dict[str, t.Any]:
    """What RETURN says of a field."""
    kind = shapes.kind_of(field.shape) if field.shape is not None else shapes.Kind("")
    elements = field.elements or kind.elements
    found: dict[str, t.Any] = {
        "description": field.help if isinstance(field.help, str) else list(field.help),
        "type": field.type or kind.type,
        **({"elements": elements} if elements else {}),
        "returned": field.returned,
        **({"sample": field.sample} if field.sample is not None else {}),
    }
    contains = fields_of(field)
    return {**found, "contains": {name: value(each) for name, each in contains.items()}} if contains else found


def with_step(answer: dict[str, t.Any], step: str) -> dict[str, t.Any]:
    """Say with each field that only one step returns which step that is."""
    return {
        name: {**field, "returned": "%s, with O(step=%s)" % (field["returned"], step)} for name, field in answer.items()
    }


def merged(answers: t.Mapping[str, dict[str, t.Any]]) -> dict[str, t.Any]:
    """The answers of a module's steps as one. A field that all steps have is said once, one that some have with the first of them."""
    found: dict[str, t.Any] = {}
    for step, answer in answers.items():
        for name, field in answer.items():
            if all(name in other for other in answers.values()):
                contents = {s: other[name].get("contains", {}) for s, other in answers.items()}
                found[name] = {**field, **({"contains": merged(contents)} if any(contents.values()) else {})}
            elif name not in found:
                found.update(with_step({name: field}, step))
    if "error" in found:  # the last one of an outcome
        found["error"] = found.pop("error")
    return found


def answers() -> dict[str, dict[str, t.Any]]:
    """Module -> what its RETURN says."""
    found: dict[str, dict[str, dict[str, t.Any]]] = {}
    for name, (required, optional) in ANSWERS.items():
        module, _dot, step = name.partition(".")
        fields = described({**required, **optional})
        found.setdefault(module, {})[step] = {field: value(each) for field, each in fields.items()}
    return {module: merged(steps) for module, steps in found.items()}


# --- YAML ---------------------------------------------------------------------------------------------------------------


def scalar(text: str) -> str:
    """A text on one line, quoted where YAML would read it otherwise."""
    try:
        if yaml.safe_load("a: %s" % text) == {"a": text}:
            return text
    except yaml.YAMLError:
        pass
    return '"%s"' % text.replace("\\", "\\\\").replace('"', '\\"')


def item(text: str, indent: str) -> str:
    """A text as an item of a list."""
    plain = scalar(text)
    lines = textwrap.wrap(plain, WIDTH - len(indent), break_on_hyphens=False, break_long_words=False)
    return "%s- %s\n" % (indent, ("\n%s  " % indent).join(lines))


def block(fields: t.Mapping[str, t.Any], indent: str = "") -> str:
    text = ""
    for name, field in fields.items():
        text += "%s%s:\n" % (indent, name)
        inner = indent + "  "
        help_ = field["description"]
        if isinstance(help_, str) and len(inner + "description: " + scalar(help_)) <= WIDTH:
            text += "%sdescription: %s\n" % (inner, scalar(help_))
        else:
            parts = [help_] if isinstance(help_, str) else help_
            text += "%sdescription:\n%s" % (inner, "".join(item(part, inner + "  ") for part in parts))
        for key in ("type", "elements", "returned"):
            if key in field:
                text += "%s%s: %s\n" % (inner, key, scalar(field[key]))
        if "sample" in field:
            text += sample(field["sample"], inner)
        if "contains" in field:
            text += "%scontains:\n%s" % (inner, block(field["contains"], inner + "  "))
    return text


def sample(example: t.Any, indent: str) -> str:
    return textwrap.indent(yaml.safe_dump({"sample": example}, sort_keys=False, width=WIDTH), indent)


def files() -> dict[Path, str]:
    """Module -> its text with the RETURN that its answers give."""
    found = {}
    for module, fields in answers().items():
        path = MODULES / ("%s.py" % module)
        text = path.read_text()
        begin = text.index(BEGIN) + len(BEGIN)
        found[path] = text[:begin] + "---\n" + block(fields) + text[text.index(END, begin) :]
    return found


if __name__ == "__main__":
    different = {path: text for path, text in files().items() if path.read_text() != text}
    for path, text in different.items():
        print(path.relative_to(ROOT))
        if sys.argv[1:] == ["--write"]:
            path.write_text(text)
    sys.exit(bool(different) and sys.argv[1:] != ["--write"])
