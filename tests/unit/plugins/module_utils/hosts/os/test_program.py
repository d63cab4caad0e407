# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The stand-in for AnsibleModule: what Ansible's own does with the same arguments is the judge."""

from __future__ import annotations

import ast
import contextlib
import copy
import importlib
import json
import random
import typing as t
from pathlib import Path

import pytest
from ansible.module_utils.common.arg_spec import ModuleArgumentSpecValidator, ValidationResult
from ansible.module_utils.common.parameters import remove_values

from ansible_collections.bootflow.compute.plugins import modules
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.os import program

HOST_MODULES = sorted(
    path.stem
    for path in Path(modules.__path__[0]).glob("*.py")
    if "\nfrom ansible.module_utils.basic import AnsibleModule\n" in path.read_text()
)
RULES = ("mutually_exclusive", "required_if", "required_together")


class Made(t.NamedTuple):
    """What a module gives to AnsibleModule."""

    spec: dict[str, t.Any]
    rules: dict[str, t.Any]


class _Stop(Exception):
    pass


def made(name: str, monkeypatch: pytest.MonkeyPatch) -> Made:
    module = importlib.import_module("%s.%s" % (modules.__name__, name))
    found = []

    def stand_in(argument_spec: dict[str, t.Any], supports_check_mode: bool = False, **rules: t.Any) -> None:
        found.append(Made(argument_spec, rules))
        raise _Stop

    monkeypatch.setattr(module, "AnsibleModule", stand_in)
    with pytest.raises(_Stop):
        module.main()
    return found[0]


class Arguments:
    """Random arguments for a specification, most of which fit."""

    def __init__(self, seed: int):
        self.random = random.Random(seed)

    def of(self, spec: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
        names = [n for n, o in spec.items() if self.random.random() < (0.97 if o.get("required") else 0.5)]
        found = {name: self.option(spec[name]) for name in names}
        if self.random.random() < 0.02:
            found["unknown"] = 1
        return found

    def option(self, option: t.Mapping[str, t.Any]) -> t.Any:
        if self.random.random() < 0.03:
            return None
        kind = option.get("type", "str")
        if kind == "list" and self.random.random() > 0.02:
            each = {**option, "type": option.get("elements", "raw")}
            return [self.value(each) for _number in range(self.random.randrange(3))]
        return self.value(option)

    def value(self, option: t.Mapping[str, t.Any]) -> t.Any:
        if self.random.random() < 0.02:
            return self.random.choice(["", "x", "12", 5, 1.5, True, [], {}, ["a"], {"a": 1}, "yes"])
        if option.get("choices"):
            return self.random.choice(option["choices"])
        kind = option.get("type", "str")
        if kind == "dict":
            return self.of(option["options"]) if option.get("options") else {"a": self.random.choice([1, "b", None])}
        return {
            "str": self.random.choice(["", "ü", "a b", "$HOME"]),
            "path": self.random.choice(["/x", "~/y", "$HOME/z", "rel"]),
            "int": self.random.choice([0, 1, -3, 1 << 40]),
            "float": self.random.choice([0, 1, 2.5]),
            "bool": self.random.random() < 0.5,
            "raw": self.random.choice([1, "a", [1], {"a": "b"}]),
            "list": [],
            "json": self.random.choice(["{}", ' {"a": 1} ']),
        }[kind]


def judged(spec: dict[str, t.Any], rules: dict[str, t.Any], given: dict[str, t.Any]) -> ValidationResult | None:
    """None: the judge itself fails, of an element that is no mapping."""
    validator = ModuleArgumentSpecValidator(spec, **{k: v for k, v in rules.items() if k in RULES})
    with contextlib.suppress(TypeError):
        return validator.validate(copy.deepcopy(given))
    return None


@pytest.mark.parametrize("name", HOST_MODULES)
def test_arguments_are_read_as_ansible_reads_them(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    spec, rules = made(name, monkeypatch)
    assert rules.keys() <= {*RULES, "supports_check_mode"}
    read = 0
    for seed in range(400):
        given = Arguments(seed).of(spec)
        judge = judged(spec, rules, given)
        secrets: set[str] = set()
        try:
            mine = program.read_arguments(spec, copy.deepcopy(given), secrets, rules)
        except program.NeedsAnsible:
            continue
        read += 1
        assert judge is not None and not judge.error_messages, (given, judge)
        assert mine == judge.validated_parameters
        types = [json.dumps(found, sort_keys=True) for found in (mine, judge.validated_parameters)]
        assert types[0] == types[1], "1 is no 1.0, and no True"
        assert secrets == {str(v) for v in judge._no_log_values if v != ""}
    assert read > 20, "most arguments fit"


def test_null_is_an_empty_text_where_a_text_is_needed() -> None:
    spec: dict[str, t.Any] = {"a": {"default": "x"}, "b": {"type": "path", "required": True}, "c": {}}
    given = dict.fromkeys(spec)
    expected = ModuleArgumentSpecValidator(spec).validate(dict(given)).validated_parameters
    assert program.read_arguments(spec, given, set()) == expected == {"a": "", "b": "", "c": None}


@pytest.mark.parametrize(
    "option, value",
    [
        ({"type": "int"}, "5"),
        ({"type": "int"}, True),
        ({"type": "str"}, 5),
        ({"type": "bool"}, "yes"),
        ({"type": "list", "elements": "str"}, "a,b"),
        ({"type": "dict"}, "a=b"),
        ({"type": "str", "choices": ["a"]}, "b"),
        ({"type": "int", "required": True}, None),
        ({"type": "str", "choices": ["a"], "default": "a"}, None),
        ({"type": "str", "removed_in_version": "2"}, "a"),
        ({"type": "bytes"}, "1K"),
        ({"type": "list", "options": {"a": {}}}, [{"a": "b"}]),
    ],
)
def test_what_ansible_would_convert_or_refuse_is_left_to_it(option: dict[str, t.Any], value: t.Any) -> None:
    with pytest.raises(program.NeedsAnsible):
        program.read_arguments({"it": option}, {"it": value}, set())


def test_rules_of_options_are_kept() -> None:
    spec: dict[str, t.Any] = {n: {} for n in "abc"}
    for rules, given in (
        ({"mutually_exclusive": [("a", "b")]}, {"a": "1", "b": "1"}),
        ({"required_together": [("a", "b")]}, {"a": "1"}),
        ({"required_if": [("a", "1", ["b", "c"])]}, {"a": "1", "b": "1"}),
        ({"required_if": [("a", "1", ["b", "c"], True)]}, {"a": "1", "b": "1"}),
    ):
        with pytest.raises(program.NeedsAnsible):
            program.read_arguments(spec, given, set(), rules)
    assert program.read_arguments(spec, {"a": "2"}, set(), {"required_if": [("a", "1", ["b"])]})["a"] == "2"


def test_secrets_are_hidden_as_ansible_hides_them() -> None:
    given = random.Random(1)
    pieces = ["secret", "hush", "a", "", "xsecrety", "secrethush", "12", "1", "ü"]

    def value(depth: int) -> t.Any:
        kind = given.randrange(8 if depth else 6)
        if kind == 6:
            return [value(depth - 1) for _number in range(3)]
        if kind == 7:
            return {given.choice(pieces) + str(n): value(depth - 1) for n in range(3)}
        return [given.choice(pieces), given.choice(pieces) * 2, 12, 0.5, None, True][kind]

    secrets = ["secret", "hush", "12"]
    for _number in range(500):
        it = value(3)
        assert program.without(it, secrets) == remove_values(it, set(secrets))


def test_a_result_is_printed_without_secrets(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(
        program.PlainModule,
        "given",
        {"password": "hush", "_ansible_check_mode": True, "_ansible_no_log": True, "_ansible_module_name": "b.c.m"},
    )
    module = program.PlainModule({"password": {"no_log": True}}, supports_check_mode=True)
    assert module.check_mode and module.params == {"password": "hush"} and module._name == "b.c.m"
    module.no_log_values |= {"hush, hush"}
    module.warn("not so loud")
    with pytest.raises(SystemExit) as ended:
        module.fail_json(msg="hush, hush, it is hush", error_code="X")
    assert ended.value.code == 1
    assert json.loads(capsys.readouterr().out) == {
        "failed": True,
        "msg": "********, it is ********",
        "error_code": "X",
        "warnings": ["not so loud"],
    }


def test_a_module_without_check_mode_is_left_to_ansible(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program.PlainModule, "given", {"_ansible_check_mode": True})
    with pytest.raises(program.NeedsAnsible):
        program.PlainModule({})


def test_modules_use_nothing_else_of_ansible_module() -> None:
    """Such as deprecate(), which the stand-in lacks."""
    known = {"check_mode", "params", "no_log_values"} | {n for n in vars(program.PlainModule) if not n.startswith("_")}
    for path in (Path(program.__file__).resolve().parents[3] / "modules").glob("*.py"):
        used = {
            n.attr
            for n in ast.walk(ast.parse(path.read_text()))
            if isinstance(n, ast.Attribute) and isinstance(n.value, ast.Name) and n.value.id == "module"
        }
        assert used <= known, path.name


def test_the_program_loads_nothing_of_the_collection() -> None:
    """It is there before what it loads."""
    tree = ast.parse(Path(program.__file__).read_text())
    assert not [n for n in ast.walk(tree) if isinstance(n, ast.ImportFrom) and (n.level or "ansible" in n.module)]  # type: ignore[operator]
