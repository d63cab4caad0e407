# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The ledger follows guests on real hosts that somebody shuts down, starts and pauses with virsh."""

from __future__ import annotations

import shutil
import sqlite3
import time
from pathlib import Path

import pytest
from flow import Flow, Run, entry
from test_operations import wait_ready

RUNNING, PAUSED, OFF = 1, 3, 4


def virsh(flow: Flow, row: sqlite3.Row, command: str) -> str:
    return flow.lab.host(row["host"]).run("virsh", "-c", "qemu:///system", command, row["uuid"]).stdout.strip()


def play(flow: Flow, playbook: str, *options: str, **variables) -> Run:
    done = flow.run(playbook, *options, bootflow_shutdown_timeout=1, **variables)
    assert done.returncode == 0, done.output
    return done


def states(flow: Flow) -> list[tuple[str, int]]:
    rows = flow.instances().values()
    assert {r["task_state"] for r in rows} == {None}
    return [(r["vm_state"], r["power_state"]) for r in sorted(rows, key=lambda r: r["display_name"])]


def wait_for_text(flow: Flow, text: str) -> None:
    """In what the playbook that was started prints."""
    end = time.monotonic() + 60
    while text not in (flow.folder / "killed.log").read_text():
        assert time.monotonic() < end, (flow.folder / "killed.log").read_text()
        time.sleep(0.2)


@pytest.mark.usefixtures("still_guests")
def test_shut_down_started_and_paused_behind_the_ledgers_back(flow: Flow) -> None:
    flow.boot(entry("web", max_count=3))
    one, two = flow.instances()["web-1"], flow.instances()["web-2"]
    virsh(flow, one, "destroy")
    virsh(flow, two, "suspend")
    first = play(flow, "power_sync").output
    assert states(flow) == [("stopped", OFF), ("active", PAUSED), ("active", RUNNING)], first
    assert "Instance shutdown by itself." in first and "Instance is paused unexpectedly." in first

    virsh(flow, one, "start")
    virsh(flow, two, "resume")
    group_vars = Path(flow.lab.inventory).parent / "group_vars"
    group_vars.mkdir()
    (group_vars / "all.yml").write_text("bootflow_list_refresh: true\n")
    listed = play(flow, "list").output
    shutil.rmtree(group_vars)
    assert states(flow) == [("stopped", RUNNING), ("active", RUNNING), ("active", RUNNING)], listed
    assert "would do" in play(flow, "power_sync", "--check").output
    assert states(flow)[0] == ("stopped", RUNNING) and virsh(flow, one, "domstate") == "running"

    second = play(flow, "power_sync").output
    assert states(flow) == [("stopped", OFF), ("active", RUNNING), ("active", RUNNING)], second
    assert virsh(flow, one, "domstate") == "shut off" and "Instance is not stopped." in second
    ended = "SELECT result FROM instance_action_events WHERE event = 'stop' AND instance_uuid = ? ORDER BY id"
    assert [r["result"] for r in flow.query(ended, one["uuid"])] == ["Success", "Success"]
    flow.check_ledger()
    flow.delete("web-1", "web-2", "web-3")
    assert flow.residue() == {}


@pytest.mark.long
def test_after_a_restart_of_their_host_guests_run_again(flow: Flow) -> None:
    """Active ones, with their network; a stopped and a suspended one stay so. The run is killed in the middle once."""
    host = flow.lab.hosts[0]
    flow.boot(entry("web", max_count=4), bootflow_hosts=[host.name], bootflow_wait_console="BOOTFLOW-GUEST-READY")
    for playbook, name in (("stop", "web-3"), ("suspend", "web-4")):
        play(flow, playbook, bootflow_names=[name])
    play(flow, "power_sync")
    kept = flow.instances()
    watching = flow.start("watch", {})
    try:
        wait_for_text(flow, "Listening to compute1")
        host.begin_to_end()
        for name in ("web-1", "web-2"):  # as the service libvirt-guests does it
            virsh(flow, kept[name], "destroy")
        for playbook in ("power_sync", "heartbeat"):
            assert "compute1 is unreachable: it is shutting down" in play(flow, playbook).output
        wait_for_text(flow, "the host is shutting down")
    finally:
        flow.kill(watching)
    assert {r["vm_state"] for r in flow.instances().values()} == {"active", "stopped", "suspended"}
    host.restart()
    reported = play(flow, "heartbeat")
    assert "compute1 restarted, and guests of 2 active instances wait to be started again" in reported.output
    process = flow.start("power_sync", {})
    flow.wait_for("SELECT 1 FROM instances WHERE task_state = 'reboot_started_hard'", 60, process)
    time.sleep(0.7)
    flow.kill(process)
    assert {r["vm_state"] for r in flow.instances().values()} == {"active", "stopped", "suspended"}
    done = play(flow, "power_sync")
    rows = flow.instances()
    assert {n: (r["vm_state"], r["task_state"], virsh(flow, r, "domstate")) for n, r in rows.items()} == {
        "web-1": ("active", None, "running"),
        "web-2": ("active", None, "running"),
        "web-3": ("stopped", None, "shut off"),
        "web-4": ("suspended", None, "shut off"),
    }, done.output
    assert {(r["uuid"], r["host"]) for r in rows.values()} == {(r["uuid"], r["host"]) for r in kept.values()}
    for name in ("web-1", "web-2"):
        wait_ready(flow, name)
    assert "all are as the ledger has them" in play(flow, "power_sync").output
    play(flow, "resume", bootflow_names=["web-4"])
    flow.check_ledger()

    host.restart()
    without = play(flow, "power_sync", bootflow_resume_guests_state_on_host_boot=False)
    assert {r["vm_state"] for r in flow.instances().values()} == {"stopped"}, without.output
    flow.delete(*rows)
    assert flow.residue() == {}
