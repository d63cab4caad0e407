# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The ledger follows guests on real hosts that somebody shuts down, starts and pauses with virsh."""

from __future__ import annotations

import sqlite3

import pytest
from flow import Flow, Run, entry

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
    listed = play(flow, "list", bootflow_list_refresh=True).output
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
