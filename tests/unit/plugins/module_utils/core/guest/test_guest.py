# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import dataclasses
import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lxml import etree

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.core.disks.block_devices import (
    PlannedDisk,
    block_device_plan,
)
from ansible_collections.bootflow.compute.plugins.module_utils.core.guest.config import (
    GuestOptions,
    GuestSpec,
    HostCapabilities,
    domain_name,
    guest_config,
    short_domain_names,
)
from ansible_collections.bootflow.compute.plugins.module_utils.core.guest.cpu_topology import best_topology
from ansible_collections.bootflow.compute.plugins.module_utils.core.guest.names import DOMAIN_NAME_LENGTH
from ansible_collections.bootflow.compute.plugins.module_utils.core.guest.values import VIF_LIMITS
from ansible_collections.bootflow.compute.plugins.module_utils.core.model import BlockDevice, Flavor, Image

from .domain.schema import assert_valid
from .domain.texts import guest_xml, parse_domain

UUID = "12522ab8-703f-4528-beb0-5ae5767a0a42"
IMAGE_ID = "11111111-1111-4111-8111-111111111111"
HOME = "/var/lib/bootflow/instances/" + UUID
KVM = HostCapabilities(
    virt_type="kvm",
    arch="x86_64",
    emulator="/usr/bin/qemu-system-x86_64",
    machine_types=("pc", "q35", "pc-q35-7.2", "pc-i440fx-7.2"),
    uefi=True,
    libvirt_version=9000000,
    host="node-1",
)
TCG = dataclasses.replace(KVM, virt_type="qemu")
ARM = HostCapabilities(virt_type="kvm", arch="aarch64", machine_types=("virt",), uefi=True, libvirt_version=9000000)


def vif(number=0, kind="network", mtu=1450, source="lab"):
    return {
        "id": "aaaaaaaa-0000-4000-8000-%012d" % number,
        "address": "FA:16:3E:00:00:%02X" % number,
        "type": kind,
        "devname": "tapaaaaaaaa-%02d" % number,
        "network": {
            "id": "n",
            "bridge": source if kind == "bridge" else None,
            "label": "lab",
            "meta": {"mtu": mtu},
            "subnets": [
                {
                    "cidr": "10.0.0.0/24",
                    "ips": [
                        {"address": "10.0.0.5", "type": "fixed", "version": 4},
                        {"address": "fd00::5", "type": "fixed", "version": 6},
                    ],
                }
            ],
        },
        "details": {"libvirt_network": source} if kind == "network" else {},
        "vnic_type": "normal",
        "active": False,
        "preserve_on_delete": False,
    }


def guest(properties=None, specs=None, vcpus=1, memory_mb=512, swap=0, ephemeral=0, bdms=(), options=None, **more):
    properties = properties or {}
    flavor = Flavor("m1.tiny", memory_mb, vcpus, 1, ephemeral, swap, extra_specs=specs or {})
    image = Image("cirros", IMAGE_ID, "qcow2", properties=properties)
    if "disks" not in more:
        more["disks"] = [d.placed("%s/%s" % (HOME, d.name), "qcow2") for d in block_device_plan(flavor, image, bdms)]
    values = {
        "uuid": UUID,
        "name": domain_name("web", UUID),
        "display_name": "web",
        "config_drive": HOME + "/disk.config",
        "network_info": (vif(),),
        "console_log": HOME + "/console.log",
        "user": "me",
        "project": "default",
        "creation_time": "2026-01-01 00:00:00",
    }
    values.update(more)
    return GuestSpec(
        memory_mb=memory_mb,
        vcpus=vcpus,
        flavor=flavor,
        image_properties=properties,
        options=GuestOptions(**(options or {})),
        **values,
    )


# --- the name


@pytest.mark.parametrize(
    ("display", "expected"),
    [
        ("web", "web-"),
        ("web-1", "web-1-"),
        ("My Server!", "My-Server-"),
        ("../../etc/passwd", "etc-passwd-"),
        ("<a>&'\"", "a-"),
        ("-rf", "rf-"),
        (".hidden", "hidden-"),
        ("", "instance-"),
        ("\u4f60\u597d", "instance-"),
        ("\u00fcber", "ber-"),
        ("a\nb\x00c", "a-b-c-"),
        ("$(reboot)", "reboot-"),
        ("trailing-", "trailing-"),
    ],
)
def test_domain_name(display, expected):
    assert domain_name(display, UUID) == expected + UUID


@given(st.text(max_size=300), st.uuids(), st.text(max_size=300), st.uuids())
def test_law_names_are_safe_short_and_differ_with_the_uuid(one, first, two, second):
    name = domain_name(one, str(first))
    assert 1 <= len(name) <= DOMAIN_NAME_LENGTH
    assert all(len(n) <= DOMAIN_NAME_LENGTH for n in short_domain_names(one, str(first)))
    assert name.isascii()
    assert set("/\\'\"<>& \n\x00").isdisjoint(name)
    assert name[0].isalnum()
    assert name == domain_name(one, str(first).upper())
    assert guest_config(guest(name=name), KVM).name == name
    if first != second:
        assert name != domain_name(two, str(second))


@pytest.mark.parametrize(
    ("display", "short"),
    [
        ("web", "web"),
        ("-we b.", "we-b"),
        ("12", "instance-12"),
        ("\u4f60", "instance"),
        ("x" * 300, "x" * 51),
        ("7" * 300, "instance-" + "7" * 42),
    ],
)
def test_short_domain_names(display, short):
    """The last one, which has the whole UUID, is always free."""
    assert short_domain_names(display, UUID) == [short, "%s-%s" % (short, UUID[:8]), domain_name(display, UUID)]
    assert all(guest_config(guest(name=name), KVM).name == name for name in short_domain_names(display, UUID))


@pytest.mark.parametrize("uuid", ["", "web", None, "12522ab8-703f-4528-beb0"])
def test_domain_name_needs_a_uuid(uuid):
    with pytest.raises(errors.InvalidInput):
        domain_name("web", uuid)


# --- what guests are by default


def test_a_guest_by_default():
    config = guest_config(guest(swap=64), KVM)
    assert (config.type, config.uuid, config.memory, config.memory_unit, config.vcpus) == (
        "kvm",
        UUID,
        512 * 1024,
        "KiB",
        1,
    )
    assert (config.os.machine, config.os.arch, config.os.firmware, config.os.boot_devs) == (
        "pc",
        "x86_64",
        None,
        ("hd",),
    )
    assert config.cpu.mode == "host-model"
    assert config.emulator == "/usr/bin/qemu-system-x86_64"
    assert [(d.target_dev, d.target_bus, d.driver_type, d.driver_cache, d.source_file) for d in config.disks] == [
        ("vda", "virtio", "qcow2", "writeback", HOME + "/disk"),
        ("vdb", "virtio", "qcow2", "writeback", HOME + "/disk.swap"),
        ("hda", "ide", "raw", "writeback", HOME + "/disk.config"),
    ]
    assert [(d.device, d.readonly) for d in config.disks] == [("disk", False), ("disk", False), ("cdrom", True)]
    assert config.graphics[0].listen == "127.0.0.1"
    assert config.graphics[0].listener.address == "127.0.0.1"
    assert config.rngs[0].backend == "/dev/urandom"
    assert config.serials[0].log_file == HOME + "/console.log"
    assert config.serials[0].log_append is False
    assert config.cputune is None and config.controllers == () and config.channels == ()


def test_interfaces():
    config = guest_config(guest(network_info=(vif(1), vif(2, "bridge", None, "br-lan"))), KVM)
    one, two = config.interfaces
    assert (one.type, one.source_network, one.source_bridge, one.mac, one.target_dev, one.mtu, one.model) == (
        "network",
        "lab",
        None,
        "fa:16:3e:00:00:01",
        "tapaaaaaaaa-01",
        1450,
        "virtio",
    )
    assert (two.type, two.source_network, two.source_bridge, two.mtu) == ("bridge", None, "br-lan", None)
    ports = config.metadata.ports
    assert [[(ip.address, ip.ip_version) for ip in port.ips] for port in ports] == [
        [("10.0.0.5", "4"), ("fd00::5", "6")]
    ] * 2


def test_metadata_tells_of_instance_and_flavor():
    root = etree.fromstring(guest_xml(guest(swap=64, display_name="<web> & co"), KVM))
    instance = root.find("metadata/{*}instance")
    assert instance.findtext("{*}name") == "<web> & co"
    assert instance.find("{*}flavor").get("name") == "m1.tiny"
    assert instance.findtext("{*}flavor/{*}swap") == "64"
    assert (instance.find("{*}root").get("type"), instance.find("{*}root").get("uuid")) == ("image", IMAGE_ID)


def test_the_metadata_says_which_ledger_has_the_guest():
    assert parse_domain(guest_xml(guest(ledger_id=UUID), KVM)).owner.ledger == UUID
    assert parse_domain(guest_xml(guest(), KVM)).owner is None


def test_smbios_is_not_novas_product():
    """Nova's name lets cloud-init wait for a metadata service that is not there."""
    xml = guest_xml(guest(), KVM)
    assert "OpenStack Nova" not in xml
    assert etree.fromstring(xml).findtext("sysinfo/system/entry[@name='uuid']") == UUID


def test_the_same_guest_gives_the_same_text():
    assert guest_xml(guest(), KVM) == guest_xml(guest(), KVM)
    config = guest_config(guest(), KVM)
    assert parse_domain(guest_xml(guest(), KVM)) == config


# --- policy, one line each

CPU_CASES = [
    (KVM, {}, ("host-model", None)),
    (TCG, {}, None),
    (TCG, {"cpu_mode": "host-passthrough"}, None),
    (TCG, {"cpu_mode": "host-model"}, None),
    (TCG, {"cpu_mode": "maximum"}, ("maximum", None)),
    (dataclasses.replace(TCG, libvirt_version=7000000), {"cpu_mode": "maximum"}, None),
    (KVM, {"cpu_mode": "host-passthrough"}, ("host-passthrough", None)),
    (KVM, {"cpu_mode": "custom", "cpu_model": "Nehalem"}, ("custom", "Nehalem")),
    (TCG, {"cpu_mode": "custom", "cpu_model": "Nehalem"}, ("custom", "Nehalem")),
    (KVM, {"cpu_mode": "none"}, None),
]


@pytest.mark.parametrize(("host", "options", "expected"), CPU_CASES)
def test_cpu(host, options, expected):
    cpu = guest_config(guest(options=options), host).cpu
    assert (None if cpu is None else (cpu.mode, cpu.model)) == expected


def test_cpu_flags():
    cpu = guest_config(guest(options={"cpu_model_extra_flags": ("pcid", "-vmx", "+AES")}), KVM).cpu
    assert [(f.policy, f.name) for f in cpu.features] == [("require", "pcid"), ("disable", "vmx"), ("require", "aes")]


@pytest.mark.parametrize(
    ("vcpus", "specs", "properties", "expected"),
    [
        (1, {}, {}, (1, 1, 1)),
        (8, {}, {}, (8, 1, 1)),
        (8, {"hw:cpu_sockets": "2"}, {}, (2, 4, 1)),
        (8, {"hw:cpu_max_sockets": "2"}, {}, (2, 4, 1)),
        (8, {"hw:cpu_threads": "2"}, {}, (4, 1, 2)),
        (8, {"hw:cpu_cores": "4", "hw:cpu_threads": "2"}, {}, (1, 4, 2)),
        (8, {"hw:cpu_max_sockets": "1", "hw:cpu_max_cores": "4"}, {}, (1, 4, 2)),
        (8, {"hw:cpu_max_sockets": "4"}, {"hw_cpu_max_sockets": "2"}, (2, 4, 1)),
        # G9: one preference of the image voids all of the flavor's
        (8, {"hw:cpu_sockets": "4"}, {"hw_cpu_threads": "2"}, (4, 1, 2)),
        (8, {"hw:cpu_sockets": "4"}, {"hw_cpu_cores": "8"}, (1, 8, 1)),
        (8, {"hw:cpu_sockets": "4", "hw:cpu_cores": "2"}, {"hw_cpu_max_sockets": "2"}, (2, 4, 1)),
        (8, {}, {"hw_cpu_cores": "8"}, (1, 8, 1)),
        (7, {"hw:cpu_sockets": "2"}, {}, (7, 1, 1)),  # a preference that cannot be met
    ],
)
def test_topology(vcpus, specs, properties, expected):
    topology = best_topology(vcpus, specs, properties)
    assert (topology.sockets, topology.cores, topology.threads) == expected


@pytest.mark.parametrize(
    ("vcpus", "specs", "properties", "error"),
    [
        (8, {"hw:cpu_max_sockets": "1", "hw:cpu_max_cores": "2"}, {"hw_cpu_max_threads": "2"}, "Impossible"),
        (8, {"hw:cpu_max_sockets": "2"}, {"hw_cpu_max_sockets": "4"}, "ImageVCPULimitsRangeExceeded"),
        (8, {"hw:cpu_max_sockets": "2"}, {"hw_cpu_sockets": "4"}, "ImageVCPUTopologyRangeExceeded"),
        (8, {"hw:cpu_sockets": "2"}, {"hw_cpu_max_cores": "2", "hw_cpu_cores": "4"}, "ImageVCPUTopologyRangeExceeded"),
        (8, {"hw:cpu_sockets": "0"}, {}, "InvalidInput"),
        (8, {"hw:cpu_sockets": "two"}, {}, "InvalidInput"),
    ],
)
def test_topology_refused(vcpus, specs, properties, error):
    with pytest.raises(errors.InvalidInput) as caught:
        best_topology(vcpus, specs, properties)
    assert error in caught.value.code
    assert caught.value.message


@given(st.integers(1, 64), st.sampled_from(["sockets", "cores", "threads"]), st.integers(1, 16))
def test_law_the_topology_has_all_vcpus(vcpus, name, limit):
    topology = best_topology(vcpus, {}, {"hw_cpu_max_%s" % name: str(limit)})
    assert topology.sockets * topology.cores * topology.threads == vcpus
    assert getattr(topology, name) <= limit


def test_topology_without_a_model():
    config = guest_config(guest(vcpus=4, specs={"hw:cpu_cores": "4"}), TCG).cpu
    assert (config.mode, config.sockets, config.cores, config.threads) == (None, 1, 4, 1)


@pytest.mark.parametrize(
    ("properties", "options", "host", "machine"),
    [
        ({}, {}, KVM, "pc"),
        ({}, {"machine_type": "q35"}, KVM, "q35"),
        ({"hw_machine_type": "pc-q35-7.2"}, {"machine_type": "pc"}, KVM, "pc-q35-7.2"),
        ({}, {}, ARM, "virt"),
        ({}, {}, dataclasses.replace(KVM, machine_types=("microvm",)), None),
        ({"hw_machine_type": "exotic"}, {}, dataclasses.replace(KVM, machine_types=()), "exotic"),
    ],
)
def test_machine(properties, options, host, machine):
    assert guest_config(guest(properties, options=options), host).os.machine == machine


def test_firmware():
    bios = guest_config(guest(), KVM).os
    assert (bios.firmware, bios.firmware_features, bios.loader_secure) == (None, (), None)
    uefi = guest_config(guest({"hw_firmware_type": "uefi"}), KVM)
    assert uefi.os.firmware == "efi"
    assert [(f.enabled, f.name) for f in uefi.os.firmware_features] == [(False, "secure-boot")]
    assert uefi.features.smm is None
    secure = guest_config(
        guest({"hw_firmware_type": "uefi", "hw_machine_type": "q35", "os_secure_boot": "required"}), KVM
    )
    assert [(f.enabled, f.name) for f in secure.os.firmware_features] == [
        (True, "enrolled-keys"),
        (True, "secure-boot"),
    ]
    assert secure.os.loader_secure is True and secure.features.smm is True
    assert guest_config(guest(), ARM).os.firmware == "efi"


def test_uefi_variables_are_in_the_folder_of_the_instance():
    """libvirt's own place is named after the domain: a later guest of that name would have them."""
    uefi = dataclasses.replace(guest({"hw_firmware_type": "uefi"}), nvram="/i/disk.nvram")
    assert guest_config(uefi, KVM).os.nvram == "/i/disk.nvram"
    bios = dataclasses.replace(guest(), nvram="/i/disk.nvram")
    assert guest_config(bios, KVM).os.nvram is None
    with pytest.raises(errors.InvalidInput):
        guest_config(dataclasses.replace(uefi, nvram="disk.nvram"), KVM)


def test_windows():
    config = guest_config(guest({"os_type": "windows"}), KVM)
    assert config.clock.offset == "localtime"
    assert config.features.hyperv_relaxed is True and config.features.hyperv_spinlock_retries == 8191
    hyperv = etree.fromstring(guest_xml(guest({"os_type": "windows"}), KVM)).find("features/hyperv")
    assert {node.tag: node.get("state") for node in hyperv} == dict.fromkeys(
        "relaxed vapic spinlocks vpindex runtime synic reset frequencies tlbflush ipi".split(), "on"
    )
    hidden = guest({"os_type": "windows", "img_hide_hypervisor_id": "true"})
    assert '<vendor_id state="on" value="1234567890ab"/>' in guest_xml(hidden, KVM)
    assert "hypervclock" in [timer.name for timer in config.clock.timers]
    assert config.videos[0].type == "vga"
    emulated = guest_config(guest({"os_type": "windows"}), TCG)
    assert emulated.features.hyperv_relaxed is None
    assert "hypervclock" not in [timer.name for timer in emulated.clock.timers]


@pytest.mark.parametrize(
    ("properties", "options", "expected"),
    [
        ({}, {}, [("vda", "virtio"), ("hda", "ide")]),
        ({"hw_machine_type": "q35"}, {}, [("vda", "virtio"), ("sda", "scsi")]),
        ({"hw_machine_type": "q35", "hw_cdrom_bus": "sata"}, {}, [("vda", "virtio"), ("sda", "sata")]),
        ({}, {"machine_type": "q35"}, [("vda", "virtio"), ("sda", "scsi")]),
        ({"hw_disk_bus": "scsi", "hw_cdrom_bus": "scsi"}, {}, [("sda", "scsi"), ("sdb", "scsi")]),
    ],
)
def test_buses_and_the_scsi_controller(properties, options, expected):
    config = guest_config(guest(properties, options=options), KVM)
    assert [(d.target_dev, d.target_bus) for d in config.disks] == expected
    scsi = [d for d in config.disks if d.target_bus == "scsi"]
    assert [c.model for c in config.controllers] == (["virtio-scsi"] if scsi else [])
    assert [d.address.unit for d in scsi] == [str(i) for i in range(len(scsi))]


@pytest.mark.parametrize(
    ("properties", "host", "count"),
    [
        ({"hw_machine_type": "q35"}, KVM, 3),
        ({"hw_machine_type": "pc-q35-7.2"}, KVM, 3),
        ({}, KVM, 0),
        ({}, ARM, 3),
        ({"hw_machine_type": "q35"}, dataclasses.replace(KVM, arch="i686"), 0),
    ],
)
def test_pci_express_ports(properties, host, count):
    """As in Nova, where the operator says how many, of machines that have them."""
    properties = {**properties, "hw_cdrom_bus": "sata", "hw_disk_bus": "virtio"}
    without = guest_config(guest(properties, config_drive=None), host)
    assert not [c for c in without.controllers if c.type == "pci"]
    config = guest_config(guest(properties, config_drive=None, options={"num_pcie_ports": 3}), host)
    found = [(c.index, c.model) for c in config.controllers if c.type == "pci"]
    assert found == ([(0, "pcie-root"), *((n, "pcie-root-port") for n in (1, 2, 3))] if count else [])


def test_the_iso_config_drive_of_vfat_is_a_disk():
    config = guest_config(guest(config_drive_format="vfat"), KVM)
    assert (config.disks[1].device, config.disks[1].target_dev, config.disks[1].readonly) == ("disk", "vdz", False)
    assert len(guest_config(guest(config_drive=None), KVM).disks) == 1


def test_several_bootable_disks_have_an_order_each():
    bdms = (BlockDevice("blank", "local", 1),)
    config = guest_config(guest(ephemeral=1, bdms=bdms), KVM)
    assert config.os.boot_devs == ()
    assert [d.boot_order for d in config.disks] == [1, 2, None]
    config = guest_config(guest(), KVM)
    assert [d.boot_order for d in config.disks] == [None, None]


def planned(**more):
    return PlannedDisk("v", "volume", "/dev/vda", "virtio", boot_index=0, **more)


@pytest.mark.parametrize(
    ("disk", "options", "expected"),
    [
        (planned().placed("/dev/sdb", "raw", "block"), {}, ("block", "raw", "none", "native", "/dev/sdb")),
        (planned().placed("/a", "qcow2"), {}, ("file", "qcow2", "writeback", None, "/a")),
        (planned().placed("/a", "raw"), {"disk_cachemodes": {"file": "none"}}, ("file", "raw", "none", None, "/a")),
        (
            planned().placed("/dev/sdb", "raw", "block"),
            {"disk_cachemodes": {"block": "writeback"}},
            ("block", "raw", "writeback", "threads", "/dev/sdb"),
        ),
        (planned(cache="unsafe").placed("/a", "raw"), {}, ("file", "raw", "unsafe", None, "/a")),
        (planned(shareable=True).placed("/a", "raw"), {}, ("file", "raw", "none", None, "/a")),
        (planned(shareable=True, cache="writeback").placed("/a", "raw"), {}, ("file", "raw", "none", None, "/a")),
    ],
)
def test_disks_by_backend(disk, options, expected):
    config = guest_config(guest(disks=[disk], options=options), KVM).disks[0]
    assert (
        config.type,
        config.driver_type,
        config.driver_cache,
        config.driver_io,
        config.source_path,
    ) == expected


def test_network_storage():
    disk = planned(
        source="network",
        driver_format="raw",
        serial="s",
        connection={
            "protocol": "iscsi",
            "name": "iqn.2010-10.org.openstack:volume-1/1",
            "hosts": [{"name": "192.0.2.1", "port": 3260}],
            "auth": {"username": "u", "secret_type": "iscsi", "secret_uuid": UUID},
        },
    )
    xml = guest_xml(guest(disks=[disk]), KVM)
    assert_valid(xml)
    node = etree.fromstring(xml).find("devices/disk")
    assert (node.get("type"), node.find("source").get("protocol"), node.findtext("serial")) == ("network", "iscsi", "s")
    assert node.find("source/host").get("port") == "3260"


@pytest.mark.parametrize(
    ("specs", "text"),
    [
        ({"quota:disk_read_bytes_sec": "1000"}, "<read_bytes_sec>1000</read_bytes_sec>"),
        ({"quota:cpu_shares": "512"}, "<shares>512</shares>"),
        ({"quota:vif_inbound_average": "125"}, '<inbound average="125"/>'),
        ({"hw:watchdog_action": "reset"}, '<watchdog model="i6300esb" action="reset"/>'),
        ({"hw:boot_menu": "true"}, '<bootmenu enable="yes"/>'),
        ({"hw_rng:rate_bytes": "9", "hw_rng:rate_period": "5"}, '<rate bytes="9" period="5"/>'),
        ({"hide_hypervisor_id": "true"}, '<hidden state="on"/>'),
        ({"hw:hide_hypervisor_id": "true"}, '<hidden state="on"/>'),
        ({"hw:pmu": "true"}, '<pmu state="on"/>'),
    ],
)
def test_extra_specs_that_shape_the_guest(specs, text):
    assert text in guest_xml(guest(specs=specs), KVM)
    assert text not in guest_xml(guest(), KVM)


@pytest.mark.parametrize(
    ("properties", "text"),
    [
        ({"hw_vif_model": "e1000"}, '<model type="e1000"/>'),
        ({"hw_video_model": "cirrus"}, '<model type="cirrus"/>'),
        ({"hw_qemu_guest_agent": "yes"}, 'name="org.qemu.guest_agent.0"'),
        ({"hw_pointer_model": "usbtablet"}, '<input type="tablet" bus="usb"/>'),
        ({"hw_input_bus": "virtio"}, '<input type="tablet" bus="virtio"/>'),
        ({"hw_input_bus": "usb"}, '<input type="keyboard" bus="usb"/>'),
        ({"hw_watchdog_action": "poweroff"}, 'action="poweroff"'),
        ({"hw_time_hpet": "true"}, '<timer name="hpet" present="yes"/>'),
        ({"hw_pmu": "false"}, '<pmu state="off"/>'),
        ({"hw_scsi_model": "lsilogic", "hw_disk_bus": "scsi"}, 'model="lsilogic"'),
    ],
)
def test_image_properties_that_shape_the_guest(properties, text):
    assert text in guest_xml(guest(properties), KVM)
    assert text not in guest_xml(guest(), KVM)


def test_multiqueue():
    properties = {"hw_vif_multiqueue_enabled": "true"}
    assert guest_config(guest(properties, vcpus=4), KVM).interfaces[0].driver_queues == 4
    assert guest_config(guest(properties, vcpus=64), KVM).interfaces[0].driver_queues == 8
    assert guest_config(guest(properties), KVM).interfaces[0].driver_queues is None
    assert guest_config(guest(dict(properties, hw_vif_model="e1000"), vcpus=4), KVM).interfaces[0].driver_queues is None


def test_rng():
    assert guest_config(guest(specs={"hw_rng:allowed": "false"}), KVM).rngs == ()
    allowed = guest({"hw_rng_model": "virtio"}, {"hw_rng:allowed": "True"})
    assert guest_config(allowed, KVM).rngs[0].backend == "/dev/urandom"
    assert guest_config(guest(options={"rng_dev_path": "/dev/hwrng"}), KVM).rngs[0].backend == "/dev/hwrng"


def test_without_vnc():
    config = guest_config(guest(options={"vnc_enabled": False}), KVM)
    assert config.graphics == () and config.videos == ()


def test_video_ram_within_the_flavors_limit():
    properties = {"hw_video_model": "qxl", "hw_video_ram": "64"}
    specs = {"hw_video:ram_max_mb": "64"}
    assert guest_config(guest(properties, specs), KVM).videos[0].vram == 64 * 1024
    assert guest_config(guest({"hw_video_ram": "0"}), KVM).videos[0].vram is None
    for permitted in ({"hw_video:ram_max_mb": "32"}, {}):  # G9: a flavor without a maximum permits none
        with pytest.raises(errors.RequestedVRamTooHigh):
            guest_config(guest(properties, permitted), KVM)


# --- refused


@pytest.mark.parametrize(
    ("error", "changes"),
    [
        (errors.InvalidInput, {"name": "../web"}),
        (errors.InvalidInput, {"name": ""}),
        (errors.InvalidInput, {"name": "a" * 201}),
        (errors.InvalidInput, {"uuid": "web"}),
        (errors.InvalidInput, {"memory_mb": 0}),
        (errors.InvalidInput, {"vcpus": 0}),
        (errors.InvalidInput, {"config_drive": "disk.config"}),
        (errors.InvalidInput, {"console_log": "console.log"}),
        (errors.InvalidInput, {"config_drive_format": "tar"}),
        (errors.InvalidInput, {"options": {"vnc_listen": "everywhere"}}),
        (errors.InvalidInput, {"options": {"cpu_mode": "fast"}}),
        (errors.InvalidInput, {"options": {"cpu_mode": "custom"}}),
        (errors.InvalidInput, {"options": {"disk_cachemodes": {"file": "fast"}}}),
        (errors.InvalidInput, {"disks": [planned()]}),
        (errors.InvalidInput, {"disks": [planned(path="/a")]}),
        (errors.InvalidInput, {"disks": [planned().placed("disk", "raw")]}),
        (errors.InvalidInput, {"disks": [planned(source="network", driver_format="raw")]}),
        (errors.InvalidInput, {"disks": [planned().placed("/a", "raw", "dir")]}),
        (errors.InvalidInput, {"display_name": "a\x07b"}),
        (errors.InvalidInput, {"specs": {"quota:disk_read_bytes_sec": "fast"}}),
        (errors.InvalidInput, {"specs": {"hw_rng:rate_bytes": "fast"}}),
        (errors.InvalidInput, {"specs": {"os:secure_boot": "maybe"}}),
        (errors.InvalidInput, {"properties": {"hw_video_ram": "much"}}),
        (errors.UnsupportedHardware, {"properties": {"hw_input_bus": "ps2"}}),
        (errors.UnsupportedHardware, {"properties": {"hw_vif_model": "ne9000"}}),
        (errors.UnsupportedHardware, {"properties": {"hw_video_model": "matrox"}}),
        (errors.UnsupportedHardware, {"properties": {"hw_rng_model": "dice"}}),
        (errors.UnsupportedHardware, {"properties": {"hw_watchdog_action": "bark"}}),
        (errors.UnsupportedHardware, {"properties": {"hw_firmware_type": "coreboot"}}),
        (errors.UnsupportedHardware, {"properties": {"hw_cdrom_bus": "floppy"}}),
        (errors.UnsupportedHardware, {"properties": {"hw_scsi_model": "adaptec", "hw_disk_bus": "scsi"}}),
        (errors.UnsupportedHardware, {"properties": {"hw_architecture": "aarch64"}}),
        (errors.UnsupportedHardware, {"properties": {"os_secure_boot": "required"}}),
        (
            errors.UnsupportedHardware,
            {"properties": {"os_secure_boot": "required", "hw_firmware_type": "uefi"}},
        ),
        (errors.HostLacksHardware, {"properties": {"hw_machine_type": "pc-i440fx-trusty"}}),
        (errors.VirtualInterfaceCreateException, {"network_info": (vif(0, "ovs"),)}),
        (errors.VirtualInterfaceCreateException, {"network_info": (vif(source=""),)}),
        (errors.VirtualInterfaceCreateException, {"network_info": (vif(0, "bridge", source=""),)}),
    ],
)
def test_refused(error, changes):
    with pytest.raises(error) as caught:
        guest_xml(guest(**changes), KVM)
    assert caught.value.code == error.__name__
    assert caught.value.retryable is (error is errors.HostLacksHardware)


def test_ide_disks_on_a_q35_of_the_host():
    """The plan was made before the host and its machine type were known."""
    disks = [planned().placed("/a", "raw")]
    disks = [dataclasses.replace(disks[0], device_name="/dev/hda", disk_bus="ide")]
    with pytest.raises(errors.UnsupportedHardware):
        guest_config(guest(disks=disks, options={"machine_type": "q35"}), KVM)


def test_a_host_without_uefi_is_another_hosts_chance():
    with pytest.raises(errors.HostLacksHardware) as caught:
        guest_config(guest({"hw_firmware_type": "uefi"}), dataclasses.replace(KVM, uefi=False))
    assert caught.value.retryable and "ovmf" in caught.value.remedy


@pytest.mark.parametrize("arch", ["x86_64", "amd64", "i686"])
def test_architectures_that_run(arch):
    assert guest_config(guest({"hw_architecture": arch}), KVM).os.arch == "x86_64"


# --- libvirt's own schema


@pytest.mark.parametrize(
    ("host", "machine", "firmware", "drive", "bus"),
    list(
        itertools.product(
            (KVM, TCG), ("pc", "q35"), ("bios", "uefi"), ("iso9660", "vfat"), ("virtio", "scsi", "sata", "usb")
        )
    ),
)
def test_every_combination_is_valid_and_reads_back(host, machine, firmware, drive, bus):
    spec = guest(
        {"hw_machine_type": machine, "hw_firmware_type": firmware, "hw_disk_bus": bus},
        swap=1,
        ephemeral=1,
        config_drive_format=drive,
        network_info=(vif(0), vif(1, "bridge", None, "br0")),
    )
    xml = guest_xml(spec, host)
    assert_valid(xml)
    assert parse_domain(xml) == guest_config(spec, host)


@pytest.mark.parametrize(
    "more",
    [
        {"properties": {"os_type": "windows", "hw_machine_type": "q35", "img_hide_hypervisor_id": "true"}},
        {"properties": {"hw_input_bus": "virtio"}},
        {"properties": {"hw_firmware_type": "uefi", "hw_machine_type": "q35", "os_secure_boot": "required"}},
        {
            "properties": {
                "hw_qemu_guest_agent": "yes",
                "hw_watchdog_action": "reset",
                "hw_pointer_model": "usbtablet",
                "hw_boot_menu": "true",
                "hw_pmu": "true",
                "img_hide_hypervisor_id": "true",
                "hw_vif_multiqueue_enabled": "true",
            },
            "vcpus": 4,
        },
        {
            "specs": {
                "quota:disk_read_bytes_sec": "1000",
                "quota:disk_write_iops_sec": "10",
                "quota:disk_write_iops_sec_max": "100",
                "quota:cpu_shares": "512",
                "quota:cpu_period": "100000",
                "quota:cpu_quota": "50000",
                "quota:vif_inbound_average": "125",
                "quota:vif_outbound_average": "125",
                "quota:vif_outbound_peak": "250",
                "quota:vif_outbound_burst": "250",
                "hw:cpu_sockets": "1",
            }
        },
        {"specs": {"quota:vif_%s" % name: "0" for name in VIF_LIMITS}},
        {"specs": {"quota:cpu_shares": "0", "quota:cpu_period": "0", "quota:cpu_quota": "-5"}},
        {"options": {"cpu_mode": "custom", "cpu_model": "Nehalem", "cpu_model_extra_flags": ("aes", "-vmx")}},
        {"options": {"cpu_mode": "maximum", "vnc_listen": "::1", "vnc_keymap": "de", "disk_discard": "unmap"}},
        {"network_info": (), "config_drive": None, "console_log": None, "options": {"vnc_enabled": False}},
        {"display_name": "<&>\"' \u00e4\u4f60"},
    ],
)
def test_more_guests_that_are_valid(more):
    for host in (KVM, TCG):
        xml = guest_xml(guest(**more), host)
        assert_valid(xml)
        assert parse_domain(xml) == guest_config(guest(**more), host)


@pytest.mark.parametrize(
    "specs, properties, number",
    [
        ({}, {}, 1),
        ({"hw:serial_port_count": "0"}, {"hw_serial_port_count": ""}, 1),
        ({"hw:serial_port_count": "4"}, {}, 4),
        ({}, {"hw_serial_port_count": 3}, 3),
        ({"hw:serial_port_count": "4"}, {"hw_serial_port_count": "2"}, 2),
    ],
)
def test_serial_ports(specs, properties, number):
    """source: Nova's hardware.get_number_of_serial_ports"""
    xml = guest_xml(guest(properties, specs), KVM)
    assert_valid(xml)
    root = etree.fromstring(xml)
    assert [s.find("target").get("port") for s in root.findall("devices/serial")] == [str(n) for n in range(number)]
    assert [s.find("log") is not None for s in root.findall("devices/serial")] == [True] + [False] * (number - 1)
    assert len(root.findall("devices/console")) == 1


def test_serial_ports_of_a_machine_that_has_one():
    with pytest.raises(errors.HostLacksHardware, match="machines of aarch64 have one"):
        guest_xml(guest(specs={"hw:serial_port_count": "2"}), ARM)


def test_a_cpu_model_that_the_host_does_not_have():
    host = dataclasses.replace(KVM, cpu_models=("EPYC", "Skylake-Client"))
    custom = {"cpu_mode": "custom", "cpu_model": "skylake-client"}
    with pytest.raises(errors.HostLacksHardware, match="no CPU model skylake-client") as caught:
        guest_xml(guest(options=custom), host)
    assert "Did you mean Skylake-Client?" in caught.value.remedy
    for options, on in (
        ({**custom, "cpu_mode": "host-model"}, host),
        (custom, KVM),
        ({**custom, "cpu_model": "EPYC"}, host),
    ):
        assert_valid(guest_xml(guest(options=options), on))


def test_a_cpu_feature_that_the_host_does_not_know():
    host = dataclasses.replace(KVM, unknown_cpu_flags=("nosuch",))
    for flags in (["nosuch"], ["-NoSuch"], ["pcid", "+nosuch "]):
        with pytest.raises(errors.HostLacksHardware, match="no CPU feature nosuch"):
            guest_xml(guest(options={"cpu_mode": "host-model", "cpu_model_extra_flags": flags}), host)
    assert_valid(guest_xml(guest(options={"cpu_mode": "none", "cpu_model_extra_flags": ["nosuch"]}), host))


def test_aarch64_is_valid():
    xml = guest_xml(guest(), ARM)
    assert_valid(xml)
    root = etree.fromstring(xml)
    assert root.find("os/type").get("machine") == "virt"
    assert root.find("features/apic") is None and root.findall("clock/timer") == []
    assert root.find("cpu").get("mode") == "host-passthrough"  # libvirt has no host-model there
    assert [d.find("target").get("bus") for d in root.findall("devices/disk")] == ["virtio", "scsi"]
