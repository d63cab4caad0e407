# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Backups by a libvirt of our own, whose QEMU writes real qcow2 files: what is made, why one is full, what failures leave, and images of chains."""

from __future__ import annotations

import json
import re
import subprocess
import types
import typing as t
from pathlib import Path

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.backups import (
    checkpoints,
    folder,
    removal,
    restore,
    take,
)
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.backups.folder import StoredBackup
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.libvirt import backup_job, domains, running
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.libvirt import connection as libvirt_connection
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.os import locks
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.snapshots import live_copy
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.snapshots.files import Target
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.snapshots.root_disk import RootDisk

UUID = "2f4c1c0e-6a0f-4d8e-9f0b-0c6f3f3b2a11"
MIB = 1024**2
CODES = {"OPERATION_INVALID": 55, "OPERATION_TIMEOUT": 68, "NO_DOMAIN_CHECKPOINT": 103, "CHECKPOINT_INCONSISTENT": 109}


class Error(Exception):
    def __init__(self, code: str):
        super().__init__(code)
        self.code = CODES[code]

    def get_error_code(self) -> int:
        return self.code

    def get_error_domain(self) -> int:
        return 0

    def get_error_message(self) -> str:
        return str(self)


FAKE = types.SimpleNamespace(
    libvirtError=Error,
    VIR_DOMAIN_JOB_OPERATION_BACKUP=9,
    VIR_DOMAIN_JOB_COMPLETED=3,
    VIR_DOMAIN_JOB_STATS_COMPLETED=1,
    VIR_DOMAIN_BACKUP_BEGIN_REUSE_EXTERNAL=1,
    VIR_DOMAIN_CHECKPOINT_DELETE_METADATA_ONLY=2,
    VIR_DOMAIN_CHECKPOINT_CREATE_REDEFINE=1,
    VIR_DOMAIN_CHECKPOINT_CREATE_REDEFINE_VALIDATE=4,
    **dict.fromkeys(("VIR_FROM_REMOTE", "VIR_FROM_RPC"), 200),
    **dict.fromkeys(("VIR_ERR_NO_CONNECT", "VIR_ERR_INVALID_CONN", "VIR_ERR_RPC", "VIR_ERR_SYSTEM_ERROR"), 201),
    **dict.fromkeys(("VIR_ERR_INTERNAL_ERROR", "VIR_ERR_NO_DOMAIN", "VIR_ERR_NO_NETWORK"), 202),
    **{"VIR_ERR_" + name: code for name, code in CODES.items()},
)


class Checkpoint:
    def __init__(self, guest: Guest, name: str):
        self.guest, self.called = guest, name

    def getName(self) -> str:  # noqa: N802
        return self.called

    def getXMLDesc(self, _flags: int) -> str:  # noqa: N802
        return "<domaincheckpoint><name>%s</name><parent><name>x</name></parent></domaincheckpoint>" % self.called

    def delete(self, flags: int) -> None:
        if self.guest.broken and not flags:
            raise Error("OPERATION_INVALID")
        self.guest.names.remove(self.called)


class Guest:
    """A domain and its connection. ``written``: offset -> byte of which the guest has written 64 KiB since the last checkpoint."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.content = bytearray(4 * MIB)
        self.written: set[int] = set()
        self.active = True
        self.ends = 3  # the type of the job that ended: completed
        self.foreign = False
        self.broken = False  # its bitmaps
        self.redefined: list[str] = []

    def write(self, block: int, byte: int) -> None:
        self.content[block * 65536 : (block + 1) * 65536] = bytes([byte]) * 65536
        self.written.add(block)

    def lookupByUUIDString(self, _uuid: str) -> Guest:  # noqa: N802
        return self

    def name(self) -> str:
        return "web"

    def isActive(self) -> bool:  # noqa: N802
        return self.active

    def state(self) -> list[int]:
        return [1 if self.active else 5, 0]

    def blockInfo(self, _target: str, _flags: int) -> list[int]:  # noqa: N802
        return [len(self.content), 0, 0]

    def listAllCheckpoints(self, _flags: int) -> list[Checkpoint]:  # noqa: N802
        return [Checkpoint(self, name) for name in self.names]

    def checkpointLookupByName(self, name: str, _flags: int) -> Checkpoint:  # noqa: N802
        if name not in self.names:
            raise Error("NO_DOMAIN_CHECKPOINT")
        return Checkpoint(self, name)

    def checkpointCreateXML(self, xml: str, flags: int) -> None:  # noqa: N802
        assert flags == 5 and "<parent>" not in xml
        if self.broken:
            raise Error("CHECKPOINT_INCONSISTENT")
        (name,) = re.findall("<name>(.*)</name>", xml)
        self.redefined.append(name)
        self.names.append(name)

    def jobStats(self, flags: int = 0) -> dict[str, int]:  # noqa: N802
        if not self.active:
            raise Error("OPERATION_INVALID")
        if flags:
            return {"type": self.ends, "operation": 9}
        return {"type": 2, "operation": 9} if self.foreign else {"type": 0}

    def backupGetXMLDesc(self, _flags: int) -> str:  # noqa: N802
        if self.foreign:
            return "<domainbackup mode='pull'/>"
        raise Error("OPERATION_INVALID")

    def backupBegin(self, xml: str, checkpoint: str | None, flags: int) -> None:  # noqa: N802
        assert flags == 1
        since = re.findall("<incremental>(.*)</incremental>", xml)
        if since and (since[0] not in self.names or self.broken):
            raise Error("CHECKPOINT_INCONSISTENT")
        (path,) = re.findall('target file="(.*?)"', xml)
        blocks = self.written if since else range(len(self.content) // 65536)
        commands = []
        for block in sorted(blocks):
            byte = self.content[block * 65536]
            if byte or since:
                commands += ["-c", "write -q -P %d %d 64k" % (byte, block * 65536)]
        subprocess.run(["qemu-io", *commands, path], check=True)
        if checkpoint is not None:
            self.names += re.findall("<name>(.*)</name>", checkpoint)
            self.broken = False
            self.written = set()


class Host:
    """A host with one guest, and its backups."""

    def __init__(self, path: Path):
        self.guest, self.directory, self.path = Guest(), path / "backups", path
        self.chain: list[StoredBackup] = []
        self.count = 0

    def make(self, check_mode: bool = False, **spec: t.Any) -> dict[str, t.Any]:
        self.count += 1
        known = {"chain": tuple(self.chain), "kept_checkpoint": self.chain[-1].checkpoint if self.chain else ""}
        place = take.BackupPlace("/instances", "test:///", str(self.directory))
        wanted = take.BackupSpec(UUID, "b%d" % self.count, "web", **{**known, **spec})
        done = take.take(self.guest, wanted, place, check_mode)
        if not check_mode:
            fields = ("folder", "file", "size", "checksum", "virtual_size", "checkpoint", "checkpoint_xml")
            stored = StoredBackup("b%d" % self.count, **{name: done[name] for name in fields})
            self.chain = [*self.chain, stored] if done["kind"] == "incremental" else [stored]
        return done

    @property
    def folder(self) -> Path:
        return self.directory / UUID

    def files(self) -> list[str]:
        return sorted(p.name for p in self.folder.iterdir()) if self.folder.exists() else []

    def read(self, name: str) -> bytes:
        out = self.path / "read"
        subprocess.run(["qemu-img", "convert", "-O", "raw", str(self.folder / name), str(out)], check=True)
        return out.read_bytes()


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Host:
    made = Host(tmp_path)
    disk = tmp_path / "disk"
    subprocess.run(["qemu-img", "create", "-q", "-f", "qcow2", str(disk), "4M"], check=True)
    for module in (take, checkpoints, backup_job, domains, running, libvirt_connection, live_copy):
        monkeypatch.setattr(module, "libvirt", FAKE)
    monkeypatch.setattr(take, "root_disk", lambda *_a, **_k: RootDisk(str(disk), "qcow2", 4 * MIB))
    monkeypatch.setattr(take, "definitions_of", lambda _domain: [None])
    monkeypatch.setattr(take, "target_of", lambda *_a: "vda")
    monkeypatch.setattr(take, "refuse_gone", lambda _uuid: None)
    monkeypatch.setattr(take.os, "chown", lambda *_a: None)
    monkeypatch.setattr(locks, "LOCK_ROOT", str(tmp_path / "run"))
    return made


def test_each_backup_is_the_disk_of_its_moment(host: Host) -> None:
    guest = host.guest
    guest.write(1, 17)
    planned = host.make(check_mode=True)
    assert planned["kind"] == "full" and host.files() == [] and guest.names == []
    full = host.make()
    assert (full["kind"], full["reason"]) == ("full", "the instance has no complete backup")
    first = bytes(guest.content)
    guest.write(1, 18)
    guest.write(9, 19)
    second = host.make()
    assert (second["kind"], second["parent_id"], second["reason"]) == ("incremental", "b2", "")
    guest.write(1, 0)
    host.make()
    assert host.read("b2.qcow2") == first and host.read("b4.qcow2") == bytes(guest.content)
    assert host.files() == ["b2.qcow2", "b3.qcow2", "b4.qcow2", "manifest.json"]
    assert guest.names == ["bootflow-b3", "bootflow-b4"], "the one before the last is gone"
    entries = json.loads((host.folder / "manifest.json").read_text())["backups"]
    assert [(e["id"], e["parent"]) for e in entries] == [("b2", None), ("b3", "b2"), ("b4", "b3")]
    assert [(host.folder / f).stat().st_mode & 0o777 for f in host.files()] == [0o600] * 4


def test_a_lost_bitmap_makes_a_full_backup_that_says_so(host: Host) -> None:
    host.make()
    host.guest.broken = True
    host.guest.write(3, 7)
    done = host.make()
    assert done["kind"] == "full" and "the bitmap of the last backup is lost" in done["reason"]
    assert host.read("b2.qcow2") == bytes(host.guest.content) and host.guest.names == ["bootflow-b2"]


def test_a_checkpoint_that_libvirt_forgot_is_made_known_again(host: Host) -> None:
    host.make()
    host.guest.names.clear()
    host.guest.write(3, 7)
    assert host.make()["kind"] == "incremental" and host.guest.redefined == ["bootflow-b1"]
    host.guest.names.clear()
    host.guest.broken = True
    assert "libvirt does not have checkpoint bootflow-b2" in host.make()["reason"]


@pytest.mark.parametrize("harm", ["missing", "shorter"])
def test_a_chain_that_is_not_whole_is_left(host: Host, harm: str) -> None:
    host.make()
    file = host.folder / "b1.qcow2"
    if harm == "missing":
        file.unlink()
    else:
        file.write_bytes(file.read_bytes()[:-512])
    done = host.make()
    assert done["kind"] == "full" and "the last backup is not usable" in done["reason"]


@pytest.mark.parametrize("ends", [4, 5])
def test_a_job_that_fails_leaves_neither_file_nor_checkpoint(host: Host, ends: int) -> None:
    host.make()
    before, names = host.files(), list(host.guest.names)
    host.guest.ends = ends
    host.guest.write(2, 5)
    with pytest.raises(errors.BackupFailed):
        host.make()
    assert host.files() == before and host.guest.names == names


def test_another_backup_is_left_alone(host: Host) -> None:
    host.guest.foreign = True
    with pytest.raises(errors.BackupRuns, match="A backup of guest web runs"):
        host.make()
    assert host.files() == [] and host.guest.names == []


def test_checkpoints_of_other_programs_stay(host: Host) -> None:
    host.guest.names = ["nightly", "bootflow-dead"]
    host.make()
    assert host.guest.names == ["nightly", "bootflow-b1"]


def test_a_guest_that_is_off_is_converted(host: Host) -> None:
    host.guest.active = False
    done = host.make()
    assert (done["kind"], done["reason"], done["checkpoint"]) == ("full", "the guest does not run", "")
    assert host.read("b1.qcow2") == bytes(4 * MIB) and host.guest.names == []


def test_a_raw_disk_has_full_backups_without_checkpoints(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(take, "root_disk", lambda *_a, **_k: RootDisk(str(host.path / "disk"), "raw", 4 * MIB))
    done = host.make()
    assert done["kind"] == "full" and "the format raw" in done["reason"]
    assert done["checkpoint"] == "" and host.guest.names == []


def test_remnants_are_removed(host: Host) -> None:
    host.make()
    (host.folder / "dead.qcow2").write_bytes(b"half")
    assert host.make(removed=("dead",))["removed"] == ["dead"]
    assert host.files() == ["b1.qcow2", "b2.qcow2", "manifest.json"]


def test_the_image_of_a_chain_and_its_removal(host: Host) -> None:
    host.guest.write(1, 17)
    host.make()
    host.guest.write(2, 18)
    host.make()
    store = host.path / "store"
    store.mkdir()
    target = Target(str(host.path / "own"), str(store))
    done = restore.take(restore.RestoreSpec("image", tuple(host.chain)), target)
    subprocess.run(["qemu-img", "convert", "-O", "raw", str(store / "image"), str(host.path / "read")], check=True)
    assert (host.path / "read").read_bytes() == bytes(host.guest.content) and done["disk_format"] == "qcow2"

    file = host.folder / "b1.qcow2"
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    with pytest.raises(errors.BackupDamaged, match="another content"):
        restore.take(restore.RestoreSpec("other", tuple(host.chain)), target)
    assert [p.name for p in store.iterdir()] == ["image"]

    gone = [removal.remove(host.guest, UUID, i, str(host.folder), "/x")["changed"] for i in ("b2", "b1", "b1")]
    assert gone == [True, True, False] and not host.folder.exists() and host.guest.names == []


def test_damage_names_what_is_wrong(host: Host) -> None:
    host.make()
    (stored,) = host.chain
    assert folder.damage([stored]) == ""
    subprocess.run(["qemu-img", "rebase", "-q", "-u", "-F", "qcow2", "-b", "x.qcow2", stored.path], check=False)
    wrong = folder.damage([StoredBackup(**{**stored.__dict__, "size": Path(stored.path).stat().st_size})])
    assert wrong
