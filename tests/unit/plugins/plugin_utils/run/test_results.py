# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Errors as results of tasks and back."""

from __future__ import annotations

import types

import pytest
from ansible.module_utils._internal._messages import ErrorSummary, Event

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.plugin_utils.run import tables
from ansible_collections.bootflow.compute.plugins.plugin_utils.run.results import (
    error_result,
    module_error,
    traceback_of,
)

UNREACHABLE = {"code": "HostUnreachable", "message": "no route", "host": "kvm1", "remedy": "Check the cable."}
FAULT = {"code": "NoValidHost", "message": "none left", "remedy": "Ask the scheduler.", "tried": [UNREACHABLE]}


def boot_failed() -> errors.Incomplete:
    items = [
        errors.failed_item("web", "u1", FAULT),
        errors.failed_item("db", "u2", None, host="kvm2", state="building, task_state spawning"),
    ]
    return errors.BootFailed(items, 5)


def test_of_many_errors_of_a_request_the_message_has_the_first_ten_and_where_the_others_are():
    many = [{"path": "instances[%d]" % n, "code": "InvalidInput", "message": "m", "remedy": "r"} for n in range(32)]
    result = error_result(errors.InvalidRequest(many))
    lines = result["msg"].splitlines()
    assert lines[0] == "The request has 32 errors." and len(lines) == 22 and lines[-3].startswith("instances[9]: ")
    assert lines[-1] == "And 22 more: the field errors of the result has all; -v prints it."
    assert len(result["errors"]) == 32
    assert "more:" not in error_result(errors.InvalidRequest(many[:20]))["msg"]


def test_an_incomplete_run_lists_each_item_with_its_attempts_and_the_remedies_next_to_the_cause():
    result = error_result(boot_failed(), changed=True, instances=["web", "db"])
    assert (result["failed"], result["changed"], result["instances"]) == (True, True, ["web", "db"])
    assert (result["error_code"], result["status"], result["retryable"]) == ("BootFailed", 503, False)
    assert [(i["name"], i["id"], (i["error"] or {}).get("code")) for i in result["failed_items"]] == [
        ("web", "u1", "NoValidHost"),
        ("db", "u2", None),
    ]
    assert result["failed_items"][0]["tried"] == [UNREACHABLE]
    assert result["msg"].splitlines() == [
        "BootFailed: 2 of 5 instances are not ACTIVE.",
        "  web: NoValidHost: none left",
        "    on kvm1: HostUnreachable: no route",
        "    Remedy: Check the cable.",
        "  db on kvm2: building, task_state spawning",
        "Remedy: " + result["remedy"],
    ]


def test_items_with_the_same_fate_are_told_once():
    items = [errors.failed_item("web-%d" % n, "u%d" % n, FAULT, host="kvm1" if n == 1 else "") for n in range(1, 14)]
    items.append(errors.failed_item("db", "u14", {**FAULT, "message": "another"}))
    lines = error_result(errors.BootFailed(items, 14))["msg"].splitlines()
    names = "web-1 on kvm1, " + ", ".join("web-%d" % n for n in range(2, 11))
    assert lines[1] == "  %s and 3 more: NoValidHost: none left" % names
    assert lines[4] == "  db: NoValidHost: another" and len(lines) == 8


def test_without_attempts_the_remedy_is_that_of_the_error():
    item = errors.failed_item("web", "u1", {**FAULT, "tried": []})
    assert "    Remedy: Ask the scheduler." in error_result(errors.BootFailed([item], 1))["msg"].splitlines()


def test_an_invalid_request_lists_its_errors():
    each = {"path": "instances[0].name", "code": "InvalidInput", "message": "missing", "remedy": "Add it."}
    result = error_result(errors.InvalidRequest([each]))
    assert result["errors"] == [each] and result["changed"] is False
    assert result["msg"].splitlines() == [
        "The request has 1 error.",
        "instances[0].name: InvalidInput: missing",
        "  Remedy: Add it.",
    ]


@pytest.mark.parametrize(
    "error",
    [
        boot_failed(),
        errors.InvalidRequest([{"path": "p", "code": "InvalidInput", "message": "m", "remedy": ""}]),
        errors.HostUnreachable(host="h", reason="r"),
    ],
    ids=lambda e: e.code,
)
def test_the_error_behind_a_failed_result_is_the_same_again(error: errors.BootflowError):
    back = module_error("a_module", "kvm1", {**error_result(error), "msg": error.message})
    assert type(back) is type(error) and back.as_dict() == error.as_dict()


@pytest.mark.parametrize(
    "said, last",
    [
        ({"module_stdout": "", "module_stderr": "Traceback\nMemoryError\n"}, "MemoryError"),
        ({"module_stdout": "no space\r\n", "module_stderr": "Shared connection to 10.0.0.1 closed.\r\n"}, "no space"),
        ({"module_stdout": "", "module_stderr": "", "rc": 3}, "exit code 3"),
    ],
)
def test_a_module_without_an_answer_is_a_remote_error_with_its_last_words(said: dict[str, object], last: str):
    error = module_error("a_module", "kvm1", {"failed": True, "msg": "No start of json char found", **said})
    assert (error.code, error.message) == (
        "RemoteError",
        "a_module on kvm1: No start of json char found (%s)" % last,
    )


@pytest.mark.parametrize(
    "said",
    [
        {"module_stderr": "/bin/sh: 1: /usr/bin/python9: not found\n", "rc": 127},
        {"module_stderr": "sh: python3: not found", "rc": 127},
        {"module_stdout": "bash: /opt/python3.12: No such file or directory\r\n", "rc": 127},
        {"module_stderr": "sudo: /usr/bin/python9: command not found", "rc": 1},
        {"module_stderr": "/usr/bin/env: 'python3': No such file or directory", "rc": 127},
        {"module_stderr": "bash: /usr/bin/python: Permission denied", "rc": 126},
    ],
)
def test_a_host_without_the_interpreter_says_what_to_set(said: dict[str, object]) -> None:
    error = module_error(
        "a_module", "kvm1", {"failed": True, "msg": "No start of json char found", "module_stdout": "", **said}
    )
    assert error.code == "MissingLibrary" and error.message.startswith("Python could not be started on kvm1: ")
    assert "json" not in error.message and "ansible_python_interpreter" in error.remedy


@pytest.mark.parametrize("rc, name", [(137, "SIGKILL"), (-9, "SIGKILL"), (139, "SIGSEGV")])
@pytest.mark.parametrize("stdout", ["", "Killed\n", '\n{"changed": true, "outco'])
def test_a_module_that_was_killed_says_so(rc: int, name: str, stdout: str):
    """Whether it had begun to write its answer or not."""
    result = {"failed": True, "msg": "No start of json char found", "module_stdout": stdout, "rc": rc}
    error = module_error("a_module", "kvm1", result)
    assert (error.code, error.message) == (
        "ModuleKilled",
        "a_module on kvm1 was killed before it could answer (%s)" % name,
    )
    assert ("memory is short" in error.remedy) == (name == "SIGKILL") and "dmesg" in error.remedy and error.retryable


def test_a_module_that_ended_with_an_exception_is_a_remote_error_with_its_last_line():
    event = Event(msg="by zero", formatted_traceback="Traceback:\n  File x\nZeroDivisionError: by zero\n")
    result = {"failed": True, "exception": ErrorSummary(event=event)}  # as Ansible gives it to actions
    assert module_error("a_module", "kvm1", result).message == "a_module on kvm1: ZeroDivisionError: by zero"
    assert traceback_of(result).splitlines()[0] == "Traceback:"
    assert module_error("a_module", "kvm1", {"failed": True}).message == "a_module on kvm1: the module failed"


def test_what_a_terminal_must_not_be_sent_is_escaped():
    """Names with control characters and marks of direction, in tables, errors and what hosts say."""
    name = "a\x1b[2J\u202eb\nc"
    assert tables.table(("NAME",), [(name,)])[2] == "a\\x1b[2J\\u202eb\\nc"
    shown = []
    tables.show(types.SimpleNamespace(display=lambda text, stderr: shown.append(text)), ["x\x07", name])
    found = [error_result(errors.InvalidInput(reason=name))["msg"], errors.from_dict({"message": name}).message]
    failed = {"msg": "\x1b]0;title\x07 and a long message of a program"}
    found.append(module_error("domain", "h1", failed).message)
    for text in [*shown, *found]:
        assert all(c.isprintable() or c == "\n" for c in text), ascii(text)
