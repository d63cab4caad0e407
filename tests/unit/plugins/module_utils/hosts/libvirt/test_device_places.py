# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from ansible_collections.bootflow.compute.plugins.module_utils.hosts.libvirt.domains import device_places

XML = """<domain><devices>
  <emulator>/usr/bin/qemu</emulator>
  <disk type='file' device='disk'><target dev='vda' bus='virtio'/>
    <address type='pci' domain='0x0000' bus='0x03' slot='0x00' function='0x0'/></disk>
  <disk type='file' device='disk'><target dev='sda' bus='scsi'/>
    <address type='drive' controller='0' bus='0' target='0' unit='0'/></disk>
  <disk type='file' device='cdrom'><target dev='sdb' bus='sata'/>
    <address type='drive' controller='0' bus='0' target='0' unit='1'/></disk>
  <controller type='pci' index='0' model='pcie-root'/>
  <interface type='network'><mac address='FA:16:3E:00:00:01'/><source network='x'/>
    <address type='pci' domain='0x0000' bus='0x0a' slot='0x1f' function='0x7'/></interface>
  <interface type='network'><mac address='fa:16:3e:00:00:02'/></interface>
</devices></domain>"""


def test_places_are_those_that_nova_names() -> None:
    assert device_places(XML) == [
        {"type": "disk", "name": "vda", "bus": "pci", "address": "0000:03:00.0"},
        {"type": "disk", "name": "sda", "bus": "scsi"},
        {"type": "disk", "name": "sdb"},
        {"type": "nic", "mac": "fa:16:3e:00:00:01", "bus": "pci", "address": "0000:0a:1f.7"},
        {"type": "nic", "mac": "fa:16:3e:00:00:02"},
    ]
    assert device_places("<domain/>") == []
