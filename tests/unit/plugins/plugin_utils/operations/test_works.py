# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Each operation has its work, and each work an operation; actions that hand their stages to a body hold no more than these."""

from __future__ import annotations

import types
import typing as t
from pathlib import Path

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.flows.instances.operations import OPERATIONS
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.libvirt.power import STATES
from ansible_collections.bootflow.compute.plugins.plugin_utils.operations.power_work import PowerWork
from ansible_collections.bootflow.compute.plugins.plugin_utils.operations.work import Work
from ansible_collections.bootflow.compute.plugins.plugin_utils.operations.works import HARD_REBOOT, WORKS, work_of
from ansible_collections.bootflow.compute.plugins.plugin_utils.run.ledger_action import LedgerAction

ACTIONS = Path(__file__).resolve().parents[5] / "plugins" / "action"
ACTION = t.cast(LedgerAction, types.SimpleNamespace())


NAMES = sorted({its.work for its in OPERATIONS.values()})


def test_rows_name_all_works_and_states() -> None:
    assert set(NAMES) == {*WORKS, *STATES}


@pytest.mark.parametrize("name", NAMES)
def test_a_work_is_made_for_an_action(name: str) -> None:
    work = work_of(ACTION, name)
    assert isinstance(work, Work) and work.action is ACTION
    assert work.sets_power == isinstance(work, PowerWork)
    assert type(work).on_host is not Work.on_host
    assert (work.password_suffix is None) == (type(work).password is Work.password)


def test_a_state_of_guests_is_one_of_the_module_and_has_the_name_of_its_work() -> None:
    works = {name: work_of(ACTION, name) for name in NAMES}
    states = {name: work.state for name, work in works.items() if isinstance(work, PowerWork)}
    assert list(states) == list(states.values()) and set(states) == set(STATES)
    assert not works[HARD_REBOOT].sets_power, "it follows where setting a power state was not enough"


@pytest.mark.parametrize("name", ["compute_attachments", "instance_interface", "instance_operation"])
def test_an_action_is_arguments_and_stages(name: str) -> None:
    assert len((ACTIONS / (name + ".py")).read_text().splitlines()) <= 120
