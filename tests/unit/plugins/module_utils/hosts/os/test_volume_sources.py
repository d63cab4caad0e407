# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which disks of guests are the volumes that they stand for: names of devices in folders of our own, with libvirt's own XML."""

from __future__ import annotations

import typing as t
from pathlib import Path

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core.guest.domain.element import parse
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.os.volume_sources import (
    VolumeSources,
    device_number,
    path_of,
    sources_in,
)

VOLUME = "11111111-2222-4333-8444-555555555555"
OTHER = "99999999-2222-4333-8444-555555555555"
IQN = "iqn.2010-10.org.openstack:ledger-1a2b3c4d.volume-"
BY_PATH = "/dev/disk/by-path/ip-192.0.2.1:3260-iscsi-" + IQN + VOLUME + "-lun-1"
LIO = "36001405" + VOLUME.replace("-", "")[:25]  # the WWID
TGT = "36" + VOLUME.replace("-", "")[1:]
MAP = "/dev/disk/by-id/dm-uuid-mpath-"

# As libvirt 9 shows a running guest after "virsh snapshot-create-as --disk-only --diskspec vdb,file=...": the volume is below.
OVERLAY = """
<disk type='file' device='disk'>
  <driver name='qemu' type='qcow2' cache='none' io='native'/>
  <source file='/var/lib/libvirt/images/web-vdb.backup' index='3'/>
  <backingStore type='block' index='1'>
    <format type='raw'/>
    <source dev='%s'/>
    <backingStore/>
  </backingStore>
  <target dev='vdb' bus='virtio'/>
  <serial>%s</serial>
  <alias name='virtio-disk1'/>
</disk>""" % (BY_PATH, VOLUME)
# After "virsh blockcopy --dest /dev/vg/copy --blockdev --pivot".
PIVOTED = (
    """
<disk type='block' device='disk'>
  <driver name='qemu' type='raw' cache='none' io='native'/>
  <source dev='/dev/vg/copy' index='4'/>
  <backingStore/>
  <target dev='vdb' bus='virtio'/>
  <serial>%s</serial>
</disk>"""
    % VOLUME
)
# While "virsh blockcopy" goes on: the guest has the volume, and QEMU writes to both.
MIRRORED = """
<disk type='block' device='disk'>
  <driver name='qemu' type='raw' cache='none' io='native'/>
  <source dev='%s' index='1'/>
  <backingStore/>
  <mirror type='block' job='copy' ready='yes'>
    <format type='raw'/>
    <source dev='/dev/vg/copy' index='4'/>
    <backingStore/>
  </mirror>
  <target dev='vdb' bus='virtio'/>
  <serial>%s</serial>
</disk>""" % (BY_PATH, VOLUME)
# With QEMU's connector, as a lun whose serial is the target's own.
BY_QEMU = """
<disk type='network' device='lun'>
  <driver name='qemu' type='raw' cache='none'/>
  <auth username='u'><secret type='iscsi' uuid='%s'/></auth>
  <source protocol='%s' name='%s' index='1'><host name='192.0.2.1' port='3260'/><initiator><iqn name='iqn.x:1'/></initiator></source>
  <target dev='sda' bus='scsi'/>
  <alias name='ua-%s'/>
</disk>"""


def by_kernel(path: str, volume: str = VOLUME) -> str:
    form = "<disk type='block' device='disk'><source dev='%s'/><target dev='vdb'/><serial>%s</serial></disk>"
    return form % (path, volume)


class Host:
    """A host with devices that have numbers, and sessions with targets."""

    def __init__(self, path: Path):
        self.path, self.sys = path, path / "sys"
        self.numbers: dict[str, str] = {}
        self.sources = VolumeSources(str(self.sys), lambda name: self.numbers.get(name, ""))

    def disk(self, number: str, session: int, iqn: str, *names: str, lun: int = 1) -> None:
        """A SCSI disk of a session with a target."""
        folder = self.sys / ("devices/platform/host2/session%d/target2:0:0/2:0:0:%d/block/%s" % (session, lun, number))
        folder.mkdir(parents=True)
        (folder / "dev").write_text(number + "\n")
        target = self.sys / ("class/iscsi_session/session%d" % session)
        target.mkdir(parents=True, exist_ok=True)
        (target / "targetname").write_text(iqn + "\n")
        self._link(number, folder, names)

    def map(self, number: str, wwid: str, members: t.Sequence[str], *names: str) -> None:
        """A map of multipathd over disks."""
        folder = self.sys / ("devices/virtual/block/" + number)
        (folder / "dm").mkdir(parents=True)
        (folder / "dm/uuid").write_text("mpath-%s\n" % wwid)
        for member in members:
            (folder / "slaves" / member).mkdir(parents=True)
            (folder / "slaves" / member / "dev").write_text(member + "\n")
        self._link(number, folder, names)

    def _link(self, number: str, folder: Path, names: t.Iterable[str]) -> None:
        (self.sys / "dev/block").mkdir(parents=True, exist_ok=True)
        (self.sys / "dev/block" / number).symlink_to(folder)
        self.numbers.update(dict.fromkeys(names, number))

    def is_same(self, xml: str, source: str = BY_PATH, volume: str = VOLUME) -> bool:
        return self.sources.is_same(parse(xml), volume, source)


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


@pytest.mark.parametrize("source", [BY_PATH, MAP + LIO, IQN + VOLUME + "/1"])
def test_overlays_and_copies_are_not_the_volume(host: Host, source: str) -> None:
    assert path_of(parse(OVERLAY)) == "/var/lib/libvirt/images/web-vdb.backup"
    assert not host.is_same(OVERLAY, source)
    assert not host.is_same(PIVOTED, source)
    host.numbers["/dev/vg/copy"] = "253:7"
    assert not host.is_same(PIVOTED, source)


def test_a_volume_that_is_being_copied_is_the_volume(host: Host) -> None:
    assert host.is_same(MIRRORED)


@pytest.mark.parametrize(
    ("name", "lun"),
    [
        (BY_PATH, 1),
        (BY_PATH.replace("192.0.2.1", "192.0.2.9"), 1),  # the storage host has another address since
        (BY_PATH.replace("192.0.2.1", "[2001:db8::1]"), 1),
        (BY_PATH.replace("by-path/ip", "by-path/pci-0000:00:05.0-ip"), 1),
        (BY_PATH.replace("openstack", "OpenStack"), 1),
        (BY_PATH.replace("iqn.2010-10.org.openstack:", "iqn.2026-01.example:"), 1),  # iqn_prefix has changed since
        (BY_PATH.replace("-lun-1", "-lun-0"), 0),  # from tgt to LIO
    ],
)
def test_names_that_say_which_volume_it_is(host: Host, name: str, lun: int) -> None:
    """Without any device: the host has not logged in yet."""
    assert host.is_same(by_kernel(name))
    assert host.is_same(by_kernel(BY_PATH), name)
    assert not host.is_same(by_kernel(name.replace(VOLUME, OTHER)))


@pytest.mark.parametrize("name", ["/dev/sdb", "/dev/disk/by-id/scsi-" + LIO, "/dev/mapper/data", "/dev/block/8:16"])
def test_names_of_one_device(host: Host, name: str) -> None:
    host.disk("8:16", 1, IQN + VOLUME, BY_PATH, name)
    host.disk("8:32", 2, IQN + OTHER, "/dev/sdc")
    assert host.is_same(by_kernel(name)) and host.is_same(by_kernel(BY_PATH), name)
    assert not host.is_same(by_kernel("/dev/sdc"))
    assert not host.is_same(by_kernel("/dev/sdc"), name)


def test_links_to_one_device(host: Host, tmp_path: Path) -> None:
    (tmp_path / "sdb").touch()
    for name in ("by-path", "by-id"):
        (tmp_path / name).symlink_to("sdb")
    (tmp_path / "sdc").touch()
    assert host.is_same(by_kernel(str(tmp_path / "by-id")), str(tmp_path / "by-path"))
    assert not host.is_same(by_kernel(str(tmp_path / "sdc")), str(tmp_path / "by-path"))


def test_a_map_is_its_disks(host: Host) -> None:
    host.disk("8:16", 1, IQN + VOLUME, BY_PATH)
    host.disk("8:32", 2, IQN + VOLUME, BY_PATH.replace("192.0.2.1", "192.0.2.2"))
    host.map("253:1", LIO, ["8:16", "8:32"], MAP + LIO, "/dev/mapper/mpatha", "/dev/dm-1")
    for name in (MAP + LIO, "/dev/mapper/mpatha", "/dev/dm-1"):
        for source in (BY_PATH, MAP + LIO, IQN + VOLUME + "/1"):
            assert host.is_same(by_kernel(name), source), (name, source)
    host.disk("8:48", 3, IQN + OTHER, "/dev/sdd")
    host.map("253:2", "36001405" + OTHER.replace("-", "")[:25], ["8:48"], "/dev/mapper/mpathb")
    assert not host.is_same(by_kernel("/dev/mapper/mpathb"))
    host.map("253:3", LIO, ["8:48"], "/dev/mapper/mpathc")
    assert not host.is_same(by_kernel("/dev/mapper/mpathc")), "another target's disk has the same WWID"


def test_a_map_that_is_gone_keeps_the_volume_in_its_name(host: Host) -> None:
    """After a start of the host, or where QEMU logs in since."""
    for source in (BY_PATH, IQN + VOLUME + "/0"):
        assert host.is_same(by_kernel(MAP + LIO), source) and host.is_same(by_kernel(MAP + TGT), source)
        assert not host.is_same(by_kernel(MAP + "36001405" + OTHER.replace("-", "")[:25]), source)
        assert not host.is_same(by_kernel(MAP + "36" + OTHER.replace("-", "")[1:]), source)
    assert host.is_same(by_kernel(MAP + "1IET_x"), MAP + "1IET_x")


def test_what_qemu_logs_in_to(host: Host) -> None:
    name = IQN + VOLUME
    own = BY_QEMU % (VOLUME, "iscsi", name + "/1", VOLUME)
    assert sources_in(parse("<domain><devices>%s</devices></domain>" % own)) == {VOLUME: name + "/1"}
    host.disk("8:16", 1, name, "/dev/sdb")
    for source in (name + "/1", name.replace("openstack", "OpenStack") + "/1", BY_PATH, "/dev/sdb"):
        assert host.is_same(own, source), source
    assert host.is_same(by_kernel("/dev/sdb"), name + "/1")
    assert not host.is_same(BY_QEMU % (VOLUME, "iscsi", IQN + OTHER + "/1", VOLUME), name + "/1")
    assert not host.is_same(BY_QEMU % (VOLUME, "nbd", name + "/1", VOLUME), name + "/1")
    assert not host.is_same(BY_QEMU % (VOLUME, "rbd", "pool/image", VOLUME), name + "/1")


def test_a_source_that_is_not_known_yet(host: Host) -> None:
    """As in check mode: a file is no volume, whatever the connector is."""
    xml = "<domain><devices>%s</devices></domain>" % by_kernel("/dev/disk/by-path/(volume %s)" % VOLUME)
    assert sources_in(parse(xml)) == {VOLUME: ""}
    assert host.is_same(PIVOTED, "") and not host.is_same(OVERLAY, "")


def test_numbers_of_devices(tmp_path: Path) -> None:
    assert device_number(str(tmp_path)) == device_number(str(tmp_path / "none")) == ""
