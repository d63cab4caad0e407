# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A disk of a guest that starts in the wrong moment, with a libvirt of our own; test_domain_disk has the rest with a real one."""

from __future__ import annotations

import types

from lxml import etree

from ansible_collections.bootflow.compute.plugins.module_utils.hosts.libvirt import connection as libvirt_connection
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.libvirt import domain_devices, domain_disks

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
        self.active = False

    def isActive(self):
        return int(self.active)

    def isPersistent(self):
        return 1

    def XMLDesc(self, flags):
        return "<domain><devices>%s</devices></domain>" % "".join(self.parts[CONFIG if flags else LIVE])

    def attachDeviceFlags(self, xml, flags):
        self.active = True
        for part in (LIVE, CONFIG):
            if flags & part:
                self.parts[part].append(DISK % etree.fromstring(xml).find("target").get("dev"))


def test_a_guest_that_starts_before_its_definition_has_the_disk(monkeypatch):
    fake = types.SimpleNamespace(
        VIR_DOMAIN_AFFECT_LIVE=LIVE, VIR_DOMAIN_AFFECT_CONFIG=CONFIG, VIR_DOMAIN_XML_INACTIVE=2, libvirtError=OSError
    )
    for module in (libvirt_connection, domain_devices, domain_disks):
        monkeypatch.setattr(module, "libvirt", fake)
    guest = Guest()
    desired = domain_disks.desired_disk({"uuid": ME, "serial": VOLUME, "xml": DISK % "vdb"})
    there = types.SimpleNamespace(lookupByUUIDString=lambda _uuid: guest)
    done = domain_disks.ensure_disk(there, desired)
    assert done["changed"] and done["live"] and guest.parts == {LIVE: [DISK % "vdb"], CONFIG: [DISK % "vdb"]}
    assert not domain_disks.ensure_disk(there, desired)["changed"]
