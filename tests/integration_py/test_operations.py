# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Instances stopped and started on real hosts: by their power button, by their power, and by runs that die in between."""

from __future__ import annotations

import re
import time

import pytest
from flow import Flow, entry

READY = {"bootflow_wait_console": "BOOTFLOW-GUEST-READY"}
# Nothing in this guest listens to its power button.
DEAF = "#!/bin/sh\nkillall acpid\necho deaf now\n"
# Its memory goes on counting, or begins at 1 again.
COUNTING = "#!/bin/sh\n(i=0; while :; do i=$((i+1)); echo tick $i >/dev/console; sleep 1; done) &\n"


def operate(flow: Flow, playbook: str, *names: str, expect: int = 0, options: tuple[str, ...] = (), **variables) -> str:
    done = flow.run(playbook, *options, bootflow_names=list(names), **variables)
    assert done.returncode == expect, done.output
    return done.output


def guest(flow: Flow, name: str) -> str:
    """What libvirt on its host says of it."""
    row = flow.instances()[name]
    return flow.lab.host(row["host"]).run("virsh", "-c", "qemu:///system", "domstate", row["uuid"]).stdout.strip()


def wait_ready(flow: Flow, name: str, text: str = "BOOTFLOW-GUEST-READY") -> None:
    """Its console, which begins anew with each start, has this; by default the last word of a boot."""
    row = flow.instances()[name]
    end = time.monotonic() + 120
    while text not in flow.console(row["host"], row["uuid"]):
        assert time.monotonic() < end, flow.console(row["host"], row["uuid"])
        time.sleep(0.5)


def virsh(flow: Flow, name: str, *command: str) -> str:
    row = flow.instances()[name]
    return flow.lab.host(row["host"]).run("virsh", "-c", "qemu:///system", *command, row["uuid"]).stdout.strip()


def ticks(flow: Flow, name: str) -> list[int]:
    row = flow.instances()[name]
    return [int(n) for n in re.findall(r"^tick (\d+)\r?$", flow.console(row["host"], row["uuid"]), re.MULTILINE)]


def states_of(flow: Flow) -> set[tuple[str, str | None]]:
    return {(r["vm_state"], r["task_state"]) for r in flow.instances().values()}


@pytest.mark.long
def test_stop_and_start_on_three_hosts(flow: Flow) -> None:
    flow.boot(entry("web", max_count=3), entry("deaf", user_data=DEAF), **READY)
    names = sorted(flow.instances())
    assert names == ["deaf", "web-1", "web-2", "web-3"] and len({r["host"] for r in flow.instances().values()}) > 1

    planned = operate(flow, "stop", *names, options=("--check", "--diff"), bootflow_shutdown_timeout=10)
    assert "Would stop" in planned and states_of(flow) == {("active", None)}
    assert {guest(flow, n) for n in names} == {"running"}

    stopped = operate(flow, "stop", *names, bootflow_shutdown_timeout=10)
    assert states_of(flow) == {("stopped", None)} and {guest(flow, n) for n in names} == {"shut off"}
    assert {r["power_state"] for r in flow.instances().values()} == {4}
    lines = {line.split()[0]: line for line in stopped.splitlines() if line.split()[:1] and line.split()[0] in names}
    assert "lost its power" in lines["deaf"]
    assert all("lost its power" not in lines[n] for n in names if n != "deaf"), "they shut down when they are asked"
    row = flow.instances()["web-1"]
    assert "The system is going down" in flow.console(row["host"], row["uuid"])
    listed = flow.run("list").output
    assert all("stopped" in line for line in listed.splitlines() if line.split()[:1] and line.split()[0] in names)

    again = operate(flow, "stop", *names)
    assert "changed=0" in again and "nothing to do" in again
    refused = operate(flow, "stop", "nobody", expect=2)
    assert "InstanceNotFound" in refused

    planned = operate(flow, "start", *names, options=("--check",))
    assert "Would start" in planned and states_of(flow) == {("stopped", None)}
    operate(flow, "start", *names)
    assert states_of(flow) == {("active", None)}
    for name in names:
        wait_ready(flow, name)
        assert guest(flow, name) == "running"
    assert "changed=0" in operate(flow, "start", *names)
    flow.check_ledger()
    flow.delete(*names)
    assert flow.residue() == {}


@pytest.mark.long
def test_a_host_that_is_away_and_a_domain_that_is_gone(flow: Flow) -> None:
    flow.boot(entry("web", max_count=3), **READY)
    rows = flow.instances()
    gone = rows["web-1"]
    flow.lab.host(gone["host"]).run("virsh", "-c", "qemu:///system", "destroy", gone["uuid"])
    flow.lab.host(gone["host"]).run("virsh", "-c", "qemu:///system", "undefine", gone["uuid"])
    away = next(r["host"] for r in rows.values() if r["host"] != gone["host"])
    flow.lab.host(away).fail("network")
    failed = operate(flow, "stop", *rows, expect=2, bootflow_shutdown_timeout=15)
    for told in ("OperationFailed", "its domain is gone", "HostUnreachable"):
        assert told in failed, failed
    for row in flow.instances().values():
        lost = row["host"] == away
        assert (row["vm_state"], row["task_state"]) == ("active" if lost else "stopped", None)
    flow.lab.host(away).restore()
    operate(flow, "stop", *rows, bootflow_shutdown_timeout=15)
    assert "InstanceNotFound" in operate(flow, "start", "web-1", expect=2)
    operate(flow, "reboot", "web-1", bootflow_reboot_type="HARD")
    wait_ready(flow, "web-1")
    flow.delete(*rows)
    assert flow.residue() == {}


@pytest.mark.usefixtures("still_guests")
def test_what_somebody_did_with_virsh_is_seen_and_undone(flow: Flow) -> None:
    """The ledger has each of them as it is asked to be."""
    flow.boot(entry("web", max_count=2))
    virsh(flow, "web-1", "destroy")
    planned = operate(flow, "start", "web-1", "web-2", options=("--check",))
    assert "nothing to do" in planned and "Would start" in planned and guest(flow, "web-1") == "shut off"
    done = operate(flow, "start", "web-1", "web-2")
    assert done.count("nothing to do") == 1 and guest(flow, "web-1") == "running"

    operate(flow, "stop", "web-1", bootflow_shutdown_timeout=1)
    virsh(flow, "web-1", "start")
    virsh(flow, "web-2", "suspend")
    operate(flow, "stop", "web-1", bootflow_shutdown_timeout=1)
    operate(flow, "unpause", "web-2")
    assert (guest(flow, "web-1"), guest(flow, "web-2")) == ("shut off", "running")
    assert states_of(flow) == {("stopped", None), ("active", None)}
    again = operate(flow, "stop", "web-1")
    assert "nothing to do" in again and "changed=0" in again
    flow.check_ledger()
    flow.delete("web-1", "web-2")
    assert flow.residue() == {}


@pytest.mark.parametrize("then", ["stop", pytest.param("start", marks=pytest.mark.long), "audit"])
def test_a_run_that_is_killed_in_the_middle(flow: Flow, then: str) -> None:
    """Its guest is asked to shut down and is deaf; the run dies before the guest loses its power."""
    flow.boot(entry("deaf", user_data=DEAF), **READY)
    process = flow.start("stop", {"bootflow_names": ["deaf"], "bootflow_shutdown_timeout": 15})
    flow.wait_for("SELECT 1 FROM instances WHERE task_state = 'powering-off'", 60, process)
    time.sleep(4)
    flow.kill(process)
    assert states_of(flow) == {("active", "powering-off")}
    if then == "stop":
        operate(flow, "stop", "deaf", bootflow_shutdown_timeout=1)
        assert states_of(flow) == {("stopped", None)} and guest(flow, "deaf") == "shut off"
    else:
        done = operate(flow, "start", "deaf") if then == "start" else flow.run("audit").output
        assert states_of(flow) == {("active", None)}, done
        time.sleep(15)
        assert guest(flow, "deaf") == "running", "nobody takes its power for a run that is gone"
    flow.delete("deaf")
    assert flow.residue() == {}


@pytest.mark.long
@pytest.mark.usefixtures("still_guests")
def test_a_guest_that_was_restored_and_did_not_go_on_is_resumed(flow: Flow) -> None:
    """As a module leaves it that is killed in between, or that finds an interface missing."""
    flow.boot(entry("web"))
    operate(flow, "suspend", "web")
    virsh(flow, "web", "start", "--paused")
    assert guest(flow, "web") == "paused"
    operate(flow, "resume", "web")
    assert states_of(flow) == {("active", None)} and guest(flow, "web") == "running"
    flow.delete("web")
    assert flow.residue() == {}


def test_pause_suspend_reboot_and_lock_several_guests(flow: Flow) -> None:
    flow.boot(entry("web", max_count=2, user_data=COUNTING), entry("deaf", user_data=DEAF), **READY)
    names = sorted(flow.instances())
    assert len({r["host"] for r in flow.instances().values()}) > 1

    operate(flow, "pause", *names)
    assert states_of(flow) == {("paused", None)} and {guest(flow, n) for n in names} == {"paused"}
    operate(flow, "unpause", *names)
    assert states_of(flow) == {("active", None)} and {guest(flow, n) for n in names} == {"running"}

    operate(flow, "suspend", *names)
    before = max(ticks(flow, "web-1"))
    assert states_of(flow) == {("suspended", None)} and {guest(flow, n) for n in names} == {"shut off"}
    assert all(re.search(r"Managed save: +yes", virsh(flow, n, "dominfo")) for n in names)
    operate(flow, "resume", *names)
    assert states_of(flow) == {("active", None)} and {guest(flow, n) for n in names} == {"running"}
    end = time.monotonic() + 10
    while max(ticks(flow, "web-1"), default=0) <= before:
        assert time.monotonic() < end, ticks(flow, "web-1")
        time.sleep(0.2)
    counted = ticks(flow, "web-1")
    assert len(counted) == len(set(counted)) and min(counted) in (1, before, before + 1, before + 2), (
        "it did not boot again"
    )

    shown = operate(flow, "console", *names, bootflow_console_lines=3)
    assert re.search(r"\n  \| tick \d+\n", shown)
    assert len(re.findall(r"VNC 127\.0\.0\.1:(\d+) of the host; ssh -N -L \1:127\.0\.0\.1:\1 ", shown)) == 3, shown
    operate(flow, "trigger_crash_dump", "web-1")
    wait_ready(flow, "web-1", "NMI")

    lives = {n: virsh(flow, n, "domid") for n in names}
    done = operate(flow, "reboot", *names, bootflow_wait_soft_reboot_seconds=8)
    lines = {line.split()[0]: line for line in done.splitlines() if line.split()[:1] and line.split()[0] in names}
    assert {n: "did not restart by itself" in lines[n] for n in names} == {n: n == "deaf" for n in names}, done
    assert all(virsh(flow, n, "domid") != lives[n] for n in names) and states_of(flow) == {("active", None)}

    row = flow.instances()["web-1"]
    for command in ("destroy", "undefine"):
        virsh(flow, "web-1", command)
    operate(flow, "reboot", "web-1", "web-2", bootflow_reboot_type="HARD")
    assert states_of(flow) == {("active", None)}
    assert row["domain_name"] == virsh(flow, "web-1", "domname") and guest(flow, "web-2") == "running"
    wait_ready(flow, "web-1")

    operate(flow, "lock", "deaf", bootflow_actor="bob", bootflow_locked_reason="do not touch")
    refused = operate(flow, "pause", *names, expect=2)
    assert "InstanceIsLocked" in refused and "bob locked it: do not touch" in refused
    assert states_of(flow) == {("active", None)}
    flow.check_ledger()
    flow.delete(*names, bootflow_actor="bob")
    assert flow.residue() == {}


# Says what is at the end of its disk, and leaves something there.
MARKING = (
    '#!/bin/sh\necho "disk says [$(dd if=/dev/vda bs=512 skip=2000000 count=1 2>/dev/null | head -c 4)]" >/dev/console\n'
    "echo MINE | dd of=/dev/vda bs=512 seek=2000000 count=1 conv=sync,notrunc 2>/dev/null\nsync\n"
)


def test_rebuild_makes_disks_anew_and_keeps_the_rest(flow: Flow) -> None:
    (image,) = flow.variables["bootflow_images"]
    flow.variables["bootflow_images"] = [image, {**image, "name": "newer", "properties": {"os_distro": "bootflow"}}]
    entries = [entry("web", max_count=2, user_data=MARKING)]
    flow.boot(*entries, **READY)
    before = flow.instances()
    operate(flow, "reboot", "web-1", bootflow_reboot_type="HARD")
    wait_ready(flow, "web-1", "disk says [MINE]")
    operate(flow, "stop", "web-2", bootflow_shutdown_timeout=5)

    refused = operate(flow, "rebuild", "web-1", "web-2", expect=2, bootflow_keep_user_data=False)
    assert "booted with user_data, which the ledger does not keep" in refused
    assert (
        operate(flow, "rebuild", "web-1", options=("--check",), bootflow_instances=entries).count("Would rebuild") == 1
    )
    assert states_of(flow) == {("active", None), ("stopped", None)} and guest(flow, "web-1") == "running"
    done = operate(flow, "rebuild", "web-1", "web-2", bootflow_instances=entries, bootflow_rebuild_image="newer")
    assert "lost its power" not in done, "those that run shut down when they are asked"
    rows = flow.instances()
    assert {n: (r["vm_state"], r["task_state"], guest(flow, n)) for n, r in rows.items()} == {
        "web-1": ("active", None, "running"),
        "web-2": ("stopped", None, "shut off"),
    }
    same = ("uuid", "host", "domain_name", "reservation_id", "hostname")
    assert [[r[k] for k in same] for r in rows.values()] == [[r[k] for k in same] for r in before.values()]
    wait_ready(flow, "web-1", "disk says []")
    operate(flow, "start", "web-2")
    wait_ready(flow, "web-2", "disk says []")
    newer = [{**e, "image": "newer"} for e in entries]
    assert "2 instances already match the request" in flow.boot(*newer).output, (
        "what was rebuilt is what the file asks for"
    )
    flow.check_ledger()
    flow.delete("web-1", "web-2")
    assert flow.residue() == {}


@pytest.mark.long
def test_disks_are_what_they_were_when_the_backend_of_their_host_has_changed(flow: Flow) -> None:
    """A disk in qcow2 that is opened as raw is no system, and what writes to it destroys it."""
    flow.boot(entry("web", flavor="full"), **READY)
    flow.variables["bootflow_disk_backend"] = "raw"
    operate(flow, "reboot", "web", bootflow_reboot_type="HARD")
    wait_ready(flow, "web")
    operate(flow, "rescue", "web")
    wait_ready(flow, "web")
    operate(flow, "unrescue", "web")
    wait_ready(flow, "web")
    operate(flow, "migrate", "web")
    wait_ready(flow, "web")
    operate(flow, "confirm_resize", "web")
    operate(flow, "rebuild", "web")
    wait_ready(flow, "web")
    assert "type='qcow2'" not in virsh(flow, "web", "dumpxml"), "the new ones are of the new kind"
    flow.delete("web")
    assert flow.residue() == {}


@pytest.mark.long
def test_a_hard_reboot_that_is_killed(flow: Flow) -> None:
    """The same again goes on with it, and the guest runs once."""
    flow.boot(entry("web"), **READY)
    for moment in (0.0, 0.6, 1.2):
        process = flow.start("reboot", {"bootflow_names": ["web"], "bootflow_reboot_type": "HARD"})
        flow.wait_for("SELECT 1 FROM instances WHERE task_state = 'reboot_started_hard'", 60, process)
        time.sleep(moment)
        flow.kill(process)
        operate(flow, "reboot", "web", bootflow_reboot_type="HARD")
        assert states_of(flow) == {("active", None)} and guest(flow, "web") == "running"
    flow.delete("web")
    assert flow.residue() == {}
