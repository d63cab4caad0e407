# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The XML of the sources can be said with the configs, exactly."""

from __future__ import annotations

import pytest
from lxml import etree

from ansible_collections.bootflow.compute.plugins.module_utils.core.guest.domain.address import (
    drive_address,
)
from ansible_collections.bootflow.compute.plugins.module_utils.core.guest.domain.devices import (
    ConsoleConfig,
    ControllerConfig,
    GraphicsConfig,
    InputConfig,
    ListenConfig,
    MemballoonConfig,
    SerialConfig,
    VideoConfig,
)
from ansible_collections.bootflow.compute.plugins.module_utils.core.guest.domain.disk import DiskConfig
from ansible_collections.bootflow.compute.plugins.module_utils.core.guest.domain.domain import (
    DomainConfig,
    render,
)
from ansible_collections.bootflow.compute.plugins.module_utils.core.guest.domain.interface import InterfaceConfig
from ansible_collections.bootflow.compute.plugins.module_utils.core.guest.domain.platform import (
    ClockConfig,
    FeaturesConfig,
    OsConfig,
)

from .schema import assert_valid
from .texts import parse_domain, pci_address

PORTAL = "/dev/disk/by-path/ip-192.0.2.197:3260-iscsi-iqn.2010-10.org.openstack:volume-web-lun-1"

DISKS = {
    "B66 lvm": (
        """<disk type='block' device='disk'><driver name='qemu' type='raw' cache='none' io='native'/>
        <source dev='/dev/hdd-volumes/0fd65882-945e-4386-b2f2-5a36d62fefad_disk.eph0'/><target dev='vdb' bus='virtio'/>
        <address type='pci' domain='0x0000' bus='0x00' slot='0x05' function='0x0'/></disk>""",
        DiskConfig(
            type="block",
            driver_name="qemu",
            driver_type="raw",
            driver_cache="none",
            driver_io="native",
            source_dev="/dev/hdd-volumes/0fd65882-945e-4386-b2f2-5a36d62fefad_disk.eph0",
            target_dev="vdb",
            target_bus="virtio",
            address=pci_address(5),
        ),
    ),
    "B67 qcow2": (
        """<disk type='file' device='disk'><driver name='qemu' type='qcow2' cache='writeback'/>
        <source file='/var/lib/nova/instances/12522ab8-703f-4528-beb0-5ae5767a0a42/disk/disk'/>
        <target dev='vda' bus='virtio'/>
        <address type='pci' domain='0x0000' bus='0x00' slot='0x05' function='0x0'/></disk>""",
        DiskConfig(
            driver_name="qemu",
            driver_type="qcow2",
            driver_cache="writeback",
            source_file="/var/lib/nova/instances/12522ab8-703f-4528-beb0-5ae5767a0a42/disk/disk",
            target_dev="vda",
            target_bus="virtio",
            address=pci_address(5),
        ),
    ),
    "B68 config drive": (
        """<disk type='file' device='cdrom'><driver name='qemu' type='raw' cache='writeback'/>
        <source file='/var/lib/nova/instances/12522ab8-703f-4528-beb0-5ae5767a0a42/disk.config'/>
        <target dev='hda' bus='ide'/><readonly/>
        <address type='drive' controller='0' bus='0' target='0' unit='0'/></disk>""",
        DiskConfig(
            device="cdrom",
            driver_name="qemu",
            driver_type="raw",
            driver_cache="writeback",
            source_file="/var/lib/nova/instances/12522ab8-703f-4528-beb0-5ae5767a0a42/disk.config",
            target_dev="hda",
            target_bus="ide",
            readonly=True,
            address=drive_address(0),
        ),
    ),
    "B69 isolate": (
        """<disk type='block' device='disk'><driver name='qemu' type='raw' cache='none' io='native'/>
        <source dev='/dev/sdb'/><target dev='vdb' bus='virtio'/>
        <address type='pci' domain='0x0000' bus='0x00' slot='0x05' function='0x0'/></disk>""",
        DiskConfig(
            type="block",
            driver_name="qemu",
            driver_type="raw",
            driver_cache="none",
            driver_io="native",
            source_dev="/dev/sdb",
            target_dev="vdb",
            target_bus="virtio",
            address=pci_address(5),
        ),
    ),
    "C36 volume": (
        """<disk type='block' device='disk'><driver name='qemu' type='raw' cache='none'/><source dev='%s'/>
        <target dev='vda' bus='virtio'/><serial>640a10f7-3965-4a47-9641-002a94526445</serial><alias name='virtio-disk0'/>
        <address type='pci' domain='0x0000' bus='0x00' slot='0x04' function='0x0'/></disk>"""
        % PORTAL,
        DiskConfig(
            type="block",
            driver_name="qemu",
            driver_type="raw",
            driver_cache="none",
            source_dev=PORTAL,
            target_dev="vda",
            target_bus="virtio",
            serial="640a10f7-3965-4a47-9641-002a94526445",
            alias="virtio-disk0",
            address=pci_address(4),
        ),
    ),
}

WHOLE_XML = """<domain type='kvm'><name>bootfromvolume</name><uuid>0f0806ab-531d-6134-5def-c5b495529289</uuid>
  <memory unit='KiB'>2097152</memory><currentMemory unit='KiB'>2097152</currentMemory>
  <vcpu placement='static'>1</vcpu>
  <os><type arch='x86_64' machine='pc-i440fx-trusty'>hvm</type><boot dev='hd'/></os>
  <features><acpi/><apic/><pae/></features><clock offset='utc'/>
  <on_poweroff>destroy</on_poweroff><on_reboot>restart</on_reboot><on_crash>restart</on_crash>
  <devices><emulator>/usr/bin/kvm-spice</emulator>%s
    <controller type='usb' index='0'>
      <address type='pci' domain='0x0000' bus='0x00' slot='0x01' function='0x2'/></controller>
    <controller type='pci' index='0' model='pci-root'/>
    <controller type='ide' index='0'>
      <address type='pci' domain='0x0000' bus='0x00' slot='0x01' function='0x1'/></controller>
    <interface type='network'><mac address='52:54:00:9b:d5:cc'/><source network='default'/><model type='rtl8139'/>
      <address type='pci' domain='0x0000' bus='0x00' slot='0x03' function='0x0'/></interface>
    <serial type='pty'><target port='0'/></serial>
    <console type='pty'><target type='serial' port='0'/></console>
    <input type='mouse' bus='ps2'/><input type='keyboard' bus='ps2'/>
    <graphics type='vnc' port='-1' autoport='yes' listen='0.0.0.0'><listen type='address' address='0.0.0.0'/></graphics>
    <video><model type='cirrus' vram='9216' heads='1'/>
      <address type='pci' domain='0x0000' bus='0x00' slot='0x02' function='0x0'/></video>
    <memballoon model='virtio'>
      <address type='pci' domain='0x0000' bus='0x00' slot='0x05' function='0x0'/></memballoon>
  </devices></domain>""" % DISKS["C36 volume"][0]
WHOLE = DomainConfig(
    type="kvm",
    name="bootfromvolume",
    uuid="0f0806ab-531d-6134-5def-c5b495529289",
    memory_unit="KiB",
    memory=2097152,
    current_memory_unit="KiB",
    current_memory=2097152,
    vcpu_placement="static",
    vcpus=1,
    os=OsConfig(arch="x86_64", machine="pc-i440fx-trusty", boot_devs=("hd",)),
    features=FeaturesConfig(acpi=True, apic=True, pae=True),
    clock=ClockConfig(offset="utc"),
    on_poweroff="destroy",
    on_reboot="restart",
    on_crash="restart",
    emulator="/usr/bin/kvm-spice",
    disks=(DISKS["C36 volume"][1],),
    controllers=(
        ControllerConfig(type="usb", index=0, address=pci_address(1, function=2)),
        ControllerConfig(type="pci", index=0, model="pci-root"),
        ControllerConfig(type="ide", index=0, address=pci_address(1, function=1)),
    ),
    interfaces=(
        InterfaceConfig(
            type="network",
            mac="52:54:00:9b:d5:cc",
            source_network="default",
            model="rtl8139",
            address=pci_address(3),
        ),
    ),
    serials=(SerialConfig(target_port=0),),
    consoles=(ConsoleConfig(target_type="serial", target_port=0),),
    inputs=(InputConfig(type="mouse", bus="ps2"), InputConfig(type="keyboard", bus="ps2")),
    graphics=(GraphicsConfig(port=-1, autoport=True, listen="0.0.0.0", listener=ListenConfig(address="0.0.0.0")),),
    videos=(VideoConfig(type="cirrus", vram=9216, heads=1, address=pci_address(2)),),
    memballoon=MemballoonConfig(address=pci_address(5)),
)


def canonical(node):
    """Tag, attributes, text and children, whatever the white space and the order of different children."""
    children = [canonical(child) for child in node]
    return (node.tag, sorted(node.attrib.items()), (node.text or "").strip(), sorted(children, key=lambda c: c[0]))


@pytest.mark.parametrize("name", sorted(DISKS))
def test_disk_of_the_source(name):
    xml, config = DISKS[name]
    assert canonical(config.to_xml()) == canonical(etree.fromstring(xml))
    assert DiskConfig.from_xml(etree.fromstring(xml)) == config


def test_whole_domain_of_the_source():
    assert canonical(WHOLE.to_xml()) == canonical(etree.fromstring(WHOLE_XML))
    assert parse_domain(WHOLE_XML) == WHOLE


@pytest.mark.parametrize("name", sorted(DISKS))
def test_libvirts_schema_takes_the_disks(name):
    other = DomainConfig(
        name="a",
        memory=1024,
        os=OsConfig(arch="x86_64"),
        disks=(DISKS[name][1],),
    )
    assert_valid(render(other))


def test_libvirts_schema_takes_the_whole_domain():
    assert_valid(render(WHOLE))


def test_source_path():
    assert DISKS["B69 isolate"][1].source_path == "/dev/sdb"
    assert DISKS["B68 config drive"][1].source_path.endswith("/disk.config")
    assert DiskConfig(type="network", source_protocol="iscsi", source_name="iqn/1").source_path is None
