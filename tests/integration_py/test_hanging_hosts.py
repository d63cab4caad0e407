# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""S8: hosts that hang, with processes that are really stopped. Every wait has an end, and everybody else's instances boot."""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
import typing as t
from pathlib import Path

import pytest
from flow import Flow, entry, settings_of_host
from private_libvirt import PrivateLibvirt

SOON = {"bootflow_libvirt_timeout": 6, "bootflow_report_timeout": 20, "bootflow_work_timeout": 10}
PROBE = """
import os, signal, sys, time
from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.libvirt.connection import connect, libvirt_errors

daemon = int(open("/run/libvirtd.pid").read())
begun = time.monotonic()
try:
    if sys.argv[1] == "open":
        os.kill(daemon, signal.SIGSTOP)
    with connect("qemu:///system", 6.0) as connection:
        time.sleep(9.0 if sys.argv[1] == "idle" else 0.0)
        if sys.argv[1] == "call":
            os.kill(daemon, signal.SIGSTOP)
        with libvirt_errors():
            connection.listAllDomains()
    print("answered")
except errors.HypervisorUnavailable as error:
    print("gave up", time.monotonic() - begun < 9.0, error.message)
finally:
    os.kill(daemon, signal.SIGCONT)
"""


@pytest.mark.parametrize(
    "when, said",
    [
        ("idle", "answered"),
        ("open", "gave up True Connection to the hypervisor is broken on host: private1"),
        ("call", "gave up True Connection to the hypervisor is broken on host: private1"),
    ],
)
def test_a_stopped_libvirtd_is_given_up(when: str, said: str, tmp_path: Path) -> None:
    with PrivateLibvirt(tmp_path) as host:
        tree = os.environ["PYTHONPATH"].split(":")[0]
        argv = [*host.prefix, "env", "PYTHONPATH=" + tree, "/usr/bin/python3", "-c", PROBE, when]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.startswith(said), done


@contextlib.contextmanager
def stopped_libvirtd(flow: Flow, name: str) -> t.Iterator[None]:
    host = flow.lab.host(name)
    host.run("sh", "-c", "kill -STOP $(cat /run/libvirtd.pid)")
    try:
        yield
    finally:
        host.run("sh", "-c", "kill -CONT $(cat /run/libvirtd.pid)")


def boot_beside_a_hanging_host(flow: Flow, **variables: t.Any) -> str:
    begun = time.monotonic()
    done = flow.boot(entry("late", max_count=3), **SOON, **variables)
    assert time.monotonic() - begun < 240, done.output
    rows = flow.instances()
    assert {r["vm_state"] for r in rows.values()} == {"active"}
    assert {r["host"] for r in rows.values()} <= {"compute2", "compute3"}, done.output
    flow.check_ledger()
    return done.output


def nothing_stays(flow: Flow) -> None:
    """After the host is back: what it still had goes when it reports again."""
    flow.delete(*flow.instances())
    flow.boot(entry("after"), bootflow_facts_max_age=0)
    flow.delete("after")
    assert flow.residue() == {}


def test_a_stopped_libvirtd_does_not_hold_a_report(flow: Flow) -> None:
    with stopped_libvirtd(flow, "compute1"):
        output = boot_beside_a_hanging_host(flow)
    assert "compute1 did not report and is left out" in output
    nothing_stays(flow)


def test_a_stopped_libvirtd_does_not_hold_a_build(flow: Flow) -> None:
    """Builds go to it because its report is fresh, and from it to the other hosts, which it does not hold up."""
    flow.run("heartbeat")
    with stopped_libvirtd(flow, "compute1"):
        boot_beside_a_hanging_host(flow)
    assert {r["host"] for r in flow.query("SELECT host FROM instance_faults")} == {"compute1"}
    nothing_stays(flow)


@pytest.mark.parametrize("hangs", ["the module", "the connection"])
def test_a_host_that_accepts_and_hangs_does_not_hold_a_build(flow: Flow, hangs: str) -> None:
    """Its interpreter sleeps, so that the module never begins; or what runs the module never answers."""
    flow.run("heartbeat")
    sleeper = flow.folder / "sleeper"
    sleeper.write_text("#!/bin/sh\nexec sleep 600\n")
    sleeper.chmod(0o755)
    how = {"ansible_python_interpreter": str(sleeper)}
    if hangs == "the connection":
        how = {"ansible_ssh_executable": str(sleeper)}
    with settings_of_host(flow.lab, "compute1", **how):
        begun = time.monotonic()
        output = boot_beside_a_hanging_host(flow)
        assert time.monotonic() - begun < 120, "the host is asked once, not again to clean it up"
    (fault,) = {(r["error_code"], r["host"]) for r in flow.query("SELECT error_code, host FROM instance_faults")}
    assert fault == ("HostTimeout", "compute1"), output
    nothing_stays(flow)


def test_the_module_of_a_host_that_is_given_up_works_no_longer(flow: Flow) -> None:
    """Its libvirtd is stopped for longer than the host has: the module ends by itself, before libvirt says that it is lost."""
    programs = flow.lab.host("compute1").run("pgrep", "python3").stdout
    with stopped_libvirtd(flow, "compute1"):
        variables = {**SOON, "bootflow_report_timeout": 3, "bootflow_libvirt_timeout": 300}
        done = flow.run("heartbeat", **variables)
        left = flow.lab.host("compute1").run("pgrep", "python3").stdout
    assert "did not end compute_node_info within 3 s" in done.output
    assert left == programs
