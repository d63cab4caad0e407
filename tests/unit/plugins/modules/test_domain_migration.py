# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The steps of domain_migration: the options that each needs, check mode, and the shape of each answer. The lab has the migrations themselves."""

from __future__ import annotations

import json
import typing as t

import pytest
from ansible.module_utils.common.arg_spec import ModuleArgumentSpecValidator

from ansible_collections.bootflow.compute.plugins.module_utils.core.answers import answer
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.os import program
from ansible_collections.bootflow.compute.plugins.modules import domain_migration

UUID = "6a2c1f0e-3c5e-5d7b-8d3f-9f1c2b3a4d5e"
CLOSING = {"port": 1, "fingerprint": "f", "stop_token": "s"}
NEEDS: dict[str, dict[str, t.Any]] = {
    "describe": {"uuids": [UUID]},
    "prepare": {"arriving_guests": [], "stop_token": "s"},
    "migrate": {"departing_guests": []},
    "close": CLOSING,
    "intervene": {"uuids": [UUID], "action": "abort"},
}


def test_each_step_has_options_and_an_answer() -> None:
    of_spec = domain_migration.argument_spec()["step"]["choices"]
    assert of_spec == list(NEEDS) == [value for _step, value, _names in domain_migration.REQUIRED]
    shapes = {name for name in answer.ANSWERS if name.partition(".")[0] == "domain_migration"}
    assert shapes == {"domain_migration." + step for step in NEEDS}


@pytest.mark.parametrize("step", NEEDS)
def test_a_step_without_one_of_its_options_is_refused(step: str) -> None:
    validator = ModuleArgumentSpecValidator(domain_migration.argument_spec(), required_if=domain_migration.REQUIRED)
    assert not validator.validate({"step": step, **NEEDS[step]}).error_messages
    for name in NEEDS[step]:
        given = {n: value for n, value in NEEDS[step].items() if n != name}
        (message,) = validator.validate({"step": step, **given}).error_messages
        assert name in message


@pytest.mark.parametrize("step", NEEDS)
def test_in_check_mode_a_step_that_changes_a_host_is_skipped(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], step: str
) -> None:
    ran: list[tuple[str, bool]] = []

    def run(args: t.Mapping[str, t.Any], check_mode: bool) -> dict[str, t.Any]:
        ran.append((args["step"], check_mode))
        return {"changed": False, "outcomes": {}}

    given = {"step": step, **NEEDS[step], "_ansible_check_mode": True, "_ansible_no_log": True}
    monkeypatch.setattr(program.PlainModule, "given", given)
    monkeypatch.setattr(domain_migration, "AnsibleModule", program.PlainModule)
    monkeypatch.setattr(domain_migration, "keep_time_limit", lambda _module: None)
    monkeypatch.setitem(domain_migration.STEPS, step, run)
    with pytest.raises(SystemExit):
        domain_migration.main()
    result = json.loads(capsys.readouterr().out)
    if step in ("describe", "intervene"):
        assert ran == [(step, True)] and "skipped" not in result
    else:
        assert not ran and result["skipped"] and not result["changed"] and "outcomes" not in result
