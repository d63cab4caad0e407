# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Guests where libvirt confines them as Debian's packages do: AppArmor, QEMU as libvirt-qemu, in a mount namespace.

The compute hosts are emulated machines on the network of a lab; their guests are boot sectors that count (counting_guest). What
volumes and logical volumes do there is in tests/storage_py, whose compute hosts are the same machines.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import time
import typing as t
from pathlib import Path

import counting_guest
import kernel_way
import pytest
import storage_vm
from counting_guest import ticks
from flow import CACHE, Flow
from kernel_way import ComputeHost

MIB = 1024**2
INSTANCES = "/var/lib/bootflow/instances"
BRIDGE = "br-confined"
IMAGE_SIZE = 32 * MIB
NETWORK = {
    "name": "plain",
    "type": "bridge",
    "source": BRIDGE,
    "subnets": [{"name": "plain-v4", "cidr": "10.79.0.0/24"}],
}
OTHER_NETWORK = {**NETWORK, "name": "other", "subnets": [{"name": "other-v4", "cidr": "10.80.0.0/24"}]}
PROFILE = re.compile(r"libvirt-([0-9a-f-]{36}) \(enforce\)")


@contextlib.contextmanager
def confining_host(lab: t.Any, number: int) -> t.Iterator[ComputeHost]:
    """A host with a bridge."""
    image = storage_vm.build_image(CACHE / "storage")
    vm = storage_vm.StorageVM(
        str(CACHE / ("confined%d" % number)), image, lab=lab, disks={}, number=number, kind="compute"
    )
    with kernel_way.compute_host(vm) as host:
        # With systemd the module is loaded by who opens its device first.
        host.sh("modprobe tun && ip link add %s type bridge && ip link set %s up" % (BRIDGE, BRIDGE))
        yield host


@pytest.fixture(scope="module")
def compute(lab: t.Any) -> t.Iterator[ComputeHost]:
    with confining_host(lab, 3) as host:
        yield host


@pytest.fixture(scope="module")
def second(lab: t.Any) -> t.Iterator[ComputeHost]:
    with confining_host(lab, 4) as host:
        yield host


class Confined(Flow):
    """A guest that counts, on one of two hosts."""

    def __init__(self, computes: list[ComputeHost], folder: Path, name: str = "app", **variables: t.Any):
        self.name = name
        self.computes = {c.name: c for c in computes}
        inventory = folder / "compute.json"
        hosts = {c.name: {**c.vm.variables(), "bootflow_volume_attach": "qemu"} for c in computes}
        inventory.write_text(json.dumps({"bootflow_compute": {"hosts": hosts}}))
        image = folder / "counting.raw"
        image.write_bytes(counting_guest.boot_sector().ljust(IMAGE_SIZE, b"\0"))
        checksum = hashlib.sha256(image.read_bytes()).hexdigest()
        Path(str(image) + ".sha256").write_text(checksum)
        lab = t.cast("t.Any", type("Hosts", (), {}))()
        lab.inventory, lab.hosts, lab.host = str(inventory), list(computes), self.computes.__getitem__
        super().__init__(lab, folder, image)
        flavor = {"vcpus": 1, "memory_mb": 32}
        self.variables.update(
            bootflow_flavors=[
                {"name": "small", **flavor, "root_gb": 1},
                {"name": "grown", **flavor, "root_gb": 2, "swap": 16},
                {"name": "firmware", **flavor, "memory_mb": 256, "root_gb": 1},
                {"name": "several", **flavor, "root_gb": 1, "ephemeral_gb": 1, "swap": 16},
            ],
            bootflow_networks=[NETWORK, OTHER_NETWORK],
            bootflow_images=[
                {"name": n, "path": str(image), "checksum": "sha256:" + checksum, "disk_format": "raw"}
                for n in ("counting", "other")
            ],
            bootflow_reserved_memory_mb=0,
            bootflow_disk_allocation_ratio=4.0,  # the machine has 3 GiB, and the guests write nothing
            **variables,
        )

    def environment(self, **more: str) -> dict[str, str]:
        return super().environment(**{"ANSIBLE_TIMEOUT": "30", **more})

    def begin(self, **fields: t.Any) -> None:
        entry = {
            "name": self.name,
            "flavor": "small",
            "image": "counting",
            "networks": [{"network": "plain"}],
            **fields,
        }
        self.boot(entry, bootflow_hosts=[next(iter(self.computes))])
        self.runs()

    def operate(self, playbook: str, **variables: t.Any) -> str:
        """Run an operation on the guest that is to end well and to change something."""
        done = self.run(playbook, bootflow_names=[self.name], **variables)
        assert done.returncode == 0 and re.search(r"changed=[1-9]", done.output), done.output + self.denied()
        return done.output

    @property
    def row(self) -> t.Any:
        return self.instances()[self.name]

    @property
    def host(self) -> ComputeHost:
        return self.computes[self.row["host"]]

    def said(self) -> str:
        return self.console(self.row["host"], self.row["uuid"])

    def denied(self) -> str:
        """What AppArmor has refused to guests and their helpers."""
        lines = [line for c in self.computes.values() for line in c.sh("dmesg | grep DENIED || true").splitlines()]
        return "\n".join(lines[-20:])

    def runs(self, state: str = "active") -> None:
        """The guest goes on counting, confined."""
        row = self.row
        assert (row["vm_state"], row["task_state"]) == (state, None)
        begun = len(ticks(self.said()))
        self.until(lambda: len(ticks(self.said())) >= begun + 2)
        self.is_confined()

    def until(self, holds: t.Callable[[], bool], seconds: float = 120) -> None:
        end = time.monotonic() + seconds
        while not holds():
            assert time.monotonic() < end, self.said() + self.denied()
            time.sleep(0.5)

    def is_confined(self) -> None:
        """The guest has a profile of its own, QEMU's user, and a mount namespace of its own; and no base image has changed hands."""
        row, host = self.row, self.host
        pid = host.sh("cat /run/libvirt/qemu/%s.pid" % row["domain_name"]).strip()
        profile = PROFILE.fullmatch(host.sh("cat /proc/%s/attr/current" % pid).strip("\0\n"))
        assert profile and profile[1] == row["uuid"]
        assert host.sh("stat -c %%U /proc/%s" % pid).strip() == "libvirt-qemu"
        assert host.sh("readlink /proc/%s/ns/mnt" % pid) != host.sh("readlink /proc/1/ns/mnt")
        bases = host.sh(
            "find %s/_base -name '*.raw' -printf '%%u %%g %%m %%p\\n' 2>/dev/null || true" % INSTANCES
        ).splitlines()
        assert all(line.startswith("root root 644 ") for line in bases), bases

    def gone(self) -> None:
        self.delete(self.name)
        assert self.residue() == {}
        for host in self.computes.values():
            profiles = host.sh("cat /sys/kernel/security/apparmor/profiles")
            assert not PROFILE.search(profiles), profiles


@pytest.mark.parametrize("drive", ["iso9660", "vfat"])
def test_a_guest_boots(compute: ComputeHost, tmp_path: Path, drive: str) -> None:
    flow = Confined([compute], tmp_path, bootflow_config_drive_format=drive)
    flow.begin(config_drive=True)
    assert compute.sh("ls %s/_base/*.raw" % INSTANCES)
    path = "%s/%s/disk.config" % (INSTANCES, flow.row["uuid"])
    assert path in compute.virsh("domblklist", flow.row["uuid"])
    assert compute.sh("blkid -p -o value -s TYPE %s" % path).strip() == drive
    flow.gone()


@pytest.mark.long
@pytest.mark.parametrize("backend", ["qcow2", "raw"])
def test_disks_of_every_kind(compute: ComputeHost, tmp_path: Path, backend: str) -> None:
    """Root, ephemeral disk and swap. tests/storage_py has logical volumes."""
    flow = Confined([compute], tmp_path, bootflow_disk_backend=backend)
    flow.begin(flavor="several")
    assert len(compute.virsh("domblklist", flow.row["uuid"]).splitlines()) == 4  # with the config drive
    flow.operate("reboot", bootflow_reboot_type="HARD")
    flow.runs()
    flow.gone()


@pytest.mark.long
def test_a_guest_with_uefi_keeps_its_variables_beside_its_disks(compute: ComputeHost, tmp_path: Path) -> None:
    """Nothing on its disk boots by UEFI: its firmware says so."""
    flow = Confined([compute], tmp_path)
    flow.variables["bootflow_images"][0]["properties"] = {"hw_firmware_type": "uefi", "hw_machine_type": "q35"}
    wanted = {"name": flow.name, "flavor": "firmware", "image": "counting", "networks": [{"network": "plain"}]}
    flow.boot(wanted)
    flow.until(lambda: "BdsDxe" in flow.said(), 300)
    flow.is_confined()
    owner = compute.sh("stat -c %%U %s/%s/disk.nvram" % (INSTANCES, flow.row["uuid"])).strip()
    assert owner == "libvirt-qemu" and "nvram" not in flow.denied()
    flow.operate("stop", bootflow_shutdown_timeout=0)
    flow.operate("start")
    flow.until(lambda: "BdsDxe" in flow.said(), 300)
    flow.is_confined()
    flow.gone()


@pytest.mark.long
def test_its_power_and_its_memory(compute: ComputeHost, tmp_path: Path) -> None:
    flow = Confined([compute], tmp_path)
    flow.begin()
    flow.operate("pause")
    flow.operate("unpause")
    flow.runs()
    flow.operate("suspend")
    assert (
        flow.row["vm_state"] == "suspended" and flow.row["domain_name"] not in compute.virsh("list", "--name").split()
    )
    before = ticks(flow.said())
    flow.operate("resume")
    flow.runs()
    assert ticks(flow.said())[-1] > before[-1], "its memory was restored"
    flow.operate("stop", bootflow_shutdown_timeout=0)
    flow.operate("start")
    flow.runs()
    flow.operate("reboot", bootflow_reboot_type="HARD")
    flow.runs()
    shown = flow.run("console", bootflow_names=[flow.name])
    assert shown.returncode == 0 and ticks(shown.output.replace("\\n", "\n")), shown.output
    flow.gone()


@pytest.mark.long
def test_other_disks_under_the_same_guest(compute: ComputeHost, tmp_path: Path) -> None:
    """A rescue, a rebuild, and a resize on the same host."""
    flow = Confined([compute], tmp_path, bootflow_allow_resize_to_same_host=True)
    flow.begin(config_drive=True)
    flow.operate("rescue", bootflow_shutdown_timeout=0)
    flow.runs("rescued")
    assert "disk.rescue" in compute.virsh("domblklist", flow.row["uuid"])
    flow.operate("unrescue")
    flow.runs()
    flow.operate("rebuild", bootflow_rebuild_image="other", bootflow_shutdown_timeout=0)
    flow.runs()
    flow.operate("resize", bootflow_resize_flavor="grown", bootflow_shutdown_timeout=0)
    flow.runs("resized")
    flow.operate("confirm_resize")
    flow.runs()
    assert len(compute.virsh("domblklist", flow.row["uuid"]).splitlines()) == 3  # with swap and config drive
    flow.gone()


@pytest.mark.long
def test_interfaces_come_and_go(compute: ComputeHost, tmp_path: Path) -> None:
    flow = Confined([compute], tmp_path)
    flow.begin()
    for state in ("running", "shut off"):
        wanted = {"instance": flow.name, "network": "other"}
        done = flow.run("attach_interface", bootflow_interfaces=[wanted])
        assert done.returncode == 0, done.output + flow.denied()
        assert len(compute.virsh("domiflist", flow.row["uuid"]).splitlines()) == 2
        if state == "running":  # a guest without a system lets go of nothing while it runs
            flow.runs()
            flow.operate("stop", bootflow_shutdown_timeout=0)
        done = flow.run("detach_interface", bootflow_interfaces=[wanted])
        assert done.returncode == 0, done.output + flow.denied()
        assert len(compute.virsh("domiflist", flow.row["uuid"]).splitlines()) == 1
    flow.operate("start")
    flow.runs()
    flow.gone()


@pytest.mark.long
def test_a_guest_moves(compute: ComputeHost, second: ComputeHost, tmp_path: Path) -> None:
    """While it is off, and while it runs: with its disks, to a host where it gets a profile of its own again."""
    flow = Confined([compute, second], tmp_path)
    flow.begin(config_drive=True)
    flow.operate("migrate", bootflow_shutdown_timeout=0)
    flow.runs("resized")
    assert flow.row["host"] == second.name
    flow.operate("revert_resize")
    flow.runs()
    assert flow.row["host"] == compute.name
    flow.operate("migrate", bootflow_shutdown_timeout=0)
    flow.operate("confirm_resize")
    flow.runs()
    before = ticks(flow.said())[-1]
    flow.operate("live_migrate")
    flow.runs()
    assert flow.row["host"] == compute.name and ticks(flow.said())[-1] > before, "it went on counting"
    flow.gone()


@pytest.mark.long
def test_a_guest_leaves_a_dead_host(compute: ComputeHost, second: ComputeHost, tmp_path: Path) -> None:
    flow = Confined([compute, second], tmp_path)
    flow.begin()
    compute.virsh("destroy", flow.row["uuid"])  # its power fails
    done = flow.run("host", bootflow_host=[compute.name], bootflow_host_state="forced_down")
    assert done.returncode == 0, done.output
    done = flow.run("evacuate", bootflow_host=[compute.name])
    assert done.returncode == 0, done.output + flow.denied()
    assert flow.row["host"] == second.name
    flow.runs()
    assert flow.run("host", bootflow_host=[compute.name], bootflow_host_state="up").returncode == 0
    done = flow.run("audit")
    assert done.returncode == 0, done.output + flow.denied()
    flow.gone()
