# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Options that the DHCP server of a managed libvirt network gives to guests, in the words of dnsmasq."""

from __future__ import annotations

import typing as t

if t.TYPE_CHECKING:  # hosts load this file, and need no more
    from .network import Network


def options(subnet: t.Mapping[str, t.Any], forward: str, mtu: int | None) -> list[str]:
    """dnsmasq's options for a subnet, besides what libvirt sets itself: the address, its gateway as router (with forward none it
    sets none), and itself as DNS server."""
    lines = []
    if mtu is not None:
        lines.append("dhcp-option=option:mtu,%d" % int(mtu))
    servers = [address for address in subnet.get("dns_nameservers") or () if ":" not in address]
    if servers:
        lines.append(",".join(["dhcp-option=option:dns-server", *servers]))
    routes = [(route["destination"], route["nexthop"]) for route in subnet.get("host_routes") or ()]
    if routes:
        # A guest that gets routes ignores the router (RFC 3442).
        routes += [("0.0.0.0/0", str(subnet["gateway_ip"]))] if forward != "none" else []
        lines.append(",".join(["dhcp-option=option:classless-static-route", *(part for r in routes for part in r)]))
    return lines


def reservations(
    mac: str, addresses: t.Iterable[t.Mapping[str, str]], network: Network, name: str
) -> list[dict[str, str]]:
    """The addresses ({subnet_id, ip_address}) of a port that a managed network's DHCP server has to give it, for the module domain.

    The server knows one address of an interface in a network: the first one of a port that has several.
    """
    if not network.is_managed:
        return []
    served = {subnet.id for subnet in network.subnets if subnet.enable_dhcp}
    given = [fixed["ip_address"] for fixed in addresses if fixed["subnet_id"] in served]
    return [{"network": network.source, "mac": mac, "address": address, "name": name} for address in given[:1]]
