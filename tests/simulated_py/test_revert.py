# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Reverts by whole playbooks: the store of the controller is a real folder, hosts are models."""

from __future__ import annotations

import typing as t
from pathlib import Path

import pytest
from simulated_site import Site, entry

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors


class Reverts:
    """A site with the instances ``web`` and ``db``, and a snapshot of each."""

    def __init__(self, site: Site, folder: Path):
        self.site = site
        store = folder / "store"
        store.mkdir()
        site.variables["bootflow_image_stores"] = [{"name": "here", "path": str(store)}]
        site.boots(entry("web"), entry("db"))
        site.play("snapshot", names=["web", "db"], snapshot_name="%(name)s-snap")
        self.images = dict(site.query("SELECT name, id FROM images"))
        self.uuids = dict(site.query("SELECT display_name, uuid FROM instances"))
        self.places = {name: str(host) for name, (_state, host) in site.places().items()}

    def revert(self, *names: str, options: tuple[str, ...] = (), expect: int = 0, **more: t.Any) -> str:
        given = {"revert_image": "%(name)s-snap", "names": list(names or ["web"]), **more}
        return " ".join(self.site.play("revert", *options, expect=expect, **given).split())

    def root(self, name: str) -> str | None:
        """The id of the image that the root disk went back to."""
        folder = self.site.hosts[self.places[name]].folders[self.uuids[name]]
        assert "replacement" not in folder
        return t.cast("str | None", folder.get("root_image"))

    def states(self) -> dict[str, tuple[str, str | None]]:
        rows = self.site.query("SELECT display_name, vm_state, task_state FROM instances")
        return {name: (vm_state, task_state) for name, vm_state, task_state in rows}

    def definition(self, name: str) -> str:
        return str(self.site.hosts[self.places[name]].domains[self.uuids[name]]["xml"])


@pytest.fixture
def reverts(site: Site, tmp_path: Path) -> Reverts:
    return Reverts(site, tmp_path)


def test_instances_go_back_to_their_own_snapshots(reverts: Reverts) -> None:
    before, dump = reverts.definition("web"), reverts.site.dump()
    output = reverts.revert(options=("--check", "--diff"))
    assert "Would revert" in output and "root disk of image web-snap" in output and reverts.site.dump() == dump
    assert reverts.root("web") is None
    output = reverts.revert("web", "db")
    assert "image web-snap" in output and "image db-snap" in output
    assert {name: reverts.root(name) for name in ("web", "db")} == {
        n: reverts.images[n + "-snap"] for n in ("web", "db")
    }
    assert set(reverts.states().values()) == {("active", None)} and reverts.definition("web") == before
    assert reverts.places == {name: host for name, (_state, host) in reverts.site.places().items()}
    reverts.site.play("stop", names=["web"])
    reverts.revert()
    assert reverts.states()["web"] == ("stopped", None)


def test_what_is_refused_changes_nothing(reverts: Reverts) -> None:
    dump = reverts.site.dump()
    output = reverts.revert("web", "db", expect=2, revert_image="db-snap")
    assert "ImageUnacceptable" in output and "bootflow.compute.rebuild" in output
    assert "bootflow_revert_image is not set" in reverts.revert(expect=2, revert_image="")
    assert "bootflow_revert_image" in reverts.revert(expect=2, image="web-snap")
    assert "LedgerImageNotFound" in reverts.revert(expect=2, revert_image="none")
    assert reverts.site.dump() == dump and reverts.root("web") is None


def test_a_failure_leaves_the_guest_as_it_was(reverts: Reverts) -> None:
    host = reverts.site.hosts[reverts.places["web"]]
    host.items_fail("instance_disks_revert", errors.VolumeIsBusy(message="the disk is open"), times=1)
    assert "the disk is open" in reverts.revert(expect=2)
    assert reverts.root("web") is None and reverts.states()["web"] == ("active", None)
    reverts.revert()
    assert reverts.root("web") == reverts.images["web-snap"]


def test_a_killed_run_is_settled_by_a_report_and_done_again(reverts: Reverts) -> None:
    site = reverts.site
    host = site.hosts[reverts.places["web"]]
    host.is_slow("domain_power", 60.0)
    process = site.begin("revert", names=["web"], revert_image="web-snap")
    try:
        site.wait_for_module(host.name, "domain_power", process)
    finally:
        site.kill(process)
    assert reverts.states()["web"] == ("active", "rebuild_block_device_mapping")
    host.heal()
    assert "web-snap" in " ".join(site.play("image_delete", expect=2, image_names=["web-snap"]).split())
    site.play("audit", expect=0)
    assert reverts.states()["web"][1] is None
    reverts.revert()
    assert reverts.root("web") == reverts.images["web-snap"]


@pytest.mark.long
def test_an_instance_goes_back_to_an_incremental_backup(site: Site, tmp_path: Path) -> None:
    """Without a store: its host makes the image, which is gone afterwards, also where that fails."""
    reverts = Reverts(site, tmp_path)
    site.variables["bootflow_backup_directory"] = "/b"
    site.play("incremental_backup", names=["web"])
    site.play("incremental_backup", names=["web"])
    newest = site.query("SELECT id FROM instance_backups ORDER BY created_at DESC, id")[0][0]
    given = {"revert_image": None, "revert_backup": "newest"}
    before, dump = reverts.definition("web"), site.dump()
    assert "both set" in reverts.revert(expect=2, revert_backup="newest") and site.dump() == dump
    assert "root disk of backup " + newest in reverts.revert(options=("--check", "--diff"), **given)
    assert reverts.root("web") is None and site.dump() == dump
    host = site.hosts[reverts.places["web"]]
    host.items_fail("instance_backup_image", errors.BackupDamaged(backup_id=newest, reason="bytes"), times=1)
    assert "BackupDamaged" in reverts.revert(expect=2, **given)
    assert reverts.root("web") is None and reverts.states()["web"] == ("active", None)
    reverts.revert(**given)
    assert reverts.root("web") is not None and reverts.definition("web") == before
    assert reverts.states()["web"] == ("active", None)
