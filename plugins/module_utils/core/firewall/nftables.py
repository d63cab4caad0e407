# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The filters of a host as nftables has them: ``table bridge bootflow``, whole, for one transaction.

A frame of a guest meets three chains. ``sources`` is before the bridge learns an address and before packets are put together: who sends, MAC
address, ARP, source of IP. ``egress`` has packets that connection tracking knows and has put together: what no guest may say, then the groups.
``ingress`` is at the port of the guest that gets it, wherever it comes from: another guest, the wire, the host, or routed by the host.

What is established passes in the direction of its answers only; in its own direction each packet needs a rule. So the end of a rule, or of a
membership, ends the connections that it allowed, as it does in OVN. source: Neutron's firewall drivers, for what is always allowed and what never is.
"""

from __future__ import annotations

import hashlib
import re
import typing as t

from .document import WITH_TYPES, FilteredPort, Filters, Group, Network, Rule, collapsed

TABLE = "bootflow"
FAMILY = "bridge"  # of the table: nftables' word for frames that a bridge forwards

_FAMILIES: t.Mapping[int, str] = {4: "ip", 6: "ip6"}

#: Before connection tracking, which is at -200 and puts fragments together; after it, and before br_netfilter at 0.
_BEFORE_TRACKING, _AFTER_TRACKING = -300, -150

# Frames to these addresses are the bridge's own, and do not pass its prerouting hook: spanning tree, LLDP, pause.
_LINK_LOCAL = "ether daddr & ff:ff:ff:ff:ff:f0 == 01:80:c2:00:00:00 drop"

# Requests of QEMU for the switches, when a guest arrives from another host: sender and target are the guest.
_RARP = "0x8035"
_RARP_HEAD = "@nh,0,64 0x0001080006040003"  # Ethernet, IPv4, 6 and 4 bytes, operation 3

_WITHOUT_ADDRESS = (
    "{ 131, 135, 143 }"  # without an address: reports of multicast groups, the question whether an address is free
)
_EGRESS_ICMPV6 = "{ 131, 132, 133, 135, 143 }"
_INGRESS_ICMPV6 = "{ 130, 134, 135, 136 }"
_OF_ROUTERS = "{ 134, 137 }"  # advertisements and redirects


def render(filters: Filters) -> str:
    """Return the input of ``nft -f`` that replaces all filters of the host. The same filters give the same text."""
    ports = [port for port in filters.ports if port.port_security]
    lines = []
    for family in (FAMILY, "inet", "arp"):
        lines += ["table %s %s" % (family, TABLE), "delete table %s %s" % (family, TABLE)]
    lines += _to_host(ports)
    lines.append("table %s %s {" % (FAMILY, TABLE))
    used = {gid for port in ports for gid in port.groups}
    groups = [group for group in filters.groups if group.id in used]
    named = {(rule.remote_group, rule.version) for group in groups for rule in group.rules if rule.remote_group}
    for group in filters.groups:
        for version in (4, 6):
            if (group.id, version) in named:
                lines += _members(group, version)
    for group in groups:
        for egress in (True, False):
            rules = [_rule(rule) for rule in group.rules if rule.egress is egress]
            lines += _chain(_group_chain(group.id, egress), rules)
    for port in ports:
        lines += _chain("source-" + port.device, _source(port))
        lines += _chain("egress-" + port.device, _egress(port))
        lines += _chain("ingress-" + port.device, _ingress(port))
    lines += _base("sources", "prerouting", _BEFORE_TRACKING, "iifname", "source-", ports)
    # The bridge's own frames meet this hook alone. What else comes here has passed the other one.
    lines += _base("own-sources", "input", _BEFORE_TRACKING, "iifname", "source-", ports)
    lines += _base("egress", "prerouting", _AFTER_TRACKING, "iifname", "egress-", ports)
    lines += _base("ingress", "postrouting", 0, "oifname", "ingress-", ports)
    # A chain without a rule, which tells whether the kernel has this text.
    lines += _chain(mark(lines), ())
    return "\n".join([*lines, "}", ""])


def mark(lines: t.Iterable[str]) -> str:
    """Return the name of the chain that stands for these lines."""
    return "sha256-" + hashlib.sha256("\n".join(lines).encode()).hexdigest()


def mark_of(text: str) -> str:
    """Return the name of the chain that stands for what render() gave."""
    chain = re.search("chain (sha256-[0-9a-f]{64}) {", text)
    return chain.group(1) if chain else ""


def _chain(name: str, rules: t.Iterable[str]) -> list[str]:
    return ["  chain %s {" % name, *("    " + rule for rule in rules), "  }"]


def _base(name: str, hook: str, priority: int, device: str, prefix: str, ports: t.Sequence[FilteredPort]) -> list[str]:
    rules = ["type filter hook %s priority %d; policy accept;" % (hook, priority)]
    if ports:
        pairs = ", ".join('"%s" : jump %s%s' % (port.device, prefix, port.device) for port in ports)
        rules.append("%s vmap { %s }" % (device, pairs))
    return _chain(name, rules)


def _group_chain(gid: str, egress: bool) -> str:
    return "%s-of-%s" % ("egress" if egress else "ingress", gid)


def _set_name(gid: str, version: int) -> str:
    return "members%d-%s" % (version, gid)


def _members(group: Group, version: int) -> list[str]:
    ranges = collapsed(member for member in group.members if member.version == version)
    lines = ["  set %s {" % _set_name(group.id, version), "    type ipv%d_addr; flags interval;" % version]
    if ranges:
        lines.append("    elements = { %s }" % ", ".join(map(str, ranges)))
    return [*lines, "  }"]


def _to_host(ports: t.Sequence[FilteredPort]) -> list[str]:
    """The kernel hands frames to the address of LLDP to the host without a hook of the bridge: whatever is in them would reach it unfiltered."""
    lines = []
    for family, hook in (("inet", "prerouting"), ("arp", "input")):
        rules = ["type filter hook %s priority -300; policy accept;" % hook]
        if ports:
            rules.append("iifname { %s } drop" % ", ".join('"%s"' % port.device for port in ports))
        lines += ["table %s %s {" % (family, TABLE), *_chain("not-by-a-bridge", rules), "}"]
    return lines


# --- what a guest says that it is


def _source(port: FilteredPort) -> list[str]:
    """Each packet, each fragment of one, too, has to come from an address of the port."""
    macs = ", ".join(mac for mac, _ranges in port.sources)
    rules = [_LINK_LOCAL, "ether saddr != { %s } drop" % macs]
    for mac, ranges in port.sources:
        sender = "ether saddr %s" % mac
        v4, v6 = (", ".join(str(r) for r in ranges if r.version == version) for version in (4, 6))
        arp = "%s ether type arp arp htype 1 arp ptype 0x0800 arp hlen 6 arp plen 4 arp saddr ether %s" % (sender, mac)
        if v4:
            # Who asks whether an address is free has none yet: it has to be one of the port, or a guest could keep others from theirs.
            rules.append("%s arp operation { 1, 2 } arp saddr ip { %s } accept" % (arp, v4))
            rules.append("%s arp operation 1 arp saddr ip 0.0.0.0 arp daddr ip { %s } accept" % (arp, v4))
            rules.append("%s ether type ip ip saddr { %s } accept" % (sender, v4))
        rules.append(
            "%s ether type ip ip saddr 0.0.0.0 ip daddr 255.255.255.255 udp sport 68 udp dport 67 accept" % sender
        )
        rules.append("%s ether type ip6 ip6 saddr { %s } accept" % (sender, v6))
        rules.append("%s ether type ip6 ip6 saddr :: icmpv6 type %s accept" % (sender, _WITHOUT_ADDRESS))
        card = "0x" + mac.replace(":", "")
        rules.append(
            "%s ether type %s %s @nh,64,48 %s @nh,112,32 0 @nh,144,48 %s accept"
            % (sender, _RARP, _RARP_HEAD, card, card)
        )
    return [*rules, "drop"]


def _neighbours(port: FilteredPort) -> list[str]:
    """A guest says only of addresses of its port that it has them, and asks only for these whether they are free."""
    own = collapsed(r for _mac, ranges in port.sources for r in ranges if r.version == 6)
    return [
        *("ether type ip6 icmpv6 type 136 @th,64,128 %s accept" % _masked(r) for r in own),
        "ether type ip6 icmpv6 type 136 drop",
        *("ether type ip6 ip6 saddr :: icmpv6 type 135 @th,64,128 %s accept" % _masked(r) for r in own),
        "ether type ip6 ip6 saddr :: icmpv6 type 135 drop",
    ]


def _masked(network: Network) -> str:
    """Return the comparison of 128 bits with a range."""
    address = "0x%032x" % int(network.network_address)
    if network.prefixlen == 128:
        return address
    return "& 0x%032x == %s" % (int(network.netmask), address)


# --- what a guest may send, and what it gets


def _egress(port: FilteredPort) -> list[str]:
    return [
        "ether type { arp, %s } accept" % _RARP,
        # A guest is neither a DHCP server nor a router. Packets are whole here: a fragment hides nothing.
        "ether type ip udp dport 68 drop",
        "ether type ip6 udp dport 546 drop",
        "ether type ip6 icmpv6 type %s drop" % _OF_ROUTERS,
        "ether type ip udp sport 68 udp dport 67 accept",
        "ether type ip6 udp sport 546 udp dport 547 accept",
        *_neighbours(port),
        "ether type ip6 icmpv6 type %s accept" % _EGRESS_ICMPV6,
        *_known(),
        *("jump %s" % _group_chain(gid, True) for gid in port.groups),
        "drop",
    ]


def _ingress(port: FilteredPort) -> list[str]:
    return [
        # A bridge that does not know where an address is sends the frame to all its ports.
        "ether daddr & 01:00:00:00:00:00 == 00:00:00:00:00:00 ether daddr != { %s } drop"
        % ", ".join(mac for mac, _ranges in port.sources),
        "ether type arp accept",
        "ether type != { ip, ip6 } drop",
        "ether type ip udp sport 67 udp dport 68 accept",  # of any server, as in Neutron: guests cannot be one
        "ether type ip6 ip6 saddr fe80::/10 udp sport 547 udp dport 546 accept",
        "ether type ip6 ip6 hoplimit { 1, 255 } icmpv6 type %s accept" % _INGRESS_ICMPV6,
        *_known(),
        *("jump %s" % _group_chain(gid, False) for gid in port.groups),
        "drop",
    ]


def _known() -> list[str]:
    return [
        "ct state invalid drop",
        "ct state related accept",
        "ct state established ct direction reply accept",
    ]


def _rule(rule: Rule) -> str:
    family = _FAMILIES[rule.version]
    words = ["ether type", family]
    other = "daddr" if rule.egress else "saddr"
    if rule.remote_group:
        words += [family, other, "@" + _set_name(rule.remote_group, rule.version)]
    elif rule.prefix is not None and rule.prefix.prefixlen:
        words += [family, other, str(rule.prefix)]
    if rule.protocol in WITH_TYPES:
        words += _icmp(rule)
    elif rule.protocol is not None:
        words += ["meta l4proto", str(rule.protocol)]
        if rule.first is not None:
            words.append(
                "th dport %s"
                % (rule.first if rule.first == rule.last else "%d-%d" % (rule.first, t.cast(int, rule.last)))
            )
    return " ".join([*words, "accept"])


def _icmp(rule: Rule) -> list[str]:
    word = "icmp" if rule.protocol == 1 else "icmpv6"
    if rule.first is None:
        return ["meta l4proto", str(rule.protocol)]
    words = ["%s type %d" % (word, rule.first)]
    return words if rule.last is None else [*words, "%s code %d" % (word, rule.last)]
