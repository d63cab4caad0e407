# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which disks of a domain are not the instance's, and what becomes of them where the domain is defined anew."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core.errors import GuestDisksDiffer
from ansible_collections.bootflow.compute.plugins.module_utils.core.guest.domain.element import parse
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.copies.other_disks import (
    other_disks,
    with_other_disks,
)
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.disks.file_disks import write_records

UUID = "2f4c1c0e-6a0f-4d8e-9f0b-0c6f3f3b2a11"
VOLUME = "11111111-2222-4333-8444-555555555555"


def disk(target: str, path: str, kind: str = "file", device: str = "disk", form: str = "qcow2", more: str = "") -> str:
    attribute = {"file": "file", "block": "dev", "network": "name"}[kind]
    return "<disk type='%s' device='%s'><driver name='qemu' type='%s'/><source %s='%s'/><target dev='%s'/>%s</disk>" % (
        kind,
        device,
        form,
        attribute,
        path,
        target,
        more,
    )


def domain(*disks: str) -> str:
    return "<domain><uuid>%s</uuid><devices>%s</devices></domain>" % (UUID, "".join(disks))


@pytest.fixture
def folder(tmp_path) -> str:
    path = tmp_path / UUID
    path.mkdir()
    write_records(str(path), {"disk": {"format": "qcow2"}, "disk.swap": {"format": "raw"}})
    return str(path)


@pytest.mark.parametrize(
    ("more", "found"),
    [
        ((), {}),
        ((disk("vdb", "{folder}/disk.swap"),), {}),
        ((disk("hda", "{folder}/disk.config", device="cdrom"), disk("vdz", "{folder}/disk.config", form="raw")), {}),
        ((disk("hda", "/srv/debian.iso", device="cdrom"),), {}),
        ((disk("fda", "/srv/drivers.img", device="floppy"),), {}),
        ((disk("vdb", "/dev/disk/by-path/x", "block", more="<serial>%s</serial>" % VOLUME),), {}),
        ((disk("sdb", "iqn.x/1", "network", device="lun", more="<alias name='ua-%s'/>" % VOLUME),), {}),
        ((disk("vdb", "/srv/data.qcow2"),), {"vdb": "/srv/data.qcow2"}),
        ((disk("vdb", "/srv/data.qcow2", more="<readonly/>"),), {}),
        ((disk("vdb", "/dev/vg/data", "block", form="raw"),), {"vdb": "/dev/vg/data"}),
        ((disk("vdb", "pool/image", "network", form="raw"),), {"vdb": "pool/image"}),
    ],
)
def test_disks_that_are_not_the_instances(folder: str, more: t.Sequence[str], found: dict[str, str]) -> None:
    xml = domain(disk("vda", folder + "/disk"), *(each.format(folder=folder) for each in more))
    assert other_disks([parse(xml)], folder) == found


@pytest.mark.parametrize("overlay", ["{folder}/disk.backup", "/srv/backup/web.overlay"])
@pytest.mark.parametrize("where", ["live", "inactive", "both"])
def test_a_guest_goes_on_with_the_overlay_that_it_wrote_to(folder: str, overlay: str, where: str) -> None:
    overlay = overlay.format(folder=folder)
    own, other = (domain(disk("vda", path), disk("vdb", folder + "/disk.swap")) for path in (folder + "/disk", overlay))
    running = domain(disk("vda", overlay, more="<alias name='virtio-disk0'/>")).replace(
        "<source ", "<source index='3' "
    )
    before = {"live": [running, own], "inactive": [other], "both": [running, other]}[where]
    text = with_other_disks(own, [parse(each) for each in before], UUID, "web", folder)
    assert [s.attrib for s in parse(text).iterfind("devices/disk/source")] == [
        {"file": overlay},
        {"file": folder + "/disk.swap"},
    ]
    assert other_disks([parse(own)], folder) == {}
    assert with_other_disks(own, [parse(own)], UUID, "web", folder) == own


def test_a_copy_on_a_device_is_taken_with_its_format(folder: str) -> None:
    own = domain(disk("vda", folder + "/disk"))
    there = domain(disk("vda", "/dev/vg/copy", "block", form="raw"))
    (found,) = parse(with_other_disks(own, [parse(there)], UUID, "web", folder)).iterfind("devices/disk")
    assert (found.get("type"), found.find("driver").get("type"), found.find("source").get("dev")) == (
        "block",
        "raw",
        "/dev/vg/copy",
    )


def test_a_disk_attached_by_hand_is_left_out(folder: str) -> None:
    own = domain(disk("vda", folder + "/disk"))
    there = domain(disk("vda", folder + "/disk"), disk("vdc", "/srv/data.qcow2"))
    assert "/srv/data" not in with_other_disks(own, [parse(there)], UUID, "web", folder)


def test_an_overlay_at_another_place_is_refused(folder: str) -> None:
    own, there = domain(disk("vda", folder + "/disk")), domain(disk("sda", "/srv/web.overlay"))
    with pytest.raises(GuestDisksDiffer, match="Disk sda .* is /srv/web.overlay"):
        with_other_disks(own, [parse(there)], UUID, "web", folder)
