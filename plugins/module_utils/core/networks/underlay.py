# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The underlay of VXLAN networks: the network in which compute hosts send each other the frames of guests."""

from __future__ import annotations

import ipaddress
import typing as t

from ..errors import InvalidInput

#: UDP port of the tunnels. source: RFC 7348
PORT = 4789
MOST_VNI = 2**24 - 1
#: IP version of the underlay -> bytes that a packet of a guest gets around it: Ethernet 14, VXLAN 8, UDP 8, and IP 20 or 40.
OVERHEAD = {4: 50, 6: 70}
#: MTU of a network without one: it fits into Ethernet's 1500 with either version.
DEFAULT_MTU = 1500 - max(OVERHEAD.values())


def check_underlay_address(value: t.Any) -> str:
    """Return an address of a host in the underlay, in its usual form. :raises InvalidInput: no host can have it there"""
    try:
        address = ipaddress.ip_address(str(value))
    except ValueError:
        raise InvalidInput(message="%r is not an IP address" % (value,), remedy=_REMEDY) from None
    if address.is_multicast or address.is_unspecified or address.is_loopback or address.is_link_local:
        raise InvalidInput(
            message="%s is not an address at which other hosts reach one another" % address, remedy=_REMEDY
        )
    return str(address)


def peers_of(address: str, addresses: t.Iterable[t.Any]) -> tuple[str, ...]:
    """Return the underlay addresses of the other hosts, each once, in order.

    :raises InvalidInput: an address is wrong, or of another IP version.
    """
    version = ipaddress.ip_address(address).version
    peers = {ipaddress.ip_address(check_underlay_address(other)) for other in addresses} - {
        ipaddress.ip_address(address)
    }
    for peer in sorted(peers, key=int):
        if peer.version != version:
            raise InvalidInput(
                message="bootflow_vxlan_address is %s here and %s on another host: a VXLAN network has one IP version"
                % (address, peer),
                remedy=_ONE_VERSION,
            )
    return tuple(str(peer) for peer in sorted(peers, key=int))


def check_together(address_by_host: t.Mapping[str, str]) -> None:
    """Check the addresses of all hosts, each as check_underlay_address() returns it; hosts without one are left out.

    :raises InvalidInput: two hosts have one address, or addresses have two IP versions.
    """
    host_by_address: dict[str, str] = {}
    host_by_version: dict[int, str] = {}
    for host, address in address_by_host.items():
        if not address:
            continue
        first = host_by_address.setdefault(address, host)
        if first != host:
            raise InvalidInput(
                message="bootflow_vxlan_address is %s on %s and on %s: neither would send frames to the other"
                % (address, first, host),
                remedy="Set it to the address of an interface of each host, for example in host_vars.",
            )
        host_by_version.setdefault(ipaddress.ip_address(address).version, host)
    if len(host_by_version) > 1:
        some = ["%s on %s" % (address_by_host[host], host) for _version, host in sorted(host_by_version.items())]
        raise InvalidInput(
            message="bootflow_vxlan_address is %s: a VXLAN network has one IP version" % " and ".join(some),
            remedy=_ONE_VERSION,
        )


def most_mtu(address: str, underlay_mtu: int) -> int:
    """Return the largest MTU of a network whose tunnels begin at ``address``. :arg underlay_mtu: of the interface with this address"""
    return underlay_mtu - OVERHEAD[ipaddress.ip_address(address).version]


_ONE_VERSION = "Give all compute hosts IPv4 addresses as bootflow_vxlan_address, or all of them IPv6 addresses."
_REMEDY = "Set bootflow_vxlan_address to the address of an interface that leads to the other compute hosts."
