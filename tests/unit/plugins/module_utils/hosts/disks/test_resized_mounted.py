# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Instances that are resized where they are and have their disks in a file system on a logical volume: real disks, a model of LVM and of mounts,
and processes that are killed at every change, or hosts that restart there. Real LVM: tests/storage_py/test_guest_with_logical_volumes_moves.py."""

from __future__ import annotations

import copy as copies
import hashlib
import json
import os
import pathlib
import shutil
import subprocess
import types
import typing as t

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core.errors import (
    CommandFailed,
    DiskFull,
    InvalidDiskInfo,
    VolumeIsBusy,
)
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.disks import resized
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.disks.resizes import files as resized_files
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.disks.resizes import mounted as resized_mounted
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.disks.stores import (
    instance_volumes,
    mounted,
    removal,
)
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.disks.stores.disk_info import (
    records_of,
    write_records,
)
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.disks.stores.disk_spec import DiskSpec
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.disks.stores.group import Clearing, Group
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.disks.stores.qcow2_room import volume_room
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.lvm import lvm
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.os import fstab, mounts
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.volumes import copy

from . import test_resized
from .test_resized import LARGER, UUID, XML, Killed, qemu_img
from .test_resized_volumes import EXTENT, GROUP, LEDGER, MIB, TAGS, Lvm

LV = UUID + "_disk"
NEW, OLD = LV + ".resize.new", LV + ".resize.old"
BACKEND = "qcow2_on_lvm"
MADE = (DiskSpec("disk.aaa", "ephemeral", MIB, BACKEND, fs="none"), DiskSpec("disk.swap", "swap", MIB, BACKEND))
HAS, GETS = [4 * MIB, MIB], [8 * MIB, MIB]  # its disks
ROOT = ["disk", "disk.eph0"]


def rounded(sizes: t.Iterable[int]) -> int:
    """What a logical volume for disks of these sizes takes from its group."""
    return -(-volume_room(sizes) // EXTENT) * EXTENT


class Host(test_resized.Host):
    """One host. What is in a file system is seen where it is mounted only."""

    def __init__(self, path: pathlib.Path):
        self.root, self.path = path, str(path / "instances")
        self.folder = os.path.join(self.path, UUID)
        self.place, self.devices, self.systems = os.path.join(self.folder, "disk"), path / "dev", path / "systems"
        self.defined: str | None = XML
        self.runs = False
        self.left: int | None = None
        self.mounts: list[mounts.Mount] = []
        self.cleared: list[str] = []
        for folder in (self.place, self.devices, self.systems):
            os.makedirs(folder)
        self.model = Lvm(self.devices, self.change)

    def fill(self) -> None:
        """Give it its disks."""
        write_records(self.folder, {"disk": mounted.holder_record("vg", volume_room(HAS))})
        tags = [word for tag in TAGS for word in ("--addtag", tag)]
        self.model("vg", "lvcreate", "--name", LV, "--size", "%db" % rounded(HAS), *tags)
        self.model("vg", "fullreport")
        self.made(str(self.devices / LV))
        self.mount(str(self.devices / LV), self.place)
        fstab.add(UUID, str(self.devices / LV), self.place)
        base = str(self.root / "base")
        with open(base, "wb") as file:
            file.truncate(4 * MIB)
        qemu_img("create", "-f", "qcow2", "-F", "raw", "-b", base, self.disk(), "4M")
        qemu_img("create", "-f", "qcow2", self.disk("disk.eph0"), "1M")
        common = {"format": "qcow2", "image_id": "", "base": ""}
        root = {**common, "kind": "image", "virtual_size": 4 * MIB, "image_id": "i", "base": "base"}
        write_records(self.place, {"disk": root, "disk.eph0": {**common, "kind": "ephemeral", "virtual_size": MIB}})
        self.write(b"before")
        self.was = self.digest()

    # what is on the host

    def disk(self, name: str = "disk") -> str:
        return os.path.join(self.place, name)

    def write(self, text: bytes) -> None:
        for name in ROOT:
            argv = ["qemu-io", "-f", "qcow2", "-c", "write -P %d 0 4k" % text[0], self.disk(name)]
            subprocess.run(argv, check=True, stdout=subprocess.DEVNULL)

    def says(self, name: str, text: bytes) -> bool:
        argv = ["qemu-io", "-r", "-f", "qcow2", "-c", "read -P %d 0 4k" % text[0], self.disk(name)]
        done = subprocess.run(argv, check=True, stdout=subprocess.PIPE, text=True)
        return "verification failed" not in done.stdout

    def digest(self) -> dict[str, str]:
        """Of all that is mounted for the guest."""
        names = sorted(os.listdir(self.place))
        return {n: hashlib.sha256(pathlib.Path(self.place, n).read_bytes()).hexdigest() for n in names}

    def number(self, device: str) -> int | None:
        lv = self.model.lvs.get(os.path.basename(device))
        return None if lv is None else int(lv.setdefault("number", 1 + max([0, *self.numbers()])))

    def numbers(self) -> list[int]:
        return [int(lv.get("number", 0)) for lv in self.model.lvs.values()]

    def made(self, device: str) -> None:
        """A file system is made."""
        self.change()
        self.model("vg", "fullreport")
        system = self.systems / str(self.number(device))
        shutil.rmtree(system, ignore_errors=True)
        system.mkdir()

    def mount(self, device: str, place: str) -> None:
        self.change()
        number = self.number(device)
        assert number and self.lv(number)["attr"] == "-wi-a-----", "active, and mounted nowhere"
        assert place not in [m.place for m in self.mounts]
        os.rename(self.systems / str(number), place)
        self.lv(number)["attr"] = "-wi-ao----"
        self.mounts.append(mounts.Mount(place, number))

    def unmount(self, place: str) -> None:
        if self.runs and place == self.place:
            raise VolumeIsBusy(message="%s cannot be unmounted: target is busy" % place)
        self.change()
        (found,) = [m for m in self.mounts if m.place == place]
        self.mounts.remove(found)
        self.lv(found.device)["attr"] = "-wi-a-----"
        os.rename(place, self.systems / str(found.device))
        os.mkdir(place)

    def lv(self, number: int) -> dict[str, t.Any]:
        (found,) = [lv for lv in self.model.lvs.values() if lv.get("number") == number]
        return found

    def restart(self) -> None:
        """The guest is off, and what fstab names is mounted where it is there."""
        self.runs, self.left = False, None
        for each in list(self.mounts):
            self.unmount(each.place)
        for device, place in (line.split()[:2] for line in fstab.lines_of(UUID)):
            if os.path.basename(device) in self.model.lvs:
                self.mount(device, place)

    def end(self, restart: bool) -> None:
        """The process was killed, alone or with its host."""
        if restart:
            self.restart()

    def save(self) -> dict[str, t.Any]:
        folder = self.root / "saved"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        names = [n for n in ("instances", "dev", "systems", "fstab") if (self.root / n).exists()]
        copied(folder, *(self.root / n for n in names))
        state = {n: getattr(self, n) for n in ("defined", "runs", "mounts")}
        return copies.deepcopy({**state, "lvs": self.model.lvs})

    def restore(self, state: dict[str, t.Any]) -> None:
        for name in ("instances", "dev", "systems"):
            shutil.rmtree(self.root / name)
        (self.root / "fstab").unlink(missing_ok=True)
        copied(self.root, *(self.root / "saved").iterdir())
        state = copies.deepcopy(state)
        self.model.lvs.clear()
        self.model.lvs.update(state.pop("lvs"))
        for name, value in state.items():
            setattr(self, name, value)

    # what is to be so

    def is_mounted(self) -> bool:
        """Its disks are where its guest looks for them, also after a restart, and nothing else of it is mounted."""
        lines = [line.split()[:2] for line in fstab.lines_of(UUID)]
        here = (str(self.devices / LV), self.place)
        assert lines == [list(here)] and [m.place for m in self.mounts] == [self.place]
        return mounts.is_on(*here)

    def is_as_before(self) -> bool:
        """To the bit."""
        assert self.is_mounted()
        record = records_of(self.folder)["disk"]["virtual_size"]
        assert (record, self.model.lvs[LV]["size"]) == (volume_room(HAS), rounded(HAS))
        return self.digest() == self.was

    def has_grown(self, text: bytes = b"before") -> bool:
        assert self.is_mounted() and self.says("disk", text) and self.says("disk.eph0", text)
        info = json.loads(qemu_img("info", "--output=json", self.disk()))
        assert info["backing-filename"].endswith("base")
        assert info["virtual-size"] == 8 * MIB == records_of(self.place)["disk"]["virtual_size"]
        record = records_of(self.folder)["disk"]["virtual_size"]
        return (record, self.model.lvs[LV]["size"]) == (volume_room(GETS), rounded(GETS))

    def has_others(self) -> bool:
        """disk.eph0 went, and two came."""
        assert self.is_mounted() and self.says("disk", b"before")
        assert set(os.listdir(self.place)) == {"disk", "disk.aaa", "disk.swap", "disk.info"}
        return self.model.lvs[LV]["size"] == rounded([8 * MIB, MIB, MIB])

    def extra(self) -> set[str]:
        return (set(os.listdir(self.folder)) - {"disk", "disk.info"}) | (set(self.model.lvs) - {LV})

    # what the module does

    def prepare(self, **sizes: int) -> dict[str, t.Any]:
        return resized.prepare(self.path, LEDGER, UUID, sizes, group=GROUP)

    def replan(self) -> dict[str, t.Any]:
        return resized.prepare(self.path, LEDGER, UUID, {"disk": 8 * MIB}, ["disk.eph0"], MADE, GROUP)

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

    def killed_at_every_change(self, step: t.Callable[[], t.Any], least: int) -> t.Iterator[bool]:
        """Each time from where it is now. Gives whether the step came to its end."""
        state = self.save()
        for changes in range(100):
            self.restore(state)
            whole = self.attempt(step, changes)
            yield whole
            if whole:
                break
        assert whole and changes >= least, changes


def copied(folder: pathlib.Path, *paths: pathlib.Path) -> None:
    subprocess.run(["cp", "-a", "--sparse=always", *map(str, paths), str(folder)], check=True)


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> Host:
    for module in (lvm, fstab):
        monkeypatch.setattr(module, "LOCK_ROOT", str(tmp_path / "lock"))
    monkeypatch.setattr(lvm, "device_path", lambda _vg, name: str(tmp_path / "dev" / name))
    monkeypatch.setattr(fstab, "FSTAB", str(tmp_path / "fstab"))
    monkeypatch.setattr(instance_volumes, "_SETTLES", 0.0)
    test_resized.fake_libvirt(monkeypatch)
    made = Host(tmp_path)
    monkeypatch.setattr(lvm, "lvm", made.model)
    monkeypatch.setattr(mounts, "mounted", lambda: list(made.mounts))
    monkeypatch.setattr(mounts, "device_number", made.number)
    monkeypatch.setattr(mounts, "mount", made.mount)
    monkeypatch.setattr(mounts, "unmount", made.unmount)
    monkeypatch.setattr(mounted, "run", lambda argv, **_how: made.made(argv[-1]))

    def zero(path: str, _size: int) -> None:
        made.change()
        made.cleared.append(os.path.basename(path))

    monkeypatch.setattr(copy, "zero", zero)
    made.fill()
    test_resized.count_changes(monkeypatch, made)

    def counted(function: t.Callable[..., t.Any]) -> t.Callable[..., t.Any]:
        def call(*args: t.Any) -> t.Any:
            made.change()
            return function(*args)

        return call

    for module, names in ((resized_mounted, ("write_records",)), (mounted, ("make_dirs",)), (fstab, ("_write",))):
        for name in names:
            monkeypatch.setattr(module, name, counted(getattr(module, name)))
    fake = types.SimpleNamespace(**{**vars(os), "rmdir": counted(os.rmdir)})
    monkeypatch.setattr(resized_mounted, "os", fake)
    return made


def test_grown_and_kept(host: Host) -> None:
    done = host.prepare(disk=8 * MIB)
    assert done["disks"] == [{"name": "disk", "size": 8 * MIB}, {"name": "disk.eph0", "size": MIB}]
    assert host.is_as_before() and host.extra() == {"resize.new", NEW}
    assert set(host.model.lvs[NEW]["tags"]) == set(TAGS) and os.listdir(host.folder + "/resize.new") == ["disk.info"]
    assert host.take() and host.defined is None and host.has_grown() and not host.take()
    assert host.extra() == {"resize.old", OLD} and host.model.lvs[OLD]["size"] == rounded(HAS)
    host.start()
    host.write(b"later")
    assert host.settle() and not host.settle()
    assert host.has_grown(b"later") and host.extra() == set() and (host.runs, host.defined) == (True, LARGER)
    assert host.cleared == [OLD]


def test_grown_and_brought_back(host: Host) -> None:
    host.prepare(disk=8 * MIB)
    host.take()
    host.start()
    host.write(b"later")
    assert host.back(define=False) and not host.back(define=False)
    assert host.is_as_before() and host.extra() == {"resize.old"} and host.defined is None
    assert host.back() and not host.back()
    assert host.is_as_before() and host.extra() == set() and (host.runs, host.defined) == (False, XML)
    assert host.cleared == [NEW]


def test_copies_that_are_not_wanted(host: Host) -> None:
    """The guest was started again meanwhile: it is left alone, and what it writes to stays mounted."""
    host.prepare(disk=8 * MIB)
    host.runs = True
    host.write(b"later")
    before = host.digest()
    assert host.back() and host.is_mounted() and host.digest() == before
    assert host.extra() == set() and (host.runs, host.defined) == (True, XML)


@pytest.mark.slow
@pytest.mark.parametrize("restart", [False, True], ids=["killed", "restart"])
@pytest.mark.parametrize("end", ["back", "settle"])
def test_copying_ends_at_every_change(host: Host, end: str, restart: bool) -> None:
    """The disks are not touched by it; whoever settles it removes all of it, and the next one begins again."""
    for whole in host.killed_at_every_change(lambda: host.prepare(disk=8 * MIB), 15):
        host.end(restart)
        if not restart or whole:
            assert mounts.is_on(str(host.devices / LV), host.place) and host.digest() == host.was
        getattr(host, end)()
        if whole and end == "settle":
            assert host.has_grown() and host.extra() == set()
            continue
        assert host.is_as_before() and host.extra() == set() and host.defined == XML
    if end == "back":
        host.prepare(disk=8 * MIB)
        assert host.settle() and host.has_grown() and host.extra() == set()


@pytest.mark.slow
@pytest.mark.parametrize("restart", [False, True], ids=["killed", "restart"])
@pytest.mark.parametrize("disks", ["grow", "come and go"])
@pytest.mark.parametrize("end", ["back", "settle", "take"])
def test_the_exchange_ends_at_every_change(host: Host, end: str, disks: str, restart: bool) -> None:
    """Whoever settles it gets all of what it was, or all of what it becomes."""
    host.prepare(disk=8 * MIB) if disks == "grow" else host.replan()
    for _whole in host.killed_at_every_change(host.take, 8):
        host.end(restart)
        assert host.defined in (XML, None)
        if host.defined == XML:
            assert host.is_as_before(), "its guest can be started"
        getattr(host, end)()
        if end == "back":
            assert host.is_as_before() and host.extra() == set() and host.defined == XML
            continue
        assert host.has_grown() if disks == "grow" else host.has_others()
        assert host.defined is None and host.extra() == (set() if end == "settle" else {"resize.old", OLD})
        if end == "take":
            host.start()
            host.back()
            assert host.is_as_before() and host.extra() == set() and host.defined == XML


@pytest.mark.slow
@pytest.mark.parametrize("restart", [False, True], ids=["killed", "restart"])
@pytest.mark.parametrize("disks", ["grow", "come and go"])
@pytest.mark.parametrize("define", [True, False])
def test_the_way_back_ends_at_every_change(host: Host, define: bool, disks: str, restart: bool) -> None:
    """While the host reports the guest it has all of what that is; afterwards the same again ends it."""
    host.prepare(disk=8 * MIB) if disks == "grow" else host.replan()
    host.take()
    host.start()
    if define:
        host.back(define=False)
    for _whole in host.killed_at_every_change(lambda: host.back(define), 2 if define else 8):
        host.end(restart)
        assert host.defined in ((None, XML) if define else (LARGER, None))
        if host.defined == LARGER:
            assert host.has_grown() if disks == "grow" else host.has_others()
        if host.defined == XML:
            assert host.is_as_before()
            host.runs = True  # somebody starts it
        host.back()
        assert host.is_as_before() and host.extra() == set() and host.defined == XML


def test_the_removal_of_what_it_was_ends_at_every_change(host: Host) -> None:
    host.prepare(disk=8 * MIB)
    host.take()
    host.start()
    for _whole in host.killed_at_every_change(host.settle, 3):
        assert host.has_grown() and host.runs
        host.settle()
        assert host.has_grown() and host.extra() == set() and host.runs


@pytest.mark.slow
def test_removed_with_the_instance_after_every_change(host: Host) -> None:
    """Whatever of a resize was done."""

    def all_of_it() -> None:
        host.replan()
        host.take()
        host.back()

    for _whole in host.killed_at_every_change(all_of_it, 30):
        host.defined, here = None, Group("vg", LEDGER, Clearing())
        removal.remove_volumes(host.folder, UUID, here)
        assert not host.model.lvs and not host.mounts and not fstab.lines_of(UUID)


@pytest.mark.slow
@pytest.mark.parametrize("end", ["back", "settle"])
def test_the_first_disk_and_the_last_one_go_at_every_change(host: Host, end: str) -> None:
    """Of an instance whose root is a volume: the file system comes with the first disk, and goes with the last."""
    shutil.rmtree(host.place)
    host.mounts.clear()
    host.model.lvs.clear()
    host.model("vg", "fullreport")
    fstab.remove(UUID)
    os.unlink(os.path.join(host.folder, "disk.info"))

    def has_none() -> bool:
        assert not host.model.lvs and not host.mounts and not fstab.lines_of(UUID)
        return set(os.listdir(host.folder)) <= {"disk.info"} and not records_of(host.folder)

    def come() -> None:
        resized.prepare(host.path, LEDGER, UUID, {}, (), MADE, GROUP)
        host.take()

    def go() -> None:
        resized.prepare(host.path, LEDGER, UUID, {}, [s.name for s in MADE], (), GROUP)
        host.take()

    def has_them() -> bool:
        there = set(os.listdir(host.place)) == {"disk.aaa", "disk.swap", "disk.info"}
        return host.is_mounted() and there and host.model.lvs[LV]["size"] == rounded([MIB, MIB])

    for step, was, is_now in ((come, has_none, has_them), (go, has_them, has_none)):
        for whole in host.killed_at_every_change(step, 8):
            getattr(host, end)()
            assert host.extra() == set()
            if end == "back":
                assert was()
            else:
                assert is_now() if whole else (has_them if host.model.lvs else has_none)()
        if end == "back":
            step()
            host.settle()
        host.restart()
        assert is_now()


@pytest.mark.parametrize("state", ["sleeping", "awake"])
def test_what_is_not_mounted_is_mounted_first(host: Host, state: str) -> None:
    """As after the start of a host that lost its line in fstab, or whose LVM activates nothing."""
    fstab.remove(UUID)
    host.unmount(host.place)
    if state == "sleeping":
        host.model.lvs[LV]["attr"] = "-wi-------"
    host.prepare(disk=8 * MIB)
    assert host.is_as_before() and host.settle() and host.has_grown()


def test_no_room(host: Host) -> None:
    host.model.extents = (rounded(HAS) + rounded(GETS)) // EXTENT - 1
    with pytest.raises(DiskFull, match="bytes required by volume " + NEW):
        host.prepare(disk=8 * MIB)
    assert host.extra() == set() and host.is_as_before()
    host.model.extents += 1
    host.prepare(disk=8 * MIB)
    assert host.take() and host.has_grown()


def test_what_a_resize_that_failed_made_is_removed(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_args: t.Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(resized_files, "fsync", full)
    with pytest.raises(DiskFull):
        host.prepare(disk=8 * MIB)
    assert host.extra() == set() and host.is_as_before() and host.cleared == [NEW]


def test_a_disk_that_a_guest_uses(host: Host) -> None:
    argv = ["qemu-io", "-f", "qcow2", host.disk()]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as user:
        try:
            assert user.stdin is not None and user.stdout is not None
            user.stdin.write("length\n")
            user.stdin.flush()
            user.stdout.readline()
            with pytest.raises(CommandFailed, match="lock"):
                host.prepare()
        finally:
            user.kill()
    assert host.extra() == set()


def test_disks_that_are_not_there(host: Host) -> None:
    with pytest.raises(InvalidDiskInfo, match="/disk has no disk disk.eph7"):
        host.prepare(**{"disk.eph7": MIB})
    host.unmount(host.place)
    del host.model.lvs[LV]
    with pytest.raises(InvalidDiskInfo, match="logical volume vg/%s does not exist" % LV):
        host.prepare()


def test_disks_of_another_backend(host: Host) -> None:
    """Its host's backend was changed after it was booted."""
    fstab.remove(UUID)
    host.unmount(host.place)
    host.model.lvs.clear()
    os.rmdir(host.place)
    with open(host.place, "wb") as file:
        file.truncate(MIB)
    common = {"kind": "image", "format": "raw", "virtual_size": MIB, "image_id": "i", "base": ""}
    write_records(host.folder, {"disk": common})
    with pytest.raises(InvalidDiskInfo, match="are not in a separate file system") as refused:
        resized.prepare(host.path, LEDGER, UUID, {}, (), MADE, GROUP)
    assert "bootflow_disk_backend" in refused.value.remedy and host.extra() == set()


def test_something_else_that_is_mounted(host: Host) -> None:
    """It is not unmounted."""
    host.prepare(disk=8 * MIB)
    host.mounts.append(mounts.Mount(host.place + "/deep", 77))
    with pytest.raises(Exception, match="deep is a mount point"):
        host.take()
    host.mounts.pop()
    assert host.back() and host.is_as_before()
