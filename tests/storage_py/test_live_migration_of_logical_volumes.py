# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Guests whose disks are logical volumes, or files on one, go to another volume group while they count and write to them.

Both hosts are emulated machines with real LVM, on the network of a lab; the extents of the second group are larger than the guest's disks are multiples of.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import shutil
import time
import typing as t
from pathlib import Path

import counting_guest
import kernel_way
import pytest
import storage_vm
from counting_guest import ticks
from flow import CACHE
from kernel_way import ComputeHost
from local_flow import GIB, GROUP, HANGING, INSTANCES, MIB, LocalFlow
from lxml import etree

pytestmark = pytest.mark.long

OTHER_GROUP = "other-local"
EXTENT = 32 * MIB  # there; it is 4 MiB in GROUP
ROOT, SWAP = 36 * MIB, 40 * MIB
DISKS = ("disk", "disk.swap")
QUICK = {"bootflow_shutdown_timeout": 1}  # it hears no power button
SLOWER = {"bootflow_live_migration_bandwidth": 2}
STALE = "WHAT AN EARLIER GUEST LEFT"
KEPT = "/var/lib/bootflow/console-%s"
BACKENDS = pytest.mark.parametrize("backend", ["lvm", "qcow2_on_lvm"])


def hangs_in(command: str) -> str:
    """LVM hangs when it is to do this."""
    hang = HANGING.partition("\n")[2]
    return '#!/bin/sh\nif [ "$1" = %s ]; then\n%sfi\nexec /sbin/lvm "$@"\n' % (command, hang)


@pytest.fixture(scope="module")
def computes(lab: t.Any) -> t.Iterator[list[ComputeHost]]:
    """Two compute hosts, each with a volume group of its own, which had other guests, and the program that makes certificates."""
    program = shutil.which("openssl")
    assert program
    image = storage_vm.build_image(CACHE / "storage")
    with contextlib.ExitStack() as held:
        found = []
        for number, group in ((5, GROUP), (6, "-s %db %s" % (EXTENT, OTHER_GROUP))):
            vm = storage_vm.StorageVM(
                str(CACHE / ("live-lvm%d" % number)), image, lab=lab, disks={"pv1": 3 * GIB}, number=number,
                kind="compute",
            )  # fmt: skip
            host = held.enter_context(kernel_way.compute_host(vm))
            vm.put(program, "/usr/local/bin/openssl")
            host.sh(
                "chmod 755 /usr/local/bin/openssl; mkdir -p /usr/lib/ssl; touch /usr/lib/ssl/openssl.cnf /etc/fstab"
            )
            host.sh("vgcreate -q %s %s" % (group, vm.disk("pv1")))
            name = group.rpartition(" ")[2]
            host.sh(
                "lvcreate -q -y -n former -L 256M %s && yes '%s' | head -c 256M >/dev/%s/former && sync &&"
                " lvremove -q -y %s/former" % (name, STALE, name, name)
            )
            found.append(host)
        yield found


class Counting(LocalFlow):
    """A guest that counts, on one of two hosts. It boots on the first."""

    def __init__(self, computes: list[ComputeHost], folder: Path, backend: str):
        super().__init__(computes[0], folder, backend, computes[1:])
        self.backend = backend
        self.computes = {c.name: c for c in computes}
        self.groups = {computes[0].name: GROUP, computes[1].name: OTHER_GROUP}
        inventory = json.loads(Path(self.lab.inventory).read_text())
        (group,) = inventory.values()
        for name, its in self.groups.items():
            group["hosts"][name]["bootflow_disk_volume_group"] = its
        Path(self.lab.inventory).write_text(json.dumps(inventory))
        self.image.write_bytes(counting_guest.boot_sector().ljust(ROOT, b"\0"))
        checksum = hashlib.sha256(self.image.read_bytes()).hexdigest()
        Path(str(self.image) + ".sha256").write_text(checksum)
        (image,) = self.variables["bootflow_images"]
        image.update(checksum="sha256:" + checksum, min_disk=1)
        flavor = {"name": "counting", "vcpus": 1, "memory_mb": 32, "root_gb": 0, "swap": SWAP // MIB}
        self.variables.update(
            bootflow_allow_zero_disk_flavor=True,
            bootflow_flavors=[
                {**flavor, "extra_specs": self.variables["bootflow_flavors"][0]["extra_specs"]},
            ],
        )

    def begin(self) -> None:
        self.boot(self.entry("counting"), bootflow_hosts=[self.compute.name])
        self.operate("stop")
        self.on_swap("write -P 0x5a 20M 1M")
        self.operate("start")
        self.wait_ticks(3)
        self.keep_console()

    def operate(self, playbook: str, *options: str, expect: int = 0, **variables: t.Any) -> str:
        done = self.run(playbook, *options, bootflow_names=["app"], **QUICK, **variables)
        assert done.returncode == expect, done.output
        return done.output

    @property
    def row(self) -> t.Any:
        return self.instances()["app"]

    @property
    def host(self) -> ComputeHost:
        return self.computes[self.row["host"]]

    @property
    def other(self) -> ComputeHost:
        (found,) = [c for n, c in self.computes.items() if n != self.row["host"]]
        return found

    def volumes(self, compute: ComputeHost | None = None) -> dict[str, dict[str, t.Any]]:
        host = compute or self.host
        text = host.sh(
            "lvs --reportformat json --units b --nosuffix -o lv_name,lv_size,lv_tags %s" % self.groups[host.name]
        )
        rows = json.loads(text[text.index("{") :])["report"][0]["lv"]
        return {r["lv_name"]: {"size": int(r["lv_size"]), "tags": set(r["lv_tags"].split(",")) - {""}} for r in rows}

    # what it says

    def said(self) -> str:
        return self.console(self.row["host"], self.row["uuid"])

    def wait_ticks(self, more: int) -> None:
        begun = len(ticks(self.said()))
        end = time.monotonic() + 180
        while len(ticks(self.said())) < begun + more:
            assert time.monotonic() < end, self.said()
            time.sleep(1)

    def keep_console(self) -> None:
        log = "%s/%s/console.log" % (INSTANCES, self.row["uuid"])
        self.host.run("ln", "-f", log, KEPT % self.row["uuid"])

    def counted(self, *hosts: ComputeHost) -> int:
        """It counted without a gap on these hosts, and then where it is. Returns the last number that it said."""
        kept = [h.run("cat", KEPT % self.row["uuid"]).stdout for h in hosts]
        text = "".join([*kept, self.said()])
        numbers = ticks(text)
        assert numbers == list(range(1, len(numbers) + 1)) and "F" not in text, text
        return len(numbers)

    # what it has

    def is_there(self, paused: bool = False) -> None:
        """It is on its host only, with its disks, and nothing of it is elsewhere."""
        row, host = self.row, self.host
        assert (row["vm_state"], row["task_state"]) == ("paused" if paused else "active", None)
        self.nothing_on(self.other)
        domain = host.virsh("domstate", row["uuid"]).strip()
        assert domain == ("paused" if paused else "running")
        assert len(self.query("SELECT 1 FROM claims")) == 1 and not self.query("SELECT 1 FROM cleanups")
        names = {"%s_%s" % (row["uuid"], n) for n in (DISKS if self.backend == "lvm" else ("disk",))}
        found = self.volumes()
        assert set(found) == names
        for name, lv in found.items():
            (source,) = [{tag for tag in lv["tags"] if tag.startswith("bootflow.source=image/")}]
            assert lv["tags"] == self.tags(row["uuid"]) | source
            assert bool(source) == (self.backend == "lvm" and name.endswith("_disk")), lv
        self.has_its_paths()
        if self.backend == "qcow2_on_lvm":
            (line,) = host.sh("grep x-bootflow /etc/fstab").splitlines()
            (mount,) = host.sh("grep %s /proc/mounts" % row["uuid"]).splitlines()
            assert line.split()[:2] == [self.device("disk"), self.folder_of_disks] and (
                mount.split()[1] == self.folder_of_disks
            )
        self.check_ledger()

    def has_its_paths(self) -> None:
        """Of its disks, in the definition that runs and in the one that is kept; they are as large as ever."""
        for options in ((), ("--inactive",)):
            xml = etree.fromstring(self.host.virsh("dumpxml", *options, self.row["uuid"]).encode())
            disks = {d.find("target").get("dev"): d.find("source") for d in xml.iterfind("devices/disk")}
            assert [disks[target].get("file") or disks[target].get("dev") for target in ("vda", "vdb")] == [
                self.path(name) for name in DISKS
            ]
        assert [self.seen(target) for target in ("vda", "vdb")] == [ROOT, SWAP]

    def seen(self, target: str) -> int:
        """The bytes that the guest has of a disk."""
        lines = self.host.virsh("domblkinfo", self.row["uuid"], target).splitlines()
        return int(next(line for line in lines if line.startswith("Capacity")).split()[1])

    def nothing_on(self, host: ComputeHost) -> None:
        uuid = self.row["uuid"]
        assert self.volumes(host) == {}
        assert "x-bootflow" not in host.sh("cat /etc/fstab") and uuid not in host.sh("cat /proc/mounts")
        assert not host.sh("ls -d %s/%s 2>/dev/null || true" % (INSTANCES, uuid)).strip()
        assert uuid not in host.virsh("list", "--all", "--uuid")

    @property
    def folder_of_disks(self) -> str:
        return "%s/%s/disk" % (INSTANCES, self.row["uuid"])

    def device(self, name: str) -> str:
        return "/dev/%s/%s_%s" % (self.groups[self.row["host"]], self.row["uuid"], name)

    def path(self, name: str) -> str:
        return self.device(name) if self.backend == "lvm" else "%s/%s" % (self.folder_of_disks, name)

    def on_swap(self, command: str, *options: str) -> str:
        form = "raw" if self.backend == "lvm" else "qcow2"
        return self.host.run("qemu-io", *options, "-f", form, "-c", command, self.path("disk.swap")).stdout

    def written(self) -> str:
        """What the guest, which is paused, has written to its boot disk."""
        path = self.path("disk")
        if self.backend == "qcow2_on_lvm":
            self.host.sh("qemu-img convert -U -f qcow2 -O raw %s /run/raw" % path)
            path = "/run/raw"
        direct = "iflag=direct" if self.backend == "lvm" else ""
        look = "dd if=%s bs=512 skip=%d count=4096 %s 2>/dev/null | tr -d '\\000'; rm -f /run/raw"
        return self.host.sh(look % (path, counting_guest.FIRST, direct))

    def has_written(self, last: int) -> None:
        """A guest says a number before it writes the number: a pause may come between."""
        assert ticks(self.written()) in (list(range(1, last + 1)), list(range(1, last)))
        assert "verification failed" not in self.on_swap("read -P 0x5a 20M 1M", "-r", "-U")

    def wait_settled(self) -> None:
        end = time.monotonic() + 400
        while self.row["task_state"] is not None:
            assert time.monotonic() < end
            self.run("audit")
            time.sleep(2)
        assert self.run("heartbeat").returncode == 0

    def gone(self) -> None:
        self.delete("app")
        for host in self.computes.values():
            assert self.volumes_of(host) == {} and "x-bootflow" not in host.sh("cat /etc/fstab")
        assert self.residue() == {}

    def volumes_of(self, host: ComputeHost) -> dict[str, t.Any]:
        return self.volumes(host)


def wait_migrating(flow: Counting, process: t.Any) -> None:
    """Wait until libvirt sends the guest's disks or memory."""
    flow.wait_for("SELECT 1 FROM migrations WHERE status = 'running'", 240, process)
    uuid, home = flow.row["uuid"], flow.host
    end = time.monotonic() + 120
    # libvirt counts nothing yet while it prepares the job.
    while not re.search(r"Data total: +[1-9]", home.virsh("domjobinfo", uuid, check=False)):
        assert time.monotonic() < end and process.poll() is None, (flow.folder / "killed.log").read_text()[-3000:]
        time.sleep(0.5)


@BACKENDS
def test_to_another_volume_group_and_back(computes: list[ComputeHost], tmp_path: t.Any, backend: str) -> None:
    """There while it runs, back while it is paused; then it is rebooted hard, and goes by drain."""
    flow = Counting(computes, tmp_path, backend)
    flow.begin()
    flow.is_there()
    source, other = flow.host, flow.other
    told = flow.operate("live_migrate")
    assert "still has to be cleaned up" not in told and flow.host is other, told
    flow.is_there()
    flow.wait_ticks(3)
    flow.operate("pause")
    last = flow.counted(source)
    flow.has_written(last)
    if backend == "lvm":
        for name, size in (("disk", ROOT), ("disk.swap", SWAP)):
            assert flow.volumes()["%s_%s" % (flow.row["uuid"], name)]["size"] == 64 * MIB
            rest = "dd if=%s bs=4k skip=%d 2>/dev/null | tr -d '\\000' | wc -c" % (flow.device(name), size // 4096)
            assert int(other.sh(rest)) == 0, "others' data"

    flow.keep_console()
    flow.operate("live_migrate")
    assert flow.host is source
    flow.is_there(paused=True)
    flow.operate("unpause")
    flow.wait_ticks(2)
    flow.operate("pause")
    text = other.run("cat", KEPT % flow.row["uuid"]).stdout + flow.said()
    numbers = ticks(text)
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers))) and numbers[-1] > last
    flow.has_written(numbers[-1])
    flow.operate("unpause")

    drained = flow.run("drain", bootflow_drain_host=source.name)
    assert drained.returncode == 0 and "1 to live_migrate" in drained.output, drained.output
    assert flow.run("host", bootflow_host=[source.name], bootflow_host_state="enabled").returncode == 0
    assert flow.host is other
    flow.is_there()
    flow.operate("reboot", bootflow_reboot_type="HARD")
    flow.wait_ticks(2)
    assert flow.seen("vdb") == (64 * MIB if backend == "lvm" else SWAP)
    audited = flow.run("audit")
    assert audited.returncode == 0 and "orphan" not in audited.output, audited.output
    flow.operate("live_migrate")
    assert flow.host is source and flow.seen("vdb") == (64 * MIB if backend == "lvm" else SWAP)
    flow.gone()


@BACKENDS
def test_a_guest_that_stays(computes: list[ComputeHost], tmp_path: t.Any, backend: str) -> None:
    """The new volume group has no room; then it is aborted on its way."""
    flow = Counting(computes, tmp_path, backend)
    flow.begin()
    assert flow.run("heartbeat").returncode == 0
    source, other = flow.host, flow.other
    other.sh("lvcreate -q -y -n others -l 100%%FREE %s" % OTHER_GROUP)
    try:
        told = flow.operate("live_migrate", expect=2)
    finally:
        other.sh("lvremove -q -y %s/others" % OTHER_GROUP)
    assert "DiskFull" in told and "Insufficient Space on Volume Group" in told, told
    assert flow.host is source
    flow.is_there()

    process = flow.start("live_migrate", {"bootflow_names": ["app"], **SLOWER})
    wait_migrating(flow, process)
    assert len(flow.volumes(other)) == (2 if backend == "lvm" else 1)
    assert "were left" in flow.operate("live_migration_abort")
    assert process.wait(240) == 2, (flow.folder / "killed.log").read_text()[-3000:]
    assert [r["status"] for r in flow.query("SELECT status FROM migrations ORDER BY id")] == ["error", "cancelled"]
    assert flow.host is source
    flow.is_there()
    flow.wait_ticks(2)
    flow.operate("pause")
    flow.has_written(flow.counted())
    flow.gone()


@pytest.mark.parametrize(
    "backend, program, script",
    [
        ("lvm", "lvm", hangs_in("lvcreate")),
        ("lvm", "lvm", hangs_in("lvchange")),
        ("qcow2_on_lvm", "mkfs.ext4", HANGING),
        ("qcow2_on_lvm", "mount", HANGING),
        ("qcow2_on_lvm", "qemu-img", HANGING),
    ],
    ids=["lvcreate", "lvchange", "mkfs", "mount", "qemu-img"],
)
def test_a_run_that_is_killed_before(
    computes: list[ComputeHost], tmp_path: t.Any, backend: str, program: str, script: str
) -> None:
    """With its module on the new host, which is in that program."""
    flow = Counting(computes, tmp_path, backend)
    flow.begin()
    source, flow.compute = flow.host, flow.other
    flow.killed_while(program, script, "live_migrate", bootflow_names=["app"])
    flow.wait_settled()
    assert flow.host is source
    flow.is_there()
    flow.wait_ticks(2)
    flow.counted()
    flow.operate("live_migrate")
    assert flow.host is flow.compute
    flow.is_there()
    flow.wait_ticks(2)
    flow.operate("pause")
    flow.has_written(flow.counted(source))
    flow.gone()


@pytest.mark.parametrize("when", ["running", "post-migrating"])
@BACKENDS
def test_a_run_that_is_killed(computes: list[ComputeHost], tmp_path: t.Any, backend: str, when: str) -> None:
    """While libvirt sends the guest, which goes on; and when it is over, before its former host is cleaned."""
    flow = Counting(computes, tmp_path, backend)
    flow.begin()
    source, other = flow.host, flow.other
    process = flow.start("live_migrate", {"bootflow_names": ["app"], **(SLOWER if when == "running" else {})})
    try:
        if when == "running":
            wait_migrating(flow, process)
        else:
            flow.wait_for("SELECT 1 FROM migrations WHERE status = 'post-migrating'", 400, process)
    finally:
        flow.kill(process)
    flow.wait_settled()
    audited = flow.run("audit")
    assert audited.returncode == 0, audited.output
    assert flow.host is other
    flow.is_there()
    flow.wait_ticks(2)
    flow.operate("pause")
    flow.has_written(flow.counted(source))
    flow.gone()
