# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Operations on instances: on several hosts, on some that do not answer, on guests that others changed."""

from __future__ import annotations

import pytest
from printed import changed
from simulated_site import Site, entry

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.core.instances.power_states import RUNNING, SHUTDOWN


@pytest.fixture
def booted(site: Site) -> Site:
    """web-1 to web-3, each on a host of its own."""
    site.boots(entry("web", count=3))
    return site


def states(site: Site) -> set[str]:
    return {row["vm_state"] for row in site.instances().values()}


def guests(site: Site) -> set[int]:
    """The power states of all domains."""
    return {domain["power_state"] for host in site.hosts.values() for domain in host.domains.values()}


NAMES = ["web-1", "web-2", "web-3"]


def test_guests_stop_and_start(booted: Site) -> None:
    before = booted.dump()
    assert "web-2" in booted.play("stop", "--check", names=NAMES)
    assert booted.dump() == before and guests(booted) == {RUNNING}
    booted.play("stop", names=NAMES)
    assert (states(booted), guests(booted)) == ({"stopped"}, {SHUTDOWN})
    assert changed(booted.play("stop", names=NAMES)) == 0
    booted.play("start", names=NAMES)
    assert (states(booted), guests(booted)) == ({"active"}, {RUNNING})


def test_a_host_that_does_not_answer_fails_its_own_instances_only(booted: Site) -> None:
    away = booted.instances()["web-2"]["host"]
    booted.hosts[away].is_silent()
    output = booted.play("stop", expect=2, names=NAMES)
    assert "web-2 on %s: HostUnreachable: " % away in output and "Remedy: " in output
    assert {name: row["vm_state"] for name, row in booted.instances().items()} == {
        "web-1": "stopped",
        "web-2": "active",
        "web-3": "stopped",
    }
    booted.hosts[away].heal()
    booted.play("stop", names=NAMES)
    assert (states(booted), guests(booted)) == ({"stopped"}, {SHUTDOWN})


def test_a_guest_that_its_host_refuses_to_stop_stays_as_it_is(booted: Site) -> None:
    row = booted.instances()["web-1"]
    booted.hosts[row["host"]].items_fail("domain_power", errors.LibvirtError(reason="not today"), times=1)
    assert "web-1 on %s: LibvirtError: libvirt: not today" % row["host"] in booted.play(
        "stop", expect=2, names=["web-1"]
    )
    now = booted.instances()["web-1"]
    assert (now["vm_state"], now["task_state"]) == ("active", None)
    booted.play("stop", names=["web-1"])


def test_what_others_did_to_a_guest_is_seen_by_the_next_sync(booted: Site) -> None:
    row = booted.instances()["web-1"]
    booted.hosts[row["host"]].powers(row["uuid"], SHUTDOWN)
    booted.play("power_sync")
    assert booted.instances()["web-1"]["vm_state"] == "stopped"
    assert changed(booted.play("power_sync")) == 0
    booted.hosts[row["host"]].powers(row["uuid"], RUNNING)
    booted.play("power_sync")
    assert guests(booted) == {RUNNING, SHUTDOWN}, "a guest that the ledger has as stopped is stopped"


def test_the_console_is_that_of_the_guest(booted: Site) -> None:
    row = booted.instances()["web-1"]
    assert "%s starts" % row["domain_name"] in booted.play("console", names=["web-1"])


def test_a_deletion_waits_for_a_host_that_is_away(booted: Site) -> None:
    row = booted.instances()["web-2"]
    host = booted.hosts[row["host"]]
    host.is_silent()
    output = booted.play("delete", expect=2, names=["web-1", "web-2"])
    assert "web-2" in output and set(booted.instances()) == {"web-2", "web-3"}
    assert list(host.domains) == [row["uuid"]]
    host.heal()
    booted.play("delete", names=NAMES, missing_ok=True)
    assert booted.residue() == {}


def test_a_forced_deletion_is_ended_by_the_report_of_the_host(booted: Site) -> None:
    row = booted.instances()["web-2"]
    host = booted.hosts[row["host"]]
    host.is_silent()
    booted.play("delete", names=["web-2"], delete_force=True)
    assert set(booted.instances()) == {"web-1", "web-3"} and list(host.domains) == [row["uuid"]]
    (left,) = booted.query("SELECT host FROM cleanups")
    assert left["host"] == host.name
    host.heal()
    booted.play("heartbeat")
    assert host.domains == host.folders == {} and booted.query("SELECT 1 FROM cleanups") == []


@pytest.mark.parametrize("after", [False, True], ids=["before its host did it", "after its host did it"])
def test_a_killed_stop_is_settled_by_the_next_run(booted: Site, after: bool) -> None:
    row = booted.instances()["web-1"]
    host = booted.hosts[row["host"]]
    host.is_slow("domain_power", 60.0, times=1, after=after)
    process = booted.begin("stop", names=["web-1"])
    try:
        booted.wait_for_module(host.name, "domain_power", process)
        booted.wait_until(lambda: not after or host.domains[row["uuid"]]["power_state"] == SHUTDOWN)
    finally:
        booted.kill(process)
    assert booted.instances()["web-1"]["task_state"] == "powering-off"
    booted.play("stop", names=["web-1"])
    now = booted.instances()["web-1"]
    assert (now["vm_state"], now["task_state"]) == ("stopped", None)
    assert host.domains[row["uuid"]]["power_state"] == SHUTDOWN
