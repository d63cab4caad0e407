# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What becomes of an instance in each operation, for each answer that its host may give."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.core.instances import operation_outcomes
from ansible_collections.bootflow.compute.plugins.module_utils.core.instances.states import (
    NOSTATE,
    POWER_STATES_OF,
    RUNNING,
    SHUTDOWN,
)
from ansible_collections.bootflow.compute.plugins.module_utils.core.instances.verdicts.answer import silence
from ansible_collections.bootflow.compute.plugins.module_utils.flows.instances.operations import OPERATIONS

PROBLEM = errors.LibvirtError(reason="broken")
GONE = errors.InstanceNotFound(instance_id="u")
#: What a host may say of an instance.
ANSWERS: dict[str, dict[str, t.Any]] = {
    "done": {"changed": True, "error": None},
    "error, and the guest runs": {"error": PROBLEM.as_dict(), "power_state": RUNNING},
    "error, and the guest is off": {"error": PROBLEM.as_dict(), "power_state": SHUTDOWN},
    "the domain is missing": {"error": GONE.as_dict()},
    "error": {"error": PROBLEM.as_dict()},
    "silence": {},
}
#: operation -> vm_state before it, and after each of ANSWERS. After a reboot or unrescue that failed Nova says what the guest is; after any other
#: failure the instance is what it was.
VM_STATES = {
    "stop": ("active", "stopped active active stopped active active"),
    "start": ("stopped", "active stopped stopped stopped stopped stopped"),
    "pause": ("active", "paused active active active active active"),
    "unpause": ("paused", "active paused paused paused paused paused"),
    "suspend": ("active", "suspended active active active active active"),
    "resume": ("suspended", "active suspended suspended suspended suspended suspended"),
    "soft_reboot": ("active", "active active error error active active"),
    "hard_reboot": ("stopped", "active active error error stopped stopped"),
    "rescue": ("active", "rescued active active active active active"),
    "unrescue": ("rescued", "active active error error rescued rescued"),
    "set_admin_password": ("active", "active active active active active active"),
    "trigger_crash_dump": ("active", "active active active active active active"),
    "snapshot": ("paused", "paused paused paused paused paused paused"),
    "create_backup": ("active", "active active active active active active"),
    "incremental_backup": ("active", "active active active active active active"),
    "shelve": ("active", "shelved active active active active active"),
    "shelve_offload": ("shelved", "shelved_offloaded shelved shelved shelved shelved shelved"),
    "unshelve": ("shelved", "active shelved shelved shelved shelved shelved"),
    "soft_delete": ("active", "soft-delete active active active active active"),
    "restore": ("soft-delete", "active soft-delete soft-delete soft-delete soft-delete soft-delete"),
    # What is on its disks is not known after silence.
    "rebuild": ("active", "active active active active active error"),
    "revert": ("active", "active active active active active active"),
}
CASES = [
    (name, kind, vm_state)
    for name, (_before, after) in VM_STATES.items()
    for kind, vm_state in zip(ANSWERS, after.split(), strict=True)
]


def item_of(vm_state: str, **more: t.Any) -> dict[str, t.Any]:
    return {"uuid": "u", "name": "web", "host": "h1", "vm_state": vm_state, "power_state": RUNNING, **more}


def answer_of(name: str, item: dict[str, t.Any], said: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    """:arg said: what the host said of the instance; empty: nothing"""
    return dict(operation_outcomes.after_death(item, said or silence("h1"), OPERATIONS[name].rule.dies_to))


def summary_of(name: str, item: dict[str, t.Any], answer: dict[str, t.Any]) -> dict[str, t.Any]:
    its = OPERATIONS[name]
    error = errors.from_dict(answer["error"]) if answer.get("error") else None
    outcome = operation_outcomes.outcome_of(answer, error)
    vm_state = operation_outcomes.vm_state_after(its.rule, its.fails_to, outcome)
    return operation_outcomes.summary_of(item, answer, error, vm_state, its.missing_domain_note)


def test_the_table_has_all_operations() -> None:
    assert set(VM_STATES) == set(OPERATIONS)


@pytest.mark.parametrize(("name", "kind", "vm_state"), CASES)
def test_each_answer_of_a_host(name: str, kind: str, vm_state: str) -> None:
    its = OPERATIONS[name]
    item = item_of(VM_STATES[name][0], before={})
    said = dict(ANSWERS[kind])
    if kind == "done" and its.rule.result is not None:
        said["power_state"] = min(POWER_STATES_OF[its.rule.result] or {SHUTDOWN})
    elif kind == "the domain is missing" and its.missing_domain_note:
        (said,) = operation_outcomes.accept_missing_domains({"u": GONE})[0].values()
    answer = answer_of(name, item, said)
    summary = summary_of(name, item, answer)
    assert (summary["vm_state"], summary["host"], summary["forced"]) == (vm_state, "h1", False)
    accepted = kind == "the domain is missing" and its.missing_domain_note
    code = {
        "done": None,
        "the domain is missing": None if accepted else "InstanceNotFound",
        "silence": "HostUnreachable",
    }
    wanted = code.get(kind, PROBLEM.code)
    assert (summary["error"] or {}).get("code") == wanted
    assert operation_outcomes.note_of(summary, its.forced) == (wanted or (its.missing_domain_note if accepted else ""))
    power_state = NOSTATE if accepted else said.get("power_state") or RUNNING
    assert summary["power_state"] == power_state, "what it was before, if nothing is known"


@pytest.mark.parametrize("kind", ANSWERS)
def test_a_rebuild_that_a_dead_run_began_is_in_error_after_any_failure(kind: str) -> None:
    item = item_of("active")
    answer = answer_of("rebuild", item, ANSWERS[kind])
    assert summary_of("rebuild", item, answer)["vm_state"] == ("active" if kind == "done" else "error")


def test_the_work_decides_the_vm_state_where_it_says_one() -> None:
    item = item_of("active", before={})
    for vm_state in ("stopped", "error"):
        said = {"error": PROBLEM.as_dict() if vm_state == "error" else None, "vm_state": vm_state}
        answer = answer_of("rebuild", item, said)
        assert summary_of("rebuild", item, answer)["vm_state"] == vm_state


def test_the_error_of_an_instance_is_added_to_what_its_host_said() -> None:
    answers = {"a": {"changed": True, "power_state": 1}, "b": {"changed": True}}
    found = operation_outcomes.with_errors(answers, {"a": {"error": {"code": "X"}}, "c": {"error": {"code": "Y"}}})
    assert found == {
        "a": {"changed": True, "power_state": 1, "error": {"code": "X"}},
        "b": {"changed": True},
        "c": {"error": {"code": "Y"}},
    }


def test_a_missing_domain_and_other_problems() -> None:
    off, problems = operation_outcomes.accept_missing_domains({"a": GONE, "b": PROBLEM})
    assert off == {"a": {"changed": True, "power_state": NOSTATE, "gone": True}} and problems == {"b": PROBLEM}


def test_guests_that_did_not_restart_are_reset() -> None:
    answers: dict[str, dict[str, t.Any]] = {
        "deaf": {"restarted": False, "error": None},
        "restarted": {"restarted": True, "error": None},
        "failed": {"restarted": False, "error": PROBLEM.as_dict()},
        "other": {"error": None},
    }
    deaf = operation_outcomes.not_restarted(answers)
    assert deaf == {"deaf"}
    again = operation_outcomes.with_reset_guests({"deaf": {}, "other": {}, "off": {"forced": True}}, deaf)
    assert {uuid: its["forced"] for uuid, its in again.items()} == {"deaf": True, "other": False, "off": True}


def test_the_note_of_an_instance() -> None:
    summary = {"error": None, "note": "image a -> b", "forced": True}
    assert operation_outcomes.note_of(summary, "lost its power") == "image a -> b; lost its power"
    assert operation_outcomes.note_of({**summary, "forced": False}, "lost its power") == "image a -> b"
    assert operation_outcomes.note_of({**summary, "error": PROBLEM.as_dict()}, "lost its power") == PROBLEM.code
