# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Requests for ports: read as tables. networks.port of a boot is a name or an id; flows/networks/test_ports.py has the rest."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core.errors import InvalidRequest
from ansible_collections.bootflow.compute.plugins.module_utils.core.interfaces.port_entries import (
    read_port_changes,
    read_ports,
)
from ansible_collections.bootflow.compute.plugins.module_utils.core.networks.fixed_addresses import (
    FixedAddress,
    match_addresses,
)
from ansible_collections.bootflow.compute.plugins.module_utils.core.request.catalogue import Catalogue, parse_catalogue

WEB = {"name": "web", "subnets": [{"name": "web-v4", "cidr": "10.1.0.0/24"}, {"name": "web-v6", "cidr": "fd00:1::/64"}]}
NAT = {"name": "nat", "manage": True, "subnets": [{"name": "nat-v4", "cidr": "10.2.0.0/24"}]}
BARE = {"name": "bare"}


def catalogue(*networks: t.Any) -> Catalogue:
    return parse_catalogue(None, None, list(networks or (WEB, NAT, BARE)), None)


def refusals(read: t.Callable[[], t.Any]) -> list[tuple[str, str, int]]:
    with pytest.raises(InvalidRequest) as caught:
        read()
    return [(e["path"], e["code"], e["status"]) for e in caught.value.errors]


def test_what_is_made() -> None:
    known = catalogue()
    first, second = read_ports(
        [
            {
                "name": "a",
                "network": "web",
                "mac_address": "FA:16:3E:00:00:01",
                "fixed_ips": [
                    {"ip_address": "10.1.0.9"},
                    {"subnet": "web-v6"},
                    {"subnet_id": "web-v4", "ip_address": "10.1.0.10"},
                ],
                "tags": ["z", "y", "z"],
            },
            {"name": "b", "network_id": known.network("nat").id, "tags": None},
        ],
        known,
    )
    v4, v6 = (subnet.id for subnet in known.network("web").subnets)
    assert first.mac_address == "fa:16:3e:00:00:01" and first.tags == ("y", "z")
    assert first.fixed_ips == (FixedAddress(v4, "10.1.0.9"), FixedAddress(v6, None), FixedAddress(v4, "10.1.0.10"))
    assert (second.network.name, second.mac_address, second.fixed_ips, second.tags) == ("nat", None, None, None)
    (only,) = read_ports([{"name": "c"}], catalogue(NAT))
    assert only.network.name == "nat"


@pytest.mark.parametrize(
    ("entry", "path", "code", "status"),
    [
        ("web", "", "InvalidInput", 400),
        ({"network": "web"}, ".name", "InvalidInput", 400),
        ({"name": "a"}, ".network", "InvalidInput", 400),
        ({"name": "a", "network": "nowhere"}, ".network", "NetworkNotFound", 400),
        ({"name": "a", "network": "bare"}, ".network", "InvalidInput", 400),
        ({"name": "a", "network": "web", "network_id": "nat"}, ".network_id", "InvalidInput", 400),
        ({"name": "a<b", "network": "web", "port": "x"}, ".port", "InvalidInput", 400),
        ({"name": "a\n", "network": "web"}, ".name", "InvalidInput", 400),
        ({"name": "a", "network": "web", "mac_address": "<mac/>"}, ".mac_address", "InvalidInput", 400),
        ({"name": "a", "network": "web", "mac_address": "01:00:5e:00:00:01"}, ".mac_address", "InvalidInput", 400),
        ({"name": "a", "network": "web", "mac_address": "00:00:00:00:00:00"}, ".mac_address", "InvalidInput", 400),
        ({"name": "a", "network": "web", "fixed_ips": []}, ".fixed_ips", "InvalidInput", 400),
        ({"name": "a", "network": "web", "fixed_ips": [{}]}, ".fixed_ips[0]", "InvalidInput", 400),
        ({"name": "a", "network": "web", "fixed_ips": [{"subnet": "nat-v4"}]}, ".fixed_ips[0]", "SubnetNotFound", 400),
        (
            {"name": "a", "network": "web", "fixed_ips": [{"ip_address": "10.3.0.1"}]},
            ".fixed_ips[0]",
            "InvalidIpForNetwork",
            400,
        ),
        (
            {"name": "a", "network": "web", "fixed_ips": [{"ip_address": "10.1.0.9", "subnet": "web-v6"}]},
            ".fixed_ips[0]",
            "InvalidIpForSubnet",
            400,
        ),
        (
            {"name": "a", "network": "nat", "fixed_ips": [{"ip_address": "10.2.0.1"}]},
            ".fixed_ips[0]",
            "IpAddressInUse",
            409,
        ),
    ],
)
def test_what_cannot_be_made(entry: t.Any, path: str, code: str, status: int) -> None:
    assert refusals(lambda: read_ports([entry], catalogue())) == [("ports[0]" + path, code, status)]


def test_a_name_is_used_once() -> None:
    twice = [{"name": "a", "network": "web"}] * 2
    assert refusals(lambda: read_ports(twice, catalogue())) == [("ports[1].name", "InvalidInput", 400)]


def test_what_is_changed() -> None:
    (change,) = read_port_changes([{"port": "a", "name": "b", "fixed_ips": [{"ip_address": "10.1.0.9"}], "tags": []}])
    assert (change.port, change.name, change.mac_address, change.tags) == ("a", "b", None, ())
    assert refusals(lambda: read_port_changes([{"port": "a"}])) == [("ports[0]", "InvalidInput", 400)]
    assert refusals(lambda: read_port_changes([{"name": "b"}])) == [("ports[0].port", "InvalidInput", 400)]
    assert refusals(lambda: read_port_changes([{"port": "a", "network": "web"}]))[0][0] == "ports[0].network"
    assert refusals(lambda: read_port_changes([{"port": "a", "tags": []}] * 2))[0][0] == "ports[1].port"


@pytest.mark.parametrize(
    ("wanted", "has", "missing", "surplus"),
    [
        ([("s", None)], [("s", "1")], [], []),
        ([("s", None), ("s", "1")], [("s", "1")], [("s", None)], []),
        ([("s", None), ("s", "1")], [("s", "1"), ("s", "2")], [], []),
        ([(None, None)], [("s", "1"), ("t", "2")], [], [("t", "2")]),
        ([("t", "2")], [("s", "1")], [("t", "2")], [("s", "1")]),
        ([], [("s", "1")], [], [("s", "1")]),
    ],
)
def test_addresses_are_matched(wanted: t.Any, has: t.Any, missing: t.Any, surplus: t.Any) -> None:
    assert match_addresses([FixedAddress(*w) for w in wanted], has) == ([FixedAddress(*m) for m in missing], surplus)
