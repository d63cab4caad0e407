# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Guests where libvirt confines them as Debian's packages do: AppArmor, QEMU as libvirt-qemu, in a mount namespace.

The compute host is an emulated machine on the network of a lab; its guests are boot sectors that count (counting_guest). What
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
            ],
            bootflow_networks=[NETWORK],
            bootflow_images=[
                {"name": n, "path": str(image), "checksum": "sha256:" + checksum, "disk_format": "raw"}
                for n in ("counting", "other")
            ],
            bootflow_reserved_memory_mb=0,
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
        """The guest runs, under a profile of its own, as QEMU's user, in a mount namespace of its own; and no base image has changed hands."""
        row, host = self.row, self.host
        assert (row["vm_state"], row["task_state"]) == (state, None)
        begun = len(ticks(self.said()))
        end = time.monotonic() + 120
        while len(ticks(self.said())) < begun + 2:
            assert time.monotonic() < end, self.said()
            time.sleep(0.5)
        pid = host.sh("cat /run/libvirt/qemu/%s.pid" % row["domain_name"]).strip()
        profile = PROFILE.fullmatch(host.sh("cat /proc/%s/attr/current" % pid).strip("\0\n"))
        assert profile and profile[1] == row["uuid"]
        assert host.sh("stat -c %%U /proc/%s" % pid).strip() == "libvirt-qemu"
        assert host.sh("readlink /proc/%s/ns/mnt" % pid) != host.sh("readlink /proc/1/ns/mnt")
        bases = host.sh("stat -c '%%U %%G %%a %%n' %s/_base/*.raw" % INSTANCES).splitlines()
        assert bases and all(line.startswith("root root 644 ") for line in bases), bases

    def gone(self) -> None:
        self.delete(self.name)
        assert self.residue() == {}
        for host in self.computes.values():
            profiles = host.sh("cat /sys/kernel/security/apparmor/profiles")
            assert not PROFILE.search(profiles), profiles


def test_a_guest_boots(compute: ComputeHost, tmp_path: Path) -> None:
    flow = Confined([compute], tmp_path)
    flow.begin(config_drive=True)
    flow.gone()
