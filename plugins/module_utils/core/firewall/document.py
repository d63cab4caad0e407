# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The ports and the security groups of one host, as the controller hands them over: what it may say is checked here."""

from __future__ import annotations

import ipaddress
import re
import typing as t
from dataclasses import dataclass

from ..answers.shapes import UUID, Field, Misshapen, Shape, choice, flag, items, mapping, maybe, record, text, whole
from ..errors import InvalidInput

VERSION = 1

#: Words of Neutron for protocols, and their numbers. In a rule for IPv6, icmp means icmpv6.
PROTOCOLS = {"icmp": 1, "tcp": 6, "udp": 17, "icmpv6": 58, "sctp": 132}
WITH_PORTS = frozenset((6, 17, 33, 132, 136))  # also DCCP and UDP-Lite, by their numbers
WITH_TYPES = frozenset((1, 58))
ICMP, ICMPV6 = 1, 58

Network = t.Union[ipaddress.IPv4Network, ipaddress.IPv6Network]

_MAC = re.compile(r"[0-9a-f]{2}(:[0-9a-f]{2}){5}")
_DEVICE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,14}")


@dataclass(frozen=True)
class Rule:
    """A rule of a security group. ``protocol``: its number, None: all. ``first`` and ``last``: ports; type and code of ICMP.

    ``prefix``: the other end is in this range; ``remote_group``: it is a member of this group. At most one of them is given.
    """

    egress: bool
    version: int  # of IP
    protocol: int | None = None
    first: int | None = None
    last: int | None = None
    prefix: Network | None = None
    remote_group: str = ""


@dataclass(frozen=True)
class Group:
    """A security group. ``members``: the ranges of its members, both families; () where no rule names it as remote."""

    id: str
    rules: tuple[Rule, ...] = ()
    members: tuple[Network, ...] = ()


@dataclass(frozen=True)
class FilteredPort:
    """A port, and what its guest may say that it is: ``sources`` has the ranges of each MAC address."""

    id: str
    instance: str
    device: str
    mac: str
    sources: tuple[tuple[str, tuple[Network, ...]], ...]
    port_security: bool = True
    groups: tuple[str, ...] = ()


@dataclass(frozen=True)
class Filters:
    """All filters of a host. ``revision``: of the ledger that they are from."""

    revision: int
    ports: tuple[FilteredPort, ...] = ()
    groups: tuple[Group, ...] = ()


def read_filters(document: t.Any) -> Filters:
    """Return the filters of a host.

    :arg document: {version, revision, ports, groups}, see docs/security-groups.md
    :raises InvalidInput: a field does not fit, or two ports have one device; the message names the field.
    """
    try:
        _DOCUMENT(document, "")
        known = document["groups"]
        groups = tuple(_group(gid.lower(), known[gid], "groups.%s" % gid) for gid in sorted(known))
        ports = tuple(
            _port(port, "ports[%d]" % number, {group.id for group in groups})
            for number, port in enumerate(document["ports"])
        )
        _check_remotes(groups)
    except Misshapen as wrong:
        raise InvalidInput(
            message="The filters of ports do not fit: %s is to be %s, and is %.200r"
            % (wrong.path or "the document", wrong.expects, wrong.got),
            remedy="Use one version of the collection on the controller. Report it as a fault if it stays.",
        ) from None
    return Filters(document["revision"], tuple(sorted(ports, key=lambda port: port.id)), groups)


def _range(value: t.Any, path: str) -> None:
    _network(value, path)


def _network(value: t.Any, path: str) -> Network:
    """Return an address or a range of addresses. Bits of the host are allowed, as Neutron allows them."""
    if isinstance(value, str):
        try:
            return ipaddress.ip_network(value, strict=False)
        except ValueError:
            pass
    raise Misshapen(path, "an address or a range of addresses", value)


def _address(value: t.Any, path: str) -> None:
    if isinstance(value, str):
        try:
            ipaddress.ip_address(value)
            return
        except ValueError:
            pass
    raise Misshapen(path, "an address", value)


def _mac(value: t.Any, path: str) -> None:
    """An address of one card: that of a group, such as the one of all, never is a sender."""
    if not isinstance(value, str) or not _MAC.fullmatch(value.lower()) or int(value[:2], 16) & 1:
        raise Misshapen(path, "a MAC address of one card", value)


def _protocol(value: t.Any, path: str) -> None:
    if isinstance(value, bool) or not (
        value is None or value in PROTOCOLS or (_number(value) is not None and 0 <= t.cast(int, _number(value)) <= 255)
    ):
        raise Misshapen(path, "one of %s, or a number from 0 to 255" % ", ".join(PROTOCOLS), value)


def _number(value: t.Any) -> int | None:
    if isinstance(value, int):
        return value
    return int(value) if isinstance(value, str) and re.fullmatch("[0-9]{1,3}", value) else None


_ID = text(36, 36, UUID)
_NUMBER: Shape = maybe(whole(0, 65535))
_RULE = record(
    {"direction": choice("ingress", "egress"), "ethertype": choice("IPv4", "IPv6")},
    {
        "protocol": _protocol,
        "port_range_min": _NUMBER,
        "port_range_max": _NUMBER,
        "remote_ip_prefix": maybe(_range),
        "remote_group_id": maybe(_ID),
    },
)
_PORT = record(
    {
        "port_id": _ID,
        "instance": maybe(_ID),
        "device": text(15, 1, _DEVICE),
        "mac": _mac,
        "addresses": items(_address),
        "port_security_enabled": flag,
        "groups": items(_ID, unique="."),
    },
    {
        "allowed_address_pairs": items(record({"ip_address": _range}, {"mac_address": maybe(_mac)})),
    },
)
_DOCUMENT = record(
    {
        "version": Field(choice(VERSION), "Version of the document."),
        "revision": whole(most=2**63 - 1),
        "ports": items(_PORT, unique="device"),
        "groups": mapping(
            _ID,
            record({"rules": items(_RULE)}, {"members": record({}, {"IPv4": items(_range), "IPv6": items(_range)})}),
        ),
    }
)


def _group(gid: str, group: t.Mapping[str, t.Any], path: str) -> Group:
    members: list[Network] = []
    for family, version in (("IPv4", 4), ("IPv6", 6)):
        for number, value in enumerate((group.get("members") or {}).get(family) or ()):
            member = _network(value, path)
            if member.version != version:
                raise Misshapen("%s.members.%s[%d]" % (path, family, number), "a range of %s" % family, value)
            members.append(member)
    rules = (_rule(rule, "%s.rules[%d]" % (path, number)) for number, rule in enumerate(group["rules"]))
    return Group(gid, tuple(dict.fromkeys(rules)), tuple(members))


def _rule(rule: t.Mapping[str, t.Any], path: str) -> Rule:
    version = int(rule["ethertype"][-1])
    protocol = rule.get("protocol")
    number = PROTOCOLS.get(protocol, _number(protocol)) if protocol is not None else None
    if number == ICMP and version == 6:
        number = ICMPV6
    elif number == ICMPV6 and version == 4:
        raise Misshapen(path + ".protocol", "a protocol of IPv4", protocol)
    first, last = rule.get("port_range_min"), rule.get("port_range_max")
    if number in WITH_TYPES:
        wrong = first is None and last is not None
        for value in (first, last):
            if value is not None and value > 255:
                raise Misshapen(path + ".port_range_min", "a type and a code of ICMP, from 0 to 255", value)
    elif number in WITH_PORTS:
        wrong = (first is None) != (last is None) or (first is not None and first > last)
    else:
        wrong = first is not None or last is not None
    if wrong:
        raise Misshapen(path + ".port_range_max", "the end of a range that its protocol has", last)
    prefix = rule.get("remote_ip_prefix")
    network = _network(prefix, path) if prefix is not None else None
    if network is not None and network.version != version:
        raise Misshapen(path + ".remote_ip_prefix", "a range of %s" % rule["ethertype"], prefix)
    remote = rule.get("remote_group_id")
    if remote and network is not None:
        raise Misshapen(path + ".remote_group_id", "null with a remote_ip_prefix", remote)
    return Rule(rule["direction"] == "egress", version, number, first, last, network, (remote or "").lower())


def _port(port: t.Mapping[str, t.Any], path: str, groups: t.Collection[str]) -> FilteredPort:
    named = tuple(sorted(gid.lower() for gid in port["groups"]))
    for gid in named:
        if gid not in groups:
            raise Misshapen(path + ".groups", "groups of the document", gid)
    mac = port["mac"].lower()
    sources: dict[str, list[Network]] = {mac: [ipaddress.ip_network(address) for address in port["addresses"]]}
    for pair in port.get("allowed_address_pairs") or ():
        pair_mac = (pair.get("mac_address") or mac).lower()
        sources.setdefault(pair_mac, []).append(ipaddress.ip_network(pair["ip_address"], strict=False))
    for source_mac, ranges in sources.items():
        ranges.append(link_local(source_mac))
    return FilteredPort(
        id=port["port_id"].lower(),
        instance=(port["instance"] or "").lower(),
        device=port["device"],
        mac=mac,
        sources=tuple((source_mac, collapsed(ranges)) for source_mac, ranges in sorted(sources.items())),
        port_security=port["port_security_enabled"],
        groups=named,
    )


def _check_remotes(groups: t.Sequence[Group]) -> None:
    known = {group.id for group in groups}
    for group in groups:
        for rule in group.rules:
            if rule.remote_group and rule.remote_group not in known:
                raise Misshapen("groups.%s.rules" % group.id, "rules with groups of the document", rule.remote_group)


def link_local(mac: str) -> ipaddress.IPv6Network:
    """Return the link-local address that a card gives itself by its MAC address (EUI-64). source: RFC 4291, appendix A"""
    parts = bytes(int(part, 16) for part in mac.split(":"))
    identifier = bytes((parts[0] ^ 2, *parts[1:3], 0xFF, 0xFE, *parts[3:]))
    return ipaddress.IPv6Network((b"\xfe\x80" + bytes(6) + identifier, 128))


def collapsed(ranges: t.Iterable[Network]) -> tuple[Network, ...]:
    """Return the ranges without ranges in others, neighbours as one: nftables takes no set whose ranges overlap."""
    given = list(ranges)
    v4 = ipaddress.collapse_addresses(r for r in given if isinstance(r, ipaddress.IPv4Network))
    v6 = ipaddress.collapse_addresses(r for r in given if isinstance(r, ipaddress.IPv6Network))
    return (*v4, *v6)
