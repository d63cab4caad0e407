# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Plans of resizes and migrations that can be approved: the hosts that they hold, what refuses them, what becomes of them."""

from __future__ import annotations

import json
import time
import typing as t
from pathlib import Path

import pytest
from simulated_site import FLAVORS, Site, entry

BIG: dict[str, t.Any] = {"names": ["web-1"], "resize_flavor": "large"}

VAST = {"name": "vast", "vcpus": 1, "memory_mb": 9000000, "root_gb": 40}


@pytest.fixture
def ready(site: Site) -> Site:
    """web-1 and web-2 on kvm1; all hosts have reported."""
    site.boots(entry("web", count=2), hosts=["kvm1"])
    site.play("heartbeat")
    return site


def plan(site: Site, playbook: str = "resize", name: str = "plan.json", expect: int = 0, **variables: t.Any) -> Path:
    path = site.folder / name
    output = site.play(playbook, "--check", plan_out=str(path), expect=expect, **{**BIG, **variables})
    assert expect or "holds these places until" in output
    return path


def use(site: Site, path: Path, playbook: str = "resize", expect: int = 0, check: bool = False, **more: t.Any) -> str:
    options = ("--check",) if check else ()
    return site.play(playbook, *options, plan=str(path), expect=expect, **{**BIG, **more})


def refused(site: Site, path: Path, code: str, **more: t.Any) -> str:
    """The move with the plan fails with this code, with and without --check, and touches nothing."""

    def kept() -> list[str]:
        tables = ('"instances"', '"claims"', '"migrations"', '"plans"', '"plan_places"')
        return [line for line in site.dump() if any("INTO " + table in line for table in tables)]

    before, asked = kept(), site.asked()
    for check in (True, False):
        output = use(site, path, expect=2, check=check, **more)
        assert code in output and "Remedy:" in output, output
    assert {m for host, those in site.asked().items() for m in those[len(asked[host]) :]} <= {"compute_node_info"}
    assert kept() == before
    return output


def states(site: Site) -> list[str]:
    return [r["state"] for r in site.query("SELECT state FROM plans ORDER BY created_at")]


def kinds(site: Site) -> list[str]:
    return sorted(r["kind"] for r in site.query("SELECT kind FROM claims"))


@pytest.mark.always
def test_a_plan_of_a_resize_is_done_exactly(ready: Site) -> None:
    before, domains = ready.instances(), ready.hosts["kvm1"].domains
    path = plan(ready)
    made = json.loads(path.read_text())
    (planned,) = made["instances"]
    assert (made["kind"], planned["from"], planned["new_flavor"]) == ("resize", "kvm1", "large")
    assert ready.instances() == before and ready.hosts["kvm1"].domains == domains, "nothing is moved"
    assert kinds(ready) == ["build", "build", "plan"]
    assert "web-1" in ready.play("plans") and states(ready) == ["held"]
    use(ready, path, check=True)
    assert states(ready) == ["held"] and ready.instances() == before
    use(ready, path)
    assert ready.places()["web-1"] == ("resized", planned["host"]) and states(ready) == ["used"]
    assert ready.instances()["web-1"]["memory_mb"] == 12288 and kinds(ready) == ["build", "build", "move"]
    after = ready.instances()
    assert "PlanUsed" in use(ready, path, expect=2) and ready.instances() == after
    ready.play("confirm_resize", names=["web-1"])
    assert ready.places()["web-1"] == ("active", planned["host"])
    ready.check_ledger()


def test_a_plan_of_a_migration_is_done_exactly(ready: Site) -> None:
    path = plan(ready, "migrate", names=["web-1", "web-2"])
    planned = {i["name"]: i["host"] for i in json.loads(path.read_text())["instances"]}
    assert sorted(planned) == ["web-1", "web-2"]
    assert "PlanOfAnotherPlaybook" in use(ready, path, "resize", expect=2)
    use(ready, path, "migrate", names=["web-1", "web-2"])
    assert ready.places() == {name: ("resized", host) for name, host in planned.items()}
    ready.check_ledger()


def test_a_plan_an_hour_later_with_one_host_changed(ready: Site) -> None:
    path = plan(ready)
    host = json.loads(path.read_text())["instances"][0]["host"]
    ready.play("host", host=[host], host_state="disabled", host_reason="power")
    output = refused(ready, path, "PlanOutdated")
    assert host in output and "ComputeFilter" in output and "power" in output
    ready.play("host", host=[host], host_state="enabled")
    ready.hosts[host].has_facts(memory_mb=1024)
    assert "host %s: RamFilter" % host in refused(ready, path, "PlanOutdated")
    ready.hosts[host].is_silent()
    assert host in refused(ready, path, "PlanOutdated")
    ready.hosts[host].heal()
    ready.hosts[host].has_facts(memory_mb=32768)
    others = [h for h in ready.hosts if h != host]
    assert "host %s is not among the hosts of this run" % host in refused(ready, path, "PlanOutdated", hosts=others)
    use(ready, path)
    assert ready.places()["web-1"] == ("resized", host)


def test_a_plan_whose_request_or_instance_changed(ready: Site) -> None:
    path = plan(ready)
    altered = json.loads(path.read_text())
    altered["instances"][0]["host"] = "kvm9"
    other = ready.folder / "other.json"
    other.write_text(json.dumps(altered))
    refused(ready, other, "PlanAltered")
    bigger = [f if f["name"] != "large" else {**f, "memory_mb": 14000} for f in FLAVORS]
    assert "flavor.memory_mb was 12288, is 14000" in refused(ready, path, "PlanRequestDiffers", flavors=bigger)
    assert "web-2 is not in the plan" in refused(ready, path, "PlanRequestDiffers", names=["web-1", "web-2"])
    ready.play("stop", names=["web-1"])
    assert "web-1: vm_state was active, is stopped" in refused(ready, path, "PlanOutdated")
    ready.play("start", names=["web-1"])
    use(ready, path)


def test_two_plans_compete_for_the_last_room(ready: Site) -> None:
    ready.hosts["kvm2"].has_facts(memory_mb=15000)
    for name in ("kvm1", "kvm3"):
        ready.hosts[name].has_facts(memory_mb=6000)
    ready.play("heartbeat")
    path = plan(ready)
    output = ready.play(
        "resize", "--check", expect=2, names=["web-2"], resize_flavor="large", plan_out=str(ready.folder / "two.json")
    )
    assert "NoValidHost" in output and not (ready.folder / "two.json").exists()
    assert states(ready) == ["held"] and kinds(ready) == ["build", "build", "plan"]
    assert "NoValidHost" in ready.play("resize", expect=2, names=["web-2"], resize_flavor="large")
    assert "PlanNotPossible" in ready.play(
        "resize", "--check", expect=2, plan_out=str(ready.folder / "three.json"), **BIG
    )
    use(ready, path)
    assert ready.places()["web-1"] == ("resized", "kvm2")


def test_expired_and_discarded_plans_give_their_hosts_back(ready: Site) -> None:
    before = ready.query("SELECT * FROM claims")
    path = plan(ready, plan_ttl=1)
    time.sleep(1.2)
    assert "PlanExpired" in use(ready, path, expect=2)
    assert states(ready) == ["expired"] and ready.query("SELECT * FROM claims") == before
    path = plan(ready, name="second.json")
    plan_id = json.loads(path.read_text())["id"]
    assert "Discarded %s" % plan_id in ready.play("plans", plan_discard=[plan_id])
    assert ready.query("SELECT * FROM claims") == before
    assert "PlanDiscarded" in use(ready, path, expect=2)
    ready.check_ledger()


@pytest.mark.long
def test_a_resize_that_is_killed_after_its_plan_was_used(ready: Site) -> None:
    path = plan(ready)
    for host in ready.hosts.values():
        host.is_slow("instance_disks_fetch", 30, times=1)
    process = ready.begin("resize", plan=str(path), **BIG)
    ready.wait_until(lambda: states(ready) == ["used"], seconds=60)
    ready.kill(process)
    for host in ready.hosts.values():
        host.heal()
    assert "PlanUsed" in use(ready, path, expect=2)
    ready.play("heartbeat")
    assert ready.instances()["web-1"]["task_state"] is None
    assert "plan" not in kinds(ready) and ready.query("SELECT * FROM plan_places") == []
    ready.check_ledger()


def test_where_no_plan_of_moves_is_made(ready: Site) -> None:
    path = ready.folder / "plan.json"
    assert "without --check" in ready.play("resize", plan_out=str(path), expect=2, **BIG)
    output = ready.play(
        "resize",
        "--check",
        plan_out=str(path),
        expect=2,
        flavors=[*FLAVORS, VAST],
        names=["web-1"],
        resize_flavor="vast",
    )
    assert "NoValidHost" in output and states(ready) == [] and not path.exists()
    for playbook in ("revert_resize", "live_migrate"):
        output = ready.play(playbook, "--check", expect=2, plan_out=str(path), names=["web-1"])
        assert "PlanNotTaken" in output, output
    ready.play("resize", **BIG)
    ready.play("resize", "--check", plan_out=str(path), **BIG)
    assert states(ready) == [] and not path.exists(), "it has the flavor already"
