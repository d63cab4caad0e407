# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Tables that stand after the error of their task, and the summary in place of one."""

from __future__ import annotations

import types
import typing as t

import pytest
from ansible import constants

from ansible_collections.bootflow.compute.plugins.plugin_utils.run import tables

FLOW = "bootflow.compute.flow"


@pytest.mark.parametrize(
    ("callback", "verbosity", "failed", "shown", "table"),
    [
        (FLOW, 0, True, [], ["a", "b\\x1b"]),
        (FLOW, 0, False, ["a\nb\\x1b"], None),
        (FLOW, 1, True, ["a\nb\\x1b"], None),
        ("bootflow.compute.concise", 0, True, ["a\nb\\x1b"], None),
        ("default", 0, True, ["\na\nb\\x1b\n"], None),
    ],
)
def test_where_a_table_is_held_back(
    callback: str,
    verbosity: int,
    failed: bool,
    shown: list[str],
    table: list[str] | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(constants, "DEFAULT_STDOUT_CALLBACK", callback)
    printed: list[str] = []
    display = types.SimpleNamespace(verbosity=verbosity, display=lambda text, stderr=False: printed.append(text))
    result: dict[str, t.Any] = {}
    with tables.shown_after_error(display, result):
        tables.show(display, ["a", "b\x1b"])
        result.update(failed=failed)
    assert printed == shown and result.get("table") == table
    tables.show(display, ["at once"])
    assert len(printed) == len(shown) + 1


def test_a_table_is_printed_if_its_task_crashes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "DEFAULT_STDOUT_CALLBACK", FLOW)
    printed: list[str] = []
    display = types.SimpleNamespace(verbosity=0, display=lambda text, stderr=False: printed.append(text))
    with pytest.raises(ZeroDivisionError), tables.shown_after_error(display, {}):
        tables.show(display, ["a"])
        raise ZeroDivisionError
    assert printed == ["a"]


def test_a_summary_has_states_and_hosts() -> None:
    views = [{"name": "web-%d" % n, "vm_state": "active", "host": "kvm%d" % (n % 2)} for n in range(12)]
    views.append({"name": "db", "vm_state": "shelved_offloaded", "host": None})
    first, second = tables.instance_summary(views)
    names = ", ".join("web-%d" % n for n in range(10))
    assert first == "active: %s and 2 more; shelved_offloaded: db" % names
    assert second == "on kvm0: 6, kvm1: 6, no host: 1"
