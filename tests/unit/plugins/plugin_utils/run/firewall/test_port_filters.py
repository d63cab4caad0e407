# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Modules before which a host gets its filters: all that may start a guest or plug an interface in."""

from __future__ import annotations

import pathlib
import re
import typing as t

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.ledger.networks import filter_marks
from ansible_collections.bootflow.compute.plugins.plugin_utils.run.firewall import filter_handover
from ansible_collections.bootflow.compute.plugins.plugin_utils.run.firewall.port_filters import apply, may_start
from ansible_collections.bootflow.compute.tests.unit.worlds.actions import WorldPorts
from ansible_collections.bootflow.compute.tests.unit.worlds.world import World

HOSTS = pathlib.Path(__file__).resolve().parents[6] / "plugins" / "module_utils" / "hosts"
#: Calls of libvirt after which a guest runs, or has another device, and the files that make them. All of them work for the modules that
#: may_start() knows; a new one has to, too.
STARTING = {
    r"\.createWithFlags\(": {"libvirt/running.py"},
    r"\bdomain\.(create|createXML|restore|restoreFlags)\(": set(),
    r"\.resume\(\)": {"libvirt/power.py"},
    r"\.attachDeviceFlags\(": {"libvirt/hot_plug.py", "libvirt/pci_devices.py"},
    r"\.migrateToURI3\(": {"live/migrate.py"},
}


@pytest.mark.parametrize("call", STARTING)
def test_the_calls_that_start_guests_are_known(call: str) -> None:
    files = {str(path.relative_to(HOSTS)) for path in HOSTS.rglob("*.py") if re.search(call, path.read_text())}
    assert files == STARTING[call]


@pytest.mark.parametrize(
    ("module", "arguments", "starts"),
    [
        ("domain_power", {"state": "running"}, True),
        ("domain_power", {"state": "rebooted"}, True),
        ("domain_power", {"state": "unpaused"}, True),
        ("domain_power", {"state": "shutdown"}, False),
        ("domain_migration", {"step": "prepare"}, True),
        ("domain_migration", {"step": "migrate"}, False),
        ("domain_interface", {"interfaces": [{"state": "detached"}, {}]}, True),
        ("domain_interface", {"interfaces": [{"state": "detached"}]}, False),
        ("instance_build", {}, True),
        ("image_file", {}, False),
    ],
)
def test_a_module_may_start_a_guest(module: str, arguments: dict[str, t.Any], starts: bool) -> None:
    assert may_start(module, arguments) is starts


class FilteringHost:
    """An action whose host has filters of ``revision``."""

    check_mode = False
    asks_ledger = True

    def __init__(self, world: World, revision: int) -> None:
        self.ports = WorldPorts(world, "run")
        self.ledger, self.revision = world.ledger.for_run(world.context()), revision
        self.task_vars = {"inventory_hostname": "h1"}
        self.revisions: list[int] = []

    def write(self, function: t.Callable[..., t.Any]) -> t.Any:
        assert self.asks_ledger, "the task of a host opens the ledger"
        return self.ledger.rehearsal(function) if self.check_mode else self.ledger.transact(function)

    def ledger_id(self) -> str:
        return "one"

    def run_module(self, name: str, arguments: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
        assert name == "port_filters"
        self.revisions.append(arguments["document"]["revision"])
        superseded = self.revision > self.revisions[-1]
        self.revision = max(self.revision, self.revisions[-1])
        return {"changed": not superseded, "superseded": superseded, "revision": self.revision}


def test_a_host_follows_a_ledger_that_was_restored(world: World) -> None:
    world.report("h1")
    world.boot()
    host = FilteringHost(world, 40)
    assert apply(t.cast(t.Any, host)) == {"changed": True, "superseded": False, "revision": 41}
    assert host.revisions == [1, 41]
    with world.ledger.read() as tx:
        assert filter_marks.due(tx) == []


def test_check_mode_asks_the_host_and_writes_nothing(world: World) -> None:
    world.report("h1")
    world.boot()
    before = world.everything()
    host = FilteringHost(world, 0)
    host.check_mode = True
    assert apply(t.cast(t.Any, host))["changed"] and host.revisions == [1]
    assert world.everything() == before


class Controller(FilteringHost):
    """An action of the controller, whose hosts ``h1`` and ``h2`` filter; ``plain`` does not."""

    def __init__(self, world: World) -> None:
        super().__init__(world, 0)
        nftables = {"bootflow_firewall_driver": "nftables"}
        self.task_vars = {
            "inventory_hostname": "localhost",
            "hostvars": {"h1": nftables, "h2": nftables, "plain": {}},
        }

    def variable(self, _name: str) -> t.Any:
        return None


def due(world: World) -> list[str]:
    with world.ledger.read() as tx:
        return filter_marks.due(tx)


@pytest.fixture(name="booted")
def _booted(world: World) -> World:
    world.report("h1")
    world.boot()
    return world


def test_a_document_that_was_handed_over_needs_no_ledger_on_the_host(booted: World) -> None:
    controller = Controller(booted)
    filter_handover.give(controller, ["h1", "plain", "unknown"])
    host = FilteringHost(booted, 0)
    host.asks_ledger = False
    answers = [apply(t.cast(t.Any, host)) for _module in range(2)]  # a task may start guests by two modules
    assert [answer["superseded"] for answer in answers] == [False, False] and host.revisions == [1, 1]
    assert due(booted) == ["h1"]
    filter_handover.collect(controller)
    assert due(booted) == []
    filter_handover.collect(controller)


def test_a_document_is_valid_until_the_next_task_of_the_controller(booted: World) -> None:
    controller, host = Controller(booted), FilteringHost(booted, 0)
    filter_handover.give(controller, ["h1", "h2"])
    filter_handover.collect(controller)
    assert filter_handover.find(t.cast(t.Any, host), "h1") is None
    assert due(booted) == ["h1", "h2"]  # they never had one
    assert apply(t.cast(t.Any, host))["revision"] == 2
    filter_handover.give(controller, ["h1"])
    filter_handover.collect(controller)
    assert due(booted) == ["h2"]  # h1 is as it was


def test_a_host_that_was_marked_meanwhile_is_due_although_its_document_was_not_brought(booted: World) -> None:
    controller, host = Controller(booted), FilteringHost(booted, 0)
    apply(t.cast(t.Any, host))
    filter_handover.give(controller, ["h1"])
    controller.write(lambda tx: filter_marks.mark(tx, ["h1"]))
    filter_handover.collect(controller)
    assert due(booted) == ["h1"]


def test_another_run_gave_the_host_a_newer_document_meanwhile(booted: World) -> None:
    controller, host = Controller(booted), FilteringHost(booted, 0)
    filter_handover.give(controller, ["h1"])
    host.revision = 2
    controller.write(lambda tx: filter_marks.mark(tx, ["h1"]))
    assert apply(t.cast(t.Any, host)) == {"changed": True, "superseded": False, "revision": 3}
    assert host.revisions == [1, 3] and due(booted) == []


def test_check_mode_hands_over_nothing(booted: World) -> None:
    controller, before = Controller(booted), booted.everything()
    controller.check_mode = True
    filter_handover.give(controller, ["h1"])
    filter_handover.collect(controller)
    assert booted.everything() == before and filter_handover.find(t.cast(t.Any, controller), "h1") is None
