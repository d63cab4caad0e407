# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What ansible-doc tells of a ledger-side module is what its action takes: their arguments are written twice."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest
import yaml

from ansible_collections.bootflow.compute.plugins.module_utils.core.reading.setting import Setting
from ansible_collections.bootflow.compute.plugins.plugin_utils.ledger_action import COMMON

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = "ansible_collections.bootflow.compute.plugins"
ACTIONS = sorted(p.stem for p in (ROOT / "plugins" / "action").glob("*.py") if p.stem != "__init__")
HOST_SIDE = sorted(p.stem for p in (ROOT / "plugins" / "modules").glob("*.py") if "def argument_spec(" in p.read_text())


def documented(name: str) -> dict[str, dict]:
    module = importlib.import_module("%s.modules.%s" % (PACKAGE, name))
    text = yaml.safe_load(module.DOCUMENTATION)
    options = {}
    for fragment in text["extends_documentation_fragment"]:
        found = importlib.import_module("%s.doc_fragments.%s" % (PACKAGE, fragment.rpartition(".")[2]))
        options.update(yaml.safe_load(found.ModuleDocFragment.DOCUMENTATION).get("options") or {})
    options.update(text.get("options") or {})  # as in Ansible, what the module says itself counts
    return options


@pytest.mark.parametrize("name", ACTIONS)
def test_documentation_is_the_argument_spec(name: str) -> None:
    action = importlib.import_module("%s.action.%s" % (PACKAGE, name)).ActionModule
    spec = {**COMMON, **action.ARGUMENTS}
    told = documented(name)
    assert sorted(told) == sorted(spec)
    for option, argument in spec.items():
        setting = argument if isinstance(argument, Setting) else None
        wanted = setting.argument() if setting is not None else argument
        for key in ("type", "elements", "choices", "default", "required"):
            assert told[option].get(key) == wanted.get(key), "%s.%s of %s" % (option, key, name)
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
