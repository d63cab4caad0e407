# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Incremental backups on real hosts: what is in them, what the guest notices, what loses a bitmap, and what failures leave."""

from __future__ import annotations

import json
import typing as t
from pathlib import Path

import pytest
from flow import Flow, entry
from test_operations import READY, guest, operate, states_of, ticks, virsh, wait_ready
from test_rescue import definition
from test_snapshots import WRITER, Stores, raw

DIRECTORY = "/var/lib/bootflow/backups"


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
    assert backups.checkpoints() == ["bootflow-" + full["id"], "bootflow-" + increment["id"]]
    stores.take("web", "copy", store="shared")
    copy = raw(stores.file("copy"), flow.folder)
    assert same(backups.content(increment, stores.shared / "increment.raw"), copy)
    assert not same(backups.content(full, stores.shared / "full.raw"), copy)
    assert backups.files() == sorted([full["file"], increment["file"], "manifest.json"])
    manifest = json.loads(backups.host.run("cat", backups.folder + "/manifest.json").stdout)
    assert [b["sha256"] for b in manifest["backups"]] == [full["checksum"], increment["checksum"]]
    flow.delete("web")
