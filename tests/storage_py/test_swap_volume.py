# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A guest swaps its root volume for another one while it runs: real LVM, real targets (LIO's for tgt's), the kernel's initiator, QEMU's copy."""

from __future__ import annotations

import typing as t

import kernel_way
import pytest
import sizing_guest
import storage_vm
from flow import CACHE
from kernel_way import WORDS, KernelFlow, guest

pytestmark = pytest.mark.long

GIB = 1024**3
SWAP = {"bootflow_volume_swaps": [{"instance": "app", "old_volume": "system", "new_volume": "faster"}]}
BACK = {"bootflow_volume_swaps": [{"instance": "app", "old_volume": "faster", "new_volume": "system"}]}


@pytest.fixture(scope="module")
def compute(lab, storage):
    vm = storage_vm.StorageVM(
        str(CACHE / "storage-compute"), storage.vm.image, lab=lab, disks={}, number=9, kind="compute"
    )
    with kernel_way.compute_host(vm) as host:
        yield host


@pytest.fixture(scope="module")
def volumes(compute, backends, tmp_path_factory) -> t.Iterator[KernelFlow]:
    flow = KernelFlow(compute, tmp_path_factory.mktemp("kernel"), backends)
    flow.create({"name": "system", "size": 1, "image": "sector", "volume_type": "thick"})
    flow.create({"name": "faster", "size": 1, "volume_type": "thin"})
    yield flow
    flow.remove("system", "faster")
    assert flow.residue() == {}


def test_a_root_volume_is_swapped_and_swapped_back(volumes: KernelFlow) -> None:
    """The run is killed while QEMU copies on the way back; the next one settles what it left, and swaps."""
    host = volumes.compute
    system, faster = volumes.volume("system")["id"], volumes.volume("faster")["id"]
    volumes.boot(guest("app", "system"), bootflow_wait_console=sizing_guest.said(WORDS, GIB))
    uuid = volumes.instances()["app"]["uuid"]
    volumes.done("swap_volume", **SWAP)
    assert (volumes.status("system"), volumes.status("faster")) == (("available", "detached"), ("in-use", "attached"))
    assert host.sessions() == [faster] and list(volumes.exported()) == [faster]
    disk = volumes.disk(uuid, system)
    assert disk.find("source").get("dev") == volumes.by_path(faster, "thin"), "with the serial of the former volume"
    again = volumes.run("swap_volume", **SWAP)
    assert again.returncode == 0 and "Nothing to do" in again.output

    process = volumes.start("swap_volume", **BACK, bootflow_volume_swap_bandwidth=10)
    copying = (
        "SELECT 1 FROM volume_attachments WHERE deleted = '' AND connection = 'done' AND attach_status = 'attaching'"
    )
    volumes.during(process, copying, lambda: volumes.kill(process))
    assert (volumes.status("system")[0], volumes.status("faster")[0]) == ("attaching", "detaching")
    volumes.done("swap_volume", **BACK)
    assert (volumes.status("system"), volumes.status("faster")) == (("in-use", "attached"), ("available", "detached"))
    assert host.sessions() == [system] and list(volumes.exported()) == [system]

    # It boots from the copy of the copy.
    volumes.done("reboot", bootflow_names=["app"], bootflow_reboot_type="HARD")
    assert volumes.disk(uuid, system).find("source").get("dev") == volumes.by_path(system, "thick")
    volumes.delete("app")
    assert host.left_of_iscsi() == [] and volumes.exported() == {}
