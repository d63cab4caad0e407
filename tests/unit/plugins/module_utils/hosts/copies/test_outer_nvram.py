# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Guests whose UEFI variables are where libvirt chose the place, and which are to leave their host: real files, a libvirt of our own."""

from __future__ import annotations

import os
import types
import typing as t
from pathlib import Path

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core.errors import (
    DiskFull,
    GuestHasSnapshots,
    InvalidDiskInfo,
    LibvirtError,
)
from ansible_collections.bootflow.compute.plugins.module_utils.core.guest import nvram as core_nvram
from ansible_collections.bootflow.compute.plugins.module_utils.core.guest.domain.element import parse
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.copies import sender
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.disks import resized
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.images import nvram
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.libvirt import connection as libvirt_connection
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.libvirt import domains, power, running
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.libvirt.power import ensure_power
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.os import locks
from ansible_collections.bootflow.compute.plugins.modules import domain_power

UUID = "2f4c1c0e-6a0f-4d8e-9f0b-0c6f3f3b2a11"
RUNNING, OFF = 1, 5
HEAD = bytes(16) + bytes(range(1, 25)) + b"_FVH"
VARIABLES = HEAD.ljust(4096, b"\xff") + b"marker".ljust(4096, b"\0")
# As libvirt 9.0 has the definition, as libvirt 11 has it, and as somebody may have written it.
CHOSEN = "<os firmware='efi'><type>hvm</type></os>"
WRITTEN = (
    "<os firmware='efi'><type>hvm</type><loader readonly='yes'>/x.fd</loader><nvram template='/t.fd'>%s</nvram></os>"
)
SOURCE = "<os><loader readonly='yes'>/x.fd</loader><nvram type='file'><source file='%s'/></nvram></os>"
BIOS = "<os><type>hvm</type></os>"


class Error(Exception):
    def __init__(self, code: int = 1):
        super().__init__("no such user: web-login")
        self.code = code

    def get_error_code(self) -> int:
        return self.code

    def get_error_domain(self) -> int:
        return 0

    def get_error_message(self) -> str:
        return str(self)


class Host:
    """A host, and the domain of an instance that boots from a volume."""

    def __init__(self, path: Path):
        self.instances = str(path / "instances")
        self.folder = Path(self.instances, UUID)
        self.folder.mkdir(parents=True)
        self.of_libvirt = path / "nvram" / "web-1_VARS.fd"
        self.of_libvirt.parent.mkdir()
        self.active, self.snapshots, self.refuses, self.asked = True, 0, False, 0
        self.defined = ""

    def define(self, system: str) -> None:
        system = system % self.of_libvirt if "%s" in system else system
        secret = "<graphics type='vnc' passwd='s3cret'/><disk type='network'><auth username='web-login'/></disk>"
        form = "<domain><name>web-1</name><uuid>%s</uuid>%s<devices>%s</devices></domain>"
        self.defined = form % (UUID, system, secret)

    @property
    def nvram(self) -> Path:
        return self.folder / "disk.nvram"

    def leave(self, check_mode: bool = False) -> bool:
        """As a move prepares its source; whether the guest was shut down."""
        args: dict[str, t.Any] = {"instances_path": self.instances, "state": "shutdown"}
        args.update(dict.fromkeys(domain_power.OF_EACH), shutdown_timeout=0.0)
        domain = {"uuid": UUID, "leaves": True, "restored": False}
        return bool(ensure_power(self, domain_power.power_spec(args, domain), check_mode)["changed"])

    def moved(self) -> list[str]:
        """What goes to another host."""
        return [file["name"] for file in sender.prepare(self.instances, UUID, "t" * 64, has_disks=False)[1]]

    # what libvirt does

    def lookupByUUIDString(self, uuid: str) -> Host:
        if uuid != UUID or not self.defined:
            raise Error(42)
        return self

    def name(self) -> str:
        return "web-1"

    def state(self) -> list[int]:
        return [RUNNING if self.active else OFF, 0]

    def isActive(self) -> bool:
        return self.active

    def destroy(self) -> None:
        self.active = False

    def hasManagedSaveImage(self, _flags: int) -> int:
        return 0

    def snapshotNum(self, _flags: int) -> int:
        return self.snapshots

    def jobStats(self, _flags: int = 0) -> dict[str, int]:
        return {"type": 0}

    def listAllCheckpoints(self, _flags: int) -> list[t.Any]:
        return []

    def XMLDesc(self, flags: int) -> str:
        return self.defined if flags & 1 else self.defined.replace(" passwd='s3cret'", "")

    def undefineFlags(self, flags: int) -> None:
        assert flags & 64, "the variables of its firmware stay"
        self.defined = ""

    def defineXMLFlags(self, text: str, _flags: int) -> None:
        assert not self.active and self.nvram.exists(), "libvirt would make new ones"
        if self.refuses:
            raise Error
        self.defined = text


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Host:
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
    for module in (resized, domains, running, power, libvirt_connection):
        monkeypatch.setattr(module, "libvirt", fake)
    monkeypatch.setattr(locks, "LOCK_ROOT", str(tmp_path / "run"))
    monkeypatch.setattr(core_nvram, "OF_LIBVIRT", str(tmp_path / "nvram" / "%s_VARS.fd"))
    return Host(tmp_path)


@pytest.mark.parametrize("system", [CHOSEN, WRITTEN, SOURCE])
@pytest.mark.parametrize("active", [True, False])
def test_they_come_into_the_folder_when_the_guest_is_off(host: Host, system: str, active: bool) -> None:
    host.define(system)
    host.active = active
    host.of_libvirt.write_bytes(VARIABLES)
    if os.geteuid() == 0:
        os.chown(host.of_libvirt, 65534, 65533)
    owner = host.of_libvirt.stat().st_uid, host.of_libvirt.stat().st_gid
    host.nvram.write_bytes(b"of an earlier time")
    assert host.leave(check_mode=True) is active and host.nvram.read_bytes() == b"of an earlier time"
    assert host.leave() is active, "a guest that was off is not started where its move fails"
    assert host.nvram.read_bytes() == VARIABLES and not host.of_libvirt.exists()
    found = host.nvram.stat()
    assert (found.st_mode & 0o777, (found.st_uid, found.st_gid)) == (0o600, owner)
    assert os.listdir(host.folder) == ["disk.nvram"] and host.moved() == ["disk.nvram"]
    (element,) = parse(host.defined).iterfind("os/nvram")
    assert (element.text, list(element), element.get("type")) == (str(host.nvram), [], None)
    assert element.get("template") == ("/t.fd" if system == WRITTEN else None)
    assert "s3cret" in host.defined, "it is defined with its passwords"
    before = host.defined
    assert not host.leave() and host.nvram.read_bytes() == VARIABLES and host.defined == before


@pytest.mark.parametrize("end", ["settle", "back"])
def test_a_resize_on_the_same_host_keeps_them(host: Host, end: str) -> None:
    host.define(CHOSEN)
    host.of_libvirt.write_bytes(VARIABLES)
    host.leave()
    resized.prepare(host.instances, "", UUID, {})
    resized.swap_in(host, host.instances, "", UUID)
    assert host.nvram.read_bytes() == VARIABLES and not host.defined
    if end == "settle":
        resized.commit(host, host.instances, "", UUID)
        assert host.nvram.read_bytes() == VARIABLES
        return
    host.nvram.write_bytes(HEAD.ljust(8192, b"\1"))  # what the guest writes after its resize
    resized.roll_back(host, host.instances, "", UUID)
    assert host.nvram.read_bytes() == VARIABLES and parse(host.defined).findtext("os/nvram") == str(host.nvram)


@pytest.mark.parametrize("system", [BIOS, CHOSEN, WRITTEN, CHOSEN.replace("<type>", "<loader stateless='yes'/><type>")])
def test_a_guest_without_variables(host: Host, system: str) -> None:
    """One that boots by BIOS, was never started, or whose firmware keeps none."""
    host.define(system)
    before = host.defined
    if "stateless" in system or system == BIOS:
        host.of_libvirt.write_bytes(VARIABLES)  # of another guest of the same name, which is gone
    assert host.leave()
    assert host.defined == before and host.moved() == [] and os.listdir(host.folder) == []


def test_those_of_a_guest_defined_now_stay_where_they_are(host: Host) -> None:
    host.define(WRITTEN % host.nvram)
    host.nvram.write_bytes(VARIABLES)
    host.of_libvirt.write_bytes(VARIABLES)
    before = host.defined
    assert host.leave() and host.defined == before and host.of_libvirt.exists()


@pytest.mark.parametrize("what", ["another format", "a link", "a folder", "nothing in it"])
@pytest.mark.parametrize("system", [CHOSEN, WRITTEN])
def test_what_cannot_come_is_refused_before_anything_is_touched(host: Host, what: str, system: str) -> None:
    host.define(system)
    before, path = host.defined, host.of_libvirt
    if what == "a link":
        path.with_suffix(".other").write_bytes(VARIABLES)
        path.symlink_to(path.with_suffix(".other"))
    elif what == "a folder":
        path.mkdir()
    else:
        path.write_bytes(b"QFI\xfb".ljust(4096, b"\0") if what == "another format" else b"")
    for check_mode in (True, False):
        with pytest.raises(InvalidDiskInfo, match="web-1_VARS.fd is not the NVRAM of a guest") as caught:
            host.leave(check_mode)
    assert "new UEFI variables" in caught.value.remedy
    assert host.active and host.defined == before and os.listdir(host.folder) == []


def test_a_guest_with_snapshots_is_refused_first(host: Host) -> None:
    host.define(CHOSEN)
    host.of_libvirt.write_bytes(b"x")
    host.snapshots = 1
    with pytest.raises(GuestHasSnapshots):
        host.leave()
    assert host.active


def test_where_libvirt_refuses_the_definition_the_guest_has_them_where_they_were(host: Host) -> None:
    host.define(CHOSEN)
    host.of_libvirt.write_bytes(VARIABLES)
    before, host.refuses = host.defined, True
    with pytest.raises(LibvirtError) as caught:
        host.leave()
    assert "web-login" not in caught.value.message
    assert host.defined == before and host.of_libvirt.read_bytes() == VARIABLES
    host.refuses = False
    host.of_libvirt.write_bytes(VARIABLES + b"later")  # the guest ran again
    assert not host.leave() and host.nvram.read_bytes() == VARIABLES + b"later"


def test_a_full_disk(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_arguments: t.Any, **_more: t.Any) -> t.NoReturn:
        raise DiskFull(host="kvm1", path=str(host.nvram), reason="No space left on device")

    monkeypatch.setattr(nvram, "write_file", full)
    host.define(CHOSEN)
    host.of_libvirt.write_bytes(VARIABLES)
    before = host.defined
    with pytest.raises(DiskFull):
        host.leave()
    assert host.defined == before and host.of_libvirt.exists() and os.listdir(host.folder) == []
