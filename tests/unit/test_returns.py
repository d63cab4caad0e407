# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""RETURN of the modules of hosts is written from their answers in core/answers."""

from __future__ import annotations

import subprocess
import sys
import typing as t
from pathlib import Path

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core.answers.answer import ANSWERS
from ansible_collections.bootflow.compute.plugins.module_utils.core.answers.shapes import (
    Field,
    Fields,
    Misshapen,
    flag,
    items,
    kind_of,
    record,
    shapes_of,
    whole,
)

ROOT = Path(__file__).resolve().parents[2]
MODULES = ROOT / "plugins" / "modules"


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    script = [sys.executable, str(ROOT / "scripts" / "returns.py"), *arguments]
    return subprocess.run(script, capture_output=True, text=True, check=False)


def test_returns_are_those_of_the_answers() -> None:
    done = run()
    assert done.returncode == 0, "run scripts/returns.py --write; it would change:\n%s%s" % (done.stdout, done.stderr)


def test_every_module_of_a_host_has_an_answer() -> None:
    line = "\nfrom ansible.module_utils.basic import AnsibleModule\n"
    on_hosts = {p.stem for p in MODULES.glob("*.py") if line in p.read_text()}
    assert {name.partition(".")[0] for name in ANSWERS} == on_hosts


@pytest.mark.parametrize("module", ANSWERS)
def test_a_field_has_a_type(module: str) -> None:
    """By its shape, or where the controller does not read it by itself."""

    def check(fields: Fields, path: str) -> None:
        for name, field in fields.items():
            if isinstance(field, Field):
                assert bool(field.type) == (field.shape is None), path + name
                assert field.help, path + name
                inner = field.contains or (kind_of(field.shape).fields if field.shape is not None else {})
                check({} if field.contains == {} else inner, "%s%s." % (path, name))

    for fields in ANSWERS[module]:
        check(fields, module + ": ")


def test_the_documentation_of_a_shape_follows_from_it() -> None:
    fields: dict[str, t.Any] = {"a": Field(whole(), "A number."), "b": Field(None, "Anything.", type="str"), "c": flag}
    assert list(shapes_of(fields)) == ["a", "c"]
    shape = items(record(fields))
    assert kind_of(shape) == ("list", "dict", fields)
    shape([{"a": 1, "b": ["not read"], "c": True}], "")
    with pytest.raises(Misshapen):
        shape([{"a": "1", "b": "", "c": True}], "")
