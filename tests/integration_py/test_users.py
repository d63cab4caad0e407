# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""QEMU is another user than root, as Debian's packages have it: what it may open, and what stays root's."""

from __future__ import annotations

import pytest
from flow import Flow, entry

INSTANCES = "/var/lib/bootflow/instances"


def bases(flow: Flow, host: str) -> list[str]:
    """Owner, group, mode and number of each base image."""
    script = "stat -c '%%U %%G %%a %%i' %s/_base/*.raw" % INSTANCES
    return sorted(flow.lab.host(host).run("sh", "-c", script).stdout.splitlines())


def qemu_of(flow: Flow, name: str) -> list[str]:
    """The user of a guest's process, and its mount namespace."""
    row = flow.instances()[name]
    script = (
        "pid=$(cat /run/libvirt/qemu/%s.pid) && stat -c %%U /proc/$pid && readlink /proc/$pid/ns/mnt"
        % row["domain_name"]
    )
    return flow.lab.host(row["host"]).run("sh", "-c", script).stdout.split()


@pytest.mark.usefixtures("still_guests")
def test_two_guests_share_a_base_image_that_stays_root_s(flow: Flow) -> None:
    """libvirt gives a guest's disks to QEMU's user and back; of what is many guests' it would give all away with the first."""
    flow.boot(entry("web", max_count=2), bootflow_hosts=["compute1"])
    before = bases(flow, "compute1")
    assert before and all(line.startswith("root root 644 ") for line in before)
    users, namespaces = zip(*(qemu_of(flow, "web-%d" % n) for n in (1, 2)))
    assert set(users) == {"libvirt-qemu"} and len(set(namespaces)) == 2
    disk = "%s/%s/disk" % (INSTANCES, flow.instances()["web-1"]["uuid"])
    owner = ("stat", "-c", "%U %a", disk)
    host = flow.lab.host("compute1")
    assert host.run(*owner).stdout.split() == ["libvirt-qemu", "600"]
    for playbook in ("stop", "start", "stop"):
        done = flow.run(playbook, bootflow_names=["web-1"], bootflow_shutdown_timeout=1)
        assert done.returncode == 0, done.output
        assert bases(flow, "compute1") == before
    assert host.run(*owner).stdout.split() == ["root", "600"]
    flow.delete("web-1")
    assert bases(flow, "compute1") == before and qemu_of(flow, "web-2")[0] == "libvirt-qemu"
    flow.delete("web-2")
    assert bases(flow, "compute1") == before and flow.residue() == {}


@pytest.mark.usefixtures("still_guests")
def test_a_ledger_of_the_same_machine_does_not_close_the_folder_of_instances(flow: Flow) -> None:
    host = flow.lab.host("compute1")
    made = flow.folder / "made" / "ledger.db"
    flow.variables["bootflow_ledger_url"] = "sqlite:///%s" % made
    assert flow.run("heartbeat").returncode == 0 and made.exists()
    mode = "%o" % (made.parent.stat().st_mode & 0o7777)
    host.run("rm", "-rf", "/var/lib/bootflow")
    host.run("mkdir", "-m", mode, "/var/lib/bootflow")  # as a ledger on that host would have made it
    flow.ledger_path = made
    flow.boot(entry("web"), bootflow_hosts=["compute1"])
    assert qemu_of(flow, "web")[0] == "libvirt-qemu"
    flow.delete("web")
