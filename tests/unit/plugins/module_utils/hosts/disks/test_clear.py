# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import errno
import fcntl
import os
import stat
import struct
import types

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core.errors import CommandFailed, Conflict, InvalidInput
from ansible_collections.bootflow.compute.plugins.module_utils.core.instances import move_mark
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.disks import instances
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.disks.whole import clear
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.libvirt import connection as libvirt_connection
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.libvirt import domains
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.os import ownership

UUID = "2f4c1c0e-6a0f-4d8e-9f0b-0c6f3f3b2d01"
SIZE = 5 * 1024**2 + 4096


@pytest.fixture
def disk(tmp_path, monkeypatch):
    """A file that counts as a block device of the kernel, which zeros nothing by itself unless ``answer`` says so."""
    path = tmp_path / "sdb"
    path.write_bytes(b"x" * SIZE)
    device = types.SimpleNamespace(path=str(path), answer=errno.EOPNOTSUPP, asked=[], read=path.read_bytes)
    real_fstat = os.fstat

    def ioctl(fd, request, argument=0):
        if request != 0x127F:
            raise OSError(errno.EINVAL, "no partitions")
        start, length = struct.unpack("=QQ", argument)
        device.asked.append((start, length))
        if device.answer:
            raise OSError(device.answer, os.strerror(device.answer))
        os.pwrite(fd, bytes(length), start)

    monkeypatch.setattr(fcntl, "ioctl", ioctl)
    monkeypatch.setattr(
        os, "fstat", lambda fd: types.SimpleNamespace(st_mode=stat.S_IFBLK, st_size=real_fstat(fd).st_size)
    )
    monkeypatch.setattr(clear, "_STEP", 2 * 1024**2)
    return device


@pytest.mark.parametrize("answer", [0, errno.EOPNOTSUPP, errno.ENOTTY, errno.EINVAL])
def test_every_byte_becomes_zero(disk, answer):
    disk.answer = answer
    assert clear.clear_disk({"path": disk.path}, {}) == disk.path
    assert disk.read() == bytes(SIZE)
    assert sum(length for start, length in disk.asked) == SIZE
    assert [start for start, length in disk.asked] == [0, 2 * 1024**2, 4 * 1024**2]


def test_a_write_error_is_told(disk):
    disk.answer = errno.EIO
    with pytest.raises(CommandFailed, match="%s could not be cleared: writing zeros" % disk.path):
        clear.clear_disk({"path": disk.path}, {})


def test_what_another_guest_has_is_not_touched(disk):
    with pytest.raises(CommandFailed, match="domain web uses the disk"):
        clear.clear_disk({"path": disk.path}, {os.path.realpath(disk.path): {"name": "web"}})
    assert disk.read() == b"x" * SIZE


def test_a_link_is_followed_when_users_are_looked_for(disk, tmp_path):
    link = tmp_path / "by-id"
    link.symlink_to(disk.path)
    with pytest.raises(CommandFailed, match="domain web uses the disk"):
        clear.clear_disk({"path": str(link)}, {os.path.realpath(disk.path): {"name": "web"}})


@pytest.mark.parametrize(("there", "cleared"), [("S1", True), ("S2", False), ("", False)])
def test_another_disk_under_the_same_name_is_not_touched(disk, there, cleared):
    claimed = {"path": disk.path, "serial": "S1"}
    if cleared:
        clear.clear_disk(claimed, {}, lambda path: {"serial": there})
    else:
        with pytest.raises(CommandFailed, match="serial S1"):
            clear.clear_disk(claimed, {}, lambda path: {"serial": there})
    assert (disk.read() == bytes(SIZE)) is cleared


def test_check_mode_touches_nothing(disk):
    assert clear.clear_disk({"path": disk.path}, {}, check_mode=True) == disk.path
    assert disk.read() == b"x" * SIZE and not disk.asked


def test_a_file_and_what_is_not_there_are_no_disks(tmp_path):
    (tmp_path / "file").write_bytes(b"x")
    with pytest.raises(CommandFailed, match="not a block device"):
        clear.clear_disk({"path": str(tmp_path / "file")}, {})
    with pytest.raises(CommandFailed, match="No such file"):
        clear.clear_disk({"path": str(tmp_path / "gone")}, {})
    assert (tmp_path / "file").read_bytes() == b"x"


def test_a_disk_that_the_kernel_has_is_refused(monkeypatch):
    def busy(path, flags):
        assert flags & os.O_EXCL
        raise OSError(errno.EBUSY, "Device or resource busy")

    monkeypatch.setattr(os, "open", busy)
    with pytest.raises(CommandFailed, match="in use by the kernel"):
        clear.clear_disk({"path": "/dev/sdb"}, {})


def test_forms_of_disks():
    wanted = [{"path": "/dev/sdb", "serial": ""}, {"path": "/dev/sdc", "serial": "S"}]
    assert clear.checked_disks(["/dev/sdb", {"path": "/dev/sdc", "serial": "S", "size_gb": 4}]) == wanted


@pytest.mark.parametrize("disk", ["sdb", "", "/dev/../etc/passwd", {"serial": "S"}, 7, "/dev/s\0b"])
def test_what_is_no_path_of_a_disk(disk):
    with pytest.raises(InvalidInput):
        clear.checked_disks([disk])


@pytest.mark.parametrize(
    ("domain", "ran", "cleared"), [(True, True, 1), (True, False, 1), (False, True, 1), (False, False, 0)]
)
def test_disks_are_cleared_once_and_only_where_a_guest_may_have_run(disk, tmp_path, monkeypatch, domain, ran, cleared):
    steps = []

    def remove_domain(connection, uuid, check_mode, stopped, ledger_id, defined_again, without_power):
        if domain:
            steps.append("stopped")
            stopped()
            steps.append("undefined")
        return ["domain"] if domain else []

    monkeypatch.setattr(instances, "remove_domain", remove_domain)
    monkeypatch.setattr(instances, "take_back", lambda uuid: steps.append("not offered"))
    monkeypatch.setattr(instances, "clear_disk", lambda d, used_by, check_mode: steps.append("cleared") or d["path"])
    disks = instances.Disks([{"path": "/dev/sdb"}], dict, ran)
    done = instances.remove_instance(None, str(tmp_path / "instances"), UUID, disks=disks)
    assert steps.count("cleared") == cleared
    assert ("data of disk /dev/sdb" in done["removed"]) is bool(cleared)
    if domain:
        assert steps == ["stopped", "cleared", "undefined", "not offered"], (
            "an interrupted removal is begun again with its domain there"
        )
    assert done["changed"] is bool(domain or cleared)


@pytest.mark.parametrize("is_active", [True, False])
def test_the_guest_of_a_shelved_instance_that_has_power_is_left_alone(tmp_path, monkeypatch, is_active):
    """Not even its mark changes: an interruption did not leave it."""
    folder = tmp_path / UUID
    folder.mkdir()
    (folder / "disk").write_text("data")
    ownership.mark_made_for(str(folder), move_mark.made_at(1000.0))
    ownership.mark_arrived(str(folder))
    calls = []
    domain = types.SimpleNamespace(
        name=lambda: "web",
        isPersistent=lambda: True,
        isActive=lambda: is_active,
        destroy=lambda: calls.append("destroy"),
        XMLDesc=lambda _flags: "<domain/>",
    )
    for module in (domains, instances):
        monkeypatch.setattr(module, "find_domain", lambda connection, uuid: domain)
    monkeypatch.setattr(domains, "release_of_domain", lambda *_args: [])
    monkeypatch.setattr(domains, "_undefine", lambda found: calls.append("undefine"))
    condition = instances.Condition(without_power=True)
    if is_active:
        for check_mode in (True, False):
            with pytest.raises(Conflict, match="has power on"):
                instances.remove_instance(None, str(tmp_path), UUID, check_mode, condition=condition)
        assert calls == [] and (folder / "disk").exists() and ownership.has_arrived(str(folder), True)
    else:
        assert instances.remove_instance(None, str(tmp_path), UUID, condition=condition)["changed"]
        assert calls == ["undefine"] and not folder.exists()


def test_a_domain_of_another_ledger_is_left_alone(monkeypatch):
    mark = "<metadata><b:owner xmlns:b='urn:bootflow:compute:owner:1' ledger='A'/></metadata>"
    domain = types.SimpleNamespace(  # a call of destroy or undefine would fail
        name=lambda: "web",
        isPersistent=lambda: True,
        isActive=lambda: True,
        XMLDesc=lambda _flags: "<domain>%s</domain>" % mark,
    )
    monkeypatch.setattr(domains, "find_domain", lambda connection, uuid: domain)
    monkeypatch.setattr(domains, "libvirt", types.SimpleNamespace(VIR_DOMAIN_XML_INACTIVE=2))
    with pytest.raises(Conflict, match="domain web belongs to the ledger A, not to this one"):
        domains.remove_domain(None, UUID, ledger_id="B")
    assert domains.remove_domain(None, UUID, check_mode=True, ledger_id="A")


def test_a_definition_comes_back_with_what_only_libvirt_knows(monkeypatch):
    """Whoever makes the disks of a guest anew does not know the users with whom QEMU logs in to its volumes."""
    steps = []
    secret = "<domain><auth username='u1'/></domain>"
    domain = types.SimpleNamespace(
        name=lambda: "web",
        isPersistent=lambda: True,
        isActive=lambda: True,
        destroy=lambda: steps.append("destroy"),
        undefineFlags=lambda _flags: steps.append("undefine"),
        XMLDesc=lambda flags: secret if flags == 3 else "<domain/>",
    )
    connection = types.SimpleNamespace(defineXMLFlags=lambda xml, _flags: steps.append(xml))
    fake = types.SimpleNamespace(VIR_DOMAIN_XML_INACTIVE=2, VIR_DOMAIN_XML_SECURE=1, libvirtError=ValueError)
    for module in (domains, libvirt_connection):
        monkeypatch.setattr(module, "libvirt", fake)
    monkeypatch.setattr(domains, "find_domain", lambda _connection, _uuid: domain)
    monkeypatch.setattr(domains, "release_of_domain", lambda *_args: [])
    domains.remove_domain(connection, UUID, True, defined_again=True)
    assert steps == []
    domains.remove_domain(connection, UUID, defined_again=True)
    assert steps == ["destroy", "undefine", secret]


def test_a_domain_keeps_its_definition_when_its_disk_can_not_be_cleared(monkeypatch):
    calls = []
    domain = types.SimpleNamespace(
        name=lambda: "web",
        isPersistent=lambda: True,
        isActive=lambda: True,
        destroy=lambda: calls.append("destroy"),
        XMLDesc=lambda _flags: "<domain/>",
    )
    monkeypatch.setattr(domains, "find_domain", lambda connection, uuid: domain)
    monkeypatch.setattr(domains, "_undefine", lambda found: calls.append("undefine"))

    def refuse():
        raise CommandFailed(message="no")

    with pytest.raises(CommandFailed):
        domains.remove_domain(None, UUID, stopped=refuse)
    assert calls == ["destroy"]
