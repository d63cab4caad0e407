# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""An operation with separate work on the host costs a row, its class and the class's name in WORKS (docs/architecture.md), besides what runs on the host:
the trim of guests' file systems is one here. Nova has no such action, so it is also a row of ACTIONS.
"""

from __future__ import annotations

import sys
import types
import typing as t

import pytest

from ansible_collections.bootflow.compute.plugins import modules
from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.core.instances import states
from ansible_collections.bootflow.compute.plugins.module_utils.core.instances.operation_outcomes import Answers
from ansible_collections.bootflow.compute.plugins.module_utils.flows.instances import operations
from ansible_collections.bootflow.compute.plugins.module_utils.flows.instances.operation import Begun, Operation
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.db.transaction import Transaction
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.schema import tables
from ansible_collections.bootflow.compute.plugins.plugin_utils.operations import works
from ansible_collections.bootflow.compute.plugins.plugin_utils.operations.work import Items, Problems, Work, uuids_of
from ansible_collections.bootflow.compute.plugins.plugin_utils.run.results import item_errors
from ansible_collections.bootflow.compute.tests.unit.worlds.world import World, request

from .test_instance_operation import Fleet, vm_states

NAMES = ("web-1", "web-2")
MODULE = "guest_trim"


class Trim(Work):
    """Trims the file systems of guests."""

    def check(self, tx: Transaction, begun: Begun) -> None:
        if any(row.display_name == "untrimmable" for row in begun.rows):
            raise errors.InvalidInput(reason="it has no agent")

    def on_host(self, items: Items, fresh: t.Collection[str]) -> tuple[Answers, Problems]:
        result = self.action.run_module(MODULE, {"domains": [{"uuid": item["uuid"]} for item in items]})
        return result["outcomes"], item_errors(result, uuids_of(items))


class Trims(Fleet):
    """Hosts that trim."""

    def __init__(self, world: World):
        super().__init__(world)
        self.trimmed: list[str] = []
        self.failing: set[str] = set()

    def answer(self, host: str, name: str, arguments: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
        assert name == MODULE
        if host in self.away:
            return {"unreachable": True, "msg": "no route"}
        outcomes: dict[str, t.Any] = {}
        for domain in arguments["domains"]:
            self.trimmed.append(domain["uuid"])
            failure = errors.RemoteError(reason="the agent is silent").as_dict()
            outcomes[domain["uuid"]] = {"changed": True, "error": failure if host in self.failing else None}
        return {"outcomes": outcomes}


@pytest.fixture(autouse=True)
def _operation(monkeypatch: pytest.MonkeyPatch) -> None:
    action = states.Action(frozenset((states.ACTIVE,)), during=states.UPDATING_PASSWORD)
    row = Operation("trim", work="trim")
    for table, name, added in (
        (states.ACTIONS, "trim", action),
        (operations.OPERATIONS, "trim", row),
        (operations.BY_TASK_STATE, states.UPDATING_PASSWORD, row),  # made of the rows when it was loaded
        (works.WORKS, "trim", Trim),
    ):
        monkeypatch.setitem(t.cast("dict[str, t.Any]", table), name, added)
    monkeypatch.setitem(sys.modules, "%s.%s" % (modules.__name__, MODULE), types.ModuleType(MODULE))


@pytest.fixture
def trims(world: World) -> Trims:
    """web-1 and web-2, one on h1 and one on h2."""
    world.report("h1", memory=1)
    world.report("h2", memory=1)
    world.accept(request("web", 2))
    for host in sorted({place.host for place in world.schedule().placed.values()}):
        world.build(host)
    return Trims(world)


def test_it_is_done_and_journalled(trims: Trims) -> None:
    done = trims.play("trim", names=NAMES)
    assert done["changed"] and "failed" not in done and len(trims.trimmed) == 2
    assert vm_states(trims.world) == dict.fromkeys(NAMES, (states.ACTIVE, None))
    journal = trims.world.rows(tables.instance_actions, tables.instance_actions.c.action == "trim")
    assert sorted(row.instance_uuid for row in journal) == sorted(trims.trimmed)
    assert all(row.message is None and row.finish_time is not None for row in journal)


def test_a_host_that_fails_or_is_silent_does_not_stop_the_others(trims: Trims) -> None:
    hosts = {row.display_name: row.host for row in trims.world.rows(tables.instances)}
    for kind in (trims.failing, trims.away):
        kind.add(hosts["web-2"])
        result = trims.play("trim", names=NAMES)
        assert result["error_code"] == "OperationFailed" and [i["name"] for i in result["failed_items"]] == ["web-2"]
        assert vm_states(trims.world) == dict.fromkeys(NAMES, (states.ACTIVE, None))
        kind.clear()


def test_its_states_and_its_check_are_asked_before_it_begins(trims: Trims) -> None:
    with trims.world.ledger.write() as tx:
        tx.execute(tables.instances.update().values(vm_state=states.PAUSED))
    with pytest.raises(errors.InstanceInvalidState, match="Cannot 'trim' instance"):
        trims.play("trim", names=NAMES)
    renamed = tables.instances.c.display_name == "web-2"
    with trims.world.ledger.write() as tx:
        tx.execute(tables.instances.update().values(vm_state=states.ACTIVE))
        tx.execute(tables.instances.update().where(renamed).values(display_name="untrimmable"))
    before = trims.world.everything()
    with pytest.raises(errors.InvalidInput, match="it has no agent"):
        trims.play("trim", project="default", all=True)
    assert trims.world.everything() == before and trims.trimmed == []


def test_check_mode_writes_nothing(trims: Trims) -> None:
    trims.check_mode = True
    before = trims.world.everything()
    assert trims.play("trim", names=NAMES)["changed"] and trims.world.everything() == before
    assert "Would trim" in trims.shown[-1]


def test_another_run_adopts_it_from_a_dead_one(trims: Trims) -> None:
    trims.task("localhost", "trim", "begin", names=NAMES)
    assert vm_states(trims.world) == dict.fromkeys(NAMES, (states.ACTIVE, states.UPDATING_PASSWORD))
    trims.world.time += 10_000
    trims.run = "p"
    for host in ("h1", "h2"):
        trims.world.report(host, memory=1)
    assert trims.play("trim", names=NAMES)["changed"] and len(trims.trimmed) == 2
    assert vm_states(trims.world) == dict.fromkeys(NAMES, (states.ACTIVE, None))
