# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which class does the work for a disk: by the type of its store, or by its record."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core.disks.stores.registry import NAMES
from ansible_collections.bootflow.compute.plugins.module_utils.core.errors import InvalidInput
from ansible_collections.bootflow.compute.plugins.module_utils.core.volumes.disk_pool import DiskPool
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.disks.arrivals.registry import arrivals_of
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.disks.resizes.registry import resize_of
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.disks.stores.disk_spec import DiskSpec
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.disks.stores.group import NO_GROUP, Group
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.disks.stores.registry import (
    store_of,
    store_of_record,
)

FOLDER = "/i/2f4c1c0e-6a0f-4d8e-9f0b-0c6f3f3b2a11"
POOL = DiskPool("vms", ("192.0.2.1:6789",), "nova", "99b63e7a-b54e-45c2-9b7f-0ddc9c7c9654")
GROUP = Group("vg", "ledger")
FILE, VOLUME = {"disk": {"format": "qcow2"}}, {"disk": {"format": "lvm"}}
HOLDER = {"disk": {"format": "qcow2_on_lvm"}}


def swap(backend: str) -> DiskSpec:
    return DiskSpec("disk.swap", "swap", 1024**2, backend)


def test_the_store_of_a_type() -> None:
    found = {name: type(store_of(name, "vg", pool=POOL)).__name__ for name in NAMES}
    assert found == {"qcow2": "Files", "raw": "Files", "lvm": "Volumes", "qcow2_on_lvm": "Mounted", "rbd": "Rbd"}


def test_the_store_of_a_record() -> None:
    for record, name in ((FILE, "Files"), (VOLUME, "Volumes"), (HOLDER, "Mounted"), ({"disk": {}}, "Files")):
        store = store_of_record({**record["disk"], "volume_group": "its"})
        assert (type(store).__name__, store.group.vg) == (name, "its")


@pytest.mark.parametrize(
    "records, made, group, name",
    [
        ([FILE], [], NO_GROUP, "ResizedFiles"),
        ([{}], [swap("raw")], NO_GROUP, "ResizedFiles"),
        ([VOLUME], [], GROUP, "ResizedVolumes"),
        ([FILE], [swap("lvm")], GROUP, "ResizedVolumes"),
        ([HOLDER], [], GROUP, "ResizedMounted"),
        ([{}, HOLDER], [], GROUP, "ResizedMounted"),
        ([{}], [swap("qcow2_on_lvm")], GROUP, "ResizedMounted"),
    ],
)
def test_a_resize_by_its_records(
    records: list[dict[str, t.Any]], made: list[DiskSpec], group: Group, name: str
) -> None:
    resize = resize_of(group, records, made)
    assert (type(resize).__name__, resize.group) == (name, group)


@pytest.mark.parametrize("backend", ["lvm", "qcow2_on_lvm"])
def test_a_resize_whose_new_disk_has_no_volume_group(backend: str) -> None:
    with pytest.raises(InvalidInput, match="disk backend %s requires a volume group" % backend):
        resize_of(NO_GROUP, [FILE], [swap(backend)])


def test_disks_arrive_in_their_stores() -> None:
    disks = [
        {"name": "disk", "record": {"format": "qcow2"}, "mounted": False},
        {"name": "disk.eph0", "record": {"format": "lvm"}, "mounted": False},
        {"name": "disk.eph1", "record": {"format": "qcow2"}, "mounted": True},
        {"name": "disk.config", "record": None, "mounted": False},
    ]
    found = [(type(a).__name__, [d["name"] for d in a.disks], a.in_group) for a in arrivals_of(FOLDER, GROUP, disks)]
    assert found == [
        ("ArrivingFiles", ["disk", "disk.config"], False),
        ("ArrivingMounted", ["disk.eph1"], True),
        ("ArrivingVolumes", ["disk.eph0"], True),
    ]
    assert arrivals_of(FOLDER, GROUP, []) == []


@pytest.mark.parametrize(
    "backend, name", [("raw", "ArrivingFiles"), ("lvm", "ArrivingVolumes"), ("qcow2_on_lvm", "ArrivingMounted")]
)
def test_disks_that_are_made_on_the_new_host(backend: str, name: str) -> None:
    made = [swap(backend)]
    (arrival,) = arrivals_of(FOLDER, GROUP, [], made=made)
    assert (type(arrival).__name__, list(arrival.made)) == (name, made)
    inside = [{"name": "disk", "record": {"format": "qcow2"}, "mounted": True}]
    (arrival,) = arrivals_of(FOLDER, GROUP, inside, made=made)
    assert (type(arrival).__name__, list(arrival.made)) == ("ArrivingMounted", made)


def test_disks_that_need_a_volume_group() -> None:
    arriving = arrivals_of(FOLDER, NO_GROUP, [], made=[swap("lvm")])
    with pytest.raises(InvalidInput, match="no volume group is given"):
        arriving[0].require_group()
    with pytest.raises(InvalidInput, match="no volume group is given"):
        arriving[0].check_group()
    (files,) = arrivals_of(FOLDER, NO_GROUP, [], made=[swap("raw")])
    files.require_group()
    files.check_group()
