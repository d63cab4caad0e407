# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Playbooks that run with the command line of this one: what they print, their ends, their limits."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.plugin_utils.run.playbooks.child_playbook import (
    ChildPlaybook,
    command,
    environment,
    wait_for_all,
)


def child(code: str, shown: list[str]) -> ChildPlaybook:
    return ChildPlaybook([sys.executable, "-u", "-c", code], shown.append)


def never() -> bool:
    return False


def test_lines_and_exit_codes() -> None:
    shown: list[str] = []
    children = [child("print('one'); print('two\\nthree', end='')", shown), child("import sys; sys.exit(2)", shown)]
    assert wait_for_all(children, 60, never, pause=0.01) == [0, 2]
    assert shown == children[0].lines == ["one", "two", "three"] and children[1].lines == []


def test_lines_are_shown_while_it_runs() -> None:
    shown: list[str] = []
    running = child("import time; print('begun'); print('half', end=''); time.sleep(60)", shown)
    end = time.monotonic() + 30
    while not shown and time.monotonic() < end:
        assert running.look() is None
        time.sleep(0.01)
    assert shown == ["begun"]
    running.end()
    assert shown == ["begun", "half"]


@pytest.mark.parametrize("ignores", [False, True])
def test_one_that_takes_too_long_is_ended(ignores: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "ansible_collections.bootflow.compute.plugins.plugin_utils.run.playbooks.child_playbook.ENDS_WITHIN", 0.5
    )
    ignoring = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); " if ignores else ""
    slow = child("%simport time; print('begun'); time.sleep(60)" % ignoring, [])
    began = time.monotonic()
    assert wait_for_all([child("pass", []), slow], 2, never, pause=0.01) == [0, None]
    assert time.monotonic() - began < 30 and slow.look() is not None


def test_all_end_when_the_run_is_gone() -> None:
    slow = child("import time; time.sleep(60)", [])
    assert wait_for_all([slow], None, lambda: True) == [None]
    assert slow.look() is not None


def test_messages_name_the_caller() -> None:
    with pytest.raises(
        errors.InvalidInput, match="a runs b with the command line of this run, which names no playbook"
    ):
        command(["ansible-playbook"], {"args": ()}, "x.y.z", "a runs b")
    with pytest.raises(errors.InvalidInput, match="a runs b without a person") as raised:
        command(["ansible-playbook", "p"], {"args": ("p",), "ask_pass": True}, "x.y.z", "a runs b")
    assert raised.value.remedy.endswith("or variables.")
    assert command(["ansible-playbook", "p", "-v"], {"args": ("p",)}, "x.y.z", "a") == [
        "ansible-playbook",
        "x.y.z",
        "-v",
    ]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"ANSIBLE_STDOUT_CALLBACK": "yaml", "A": "b"}, {"ANSIBLE_STDOUT_CALLBACK": "yaml", "A": "b"}),
        ({"A": "b", "AWX_ISOLATED_DATA_DIR": "/a"}, {"A": "b", "AWX_ISOLATED_DATA_DIR": "/a"}),
        (
            {"ANSIBLE_STDOUT_CALLBACK": "awx_display", "AWX_ISOLATED_DATA_DIR": "/a"},
            {"ANSIBLE_STDOUT_CALLBACK": "default"},
        ),
        (
            {"ANSIBLE_STDOUT_CALLBACK": "awx_display", "ORIGINAL_STDOUT_CALLBACK": "bootflow.compute.concise"},
            {
                "ANSIBLE_STDOUT_CALLBACK": "bootflow.compute.concise",
                "ORIGINAL_STDOUT_CALLBACK": "bootflow.compute.concise",
            },
        ),
    ],
)
def test_another_playbook_writes_no_events_of_ansible_runner(given: dict[str, str], expected: dict[str, str]) -> None:
    assert environment(given) == expected


def test_another_playbook_has_the_callbacks_of_the_user_only(tmp_path: Path) -> None:
    (tmp_path / "awx_display.py").touch()
    for given, left in (("%s" % tmp_path, {}), ("/mine:%s" % tmp_path, {"ANSIBLE_CALLBACK_PLUGINS": "/mine"})):
        variables = {"ANSIBLE_STDOUT_CALLBACK": "awx_display", "ANSIBLE_CALLBACK_PLUGINS": given}
        assert environment(variables) == {"ANSIBLE_STDOUT_CALLBACK": "default", **left}
