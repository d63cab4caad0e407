# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Domains of other software as hosts describe them: what libvirt says besides the XML, and where addresses are known from."""

from __future__ import annotations

import typing as t
from pathlib import Path

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core.answers import answer
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.adopt import foreign_domains

UUID = "a0000000-0000-4000-8000-000000000001"
MAC, OTHER = "52:54:00:aa:bb:01", "52:54:00:aa:bb:02"
XML = """<domain><name>%s</name><uuid>%s</uuid><memory>1024</memory>%s<devices>
<disk type='file' device='disk'><source file='%s'/><target dev='vda'/></disk>
<disk type='block' device='disk'><source dev='/dev/vg/web'/><target dev='vdb'/></disk>
<interface type='bridge'><mac address='%s'/><source bridge='br0'/></interface>
<interface type='bridge'><mac address='%s'/><source bridge='br0'/></interface>
<channel type='unix'><target type='virtio' name='org.qemu.guest_agent.0' state='connected'/></channel>
</devices></domain>"""
ARP = """IP address       HW type     Flags       HW address            Mask     Device
192.0.2.9        0x1         0x2         52:54:00:AA:BB:01     *        br0
192.0.2.8        0x1         0x6         52:54:00:aa:bb:02     *        br0
192.0.2.7        0x1         0x0         00:00:00:00:00:00     *        br0
"""


class LibvirtError(Exception):
    """As libvirt.libvirtError."""


class Libvirt:
    """The names of libvirt that are used."""

    libvirtError = LibvirtError
    VIR_DOMAIN_INTERFACE_ADDRESSES_SRC_LEASE = "lease"
    VIR_DOMAIN_INTERFACE_ADDRESSES_SRC_AGENT = "agent"
    VIR_DOMAIN_JOB_NONE = 0


class Guest:
    """A domain of libvirt."""

    def __init__(self, path: Path, more: str = "", name: str = "web", job: int = 0, gone: bool = False):
        self.xml = XML % (name, UUID, more, path / "web.qcow2", MAC, OTHER)
        self.called, self.job, self.gone = name, job, gone
        (path / "web.qcow2").write_text("")

    def UUIDString(self) -> str:
        if self.gone:
            raise LibvirtError
        return UUID

    def name(self) -> str:
        return self.called

    def isActive(self) -> int:
        return 1

    def isPersistent(self) -> int:
        return 1

    def hasManagedSaveImage(self, _flags: int) -> int:
        return 0

    def snapshotNum(self, _flags: int) -> int:
        return 2

    def XMLDesc(self, _flags: int) -> str:
        return self.xml

    def info(self) -> list[int]:
        return [1, 0, 0, 0, 0]

    def blockInfo(self, target: str, _flags: int) -> list[int]:
        if target == "vdb":
            raise LibvirtError
        return [5 * 1024**3, 0, 0]

    def jobInfo(self) -> list[int]:
        return [self.job]

    def blockJobInfo(self, target: str, _flags: int) -> dict[str, int]:
        return {"cur": 1} if target == "vdb" and self.job else {}

    def interfaceAddresses(self, source: str, _flags: int) -> dict[str, t.Any]:
        if source == "lease":
            raise LibvirtError
        told = [{"addr": a} for a in ("127.0.0.1", "fe80::1%eth0", "192.0.2.17", "2001:DB8::7")]
        return {"lo": {"hwaddr": "00:00:00:00:00:00"}, "eth0": {"hwaddr": MAC.upper(), "addrs": told}}


class Connection:
    def __init__(self, *guests: Guest):
        self.guests = guests

    def listAllDomains(self, _flags: int) -> t.Sequence[Guest]:
        return self.guests


@pytest.fixture(autouse=True)
def _libvirt(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "arp").write_text(ARP)
    monkeypatch.setattr(foreign_domains, "libvirt", Libvirt)
    monkeypatch.setattr(foreign_domains, "libvirt_errors", foreign_domains.contextlib.nullcontext)
    table = foreign_domains.arp_table
    monkeypatch.setattr(foreign_domains, "arp_table", lambda: table(str(tmp_path / "arp")))


def described(path: Path, *guests: Guest, names: t.Collection[str] | None = None, group: str = "") -> t.Any:
    found = foreign_domains.foreign_domains(Connection(*guests), names, str(path / "instances"), group)
    answer.check("domain_adoption", "h1", {"changed": False, "domains": found, "outcomes": {}})
    return found


def test_what_libvirt_says_besides(tmp_path: Path) -> None:
    (found,) = described(tmp_path, Guest(tmp_path))
    assert [(d["size"], d["local"]) for d in found["disks"]] == [(5 * 1024**3, True), (0, False)]
    assert (found["power_state"], found["persistent"], found["saved"], found["snapshots"]) == (1, True, False, 2)
    assert found["jobs"] == []
    assert [i["addresses"] for i in found["interfaces"]] == [["192.0.2.17", "2001:db8::7"], ["192.0.2.8"]]


def test_local_disks_are_in_the_volume_group_where_there_is_one(tmp_path: Path) -> None:
    (found,) = described(tmp_path, Guest(tmp_path), group="vg")
    assert [d["local"] for d in found["disks"]] == [False, True]


def test_jobs(tmp_path: Path) -> None:
    (found,) = described(tmp_path, Guest(tmp_path, job=2))
    assert found["jobs"] == ["a job of libvirt (migration, backup or save)", "a block job of disk vdb"]


def test_which_domains(tmp_path: Path) -> None:
    ours = "<metadata><n:instance xmlns:n='http://openstack.org/xmlns/libvirt/nova/1.1'/></metadata>"
    ours += "<sysinfo><system><entry name='manufacturer'>bootflow.compute</entry></system></sysinfo>"
    mine, gone = Guest(tmp_path, ours, "ours"), Guest(tmp_path, gone=True)
    assert described(tmp_path, mine, gone) == []
    assert [d["made_by"] for d in described(tmp_path, mine, Guest(tmp_path), names=["ours"])] == ["bootflow"]
    assert [d["name"] for d in described(tmp_path, mine, Guest(tmp_path))] == ["web"]


def test_a_domain_that_cannot_be_described(tmp_path: Path) -> None:
    strange = Guest(tmp_path, name="web\u202e")
    (found,) = described(tmp_path, strange)
    assert set(found) == {"uuid", "name", "error"} and found["name"] == "web?"


def test_without_an_arp_table(tmp_path: Path) -> None:
    (tmp_path / "arp").unlink()
    (found,) = described(tmp_path, Guest(tmp_path))
    assert found["interfaces"][1]["addresses"] == []
