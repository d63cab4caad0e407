# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Images of instances that are off, or run: the same bytes from each format of disk, and nothing half that is left of a failure."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import time
import typing as t
from pathlib import Path

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.core.guest.domain.element import parse
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.disks.stores.disk_info import write_records
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.snapshots import (
    files,
    guard,
    live_copy,
    publish,
    snapshot,
)
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.snapshots.root_disk import root_disk, target_of

from .conftest import ID, MIB, OFF, PAUSED, RUNS, UUID, Error, Guest, World


@pytest.mark.parametrize("state", [OFF, RUNS, PAUSED])
@pytest.mark.parametrize("made", ["", "raw", "qcow2"])
@pytest.mark.parametrize("disk_format", ["raw", "qcow2"])
def test_the_image_has_the_bytes_of_the_disk(world: World, disk_format: str, made: str, state: int) -> None:
    guest = world.guest(disk_format, state)
    done = world.take(guest, image_format=made)
    path = world.store / ID
    assert world.read(path, made or disk_format) == world.content
    wanted = {"changed": True, "live": state != OFF, "disk_format": made or disk_format, "quiesced": False}
    assert wanted.items() <= done.items() and done["path"] == str(path)
    assert (done["size"], done["checksum"]) == (path.stat().st_size, hashlib.sha256(path.read_bytes()).hexdigest())
    assert path.stat().st_mode & 0o777 == 0o600 and world.left() == [ID]
    assert guest.calls == ([] if state == OFF else ["copy", "abort"]) and guest.power == state


@pytest.mark.parametrize("state", [OFF, RUNS])
def test_a_compressed_image_is_smaller(world: World, state: int) -> None:
    world.content[:MIB] = b"compressible" * (MIB // 12) + bytes(4)
    plain = world.take(world.guest("qcow2", state))["size"]
    (world.folder / "disk").unlink()
    done = world.take(world.guest("qcow2", state), compress=True)
    assert done["size"] < plain // 2 and world.read(world.store / ID, "qcow2") == world.content
    assert world.left() == [ID]


def test_zeros_take_no_room(world: World) -> None:
    world.take(world.guest("raw"))
    assert (world.store / ID).stat().st_blocks * 512 < 2 * MIB
    assert world.take(world.guest("qcow2"))["size"] < 2 * MIB


def test_a_raw_copy_of_a_guest_that_runs_gets_its_holes_back(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    guest, copy = world.guest("raw", RUNS), Guest.blockCopy

    def with_zeros(self: Guest, *arguments: t.Any) -> None:
        copy(self, *arguments)
        assert self.mirror is not None
        Path(self.mirror[0]).write_bytes(world.content)

    monkeypatch.setattr(Guest, "blockCopy", with_zeros)
    disk = root_disk(str(world.path), str(world.folder), readable=False)
    assert disk.room("raw", True) > 4 * MIB > disk.room("raw", False)
    world.take(guest)
    assert (world.store / ID).read_bytes() == world.content
    assert (world.store / ID).stat().st_blocks * 512 < 2 * MIB


def test_without_a_store_the_file_stays_with_the_host(world: World) -> None:
    done = world.take(world.guest("qcow2"), store="", owner=os.getuid())
    assert done["path"] == str(world.path / "_snapshots" / ID) and world.left() == [ID]
    assert world.read(Path(done["path"]), "qcow2") == world.content
    assert (world.path / "_snapshots").stat().st_mode & 0o777 == 0o711


def test_check_mode_writes_nothing(world: World) -> None:
    guest = world.guest("qcow2", RUNS)
    done = world.take(guest, check_mode=True)
    assert (done["changed"], done["live"], done["disk_format"], done["power_state"]) == (True, True, "qcow2", 1)
    assert world.left() == [] and guest.calls == []


def test_what_the_guest_wrote_is_never_probed(world: World) -> None:
    """CVE-2015-7548: a guest writes a qcow2 header with a file of the host as its base into its raw disk."""
    secret = world.store.parent / "secret"
    secret.write_bytes(b"secret" * 100)
    evil = world.store.parent / "evil"
    subprocess.run(
        ["qemu-img", "create", "-q", "-f", "qcow2", "-F", "raw", "-b", str(secret), str(evil), "1M"], check=True
    )
    world.content[: evil.stat().st_size] = evil.read_bytes()
    for state in (OFF, RUNS):
        with pytest.raises(errors.ImageUnacceptable, match="is unacceptable"):
            world.take(world.guest("raw", state))
        assert world.left() == []
    world.take(world.guest("raw"), image_format="qcow2")
    assert (
        b"secretsecret" not in (world.store / ID).read_bytes()
        and world.read(world.store / ID, "qcow2") == world.content
    )


def test_room_is_looked_for_before(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = type("Usage", (), {"free": 1000})
    monkeypatch.setattr("shutil.disk_usage", lambda _path: usage)
    for state in (OFF, RUNS):
        guest = world.guest("raw", state)
        with pytest.raises(errors.DiskFull):
            world.take(guest)
        assert world.left() == [] and guest.calls == []


def test_a_guest_that_starts_meanwhile_has_no_image(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    guest, convert = world.guest("raw"), snapshot.convert

    def starts(*arguments: t.Any) -> None:
        convert(*arguments)
        guest.power = RUNS

    monkeypatch.setattr(snapshot, "convert", starts)
    with pytest.raises(errors.LibvirtError, match="was started"):
        world.take(guest)
    assert world.left() == []


def test_a_failure_keeps_the_former_file_and_leaves_no_other(world: World) -> None:
    (world.store / ID).write_bytes(b"former")
    guest = world.guest("qcow2")
    world.base.unlink()
    with pytest.raises(errors.CommandFailed, match="qemu-img"):
        world.take(guest)
    assert world.left() == [ID] and (world.store / ID).read_bytes() == b"former"


@pytest.mark.parametrize("state", [OFF, RUNS])
def test_a_failed_snapshot_has_no_file(world: World, state: int, monkeypatch: pytest.MonkeyPatch) -> None:
    guest, state_of = world.guest("qcow2", state), Guest.state

    def restarts(self: Guest) -> list[int]:
        if world.left():
            raise Error("INTERNAL_ERROR", "libvirt has restarted")
        return state_of(self)

    monkeypatch.setattr(Guest, "state", restarts)
    with pytest.raises(errors.LibvirtError):
        world.take(guest)
    assert world.left() == []


def test_a_store_that_is_not_mounted_is_not_made(world: World) -> None:
    world.store.rmdir()
    options = {"mode": "0600", "path": str(world.store), "instances_path": str(world.path), "libvirt_uri": "test:///"}
    with pytest.raises(errors.RemoteError, match="does not exist"):
        snapshot.place_of(options)
    with pytest.raises(errors.InvalidInput, match="octal"):
        snapshot.place_of({**options, "mode": "rw"})


def test_into_another_file_system_the_file_is_copied(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    made = world.folder / "made"
    made.write_bytes(world.content)
    stat = os.stat

    def other(path: t.Any, **more: t.Any) -> t.Any:
        found = stat(path, **more)
        return os.stat_result((*found[:2], 99, *found[3:])) if str(path) == str(world.store) else found

    monkeypatch.setattr(os, "stat", other)
    monkeypatch.setattr(publish, "check_room", lambda *_arguments: None)
    done = publish.publish(str(made), str(world.store), ID, "raw", 0o644)
    monkeypatch.undo()
    assert (world.store / ID).read_bytes() == world.content and made.exists()
    assert done == {"size": 4 * MIB, "checksum": hashlib.sha256(world.content).hexdigest()}
    assert (world.store / ID).stat().st_blocks * 512 <= 3 * MIB and world.left() == [ID]


def test_stale_files_are_removed(world: World) -> None:
    own = world.path / "_snapshots"
    own.mkdir()
    for name, age in (("old", 100), ("new", 1)):
        (own / name).write_bytes(b"x")
        os.utime(own / name, (time.time() - age,) * 2)
    assert files.remove_stale(str(own), 0) == []
    assert files.remove_stale(str(own), 50) == [str(own / "old")] and world.left() == ["new"]


def test_files_of_failed_images_are_removed(world: World) -> None:
    own = world.path / "_snapshots"
    own.mkdir()
    for name in (ID, ID + ".part", ID + ".qcow2", "another"):
        (own / name).write_bytes(b"x")
    files.remove_failed(str(own), [ID, "6a2c1f0e-3c5e-5d7b-8d3f-9f1c2b3a4d5f"])
    assert world.left() == ["another"]
    with pytest.raises(errors.InvalidInput):
        files.remove_failed(str(own), ["../another"])


# --- the root disk --------------------------------------------------------------------------------------------------------


def test_the_record_says_what_the_root_disk_is(world: World) -> None:
    world.guest("qcow2")
    disk = root_disk(str(world.path), str(world.folder), readable=True)
    assert (disk.path, disk.format) == (str(world.folder / "disk"), "qcow2")
    assert disk.base == str(world.base) and MIB < disk.room("qcow2", True) < 6 * MIB
    (world.folder / "disk").unlink()
    with pytest.raises(errors.InvalidDiskInfo, match="is not a disk"):
        root_disk(str(world.path), str(world.folder), readable=True)
    (world.folder / "disk.info").unlink()
    with pytest.raises(errors.InvalidDiskInfo, match="has no root disk"):
        root_disk(str(world.path), str(world.folder), readable=False)


def test_a_logical_volume_is_named_by_its_record(world: World) -> None:
    record = {"kind": "image", "format": "lvm", "virtual_size": 4 * MIB, "volume_group": "vg", "base": "x"}
    write_records(str(world.folder), {"disk": record})
    disk = root_disk(str(world.path), str(world.folder), readable=False)
    assert (disk.path, disk.format, disk.base) == ("/dev/vg/%s_disk" % UUID, "raw", "") and disk.room(
        "qcow2", False
    ) > 4 * MIB


def test_a_guest_with_another_disk_in_its_place_is_refused(world: World) -> None:
    guest = world.guest("qcow2", RUNS)
    guest.disk = world.folder / "overlay"
    with pytest.raises(errors.GuestDisksDiffer, match="vda .* is .*/overlay"):
        world.take(guest)
    assert world.left() == [] and guest.calls == []


def test_a_domain_that_is_gone(world: World) -> None:
    guest = world.guest("raw")
    with pytest.raises(errors.InstanceNotFound):
        snapshot.take(guest, snapshot.SnapshotSpec("0" * 8 + UUID[8:], ID), world.place())


# --- a guest that runs ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("quiesce", ["try", "require"])
def test_file_systems_stand_still_only_at_the_end(world: World, quiesce: str) -> None:
    guest = world.guest("qcow2", RUNS)
    assert world.take(guest, quiesce)["quiesced"] is True
    assert guest.calls == ["copy", "freeze", "abort", "thaw"]


def test_an_agent_that_does_not_answer(world: World) -> None:
    guest = world.guest("qcow2", RUNS)
    guest.fails["freeze"] = Error("AGENT_UNRESPONSIVE", "no answer")
    assert world.take(guest, "try")["quiesced"] is False
    assert guest.calls == ["copy", "freeze", "thaw", "abort"]
    guest.calls.clear()
    guest.looks = 2
    with pytest.raises(errors.InstanceQuiesceNotSupported, match="no answer"):
        world.take(guest, "require")
    assert guest.calls == ["copy", "freeze", "thaw", "abort"] and guest.mirror is None and world.left() == [ID]


def test_an_agent_that_stops_the_file_systems_too_late(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    guest = world.guest("qcow2", RUNS)
    monkeypatch.setattr(live_copy, "ANSWER", 1)  # as if its time were over
    guest.fails["freeze"] = guest.fails["thaw"] = Error("AGENT_UNRESPONSIVE", "no answer")
    thaw = guest.fsThaw

    def later(mounts: object, flags: int) -> None:
        if guest.calls.count("thaw") == 4:
            del guest.fails["thaw"]
        thaw(mounts, flags)

    monkeypatch.setattr(guest, "fsThaw", later)
    assert world.take(guest, "try")["quiesced"] is False
    assert guest.calls == ["copy", "freeze", *["thaw"] * 5, "abort"]
    guest.fails["thaw"] = guest.fails["freeze"]
    guest.looks = 2
    monkeypatch.setattr(guest, "fsThaw", thaw)
    monkeypatch.setattr(live_copy, "LATE", 0.05)
    with pytest.raises(errors.LibvirtError, match="may stand still: no answer"):
        world.take(guest, "try")
    assert guest.mirror is None and world.left() == [ID]


def test_file_systems_that_do_not_go_on_are_told(world: World) -> None:
    guest = world.guest("qcow2", RUNS)
    guest.fails["thaw"] = Error("OPERATION_FAILED", "stuck")
    with pytest.raises(errors.LibvirtError, match="stand still: stuck") as caught:
        world.take(guest, "try")
    assert "virsh domfsthaw" in caught.value.remedy and guest.calls.count("thaw") == live_copy.TRIES
    assert world.left() == [] and guest.mirror is None


@pytest.mark.parametrize("call", ["copy", "abort"])
def test_a_refusal_of_libvirt_leaves_nothing(world: World, call: str) -> None:
    guest = world.guest("qcow2", RUNS)
    guest.fails[call] = Error("OPERATION_FAILED", "no " + call)
    with pytest.raises(errors.LibvirtError, match="no " + call):
        world.take(guest)
    assert world.left() == []


def test_a_copy_that_qemu_gives_up(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    guest = world.guest("qcow2", RUNS)
    guest.vanishes = True
    with pytest.raises(errors.LibvirtError, match="gave up the copy"):
        world.take(guest)
    monkeypatch.setattr(live_copy, "ROOM", 2**80)
    with pytest.raises(errors.DiskFull):
        world.take(guest)
    assert world.left() == []


def test_a_copy_whose_last_writes_had_no_room_is_no_image(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    guest = world.guest("qcow2", RUNS)
    abort = guest.blockJobAbort

    def full(target: str, flags: int) -> None:
        abort(target, flags)
        monkeypatch.setattr(live_copy, "ROOM", 2**80)

    monkeypatch.setattr(guest, "blockJobAbort", full)
    with pytest.raises(errors.DiskFull):
        world.take(guest)
    assert world.left() == [] and guest.mirror is None


def test_a_copy_that_a_killed_module_left_is_ended(world: World) -> None:
    guest = world.guest("qcow2", RUNS)
    guest.mirror = (str(world.path / "_snapshots" / "other.qcow2"), True)
    world.take(guest)
    assert guest.calls == ["abort", "copy", "abort"] and world.left() == [ID]


def test_a_job_of_somebody_else_is_left_alone(world: World) -> None:
    guest = world.guest("qcow2", RUNS)
    guest.mirror = ("/backup/web.qcow2", True)
    with pytest.raises(errors.LibvirtError, match="has a job already"):
        world.take(guest)
    assert guest.calls == [] and world.left() == []


def test_a_run_that_is_gone_ends_the_copy(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    guest = world.guest("qcow2", RUNS)

    def gone(_uuid: str) -> None:
        raise errors.RemoteError(reason="gone")

    monkeypatch.setattr(live_copy, "refuse_gone", gone)
    with pytest.raises(errors.RemoteError):
        world.take(guest)
    assert guest.calls == ["copy", "abort"] and world.left() == []


# --- a module that is killed ----------------------------------------------------------------------------------------------

STUB = """
class libvirtError(Exception): pass
def registerErrorHandler(*_arguments): pass
class Domain:
    def __init__(self, path): self.path = path
    def note(self, text):
        with open(self.path, "a") as file: file.write(text + "\\n")
    def lookupByUUIDString(self, uuid): self.note(uuid); return self
    def blockJobAbort(self, disk, flags): self.note("abort %s" % disk); raise libvirtError
    def fsThaw(self):
        self.note("thaw")
        self.thaws = getattr(self, "thaws", 0) + 1
        if self.thaws < 2: raise libvirtError
def open_(uri): return Domain(uri)
"""


def test_the_guard_ends_what_a_killed_module_leaves(tmp_path: Path) -> None:
    (tmp_path / "libvirt.py").write_text(
        STUB.replace("def open_(", "io_open = open\ndef open_(").replace("with open(", "with io_open(")
        + "open = open_\n"
    )
    log, half = tmp_path / "log", tmp_path / "half"
    half.write_bytes(b"half")
    argv = [sys.executable, "-c", guard.PROGRAM, str(log), UUID, "vda", str(half), "3"]
    process = subprocess.Popen(argv, stdin=subprocess.PIPE, env={"PYTHONPATH": str(tmp_path)})
    assert process.stdin is not None and half.exists() and process.poll() is None
    process.stdin.close()
    assert process.wait(30) == 0
    assert log.read_text().splitlines() == [UUID, "abort vda", "thaw", "thaw"] and not half.exists()


def test_the_guard_does_nothing_after_its_block(tmp_path: Path) -> None:
    half = tmp_path / "half"
    half.write_bytes(b"x")
    with guard.guarded("test:///", UUID, "vda", str(half), True):
        pass
    time.sleep(0.2)
    assert half.exists()


def test_the_target_is_that_of_the_root_disk(world: World) -> None:
    guest = Guest(world.folder / "disk", "raw")
    world.guest("raw")
    disk = root_disk(str(world.path), str(world.folder), readable=False)
    assert target_of(parse(guest.XMLDesc(0)), disk, UUID, "web") == "vda"
