# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A fleet that follows its file, on real hosts: booted, changed, pruned, and left alone when there is nothing to do."""

from __future__ import annotations

import pytest
from flow import FLAVORS, Flow, entry
from test_operations import MARKING, READY, guest, wait_ready


def applied(flow: Flow, *entries: dict, options: tuple[str, ...] = (), expect: int = 0, **variables) -> str:
    done = flow.run("apply", *options, bootflow_instances=list(entries), **READY, **variables)
    assert done.returncode == expect, done.output
    return done.output


def plan(output: str) -> list[str]:
    """The lines of the plan, with its totals."""
    lines = output.splitlines()
    lines = lines[next(i for i, line in enumerate(lines) if line in ("Plan:", "Plan (nothing is touched):")) + 1 :]
    return lines[: next(i for i, line in enumerate(lines) if line.endswith(("it.", "them."))) + 1]


def test_a_fleet_follows_its_file(flow: Flow) -> None:
    applied(flow, entry("web", count=2), entry("db"), entry("old"))
    before = flow.instances()
    assert {(r["vm_state"], guest(flow, n)) for n, r in before.items()} == {("active", "running")}

    file = [entry("web", count=3, metadata={"role": "web"}), entry("db", state="stopped")]
    pruned = {"bootflow_prune": True, "bootflow_prune_max": 1}
    refused = applied(flow, *file, expect=2, bootflow_prune=True, bootflow_prune_max=0)
    assert "PruneRefused" in refused and flow.instances() == before
    planned = plan(applied(flow, *file, options=("--check", "--diff"), **pruned))
    boot = planned.pop(-2)
    assert planned[:-1] == [
        "~ db state running -> stopped: stop",
        "- old: delete",
        "~ web-1 metadata.role none -> web: the guest's config drive keeps the old one",
        "~ web-2 metadata.role none -> web: the guest's config drive keeps the old one",
    ]
    assert boot in ["+ web-3 boot on %s" % host.name for host in flow.lab.hosts]
    assert planned[-1] == "1 to boot, 3 to change, 1 to delete; 0 as the file has them."
    assert flow.instances() == before and guest(flow, "db") == "running"

    done = applied(flow, *file, bootflow_shutdown_timeout=15, **pruned)
    assert "Applied: 5 of 5 changes." in done
    rows = flow.instances()
    assert {n: (r["vm_state"], guest(flow, n)) for n, r in rows.items()} == {
        "db": ("stopped", "shut off"),
        **dict.fromkeys(("web-1", "web-2", "web-3"), ("active", "running")),
    }
    assert all(rows[n]["uuid"] == before[n]["uuid"] for n in ("db", "web-1", "web-2"))
    again = applied(flow, *file, **pruned)
    assert plan(again) == ["nothing to do; 4 as the file has them."] and "changed=0" in again
    flow.check_ledger()
    applied(flow, bootflow_prune=True)
    assert flow.residue() == {}


@pytest.mark.long
def test_images_and_user_data_by_a_rebuild_where_it_is_allowed(flow: Flow) -> None:
    (image,) = flow.variables["bootflow_images"]
    flow.variables["bootflow_images"] = [image, {**image, "name": "newer"}]
    applied(flow, entry("web"), entry("db"))
    before = flow.instances()
    new = {"image": "newer", "user_data": MARKING}
    left = applied(flow, entry("web", **new), entry("db"))
    assert "! web image guest -> newer: needs rebuild in bootflow_apply_allow" in left and flow.instances() == before

    file = [entry("web", allow=["rebuild"], **new), entry("db", description="new")]
    done = applied(flow, *file)
    assert "Applied: 3 of 3 changes." in done
    wait_ready(flow, "web", "disk says []")
    rows = flow.instances()
    assert rows["web"]["uuid"] == before["web"]["uuid"] and guest(flow, "web") == guest(flow, "db") == "running"
    assert plan(applied(flow, *file)) == ["nothing to do; 2 as the file has them."]
    applied(flow, bootflow_prune=True)
    assert flow.residue() == {}


@pytest.mark.long
def test_flavors_by_a_resize_where_it_is_allowed(flow: Flow) -> None:
    """To two flavors in one run; a third instance may not, a fourth cannot be."""
    sizes = {"more": (224, 1), "most": (256, 2), "large": (192, 3)}
    flavors = [{**FLAVORS[0], "name": n, "memory_mb": m, "root_gb": g} for n, (m, g) in sizes.items()]
    flow.variables["bootflow_flavors"] = [*FLAVORS, *flavors]
    applied(flow, entry("web"), entry("app"), entry("db"), entry("big", flavor="large"))
    before = flow.instances()
    allow = {"allow": ["resize"]}
    file = [
        entry("web", flavor="more", **allow),
        entry("app", flavor="most", **allow),
        entry("db", flavor="more"),
        entry("big", **allow),
    ]
    why = "Server disk was unable to be resized because: the flavor has a root disk of 1 GiB, the instance 3 GiB"
    planned = applied(flow, *file, options=("--check", "--diff"))
    assert plan(planned) == [
        "~ app flavor tiny -> most: resize, restarts the guest",
        "! big flavor large -> tiny: cannot be resized, %s" % why,
        "! db flavor tiny -> more: needs resize in bootflow_apply_allow (resize, restarts the guest)",
        "~ web flavor tiny -> more: resize, restarts the guest",
        "2 to change, 1 not allowed, 1 cannot be changed; 0 as the file has them.",
    ]
    assert flow.instances() == before
    done = applied(flow, *file, bootflow_shutdown_timeout=15)
    assert "Applied: 2 of 2 changes." in done
    rows = flow.instances()
    for name, memory in (("web", 224), ("app", 256)):
        assert (rows[name]["vm_state"], rows[name]["memory_mb"], guest(flow, name)) == ("active", memory, "running")
        assert rows[name]["uuid"] == before[name]["uuid"] and rows[name]["host"] != before[name]["host"]
    row = rows["app"]
    info = flow.lab.host(row["host"]).run("qemu-img", "info", "-U", "/var/lib/bootflow/instances/%s/disk" % row["uuid"])
    assert "virtual size: 2 GiB" in info.stdout, "each disk has the size of its own flavor"
    assert (rows["db"]["memory_mb"], rows["db"]["host"]) == (192, before["db"]["host"])
    again = applied(flow, *file)
    assert plan(again)[-1] == "nothing to do, 1 not allowed, 1 cannot be changed; 2 as the file has them."
    assert "changed=0" in again
    flow.check_ledger()
    applied(flow, bootflow_prune=True)
    assert flow.residue() == {}


#: Lines of these runs before the callback concise: an apply of two resizes, a list of three instances.
BEFORE = {"apply": 125, "list": 15}
#: The most that these runs on three instances say: a line for each step on hosts (two of a boot, one of a stop, with its name) and for each
#: instance, the head of the table, and at a boot one for the ledger that it makes and one for each host to which it copies the image.
READS = {"boot": 2 + 3 + 2 + 4, "stop": 2 + 3 + 2}


def says(output: str) -> int:
    """Its lines that are not empty."""
    return len([line for line in output.splitlines() if line])


@pytest.mark.usefixtures("still_guests")
def test_runs_say_what_a_person_reads(flow: Flow, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the callback concise, a boot, an apply of two resizes, a list, a stop and a delete: each line has something to say."""
    flow.variables["bootflow_flavors"] = [*FLAVORS, {**FLAVORS[0], "name": "more", "memory_mb": 224}]
    monkeypatch.setenv("ANSIBLE_STDOUT_CALLBACK", "bootflow.compute.concise")
    booted = flow.boot(entry("web"), entry("app"), entry("db")).output
    assert says(booted) <= READS["boot"] and all("\n%s " % name in booted for name in ("web", "app", "db")), booted
    larger = {"flavor": "more", "allow": ["resize"]}
    done = flow.run(
        "apply",
        bootflow_instances=[entry("web", **larger), entry("app", **larger), entry("db")],
        bootflow_shutdown_timeout=1,
    )
    assert done.returncode == 0 and "Applied: 2 of 2 changes." in done.output, done.output
    assert len(done.output.splitlines()) <= BEFORE["apply"] // 3, done.output
    assert "revert_resize" not in done.output, "apply confirms what it resized"
    listed = flow.run("list").output
    assert all(any(line.startswith(name) for line in listed.splitlines()) for name in ("web", "app", "db")), listed
    assert says(listed) <= BEFORE["list"] // 3, listed
    stopped = flow.run("stop", bootflow_names=["web", "app", "db"], bootflow_shutdown_timeout=1)
    assert stopped.returncode == 0 and says(stopped.output) <= READS["stop"], stopped.output
    assert all("\n%s " % name in stopped.output for name in ("web", "app", "db")), stopped.output
    for words in ("PLAY [", "PLAY RECAP", "TASK [", "ok: [", "changed: [", "skipping: "):
        assert words not in booted + done.output + listed + stopped.output
    deleted = flow.run("delete", bootflow_names=["web", "app", "db"])
    assert deleted.returncode == 0 and len(deleted.output.splitlines()) <= 3, deleted.output
    assert flow.residue() == {}


@pytest.mark.long
def test_a_host_that_is_away_keeps_nobody_else_and_a_guest_that_went_off_comes_back(flow: Flow) -> None:
    file = [entry("web", count=3, state="running")]
    applied(flow, *file)
    rows = flow.instances()
    away = rows["web-1"]["host"]
    other = next(n for n, r in rows.items() if r["host"] != away)
    flow.lab.host(rows[other]["host"]).run("virsh", "-c", "qemu:///system", "destroy", rows[other]["uuid"])
    back = applied(flow, *file)
    assert "~ %s state stopped -> running: start" % other in back and guest(flow, other) == "running"

    stopped = [entry("web", count=3, state="stopped", description="off")]
    flow.lab.host(away).fail("network")
    failed = applied(flow, *stopped, expect=2)
    assert "ApplyIncomplete" in failed and "HostUnreachable" in failed
    for row in flow.instances().values():
        assert row["vm_state"] == ("active" if row["host"] == away else "stopped")
    flow.lab.host(away).restore()
    applied(flow, *stopped)
    assert {r["vm_state"] for r in flow.instances().values()} == {"stopped"}
    applied(flow, bootflow_prune=True)
    assert flow.residue() == {}


def lose(flow: Flow, name: str, disks: bool = False) -> None:
    """Its host loses its domain, and its disks."""
    row = flow.instances()[name]
    host = flow.lab.host(row["host"])
    for command in ("destroy", "undefine"):
        host.run("virsh", "-c", "qemu:///system", command, row["uuid"], check=False)
    if disks:
        host.run("rm", "-rf", "/var/lib/bootflow/instances/%s" % row["uuid"])


@pytest.mark.long
@pytest.mark.usefixtures("still_guests")
def test_domains_that_are_lost_are_defined_anew_where_a_restart_is_allowed(flow: Flow) -> None:
    file = [entry("web", state="running"), entry("db", state="paused"), entry("cache")]
    still = {"bootflow_shutdown_timeout": 1}

    def apply(*entries: dict, expect: int = 0, **variables) -> str:
        done = flow.run("apply", bootflow_instances=list(entries), **still, **variables)
        assert done.returncode == expect, done.output
        return done.output

    apply(*file)
    uuids = {n: r["uuid"] for n, r in flow.instances().items()}
    for name in uuids:
        lose(flow, name)
    flow.run("heartbeat")
    told = plan(apply(*file))
    why = "needs restart in bootflow_apply_allow (hard reboot, restarts the guest)"
    gone = "(its domain is gone from its host)"
    assert told == [
        "! cache state running %s -> running: %s" % (gone, why),
        "! db state paused %s -> paused: %s" % (gone, why),
        "! web state running %s -> running: %s" % (gone, why),
        "nothing to do, 3 not allowed; 0 as the file has them.",
    ]
    done = apply(*file, bootflow_apply_allow=["restart"])
    assert "Applied: 3 of 3 changes." in done
    assert {n: guest(flow, n) for n in uuids} == {"web": "running", "db": "paused", "cache": "running"}
    assert {n: r["uuid"] for n, r in flow.instances().items()} == uuids
    assert plan(apply(*file)) == ["nothing to do; 3 as the file has them."]

    # Its disks too: what leads out is said, and it does.
    lose(flow, "web", disks=True)
    failed = apply(*file, expect=2, bootflow_apply_allow=["restart"])
    assert "neither a domain nor the disks" in failed and "rebuild the instance, or delete it" in failed
    rebuilt = flow.run("rebuild", bootflow_names=["web"], **still)
    assert rebuilt.returncode == 0, rebuilt.output
    assert plan(apply(*file)) == ["nothing to do; 3 as the file has them."]

    # A rebuild defines it anew by itself, and then there is a guest to give interfaces to.
    lose(flow, "web", disks=True)
    networks = [{"network": "guests"}, {"network": "guests"}]
    file[0] = entry("web", state="running", image="linux", networks=networks, allow=["rebuild"])
    assert "Applied: 2 of 2 changes." in apply(*file)
    assert guest(flow, "web") == "running"
    assert plan(apply(*file)) == ["nothing to do; 3 as the file has them."]
    flow.check_ledger()
    apply(bootflow_prune=True)
    assert flow.residue() == {}


@pytest.mark.long
@pytest.mark.usefixtures("still_guests")
def test_what_dead_runs_left_takes_one_run(flow: Flow) -> None:
    flow.variables["bootflow_flavors"] = [*FLAVORS, {**FLAVORS[0], "name": "more", "memory_mb": 224}]
    flow.variables.update(bootflow_shutdown_timeout=1)

    def apply(*entries: dict, expect: int = 0, **variables) -> str:
        done = flow.run("apply", bootflow_instances=list(entries), **variables)
        assert done.returncode == expect, done.output
        return done.output

    apply(entry("web"), entry("db"), entry("old", count=2))
    resized = flow.run("resize", bootflow_names=["web", "db"], bootflow_resize_flavor="more")
    assert resized.returncode == 0, resized.output
    networks = [{"network": "guests"}, {"network": "guests"}]
    more = {"flavor": "more", "allow": ["resize"]}
    file = [entry("web", state="paused", networks=networks, **more), entry("db", state="stopped", **more)]
    apply(*file, entry("old", count=2))
    assert {n: guest(flow, n) for n in ("web", "db")} == {"web": "paused", "db": "shut off"}
    assert plan(apply(*file, entry("old", count=2))) == ["nothing to do; 4 as the file has them."]

    # A prune whose host is dead keeps no other from what the file says now.
    away = flow.instances()["old-1"]["host"]
    flow.lab.host(away).fail("network")
    apply(*file, expect=2, bootflow_prune=True)
    left = {n: r for n, r in flow.instances().items() if n.startswith("old")}
    assert {(r["task_state"], r["host"]) for r in left.values()} == {("deleting", away)}
    file += [entry("old", count=2), entry("new")]
    told = apply(*file, expect=2, bootflow_prune=True)
    assert "! old-1 is not booted: it is being deleted" in told and flow.instances()["new"]["vm_state"] == "active"
    flow.lab.host(away).restore()
    deleted = flow.run("delete", bootflow_names=sorted(left))
    assert deleted.returncode == 0, deleted.output
    apply(*file)
    assert flow.instances()["old-1"]["uuid"] != left["old-1"]["uuid"]
    assert plan(apply(*file)) == ["nothing to do; 5 as the file has them."]
    flow.check_ledger()
    apply(bootflow_prune=True)
    assert flow.residue() == {}
