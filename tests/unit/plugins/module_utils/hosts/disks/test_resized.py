# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Disks of instances that are resized where they are: real disks, a libvirt of our own, and processes that are killed at every change."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import types
import typing as t

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core.errors import (
    CommandFailed,
    Conflict,
    DiskFull,
    InvalidDiskInfo,
)
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.disks import resized
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.disks.resizes import files as resized_files
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.disks.resizes import volumes as resized_volumes
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.disks.stores import files
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.disks.stores.disk_info import (
    records_of,
    write_records,
)
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.disks.stores.disk_spec import DiskSpec
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.libvirt import connection as libvirt_connection
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.libvirt import domains, running
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.os import room

UUID = "2f4c1c0e-6a0f-4d8e-9f0b-0c6f3f3b2a11"
MIB = 1024**2
XML = (
    "<domain><name>web-1</name><uuid>%s</uuid><memory>1</memory>"
    "<devices><graphics type='vnc' passwd='s3cret'/></devices></domain>" % UUID
)
LARGER = XML.replace("<memory>1<", "<memory>2<")


class Killed(BaseException):
    """A SIGKILL: nothing of ours handles it."""


class Error(Exception):
    def __init__(self, code: int):
        super().__init__("no")
        self.code = code

    def get_error_code(self) -> int:
        return self.code

    def get_error_domain(self) -> int:
        return 0

    def get_error_message(self) -> str:
        return "no"


class Host:
    """One host, the disks of one instance, and its guest."""

    def __init__(self, path: t.Any):
        self.path = str(path / "instances")
        self.folder = os.path.join(self.path, UUID)
        self.defined: str | None = XML
        self.runs = False
        self.left: int | None = None  # changes until the process is killed
        os.makedirs(self.folder)
        base = str(path / "base")
        with open(base, "wb") as file:
            file.truncate(4 * MIB)
        qemu_img("create", "-f", "qcow2", "-F", "raw", "-b", base, self.disk(), "4M")
        with open(self.disk("disk.eph0"), "wb") as file:
            file.write(b"ephemeral".ljust(MIB, b"\0"))
        with open(self.disk("disk.config"), "wb") as file:
            file.write(b"drive")
        common = {"image_id": "", "base": ""}
        write_records(
            self.folder,
            {
                "disk": {"kind": "image", "format": "qcow2", "virtual_size": 4 * MIB, "image_id": "i", "base": "base"},
                "disk.eph0": {"kind": "ephemeral", "format": "raw", "virtual_size": MIB, **common},
            },
        )
        self.write(b"before")

    def disk(self, name: str = "disk") -> str:
        return os.path.join(self.folder, name)

    def write(self, text: bytes) -> None:
        """What the guest writes to both disks."""
        subprocess.run(
            ["qemu-io", "-c", "write -P %d 1M 4k" % text[0], self.disk()], check=True, stdout=subprocess.DEVNULL
        )
        with open(self.disk("disk.eph0"), "r+b") as file:
            file.write(text.ljust(16, b"\0"))

    def has(self, text: bytes, size: int) -> bool:
        with open(self.disk("disk.eph0"), "rb") as file:
            said = file.read(16).rstrip(b"\0")
        read = subprocess.run(
            ["qemu-io", "-r", "-c", "read -P %d 1M 4k" % text[0], self.disk()],
            check=False, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        root = "Pattern verification failed" not in read.stdout and read.returncode == 0
        info = json.loads(qemu_img("info", "--output=json", self.disk()))
        sizes = (info["virtual-size"], records_of(self.folder)["disk"]["virtual_size"])
        assert root == (said == text), "the disks are of two times"
        assert sizes[0] == sizes[1], "the record is that of the disk"
        return root and sizes == (size, size)

    def extra(self) -> set[str]:
        return set(os.listdir(self.folder)) - {"disk", "disk.eph0", "disk.config", "disk.info"}

    def change(self) -> None:
        if self.left is not None:
            self.left -= 1
            if self.left < 0:
                raise Killed

    # what libvirt does

    def lookupByUUIDString(self, uuid: str) -> Host:
        if uuid != UUID or self.defined is None:
            raise Error(42)
        return self

    def name(self) -> str:
        return "web-1"

    def XMLDesc(self, flags: int) -> str:
        return str(self.defined) if flags & 1 else str(self.defined).replace(" passwd='s3cret'", "")

    def isActive(self) -> bool:
        return self.runs

    def destroy(self) -> None:
        if not self.runs:
            raise Error(55)
        self.change()
        self.runs = False

    def hasManagedSaveImage(self, _flags: int) -> int:
        return 0

    def undefineFlags(self, flags: int) -> None:
        assert flags & 64, "the variables of its firmware stay"
        assert not self.runs
        self.change()
        self.defined = None

    def defineXMLFlags(self, text: str, _flags: int) -> None:
        self.change()
        self.defined = text

    # what the module does

    def prepare(self, **sizes: int) -> dict[str, t.Any]:
        return resized.prepare(self.path, "", UUID, sizes)

    def replan(self) -> dict[str, t.Any]:
        """The root disk grows, disk.eph0 goes, disk.aaa and disk.swap come: the first before all others, by its name."""
        made = [DiskSpec("disk.aaa", "ephemeral", MIB, "raw", fs="none"), DiskSpec("disk.swap", "swap", MIB, "raw")]
        return resized.prepare(self.path, "", UUID, {"disk": 8 * MIB}, ["disk.eph0"], made)

    def replanned(self) -> bool:
        """Whether it has the disks of that; else it has exactly those that it had."""
        names = set(os.listdir(self.folder)) - {"disk.config", "disk.info", "resize.old", "resize.new"}
        root = records_of(self.folder)["disk"]["virtual_size"]
        info = json.loads(qemu_img("info", "--output=json", self.disk()))
        assert info["virtual-size"] == root
        if names == {"disk", "disk.eph0"}:
            assert set(records_of(self.folder)) == names and self.has(b"before", 4 * MIB)
            return False
        assert names == {"disk", "disk.aaa", "disk.swap"} == set(records_of(self.folder)) and root == 8 * MIB
        with open(self.disk("disk.swap"), "rb") as file:
            assert b"SWAPSPACE2" in file.read()
        return True

    def take(self) -> bool:
        return bool(resized.swap_in(self, self.path, "", UUID)["changed"])

    def settle(self) -> bool:
        return bool(resized.commit(self, self.path, "", UUID)["changed"])

    def back(self, define: bool = True) -> bool:
        return bool(resized.roll_back(self, self.path, "", UUID, define)["changed"])

    def start(self) -> None:
        """As a hard reboot with the new flavor."""
        self.defined, self.runs = LARGER, True


def qemu_img(*argv: str) -> str:
    return subprocess.run(["qemu-img", *argv], check=True, stdout=subprocess.PIPE, text=True).stdout


def fake_libvirt(monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = ("NO_CONNECT", "INVALID_CONN", "RPC", "SYSTEM_ERROR", "NO_NETWORK", "NO_SECRET", "INTERNAL_ERROR")
    fake = types.SimpleNamespace(
        libvirtError=Error,
        VIR_ERR_NO_DOMAIN=42,
        VIR_ERR_OPERATION_INVALID=55,
        VIR_DOMAIN_XML_INACTIVE=2,
        VIR_DOMAIN_XML_SECURE=1,
        VIR_DOMAIN_UNDEFINE_KEEP_NVRAM=64,
        VIR_FROM_REMOTE=200,
        VIR_FROM_RPC=201,
        **{"VIR_ERR_" + name: 100 + number for number, name in enumerate(numbers)},
    )
    for module in (resized, domains, running, libvirt_connection):
        monkeypatch.setattr(module, "libvirt", fake)


def count_changes(monkeypatch: pytest.MonkeyPatch, made: t.Any) -> None:
    """Each change that the module makes to files calls ``made.change()`` before."""

    def counted(function: t.Callable[..., t.Any]) -> t.Callable[..., t.Any]:
        def call(*args: t.Any, **how: t.Any) -> t.Any:
            made.change()
            return function(*args, **how)

        return call

    fakes = {n: counted(getattr(os, n)) for n in ("rename", "link", "rmdir", "chmod")}
    counting = types.SimpleNamespace(**{**vars(os), **fakes})
    for module, names in (
        (resized, ("write_file", "remove_files", "write_records", "make_dirs")),
        (resized_files, ("grow", "ensure_files", "write_records")),
        (resized_volumes, ("write_records",)),
    ):
        if hasattr(module, "os"):
            monkeypatch.setattr(module, "os", counting)
        for name in names:
            monkeypatch.setattr(module, name, counted(getattr(module, name)))
    # A process that is killed removes nothing more.
    trees = types.SimpleNamespace(**{**vars(shutil), "rmtree": counted(shutil.rmtree)})
    monkeypatch.setattr(resized, "shutil", trees)


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch, tmp_path: t.Any) -> Host:
    fake_libvirt(monkeypatch)
    made = Host(tmp_path)
    count_changes(monkeypatch, made)
    return made


def test_grown_and_kept(host: Host) -> None:
    made = host.prepare(disk=8 * MIB)
    assert made["disks"] == [{"name": "disk", "size": 8 * MIB}, {"name": "disk.eph0", "size": MIB}]
    assert host.has(b"before", 4 * MIB) and host.extra() == {"resize.new"}
    assert os.stat(os.path.join(host.folder, "resize.new")).st_mode & 0o077 == 0
    assert host.take() and host.defined is None and host.has(b"before", 8 * MIB)
    assert not host.take(), "the same again has nothing to do"
    kept = os.path.join(host.folder, "resize.old", "domain.xml")
    assert open(kept, encoding="utf-8").read() == XML and os.stat(kept).st_mode & 0o777 == 0o600
    host.start()
    host.write(b"later")
    assert host.settle() and not host.settle()
    assert host.has(b"later", 8 * MIB) and host.extra() == set() and (host.runs, host.defined) == (True, LARGER)
    assert json.loads(qemu_img("info", "--output=json", host.disk()))["backing-filename"].endswith("base")


def test_grown_and_brought_back(host: Host) -> None:
    host.prepare(disk=8 * MIB)
    host.take()
    host.start()
    host.write(b"later")
    assert host.back(define=False) and not host.back(define=False)
    assert (
        host.has(b"before", 4 * MIB) and host.extra() == {"resize.old"} and (host.runs, host.defined) == (False, None)
    )
    assert host.back() and not host.back()
    assert host.has(b"before", 4 * MIB) and host.extra() == set() and (host.runs, host.defined) == (False, XML)


@pytest.mark.parametrize("new", [False, True])
@pytest.mark.parametrize("changes", range(12))
def test_uefi_variables(host: Host, changes: int, new: bool) -> None:
    """The guest has the variables of the same time as its disks, wherever a process is killed. :arg new: it is to get others"""

    def write(text: bytes) -> None:
        with open(host.disk("disk.nvram"), "wb") as file:
            file.write(text)

    def read() -> bytes:
        if not os.path.exists(host.disk("disk.nvram")):
            return b""
        with open(host.disk("disk.nvram"), "rb") as file:
            return file.read()

    write(b"old")
    resized.prepare(host.path, "", UUID, {"disk": 8 * MIB}, ["disk.nvram"] if new else [])
    assert read() == b"old"
    host.left = changes
    with contextlib.suppress(Killed):
        host.take()
    host.left = None
    host.take()
    assert read() == (b"" if new else b"old")
    write(b"later")
    assert host.back() and read() == b"old" and host.extra() == {"disk.nvram"}


@pytest.mark.parametrize("step", ["prepare", "take", "settle", "back"])
def test_disks_that_are_offered_to_another_host_are_not_touched(
    host: Host, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """A cold move whose run is gone may read them still: it lets go of them first."""
    if step != "prepare":
        host.prepare(disk=8 * MIB)
    if step == "settle":
        host.take()

    class Offered(Exception):
        pass

    def take_back(uuid: str) -> None:
        assert uuid == UUID
        raise Offered

    monkeypatch.setattr(resized, "take_back", take_back)
    before = {name: os.stat(host.disk(name)).st_ino for name in os.listdir(host.folder)}
    with pytest.raises(Offered):
        getattr(host, step)()
    assert before == {name: os.stat(host.disk(name)).st_ino for name in os.listdir(host.folder)}


def test_copies_that_are_not_wanted(host: Host) -> None:
    """The guest was started again meanwhile: it is left alone."""
    host.prepare(disk=8 * MIB)
    host.runs = True
    host.write(b"later")
    with pytest.raises(Conflict, match="runs"):
        host.take()
    assert host.back()
    assert host.has(b"later", 4 * MIB) and host.extra() == set() and (host.runs, host.defined) == (True, XML)


def test_a_guest_without_a_domain(host: Host) -> None:
    host.defined = None
    host.prepare(disk=8 * MIB)
    assert host.take() and host.back()
    assert host.has(b"before", 4 * MIB) and host.extra() == set() and host.defined is None


def test_nothing_to_do(host: Host) -> None:
    assert not host.take() and not host.settle() and not host.back()


@pytest.mark.parametrize("end", ["back", "settle"])
@pytest.mark.parametrize("changes", range(14))
def test_copying_is_killed(host: Host, changes: int, end: str) -> None:
    """The disks are not touched by it, and the next one begins anew."""
    host.left = changes
    try:
        host.prepare(disk=8 * MIB)
        whole = True
    except Killed:
        whole = False
    host.left = None
    assert host.has(b"before", 4 * MIB) and host.defined == XML
    if end == "back":
        host.back()
        assert host.has(b"before", 4 * MIB) and host.extra() == set() and host.defined == XML
        host.prepare(disk=8 * MIB)
        host.take()
    else:
        host.settle()
    assert host.has(b"before", 8 * MIB if whole or end == "back" else 4 * MIB)


@pytest.mark.parametrize("end", ["back", "settle", "take"])
@pytest.mark.parametrize("changes", range(22))
def test_the_exchange_is_killed(host: Host, changes: int, end: str) -> None:
    """Whoever settles it gets all of what it was, or all of what it becomes."""
    host.prepare(disk=8 * MIB)
    host.left = changes
    try:
        host.take()
    except Killed:
        pass
    host.left = None
    assert host.defined in (XML, None)
    getattr(host, end)()
    assert host.has(b"before", 4 * MIB if end == "back" else 8 * MIB)
    assert host.defined == (XML if end == "back" else None)
    assert host.extra() == ({"resize.old"} if end == "take" else set())
    host.back()
    assert host.extra() == set()


@pytest.mark.parametrize("define", [True, False])
@pytest.mark.parametrize("changes", range(16))
def test_the_way_back_is_killed(host: Host, changes: int, define: bool) -> None:
    """While the host reports the guest it has all of what that is; afterwards the same again ends it."""
    host.prepare(disk=8 * MIB)
    host.take()
    host.start()
    host.write(b"later")
    if define:
        host.back(define=False)
    host.left = changes
    try:
        host.back(define)
    except Killed:
        pass
    host.left = None
    assert host.defined in ((None, XML) if define else (LARGER, None))
    if host.defined == LARGER:
        assert host.has(b"later", 8 * MIB), "confirmed, it has all of it"
    if host.defined == XML:
        assert host.has(b"before", 4 * MIB)
        host.runs = True  # somebody starts it
    host.back()
    assert host.has(b"before", 4 * MIB) and host.extra() == set() and host.defined == XML


@pytest.mark.parametrize("changes", range(8))
def test_the_removal_of_what_it_was_is_killed(host: Host, changes: int) -> None:
    host.prepare(disk=8 * MIB)
    host.take()
    host.start()
    host.left = changes
    try:
        host.settle()
    except Killed:
        pass
    host.left = None
    host.settle()
    assert host.has(b"before", 8 * MIB) and host.extra() == set() and host.runs


def test_disks_that_come_and_go(host: Host) -> None:
    made = host.replan()
    assert [d["name"] for d in made["disks"]] == ["disk", "disk.aaa", "disk.swap"]
    assert not host.replanned() and host.defined == XML
    assert host.take() and host.replanned() and not host.take()
    host.start()
    assert host.back() and not host.replanned() and host.extra() == set() and host.defined == XML
    host.replan()
    assert host.settle() and host.replanned() and host.extra() == {"disk.aaa", "disk.swap"}


def test_an_instance_without_local_disks(host: Host) -> None:
    """Its root is a volume: there is nothing to copy, and its definition is kept."""
    for name in ("disk", "disk.eph0", "disk.info"):
        os.unlink(host.disk(name))
    assert host.prepare()["disks"] == []
    assert host.take() and host.defined is None
    host.start()
    assert host.back() and host.defined == XML and set(os.listdir(host.folder)) == {"disk.config", "disk.info"}
    resized.prepare(host.path, "", UUID, {}, (), [DiskSpec("disk.swap", "swap", MIB, "raw")])
    assert host.take() and os.path.exists(host.disk("disk.swap"))
    assert host.back() and set(os.listdir(host.folder)) == {"disk.config", "disk.info"}


@pytest.mark.parametrize("end", ["back", "settle"])
@pytest.mark.parametrize("changes", range(26))
def test_an_exchange_with_disks_that_come_and_go_is_killed(host: Host, changes: int, end: str) -> None:
    host.replan()
    host.left = changes
    try:
        host.take()
    except Killed:
        pass
    host.left = None
    getattr(host, end)()
    assert host.replanned() is (end == "settle")
    assert host.defined == (XML if end == "back" else None)
    assert host.extra() == ({"disk.aaa", "disk.swap"} if end == "settle" else set())


@pytest.mark.parametrize("changes", range(24))
def test_the_way_back_with_disks_that_come_and_go_is_killed(host: Host, changes: int) -> None:
    host.replan()
    host.take()
    host.start()
    host.left = changes
    try:
        host.back()
    except Killed:
        pass
    host.left = None
    if host.defined == LARGER:
        assert host.replanned(), "the host reports the guest, and has all of it"
    host.back()
    assert not host.replanned() and host.extra() == set() and host.defined == XML


def test_no_room(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room.shutil, "disk_usage", lambda _path: types.SimpleNamespace(free=1))
    with pytest.raises(DiskFull, match="0 MiB are free"):
        host.prepare(disk=8 * MIB)
    assert host.extra() == set()


def test_disks_that_are_not_there(host: Host) -> None:
    os.unlink(host.disk("disk.eph0"))
    with pytest.raises(InvalidDiskInfo, match="eph0"):
        host.prepare()
    os.unlink(host.disk("disk.info"))
    with pytest.raises(InvalidDiskInfo, match="has no disk disk"):
        host.prepare(disk=8 * MIB)
    assert host.extra() == set()


def test_a_disk_that_a_guest_uses(host: Host) -> None:
    user = subprocess.Popen(
        ["qemu-io", "-f", "qcow2", host.disk()], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert user.stdin is not None and user.stdout is not None
        user.stdin.write("length\n")
        user.stdin.flush()
        user.stdout.readline()
        with pytest.raises(CommandFailed, match="lock"):
            host.prepare()
    finally:
        user.kill()
        user.wait()
    assert host.extra() == set()


def test_a_folder_or_guest_of_another_ledger(host: Host) -> None:
    files.make_dirs(host.folder)
    with open(host.disk("ledger"), "w", encoding="utf-8") as file:
        file.write("theirs\n")
    for call in (resized.swap_in, resized.commit, resized.roll_back):
        with pytest.raises(Conflict, match="theirs"):
            call(host, host.path, "mine", UUID)
    with pytest.raises(Conflict, match="theirs"):
        resized.prepare(host.path, "mine", UUID, {})
