# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Guests that move to other hosts while they run, and count meanwhile; that stay where they are; and whose runs die on the way."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import time
import typing as t
from pathlib import Path

import pytest
from flow import FLAVORS, Flow, entry
from host_python import ModuleRunner
from test_moves import COUNTING, address_of, running, traces
from test_operations import operate, states_of, virsh, wait_ready

READY = {"bootflow_wait_console": "BOOTFLOW-GUEST-READY"}
# It counts its boots on its disk, and then seconds in its memory.
TICKING = COUNTING + "(i=0; while :; do i=$((i+1)); echo tick $i >/dev/console; sleep 1; done) &\n"
# It takes long enough for others to look at it, or to break something.
SLOW, SLOWER = ({"bootflow_live_migration_bandwidth": n} for n in (40, 8))
KEPT = "/var/lib/bootflow/console-%s"


def where(flow: Flow, name: str) -> str:
    return str(flow.instances()[name]["host"])


def keep_console(flow: Flow, name: str) -> None:
    """Its console on its present host stays when the host is cleaned."""
    row = flow.instances()[name]
    log = "/var/lib/bootflow/instances/%s/console.log" % row["uuid"]
    flow.lab.host(row["host"]).run("ln", "-f", log, KEPT % row["uuid"])


def said(flow: Flow, name: str, source: str) -> str:
    """What it printed there before, and here since."""
    row = flow.instances()[name]
    before = flow.lab.host(source).run("cat", KEPT % row["uuid"]).stdout
    return before + flow.console(row["host"], row["uuid"])


def ticks(text: str) -> list[int]:
    """Without those of its boot. The kernel may write into a line, but not into a number that has ended."""
    return [n for n in map(int, re.findall(r"tick (\d+)(?=[\r\n\[])", text)) if n > 4]


def wait_ticks(flow: Flow, name: str, more: int = 3) -> None:
    """It counts on where it is."""
    row = flow.instances()[name]
    begun = len(ticks(flow.console(row["host"], row["uuid"])))
    end = time.monotonic() + 60
    while len(ticks(flow.console(row["host"], row["uuid"]))) < begun + more:
        assert time.monotonic() < end, flow.console(row["host"], row["uuid"])
        time.sleep(0.5)


def statuses(flow: Flow) -> list[str]:
    return [r["status"] for r in flow.query("SELECT status FROM migrations ORDER BY id")]


def ended(flow: Flow) -> None:
    """No process and no socket of a migration is left."""
    for host in flow.lab.hosts:
        assert "domain_migration" not in host.run("sh", "-c", "ps axww -o args= || true").stdout
        assert not host.run("sh", "-c", "ls -d /run/libvirt/bf-* 2>/dev/null || true").stdout


def wait_migrating(flow: Flow, name: str, process: t.Any) -> None:
    """libvirt sends it."""
    row = flow.instances()[name]
    flow.wait_for("SELECT 1 FROM migrations WHERE status = 'running'", 120, process)
    end = time.monotonic() + 60
    while (
        "Outgoing migration"
        not in flow.lab.host(row["host"]).run("virsh", "domjobinfo", row["uuid"], check=False).stdout
    ):
        assert time.monotonic() < end and process.poll() is None, (flow.folder / "killed.log").read_text()
        time.sleep(0.3)


def wait_ended(flow: Flow, seconds: float = 180) -> None:
    """No process and no socket of a migration, of a run that was killed: what it started ends by itself."""
    end = time.monotonic() + seconds
    while True:
        try:
            return ended(flow)
        except AssertionError:
            if time.monotonic() > end:
                raise
            time.sleep(1)


def is_at_home(flow: Flow, name: str, source: str) -> None:
    """It runs on where it was; the claim elsewhere is given back, and nothing of it is there."""
    row = flow.instances()[name]
    assert (row["vm_state"], row["task_state"], row["host"]) == ("active", None, source)
    assert traces(flow, name) == {source: (True, "running")}
    assert len(flow.query("SELECT 1 FROM claims")) == len(flow.instances()) and not flow.query("SELECT 1 FROM cleanups")
    wait_ticks(flow, name)
    flow.check_ledger()


def test_guests_go_over_while_they_count(flow: Flow) -> None:
    home = flow.lab.hosts[0].name
    flow.boot(entry("web", max_count=2, user_data=TICKING), **READY, bootflow_hosts=[home])
    names = ["web-1", "web-2"]
    addresses = {n: address_of(flow, n) for n in names}
    for name in names:
        wait_ticks(flow, name)
        keep_console(flow, name)

    planned = operate(flow, "live_migrate", *names, options=("--check", "--diff"))
    assert "Would live_migrate" in planned and {where(flow, n) for n in names} == {home}
    refused = operate(flow, "live_migrate", "web-1", expect=2, bootflow_live_migrate_host=home)
    assert "UnableToMigrateToSelf" in refused
    refused = operate(flow, "live_migration_abort", "web-1", expect=2)
    assert "Cannot 'live_migrate_abort'" in refused and states_of(flow) == {("active", None)}

    done = operate(flow, "live_migrate", *names)
    assert "stood still for" in done and states_of(flow) == {("active", None)}
    for name in names:
        row = flow.instances()[name]
        assert row["host"] != home and row["launched_on"] == row["host"]
        assert traces(flow, name) == {row["host"]: (True, "running")} and address_of(flow, name) == addresses[name]
        wait_ticks(flow, name)
        counted = ticks(said(flow, name, home))
        assert counted == list(range(5, len(counted) + 5)), counted
    assert statuses(flow) == ["completed"] * 2 and len(flow.query("SELECT 1 FROM claims")) == 2
    assert not flow.query("SELECT 1 FROM cleanups")
    flow.check_ledger()
    ended(flow)

    operate(flow, "reboot", "web-1", bootflow_reboot_type="HARD")
    wait_ready(flow, "web-1")
    row = flow.instances()["web-1"]
    assert "BOOTS=2=" in flow.console(row["host"], row["uuid"]), "its disk did not go along"
    agreed = flow.run("audit")
    assert agreed.returncode == 0, agreed.output
    flow.delete(*names)
    assert flow.residue() == {}


@pytest.mark.long
@pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="needs two CPUs")
def test_a_guest_gets_other_cpus(flow: Flow) -> None:
    """The claim on the new host decides, where a neighbour has those that the guest had; libvirt and the kernel agree."""
    home, away = (host.name for host in flow.lab.hosts[:2])
    own = {**FLAVORS[0], "name": "own", "extra_specs": {"hw:cpu_policy": "dedicated"}}
    flow.variables["bootflow_flavors"] = [own]
    flow.boot(entry("neighbour", flavor="own"), bootflow_hosts=[away])
    flow.boot(entry("web", flavor="own", user_data=TICKING), **READY, bootflow_hosts=[home])
    wait_ticks(flow, "web")
    taken, before = cpus_of(flow, "neighbour"), cpus_of(flow, "web")
    assert taken == before
    operate(flow, "live_migrate", "web", bootflow_live_migrate_host=away)
    assert where(flow, "web") == away and cpus_of(flow, "web").isdisjoint(taken)
    wait_ticks(flow, "web")
    flow.check_ledger()
    after = cpus_of(flow, "web")
    operate(flow, "reboot", "web", bootflow_reboot_type="HARD")
    assert cpus_of(flow, "web") == after
    full = operate(flow, "live_migrate", "neighbour", expect=2, bootflow_live_migrate_host=away)
    assert "UnableToMigrateToSelf" in full
    flow.boot(entry("third", flavor="own", max_count=2), bootflow_hosts=[home])
    refused = operate(flow, "live_migrate", "web", expect=2, bootflow_live_migrate_host=home)
    assert "NoValidHost" in refused and cpus_of(flow, "web") == after
    flow.delete(*flow.instances())
    assert flow.residue() == {}


def cpus_of(flow: Flow, name: str) -> set[int]:
    """The host's CPUs of its one virtual CPU: by the ledger, by libvirt, and by the kernel, which agree."""
    row = flow.instances()[name]
    host = flow.lab.host(row["host"])
    (claim,) = flow.query(
        "SELECT json_extract(numa, '$.cells[0].pinning') AS cpus FROM claims WHERE instance_uuid = ?", row["uuid"]
    )
    claimed = set(map(int, json.loads(claim["cpus"]).values()))
    xml = host.run("virsh", "dumpxml", row["uuid"]).stdout
    assert {int(c) for c in re.findall(r"<vcpupin vcpu='\d+' cpuset='(\d+)'", xml)} == claimed
    assert re.findall(r"<emulatorpin cpuset='(\d+)'", xml) == [str(c) for c in claimed]
    kept = host.run("virsh", "dumpxml", "--inactive", row["uuid"]).stdout
    assert {int(c) for c in re.findall(r"<vcpupin vcpu='\d+' cpuset='(\d+)'", kept)} == claimed
    shown = host.run("virsh", "qemu-monitor-command", row["uuid"], '{"execute": "query-cpus-fast"}').stdout
    (vcpu,) = json.loads(shown)["return"]
    allowed = host.run("taskset", "-cp", str(vcpu["thread-id"])).stdout.rpartition(":")[2].strip()
    assert {int(c) for c in allowed.split(",")} == claimed, allowed
    return claimed


@pytest.mark.long
def test_abort_and_force_complete(flow: Flow) -> None:
    """By another run, and because the time is over. A paused guest goes, too."""
    home = flow.lab.hosts[0].name
    flow.boot(entry("web", user_data=TICKING), **READY, bootflow_hosts=[home])
    wait_ticks(flow, "web", 6)
    keep_console(flow, "web")
    process = flow.start("live_migrate", {"bootflow_names": ["web"], **SLOWER})
    wait_migrating(flow, "web", process)
    refused = operate(flow, "live_migrate", "web", expect=2)
    assert "InstanceBusy" in refused
    flow.wait_for("SELECT 1 FROM migrations WHERE status = 'running' AND disk_total > 0", 60, process)
    assert re.search(r"progress: \d+\n.*memory_total_bytes", operate(flow, "show", "web"), re.DOTALL)
    assert re.search(r"to \S+, \d+ % \(left: disks \d+ of \d+ MiB", operate(flow, "events", "web"))
    looked = operate(flow, "live_migration_abort", "web", options=("--check",))
    assert "MiB are left" in looked and process.poll() is None, looked
    assert "were left" in operate(flow, "live_migration_abort", "web")
    log = (flow.folder / "killed.log").read_text() if process.wait(120) == 2 else ""
    assert "LiveMigrationAborted" in log and re.search(r"live_migrate: web from %s to \S+: \d+ %% after" % home, log)
    is_at_home(flow, "web", home)
    assert statuses(flow) == ["cancelled"]

    timed_out = operate(flow, "live_migrate", "web", expect=2, bootflow_live_migration_completion_timeout=1, **SLOWER)
    assert "it took more than 4 s" in timed_out, timed_out
    is_at_home(flow, "web", home)

    process = flow.start("live_migrate", {"bootflow_names": ["web"], **SLOW})
    wait_migrating(flow, "web", process)
    operate(flow, "live_migration_force_complete", "web")
    assert process.wait(240) == 0, (flow.folder / "killed.log").read_text()
    assert where(flow, "web") != home and statuses(flow) == ["cancelled", "cancelled", "completed"]
    wait_ticks(flow, "web")
    counted = ticks(said(flow, "web", home))
    assert counted == list(range(5, len(counted) + 5)), counted

    operate(flow, "pause", "web")
    there = where(flow, "web")
    operate(flow, "live_migrate", "web", bootflow_live_migrate_host=home)
    assert where(flow, "web") == home and states_of(flow) == {("paused", None)}
    assert traces(flow, "web") == {home: (True, "paused")} and there != home
    operate(flow, "unpause", "web")
    wait_ticks(flow, "web")
    ended(flow)
    flow.delete("web")
    assert flow.residue() == {}


# It writes to its memory faster than SLOWER sends it, also where it gets a twentieth of a CPU only: it copies in large pieces.
WRITING = (
    TICKING
    + "(yes | head -c 16777216 >/tmp/lines; while :; do dd if=/tmp/lines of=/tmp/written bs=1M conv=notrunc 2>/dev/null; done) &\n"
)


@pytest.fixture
def userfaultfd() -> t.Iterator[Path]:
    """What the role sets, of the kernel that the lab's hosts share; as it was in the end."""
    path = Path("/proc/sys/vm/unprivileged_userfaultfd")
    before = path.read_text()
    yield path
    path.write_text(before)


@pytest.mark.long
def test_what_a_migration_is_permitted(flow: Flow, userfaultfd: Path) -> None:
    """A guest that writes too much: its CPU is slowed down, or its memory follows it to where it runs already."""
    flow.variables["bootflow_live_migration_permit_post_copy"] = True
    userfaultfd.write_text("0")
    prepared = flow.run("prepare")
    assert prepared.returncode == 0 and userfaultfd.read_text().strip() == "1", prepared.output
    del flow.variables["bootflow_live_migration_permit_post_copy"]
    home, away = flow.lab.hosts[:2]
    flow.boot(entry("web", user_data=WRITING), **READY, bootflow_hosts=[home.name])
    uuid = flow.instances()["web"]["uuid"]
    wait_ticks(flow, "web", 6)
    keep_console(flow, "web")
    to_away = {"bootflow_names": ["web"], "bootflow_live_migrate_host": away.name, **SLOWER}

    process = flow.start("live_migrate", {**to_away, "bootflow_live_migration_permit_auto_converge": True})
    wait_migrating(flow, "web", process)
    end = time.monotonic() + 240
    while "Auto converge throttle" not in home.run("virsh", "domjobinfo", uuid, check=False).stdout:
        assert time.monotonic() < end and process.poll() is None, (flow.folder / "killed.log").read_text()
        time.sleep(0.5)
    # Slowed down to a hundredth it may still write too much for SLOWER.
    home.run("virsh", "migrate-setspeed", uuid, "1000")
    assert process.wait(240) == 0, (flow.folder / "killed.log").read_text()
    assert where(flow, "web") == away.name and statuses(flow) == ["completed"]
    wait_ticks(flow, "web")
    keep_console(flow, "web")

    to_home = {**to_away, "bootflow_live_migrate_host": home.name}
    listener = subprocess.Popen(
        away.command("virsh", "event", "--domain", uuid, "--event", "lifecycle", "--loop"),
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        process = flow.start("live_migrate", {**to_home, "bootflow_live_migration_permit_post_copy": True})
        wait_migrating(flow, "web", process)
        flow.wait_for("SELECT 1 FROM migrations WHERE status = 'running' AND memory_total > 0", 240, process)
        operate(flow, "live_migration_force_complete", "web", bootflow_live_migration_permit_post_copy=True)
        assert process.wait(240) == 0, (flow.folder / "killed.log").read_text()
    finally:  # it listens for ever
        away.run("pkill", "-INT", "-x", "virsh", check=False)  # in its own namespace
        events = listener.communicate(timeout=30)[0]
    assert "Post-copy" in events, events
    assert where(flow, "web") == home.name and statuses(flow) == ["completed"] * 2
    wait_ticks(flow, "web")
    counted = ticks(home.run("cat", KEPT % uuid).stdout + said(flow, "web", away.name))
    assert counted == list(range(5, len(counted) + 5)), counted
    ended(flow)
    flow.delete("web")
    assert flow.residue() == {}


@pytest.mark.long
@pytest.mark.parametrize("what", ["network", "libvirtd", "disk", "before"])
def test_a_new_host_that_fails(flow: Flow, what: str) -> None:
    home, away = (host.name for host in flow.lab.hosts[:2])
    flow.boot(entry("web", user_data=TICKING), **READY, bootflow_hosts=[home])
    flow.run("heartbeat")
    wait_ticks(flow, "web", 6)
    keep_console(flow, "web")
    failing = flow.lab.host(away)
    variables = {"bootflow_names": ["web"], "bootflow_live_migrate_host": away, "bootflow_work_timeout": 15, **SLOWER}
    if what in ("before", "disk"):
        failing.fail("network" if what == "before" else "disk")
    process = flow.start("live_migrate", variables)
    if what in ("network", "libvirtd"):
        wait_migrating(flow, "web", process)
        failing.fail(what)
    assert process.wait(400) == 2, (flow.folder / "killed.log").read_text()
    row = flow.instances()["web"]
    assert (row["vm_state"], row["task_state"], row["host"]) == ("active", None, home)
    failing.restore()
    flow.run("heartbeat")
    is_at_home(flow, "web", home)
    counted = ticks(said(flow, "web", home))
    assert sorted(set(counted)) == list(range(5, max(counted) + 1)), counted
    wait_ended(flow)
    flow.delete("web")
    assert flow.residue() == {}


@pytest.mark.long
@pytest.mark.parametrize("pause", [0.0, 2.0, 4.0, 6.0, 9.0, "switch"])
@pytest.mark.parametrize("slow", [True, False])
def test_a_run_that_is_killed(flow: Flow, pause: t.Any, slow: bool) -> None:
    home = flow.lab.hosts[0].name
    flow.boot(entry("web", user_data=TICKING), **READY, bootflow_hosts=[home])
    wait_ticks(flow, "web", 6)
    keep_console(flow, "web")
    process = flow.start("live_migrate", {"bootflow_names": ["web"], **(SLOW if slow else {})})
    flow.wait_for("SELECT 1 FROM instances WHERE task_state = 'migrating'", 60, process)
    if pause == "switch":
        flow.wait_for("SELECT 1 FROM migrations WHERE status IN ('post-migrating', 'completed')", 240, process)
    else:
        time.sleep(pause)
    flow.kill(process)
    end = time.monotonic() + 300
    while flow.instances()["web"]["task_state"] is not None:
        assert time.monotonic() < end
        assert len(running(flow, "web")) <= 1
        flow.run("audit")
        time.sleep(2)
    flow.run("heartbeat")
    row = flow.instances()["web"]
    assert row["vm_state"] == "active" and traces(flow, "web") == {row["host"]: (True, "running")}
    assert len(flow.query("SELECT 1 FROM claims")) == 1 and not flow.query("SELECT 1 FROM cleanups")
    flow.check_ledger()
    wait_ticks(flow, "web")
    counted = ticks(said(flow, "web", home)) if row["host"] != home else ticks(flow.console(home, row["uuid"]))
    assert counted == list(range(5, len(counted) + 5)), counted
    wait_ended(flow)
    operate(flow, "live_migrate", "web")
    assert traces(flow, "web") == {where(flow, "web"): (True, "running")}
    flow.delete("web")
    assert flow.residue() == {}


@pytest.mark.long
def test_a_host_that_cannot_run_the_guest(lab, flow: Flow, tmp_path) -> None:
    """Another CPU, an older QEMU, a domain of its name: refused before anything is made."""
    home, away = flow.lab.hosts[:2]
    flow.boot(entry("web"), bootflow_hosts=[home.name])
    uuid = flow.instances()["web"]["uuid"]
    here, there = (ModuleRunner(str(tmp_path / h.name), h.command()) for h in (home, away))
    described = here.result(here.start("domain_migration", step="describe", uuids=[uuid]))
    guest = described["outcomes"][uuid]["guest"]
    feature = "<feature policy='require' name='avx512f'/></cpu>"
    wrong = {
        "InvalidCPUInfo": {"cpu": guest["cpu"].replace("</cpu>", feature)},
        "DestinationHypervisorTooOld": {"hypervisor_version": guest["hypervisor_version"] + 1},
    }
    for code, fields in wrong.items():
        limits = {"disks": {disk["name"]: 0 for disk in guest["disks"]}}
        coming = {"uuid": uuid, "token": "t" * 64, "guest": {**guest, **fields}, "limits": limits}
        answer = there.result(
            there.start("domain_migration", step="prepare", arriving_guests=[coming], stop_token="s" * 64)
        )
        assert answer["outcomes"][uuid]["error"]["code"] == code and answer["port"] == 0, answer
    assert list(traces(flow, "web")) == [home.name]
    off = here.result(here.start("domain_migration", step="intervene", uuids=[uuid], action="abort"))
    assert off["outcomes"][uuid]["error"]["code"] == "MigrationError"
    flow.delete("web")


# A feature that QEMU emulates, and that no model of libvirt's map has.
FEATURE = "pks"
WITH_FEATURE = {
    "bootflow_cpu_mode": "custom",
    "bootflow_cpu_model": "qemu64",
    "bootflow_cpu_model_extra_flags": [FEATURE],
}


@contextlib.contextmanager
def cpu_is_missing(folder: Path, *hosts: t.Any) -> t.Iterator[None]:
    """libvirt on these hosts has no CPU with the feature of guests that are booted WITH_FEATURE."""
    model, changed = Path("/usr/share/libvirt/cpu_map/x86_features.xml"), folder / "features.xml"
    text, count = re.subn(r"<feature name='%s'.*?</feature>" % FEATURE, "", model.read_text(), flags=re.DOTALL)
    assert count == 1
    changed.write_text(text)
    for host in hosts:
        host.run("mount", "--bind", str(changed), str(model))
    try:
        for host in hosts:
            host.fail("libvirtd")
            host.restore()
        yield
    finally:
        for host in hosts:
            host.run("umount", str(model))
            host.fail("libvirtd")
            host.restore()


def destinations(flow: Flow, playbook: str, **variables: t.Any) -> dict[str, str]:
    """Instance -> the host that check mode plans for it."""
    planned = flow.run(playbook, "--check", **variables)
    assert planned.returncode == 0, planned.output
    names = [h.name for h in flow.lab.hosts]
    lines = planned.output.partition("Would live_migrate")[2].partition("PLAY")[0].splitlines()
    return {line.split()[0]: line.split()[3] for line in lines if len(line.split()) > 3 and line.split()[3] in names}


@pytest.mark.long
@pytest.mark.usefixtures("still_guests")
def test_a_guest_that_its_new_host_refuses_goes_to_another(flow: Flow, tmp_path: Path) -> None:
    """In the same run, until all have refused it. A host that the operator named is the only one. Nothing is left on who refused it."""
    home, *others = flow.lab.hosts
    flow.boot(entry("web"), **WITH_FEATURE, bootflow_hosts=[home.name])
    uuid = flow.instances()["web"]["uuid"]
    planned = destinations(flow, "live_migrate", bootflow_names=["web"])["web"]
    there, third = sorted(others, key=lambda host: host.name != planned)
    with cpu_is_missing(tmp_path, there):
        done = operate(flow, "live_migrate", "web")
    assert (
        "live_migrate: web: host %s refused the guest (InvalidCPUInfo). Trying %s." % (there.name, third.name) in done
    ), done
    assert where(flow, "web") == third.name and statuses(flow) == ["error", "completed"]
    assert traces(flow, "web") == {third.name: (True, "running")}
    assert len(flow.query("SELECT 1 FROM claims")) == 1 and not flow.query("SELECT 1 FROM cleanups")

    with cpu_is_missing(tmp_path, home, there):
        life = virsh(flow, "web", "domid")
        refused = " ".join(operate(flow, "live_migrate", "web", expect=2).split())
        for host in (home, there):
            assert "on %s: InvalidCPUInfo: Unacceptable CPU info: %s: " % (host.name, host.name) in refused, refused
        assert FEATURE in refused and "bootflow_cpu_mode is custom" in refused, refused
        assert statuses(flow) == ["error", "completed", "error", "error"]
        named = operate(flow, "live_migrate", "web", expect=2, bootflow_live_migrate_host=there.name)
        assert "InvalidCPUInfo" in named and "is tried" not in named, named
        assert statuses(flow) == ["error", "completed", "error", "error", "error"]
        once = operate(flow, "live_migrate", "web", expect=2, bootflow_max_attempts=1)
        assert "InvalidCPUInfo" in once and "is tried" not in once and len(statuses(flow)) == 6, once
        assert virsh(flow, "web", "domid") == life and traces(flow, "web") == {third.name: (True, "running")}
        assert states_of(flow) == {("active", None)} and len(flow.query("SELECT 1 FROM claims")) == 1
    assert not flow.query("SELECT 1 FROM cleanups") and uuid == flow.instances()["web"]["uuid"]
    flow.check_ledger()
    ended(flow)
    flow.delete("web")
    assert flow.residue() == {}


@pytest.mark.long
def test_a_guest_that_went_over_unseen_and_ended_there(flow: Flow) -> None:
    """Its run was killed, it is off on both hosts, and the daemon of its former host has forgotten why."""
    home = flow.lab.hosts[0]
    flow.boot(entry("web"), **READY, bootflow_hosts=[home.name])
    assert flow.run("heartbeat").returncode == 0
    uuid = flow.instances()["web"]["uuid"]
    process = flow.start("live_migrate", {"bootflow_names": ["web"], **SLOW})
    wait_migrating(flow, "web", process)
    flow.kill(process)
    there = flow.lab.host(flow.query("SELECT dest_compute FROM migrations")[0]["dest_compute"])
    virsh = ("virsh", "-q", "-c", "qemu:///system")
    assert uuid not in there.run(*virsh, "list", "--all", "--persistent", "--uuid").stdout, (
        "only what arrives is defined"
    )
    end = time.monotonic() + 120
    while uuid not in there.run(*virsh, "list", "--all", "--persistent", "--uuid").stdout:
        assert time.monotonic() < end
        time.sleep(1)
    while there.run(*virsh, "domstate", uuid).stdout.strip() != "running":
        assert time.monotonic() < end
        time.sleep(0.5)
    assert "migrated" in home.run(*virsh, "domstate", "--reason", uuid).stdout
    there.run(*virsh, "destroy", uuid)
    home.fail("libvirtd")
    home.restore()
    assert "unknown" in home.run(*virsh, "domstate", "--reason", uuid).stdout
    while flow.instances()["web"]["task_state"] is not None:
        assert time.monotonic() < end
        flow.run("audit")
        time.sleep(1)
    flow.run("heartbeat")  # the former host is cleaned
    flow.run("power_sync")
    row = flow.instances()["web"]
    assert (row["host"], row["vm_state"]) == (there.name, "stopped")
    operate(flow, "start", "web")
    assert traces(flow, "web") == {there.name: (True, "running")}
    wait_ended(flow)
    flow.delete("web")
    assert flow.residue() == {}
