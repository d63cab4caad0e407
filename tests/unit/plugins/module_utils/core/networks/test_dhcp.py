# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What libvirt's DHCP server tells guests, and which addresses it reserves."""

from __future__ import annotations

import dataclasses

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core.networks import dhcp
from ansible_collections.bootflow.compute.plugins.module_utils.core.networks.network import Network
from ansible_collections.bootflow.compute.plugins.module_utils.core.networks.subnet import Subnet

ROUTES = ({"destination": "10.9.0.0/16", "nexthop": "10.3.0.9"},)
SUBNET = Subnet(
    id="served",
    name="served",
    cidr="10.3.0.0/24",
    gateway_ip="10.3.0.1",
    enable_dhcp=True,
    dns_nameservers=("9.9.9.9", "2620:fe::fe", "1.1.1.1"),
    host_routes=ROUTES,
)
DNS = "dhcp-option=option:dns-server,9.9.9.9,1.1.1.1"
STATIC = "dhcp-option=option:classless-static-route,10.9.0.0/16,10.3.0.9"


@pytest.mark.parametrize(
    ("changes", "forward", "mtu", "options"),
    [
        ({"dns_nameservers": (), "host_routes": ()}, "nat", None, []),
        ({"host_routes": ()}, "nat", 1400, ["dhcp-option=option:mtu,1400", DNS]),
        ({}, "nat", None, [DNS, STATIC + ",0.0.0.0/0,10.3.0.1"]),
        ({}, "none", None, [DNS, STATIC]),
        ({"dns_nameservers": ("2620:fe::fe",), "host_routes": ()}, "none", None, []),
    ],
)
def test_options(changes, forward, mtu, options):
    """A guest that is told routes ignores the router, so the default route is one of them, unless libvirt sets no router."""
    subnet = dataclasses.asdict(dataclasses.replace(SUBNET, **changes))
    assert dhcp.options(subnet, forward, mtu) == options


def test_only_a_managed_network_and_a_subnet_with_dhcp_have_reservations():
    plain = Subnet(id="plain", name="plain", cidr="10.4.0.0/24")
    network = Network(id="n", name="n", source="bf-n", manage=True, subnets=(SUBNET, plain))
    fixed = [{"subnet_id": "served", "ip_address": "10.3.0.5"}, {"subnet_id": "plain", "ip_address": "10.4.0.5"}]
    assert dhcp.reservations("fa:16:3e:00:00:01", fixed, network, "web") == [
        {"network": "bf-n", "mac": "fa:16:3e:00:00:01", "address": "10.3.0.5", "name": "web"}
    ]
    second = [*fixed, {"subnet_id": "served", "ip_address": "10.3.0.6"}]
    assert [r["address"] for r in dhcp.reservations("fa:16:3e:00:00:01", second, network, "web")] == ["10.3.0.5"]
    for other in ({"manage": False}, {"type": "bridge"}):
        assert dhcp.reservations("fa:16:3e:00:00:01", fixed, dataclasses.replace(network, **other), "web") == []
