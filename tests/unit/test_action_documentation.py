# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What ansible-doc reports of a module is what its argument spec takes: arguments are written twice."""

from __future__ import annotations

import importlib
import re
import typing as t
from pathlib import Path

import pytest
import yaml

from ansible_collections.bootflow.compute.plugins.module_utils.core.reading.setting import Setting
from ansible_collections.bootflow.compute.plugins.plugin_utils.run.ledger_action import COMMON

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = "ansible_collections.bootflow.compute.plugins"
ACTIONS = sorted(p.stem for p in (ROOT / "plugins" / "action").glob("*.py") if p.stem != "__init__")
MODULES = sorted((ROOT / "plugins" / "modules").glob("*.py"))
HOST_SIDE = sorted(p.stem for p in MODULES if "def argument_spec(" in p.read_text())


def of_module(name: str) -> dict[str, t.Any]:
    module = importlib.import_module("%s.modules.%s" % (PACKAGE, name))
    return t.cast("dict[str, t.Any]", yaml.safe_load(module.DOCUMENTATION))


def fragment_of(slug: str) -> tuple[str, str]:
    """bootflow.compute.shared.workers -> (shared, WORKERS)"""
    name, _dot, variable = slug.removeprefix("bootflow.compute.").partition(".")
    return name, variable.upper() or "DOCUMENTATION"


def documented(name: str) -> dict[str, dict]:
    text = of_module(name)
    options: dict[str, dict] = {}
    for slug in text["extends_documentation_fragment"]:
        fragment, variable = fragment_of(slug)
        found = importlib.import_module("%s.doc_fragments.%s" % (PACKAGE, fragment)).ModuleDocFragment
        options.update(yaml.safe_load(getattr(found, variable)).get("options") or {})
    for option, own in (text.get("options") or {}).items():  # as in Ansible, what the module says itself counts
        options[option] = {**options.get(option, {}), **own}
    return options


def test_each_documentation_fragment_is_of_use() -> None:
    used = {fragment_of(slug) for p in MODULES for slug in of_module(p.stem)["extends_documentation_fragment"]}
    fragments = sorted(p.stem for p in (ROOT / "plugins" / "doc_fragments").glob("*.py"))
    classes = {f: importlib.import_module("%s.doc_fragments.%s" % (PACKAGE, f)).ModuleDocFragment for f in fragments}
    assert used == {(f, variable) for f in fragments for variable in vars(classes[f]) if variable.isupper()}


@pytest.mark.parametrize("name", ACTIONS)
def test_documentation_is_the_argument_spec(name: str) -> None:
    action = importlib.import_module("%s.action.%s" % (PACKAGE, name)).ActionModule
    spec = {**COMMON, **action.ARGUMENTS}
    told = documented(name)
    assert sorted(told) == sorted(spec)
    for option, argument in spec.items():
        setting = argument if isinstance(argument, Setting) else None
        wanted = setting.argument() if setting is not None else argument
        for key in ("type", "elements", "choices", "default"):
            assert told[option].get(key) == wanted.get(key), "%s.%s of %s" % (option, key, name)
        assert bool(told[option].get("required")) == bool(wanted.get("required")), "%s of %s" % (option, name)
        description = " ".join(
            [told[option]["description"]]
            if isinstance(told[option]["description"], str)
            else told[option]["description"]
        )
        read = re.findall(r"Read from the variable C\((bootflow_\w+)\)", description)
        assert read == ([setting.variable] if setting is not None else []), option


@pytest.mark.parametrize("name", HOST_SIDE)
def test_documentation_of_a_host_side_module_is_its_argument_spec(name: str) -> None:
    module = importlib.import_module("%s.modules.%s" % (PACKAGE, name))
    compare(name, documented(name), module.argument_spec())


def compare(where: str, told: dict[str, dict], spec: dict[str, dict]) -> None:
    assert sorted(told) == sorted(spec), where
    for option, argument in spec.items():
        path = "%s.%s" % (where, option)
        for key in ("type", "elements", "choices", "default"):
            assert told[option].get(key) == argument.get(key), (path, key)
        assert bool(told[option].get("required")) == bool(argument.get("required")), path
        compare(path, told[option].get("suboptions", {}), argument.get("options", {}))
