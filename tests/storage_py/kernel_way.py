# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The playbooks against a compute host with a kernel of its own, whose iSCSI initiator is the real one, and the storage host.

An emulated machine in an emulated machine is slow: its guests are boot sectors (sizing_guest).
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import typing as t
from pathlib import Path
from types import SimpleNamespace

import sizing_guest
from lxml import etree
from volume_flow import TARGET, VolumeFlow

WORDS = "BOOT SECTOR OF"
MIB = 1024**2
# The host's administrator may say so too: as it is shipped, open-iscsi tries for two minutes.
SHORT_LOGIN = (
    "sed -i -e 's/^node.session.initial_login_retry_max.*/node.session.initial_login_retry_max = 1/'"
    " -e 's/^node.conn\\[0\\].timeo.login_timeout.*/node.conn[0].timeo.login_timeout = 5/' /etc/iscsi/iscsid.conf"
)


class ComputeHost:
    """The compute host as flow.Flow asks a lab's host."""

    def __init__(self, vm: t.Any):
        self.vm = vm
        self.name = vm.name

    def run(self, *argv: str, check: bool = True) -> t.Any:
        return self.vm.run(*argv, check=check)

    def sh(self, script: str, check: bool = True) -> str:
        return self.run("sh", "-c", script, check=check).stdout

    def virsh(self, *words: str, check: bool = True) -> str:
        return self.run("virsh", "-q", "-c", "qemu:///system", *words, check=check).stdout

    def sessions(self) -> list[str]:
        """Volume ids of the sessions that iscsiadm lists."""
        lines = self.run("iscsiadm", "-m", "session", check=False).stdout.splitlines()
        return sorted(found[1] for found in map(TARGET.search, lines) if found)

    def left_of_iscsi(self) -> list[str]:
        """Sessions, records and links of volumes."""
        links = self.sh("ls /dev/disk/by-path | grep iscsi; find /etc/iscsi/nodes /var/lib/iscsi/nodes -type f", False)
        return [line for line in links.splitlines() if TARGET.search(line)] + self.sessions()


class KernelFlow(VolumeFlow):
    """One compute host, which attaches by its kernel; VolumeFlow's two backends: thick is LIO's, thin is tgt's."""

    def __init__(self, compute: ComputeHost, folder: Path, storage: t.Any):
        self.compute = compute
        inventory = compute.vm.write_inventory(str(folder / "compute.json"))
        image = folder / "sector.raw"
        image.write_bytes(sizing_guest.boot_sector(WORDS).ljust(MIB, b"\0"))
        checksum = hashlib.sha256(image.read_bytes()).hexdigest()
        Path(str(image) + ".sha256").write_text(checksum)
        lab = SimpleNamespace(inventory=inventory, hosts=[compute], host=lambda _name: compute)
        super().__init__(lab, folder, image, storage)
        self.variables.update(
            bootflow_volume_attach="kernel",
            bootflow_flavors=[{"name": "tiny", "vcpus": 1, "memory_mb": 32, "root_gb": 1}],
            bootflow_networks=[],
            bootflow_images=[
                {"name": "sector", "path": str(image), "checksum": "sha256:" + checksum, "disk_format": "raw"}
            ],
            bootflow_reserved_memory_mb=0,
            bootflow_config_drive_format="vfat",
        )

    def environment(self, **more: str) -> dict[str, str]:
        return super().environment(**{"ANSIBLE_TIMEOUT": "30", **more})

    def done(self, playbook: str, **variables: t.Any) -> None:
        """Run a playbook that is to end well and to change something."""
        ended = self.run(playbook, **variables)
        assert ended.returncode == 0 and re.search(r"changed=[1-9]", ended.output), ended.output

    def volume(self, name: str) -> t.Any:
        (row,) = self.query("SELECT * FROM volumes WHERE deleted = '' AND name = ?", name)
        return row

    def status(self, name: str) -> tuple[str, str]:
        row = self.volume(name)
        return row["status"], row["attach_status"]

    def disk(self, domain: str, volume_id: str) -> t.Any:
        """The <disk> of the running domain that has the volume's serial."""
        xml = etree.fromstring(self.compute.virsh("dumpxml", domain).encode())
        return xml.find("devices/disk[serial='%s']" % volume_id)

    def by_path(self, volume_id: str, kind: str) -> str:
        """Where the kernel puts the disk of a volume of that backend."""
        (portal,) = self.portals(kind)
        return "/dev/disk/by-path/ip-%s-iscsi-%s%s-lun-%d" % (
            portal,
            self.iqn,
            volume_id,
            {"thick": 0, "thin": 1}[kind],
        )

    def portals(self, kind: str) -> list[str]:
        with open(self.inventory, encoding="utf-8") as file:
            hosts = json.load(file)["bootflow_storage"]["hosts"]
        (host,) = hosts.values()
        return next(each["portals"] for each in host["bootflow_storage_backends"] if each["name"] == kind)

    def size_in_guest(self, domain: str, target: str) -> int:
        """What QEMU gives the guest."""
        lines = self.compute.virsh("domblkinfo", domain, target).splitlines()
        return int(next(line for line in lines if line.startswith("Capacity")).split()[1])

    def residue(self) -> dict[str, object]:
        found = super().residue()
        if self.compute.left_of_iscsi():
            found["iSCSI on the compute host"] = self.compute.left_of_iscsi()
        return found

    def during(self, process: t.Any, sql: str, act: t.Callable[[], None], timeout: float = 180) -> None:
        """Do something when the ledger says so in the middle of a run."""
        try:
            self.wait_for(sql, timeout, process)
            act()
            process.wait(timeout=timeout)
        finally:
            if process.poll() is None:
                self.kill(process)


def guest(name: str, volume: str) -> dict:
    """An entry that boots from an existing volume, without networks."""
    device = {"source_type": "volume", "uuid": volume, "destination_type": "volume", "boot_index": 0}
    return {"name": name, "flavor": "tiny", "networks": "none", "block_device_mapping": [device]}


@contextlib.contextmanager
def compute_host(vm: t.Any) -> t.Iterator[ComputeHost]:
    try:
        vm.start()
        host = ComputeHost(vm)
        host.sh(SHORT_LOGIN)
        yield host
    finally:
        vm.remove()
