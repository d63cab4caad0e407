# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A guest that counts, on hosts that confine it: AppArmor, QEMU as libvirt-qemu, in a mount namespace."""

from __future__ import annotations

import hashlib
import json
import re
import time
import typing as t
from pathlib import Path

import apparmor
import counting_guest
from counting_guest import ticks
from flow import Flow

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


class Host(t.Protocol):
    """A machine as flow.Flow asks a lab's host. ``vm.variables()``: its variables in an inventory."""

    name: str
    vm: t.Any

    def run(self, *argv: str, check: bool = True) -> t.Any: ...
    def sh(self, script: str, check: bool = True) -> str: ...
    def virsh(self, *words: str, check: bool = True) -> str: ...


class Confined(Flow):
    """A guest that counts, on one of two hosts."""

    def __init__(self, computes: t.Sequence[Host], folder: Path, name: str = "app", **variables: t.Any):
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
    def host(self) -> Host:
        return self.computes[self.row["host"]]

    def said(self) -> str:
        return self.console(self.row["host"], self.row["uuid"])

    def denied(self) -> str:
        """What AppArmor has refused on the hosts."""
        return apparmor.denied(*self.computes.values())

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
