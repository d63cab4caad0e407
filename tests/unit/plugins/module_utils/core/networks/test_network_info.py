# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.core.networks import network_info
from ansible_collections.bootflow.compute.plugins.module_utils.core.networks.network import Network
from ansible_collections.bootflow.compute.plugins.module_utils.core.networks.subnet import Subnet

PORT_ID = "1b2c3d4e-5f60-4718-89ab-cdef01234567"
V4 = Subnet(
    id="s4",
    name="v4",
    cidr="10.0.0.0/24",
    gateway_ip="10.0.0.1",
    dns_nameservers=("9.9.9.9",),
    host_routes=({"destination": "192.168.7.0/25", "nexthop": "10.0.0.254"},),
)
SECOND_V4 = Subnet(id="s4b", name="v4b", cidr="10.1.0.0/24", gateway_ip="10.1.0.1", dns_nameservers=("8.8.8.8",))
V6 = Subnet(
    id="s6", name="v6", cidr="2001:db8::/64", gateway_ip="2001:db8::1", dns_nameservers=("9.9.9.9", "2620:fe::fe")
)
NO_GATEWAY = Subnet(id="sn", name="ng", cidr="10.2.0.0/16")
DHCP = Subnet(id="sd", name="d", cidr="10.3.0.0/24", gateway_ip="10.3.0.1", enable_dhcp=True)
DHCP6 = Subnet(id="sd6", name="d6", cidr="2001:db8:3::/64", enable_dhcp=True)
SLAAC = Subnet(id="ss", name="s", cidr="2001:db8:9::/64", enable_dhcp=True, ipv6_address_mode="slaac")
NET = Network(
    id="net", name="blue", source="bf-blue", mtu=1450, subnets=(V4, SECOND_V4, V6, NO_GATEWAY, DHCP, DHCP6, SLAAC)
)
BRIDGE = Network(id="br", name="red", type="bridge", source="br-red", subnets=(V4,))
NETWORKS = {"net": NET, "br": BRIDGE}


def port(*addresses, **more):
    fixed = tuple({"subnet_id": s, "ip_address": a} for s, a in addresses)
    values = {"id": PORT_ID, "network_id": "net", "mac_address": "fa:16:3e:00:00:01", "fixed_ips": fixed}
    return network_info.PortRecord(**{**values, **more})


def info_of(*ports, **more):
    return network_info.build_network_info(ports, NETWORKS, **{"project_id": "", **more})


def test_a_vif_in_novas_words():
    (vif,) = info_of(port(("s4", "10.0.0.5"), ("s6", "2001:db8::5"), tag="front"), project_id="demo")
    network = vif.pop("network")
    assert vif == {
        "id": PORT_ID,
        "address": "fa:16:3e:00:00:01",
        "type": "network",
        "details": {"libvirt_network": "bf-blue"},
        "devname": "tap1b2c3d4e-5f",
        "ovs_interfaceid": None,
        "qbh_params": None,
        "qbg_params": None,
        "active": False,
        "vnic_type": "normal",
        "profile": {},
        "preserve_on_delete": False,
        "delegate_create": True,
        "meta": {"tag": "front"},
    }
    subnets = network.pop("subnets")
    assert network.pop("meta") == {
        "injected": False,
        "tenant_id": "demo",
        "mtu": 1450,
        "physical_network": None,
        "tunneled": False,
    }
    assert network == {"id": "net", "bridge": None, "label": "blue"}
    assert subnets[0] == {
        "cidr": "10.0.0.0/24",
        "dns": [{"address": "9.9.9.9", "type": "dns", "version": 4, "meta": {}}],
        "gateway": {"address": "10.0.0.1", "type": "gateway", "version": 4, "meta": {}},
        "ips": [{"address": "10.0.0.5", "type": "fixed", "version": 4, "meta": {}, "floating_ips": []}],
        "routes": [
            {
                "cidr": "192.168.7.0/25",
                "gateway": {"address": "10.0.0.254", "type": "gateway", "version": 4, "meta": {}},
                "interface": None,
                "meta": {},
            }
        ],
        "version": 4,
        "meta": {"enable_dhcp": False},
    }
    assert [s["version"] for s in subnets] == [4, 6]


def test_a_bridge():
    (vif,) = info_of(port(("s4", "10.0.0.5"), network_id="br"))
    assert (vif["type"], vif["network"]["bridge"], vif["details"]) == ("bridge", "br-red", {})


def test_only_subnets_with_an_address_and_all_addresses_of_one():
    (vif,) = info_of(port(("s4", "10.0.0.5"), ("s4", "10.0.0.6")))
    (subnet,) = vif["network"]["subnets"]
    assert [ip["address"] for ip in subnet["ips"]] == ["10.0.0.5", "10.0.0.6"]


def test_unknown_network_and_subnet():
    with pytest.raises(errors.NetworkNotFound, match="gone"):
        info_of(port(network_id="gone"))
    with pytest.raises(errors.SubnetNotFound, match="gone"):
        info_of(port(("gone", "10.0.0.5")))


def test_ip_info():
    info = info_of(port(("s4", "10.0.0.5"), ("s6", "2001:db8::5")), port(("s4b", "10.1.0.5")), port())
    info[0]["network"]["subnets"][0]["ips"][0]["floating_ips"].append({"address": "192.0.2.7", "type": "floating"})
    assert network_info.ip_info(info) == {
        "fixed_ips": ["10.0.0.5", "10.1.0.5"],
        "fixed_ip6s": ["2001:db8::5"],
        "floating_ips": ["192.0.2.7"],
    }
    assert network_info.ip_info([]) == {"fixed_ips": [], "fixed_ip6s": [], "floating_ips": []}


def test_network_data():
    told = network_info.network_data(info_of(port(("s4", "10.0.0.5"), ("s6", "2001:db8::5"))))
    assert told["links"] == [
        {
            "id": "tap1b2c3d4e-5f",
            "vif_id": PORT_ID,
            "type": "phy",
            "mtu": 1450,
            "ethernet_mac_address": "fa:16:3e:00:00:01",
        }
    ]
    v4, v6 = told["networks"]
    assert v4 == {
        "id": "network0",
        "type": "ipv4",
        "link": "tap1b2c3d4e-5f",
        "ip_address": "10.0.0.5",
        "netmask": "255.255.255.0",
        "routes": [
            {"network": "0.0.0.0", "netmask": "0.0.0.0", "gateway": "10.0.0.1"},
            {"network": "192.168.7.0", "netmask": "255.255.255.128", "gateway": "10.0.0.254"},
        ],
        "network_id": "net",
        "services": [{"type": "dns", "address": "9.9.9.9"}],
    }
    assert (v6["id"], v6["type"], v6["netmask"]) == ("network1", "ipv6", "ffff:ffff:ffff:ffff::")
    assert v6["routes"] == [{"network": "::", "netmask": "::", "gateway": "2001:db8::1"}]
    # Each server once, though both subnets name the first.
    assert told["services"] == [{"type": "dns", "address": "9.9.9.9"}, {"type": "dns", "address": "2620:fe::fe"}]


def test_a_server_that_one_subnet_names_twice_is_there_twice():
    """As Nova's netutils has it: only what another subnet has told is left out."""
    info = info_of(port(("s4", "10.0.0.5")), port(("s4", "10.0.0.6")))
    for vif in info:
        vif["network"]["subnets"][0]["dns"] *= 2
    assert network_info.network_data(info)["services"] == [{"type": "dns", "address": "9.9.9.9"}] * 2


def test_first_subnet_of_a_version_only():
    told = network_info.network_data(info_of(port(("s4b", "10.1.0.5"), ("s4", "10.0.0.5"))))
    assert [n["ip_address"] for n in told["networks"]] == ["10.1.0.5"]


def test_numbers_go_on_over_vifs_and_vifs_without_subnet_do_not_count():
    info = info_of(port(("s4", "10.0.0.5")), port(), port(("sn", "10.2.0.5")))
    for vif in info:
        vif["devname"] = None
    told = network_info.network_data(info)
    assert [link["id"] for link in told["links"]] == ["interface0", "interface1"]
    assert [(n["id"], n["link"]) for n in told["networks"]] == [("network0", "interface0"), ("network1", "interface1")]
    assert told["networks"][1]["routes"] == []


def test_dhcp():
    told = network_info.network_data(info_of(port(("sd", "10.3.0.9"), ("sd6", "2001:db8:3::9"))))
    assert told["networks"] == [
        {"id": "network0", "type": "ipv4_dhcp", "link": "tap1b2c3d4e-5f", "network_id": "net"},
        {"id": "network1", "type": "ipv6_dhcp", "link": "tap1b2c3d4e-5f", "network_id": "net"},
    ]
    assert told["links"][0]["mtu"] is None
    assert told["services"] == []


def test_ipv6_address_mode():
    told = network_info.network_data(info_of(port(("ss", "2001:db8:9::9"))))
    assert (told["networks"][0]["type"], told["networks"][0]["ip_address"]) == ("ipv6_slaac", "2001:db8:9::9")


def test_link_type_is_told_for_known_types_only():
    (link,) = network_info.network_data(info_of(port(("s4", "10.0.0.5"), network_id="br")))["links"]
    assert (link["type"], link["mtu"]) == ("bridge", None)


def test_no_network():
    assert network_info.network_data([]) == {}
    assert network_info.network_data(info_of(port())) == {"links": [], "networks": [], "services": []}
