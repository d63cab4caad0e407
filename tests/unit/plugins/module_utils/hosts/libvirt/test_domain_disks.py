# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Disks of a guest that starts in the wrong moment, or is rescued, with a libvirt of our own; test_domain_disk has the rest with a real one."""

from __future__ import annotations

import types

import pytest
from lxml import etree

from ansible_collections.bootflow.compute.plugins.module_utils.core.errors import Conflict, GuestDisksDiffer
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.libvirt import connection as libvirt_connection
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.libvirt import domain_disks, hot_plug

ME, VOLUME = "2f4c1c0e-6a0f-4d8e-9f0b-0c6f3f3b2a11", "6a2c1f0e-3c5e-4d7b-8d3f-9f1c2b3a4d01"
DISK = (
    "<disk type='block'><driver name='qemu' type='raw'/><source dev='/dev/x'/><target dev='%%s'/><serial>%s</serial></disk>"
    % VOLUME
)
LIVE, CONFIG = 1, 2


class Guest:
    """A domain that is off, and starts by the definition that it has before it is changed."""

    def __init__(self):
        self.parts = {LIVE: [], CONFIG: []}
        self.active = self.saved = False
        self.starts = True
        self.others = ""  # more disks

    def name(self):
        return "web"

    def isActive(self):
        return int(self.active)

    def isPersistent(self):
        return 1

    def XMLDesc(self, flags):
        return "<domain><devices>%s</devices></domain>" % "".join([*self.parts[CONFIG if flags else LIVE], self.others])

    def hasManagedSaveImage(self, _flags):
        return int(self.saved)

    def managedSaveRemove(self, _flags):
        self.saved = False

    def detachDeviceFlags(self, _xml, flags):
        self.parts[flags] = []

    def attachDeviceFlags(self, xml, flags):
        self.active = self.starts
        for part in (LIVE, CONFIG):
            if flags & part:
                self.parts[part].append(DISK % etree.fromstring(xml).find("target").get("dev"))


@pytest.fixture
def libvirt(monkeypatch):
    fake = types.SimpleNamespace(
        VIR_DOMAIN_AFFECT_LIVE=LIVE, VIR_DOMAIN_AFFECT_CONFIG=CONFIG, VIR_DOMAIN_XML_INACTIVE=2, libvirtError=OSError
    )
    for module in (libvirt_connection, domain_disks, hot_plug):
        monkeypatch.setattr(module, "libvirt", fake)


def ensure(guest, **wanted):
    desired = domain_disks.desired_disk({"uuid": ME, "serial": VOLUME, **wanted})
    return domain_disks.ensure_disk(types.SimpleNamespace(lookupByUUIDString=lambda _uuid: guest), desired)


@pytest.mark.usefixtures("libvirt")
def test_a_guest_that_starts_before_its_definition_has_the_disk():
    guest = Guest()
    done = ensure(guest, xml=DISK % "vdb")
    assert done["changed"] and done["live"] and guest.parts == {LIVE: [DISK % "vdb"], CONFIG: [DISK % "vdb"]}
    assert not ensure(guest, xml=DISK % "vdb")["changed"]


@pytest.mark.usefixtures("libvirt")
def test_a_guest_that_is_rescued_unheard_of():
    """Its own definition comes back as it was: a disk that the domain of the rescue lost would be there again, its device being another volume's."""
    guest = Guest()
    guest.others = "<disk type='file'><source file='/i/%s/disk.rescue'/><target dev='vda'/></disk>" % ME
    with pytest.raises(Conflict, match="is rescued"):
        ensure(guest, xml=DISK % "vdb")
    assert not ensure(guest, state="detached")["changed"], "what an attachment that was refused leaves is taken back"
    guest.parts = {LIVE: [DISK % "vdb"], CONFIG: [DISK % "vdb"]}
    assert not ensure(guest, xml=DISK % "vdb")["changed"]
    with pytest.raises(Conflict, match="is rescued"):
        ensure(guest, state="detached")
    assert guest.parts == {LIVE: [DISK % "vdb"], CONFIG: [DISK % "vdb"]}


@pytest.mark.usefixtures("libvirt")
def test_a_guest_that_is_off_does_not_go_on_with_the_disks_that_it_had():
    """Its saved memory has them: it would write to a volume that is another guest's by then."""
    guest = Guest()
    guest.starts, guest.saved = False, True
    ensure(guest, state="detached")
    assert guest.saved, "nothing is changed"
    ensure(guest, xml=DISK % "vdb")
    assert not guest.saved and guest.parts[CONFIG]
    guest.saved = True
    ensure(guest, state="detached")
    assert not guest.saved and not guest.parts[CONFIG]


@pytest.mark.usefixtures("libvirt")
@pytest.mark.parametrize("part", [LIVE, CONFIG])
def test_a_volume_is_not_detached_without_what_was_written_last(part):
    """The overlay of an external snapshot, or a copy, would stay behind: neither the definition nor the guest loses anything."""
    overlay = "<disk type='file'><source file='/srv/web.backup'/><target dev='vdb'/><serial>%s</serial></disk>" % VOLUME
    copy = (DISK % "vdb").replace("/dev/x", "/dev/vg/copy")
    for other, path in ((overlay, "/srv/web.backup"), (copy, "/dev/vg/copy")):
        guest = Guest()
        guest.active = True
        guest.parts = {LIVE: [DISK % "vdb"], CONFIG: [DISK % "vdb"], part: [other]}
        before = {key: list(disks) for key, disks in guest.parts.items()}
        with pytest.raises(GuestDisksDiffer, match="Disk vdb of instance %s .domain web on .* is %s" % (ME, path)):
            ensure(guest, state="detached", source="/dev/x")
        assert guest.parts == before
        assert ensure(guest, state="detached")["changed"] and not guest.parts[part], "nobody says what it should be"
    guest.parts = {LIVE: [DISK % "vdb"], CONFIG: [DISK % "vdb"]}
    assert ensure(guest, state="detached", source="/dev/x")["changed"] and guest.parts == {LIVE: [], CONFIG: []}
