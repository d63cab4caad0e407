# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Networks of type macvtap from the catalogue to network_info and the needs of hosts: no host filters their ports."""

from __future__ import annotations

import typing as t
from dataclasses import asdict

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core.errors import InvalidRequest
from ansible_collections.bootflow.compute.plugins.module_utils.core.networks import on_hosts
from ansible_collections.bootflow.compute.plugins.module_utils.core.networks.network_info import (
    PortRecord,
    build_network_info,
)
from ansible_collections.bootflow.compute.plugins.module_utils.core.networks.types.registry import NETWORK_TYPES
from ansible_collections.bootflow.compute.plugins.module_utils.core.request.catalogue import parse_catalogue

PORT = "aaaaaaaa-0000-4000-8000-000000000001"


def networks_of(*entries: dict[str, t.Any]) -> t.Any:
    return parse_catalogue(None, None, list(entries), None).networks


def entry(**fields: t.Any) -> dict[str, t.Any]:
    subnets = [{"cidr": "10.0.0.0/24"}]
    return {"name": "office", "type": "macvtap", "physical_network": "physnet1", "subnets": subnets, **fields}


def test_the_catalogue_reads_it() -> None:
    network = networks_of(entry())["office"]
    assert (network.source, network.physical_network, network.vlan, network.mtu) == ("office", "physnet1", None, None)
    assert network.joins_hosts and not network.is_managed
    assert not network.can_be_filtered and not network.port_security_enabled
    assert networks_of(entry(source="servers", mtu=9000, port_security_enabled=False))["office"].source == "servers"
    assert networks_of({"name": "br", "type": "bridge"})["br"].can_be_filtered


@pytest.mark.parametrize(
    ("fields", "path", "message"),
    [
        ({"physical_network": None}, "physical_network", "physical_network is missing"),
        ({"physical_network": "two words"}, "physical_network", "is not the name of a physical network"),
        ({"port_security_enabled": True}, "port_security_enabled", "must be false"),
        ({"source": "<a>"}, "source", "is not the name of a libvirt network"),
    ],
)
def test_bad_fields(fields: dict[str, t.Any], path: str, message: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        networks_of(entry(**fields))
    errors = {error["path"]: error["message"] for error in caught.value.errors}
    assert set(errors) == {"networks[office].%s" % path} and message in errors["networks[office].%s" % path]


def test_guests_name_the_libvirt_network() -> None:
    network = networks_of(entry())["office"]
    fixed = ({"subnet_id": network.subnets[0].id, "ip_address": "10.0.0.5"},)
    port = PortRecord(PORT, network.id, "fa:16:3e:00:00:01", fixed)
    (vif,) = build_network_info([port], {network.id: network}, "p")
    assert (vif["type"], vif["network"]["bridge"]) == ("macvtap", None)
    assert vif["network"]["meta"]["physical_network"] == "physnet1"
    kind = NETWORK_TYPES[vif["type"]]
    assert kind.interface(kind.source_of(vif) or "", PORT) == {"type": "network", "source_network": "office"}


def test_hosts_must_be_in_the_physical_network() -> None:
    (needed,) = on_hosts.needed([asdict(networks_of(entry())["office"])])
    assert needed == on_hosts.HostNetwork("macvtap", "physnet1", "office")
    reports: list[on_hosts.Reported] = [
        {"macvtap": {"physnet1": True}}, {"macvtap": {"physnet2": True}}, {"macvtap": {"physnet1": False}}, {"vlan": {}},
    ]  # fmt: skip
    assert [needed.lack(report) for report in reports] == ["", on_hosts.ABSENT, on_hosts.INACTIVE, ""]
