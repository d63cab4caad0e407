# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Volumes: created in rounds, attached, extended and deleted, and of instances that are booted with them."""

from __future__ import annotations

import pytest
from simulated_site import Site, entry

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors


@pytest.fixture
def storage(site: Site) -> Site:
    site.storage = ["kvm3"]
    for host in site.hosts.values():
        host.has_facts(initiator="iqn.test:" + host.name)
    return site


def statuses(site: Site) -> dict[str, str]:
    rows = site.query("SELECT name, status FROM volumes WHERE deleted = ''")
    return {row["name"]: row["status"] for row in rows}


def test_the_life_of_a_volume(storage: Site) -> None:
    storage.boots(entry("web"))
    storage.play("volume_create", volumes=[{"name": "data", "size": 2}])
    assert statuses(storage) == {"data": "available"}
    storage.play("attach_volume", attachments=[{"instance": "web", "volume": "data"}])
    assert statuses(storage) == {"data": "in-use"}
    printed = storage.play("volume_extend", expect=2, volumes=[{"name": "data", "size": 3}])
    assert "has 0 bytes on the compute host and 3 GiB in the ledger" in printed, "the reason of the compute host"
    storage.play("volume_snapshot", snapshots=[{"name": "monday", "volume": "data", "force": True}])
    storage.play("detach_volume", attachments=[{"volume": "data"}])
    assert statuses(storage) == {"data": "available"}
    storage.play("volume_delete", volume_names=["data"], volume_cascade=True)
    assert statuses(storage) == {} and storage.hosts["kvm3"].read()["model"]["volumes"] == {}


def test_boots_with_volumes(storage: Site) -> None:
    data = {"source_type": "blank", "destination_type": "volume", "volume_size": 2}
    storage.boots(entry("db", block_device_mapping=[data]))
    assert storage.places()["db"][0] == "active" and set(statuses(storage).values()) == {"in-use"}
    storage.hosts["kvm3"].items_fail("iscsi_target", errors.ISCSITargetCreateFailed(volume_id="x"), times=1)
    printed = storage.boots(entry("web", block_device_mapping=[data]), expect=2)
    assert "web: ISCSITargetAttachFailed" in printed and storage.places()["web"][0] == "error"
    storage.play("delete", names=["db", "web"])
    assert storage.places() == {} and storage.hosts["kvm3"].read()["model"]["targets"] == []


def test_a_volume_for_which_there_is_no_room(storage: Site) -> None:
    printed = storage.play("volume_create", expect=2, volumes=[{"name": "data", "size": 500}])
    assert "VolumeFailed" in printed and statuses(storage) == {"data": "error"}


def test_a_snapshot_of_an_instance_whose_root_is_a_volume(storage: Site) -> None:
    storage.variables["bootflow_image_stores"] = [{"name": "nfs", "path": "/net/images", "kind": "shared"}]
    root = {"source_type": "image", "destination_type": "volume", "uuid": "debian", "boot_index": 0, "volume_size": 2}
    data = {"source_type": "blank", "destination_type": "volume", "volume_size": 1}
    web = entry("web", block_device_mapping=[root, data])
    del web["image"]
    storage.boots(web)
    before = storage.dump()
    printed = storage.play("snapshot", "--check", "--diff", names=["web"], snapshot_name="golden")
    assert "image golden, snapshots of 2 volumes" in printed and storage.dump() == before
    full = errors.VolumeBackendAPIException(data="the volume group is full")
    storage.hosts["kvm3"].items_fail("volume_lvm", full, times=1)
    printed = storage.play("snapshot", expect=2, names=["web"], snapshot_name="golden")
    assert "the volume group is full" in printed
    assert storage.query("SELECT name FROM volume_snapshots WHERE deleted = ''") == []
    assert storage.query("SELECT name FROM images WHERE deleted = ''") == []
    assert storage.query("SELECT item_id FROM volume_cleanups") == []
    storage.play("snapshot", names=["web"], snapshot_name="golden")
    rows = storage.query("SELECT status FROM volume_snapshots WHERE deleted = ''")
    assert [row["status"] for row in rows] == ["available", "available"]
    assert "nothing to do: image golden" in storage.play("snapshot", names=["web"], snapshot_name="golden")
    storage.boots(entry("again", image="golden"))
    assert storage.places()["again"][0] == "active"
