# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Incremental backups by whole playbooks: chains, failures, silence, killed runs, deletion, images of backups."""

from __future__ import annotations

import typing as t
from pathlib import Path

import pytest
from simulated_site import Site, entry
from test_snapshots import Snapshots

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors


class Incremental(Snapshots):
    """A site with the instances ``web`` and ``db``, whose backups are made."""

    def make(self, *names: str, options: tuple[str, ...] = (), expect: int = 0, **more: t.Any) -> str:
        return self.site.play("incremental_backup", *options, expect=expect, names=list(names or ["web"]), **more)

    def backups(self, name: str = "web") -> list[tuple[str, str, str, str | None]]:
        """Id, kind, state and parent of backups, the oldest first."""
        query = "SELECT id, kind, state, parent_id FROM instance_backups WHERE deleted = '' AND instance_name = '%s' ORDER BY created_at, id"
        return [tuple(row) for row in self.site.query(query % name)]

    def files(self) -> set[str]:
        """Names of the files of backups on all hosts."""
        return {f for folder, names in self.on_hosts().items() if folder.startswith("/b") for f in names}

    @property
    def host(self) -> t.Any:
        return self.site.hosts[self.places["web"]]


@pytest.fixture
def incremental(site: Site, tmp_path: Path) -> Incremental:
    made = Incremental(site, tmp_path)
    site.variables["bootflow_backup_directory"] = "/b"
    return made


def test_backups_follow_on_each_other_and_become_an_image(incremental: Incremental) -> None:
    site, before = incremental.site, incremental.site.dump()
    output = incremental.make(options=("--check", "--diff"))
    assert "Would incremental_backup" in output and "full backup: the instance has no complete backup" in output
    assert site.dump() == before and incremental.files() == set()
    assert "full backup" in incremental.make("web", "db")
    assert "increment" in incremental.make()
    (full, _kind, _state, _parent), (second, kind, state, parent) = incremental.backups()
    assert (kind, state, parent) == ("incremental", "complete", full)
    assert incremental.states() == {("active", None)}
    assert "on " + full in " ".join(site.play("incremental_backup_list", names=["web"]).split())

    restores = [{"name": "restored", "instance": "web"}]
    planned = site.play("incremental_backup_restore", "--check", "--diff", backup_restores=restores)
    assert "Would make" in planned and incremental.rows() == {}
    assert second in site.play("incremental_backup_restore", backup_restores=restores)
    row = incremental.rows()["restored"]
    assert row["status"] == "active" and (incremental.store / row["id"]).stat().st_size == row["size"]
    assert "the images are there" in site.play("incremental_backup_restore", backup_restores=restores)
    site.boots(entry("copy", image="restored"))
    assert site.places()["copy"][0] == "active"

    third = "full backup %s: bootflow_backup_full is set"
    output = incremental.make(backup_full=True)
    assert third % incremental.backups()[-1][0] in output
    assert "BackupInUse" in site.play("incremental_backup_delete", expect=2, backup_ids=[full])
    assert "Would delete" in site.play("incremental_backup_delete", "--check", names=["web"], backup_keep=1)
    assert len(incremental.backups()) == 3
    site.play("incremental_backup_delete", names=["web"], backup_keep=1)
    assert len(incremental.backups()) == 1 and len(incremental.files()) == 2  # and the one of db
    site.play("delete", names=["web"])
    assert len(incremental.backups()) == 1, "backups stay when their instance is deleted"
    site.play("incremental_backup_delete", names=["web", "db"], backup_keep=0)
    assert incremental.backups() == [] and incremental.files() == set()


@pytest.mark.long
def test_what_failed_is_no_parent(incremental: Incremental) -> None:
    incremental.make()
    ((first, *_rest),) = incremental.backups()
    incremental.host.items_fail("instance_backup", errors.DiskFull(host="h", path="/b", reason="full"), times=1)
    assert "full" in incremental.make(expect=2)
    assert [b[0] for b in incremental.backups()] == [first], "its host has said that nothing is left"
    incremental.host.is_silent("instance_backup", times=1)
    incremental.make(expect=2)
    assert [b[2] for b in incremental.backups()] == ["complete", "failed"]
    incremental.make()
    assert [(b[2], b[3]) for b in incremental.backups()] == [("complete", None), ("complete", first)]
    assert incremental.states() == {("active", None)}


@pytest.mark.long
def test_a_killed_run_leaves_no_parent(incremental: Incremental) -> None:
    site = incremental.site
    incremental.make()
    ((first, *_rest),) = incremental.backups()
    incremental.host.is_slow("instance_backup", 60.0)
    process = site.begin("incremental_backup", names=["web"])
    try:
        site.wait_until(lambda: ("active", "image_snapshot") in incremental.states())
        site.wait_for_module(incremental.host.name, "instance_backup", process)
    finally:
        site.kill(process)
    assert incremental.states() == {("active", None), ("active", "image_snapshot")}
    incremental.host.heal()
    site.play("audit", expect=0)
    assert incremental.states() == {("active", None)}
    assert [b[2] for b in incremental.backups()] == ["complete", "failed"]
    incremental.make()
    assert [(b[2], b[3]) for b in incremental.backups()] == [("complete", None), ("complete", first)]


@pytest.mark.long
def test_a_file_that_is_gone_is_told(incremental: Incremental) -> None:
    incremental.make()
    with incremental.host.state() as state:
        for files in state["model"]["files"].values():
            files.clear()
    refused = incremental.site.play(
        "incremental_backup_restore", expect=2, backup_restores=[{"name": "x", "instance": "web"}]
    )
    assert "BackupDamaged" in refused and incremental.rows() == {}
    assert "the last backup is not usable" in incremental.make()
    assert [b[1] for b in incremental.backups()] == ["full", "full"]


@pytest.mark.long
def test_damage_is_found_by_reading_back(incremental: Incremental) -> None:
    site = incremental.site
    assert "No complete backup" in site.play("incremental_backup_verify", names=["web"])
    incremental.make("web", "db")
    incremental.make()
    first, second = (b[0] for b in incremental.backups())
    assert "3 of 3 read back" in site.play("incremental_backup_verify")
    with incremental.host.state() as state:
        for files in state["model"]["files"].values():
            if second + ".qcow2" in files:
                files[first + ".qcow2"] = "0" * 64
    before = site.dump()
    planned = site.play("incremental_backup_verify", "--check", "--diff", expect=2, names=["web"])
    assert "%s of web is damaged" % first in planned and site.dump() == before
    found = site.play("incremental_backup_verify", expect=2)
    assert "BackupDamaged" in found and "2 of 3 read back" in found and "%s of web is damaged" % first in found
    listed = " ".join(site.play("incremental_backup_list", names=["web"]).split())
    assert "damaged: its file is another one" in listed and "it needs backup " + first in listed
    for wish in ({"backup": first}, {"instance": "web"}):
        refused = site.play("incremental_backup_restore", expect=2, backup_restores=[{"name": "x", **wish}])
        assert "BackupDamaged" in refused and incremental.rows() == {}
    assert "which is damaged" in incremental.make()
    assert [b[1] for b in incremental.backups()] == ["full", "incremental", "full"]
    incremental.host.is_silent("instance_backup_check", times=1)
    site.play("incremental_backup_verify", expect=2, names=["web"])
    assert "it needs backup" in " ".join(site.play("incremental_backup_list").split()), "silence takes nothing back"


@pytest.mark.long
def test_bad_requests_touch_nothing(incremental: Incremental) -> None:
    site, before = incremental.site, incremental.site.dump()
    assert "BackupNotFound" in site.play(
        "incremental_backup_restore", expect=2, backup_restores=[{"name": "x", "instance": "web"}]
    )
    assert "one of them" in site.play("incremental_backup_restore", expect=2, backup_restores=[{"name": "x"}])
    assert "either backups are named" in site.play("incremental_backup_delete", expect=2, names=["web"])
    assert "no instance is selected" in site.play("incremental_backup_delete", expect=2, backup_keep=1)
    assert site.dump() == before
