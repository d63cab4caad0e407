# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A volume to which QEMU itself logs in, where AppArmor confines QEMU: the compute host is an emulated machine, as in tests/confined_py.

What the kernel's initiator does there is in test_kernel_way.py.
"""

from __future__ import annotations

import hashlib
import time
import typing as t
from pathlib import Path

import apparmor
import counting_guest
import kernel_way
import pytest
import storage_vm
from counting_guest import ticks
from flow import CACHE, image_file
from kernel_way import KernelFlow
from test_operations import operate
from volume_flow import GROUPS

pytestmark = pytest.mark.long

MIB = 1024**2


@pytest.fixture(scope="module")
def compute(lab: t.Any, storage: t.Any) -> t.Iterator[kernel_way.ComputeHost]:
    vm = storage_vm.StorageVM(
        str(CACHE / "storage-compute-confined"), storage.vm.image, lab=lab, disks={}, number=7, kind="compute"
    )
    with kernel_way.compute_host(vm) as host:
        yield host


def confined_flow(compute: kernel_way.ComputeHost, folder: Path, storage: t.Any) -> KernelFlow:
    """That host's QEMU logs in; its guest has a local disk, and counts."""
    flow = KernelFlow(compute, folder, storage)
    image = folder / "counting.raw"
    image.write_bytes(counting_guest.boot_sector().ljust(32 * MIB, b"\0"))
    Path(str(image) + ".sha256").write_text(hashlib.sha256(image.read_bytes()).hexdigest())
    image_entry = {"name": "counting", **image_file(image), "disk_format": "raw"}
    flow.variables.update(bootflow_volume_attach="qemu", bootflow_images=[image_entry])
    return flow


def counts_on(flow: KernelFlow) -> None:
    """The guest goes on counting under its profile."""
    row = flow.instances()["app"]
    pid = flow.compute.sh("cat /run/libvirt/qemu/%s.pid" % row["domain_name"]).strip()
    profile = flow.compute.sh("cat /proc/%s/attr/current" % pid).strip("\0\n")
    assert profile == "libvirt-%s (enforce)" % row["uuid"]
    assert flow.compute.sh("stat -c %%U /proc/%s" % pid).strip() == "libvirt-qemu"
    begun, end = len(ticks(flow.console("", row["uuid"]))), time.monotonic() + 200
    while len(ticks(flow.console("", row["uuid"]))) < begun + 2:
        assert time.monotonic() < end, flow.console("", row["uuid"]) + apparmor.denied(flow.compute)
        time.sleep(0.5)


def attached(flow: KernelFlow, volume_id: str) -> str:
    """How QEMU calls the device of the volume, which is a connection of its own."""
    disk = flow.disk(flow.instances()["app"]["uuid"], volume_id)
    assert disk.get("type") == "network" and disk.find("source").get("protocol") == "iscsi"
    assert flow.status("data") == ("in-use", "attached")
    assert flow.compute.sessions() == [], "the kernel has no part in it"
    return str(disk.find("alias").get("name"))


def written(flow: KernelFlow, volume_id: str, place: int) -> None:
    """QEMU writes 64 KiB of a letter, as its guest would have it do, and the storage host has them. :arg place: MiB, and the letter"""
    uuid, device = flow.instances()["app"]["uuid"], attached(flow, volume_id)
    for command in ("write -P %d %dM 64k" % (64 + place, place), "flush"):
        said = flow.compute.virsh("qemu-monitor-command", "--hmp", uuid, 'qemu-io -d %s "%s"' % (device, command))
        assert not said.strip(), said + apparmor.denied(flow.compute)  # what it does is in the guest's log
    path = "/dev/%s/volume-%s skip=%d count=1" % (GROUPS["thick"], volume_id, place)
    assert flow.storage.sha256(path, 65536) == hashlib.sha256(bytes([64 + place]) * 65536).hexdigest()


def test_a_volume_to_which_qemu_logs_in(compute: kernel_way.ComputeHost, backends: t.Any, tmp_path: Path) -> None:
    """It comes while the guest runs, goes, and comes again; a hard reboot logs in anew."""
    flow = confined_flow(compute, tmp_path, backends)
    flow.create({"name": "data", "size": 1, "volume_type": "thick"})
    volume_id = flow.volume("data")["id"]
    flow.boot({"name": "app", "flavor": "tiny", "image": "counting", "networks": "none"})
    counts_on(flow)
    wish = {"bootflow_attachments": [{"instance": "app", "volume": "data", "disk_bus": "scsi"}]}
    flow.done("attach_volume", **wish)
    counts_on(flow)
    written(flow, volume_id, 1)

    flow.done("detach_volume", **wish)
    assert flow.status("data") == ("available", "detached") and flow.exported() == {}
    assert flow.disk(flow.instances()["app"]["uuid"], volume_id) is None

    flow.done("attach_volume", **wish)
    written(flow, volume_id, 2)
    operate(flow, "reboot", "app", bootflow_reboot_type="HARD")
    counts_on(flow)
    written(flow, volume_id, 3)
    flow.delete("app")
    flow.remove("data")
    assert flow.residue() == {}
    assert not apparmor.denied(compute)
