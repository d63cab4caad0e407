# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whole instances are returned to whoever can read them; of thousands that nobody reads only what names them."""

from __future__ import annotations

import typing as t

import pytest
from ansible import constants, context

from ansible_collections.bootflow.compute.plugins.plugin_utils.run.playbooks import readers

VIEWS = [{"name": "web-%d" % n, "uuid": "u%d" % n, "vm_state": "active", "host": "kvm1"} for n in range(1001)]


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """ansible-playbook bootflow.compute.list"""
    played(monkeypatch)
    monkeypatch.setattr(constants, "DEFAULT_STDOUT_CALLBACK", "default")
    monkeypatch.setattr(constants, "CALLBACKS_ENABLED", [])
    monkeypatch.setattr(constants, "SHOW_CUSTOM_STATS", False)


def played(monkeypatch: pytest.MonkeyPatch, *names: str, **more: t.Any) -> None:
    monkeypatch.setattr(context, "CLIARGS", {"args": names or ("bootflow.compute.list",), "verbosity": 0, **more})


def test_of_thousands_that_nobody_reads_the_names_and_states_are_returned() -> None:
    returned = readers.returned(VIEWS)
    assert returned == [{name: view[name] for name in ("name", "uuid", "vm_state")} for view in VIEWS]
    assert readers.returned(VIEWS[:1000]) == VIEWS[:1000], "1,000 are few"
    assert readers.returned(VIEWS, hook=True) is VIEWS


@pytest.mark.parametrize(
    "names", [("bootflow.compute.list", "mine.yml"), ("mine.yml",), ("bootflow.compute.list", "bootflow.compute.hosts")]
)
def test_later_plays_read_them(monkeypatch: pytest.MonkeyPatch, names: tuple[str, ...]) -> None:
    played(monkeypatch, *names)
    assert readers.returned(VIEWS) is VIEWS


def test_a_person_reads_them(monkeypatch: pytest.MonkeyPatch) -> None:
    played(monkeypatch, verbosity=1)
    assert readers.returned(VIEWS) is VIEWS
    played(monkeypatch)
    assert readers.returned(VIEWS) is not VIEWS
    monkeypatch.setattr(constants, "SHOW_CUSTOM_STATS", True)
    assert readers.returned(VIEWS) is VIEWS


@pytest.mark.parametrize("name", ["ansible.posix.json", "json", "minimal", "awx_display", "mine.callbacks.any"])
@pytest.mark.parametrize("setting", ["DEFAULT_STDOUT_CALLBACK", "CALLBACKS_ENABLED"])
def test_a_callback_reads_them(monkeypatch: pytest.MonkeyPatch, name: str, setting: str) -> None:
    monkeypatch.setattr(constants, setting, [name] if setting == "CALLBACKS_ENABLED" else name)
    assert readers.returned(VIEWS) is VIEWS


def test_callbacks_that_print_no_results_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "DEFAULT_STDOUT_CALLBACK", "bootflow.compute.concise")
    monkeypatch.setattr(constants, "CALLBACKS_ENABLED", ["ansible.posix.profile_tasks", "timer"])
    assert not readers.someone_reads()
