# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A guest whose disks are logical volumes goes to another host's volume group by the playbooks: a file in it is still there each time.
So it is where such a guest, or one with its disks in a file system on a logical volume, is resized on its own host.

Both hosts are emulated machines with real LVM, on the network of a lab.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import time
import typing as t

import kernel_way
import pytest
import sizing_guest
import storage_vm
from flow import CACHE
from kernel_way import WORDS, ComputeHost
from local_flow import FLAVORS, GIB, GROUP, HANGING, INSTANCES, MIB, LocalFlow

from ansible_collections.bootflow.compute.plugins.module_utils.hosts.disks.stores.qcow2_room import volume_room

pytestmark = pytest.mark.long

GROWN = {"name": "grown", "vcpus": 1, "memory_mb": 32, "root_gb": 2, "ephemeral_gb": 2, "swap": 32}
# It hears no power button.
QUICK = {"bootflow_shutdown_timeout": 1}
NOTE = "what the guest wrote"
HERE = {"bootflow_resize_flavor": "grown", "bootflow_allow_resize_to_same_host": True}
SMALL, LARGE = (GIB, GIB, 64 * MIB), (2 * GIB, 2 * GIB, 32 * MIB)  # root, ephemeral disk, swap
# LVM hangs in the second rename of a logical volume.
SECOND_RENAME = """#!/bin/sh
if [ "$1" = lvrename ] && ! mkdir /run/lab/renamed 2>/dev/null; then
%s
fi
exec /sbin/lvm "$@"
""" % HANGING.partition("\n")[2]


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

    def __init__(self, computes: list[ComputeHost], folder: t.Any, alone: bool = False, backend: str = "lvm"):
        self.computes = {c.name: c for c in computes}
        self.flow = LocalFlow(computes[0], folder, backend, () if alone else computes[1:])
        specs = self.flow.variables["bootflow_flavors"][0]["extra_specs"]
        self.flow.variables["bootflow_flavors"].append({**GROWN, "extra_specs": specs})

    def boot(self) -> None:
        self.flow.boot(self.flow.entry("three"), bootflow_wait_console=self.flow.said())
        self.operate("stop")
        self.write_note()
        self.operate("start")

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

    # what is in its disks

    def file(self, script: str) -> str:
        """Look into the file system of the ephemeral disk of the guest, which is off, or has not mounted it."""
        return self.host.sh(
            "mkdir -p /mnt && mount %s /mnt && { %s; }; umount /mnt" % (self.device("disk.eph0"), script)
        )

    def write_note(self) -> None:
        self.file("echo '%s' >/mnt/note; sync" % NOTE)

    def note(self) -> str:
        return self.file("cat /mnt/note").strip()

    def type_of_swap(self) -> str:
        return self.host.sh("blkid -p -o value -s TYPE %s" % self.device("disk.swap")).strip()

    def volumes(self) -> dict[str, int]:
        """The sizes of the logical volumes on its host."""
        return {n.partition("_")[2]: lv["size"] for n, lv in self.flow.volumes(self.host).items()}

    def has(self, sizes: tuple[int, int, int]) -> bool:
        return self.volumes() == dict(zip(("disk", "disk.eph0", "disk.swap"), sizes, strict=True))

    def is_there(self, sizes: tuple[int, int, int]) -> None:
        """It runs on its host, with these disks and its file, and is nowhere else."""
        deadline = time.monotonic() + 120
        while sizing_guest.said(WORDS, sizes[0]) not in self.flow.console(self.row["host"], self.row["uuid"]):
            assert time.monotonic() < deadline, self.flow.console(self.row["host"], self.row["uuid"])
            time.sleep(1)
        assert self.has(sizes) and self.note() == NOTE and self.type_of_swap() == "swap"
        for name, host in self.computes.items():
            said = host.sh("virsh -q -c qemu:///system domstate %s 2>/dev/null || true" % self.row["uuid"]).strip()
            assert (said == "running") == (name == self.row["host"]), (name, said)


class MountedMoves(Moves):
    """The same with disks that are files in a file system on a logical volume."""

    def __init__(self, computes: list[ComputeHost], folder: t.Any):
        super().__init__(computes, folder, alone=True, backend="qcow2_on_lvm")

    @property
    def place(self) -> str:
        return "%s/%s/disk" % (INSTANCES, self.row["uuid"])

    def raw(self, name: str, script: str) -> str:
        """Look into a disk, as /run/raw."""
        convert = "qemu-img convert -U -f qcow2 -O raw %s/%s /run/raw" % (self.place, name)
        return self.host.sh("%s && { %s; }; rm -f /run/raw" % (convert, script))

    def write_note(self) -> None:
        write = "echo '%s' >/run/note && debugfs -w -R 'write /run/note note' /run/raw" % NOTE
        self.raw("disk.eph0", "%s && qemu-img convert -n -f raw -O qcow2 /run/raw %s/disk.eph0" % (write, self.place))

    def note(self) -> str:
        return self.raw("disk.eph0", "debugfs -R 'cat note' /run/raw 2>/dev/null").strip()

    def type_of_swap(self) -> str:
        return self.raw("disk.swap", "blkid -p -o value -s TYPE /run/raw").strip()

    @staticmethod
    def room(sizes: tuple[int, int, int]) -> int:
        """What the logical volume for these disks takes."""
        return -(-volume_room(sizes) // (4 * MIB)) * 4 * MIB

    def has(self, sizes: tuple[int, int, int]) -> bool:
        described = [
            self.host.sh("qemu-img info -U --output=json %s/%s" % (self.place, name))
            for name in ("disk", "disk.eph0", "disk.swap")
        ]
        found = tuple(json.loads(text)["virtual-size"] for text in described)
        return found == sizes and self.volumes() == {"disk": self.room(sizes)} and self.is_mounted()

    def is_mounted(self) -> bool:
        """Now, and when the host starts; and nothing else of it."""
        device = self.device("disk")
        (line,) = self.host.sh("grep x-bootflow /etc/fstab").splitlines()
        (mount,) = self.host.sh("grep %s /proc/mounts" % self.row["uuid"]).splitlines()
        assert line.split()[:2] == [device, self.place] and mount.split()[1] == self.place
        of_device = self.host.sh("lsblk -d -n -o MAJ:MIN %s" % device)
        assert self.host.sh("findmnt -n -o MAJ:MIN %s" % self.place).split() == of_device.split()
        return True


def test_to_another_volume_group_and_back(computes: list[ComputeHost], tmp_path: t.Any) -> None:
    moves = Moves(computes, tmp_path)
    flow = moves.flow
    assert GROWN["name"] not in {f["name"] for f in FLAVORS}
    moves.boot()
    source = moves.host
    (other,) = [c for c in computes if c is not source]

    moves.operate("resize", bootflow_resize_flavor="grown")
    assert moves.host is other and moves.row["vm_state"] == "resized"
    moves.is_there(LARGE)
    moves.operate("revert_resize")
    assert moves.host is source and moves.row["vm_state"] == "active"
    moves.is_there(SMALL)
    assert flow.volumes(other) == {}

    moves.operate("migrate")
    moves.operate("confirm_resize")
    assert moves.host is other and moves.row["vm_state"] == "active"
    moves.is_there(SMALL)
    assert flow.volumes(source) == {}
    flow.check_ledger()
    flow.delete("app")
    assert flow.volumes(other) == {} and flow.residue() == {}


def test_where_it_is(computes: list[ComputeHost], tmp_path: t.Any) -> None:
    """One host with a volume group: its guests are resized, brought back and kept there."""
    moves = Moves(computes, tmp_path, alone=True)
    flow = moves.flow
    moves.boot()

    moves.operate("resize", **HERE)
    assert moves.row["vm_state"] == "resized"
    was = {"disk.resize.old": GIB, "disk.eph0.resize.old": GIB, "disk.swap.resize.old": 64 * MIB}
    assert moves.volumes() == {"disk": 2 * GIB, "disk.eph0": 2 * GIB, "disk.swap": 32 * MIB, **was}
    assert all(flow.tags(moves.row["uuid"]) <= lv["tags"] for lv in flow.volumes().values())
    done = flow.run("audit", "--check")
    assert done.returncode == 0 and "changed=0" in done.output, done.output
    moves.operate("revert_resize")
    assert moves.row["vm_state"] == "active"
    moves.is_there(SMALL)

    moves.operate("resize", **HERE)
    moves.operate("confirm_resize")
    assert moves.row["vm_state"] == "active"
    moves.is_there(LARGE)
    flow.check_ledger()
    flow.delete("app")
    assert flow.volumes() == {} and flow.residue() == {}


def test_files_on_a_logical_volume_where_they_are(computes: list[ComputeHost], tmp_path: t.Any) -> None:
    """Resized and brought back; resized again and kept."""
    moves = MountedMoves(computes, tmp_path)
    flow = moves.flow
    moves.boot()
    moves.is_there(SMALL)

    moves.operate("resize", **HERE)
    assert moves.row["vm_state"] == "resized" and moves.is_mounted()
    assert moves.volumes() == {"disk": moves.room(LARGE), "disk.resize.old": moves.room(SMALL)}
    assert all(flow.tags(moves.row["uuid"]) == lv["tags"] for lv in flow.volumes().values())
    done = flow.run("audit", "--check")
    assert done.returncode == 0 and "changed=0" in done.output, done.output
    moves.operate("revert_resize")
    assert moves.row["vm_state"] == "active"
    moves.is_there(SMALL)

    moves.operate("resize", **HERE)
    moves.operate("confirm_resize")
    assert moves.row["vm_state"] == "active"
    moves.is_there(LARGE)
    flow.check_ledger()
    flow.delete("app")
    assert flow.volumes() == {} and flow.residue() == {}
    assert "x-bootflow" not in computes[0].sh("cat /etc/fstab")


def test_killed_while_logical_volumes_are_exchanged(computes: list[ComputeHost], tmp_path: t.Any) -> None:
    """Neither of the two has the name of its disks then."""
    moves = MountedMoves(computes, tmp_path)
    flow = moves.flow
    moves.boot()
    moves.host.sh("rm -rf /run/lab/renamed")
    flow.killed_while("lvm", SECOND_RENAME, "resize", bootflow_names=["app"], **QUICK, **HERE)
    assert moves.volumes() == {"disk.resize.new": moves.room(LARGE), "disk.resize.old": moves.room(SMALL)}
    done = flow.run("audit")
    assert done.returncode == 0 and moves.row["vm_state"] == "resized", done.output
    moves.operate("revert_resize")
    moves.is_there(SMALL)
    flow.check_ledger()
    flow.delete("app")
    assert flow.volumes() == {} and flow.residue() == {}
