# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Volumes with two portals on a compute host whose kernel logs in: multipathd's map, portals that go and come back.

The guest boots from a volume of tgt and gets a disk of LIO. The first portal is the one that goes; the second has the address
by which the tests reach the storage host.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import time
import typing as t
from pathlib import Path

import kernel_way
import pytest
import sizing_guest
import storage_vm
from flow import CACHE, PLAYBOOK
from kernel_way import WORDS, KernelFlow, guest
from volume_flow import GROUPS, PORTS

pytestmark = pytest.mark.long

GIB = 1024**3
MIB = 1024**2
BY_ID = "/dev/disk/by-id/dm-uuid-mpath-"
# The administrator's: a portal that is gone is to be seen within seconds.
IMPATIENT = (
    "sed -i -e 's/^\\(node.conn.0..timeo.noop_out_[a-z]*\\) .*/\\1 = 2/' /etc/iscsi/iscsid.conf;"
    " printf 'defaults {\\n polling_interval 2\\n max_polling_interval 2\\n}\\n' >/etc/multipath.conf"
)
MULTIPATHD = "modprobe dm-multipath && multipathd && until multipathd show status; do sleep 0.2; done"
# Until it is told to stop.
WRITER = (
    "rm -f /run/stop /run/wrote; dd if=/dev/urandom of=/run/noise bs=1M count=8 status=none;"
    " (while [ ! -e /run/stop ]; do dd if=/run/noise of=%s bs=64k oflag=direct conv=notrunc status=none"
    " || { echo failed >/run/wrote; exit; }; done; echo done >/run/wrote) >/dev/null 2>&1 </dev/null &"
)


class MultipathFlow(KernelFlow):
    """Both backends have two portals."""

    def __init__(self, compute: t.Any, folder: t.Any, storage: t.Any, other: str):
        super().__init__(compute, folder, storage)
        self.other = other
        with open(self.inventory, encoding="utf-8") as file:
            inventory = json.load(file)
        (host,) = inventory["bootflow_storage"]["hosts"].values()
        for each in host["bootflow_storage_backends"]:
            each["portals"].insert(0, "%s:%d" % (other, PORTS[each["name"]]))
        with open(self.inventory, "w", encoding="utf-8") as file:
            json.dump(inventory, file)
        storage.sh("tgtadm --lld iscsi --op new --mode portal --param portal=%s:%d" % (other, PORTS["thin"]))

    def source(self, instance: str, volume_id: str) -> str:
        disk = self.disk(self.instances()[instance]["uuid"], volume_id)
        assert disk.get("type") == "block"
        return disk.find("source").get("dev")

    def paths(self, device: str) -> list[str]:
        """What multipathd says of each path of a map."""
        lines = self.compute.sh("multipathd show paths raw format '%w %t'").splitlines()
        return sorted(line.split()[1] for line in lines if line.split()[0] == device[len(BY_ID) :])

    def until_paths(self, device: str, *states: str) -> None:
        deadline = time.monotonic() + 90
        while self.paths(device) != list(states):
            assert time.monotonic() < deadline, self.compute.sh("multipath -ll; iscsiadm -m session -P 1")
            time.sleep(1)

    def members(self, device: str) -> list[str]:
        return self.compute.sh("ls /sys/block/$(basename $(readlink -f %s))/slaves" % device).split()

    def size(self, device: str) -> int:
        return int(self.compute.sh("blockdev --getsize64 %s" % device))

    @contextlib.contextmanager
    def address_gone(self) -> t.Iterator[None]:
        """The first portal's address leaves the storage host; its service stays."""
        self.storage.sh("ip address delete %s/24 dev eth0" % self.other)
        try:
            yield
        finally:
            self.storage.sh("ip address add %s/24 dev eth0" % self.other)

    def until_targets_know(self) -> None:
        """A target that has lost an initiator ends its session some time later, LIO after 45 seconds at most."""
        deadline = time.monotonic() + 90
        while self.storage.sh("ss -Htn state established src %s" % self.other).strip():
            assert time.monotonic() < deadline, self.storage.sh("ss -tn")
            time.sleep(1)

    @contextlib.contextmanager
    def no_way_to_it(self) -> t.Iterator[None]:
        """The compute host has no way to the first portal's address; the storage host has it."""
        self.compute.run("ip", "route", "add", "blackhole", self.other)
        try:
            yield
        finally:
            self.compute.run("ip", "route", "delete", "blackhole", self.other)

    def left_of_multipath(self) -> list[str]:
        """Maps, disks that multipathd knows, WWIDs."""
        left = self.compute.sh(
            "dmsetup ls | grep -v '^No devices'; ls %s* /sys/block/sd* 2>/dev/null; grep -v '^#' /etc/multipath/wwids;"
            " multipathd show paths raw format %%d 2>/dev/null" % BY_ID,
            check=False,
        )
        return [line for line in left.splitlines() if line != "ok" and not line.startswith("error ")]

    def keep_out_of_guests_content(self) -> None:
        """Run the part of the role that has LVM read only the disks of the host."""
        program = str(Path(PLAYBOOK).with_name("ansible"))
        name = self.compute.vm.name
        module = (name, "-i", self.lab.inventory, "-m", "bootflow.compute.guest_content")
        done = subprocess.run(
            (program, *module),
            env=self.environment(),
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert "%s | CHANGED" % name in done.stdout, done.stdout + done.stderr

    def residue(self) -> dict[str, object]:
        found = super().residue()
        if self.left_of_multipath():
            found["multipath"] = self.left_of_multipath()
        return found


@pytest.fixture(scope="module")
def compute(lab, storage):
    vm = storage_vm.StorageVM(
        str(CACHE / "storage-multipath"), storage.vm.image, lab=lab, disks={}, number=8, kind="compute"
    )
    with kernel_way.compute_host(vm) as host:
        host.sh(IMPATIENT)
        yield host


@pytest.fixture(scope="module")
def other_address(storage) -> t.Iterator[str]:
    """A second address of the storage host."""
    words = storage.vm.address.split(".")
    address = ".".join([*words[:3], str(int(words[3]) + 40)])
    storage.sh("ip address add %s/24 dev eth0" % address)
    yield address
    storage.sh("ip address delete %s/24 dev eth0" % address, check=False)


@pytest.fixture(scope="module")
def volumes(compute, backends, other_address, tmp_path_factory) -> t.Iterator[MultipathFlow]:
    """With a bootable volume ``system`` and an empty one ``data``, which every test gives back."""
    flow = MultipathFlow(compute, tmp_path_factory.mktemp("multipath"), backends, other_address)
    flow.create(
        {"name": "system", "size": 1, "image": "sector", "volume_type": "thin"},
        {"name": "data", "size": 1, "volume_type": "thick"},
    )
    yield flow
    flow.remove("system", "data")
    assert flow.residue() == {}


def test_without_multipathd_one_path_is_taken_and_told(volumes: MultipathFlow) -> None:
    """The first portal cannot be reached: it is the other one."""
    host = volumes.compute
    system = volumes.volume("system")["id"]
    with volumes.no_way_to_it():
        ended = volumes.boot(guest("app", "system"))
    said = " ".join(ended.output.split())
    assert "multipathd is not running on this host; only portal %s of 2 is used" % volumes.portals("thin")[1] in said
    assert host.sessions() == [system]
    assert volumes.source("app", system) == "/dev/disk/by-path/ip-%s-iscsi-%s%s-lun-1" % (
        volumes.portals("thin")[1],
        volumes.iqn,
        system,
    )
    volumes.delete("app")
    assert volumes.left_of_multipath() == [] and host.left_of_iscsi() == []


def test_a_guest_whose_volumes_have_two_paths(volumes: MultipathFlow) -> None:
    """A write goes on when a portal goes; all are to be there for a new size; a detach needs one, and so does a start of the host."""
    host = volumes.compute
    host.sh(MULTIPATHD)
    system, data = volumes.volume("system")["id"], volumes.volume("data")["id"]
    said = sizing_guest.said(WORDS, GIB)
    wish = {"bootflow_attachments": [{"instance": "app", "volume": "data", "disk_bus": "scsi"}]}

    volumes.boot(guest("app", "system"), bootflow_wait_console=said)
    row = volumes.instances()["app"]
    root = volumes.source("app", system)
    assert root.startswith(BY_ID) and host.sessions() == [system] * 2
    assert len(volumes.members(root)) == 2 and volumes.paths(root) == ["active", "active"]

    volumes.done("attach_volume", **wish)
    device = volumes.source("app", data)
    assert device.startswith(BY_ID) and device != root and volumes.paths(device) == ["active", "active"]
    target = volumes.disk(row["uuid"], data).find("target").get("dev")

    # What a guest makes of its disk is none of its host's business (docs/volumes.md).
    seen = "pvs --noheadings -o pv_name --config 'devices { multipath_component_detection=0 }'"
    host.sh("pvcreate -q -y %s" % device)
    assert host.sh(seen).split()
    volumes.keep_out_of_guests_content()
    assert host.sh(seen) == ""
    host.sh("wipefs -q -a %s" % device)

    host.sh(WRITER % device)
    with volumes.address_gone():
        volumes.until_paths(device, "active", "failed")
        host.sh("touch /run/stop; until [ -e /run/wrote ]; do sleep 0.2; done")
        assert host.sh("cat /run/wrote").strip() == "done"
        written = host.sh("sha256sum /run/noise").split()[0]
        assert volumes.storage.sha256("/dev/%s/volume-%s" % (GROUPS["thick"], data), 8 * MIB) == written

        told = volumes.run("volume_extend", bootflow_volumes=[{"name": "data", "size": 2}])
        assert told.returncode == 2 and "All paths need to be up" in " ".join(told.output.split()), told.output
        assert volumes.size(device) == GIB
    volumes.until_paths(device, "active", "active")
    volumes.until_paths(root, "active", "active")

    again = volumes.run("volume_extend", bootflow_volumes=[{"name": "data", "size": 2}])
    assert again.returncode == 0, again.output
    assert volumes.size(device) == volumes.size_in_guest(row["uuid"], target) == 2 * GIB
    assert {volumes.size("/dev/" + name) for name in volumes.members(device)} == {2 * GIB}

    with volumes.address_gone():
        volumes.until_targets_know()
        volumes.done("detach_volume", **wish)
        assert volumes.status("data") == ("available", "detached") and volumes.disk(row["uuid"], data) is None
        assert host.sessions() == [system] * 2 and list(volumes.exported()) == [system]
        assert host.sh("ls %s*" % BY_ID).split() == [root]
        assert not [line for line in host.left_of_iscsi() if data in line]

    host.sh("sync")  # multipath does not, when it forgets a WWID
    host.vm.crash()
    host.vm.start(keep=True)
    volumes.until_paths(root, "active", "active")
    volumes.delete("app")
    assert volumes.status("system") == ("available", "detached")
    assert volumes.left_of_multipath() == [] and host.left_of_iscsi() == [] and volumes.exported() == {}
