# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Addresses of a subnet: its allocation pools, the check of a requested address, what of them is free; MAC addresses.

Pure: used addresses are passed in; the ledger's unique row (subnet, address) decides finally. source: Neutron's rules.
"""

from __future__ import annotations

import bisect
import ipaddress
import re
import socket
import typing as t

from ..errors import (
    GatewayConflictWithAllocationPools,
    InvalidAllocationPool,
    InvalidInput,
    InvalidIpForAllocationPools,
    InvalidIpForSubnet,
    IpAddressInUse,
    OverlappingAllocationPools,
)

if t.TYPE_CHECKING:  # hosts load this file, and need no more
    from .subnet import Subnet

IPNetwork = t.Union[ipaddress.IPv4Network, ipaddress.IPv6Network]
IPAddress = t.Union[ipaddress.IPv4Address, ipaddress.IPv6Address]
Pool = t.Dict[str, str]  # {"start", "end"}, both inclusive
Range = t.Tuple[int, int]  # addresses as numbers, both ends inclusive

BASE_MAC = "fa:16:3e:00:00:00"  # Neutron's base_mac
_MAC = re.compile(r"[0-9a-f]{2}(:[0-9a-f]{2}){5}\Z")


def parse_cidr(cidr: str) -> IPNetwork:
    """The network of ``cidr``; host bits are dropped.

    :raises InvalidInput: not a CIDR.
    """
    try:
        if "/" not in cidr:
            raise ValueError(cidr)
        return ipaddress.ip_network(cidr, strict=False)
    except (TypeError, ValueError):
        raise InvalidInput(
            reason="%r is not a CIDR" % (cidr,), remedy="Write an address and a prefix length, as 10.0.0.0/24."
        ) from None


def overlap(one: IPNetwork, other: IPNetwork) -> bool:
    """Whether two ranges have an address in common."""
    return one.version == other.version and one.overlaps(other)


def parse_ip(text: t.Any) -> IPAddress | None:
    """The address, or None if ``text`` is not one (nor are numbers and addresses with a zone, such as fe80::1%eth0)."""
    if not isinstance(text, str) or "%" in text:
        return None
    try:
        return ipaddress.ip_address(text.strip())
    except ValueError:
        return None


def usable_range(cidr: str) -> tuple[IPAddress, IPAddress]:
    """The first and the last address for ports, both inclusive.

    Without the network address and, for IPv4, the broadcast address; point-to-point and single-address subnets
    (/31, /32, /127, /128) have neither, so there every address counts.

    :raises InvalidInput: not a CIDR.
    """
    net = parse_cidr(cidr)
    first, last = net[0], net[-1]
    if net.max_prefixlen - net.prefixlen > 1:
        first += 1
        if net.version == 4:
            last -= 1
    return first, last


def default_pools(cidr: str, gateway_ip: str | None) -> tuple[Pool, ...]:
    """The default pools of a subnet: its whole usable range without the gateway.

    :raises InvalidInput: not a CIDR.
    """
    first, last = usable_range(cidr)
    if first == last:
        return ({"start": str(first), "end": str(last)},)
    gateway = parse_ip(gateway_ip)
    if gateway is None or gateway.version != first.version or not int(first) <= int(gateway) <= int(last):
        return ({"start": str(first), "end": str(last)},)
    pools = []
    if gateway != first:
        pools.append({"start": str(first), "end": str(gateway - 1)})
    if gateway != last:
        pools.append({"start": str(gateway + 1), "end": str(last)})
    return tuple(pools)


def validate_pools(cidr: str, pools: t.Sequence[t.Mapping[str, t.Any]], gateway_ip: str | None) -> tuple[Pool, ...]:
    """The pools in canonical form, ascending.

    :raises InvalidAllocationPool: start or end is not an address, or of the other IP version; start after end; outside
        the subnet's usable range. The message names the pool.
    :raises OverlappingAllocationPools: two pools have common addresses.
    :raises GatewayConflictWithAllocationPools: the gateway is in a pool.
    :raises InvalidInput: not a CIDR.
    """
    first, last = usable_range(cidr)
    ranges: list[tuple[IPAddress, IPAddress]] = []
    if not isinstance(pools, (list, tuple)):
        raise InvalidAllocationPool(pool=pools, reason="allocation pools are a list")
    for pool in pools:
        if not isinstance(pool, t.Mapping):
            raise InvalidAllocationPool(pool=pool, reason="a pool must be a mapping with start and end")
        text = "%s-%s" % (pool.get("start"), pool.get("end"))
        start, end = parse_ip(pool.get("start")), parse_ip(pool.get("end"))
        if start is None or end is None:
            wrong = pool.get("end") if start is not None else pool.get("start")
            raise InvalidAllocationPool(pool=text, reason="%r is not an IP address" % (wrong,))
        if start.version != first.version or end.version != first.version:
            raise InvalidAllocationPool(
                pool=text, reason="the addresses must be IPv%d, as in subnet %s" % (first.version, cidr)
            )
        if int(start) > int(end):
            raise InvalidAllocationPool(pool=text, reason="the start is after the end")
        if int(start) < int(first) or int(end) > int(last):
            raise InvalidAllocationPool(pool=text, reason="the addresses of subnet %s are %s-%s" % (cidr, first, last))
        ranges.append((start, end))
    ranges.sort(key=lambda r: int(r[0]))
    for (start, end), (next_start, next_end) in zip(ranges, ranges[1:]):
        if int(next_start) <= int(end):
            raise OverlappingAllocationPools(
                pool_1="%s-%s" % (start, end), pool_2="%s-%s" % (next_start, next_end), subnet_cidr=cidr
            )
    gateway = parse_ip(gateway_ip)
    for start, end in ranges:
        if gateway is not None and gateway.version == start.version and int(start) <= int(gateway) <= int(end):
            raise GatewayConflictWithAllocationPools(ip_address=gateway, pool="%s-%s" % (start, end))
    return tuple({"start": str(start), "end": str(end)} for start, end in ranges)


def in_allocation_pools(ip: str, pools: t.Iterable[t.Mapping[str, str]]) -> bool:
    """Whether ``ip`` is in one of the pools, both ends of each included."""
    address = parse_ip(ip)
    if address is None:
        return False
    for start, end in _ranges(pools):
        if start.version == address.version and int(start) <= int(address) <= int(end):
            return True
    return False


def check_fixed_ip(subnet: Subnet, ip: str, enforce_pools: bool, managed: bool = False) -> None:
    """Check a requested address.

    An address outside the pools is valid unless ``enforce_pools``, as in Neutron by default.

    :arg managed: the hosts have the address of the gateway.
    :raises InvalidIpForSubnet: not an address, or not one for ports of this subnet.
    :raises InvalidIpForAllocationPools: outside every pool, and ``enforce_pools`` is set.
    :raises IpAddressInUse: the gateway has it.
    """
    address = parse_ip(ip)
    first, last = usable_range(subnet.cidr)
    name = subnet.name or subnet.id
    if address is None or address.version != first.version or not int(first) <= int(address) <= int(last):
        raise InvalidIpForSubnet(
            address=ip,
            subnet="%s (%s)" % (name, subnet.cidr),
            remedy="Choose an address from %s to %s." % (first, last),
        )
    if managed and address == parse_ip(subnet.gateway_ip):
        raise IpAddressInUse(
            message="IP address %s is the gateway of subnet %s, which each host has in this managed network"
            % (ip, name),
            remedy="Choose another address, or set another gateway_ip for the subnet.",
        )
    if enforce_pools and not in_allocation_pools(str(address), subnet.allocation_pools):
        raise InvalidIpForAllocationPools(ip_address=ip, subnet="%s (%s)" % (name, subnet.cidr))


def pool_ranges(subnet: Subnet) -> list[Range]:
    """The allocation pools, ascending."""
    return sorted((int(start), int(end)) for start, end in _ranges(subnet.allocation_pools))


def without(ranges: t.Iterable[Range], used: t.Iterable[int]) -> t.Iterator[Range]:
    """Yield ``ranges`` without the numbers ``used``, in the order of the ranges."""
    numbers = sorted(set(used))
    for first, last in ranges:
        for number in numbers[bisect.bisect_left(numbers, first) : bisect.bisect_right(numbers, last)]:
            if first < number:
                yield first, number - 1
            first = number + 1
        if first <= last:
            yield first, last


def address_text(number: int, version: int) -> str:
    """An address in its short form. :arg version: 4 or 6."""
    return (
        socket.inet_ntop(socket.AF_INET, number.to_bytes(4, "big"))
        if version == 4
        else str(ipaddress.IPv6Address(number))
    )


def address_number(text: str) -> int:
    """The number of a valid address."""
    return int.from_bytes(socket.inet_pton(socket.AF_INET6 if ":" in text else socket.AF_INET, text), "big")


def checked_base_mac(value: t.Any) -> str:
    """:raises InvalidInput: not a unicast MAC address."""
    base_mac = str(value).lower()
    if not _MAC.match(base_mac) or int(base_mac[:2], 16) & 1:
        raise InvalidInput(reason="base_mac %r is not a unicast MAC address" % base_mac)
    return base_mac


def new_mac(rng: t.Any, base_mac: str) -> str:
    """A MAC address with the first three octets of ``base_mac``, or the first four if its fourth is not 00.

    The caller checks whether it is free.

    :arg rng: a random.Random. :arg base_mac: see checked_base_mac().
    """
    octets = base_mac.split(":")
    keep = 3 if octets[3] == "00" else 4
    octets[keep:] = ["%02x" % rng.getrandbits(8) for _octet in octets[keep:]]
    return ":".join(octets)


def _ranges(pools: t.Iterable[t.Mapping[str, str]]) -> t.Iterator[tuple[IPAddress, IPAddress]]:
    for pool in pools:
        yield ipaddress.ip_address(pool["start"]), ipaddress.ip_address(pool["end"])
