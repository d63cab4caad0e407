# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The kernel kills a module on its host, or a run dies with all of its workers: what their host goes on with, and who ends it."""

from __future__ import annotations

import threading
import time

import pytest
from flow import Flow, entry
from test_moves import ended, offers
from test_operations import COUNTING, READY, guest, operate, states_of, ticks, virsh

# As soon as libvirt saves the guest's memory, which it does to its end. The module's process is in the name of its lock.
KILL_SAVE = """
until virsh -c qemu:///system domstate %(uuid)s | grep -q paused; do :; done
for lock in /run/bootflow/locks/work-%(uuid)s-*; do kill -KILL "${lock##*-}"; done
"""


@pytest.mark.long
def test_a_suspend_whose_module_is_killed(flow: Flow) -> None:
    """The answer is lost, and the guest looks as if it had shut itself down. What it had in memory is there with its next start."""
    flow.boot(entry("web", user_data=COUNTING), **READY)
    row = flow.instances()["web"]
    host = flow.lab.host(row["host"])
    killer = threading.Thread(target=host.run, args=("sh", "-c", KILL_SAVE % {"uuid": row["uuid"]}))
    killer.start()
    failed = operate(flow, "suspend", "web", expect=2)
    killer.join()
    assert "ModuleKilled" in failed and states_of(flow) == {("active", None)}
    end = time.monotonic() + 60
    while guest(flow, "web") != "shut off":
        assert time.monotonic() < end
        time.sleep(0.2)
    before = max(ticks(flow, "web"))
    flow.run("power_sync")
    assert states_of(flow) == {("stopped", None)} and "yes" in virsh(flow, "web", "dominfo").split("Managed save:")[1]
    operate(flow, "start", "web")
    end = time.monotonic() + 20
    while max(ticks(flow, "web"), default=0) <= before:
        assert time.monotonic() < end, ticks(flow, "web")
        time.sleep(0.2)
    assert min(ticks(flow, "web")) >= before, "it did not boot again"
    flow.delete("web")
    assert flow.residue() == {}


@pytest.mark.usefixtures("still_guests")
@pytest.mark.parametrize("then", ["start", pytest.param("migrate", marks=pytest.mark.long), "delete"])
def test_disks_that_a_dead_run_offers(flow: Flow, then: str) -> None:
    """Their process holds a port and the disks, and nobody fetches them any more."""
    flow.boot(entry("web"))
    row = flow.instances()["web"]
    others = [host for host in flow.lab.hosts if host.name != row["host"]]
    for host in others:
        host.fail("network")
    process = flow.start("migrate", {"bootflow_names": ["web"], "bootflow_shutdown_timeout": 0})
    log = flow.folder / "killed.log"
    end = time.monotonic() + 60
    # The process outlives the run only once its module has answered, which the next play shows.
    while not offers(flow, row["host"]) or "PLAY [Copy the disks]" not in log.read_text():
        assert time.monotonic() < end and process.poll() is None, log.read_text()
        time.sleep(0.05)
    flow.kill(process)
    time.sleep(2)
    assert offers(flow, row["host"]) == 1, "it waits for the new host"
    for host in others:
        host.restore()
    if then == "delete":
        flow.delete("web")
    else:
        operate(flow, "start", "web")
        assert guest(flow, "web") == "running"
    if then == "migrate":
        operate(flow, "migrate", "web", bootflow_shutdown_timeout=0)
        assert flow.instances()["web"]["host"] != row["host"]
    ended(flow)
    if then != "delete":
        flow.delete("web")
    assert flow.residue() == {}
