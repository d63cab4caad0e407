# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A fleet follows its file: boots, operations and deletions by the playbooks that apply imports."""

from __future__ import annotations

from simulated_site import Site, entry


def test_a_file_is_applied_step_by_step(site: Site) -> None:
    file = [entry("web", state="running"), entry("db", state="stopped")]
    printed = site.play("apply", "--check", instances=file)
    assert "+ db boot on kvm" in printed and site.places() == {}
    printed = site.play("apply", instances=file)
    assert "Applied: " in printed and {n: s for n, (s, _host) in site.places().items()} == {
        "web": "active",
        "db": "stopped",
    }
    asked = site.asked()
    assert "nothing to do; 2 as the file has them." in site.play("apply", instances=file)
    modules = {name: found[len(asked[name]) :] for name, found in site.asked().items()}
    assert {module for found in modules.values() for module in found} <= {"compute_node_info", "*probe*"}, modules
    file = [entry("web", state="paused")]
    site.play("apply", instances=file, prune=True)
    assert {n: s for n, (s, _host) in site.places().items()} == {"web": "paused"}


def test_a_host_that_falls_silent_stops_no_other_step(site: Site) -> None:
    site.play("apply", instances=[entry("web", state="running")])
    host = site.hosts[str(site.places()["web"][1])]
    host.is_silent("domain_power")
    file = [entry("web", state="stopped"), entry("db", state="stopped")]
    printed = site.play("apply", expect=2, instances=file)
    assert "ApplyIncomplete" in printed and "web" in printed.split("ApplyIncomplete", 1)[1]
    host.heal()
    site.play("apply", instances=file)
    assert {n: s for n, (s, _host) in site.places().items()} == {"web": "stopped", "db": "stopped"}
