# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Images of volumes by whole playbooks: the store of the controller is a real folder, hosts and their stores are models."""

from __future__ import annotations

import json
import typing as t
from pathlib import Path

import pytest
from host_model import disk_content
from simulated_site import Site, entry

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors

OWN = "/var/lib/bootflow/conversion/_snapshots"
MODULE = "volume_lvm_image"


class Uploads:
    """A site with the volumes ``data`` and ``logs`` on kvm3. The store ``here`` is a folder of the controller."""

    def __init__(self, site: Site, folder: Path):
        self.site = site
        site.storage = ["kvm3"]
        for host in site.hosts.values():
            host.has_facts(initiator="iqn.test:" + host.name)
        self.store = folder / "store"
        self.store.mkdir()
        site.variables["bootflow_image_stores"] = [
            {"name": "here", "path": str(self.store)},
            {"name": "nfs", "path": "/net/images", "kind": "shared"},
            {"name": "of-kvm1", "path": "/srv/images", "kind": "host", "host": "kvm1"},
            {"name": "of-kvm3", "path": "/srv/images", "kind": "host", "host": "kvm3"},
        ]
        site.play("volume_create", volumes=[{"name": "data", "size": 2}, {"name": "logs", "size": 3}])
        self.host = site.hosts["kvm3"]

    def upload(self, *entries: t.Any, options: tuple[str, ...] = (), expect: int = 0, **more: t.Any) -> str:
        given = list(entries or [{"name": "image", "volume": "data"}])
        return self.site.play("volume_upload_image", *options, expect=expect, volume_uploads=given, **more)

    def rows(self) -> dict[str, t.Any]:
        """name -> row of images that are not deleted."""
        columns = ("id", "status", "size", "disk_format", "min_disk", "visibility", "properties", "project")
        found = self.site.query("SELECT name, %s FROM images WHERE deleted = ''" % ", ".join(columns))
        return {row[0]: dict(zip(columns, row[1:])) for row in found}

    def statuses(self) -> dict[str, str]:
        rows = self.site.query("SELECT name, status FROM volumes WHERE deleted = ''")
        return {row["name"]: row["status"] for row in rows}

    def on_hosts(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for host in self.site.hosts.values():
            for folder, files in host.files.items():
                found.setdefault(folder, []).extend(files)
        return {folder: ids for folder, ids in found.items() if ids}

    def places(self) -> list[tuple[str, str]]:
        return [tuple(row) for row in self.site.query("SELECT store, progress FROM image_places")]


FREE = {"data": "available", "logs": "available"}


@pytest.fixture
def uploads(site: Site, tmp_path: Path) -> Uploads:
    return Uploads(site, tmp_path)


def test_an_image_of_a_volume_boots_an_instance(uploads: Uploads) -> None:
    site = uploads.site
    before = site.dump()
    output = uploads.upload(options=("--check", "--diff"))
    assert "Would make" in output and "image of volume data, raw, in the store here" in output
    assert site.dump() == before and list(uploads.store.iterdir()) == [] and uploads.on_hosts() == {}
    assert uploads.host.asked().count(MODULE) == 1, "check mode asks the storage host"
    uploads.upload({"name": "image", "volume": "data", "disk_format": "qcow2", "visibility": "public"})
    row = uploads.rows()["image"]
    content = disk_content(row["id"])
    assert (row["status"], row["size"], row["disk_format"]) == ("active", len(content), "qcow2")
    assert (row["min_disk"], row["visibility"], row["project"]) == (2, "public", "default")
    assert list(json.loads(row["properties"])) == ["volume_id"]
    assert {p.name: p.read_bytes() for p in uploads.store.iterdir()} == {row["id"]: content}
    assert uploads.on_hosts() == {} and uploads.statuses() == FREE
    again = {"name": "image", "volume": "data", "disk_format": "qcow2", "visibility": "public"}
    output = uploads.upload(again)
    assert "Nothing to do: the images are there: image" in output and "changed=0" in output
    assert "ImageExists" in uploads.upload({**again, "volume": "logs"}, expect=2)
    site.boots(entry("web", image="image"))
    assert site.places()["web"][0] == "active"


@pytest.mark.long
def test_stores_of_all_kinds(uploads: Uploads) -> None:
    uploads.upload({"name": "a", "volume": "data", "store": "nfs"}, {"name": "b", "volume": "logs", "store": "of-kvm3"})
    rows = uploads.rows()
    assert {row["status"] for row in rows.values()} == {"active"} and uploads.statuses() == FREE
    assert uploads.on_hosts() == {"/net/images": [rows["a"]["id"]], "/srv/images": [rows["b"]["id"]]}
    uploads.upload({"name": "c", "volume": "data", "store": "of-kvm1"}, {"name": "d", "volume": "logs"})
    rows = uploads.rows()
    assert list(uploads.site.hosts["kvm1"].files["/srv/images"]) == [rows["c"]["id"]]
    assert [p.name for p in uploads.store.iterdir()] == [rows["d"]["id"]]
    assert {row["status"] for row in rows.values()} == {"active"} and OWN not in uploads.on_hosts()
    uploads.site.play("image_delete", image_names=["b", "c", "d"])
    assert uploads.on_hosts() == {"/net/images": [rows["a"]["id"]]} and list(uploads.store.iterdir()) == []


@pytest.mark.long
def test_a_volume_in_use_needs_force_and_the_setting(uploads: Uploads) -> None:
    site = uploads.site
    site.boots(entry("web"))
    site.play("attach_volume", attachments=[{"instance": "web", "volume": "data"}])
    forced = {"name": "image", "volume": "data", "force": True}
    assert "status must be available" in uploads.upload(expect=2, enable_force_upload=True)
    assert "status must be available" in uploads.upload(forced, expect=2), "force is ignored"
    assert uploads.statuses()["data"] == "in-use" and uploads.rows() == {}
    uploads.upload(forced, enable_force_upload=True)
    assert uploads.statuses()["data"] == "in-use" and uploads.rows()["image"]["status"] == "active"
    site.play("detach_volume", attachments=[{"volume": "data"}])
    assert uploads.statuses() == FREE


@pytest.mark.long
def test_a_failure_leaves_no_image_and_the_volume_as_it_was(uploads: Uploads) -> None:
    full = errors.DiskFull(host="kvm3", path="/x", reason="full")
    uploads.host.items_fail(MODULE, full, times=1)
    assert "full" in uploads.upload(options=("--check",), expect=2), "check mode tells it before"
    uploads.host.items_fail(MODULE, full, times=1)
    output = uploads.upload(expect=2)
    assert "VolumeUploadFailed" in output and "full" in output
    assert uploads.rows() == {} and uploads.statuses() == FREE and uploads.places() == []
    uploads.host.is_silent(MODULE, times=1)
    assert "VolumeUploadFailed" in uploads.upload({"name": "image", "volume": "data", "store": "nfs"}, expect=2)
    assert uploads.rows() == {} and uploads.statuses() == FREE and uploads.places() == [("nfs", "ending")]
    kvm1 = uploads.site.hosts["kvm1"]
    kvm1.items_fail("image_file", errors.DiskFull(host="kvm1", path="/srv/images", reason="full"), times=1)
    output = uploads.upload(
        {"name": "image", "volume": "data", "store": "of-kvm1"}, {"name": "good", "volume": "logs"}, expect=2
    )
    assert "1 of 2 images of volumes were not made" in output and list(uploads.rows()) == ["good"]
    assert uploads.statuses() == FREE and uploads.on_hosts() == {}
    uploads.store.rename(uploads.store.with_name("elsewhere"))
    assert "does not exist on the controller" in " ".join(uploads.upload(expect=2).split())
    assert list(uploads.rows()) == ["good"] and uploads.statuses() == FREE and uploads.on_hosts() == {}


@pytest.mark.long
def test_what_does_not_fit_is_refused(uploads: Uploads) -> None:
    before = uploads.site.dump()
    output = uploads.upload(
        {"volume": "data", "disk_format": "vmdk", "size": 3}, {"name": "b", "volume": "none"}, expect=2
    )
    for words in ("name is missing", "must be one of raw, qcow2", "Unknown field 'size'"):
        assert words in output
    assert "VolumeNotFound" in uploads.upload({"name": "b", "volume": "none"}, expect=2)
    assert "ImageStoreNotFound" in uploads.upload({"name": "b", "volume": "data", "store": "none"}, expect=2)
    output = uploads.upload(options=("--limit", "localhost,kvm1"), expect=2)
    assert "the limit of this run leaves out kvm3" in " ".join(output.split())
    assert uploads.site.dump() == before


def test_the_next_work_gives_the_volume_of_a_killed_run_back(uploads: Uploads) -> None:
    site = uploads.site
    uploads.host.is_slow(MODULE, 60.0)
    process = site.begin("volume_upload_image", volume_uploads=[{"name": "image", "volume": "data", "store": "nfs"}])
    try:
        site.wait_for_module("kvm3", MODULE, process)
    finally:
        site.kill(process)
    assert uploads.statuses() == {**FREE, "data": "uploading"} and uploads.rows()["image"]["status"] == "saving"
    uploads.host.heal()
    site.play("volume_snapshot", snapshots=[{"name": "monday", "volume": "data"}])
    assert uploads.statuses() == FREE and uploads.rows() == {} and uploads.places() == [("nfs", "ending")]
    uploads.upload()
    assert uploads.rows()["image"]["status"] == "active" and uploads.statuses() == FREE
