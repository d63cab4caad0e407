# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Entries of bootflow_interfaces: what they may say, and which ports of an instance meet them."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core.interfaces import entries
from ansible_collections.bootflow.compute.plugins.module_utils.core.networks.network_info import PortRecord
from ansible_collections.bootflow.compute.plugins.module_utils.core.reading.problems import Problems
from ansible_collections.bootflow.compute.plugins.module_utils.core.request.catalogue import parse_catalogue

PORT = "0b7f27f0-3b5c-4b53-9c53-3b1f5d1a2c01"
NETWORKS = [
    {"name": "web", "subnets": [{"name": "web-v4", "cidr": "10.1.0.0/24"}, {"name": "web-v6", "cidr": "fd00:1::/64"}]},
    {"name": "data", "subnets": [{"name": "data-v4", "cidr": "10.2.0.0/24"}]},
]


def catalogue(networks: t.Any = None) -> t.Any:
    return parse_catalogue(None, None, NETWORKS if networks is None else networks, None)


def wanted(*asked: t.Any, networks: t.Any = None) -> tuple[list[entries.WantedInterface], list[t.Any]]:
    problems = Problems()
    found = entries.wanted_interfaces(asked, catalogue(networks), "p", problems)
    return found, [(e["path"], e["code"], e["status"]) for e in problems.errors]


def named(*asked: t.Any) -> tuple[list[entries.NamedInterface], list[t.Any]]:
    problems = Problems()
    found = entries.named_interfaces(asked, problems)
    return found, [(e["path"], e["code"], e["status"]) for e in problems.errors]


def port(network: str = "data", address: str = "10.2.0.5", subnet: int = 0, **fields: t.Any) -> PortRecord:
    of = catalogue().network(network)
    fixed = ({"subnet_id": of.subnets[subnet].id, "ip_address": address},)
    return PortRecord(
        **{"id": PORT, "network_id": of.id, "mac_address": "fa:16:3e:00:00:01", "fixed_ips": fixed, **fields}
    )


def test_what_is_attached() -> None:
    found, wrong = wanted(
        {"instance": "a", "network": "data"},
        {"instance": PORT.upper(), "net_id": "data", "fixed_ip": "10.2.0.9", "tag": "nic"},
        {"instance": "a", "subnet": "web-v6"},
        {"instance": "a", "network": "web", "fixed_ip": "FD00:1:0::5", "tag": None},
    )
    assert not wrong
    by_name = catalogue().networks
    assert [(f.path, f.instance, f.request.network, f.request.fixed_ip, f.request.tag) for f in found] == [
        ("interfaces[0]", "a", by_name["data"].id, None, None),
        ("interfaces[1]", PORT, by_name["data"].id, "10.2.0.9", "nic"),
        ("interfaces[2]", "a", by_name["web"].id, None, None),
        ("interfaces[3]", "a", by_name["web"].id, "fd00:1::5", None),
    ]
    assert found[2].request.subnet == by_name["web"].subnets[1].id


def test_an_existing_port_is_attached_and_detached_by_name_or_id() -> None:
    found, wrong = wanted(
        {"instance": "a", "port_id": PORT.upper(), "tag": "nic"}, {"instance": "a", "port": "front"}, networks=[]
    )
    assert not wrong and [(f.request.port, f.request.network, f.request.tag) for f in found] == [
        (PORT, None, "nic"),
        ("front", None, None),
    ]
    front, other = port(name="front", tag="nic"), port(id="other")
    assert entries.take_met(found, [other, front]) == {0: front}
    by_name, wrong = named({"instance": "a", "port": "front"}, {"instance": "a", "port_id": PORT})
    assert not wrong and all(n.is_met_by(front, "data") and not n.is_met_by(other, "data") for n in by_name)


def test_an_entry_without_a_network_means_the_only_one() -> None:
    assert wanted({"instance": "a"}, networks=NETWORKS[:1])[0][0].request.network == catalogue().networks["web"].id
    assert wanted({"instance": "a"})[1] == [("interfaces[0]", "NetworkAmbiguous", 400)]
    assert wanted({"instance": "a"}, networks=[])[1] == [("interfaces[0]", "InterfaceAttachFailedNoNetwork", 400)]
    assert wanted({"instance": "a", "fixed_ip": "10.1.0.9"}, networks=NETWORKS[:1])[1] == [
        ("interfaces[0]", "InvalidInput", 400)
    ]


@pytest.mark.parametrize(
    ("entry", "path", "code"),
    [
        ("web", "", "InvalidInput"),
        ({"network": "data"}, ".instance", None),
        ({"instance": "a", "network": "data", "net_id": "web"}, ".net_id", "InvalidInput"),
        ({"instance": "a", "network": "nowhere"}, ".network", "NetworkNotFound"),
        ({"instance": "a", "network": "data", "subnet": "web-v4"}, ".subnet", "SubnetNotFound"),
        ({"instance": "a", "network": "data", "fixed_ip": "10.3.0.1"}, ".fixed_ip", "InvalidIpForNetwork"),
        ({"instance": "a", "network": "data", "fixed_ip": "x"}, ".fixed_ip", None),
        ({"instance": "a", "network": "data", "tag": "a,b"}, ".tag", None),
        ({"instance": "a", "port_id": PORT, "port": "front"}, ".port_id", "InvalidInput"),
        ({"instance": "a", "port": "front", "fixed_ip": "10.2.0.9"}, ".fixed_ip", "InvalidInput"),
        ({"instance": "a", "port": "front", "network": "data"}, ".network", "InvalidInput"),
        ({"instance": "a", "network": "data", "mode": "rw"}, ".mode", None),
        ({"instance": ["a"], "network": "data"}, ".instance", None),
    ],
)
def test_what_cannot_be_attached(entry: t.Any, path: str, code: str | None) -> None:
    found, wrong = wanted(entry, {"instance": "good", "network": "data"})
    assert [f.instance for f in found] == ["good"] and len(wrong) == 1, wrong
    status = 404 if code == "NetworkNotFound" else 400
    assert wrong[0][0] == "interfaces[0]" + path and wrong[0][2] == status and code in (None, wrong[0][1]), wrong


def test_what_is_detached() -> None:
    found, wrong = named(
        {"instance": "a", "port_id": PORT.upper()},
        {"instance": "a", "mac_address": "FA:16:3E:00:00:01", "network": "data", "fixed_ip": "10.2.0.5", "tag": "t"},
        {"instance": "a", "net_id": port().network_id.upper()},
    )
    assert not wrong and found[0].port_id == PORT and found[1].mac_address == "fa:16:3e:00:00:01"
    assert found[2].is_met_by(port(), "data") and not found[2].is_met_by(port("web"), "web")
    assert found[0].is_met_by(port(), "data") and not found[0].is_met_by(port(id="x"), "data")
    assert found[1].is_met_by(port(tag="t"), "data")
    for other in (
        port(),
        port(tag="t", address="10.2.0.6"),
        port("web", tag="t"),
        port(tag="t", mac_address="fa:16:3e:00:00:02"),
    ):
        assert not found[1].is_met_by(other, "data" if other.network_id == port().network_id else "web")
    assert named({"instance": "a"})[1] == [("interfaces[0]", "InvalidInput", 400)]
    for bad in (
        {"instance": "a", "mac_address": "x"},
        {"instance": "a", "subnet": "s"},
        7,
    ):
        assert len(named(bad)[1]) == 1 and not named(bad)[0]


def test_each_port_meets_one_entry() -> None:
    """The entry that asks for more takes its port first, whatever their order."""
    asked, _wrong = wanted(
        {"instance": "a", "network": "data"},
        {"instance": "a", "network": "data", "fixed_ip": "10.2.0.5"},
        {"instance": "a", "network": "data", "tag": "t"},
        {"instance": "a", "network": "web"},
    )
    one, two = port(), port(id="two", address="10.2.0.6", tag="t")
    met = entries.take_met(asked, [one, two])
    assert met == {1: one, 2: two}
    three = port(id="three", address="10.2.0.7")
    assert entries.take_met(asked, [three, two, one]) == {0: three, 1: one, 2: two}
    assert entries.take_met(asked, []) == {}


def test_as_many_as_can_be_meet_a_port() -> None:
    """Neither the order of the entries nor that of the ports leaves one over for which there is a port."""
    subnet = {"instance": "a", "network": "web", "subnet": "web-v4"}
    tag = {"instance": "a", "network": "web", "tag": "t"}
    both, one = port("web", "10.1.0.5", tag="t"), port("web", "10.1.0.6", id="one")
    for asked in ((subnet, tag), (tag, subnet)):
        for there in ([both, one], [one, both]):
            found = wanted(*asked)[0]
            met = entries.take_met(found, there)
            assert {("tag" if found[n].request.tag else "subnet"): p.id for n, p in met.items()} == {
                "tag": both.id,
                "subnet": one.id,
            }
