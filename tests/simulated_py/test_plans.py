# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Plans that can be approved: what they hold, what refuses them, what becomes of them."""

from __future__ import annotations

import json
import stat
import time
import typing as t
from pathlib import Path

import pytest
from simulated_site import FLAVORS, Site, entry

WEB = entry("web", count=2)


@pytest.fixture
def ready(site: Site) -> Site:
    """A ledger whose hosts have reported."""
    site.play("heartbeat")
    return site


def plan(site: Site, *entries: dict[str, t.Any], name: str = "plan.json", expect: int = 0, **more: t.Any) -> Path:
    path = site.folder / name
    site.boots(*(entries or (WEB,)), options=("--check",), plan_out=str(path), expect=expect, **more)
    return path


def boot(
    site: Site, path: Path, *entries: dict[str, t.Any], expect: int = 0, check: bool = False, **more: t.Any
) -> str:
    options = ("--check",) if check else ()
    return site.boots(*(entries or (WEB,)), options=options, plan=str(path), expect=expect, **more)


def refused(site: Site, path: Path, code: str, *entries: dict[str, t.Any], **more: t.Any) -> str:
    """The boot with the plan fails with this code, with and without --check, and touches nothing."""
    before, asked = site.dump(), site.asked()
    for check in (True, False):
        output = boot(site, path, *entries, expect=2, check=check, **more)
        assert code in output and "Remedy:" in output, output
    assert {m for host, those in site.asked().items() for m in those[len(asked[host]) :]} <= {"compute_node_info"}
    assert [line for line in site.dump() if 'INTO "instances"' in line] == [
        line for line in before if 'INTO "instances"' in line
    ]
    assert site.left_on_hosts() == {}
    return output


def states(site: Site) -> list[str]:
    return [r["state"] for r in site.query("SELECT state FROM plans ORDER BY created_at")]


def ports(site: Site) -> dict[str, tuple[str, str]]:
    query = (
        "SELECT i.display_name AS name, p.mac_address AS mac, a.ip_address AS ip FROM instances i JOIN ports p ON p.instance_uuid = i.uuid"
        " JOIN ip_allocations a ON a.port_id = p.id WHERE i.deleted = ''"
    )
    return {r["name"]: (r["mac"], r["ip"]) for r in site.query(query)}


@pytest.mark.always
def test_a_plan_is_done_exactly(ready: Site) -> None:
    path = plan(ready)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    made = json.loads(path.read_text())
    assert (made["version"], made["kind"]) == (1, "boot")
    assert ready.left_on_hosts() == {}, "nothing is built"
    planned = {i["name"]: i for i in made["instances"]}
    assert sorted(planned) == ["web-1", "web-2"]
    assert ready.places() == {n: ("building", i["host"]) for n, i in planned.items()}
    assert "held" in ready.play("plans") and states(ready) == ["held"]
    would = boot(ready, path, check=True)
    assert "would still do" in would and states(ready) == ["held"] and ready.left_on_hosts() == {}
    boot(ready, path)
    assert ready.places() == {n: ("active", i["host"]) for n, i in planned.items()}
    assert {n: r["uuid"] for n, r in ready.instances().items()} == {n: i["uuid"] for n, i in planned.items()}
    assert ports(ready) == {
        n: (i["ports"][0]["mac_address"], i["ports"][0]["addresses"][0]) for n, i in planned.items()
    }
    for name, instance in planned.items():
        assert instance["uuid"] in ready.hosts[instance["host"]].domains, name
    assert states(ready) == ["used"]
    output = refused_after(ready, path)
    assert "without bootflow_plan" in output


def refused_after(site: Site, path: Path) -> str:
    before = site.instances()
    output = boot(site, path, expect=2)
    assert "PlanUsed" in output and site.instances() == before
    return output


def test_a_plan_holds_its_places_against_other_boots(ready: Site) -> None:
    """Each host has room for one large guest: a competing boot gets none of the places, whatever it requests."""
    for host in ready.hosts.values():
        host.has_facts(memory_mb=15000)
    ready.play("heartbeat")
    large = entry("db", flavor="large", count=3)
    path = plan(ready, large)
    ready.boots(entry("other", flavor="large"), expect=2)
    assert ready.places()["other"] == ("error", None)
    output = ready.boots(large, expect=2)
    assert "InstanceBusy" in output and "held by the plan" in output
    planned = json.loads(path.read_text())
    held_addresses = {a for i in planned["instances"] for p in i["ports"] for a in p["addresses"]}
    ready.boots(entry("small"))
    assert ports(ready)["small"][1] not in held_addresses
    boot(ready, path, large)
    assert {n: ready.places()[n][0] for n in ("db-1", "db-2", "db-3")} == dict.fromkeys(
        ("db-1", "db-2", "db-3"), "active"
    )


def test_a_plan_is_refused_when_something_is_not_as_planned(ready: Site) -> None:
    path = plan(ready)
    planned = json.loads(path.read_text())
    other = ready.folder / "other.json"

    def written(content: t.Any) -> Path:
        other.write_text(content if isinstance(content, str) else json.dumps(content))
        return other

    refused(ready, ready.folder / "missing.json", "PlanUnreadable")
    refused(ready, written("{"), "PlanUnreadable")
    refused(ready, written({"a": 1}), "PlanUnreadable")
    planned["instances"][0]["host"] = "kvm9"
    refused(ready, written(planned), "PlanAltered")
    output = refused(ready, path, "PlanRequestDiffers", entry("web", count=2, flavor="large"))
    assert "web: flavor was small, is large" in output
    output = refused(ready, path, "PlanRequestDiffers", WEB, entry("more"))
    assert "more is not in the plan" in output
    output = refused(ready, path, "PlanRequestDiffers", entry("web", count=3))
    assert "max_count was 2, is 3" in output
    output = refused(ready, path, "PlanRequestDiffers", flavors=[{**FLAVORS[0], "memory_mb": 4096}])
    assert "flavor.memory_mb" in output
    assert states(ready) == ["held"]
    boot(ready, path)


def test_a_host_that_changed_is_named_with_the_cause(ready: Site) -> None:
    path = plan(ready, entry("web"))
    (instance,) = json.loads(path.read_text())["instances"]
    host = instance["host"]
    ready.play("host", host=[host], host_state="disabled", host_reason="power")
    output = refused(ready, path, "PlanOutdated", entry("web"))
    assert host in output and "ComputeFilter" in output and "power" in output
    ready.play("host", host=[host], host_state="enabled")
    ready.hosts[host].has_facts(memory_mb=1024)
    output = refused(ready, path, "PlanOutdated", entry("web"))
    assert "host %s: RamFilter" % host in output
    ready.hosts[host].is_silent()
    output = refused(ready, path, "PlanOutdated", entry("web"))
    assert host in output
    ready.hosts[host].heal()
    ready.hosts[host].has_facts(memory_mb=32768)
    others = [h for h in ready.hosts if h != host]
    output = refused(ready, path, "PlanOutdated", entry("web"), hosts=others)
    assert "host %s is not among the hosts of this run" % host in output
    boot(ready, path, entry("web"))
    assert ready.places() == {"web": ("active", host)}


def test_an_expired_plan_gives_its_places_back(ready: Site) -> None:
    path = plan(ready, plan_ttl=1)
    time.sleep(1.2)
    output = boot(ready, path, expect=2)
    assert "PlanExpired" in output
    assert states(ready) == ["expired"] and ready.places() == {}
    assert ready.query("SELECT * FROM claims") == [] and ports(ready) == {}
    ready.boots(WEB)
    assert {state for state, _host in ready.places().values()} == {"active"}


def test_a_discarded_plan_gives_its_places_back(ready: Site) -> None:
    path = plan(ready)
    plan_id = json.loads(path.read_text())["id"]
    before = ready.dump()
    assert "Would discard" in ready.play("plans", "--check", plan_discard=[plan_id]) and ready.dump() == before
    assert "Discarded %s" % plan_id in ready.play("plans", plan_discard=[plan_id])
    assert states(ready) == ["discarded"] and ready.places() == {} and ready.query("SELECT * FROM claims") == []
    assert "changed=0" in ready.play("plans", plan_discard=[plan_id])
    assert "PlanNotFound" in ready.play("plans", plan_discard=["no-such"], expect=2)
    assert "PlanDiscarded" in boot(ready, path, expect=2)


def test_a_plan_of_another_ledger(ready: Site) -> None:
    path = plan(ready)
    other = "sqlite:///%s" % (ready.folder / "other.db")
    ready.play("heartbeat", ledger_url=other)
    assert "PlanOfAnotherLedger" in boot(ready, path, expect=2, ledger_url=other)
    assert states(ready) == ["held"]


@pytest.mark.long
def test_a_boot_that_is_killed_after_its_plan_was_used_goes_on_without_it(ready: Site) -> None:
    path = plan(ready)
    planned = {i["name"]: (i["uuid"], i["host"]) for i in json.loads(path.read_text())["instances"]}
    for host in ready.hosts.values():
        host.is_slow("instance_build", 30, times=1)
    process = ready.begin("boot", instances=[WEB], plan=str(path))
    ready.wait_until(lambda: states(ready) == ["used"], seconds=60)
    ready.kill(process)
    for host in ready.hosts.values():
        host.heal()
    assert "PlanUsed" in boot(ready, path, expect=2)
    ready.boots(WEB)
    rows = ready.instances()
    assert {n: (r["uuid"], r["host"]) for n, r in rows.items()} == planned
    assert {r["vm_state"] for r in rows.values()} == {"active"}


def test_a_build_that_fails_goes_to_no_other_host(ready: Site) -> None:
    from ansible_collections.bootflow.compute.plugins.module_utils.core import errors

    path = plan(ready, entry("web"))
    (instance,) = json.loads(path.read_text())["instances"]
    ready.hosts[instance["host"]].items_fail("domain", errors.LibvirtError(reason="no KVM today"))
    output = boot(ready, path, entry("web"), expect=2)
    assert "no KVM today" in output
    assert ready.places() == {"web": ("error", None)}


def test_where_no_plan_is_made(ready: Site) -> None:
    path = ready.folder / "plan.json"
    assert "without --check" in ready.boots(WEB, plan_out=str(path), expect=2)
    assert "both set" in ready.boots(WEB, plan_out=str(path), plan=str(path), options=("--check",), expect=2)
    path.touch()
    assert "PlanNotWritable" in ready.boots(WEB, plan_out=str(path), options=("--check",), expect=2)
    path.unlink()
    output = plan_fails(ready, path, entry("big", flavor="huge"))
    assert "RamFilter" in output
    for playbook in ("delete", "stop"):
        output = ready.play(playbook, "--check", expect=2, plan_out=str(path), instances=[WEB])
        assert "PlanNotTaken" in output, output
    assert ready.places() == {} and states(ready) == [] and not path.exists()
    ready.boots(WEB)
    assert "Nothing to do" in ready.boots(WEB, options=("--check",), plan_out=str(path)) and not path.exists()
    output = plan_fails(ready, path, entry("web", count=2, description="new"))
    assert "PlanNotPossible" in output and "would change web-1 in place" in output


def plan_fails(site: Site, path: Path, *entries: dict[str, t.Any]) -> str:
    return site.boots(*entries, options=("--check",), plan_out=str(path), expect=2)
