# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The reports of all hosts of a heartbeat: hosts only answer, one task writes, and what a single report does happens as well."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.bootflow.compute.plugins.action import compute_report, power_sync
from ansible_collections.bootflow.compute.plugins.module_utils.core.instances import states
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.compute import cleanups, nodes
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.db.address import (
    LedgerAddress,
    normalise_url,
)
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.schema import tables
from ansible_collections.bootflow.compute.plugins.plugin_utils.watch import fleet_reports
from ansible_collections.bootflow.compute.tests.unit.worlds.actions import WorldPorts, results_of
from ansible_collections.bootflow.compute.tests.unit.worlds.world import World

from .test_power_sync import OFF, RUNNING, Fleet, boot_of, power, restart, running_fleet

HOSTS = ("h1", "h2", "h3")


@pytest.fixture(name="fleet")
def _fleet(world: World) -> Fleet:
    return running_fleet(world)


def ask(fleet: Fleet, hosts: t.Sequence[str] = HOSTS, run: str = "s") -> None:
    for host in hosts:
        fleet.task(compute_report, host, run=run, phase="ask")


def write(fleet: Fleet, run: str = "s") -> dict[str, t.Any]:
    return fleet.task(compute_report, "localhost", run=run, phase="write")


def node(fleet: Fleet, host: str) -> t.Any:
    return next(r for r in fleet.world.rows(tables.compute_nodes) if r.host == host)


def test_hosts_open_no_ledger_and_one_task_writes_all(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    one = power(fleet, "web-1", OFF)
    before = fleet.world.everything()
    opened: list[str] = []
    open_ledger = WorldPorts.open_ledger

    def counted(self: WorldPorts, address: t.Any, **options: bool) -> t.Any:
        opened.append(str(address))
        return open_ledger(self, address, **options)

    leave_ledger(fleet)
    monkeypatch.setattr(WorldPorts, "open_ledger", counted)
    ask(fleet)
    assert opened == [] and fleet.world.everything() == before
    written = write(fleet)
    assert len(opened) == 1
    assert (written["changed"], written["stopped"], written["compute"]) == (True, [one], [])
    assert fleet.states()["web-1"] == (states.STOPPED, OFF)
    assert {r.host for r in fleet.world.rows(tables.compute_nodes)} == set(HOSTS)
    assert not write(fleet)["changed"], "an answer is written once"
    ask(fleet)
    assert not write(fleet)["changed"]


def leave_ledger(fleet: Fleet) -> None:
    """Leave what the first task of the playbook does."""
    shown = str(LedgerAddress(url=normalise_url(fleet.world.url)))
    left = {"ask": [], "run_limit": None, "ledger": shown, "ledger_id": fleet.world.ledger.id}
    results_of(WorldPorts(fleet.world, "s"), "ledger").leave("open", "localhost", left)


def test_a_silent_host_and_one_that_says_nonsense_stop_no_other(fleet: Fleet) -> None:
    fleet.away = {"h2"}
    answer = fleet.answer

    def nonsense(host: str, name: str, arguments: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
        return {"compute_node": {"domains": "many"}} if host == "h3" else answer(host, name, arguments)

    fleet.answer = nonsense  # type: ignore[method-assign]
    ask(fleet)
    written = write(fleet)
    assert written["compute"] == [] and len(fleet.warned) == 2
    assert node(fleet, "h1").unreachable_reason is None and node(fleet, "h1").reported_at > fleet.world.time - 60
    assert "no route" in node(fleet, "h2").unreachable_reason
    assert "h3" not in {r.host for r in fleet.world.rows(tables.compute_nodes)}


def test_an_answer_that_cannot_be_written_is_left_to_its_host(
    fleet: Fleet,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fleet_reports, "AT_ONCE", 2)
    record_report = nodes.record_report

    def fails(tx: t.Any, host: str, *more: t.Any) -> int:
        if host == "h1":
            raise KeyError("facts")
        return record_report(tx, host, *more)

    monkeypatch.setattr(nodes, "record_report", fails)
    ask(fleet)
    assert write(fleet)["compute"] == ["h1", "h2"], "those of its transaction; others are written"
    assert "h3" in {r.host for r in fleet.world.rows(tables.compute_nodes)}
    assert fleet.task(compute_report, "h2")["reported"]


def test_hosts_with_something_to_remove_report_by_themselves(fleet: Fleet) -> None:
    with fleet.world.ledger.write() as tx:
        cleanups.add(tx.for_run(fleet.world.context()), cleanups.Due("h2", "gone", "gone", "it was away"))
    before = node(fleet, "h2").reported_at
    ask(fleet)
    assert write(fleet)["compute"] == ["h2"] and node(fleet, "h2").reported_at == before


def test_what_another_run_heard_later_stays(fleet: Fleet) -> None:
    one = power(fleet, "web-1", OFF)
    host = fleet.world.row(one).host
    fleet.away = {"h3"}
    ask(fleet)
    power(fleet, "web-1", RUNNING)
    fleet.away = set()
    for each in (host, "h3"):
        fleet.task(compute_report, each, run="t")
    assert not write(fleet)["stopped"]
    assert fleet.states()["web-1"] == (states.ACTIVE, RUNNING) and node(fleet, "h3").unreachable_reason is None


def test_operations_of_dead_runs_are_settled_and_restarts_told(fleet: Fleet) -> None:
    fleet.play()
    mine = restart(fleet, "h1")
    fleet.task(power_sync, "localhost", phase="begin")
    for host in HOSTS:
        fleet.task(power_sync, host, phase="ask")
    fleet.task(power_sync, "localhost", phase="sync")
    fleet.world.time += 601
    ask(fleet, run="t")
    written = write(fleet, run="t")
    assert written["settled"] == dict.fromkeys(mine, states.ACTIVE) and written["to_resume"] == mine
    assert "h1 restarted" in fleet.shown[-1] and boot_of(fleet, "h1") == "first"


def test_a_run_that_dies_between_its_tasks_has_written_nothing(fleet: Fleet) -> None:
    one = power(fleet, "web-1", OFF)
    before = fleet.world.everything()
    ask(fleet)
    assert fleet.world.everything() == before
    ask(fleet, run="t")
    assert write(fleet, run="t")["stopped"] == [one]


def test_check_mode_asks_and_writes_nothing(fleet: Fleet, world: World) -> None:
    power(fleet, "web-1", OFF)
    before = fleet.world.everything()
    fleet.check_mode = True
    ask(fleet)
    assert write(fleet) == {"changed": False, "compute": []}
    assert fleet.world.everything() == before
