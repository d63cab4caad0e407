# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A managed network whose addresses the host already has: the build ended with what libvirt said, or the network took the host's packets."""

from __future__ import annotations

import contextlib
import json
import types

import pytest
from lxml import etree

from ansible_collections.bootflow.compute.plugins.module_utils.core.errors import LibvirtError, NetworkRangeInUse
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.libvirt import connection, dhcp, taps
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.libvirt.network_types import (
    network as libvirt_network,
)
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.libvirt.network_types import used_ranges
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.libvirt.network_types.network_type import (
    NetworkSpec,
)
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.libvirt.network_types.registry import (
    ensure_network,
)

INTERNAL_ERROR, INVALID, NO_NETWORK = 1, 55, 43


class Error(Exception):
    def __init__(self, code, text=""):
        super().__init__(text)
        self.code = code

    def get_error_code(self):
        return self.code

    def get_error_message(self):
        return str(self)

    def get_error_domain(self):
        return 19


class FakeNetwork:
    def __init__(self, host, xml, active=True):
        self.host, self.xml, self.active = host, xml, active

    def name(self):
        return etree.fromstring(self.xml).findtext("name")

    def isActive(self):
        return self.active

    def isPersistent(self):
        return True

    def autostart(self):
        return self.active

    def setAutostart(self, _value):
        pass

    def bridgeName(self):
        return "virbr9"

    def XMLDesc(self, _flags):
        return self.xml

    def create(self):
        if self.host.refusal:
            raise self.host.refusal
        self.active = True

    def undefine(self):
        self.host.networks.remove(self)


class FakeHost:
    """Its libvirt networks and the addresses of its interfaces."""

    refusal = None
    interrupted = 0  # lists of interfaces that the kernel will end early

    def __init__(self):
        self.networks = []
        self.interfaces = {"lo": ["127.0.0.1/8", "::1/128"]}

    def add(self, name, cidr, active=True, bridge="virbr1"):
        address, prefix = cidr.split("/")
        ip = "<ip address='%s' prefix='%s'/>" % (address, prefix)
        xml = "<network><name>%s</name><bridge name='%s'/>%s</network>" % (name, bridge, ip)
        self.networks.append(FakeNetwork(self, xml, active))
        if active:
            self.interfaces[bridge] = [cidr]

    def names(self):
        return [network.name() for network in self.networks]

    def listAllNetworks(self, _flags):
        return self.networks

    def listAllDomains(self, _flags):
        return []

    def networkLookupByName(self, name):
        for network in self.networks:
            if network.name() == name:
                return network
        raise Error(NO_NETWORK)

    def networkDefineXML(self, xml):
        self.networks.append(FakeNetwork(self, xml, active=False))
        return self.networks[-1]

    def run(self, _argv, timeout):
        found = [
            {"ifname": name, "addr_info": [dict(zip(("local", "prefixlen"), a.split("/"))) for a in addresses]}
            for name, addresses in self.interfaces.items()
        ]
        if self.interrupted:
            self.interrupted -= 1
            return types.SimpleNamespace(
                stdout=json.dumps(found[:1]), stderr="Dump was interrupted and may be inconsistent.\n"
            )
        return types.SimpleNamespace(stdout=json.dumps([*found, {}]), stderr="")


@pytest.fixture
def host(monkeypatch):
    names = {
        "VIR_NETWORK_XML_INACTIVE": 1,
        "VIR_CONNECT_LIST_DOMAINS_ACTIVE": 1,
        "VIR_ERR_NO_NETWORK": NO_NETWORK,
        "VIR_ERR_INTERNAL_ERROR": INTERNAL_ERROR,
        "VIR_ERR_OPERATION_INVALID": INVALID,
        **dict.fromkeys(("VIR_FROM_REMOTE", "VIR_FROM_RPC"), 13),
        **dict.fromkeys(("VIR_ERR_NO_CONNECT", "VIR_ERR_INVALID_CONN", "VIR_ERR_RPC"), 5),
        **dict.fromkeys(("VIR_ERR_SYSTEM_ERROR", "VIR_ERR_NO_DOMAIN"), 42),
        "libvirtError": Error,
    }
    for module in (connection, dhcp, libvirt_network, taps, used_ranges):
        monkeypatch.setattr(module, "libvirt", types.SimpleNamespace(**names), raising=False)
    monkeypatch.setattr(libvirt_network, "host_lock", lambda *_arguments: contextlib.nullcontext())
    monkeypatch.setattr(libvirt_network, "mark_needed", lambda _network: None)
    made = FakeHost()
    monkeypatch.setattr(used_ranges, "run", made.run)
    return made


def wanted(cidr="10.9.0.0/24", gateway="10.9.0.1"):
    return NetworkSpec("web", source="bf-web", manage=True, subnets=({"cidr": cidr, "gateway_ip": gateway},))


@pytest.mark.parametrize("check_mode", [True, False])
@pytest.mark.parametrize("used", ["10.9.0.1/24", "10.9.0.129/25", "10.9.255.1/16"])
def test_another_network_of_libvirt(host, used, check_mode):
    host.add("bf-shop", used)
    with pytest.raises(
        NetworkRangeInUse, match=r"bf-web cannot have 10\.9\.0\.0/24 .* bf-shop has .* on virbr1"
    ) as caught:
        ensure_network(host, wanted(), check_mode)
    assert host.names() == ["bf-shop"] and caught.value.retryable
    assert "another cidr in bootflow_networks" in caught.value.remedy
    assert "virsh net-destroy bf-shop, virsh net-undefine bf-shop" in caught.value.remedy
    assert "net-undefine bf-web" not in caught.value.remedy
    host.networks[0].active = False  # it has no addresses now
    host.interfaces.pop("virbr1")
    assert ensure_network(host, wanted(), check_mode)["started"]


@pytest.mark.parametrize(
    ("address", "clashes"),
    [
        ("10.9.0.7/24", True),
        ("10.9.0.7/16", True),  # its neighbours would be sought in the network
        ("10.9.0.130/25", True),
        ("10.9.1.7/16", False),  # a range of a large network that was left free for guests
        ("10.9.1.7/24", False),
        ("fd00:9::7/64", False),
    ],
)
def test_an_interface_of_the_host(host, address, clashes):
    host.interfaces["eth0"] = ["198.51.100.7/24", address]
    if not clashes:
        assert ensure_network(host, wanted())["started"]
        return
    with pytest.raises(NetworkRangeInUse, match="on this host: eth0 has the address %s$" % address) as caught:
        ensure_network(host, wanted())
    assert host.names() == [] and "virsh" not in caught.value.remedy


def test_a_list_of_interfaces_that_ended_early_is_asked_for_again(host):
    host.interfaces["eth0"] = ["10.9.0.7/24"]
    host.interrupted = 3
    with pytest.raises(NetworkRangeInUse, match="eth0 has the address"):
        ensure_network(host, wanted())
    host.interrupted = 1000  # it always does: what was seen has to do
    assert ensure_network(host, wanted())["started"]


def test_ipv6_which_libvirt_does_not_compare(host):
    host.add("bf-shop", "fd00:9::1/64")
    with pytest.raises(NetworkRangeInUse, match="cannot have fd00:9::/64"):
        ensure_network(host, wanted("fd00:9::/64", "fd00:9::2"))


def test_a_network_that_runs_or_has_no_address_of_the_host_is_not_compared(host):
    assert ensure_network(host, wanted())["started"]
    host.add("bf-shop", "10.9.0.1/24")
    assert not ensure_network(host, wanted())["changed"]
    assert ensure_network(host, NetworkSpec("none", manage=True, subnets=({"cidr": "10.9.0.0/24"},)))["started"]


def test_a_network_that_was_stopped_has_to_be_undefined_for_another_range(host):
    host.add("bf-web", "10.9.0.1/24", active=False)
    host.interfaces["eth0"] = ["10.9.0.7/24"]
    with pytest.raises(NetworkRangeInUse) as caught:
        ensure_network(host, wanted())
    assert "remove its definition from this host (virsh net-undefine bf-web)" in caught.value.remedy


def test_what_libvirt_itself_refuses(host):
    """A route of the host, or a network that appeared meanwhile. The network is not left behind, with the range that has to be changed."""
    host.refusal = Error(INTERNAL_ERROR, "internal error: Network is already in use by interface tun0")
    with pytest.raises(
        NetworkRangeInUse, match=r"cannot have 10\.9\.0\.0/24 on this host: the host has a route to it on tun0$"
    ):
        ensure_network(host, wanted())
    assert host.names() == []
    host.add("bf-web", "10.9.0.1/24", active=False)
    with pytest.raises(NetworkRangeInUse, match="tun0"):
        ensure_network(host, wanted())
    assert host.names() == ["bf-web"]
    host.refusal = Error(INTERNAL_ERROR, "internal error: dnsmasq is missing")
    with pytest.raises(LibvirtError, match="dnsmasq is missing"):
        ensure_network(host, wanted())
