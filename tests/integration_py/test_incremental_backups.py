# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Incremental backups on real hosts: what is in them, what the guest notices, what loses a bitmap, and what failures leave."""

from __future__ import annotations

import json
import time
import typing as t
from pathlib import Path

import pytest
from flow import Flow, entry
from test_operations import READY, guest, operate, states_of, ticks, virsh, wait_ready
from test_rescue import definition
from test_snapshots import WRITER, Stores, raw

DIRECTORY = "/var/lib/bootflow/backups"
# Writes a random MiB each second.
BUSY = """(i=0; while :; do i=$((i+1)); dd if=/dev/urandom of=/dev/vda bs=1M seek=$((200+i%400)) count=1 conv=notrunc,fsync 2>/dev/null
sleep 1; done) &
"""


@pytest.fixture
def stores(flow: Flow) -> Stores:
    return Stores(flow)


class Backups:
    """The backups of the instance ``web``."""

    def __init__(self, flow: Flow):
        self.flow = flow

    @property
    def host(self) -> t.Any:
        return self.flow.lab.host(self.flow.instances()["web"]["host"])

    @property
    def folder(self) -> str:
        return "%s/%s" % (DIRECTORY, self.flow.instances()["web"]["uuid"])

    def make(self, expect: int = 0, options: tuple[str, ...] = (), **more: t.Any) -> str:
        return operate(self.flow, "incremental_backup", "web", expect=expect, options=options, **more)

    def rows(self) -> list[t.Any]:
        """Rows that are not deleted, the oldest first."""
        return self.flow.query("SELECT * FROM instance_backups WHERE deleted = '' ORDER BY created_at, id")

    def kinds(self) -> list[str]:
        return [row["kind"] for row in self.rows() if row["state"] == "complete"]

    def files(self) -> list[str]:
        done = self.host.run("sh", "-c", "ls -A %s 2>/dev/null || true" % self.folder)
        return sorted(done.stdout.split())

    def checkpoints(self) -> list[str]:
        return virsh(self.flow, "web", "checkpoint-list", "--name").split()

    def content(self, row: t.Any, target: Path) -> Path:
        """The disk of a backup, read by qemu-img alone."""
        source = "%s/%s" % (row["folder"], row["file"])
        self.host.run("qemu-img", "convert", "-f", "qcow2", "-O", "raw", source, str(target))
        return target


@pytest.fixture
def backups(flow: Flow) -> Backups:
    return Backups(flow)


def same(one: Path, other: Path) -> bool:
    """Whether two files have the same bytes."""
    with one.open("rb") as a, other.open("rb") as b:
        while True:
            chunk = a.read(1 << 20)
            if chunk != b.read(1 << 20):
                return False
            if not chunk:
                return True


def test_an_increment_has_what_the_guest_wrote_since(flow: Flow, stores: Stores, backups: Backups) -> None:
    flow.boot(entry("web", user_data=WRITER), **READY)
    wait_ready(flow, "web", "tick 2")
    host = flow.instances()["web"]["host"]
    before, life = definition(flow, "web"), virsh(flow, "web", "domid")
    planned = backups.make(options=("--check", "--diff"))
    assert "full backup: the instance has no complete backup" in planned and backups.rows() == []
    assert backups.files() == [] and backups.checkpoints() == []

    assert "full backup" in backups.make()
    (full,) = backups.rows()
    assert (full["kind"], full["state"], full["reason"]) == ("full", "complete", "the instance has no complete backup")
    assert states_of(flow) == {("active", None)} and guest(flow, "web") == "running"
    assert definition(flow, "web") == before and virsh(flow, "web", "domid") == life
    wait_ready(flow, "web", "tick %d" % (ticks(flow, "web")[-1] + 3))
    operate(flow, "pause", "web")
    assert "increment" in backups.make()
    _full, increment = backups.rows()
    assert increment["kind"] == "incremental" and increment["parent_id"] == full["id"]
    assert increment["size"] < full["size"] / 4
    assert sorted(backups.checkpoints()) == sorted("bootflow-" + row["id"] for row in (full, increment))
    stores.take("web", "copy", store="shared")
    copy = raw(stores.file("copy"), flow.folder)
    assert same(backups.content(increment, stores.shared / "increment.raw"), copy)
    assert not same(backups.content(full, stores.shared / "full.raw"), copy)
    assert backups.files() == sorted([full["file"], increment["file"], "manifest.json"])
    manifest = json.loads(backups.host.run("cat", backups.folder + "/manifest.json").stdout)
    assert [b["sha256"] for b in manifest["backups"]] == [full["checksum"], increment["checksum"]]

    restores = [{"name": "restored", "backup": increment["id"], "store": "shared"}]
    assert flow.run("incremental_backup_restore", bootflow_backup_restores=restores).returncode == 0
    assert same(raw(stores.file("restored"), flow.folder), copy)
    assert increment["id"] in flow.run("incremental_backup_list", bootflow_names=["web"]).output
    flow.delete("web")
    assert flow.residue() == {}
    assert flow.run("incremental_backup_delete", bootflow_names=["web"], bootflow_backup_keep=0).returncode == 0
    assert backups.rows() == [] and flow.lab.host(host).run("ls", "-A", DIRECTORY).stdout.split() == []


@pytest.mark.long
def test_bitmaps_outlive_stops_and_definitions_and_not_a_killed_qemu(
    flow: Flow, stores: Stores, backups: Backups
) -> None:
    flow.boot(entry("web", user_data=WRITER), **READY)
    wait_ready(flow, "web", "tick 2")
    backups.make()
    operate(flow, "stop", "web")
    assert "the guest does not run" in backups.make()
    operate(flow, "start", "web")
    backups.make()
    operate(flow, "reboot", "web", bootflow_reboot_type="HARD")
    backups.make()
    operate(flow, "suspend", "web")
    operate(flow, "resume", "web")
    operate(flow, "pause", "web")
    backups.make()
    kinds = ["full", "full", "incremental", "incremental", "incremental"]
    assert backups.kinds() == kinds
    first, _cold, second = backups.rows()[:3]
    assert second["parent_id"] == first["id"], "the backup of the stopped guest does not end the chain"
    stores.take("web", "copy", store="shared")
    copy = raw(stores.file("copy"), flow.folder)
    assert same(backups.content(backups.rows()[-1], stores.shared / "last.raw"), copy)
    operate(flow, "unpause", "web")

    backups.host.run("sh", "-c", "pkill -KILL qemu-system")
    flow.run("heartbeat")
    operate(flow, "start", "web")
    wait_ready(flow, "web", "tick 2")
    output = backups.make()
    assert "full backup" in output and "bitmap of the last backup is lost" in " ".join(output.split())
    assert backups.kinds() == [*kinds, "full"]
    assert backups.checkpoints() == ["bootflow-" + backups.rows()[-1]["id"]]
    backups.make()
    assert backups.kinds() == [*kinds, "full", "incremental"]
    flow.delete("web")
    assert flow.residue() == {}


@pytest.mark.long
def test_a_directory_without_room_leaves_nothing(flow: Flow, backups: Backups) -> None:
    for each in flow.lab.hosts:  # before the guest starts: its QEMU sees the mounts of then
        each.run("sh", "-c", "mkdir -p {0} && mount -t tmpfs -o size=400m none {0}".format(DIRECTORY))
    try:
        flow.boot(entry("web", user_data=WRITER + BUSY), **READY)
        wait_ready(flow, "web", "tick 2")
        host, life = backups.host, virsh(flow, "web", "domid")
        backups.make()
        (full,) = backups.rows()
        before = backups.files()
        wait_ready(flow, "web", "tick %d" % (ticks(flow, "web")[-1] + 4))
        fill = "dd if=/dev/zero of={0}/ballast bs=1M; truncate -s -1M {0}/ballast"
        host.run("sh", "-c", fill.format(DIRECTORY), check=False)
        output = backups.make(expect=2)
        assert "DiskFull" in output or "BackupFailed" in output, output
        assert backups.files() == before and backups.checkpoints() == ["bootflow-" + full["id"]]
        assert [row["id"] for row in backups.rows()] == [full["id"]]
        assert guest(flow, "web") == "running" and virsh(flow, "web", "domid") == life
        assert states_of(flow) == {("active", None)}
        host.run("rm", DIRECTORY + "/ballast")
        backups.make()
        assert backups.kinds() == ["full", "incremental"]
        flow.delete("web")
        assert flow.residue() == {}
    finally:
        for each in flow.lab.hosts:
            each.run("umount", "-l", DIRECTORY)


@pytest.mark.long
def test_a_backup_of_another_program_is_seen_at_once(flow: Flow, stores: Stores, backups: Backups) -> None:
    flow.boot(entry("web", user_data=WRITER), **READY)
    wait_ready(flow, "web", "tick 2")
    host, uuid = backups.host, flow.instances()["web"]["uuid"]
    xml = "<domainbackup mode='pull'><server transport='unix' socket='/run/foreign/socket'/></domainbackup>"
    host.run("sh", "-c", 'mkdir -p -m 0777 /run/foreign && echo "%s" > /run/foreign/xml' % xml)
    host.run("virsh", "-c", "qemu:///system", "backup-begin", uuid, "/run/foreign/xml")
    calls: list[t.Callable[[], str]] = [
        lambda: backups.make(expect=2),
        lambda: stores.take("web", "snap", expect=2),
        lambda: operate(flow, "suspend", "web", expect=2),
        lambda: operate(flow, "live_migrate", "web", expect=2),
    ]
    for call in calls:
        output = call()
        assert "BackupRuns" in output or "A backup of guest" in output, output
        assert "state change lock" not in output, "libvirt waits for half a minute, and says so"
        assert states_of(flow) == {("active", None)} and guest(flow, "web") == "running"
    assert "pull" in virsh(flow, "web", "backup-dumpxml"), "it is left alone"
    virsh(flow, "web", "domjobabort")
    backups.make()
    assert backups.kinds() == ["full"]
    flow.delete("web")
    assert flow.residue() == {}


@pytest.mark.long
def test_a_backup_that_is_killed_leaves_nothing_half(flow: Flow, backups: Backups) -> None:
    fill = "dd if=/dev/urandom of=/dev/vda bs=1M seek=200 count=300 conv=notrunc,fsync 2>/dev/null\necho filled\n"
    flow.boot(entry("web", user_data=WRITER + fill), **READY)
    wait_ready(flow, "web", "filled")
    for moment in (0.3, 1.0, 2.0):
        process = flow.start("incremental_backup", {"bootflow_names": ["web"], "bootflow_backup_full": True})
        flow.wait_for("SELECT 1 FROM instances WHERE task_state = 'image_snapshot'", 60, process)
        time.sleep(moment)
        flow.kill(process)
        deadline = time.monotonic() + 60
        while True:
            done = flow.run("audit").output
            if states_of(flow) == {("active", None)}:
                break
            assert "still works on the guest" in done and time.monotonic() < deadline, done
        assert {row["state"] for row in backups.rows()} <= {"failed", "complete"}
        assert guest(flow, "web") == "running" and "Backup" not in virsh(flow, "web", "domjobinfo")
    backups.make()
    complete = [row["id"] for row in backups.rows()]
    assert {row["state"] for row in backups.rows()} == {"complete"}
    assert backups.files() == sorted([*("%s.qcow2" % i for i in complete), "manifest.json"])
    assert {"bootflow-" + complete[-1]} <= set(backups.checkpoints()) <= {"bootflow-" + i for i in complete}
    flow.delete("web")
    assert flow.residue() == {}
