# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Expressions are compiled once for all hosts and evaluated for each, and values of variables are shared and marked."""

from __future__ import annotations

import pytest
from ansible.errors import AnsibleError
from ansible.inventory.data import InventoryData
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar, is_trusted_as_template, trust_as_template

from ansible_collections.bootflow.compute.plugins.plugin_utils.inventory.guest_variables import (
    PlainValues,
    compiled_once,
    set_variable,
)


@pytest.fixture
def templar() -> Templar:
    return Templar(DataLoader())


def evaluated(templar: Templar, expression: str, **variables: object) -> object:
    templar.available_variables = variables
    return templar.evaluate_expression(trust_as_template(expression))


def test_an_expression_is_compiled_once_and_evaluated_for_each_host(
    templar: Templar, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled: list[str] = []
    environment = templar._engine.environment
    compile_expression = type(environment).compile_expression

    def counted(self: object, source: str, *more: object) -> object:
        compiled.append(source)
        return compile_expression(self, source, *more)

    monkeypatch.setattr(type(environment), "compile_expression", counted)
    with compiled_once(templar):
        assert [evaluated(templar, "a + 1", a=number) for number in range(3)] == [1, 2, 3]
        assert compiled == ["a + 1"]
    evaluated(templar, "a + 1", a=1)
    evaluated(templar, "a + 1", a=1)
    assert compiled == ["a + 1"] * 3, "nothing is kept after the block"


def test_errors_are_those_of_each_host(templar: Templar) -> None:
    with compiled_once(templar):
        for name in ("x", "y"):
            with pytest.raises(AnsibleError, match="nothing"):
                evaluated(templar, "nothing.%s" % name)
            with pytest.raises(AnsibleError, match="Syntax error"):
                evaluated(templar, "a b", a=1)
        with pytest.raises(AnsibleError, match="nothing"):
            evaluated(templar, "a ~ nothing", a=1)
        assert evaluated(templar, "a ~ nothing", a=1, nothing=2) == "12"


def test_conditionals_and_expressions_are_what_they_are_without_it(templar: Templar) -> None:
    text = trust_as_template(r"'\n' == a")
    templar.available_variables = {"a": "\n"}
    answers = (templar.evaluate_expression(text), templar.evaluate_conditional(text))
    with compiled_once(templar):
        for _round in range(2):
            assert (templar.evaluate_expression(text), templar.evaluate_conditional(text)) == answers


def test_a_templar_that_compiles_otherwise_is_left_alone() -> None:
    class Later:
        pass

    with compiled_once(Later()):
        pass


def test_values_are_new_shared_and_marked() -> None:
    values = PlainValues()
    view = {"name": "web-1", "note": "{{ evil }}", "list": ["small", 1, None, True], "more": {"flavor": "small"}}
    plain = values.plain(view)
    assert plain == view and plain is not view and plain["list"] is not view["list"]
    assert is_trusted_as_template(plain["name"]) and not is_trusted_as_template(plain["note"])
    assert plain["list"][0] is plain["more"]["flavor"] is values.plain("sma" + "ll")
    assert [type(each) for each in plain["list"][1:]] == [int, type(None), bool]
    template = trust_as_template("{{ wanted }}")
    values.plain("{{ wanted }}")
    assert is_trusted_as_template(values.plain(template)) and not is_trusted_as_template(values.plain("{{ wanted }}"))
    with pytest.raises(AnsibleError):
        set_variable(InventoryData(), "missing", "name", plain)
