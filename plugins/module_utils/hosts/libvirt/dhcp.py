# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Addresses that libvirt's DHCP server reserves for guests. It gives away no others: a network without ``<range>`` serves reservations only.

A reservation lives with its domain: it is made after the domain is defined, before the guest starts, and removed before the
definition is. Running and persistent definition of a network are changed separately, because either may lack it.
"""

from __future__ import annotations

import ipaddress
import os
import re
import socket
import struct
import time
import typing as t
from dataclasses import dataclass

from ...core.errors import IpAddressInUse, NetworkError
from ...core.guest.domain.element import parse, to_text
from ...core.optional import optional_import
from ..os.batch import progress
from .connection import libvirt, libvirt_errors, tolerating

etree = optional_import("lxml.etree")

#: A name that both libvirt and dnsmasq take.
_HOSTNAME = re.compile(r"[A-Za-z][A-Za-z0-9-]{0,62}(\.[A-Za-z0-9-]{1,63})*\Z")

#: The option ``reservations`` of modules: see Reservation.
RESERVATIONS_ARGUMENT: dict[str, t.Any] = {
    "type": "list",
    "elements": "dict",
    "default": [],
    "options": {
        **{option: {"type": "str", "required": True} for option in ("network", "mac", "address")},
        "name": {"type": "str", "default": ""},
    },
}
_RELEASE_WAIT = 3.0  # seconds
_DHCPRELEASE, _MAGIC = 7, b"\x63\x82\x53\x63"


@dataclass(frozen=True)
class Reservation:
    """One address of a guest."""

    network: str  # its name in libvirt
    mac: str
    address: str  # IPv4
    name: str = ""  # of the guest, for the server's DNS


def find_network(connection: t.Any, name: str) -> t.Any | None:
    """Return the libvirt network of this name; None without one."""
    return tolerating(lambda: connection.networkLookupByName(name), "VIR_ERR_NO_NETWORK")


def range_of(element: t.Any) -> ipaddress.IPv4Network | ipaddress.IPv6Network:
    """Return the addresses of an ``<ip>`` of a network."""
    address, mask = element.get("address"), element.get("prefix") or element.get("netmask")
    return ipaddress.ip_network("%s/%s" % (address, mask) if mask else address, strict=False)


def reserve(connection: t.Any, wanted: Reservation, check_mode: bool = False, replace: bool = True) -> bool:
    """Ensure that the server gives this address to this interface. Returns whether anything was, or would be, changed.

    :arg replace: whether this ends the reservation of another interface for the address.
    :raises NetworkError: the network does not exist, has no subnet of the address or gives away free addresses.
    :raises IpAddressInUse: the address is reserved for another interface, which is not to be replaced; or the server does not release the
        address, which another guest had.
    """
    network = find_network(connection, wanted.network)
    if network is None:
        raise NetworkError(
            message="libvirt network %s does not exist on this host" % wanted.network,
            remedy="Boot again: a managed network is defined before its guests.",
        )
    changed = False
    for flag, root in _definitions(network):
        index, subnet = _subnet_of(root, wanted)
        hosts = subnet.findall("dhcp/host")
        old = [h for h in hosts if _mac_of(h) == wanted.mac.lower() or h.get("ip") == wanted.address]
        if any((_mac_of(h), h.get("ip")) == (wanted.mac.lower(), wanted.address) for h in old):
            continue
        others = [_mac_of(h) for h in old if _mac_of(h) != wanted.mac.lower()]
        if others and not replace:
            raise IpAddressInUse(
                message="address %s of libvirt network %s is reserved for %s"
                % (wanted.address, wanted.network, ", ".join(others)),
                remedy="Find out who reserved it (virsh net-dumpxml %s), and remove that reservation." % wanted.network,
            )
        changed = True
        if check_mode:
            continue
        progress.mark_changed()
        new = etree.Element("host", mac=wanted.mac.lower(), ip=wanted.address)
        # libvirt accepts a name once in a network. Of a name that is not a hostname dnsmasq ignores the whole reservation.
        if _HOSTNAME.match(wanted.name) and all(h in old or h.get("name") != wanted.name for h in hosts):
            new.set("name", wanted.name)
        for host in old:
            _update(network, libvirt.VIR_NETWORK_UPDATE_COMMAND_DELETE, index, host, flag)
        _update(network, libvirt.VIR_NETWORK_UPDATE_COMMAND_ADD_LAST, index, new, flag)
    leased_to = [] if check_mode else _end_leases(network, wanted.address, wanted.mac)
    if leased_to:
        raise IpAddressInUse(
            message="address %s of libvirt network %s is still leased to %s"
            % (wanted.address, wanted.network, ", ".join(leased_to)),
            remedy="Wait until the lease expires. Or stop the network on the host (virsh net-destroy %s), which its guests there lose, and boot again:"
            " that starts it, and plugs the guests in again." % wanted.network,
        )
    return changed


def reservations_of(network: t.Any) -> dict[tuple[str, str], bool]:
    """Return (MAC, address) -> whether each definition of the network, running and persistent, has it."""
    pairs_of_definitions = [
        {
            (_mac_of(host), str(host.get("ip")))
            for host in root.iterfind("ip/dhcp/host")
            if host.get("mac") and host.get("ip")
        }
        for _flag, root in _definitions(network)
    ]
    return {
        pair: all(pair in pairs for pairs in pairs_of_definitions)
        for pair in sorted(set().union(*pairs_of_definitions))
    }


def release_of_domain(connection: t.Any, xml: str, check_mode: bool = False) -> list[str]:
    """Remove the reservations of a domain's interfaces; returns them as texts. A network that is gone has none."""
    removed = []
    for interface in parse(xml).iterfind("devices/interface[@type='network']"):
        name, mac = interface.find("source").get("network"), _mac_of(interface.find("mac"), "address")
        removed += release(connection, name, mac, check_mode)
    return removed


def release(connection: t.Any, name: str, mac: str, check_mode: bool = False) -> list[str]:
    """Remove the reservations of an interface (its MAC address in small letters) in the network ``name``; returns them as texts."""
    network = find_network(connection, name)
    if network is None:
        return []
    hosts = [
        (flag, index, host)
        for flag, root in _definitions(network)
        for index, subnet in enumerate(root.findall("ip"))
        if subnet.find("dhcp/range") is None  # else it is another program's
        for host in subnet.iterfind("dhcp/host")
        if _mac_of(host) == mac
    ]
    addresses = sorted({host.get("ip") for _flag, _index, host in hosts})
    if hosts and not check_mode:
        progress.mark_changed()
        for address in addresses:
            _end_leases(network, address)  # before the last reservation is gone, and the server with it
        for flag, index, host in hosts:
            _update(network, libvirt.VIR_NETWORK_UPDATE_COMMAND_DELETE, index, host, flag)
    return ["DHCP reservation of %s in network %s" % (address, name) for address in addresses]


def _definitions(network: t.Any) -> list[tuple[int, t.Any]]:
    """Return (flag of an update, definition): persistent, and running."""
    with libvirt_errors():
        definitions = []
        if network.isPersistent():
            xml = network.XMLDesc(libvirt.VIR_NETWORK_XML_INACTIVE)
            definitions.append((libvirt.VIR_NETWORK_UPDATE_AFFECT_CONFIG, parse(xml)))
        if network.isActive():
            definitions.append((libvirt.VIR_NETWORK_UPDATE_AFFECT_LIVE, parse(network.XMLDesc(0))))
        return definitions


def _subnet_of(root: t.Any, wanted: Reservation) -> tuple[int, t.Any]:
    for index, element in enumerate(root.findall("ip")):
        if ipaddress.ip_address(wanted.address) in range_of(element):
            if element.find("dhcp/range") is None:
                return index, element
            reason = "hands out free addresses, which only the ledger may assign (the network has a DHCP range)"
            remedy = "Remove the range from the network, or set manage: false and enable_dhcp: false."
            break
    else:
        reason, remedy = (
            "has no subnet of %s" % wanted.address,
            "Correct the subnets of the network in bootflow_networks.",
        )
    raise NetworkError(message="libvirt network %s on this host %s" % (wanted.network, reason), remedy=remedy)


def _mac_of(element: t.Any, attribute: str = "mac") -> str:
    return str(element.get(attribute) or "").lower()


def _update(network: t.Any, command: int, index: int, host: t.Any, flag: int) -> None:
    with libvirt_errors():
        network.update(command, libvirt.VIR_NETWORK_SECTION_IP_DHCP_HOST, index, to_text(host), flag)


# --- leases ----------------------------------------------------------------------------------------------------------


def _end_leases(network: t.Any, address: str, except_mac: str = "") -> list[str]:
    """End the leases of an address, because dnsmasq keeps a reserved address from its new owner as long as another guest's lease lasts.

    Returns the MAC addresses whose lease did not end.
    """
    deadline = time.monotonic() + _RELEASE_WAIT
    while True:
        others = _send_releases(network, address, except_mac)
        if not others or time.monotonic() > deadline:
            return others
        time.sleep(0.2)  # the server may just be starting


def _send_releases(network: t.Any, address: str, except_mac: str) -> list[str]:
    """Release the address on behalf of the holders of its leases. Returns their MAC addresses."""
    with libvirt_errors():
        if not network.isActive():
            return []
        bridge = network.bridgeName()
        leases = [lease for lease in network.DHCPLeases() or () if lease["ipaddr"] == address]
        subnets = parse(network.XMLDesc(0)).findall("ip") if leases else ()
    macs = [lease["mac"].lower() for lease in leases if (lease["mac"] or "").lower() not in ("", except_mac.lower())]
    server = next((s.get("address") for s in subnets if ipaddress.ip_address(address) in range_of(s)), None)
    for mac in macs if server else ():
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, bridge.encode("ascii"))
            sock.sendto(release_packet(mac, address, str(server)), (server, 67))
    return macs


def release_packet(mac: str, address: str, server: str) -> bytes:
    """Return a DHCPRELEASE (RFC 2131, 4.4.6) as the guest itself would send it."""
    ip, hardware = socket.inet_aton(address), bytes.fromhex(mac.replace(":", ""))
    head = struct.pack("!BBBB4s4x4s12x16s192x", 1, 1, len(hardware), 0, os.urandom(4), ip, hardware)
    options = bytes((53, 1, _DHCPRELEASE, 54, 4)) + socket.inet_aton(server) + b"\xff"
    return (head + _MAGIC + options).ljust(300, b"\0")
