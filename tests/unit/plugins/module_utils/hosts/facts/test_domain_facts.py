# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What an audit is told of domains and folders."""

from __future__ import annotations

import errno
import pathlib
import socket
import types

import pytest
from lxml import etree

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.core.adopt import description
from ansible_collections.bootflow.compute.plugins.module_utils.core.guest import platform
from ansible_collections.bootflow.compute.plugins.module_utils.core.instances import moves
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.facts import facts
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.os import ownership

LEDGER, OTHER = "1ed9e000-0000-4000-8000-000000000001", "1ed9e000-0000-4000-8000-000000000002"

NOVA = "<metadata><n:instance xmlns:n='http://openstack.org/xmlns/libvirt/nova/1.1'/></metadata>"
MADE = "<sysinfo type='smbios'><system><entry name='manufacturer'>%s</entry></system></sysinfo>"
DEFINED = pathlib.Path(__file__).resolve().parents[2] / "core" / "guest" / "domain" / "libvirt_9" / "plain.actual.xml"


@pytest.mark.parametrize(
    ("inside", "ours"),
    [
        (NOVA + MADE % "bootflow.compute", True),
        (NOVA + MADE % "OpenStack Foundation", False),
        (NOVA, False),
        (MADE % "bootflow.compute", False),
        ("<metadata><other/></metadata>" + MADE % "bootflow.compute", False),
        ("", False),
    ],
)
def test_who_made_a_domain(inside: str, ours: bool) -> None:
    assert facts.made_by_us(etree.fromstring("<domain>%s</domain>" % inside)) is ours


def test_our_own_domains_are_known() -> None:
    """As libvirt gives them back."""
    assert facts.made_by_us(etree.parse(str(DEFINED)).getroot())
    assert description.MAKER in pathlib.Path(platform.__file__).read_text()


class Defined:
    """A domain of libvirt."""

    def __init__(self, xml: str):
        self.xml = xml

    def XMLDesc(self, _flags: int) -> str:
        return self.xml

    def info(self) -> list[int]:
        return [1, 2048 * 1024, 2048 * 1024, 2, 0]


@pytest.mark.parametrize(
    ("owner", "moving", "told"),
    [
        ("ledger='%s'" % LEDGER, "", {"ledger": LEDGER, "disk_gb": 23}),
        ("ledger='../x'", "", {}),
        ("", "", {}),
        ("", moves.LEAVES, {"moving": moves.LEAVES}),
    ],
)
def test_the_ledger_of_a_domain_is_reported_with_what_no_claim_counts(
    monkeypatch: pytest.MonkeyPatch, owner: str, moving: str, told: dict[str, object]
) -> None:
    monkeypatch.setattr(facts, "libvirt", types.SimpleNamespace(VIR_DOMAIN_XML_INACTIVE=2, libvirtError=OSError))
    monkeypatch.setattr(facts, "moving_of", lambda domain: moving)
    flavor = "<n:flavor name='f'><n:disk>20</n:disk><n:ephemeral>3</n:ephemeral></n:flavor><n:root type='image'/>"
    nova = "<n:instance xmlns:n='http://openstack.org/xmlns/libvirt/nova/1.1'>%s</n:instance>" % flavor
    mark = "<b:owner xmlns:b='urn:bootflow:compute:owner:1' %s/>" % owner
    xml = "<domain><metadata>%s%s</metadata>%s</domain>" % (nova, mark, MADE % "bootflow.compute")
    row = {"uuid": LEDGER, "name": "web", "power_state": 1, "domain": Defined(xml)}
    plain = {"uuid": LEDGER, "name": "web", "power_state": 1, "memory_mb": 2048, "vcpus": 2, "ours": True}
    assert facts.domain_facts([row]) == [{**plain, **told}]


def test_a_folder_of_another_ledger_is_not_reported(tmp_path: pathlib.Path) -> None:
    """It may be that of a build, which has no domain yet."""
    uuids = ["0f000000-0000-4000-8000-00000000000%d" % n for n in range(3)]
    for uuid, ledger in zip(uuids, (LEDGER, OTHER, "")):
        assert ownership.mark_folder(str(tmp_path / uuid), ledger) is bool(ledger)
        assert not ownership.mark_folder(str(tmp_path / uuid), ledger)
        (tmp_path / uuid).mkdir(exist_ok=True)
    assert facts.instance_folders(str(tmp_path), LEDGER) == [uuids[0], uuids[2]]
    assert facts.instance_folders(str(tmp_path)) == uuids
    with pytest.raises(errors.Conflict, match="belongs to the ledger %s, not to this one" % OTHER):
        ownership.mark_folder(str(tmp_path / uuids[1]), LEDGER)


def test_folders_of_instances(tmp_path: pathlib.Path) -> None:
    uuid = "0f000000-0000-4000-8000-00000000000a"
    for name in ("_base", "locks", "_probe", uuid, uuid + "_resize", "notes.txt"):
        (tmp_path / name).mkdir()
    assert facts.instance_folders(str(tmp_path)) == [uuid]
    assert facts.instance_folders(str(tmp_path / "nothing")) == []


def test_guests_that_are_built() -> None:
    """By the marks of their folders; a folder of an earlier version has none, and that of another ledger is not read."""
    built, half, old, none, others, foreign = ("0f000000-0000-4000-8000-00000000000%d" % n for n in range(6))
    marks = {built: "@5.0", half: "build@5.0", old: "", none: ""}
    domains = [
        {"uuid": built, "ours": True, "ledger": LEDGER},
        {"uuid": half, "ours": True, "ledger": LEDGER},
        {"uuid": old, "ours": True},
        {"uuid": others, "ours": True, "ledger": OTHER},
        {"uuid": foreign, "ours": False},
    ]
    assert facts.complete_guests(marks, domains, LEDGER) == [built, old]
    assert facts.complete_guests(marks, [], LEDGER) == [built]


def test_the_address_of_the_host_is_one_that_it_has() -> None:
    """SimpleCIDRAffinityFilter reads it; a host without any route reports none."""
    found = facts.host_ip()
    if found:
        family = socket.AF_INET6 if ":" in found else socket.AF_INET
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind((found, 0))  # only an address of this host can be bound


def test_a_host_without_a_route_has_no_address(monkeypatch: pytest.MonkeyPatch) -> None:
    class NoRoute(socket.socket):
        def connect(self, _address: object) -> None:
            raise OSError(errno.ENETUNREACH, "Network is unreachable")

    monkeypatch.setattr(facts.socket, "socket", NoRoute)
    assert facts.host_ip() == ""
