# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A guest whose disks are logical volumes goes to another host's volume group by the playbooks: a file in it is still there each time.

Both hosts are emulated machines with real LVM, on the network of a lab.
"""

from __future__ import annotations

import contextlib
import shutil
import time
import typing as t

import kernel_way
import pytest
import sizing_guest
import storage_vm
from flow import CACHE
from kernel_way import WORDS, ComputeHost
from local_flow import FLAVORS, GIB, GROUP, MIB, LocalFlow

pytestmark = pytest.mark.long

GROWN = {"name": "grown", "vcpus": 1, "memory_mb": 32, "root_gb": 2, "ephemeral_gb": 2, "swap": 32}
# It hears no power button.
QUICK = {"bootflow_shutdown_timeout": 1}


@pytest.fixture(scope="module")
def computes(lab: t.Any) -> t.Iterator[list[ComputeHost]]:
    """Two compute hosts with an empty volume group each, and the program that makes certificates, which the image lacks."""
    program = shutil.which("openssl")
    assert program
    image = storage_vm.build_image(CACHE / "storage")
    with contextlib.ExitStack() as held:
        found = []
        for number in (5, 6):
            vm = storage_vm.StorageVM(
                str(CACHE / ("moving-lvm%d" % number)), image, lab=lab, disks={"pv1": 8 * GIB}, number=number,
                kind="compute",
            )  # fmt: skip
            host = held.enter_context(kernel_way.compute_host(vm))
            vm.put(program, "/usr/local/bin/openssl")
            host.sh("chmod 755 /usr/local/bin/openssl; mkdir -p /usr/lib/ssl; touch /usr/lib/ssl/openssl.cnf")
            host.sh("vgcreate -q %s %s" % (GROUP, vm.disk("pv1")))
            found.append(host)
        yield found


class Moves:
    """One guest on its way. :arg alone: with one host"""

    def __init__(self, computes: list[ComputeHost], folder: t.Any, alone: bool = False):
        self.computes = {c.name: c for c in computes}
        self.flow = LocalFlow(computes[0], folder, "lvm", () if alone else computes[1:])
        specs = self.flow.variables["bootflow_flavors"][0]["extra_specs"]
        self.flow.variables["bootflow_flavors"].append({**GROWN, "extra_specs": specs})

    def operate(self, playbook: str, **variables: t.Any) -> None:
        done = self.flow.run(playbook, bootflow_names=["app"], **QUICK, **variables)
        assert done.returncode == 0, done.output

    @property
    def row(self) -> t.Any:
        return self.flow.instances()["app"]

    @property
    def host(self) -> ComputeHost:
        return self.computes[self.row["host"]]

    def device(self, name: str) -> str:
        return "/dev/%s/%s_%s" % (GROUP, self.row["uuid"], name)

    def file(self, script: str) -> str:
        """Look into the file system of the ephemeral disk of the guest, which is off, or has not mounted it."""
        return self.host.sh(
            "mkdir -p /mnt && mount %s /mnt && { %s; }; umount /mnt" % (self.device("disk.eph0"), script)
        )

    def is_there(self, root: int, ephemeral: int, swap: int) -> None:
        """It runs on its host, with these disks and its file, and is nowhere else."""
        deadline = time.monotonic() + 120
        while sizing_guest.said(WORDS, root) not in self.flow.console(self.row["host"], self.row["uuid"]):
            assert time.monotonic() < deadline, self.flow.console(self.row["host"], self.row["uuid"])
            time.sleep(1)
        sizes = {n.partition("_")[2]: lv["size"] for n, lv in self.flow.volumes(self.host).items()}
        assert sizes == {"disk": root, "disk.eph0": ephemeral, "disk.swap": swap}
        assert self.file("cat /mnt/note") == "what the guest wrote\n"
        assert self.host.sh("blkid -p -o value -s TYPE %s" % self.device("disk.swap")).strip() == "swap"
        for name, host in self.computes.items():
            said = host.sh("virsh -q -c qemu:///system domstate %s 2>/dev/null || true" % self.row["uuid"]).strip()
            assert (said == "running") == (name == self.row["host"]), (name, said)


def test_to_another_volume_group_and_back(computes: list[ComputeHost], tmp_path: t.Any) -> None:
    moves = Moves(computes, tmp_path)
    flow = moves.flow
    assert GROWN["name"] not in {f["name"] for f in FLAVORS}
    flow.boot(flow.entry("three"), bootflow_wait_console=flow.said())
    moves.operate("stop")
    moves.file("echo 'what the guest wrote' >/mnt/note; sync")
    moves.operate("start")
    source = moves.host
    (other,) = [c for c in computes if c is not source]

    moves.operate("resize", bootflow_resize_flavor="grown")
    assert moves.host is other and moves.row["vm_state"] == "resized"
    moves.is_there(2 * GIB, 2 * GIB, 32 * MIB)
    moves.operate("revert_resize")
    assert moves.host is source and moves.row["vm_state"] == "active"
    moves.is_there(GIB, GIB, 64 * MIB)
    assert flow.volumes(other) == {}

    moves.operate("migrate")
    moves.operate("confirm_resize")
    assert moves.host is other and moves.row["vm_state"] == "active"
    moves.is_there(GIB, GIB, 64 * MIB)
    assert flow.volumes(source) == {}
    flow.check_ledger()
    flow.delete("app")
    assert flow.volumes(other) == {} and flow.residue() == {}


def test_where_it_is(computes: list[ComputeHost], tmp_path: t.Any) -> None:
    """One host with a volume group: its guests are resized, brought back and kept there."""
    moves = Moves(computes, tmp_path, alone=True)
    flow, here = moves.flow, {"bootflow_resize_flavor": "grown", "bootflow_allow_resize_to_same_host": True}
    flow.boot(flow.entry("three"), bootflow_wait_console=flow.said())
    moves.operate("stop")
    moves.file("echo 'what the guest wrote' >/mnt/note; sync")
    moves.operate("start")

    moves.operate("resize", **here)
    assert moves.row["vm_state"] == "resized"
    sizes = {n.partition("_")[2]: lv["size"] for n, lv in flow.volumes().items()}
    was = {"disk.resize.old": GIB, "disk.eph0.resize.old": GIB, "disk.swap.resize.old": 64 * MIB}
    assert sizes == {"disk": 2 * GIB, "disk.eph0": 2 * GIB, "disk.swap": 32 * MIB, **was}
    assert all(flow.tags(moves.row["uuid"]) <= lv["tags"] for lv in flow.volumes().values())
    done = flow.run("audit", "--check")
    assert done.returncode == 0 and "changed=0" in done.output, done.output
    moves.operate("revert_resize")
    assert moves.row["vm_state"] == "active"
    moves.is_there(GIB, GIB, 64 * MIB)

    moves.operate("resize", **here)
    moves.operate("confirm_resize")
    assert moves.row["vm_state"] == "active"
    moves.is_there(2 * GIB, 2 * GIB, 32 * MIB)
    flow.check_ledger()
    flow.delete("app")
    assert flow.volumes() == {} and flow.residue() == {}
