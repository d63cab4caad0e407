# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import os
import stat
import types

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core.errors import CommandFailed
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.disks.whole import devices as disk_devices
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.facts import facts
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.os import command

GIB = 1024**3


def node(kname="sdb", size=100 * GIB + 5, **more):
    plain = {"type": "disk", "ro": False, "rota": True, "tran": "sata", "serial": "S1", "wwn": None}
    return {"kname": kname, "size": size, **plain, "fstype": None, "mountpoint": None, **more}


def part(kname, **more):
    return node(kname, type="part", **more)


@pytest.fixture
def devices(tmp_path, monkeypatch):
    """Files that count as block devices, and what lsblk says of each."""
    trees = {}

    def device(name, tree):
        path = tmp_path / name
        path.write_bytes(b"")
        trees[os.path.realpath(path)] = tree
        return str(path)

    real_stat = os.stat

    def fake_stat(path, *args, **kwargs):
        found = real_stat(path, *args, **kwargs)
        known = isinstance(path, str) and os.path.realpath(path) in trees
        return types.SimpleNamespace(st_mode=stat.S_IFBLK | 0o660) if known else found

    monkeypatch.setattr(os, "stat", fake_stat)
    device.rows = lambda *paths, used_by=None, busy="": disk_devices.isolated_disks(
        paths, used_by, trees.__getitem__, lambda path: busy
    )
    return device


def test_a_free_disk_is_offered(devices):
    path = devices("sdb", node())
    assert devices.rows(path) == [{"path": path, "size_gb": 100, "medium": "hdd", "serial": "S1", "reason": ""}]


@pytest.mark.parametrize(
    ("tree", "expected"),
    [
        (node(), "hdd"),
        (node(rota="1"), "hdd"),
        (node(rota=False), "ssd"),
        (node(rota="0"), "ssd"),
        (node("nvme0n1", tran=None, rota=False), "nvme"),
        (node("dm-1", tran="nvme", rota=False), "nvme"),
    ],
)
def test_media(tree, expected):
    assert disk_devices.medium(tree) == expected


@pytest.mark.parametrize(
    ("tree", "reason"),
    [
        (node(), ""),
        (node(size=str(5 * GIB), ro="0", rota="1"), ""),
        (node(type="loop"), ""),
        (node(type="mpath"), ""),
        (node(fstype="ext4"), ""),  # a former guest's file system
        (node(children=[part("sdb1", fstype="ext4"), part("sdb2")]), ""),
        (node(type="part"), "is of type part, not a whole disk"),
        (node(type="lvm"), "is of type lvm, not a whole disk"),
        (node(type="rom"), "is of type rom, not a whole disk"),
        (node(size=0), "has no size"),
        (node(size=None), "has no size"),
        (node(ro=True), "is read-only"),
        (node(ro="1"), "is read-only"),
        (node(mountpoint="/srv"), "the disk is mounted at /srv"),
        (node(mountpoints=[None, "/var"]), "the disk is mounted at /var"),
        (node(mountpoints=[None]), ""),
        (node(mountpoint="[SWAP]"), "the disk is mounted at [SWAP]"),
        (node(fstype="LVM2_member"), "the disk is an LVM physical volume"),
        (node(fstype="linux_raid_member"), "the disk is a member of a linux_raid set"),
        (node(children=[part("sdb1"), part("sdb2", mountpoint="/")]), "partition sdb2 is mounted at /"),
        (node(children=[part("sdb1", fstype="LVM2_member")]), "partition sdb1 is an LVM physical volume"),
        (node(children=[node("dm-0", type="crypt")]), "the disk is held by dm-0 (crypt)"),
        (
            node(children=[part("sdb1", children=[node("md0", type="raid1")])]),
            "partition sdb1 is held by md0 (raid1)",
        ),
    ],
)
def test_what_is_in_use_is_not_offered(tree, reason, devices):
    path = devices("sdb", tree)
    assert disk_devices.why_not_whole(tree) == reason
    assert devices.rows(path)[0]["reason"] == reason


def test_what_only_the_kernel_knows_counts_too(devices):
    assert (
        devices.rows(devices("sdb", node()), busy="is in use by the kernel")[0]["reason"] == "is in use by the kernel"
    )


def test_paths_that_are_no_disks(tmp_path, devices):
    (tmp_path / "file").write_text("")
    rows = devices.rows("sdb", str(tmp_path / "file"), str(tmp_path / "gone"))
    assert [row["reason"] for row in rows] == [
        "is not an absolute path",
        "is not a block device",
        "does not exist: No such file or directory",
    ]
    assert all(row["size_gb"] == 0 for row in rows)


def test_one_disk_under_two_names_is_offered_once(tmp_path, devices):
    path = devices("sdb", node(wwn="0x5"))
    link = tmp_path / "by-id"
    link.symlink_to(path)
    other_path = devices("sdc", node("sdc", wwn="0x5"))  # a second way to the same disk
    other_disk = devices("sdd", node("sdd", wwn="0x6"))
    rows = devices.rows(str(link), path, other_path, other_disk)
    assert [row["reason"] for row in rows] == ["", "is the same disk as %s" % link, "is the same disk as %s" % link, ""]
    assert rows[0]["path"] == str(link)


def test_disks_without_a_world_wide_name_are_not_taken_for_one(devices):
    rows = devices.rows(devices("sdb", node()), devices("sdc", node("sdc")))
    assert [row["reason"] for row in rows] == ["", ""]


def test_a_disk_of_a_domain_is_not_offered_whatever_its_name(tmp_path, devices):
    path = devices("sdb", node())
    link = tmp_path / "by-id"
    link.symlink_to(path)
    (row,) = devices.rows(str(link), used_by={os.path.realpath(path): {"uuid": "u-1", "name": "web-1"}})
    assert (row["reason"], row["domain"]) == ("is used by domain web-1", "u-1")


def test_a_disk_that_lsblk_does_not_know_is_not_offered(devices):
    path = devices("sdb", node())

    def fails(path):
        raise CommandFailed(cmd="lsblk", rc=32, stderr="not a block device")

    (row,) = disk_devices.isolated_disks([path], {}, fails, lambda path: "")
    assert "not a block device" in row["reason"]


def test_lsblk_is_asked_for_bytes_and_its_tree_is_taken(monkeypatch):
    asked = []

    def run(argv, **more):
        asked.extend(argv)
        return command.Completed(0, '{"blockdevices": [{"kname": "sdb", "size": 5}]}', "")

    monkeypatch.setattr(disk_devices, "run", run)
    monkeypatch.setattr(disk_devices, "program", lambda name, package: "/bin/" + name)
    assert disk_devices.block_device("/dev/sdb") == {"kname": "sdb", "size": 5}
    assert asked[0] == "/bin/lsblk" and "--bytes" in asked and asked[-1] == "/dev/sdb"


@pytest.mark.parametrize(("sector", "found"), [(0, True), (1, True), (3, True), (4, False)])
def test_a_physical_volume_is_seen_without_udev(tmp_path, sector, found):
    head = bytearray(8 * 512)
    head[sector * 512 : sector * 512 + 8] = b"LABELONE"
    (tmp_path / "disk").write_bytes(head)
    assert disk_devices.why_busy(str(tmp_path / "disk")) == ("the disk is an LVM physical volume" if found else "")


def test_a_disk_that_does_not_open_is_not_offered(tmp_path, monkeypatch):
    assert disk_devices.why_busy(str(tmp_path / "gone")) == "cannot be opened: No such file or directory"

    def busy(path, flags, mode):
        assert flags & os.O_EXCL
        raise OSError(16, "Device or resource busy")

    monkeypatch.setattr(os, "open", busy)
    assert disk_devices.why_busy("/dev/sdb") == "is in use by the kernel"


def test_disks_of_domains_by_their_real_path(tmp_path, monkeypatch):
    class LibvirtError(Exception):
        pass

    monkeypatch.setattr(facts, "libvirt", types.SimpleNamespace(libvirtError=LibvirtError, VIR_DOMAIN_XML_INACTIVE=2))
    (tmp_path / "sdb").write_text("")
    (tmp_path / "link").symlink_to(tmp_path / "sdb")

    def xml(flags):
        dev = {0: "%s/link" % tmp_path, 2: "/dev/later"}[flags]
        return (
            "<domain><devices><disk type='block'><source dev='%s'/></disk><disk type='file'><source file='/f'/></disk>"
            "<disk type='block' device='cdrom'/></devices></domain>" % dev
        )

    def gone(flags):
        raise LibvirtError

    rows = [
        {"name": "web", "domain": types.SimpleNamespace(XMLDesc=xml)},
        {"name": "gone", "domain": types.SimpleNamespace(XMLDesc=gone)},
    ]
    assert facts.block_devices_of(rows) == {os.path.realpath(tmp_path / "sdb"): rows[0], "/dev/later": rows[0]}
