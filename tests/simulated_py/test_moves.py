# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Guests that move from host to host, and hosts that are drained and evacuated."""

from __future__ import annotations

import pytest
from simulated_site import Site, entry

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.core.instances.power_states import RUNNING


@pytest.fixture
def booted(site: Site) -> Site:
    """web-1 and web-2 on kvm1."""
    site.boots(entry("web", count=2), hosts=["kvm1"])
    return site


def agree(site: Site) -> None:
    """Every instance that is active runs on its host, and nowhere else."""
    rows = site.instances().values()
    there = {(uuid, name, d["power_state"]) for name, host in site.hosts.items() for uuid, d in host.domains.items()}
    assert there == {(row["uuid"], row["host"], RUNNING) for row in rows if row["vm_state"] == "active"}
    assert {(u, name) for name, host in site.hosts.items() for u in host.folders} == {
        (r["uuid"], r["host"]) for r in rows
    }
    site.check_ledger()


def test_a_guest_migrates_and_its_host_forgets_it(booted: Site) -> None:
    booted.play("migrate", names=["web-1"])
    row = booted.instances()["web-1"]
    assert (row["vm_state"], row["task_state"]) == ("resized", None) and row["host"] != "kvm1"
    assert len(booted.hosts["kvm1"].folders) == 2, "until it is confirmed"
    booted.play("confirm_resize", names=["web-1"])
    assert booted.places()["web-1"] == ("active", row["host"])
    agree(booted)


def test_a_guest_whose_disks_do_not_arrive_goes_on_where_it_was(booted: Site) -> None:
    before = booted.places()
    for name in ("kvm2", "kvm3"):
        booted.hosts[name].items_fail("instance_disks_fetch", errors.DiskFull(host=name, path="/", reason="full"))
    output = booted.play("migrate", expect=2, names=["web-1"])
    assert "DiskFull" in output
    assert booted.places() == before
    agree(booted)
    assert booted.query("SELECT count(*) AS n FROM claims")[0]["n"] == 2


def test_a_plan_of_a_drain_names_who_goes_where(booted: Site) -> None:
    before = booted.dump()
    output = booted.play("drain", "--check", drain_host="kvm1", drain_live=False)
    for line in ("~ kvm1 gets no new instances", "~ web-1 migrate, restarts the guest", "~ web-2 migrate"):
        assert line in output, output
    assert booted.dump() == before and len(booted.hosts["kvm1"].domains) == 2


def test_a_host_is_drained(booted: Site) -> None:
    output = booted.play("drain", drain_host="kvm1", drain_live=False)
    assert "kvm1 is empty" in output
    assert "kvm1" not in {row["host"] for row in booted.instances().values()}
    assert booted.hosts["kvm1"].domains == booted.hosts["kvm1"].folders == {}
    agree(booted)
    again = booted.play("drain", drain_host="kvm1", drain_live=False)
    assert "No instance is on it." in again and "changed=0" in again


def test_a_host_that_is_gone_is_evacuated_and_cleaned_when_it_is_back(booted: Site) -> None:
    booted.hosts["kvm1"].is_silent()
    booted.play("host", host="kvm1", host_state="forced_down")
    booted.play("evacuate", host="kvm1")
    places = booted.places()
    assert {state for state, _host in places.values()} == {"active"} and "kvm1" not in {
        h for _state, h in places.values()
    }
    assert len(booted.hosts["kvm1"].domains) == 2, "nobody reached it"
    booted.hosts["kvm1"].heal()
    booted.play("host", host="kvm1", host_state="up")
    booted.play("heartbeat")
    agree(booted)
