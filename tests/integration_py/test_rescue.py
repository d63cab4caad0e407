# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Guests rescued on real hosts: what they boot, what they see of their own disks, and that their domains come back to the letter."""

from __future__ import annotations

import re
import sqlite3
import subprocess
import time

import pytest
from flow import Flow, entry, image_file
from test_operations import READY, guest, operate, states_of, virsh, wait_ready

# The label of the guest's own root disk, from then on.
KEEP = "#!/bin/sh\nprintf 'KEPT       ' | dd of=/dev/vda1 bs=1 seek=43 conv=notrunc\n"
OF_A_RESCUE = {"disk.rescue", "disk.config.rescue", "unrescue.xml"}


def definition(flow: Flow, name: str) -> str:
    row = flow.instances()[name]
    argv = ("virsh", "-c", "qemu:///system", "dumpxml", "--inactive", "--security-info", row["uuid"])
    return flow.lab.host(row["host"]).run(*argv).stdout


def files(flow: Flow, name: str) -> set[str]:
    row = flow.instances()[name]
    listed = flow.lab.host(row["host"]).run("ls", "/var/lib/bootflow/instances/%s" % row["uuid"]).stdout
    return {file for file in listed.split() if "rescue" in file}


def disks(flow: Flow, name: str) -> dict[str, str]:
    """What the guest says of its disks: name -> label."""
    row = flow.instances()[name]
    console = flow.console(row["host"], row["uuid"])
    return dict(re.findall(r"BOOTFLOW-GUEST-DISK name=(\w+) bytes=\d+ label=(\S*) ", console))


def audit(flow: Flow) -> str:
    """Until it has settled what the killed run left: it waits for the module of that."""
    deadline = time.monotonic() + 60
    while True:
        done = flow.run("audit").output
        ((_vm_state, task_state),) = states_of(flow)
        if task_state is None:
            return done
        assert "still works on the guest" in done and time.monotonic() < deadline, done


def test_rescue_and_unrescue(flow: Flow) -> None:
    large = flow.folder / "large.qcow2"
    subprocess.run(["qemu-img", "create", "-q", "-f", "qcow2", str(large), "5G"], check=True)
    digest = subprocess.run(["sha256sum", str(large)], stdout=subprocess.PIPE, text=True, check=True).stdout
    (flow.folder / "large.qcow2.sha256").write_text(digest)
    flow.variables["bootflow_images"].append({"name": "large", **image_file(large), "disk_format": "qcow2"})
    flow.boot(entry("web", flavor="full", user_data=KEEP, config_drive=True), **READY)
    before, life = definition(flow, "web"), virsh(flow, "web", "domid")

    assert "ImageNotFound" in operate(flow, "rescue", "web", expect=2, bootflow_rescue_image_ref="gest")
    refused = operate(flow, "rescue", "web", expect=2, bootflow_rescue_image_ref="large")
    assert "FlavorDiskSmallerThanImage" in refused and "bootflow_rescue_image_ref" in refused
    assert states_of(flow) == {("active", None)} and virsh(flow, "web", "domid") == life
    assert definition(flow, "web") == before and files(flow, "web") == set(), "the guest was left alone"

    passwords = flow.folder / "passwords"
    done = operate(flow, "rescue", "web", bootflow_admin_password_dir=str(passwords))
    assert "lost its power" not in done, "it shut down when it was asked"
    row = flow.instances()["web"]
    assert states_of(flow) == {("rescued", None)} and guest(flow, "web") == "running"
    assert files(flow, "web") == OF_A_RESCUE
    host, folder = flow.lab.host(row["host"]), "/var/lib/bootflow/instances/%s/" % row["uuid"]
    assert host.run("stat", "-c", "%a %u", folder + "unrescue.xml").stdout.split() == ["600", "0"]
    (password,) = [p.read_text().strip() for p in passwords.iterdir() if p.name == row["uuid"] + ".rescue"]
    assert host.run("grep", "-a", "-c", password, folder + "disk.config.rescue").stdout.strip() != "0"
    assert host.run("grep", "-a", "-c", password, folder + "disk.config", check=False).stdout.strip() == "0"
    wait_ready(flow, "web")
    seen = disks(flow, "web")
    assert (seen["vda1"], seen["vdb1"]) == ("BFGUEST", "KEPT"), seen
    assert seen["vdc"].startswith("ephemeral") and "vdd" in seen

    assert "InstanceInvalidState" in operate(flow, "stop", "web", expect=2)
    assert "nothing to do" in operate(flow, "rescue", "web")
    audited = flow.run("audit")
    assert audited.returncode == 0 and states_of(flow) == {("rescued", None)}, audited.output
    assert files(flow, "web") == OF_A_RESCUE and guest(flow, "web") == "running"
    with sqlite3.connect(flow.ledger_path, timeout=30) as ledger:  # as where the host's answer is lost
        ledger.execute("UPDATE instances SET vm_state = 'active'")
    ledger.close()
    assert flow.run("heartbeat").returncode == 0 and states_of(flow) == {("rescued", None)}
    assert "nothing to do" in operate(flow, "rescue", "web")

    operate(flow, "unrescue", "web")
    assert states_of(flow) == {("active", None)} and definition(flow, "web") == before
    assert files(flow, "web") == set()
    wait_ready(flow, "web")
    assert disks(flow, "web")["vda1"] == "KEPT"
    operate(flow, "rescue", "web")
    flow.check_ledger()
    flow.delete("web")
    assert flow.residue() == {}


@pytest.mark.long
@pytest.mark.parametrize("then", ["rescue", "audit"])
def test_a_rescue_that_is_killed(flow: Flow, then: str) -> None:
    """At any moment: the same again goes on with it, or an audit says what the domain is, and its end brings the guest back."""
    flow.boot(entry("web"), **READY)
    before = definition(flow, "web")
    for moment in (0.0, 0.7, 1.4, 2.1):
        process = flow.start("rescue", {"bootflow_names": ["web"]})
        flow.wait_for("SELECT 1 FROM instances WHERE task_state = 'rescuing'", 60, process)
        time.sleep(moment)
        flow.kill(process)
        done = operate(flow, then, "web") if then == "rescue" else audit(flow)
        is_rescue = "disk.rescue" in definition(flow, "web")
        (state,) = states_of(flow)
        assert state == ("rescued" if is_rescue else "active", None), done
        assert is_rescue or then == "audit"
        if is_rescue:
            process = flow.start("unrescue", {"bootflow_names": ["web"]})
            flow.wait_for("SELECT 1 FROM instances WHERE task_state = 'unrescuing'", 60, process)
            time.sleep(moment)
            flow.kill(process)
            done = operate(flow, "unrescue", "web") if then == "rescue" else audit(flow)
            (state,) = states_of(flow)
            assert state[1] is None and ("disk.rescue" in definition(flow, "web")) == (state[0] == "rescued"), done
            if state[0] != "active":
                operate(flow, "unrescue" if state[0] == "rescued" else "start", "web")
        if guest(flow, "web") != "running":  # the killed rescue shut it down, and nothing more
            assert then == "audit" and not is_rescue
            flow.run("power_sync")
            assert states_of(flow) == {("stopped", None)}
            operate(flow, "start", "web")
        assert states_of(flow) == {("active", None)} and guest(flow, "web") == "running"
        assert definition(flow, "web") == before
    operate(flow, "rescue", "web")
    operate(flow, "unrescue", "web")
    assert files(flow, "web") == set() and definition(flow, "web") == before
    flow.delete("web")
    assert flow.residue() == {}


@pytest.mark.long
def test_a_stopped_guest_another_image_and_raw_disks(flow: Flow) -> None:
    flow.variables["bootflow_images"].append({**flow.variables["bootflow_images"][0], "name": "helper"})
    flow.variables["bootflow_images"][1]["properties"] = {"hw_rescue_bus": "scsi"}
    flow.variables["bootflow_disk_backend"] = "raw"
    flow.boot(entry("web", user_data=KEEP), **READY)
    before = definition(flow, "web")
    operate(flow, "stop", "web")
    operate(flow, "rescue", "web", bootflow_rescue_image_ref="helper")
    wait_ready(flow, "web")
    seen = disks(flow, "web")
    assert (seen["vda1"], seen["sda1"]) == ("KEPT", "BFGUEST"), "the own disk keeps its name"
    # Its power is its own matter: the rescue stays.
    virsh(flow, "web", "destroy")
    flow.run("power_sync")
    assert states_of(flow) == {("rescued", None)}
    operate(flow, "unrescue", "web")
    assert definition(flow, "web") == before and guest(flow, "web") == "running"
    flow.delete("web")
    assert flow.residue() == {}
