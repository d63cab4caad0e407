# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Plans of apply that can be approved: what they boot, resize and delete, what refuses them, what becomes of them."""

from __future__ import annotations

import json
import time
import typing as t
from pathlib import Path

import pytest
from simulated_site import FLAVORS, Site, entry

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors

#: web-1 gets larger, old is deleted, new-1 and new-2 are booted.
FILE = (entry("web", flavor="large"), entry("new", count=2))
HOW: dict[str, t.Any] = {"prune": True, "apply_allow": ["resize"]}


@pytest.fixture
def ready(site: Site) -> Site:
    """web and old on kvm1."""
    site.boots(entry("web"), entry("old"), hosts=["kvm1"])
    return site


def plan(site: Site, file: t.Sequence[dict[str, t.Any]] = FILE, expect: int = 0, **variables: t.Any) -> Path:
    path = site.folder / "plan.json"
    output = site.play("apply", "--check", instances=list(file), plan_out=str(path), expect=expect, **HOW, **variables)
    assert expect or "holds these places until" in output
    return path


def use(
    site: Site,
    path: Path,
    file: t.Sequence[dict[str, t.Any]] = FILE,
    expect: int = 0,
    check: bool = False,
    **more: t.Any,
) -> str:
    options = ("--check",) if check else ()
    return site.play("apply", *options, instances=list(file), plan=str(path), expect=expect, **HOW, **more)


def refused(site: Site, path: Path, code: str, *arguments: t.Any, **more: t.Any) -> str:
    """Apply with the plan fails with this code, with and without --check, and touches nothing."""

    def kept() -> list[str]:
        tables = ('"instances"', '"claims"', '"migrations"', '"plans"', '"plan_places"')
        return [line for line in site.dump() if any("INTO " + table in line for table in tables)]

    before, asked = kept(), site.asked()
    for check in (True, False):
        output = use(site, path, *arguments, expect=2, check=check, **more)
        assert code in output and "Remedy:" in output, output
    assert {m for host, those in site.asked().items() for m in those[len(asked[host]) :]} <= {"compute_node_info"}
    assert kept() == before
    return output


def states(site: Site) -> list[str]:
    return [r["state"] for r in site.query("SELECT state FROM plans ORDER BY created_at")]


@pytest.mark.always
def test_a_plan_of_apply_is_done_exactly(ready: Site) -> None:
    path = plan(ready)
    made = json.loads(path.read_text())
    planned = {i["name"]: i for i in made["instances"]}
    assert made["kind"] == "apply" and sorted(planned) == ["new-1", "new-2", "web"]
    assert [c["name"] for c in made["request"]["changes"] if c["kind"] == "delete"] == ["old"]
    assert ready.places()["web"] == ready.places()["old"] == ("active", "kvm1")
    assert "held" in ready.play("plans")
    output = use(ready, path, check=True)
    assert "boot on %s" % planned["new-1"]["host"] in output and states(ready) == ["held"]
    use(ready, path)
    assert ready.places() == {name: ("active", i["host"]) for name, i in planned.items()}
    rows = ready.instances()
    assert {n: r["uuid"] for n, r in rows.items()} == {n: i["uuid"] for n, i in planned.items()}
    assert rows["web"]["memory_mb"] == 12288 and states(ready) == ["used"]
    assert ready.query("SELECT * FROM plan_places") == []
    assert "PlanUsed" in use(ready, path, expect=2)
    ready.check_ledger()


def test_a_plan_of_apply_an_hour_later_with_something_changed(ready: Site) -> None:
    path = plan(ready)
    planned = {i["name"]: i["host"] for i in json.loads(path.read_text())["instances"]}
    assert "new: max_count was 2, is 3" in refused(
        ready, path, "PlanRequestDiffers", [entry("web", flavor="large"), entry("new", count=3)]
    )
    for name in ("web", "new-1"):
        host = planned[name]
        ready.play("host", host=[host], host_state="disabled", host_reason="power")
        output = refused(ready, path, "PlanOutdated")
        assert host in output and "ComputeFilter" in output and "power" in output
        ready.play("host", host=[host], host_state="enabled")
    ready.play("stop", names=["old"])
    assert "old: vm_state was active, is stopped" in refused(ready, path, "PlanOutdated")
    ready.play("delete", names=["old"])
    assert "old: delete is not to be done any more" in refused(ready, path, "PlanOutdated")
    ready.boots(entry("old"), hosts=["kvm1"])
    assert "old: delete is not in the plan" in refused(ready, path, "PlanOutdated")
    (row,) = ready.query("SELECT id FROM plans")
    ready.play("plans", plan_discard=[row["id"]])
    assert ready.places() == {"web": ("active", "kvm1"), "old": ("active", "kvm1")}
    assert len(ready.query("SELECT * FROM claims")) == 2 and ready.query("SELECT * FROM plan_places") == []
    ready.check_ledger()


def test_a_plan_of_apply_that_cannot_be_held_whole(ready: Site) -> None:
    """What does not fit beside what is deleted is refused in words, and nothing is held."""
    path, before = ready.folder / "plan.json", ready.query("SELECT * FROM claims")

    def impossible(*entries: dict[str, t.Any], **more: t.Any) -> str:
        output = ready.play("apply", "--check", expect=2, plan_out=str(path), instances=list(entries), **HOW, **more)
        assert "PlanNotPossible" in output and "Remedy:" in output, output
        assert states(ready) == [] and sorted(ready.places()) == ["old", "web"] and not path.exists()
        assert ready.query("SELECT * FROM claims") == before
        return output

    assert "big" in impossible(*FILE, entry("big", flavor="huge"))
    roomy = {"name": "roomy", "vcpus": 1, "memory_mb": 9000000, "root_gb": 20}
    assert "web" in impossible(entry("web", flavor="roomy"), flavors=[*FLAVORS, roomy])
    query = "SELECT a.ip_address AS ip FROM ip_allocations a JOIN ports p ON p.id = a.port_id JOIN instances i ON i.uuid = p.instance_uuid"
    (row,) = ready.query(query + " WHERE i.display_name = 'old'")
    taken = entry("new", networks=[{"network": "lan", "fixed_ip": row["ip"]}])
    assert row["ip"] in impossible(entry("web"), taken)
    assert "Quota" in impossible(entry("web"), entry("new"), quotas={"instances": 2})
    some = entry("new", min_count=1, max_count=2)
    assert "new-2" in impossible(entry("web"), some, quotas={"instances": 3})


def test_an_expired_plan_of_apply_gives_everything_back(ready: Site) -> None:
    before = ready.query("SELECT instance_uuid, kind, memory_mb FROM claims")
    path = plan(ready, plan_ttl=1)
    time.sleep(1.2)
    assert "PlanExpired" in use(ready, path, expect=2)
    assert states(ready) == ["expired"] and sorted(ready.places()) == ["old", "web"]
    assert ready.query("SELECT instance_uuid, kind, memory_mb FROM claims") == before
    assert ready.query("SELECT * FROM plan_places") == []
    ready.check_ledger()


def test_a_resize_of_a_plan_of_apply_that_fails_leaves_nothing_held(ready: Site) -> None:
    """The other steps are done, and the place of what did not move is free again."""
    path = plan(ready)
    (moved,) = (i for i in json.loads(path.read_text())["instances"] if i["name"] == "web")
    for name, host in ready.hosts.items():
        host.items_fail("instance_disks_fetch", errors.DiskFull(host=name, path="/", reason="full"))
    output = use(ready, path, expect=2)
    assert "DiskFull" in output and ready.places()["web"][1] == "kvm1"
    assert ready.places()["new-1"][0] == "active" and "old" not in ready.places() and states(ready) == ["used"]
    assert ready.query("SELECT * FROM plan_places") == []
    kinds = ready.query("SELECT kind FROM claims WHERE instance_uuid = '%s'" % moved["uuid"])
    assert [row["kind"] for row in kinds] == ["build"]


@pytest.mark.long
def test_an_apply_that_is_killed_after_its_plan_was_used_goes_on_without_it(ready: Site) -> None:
    path = plan(ready)
    planned = {i["name"]: i["uuid"] for i in json.loads(path.read_text())["instances"]}
    for host in ready.hosts.values():
        host.is_slow("instance_disks_fetch", 30, times=1)
    process = ready.begin("apply", instances=list(FILE), plan=str(path), **HOW)
    ready.wait_until(lambda: states(ready) == ["used"], seconds=60)
    ready.kill(process)
    for host in ready.hosts.values():
        host.heal()
    assert "PlanUsed" in use(ready, path, expect=2)
    ready.play("heartbeat")
    ready.play("apply", instances=list(FILE), **HOW)
    assert {n: r["uuid"] for n, r in ready.instances().items()} == planned
    assert {r["vm_state"] for r in ready.instances().values()} == {"active"}
    assert ready.query("SELECT * FROM plan_places") == []
    ready.check_ledger()
