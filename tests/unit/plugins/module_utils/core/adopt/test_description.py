# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Descriptions of domains from XML of other software: what is read, and what is refused."""

from __future__ import annotations

import typing as t

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.bootflow.compute.plugins.module_utils.core.adopt import description
from ansible_collections.bootflow.compute.plugins.module_utils.core.adopt.description import describe
from ansible_collections.bootflow.compute.plugins.module_utils.core.answers import answer
from ansible_collections.bootflow.compute.plugins.module_utils.core.errors import InvalidAnswer, InvalidInput

UUID = "a0000000-0000-4000-8000-000000000001"
LEDGER = "10000000-0000-4000-8000-000000000001"
BASE = {
    "name": "<name>web</name>",
    "uuid": "<uuid>%s</uuid>" % UUID,
    "memory": "<memory>2097152</memory>",
    "vcpu": "<vcpu>2</vcpu>",
    "more": "",
    "devices": "",
}
NOVA = "<nova:instance xmlns:nova='http://openstack.org/xmlns/libvirt/nova/1.1'/>"
OURS = "<sysinfo><system><entry name='manufacturer'>bootflow.compute</entry></system></sysinfo>"


def xml(**parts: str) -> str:
    given_parts = {**BASE, **parts}
    given_parts["devices"] = "<devices>%s</devices>" % given_parts["devices"]
    return "<domain type='kvm'>%s</domain>" % "".join(given_parts.values())


def described(**parts: str) -> dict[str, t.Any]:
    return describe(xml(**parts))


def test_a_plain_domain() -> None:
    assert described(more="<os><type arch='x86_64' machine='pc-q35-7.2'>hvm</type></os>") == {
        "uuid": UUID,
        "name": "web",
        "arch": "x86_64",
        "machine": "pc-q35-7.2",
        "memory_mb": 2048,
        "vcpus": 2,
        "disks": [],
        "interfaces": [],
        "pci": [],
        "other_devices": [],
        "pins": [],
        "agent": False,
        "made_by": "",
        "ledger": "",
    }


@pytest.mark.parametrize(
    ("memory", "expected"),
    [
        ("<memory>1</memory>", 1),
        ("<memory unit='KiB'>1025</memory>", 2),
        ("<memory unit='MiB'>64</memory>", 64),
        ("<memory unit='GB'>1</memory>", 954),
        ("<memory unit='G'>1</memory>", 1024),
        ("<memory unit='b'>1048576</memory>", 1),
    ],
)
def test_units_of_memory(memory: str, expected: int) -> None:
    assert described(memory=memory)["memory_mb"] == expected


@pytest.mark.parametrize(
    ("device", "expected"),
    [
        (
            "<disk type='block' device='disk'><source dev='/dev/vg/web'/><target dev='sda'/></disk>",
            {"target": "sda", "device": "disk", "type": "block", "source": "/dev/vg/web"},
        ),
        (
            "<disk type='network'><source protocol='rbd' name='vms/web'/><target dev='vda'/></disk>",
            {"target": "vda", "device": "disk", "type": "network", "source": "vms/web"},
        ),
        (
            "<disk type='vhostuser'><source path='/s'/><target dev='vda'/></disk>",
            {"target": "vda", "device": "disk", "type": "vhostuser", "source": ""},
        ),
        ("<disk type='file' device='cdrom'><target dev='hda'/></disk>", None),
    ],
)
def test_disks(device: str, expected: dict[str, t.Any] | None) -> None:
    assert described(devices=device)["disks"] == ([] if expected is None else [expected])


def test_interfaces_devices_pins_and_marks() -> None:
    found = described(
        devices="<interface type='bridge'><mac address='52:54:00:AA:BB:01'/><source bridge='br0'/></interface>"
        "<interface type='user'/>"
        "<hostdev type='pci'><source><address domain='0x0000' bus='0x81' slot='0x00' function='0x1'/></source></hostdev>"
        "<hostdev type='usb'/><tpm><backend type='passthrough'/></tpm>"
        "<channel type='unix'><target type='virtio' name='org.qemu.guest_agent.0' state='connected'/></channel>",
        more="<cputune><vcpupin vcpu='0' cpuset='4'/><vcpupin vcpu='1' cpuset='5-6'/></cputune>"
        "<metadata><o:owner xmlns:o='urn:bootflow:compute:owner:1' ledger='%s'/></metadata>" % LEDGER,
    )
    assert found["interfaces"] == [
        {"mac": "52:54:00:aa:bb:01", "type": "bridge", "source": "br0"},
        {"mac": "", "type": "user", "source": ""},
    ]
    assert (found["pci"], found["other_devices"]) == (["0000:81:00.1"], ["host device usb", "TPM of the host"])
    assert (found["pins"], found["agent"], found["ledger"]) == ([[0, 4]], True, LEDGER)


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ("", ""),
        (OURS, ""),
        ("<metadata>%s</metadata>" % NOVA, "nova"),
        ("<metadata>%s</metadata>%s" % (NOVA, OURS), "bootflow"),
    ],
)
def test_who_made_it(more: str, expected: str) -> None:
    assert described(more=more)["made_by"] == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "nonsense",
        "<network/>",
        xml(uuid=""),
        xml(uuid="<uuid>../../etc</uuid>"),
        xml(name=""),
        xml(name="<name>%s</name>" % ("x" * 256)),
        xml(name="<name>a&#x202e;b</name>"),
        xml(memory=""),
        xml(memory="<memory>-1</memory>"),
        xml(memory="<memory unit='furlong'>1</memory>"),
        xml(memory="<memory unit='EiB'>9000000000</memory>"),
        xml(vcpu="<vcpu>many</vcpu>"),
        xml(vcpu="<vcpu>4097</vcpu>"),
        xml(devices="<interface><mac address='nothing'/></interface>"),
        xml(devices="<hostdev type='pci'><source><address bus='0x81' slot='0x99'/></source></hostdev>"),
        xml(devices="<hostdev type='pci'><source><address bus='abc'/></source></hostdev>"),
        xml(devices="<disk/>" * (description.MOST_DEVICES + 1)),
        "<!DOCTYPE domain [<!ENTITY a SYSTEM 'file:///etc/passwd'>]><domain><name>&a;</name></domain>",
        xml(more="<description>%s</description>" % ("x" * description.MOST_BYTES)),
    ],
)
def test_what_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput):
        describe(text)


words = st.text(alphabet=st.characters(exclude_categories=("Cs", "Cc"), exclude_characters="<&'"), max_size=20)
pieces = st.sampled_from(
    [
        "<disk type='%s'><source file='%s'/></disk>",
        "<interface type='%s'><mac address='%s'/></interface>",
        "<hostdev type='%s' x='%s'/>",
    ]
)


@given(st.lists(st.tuples(pieces, words, words), max_size=5), words, st.integers(-5, 2**70), words)
def test_strange_xml_is_described_in_the_shape_of_an_answer_or_refused(
    devices: list[tuple[str, str, str]], name: str, number: int, cpus: str
) -> None:
    text = xml(
        devices="".join(piece % (one, other) for piece, one, other in devices),
        name="<name>%s</name>" % name,
        memory="<memory>%d</memory>" % number,
        more="<cputune><vcpupin vcpu='%s' cpuset='%s'/></cputune>" % (name, cpus),
    )
    try:
        found = describe(text)
    except InvalidInput:
        return
    for disk in found["disks"]:
        disk.update(size=0, local=False)
    for interface in found["interfaces"]:
        interface["addresses"] = []
    more = {"power_state": 1, "persistent": True, "saved": False, "snapshots": 0, "jobs": []}
    result = {"changed": False, "domains": [{**found, **more}], "outcomes": {}}
    answer.check("domain_adoption", "h1", result)
    del result["domains"][0]["vcpus"]  # type: ignore[attr-defined]
    with pytest.raises(InvalidAnswer):
        answer.check("domain_adoption", "h1", result)


@given(st.binary(max_size=200), st.integers(0, 200))
def test_any_text_is_refused_or_described(noise: bytes, place: int) -> None:
    whole = xml().encode()
    text = (whole[:place] + noise + whole[place:]).decode("utf-8", "replace")
    try:
        assert describe(text)["uuid"] == UUID or noise
    except InvalidInput:
        pass
