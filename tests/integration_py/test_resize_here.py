# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Instances that are resized where they are, as on a single host: grown, brought back, kept, and killed in the middle."""

from __future__ import annotations

import time

import pytest
from flow import Flow, entry
from test_moves import COUNTING, MORE, READY, address_of, running, traces, wait_boots
from test_operations import guest, operate, states_of, wait_ready

HERE = {"bootflow_allow_resize_to_same_host": True, "bootflow_resize_flavor": "grown", **MORE}


def alone(flow: Flow, name: str) -> str:
    """Its host, which is the only one that takes instances from now on."""
    mine = str(flow.instances()[name]["host"])
    others = [h.name for h in flow.lab.hosts if h.name != mine]
    done = flow.run("host", bootflow_host=others, bootflow_host_state="disabled")
    assert done.returncode == 0, done.output
    return mine


def folders(flow: Flow, name: str) -> set[str]:
    """What a resize has in the folder of the instance."""
    row = flow.instances()[name]
    path = "/var/lib/bootflow/instances/%s" % row["uuid"]
    said = flow.lab.host(row["host"]).run("sh", "-c", "ls -A %s" % path).stdout.split()
    return {n for n in said if n.startswith("resize.")}


def test_grown_brought_back_and_kept(flow: Flow) -> None:
    flow.boot(entry("web", user_data=COUNTING), **READY)
    host, address = alone(flow, "web"), address_of(flow, "web")
    refused = operate(flow, "resize", "web", expect=2, **{**HERE, "bootflow_allow_resize_to_same_host": False})
    assert "NoValidHost" in refused and "bootflow_allow_resize_to_same_host" in refused, refused
    assert guest(flow, "web") == "running"
    refused = operate(flow, "migrate", "web", expect=2, bootflow_allow_resize_to_same_host=True)
    assert "NoValidHost" in refused, "a migration never stays"

    operate(flow, "resize", "web", **HERE)
    row = flow.instances()["web"]
    assert (row["vm_state"], row["host"], row["memory_mb"]) == ("resized", host, 256)
    said = wait_boots(flow, "web", 2)
    assert "name=vda bytes=%d" % (2 * 1024**3) in said and "vcpus=2" in said and address + "/" in said
    assert folders(flow, "web") == {"resize.old"}
    claimed = flow.query("SELECT sum(memory_mb) AS m, sum(disk_gb) AS d, sum(vcpus) AS c FROM claims")[0]
    assert tuple(claimed) == (192 + 256, 1 + 2, 1 + 2), "both flavors until it is decided"
    assert flow.query("SELECT num_instances AS n FROM compute_nodes WHERE host = ?", host)[0]["n"] == 1
    flow.check_ledger()
    checked = flow.run("audit", "--check")
    assert "nothing to repair" in checked.output.lower() or "changed=0" in checked.output, checked.output

    operate(flow, "revert_resize", "web")
    row = flow.instances()["web"]
    assert (row["vm_state"], row["host"], row["memory_mb"]) == ("active", host, 192)
    said = wait_boots(flow, "web", 2)  # what it wrote since is lost
    assert "name=vda bytes=%d" % 1024**3 in said and address + "/" in said
    assert folders(flow, "web") == set() and len(flow.query("SELECT 1 FROM claims")) == 1
    flow.check_ledger()

    operate(flow, "resize", "web", **HERE)
    operate(flow, "confirm_resize", "web")
    row = flow.instances()["web"]
    assert (row["vm_state"], row["host"], row["memory_mb"]) == ("active", host, 256)
    wait_boots(flow, "web", 3)
    assert folders(flow, "web") == set() and not flow.query("SELECT 1 FROM cleanups")
    assert len(flow.query("SELECT 1 FROM claims")) == 1 and running(flow, "web") == [host]
    flow.check_ledger()
    flow.delete("web")
    assert flow.residue() == {}


@pytest.mark.long
@pytest.mark.parametrize(
    "task_state, pause",
    [("resize_migrating", 0.0), ("resize_migrating", 3.0), ("resize_finish", 0.0), ("resize_finish", 1.0)],
)
def test_a_run_that_is_killed(flow: Flow, task_state: str, pause: float) -> None:
    flow.boot(entry("web", user_data=COUNTING), **READY)
    host = alone(flow, "web")
    process = flow.start("resize", {"bootflow_names": ["web"], **HERE})
    flow.wait_for("SELECT 1 FROM instances WHERE task_state = '%s'" % task_state, 60, process)
    time.sleep(pause)
    flow.kill(process)
    time.sleep(10)  # what still works on the host ends
    done = flow.run("audit")
    assert done.returncode == 0, done.output
    row = flow.instances()["web"]
    assert row["task_state"] is None and row["host"] == host, done.output
    if row["vm_state"] == "resized":
        operate(flow, "revert_resize", "web")
    elif row["vm_state"] == "stopped":
        operate(flow, "start", "web")
    assert states_of(flow) == {("active", None)}
    wait_ready(flow, "web")
    boots = 1 if "BOOTS=1=" in flow.console(host, row["uuid"]) else 2
    assert boots == 2 or row["vm_state"] == "active", "only a guest that was never off has not booted again"
    assert "name=vda bytes=%d" % 1024**3 in wait_boots(flow, "web", boots)
    flow.run("heartbeat")
    assert folders(flow, "web") == set() and not flow.query("SELECT 1 FROM cleanups")
    assert len(flow.query("SELECT 1 FROM claims")) == 1 and list(traces(flow, "web")) == [host]
    operate(flow, "resize", "web", **HERE)
    operate(flow, "confirm_resize", "web")
    assert "name=vda bytes=%d" % (2 * 1024**3) in wait_boots(flow, "web", boots + 1)
    flow.check_ledger()
    flow.delete("web")
    assert flow.residue() == {}


@pytest.mark.long
@pytest.mark.parametrize("pause", [0.0, 1.5, 3.0])
def test_a_revert_that_is_killed(flow: Flow, pause: float) -> None:
    flow.boot(entry("web", user_data=COUNTING), **READY)
    host = alone(flow, "web")
    operate(flow, "resize", "web", **HERE)
    process = flow.start("revert_resize", {"bootflow_names": ["web"]})
    flow.wait_for("SELECT 1 FROM instances WHERE task_state = 'resize_reverting'", 60, process)
    time.sleep(pause)
    flow.kill(process)
    time.sleep(8)
    done = flow.run("audit")
    row = flow.instances()["web"]
    assert row["task_state"] is None and row["host"] == host, done.output
    if row["vm_state"] == "resized":
        operate(flow, "revert_resize", "web")
    flow.run("heartbeat")
    if flow.instances()["web"]["vm_state"] == "stopped":
        operate(flow, "start", "web")
    assert "name=vda bytes=%d" % 1024**3 in wait_boots(flow, "web", 2)
    assert folders(flow, "web") == set() and len(flow.query("SELECT 1 FROM claims")) == 1
    flow.check_ledger()
    flow.delete("web")
    assert flow.residue() == {}
