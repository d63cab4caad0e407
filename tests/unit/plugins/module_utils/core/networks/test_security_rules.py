# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Rules of security groups in their usual form, and the errors of Neutron for what does not fit together."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.core.firewall import document, nftables
from ansible_collections.bootflow.compute.plugins.module_utils.core.networks.security_rules import Rule, checked_rule


@pytest.mark.parametrize(
    ("fields", "protocol"),
    [
        ({"protocol": "TCP"}, "tcp"),
        ({"protocol": 6}, "tcp"),
        ({"protocol": "017"}, "udp"),
        ({"protocol": "any"}, None),
        ({"protocol": "icmp", "ethertype": "IPv6"}, "icmpv6"),
        ({"protocol": 1, "ethertype": "IPv6"}, "icmpv6"),
        ({"protocol": "ipv6-icmp", "ethertype": "IPv6"}, "icmpv6"),
        ({"protocol": "vrrp"}, "112"),
        ({"protocol": "ipv6-route", "ethertype": "IPv6"}, "43"),
        ({"protocol": "dccp", "port_range_min": 1, "port_range_max": 2}, "33"),
        ({"protocol": "udplite", "port_range_min": 1, "port_range_max": 2}, "136"),
    ],
)
def test_a_protocol_has_one_name(fields: dict[str, t.Any], protocol: t.Optional[str]) -> None:
    assert checked_rule("ingress", **fields).protocol == protocol


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"protocol": "tcpp"}, errors.SecurityGroupRuleInvalidProtocol),
        ({"protocol": 256}, errors.SecurityGroupRuleInvalidProtocol),
        ({"protocol": -1}, errors.SecurityGroupRuleInvalidProtocol),
        ({"port_range_min": 1, "port_range_max": 2}, errors.SecurityGroupProtocolRequiredWithPorts),
        ({"protocol": "gre", "port_range_min": 1, "port_range_max": 2}, errors.SecurityGroupInvalidProtocolForPort),
        ({"protocol": "tcp", "port_range_min": 0, "port_range_max": 2}, errors.SecurityGroupInvalidPortValue),
        ({"protocol": "tcp", "port_range_min": 1, "port_range_max": 65536}, errors.SecurityGroupInvalidPortValue),
        ({"protocol": "tcp", "port_range_min": 2, "port_range_max": 1}, errors.SecurityGroupInvalidPortRange),
        ({"protocol": "tcp", "port_range_min": 2}, errors.SecurityGroupInvalidPortRange),
        ({"protocol": "icmp", "port_range_max": 0}, errors.SecurityGroupMissingIcmpType),
        ({"protocol": "icmp", "port_range_min": 256}, errors.SecurityGroupInvalidIcmpValue),
        ({"protocol": "icmp", "port_range_min": 3, "port_range_max": 256}, errors.SecurityGroupInvalidIcmpValue),
        ({"protocol": "icmpv6"}, errors.SecurityGroupEthertypeConflictWithProtocol),
        ({"protocol": "ipv6-encap"}, errors.SecurityGroupEthertypeConflictWithProtocol),
        ({"remote_ip_prefix": "fd00::/8"}, errors.SecurityGroupRuleParameterConflict),
        ({"remote_ip_prefix": "10.0.0.0/33"}, errors.InvalidInput),
        ({"remote_ip_prefix": "10.0.0.0/8", "remote_group_id": "g"}, errors.SecurityGroupRemoteGroupAndRemoteIpPrefix),
    ],
)
def test_what_does_not_fit_together_is_refused(fields: dict[str, t.Any], error: type[errors.BootflowError]) -> None:
    with pytest.raises(error):
        checked_rule("ingress", **fields)


def test_a_range_has_no_bits_of_the_host_and_all_addresses_are_no_range() -> None:
    assert checked_rule("ingress", remote_ip_prefix="10.1.2.3/8").remote_ip_prefix == "10.0.0.0/8"
    assert checked_rule("ingress", remote_ip_prefix="10.1.2.3").remote_ip_prefix == "10.1.2.3/32"
    everybody = checked_rule("ingress", remote_ip_prefix="0.0.0.0/0", description="all")
    assert everybody.meaning == Rule("ingress").meaning != Rule("egress").meaning


@pytest.mark.parametrize("protocol", ["dccp", "udplite", "sctp"])
def test_hosts_filter_by_ports_of_each_protocol_that_has_them(protocol: str) -> None:
    rule = checked_rule("ingress", protocol=protocol, port_range_min=5, port_range_max=6)
    number = int(rule.protocol) if rule.protocol and rule.protocol.isdigit() else rule.protocol
    given = {"direction": "ingress", "ethertype": "IPv4", "protocol": number, "port_range_min": 5, "port_range_max": 6}
    group, port = "aaaaaaaa-0000-4000-8000-000000000001", "00000001-1111-4000-8000-000000000001"
    read = document.read_filters(
        {
            "version": 1,
            "revision": 1,
            "groups": {group: {"rules": [given]}},
            "ports": [
                {"port_id": port, "instance": None, "device": "tap0", "mac": "fa:16:3e:00:00:01", "addresses": [],
                 "port_security_enabled": True, "groups": [group]},
            ],
        }
    )  # fmt: skip
    assert "th dport 5-6 accept" in nftables.render(read)
