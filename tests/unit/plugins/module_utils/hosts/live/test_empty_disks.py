# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Empty disks for a guest that comes running, on a model of LVM whose logical volumes are files, and what a failure at any step leaves.

Real LVM: tests/storage_py/test_live_migration_of_logical_volumes.py."""

from __future__ import annotations

import json
import os
import subprocess
import typing as t

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.core.guest.arriving_disks import checked_disks
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.disks import instances
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.disks.arrivals import files as arriving_files
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.disks.arrivals import mounted as arriving_mounted
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.disks.arrivals import volumes as arriving_volumes
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.disks.stores import disk_info
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.disks.stores.disk_info import records_of
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.disks.stores.group import Group
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.live import empty_disks
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.os import fstab

from ..disks.test_local_disks import IMAGE, LEDGER, MIB, OURS, UUID, Host

MINE = OURS | {"bootflow.ledger=" + LEDGER}
ROOT, SWAP = UUID + "_disk", UUID + "_disk.swap"


def disk(name: str, target: str, form: str, size: int, mounted: bool = False) -> dict[str, t.Any]:
    record = {"kind": "image" if name == "disk" else "swap", "format": form, "virtual_size": size, "base": ""}
    record.update(image_id=IMAGE if name == "disk" else "", volume_group="the group of another host")
    return {"name": name, "target": target, "allocated": size, "record": record, "mounted": mounted}


def guest(form: str, mounted: bool = False) -> dict[str, t.Any]:
    return {"disks": [disk("disk", "vda", form, 64 * MIB, mounted), disk("disk.swap", "vdb", form, 6 * MIB, mounted)]}


class NewHost(Host):
    """The host that a guest comes to. :arg fails_at: the change, of all that are made there, at which it fails; 0: none"""

    def __init__(self, tmp_path: t.Any, monkeypatch: pytest.MonkeyPatch):
        super().__init__(tmp_path, monkeypatch)
        self.patch, self.zeroed = monkeypatch, []
        self.changes = self.fails_at = 0
        monkeypatch.setattr(arriving_volumes, "zero", lambda path, size, start: self.zeroed.append((path, size, start)))
        monkeypatch.setattr(instances, "find_domain", lambda _connection, _uuid: None)
        for place, name in (
            (arriving_files, "run"), (arriving_files, "write_records"), (arriving_volumes, "write_records"),
            (arriving_volumes, "begin"), (arriving_volumes, "mark_complete"),
            (empty_disks, "fsync"), (empty_disks, "mark_folder"), (arriving_mounted, "make_holder"), (disk_info, "write_json"),
        ):  # fmt: skip
            monkeypatch.setattr(place, name, self.counted(getattr(place, name)))

    def counted(self, function: t.Callable[..., t.Any]) -> t.Callable[..., t.Any]:
        """Fails before it does something, or after, which is the next change."""

        def call(*arguments: t.Any, **options: t.Any) -> t.Any:
            self.change()
            done = function(*arguments, **options)
            self.change()
            return done

        return call

    def change(self) -> None:
        self.changes += 1
        if self.changes == self.fails_at:
            raise OSError(5, "the disk is broken")

    def make(self, its: t.Mapping[str, t.Any], group: str = "vg") -> dict[str, dict[str, t.Any]]:
        limits = {"disk": 64 * MIB, "disk.swap": 6 * MIB}
        disks = checked_disks(its["disks"], limits, UUID)
        return empty_disks.make_disks(None, self.path, LEDGER, UUID, disks, limits, group)

    def is_empty(self) -> bool:
        return not (self.folder.exists() or self.model.lvs or self.mounts or fstab.lines_of(UUID))


@pytest.fixture(name="there")
def _there(tmp_path: t.Any, monkeypatch: pytest.MonkeyPatch) -> NewHost:
    return NewHost(tmp_path, monkeypatch)


def info(path: t.Any) -> t.Any:
    argv = ["qemu-img", "info", "--output=json", str(path)]
    return json.loads(subprocess.run(argv, check=True, capture_output=True, text=True).stdout)


def test_logical_volumes(there: NewHost) -> None:
    """Where the volume is larger than the disk, libvirt overwrites its beginning alone, and the guest sees no more."""
    made = there.make(guest("lvm"))
    assert made == {
        "vda": {"path": str(there.devices / ROOT), "size": 0},
        "vdb": {"path": str(there.devices / SWAP), "size": 6 * MIB},
    }
    assert there.tags() == {ROOT: MINE | {"bootflow.source=image/" + IMAGE}, SWAP: MINE}, (
        "whole: what is not is made anew"
    )
    assert there.model.lvs[SWAP]["size"] == 8 * MIB and there.zeroed == [(str(there.devices / SWAP), 2 * MIB, 6 * MIB)]
    records = records_of(str(there.folder))
    assert {n: (r["format"], r["virtual_size"], r["volume_group"]) for n, r in records.items()} == {
        "disk": ("lvm", 64 * MIB, "vg"),
        "disk.swap": ("lvm", 8 * MIB, "vg"),
    }
    # As a hard reboot finds them.
    sizes = [(d["name"], d["virtual_size"]) for d in there.ensure("lvm", specs=there.specs("lvm")[::2])["disks"]]
    assert sizes == [("disk", 64 * MIB), ("disk.swap", 8 * MIB)] and len(there.model.lvs) == 2


def test_files_on_a_logical_volume(there: NewHost) -> None:
    assert there.make(guest("qcow2", mounted=True)) == {}
    place = there.folder / "disk"
    assert there.tags() == {ROOT: MINE} and there.model.lvs[ROOT]["size"] >= 70 * MIB
    assert [line.split()[:2] for line in fstab.lines_of(UUID)] == [[str(there.devices / ROOT), str(place)]]
    assert [m.place for m in there.mounts] == [os.path.realpath(place)]
    for name, size in (("disk", 64 * MIB), ("disk.swap", 6 * MIB)):
        found = info(place / name)
        assert (found["format"], found["virtual-size"]) == ("qcow2", size) and "backing-filename" not in found
    assert set(records_of(str(place))) == {"disk", "disk.swap"} and set(records_of(str(there.folder))) == {"disk"}
    assert "volume_group" not in records_of(str(place))["disk"], "the other host's"
    specs = [there.specs("qcow2_on_lvm")[0], there.specs("qcow2_on_lvm")[2]]
    assert there.ensure("qcow2_on_lvm", specs=specs)["changed"] is False, "as a hard reboot finds them"


def test_files(there: NewHost) -> None:
    """They need no volume group."""
    assert there.make(guest("raw"), group="") == {} and not there.model.lvs
    assert info(there.folder / "disk")["virtual-size"] == 64 * MIB and there.folder.stat().st_mode & 0o777 == 0o711
    assert (there.folder / "disk").stat().st_mode & 0o777 == 0o600


def test_a_guest_without_local_disks(there: NewHost) -> None:
    assert there.make({"disks": []}) == {} and there.folder.is_dir() and not there.model.lvs


@pytest.mark.parametrize("its", [guest("lvm"), guest("qcow2", mounted=True)], ids=["lvm", "qcow2_on_lvm"])
def test_what_is_refused(there: NewHost, its: dict[str, t.Any]) -> None:
    with pytest.raises(errors.InvalidInput, match="no volume group is given"):
        there.make(its, group="")
    with pytest.raises(errors.DriverNotInitialized):
        there.make(its, group="gone")
    there.model.extents = 10
    with pytest.raises(errors.DiskFull):
        there.make(its)
    assert there.is_empty()
    there.model.extents = 2000
    tags = [word for tag in (*sorted(OURS), "bootflow.ledger=" + LEDGER) for word in ("--addtag", tag)]
    there.model("vg", "lvcreate", "--name", ROOT, "--size", "4194304b", *tags, "vg")
    there.zeroed.clear()
    with pytest.raises(errors.Conflict, match="already has (a domain|a folder|the logical volume)"):
        there.make(its)
    assert list(there.model.lvs) == [ROOT] and not there.folder.exists(), "they may be all that is left of its disks"


@pytest.mark.parametrize("form, mounted", [("lvm", False), ("qcow2", True), ("raw", False)])
def test_a_failure_at_any_step_leaves_nothing(there: NewHost, form: str, mounted: bool) -> None:
    there.make(guest(form, mounted))
    steps = there.changes
    assert steps >= 12
    there.remove(local=Group("vg", ledger_id=LEDGER))
    assert there.is_empty()
    for step in range(1, steps + 1):
        there.fails_at, there.changes = step, 0
        there.steps.clear()
        with pytest.raises((OSError, errors.BootflowError)):
            there.make(guest(form, mounted))
        assert there.is_empty(), step
        assert not [s for s in there.steps if s.startswith("wipe")], "no guest has written to them"
    there.fails_at = 0
    there.make(guest(form, mounted))


def test_what_cannot_be_removed_is_found_later(there: NewHost, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_arguments: t.Any) -> None:
        raise errors.CommandFailed(message="lvchange failed", remedy="Repair it.")

    monkeypatch.setattr(arriving_volumes, "mark_complete", broken)
    monkeypatch.setattr(empty_disks, "remove_volumes", broken)
    with pytest.raises(errors.CommandFailed, match="lvchange failed"):
        there.make(guest("lvm"))
    assert set(there.model.lvs) == {ROOT, SWAP}
    assert there.folder.exists()
    there.remove(local=Group("vg", ledger_id=LEDGER))
    assert there.is_empty()


@pytest.mark.parametrize(
    "wrong",
    [
        disk("disk", "vda", "qcow2", 100 * 2**40),
        disk("disk.eph0", "vdb", "qcow2", MIB),
        disk("disk", "vda", "lvm", 64 * MIB + 2**30),
        {**disk("disk", "vda", "qcow2", MIB), "record": None},
    ],
)
def test_a_host_that_lies_about_a_disk(there: NewHost, wrong: dict[str, t.Any]) -> None:
    """The ledger says which disks a guest has, and how large they may be."""
    with pytest.raises(errors.InvalidDiskInfo):
        there.make({"disks": [wrong]})
    assert there.is_empty()


def test_a_disk_of_unknown_size_has_room(there: NewHost) -> None:
    large = checked_disks([{**disk("disk", "vda", "qcow2", 2**60), "allocated": 0}], {"disk": 0}, UUID)
    with pytest.raises(errors.DiskFull):
        empty_disks.make_disks(None, there.path, LEDGER, UUID, large, {"disk": 0})
    assert there.is_empty()
