# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Settings: each is declared once, all documents follow from that, and a wrong value names its variable wherever it is read."""

from __future__ import annotations

import importlib
import re
import runpy
import subprocess
import sys
import typing as t
from pathlib import Path

import pytest
import yaml

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.core.reading.problems import Problems
from ansible_collections.bootflow.compute.plugins.module_utils.core.reading.setting import (
    ENTRIES,
    REQUESTS,
    Setting,
    Table,
    to_number,
)
from ansible_collections.bootflow.compute.plugins.module_utils.core.settings import names, table
from ansible_collections.bootflow.compute.plugins.module_utils.core.settings.hosts import HOST
from ansible_collections.bootflow.compute.plugins.module_utils.core.settings.run import LEDGER, PLAYBOOKS, RUN
from ansible_collections.bootflow.compute.plugins.module_utils.core.settings.selection import INSTANCES
from ansible_collections.bootflow.compute.plugins.module_utils.core.settings.storage import BACKEND, STORAGE
from ansible_collections.bootflow.compute.plugins.module_utils.core.settings.volumes import VOLUME_SELECTION
from ansible_collections.bootflow.compute.plugins.plugin_utils.run.ledger_action import COMMON, read_settings

ROOT = Path(__file__).resolve().parents[2]
ACTIONS = sorted(p.stem for p in (ROOT / "plugins" / "action").glob("*.py") if p.stem != "__init__")
WORD = re.compile(r"(?<![\w./-])bootflow_[a-z0-9_]*[a-z0-9]\b(?![./])")
# Inventory groups, the folder of filters, a database, options of a connection
OTHERS = {"bootflow_compute", "bootflow_network_central", "bootflow_storage", "bootflow_filters", "bootflow_restored"}
OTHERS |= {"bootflow_migration", "bootflow_read_only"}


def arguments_of(name: str) -> dict[str, t.Any]:
    module = importlib.import_module("ansible_collections.bootflow.compute.plugins.action.%s" % name)
    return {**COMMON, **module.ActionModule.ARGUMENTS}


def wrong_values(setting: Setting) -> list[t.Any]:
    """Values that the setting cannot take; texts take almost anything."""
    kind = setting.value_kind.type
    found: list[t.Any] = [{}] if kind in ("int", "float", "bool", "str", "path") else [3.5, "-"]
    if setting.choices:
        found += ["no such choice", 7]
    elif kind in ("int", "float"):
        found += ["abc", "", True, "nan", [], "1e999"]
        found += [setting.least - 1] if setting.least is not None else []
        found += [setting.most + 1] if setting.most is not None else []
    elif kind == "bool":
        found += ["maybe", "", 2, []]
    elif kind == "list":
        found = [{"a": 1}, 7] if setting.value_kind.elements == "raw" else [{"a": 1}, [None], [[]]]
    elif kind == "dict":
        found = ["abc", 7, ["a"]]
    elif kind == "path":
        found += [""]
    return found


def shown(message: str, called: str, setting: Setting) -> None:
    """A message names the variable, what it expects, and the value, unless that is a secret."""
    assert message.startswith((called + " must be ", called + ": ")), message
    if message.startswith(called + " must be "):
        assert (", got " in message) != setting.secret


@pytest.mark.parametrize("name", sorted(table.ALL))
def test_a_wrong_value_is_an_error_that_names_the_variable(name: str) -> None:
    setting = table.ALL[name]
    for value in wrong_values(setting):
        if (
            value == 3.5
            and setting.value_kind.type == "raw"
            and to_number(value) is not None
            and "number" in setting.expects
        ):
            continue
        with pytest.raises(errors.InvalidInput) as caught:
            setting.read(value)
        shown(caught.value.message, name, setting)
        assert caught.value.remedy


@pytest.mark.parametrize("action", ACTIONS)
def test_every_action_refuses_a_wrong_value_of_each_of_its_variables(action: str) -> None:
    arguments = arguments_of(action)
    settings = {n: a.but(required=False) for n, a in arguments.items() if isinstance(a, Setting)}
    for option, setting in settings.items():
        assert setting.variable in table.ALL, setting.variable
        for value in wrong_values(setting)[:2]:
            if setting.name == "max_over_subscription_ratio" and value == 3.5:
                continue
            for given, variables, called in (
                ({}, {setting.variable: value}, setting.variable),
                ({option: value}, {}, option),
            ):
                with pytest.raises(errors.InvalidRequest) as caught:
                    read_settings(settings, given, variables.get)
                (error,) = caught.value.errors
                shown(error["message"], called, setting)


@pytest.mark.parametrize("settings", [HOST, STORAGE, RUN, LEDGER, PLAYBOOKS, BACKEND])
def test_defaults_fit_their_settings(settings: Table) -> None:
    problems = Problems()
    settings.check({}, "", problems)
    settings.check({s.variable: s.default for s in settings if s.default not in (None, ())}, "", problems)
    assert not problems.errors


def test_a_secret_is_never_printed() -> None:
    for setting in table.ALL.values():
        if setting.secret:
            with pytest.raises(errors.InvalidInput) as caught:
                setting.read({"x": "hunter2"} if setting.value_kind.type != "list" else "hunter2")
            assert "hunter2" not in caught.value.message
    assert {"bootflow_ledger_url", "bootflow_ledger_password", "bootflow_instances"} <= {
        s.variable for s in table.ALL.values() if s.secret
    }


def test_each_variable_has_one_declaration() -> None:
    """A table may have a setting of another one, and with other help and default where it is read otherwise; not another kind."""
    for _title, _text, settings in table.SECTIONS:
        for setting in settings:
            first = table.ALL[setting.variable]
            assert (setting.kind, setting.choices, setting.least) == (first.kind, first.choices, first.least)


def test_what_is_generated_is_that_of_the_declarations() -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "settings.py"), "--check"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, "run scripts/settings.py; it would change:\n%s%s" % (done.stdout, done.stderr)


def test_a_kind_is_among_the_choices_of_modules_when_it_is_in_its_registry() -> None:
    script = runpy.run_path(str(ROOT / "scripts" / "settings.py"))
    before = "    choices: [old]  # connectors\n    choices: [old]\n    choices: [a,\n  b]  # types of networks\n"
    after = "    choices: [kernel, qemu]  # connectors\n    choices: [old]\n    choices: [network, bridge, vxlan, vlan, macvtap, ovn]  # types of networks\n"
    assert script["with_choices_of_kinds"](before) == after
    found = [text for path, text in script["files"]().items() if path.parent.name in ("doc_fragments", "modules")]
    assert {word for text in found for word in script["CHOICES_OF_KINDS"].findall(text)} == set(script["KINDS"])


def test_an_option_of_a_role_that_is_a_setting_is_described_by_it() -> None:
    found = set()
    for role in (ROOT / "roles").iterdir():
        options = yaml.safe_load((role / "meta" / "argument_specs.yml").read_text())["argument_specs"]["main"][
            "options"
        ]
        for option, value in yaml.safe_load((role / "defaults" / "main.yml").read_text()).items():
            for variable in re.findall(r"bootflow_\w+", str(value)):
                setting, described = table.ALL[variable], options[option]
                found.add(variable)
                assert "Read from the variable C(%s)" % variable in " ".join(described["description"])
                assert tuple(described.get("choices", ())) == setting.choices
                default = re.search(r"default\((.*), true\)", str(value))
                expected = [] if setting.required or setting.default == () else setting.default
                assert default and yaml.safe_load(default.group(1)) == expected
    assert len(found) == 11


def test_every_name_in_messages_playbooks_and_documents_is_a_variable() -> None:
    paths = [
        *(p for folder in ("plugins", "roles", "playbooks", "inventory") for p in (ROOT / folder).rglob("*")),
        *(ROOT / "docs").rglob("*.md"),
        ROOT / "README.md",
    ]
    of_metrics = {
        ROOT / "docs" / "metrics.md",
        ROOT / "plugins" / "plugin_utils" / "metrics" / "gauges.py",
    }  # see test_metrics
    known = {*table.ALL, *names.RESULTS, *names.GIVEN, *OTHERS}
    texts = {
        p: p.read_text()
        for p in paths
        if p.is_file() and p not in of_metrics and p.suffix in (".py", ".yml", ".yaml", ".md", ".json")
    }
    unknown = {(str(p.relative_to(ROOT)), w) for p, text in texts.items() for w in WORD.findall(text) if w not in known}
    assert not unknown


def test_the_results_are_what_the_playbooks_register() -> None:
    text = "".join(p.read_text() for p in (ROOT / "playbooks").glob("*.yml"))
    passed = {
        "bootflow_" + name
        for name in (
            "round",
            "round_needed",
            "report_needed",
            "report_phase",
            "image_hosts",
            "image_lacking",
            "needed",
            "live_needed",
            "live_round",
            "live_again_needed",
            "go_on",
            "filters_alone",
            "filters_needed",
            "service_host",
        )
    }
    assert set(re.findall(r"register: (bootflow_\w+)", text)) | passed == names.RESULTS


@pytest.mark.parametrize("text", ["a,b", " a , b ", '["a", "b"]', "[a,b]", "[ a, b ]", "['a','b']", "['a', \"b\"]"])
def test_names_on_the_command_line_may_be_written_in_each_way(text: str) -> None:
    """JSON without its quotes is what a shell leaves of it, and YAML has the others."""
    assert INSTANCES.named("names").read(text) == ["a", "b"]


@pytest.mark.parametrize("text, names", [("it's", ["it's"]), ("[a", ["[a"]), ("'a'", ["'a'"]), ("['it's']", ["it's"])])
def test_brackets_and_quotes_are_a_list_s_only_as_a_pair(text: str, names: list[str]) -> None:
    assert INSTANCES.named("names").read(text) == names


def test_a_uuid_in_capitals_is_the_same_one() -> None:
    uuid = "0E7A7FC4-6d5b-5A5E-9d3a-0a4c6e2f7b11"
    for form in ([uuid, "Web"], "%s,Web" % uuid, '["%s", "Web"]' % uuid):
        assert INSTANCES.named("uuids").read(form) == [uuid.lower(), "Web"]
        assert VOLUME_SELECTION.named("volume_ids").read(form) == [uuid.lower(), "Web"]


@pytest.mark.parametrize("text", ["a\0b", "\ud800", "web-\udcff"])
def test_what_no_ledger_can_have_is_refused_before_it_is_asked(text: str) -> None:
    for name, value in (("names", [text]), ("uuids", text), ("project", text)):
        with pytest.raises(errors.InvalidInput, match="bootflow_%s must be" % name):
            INSTANCES.named(name).read(value)


def test_variables_that_do_not_exist() -> None:
    given = ["bootflow_wait_timout", "bootflow_booted", "bootflow_xyzzy", "other", "bootflow_my_racks"]
    assert table.unknown(given, [Setting("my_racks", list)]) == {
        "bootflow_wait_timout": "bootflow_wait_timeout",
        "bootflow_xyzzy": "",
    }


@pytest.mark.parametrize("kind", [dict, list, str, int, ENTRIES, REQUESTS])
@pytest.mark.parametrize("form", ["list", "mapping", "aliases"])
def test_a_value_that_is_nested_too_deep_is_an_error(kind: t.Any, form: str) -> None:
    """Of whatever type, and of none that ends Python's stack or memory."""
    value: t.Any = 0
    for _level in range(5000):
        value = {"a": value} if form == "mapping" else [value, value] if form == "aliases" else [value]
    with pytest.raises(errors.InvalidInput) as caught:
        Setting("deep", kind).read(value)
    assert caught.value.message == "bootflow_deep must be nested at most 64 levels deep"


@pytest.mark.parametrize("kind", [dict, list, ENTRIES, REQUESTS])
def test_a_json_text_that_is_nested_too_deep_is_an_error(kind: t.Any) -> None:
    """As extra variables on the command line are given."""
    with pytest.raises(errors.InvalidInput) as caught:
        Setting("deep", kind).read("[" * 100_000)
    assert "bootflow_deep must be " in caught.value.message
