# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Networks of type vxlan from the catalogue to the config drive and the domain XML."""

from __future__ import annotations

import typing as t
from dataclasses import asdict
from pathlib import Path

import pytest
import yaml

from ansible_collections.bootflow.compute.plugins.module_utils.core.errors import InvalidInput, InvalidRequest
from ansible_collections.bootflow.compute.plugins.module_utils.core.guest.config import guest_config
from ansible_collections.bootflow.compute.plugins.module_utils.core.guest.spec import GuestSpec, HostCapabilities
from ansible_collections.bootflow.compute.plugins.module_utils.core.model import Flavor
from ansible_collections.bootflow.compute.plugins.module_utils.core.networks import on_hosts
from ansible_collections.bootflow.compute.plugins.module_utils.core.networks.network_info import (
    PortRecord,
    build_network_info,
    network_data,
)
from ansible_collections.bootflow.compute.plugins.module_utils.core.networks.underlay import (
    check_together,
    check_underlay_address,
    most_mtu,
    peers_of,
)
from ansible_collections.bootflow.compute.plugins.module_utils.core.request.catalogue import parse_catalogue
from ansible_collections.bootflow.compute.plugins.module_utils.core.settings.hosts import HOST

PORT = "aaaaaaaa-0000-4000-8000-000000000001"


def networks_of(*entries: dict[str, t.Any]) -> t.Any:
    return parse_catalogue(None, None, list(entries), None).networks


def entry(**fields: t.Any) -> dict[str, t.Any]:
    return {"name": "lab", "type": "vxlan", "vni": 100, "subnets": [{"cidr": "10.0.0.0/24"}], **fields}


def errors_of(*entries: dict[str, t.Any]) -> dict[str, str]:
    with pytest.raises(InvalidRequest) as caught:
        networks_of(*entries)
    return {error["path"]: error["message"] for error in caught.value.errors}


def test_the_catalogue_reads_it() -> None:
    network = networks_of(entry())["lab"]
    assert (network.source, network.vni, network.mtu) == ("vxbr100", 100, 1430)
    assert not network.is_managed and network.host_ranges == []
    network = networks_of(entry(source="lab0", vni="16777215", mtu=8950))["lab"]
    assert (network.source, network.vni, network.mtu) == ("lab0", 16777215, 8950)
    assert networks_of(entry(vni=16777215))["lab"].source == "vxbr16777215"
    assert networks_of({"name": "br", "type": "bridge"})["br"].vni is None


@pytest.mark.parametrize(
    ("fields", "path", "message"),
    [
        ({"vni": None}, "networks[lab].vni", "vni is missing"),
        ({"vni": 0}, "networks[lab].vni", "vni must be between 1 and 16777215, got 0"),
        ({"vni": 16777216}, "networks[lab].vni", "vni must be between 1 and 16777215, got 16777216"),
        ({"vni": "<x>"}, "networks[lab].vni", "vni "),
        ({"source": "a bridge"}, "networks[lab].source", "'a bridge' is not the name of a network interface"),
        ({"source": "b" * 16}, "networks[lab].source", "is not the name of a network interface"),
        ({"source": "vxlan7"}, "networks[lab].source", "'vxlan7' is the name of a VXLAN device"),
    ],
)
def test_bad_fields(fields: dict[str, t.Any], path: str, message: str) -> None:
    found = errors_of(entry(**fields))
    assert set(found) == {path} and message in found[path]


def test_a_vni_and_a_bridge_are_one_network_s() -> None:
    second = entry(name="second", source="lab1")
    assert errors_of(entry(), second) == {"networks[second].vni": "vni 100 is also the VNI of network lab"}
    second = entry(name="second", vni=101, source="vxbr100")
    message = "source vxbr100 is also the bridge of network lab"
    assert errors_of(entry(), second) == {"networks[second].source": message}
    bridge = {"name": "servers", "type": "bridge", "source": "vxbr100"}
    assert errors_of(entry(), bridge) == {"networks[servers].source": message}
    assert errors_of(bridge, entry()) == {"networks[lab].source": message.replace("lab", "servers")}
    assert set(networks_of(bridge, {**bridge, "name": "same"})) == {"servers", "same"}, (
        "bridges of the hosts may have two names"
    )
    assert errors_of(entry(vni=None), entry(name="second", vni=None)) == {
        "networks[lab].vni": "vni is missing", "networks[second].vni": "vni is missing",
    }  # fmt: skip


def test_the_guest_gets_its_bridge_and_mtu() -> None:
    network = networks_of(entry())["lab"]
    fixed = ({"subnet_id": network.subnets[0].id, "ip_address": "10.0.0.5"},)
    vifs = build_network_info([PortRecord(PORT, network.id, "fa:16:3e:00:00:01", fixed)], {network.id: network}, "p")
    assert (vifs[0]["type"], vifs[0]["network"]["bridge"], vifs[0]["network"]["meta"]["tunneled"]) == (
        "vxlan",
        "vxbr100",
        True,
    )
    (link,) = network_data(vifs)["links"]
    assert (link["mtu"], link["type"]) == (1430, "phy")
    guest = GuestSpec(
        uuid="11111111-2222-4333-8444-555555555555",
        name="web",
        display_name="web",
        memory_mb=512,
        vcpus=1,
        flavor=Flavor("small", 512, 1),
        disks=(),
        network_info=vifs,
    )
    (interface,) = guest_config(guest, HostCapabilities(virt_type="qemu", host="h")).interfaces
    xml = interface.to_xml()
    assert (xml.get("type"), xml.find("source").get("bridge"), xml.find("mtu").get("size")) == (
        "bridge",
        "vxbr100",
        "1430",
    )


def test_hosts_must_have_an_address_for_it() -> None:
    (needed,) = on_hosts.needed([asdict(networks_of(entry())["lab"])])
    assert needed == on_hosts.HostNetwork("vxlan", "underlay", "lab")
    reports: list[on_hosts.Reported] = [{"vxlan": {"underlay": True}}, {"vxlan": {}}, {"vxlan": {"underlay": False}}]
    assert [needed.lack(report) for report in reports] == ["", on_hosts.ABSENT, on_hosts.INACTIVE]
    refusal = needed.refusal(on_hosts.ABSENT, "kvm3")
    assert refusal.message == "bootflow_vxlan_address is not set on kvm3" and "network lab" in refusal.remedy


@pytest.mark.parametrize(
    "wrong", ["kvm1", "10.0.0.0/24", "0.0.0.0", "::", "127.0.0.1", "::1", "fe80::1", "ff02::1", "224.0.0.1", None]
)
def test_what_is_no_address_of_a_host(wrong: t.Any) -> None:
    with pytest.raises(InvalidInput) as caught:
        check_underlay_address(wrong)
    assert "bootflow_vxlan_address" in caught.value.remedy
    if wrong is not None:
        with pytest.raises(InvalidInput, match="bootflow_vxlan_address"):
            HOST.read({"bootflow_vxlan_address": wrong}).vxlan_address  # noqa: B018


def test_the_variable() -> None:
    assert [HOST.read(each).vxlan_address for each in ({}, {"bootflow_vxlan_address": "FD00::0:1"})] == ["", "fd00::1"]


def test_peers_are_the_others_in_order() -> None:
    assert peers_of("10.0.0.2", ["10.0.0.10", "10.0.0.9", "10.0.0.2", "10.0.0.9"]) == ("10.0.0.9", "10.0.0.10")
    assert peers_of("fd00::1", []) == ()
    with pytest.raises(InvalidInput, match="is 10.0.0.2 here and fd00::1 on another host") as caught:
        peers_of("10.0.0.2", ["fd00::1"])
    assert "IPv6" in caught.value.remedy


def test_addresses_of_all_hosts_fit_together() -> None:
    check_together({})
    check_together({"kvm1": "10.0.0.1", "kvm2": "", "kvm3": "10.0.0.3", "kvm4": ""})
    with pytest.raises(InvalidInput, match="is 10.0.0.1 on kvm1 and on kvm3: neither would send frames") as caught:
        check_together({"kvm1": "10.0.0.1", "kvm2": "10.0.0.2", "kvm3": "10.0.0.1"})
    assert "host_vars" in caught.value.remedy
    with pytest.raises(InvalidInput, match="is 10.0.0.1 on kvm1 and fd00::3 on kvm3: a VXLAN network has one IP"):
        check_together({"kvm1": "10.0.0.1", "kvm2": "10.0.0.2", "kvm3": "fd00::3"})


def test_room_in_the_tunnel() -> None:
    assert (most_mtu("10.0.0.1", 1500), most_mtu("fd00::1", 1500), most_mtu("fd00::1", 9000)) == (1450, 1430, 8930)


def test_the_first_example_of_the_page_is_one() -> None:
    page = (Path(__file__).resolve().parents[6] / "docs" / "networks.md").read_text()
    example = yaml.safe_load(page.split("```yaml\n", 1)[1].split("```", 1)[0])
    (network,) = networks_of(*example["bootflow_networks"]).values()
    assert (network.type, network.vni, network.subnets[0].gateway_ip) == ("vxlan", 100, None)
