# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Plans of drains that can be approved: the hosts that they hold, what refuses them, what becomes of them."""

from __future__ import annotations

import json
import typing as t
from pathlib import Path

import pytest
from simulated_site import Site, entry

DRAIN: dict[str, t.Any] = {"drain_host": "kvm1", "drain_live": False}
STEPS = {"compute_node_info"}


@pytest.fixture
def ready(site: Site) -> Site:
    """web-1 and web-2 on kvm1."""
    site.boots(entry("web", count=2), hosts=["kvm1"])
    return site


def plan(site: Site, expect: int = 0, name: str = "plan.json", **variables: t.Any) -> Path:
    path = site.folder / name
    output = site.play("drain", "--check", plan_out=str(path), expect=expect, **{**DRAIN, **variables})
    assert expect or "holds these places until" in output
    return path


def use(site: Site, path: Path, expect: int = 0, check: bool = False, **more: t.Any) -> str:
    options = ("--check",) if check else ()
    return site.play("drain", *options, plan=str(path), expect=expect, **{**DRAIN, **more})


def refused(site: Site, path: Path, code: str, **more: t.Any) -> str:
    """The drain with the plan fails with this code, with and without --check, and touches nothing."""

    def kept() -> list[str]:
        tables = ('"instances"', '"claims"', '"migrations"', '"plans"', '"plan_places"', '"services"')
        return [line for line in site.dump() if any("INTO " + table in line for table in tables)]

    before, asked = kept(), site.asked()
    for check in (True, False):
        output = use(site, path, expect=2, check=check, **more)
        assert code in output and "Remedy:" in output, output
    assert {m for host, those in site.asked().items() for m in those[len(asked[host]) :]} <= STEPS
    assert kept() == before
    return output


def states(site: Site) -> list[str]:
    return [r["state"] for r in site.query("SELECT state FROM plans ORDER BY created_at")]


def kinds(site: Site) -> list[str]:
    return sorted(r["kind"] for r in site.query("SELECT kind FROM claims"))


def places(path: Path) -> dict[str, str]:
    return {i["name"]: i["host"] for i in json.loads(path.read_text())["instances"]}


@pytest.mark.always
@pytest.mark.parametrize("live", [False, True])
def test_a_plan_of_a_drain_is_done_exactly(ready: Site, live: bool) -> None:
    before = ready.instances()
    path = plan(ready, drain_live=live)
    made = json.loads(path.read_text())
    planned = places(path)
    assert made["kind"] == "drain" and sorted(planned) == ["web-1", "web-2"]
    assert {i["how"] for i in made["instances"]} == {"live_migrate" if live else "migrate"}
    assert ready.instances() == before and kinds(ready) == ["build", "build", "plan", "plan"]
    assert "web-1, web-2" in ready.play("plans")
    output = use(ready, path, check=True, drain_live=live)
    assert "to %s" % planned["web-1"] in output and states(ready) == ["held"] and ready.instances() == before
    output = use(ready, path, drain_live=live)
    assert "kvm1 is empty" in output
    assert ready.places() == {name: ("active", host) for name, host in planned.items()}
    assert states(ready) == ["used"] and ready.query("SELECT * FROM plan_places") == []
    assert kinds(ready) == ["build", "build"]
    assert "PlanUsed" in use(ready, path, expect=2, drain_live=live)
    ready.check_ledger()


def test_a_plan_of_a_drain_an_hour_later_with_one_host_changed(ready: Site) -> None:
    path = plan(ready)
    host = places(path)["web-1"]
    ready.play("host", host=[host], host_state="disabled", host_reason="power")
    output = refused(ready, path, "PlanOutdated")
    assert host in output and "ComputeFilter" in output and "power" in output
    ready.play("host", host=[host], host_state="enabled")
    ready.hosts[host].has_facts(memory_mb=1024)
    assert "host %s: RamFilter" % host in refused(ready, path, "PlanOutdated")
    ready.hosts[host].has_facts(memory_mb=32768)
    assert "live was False, is True" in refused(ready, path, "PlanRequestDiffers", drain_live=True)
    assert "host was kvm1, is kvm2" in refused(ready, path, "PlanRequestDiffers", drain_host="kvm2")
    ready.boots(entry("new"), hosts=["kvm1"])
    assert "instance new is on the host, too" in refused(ready, path, "PlanOutdated")
    ready.play("delete", names=["new"])
    ready.play("stop", names=["web-2"])
    assert "web-2: vm_state was active, is stopped" in refused(ready, path, "PlanOutdated")
    ready.play("start", names=["web-2"])
    planned = places(path)
    use(ready, path)
    assert ready.places() == {name: ("active", host) for name, host in planned.items()}


def test_plans_of_drains_compete_for_the_last_room(ready: Site) -> None:
    """A plan of a drain gets nothing of what another plan holds."""
    ready.hosts["kvm2"].has_facts(memory_mb=15000)
    ready.hosts["kvm3"].has_facts(memory_mb=1000)
    ready.play("heartbeat")
    ready.play("resize", "--check", names=["web-1"], resize_flavor="large", plan_out=str(ready.folder / "resize.json"))
    output = ready.play("drain", "--check", expect=2, plan_out=str(ready.folder / "drain.json"), **DRAIN)
    assert "PlanNotPossible" in output and "holds a host for web-1" in output
    (row,) = ready.query("SELECT id FROM plans")
    ready.play("plans", plan_discard=[row["id"]])
    path = plan(ready)
    output = ready.play("resize", expect=2, names=["web-1"], resize_flavor="large")
    assert "NoValidHost" in output
    use(ready, path)
    assert ready.places() == {"web-1": ("active", "kvm2"), "web-2": ("active", "kvm2")}


def test_a_drain_that_leaves_something_makes_no_plan(ready: Site) -> None:
    for name in ("kvm2", "kvm3"):
        ready.hosts[name].has_facts(memory_mb=1000)
    ready.play("heartbeat")
    output = ready.play("drain", "--check", expect=2, plan_out=str(ready.folder / "plan.json"), **DRAIN)
    assert "PlanNotPossible" in output and "No valid host" in output
    ready.play("pause", names=["web-1"])
    output = ready.play("drain", "--check", expect=2, plan_out=str(ready.folder / "plan.json"), **DRAIN)
    assert "PlanNotPossible" in output and "web-1 stays" in output
    assert states(ready) == [] and not (ready.folder / "plan.json").exists()
    assert kinds(ready) == ["build", "build"]


@pytest.mark.long
def test_a_drain_that_is_killed_after_its_plan_was_used_gives_its_places_back(ready: Site) -> None:
    path = plan(ready)
    ready.hosts["kvm1"].is_slow("domain_power", 30)
    process = ready.begin("drain", plan=str(path), **DRAIN)
    ready.wait_until(lambda: states(ready) == ["used"] or process.poll() is not None, seconds=60)
    ready.kill(process)
    for host in ready.hosts.values():
        host.heal()
    assert "PlanUsed" in use(ready, path, expect=2)
    ready.play("heartbeat")
    assert ready.query("SELECT * FROM plan_places") == [] and "plan" not in kinds(ready)
    assert "kvm1 is empty" in ready.play("drain", **DRAIN)
    ready.check_ledger()
