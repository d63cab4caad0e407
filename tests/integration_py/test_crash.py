# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""SIGKILL to the run inside and between any two stages; the next boot finishes, and a delete cleans up from there."""

from __future__ import annotations

import pytest
from flow import Flow, entry

POINTS = [
    # (name, what the ledger says when the kill comes)
    ("accepted", "SELECT 1 FROM instances WHERE task_state = 'scheduling'"),
    ("claimed", "SELECT 1 FROM claims"),
    ("in networking", "SELECT 1 FROM instance_action_events WHERE event = 'networking'"),
    ("after networking", "SELECT 1 FROM instance_action_events WHERE event = 'networking' AND finish_time IS NOT NULL"),
    ("in disks", "SELECT 1 FROM instance_action_events WHERE event = 'block_device_mapping'"),
    (
        "after disks",
        "SELECT 1 FROM instance_action_events WHERE event = 'block_device_mapping' AND finish_time IS NOT NULL",
    ),
    ("in spawning", "SELECT 1 FROM instance_action_events WHERE event = 'spawning'"),
]


def killed_boot(flow: Flow, sql: str, entries: list[dict]) -> None:
    process = flow.start("boot", {"bootflow_instances": entries})
    try:
        flow.wait_for(sql, 120, process)
    finally:
        flow.kill(process)
    flow.check_ledger()


@pytest.mark.long
@pytest.mark.usefixtures("still_guests")
@pytest.mark.parametrize(("point", "sql"), POINTS, ids=[p for p, _s in POINTS])
def test_boot_again_finishes(flow: Flow, point: str, sql: str) -> None:
    wanted = [entry("crash", max_count=2)]
    killed_boot(flow, sql, wanted)
    uuids = {r["uuid"] for r in flow.instances().values()}
    flow.boot(*wanted)
    rows = flow.instances()
    assert {r["vm_state"] for r in rows.values()} == {"active"} and len(rows) == 2
    assert {r["uuid"] for r in rows.values()} == uuids, "the half-built instances themselves go on"
    for row in rows.values():
        state = flow.lab.host(row["host"]).run("virsh", "-c", "qemu:///system", "domstate", row["uuid"]).stdout.strip()
        assert state == "running"
    flow.check_ledger()
    flow.delete(*rows)
    assert flow.residue() == {}


@pytest.mark.long
@pytest.mark.usefixtures("still_guests")
@pytest.mark.parametrize(("point", "sql"), POINTS, ids=[p for p, _s in POINTS])
def test_delete_cleans_up(flow: Flow, point: str, sql: str) -> None:
    killed_boot(flow, sql, [entry("crash", max_count=2)])
    flow.delete("crash-1", "crash-2")
    assert flow.residue() == {}


@pytest.mark.long
def test_a_live_run_is_not_robbed(flow: Flow) -> None:
    """While one run builds, the same request from another is refused with the name of the run that has it."""
    wanted = [entry("busy", max_count=2)]
    process = flow.start("boot", {"bootflow_instances": wanted, "bootflow_wait_console": "BOOTFLOW-GUEST-READY"})
    try:
        flow.wait_for("SELECT 1 FROM instance_action_events WHERE event = 'networking'", 120, process)
        other = flow.run("boot", bootflow_instances=wanted, bootflow_wait_console="BOOTFLOW-GUEST-READY")
        assert other.returncode == 2 and "is being worked on by run" in other.output
        assert process.wait(timeout=240) == 0
    finally:
        if process.poll() is None:
            flow.kill(process)
    assert {r["vm_state"] for r in flow.instances().values()} == {"active"}
    flow.delete("busy-1", "busy-2")
    assert flow.residue() == {}


def test_delete_wins_over_a_running_boot(flow: Flow) -> None:
    process = flow.start(
        "boot", {"bootflow_instances": [entry("gone", max_count=2)], "bootflow_wait_console": "BOOTFLOW-GUEST-READY"}
    )
    try:
        flow.wait_for("SELECT 1 FROM instance_action_events WHERE event = 'block_device_mapping'", 120, process)
        flow.delete("gone-1", "gone-2")
        process.wait(timeout=300)
    finally:
        if process.poll() is None:
            flow.kill(process)
    assert flow.residue() == {}
