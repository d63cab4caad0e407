# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Hosts that hang, with processes that are really stopped. Every wait has an end, and everybody else's instances boot."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import time
import typing as t
from pathlib import Path

import pytest
from flow import Flow, entry, settings_of_host
from private_libvirt import PrivateLibvirt

from ansible_collections.bootflow.compute.tests.unit.worlds.volume_world import VolumeWorld

pytestmark = pytest.mark.usefixtures("still_guests")
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


@pytest.mark.long
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


@contextlib.contextmanager
def sleeping_interpreter(flow: Flow, name: str) -> t.Iterator[None]:
    """The host accepts SSH, and what is to run there never begins."""
    with settings_of_host(flow.lab, name, ansible_python_interpreter=sleeper(flow)):
        yield


def sleeper(flow: Flow) -> str:
    return program(flow, "sleeper", "exec sleep 600")


def program(flow: Flow, name: str, text: str) -> str:
    path = flow.folder / name
    path.write_text("#!/bin/sh\n%s\n" % text)
    path.chmod(0o755)
    return str(path)


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


@pytest.mark.long
def test_a_stopped_libvirtd_does_not_hold_a_report(flow: Flow) -> None:
    with stopped_libvirtd(flow, "compute1"):
        output = boot_beside_a_hanging_host(flow)
    assert "compute1 did not report and is left out" in output
    nothing_stays(flow)


@pytest.mark.long
def test_a_stopped_libvirtd_does_not_hold_a_build(flow: Flow) -> None:
    """Builds go to it because its report is fresh, and from it to the other hosts, which it does not hold up."""
    flow.run("heartbeat")
    with stopped_libvirtd(flow, "compute1"):
        boot_beside_a_hanging_host(flow)
    assert {r["host"] for r in flow.query("SELECT host FROM instance_faults")} == {"compute1"}
    nothing_stays(flow)


@pytest.mark.parametrize("hangs", ["the module", "the connection"])
@pytest.mark.long
def test_a_host_that_accepts_and_hangs_does_not_hold_a_build(flow: Flow, hangs: str) -> None:
    """Its interpreter sleeps, so that the module never begins; or what runs the module never answers."""
    flow.run("heartbeat")
    name = "ansible_ssh_executable" if hangs == "the connection" else "ansible_python_interpreter"
    with settings_of_host(flow.lab, "compute1", **{name: sleeper(flow)}):
        begun = time.monotonic()
        output = boot_beside_a_hanging_host(flow)
        assert time.monotonic() - begun < 120, "the host is asked once, not again to clean it up"
    (fault,) = {(r["error_code"], r["host"]) for r in flow.query("SELECT error_code, host FROM instance_faults")}
    assert fault == ("HostTimeout", "compute1"), output
    nothing_stays(flow)


@pytest.mark.long
def test_the_module_of_a_host_that_is_given_up_works_no_longer(flow: Flow) -> None:
    """Its libvirtd is stopped for longer than the host has: the module ends by itself, before libvirt says that it is lost."""
    programs = flow.lab.host("compute1").run("pgrep", "python3").stdout
    with stopped_libvirtd(flow, "compute1"):
        variables = {**SOON, "bootflow_report_timeout": 3, "bootflow_libvirt_timeout": 300}
        done = flow.run("heartbeat", **variables)
        left = flow.lab.host("compute1").run("pgrep", "python3").stdout
    assert "did not end compute_node_info within 3 s" in done.output
    assert left == programs


class Store:
    """Two volumes of a storage host of this machine, which says of each target that it is as it is to be."""

    def __init__(self, flow: Flow) -> None:
        self.flow = flow
        self.world = VolumeWorld("sqlite:///%s" % flow.ledger_path)
        self.world.time = time.time()
        configuration = {"volume_group": "vg", "target": "lio", "portals": ["127.0.0.1:1"]}
        self.world.store("store1", configuration=configuration, lvm=20)
        self.volumes = {name: self.world.make(name, size=1) for name in ("data-1", "data-2")}

    def answering_for(self, *names: str) -> tuple[str, str]:
        """Options of a run: an inventory of the host, where an answer about these volumes stands in for Python."""
        outcomes = {
            self.volumes[name]: {
                "changed": True,
                "error": None,
                "iqn": "iqn.2010-10.org.openstack:volume-" + self.volumes[name],
                "lun": 0,
                "portals": ["127.0.0.1:1"],
                "initiators": [],
                "sessions": [],
                "path": "/dev/vg/" + name,
            }
            for name in names
        }
        answer = "echo '%s'" % json.dumps({"changed": True, "outcomes": outcomes})
        python = program(self.flow, "-".join(names), answer)
        host = {"ansible_connection": "local", "ansible_python_interpreter": python}
        inventory = Path(python + ".json")
        inventory.write_text(json.dumps({"bootflow_storage": {"hosts": {"store1": host}}}))
        return "-i", str(inventory)

    def states(self) -> dict[str, str]:
        return {name: self.world.status(name) for name in self.volumes}


@pytest.mark.long
def test_whatever_a_hanging_host_is_asked_ends_and_is_completed_later(flow: Flow) -> None:
    """Delete, stop, attach and audit. Nothing is given back that the host may still have."""

    def claims() -> list[tuple[t.Any, ...]]:
        return [tuple(row) for row in flow.query("SELECT * FROM claims ORDER BY instance_uuid")]

    names = ["goes-1", "goes-2", "keeps", "stays"]
    flow.boot(entry("stays"), entry("keeps"), entry("goes", max_count=2), bootflow_hosts=["compute1"])
    flow.variables["bootflow_volume_attach"] = "qemu"
    store = Store(flow)
    before = claims()
    assert len(before) == 4
    limits = {"bootflow_work_timeout": 6, "bootflow_report_timeout": 6, "bootflow_libvirt_timeout": 300}
    for number, hanging in (("1", stopped_libvirtd(flow, "compute1")), ("2", sleeping_interpreter(flow, "compute1"))):
        data = "data-" + number
        with hanging:
            begun = time.monotonic()
            deleted, stopped, audited, attached = flow.run_together(
                ("delete", {**limits, "bootflow_names": ["goes-" + number]}),
                ("stop", {**limits, "bootflow_names": ["stays"], "bootflow_shutdown_timeout": 1}),
                ("audit", {**limits, "bootflow_audit_hosts": ["compute1"]}),
                (
                    "attach_volume",
                    {**limits, "bootflow_attachments": [{"instance": "keeps", "volume": data}]},
                    *store.answering_for(data),
                ),
            )
            assert time.monotonic() - begun < 180
        for done, words in (
            (
                deleted,
                "goes-%s on compute1: HostTimeout: Host compute1 did not end instance_cleanup within 6 s" % number,
            ),
            (stopped, "stays on compute1: HostTimeout: Host compute1 did not end domain_power within 7 s"),
            (attached, "%s (keeps): HostTimeout: Host compute1 did not end iscsi_secret within 6 s" % data),
        ):
            assert done.returncode == 2 and words in done.output, done.output
        assert audited.returncode == 0, audited.output
        assert "compute1 did not answer: Host compute1 did not end compute_node_info within 6 s" in audited.output
        rows = flow.instances()
        assert sorted(rows) == names and {(r["vm_state"], r["host"]) for r in rows.values()} == {("active", "compute1")}
        going = {name for name in rows if rows[name]["task_state"] == "deleting"}
        assert going == {"goes-" + n for n in ("1", "2") if n <= number}
        assert {rows[name]["task_state"] for name in names if name not in going} == {None}
        assert claims() == before
        assert store.states()[data] == "attaching", "the guest may have it"
        flow.check_ledger()

    audited = flow.run("audit", bootflow_audit_hosts=["compute1"])
    assert "Deleted: goes-1, goes-2" in audited.output and sorted(flow.instances()) == ["keeps", "stays"], (
        audited.output
    )
    stopped = flow.run("stop", bootflow_names=["stays"], bootflow_shutdown_timeout=1)
    assert stopped.returncode == 0 and flow.instances()["stays"]["vm_state"] == "stopped", stopped.output
    deleted = flow.run("delete", *store.answering_for("data-1", "data-2"), bootflow_names=["keeps", "stays"])
    assert deleted.returncode == 0, deleted.output
    assert store.states() == {"data-1": "available", "data-2": "available"}
    assert flow.query("SELECT * FROM volume_attachments WHERE deleted = ''") == []
    assert flow.residue() == {}
