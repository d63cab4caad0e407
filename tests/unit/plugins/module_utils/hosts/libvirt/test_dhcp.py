# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Reservations in libvirt's networks, with networks of our own that keep libvirt's rules."""

from __future__ import annotations

import ipaddress
import types
from unittest import mock

import pytest
from lxml import etree

from ansible_collections.bootflow.compute.plugins.module_utils.core.answers import compute
from ansible_collections.bootflow.compute.plugins.module_utils.core.errors import NetworkError
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.facts import dhcp as facts
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.libvirt import connection as libvirt_connection
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.libvirt import dhcp, taps
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.libvirt.dhcp import Reservation
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.libvirt.network_types import (
    network as libvirt_network,
)
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.libvirt.network_types.network import network_xml
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.libvirt.network_types.network_type import (
    NetworkSpec,
)
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.libvirt.network_types.registry import (
    ensure_network,
)

INACTIVE, CONFIG, LIVE, DELETE, ADD_LAST, NO_SUPPORT, NO_NETWORK = 1, 2, 1, 2, 3, 3, 43
SUBNET = {"cidr": "10.3.0.0/24", "gateway_ip": "10.3.0.1", "enable_dhcp": True, "dns_nameservers": ["9.9.9.9"]}
SPEC = NetworkSpec(
    "n", source="bf-n", manage=True, mtu=1400, subnets=({"cidr": "10.2.0.0/24", "gateway_ip": "10.2.0.1"}, SUBNET)
)
MAC, OTHER = "fa:16:3e:00:00:01", "fa:16:3e:00:00:02"
WANTED = Reservation("bf-n", MAC.upper(), "10.3.0.5", "web")
DOMAIN = (
    "<domain><devices><interface type='network'><mac address='%s'/><source network='%s'/></interface>"
    "<interface type='bridge'><mac address='%s'/><source bridge='br0'/></interface></devices></domain>"
)


class Error(Exception):
    def get_error_code(self):
        return NO_NETWORK


class FakeNetwork:
    """A network with its persistent and its running definition; refuses what libvirt refuses."""

    def __init__(self, xml):
        self.definitions = {CONFIG: etree.fromstring(xml), LIVE: etree.fromstring(xml)}
        self.leases = []

    def name(self):
        return "bf-n"

    def isPersistent(self):
        return True

    def isActive(self):
        return LIVE in self.definitions

    def autostart(self):
        return 1

    def bridgeName(self):
        return "virbr7"

    def XMLDesc(self, flags):
        return etree.tostring(self.definitions[CONFIG if flags & INACTIVE else LIVE]).decode()

    def DHCPLeases(self):
        return self.leases

    def update(self, command, section, index, xml, flag):
        parent, host = self.definitions[flag].findall("ip")[index], etree.fromstring(xml)
        hosts = parent.findall("dhcp/host")
        if command == DELETE:
            (found,) = [h for h in hosts if dict(h.attrib) == dict(host.attrib)]
            found.getparent().remove(found)
            return
        assert not [h for h in hosts for k in ("mac", "name", "ip") if host.get(k) and h.get(k) == host.get(k)]
        assert host.get("name", "a")[0].isalpha()
        served = parent.find("dhcp")
        (served if served is not None else etree.SubElement(parent, "dhcp")).append(host)

    def hosts(self, flag=LIVE):
        return [tuple(h.get(k) for k in ("mac", "ip", "name")) for h in self.definitions[flag].iter("host")]


@pytest.fixture
def network(monkeypatch):
    names = {
        "VIR_CONNECT_LIST_DOMAINS_ACTIVE": 1,
        "VIR_NETWORK_XML_INACTIVE": INACTIVE,
        "VIR_NETWORK_UPDATE_AFFECT_CONFIG": CONFIG,
        "VIR_NETWORK_UPDATE_AFFECT_LIVE": LIVE,
        "VIR_NETWORK_UPDATE_COMMAND_DELETE": DELETE,
        "VIR_NETWORK_UPDATE_COMMAND_ADD_LAST": ADD_LAST,
        "VIR_NETWORK_SECTION_IP_DHCP_HOST": 4,
        "VIR_ERR_NO_NETWORK": NO_NETWORK,
        "VIR_ERR_NO_SUPPORT": NO_SUPPORT,
        "libvirtError": Error,
    }
    for module in (libvirt_connection, dhcp, libvirt_network, taps):
        monkeypatch.setattr(module, "libvirt", types.SimpleNamespace(**names))
    return FakeNetwork(network_xml(SPEC))


def connection_to(network):
    def look_up(name):
        if name != "bf-n":
            raise Error
        return network

    return types.SimpleNamespace(networkLookupByName=look_up)


@pytest.fixture
def sent(monkeypatch, network):
    """Packets to the server, which ends the lease."""
    packets = []

    class Socket:
        def __init__(self, *_arguments):
            pass

        def __enter__(self):
            return self

        def __exit__(self, *_exc):
            pass

        def setsockopt(self, _level, _option, device):
            assert device == b"virbr7"

        def sendto(self, packet, to):
            packets.append((packet, to))
            assert network.hosts(), "libvirt ends the server with the last reservation"
            network.leases.clear()

    real = dhcp.socket
    found = {n: getattr(real, n) for n in ("AF_INET", "SOCK_DGRAM", "SOL_SOCKET", "SO_BINDTODEVICE", "inet_aton")}
    monkeypatch.setattr(dhcp, "socket", types.SimpleNamespace(socket=Socket, **found))
    return packets


def test_an_address_is_reserved_once(network, sent):
    there = connection_to(network)
    assert dhcp.reserve(there, WANTED, check_mode=True) and network.hosts() == []
    assert dhcp.reserve(there, WANTED)
    assert network.hosts() == network.hosts(CONFIG) == [(MAC, "10.3.0.5", "web")]
    assert not dhcp.reserve(there, WANTED) and not sent
    network.definitions[LIVE].find("ip[2]/dhcp").clear()  # as after a restart from an older definition
    assert dhcp.reserve(there, WANTED)
    assert network.hosts() == network.hosts(CONFIG) == [(MAC, "10.3.0.5", "web")]


def test_a_new_owner_replaces_the_old_one(network, sent):
    """dnsmasq would not give a reserved address to its new owner as long as the old one's lease lasts."""
    there = connection_to(network)
    dhcp.reserve(there, Reservation("bf-n", OTHER, "10.3.0.5", "web"))
    dhcp.reserve(there, Reservation("bf-n", MAC, "10.3.0.6", "db"))
    network.leases = [{"ipaddr": "10.3.0.5", "mac": OTHER}, {"ipaddr": "10.3.0.6", "mac": MAC}]
    assert dhcp.reserve(there, WANTED)
    assert network.hosts() == network.hosts(CONFIG) == [(MAC, "10.3.0.5", "web")]
    ((packet, to),) = sent
    assert to == ("10.3.0.1", 67) and len(packet) == 300
    assert packet[:4] == b"\1\1\6\0" and packet[12:16] == ipaddress.ip_address("10.3.0.5").packed
    assert packet[28:34].hex(":") == OTHER and packet[236:250] == bytes.fromhex("63825363 350107 3604 0a030001 ff")


def test_a_guest_that_exists_ends_nobody_elses_reservation(network, sent):
    """What the network lost is restored; what somebody gave to another interface meanwhile stays."""
    there = connection_to(network)
    dhcp.reserve(there, Reservation("bf-n", OTHER, "10.3.0.5", "db"))
    for check_mode in (True, False):
        with pytest.raises(NetworkError, match=r"address 10\.3\.0\.5 of libvirt network bf-n is reserved for " + OTHER):
            dhcp.reserve(there, WANTED, check_mode, replace=False)
    assert network.hosts() == [(OTHER, "10.3.0.5", "db")]
    other = Reservation("bf-n", MAC, "10.3.0.6")
    assert dhcp.reserve(there, other, replace=False) and not dhcp.reserve(there, other, replace=False)


def test_what_a_host_reports_of_its_reservations(network, sent, monkeypatch):
    there = connection_to(network)
    dhcp.reserve(there, WANTED)
    dhcp.reserve(there, Reservation("bf-n", OTHER, "10.3.0.6"))
    served = network.definitions[LIVE].find("ip[2]/dhcp")
    served.remove(served.findall("host")[1])
    etree.SubElement(served, "host", name="by-name", ip="10.3.0.7")  # without a MAC address
    there.listAllNetworks = lambda _flags: [network]
    there.listAllDomains = lambda _flags: []  # those that run
    monkeypatch.setattr(facts, "definitions", lambda _connection: [DOMAIN % (MAC.upper(), "bf-n", "52:54:00:00:00:09")])
    both = [
        {"mac": MAC, "address": "10.3.0.5", "complete": True, "used": True},
        {"mac": OTHER, "address": "10.3.0.6", "complete": False, "used": False},
    ]
    assert facts.dhcp_networks(there) == {
        "networks": [{"name": "bf-n", "ours": True, "reservations": both}],
        "unplugged": [],
        "error": None,
    }
    there.listAllNetworks = lambda _flags: 1 // 0
    failed = facts.dhcp_networks(there)
    assert failed["networks"] == [] and "division" in failed["error"]["message"]
    compute.DHCP(failed, "dhcp")
    error = Error()
    error.get_error_code = lambda: NO_SUPPORT
    there.listAllNetworks = mock.Mock(side_effect=error)
    assert facts.dhcp_networks(there) == {"networks": [], "unplugged": [], "error": None}


def test_a_lease_that_stays_is_an_error(network, sent, monkeypatch):
    monkeypatch.setattr(dhcp, "_RELEASE_WAIT", 0)
    network.DHCPLeases = lambda: [{"ipaddr": "10.3.0.5", "mac": OTHER}]
    with pytest.raises(NetworkError, match=r"10\.3\.0\.5 of libvirt network bf-n is still leased to fa:16:3e:00:00:02"):
        dhcp.reserve(connection_to(network), WANTED)


@pytest.mark.parametrize("name", ["web", "1web", "", "\u00fcber", "m\u00fcller", "a b", "-a", "a" * 64])
def test_names_that_libvirt_or_its_server_refuses_are_left_out(network, sent, name):
    there = connection_to(network)
    dhcp.reserve(there, Reservation("bf-n", OTHER, "10.3.0.6", "web"))
    dhcp.reserve(there, Reservation("bf-n", MAC, "10.3.0.5", name))
    assert network.hosts()[1] == (MAC, "10.3.0.5", None)


def test_a_reservation_goes_with_its_domain(network, sent):
    there = connection_to(network)
    dhcp.reserve(there, WANTED)
    dhcp.reserve(there, Reservation("bf-n", OTHER, "10.3.0.6"))
    network.leases = [{"ipaddr": "10.3.0.5", "mac": MAC}]
    xml = DOMAIN % (MAC, "bf-n", OTHER)
    text = ["DHCP reservation of 10.3.0.5 in network bf-n"]
    assert dhcp.release_of_domain(there, xml, check_mode=True) == text and len(network.hosts()) == 2
    assert dhcp.release_of_domain(there, xml) == text
    assert network.hosts() == network.hosts(CONFIG) == [(OTHER, "10.3.0.6", None)] and len(sent) == 1
    assert dhcp.release_of_domain(there, xml) == []
    network.leases = [{"ipaddr": "10.3.0.6", "mac": OTHER}]
    assert dhcp.release_of_domain(there, DOMAIN % (OTHER, "bf-n", MAC)) and len(sent) == 2 and network.hosts() == []
    assert dhcp.release_of_domain(there, DOMAIN % (MAC, "gone", OTHER)) == []


def test_other_programs_networks_are_left_alone(network, sent):
    """One with a range hands out free addresses: it is none of ours."""
    for root in network.definitions.values():
        served = etree.SubElement(root.findall("ip")[1], "dhcp")
        etree.SubElement(served, "range", start="10.3.0.2", end="10.3.0.254")
        etree.SubElement(served, "host", mac=MAC, ip="10.3.0.5")
    there = connection_to(network)
    assert dhcp.release_of_domain(there, DOMAIN % (MAC, "bf-n", OTHER)) == [] and len(network.hosts()) == 1
    with pytest.raises(NetworkError, match="hands out free addresses"):
        dhcp.reserve(there, WANTED)
    with pytest.raises(NetworkError, match="has a DHCP range"):
        ensure_network(there, SPEC, check_mode=True)


@pytest.mark.parametrize(("name", "address"), [("bf-n", "10.5.0.5"), ("gone", "10.3.0.5")])
def test_a_network_without_the_address_is_an_error(network, name, address):
    with pytest.raises(NetworkError, match="libvirt network %s" % name):
        dhcp.reserve(connection_to(network), Reservation(name, MAC, address))


def test_an_existing_network_has_to_serve_what_is_promised(network):
    there = connection_to(network)
    assert not ensure_network(there, SPEC, check_mode=True)["changed"]
    more = [{**SUBNET, "dns_nameservers": ["1.1.1.1"]}, {**SUBNET, "cidr": "10.6.0.0/24", "gateway_ip": "10.6.0.1"}]
    for subnet, part in zip(more, ("dns-server,1.1.1.1", "does not have the address 10.6.0.1")):
        with pytest.raises(NetworkError, match=part):
            ensure_network(
                there, NetworkSpec("n", source="bf-n", manage=True, mtu=1400, subnets=(subnet,)), check_mode=True
            )


def test_the_definition_has_no_range(network):
    """Options only: libvirt serves as soon as there is a reservation, and nobody without one."""
    root = network.definitions[LIVE]
    options = [e.get("value") for e in root.iter("{*}option")]
    assert options == ["dhcp-option=option:mtu,1400", "dhcp-option=option:dns-server,9.9.9.9"]
    assert root.find(".//range") is None and [e.get("address") for e in root.findall("ip")] == ["10.2.0.1", "10.3.0.1"]
    without = network_xml(NetworkSpec("n", manage=True, mtu=1400, subnets=({**SUBNET, "enable_dhcp": False},)))
    assert "dnsmasq" not in without
