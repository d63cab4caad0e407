# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The action of a rolling service: bad requests, and batches of hosts of which one fails. Playbooks that it runs are functions here."""

from __future__ import annotations

import json
import types
import typing as t
from pathlib import Path

import pytest
from ansible import context
from ansible.parsing.dataloader import DataLoader
from ansible.utils.context_objects import CLIArgs

from ansible_collections.bootflow.compute.plugins.action import service
from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.compute import service_state
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.schema import service_tables, tables
from ansible_collections.bootflow.compute.plugins.plugin_utils.service import steps
from ansible_collections.bootflow.compute.tests.unit.worlds.actions import WorldPorts, action_of
from ansible_collections.bootflow.compute.tests.unit.worlds.world import World

HOSTS = ["h1", "h2", "h3"]
ZONES = {"h1": "east", "h2": "west", "h3": "east"}


class Servicing:
    """A world with three hosts. ``fails``: playbooks that end with an error, by their names and hosts."""

    def __init__(self, world: World, folder: Path, monkeypatch: pytest.MonkeyPatch):
        self.world = world
        self.played: list[str] = []
        self.fails: set[str] = set()
        self.silent: set[str] = set()
        self.tasks = folder / "tasks.yml"
        self.tasks.write_text("[]")
        self.given: list[dict[str, t.Any]] = []
        self.import_variables: dict[str, t.Any] = {}
        for host in HOSTS:
            world.report(host, memory=9)
        monkeypatch.setattr(steps, "ChildPlaybook", self.child)
        monkeypatch.setattr(steps, "PAUSE", 0.01)

    def child(self, argv: t.Sequence[str], _show: t.Callable[[str], None]) -> t.Any:
        given = json.loads(argv[2])
        self.given.append(given)
        self.world.time += 1
        host = given.get("bootflow_drain_host") or given.get("bootflow_service_host") or ""
        name = ("%s %s" % (argv[0], host)).strip()
        self.played.append(name)
        if argv[0] == "heartbeat":
            for reporting in argv[4].split(",") if len(argv) > 4 else HOSTS:
                if reporting in HOSTS and reporting not in self.silent:
                    self.world.report(reporting, memory=9)
        return types.SimpleNamespace(look=lambda: int(name in self.fails), end=lambda: None, lines=["what it printed"])

    def run(self, check_mode: bool = False, **variables: t.Any) -> dict[str, t.Any]:
        self.ports = WorldPorts(self.world, "m")
        self.ports.display.verbosity = 0
        self.ports.other_playbook = lambda name, _caller: [name]  # type: ignore[method-assign]
        hostvars = {h: {"inventory_hostname": h, "bootflow_availability_zone": ZONES[h]} for h in HOSTS}
        given = {
            "groups": {"all": HOSTS, "bootflow_compute": HOSTS},
            "hostvars": {**hostvars, "localhost": {}},
            "bootflow_service_tasks": str(self.tasks),
            "bootflow_drain_live": False,
        }
        variables = {"bootflow_" + name: value for name, value in variables.items()}
        action = action_of(service, self.ports, {**given, **variables}, check_mode)
        action._task.get_play = lambda: types.SimpleNamespace(vars=self.import_variables)
        action._loader = DataLoader()
        return t.cast("dict[str, t.Any]", action.act())

    def states(self) -> dict[str, str]:
        return {r.host: r.state for r in self.world.rows(service_tables.service_hosts)}

    def disabled(self) -> list[str]:
        return sorted(n.host for n in self.world.rows(tables.compute_nodes) if n.service_disabled)


@pytest.fixture
def servicing(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Servicing:
    return Servicing(world, tmp_path, monkeypatch)


@pytest.mark.parametrize(
    ("variables", "words"),
    [
        ({"uuids": ["u"]}, "bootflow_uuids: service takes all instances"),
        ({"host": ["h1"], "all": True}, "bootflow_host, bootflow_all: service"),
        ({"service_tasks": None}, "none of bootflow_service_tasks and bootflow_service_role is set"),
        ({"service_role": "web"}, "each of bootflow_service_tasks and bootflow_service_role is set"),
        (
            {"service_tasks": "/nowhere/tasks.yml"},
            "the file /nowhere/tasks.yml of bootflow_service_tasks does not exist",
        ),
        ({"service_tasks": None, "service_role": "no_such_role"}, "role 'no_such_role' was not found"),
        ({"service_tasks": None, "service_role": "no.such.role"}, "role 'no.such.role' was not found"),
        ({"service_hosts": []}, "no compute host is selected"),
        ({"service_hosts": ["h4"]}, "Compute host h4 could not be found"),
        ({"service_window": 60}, "The window of 60 s is shorter than the 1800 s"),
        ({"service_at_once": 0}, "bootflow_service_at_once must be a whole number, at least 1"),
    ],
)
def test_bad_requests(servicing: Servicing, variables: dict[str, t.Any], words: str) -> None:
    for check_mode in (True, False):
        with pytest.raises(errors.BootflowError) as raised:
            servicing.run(check_mode, **variables)
        texts = [raised.value.message, *(e["message"] for e in getattr(raised.value, "errors", ()))]
        assert any(words in text for text in texts), texts
        assert raised.value.remedy or getattr(raised.value, "errors", None)
    assert servicing.states() == {} and servicing.disabled() == [] and servicing.played == []


@pytest.mark.parametrize(("content", "words"), [("a: 1", "has no list of tasks"), ("- [", "cannot be read")])
def test_files_without_tasks(servicing: Servicing, content: str, words: str) -> None:
    servicing.tasks.write_text(content)
    with pytest.raises(errors.InvalidInput, match=words):
        servicing.run()


@pytest.mark.parametrize("name", ["start_at_task", "step"])
def test_options_that_other_playbooks_would_read(
    servicing: Servicing, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(context, "CLIARGS", CLIArgs({**context.CLIARGS, name: "x"}))
    with pytest.raises(errors.InvalidInput, match="--%s would change" % name.replace("_", "-")):
        servicing.run()


def test_all_hosts_in_order_and_nothing_when_they_are_done(servicing: Servicing) -> None:
    result = servicing.run()
    assert result["serviced"] == ["h1", "h3", "h2"] and result["finished"] and result["changed"]
    assert servicing.played == [p for h in ("h1", "h3", "h2") for p in ("service_tasks " + h, "heartbeat")]
    assert servicing.disabled() == []
    servicing.played.clear()
    again = servicing.run()
    assert not again["changed"] and again["finished"] and servicing.played == []
    assert servicing.run(check_mode=True)["planned"] == []
    assert servicing.run(check_mode=True, service_restart=True)["planned"] == HOSTS
    assert servicing.run(service_restart=True, service_hosts=["h2"])["serviced"] == ["h2"]


def test_one_of_two_hosts_fails_and_the_other_is_finished(servicing: Servicing) -> None:
    servicing.fails = {"service_tasks h1"}
    result = servicing.run(service_at_once=2)
    assert result["failed"] and result["error_code"] == "ServiceTasksFailed" and result["serviced"] == ["h2"]
    assert servicing.states() == {"h1": "tasks", "h2": "done", "h3": "pending"} and servicing.disabled() == ["h1"]
    servicing.fails = set()
    result = servicing.run(service_at_once=2)
    assert result["serviced"] == ["h1", "h3"] and result["finished"] and servicing.disabled() == []


def test_a_host_that_is_silent_after_its_tasks(servicing: Servicing) -> None:
    servicing.silent = {"h1"}
    result = servicing.run(service_report_timeout=1)
    assert result["error_code"] == "HostNotBack" and servicing.states()["h1"] == "report"
    assert servicing.disabled() == ["h1"] and "service_tasks h3" not in servicing.played
    servicing.silent = set()
    assert servicing.run()["finished"] and servicing.played.count("service_tasks h1") == 1


def test_a_drain_that_fails(servicing: Servicing) -> None:
    with servicing.world.ledger.write() as tx:
        tx = tx.for_run(servicing.world.context("a"))
        service_state.set_state(tx, ["h2", "h3"], service_state.DISABLED)
    servicing.world.boot("web")
    with servicing.world.ledger.write() as tx:
        service_state.set_state(tx.for_run(servicing.world.context("a")), ["h2", "h3"], service_state.ENABLED)
    servicing.fails = {"drain h1"}
    result = servicing.run(service_hosts=["h1"])
    assert result["error_code"] == "ServiceStopped" and "not all of its instances left it" in result["msg"]
    assert servicing.states() == {"h1": "drain"} and servicing.disabled() == ["h1"]
    assert any("what it printed" in text for text in servicing.ports.shown)


def test_a_window_counts_what_hosts_took(servicing: Servicing) -> None:
    result = servicing.run(service_window=12, service_host_time=1, service_tasks=str(servicing.tasks))
    assert result["finished"], "they took two seconds each"
    with servicing.world.ledger.write() as tx:
        tx.execute(service_tables.services.update().values(longest=11.0))
    result = servicing.run(service_restart=True, service_window=12, service_host_time=1)
    assert result["serviced"] == ["h1"] and not result["finished"] and not result.get("failed")


def test_variables_of_the_import_go_to_the_other_playbooks(servicing: Servicing) -> None:
    servicing.import_variables = {"bootflow_drain_live": False, "other": 1}
    servicing.run(service_hosts=["h1"])
    assert servicing.given[0] == {
        "bootflow_drain_live": False,
        "bootflow_service_host": "h1",
        "bootflow_service_tasks": str(servicing.tasks),
    }


def test_a_host_that_was_begun_and_is_not_selected(servicing: Servicing) -> None:
    servicing.fails = {"service_tasks h1"}
    servicing.run(service_hosts=["h1"])
    result = servicing.run(service_hosts=["h2"])
    assert result["serviced"] == ["h2"] and servicing.disabled() == ["h1"]
    assert any("h1 was begun by the service default and is not selected" in text for text in servicing.ports.warnings)
