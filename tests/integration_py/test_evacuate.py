# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A host that dies, its instances elsewhere, and its return."""

from __future__ import annotations

import hashlib

import pytest
from flow import Flow, entry
from test_operations import READY, guest, operate, states_of, wait_ready

VIRSH = ("virsh", "-q", "-c", "qemu:///system")


def test_a_dead_host_is_evacuated_and_comes_back(flow: Flow) -> None:
    """Without the file that booted its guests: the controller has their user data until the last of them is deleted."""
    dead, *others = flow.lab.hosts
    user_data = "#!/bin/sh\necho user data runs on $(hostname)\n"
    flow.boot(entry("web", max_count=2, user_data=user_data), **READY, bootflow_hosts=[dead.name])
    (identity,) = flow.query("SELECT id FROM ledger_identity")
    kept = flow.ledger_path.parent / "user-data" / identity["id"] / hashlib.sha256(user_data.encode()).hexdigest()
    assert kept.read_text() == user_data and kept.stat().st_mode & 0o777 == 0o600
    before = flow.instances()
    assert flow.run("heartbeat").returncode == 0  # the others have not reported yet
    operate(flow, "stop", "web-2", bootflow_shutdown_timeout=5)
    refused = flow.run("evacuate", bootflow_host=[dead.name])
    assert refused.returncode == 2 and "Compute service of %s is still in use" % dead.name in refused.output

    dead.run(*VIRSH, "destroy", before["web-1"]["uuid"])  # its power fails
    dead.fail("network")
    assert flow.run("host", bootflow_host=[dead.name], bootflow_host_state="forced_down").returncode == 0
    planned = flow.run("evacuate", "--check", bootflow_host=[dead.name])
    assert planned.returncode == 0 and "Would evacuate" in planned.output, planned.output
    assert {r["host"] for r in flow.instances().values()} == {dead.name}
    done = flow.run("evacuate", bootflow_host=[dead.name])
    assert done.returncode == 0, done.output
    rows = flow.instances()
    assert {r["host"] for r in rows.values()} <= {h.name for h in others}
    assert {n: (r["vm_state"], r["task_state"], guest(flow, n)) for n, r in rows.items()} == {
        "web-1": ("active", None, "running"),
        "web-2": ("stopped", None, "shut off"),
    }
    assert [r["uuid"] for r in rows.values()] == [r["uuid"] for r in before.values()]
    wait_ready(flow, "web-1")
    assert "user data runs on web-1" in flow.console(rows["web-1"]["host"], rows["web-1"]["uuid"])
    owed = flow.query("SELECT instance_uuid, host FROM cleanups")
    assert {(o["instance_uuid"], o["host"]) for o in owed} == {(r["uuid"], dead.name) for r in rows.values()}

    dead.restore()
    assert flow.run("host", bootflow_host=[dead.name], bootflow_host_state="up").returncode == 0
    audited = flow.run("audit")
    assert audited.returncode == 0, audited.output
    assert dead.run(*VIRSH, "list", "--all", "--name").stdout.split() == [] and not flow.query("SELECT 1 FROM cleanups")
    assert not set(dead.run("ls", "/var/lib/bootflow/instances").stdout.split()) & {r["uuid"] for r in rows.values()}
    assert states_of(flow) == {("active", None), ("stopped", None)}
    flow.check_ledger()
    flow.delete("web-1")
    assert kept.exists()
    flow.delete("web-2")
    assert flow.residue() == {} and not kept.exists()


@pytest.mark.long
def test_a_paused_guest_leaves_a_host_that_never_returns(flow: Flow) -> None:
    dead, *others = flow.lab.hosts
    flow.boot(entry("web"), **READY, bootflow_hosts=[dead.name])
    assert flow.run("heartbeat").returncode == 0
    operate(flow, "pause", "web")
    uuid = flow.instances()["web"]["uuid"]
    dead.run(*VIRSH, "destroy", uuid)
    dead.fail("network")
    try:
        assert flow.run("host", bootflow_host=[dead.name], bootflow_host_state="forced_down").returncode == 0
        refused = flow.run("evacuate", bootflow_names=["web"])
        assert refused.returncode == 2 and "bootflow.compute.reset_state" in refused.output, refused.output
        planned = flow.run("reset_state", "--check", "--diff", bootflow_names=["web"])
        assert planned.returncode == 0 and "paused -> error" in planned.output, planned.output
        assert states_of(flow) == {("paused", None)}
        done = flow.run("reset_state", bootflow_names=["web"])
        assert done.returncode == 0 and "paused -> error" in done.output, done.output
        assert states_of(flow) == {("error", None)}
        again = flow.run("reset_state", bootflow_names=["web"])
        assert again.returncode == 0 and "nothing to do" in again.output, again.output
        assert "resetState" in flow.run("events", bootflow_names=["web"]).output
        evacuated = flow.run("evacuate", bootflow_names=["web"])
        assert evacuated.returncode == 0, evacuated.output
        assert states_of(flow) == {("active", None)} and guest(flow, "web") == "running"
        assert flow.instances()["web"]["host"] in {h.name for h in others}
        wait_ready(flow, "web")
    finally:
        dead.restore()
    assert flow.run("host", bootflow_host=[dead.name], bootflow_host_state="up").returncode == 0
    audited = flow.run("audit")
    assert audited.returncode == 0, audited.output
    assert dead.run(*VIRSH, "list", "--all", "--name").stdout.split() == []
    flow.check_ledger()
    flow.delete("web")
    assert flow.residue() == {}
