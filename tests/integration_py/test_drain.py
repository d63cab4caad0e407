# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A real host that its guests leave, by runs that die on the way, until nothing of them is on it."""

from __future__ import annotations

from pathlib import Path

import pytest
from flow import Flow, entry
from test_live_migration import (
    TICKING,
    WITH_FEATURE,
    cpu_is_missing,
    destinations,
    keep_console,
    said,
    ticks,
    wait_ticks,
)
from test_operations import READY, guest, operate, states_of
from test_rivals import agree

DRAIN = {"bootflow_shutdown_timeout": 5, "bootflow_drain_live": False}


def things_on(flow: Flow, name: str) -> set[str]:
    """Domains, and folders of instances."""
    host = flow.lab.host(name)
    domains = host.run("virsh", "-q", "-c", "qemu:///system", "list", "--all", "--uuid").stdout.split()
    files = host.run("sh", "-c", "ls /var/lib/bootflow/instances").stdout.split()
    return {*domains, *files} & {r["uuid"] for r in flow.instances().values()}


@pytest.mark.long
def test_guests_that_run_leave_it_while_they_do(flow: Flow) -> None:
    name = flow.lab.hosts[0].name
    flow.boot(entry("web", max_count=3, user_data=TICKING), **READY, bootflow_hosts=[name])
    operate(flow, "stop", "web-2", bootflow_shutdown_timeout=5)
    operate(flow, "pause", "web-3")
    keep_console(flow, "web-1")
    planned = flow.run("drain", "--check", bootflow_drain_host=name)
    assert planned.returncode == 0, planned.output
    for line in (
        "~ web-1 live_migrate",
        "~ web-3 live_migrate",
        "~ web-2 migrate",
        "2 to live_migrate, 1 to migrate, 0 to stay.",
    ):
        assert line in planned.output, planned.output
    done = flow.run("drain", bootflow_drain_host=name)
    assert done.returncode == 0 and "%s is empty" % name in done.output, done.output
    rows = flow.instances()
    assert {n: r["vm_state"] for n, r in rows.items()} == {"web-1": "active", "web-2": "stopped", "web-3": "paused"}
    assert name not in {r["host"] for r in rows.values()} and things_on(flow, name) == set()
    wait_ticks(flow, "web-1")
    counted = ticks(said(flow, "web-1", name))
    assert counted == list(range(5, len(counted) + 5)), counted
    agree(flow)
    flow.delete(*rows)
    assert flow.residue() == {}


@pytest.mark.long
@pytest.mark.usefixtures("still_guests")
def test_guests_that_a_host_refuses_leave_for_another(flow: Flow, tmp_path: Path) -> None:
    """In the same run; who was not refused goes once."""
    home, *others = flow.lab.hosts
    flow.boot(entry("web", max_count=2), **WITH_FEATURE, bootflow_hosts=[home.name])
    planned = destinations(flow, "drain", bootflow_drain_host=home.name)
    there, third = sorted(others, key=lambda host: host.name != planned["web-1"])
    with cpu_is_missing(tmp_path, there):
        done = flow.run("drain", bootflow_drain_host=home.name)
    assert done.returncode == 0 and "%s is empty" % home.name in done.output, done.output
    assert (
        "live_migrate: web-1: host %s refused the guest (InvalidCPUInfo). Trying %s." % (there.name, third.name)
        in done.output
    )
    assert {r["host"] for r in flow.instances().values()} == {third.name}
    rows = flow.query(
        "SELECT i.display_name AS name, m.status FROM migrations m JOIN instances i ON i.uuid = m.instance_uuid ORDER BY m.id"
    )
    tried = {name: [r["status"] for r in rows if r["name"] == name] for name in planned}
    refused = {name: ["error", "completed"] if host == there.name else ["completed"] for name, host in planned.items()}
    assert tried == refused
    assert things_on(flow, home.name) == things_on(flow, there.name) == set()
    agree(flow)
    flow.delete(*flow.instances())
    assert flow.residue() == {}


@pytest.mark.long
def test_a_host_is_drained(flow: Flow) -> None:
    name = flow.lab.hosts[0].name
    flow.boot(entry("web", max_count=3), **READY, bootflow_hosts=[name])
    flow.boot(entry("other"), bootflow_hosts=[flow.lab.hosts[1].name])
    operate(flow, "stop", "web-2", bootflow_shutdown_timeout=5)
    operate(flow, "pause", "web-3")
    before = flow.instances()

    planned = flow.run("drain", "--check", bootflow_drain_host=name, **DRAIN)
    assert planned.returncode == 2 and "DrainIncomplete" in planned.output, planned.output
    for line in (
        "~ %s gets no new instances" % name,
        "~ web-1 migrate, restarts the guest",
        "~ web-2 migrate",
        "! web-3 stays: ",
    ):
        assert line in planned.output, planned.output
    assert {n: tuple(r) for n, r in flow.instances().items()} == {n: tuple(r) for n, r in before.items()}
    assert not flow.query("SELECT 1 FROM compute_nodes WHERE service_disabled")

    refused = flow.run("drain", bootflow_drain_host=name, **DRAIN)
    assert refused.returncode == 2 and "1 of 3 instances stay on %s" % name in refused.output, refused.output
    rows = flow.instances()
    assert {n: r["host"] == name for n, r in rows.items()} == {
        "web-1": False,
        "web-2": False,
        "web-3": True,
        "other": False,
    }
    assert (rows["web-1"]["vm_state"], rows["web-2"]["vm_state"]) == ("active", "stopped")
    agree(flow)

    operate(flow, "unpause", "web-3")
    process = flow.start("drain", {"bootflow_drain_host": name, **DRAIN})
    flow.wait_for("SELECT 1 FROM instances WHERE task_state = 'resize_finish'", 90, process)
    flow.kill(process)
    done = flow.run("drain", bootflow_drain_host=name, **DRAIN)
    if done.returncode:  # it had gone over, and its guest was not started there yet: that is for people to decide
        assert "its move is not decided" in done.output and states_of(flow) >= {("resized", None)}, done.output
        operate(flow, "revert_resize", "web-3")
        done = flow.run("drain", bootflow_drain_host=name, **DRAIN)
    assert done.returncode == 0 and "%s is empty" % name in done.output, done.output
    assert {r["uuid"] for r in flow.instances().values()} == {r["uuid"] for r in before.values()}
    assert name not in {r["host"] for r in flow.instances().values()} and guest(flow, "web-3") == "running"
    assert things_on(flow, name) == set()
    (claims,) = flow.query(
        "SELECT count(*) AS n FROM claims k JOIN compute_nodes n ON n.id = k.compute_node_id WHERE n.host = ?", name
    )
    assert claims["n"] == 0
    agree(flow)
    again = flow.run("drain", bootflow_drain_host=name)
    assert again.returncode == 0 and "No instance is on it." in again.output and "changed=0" in again.output, (
        again.output
    )
    flow.delete(*flow.instances())
    assert flow.residue() == {}
