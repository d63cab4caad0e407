# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The document of a host's filters, and nftables' words for it."""

from __future__ import annotations

import copy

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core.errors import InvalidInput
from ansible_collections.bootflow.compute.plugins.module_utils.core.firewall.document import link_local, read_filters
from ansible_collections.bootflow.compute.plugins.module_utils.core.firewall.nftables import mark_of, render

GROUP = "aaaaaaaa-0000-4000-8000-000000000001"
PORT = {
    "port_id": "00000001-1111-4000-8000-000000000001",
    "instance": "00000001-2222-4000-8000-000000000001",
    "device": "tap00000001-11",
    "mac": "fa:16:3e:00:00:01",
    "addresses": ["10.0.0.11", "fd00::11"],
    "port_security_enabled": True,
    "groups": [GROUP],
}


def document(rule=None, members=None, **port):
    rules = [{"direction": "ingress", "ethertype": "IPv4", **rule}] if rule is not None else []
    return {
        "version": 1,
        "revision": 1,
        "ports": [{**PORT, **port}],
        "groups": {GROUP: {"rules": rules, "members": members or {}}},
    }


def text_of(*args, **kwargs):
    return render(read_filters(document(*args, **kwargs)))


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        ({}, "ether type ip accept"),
        ({"protocol": "tcp"}, "ether type ip meta l4proto 6 accept"),
        ({"protocol": "udp", "port_range_min": 53, "port_range_max": 53}, "ether type ip meta l4proto 17 th dport 53 accept"),
        ({"protocol": "132", "port_range_min": 1, "port_range_max": 9}, "ether type ip meta l4proto 132 th dport 1-9 accept"),
        ({"protocol": "icmp"}, "ether type ip meta l4proto 1 accept"),
        ({"protocol": "icmp", "port_range_min": 8}, "ether type ip icmp type 8 accept"),
        ({"protocol": "icmp", "port_range_min": 3, "port_range_max": 4}, "ether type ip icmp type 3 icmp code 4 accept"),
        ({"protocol": "icmp", "ethertype": "IPv6", "port_range_min": 128}, "ether type ip6 icmpv6 type 128 accept"),
        ({"protocol": 47, "remote_ip_prefix": "10.1.2.3/8"}, "ether type ip ip saddr 10.0.0.0/8 meta l4proto 47 accept"),
        ({"remote_ip_prefix": "0.0.0.0/0"}, "ether type ip accept"),
        ({"direction": "egress", "ethertype": "IPv6", "remote_ip_prefix": "fd00::/8"}, "ether type ip6 ip6 daddr fd00::/8 accept"),
        ({"remote_group_id": GROUP}, "ether type ip ip saddr @members4-%s accept" % GROUP),
    ],
)  # fmt: skip
def test_rules(rule, words):
    assert "\n    %s\n" % words in text_of(rule)


@pytest.mark.parametrize(
    ("rule", "port", "field"),
    [
        ({"protocol": "tcp; drop"}, {}, "protocol"),
        ({"protocol": 256}, {}, "protocol"),
        ({"protocol": True}, {}, "protocol"),
        ({"protocol": "icmpv6"}, {}, "protocol"),
        ({"port_range_min": 1, "port_range_max": 2}, {}, "port_range_max"),
        ({"protocol": "tcp", "port_range_min": 2, "port_range_max": 1}, {}, "port_range_max"),
        ({"protocol": "tcp", "port_range_min": 2}, {}, "port_range_max"),
        ({"protocol": "icmp", "port_range_max": 2}, {}, "port_range_max"),
        ({"protocol": "icmp", "port_range_min": 256}, {}, "port_range_min"),
        ({"remote_ip_prefix": "fd00::/8"}, {}, "remote_ip_prefix"),
        ({"remote_ip_prefix": "10.0.0.0/8 accept"}, {}, "remote_ip_prefix"),
        ({"remote_group_id": GROUP.replace("a", "c")}, {}, "rules"),
        ({"remote_group_id": GROUP, "remote_ip_prefix": "10.0.0.0/8"}, {}, "remote_group_id"),
        ({"direction": "both"}, {}, "direction"),
        ({}, {"device": 'tap" drop'}, "device"),
        ({}, {"device": "tap00000001-1111"}, "device"),
        ({}, {"mac": "ff:ff:ff:ff:ff:ff"}, "mac"),
        ({}, {"mac": "fa:16:3e:00:00:01 "}, "mac"),
        ({}, {"addresses": ["10.0.0.0/8"]}, "addresses"),
        ({}, {"groups": [GROUP.replace("a", "c")]}, "groups"),
        ({}, {"allowed_address_pairs": [{"ip_address": "all"}]}, "ip_address"),
        ({}, {"port_security_enabled": "no"}, "port_security_enabled"),
    ],
)
def test_a_document_that_does_not_fit_is_refused(rule, port, field):
    with pytest.raises(InvalidInput, match=field):
        read_filters(document(rule, **port))


def test_two_ports_have_no_device_in_common():
    given = document()
    given["ports"].append({**PORT, "port_id": PORT["instance"]})
    with pytest.raises(InvalidInput, match="device"):
        read_filters(given)


def test_a_port_without_security_is_not_in_the_filters():
    assert "tap00000001-11" not in text_of(port_security_enabled=False)


def test_pairs_open_more_and_ranges_do_not_overlap():
    pairs = [
        {"ip_address": "10.0.0.0/24", "mac_address": None},
        {"ip_address": "10.9.0.1", "mac_address": "fa:16:3e:00:00:09"},
    ]
    text = text_of(allowed_address_pairs=pairs)
    assert "ether saddr fa:16:3e:00:00:01 ether type ip ip saddr { 10.0.0.0/24 } accept" in text
    assert "ether saddr fa:16:3e:00:00:09 ether type ip ip saddr { 10.9.0.1/32 } accept" in text
    assert "ether saddr != { fa:16:3e:00:00:01, fa:16:3e:00:00:09 } drop" in text


def test_members_that_overlap_are_one_range():
    members = {"IPv4": ["10.0.0.1", "10.0.0.0/31", "10.0.0.2/31"], "IPv6": []}
    assert "elements = { 10.0.0.0/30 }" in text_of({"remote_group_id": GROUP}, members)


def test_the_link_local_address_of_a_card():
    assert str(link_local("fa:16:3e:00:00:01")) == "fe80::f816:3eff:fe00:1/128"


def test_the_mark_changes_with_the_text():
    one, same, other = text_of(), text_of(), text_of({"protocol": "tcp"})
    assert one == same and mark_of(one) == mark_of(same) != mark_of(other)


def test_the_order_of_ports_and_groups_does_not_matter():
    given = document({"protocol": "tcp"})
    second = {**copy.deepcopy(PORT), "port_id": PORT["instance"], "device": "tap2"}
    texts = {render(read_filters({**given, "ports": ports})) for ports in ([PORT, second], [second, PORT])}
    assert len(texts) == 1
