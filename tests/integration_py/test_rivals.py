# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Runs on the same instances at once, and runs that die in the middle. That no guest ever runs twice is checked for each test (conftest.py)."""

from __future__ import annotations

import time

import pytest
from flow import Flow, entry
from test_apply import applied, plan
from test_operations import DEAF, READY, guest, operate, states_of

POWER = {"active": "running", "stopped": "shut off", "paused": "paused", "suspended": "shut off"}


def agree(flow: Flow) -> None:
    """No instance is being worked on, and each guest is what the ledger says."""
    for name, row in flow.instances().items():
        assert row["task_state"] is None and guest(flow, name) == POWER[row["vm_state"]], (name, tuple(row))
    flow.check_ledger()


@pytest.mark.long
def test_of_runs_on_one_instance_one_wins(flow: Flow) -> None:
    """While its deaf guest is asked to shut down, everybody else is told who works on it."""
    flow.boot(entry("deaf", user_data=DEAF), **READY)
    names = {"bootflow_names": ["deaf"], "bootflow_shutdown_timeout": 15}
    playbooks = ("stop", "stop", "pause", "suspend", "rescue")
    runs = flow.run_together(*((playbook, names) for playbook in playbooks))
    winners = [p for p, run in zip(playbooks, runs) if run.returncode == 0]
    assert len(winners) >= 1, "\n".join(run.output for run in runs)
    for run in runs:
        assert run.returncode == 0 or any(c in run.output for c in ("InstanceBusy", "InstanceInvalidState")), run.output
    begun = flow.query("SELECT action, message FROM instance_actions WHERE action != 'create'")
    assert len(begun) <= len(winners) and all(row["message"] is None for row in begun), "who was told did nothing"
    (row,) = flow.instances().values()
    if row["vm_state"] == "rescued":
        operate(flow, "unrescue", "deaf")
    agree(flow)
    flow.delete("deaf")
    assert flow.residue() == {}


@pytest.mark.long
def test_two_applies_at_once_make_one_fleet(flow: Flow) -> None:
    """Each instance once, whoever boots it; who is told to try again finds the rest done."""
    for file in (
        [entry("web", count=3), entry("db")],
        [entry("web", count=2, metadata={"a": "b"}), entry("db", state="stopped"), entry("new")],
    ):
        wanted = {
            "bootflow_instances": file,
            "bootflow_prune": True,
            "bootflow_prune_max": 5,
            "bootflow_shutdown_timeout": 5,
            **READY,
        }
        runs = flow.run_together(("apply", wanted), ("apply", wanted), ("apply", wanted))
        assert any(run.returncode == 0 for run in runs), "\n".join(run.output for run in runs)
        assert not any("Traceback" in run.output or "InternalError" in run.output for run in runs)
        assert "nothing to do" in applied(flow, *file, bootflow_prune=True)
        agree(flow)
    assert sorted(flow.instances()) == ["db", "new", "web-1", "web-2"]
    applied(flow, bootflow_prune=True)
    assert flow.residue() == {}


@pytest.mark.long
def test_an_apply_that_is_killed(flow: Flow) -> None:
    """At any moment of a run that boots, changes, rebuilds, resizes and deletes: the next one makes the fleet as its file has it."""
    flow.variables["bootflow_flavors"] = [
        *flow.variables["bootflow_flavors"],
        {"name": "more", "vcpus": 1, "memory_mb": 224, "root_gb": 1},
    ]
    (image,) = flow.variables["bootflow_images"]
    flow.variables["bootflow_images"] = [image, {**image, "name": "newer"}]
    allow = {"allow": ["rebuild", "resize"]}
    files = (
        [entry("web", count=2, flavor="more", **allow), entry("db", image="newer", **allow), entry("new")],
        [entry("web", **allow), entry("db", state="stopped", **allow), entry("old", state="paused")],
    )
    applied(flow, *files[1], bootflow_shutdown_timeout=5)
    for round_, seconds in enumerate((3.0, 6.0, 9.0, 12.0, 16.0, 20.0)):
        file = files[round_ % 2]
        wanted = {"bootflow_instances": file, "bootflow_prune": True, "bootflow_prune_max": 5, **READY}
        process = flow.start("apply", {**wanted, "bootflow_shutdown_timeout": 5})
        time.sleep(seconds)
        flow.kill(process)
        last = ""
        for _again in range(3):  # a first run may have to settle what the dead one left, before all can be changed
            done = flow.run("apply", **wanted, bootflow_shutdown_timeout=5)
            assert "Traceback" not in done.output, done.output
            last = done.output
            if done.returncode == 0 and plan(last)[-1].startswith("nothing to do"):
                break
        else:
            raise AssertionError(last)
        agree(flow)
    applied(flow, bootflow_prune=True, bootflow_prune_max=5)
    assert flow.residue() == {}


@pytest.mark.long
@pytest.mark.parametrize("then", ["rebuild", "audit"])
def test_a_rebuild_that_is_killed(flow: Flow, then: str) -> None:
    """The same again makes it whole; an audit leaves it running as it was, or in error, to be rebuilt."""
    flow.boot(entry("web"), **READY)
    for seconds in (0.0, 0.4, 0.8, 1.2, 1.8, 2.5):
        process = flow.start("rebuild", {"bootflow_names": ["web"]})
        flow.wait_for("SELECT 1 FROM instances WHERE task_state LIKE 'rebuild%'", 60, process)
        time.sleep(seconds)
        flow.kill(process)
        if then == "audit":
            audited = flow.run("audit")
            assert audited.returncode == 0, audited.output
            (state,) = states_of(flow)
            assert state[1] is None and state[0] in ("active", "stopped", "error"), audited.output
        operate(flow, "rebuild", "web")
        if states_of(flow) == {("stopped", None)}:  # a stopped one stays off
            operate(flow, "start", "web")
        agree(flow)
        assert states_of(flow) == {("active", None)}
    flow.delete("web")
    assert flow.residue() == {}


@pytest.mark.long
def test_an_evacuation_that_is_killed(flow: Flow) -> None:
    """The same again, or an audit and the same again; the dead host comes back in between and gets nothing of it."""
    dead = flow.lab.hosts[0]
    flow.boot(entry("web", max_count=2), **READY, bootflow_hosts=[dead.name])
    uuids = {r["uuid"] for r in flow.instances().values()}
    assert flow.run("heartbeat").returncode == 0
    for uuid in uuids:
        dead.run("virsh", "-q", "-c", "qemu:///system", "destroy", uuid)
    dead.fail("network")
    assert flow.run("host", bootflow_host=[dead.name], bootflow_host_state="forced_down").returncode == 0
    for seconds in (0.0, 0.5, 1.0, 2.0):
        process = flow.start("evacuate", {"bootflow_host": [dead.name]})
        try:
            flow.wait_for("SELECT 1 FROM instances WHERE task_state IS NOT NULL", 60, process)
        except AssertionError:
            if {r["host"] for r in flow.instances().values()} & {dead.name}:
                raise
            break  # an earlier one had come so far that its hosts' reports end it
        time.sleep(seconds)
        flow.kill(process)
        if seconds >= 1.0:
            flow.run("audit")
    done = flow.run("evacuate", bootflow_host=[dead.name])
    assert done.returncode == 0, done.output
    for name, row in flow.instances().items():
        if row["vm_state"] == "error":
            operate(flow, "rebuild", name)
    assert {r["uuid"] for r in flow.instances().values()} == uuids
    assert dead.name not in {r["host"] for r in flow.instances().values()}
    agree(flow)
    dead.restore()
    assert flow.run("host", bootflow_host=[dead.name], bootflow_host_state="up").returncode == 0
    audited = flow.run("audit")
    assert audited.returncode == 0 and not flow.query("SELECT 1 FROM cleanups"), audited.output
    assert not dead.run("virsh", "-q", "-c", "qemu:///system", "list", "--all", "--name").stdout.split()
    agree(flow)
    flow.delete(*flow.instances())
    assert flow.residue() == {}
