# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Guests that are handed to the tasks of hosts are what the ledger has, for as long as that is trusted."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.bootflow.compute.plugins.plugin_utils.operations import guest_handover, hard_reboot
from ansible_collections.bootflow.compute.plugins.plugin_utils.run.run_lease import LEAST_TRUSTED
from ansible_collections.bootflow.compute.tests.unit.worlds.actions import results_of
from ansible_collections.bootflow.compute.tests.unit.worlds.boot_world import BootWorld

from .test_hard_reboot import Host


class Given:
    """A guest with a volume that was handed to the task of its host."""

    def __init__(self, world: BootWorld):
        self.world, self.host = world, Host(world)
        self.action = self.host.action
        with world.ledger.read() as tx:
            self.read = hard_reboot.guests_to_give(tx, [self.host.uuid])
        self.begins(world.time)
        guest_handover.give(self.action, {self.host.uuid: "h1"}, self.read, world.time)

    def begins(self, at: float) -> None:
        results_of(self.action.ports, guest_handover.OPERATION).leave("begin", "localhost", {"begun_at": at})

    def find(self, *uuids: str) -> guest_handover.Guests | None:
        return guest_handover.find(self.action, uuids or [self.host.uuid])


@pytest.fixture
def given(bworld: BootWorld) -> Given:
    return Given(bworld)


def test_a_hard_reboot_of_a_given_guest_is_the_same_as_one_of_the_ledger(
    given: Given, monkeypatch: pytest.MonkeyPatch
) -> None:
    hard_reboot.reboot(given.action, [given.host.uuid])
    expected = list(given.host.calls)
    given.host.calls.clear()

    def opened(*_given: t.Any, **_named: t.Any) -> t.Any:
        raise AssertionError("the ledger is opened")

    monkeypatch.setattr(type(given.action), "open_ledger", opened)
    outcomes, problems = hard_reboot.reboot(given.action, [given.host.uuid], given=given.find())
    assert given.host.calls == expected and set(outcomes) == {given.host.uuid} and not problems


def test_what_is_not_there_is_asked_for(given: Given) -> None:
    assert given.find() is not None
    assert given.find(given.host.uuid, "another") is None


def test_what_was_read_is_trusted_for_a_while(given: Given) -> None:
    given.world.time += LEAST_TRUSTED
    assert given.find() is not None
    given.world.time += 1
    assert given.find() is None


def test_guests_of_an_earlier_operation_of_the_run_are_not_taken(given: Given) -> None:
    given.world.time += 5
    given.begins(given.world.time)
    assert given.find() is None
