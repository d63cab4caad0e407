# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Random histories of writes, backups, lost bitmaps and restores on a real host: what is restored equals a copy that was taken in the same instant.

The guest is paused while its disk is written, by its own QEMU, so that nothing else writes: a copy after a flush is the disk at the time of the backup.
"""

from __future__ import annotations

import random

import pytest
from flow import Flow, entry
from test_incremental_backups import Backups
from test_operations import guest, operate, states_of, virsh
from test_snapshots import Stores

FOLDER = "/var/lib/bootflow/instances/"
DEVICE = "/machine/peripheral/virtio-disk0/virtio-backend"
KIB = 1024
AREA = 96 * KIB  # KiB of the disk that are written to


class History:
    """The instance ``web``, its backups, and a copy of the disk as it was at the time of each."""

    def __init__(self, flow: Flow, stores: Stores, seed: int):
        self.flow, self.backups, self.random = flow, Backups(flow), random.Random(seed)
        self.folder = stores.shared
        self.full_next = "no complete backup"  # why the next backup must be full; "": it must be an increment
        self.steps: list[str] = []

    @property
    def disk(self) -> str:
        return "%s%s/disk" % (FOLDER, self.flow.instances()["web"]["uuid"])

    def qemu_io(self, command: str) -> None:
        monitor = 'qemu-io -d %s "%s"' % (DEVICE, command)
        uuid = self.flow.instances()["web"]["uuid"]
        argv = ("virsh", "-c", "qemu:///system", "qemu-monitor-command", uuid, "--hmp", monitor)
        output = self.backups.host.run(*argv).stdout
        assert "failed" not in output and "rror" not in output, output

    def write(self) -> None:
        for _number in range(self.random.randint(1, 6)):
            start, length = self.random.randrange(AREA), self.random.choice((4, 64, 200, 1000))
            self.qemu_io("write -q -P %d %dk %dk" % (self.random.randint(1, 255), start, length))
        if self.random.random() < 0.3:
            self.qemu_io("write -q -z %dk 512k" % self.random.randrange(AREA))

    def copy(self, name: str) -> str:
        """Copy the disk. Nothing writes to it: the guest is paused, and QEMU has flushed, or it is off."""
        path = "%s/%s.copy" % (self.folder, name)
        self.backups.host.run("qemu-img", "convert", "-U", "-f", "qcow2", "-O", "qcow2", self.disk, path)
        return path

    def account(self, words: str) -> str:
        """All that is needed to find the step that went wrong."""
        rows = ["%s %s on %s: %s" % (r["id"], r["kind"], r["parent_id"], r["reason"]) for r in self.backups.rows()]
        return "\n".join([words, " ".join(self.steps), *rows])

    def same(self, one: str, other: str) -> None:
        argv = ("qemu-img", "compare", "-U", "-f", "qcow2", "-F", "qcow2", one, other)
        done = self.backups.host.run(*argv, check=False)
        assert done.returncode == 0 and "Warning" not in done.stdout, self.account(done.stdout)

    def back_up(self, full: bool = False) -> None:
        self.qemu_io("flush")
        more = {"bootflow_backup_full": True} if full else {}
        self.backups.make(**more)
        row = self.backups.rows()[-1]
        assert row["state"] == "complete", self.steps
        wanted = "bootflow_backup_full" if full else self.full_next
        assert (row["kind"] == "full") == bool(wanted) and wanted in row["reason"], (row["reason"], self.steps)
        self.full_next = ""
        self.same("%s/%s" % (row["folder"], row["file"]), self.copy(row["id"]))

    def lose_bitmap(self) -> None:
        """QEMU is killed: a bitmap that was made in this run of it is nowhere."""
        self.backups.host.run("sh", "-c", "pkill -KILL qemu-system")
        self.flow.run("heartbeat")
        self.start()
        self.full_next = self.full_next or "lost"

    def stop_and_start(self) -> None:
        """The bitmap is written to the disk, and read again."""
        operate(self.flow, "unpause", "web")
        operate(self.flow, "stop", "web", bootflow_shutdown_timeout=1)
        self.start()

    def start(self) -> None:
        operate(self.flow, "start", "web")
        operate(self.flow, "pause", "web")

    def go_back(self) -> None:
        """In place, while the guest is off: what it wrote after its start would differ."""
        row = self.random.choice([r for r in self.backups.rows() if r["state"] == "complete"])
        operate(self.flow, "unpause", "web")
        operate(self.flow, "stop", "web", bootflow_shutdown_timeout=1)
        operate(self.flow, "revert", "web", bootflow_revert_backup=row["id"])
        assert states_of(self.flow) == {("stopped", None)} and guest(self.flow, "web") == "shut off"
        self.same(self.disk, "%s/%s.copy" % (self.folder, row["id"]))
        listed = self.backups.host.run("ls", FOLDER + "_snapshots", check=False).stdout.split()
        assert listed == [], "the image of the backup is removed"
        self.start()
        self.full_next = self.full_next or "lost"

    def verify_all(self) -> None:
        """All that was ever backed up reads as its copy, and hosts say so."""
        assert self.flow.run("incremental_backup_verify", bootflow_names=["web"]).returncode == 0, self.steps
        for row in self.backups.rows():
            assert row["verified_at"] is not None and row["damage"] == ""
            self.same("%s/%s" % (row["folder"], row["file"]), "%s/%s.copy" % (self.folder, row["id"]))


STEPS = {
    "write": 5,
    "back_up": 5,
    "lose_bitmap": 1,
    "stop_and_start": 1,
    "go_back": 1,
}


@pytest.mark.long
@pytest.mark.parametrize("seed", [1, 2])
def test_what_is_restored_is_what_was_there(flow: Flow, seed: int) -> None:
    history = History(flow, Stores(flow), seed)
    flow.boot(entry("web"))
    operate(flow, "pause", "web")
    names = history.random.choices(list(STEPS), weights=list(STEPS.values()), k=14)
    for name in ["back_up", *names, "write", "back_up", "go_back", "write", "back_up", "write", "back_up"]:
        history.steps.append(name)
        getattr(history, name)()
    history.verify_all()
    assert {"full", "incremental"} == set(history.backups.kinds())

    rows = history.backups.rows()
    damaged = "%s/%s" % (rows[-2]["folder"], rows[-2]["file"])  # the last one needs it
    change = "printf x | dd of=%s bs=1 seek=%d conv=notrunc 2>/dev/null" % (damaged, rows[-2]["size"] - 7)
    history.backups.host.run("sh", "-c", change)
    found = flow.run("incremental_backup_verify", bootflow_names=["web"])
    assert found.returncode == 2 and "BackupDamaged" in found.output and rows[-2]["id"] in found.output
    assert [bool(r["damage"]) for r in history.backups.rows()] == [False] * (len(rows) - 2) + [True, False]
    operate(flow, "unpause", "web")
    life = virsh(flow, "web", "domid")
    refused = operate(flow, "revert", "web", expect=2, bootflow_revert_backup="newest")
    assert "BackupDamaged" in refused and virsh(flow, "web", "domid") == life and guest(flow, "web") == "running"
    assert states_of(flow) == {("active", None)}
    operate(flow, "pause", "web")
    history.full_next = "which is damaged"
    history.back_up()
    flow.delete("web")
    assert flow.residue() == {}
