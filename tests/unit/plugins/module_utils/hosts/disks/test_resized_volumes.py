# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Logical volumes of instances that are resized where they are: a model of LVM with a file for each, and processes that are killed at
every change. Real LVM: tests/storage_py/test_guest_with_logical_volumes_moves.py."""

from __future__ import annotations

import os
import shutil
import typing as t

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core.errors import (
    DiskFull,
    InvalidDiskInfo,
    VolumeIsBusy,
)
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.disks import resized
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.disks.resizes import volumes as resized_volumes
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.disks.stores import (
    instance_volumes,
    removal,
)
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.disks.stores.disk_info import (
    records_of,
    write_records,
)
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.disks.stores.disk_spec import DiskSpec
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.disks.stores.group import Clearing, Group
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.lvm import lvm
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.volumes import copy

from . import test_resized
from .test_local_disks import Files
from .test_resized import LARGER, UUID, XML, Killed

MIB = 1024**2
EXTENT = 4 * MIB
LEDGER = "1ed9e000-0000-4000-8000-000000000001"
TAGS = ["bootflow", "bootflow.instance=" + UUID, "bootflow.ledger=" + LEDGER]
GROUP = Group("vg", LEDGER, Clearing())
MADE = (DiskSpec("disk.aaa", "ephemeral", EXTENT, "lvm", fs="none"), DiskSpec("disk.swap", "swap", EXTENT, "lvm"))


class Lvm(Files):
    """Renames volumes, and tells of each change before it is made."""

    def __init__(self, folder: t.Any, change: t.Callable[[], None]):
        super().__init__(folder)
        self.change = change

    def __call__(self, vg: str, command: str, *rest: str) -> str:
        if command != "fullreport":
            self.change()
        if command == "lvrename":
            name, new = rest[-2:]
            assert new not in self.lvs
            self.lvs[new] = self.lvs.pop(name)
            os.rename(self.folder / name, self.folder / new)
        return str(super().__call__(vg, command, *rest))


class Host(test_resized.Host):
    """One host, the logical volumes of one instance, and its guest."""

    def __init__(self, path: t.Any):
        self.path = str(path / "instances")
        self.folder = os.path.join(self.path, UUID)
        self.defined: str | None = XML
        self.runs = False
        self.left: int | None = None
        os.makedirs(self.folder)
        os.mkdir(path / "dev")
        self.devices = path / "dev"
        self.model = Lvm(self.devices, self.change)
        common = {"format": "lvm", "virtual_size": EXTENT, "base": "", "volume_group": "vg"}
        kinds = {"disk": ("image", "i"), "disk.eph0": ("ephemeral", "")}
        write_records(self.folder, {n: {"kind": k, "image_id": i, **common} for n, (k, i) in kinds.items()})
        for name in kinds:
            self.model.lvs[self.lv(name)] = self.volume()
        self.model("vg", "fullreport")
        self.write(b"before")

    @staticmethod
    def volume(*tags: str, size: int = EXTENT) -> dict[str, t.Any]:
        return {"size": size, "attr": "-wi-a-----", "tags": [*TAGS, *tags], "pool": "", "origin": ""}

    @staticmethod
    def lv(name: str) -> str:
        return "%s_%s" % (UUID, name)

    def write(self, text: bytes) -> None:
        for name in ("disk", "disk.eph0"):
            with open(self.devices / self.lv(name), "r+b") as file:
                file.write(text.ljust(16, b"\0"))

    def content(self, name: str) -> bytes:
        with open(self.devices / self.lv(name), "rb") as file:
            return file.read(16).rstrip(b"\0")

    def has(self, text: bytes, size: int) -> bool:
        both = {self.content(n) for n in ("disk", "disk.eph0")}
        sizes = (self.model.lvs[self.lv("disk")]["size"], records_of(self.folder)["disk"]["virtual_size"])
        assert len(both) == 1, "the disks are of two times"
        assert sizes[0] == sizes[1], "the record is that of the disk"
        return (both, sizes) == ({text}, (size, size))

    def names(self) -> set[str]:
        return {n.partition("_")[2] for n in self.model.lvs}

    def extra(self) -> set[str]:
        return (set(os.listdir(self.folder)) - {"disk.info"}) | {n for n in self.names() if ".resize." in n}

    def prepare(self, **sizes: int) -> dict[str, t.Any]:
        return resized.prepare(self.path, LEDGER, UUID, sizes, group=GROUP)

    def replan(self) -> dict[str, t.Any]:
        return resized.prepare(self.path, LEDGER, UUID, {"disk": 2 * EXTENT}, ["disk.eph0"], MADE, GROUP)

    def replanned(self) -> bool:
        names = {n for n in self.names() if ".resize." not in n}
        if names == {"disk", "disk.eph0"}:
            assert set(records_of(self.folder)) == names and self.has(b"before", EXTENT)
            return False
        assert names == {"disk", "disk.aaa", "disk.swap"} == set(records_of(self.folder))
        assert self.model.lvs[self.lv("disk")]["size"] == 2 * EXTENT and self.content("disk") == b"before"
        with open(self.devices / self.lv("disk.swap"), "rb") as file:
            assert b"SWAPSPACE2" in file.read()
        return True

    def take(self) -> bool:
        return bool(resized.swap_in(self, self.path, LEDGER, UUID, GROUP)["changed"])

    def settle(self) -> bool:
        return bool(resized.commit(self, self.path, LEDGER, UUID, GROUP)["changed"])

    def back(self, define: bool = True) -> bool:
        return bool(resized.roll_back(self, self.path, LEDGER, UUID, define, GROUP)["changed"])

    def attempt(self, step: t.Callable[[], t.Any], changes: int) -> bool:
        """Whether it came to its end before it was killed."""
        self.left = changes
        try:
            step()
        except Killed:
            return False
        finally:
            self.left = None
        return True


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch, tmp_path: t.Any) -> Host:
    monkeypatch.setattr(lvm, "LOCK_ROOT", str(tmp_path / "lock"))
    monkeypatch.setattr(lvm, "device_path", lambda _vg, name: str(tmp_path / "dev" / name))
    monkeypatch.setattr(instance_volumes, "_SETTLES", 0.0)
    test_resized.fake_libvirt(monkeypatch)
    made = Host(tmp_path)
    monkeypatch.setattr(lvm, "lvm", made.model)

    def zero(path: str, size: int) -> None:
        made.change()
        with open(path, "r+b") as file:
            file.write(bytes(size))

    def write(source: str, path: str) -> None:
        made.change()
        with open(source, "rb") as old, open(path, "r+b") as new:
            shutil.copyfileobj(old, new)

    for module in (copy, resized_volumes):
        monkeypatch.setattr(module, "zero", zero)
    monkeypatch.setattr(resized_volumes, "write_image", write)
    test_resized.count_changes(monkeypatch, made)
    return made


def changes_of(host: Host, step: t.Callable[[], t.Any]) -> int:
    """So many changes are made by it."""
    host.left = 1000
    step()
    made = 1000 - host.left
    host.left = None
    return made


def test_grown_and_kept(host: Host) -> None:
    done = host.prepare(disk=2 * EXTENT)
    assert done["disks"] == [{"name": "disk", "size": 2 * EXTENT}, {"name": "disk.eph0", "size": EXTENT}]
    assert host.has(b"before", EXTENT)
    assert host.extra() == {"resize.new", "disk.resize.new", "disk.eph0.resize.new"}
    with open(host.devices / host.lv("disk.resize.new"), "rb") as file:
        assert not file.read()[EXTENT:].strip(b"\0"), "nothing of an earlier guest is in what it grew by"
    assert all(set(lv["tags"]) == set(TAGS) or "bootflow.source=" in str(lv["tags"]) for lv in host.model.lvs.values())
    assert host.take() and host.defined is None and host.has(b"before", 2 * EXTENT) and not host.take()
    assert host.extra() == {"resize.old", "disk.resize.old", "disk.eph0.resize.old"}
    host.start()
    host.write(b"later")
    assert host.settle() and not host.settle()
    assert host.has(b"later", 2 * EXTENT) and host.extra() == set() and (host.runs, host.defined) == (True, LARGER)
    assert host.model.last[host.lv("disk.resize.old")].strip(b"\0") == b"", "cleared before it is given back"


def test_grown_and_brought_back(host: Host) -> None:
    host.prepare(disk=2 * EXTENT)
    host.take()
    host.start()
    host.write(b"later")
    assert host.back(define=False) and not host.back(define=False)
    assert host.has(b"before", EXTENT) and host.extra() == {"resize.old"} and host.defined is None
    assert host.back() and not host.back()
    assert host.has(b"before", EXTENT) and host.extra() == set() and (host.runs, host.defined) == (False, XML)
    assert host.names() == {"disk", "disk.eph0"}


@pytest.mark.parametrize("end", ["back", "settle"])
def test_copying_is_killed_at_every_change(host: Host, end: str) -> None:
    """The disks are not touched by it, and the next one begins anew."""
    for changes in range(60):
        whole = host.attempt(lambda: host.prepare(disk=2 * EXTENT), changes)
        assert host.has(b"before", EXTENT) and host.defined == XML
        if end == "settle" and whole:
            break
        getattr(host, end)()
        assert host.has(b"before", EXTENT) and host.extra() == set() and host.defined == XML
        if whole:
            break
    assert changes >= 8 and whole
    host.prepare(disk=2 * EXTENT)
    assert host.settle() and host.has(b"before", 2 * EXTENT) and host.extra() == set()


@pytest.mark.parametrize("disks", ["grow", "come and go"])
@pytest.mark.parametrize("end", ["back", "settle", "take"])
def test_the_exchange_is_killed_at_every_change(host: Host, end: str, disks: str) -> None:
    """Whoever settles it gets all of what it was, or all of what it becomes."""
    for changes in range(60):
        host.defined = XML
        host.prepare(disk=2 * EXTENT) if disks == "grow" else host.replan()
        whole = host.attempt(host.take, changes)
        assert host.defined in (XML, None)
        getattr(host, end)()
        became = host.has(b"before", 2 * EXTENT) if disks == "grow" else host.replanned()
        assert became is (end != "back")
        if end == "settle":
            assert host.extra() == set()
            reset(host)
        host.back()
        assert host.extra() == set() and host.has(b"before", EXTENT) and host.defined == XML
        if whole:
            break
    assert changes > 8 and whole


def reset(host: Host) -> None:
    """As at first."""
    for path in host.devices.iterdir():
        path.unlink()
    host.model.lvs.clear()
    shutil.rmtree(host.path)
    shutil.rmtree(host.devices)
    fresh = Host(host.devices.parent)
    host.model.lvs.update(fresh.model.lvs)
    host.defined, host.runs = XML, False


@pytest.mark.parametrize("disks", ["grow", "come and go"])
@pytest.mark.parametrize("define", [True, False])
def test_the_way_back_is_killed_at_every_change(host: Host, define: bool, disks: str) -> None:
    """While the host reports the guest it has all of what that is; afterwards the same again ends it."""
    for changes in range(60):
        host.defined, host.runs = XML, False
        host.prepare(disk=2 * EXTENT) if disks == "grow" else host.replan()
        host.take()
        host.start()
        if define:
            host.back(define=False)
        whole = host.attempt(lambda: host.back(define), changes)
        assert host.defined in ((None, XML) if define else (LARGER, None))
        if host.defined == XML:
            assert host.has(b"before", EXTENT)
            host.runs = True  # somebody starts it
        host.back()
        assert host.has(b"before", EXTENT) and host.extra() == set() and host.defined == XML
        assert host.names() == {"disk", "disk.eph0"}
        if whole:
            break
    assert whole and (define or changes > 8)


def test_the_removal_of_what_it_was_is_killed_at_every_change(host: Host) -> None:
    for changes in range(60):
        reset(host)
        host.prepare(disk=2 * EXTENT)
        host.take()
        host.start()
        whole = host.attempt(host.settle, changes)
        host.settle()
        assert host.has(b"before", 2 * EXTENT) and host.extra() == set() and host.runs
        if whole:
            break
    assert whole and changes > 3


def test_disks_that_come_and_go(host: Host) -> None:
    made = host.replan()
    assert [d["name"] for d in made["disks"]] == ["disk", "disk.aaa", "disk.swap"]
    assert not host.replanned() and host.defined == XML
    assert host.take() and host.replanned() and not host.take()
    host.start()
    assert host.back() and not host.replanned() and host.extra() == set() and host.defined == XML
    host.replan()
    assert host.settle() and host.replanned() and host.extra() == set()


def test_swap_of_another_size(host: Host) -> None:
    """It is neither kept nor copied: it has the same name, and is another one."""
    swap = (DiskSpec("disk.eph0", "swap", 2 * EXTENT, "lvm"),)
    resized.prepare(host.path, LEDGER, UUID, {}, ["disk.eph0"], swap, GROUP)
    assert host.take() and host.model.lvs[host.lv("disk.eph0")]["size"] == 2 * EXTENT
    host.start()
    assert host.back() and host.has(b"before", EXTENT) and host.extra() == set()


def test_an_instance_without_disks_gets_one(host: Host) -> None:
    """Its root is a volume; the host's setting has the group."""
    host.model.lvs.clear()
    os.unlink(os.path.join(host.folder, "disk.info"))
    resized.prepare(host.path, LEDGER, UUID, {}, (), MADE, GROUP)
    assert host.take() and host.names() == {"disk.aaa", "disk.swap"}
    host.start()
    assert host.back() and host.names() == set() and host.extra() == set()


def test_the_first_disk_is_killed_at_every_change(host: Host) -> None:
    """Nothing but what the copying left tells where its disk was to be."""
    host.model.lvs.clear()
    os.unlink(os.path.join(host.folder, "disk.info"))
    elsewhere = Group("", LEDGER, Clearing())
    for changes in range(60):
        whole = host.attempt(lambda: resized.prepare(host.path, LEDGER, UUID, {}, (), MADE, GROUP), changes)
        resized.roll_back(host, host.path, LEDGER, UUID, True, elsewhere)
        assert host.names() == set() and host.extra() == set()
        if whole:
            break
    assert whole and changes > 8


def test_what_a_resize_that_failed_made_is_removed(host: Host) -> None:
    host.model.extents = 3  # of 4 MiB: two have the disks
    with pytest.raises(DiskFull, match="Only 4194304 bytes available"):
        host.prepare(disk=2 * EXTENT)
    assert host.extra() == set() and host.has(b"before", EXTENT)


def test_a_guest_that_has_them_open(host: Host) -> None:
    host.model.lvs[host.lv("disk")]["attr"] = "-wi-ao----"
    with pytest.raises(VolumeIsBusy):
        host.prepare(disk=2 * EXTENT)
    assert host.extra() == set()


@pytest.mark.parametrize("tags", [None, ["bootflow.incomplete"], ["bootflow.deleting"]], ids=str)
def test_a_disk_that_is_missing_or_not_whole(host: Host, tags: list[str] | None) -> None:
    if tags is None:
        del host.model.lvs[host.lv("disk")]
        host.model("vg", "fullreport")
    else:
        host.model.lvs[host.lv("disk")]["tags"] += tags
    with pytest.raises(InvalidDiskInfo, match="does not exist"):
        host.prepare(disk=2 * EXTENT)


def test_a_disk_that_a_killed_exchange_left_under_its_former_name_is_kept(host: Host) -> None:
    host.prepare(disk=2 * EXTENT)
    host.model("vg", "lvrename", "vg", host.lv("disk"), host.lv("disk.resize.old"))
    with pytest.raises(InvalidDiskInfo, match="does not exist"):
        host.prepare(disk=2 * EXTENT)
    assert host.content("disk.resize.old") == b"before" and host.names() == {"disk.resize.old", "disk.eph0"}


def test_what_is_being_removed_does_not_come_back(host: Host) -> None:
    """Of a resize that was confirmed: a later one that fails brings back what the instance had before it, not before the other."""
    host.model.lvs[host.lv("disk.resize.old")] = host.volume("bootflow.deleting")
    host.model("vg", "fullreport")
    assert not host.back() and host.has(b"before", EXTENT)
    host.prepare(disk=2 * EXTENT)
    assert "disk.resize.old" not in host.names()


def test_all_of_them_are_removed_with_the_instance(host: Host) -> None:
    host.prepare(disk=2 * EXTENT)
    host.take()
    host.model.lvs[host.lv("disk.aaa.resize.new")] = host.volume()
    host.model("vg", "fullreport")
    removal.remove_volumes(host.folder, UUID, Group("vg", LEDGER, Clearing()))
    assert host.names() == set()


def test_a_group_that_the_host_has_no_more_names_nothing(host: Host) -> None:
    """Where its disks are stands with them, not in the host's settings of today."""
    elsewhere = Group("other", LEDGER, Clearing())
    resized.prepare(host.path, LEDGER, UUID, {"disk": 2 * EXTENT}, group=elsewhere)
    assert resized.swap_in(host, host.path, LEDGER, UUID, elsewhere)["changed"] and host.has(b"before", 2 * EXTENT)
    assert resized.roll_back(host, host.path, LEDGER, UUID, True, elsewhere)["changed"] and host.has(b"before", EXTENT)
