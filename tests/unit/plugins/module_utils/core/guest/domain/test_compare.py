# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The comparison against what libvirt 9.0 really made of our XML (libvirt_9: rendered, and dumped inactive after define)."""

from __future__ import annotations

import pathlib

import pytest
from lxml import etree

from ansible_collections.bootflow.compute.plugins.module_utils.core.errors import InvalidInput
from ansible_collections.bootflow.compute.plugins.module_utils.core.guest.domain.compare import intent_differences

from .schema import assert_valid
from .texts import parse_domain

FOLDER = pathlib.Path(__file__).parent / "libvirt_9"
CASES = sorted(path.name.split(".")[0] for path in FOLDER.glob("*.wanted.xml"))


def texts(case):
    return (FOLDER / (case + ".wanted.xml")).read_text(), (FOLDER / (case + ".actual.xml")).read_text()


def changed(xml, change):
    root = etree.fromstring(xml)
    change(root)
    return etree.tostring(root, encoding="unicode")


def test_there_are_cases():
    assert {"plain", "q35", "secure", "kvm_windows", "qemu_volumes"} <= set(CASES)


@pytest.mark.parametrize("case", CASES)
def test_what_libvirt_filled_in_is_no_difference(case):
    wanted, actual = texts(case)
    assert wanted != actual
    assert intent_differences(wanted, actual) == []


@pytest.mark.parametrize("case", CASES)
def test_the_same_is_the_same(case):
    wanted, actual = texts(case)
    assert intent_differences(wanted, wanted) == []
    assert intent_differences(actual, actual) == []
    assert_valid(wanted)


def every_setting(xml):
    """(path, description, change) for each attribute and each text of an XML."""
    root = etree.fromstring(xml)
    tree = root.getroottree()
    for node in root.iter(etree.Element):
        path = tree.getpath(node)
        for name in node.attrib:
            yield path, "@" + name
        if node.text and node.text.strip() and not len(node):
            yield path, "text"


# libvirt takes these for the same, or we say that they are no reason to define again
EQUIVALENT = ("creationTime", "package")


@pytest.mark.parametrize("case", ["plain", "secure", "agent_etc", "kvm_windows", "qemu_volumes", "quota"])
def test_every_single_change_of_the_intent_is_seen(case):
    wanted, actual = texts(case)
    seen = 0
    for path, what in every_setting(wanted):
        root = etree.fromstring(wanted)
        namespaces = {"nova": "http://openstack.org/xmlns/libvirt/nova/1.1"}
        (node,) = root.getroottree().xpath(path, namespaces=namespaces)
        if etree.QName(node).localname in EQUIVALENT:
            continue
        if what == "@unit":
            continue  # see test_units
        if what == "text":
            node.text = "4711" if node.text.strip().isdigit() else node.text.strip() + "x"
        else:
            value = node.get(what[1:])
            node.set(what[1:], {"yes": "no", "no": "yes", "on": "off", "off": "on"}.get(value, value + "9"))
        differences = intent_differences(etree.tostring(root, encoding="unicode"), actual)
        assert differences, "a change of %s %s went unseen" % (path, what)
        seen += 1
    assert seen > 40


@pytest.mark.parametrize(
    ("xpath", "expected"),
    [
        ("devices/disk[2]", "devices/disk[vdb]: wanted, but missing"),
        ("devices/interface", "devices/interface[fa:16:3e:00:01:00]: wanted, but missing"),
        ("devices/graphics", "devices/graphics[vnc]: wanted, but missing"),
        ("devices/rng", "devices/rng: wanted, but missing"),
        ("features/acpi", "features/acpi: wanted, but missing"),
        ("clock/timer[@name='rtc']", "clock/timer[rtc]: wanted, but missing"),
        ("metadata", "metadata: wanted, but missing"),
        ("sysinfo", "sysinfo: wanted, but missing"),
        ("devices/serial/log", "devices/serial/log: wanted, but missing"),
    ],
)
def test_what_is_gone_from_the_definition(xpath, expected):
    wanted, actual = texts("plain")

    def change(root):
        (node,) = root.xpath(xpath)
        node.getparent().remove(node)

    assert intent_differences(wanted, changed(actual, change)) == [expected]


@pytest.mark.parametrize(
    ("parent", "addition", "expected"),
    [
        (
            "devices",
            "<disk type='file'><source file='/etc/shadow'/><target dev='vdq' bus='virtio'/></disk>",
            "devices/disk[vdq]: not wanted, but there",
        ),
        (
            "devices",
            "<interface type='bridge'><mac address='52:54:00:00:00:01'/><source bridge='br0'/></interface>",
            "devices/interface[52:54:00:00:00:01]: not wanted, but there",
        ),
        ("devices", "<hostdev mode='subsystem' type='pci'/>", "devices/hostdev: not wanted, but there"),
        ("devices", "<filesystem type='mount'/>", "devices/filesystem: not wanted, but there"),
        ("devices", "<rng model='virtio'/>", "devices/rng: not wanted, but there"),
        ("devices/disk", "<shareable/>", "devices/disk[vda]/shareable: not wanted, but there"),
        (
            "devices/disk",
            "<iotune><total_iops_sec>1</total_iops_sec></iotune>",
            "devices/disk[vda]/iotune: not wanted, but there",
        ),
        (".", "<cputune><shares>2</shares></cputune>", "cputune: not wanted, but there"),
        (".", "<memoryBacking><hugepages/></memoryBacking>", "memoryBacking: not wanted, but there"),
        ("os", "<kernel>/boot/vmlinuz</kernel>", "os/kernel: not wanted, but there"),
        ("os", "<boot dev='network'/>", "os/boot: not wanted, but there"),
        # libvirt's own doings
        ("devices", "<audio id='1' type='none'/>", None),
        ("devices", "<input type='mouse' bus='ps2'/>", None),
        ("devices", "<controller type='usb' index='0' model='piix3-uhci'/>", None),
        ("devices", "<panic model='isa'/>", None),
        ("devices/disk", "<backingStore/>", None),
        (
            "devices/disk",
            "<backingStore type='file'><format type='raw'/><source file='/x'/><backingStore/></backingStore>",
            None,  # where libvirt has found it out
        ),
        ("devices/disk", "<alias name='virtio-disk0'/>", None),
        ("devices/interface", "<link state='up'/>", None),
        (".", "<resource><partition>/machine</partition></resource>", None),
        (".", "<seclabel type='none'/>", None),
    ],
)
def test_what_the_definition_has_beyond_the_intent(parent, addition, expected):
    wanted, actual = texts("plain")

    def change(root):
        root.find(parent).append(etree.fromstring(addition))

    differences = intent_differences(wanted, changed(actual, change))
    assert differences == ([] if expected is None else [expected])


@pytest.mark.parametrize(
    ("wanted", "actual", "same"),
    [
        ("<memory unit='MiB'>2</memory>", "<memory unit='KiB'>2048</memory>", True),
        ("<memory unit='GiB'>1</memory>", "<memory unit='KiB'>1048576</memory>", True),
        ("<memory>2048</memory>", "<memory unit='KiB'>2048</memory>", True),
        ("<memory unit='MiB'>2</memory>", "<memory unit='KiB'>2049</memory>", False),
        ("<memory unit='MB'>1</memory>", "<memory unit='b'>1000000</memory>", True),
    ],
)
def test_units(wanted, actual, same):
    result = intent_differences("<domain>%s</domain>" % wanted, "<domain>%s</domain>" % actual)
    assert (result == []) is same


@pytest.mark.parametrize(
    ("wanted", "actual", "same"),
    [
        ("pc", "pc-i440fx-7.2", True),
        ("pc", "pc-q35-7.2", False),
        ("q35", "pc-q35-7.2", True),
        ("q35", "pc-i440fx-7.2", False),
        ("virt", "virt-7.2", True),
        ("pc-i440fx-6.2", "pc-i440fx-7.2", False),
        ("pc-q35-7.2", "pc-q35-7.2", True),
    ],
)
def test_machine_aliases(wanted, actual, same):
    xml = "<domain><os><type machine='%s'>hvm</type></os></domain>"
    assert (intent_differences(xml % wanted, xml % actual) == []) is same


def test_mac_and_uuid_in_any_case_and_devices_in_any_order():
    disk = "<disk><target dev='%s'/></disk>"
    wanted = (
        "<domain><uuid>AB0806ab-531d-6134-5def-c5b495529289</uuid><devices><interface><mac address='FA:16:3E:00:00:01'/>"
        "</interface>%s%s</devices></domain>"
    ) % (disk % "vda", disk % "vdb")
    actual = (
        "<domain><uuid>ab0806ab-531d-6134-5def-c5b495529289</uuid><devices>%s%s"
        "<interface><mac address='fa:16:3e:00:00:01'/></interface></devices></domain>"
    ) % (disk % "vdb", disk % "vda")
    assert intent_differences(wanted, actual) == []


def test_lines_name_place_and_values():
    wanted, actual = texts("plain")
    actual = actual.replace("cache='writeback'", "cache='unsafe'", 1)
    assert intent_differences(wanted, actual) == ["devices/disk[vda]/driver/@cache: wanted 'writeback', is 'unsafe'"]
    actual = texts("plain")[1].replace("<vcpu placement='static'>1</vcpu>", "<vcpu placement='static'>2</vcpu>")
    assert intent_differences(wanted, actual) == ["vcpu: wanted '1', is '2'"]


def test_another_creation_time_is_no_other_intent():
    wanted, actual = texts("plain")
    assert "2026-01-01 00:00:00" in wanted
    assert intent_differences(wanted.replace("2026-01-01", "2027-02-02"), actual) == []


def test_another_release_of_ours_is_no_other_intent():
    xml = "<domain><sysinfo type='smbios'><system><entry name='version'>%s</entry><entry name='serial'>%s</entry></system></sysinfo></domain>"
    assert intent_differences(xml % ("1.0.0", "a"), xml % ("0.1.0", "a")) == []
    assert intent_differences(xml % ("1.0.0", "a"), xml % ("0.1.0", "b"))


def test_no_password_in_the_lines():
    wanted = "<domain><devices><graphics type='vnc' passwd='s3cret'/></devices></domain>"
    actual = "<domain><devices><graphics type='vnc' passwd='other'/></devices></domain>"
    (line,) = intent_differences(wanted, actual)
    assert "s3cret" not in line and "other" not in line


@pytest.mark.parametrize("case", CASES)
def test_libvirts_own_xml_can_be_read(case):
    wanted, actual = texts(case)
    ours, theirs = parse_domain(wanted), parse_domain(actual)
    assert (ours.uuid, ours.name, ours.memory, ours.vcpus) == (theirs.uuid, theirs.name, theirs.memory, theirs.vcpus)
    assert [d.source_path for d in ours.disks] == [d.source_path for d in theirs.disks]
    assert ours.metadata == theirs.metadata


def test_what_is_no_xml():
    with pytest.raises(InvalidInput):
        intent_differences("<domain/>", "<domain")


@pytest.mark.parametrize(
    ("wanted", "actual", "same"),
    [
        ("<backingStore/>", "<backingStore/>", True),
        ("<backingStore/>", "", False),
        (
            "<backingStore/>",
            "<backingStore type='file'><format type='raw'/><source file='/b'/><backingStore/></backingStore>",
            False,
        ),
        (
            "<backingStore type='file'><format type='raw'/><source file='/b'/><backingStore/></backingStore>",
            "<backingStore type='file' index='2'><format type='raw'/><source file='/b' index='2'/><backingStore/></backingStore>",
            True,
        ),
        (
            "<backingStore type='file'><format type='raw'/><source file='/b'/><backingStore/></backingStore>",
            "<backingStore type='file'><format type='raw'/><source file='/a'/><backingStore/></backingStore>",
            False,
        ),
    ],
)
def test_the_files_below_a_disk(wanted, actual, same):
    disk = "<domain><devices><disk><source file='/d'/>%s<target dev='vda'/></disk></devices></domain>"
    assert (not intent_differences(disk % wanted, disk % actual)) is same
