# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The playbooks against a compute host that keeps its guests' disks in a volume group. Its guests are boot sectors (sizing_guest)."""

from __future__ import annotations

import hashlib
import json
import time
import typing as t
from pathlib import Path
from types import SimpleNamespace

import sizing_guest
from flow import Flow
from kernel_way import WORDS, ComputeHost
from lxml import etree

GIB = 1024**3
MIB = 1024**2
GROUP = "nova-local"
INSTANCES = "/var/lib/bootflow/instances"
# Of its flavor: 1 GB root, and what else there is.
FLAVORS = [
    {"name": "three", "vcpus": 1, "memory_mb": 32, "root_gb": 1, "ephemeral_gb": 1, "swap": 64},
    {"name": "two", "vcpus": 1, "memory_mb": 32, "root_gb": 1, "swap": 64},
]
# Stands before a program that a run is to hang in.
HANGING = "#!/bin/sh\necho $PPID $$ >/run/lab/hanging\nexec sleep 600\n"


class LocalFlow(Flow):
    """One compute host with the volume group GROUP, and its local disks there; and others like it."""

    def __init__(self, compute: ComputeHost, folder: Path, backend: str, others: t.Sequence[ComputeHost] = ()):
        self.compute = compute
        variables = {
            "bootflow_disk_backend": backend,
            "bootflow_disk_volume_group": GROUP,
            "bootflow_disk_medium": "ssd",
        }
        inventory = compute.vm.write_inventory(str(folder / "compute.json"), variables)
        found = json.loads(Path(inventory).read_text())
        (group,) = found.values()
        group["hosts"].update({o.name: {**o.vm.variables(), **variables} for o in others})
        Path(inventory).write_text(json.dumps(found))
        image = folder / "sector.raw"
        image.write_bytes(sizing_guest.boot_sector(WORDS).ljust(MIB, b"\0"))
        checksum = hashlib.sha256(image.read_bytes()).hexdigest()
        Path(str(image) + ".sha256").write_text(checksum)
        hosts = {c.name: c for c in (compute, *others)}
        lab = SimpleNamespace(
            inventory=inventory, hosts=list(hosts.values()), host=hosts.get if others else lambda _name: compute
        )
        super().__init__(lab, folder, image)
        self.image = image
        specs = {"capabilities:disk_medium": "ssd", "capabilities:disk_backend": backend}
        self.variables.update(
            bootflow_flavors=[dict(flavor, extra_specs=specs) for flavor in FLAVORS],
            bootflow_networks=[],
            bootflow_images=[
                {"name": "sector", "path": str(image), "checksum": "sha256:" + checksum, "disk_format": "raw"}
            ],
            bootflow_reserved_memory_mb=0,
            bootflow_config_drive_format="vfat",
        )

    def environment(self, **more: str) -> dict[str, str]:
        return super().environment(**{"ANSIBLE_TIMEOUT": "30", **more})

    def entry(self, flavor: str) -> dict[str, t.Any]:
        return {"name": "app", "flavor": flavor, "image": "sector", "networks": "none"}

    def volumes(self, compute: ComputeHost | None = None) -> dict[str, dict[str, t.Any]]:
        """The logical volumes of the group by name, with their size in bytes and their tags."""
        text = (compute or self.compute).sh(
            "lvs --reportformat json --units b --nosuffix -o lv_name,lv_size,lv_tags,lv_attr " + GROUP
        )
        rows = json.loads(text[text.index("{") :])["report"][0]["lv"]
        return {
            row["lv_name"]: {"size": int(row["lv_size"]), "tags": set(row["lv_tags"].split(",")) - {""}} for row in rows
        }

    def tags(self, uuid: str) -> set[str]:
        """Those of each logical volume of an instance of this ledger."""
        (row,) = self.query("SELECT id FROM ledger_identity")
        return {"bootflow", "bootflow.instance=" + uuid, "bootflow.ledger=" + row["id"]}

    def disks(self, domain: str) -> dict[str, t.Any]:
        """The <disk>s of the running domain by target, but for its config drive."""
        xml = etree.fromstring(self.compute.virsh("dumpxml", domain).encode())
        found = {disk.find("target").get("dev"): disk for disk in xml.iterfind("devices/disk")}
        return {dev: disk for dev, disk in found.items() if not disk.find("source").get("file", "").endswith(".config")}

    def said(self) -> str:
        """What a guest says whose root disk has 1 GB."""
        return sizing_guest.said(WORDS, GIB)

    def killed_in(self, program: str, flavor: str) -> None:
        """A boot whose run and whose module on the host are killed while the host is in that program."""
        self.killed_while(program, HANGING, "boot", bootflow_instances=[self.entry(flavor)])

    def killed_while(self, program: str, script: str, playbook: str, **variables: t.Any) -> None:
        """The same of any playbook. :arg script: stands before the program"""
        place = "/usr/local/bin/" + program
        self.compute.sh("rm -f /run/lab/hanging; printf '%%s' '%s' >%s; chmod 755 %s" % (script, place, place))
        process = self.start(playbook, variables)
        try:
            deadline = time.monotonic() + 300
            while not self.compute.sh("cat /run/lab/hanging 2>/dev/null || true").strip():
                assert process.poll() is None, (self.folder / "killed.log").read_text()[-3000:]
                assert time.monotonic() < deadline
                time.sleep(0.3)
        finally:
            if process.poll() is None:
                self.kill(process)
            self.compute.sh("kill -9 $(cat /run/lab/hanging); rm -f %s" % place, check=False)

    def crashed_in(self, event: str, flavor: str) -> None:
        """The controller and the host lose their power in that step of a boot, and the host is started again."""
        # A boot that waits for its guest does step after step; one that does not tells of them when all are done.
        wanted = {"bootflow_instances": [self.entry(flavor)], "bootflow_wait_console": self.said()}
        process = self.start("boot", wanted)
        try:
            begun = (
                "SELECT 1 FROM instance_action_events JOIN instances ON instances.uuid = instance_uuid"
                " WHERE deleted = '' AND event = '%s' AND finish_time IS NULL" % event
            )
            self.wait_for(begun, 120, process)
        finally:
            # A run that saw its host go would undo the build.
            if process.poll() is None:
                self.kill(process)
        self.compute.vm.crash()
        self.compute.vm.start(keep=True)
