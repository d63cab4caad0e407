# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A root disk that goes back to an image, on real disks, and what is refused before anything is touched."""

from __future__ import annotations

import base64
import contextlib
import os
import typing as t
import zlib
from pathlib import Path

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.core.guest import nvram
from ansible_collections.bootflow.compute.plugins.module_utils.core.guest.domain.element import parse
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.disks import local_disks
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.disks.stores import files
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.disks.stores.disk_info import records_of
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.disks.stores.disk_spec import DiskSpec
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.images.backing import read_backing
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.images.images import BaseImage
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.snapshots import revert

from .conftest import MIB, OFF, RUNS, UUID, Guest, World

SPEC = revert.RevertSpec(UUID)
LAYER = "<backingStore type='file'><format type='raw'/><source file='%s'/><backingStore/></backingStore>"
NEW = b"what the snapshot has" * 1000


class Killed(BaseException):
    """The process ends here."""


@pytest.fixture(autouse=True)
def _no_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(revert, "refuse_gone", lambda _uuid: None)
    monkeypatch.setattr(Guest, "snapshotNum", lambda _self, _flags: 0, raising=False)
    monkeypatch.setattr(Guest, "listAllCheckpoints", lambda _self, _flags: [], raising=False)


class Checkpoint:
    """A checkpoint of another program."""

    def getName(self) -> str:  # noqa: N802
        return "nightly"


class Defined(Guest):
    """A guest whose definition names the backing chain of its disk, and can be changed."""

    def __init__(self, guest: Guest, world: World):
        super().__init__(guest.disk, guest.disk_format)
        driver = "<driver name='qemu' type='%s'/>" % guest.disk_format
        chain = LAYER % world.base if guest.disk_format == "qcow2" else ""
        self.xml = Guest.XMLDesc(self, 0).replace("<source", driver + "<source").replace("<target", chain + "<target")

    def XMLDesc(self, _flags: int) -> str:  # noqa: N802
        return self.xml

    def defineXMLFlags(self, xml: str, _flags: int) -> Defined:  # noqa: N802
        self._call("define")
        self.xml = xml
        return self

    def base(self) -> str:
        """The base image that QEMU would open: that of the definition, or of the header where the definition has none."""
        (disk,) = parse(self.xml).iterfind("devices/disk")
        named = disk.find("backingStore/source")
        return str(named.get("file")) if named is not None else read_backing(str(self.disk)).name


def image(world: World, size: int = 2 * MIB) -> dict[str, BaseImage]:
    path = world.base.parent / "snap-fedcba9876543210.raw"
    path.write_bytes(NEW + bytes(size - len(NEW)))
    return {"snap": BaseImage(str(path), size, False)}


def make(world: World, size: int = 2 * MIB) -> dict[str, t.Any]:
    spec = DiskSpec("disk", "image", 0, image_id="snap")
    return local_disks.make_replacement(str(world.path), UUID, spec, image(world, size))


def take(world: World, guest: Guest) -> dict[str, t.Any]:
    return revert.take(guest, str(world.path), SPEC)


def content(world: World, disk_format: str) -> bytes:
    return world.read(world.folder / "disk", disk_format)


@pytest.mark.parametrize("disk_format", ["raw", "qcow2"])
def test_the_disk_has_the_bytes_of_the_image_and_its_own_size(world: World, disk_format: str) -> None:
    guest = world.guest(disk_format, OFF)
    assert make(world)["changed"] and content(world, disk_format) == world.content, "nothing happens to the disk yet"
    done = take(world, guest)
    assert done["changed"] and done["reverted"] and not done.get("error")
    assert content(world, disk_format) == NEW + bytes(4 * MIB - len(NEW))
    record = records_of(str(world.folder))["disk"]
    assert (record["image_id"], record["format"], record["virtual_size"]) == ("snap", disk_format, 4 * MIB)
    assert not (world.folder / files.REPLACEMENT).exists() and (world.folder / "disk").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("disk_format", ["raw", "qcow2"])
@pytest.mark.parametrize("at", ["write_records", "rename", "drop"])
def test_a_killed_run_leaves_the_one_or_the_other(
    world: World, monkeypatch: pytest.MonkeyPatch, disk_format: str, at: str
) -> None:
    guest = world.guest(disk_format, OFF)
    make(world)

    def kill(*_arguments: t.Any) -> None:
        raise Killed

    with monkeypatch.context() as patched, contextlib.suppress(Killed):
        if at == "rename":
            rename = os.rename
            name = str(world.folder / "disk")
            patched.setattr(os, "rename", lambda a, b: kill() if str(b) == name else rename(a, b))
        else:
            patched.setattr(files, {"write_records": "write_records", "drop": "remove_replacement"}[at], kill)
        take(world, guest)
    whole = NEW + bytes(4 * MIB - len(NEW)) if at == "drop" else bytes(world.content)
    assert content(world, disk_format) == whole
    make(world)
    take(world, guest)
    assert content(world, disk_format) == NEW + bytes(4 * MIB - len(NEW))
    assert not (world.folder / files.REPLACEMENT).exists()


def test_the_definition_names_the_base_of_the_new_disk(world: World) -> None:
    guest = Defined(world.guest("qcow2", OFF), world)
    assert guest.base() == str(world.base)
    make(world)
    assert take(world, guest)["reverted"]
    new = read_backing(str(world.folder / "disk")).name
    assert new != str(world.base) and guest.base() == new, "QEMU opens the files that the definition names"
    assert new in guest.xml, "named, so that nobody has to open the disk to find the chain"


@pytest.mark.parametrize("at", ["before", "after"])
def test_a_guest_whose_revert_is_killed_starts_on_the_base_of_its_disk(
    world: World, monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    guest = Defined(world.guest("qcow2", OFF), world)
    make(world)
    rename, name = os.rename, str(world.folder / "disk")

    def kill(source: str, target: str) -> None:
        if at == "after" or str(target) != name:
            rename(source, target)
        if str(target) == name:
            raise Killed

    with monkeypatch.context() as patched, contextlib.suppress(Killed):
        patched.setattr(os, "rename", kill)
        take(world, guest)
    header = read_backing(name).name
    assert (header == str(world.base)) == (at == "before") and guest.base() == header


def test_a_disk_that_is_not_exchanged_keeps_its_base_in_the_definition(world: World) -> None:
    guest = Defined(world.guest("qcow2", OFF), world)
    before = [element.get("file") for element in parse(guest.xml).iterfind("devices/disk//source")]
    with pytest.raises(errors.InvalidDiskInfo, match="nothing was made"):
        take(world, guest)
    assert [element.get("file") for element in parse(guest.xml).iterfind("devices/disk//source")] == before


def test_a_raw_disk_needs_no_new_definition(world: World) -> None:
    guest = Defined(world.guest("raw", OFF), world)
    make(world)
    assert take(world, guest)["reverted"] and guest.calls == []


def test_what_was_made_is_removed(world: World) -> None:
    guest = world.guest("qcow2", OFF)
    make(world)
    assert revert.drop(guest, str(world.path), SPEC)["changed"] and content(world, "qcow2") == world.content
    assert not revert.drop(guest, str(world.path), SPEC)["changed"]
    with pytest.raises(errors.InvalidDiskInfo, match="nothing was made"):
        take(world, guest)
    assert content(world, "qcow2") == world.content


def test_a_guest_that_runs_keeps_its_disk(world: World) -> None:
    guest = world.guest("qcow2", RUNS)
    assert revert.check(guest, str(world.path), SPEC)["power_state"] == 1
    make(world)
    with pytest.raises(errors.Conflict, match="runs with the disk"):
        take(world, guest)
    assert content(world, "qcow2") == world.content


def test_an_image_that_is_larger_than_the_disk(world: World) -> None:
    world.guest("qcow2", OFF)
    with pytest.raises(errors.FlavorDiskSmallerThanImage):
        make(world, 8 * MIB)
    assert content(world, "qcow2") == world.content and not (world.folder / files.REPLACEMENT).exists()


#: what the definition has in addition, or another program made -> the error
REFUSED: dict[str, tuple[str, type[errors.BootflowError], str]] = {
    "tpm": ("<tpm model='tpm-crb'/>", errors.NotSupportedYet, "an emulated TPM"),
    "nvram": ("", errors.NotSupportedYet, "UEFI variables, which the image lacks"),
    "overlay": ("", errors.GuestDisksDiffer, "disk.other"),
    "rescue": ("", errors.Conflict, "that of a rescue"),
    "snapshots": ("", errors.GuestHasSnapshots, "snapshots"),
    "checkpoints": ("", errors.GuestHasSnapshots, "checkpoints"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_an_image_does_not_have_is_refused(world: World, monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    guest = world.guest("qcow2", RUNS)
    more, error, words = REFUSED[what]
    if what == "nvram":
        (world.folder / "disk.nvram").write_bytes(b"x")
    elif what in ("overlay", "rescue"):
        guest.disk = Path(str(world.folder / ("disk.other" if what == "overlay" else "disk.rescue")))
    elif what == "snapshots":
        monkeypatch.setattr(Guest, "snapshotNum", lambda _self, _flags: 1)
    elif what == "checkpoints":
        monkeypatch.setattr(Guest, "listAllCheckpoints", lambda _self, _flags: [Checkpoint()])
    xml = guest.XMLDesc(0).replace("</devices>", more + "</devices>")
    monkeypatch.setattr(guest, "XMLDesc", lambda _flags: xml)
    with pytest.raises(error, match=words):
        revert.check(guest, str(world.path), SPEC)
    assert guest.calls == []


FIRMWARE = (bytes(16) + bytes(range(1, 25)) + b"_FVH").ljust(135168, b"\xff")


def with_firmware(world: World, monkeypatch: pytest.MonkeyPatch, path: str = "") -> Guest:
    guest = world.guest("raw", OFF)
    own = world.folder / "disk.nvram"
    own.write_bytes(FIRMWARE[:-4] + b"new!")
    own.chmod(0o600)
    xml = guest.XMLDesc(0).replace("<devices>", "<os><nvram>%s</nvram></os><devices>" % (path or own), 1)
    monkeypatch.setattr(guest, "XMLDesc", lambda _flags: xml)
    return guest


def test_variables_of_the_image_follow_the_disk(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    guest, own = with_firmware(world, monkeypatch), world.folder / "disk.nvram"
    with own.open() as file:
        os.fchown(file.fileno(), 12, 34)
    make(world)
    spec = revert.RevertSpec(UUID, nvram=nvram.pack(FIRMWARE))
    assert revert.check(guest, str(world.path), spec)["changed"] and own.read_bytes() != FIRMWARE
    done = revert.take(guest, str(world.path), spec)
    assert done["reverted"] and not done.get("error"), done
    assert own.read_bytes() == FIRMWARE
    assert (own.stat().st_uid, own.stat().st_gid, own.stat().st_mode & 0o777) == (12, 34, 0o600)


@pytest.mark.parametrize(
    "packed, words",
    [
        ("", "which the image lacks"),
        ("bm90aGluZw==", "damaged"),
        (nvram.pack(FIRMWARE)[:-8], "damaged"),
        (base64.b64encode(zlib.compress(b"QFI" + FIRMWARE)).decode(), "damaged"),
        (nvram.pack(FIRMWARE + b"\xff"), "135169 bytes of UEFI variables, and the firmware of the guest 135168"),
    ],
)
def test_variables_that_are_not_the_guests_are_refused(
    world: World, monkeypatch: pytest.MonkeyPatch, packed: str, words: str
) -> None:
    guest = with_firmware(world, monkeypatch)
    make(world)
    before = content(world, "raw"), (world.folder / "disk.nvram").read_bytes()
    with pytest.raises(errors.BootflowError, match=words):
        revert.take(guest, str(world.path), revert.RevertSpec(UUID, nvram=packed))
    assert (content(world, "raw"), (world.folder / "disk.nvram").read_bytes()) == before


def test_variables_in_another_place_are_refused(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    guest = with_firmware(world, monkeypatch, "/var/lib/libvirt/qemu/nvram/web_VARS.fd")
    with pytest.raises(errors.NotSupportedYet, match="web_VARS.fd"):
        revert.check(guest, str(world.path), revert.RevertSpec(UUID, nvram=nvram.pack(FIRMWARE)))
