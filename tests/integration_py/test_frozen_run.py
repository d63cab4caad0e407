# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A run that stands still for longer than its lease, as when its controller sleeps, and goes on when another one has moved its instance away.

That no guest ever runs twice is checked for each test (conftest.py).
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time

import pytest
from flow import Flow, entry, family_of
from test_rivals import agree

LEASE = {"bootflow_lease_seconds": 30}


def send(process: subprocess.Popen, number: signal.Signals) -> None:
    """The signal to the run, its workers and their ssh; the workers are in sessions of their own."""
    for pid in family_of(process.pid):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


@pytest.mark.long
@pytest.mark.usefixtures("still_guests")
@pytest.mark.parametrize("pause", [0.0, 0.15, 0.3, 0.45, 0.6])
def test_a_start_goes_on_when_the_instance_went_to_another_host(flow: Flow, pause: float) -> None:
    """Its domain is still defined on the former host, as the move is not confirmed."""
    names = {"bootflow_names": ["web"]}
    flow.boot(entry("web"))
    assert flow.run("stop", **names, bootflow_shutdown_timeout=0).returncode == 0
    process = flow.start("start", {**names, **LEASE})
    try:
        flow.wait_for("SELECT 1 FROM instances WHERE task_state = 'powering-on'", 60, process)
        time.sleep(pause)
        send(process, signal.SIGSTOP)
        time.sleep(LEASE["bootflow_lease_seconds"] + 1.0)
        for playbook in ("start", "migrate"):
            done = flow.run(playbook, **names, bootflow_shutdown_timeout=0)
            assert done.returncode == 0, done.output
    finally:
        send(process, signal.SIGCONT)
    process.wait(timeout=120)
    assert "Traceback" not in (flow.folder / "killed.log").read_text()
    assert flow.run("confirm_resize", **names).returncode == 0
    agree(flow)
    flow.delete("web")
    assert flow.residue() == {}
