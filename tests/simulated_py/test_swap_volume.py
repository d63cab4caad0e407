# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Volumes of guests that are swapped for others: whole, failing on the host, and left by a host that falls silent."""

from __future__ import annotations

import typing as t

import pytest
from simulated_site import Site, entry

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors

SWAP = {"instance": "web", "old_volume": "data", "new_volume": "faster"}
BEFORE = {"data": "in-use", "faster": "available"}
AFTER = {"data": "available", "faster": "in-use"}


@pytest.fixture
def storage(site: Site) -> Site:
    """With an instance that has a volume."""
    site.storage = ["kvm3"]
    for host in site.hosts.values():
        host.has_facts(initiator="iqn.test:" + host.name)
    site.boots(entry("web"))
    site.play("volume_create", volumes=[{"name": "data", "size": 2}, {"name": "faster", "size": 3}])
    site.play("attach_volume", attachments=[{"instance": "web", "volume": "data"}])
    return site


def statuses(site: Site) -> dict[str, str]:
    rows = site.query("SELECT name, status FROM volumes WHERE deleted = ''")
    return {row["name"]: row["status"] for row in rows}


def exported(site: Site) -> list[str]:
    """The names of the volumes that have targets."""
    names = {row["id"]: row["name"] for row in site.query("SELECT id, name FROM volumes")}
    return sorted(names[volume] for volume in site.hosts["kvm3"].read()["model"]["targets"])


def swap(site: Site, *options: str, **how: t.Any) -> str:
    return site.play("swap_volume", *options, volume_swaps=[SWAP], **how)


def host_of_guest(site: Site) -> t.Any:
    return site.hosts[str(site.places()["web"][1])]


def test_a_volume_is_swapped(storage: Site) -> None:
    printed = swap(storage, "--check", "--diff")
    assert "Would swap in volume faster (/dev/vdb, instance web" in printed and statuses(storage) == BEFORE
    assert "Swapped in: faster (web, /dev/vdb)" in swap(storage)
    assert statuses(storage) == AFTER and exported(storage) == ["faster"]
    assert "Nothing to do: the instances have the new volumes." in swap(storage)
    assert "changed=0" in swap(storage)
    storage.play("detach_volume", attachments=[{"volume": "faster"}])
    assert set(statuses(storage).values()) == {"available"} and exported(storage) == []


def test_a_copy_that_fails(storage: Site) -> None:
    busy = errors.DiskJobRunning(disk="vdb", instance_uuid="web")
    host_of_guest(storage).items_fail("domain_disk", busy, times=1)
    printed = swap(storage, expect=2)
    assert "SwapFailed" in printed and "DiskJobRunning" in printed
    assert statuses(storage) == BEFORE and exported(storage) == ["data"]
    swap(storage)
    assert statuses(storage) == AFTER


def test_a_volume_that_cannot_be_connected(storage: Site) -> None:
    host_of_guest(storage).items_fail("iscsi_initiator", errors.RemoteError(reason="no route"), times=1)
    assert "SwapFailed" in swap(storage, expect=2)
    assert statuses(storage) == BEFORE and exported(storage) == ["data"]


def test_a_host_that_falls_silent_is_asked_by_the_next_run(storage: Site) -> None:
    host = host_of_guest(storage)
    host.is_silent("domain_disk")
    assert "SwapFailed" in swap(storage, expect=2)
    assert statuses(storage) == {"data": "detaching", "faster": "attaching"}
    host.heal()
    printed = storage.play("detach_volume", expect=2, attachments=[{"volume": "data"}])
    assert "SwapUnderWay" in printed
    swap(storage)
    assert statuses(storage) == AFTER and exported(storage) == ["faster"]


@pytest.mark.parametrize(
    "wish,code",
    [
        ({**SWAP, "new_volume": "small"}, "New volume must be the same size or larger."),
        ({**SWAP, "old_volume": "small"}, "Old volume is attached to a different instance."),
        ({**SWAP, "new_volume": "nothing"}, "VolumeNotFound"),
    ],
)
def test_what_is_refused(storage: Site, wish: dict[str, str], code: str) -> None:
    storage.play("volume_create", volumes=[{"name": "small", "size": 1}])
    assert code in storage.play("swap_volume", expect=2, volume_swaps=[wish])
    assert statuses(storage) == {**BEFORE, "small": "available"}
