# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Networks of type vlan from the catalogue to network_info and the needs of hosts."""

from __future__ import annotations

import typing as t
from dataclasses import asdict

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core.errors import InvalidInput, InvalidRequest
from ansible_collections.bootflow.compute.plugins.module_utils.core.networks import on_hosts
from ansible_collections.bootflow.compute.plugins.module_utils.core.networks.network_info import (
    PortRecord,
    build_network_info,
)
from ansible_collections.bootflow.compute.plugins.module_utils.core.networks.physical import check_interface_mappings
from ansible_collections.bootflow.compute.plugins.module_utils.core.networks.types.registry import NETWORK_TYPES
from ansible_collections.bootflow.compute.plugins.module_utils.core.request.catalogue import parse_catalogue
from ansible_collections.bootflow.compute.plugins.module_utils.core.settings.hosts import HOST

PORT = "aaaaaaaa-0000-4000-8000-000000000001"


def networks_of(*entries: dict[str, t.Any]) -> t.Any:
    return parse_catalogue(None, None, list(entries), None).networks


def entry(**fields: t.Any) -> dict[str, t.Any]:
    subnets = [{"cidr": "10.0.0.0/24"}]
    return {
        "name": "office", "type": "vlan", "physical_network": "physnet1", "vlan": 100, "subnets": subnets, **fields,
    }  # fmt: skip


def errors_of(*entries: dict[str, t.Any]) -> dict[str, str]:
    with pytest.raises(InvalidRequest) as caught:
        networks_of(*entries)
    return {error["path"]: error["message"] for error in caught.value.errors}


def test_the_catalogue_reads_it() -> None:
    network = networks_of(entry())["office"]
    assert (network.source, network.physical_network, network.vlan, network.mtu) == ("vlbr100", "physnet1", 100, None)
    assert network.joins_hosts and not network.is_managed and network.vni is None
    network = networks_of(entry(source="office0", vlan="4094", mtu=9000))["office"]
    assert (network.source, network.vlan, network.mtu) == ("office0", 4094, 9000)
    assert not networks_of({"name": "br", "type": "bridge"})["br"].joins_hosts


@pytest.mark.parametrize(
    ("fields", "path", "message"),
    [
        ({"vlan": None}, "vlan", "vlan is missing"),
        ({"vlan": 0}, "vlan", "vlan must be between 1 and 4094, got 0"),
        ({"vlan": 4095}, "vlan", "vlan must be between 1 and 4094, got 4095"),
        ({"physical_network": None}, "physical_network", "physical_network is missing"),
        ({"physical_network": "two words"}, "physical_network", "is not the name of a physical network"),
        ({"source": "a bridge"}, "source", "'a bridge' is not the name of a network interface"),
        ({"source": "vlan7"}, "source", "'vlan7' is the name of a VLAN device"),
        ({"source": "eno2.7"}, "source", "'eno2.7' is the name of a VLAN device"),
    ],
)
def test_bad_fields(fields: dict[str, t.Any], path: str, message: str) -> None:
    found = errors_of(entry(**fields))
    assert set(found) == {"networks[office].%s" % path} and message in found["networks[office].%s" % path]


def test_a_vlan_and_a_bridge_are_one_network_s() -> None:
    second = entry(name="second", source="office1")
    text = "vlan 100 of physnet1 is also the VLAN of network office"
    assert errors_of(entry(), second) == {"networks[second].vlan": text}
    other = entry(name="second", physical_network="physnet2")
    assert errors_of(entry(), other) == {
        "networks[second].source": "source vlbr100 is also the bridge of network office"
    }
    assert len(networks_of(entry(), {**other, "source": "office2"})) == 2
    bridge = {"name": "servers", "type": "bridge", "source": "vlbr100"}
    assert set(errors_of(bridge, entry())) == {"networks[office].source"}


def test_network_info_names_the_physical_network() -> None:
    network = networks_of(entry())["office"]
    fixed = ({"subnet_id": network.subnets[0].id, "ip_address": "10.0.0.5"},)
    port = PortRecord(PORT, network.id, "fa:16:3e:00:00:01", fixed)
    (vif,) = build_network_info([port], {network.id: network}, "p")
    meta = vif["network"]["meta"]
    assert (vif["network"]["bridge"], meta["physical_network"], meta["tunneled"]) == ("vlbr100", "physnet1", False)
    kind = NETWORK_TYPES[vif["type"]]
    assert kind.interface(kind.source_of(vif) or "", PORT) == {"type": "bridge", "source_bridge": "vlbr100"}


def test_hosts_must_be_in_the_physical_network() -> None:
    (needed,) = on_hosts.needed([asdict(networks_of(entry())["office"])])
    assert needed == on_hosts.HostNetwork("vlan", "physnet1", "office")
    reports: list[on_hosts.Reported] = [
        {"vlan": {"physnet1": True}}, {"vlan": {"physnet2": True}}, {"vlan": {"physnet1": False}}, {"bridge": {}},
    ]  # fmt: skip
    assert [needed.lack(report) for report in reports] == ["", on_hosts.ABSENT, on_hosts.INACTIVE, ""]
    refusal = needed.refusal(on_hosts.ABSENT, "kvm3")
    assert refusal.message == "physical network physnet1 is not in bootflow_physical_interface_mappings on kvm3"
    assert "network office" in refusal.remedy
    down = needed.refusal(on_hosts.INACTIVE, "kvm3")
    assert down.message == "the interface of physical network physnet1 is missing or down on kvm3"


@pytest.mark.parametrize("wrong", [None, "physnet1", ["physnet1:eno2"], {"a": "x" * 16}, {"": "eno2"}, {1: "eno2"}])
def test_mappings_of_a_host(wrong: t.Any) -> None:
    with pytest.raises(InvalidInput):
        check_interface_mappings(wrong)
    setting = HOST.named("physical_interface_mappings")
    if wrong is not None:
        with pytest.raises(InvalidInput):
            setting.read(wrong)
    assert setting.read('{"physnet1": "eno2"}') == {"physnet1": "eno2"} and setting.read(None) == {}
