# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Root disks that are exchanged for disks of images: logical volumes by a model of LVM, with processes that are killed at every change, and files in a
file system of the instance. Files in its folder: hosts/snapshots/test_revert.py. Real LVM is not here.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import typing as t
from pathlib import Path

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core.errors import (
    FlavorDiskSmallerThanImage,
    InvalidDiskInfo,
    VolumeIsBusy,
)
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.disks import local_disks
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.disks.stores import mounted, volumes
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.disks.stores.disk_info import (
    records_of,
    write_records,
)
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.disks.stores.disk_spec import DiskSpec
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.disks.stores.registry import store_of_record
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.disks.stores.store import Store
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.images.images import BaseImage

from .test_resized_volumes import EXTENT, GROUP, LEDGER, MIB, UUID, Host, host

__all__ = ["host"]

SPEC = DiskSpec("disk", "image", 0, image_id="snap")


@pytest.fixture
def bases(host: Host, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, BaseImage]:
    def write(source: str, path: str) -> None:
        host.change()
        with open(source, "rb") as old, open(path, "r+b") as new:
            shutil.copyfileobj(old, new)

    monkeypatch.setattr(volumes, "write_image", write)
    path = tmp_path / "snap.raw"
    path.write_bytes(b"then".ljust(MIB, b"\0"))
    return {"snap": BaseImage(str(path), MIB, False)}


def make(host: Host, bases: t.Mapping[str, BaseImage]) -> None:
    local_disks.make_replacement(host.path, UUID, SPEC, bases, LEDGER)


def store(host: Host) -> Store:
    return store_of_record(records_of(host.folder)["disk"], GROUP)


def extra(host: Host) -> set[str]:
    return (set(os.listdir(host.folder)) - {"disk.info"}) | (host.names() - {"disk", "disk.eph0"})


def test_a_logical_volume_is_exchanged_and_cleared(host: Host, bases: dict[str, BaseImage]) -> None:
    make(host, bases)
    assert host.content("disk") == b"before" and extra(host) == {"revert.new", "disk.revert.new"}
    store(host).take_replacement(host.folder, "disk")
    assert host.content("disk") == b"then" and host.content("disk.eph0") == b"before"
    assert store(host).drop_replacement(host.folder, "disk") and extra(host) == set()
    assert not store(host).drop_replacement(host.folder, "disk")
    record = records_of(host.folder)["disk"]
    assert (record["image_id"], record["format"], record["volume_group"]) == ("snap", "lvm", "vg")
    assert record["virtual_size"] == EXTENT == host.model.lvs[host.lv("disk")]["size"]
    assert not host.model.last[host.lv("disk.revert.old")].strip(b"\0"), "cleared before another guest gets it"


def test_it_is_killed_at_every_change(host: Host, bases: dict[str, BaseImage]) -> None:
    """What follows gives the instance the one disk or the other, and the same again that of the image."""

    def whole() -> None:
        make(host, bases)
        store(host).take_replacement(host.folder, "disk")
        store(host).drop_replacement(host.folder, "disk")

    seen = set()
    for changes in range(60):
        done = host.attempt(whole, changes)
        if changes % 2:
            store(host).drop_replacement(host.folder, "disk")
            assert extra(host) == set() and host.content("disk") in (b"before", b"then")
            seen.add(host.content("disk"))
        whole()
        assert host.content("disk") == b"then" and extra(host) == set()
        host.write(b"before")
        if done:
            break
    assert done and changes >= 8 and seen == {b"before", b"then"}


def test_a_volume_that_is_open_keeps_its_name(host: Host, bases: dict[str, BaseImage]) -> None:
    make(host, bases)
    host.model.lvs[host.lv("disk")]["attr"] = "-wi-ao----"
    with pytest.raises(VolumeIsBusy):
        store(host).take_replacement(host.folder, "disk")
    assert host.content("disk") == b"before" and host.names() == {"disk", "disk.eph0", "disk.revert.new"}


def test_without_a_replacement_nothing_is_taken(host: Host, bases: dict[str, BaseImage]) -> None:
    with pytest.raises(InvalidDiskInfo, match="nothing was made"):
        store(host).take_replacement(host.folder, "disk")
    bases["snap"] = BaseImage(bases["snap"].path, 2 * EXTENT, False)
    with pytest.raises(FlavorDiskSmallerThanImage):
        make(host, bases)
    assert host.content("disk") == b"before" and extra(host) == set()


def test_files_in_a_file_system_of_the_instance(
    host: Host, bases: dict[str, BaseImage], monkeypatch: pytest.MonkeyPatch
) -> None:
    place = Path(host.folder) / "disk"
    place.mkdir()
    monkeypatch.setattr(mounted, "mount_again", lambda _vg, _folder: str(place))
    holder = {"kind": "disk", "format": "qcow2_on_lvm", "virtual_size": 64 * MIB, "volume_group": "vg"}
    write_records(host.folder, {"disk": holder})
    own = {"kind": "image", "format": "qcow2", "virtual_size": 4 * MIB, "image_id": "i", "base": ""}
    write_records(str(place), {"disk": own, "disk.swap": {**own, "kind": "swap", "image_id": ""}})
    subprocess.run(["qemu-img", "create", "-q", "-f", "qcow2", str(place / "disk"), "4M"], check=True)
    (place / "disk.swap").write_text("swap")
    before = (place / "disk").read_bytes()
    make(host, bases)
    assert (place / "disk").read_bytes() == before
    store(host).take_replacement(host.folder, "disk")
    assert store(host).drop_replacement(host.folder, "disk")
    raw = Path(host.path).parent / "raw"
    subprocess.run(["qemu-img", "convert", "-f", "qcow2", "-O", "raw", str(place / "disk"), str(raw)], check=True)
    assert raw.read_bytes() == b"then".ljust(4 * MIB, b"\0") and (place / "disk.swap").read_text() == "swap"
    records = records_of(str(place))
    assert records["disk"]["image_id"] == "snap" and records["disk.swap"]["kind"] == "swap"
    assert records_of(host.folder) == {"disk": holder}
