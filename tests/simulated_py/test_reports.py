# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Heartbeats: hosts answer, one task writes, and hosts with leftovers report by themselves."""

from __future__ import annotations

from host_model import SHUTDOWN
from simulated_site import Site, entry

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors

REPORTED = "SELECT host FROM compute_nodes WHERE unreachable_reason IS NULL ORDER BY host"


def test_hosts_that_fail_or_say_nonsense_stop_no_other(site: Site) -> None:
    site.hosts["kvm1"].fails("compute_node_info", errors.LibvirtError(reason="it is away"))
    site.hosts["kvm2"].says("compute_node_info", '{"changed": false, "compute_node": {"domains": 7}}')
    printed = site.play("heartbeat")
    assert "kvm1 did not report and is left out" in printed and "kvm2 did not report and is left out" in printed
    assert [row["host"] for row in site.query(REPORTED)] == ["kvm3"]
    site.hosts["kvm1"].heal()
    site.hosts["kvm2"].says("compute_node_info", "no answer at all")
    site.play("heartbeat")
    assert [row["host"] for row in site.query(REPORTED)] == ["kvm1", "kvm3"]
    site.hosts["kvm2"].heal()
    site.play("heartbeat")
    assert [row["host"] for row in site.query(REPORTED)] == ["kvm1", "kvm2", "kvm3"]


def test_a_killed_heartbeat_has_written_nothing_and_the_next_one_all(site: Site) -> None:
    site.boots(entry("web", count=3))
    row = site.instances()["web-1"]
    site.hosts[row["host"]].powers(row["uuid"], SHUTDOWN)
    (last,) = {"kvm1", "kvm2", "kvm3"} - {row["host"], "kvm1" if row["host"] != "kvm1" else "kvm2"}
    site.hosts[last].is_slow("compute_node_info", 60.0, times=1)
    before = site.query("SELECT host, reported_at FROM compute_nodes ORDER BY host")
    process = site.begin("heartbeat")
    try:
        site.wait_for_module(row["host"], "compute_node_info", process)
        site.wait_for_module(last, "compute_node_info", process)
    finally:
        site.kill(process)
    assert site.query("SELECT host, reported_at FROM compute_nodes ORDER BY host") == before
    site.play("heartbeat")
    assert site.instances()["web-1"]["vm_state"] == "stopped"
    now = site.query("SELECT host, reported_at FROM compute_nodes ORDER BY host")
    assert all(new["reported_at"] > old["reported_at"] for new, old in zip(now, before))


def test_a_check_asks_and_writes_nothing(site: Site) -> None:
    site.play("heartbeat")
    before = site.dump()
    site.play("heartbeat", "--check")
    assert site.dump() == before
