# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A guest that plain virsh made is adopted, operated and released on a real host, and never notices."""

from __future__ import annotations

import time

import pytest
from flow import Flow, entry
from test_audit import idle_audit
from test_operations import guest, operate

UUID = "a0000000-0000-4000-8000-0000000000aa"
MAC = "52:54:00:00:ad:01"
ADDRESS = "10.77.0.99"
FOLDER = "/var/lib/libvirt/images"
VIRSH = ("virsh", "-q", "-c", "qemu:///system")
DEFINITION = """
<domain type='qemu'><name>plain</name><uuid>%s</uuid><memory unit='MiB'>200</memory><vcpu>1</vcpu>
<os><type arch='x86_64' machine='pc'>hvm</type></os><features><acpi/></features>
<devices>
<disk type='file' device='disk'><driver name='qemu' type='qcow2'/><source file='%s/plain.qcow2'/><target dev='vda' bus='virtio'/></disk>
<interface type='network'><mac address='%s'/><source network='bf-guests'/><model type='virtio'/></interface>
<serial type='pty'><log file='/var/log/libvirt/qemu/plain-console.log' append='on'/></serial>
</devices></domain>"""


@pytest.mark.long
def test_a_guest_of_virsh_is_adopted_operated_and_released(flow: Flow, guest_image) -> None:
    host, other = flow.lab.hosts[0], flow.lab.hosts[1]
    flow.boot(entry("ours"), bootflow_hosts=[host.name])  # the network is there by that
    assert flow.run("heartbeat").returncode == 0
    host.run("mkdir", "-p", FOLDER)
    host.run("cp", str(guest_image), FOLDER + "/plain.qcow2")
    host.run(
        "sh",
        "-c",
        'printf %s "$1" | virsh -q -c qemu:///system define /dev/stdin',
        "sh",
        DEFINITION % (UUID, FOLDER, MAC),
    )
    host.run(*VIRSH, "start", UUID)

    def console() -> str:
        return host.run("cat", "/var/log/libvirt/qemu/plain-console.log", check=False).stdout

    def wait_boots(count: int) -> None:
        end = time.monotonic() + 150
        while console().count("BOOTFLOW-GUEST-READY") < count:
            assert time.monotonic() < end, console()[-2000:]
            time.sleep(0.5)

    def life() -> tuple[str, str]:
        """The number of this start of the guest, and its devices."""
        xml = host.run(*VIRSH, "dumpxml", UUID).stdout
        return host.run(*VIRSH, "domid", UUID).stdout.strip(), xml[xml.index("<devices>") :]

    try:
        wait_boots(1)
        bridge = host.run(*VIRSH, "net-info", "bf-guests").stdout.partition("Bridge:")[2].split()[0]
        host.run("ip", "neigh", "replace", ADDRESS, "lladdr", MAC, "dev", bridge)
        before = life()

        planned = flow.run("adopt", "--check")
        assert planned.returncode == 0 and "1 to adopt." in planned.output, planned.output
        assert "guests=" + ADDRESS in planned.output, planned.output
        assert set(flow.instances()) == {"ours"}
        assert "bootflow:owner" not in host.run(*VIRSH, "dumpxml", UUID).stdout

        done = flow.run("adopt", bootflow_adopt_domains=["plain"])
        assert done.returncode == 0 and "1 adopted." in done.output, done.output
        assert life() == before
        for options in ((), ("--inactive",)):
            xml = host.run(*VIRSH, "dumpxml", UUID, *options).stdout
            assert "<bootflow:owner" in xml and "adopted='yes'" in xml.replace('"', "'"), xml
        row = flow.instances()["plain"]
        assert (row["uuid"], row["vm_state"], row["host"], row["memory_mb"]) == (UUID, "active", host.name, 200)
        claim = [
            tuple(r) for r in flow.query("SELECT memory_mb, disk_gb, vcpus FROM claims WHERE instance_uuid = ?", UUID)
        ]
        assert claim == [(200, row["root_gb"], 1)] and row["root_gb"] >= 1
        listed = flow.run("list").output
        assert "guests=" + ADDRESS in listed and "adopted" in listed, listed
        assert idle_audit(flow) == []
        again = flow.run("adopt", bootflow_adopt_domains=["plain"])
        assert again.returncode == 0 and "1 adopted before." in again.output and "changed=0" in again.output, (
            again.output
        )

        taken = flow.boot(entry("second", networks=[{"network": "guests", "fixed_ip": ADDRESS}]), expect=2)
        assert "of instance plain" in taken.output, taken.output

        operate(flow, "stop", "plain", bootflow_shutdown_timeout=20)
        assert guest(flow, "plain") == "shut off"
        operate(flow, "start", "plain")
        wait_boots(2)
        operate(flow, "pause", "plain")
        assert guest(flow, "plain") == "paused"
        operate(flow, "unpause", "plain")
        started = life()
        said = operate(flow, "console", "plain")
        assert "BOOTFLOW-GUEST-READY" in said, said[-1500:]
        refused = operate(flow, "live_migrate", "plain", expect=2, bootflow_live_migrate_host=other.name)
        assert "InstanceIsAdopted" in refused or "it is adopted" in refused, refused
        refused = operate(flow, "delete", "plain", expect=2)
        assert "it is adopted" in refused and guest(flow, "plain") == "running", refused

        released = operate(flow, "release", "plain")
        assert "its domain stays" in released and set(flow.instances()) == {"ours"}
        assert life() == started and console().count("BOOTFLOW-GUEST-READY") == 2
        assert "bootflow:owner" not in host.run(*VIRSH, "dumpxml", UUID).stdout
        assert "bootflow:owner" not in host.run(*VIRSH, "dumpxml", UUID, "--inactive").stdout
        assert [f["kind"] for f in idle_audit(flow)] == ["foreign_domain"]

        done = flow.run("adopt", bootflow_adopt_all=True)
        assert done.returncode == 0 and flow.instances()["plain"]["uuid"] == UUID, done.output
        assert [
            tuple(r) for r in flow.query("SELECT memory_mb, disk_gb, vcpus FROM claims WHERE instance_uuid = ?", UUID)
        ] == claim
        operate(flow, "release", "plain")
    finally:
        host.run(*VIRSH, "destroy", UUID, check=False)
        host.run(*VIRSH, "undefine", UUID, check=False)
        host.run("rm", "-f", FOLDER + "/plain.qcow2", "/var/log/libvirt/qemu/plain-console.log", check=False)
    flow.delete("ours")
    assert flow.residue() == {}
