# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Rules of security groups: checked, in their usual form, compared.

source: Neutron's securitygroups_db (_validate_security_group_rule, _rule_to_key)
"""

from __future__ import annotations

import ipaddress
import typing as t
import uuid
from dataclasses import dataclass

from .. import errors

DEFAULT = "default"  # the group of each project that ports have which name none
INGRESS, EGRESS = DIRECTIONS = ("ingress", "egress")
IPV4, IPV6 = ETHERTYPES = ("IPv4", "IPv6")
WITH_PORTS = ("tcp", "udp", "sctp", "33", "136")  # also DCCP and UDP-Lite
ICMP, ICMPV6 = "icmp", "icmpv6"
_NUMBERS = {"1": ICMP, "6": "tcp", "17": "udp", "58": ICMPV6, "132": "sctp"}
#: Other names of Neutron. A rule has their numbers. source: neutron_lib.constants.IP_PROTOCOL_MAP
_ALIASES: t.Mapping[str, t.Optional[str]] = {
    "ipv6-icmp": ICMPV6, "icmp6": ICMPV6, "any": None, "igmp": "2", "ipip": "4", "egp": "8", "dccp": "33", "ipv6-encap": "41",
    "ipv6-route": "43", "ipv6-frag": "44", "rsvp": "46", "gre": "47", "esp": "50", "ah": "51", "ipv6-nonxt": "59", "ipv6-opts": "60",
    "ospf": "89", "vrrp": "112", "pgm": "113", "udplite": "136",
}  # fmt: skip
#: Protocols that only IPv6 has: ipv6-encap, ipv6-route, ipv6-frag, ICMPv6, ipv6-nonxt, ipv6-opts.
_OF_IPV6 = frozenset(("41", "43", "44", ICMPV6, "59", "60"))
_EVERYTHING = ("0.0.0.0/0", "::/0")
_NAMESPACE = uuid.UUID("6f0a3f5e-7d0b-4c55-9a0e-2f7c5b9a54d1")


@dataclass(frozen=True)
class Rule:
    """A rule in its usual form. ``remote_group_id``: the word of the request until its group is found."""

    direction: str  # of DIRECTIONS
    ethertype: str = IPV4  # of ETHERTYPES
    protocol: t.Optional[str] = None  # a name, or the number of a protocol without one; None: all
    port_range_min: t.Optional[int] = None  # of ICMP the type
    port_range_max: t.Optional[int] = None  # of ICMP the code
    remote_ip_prefix: t.Optional[str] = None
    remote_group_id: t.Optional[str] = None
    description: str = ""

    @property
    def meaning(self) -> tuple[t.Any, ...]:
        """Rules with the same meaning are duplicates: a range of all addresses is none, and the description does not count."""
        prefix = None if self.remote_ip_prefix in _EVERYTHING else self.remote_ip_prefix
        ports = (self.port_range_min, self.port_range_max)
        return (self.direction, self.ethertype, self.protocol, *ports, prefix, self.remote_group_id)


def default_group_id(project: str) -> str:
    """Return the id of the default group of a project: any two runs that make it make the same one."""
    return str(uuid.uuid5(_NAMESPACE, "default %s" % project))


def rules_of_new_group() -> list[Rule]:
    """Return the rules of each new group: its members may send everything."""
    return [Rule(EGRESS, ethertype) for ethertype in ETHERTYPES]


def rules_of_default_group(group_id: str) -> list[Rule]:
    """Return the rules of a project's default group: its members may also receive everything of each other."""
    return [
        *rules_of_new_group(),
        *(Rule(INGRESS, ethertype, remote_group_id=group_id) for ethertype in ETHERTYPES),
    ]


def checked_rule(
    direction: str,
    ethertype: str = IPV4,
    protocol: t.Union[str, int, None] = None,
    port_range_min: t.Optional[int] = None,
    port_range_max: t.Optional[int] = None,
    remote_ip_prefix: t.Optional[str] = None,
    remote_group_id: t.Optional[str] = None,
    description: str = "",
) -> Rule:
    """Return the rule in its usual form.

    :raises InvalidInput: Neutron's error for what does not fit together.
    """
    name = _protocol(protocol, ethertype)
    _check_ports(name, port_range_min, port_range_max)
    prefix = None if remote_ip_prefix is None else _prefix(remote_ip_prefix, ethertype)
    if ethertype == IPV4 and name in _OF_IPV6:
        raise errors.SecurityGroupEthertypeConflictWithProtocol(ethertype=ethertype, protocol=name)
    if prefix is not None and remote_group_id is not None:
        raise errors.SecurityGroupRemoteGroupAndRemoteIpPrefix()
    return Rule(direction, ethertype, name, port_range_min, port_range_max, prefix, remote_group_id, description)


def _protocol(protocol: t.Union[str, int, None], ethertype: str) -> t.Optional[str]:
    if protocol is None:
        return None
    word = str(protocol).lower()
    if word.isascii() and word.isdigit() and len(word) <= 3 and int(word) <= 255:
        word = str(int(word))
    elif word not in _ALIASES and word not in _NUMBERS.values():
        raise errors.SecurityGroupRuleInvalidProtocol(protocol=ascii(protocol))
    name = _ALIASES.get(word, _NUMBERS.get(word, word))
    return ICMPV6 if name == ICMP and ethertype == IPV6 else name  # Neutron's legacy name of ICMPv6


def _check_ports(protocol: t.Optional[str], first: t.Optional[int], last: t.Optional[int]) -> None:
    if first is None and last is None:
        return
    if protocol is None:
        raise errors.SecurityGroupProtocolRequiredWithPorts()
    if protocol in (ICMP, ICMPV6):
        for value, field, attr in ((first, "type", "port_range_min"), (last, "code", "port_range_max")):
            if value is not None and not 0 <= value <= 255:
                raise errors.SecurityGroupInvalidIcmpValue(field=field, attr=attr, value=value)
        if first is None:
            raise errors.SecurityGroupMissingIcmpType(value=last)
        return
    if protocol not in WITH_PORTS:
        raise errors.SecurityGroupInvalidProtocolForPort(protocol=protocol)
    for port in (first, last):
        if port is not None and not 1 <= port <= 65535:
            raise errors.SecurityGroupInvalidPortValue(port=port)
    if first is None or last is None or first > last:
        raise errors.SecurityGroupInvalidPortRange()


def _prefix(text: str, ethertype: str) -> str:
    """Return the range with its prefix length, without the bits after it."""
    try:
        network = ipaddress.ip_network(text.strip(), strict=False)
    except ValueError:
        raise errors.InvalidInput(
            message="%s is not an address range" % ascii(text), remedy="Write it such as 10.0.0.0/24 or fd00:1::/64."
        ) from None
    if ethertype != "IPv%d" % network.version:
        raise errors.SecurityGroupRuleParameterConflict(ethertype=ethertype, cidr=text)
    return str(network)
