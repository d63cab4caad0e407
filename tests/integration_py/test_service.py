# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Real hosts that are serviced one after the other, while a guest counts seconds."""

from __future__ import annotations

import json

import pytest
from flow import Flow, entry
from test_live_migration import TICKING, statuses, ticks, wait_ticks
from test_operations import READY, operate
from test_rivals import agree


@pytest.mark.long
def test_guests_leave_a_host_for_its_service_and_come_back(flow: Flow) -> None:
    home, second, _third = [host.name for host in flow.lab.hosts]
    assert flow.run("heartbeat").returncode == 0
    flow.boot(entry("web", max_count=2, user_data=TICKING), **READY, bootflow_hosts=[home])
    operate(flow, "stop", "web-2", bootflow_shutdown_timeout=5)
    look = {
        "name": "List the domains of the host",
        "ansible.builtin.command": {"argv": ["virsh", "-q", "-c", "qemu:///system", "list", "--all", "--uuid"]},
        "register": "domains",
        "changed_when": False,
    }
    check = {"name": "The host is empty", "ansible.builtin.assert": {"that": ["domains.stdout == ''"]}}
    (flow.folder / "tasks.yml").write_text(json.dumps([look, check]))
    given = {"bootflow_service_tasks": str(flow.folder / "tasks.yml"), "bootflow_service_hosts": [home, second]}
    row = flow.instances()["web-1"]
    before = ticks(flow.console(home, row["uuid"]))[-1]

    planned = flow.run("service", "--check", **given)
    assert planned.returncode == 0, planned.output
    assert "1. %s (zone nova)" % home in planned.output and "~ web-1 would go to" in planned.output, planned.output
    done = flow.run("service", **given)
    assert done.returncode == 0 and "2 of 2 hosts done" in done.output, done.output
    assert {r["host"] for r in flow.instances().values()} == {home}
    assert {n: r["vm_state"] for n, r in flow.instances().items()} == {"web-1": "active", "web-2": "stopped"}
    wait_ticks(flow, "web-1")
    counted = ticks(flow.console(home, row["uuid"]))
    assert counted[0] > before and counted == list(range(counted[0], counted[-1] + 1)), counted
    assert statuses(flow).count("completed") == 2, "there and back while it ran"
    again = flow.run("service", **given)
    assert "changed=0" in again.output, again.output
    agree(flow)
    flow.delete("web-1", "web-2")
    assert flow.residue() == {}
