# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Instances that get another flavor, or another host, with what their guests have written: over, back, and in the middle."""

from __future__ import annotations

import contextlib
import sqlite3
import time

import pytest
from flow import FLAVORS, Flow, entry
from test_operations import guest, operate, states_of, wait_ready

READY = {"bootflow_wait_console": "BOOTFLOW-GUEST-READY"}
GROWN = {"name": "grown", "vcpus": 2, "memory_mb": 256, "root_gb": 2}
MORE = {"bootflow_flavors": [*FLAVORS, GROWN]}
# It counts its boots on its disk, beyond what the image has.
COUNTING = """#!/bin/sh
n=$(dd if=/dev/vda bs=1048576 skip=900 count=1 2>/dev/null | head -c 16 | tr -dc 0-9)
n=$((${n:-0} + 1))
printf '%-16s' $n | dd of=/dev/vda bs=1048576 seek=900 conv=notrunc 2>/dev/null
sync
echo "BOOTS=$n="
"""


def wait_boots(flow: Flow, name: str, count: int) -> str:
    """The console of its present host, after so many boots by its own count."""
    wait_ready(flow, name)
    row = flow.instances()[name]
    said = flow.console(row["host"], row["uuid"])
    assert "BOOTS=%d=" % count in said, said
    return said


def traces(flow: Flow, name: str) -> dict[str, tuple[bool, str]]:
    """host -> whether it has a folder of the instance, and what libvirt says of its domain ("" for none)."""
    uuid = flow.instances()[name]["uuid"]
    found = {}
    for host in flow.lab.hosts:
        folder = host.run(
            "sh", "-c", "test -d /var/lib/bootflow/instances/%s && echo yes || true" % uuid
        ).stdout.strip()
        said = host.run("sh", "-c", "virsh -q -c qemu:///system domstate %s 2>/dev/null || true" % uuid).stdout.strip()
        if folder or said:
            found[host.name] = (folder == "yes", said)
    return found


def running(flow: Flow, name: str) -> list[str]:
    return [host for host, (_folder, said) in traces(flow, name).items() if said == "running"]


def address_of(flow: Flow, name: str) -> str:
    (row,) = flow.query(
        "SELECT ip_address FROM ip_allocations a JOIN ports p ON p.id = a.port_id WHERE p.instance_uuid = ?",
        flow.instances()[name]["uuid"],
    )
    return str(row["ip_address"])


def reported(flow: Flow, ago: float) -> None:
    """The ledger believes that all hosts reported so many seconds ago."""
    with contextlib.closing(sqlite3.connect(flow.ledger_path, timeout=30, isolation_level=None)) as ledger:
        ledger.execute("UPDATE compute_nodes SET reported_at = ?", (time.time() - ago,))


def offers(flow: Flow, host: str) -> int:
    """Processes on the host that let others fetch disks."""
    argv = ("sh", "-c", "ss -Hltn 'sport >= 49216 and sport <= 49279'")
    return len(flow.lab.host(host).run(*argv).stdout.splitlines())


def ended(flow: Flow) -> None:
    """No process offers disks any more, or will in a moment."""
    end = time.monotonic() + 10
    for host in flow.lab.hosts:
        while offers(flow, host.name):
            assert time.monotonic() < end
            time.sleep(0.2)


def test_resize_confirm_and_revert(flow: Flow) -> None:
    flow.boot(entry("web", max_count=2, user_data=COUNTING), **READY)
    names = ["web-1", "web-2"]
    before = flow.instances()
    addresses = {n: address_of(flow, n) for n in names}

    planned = operate(flow, "resize", *names, options=("--check", "--diff"), bootflow_resize_flavor="grown", **MORE)
    assert "Would resize" in planned and "active -> resized" in planned and states_of(flow) == {("active", None)}
    operate(flow, "resize", *names, bootflow_resize_flavor="grown", **MORE)
    assert states_of(flow) == {("resized", None)}
    for name in names:
        row = flow.instances()[name]
        assert row["host"] != before[name]["host"] and row["memory_mb"] == 256 and running(flow, name) == [row["host"]]
        said = wait_boots(flow, name, 2)
        assert "name=vda bytes=%d" % (2 * 1024**3) in said and "vcpus=2" in said and addresses[name] + "/" in said
    assert len(flow.query("SELECT 1 FROM claims")) == 4
    flow.check_ledger()
    ended(flow)

    done = operate(flow, "revert_resize", "web-2")
    row = flow.instances()["web-2"]
    assert (row["vm_state"], row["host"], row["memory_mb"]) == ("active", before["web-2"]["host"], 192), done
    said = wait_boots(flow, "web-2", 2)
    assert "name=vda bytes=%d" % 1024**3 in said and addresses["web-2"] + "/" in said
    assert list(traces(flow, "web-2")) == [row["host"]]

    operate(flow, "confirm_resize", "web-1")
    row = flow.instances()["web-1"]
    assert row["vm_state"] == "active" and traces(flow, "web-1") == {row["host"]: (True, "running")}
    assert len(flow.query("SELECT 1 FROM claims")) == 2
    flow.check_ledger()
    flow.delete(*names)
    assert flow.residue() == {}


@pytest.mark.long
def test_migrate_a_stopped_one_and_what_is_refused(flow: Flow) -> None:
    flow.boot(entry("web", user_data=COUNTING), **READY)
    refused = operate(flow, "resize", "web", expect=2, bootflow_resize_flavor="tiny")
    assert "CannotResizeToSameFlavor" in refused
    refused = operate(flow, "resize", "web", expect=2, bootflow_resize_flavor="huge")
    assert "NoValidHost" in refused and states_of(flow) == {("active", None)} and guest(flow, "web") == "running"
    refused = operate(flow, "confirm_resize", "web", expect=2)
    assert "Cannot 'confirmResize'" in refused
    operate(flow, "stop", "web")
    source = flow.instances()["web"]["host"]
    operate(flow, "migrate", "web")
    row = flow.instances()["web"]
    assert row["vm_state"] == "resized" and row["host"] != source and guest(flow, "web") == "shut off"
    time.sleep(1)
    done = flow.run("confirm_resize", bootflow_resize_confirm_window=1)
    assert done.returncode == 0 and "web" in done.output, done.output
    assert states_of(flow) == {("stopped", None)} and list(traces(flow, "web")) == [row["host"]]
    operate(flow, "start", "web")
    wait_boots(flow, "web", 2)
    operate(flow, "migrate", "web")
    flow.delete("web")
    assert flow.residue() == {}


@pytest.mark.long
def test_a_new_host_that_dies(flow: Flow) -> None:
    """Before anything arrives the guest is started again where it was; what is there of it is removed when it is back."""
    flow.boot(entry("web", user_data=COUNTING), **READY)
    source = flow.instances()["web"]["host"]
    reported(flow, -600)  # else the new host is asked before the guest is shut down
    process = flow.start(
        "migrate", {"bootflow_names": ["web"], "bootflow_work_timeout": 15, "bootflow_copy_timeout": 20}
    )
    flow.wait_for("SELECT 1 FROM migrations", 60, process)
    away = flow.query("SELECT dest_compute FROM migrations")[0]["dest_compute"]
    flow.lab.host(away).fail("network")
    assert process.wait(240) == 2
    assert (flow.instances()["web"]["vm_state"], flow.instances()["web"]["host"]) == ("active", source)
    assert guest(flow, "web") == "running"
    wait_boots(flow, "web", 2)
    flow.lab.host(away).restore()
    flow.run("heartbeat")
    assert not flow.query("SELECT 1 FROM cleanups") and list(traces(flow, "web")) == [source]
    flow.check_ledger()
    flow.delete("web")
    assert flow.residue() == {}


@pytest.mark.long
def test_a_new_host_that_is_dead_already(flow: Flow) -> None:
    """It is asked before the guest is shut down, which runs on."""
    flow.boot(entry("web", user_data=COUNTING), **READY)
    source = flow.instances()["web"]["host"]
    others = [host for host in flow.lab.hosts if host.name != source]
    for host in others:
        host.fail("network")
    reported(flow, 100)  # lately enough to be chosen
    said = operate(flow, "migrate", "web", expect=2, bootflow_work_timeout=15)
    assert "HostUnreachable" in said, said
    assert running(flow, "web") == [source] and states_of(flow) == {("active", None)}
    wait_boots(flow, "web", 1)
    flow.check_ledger()
    for host in others:
        host.restore()
    operate(flow, "migrate", "web")
    wait_boots(flow, "web", 2)
    assert states_of(flow) == {("resized", None)} and flow.instances()["web"]["host"] != source
    flow.check_ledger()
    flow.delete("web")
    assert flow.residue() == {}


@pytest.mark.long
@pytest.mark.parametrize(
    "task_state, pause",
    [
        ("resize_migrating", 0.0),
        ("resize_migrating", 2.5),
        ("resize_migrating", 4.0),
        ("resize_finish", 0.0),
        ("resize_finish", 1.5),
    ],
)
def test_a_run_that_is_killed(flow: Flow, task_state: str, pause: float) -> None:
    flow.boot(entry("web", user_data=COUNTING), **READY)
    source = flow.instances()["web"]["host"]
    process = flow.start("migrate", {"bootflow_names": ["web"]})
    flow.wait_for("SELECT 1 FROM instances WHERE task_state = '%s'" % task_state, 60, process)
    time.sleep(pause)
    flow.kill(process)
    time.sleep(10)  # what still works on the hosts ends
    done = flow.run("audit")
    assert done.returncode == 0, done.output
    row = flow.instances()["web"]
    assert row["task_state"] is None and len(running(flow, "web")) <= 1, done.output
    if row["vm_state"] == "resized":
        operate(flow, "revert_resize", "web")
    elif row["vm_state"] == "stopped":
        operate(flow, "start", "web")
    assert flow.instances()["web"]["host"] == source and states_of(flow) == {("active", None)}
    wait_ready(flow, "web")
    flow.run("heartbeat")
    assert list(traces(flow, "web")) == running(flow, "web") == [source]
    operate(flow, "migrate", "web")
    operate(flow, "confirm_resize", "web")
    flow.check_ledger()
    flow.delete("web")
    assert flow.residue() == {}


@pytest.mark.long
@pytest.mark.parametrize("pause", [0.0, 1.5, 3.0])
def test_a_revert_that_is_killed(flow: Flow, pause: float) -> None:
    flow.boot(entry("web", user_data=COUNTING), **READY)
    source = flow.instances()["web"]["host"]
    operate(flow, "migrate", "web")
    process = flow.start("revert_resize", {"bootflow_names": ["web"]})
    flow.wait_for("SELECT 1 FROM instances WHERE task_state = 'resize_reverting'", 60, process)
    time.sleep(pause)
    flow.kill(process)
    time.sleep(5)
    done = flow.run("audit")
    row = flow.instances()["web"]
    assert row["task_state"] is None and len(running(flow, "web")) <= 1, done.output
    if row["vm_state"] == "resized":
        operate(flow, "revert_resize", "web")
    elif row["vm_state"] == "stopped":
        operate(flow, "start", "web")
    flow.run("heartbeat")
    assert flow.instances()["web"]["host"] == source and list(traces(flow, "web")) == running(flow, "web") == [source]
    flow.delete("web")
    assert flow.residue() == {}


@pytest.mark.long
def test_a_new_host_that_is_lost_before_the_move_is_decided(flow: Flow) -> None:
    """Only the former host has the disks that can be reached: the instance goes back there without the answer of the new one."""
    flow.boot(entry("web", user_data=COUNTING), **READY)
    source, address = flow.instances()["web"]["host"], address_of(flow, "web")
    operate(flow, "resize", "web", bootflow_resize_flavor="grown", **MORE)
    wait_boots(flow, "web", 2)
    row = flow.instances()["web"]
    lost = flow.lab.host(row["host"])
    lost.run("virsh", "-q", "-c", "qemu:///system", "destroy", row["uuid"])  # its power fails
    lost.fail("network")
    refused = operate(flow, "revert_resize", "web", expect=2, bootflow_work_timeout=15)
    assert "force it down" in refused and states_of(flow) == {("resized", None)}, refused
    assert running(flow, "web") == []
    flow.run("confirm_resize", bootflow_resize_confirm_window=1)
    assert flow.run("host", bootflow_host=[lost.name], bootflow_host_state="forced_down").returncode == 0
    time.sleep(1)
    flow.run("confirm_resize", bootflow_resize_confirm_window=1)
    assert states_of(flow) == {("resized", None)}, "the window confirmed what is only on a lost host"
    done = operate(flow, "revert_resize", "web")
    row = flow.instances()["web"]
    assert (row["vm_state"], row["host"], row["memory_mb"]) == ("active", source, 192), done
    assert address + "/" in wait_boots(flow, "web", 2) and running(flow, "web") == [source]
    assert [c["host"] for c in flow.query("SELECT host FROM cleanups")] == [lost.name]
    lost.restore()
    assert flow.run("host", bootflow_host=[lost.name], bootflow_host_state="up").returncode == 0
    audited = flow.run("audit")
    assert audited.returncode == 0, audited.output
    assert traces(flow, "web") == {source: (True, "running")} and not flow.query("SELECT 1 FROM cleanups")
    flow.check_ledger()
    flow.delete("web")
    assert flow.residue() == {}
