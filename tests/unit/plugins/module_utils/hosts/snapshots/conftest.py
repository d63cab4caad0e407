# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Instances with real disks, and a libvirt of our own, whose QEMU copies by qemu-img."""

from __future__ import annotations

import os
import re
import subprocess
import types
import typing as t
from pathlib import Path

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.hosts.disks.stores.disk_info import write_records
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.libvirt import connection as libvirt_connection
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.libvirt import domains, password, running
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.os import locks
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.snapshots import files, live_copy, snapshot

UUID = "2f4c1c0e-6a0f-4d8e-9f0b-0c6f3f3b2a11"
ID = "6a2c1f0e-3c5e-5d7b-8d3f-9f1c2b3a4d5e"
MIB = 1024**2
RUNS, PAUSED, OFF = 1, 3, 5  # libvirt's
CODES = {
    "INTERNAL_ERROR": 1, "NO_CONNECT": 5, "INVALID_CONN": 6, "OPERATION_FAILED": 9, "SYSTEM_ERROR": 38, "RPC": 39, "NO_DOMAIN": 42, "NO_NETWORK": 43,
    "OPERATION_INVALID": 55, "AGENT_UNRESPONSIVE": 86,
}  # fmt: skip
FAKE: dict[str, t.Any] = {
    "VIR_FROM_REMOTE": 200,
    "VIR_FROM_RPC": 201,
    "VIR_DOMAIN_AGENT_RESPONSE_TIMEOUT_BLOCK": -2,
    "VIR_DOMAIN_XML_SECURE": 1,
    "VIR_DOMAIN_XML_INACTIVE": 2,
    "VIR_DOMAIN_BLOCK_COPY_REUSE_EXT": 2,
    "VIR_DOMAIN_BLOCK_COPY_TRANSIENT_JOB": 4,
    **{"VIR_ERR_" + name: code for name, code in CODES.items()},
}


class Error(Exception):
    def __init__(self, code: str, message: str = "no"):
        super().__init__(message)
        self.code = CODES[code]

    def get_error_code(self) -> int:
        return self.code

    def get_error_domain(self) -> int:
        return 0

    def get_error_message(self) -> str:
        return str(self)


def qemu_img(*arguments: object) -> None:
    subprocess.run(["qemu-img", *map(str, arguments)], check=True, capture_output=True)


class Guest:
    """A domain and its connection. ``calls``: what was asked that changes something. ``fails``: name of a call -> its error"""

    def __init__(self, disk: Path, disk_format: str, state: int = OFF):
        self.disk, self.disk_format, self.power = disk, disk_format, state
        self.calls: list[str] = []
        self.fails: dict[str, Error] = {}
        self.mirror: tuple[str, bool] | None = None
        self.looks = 2  # of a job until it is ready
        self.vanishes = False

    def _call(self, name: str) -> None:
        self.calls.append(name)
        if name in self.fails:
            raise self.fails[name]

    def lookupByUUIDString(self, uuid: str) -> Guest:
        if uuid != UUID:
            raise Error("NO_DOMAIN")
        return self

    def name(self) -> str:
        return "web"

    def state(self) -> list[int]:
        return [self.power, 0]

    def isActive(self) -> bool:
        return self.power != OFF

    def XMLDesc(self, _flags: int) -> str:
        mirror = ""
        if self.mirror is not None:
            mirror = "<mirror%s><source file='%s'/></mirror>" % (
                " ready='yes'" if self.mirror[1] else "",
                self.mirror[0],
            )
        kind, source = ("block", "dev") if str(self.disk).startswith("/dev/") else ("file", "file")
        return (
            "<domain><devices><disk type='%s' device='disk'><source %s='%s'/>%s<target dev='vda'/></disk></devices></domain>"
            % (kind, source, self.disk, mirror)
        )

    def blockInfo(self, _target: str, _flags: int) -> list[int]:
        return [4 * MIB, 0, 0]

    def jobStats(self, _flags: int = 0) -> dict[str, int]:
        return {"type": 0}

    def blockJobInfo(self, _target: str, _flags: int) -> dict[str, int]:
        if self.mirror is None or self.vanishes:
            return {}
        self.looks -= 1
        if self.looks <= 0:
            self.mirror = (self.mirror[0], True)
        return {"cur": 2 if self.looks <= 1 else 1, "end": 2}

    def blockCopy(self, target: str, xml: str, _parameters: object, flags: int) -> None:
        self._call("copy")
        found = re.fullmatch(r"<disk type='file'><source file=\"(.+)\"/><driver name='qemu' type='(\w+)'/></disk>", xml)
        assert found and target == "vda" and flags == 6
        self.mirror = (found[1], False)
        qemu_img("convert", "-U", "-n", "-f", self.disk_format, "-O", found[2], self.disk, found[1])

    def blockJobAbort(self, target: str, flags: int) -> None:
        assert (target, flags) == ("vda", 0)
        self._call("abort")
        self.mirror = None

    def fsFreeze(self, _mounts: object, _flags: int) -> None:
        self._call("freeze")

    def fsThaw(self, _mounts: object, _flags: int) -> None:
        self._call("thaw")

    def agentSetResponseTimeout(self, _seconds: int, _flags: int) -> None:
        pass


@pytest.fixture(autouse=True)
def _fakes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fake = types.SimpleNamespace(libvirtError=Error, **FAKE)
    for module in (live_copy, password, domains, running, libvirt_connection):
        monkeypatch.setattr(module, "libvirt", fake)
    monkeypatch.setattr(live_copy, "POLL", 0.01)
    monkeypatch.setattr(locks, "LOCK_ROOT", str(tmp_path / "run"))
    for module in (live_copy, snapshot):
        monkeypatch.setattr(module, "refuse_gone", lambda _uuid: None)
    monkeypatch.setattr(os, "chown", lambda *_arguments: None)


class World:
    """A host with one instance. ``content``: of its root disk, 4 MiB."""

    def __init__(self, folder: Path):
        self.path = folder / "instances"
        self.folder = self.path / UUID
        self.store = folder / "store"
        self.base = self.path / "_base" / "image-0123456789abcdef.raw"
        for each in (self.folder, self.store, self.base.parent):
            each.mkdir(parents=True)
        self.content = bytearray(os.urandom(MIB) + bytes(2 * MIB) + b"end of it" + bytes(MIB - 9))

    def guest(self, disk_format: str, state: int = OFF) -> Guest:
        """Make the disk. A qcow2 one is a layer over a base that has half of the content."""
        disk = self.folder / "disk"
        base = ""
        if disk_format == "raw":
            with disk.open("wb") as file:
                file.write(self.content[:MIB])
                file.seek(3 * MIB)
                file.write(self.content[3 * MIB :])
        else:
            base = self.base.name
            self.base.write_bytes(self.content[:MIB] + bytes(3 * MIB))
            qemu_img("create", "-q", "-f", "qcow2", "-F", "raw", "-b", self.base, disk, 4 * MIB)
            whole = self.folder / "whole"
            whole.write_bytes(self.content)
            subprocess.run(["qemu-img", "convert", "-n", "-f", "raw", "-O", "qcow2", str(whole), str(disk)], check=True)
            whole.unlink()
        record = {"kind": "image", "format": disk_format, "virtual_size": 4 * MIB, "image_id": "image", "base": base}
        write_records(str(self.folder), {"disk": record})
        return Guest(disk, disk_format, state)

    def place(self, **fields: t.Any) -> snapshot.Place:
        of_target = {name: fields.pop(name) for name in ("store", "mode", "owner") if name in fields}
        target = files.Target(**{"own": str(self.path / "_snapshots"), "store": str(self.store), **of_target})
        return snapshot.Place(**{"instances_path": str(self.path), "uri": "test:///", "target": target, **fields})

    def take(self, guest: Guest, quiesce: str = "no", check_mode: bool = False, **place: t.Any) -> dict[str, t.Any]:
        spec = snapshot.SnapshotSpec(UUID, ID, quiesce)
        return snapshot.take(guest, spec, self.place(**place), check_mode)

    def read(self, path: Path, disk_format: str) -> bytes:
        """The content of an image."""
        out = self.store.parent / "read"
        qemu_img("convert", "-f", disk_format, "-O", "raw", path, out)
        return out.read_bytes()

    def left(self) -> list[str]:
        """The files in the store and in the host's own folder."""
        own = self.path / "_snapshots"
        return sorted(p.name for p in [*self.store.iterdir(), *(own.iterdir() if own.exists() else ())])


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)
