# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The definition of a rescued guest, kept and brought back with a libvirt of our own, by processes that are killed anywhere."""

from __future__ import annotations

import os
import types
import typing as t

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core.disks.rescue import is_rescue
from ansible_collections.bootflow.compute.plugins.module_utils.core.errors import (
    GuestDisksDiffer,
    InvalidInput,
    LibvirtError,
)
from ansible_collections.bootflow.compute.plugins.module_utils.core.guest.domain.element import parse
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.copies.other_disks import refuse_to_restore
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.disks import rescue
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.disks.rescue import RescuedSpec
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.disks.stores.disk_info import write_records
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.libvirt import connection as libvirt_connection
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.libvirt import domains, pci_devices, power, running
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.libvirt.power import PowerSpec

UUID = "2f4c1c0e-6a0f-4d8e-9f0b-0c6f3f3b2a11"
RUNNING, OFF = 1, 5
INACTIVE, SECURE = 2, 1


def xml(*disks: str, password: str = "") -> str:
    sources = "".join("<disk type='file'><source file='%s'/></disk>" % path for path in disks)
    graphics = "<graphics type='vnc'%s/>" % (" passwd='%s'" % password if password else "")
    return "<domain><name>web-1</name><uuid>%s</uuid><devices>%s%s</devices></domain>" % (UUID, sources, graphics)


class Killed(BaseException):
    """A SIGKILL: nothing of ours handles it."""


class Error(Exception):
    def __init__(self, code: int, message: str = "no"):
        super().__init__(message)
        self.code = code

    def get_error_code(self) -> int:
        return self.code

    def get_error_domain(self) -> int:
        return 0

    def get_error_message(self) -> str:
        return str(self)


class Host:
    """One host with one guest: libvirt, and the folder of the instance."""

    def __init__(self, path: t.Any):
        self.path = str(path)
        self.folder = os.path.join(self.path, UUID)
        self.own = xml(self.folder + "/disk", password="s3cret")
        self.of_ledger = xml(self.folder + "/disk")
        self.of_rescue = xml(self.folder + "/disk.rescue", self.folder + "/disk")
        self.defined: str | None = self.own
        self.live: str | None = self.own
        self.refused: set[str] = set()
        self.starts = True
        self.saved_memory = False
        self.left: int | None = None  # changes until the process is killed
        os.makedirs(self.folder)
        self.record()

    def record(self, *more: str) -> None:
        write_records(self.folder, {name: {"format": "qcow2"} for name in ("disk", *more)})

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

    def XMLDesc(self, flags: int) -> str:
        text = self.defined if flags & INACTIVE or self.live is None else self.live
        return str(text) if flags & SECURE else str(text).replace(" passwd='s3cret'", "")

    def name(self) -> str:
        return "web-1"

    def isActive(self) -> bool:
        return self.live is not None

    def state(self) -> list[int]:
        return [RUNNING if self.live else OFF, 0]

    def destroy(self) -> int:
        if self.live is None:
            raise Error(55)
        self.change()
        self.live = None
        return 0

    def hasManagedSaveImage(self, _flags: int) -> int:
        return int(self.saved_memory)

    def managedSaveRemove(self, _flags: int) -> None:
        self.saved_memory = False

    def defineXMLFlags(self, text: str, _flags: int) -> Host:
        if text in self.refused:
            raise Error(1, "unsupported configuration")
        self.change()
        self.defined = text
        return self

    def createWithFlags(self, _flags: int) -> None:
        if not self.starts:
            raise Error(1, "no such disk")
        self.change()
        self.live = self.defined

    # what the modules do

    def spec(self, **how: t.Any) -> RescuedSpec:
        return RescuedSpec(UUID, self.of_ledger, **how)

    def save(self, check_mode: bool = False) -> dict[str, t.Any]:
        return rescue.save(self, self.path, self.spec(), check_mode)

    def begin(self) -> None:
        """As instance_build between the two: its disk, the domain, a start from it."""
        self.change()
        self.record("disk.rescue")
        for name in ("disk.rescue", "disk.config.rescue"):
            with open(os.path.join(self.folder, name), "w", encoding="utf-8") as file:
                file.write(name)
        self.defineXMLFlags(self.of_rescue, 0)
        if self.live:
            self.destroy()
        self.createWithFlags(0)

    def restore(self, check_mode: bool = False, **how: t.Any) -> dict[str, t.Any]:
        power_spec = PowerSpec(UUID, "running", vif_plugging_timeout=0.0)
        return rescue.restore(self, self.path, self.spec(**how), power_spec, check_mode, refuse_to_restore)

    def files(self) -> set[str]:
        return {name for name in os.listdir(self.folder) if "rescue" in name}


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch, tmp_path: t.Any) -> Host:
    numbers = ("NO_CONNECT", "INVALID_CONN", "RPC", "SYSTEM_ERROR", "NO_NETWORK", "NO_SECRET", "INTERNAL_ERROR")
    fake = types.SimpleNamespace(
        libvirtError=Error,
        VIR_ERR_NO_DOMAIN=42,
        VIR_ERR_OPERATION_INVALID=55,
        VIR_DOMAIN_XML_INACTIVE=INACTIVE,
        VIR_DOMAIN_XML_SECURE=SECURE,
        VIR_DOMAIN_DEFINE_VALIDATE=1,
        VIR_DOMAIN_START_PAUSED=1,
        VIR_DOMAIN_PAUSED_UNKNOWN=0,
        VIR_DOMAIN_PAUSED_USER=1,
        VIR_FROM_REMOTE=200,
        VIR_FROM_RPC=201,
        **{"VIR_ERR_" + name: 100 + number for number, name in enumerate(numbers)},
    )
    for module in (rescue, power, domains, running, pci_devices, libvirt_connection):
        monkeypatch.setattr(module, "libvirt", fake)
    found = Host(tmp_path)

    def counted(function: t.Callable[..., t.Any]) -> t.Callable[..., t.Any]:
        def call(*args: t.Any, **how: t.Any) -> t.Any:
            found.change()
            return function(*args, **how)

        return call

    for name in ("write_file", "remove_files", "write_records"):
        monkeypatch.setattr(rescue, name, counted(getattr(rescue, name)))
    return found


def test_there_and_back_to_the_letter(host: Host) -> None:
    assert host.save() == {"changed": True, "ran": True, "power_state": 1}
    kept = os.path.join(host.folder, "unrescue.xml")
    assert open(kept, encoding="utf-8").read() == host.own and os.stat(kept).st_mode & 0o777 == 0o600
    assert host.live == host.own, "the guest is left alone"
    host.begin()
    assert host.live == host.of_rescue
    result = host.restore()
    assert (result["power_state"], result["forced"]) == (1, False)
    assert host.defined == host.live == host.own and host.files() == set()


def test_check_mode_writes_nothing(host: Host) -> None:
    assert host.save(check_mode=True)["ran"] and host.files() == set()
    host.save()
    host.begin()
    assert host.restore(check_mode=True)["changed"]
    assert host.live == host.of_rescue and host.files() == {"disk.rescue", "disk.config.rescue", "unrescue.xml"}


def test_a_second_rescue_after_a_crash_keeps_the_first_definition(host: Host) -> None:
    host.save()
    host.begin()
    assert host.save() == {"changed": True, "ran": False, "power_state": 1}
    assert host.live is None and host.files() == {"unrescue.xml"}
    host.begin()
    host.restore()
    assert host.live == host.own


def test_a_definition_that_was_left_is_not_the_one_of_the_next_rescue(host: Host) -> None:
    host.save()
    host.own = host.defined = host.live = xml(host.folder + "/disk", host.folder + "/disk.new")
    host.save()
    host.begin()
    host.restore()
    assert host.live == host.own


def test_an_overlay_that_a_rescued_guest_got_is_not_lost(host: Host) -> None:
    host.save()
    host.begin()
    overlaid = host.of_rescue.replace(host.folder + "/disk'", host.folder + "/disk.backup'")
    host.defined = host.live = overlaid
    for check_mode in (True, False):
        with pytest.raises(GuestDisksDiffer, match="disk.backup"):
            host.restore(check_mode)
    assert host.live == host.defined == overlaid and "unrescue.xml" in host.files()
    host.defined = host.live = host.of_rescue  # merged
    host.restore()
    assert host.live == host.own


@pytest.mark.parametrize("runs", [True, False])
@pytest.mark.parametrize("changes", range(14))
def test_a_rescue_killed_anywhere(host: Host, changes: int, runs: bool) -> None:
    """The same again rescues, and what follows brings the guest's own definition back."""
    host.live = host.own if runs else None
    host.left = changes
    try:
        host.save()
        host.begin()
    except Killed:
        pass
    host.left = None
    host.save()
    host.begin()
    assert host.live == host.of_rescue
    host.restore()
    assert host.defined == host.live == host.own and host.files() == set()


@pytest.mark.parametrize("changes", range(12))
def test_an_end_of_a_rescue_killed_anywhere(host: Host, changes: int) -> None:
    """The same again ends it. What the host reports until then is the rescue, or the guest's own definition, whole."""
    host.save()
    host.begin()
    host.left = changes
    try:
        host.restore()
    except Killed:
        pass
    host.left = None
    assert host.defined in (host.own, host.of_rescue)
    assert host.live in (None, host.defined)
    host.restore()
    assert host.defined == host.live == host.own and host.files() == set()


def test_a_rescue_that_failed_leaves_a_running_guest_alone(host: Host) -> None:
    host.save()
    with open(os.path.join(host.folder, "disk.rescue"), "w", encoding="utf-8"):
        pass
    host.starts = False  # nothing has to start
    assert host.restore()["power_state"] == 1
    assert host.live == host.own and host.files() == set()


def test_a_rescue_whose_guest_was_not_destroyed(host: Host) -> None:
    """Killed between definition and destruction: the guest that runs is its own, and goes on."""
    host.save()
    host.defined = host.of_rescue
    host.restore()
    assert host.defined == host.live == host.own


def test_a_guest_that_was_off_is_not_started(host: Host) -> None:
    host.live = None
    assert not host.save()["ran"]
    host.begin()
    assert host.restore(start=False)["power_state"] == 4
    assert (host.live, host.defined) == (None, host.own)


def test_a_guest_that_does_not_start_has_its_definition_again(host: Host) -> None:
    host.save()
    host.begin()
    host.starts = False
    result = host.restore()
    assert (result["power_state"], result["error"]["code"]) == (4, "LibvirtError")
    assert host.defined == host.own and host.files() == set()


@pytest.mark.parametrize("lost", ["file", "refused", "domain"])
def test_a_definition_that_is_lost_or_refused(host: Host, lost: str) -> None:
    host.save()
    host.begin()
    if lost == "file":
        os.unlink(os.path.join(host.folder, "unrescue.xml"))
    elif lost == "refused":
        host.refused = {host.own}
    else:
        host.defined = host.live = None
        os.unlink(os.path.join(host.folder, "unrescue.xml"))
    assert host.restore()["forced"]
    assert host.live == host.of_ledger and host.files() == set()


def test_a_host_without_the_domain(host: Host) -> None:
    host.defined = host.live = None
    assert host.save() == {"changed": True, "ran": False, "power_state": 0}
    host.begin()
    host.restore()
    assert host.live == host.of_ledger


def test_libvirt_refuses_both(host: Host) -> None:
    host.save()
    host.begin()
    host.refused = {host.own, host.of_ledger}
    with pytest.raises(LibvirtError):
        host.restore()
    assert host.defined == host.of_rescue and "unrescue.xml" in host.files(), "the same again begins again"


def test_saved_memory_of_the_rescue_is_not_resumed_by_the_guest(host: Host) -> None:
    host.save()
    host.begin()
    host.live, host.saved_memory = None, True
    host.restore()
    assert not host.saved_memory and host.live == host.own


def test_only_the_instances_own_disk_is_that_of_a_rescue(host: Host) -> None:
    other = UUID.replace("2f", "3f", 1)
    assert is_rescue(parse(host.of_rescue), UUID) and not is_rescue(parse(host.own), UUID)
    assert not is_rescue(parse(host.of_rescue), other)
    with pytest.raises(InvalidInput):
        rescue.save(host, host.path, RescuedSpec("../x", ""))
