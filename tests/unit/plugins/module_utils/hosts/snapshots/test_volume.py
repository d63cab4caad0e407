# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Images of volumes: the bytes of the device in each format, and nothing half that is left of a failure. The device is a file, LVM's report a model."""

from __future__ import annotations

import hashlib
import os
import subprocess
import typing as t
from dataclasses import replace
from pathlib import Path

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.lvm import lvm
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.lvm.lvm import LogicalVolume, VolumeGroup
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.lvm.lvm_tags import (
    DELETING,
    INCOMPLETE,
    VOLUME,
    lv_name,
    owner_tags,
)
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.snapshots import files, volume

from .conftest import ID, MIB

VOLUME_ID = "2f4c1c0e-6a0f-4d8e-9f0b-0c6f3f3b2a11"
NAME = lv_name(VOLUME, VOLUME_ID)
LEDGER = "00000000-0000-4000-8000-000000000001"


class Host:
    """A volume of 4 MiB: data at the beginning and at the end."""

    def __init__(self, folder: Path) -> None:
        self.device, self.store, self.own = folder / "device", folder / "store", folder / "conversion" / "_snapshots"
        self.store.mkdir()
        self.content = b"begin" + bytes(MIB - 5) + bytes(2 * MIB) + os.urandom(MIB)
        self.device.write_bytes(self.content)
        tags = owner_tags(VOLUME, VOLUME_ID, "p", ledger_id=LEDGER)
        self.lv: LogicalVolume | None = LogicalVolume(NAME, "u", 4 * MIB, "-wi-a-----", frozenset(tags))
        self.activated: list[str] = []

    def group(self, name: str, ledger_id: str = "") -> VolumeGroup:
        lvs = {} if self.lv is None else {NAME: self.lv}
        return VolumeGroup(name, "u", 9, 9, 4 * MIB, lvs=lvs, ledger_id=ledger_id)

    def tagged(self, *tags: str) -> None:
        assert self.lv is not None
        self.lv = replace(self.lv, tags=frozenset({*self.lv.tags, *tags}))

    def take(self, disk_format: str = "raw", store: bool = True, **how: t.Any) -> dict[str, t.Any]:
        target = files.Target(str(self.own), str(self.store) if store else "", 0o640, how.pop("owner", 0))
        return volume.take(volume.VolumeSpec(VOLUME_ID, ID, "vg", disk_format), target, LEDGER, **how)

    def left(self) -> list[str]:
        return sorted(p.name for f in (self.store, self.own) if f.is_dir() for p in f.iterdir())


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    made = Host(tmp_path)
    monkeypatch.setattr(lvm, "LOCK_ROOT", str(tmp_path / "locks"))
    monkeypatch.setattr(lvm, "read_group", made.group)
    monkeypatch.setattr(lvm, "set_active", lambda _vg, names, _active: made.activated.extend(names))
    monkeypatch.setattr(VolumeGroup, "path", lambda _group, _name: str(made.device))
    return made


@pytest.mark.parametrize("store", [True, False])
@pytest.mark.parametrize("disk_format", ["raw", "qcow2"])
def test_the_image_has_the_bytes_of_the_volume(host: Host, disk_format: str, store: bool) -> None:
    done = host.take(disk_format, store)
    path = (host.store if store else host.own) / ID
    out = host.store.parent / "out"
    subprocess.run(["qemu-img", "convert", "-f", disk_format, "-O", "raw", str(path), str(out)], check=True)
    assert out.read_bytes() == host.content and host.left() == [ID]
    assert done["path"] == str(path) and done["disk_format"] == disk_format and done["changed"]
    assert (done["size"], done["checksum"]) == (path.stat().st_size, hashlib.sha256(path.read_bytes()).hexdigest())
    assert path.stat().st_mode & 0o777 == (0o640 if store else 0o600) and host.activated == []
    assert path.stat().st_blocks * 512 < 3 * MIB, "zeros take no room"


def test_a_compressed_image_is_smaller(host: Host) -> None:
    host.device.write_bytes(b"\x01\x02compress\x03\x04" * MIB)
    plain = host.take("qcow2")["size"]
    assert host.take("qcow2", compress=True)["size"] < plain // 2
    assert host.take("raw", compress=True)["size"] == 12 * MIB, "a raw file cannot be compressed"


def test_an_inactive_volume_is_activated(host: Host) -> None:
    assert host.lv is not None
    host.lv = replace(host.lv, attr="-wi-------")
    host.take()
    assert host.activated == [NAME]


def test_check_mode_writes_nothing(host: Host) -> None:
    done = host.take("qcow2", store=False, check_mode=True)
    assert done["changed"] and "size" not in done and host.left() == [] and not host.own.exists()
    host.lv = None
    with pytest.raises(errors.VolumeNotFound):
        host.take(check_mode=True)


def test_a_volume_without_its_data_is_refused(host: Host) -> None:
    made = host.lv
    assert made is not None
    host.tagged(INCOMPLETE)
    with pytest.raises(errors.VolumeNotFound):
        host.take()
    host.lv = made
    host.tagged(DELETING)
    with pytest.raises(errors.VolumeIsBusy):
        host.take()
    host.lv = replace(made, tags=frozenset(owner_tags(VOLUME, VOLUME_ID, "p", ledger_id=LEDGER[:-1] + "2")))
    with pytest.raises(errors.Conflict):
        host.take()
    host.lv = replace(made, attr="Vwi-a---F-")
    with pytest.raises(errors.InvalidSnapshot):
        host.take()
    assert host.left() == []


def test_room_is_looked_for_before(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    assert host.lv is not None
    monkeypatch.setattr(volume, "convert", lambda *_arguments: pytest.fail("nothing is written"))
    host.lv = replace(host.lv, size=1 << 60)
    for check_mode in (True, False):
        with pytest.raises(errors.DiskFull, match="the image needs"):
            host.take(check_mode=check_mode)
    thin = replace(host.lv, attr="Vwi-a-tz--", data_percent=25.0, size=400 * MIB)
    assert volume.room_of(thin) < 102 * MIB < 401 * MIB < volume.room_of(replace(thin, attr="-wi-a-----"))


def test_a_failure_leaves_nothing(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    host.device.write_bytes(b"QFI\xfb\x00\x00\x00\x03" + bytes(MIB))
    with pytest.raises(errors.ImageUnacceptable):
        host.take()
    assert host.left() == []
    host.device.unlink()
    with pytest.raises(errors.CommandFailed):
        host.take("qcow2")
    monkeypatch.setattr(volume, "run_is_gone", lambda: True)
    with pytest.raises(errors.RemoteError, match="is left as it is"):
        host.take()
    assert host.left() == []


def test_the_user_that_fetches_the_file_reaches_it(host: Host) -> None:
    host.own.parent.mkdir(0o700)
    host.take(store=False)
    assert host.own.parent.stat().st_mode & 0o777 == 0o700
    host.take(store=False, owner=os.getuid() or 1)
    assert host.own.parent.stat().st_mode & 0o777 == 0o711 and host.own.stat().st_mode & 0o777 == 0o711
    assert (host.own / ID).stat().st_mode & 0o777 == 0o600
