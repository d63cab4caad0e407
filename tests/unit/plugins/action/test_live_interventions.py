# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Interventions in live migrations of other runs: what source hosts answer, and what people see. That hosts do their parts is shown by the lab."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.bootflow.compute.plugins.action import instance_live_intervene as intervene
from ansible_collections.bootflow.compute.plugins.action import instance_live_migrate
from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.flows.moves import live_life
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.schema import tables
from ansible_collections.bootflow.compute.tests.unit.worlds.world import World

from .test_moves import Fleet

OPERATIONS = list(live_life.INTERVENTIONS)
LEFT = {"changed": True, "total": 4 << 20, "remaining": 3 << 20, "error": None}


class Telling(Fleet):
    """The host of a guest on its way answers as ``outcome`` says; None: something is wrong that nobody foresaw."""

    outcome: t.Optional[t.Dict[str, t.Any]] = LEFT

    def answer(self, name: str, arguments: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
        assert (name, arguments["step"]) == ("domain_migration", "intervene")
        self.asked.append(arguments["action"])
        if self.outcome is None:
            raise ZeroDivisionError(name)
        return {"outcomes": dict.fromkeys(arguments["uuids"], self.outcome)}

    def play(self, operation: str, silent: bool = False) -> dict[str, t.Any]:
        options = {"operation": operation}
        begun = self.stage(intervene, "begin", names=["web"], **options)
        for host in () if silent else begun["sources"]:
            self.stage(intervene, "work", host, **options)
        return self.stage(intervene, "finish", **options)


@pytest.fixture
def fleet(world: World) -> Telling:
    """web is on its way from h1 to h2."""
    world.report("h1")
    world.boot()
    world.report("h2")
    fleet = Telling(world)
    (item,) = fleet.stage(instance_live_migrate, "begin", names=["web"])["instances"]
    with world.ledger.write() as tx:
        live_life.mark_running(tx.for_run(world.context("o")), [item["uuid"]])
    return fleet


def journal(world: World, operation: str) -> list[tuple[str, str]]:
    event = live_life.INTERVENTIONS[operation].name
    return [(str(e.result), str(e.details)) for e in world.rows(tables.instance_action_events) if e.event == event]


@pytest.mark.parametrize("operation", OPERATIONS)
def test_the_source_host_is_told(fleet: Telling, operation: str) -> None:
    done = fleet.play(operation)
    (item,) = done["instances"]
    assert done["changed"] and (item["source"], item["destination"], item["remaining"]) == ("h1", "h2", 3 << 20)
    assert fleet.shown[0] == operation + ":" and fleet.shown[-1].endswith("3 of 4 MiB were left")
    assert [result for result, _details in journal(fleet.world, operation)] == ["Success"]


@pytest.mark.parametrize("operation", OPERATIONS)
def test_check_mode_asks_and_writes_nothing(fleet: Telling, operation: str) -> None:
    fleet.check_mode, before = True, fleet.world.everything()
    done = fleet.play(operation)
    assert fleet.shown[-1].endswith("3 of 4 MiB are left") and len(fleet.asked) == 1
    assert "failed" not in done and fleet.world.everything() == before


@pytest.mark.parametrize(
    ("outcome", "silent", "code"),
    [
        ({"error": errors.LibvirtError(reason="x").as_dict()}, False, "LibvirtError"),
        (None, False, "RemoteError"),
        (LEFT, True, "HostUnreachable"),
    ],
)
def test_a_host_that_fails(fleet: Telling, outcome: dict[str, t.Any] | None, silent: bool, code: str) -> None:
    fleet.outcome = outcome
    done = fleet.play(OPERATIONS[0], silent)
    (failed,) = done["failed_items"]
    assert (failed["error"]["code"], failed["host"], done["changed"]) == (code, "h1", False)
    assert fleet.shown[-1].split()[-1] == code
    ((result, details),) = journal(fleet.world, OPERATIONS[0])
    assert result == "Error" and details == failed["error"]["message"]
