# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Access control lists of OVN from the rules of security groups: port groups, and address sets of remote groups.

source: Neutron's OVN driver (common/ovn/acl.py), for priorities, actions, and the matches
"""

from __future__ import annotations

import ipaddress
import typing as t

from ..firewall.document import ICMP, ICMPV6, PROTOCOLS
from .rows import ACL, ID, LEDGER, Row, Value

#: A rule allows; what no rule allows is dropped; a DHCP server is never a guest's.
_ALLOW, _DROP, _NEVER = 1002, 1001, 2000
_WITH_PORTS: t.Mapping[int, str] = {PROTOCOLS[name]: name for name in ("tcp", "udp", "sctp")}


class Rule(t.Protocol):
    """A rule of a security group, by Neutron's words."""

    id: str
    direction: str
    ethertype: str
    protocol: str | None
    port_range_min: int | None
    port_range_max: int | None
    remote_ip_prefix: str | None
    remote_group_id: str | None


def group_name(group: str) -> str:
    """Return the name of the port group of a security group."""
    return "bootflow_" + group.replace("-", "_")


def drop_group_name(ledger_id: str) -> str:
    """Return the name of the port group of all ports with port security."""
    return "bootflow_drop_" + ledger_id.replace("-", "_")


def set_name(group: str, version: int) -> str:
    """Return the name of the address set of a security group's members."""
    return "%s_members_ip%d" % (group_name(group), version)


def drops(ledger_id: str) -> list[Row]:
    """Return the ACLs of all ports with port security: guests ask for DHCP always and answer it never, all else needs a rule."""
    group = drop_group_name(ledger_id)
    rows = {
        "ingress": ("to-lport", _DROP, "outport == @%s && ip" % group, "drop"),
        "egress": ("from-lport", _DROP, "inport == @%s && ip" % group, "drop"),
        "dhcp": ("from-lport", _ALLOW, "inport == @%s && ip4 && udp.src == 68 && udp.dst == 67" % group, "allow"),
        "dhcp server": ("from-lport", _NEVER, "inport == @%s && ip4 && udp.src == 67 && udp.dst == 68" % group, "drop"),
        "dhcpv6 server": (
            "from-lport",
            _NEVER,
            "inport == @%s && ip6 && udp.src == 547 && udp.dst == 546" % group,
            "drop",
        ),
    }
    return [_row(ledger_id, "%s of %s" % (name, group), *acl) for name, acl in rows.items()]


def of_rule(ledger_id: str, group: str, rule: Rule) -> Row | None:
    """Return the ACL of a rule; None: OVN has no words for its ports, and what it would allow stays closed. :arg group: id of its group"""
    words = match(group, rule)
    if words is None:
        return None
    return _row(
        ledger_id, rule.id, "to-lport" if rule.direction == "ingress" else "from-lport", _ALLOW, words, "allow-related"
    )


def match(group: str, rule: Rule) -> str | None:
    """Return what an ACL compares; None: OVN has no words for the ports of the protocol."""
    version = int(rule.ethertype[-1])
    ingress = rule.direction == "ingress"
    words = ["%s == @%s" % ("outport" if ingress else "inport", group_name(group)), "ip%d" % version]
    other = "ip%d.%s" % (version, "src" if ingress else "dst")
    if rule.remote_group_id:
        words.append("%s == $%s" % (other, set_name(rule.remote_group_id, version)))
    elif rule.remote_ip_prefix:
        network = ipaddress.ip_network(rule.remote_ip_prefix, strict=False)
        if network.prefixlen:
            words.append("%s == %s" % (other, network))
    protocol = _protocol_words(rule, version)
    return None if protocol is None else " && ".join([*words, *protocol])


def _protocol_words(rule: Rule, version: int) -> list[str] | None:
    if rule.protocol is None:
        return []
    number = PROTOCOLS[rule.protocol] if rule.protocol in PROTOCOLS else int(rule.protocol)
    first, last = rule.port_range_min, rule.port_range_max
    if number in (ICMP, ICMPV6):
        name = "icmp%d" % version
        types = [] if first is None else ["%s.type == %d" % (name, first)]
        return [name, *types, *([] if last is None else ["%s.code == %d" % (name, last)])]
    if first is None:
        return [_WITH_PORTS.get(number) or "ip.proto == %d" % number]
    name = _WITH_PORTS.get(number, "")
    if not name:
        return None
    if first == last:
        return [name, "%s.dst == %d" % (name, first)]
    return [name, "%s.dst >= %d" % (name, first), "%s.dst <= %d" % (name, t.cast(int, last))]


def _row(ledger_id: str, key: str, direction: str, priority: int, words: str, action: str) -> Row:
    values: dict[str, Value] = {"direction": direction, "priority": priority, "match": words, "action": action}
    return Row(ACL, key, {**values, "external_ids": {LEDGER: ledger_id, ID: key}})
