# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Verdicts on domains: each code of a refusal, and what an adopted domain becomes."""

from __future__ import annotations

import dataclasses
import typing as t

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core.adopt import verdict
from ansible_collections.bootflow.compute.plugins.module_utils.core.adopt.verdict import (
    Known,
    KnownInstance,
    Node,
    Verdict,
    Wishes,
    judge,
)
from ansible_collections.bootflow.compute.plugins.module_utils.core.networks.network import Network
from ansible_collections.bootflow.compute.plugins.module_utils.core.networks.subnet import Subnet
from ansible_collections.bootflow.compute.plugins.module_utils.core.resources.numa.topology import (
    HostCell,
    HostNUMATopology,
)
from ansible_collections.bootflow.compute.plugins.module_utils.core.resources.pci.device import PciDevice

UUID, OTHER, LEDGER = ("%d0000000-0000-4000-8000-000000000001" % number for number in (1, 2, 3))
MAC = "52:54:00:aa:bb:01"
SUBNET = Subnet("s1", "lan-v4", "10.9.0.0/24")
LAN = Network("n1", "lan", (SUBNET,), type="network", source="bf-lan")
PLAIN = Network("n2", "plain", (), type="bridge", source="br0")
DEVICE = PciDevice("0000:81:00.0", "8086", "1572")
CELLS = HostNUMATopology(
    (
        HostCell(0, frozenset(range(4)), 4096, pinned_cpus=frozenset((3,))),
        HostCell(1, frozenset(range(4, 8)), 4096),
    )
)
NODE = Node(
    limits=(8192, 100, 64),
    used=(512, 0, 0),
    machine_types={"x86_64": ["pc", "q35"]},
    devices={DEVICE.address: DEVICE},
    free_devices={DEVICE.address},
    numa=CELLS,
    whole_disks={"/dev/sdz"},
)
KNOWN = Known(LEDGER, {}, {}, {"h1": NODE, "h2": NODE})
WISHES = Wishes("default", (LAN, PLAIN))
INTERFACE = {"mac": MAC, "type": "network", "source": "bf-lan", "addresses": ["10.9.0.7"]}
DISK = {"target": "vda", "device": "disk", "type": "file", "source": "/x", "size": 3 * 1024**3 + 1, "local": True}
PLAIN_DOMAIN: dict[str, t.Any] = {
    "uuid": UUID,
    "name": "web",
    "arch": "x86_64",
    "machine": "pc",
    "memory_mb": 1024,
    "vcpus": 2,
    "disks": [DISK],
    "interfaces": [INTERFACE],
    "pci": [],
    "other_devices": [],
    "pins": [],
    "agent": False,
    "made_by": "",
    "ledger": "",
    "power_state": 1,
    "persistent": True,
    "saved": False,
    "snapshots": 0,
    "jobs": [],
}


def domain(**fields: t.Any) -> dict[str, t.Any]:
    return {**PLAIN_DOMAIN, **fields}


def one(known: Known = KNOWN, wishes: Wishes = WISHES, **fields: t.Any) -> Verdict:
    return judge([("h1", domain(**fields))], known, wishes)[0]


def known(**fields: t.Any) -> Known:
    return dataclasses.replace(KNOWN, **fields)


def codes(found: Verdict) -> list[str]:
    assert (found.state == verdict.REFUSED) == bool(found.reasons)
    assert all(reason.message and reason.remedy for reason in found.reasons)
    return [reason.code for reason in found.reasons]


def test_what_a_domain_becomes() -> None:
    found = one(pci=[DEVICE.address], pins=[[0, 0], [1, 4]], snapshots=2)
    assert (found.state, found.vm_state, found.name, found.disk_gb, found.pci) == (
        "adopt",
        "active",
        "web",
        4,
        [DEVICE],
    )
    assert [(p.mac, p.network.name, p.addresses) for p in found.ports] == [(MAC, "lan", ((SUBNET, "10.9.0.7"),))]
    assert found.numa is not None and [(c.host_cell, c.memory_mb, dict(c.pinning)) for c in found.numa.cells] == [
        (0, 512, {0: 0}),
        (1, 512, {1: 4}),
    ]
    assert found.notes == ["2 snapshots of libvirt stay"]


@pytest.mark.parametrize(
    ("power_state", "saved", "vm_state"),
    [(1, False, "active"), (3, False, "paused"), (4, False, "stopped"), (4, True, "suspended"), (1, True, "active")],
)
def test_states(power_state: int, saved: bool, vm_state: str) -> None:
    found = one(power_state=power_state, saved=saved)
    assert (codes(found), found.vm_state, found.power_state) == ([], vm_state, power_state)


BUSY_NODE = dataclasses.replace(NODE, free_devices=())
INSTANCE = KnownInstance("old", "default", "h2", False)
REFUSED: list[tuple[str, Known, Wishes, dict[str, t.Any]]] = [
    ("no_report", known(nodes={}), WISHES, {}),
    ("made_by_bootflow", KNOWN, WISHES, {"made_by": "bootflow"}),
    ("made_by_nova", KNOWN, WISHES, {"made_by": "nova"}),
    ("other_ledger", KNOWN, WISHES, {"ledger": OTHER}),
    ("uuid_in_ledger", known(instances={UUID: INSTANCE}), WISHES, {}),
    ("uuid_in_ledger", known(instances={UUID: dataclasses.replace(INSTANCE, adopted=True)}), WISHES, {}),
    ("cleanup_due", known(cleanups={("h1", UUID)}), WISHES, {}),
    ("name_invalid", KNOWN, dataclasses.replace(WISHES, names={"web": " web"}), {}),
    ("name_invalid", KNOWN, dataclasses.replace(WISHES, names={UUID: "x" * 256}), {}),
    ("name_taken", known(names={"web": OTHER}), WISHES, {}),
    ("transient", KNOWN, WISHES, {"persistent": False}),
    ("power_state", KNOWN, WISHES, {"power_state": 6}),
    ("power_state", KNOWN, WISHES, {"power_state": 7}),
    ("power_state", KNOWN, WISHES, {"power_state": 0}),
    ("at_work", KNOWN, WISHES, {"jobs": ["a block job of disk vda"]}),
    ("disk_type", KNOWN, WISHES, {"disks": [{**DISK, "type": "nvme"}]}),
    ("disk_type", KNOWN, WISHES, {"disks": [{**DISK, "type": ""}]}),
    ("whole_disk", KNOWN, WISHES, {"disks": [{**DISK, "type": "block", "source": "/dev/sdz"}]}),
    ("device", KNOWN, WISHES, {"other_devices": ["host device usb"]}),
    ("pci_unknown", KNOWN, WISHES, {"pci": ["0000:01:00.0"]}),
    ("pci_taken", known(nodes={"h1": BUSY_NODE}), WISHES, {"pci": [DEVICE.address]}),
    ("cpu_taken", KNOWN, WISHES, {"pins": [[0, 2], [1, 3]]}),
    ("network_unknown", KNOWN, WISHES, {"interfaces": [{**INTERFACE, "source": "other"}]}),
    ("network_unknown", KNOWN, WISHES, {"interfaces": [{**INTERFACE, "type": "bridge"}]}),
    ("network_unknown", KNOWN, WISHES, {"interfaces": [{**INTERFACE, "type": "user", "source": ""}]}),
    ("mac_missing", KNOWN, WISHES, {"interfaces": [{**INTERFACE, "mac": ""}]}),
    ("mac_taken", known(macs={MAC: "port p1"}), WISHES, {}),
    ("mac_taken", KNOWN, WISHES, {"interfaces": [{**INTERFACE, "addresses": []}] * 2}),
    ("address_taken", known(addresses={("s1", "10.9.0.7"): "Port p1"}), WISHES, {}),
    ("machine_unknown", KNOWN, WISHES, {"machine": "pc-1.0"}),
    ("unreadable", KNOWN, WISHES, {"error": {"message": "the XML cannot be parsed"}}),
]


@pytest.mark.parametrize(("code", "ledger", "wishes", "fields"), REFUSED)
def test_refusals(code: str, ledger: Known, wishes: Wishes, fields: dict[str, t.Any]) -> None:
    assert codes(one(ledger, wishes, **fields)) == [code]


def test_each_code_has_a_test() -> None:
    assert {code for code, *_more in REFUSED} | {"uuid_on_two_hosts"} == set(verdict.REFUSALS)


def test_an_adopted_domain_is_left_alone() -> None:
    mine = dataclasses.replace(INSTANCE, adopted=True, host="h1")
    found = one(known(instances={UUID: mine}, macs={MAC: "port p1"}, names={"old": UUID}))
    assert (found.state, found.name, found.reasons) == (verdict.ADOPTED, "old", [])


def test_copies_on_two_hosts_are_both_refused() -> None:
    found = judge([("h1", domain()), ("h2", domain())], KNOWN, WISHES)
    assert [codes(v) for v in found] == [["uuid_on_two_hosts"]] * 2


def test_domains_of_one_run_never_share() -> None:
    """The first one has it."""
    second = domain(uuid=OTHER, pci=[DEVICE.address], pins=[[0, 1], [1, 2]])
    first = domain(pci=[DEVICE.address], pins=[[0, 0], [1, 1]])
    found = judge([("h1", first), ("h1", second)], KNOWN, WISHES)
    assert codes(found[0]) == []
    assert codes(found[1]) == ["name_taken", "pci_taken", "cpu_taken", "mac_taken"]
    found = judge([("h1", first), ("h2", {**second, "name": "db", "interfaces": []})], KNOWN, WISHES)
    assert [codes(v) for v in found] == [[], []], "devices and CPUs of another host are others"


def test_a_host_that_is_full_has_the_guest_nevertheless() -> None:
    found = judge([("h1", domain(memory_mb=8000)), ("h2", domain(uuid=OTHER, name="db", interfaces=[]))], KNOWN, WISHES)
    assert found[0].notes == ["h1 is beyond its limits: memory by 320 MiB; it takes no new instances"]
    assert found[1].notes == [] and [v.state for v in found] == ["adopt", "adopt"]


@pytest.mark.parametrize(
    ("pins", "note"),
    [
        ([[0, 1]], "its pins to CPUs of the host are not claimed: not every vCPU has a separate CPU"),
        ([[0, 1], [1, 1]], "its pins to CPUs of the host are not claimed: not every vCPU has a separate CPU"),
        ([[0, 1], [1, 99]], "its pins to CPUs of the host are not claimed: the host does not report these CPUs"),
    ],
)
def test_pins_that_are_no_claims(pins: list[list[int]], note: str) -> None:
    found = one(pins=pins)
    assert (found.numa, found.notes) == (None, [note])


def test_interfaces_and_addresses() -> None:
    other = dataclasses.replace(WISHES, other_interfaces=True)
    found = one(
        wishes=other,
        interfaces=[{**INTERFACE, "source": "x"}, {"mac": "", "type": "user", "source": "", "addresses": []}],
    )
    assert found.ports == [] and found.notes == ["interface %s gets no port" % MAC, "interface user gets no port"]
    found = one(interfaces=[{**INTERFACE, "addresses": ["192.0.2.1", "10.9.0.7", "10.9.0.7", "nonsense"]}])
    assert [a for _s, a in found.ports[0].addresses] == ["10.9.0.7"]
    assert found.notes == [
        "address %s is in no subnet of lan: it is not reserved" % a for a in ("192.0.2.1", "nonsense")
    ]
    found = one(interfaces=[{**INTERFACE, "type": "bridge", "source": "br0", "addresses": []}])
    assert found.ports[0].network is PLAIN and found.notes == ["the address of interface %s is not known" % MAC]


def test_disks_that_are_elsewhere_claim_nothing() -> None:
    remote = {**DISK, "type": "network", "local": False}
    drive = {**DISK, "device": "cdrom"}
    assert one(disks=[remote, drive]).disk_gb == 0
