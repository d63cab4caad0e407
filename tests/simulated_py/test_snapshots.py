# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Snapshots of instances by whole playbooks: the store of the controller is a real folder, hosts and their stores are models."""

from __future__ import annotations

import hashlib
import json
import typing as t
from pathlib import Path

import pytest
from host_model import disk_content
from simulated_site import Site, entry

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors

OWN = "/var/lib/bootflow/instances/_snapshots"


class Snapshots:
    """A site with the instances ``web`` and ``db``. The store ``here`` is a folder of the controller."""

    def __init__(self, site: Site, folder: Path):
        self.site = site
        self.store = folder / "store"
        self.store.mkdir()
        site.variables["bootflow_image_stores"] = [
            {"name": "here", "path": str(self.store)},
            {"name": "nfs", "path": "/net/images", "kind": "shared"},
            {"name": "of-kvm1", "path": "/srv/images", "kind": "host", "host": "kvm1"},
        ]
        site.boots(entry("web"), entry("db"))
        self.places = {name: str(host) for name, (_state, host) in site.places().items()}

    def take(self, *names: str, options: tuple[str, ...] = (), expect: int = 0, **more: t.Any) -> str:
        given = {"snapshot_name": "%(name)s-snap", "names": list(names or ["web"]), **more}
        return self.site.play("snapshot", *options, expect=expect, **given)

    def rows(self) -> dict[str, t.Any]:
        """name -> row of images that are not deleted."""
        columns = ("id", "status", "size", "disk_format", "instance_uuid", "properties")
        found = self.site.query("SELECT name, %s FROM images WHERE deleted = ''" % ", ".join(columns))
        return {row[0]: dict(zip(columns, row[1:])) for row in found}

    def on_hosts(self) -> dict[str, list[str]]:
        """Directory -> ids of images, of all hosts."""
        found: dict[str, list[str]] = {}
        for host in self.site.hosts.values():
            for folder, files in host.files.items():
                found.setdefault(folder, []).extend(files)
        return {folder: ids for folder, ids in found.items() if ids}

    def places_of(self) -> list[tuple[str, str]]:
        """Store and progress of the files of all images."""
        return [tuple(row) for row in self.site.query("SELECT store, progress FROM image_places")]

    def states(self) -> set[tuple[str, str | None]]:
        return {tuple(row) for row in self.site.query("SELECT vm_state, task_state FROM instances WHERE deleted = ''")}


@pytest.fixture
def snapshots(site: Site, tmp_path: Path) -> Snapshots:
    return Snapshots(site, tmp_path)


def test_an_image_of_an_instance_boots_another(snapshots: Snapshots) -> None:
    site = snapshots.site
    before = site.dump()
    output = snapshots.take(options=("--check", "--diff"))
    assert "Would snapshot" in output and "image web-snap in the store here" in output
    assert site.dump() == before and list(snapshots.store.iterdir()) == [] and snapshots.on_hosts() == {}
    output = snapshots.take(snapshot_properties={"os_distro": "debian"})
    row = snapshots.rows()["web-snap"]
    content = disk_content(row["id"])
    assert "image web-snap %s" % row["id"] in output
    assert (row["status"], row["size"], row["disk_format"]) == ("active", len(content), "qcow2")
    assert {p.name: p.read_bytes() for p in snapshots.store.iterdir()} == {row["id"]: content}
    assert (snapshots.store / row["id"]).stat().st_mode & 0o777 == 0o600
    assert snapshots.on_hosts() == {} and snapshots.states() == {("active", None)}
    properties = json.loads(row["properties"])
    assert properties["image_type"] == "snapshot" and properties["os_distro"] == "debian"
    output = snapshots.take()
    assert "nothing to do: image web-snap" in output and "changed=0" in output and len(snapshots.rows()) == 1
    site.boots(entry("third", image="web-snap"))
    assert site.places()["third"][0] == "active"
    assert "web-snap" in site.play("image_list")


@pytest.mark.long
def test_several_at_once_into_a_store_that_all_share(snapshots: Snapshots) -> None:
    assert "must be one of qcow2, raw" in snapshots.take(expect=2, snapshot_image_format="vmdk")
    output = snapshots.take("web", "db", snapshot_store="nfs", snapshot_image_format="raw")
    rows = snapshots.rows()
    assert {row["disk_format"] for row in rows.values()} == {"raw"}
    assert {name: row["status"] for name, row in rows.items()} == {"web-snap": "active", "db-snap": "active"}
    assert sorted(snapshots.on_hosts()["/net/images"]) == sorted(row["id"] for row in rows.values())
    assert "db-snap" in output and snapshots.states() == {("active", None)}
    assert "2 instances are selected" in snapshots.take("web", "db", expect=2, snapshot_name="one")


@pytest.mark.long
def test_a_store_of_a_host_takes_images_of_its_own_instances_and_of_others(snapshots: Snapshots) -> None:
    site = snapshots.site
    on_kvm1 = [name for name, host in snapshots.places.items() if host == "kvm1"]
    others = [name for name, host in snapshots.places.items() if host != "kvm1"]
    assert on_kvm1 and others
    before = site.dump()
    output = snapshots.take(*others, options=("--check", "--diff"), snapshot_store="of-kvm1")
    assert "in the store of-kvm1" in output and site.dump() == before and snapshots.on_hosts() == {}
    snapshots.take(*on_kvm1, *others, snapshot_store="of-kvm1")
    rows = snapshots.rows()
    assert {row["status"] for row in rows.values()} == {"active"} and len(rows) == 2
    content = disk_content(rows[others[0] + "-snap"]["id"])
    assert rows[others[0] + "-snap"]["size"] == len(content)
    assert {folder: sorted(ids) for folder, ids in snapshots.on_hosts().items()} == {
        "/srv/images": sorted(row["id"] for row in rows.values())
    }
    assert set(site.hosts["kvm1"].files["/srv/images"].values()) == {
        hashlib.sha256(disk_content(row["id"])).hexdigest() for row in rows.values()
    }
    assert snapshots.states() == {("active", None)} and set(snapshots.places_of()) == {("of-kvm1", "done")}
    site.boots(entry("third", image=others[0] + "-snap"))
    site.play("image_delete", image_names=list(rows))
    assert snapshots.on_hosts() == {}


@pytest.mark.long
def test_a_host_of_a_store_that_fails_leaves_no_image(snapshots: Snapshots) -> None:
    site = snapshots.site
    other = next(name for name, host in snapshots.places.items() if host != "kvm1")
    source, kvm1 = site.hosts[snapshots.places[other]], site.hosts["kvm1"]
    kvm1.items_fail("image_file", errors.DiskFull(host="kvm1", path="/srv/images", reason="full"), times=1)
    assert "full" in snapshots.take(other, expect=2, snapshot_store="of-kvm1")
    assert snapshots.rows() == {} and snapshots.on_hosts() == {} and snapshots.places_of() == []
    assert snapshots.states() == {("active", None)}
    kvm1.is_silent("image_file", times=1)
    assert "kvm1" in snapshots.take(other, expect=2, snapshot_store="of-kvm1")
    assert snapshots.rows() == {} and snapshots.on_hosts() == {} and snapshots.places_of() == [("of-kvm1", "ending")]
    source.items_fail("image_relay", errors.RemoteError(reason="none of the ports is free"), times=1)
    assert "none of the ports" in snapshots.take(other, expect=2, snapshot_store="of-kvm1")
    assert snapshots.rows() == {} and snapshots.on_hosts() == {} and snapshots.states() == {("active", None)}
    snapshots.take(other, snapshot_store="of-kvm1")
    assert snapshots.rows()[other + "-snap"]["status"] == "active" and list(snapshots.on_hosts()) == ["/srv/images"]


@pytest.mark.long
def test_a_host_of_a_store_that_lies_makes_no_image(snapshots: Snapshots) -> None:
    site = snapshots.site
    other = next(name for name, host in snapshots.places.items() if host != "kvm1")
    site.hosts["kvm1"].says("image_file", json.dumps({"changed": True, "outcomes": {}}), times=1)
    assert "OperationFailed" in snapshots.take(other, expect=2, snapshot_store="of-kvm1")
    assert snapshots.rows() == {} and snapshots.places_of() == [("of-kvm1", "ending")]
    before = site.dump()
    limit = ("--limit", "localhost,%s" % snapshots.places[other])
    output = snapshots.take(other, options=limit, expect=2, snapshot_store="of-kvm1")
    assert "the limit of this run leaves out kvm1" in " ".join(output.split()) and site.dump() == before


@pytest.mark.long
@pytest.mark.parametrize("state", ["stop", "pause", "suspend"])
def test_an_instance_that_does_not_run_stays_as_it_is(snapshots: Snapshots, state: str) -> None:
    snapshots.site.play(state, names=["web"])
    before = snapshots.site.places()
    snapshots.take()
    assert snapshots.rows()["web-snap"]["status"] == "active" and snapshots.site.places() == before


@pytest.mark.long
def test_a_failure_leaves_no_image(snapshots: Snapshots) -> None:
    host = snapshots.site.hosts[snapshots.places["web"]]
    host.items_fail("instance_snapshot", errors.DiskFull(host=host.name, path="/x", reason="full"), times=1)
    output = snapshots.take("web", "db", expect=2)
    assert "OperationFailed" in output and "full" in output
    assert list(snapshots.rows()) == ["db-snap"] and snapshots.states() == {("active", None)}
    assert snapshots.places_of() == [("here", "done")]
    host.is_silent("instance_snapshot", times=1)
    assert "OperationFailed" in snapshots.take(expect=2, snapshot_store="nfs")
    assert ("nfs", "ending") in snapshots.places_of()
    output = snapshots.take("web", "db")
    assert sorted(snapshots.rows()) == ["db-snap", "web-snap"] and "nothing to do" in output


@pytest.mark.long
def test_bytes_that_change_on_their_way_are_no_image(snapshots: Snapshots) -> None:
    snapshots.store.rmdir()
    assert "does not exist on the controller" in " ".join(snapshots.take(expect=2).split())
    assert snapshots.rows() == {} and snapshots.on_hosts() == {} and not snapshots.store.exists()
    assert snapshots.places_of() == []


@pytest.mark.long
def test_what_does_not_fit_is_refused(snapshots: Snapshots) -> None:
    site = snapshots.site
    assert "bootflow_snapshot_name is not set" in site.play("snapshot", expect=2, names=["web"])
    assert "ImageStoreNotFound" in snapshots.take(expect=2, snapshot_store="none")
    site.variables["bootflow_image_stores"] = []
    assert "There is no image store" in snapshots.take(expect=2)
    assert snapshots.rows() == {} and snapshots.states() == {("active", None)}


def test_a_killed_run_leaves_no_image_once_its_host_has_reported(snapshots: Snapshots) -> None:
    site = snapshots.site
    host = site.hosts[snapshots.places["web"]]
    host.is_slow("instance_snapshot", 60.0)
    process = site.begin("snapshot", names=["web"], snapshot_name="snap")
    try:
        site.wait_for_module(host.name, "instance_snapshot", process)
    finally:
        site.kill(process)
    assert snapshots.states() == {("active", None), ("active", "image_uploading")}
    assert snapshots.rows()["snap"]["status"] == "saving"
    host.heal()
    site.play("audit", expect=0)
    assert snapshots.states() == {("active", None)} and snapshots.rows() == {}
    snapshots.take(snapshot_name="snap")
    assert snapshots.rows()["snap"]["status"] == "active"
