# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Disks of instances in a volume group: on a model of LVM whose logical volumes are files, with the real programs that write them."""

from __future__ import annotations

import os
import shutil
import subprocess

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core.disks.stores.registry import NAMES, STORE_TYPES
from ansible_collections.bootflow.compute.plugins.module_utils.core.errors import (
    Conflict,
    DiskFull,
    DriverNotInitialized,
    InvalidDiskInfo,
    InvalidInput,
    VolumeIsBusy,
)
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.disks import instances
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.disks.local_disks import ensure_disks
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.disks.stores import instance_volumes
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.disks.stores.disk_spec import DiskSpec
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.disks.stores.group import Clearing, Group
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.disks.stores.instance_tags import by_instance
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.disks.stores.registry import store_of
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.images.images import BaseImage
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.lvm import lvm
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.os import fstab, mounts
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.volumes import copy

from ..volumes.test_volume_batch import Model

UUID, OTHER = "0fd65882-945e-4386-b2f2-5a36d62fefad", "22222222-2222-4222-8222-222222222222"
LEDGER = "1ed9e000-0000-4000-8000-000000000001"
IMAGE = "6a2c1f0e-3c5e-5d7b-8d3f-9f1c2b3a4d5e"
MIB = 1024**2
GIB = 1024**3
HERE = Group("vg")


def facts(backend, group):
    """What a host reports; in a volume group the growth of files does not count."""
    return store_of(backend, group).facts("/", lambda: pytest.fail("the growth of files"))


class Files(Model):
    """The model, with a file for each logical volume."""

    def __init__(self, folder):
        super().__init__(thin=False)
        self.folder, self.last = folder, {}

    def __call__(self, vg, command, *rest):
        if command == "lvremove":
            names = [word.partition("/")[2] for word in rest if word.startswith("vg/")]
            self.last.update((name, (self.folder / name).read_bytes()) for name in names)
        answer = super().__call__(vg, command, *rest)
        if command == "lvchange" and "--activate" in rest:
            for word in rest:
                name = word.partition("/")[2]
                if word.startswith("vg/"):
                    self.lvs[name]["attr"] = "-wi-a-----" if rest[rest.index("--activate") + 1] == "y" else "-wi-------"
        for name, lv in self.lvs.items():
            path = self.folder / name
            if not path.exists():
                path.write_bytes(b"what the extents had before")
                os.truncate(path, lv["size"])
        for path in self.folder.iterdir():
            if path.name not in self.lvs:
                path.unlink()
        return answer


class Host:
    """Folders of instances, a base image, the group ``vg``, and what is mounted."""

    def __init__(self, tmp_path, monkeypatch):
        self.path, self.folder = str(tmp_path / "instances"), tmp_path / "instances" / UUID
        devices = tmp_path / "dev"
        devices.mkdir()
        self.model, self.devices, self.steps = Files(devices), devices, []
        base = tmp_path / "base"
        base.write_bytes(b"the image" + bytes(MIB - 9))
        self.bases = {IMAGE: BaseImage(str(base), MIB, "0" * 64)}
        self.mounts: list[mounts.Mount] = []
        monkeypatch.setattr(lvm, "lvm", self.model)
        monkeypatch.setattr(lvm, "LOCK_ROOT", str(tmp_path / "lock"))
        monkeypatch.setattr(fstab, "LOCK_ROOT", str(tmp_path / "lock"))
        monkeypatch.setattr(lvm, "device_path", lambda vg, name: str(devices / name))
        monkeypatch.setattr(fstab, "FSTAB", str(tmp_path / "fstab"))
        monkeypatch.setattr(copy, "zero", self.zero)
        monkeypatch.setattr(instance_volumes, "_SETTLES", 0.0)
        monkeypatch.setattr(mounts, "mounted", lambda: list(self.mounts))
        monkeypatch.setattr(
            mounts, "device_number", lambda path: os.stat(path).st_ino if os.path.exists(path) else None
        )
        monkeypatch.setattr(mounts, "mount", self.mount)
        monkeypatch.setattr(mounts, "unmount", self.unmount)
        monkeypatch.setattr(instances, "remove_domain", lambda *_args, **_kw: self.steps.append("domain") or [])

    def zero(self, path, size):
        self.steps.append("wipe %s %d" % (os.path.basename(path), size))

    def mount(self, device, place):
        self.steps.append("mount")
        self.mounts.append(mounts.Mount(os.path.realpath(place), os.stat(device).st_ino))

    def unmount(self, place):
        self.steps.append("unmount")
        self.mounts = [each for each in self.mounts if each.place != place]

    def specs(self, backend):
        return [
            DiskSpec("disk", "image", 64 * MIB, backend, IMAGE),
            DiskSpec("disk.eph0", "ephemeral", 32 * MIB, backend),
            DiskSpec("disk.swap", "swap", 8 * MIB, backend),
        ]

    def ensure(self, backend, check_mode=False, group="vg", specs=None, ledger_id=""):
        return ensure_disks(self.path, UUID, specs or self.specs(backend), self.bases, check_mode, group, ledger_id)

    def remove(self, check_mode=False, local=HERE):
        return instances.remove_instance(None, self.path, UUID, check_mode, local=local)

    def tags(self):
        return {name: set(lv["tags"]) for name, lv in self.model.lvs.items()}


@pytest.fixture
def host(tmp_path, monkeypatch):
    return Host(tmp_path, monkeypatch)


def type_of(path):
    argv = ["blkid", "-p", "-o", "value", "-s", "TYPE", str(path)]
    return subprocess.run(argv, check=True, capture_output=True, text=True).stdout.strip()


OURS = {"bootflow", "bootflow.instance=" + UUID}


def test_each_disk_is_a_logical_volume(host):
    assert host.ensure("lvm", check_mode=True)["changed"] and not host.model.lvs and not host.folder.exists()
    done = host.ensure("lvm")
    names = [UUID + "_disk", UUID + "_disk.eph0", UUID + "_disk.swap"]
    assert done == {
        "changed": True,
        "disks": [
            {"name": name, "path": str(host.devices / lv), "format": "raw", "virtual_size": size * MIB}
            for name, lv, size in zip(("disk", "disk.eph0", "disk.swap"), names, (64, 32, 8), strict=True)
        ],
    }
    assert host.tags() == {
        names[0]: OURS | {"bootflow.source=image/" + IMAGE},
        names[1]: OURS,
        names[2]: OURS,
    }
    root = (host.devices / names[0]).read_bytes()
    assert root[:9] == b"the image" and len(root) == 64 * MIB
    assert (type_of(host.devices / names[1]), type_of(host.devices / names[2])) == ("ext4", "swap")
    (host.devices / names[0]).write_bytes(b"the guest's")
    for check_mode in (True, False):
        assert host.ensure("lvm", check_mode) == {**done, "changed": False}
    assert (host.devices / names[0]).read_bytes() == b"the guest's"


def test_sleeping_volumes_are_activated(host):
    host.ensure("lvm")
    host.model.lvs[UUID + "_disk"]["attr"] = "-wi-------"
    assert host.ensure("lvm", check_mode=True)["changed"] and host.ensure("lvm")["changed"]
    assert not host.ensure("lvm")["changed"]


def test_a_disk_that_is_not_whole_is_made_anew(host):
    host.ensure("lvm")
    root, swap = UUID + "_disk", UUID + "_disk.swap"
    host.model.lvs[root]["tags"].append("bootflow.incomplete")
    host.model.lvs[swap]["tags"].append("bootflow.deleting")
    for name in (root, swap):
        (host.devices / name).write_bytes(b"half of it")
        os.truncate(host.devices / name, host.model.lvs[name]["size"])
    assert host.ensure("lvm")["changed"]
    assert (host.devices / root).read_bytes()[:9] == b"the image" and type_of(host.devices / swap) == "swap"
    assert host.tags()[root] == OURS | {"bootflow.source=image/" + IMAGE} and host.tags()[swap] == OURS
    assert host.steps == ["wipe %s %d" % (swap, 8 * MIB)], "others must not get what was half wiped"


def test_what_is_in_the_way_is_never_touched(host):
    host.model("vg", "lvcreate", "--name", UUID + "_disk", "--size", "4194304b", "--addtag", "bootflow", "vg")
    for backend in ("lvm", "qcow2_on_lvm"):
        with pytest.raises(Conflict, match="is not tagged for instance " + UUID):
            host.ensure(backend)
    assert host.remove()["removed"] == [] and list(host.model.lvs) == [UUID + "_disk"]


def test_a_disk_that_was_made_as_another(host):
    host.ensure("lvm")
    with pytest.raises(InvalidDiskInfo, match="was created with image_id"):
        host.ensure("lvm", specs=[DiskSpec("disk", "image", 64 * MIB, "lvm", "another")])
    (host.folder / "disk.info").unlink()
    with pytest.raises(InvalidDiskInfo, match="is not recorded in disk.info"):
        host.ensure("lvm")


def test_no_room_for_all_is_none_taken(host):
    host.model.extents = 20
    with pytest.raises(
        DiskFull, match="Insufficient Space on Volume Group vg. Only 16777216 bytes available"
    ) as refused:
        host.ensure("lvm")
    assert refused.value.retryable and not host.model.lvs


@pytest.mark.parametrize("backend", ["lvm", "qcow2_on_lvm"])
def test_a_group_that_is_not_named_or_not_there(host, backend):
    with pytest.raises(InvalidInput, match="requires a volume group"):
        host.ensure(backend, group="")
    with pytest.raises(DriverNotInitialized, match="Volume group gone does not exist on"):
        host.ensure(backend, group="gone")
    assert host.remove(local=Group("gone"))["removed"] == [], "nothing was ever made there"
    with pytest.raises(InvalidInput, match="got (lvm|qcow2_on_lvm), raw"):
        host.ensure(backend, specs=[*host.specs("raw")[1:], DiskSpec("disk.eph1", "ephemeral", MIB, backend)])


def test_qcow2_on_a_volume_of_its_own(host):
    assert host.ensure("qcow2_on_lvm", check_mode=True)["changed"] and not host.model.lvs
    done = host.ensure("qcow2_on_lvm")
    place = host.folder / "disk"
    assert [(d["path"], d["format"]) for d in done["disks"]] == [
        (str(place / name), "qcow2") for name in ("disk", "disk.eph0", "disk.swap")
    ]
    device = host.devices / (UUID + "_disk")
    assert host.tags() == {device.name: OURS} and type_of(device) == "ext4"
    assert host.model.lvs[device.name]["size"] > (64 + 32 + 8) * MIB
    info = subprocess.run(["qemu-img", "info", str(place / "disk")], check=True, capture_output=True, text=True).stdout
    assert "backing file format: raw" in info and host.bases[IMAGE].path in info
    assert [line.split()[:2] for line in fstab.lines_of(UUID)] == [[str(device), str(place)]]
    for check_mode in (True, False):
        assert host.ensure("qcow2_on_lvm", check_mode) == {**done, "changed": False}
    assert host.steps == ["mount"]
    fstab.remove(UUID)
    assert [host.ensure("qcow2_on_lvm", check_mode)["changed"] for check_mode in (True, False, True)] == [
        True,
        True,
        False,
    ]


def test_after_a_restart_it_is_mounted_again(host):
    host.ensure("qcow2_on_lvm")
    host.mounts.clear()
    os.rename(host.folder / "disk", host.folder / "on the volume")
    host.model.lvs[UUID + "_disk"]["attr"] = "-wi-------"
    assert host.ensure("qcow2_on_lvm", check_mode=True)["changed"] and host.steps == ["mount"]
    assert host.ensure("qcow2_on_lvm")["changed"] and host.steps == ["mount", "mount"]


def test_something_else_in_the_folders_place(host):
    host.ensure("qcow2_on_lvm")
    host.mounts[0] = mounts.Mount(host.mounts[0].place, 1)
    with pytest.raises(InvalidDiskInfo, match="another file system is mounted"):
        host.ensure("qcow2_on_lvm")
    host.mounts.clear()
    with pytest.raises(InvalidDiskInfo, match="is not empty and nothing is mounted on it"):
        host.ensure("qcow2_on_lvm")


@pytest.mark.parametrize(("backend", "wiped"), [("lvm", 3), ("qcow2_on_lvm", 1)])
def test_removal(host, backend, wiped):
    host.ensure(backend)
    host.model("vg", "lvcreate", "--name", OTHER + "_disk", "--size", "4194304b", "vg")
    host.steps.clear()
    planned = host.remove(check_mode=True)
    assert planned["changed"] and host.steps == ["domain"] and len(host.model.lvs) == wiped + 1
    host.steps.clear()
    done = host.remove()
    # What is below the mount point is seen only while it is mounted, which is no more than a folder in this model.
    assert set(planned["removed"]) <= set(done["removed"])
    sizes = ["wipe"] * wiped
    order = ["domain"] + (["unmount"] if backend == "qcow2_on_lvm" else []) + sizes
    assert [step.split()[0] for step in host.steps] == order
    assert list(host.model.lvs) == [OTHER + "_disk"] and not host.folder.exists() and fstab.lines_of(UUID) == []
    assert host.remove() == {"changed": False, "removed": []}


def test_removal_goes_on_where_it_was_interrupted(host, monkeypatch):
    host.ensure("qcow2_on_lvm")

    def interrupted(path, size):
        raise KeyboardInterrupt

    monkeypatch.setattr(copy, "zero", interrupted)
    with pytest.raises(KeyboardInterrupt):
        host.remove()
    assert "bootflow.deleting" in host.tags()[UUID + "_disk"] and not host.mounts and host.folder.exists()
    monkeypatch.setattr(copy, "zero", host.zero)
    assert host.remove()["changed"] and not host.model.lvs and not host.folder.exists()


def test_volumes_without_a_folder_are_told_and_removed(host):
    host.ensure("lvm")
    shutil.rmtree(host.folder)
    tags = ["--addtag", "bootflow", "--addtag"]
    host.model("vg", "lvcreate", "--name", "x", "--size", "4194304b", *tags, "bootflow.instance=../../etc", "vg")
    host.model("vg", "lvcreate", "--name", "y", "--size", "4194304b", "--addtag", "bootflow.instance=" + OTHER, "vg")
    names = [UUID + "_" + name for name in ("disk", "disk.eph0", "disk.swap")]
    assert facts("lvm", "vg")["instance_volumes"] == {UUID: names}
    assert host.remove()["changed"] and sorted(host.model.lvs) == ["x", "y"]
    assert facts("lvm", "vg")["instance_volumes"] == {}


def test_an_open_volume_is_not_wiped(host):
    host.ensure("lvm")
    host.model.lvs[UUID + "_disk.eph0"]["attr"] = "-wi-ao----"
    with pytest.raises(VolumeIsBusy, match="vg/%s_disk.eph0 is open and was not touched" % UUID):
        host.remove()
    assert host.steps == ["domain"] and len(host.model.lvs) == 3 and host.folder.exists()


@pytest.mark.parametrize(
    ("clearing", "wiped"),
    [
        (Clearing(), [64 * MIB]),
        (Clearing("zero", 16), [16 * MIB]),
        (Clearing("zero", 100), [64 * MIB]),
        (Clearing("none"), []),
    ],
)
def test_how_much_is_wiped(host, clearing, wiped):
    host.ensure("lvm", specs=host.specs("lvm")[:1])
    host.steps.clear()
    host.remove(local=Group("vg", clearing=clearing))
    assert host.steps == ["domain"] + ["wipe %s_disk %d" % (UUID, size) for size in wiped]
    assert not host.model.lvs


def test_a_volume_is_shredded(host):
    host.ensure("lvm", specs=[DiskSpec("disk.swap", "swap", 8 * MIB, "lvm")])
    host.remove(local=Group("vg", clearing=Clearing("shred", 4)))
    data = host.model.last[UUID + "_disk.swap"]
    assert len(set(data[: 4 * MIB])) == 256 and not any(data[5 * MIB :])


def test_the_folder_says_in_which_group_older_disks_are(host, monkeypatch):
    host.ensure("lvm")
    assert host.remove(local=Group())["changed"] and not host.model.lvs
    host.ensure("lvm")
    monkeypatch.setattr(lvm, "lvm", lambda vg, *_args: (each for each in ()).throw(lvm.group_missing(vg)))
    with pytest.raises(DriverNotInitialized):
        host.remove(local=Group())
    assert host.folder.exists()


@pytest.mark.parametrize("backend", ["lvm", "qcow2_on_lvm"])
def test_what_another_ledger_has_here_stays(host, backend):
    """Its volumes and its folder are neither reported nor removed, even for an instance with the same UUID."""
    assert host.ensure(backend, ledger_id=LEDGER)["changed"] and not host.ensure(backend, ledger_id=LEDGER)["changed"]
    assert all("bootflow.ledger=" + LEDGER in tags for tags in host.tags().values())
    seen = {ledger: list(by_instance(lvm.read_group("vg", ledger))) for ledger in (LEDGER, OTHER, "")}
    assert seen == {LEDGER: [UUID], OTHER: [], "": [UUID]}
    there = host.tags()
    with pytest.raises(Conflict, match="belongs to the ledger %s, not to this one" % LEDGER):
        host.remove(local=Group("vg", ledger_id=OTHER))
    shutil.rmtree(host.folder)  # only the tags are left
    host.mounts.clear()
    host.remove(local=Group("vg", ledger_id=OTHER))
    assert host.tags() == there
    host.remove(local=Group("vg", ledger_id=LEDGER))
    assert not host.tags()


def test_files_can_grow_into_the_space_that_is_free(tmp_path):
    found = store_of("raw").facts(str(tmp_path / "missing" / "instances"), lambda: 3 * GIB)
    status = os.statvfs(tmp_path)
    assert set(found) == {"local_gb", "local_gb_used", "disk_available_least"}
    assert found["local_gb"] == status.f_frsize * status.f_blocks // GIB
    free = status.f_frsize * status.f_bavail // GIB
    assert abs(free - 3 - found["disk_available_least"]) <= 1, "others write meanwhile"


def test_a_store_in_a_volume_group_needs_one():
    for backend in ("lvm", "qcow2_on_lvm"):
        with pytest.raises(InvalidInput, match="disk backend %s requires a volume group" % backend):
            store_of(backend)
    files_and_groups = [name for name in NAMES if not STORE_TYPES[name].is_shared]
    assert [store_of(backend, "vg").group.vg for backend in files_and_groups] == ["", "", "vg", "vg"]


@pytest.mark.parametrize("where", ["elsewhere", "disk", "disk/deep"])
def test_a_foreign_mount_is_refused(host, where):
    """Beside ours, over it and inside of it."""
    host.ensure("qcow2_on_lvm")
    host.mounts.append(mounts.Mount(str(host.folder / where), 1))
    for check_mode in (True, False):
        with pytest.raises(InvalidInput, match="%s is a mount point" % where):
            host.remove(check_mode)
    assert list(host.model.lvs) == [UUID + "_disk"] and "unmount" not in host.steps and fstab.lines_of(UUID)
    host.mounts.pop()
    assert host.remove()["changed"] and not host.model.lvs


def test_sizes_of_the_host(host):
    host.model.extents = 2000
    host.model("vg", "lvcreate", "--name", "others", "--size", "%db" % (2 * GIB), "vg")
    for backend in ("lvm", "qcow2_on_lvm"):
        assert facts(backend, "vg") == {
            "local_gb": 7,
            "local_gb_used": 2,
            "disk_available_least": 5,
            "instance_volumes": {},
        }
    with pytest.raises(DriverNotInitialized) as missing:
        facts("lvm", "gone")
    assert "vgcreate gone" in missing.value.remedy and "bootflow_disk_volume_group" in missing.value.remedy


def test_the_kernels_list_of_mounts(tmp_path):
    table = tmp_path / "mountinfo"
    table.write_text(
        "36 35 98:0 /a / rw,noatime shared:1 - ext4 /dev/root rw\n"
        "40 36 253:7 / /srv/a\\040b/disk rw - ext4 /dev/mapper/x rw\n"
    )
    assert mounts.mounted(str(table)) == [
        mounts.Mount("/", os.makedev(98, 0)),
        mounts.Mount("/srv/a b/disk", os.makedev(253, 7)),
    ]
