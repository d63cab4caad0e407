# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import dataclasses
import ipaddress
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.core.networks import ipam
from ansible_collections.bootflow.compute.plugins.module_utils.core.networks.subnet import Subnet
from ansible_collections.bootflow.compute.tests.unit.worlds.work import lines_run


def pools(*texts):
    return tuple(dict(zip(("start", "end"), text.split("-"))) for text in texts)


def subnet(cidr, *texts):
    return Subnet(id="sub-id", name="sub", cidr=cidr, allocation_pools=pools(*texts))


@pytest.mark.parametrize(
    ("cidr", "gateway", "expected"),
    [
        ("10.0.0.0/24", None, ["10.0.0.1-10.0.0.254"]),
        ("10.0.0.0/24", "10.0.0.1", ["10.0.0.2-10.0.0.254"]),
        ("10.0.0.0/24", "10.0.0.254", ["10.0.0.1-10.0.0.253"]),
        ("10.0.0.0/24", "10.0.0.9", ["10.0.0.1-10.0.0.8", "10.0.0.10-10.0.0.254"]),
        ("10.0.0.0/24", "10.9.0.1", ["10.0.0.1-10.0.0.254"]),
        ("10.0.0.0/24", "10.0.0.0", ["10.0.0.1-10.0.0.254"]),
        ("10.0.0.0/30", "10.0.0.1", ["10.0.0.2-10.0.0.2"]),
        ("10.0.0.0/31", None, ["10.0.0.0-10.0.0.1"]),
        ("10.0.0.0/31", "10.0.0.0", ["10.0.0.1-10.0.0.1"]),
        ("10.0.0.7/32", None, ["10.0.0.7-10.0.0.7"]),
        ("2001:db8::/64", "2001:db8::1", ["2001:db8::2-2001:db8::ffff:ffff:ffff:ffff"]),
        ("2001:db8::/64", None, ["2001:db8::1-2001:db8::ffff:ffff:ffff:ffff"]),
    ],
)
def test_default_pools(cidr, gateway, expected):
    found = ipam.default_pools(cidr, gateway)
    assert found == pools(*expected)
    assert ipam.validate_pools(cidr, found, gateway if len(expected) > 1 else None) == found


def test_valid_pools_come_back_canonical_and_ascending():
    found = ipam.validate_pools(
        "2001:db8::/64", pools("2001:db8:0::20-2001:DB8::2F", "2001:db8::2-2001:db8::1f"), "2001:db8::1"
    )
    assert found == pools("2001:db8::2-2001:db8::1f", "2001:db8::20-2001:db8::2f")


@pytest.mark.parametrize(
    ("given_pools", "gateway", "word"),
    [
        (pools("10.0.0.10-nonsense"), None, "'nonsense' is not an IP address"),
        ([{"start": "10.0.0.10"}], None, "None is not an IP address"),
        (["10.0.0.1-10.0.0.9"], None, "must be a mapping"),
        ([{"start": 167772161, "end": "10.0.0.10"}], None, "167772161 is not an IP address"),
        (pools("2001:db8::1-2001:db8::2"), None, "must be IPv4"),
        (pools("10.0.0.20-10.0.0.10"), None, "start is after the end"),
        (pools("10.0.0.0-10.0.0.10"), None, "the addresses of subnet"),
        (pools("10.0.0.10-10.0.0.255"), None, "the addresses of subnet"),
        (pools("10.0.1.10-10.0.1.20"), None, "the addresses of subnet"),
    ],
)
def test_invalid_pools(given_pools, gateway, word):
    with pytest.raises(errors.InvalidAllocationPool, match=word):
        ipam.validate_pools("10.0.0.0/24", given_pools, gateway)


@pytest.mark.parametrize(
    ("given_pools", "gateway", "error", "text"),
    [
        (pools("10.0.0.20-10.0.0.30", "10.0.0.10-10.0.0.20"), None, errors.OverlappingAllocationPools,
         "Found overlapping allocation pools: 10.0.0.10-10.0.0.20 10.0.0.20-10.0.0.30 for subnet 10.0.0.0/24."),
        (pools("10.0.0.10-10.0.0.90", "10.0.0.20-10.0.0.30"), None, errors.OverlappingAllocationPools,
         "Found overlapping allocation pools: 10.0.0.10-10.0.0.90 10.0.0.20-10.0.0.30 for subnet 10.0.0.0/24."),
        (pools("10.0.0.1-10.0.0.10"), "10.0.0.1", errors.GatewayConflictWithAllocationPools,
         "Gateway ip 10.0.0.1 conflicts with allocation pool 10.0.0.1-10.0.0.10."),
        (pools("10.0.0.1-10.0.0.10"), "10.0.0.10", errors.GatewayConflictWithAllocationPools,
         "Gateway ip 10.0.0.10 conflicts with allocation pool 10.0.0.1-10.0.0.10."),
    ],
)  # fmt: skip
def test_pools_that_are_conflicts_with_neutron(given_pools, gateway, error, text):
    with pytest.raises(error) as caught:
        ipam.validate_pools("10.0.0.0/24", given_pools, gateway)
    assert (caught.value.status, caught.value.message) == (409, text)


def test_addresses_that_are_conflicts_with_neutron():
    taken = errors.FixedIpAlreadyInUse(address="10.0.0.9", subnet="s")
    assert (taken.status, errors.NoMoreFixedIps(net="n").status) == (409, 409)


@pytest.mark.parametrize("cidr", ["10.0.0.0", "10.0.0.0/33", "x/24", "", None])
def test_bad_cidr(cidr):
    with pytest.raises(errors.InvalidInput, match="not a CIDR"):
        ipam.validate_pools(cidr, (), None)


# A wished 172.20.22.64 with the pool 172.20.20.100-172.20.20.200.
SEED = subnet("172.20.20.0/22", "172.20.20.100-172.20.20.200")


@pytest.mark.parametrize(
    ("ip", "fine", "in_pools"),
    [
        ("172.20.22.64", True, False),
        ("172.20.20.99", True, False),
        ("172.20.20.100", True, True),
        ("172.20.20.150", True, True),
        ("172.20.20.200", True, True),
        ("172.20.20.201", True, False),
        ("172.20.20.0", False, False),
        ("172.20.23.255", False, False),
        ("172.20.24.1", False, False),
        ("::ffff:172.20.20.100", False, False),
        ("172.20.20.100/22", False, False),
        ("nonsense", False, False),
        ("", False, False),
    ],
)
def test_fixed_ip(ip, fine, in_pools):
    assert ipam.in_allocation_pools(ip, SEED.allocation_pools) is in_pools
    for enforce in (False, True):
        if not fine:
            with pytest.raises(errors.InvalidIpForSubnet, match="not a valid IP for the specified subnet"):
                ipam.check_fixed_ip(SEED, ip, enforce)
        elif enforce and not in_pools:
            with pytest.raises(errors.InvalidIpForAllocationPools) as caught:
                ipam.check_fixed_ip(SEED, ip, enforce)
            assert ip in caught.value.message  # the seed's patch says a literal word there
        else:
            ipam.check_fixed_ip(SEED, ip, enforce)


@pytest.mark.parametrize(
    ("cidr", "ip", "fine"),
    [
        ("10.0.0.0/31", "10.0.0.0", True),
        ("10.0.0.5/32", "10.0.0.5", True),
        ("2001:db8::/64", "2001:db8::", False),
        ("2001:db8::/64", "2001:db8::ffff:ffff:ffff:ffff", True),
        ("2001:db8::/64", "2001:DB8:0:0::5", True),
        ("fe80::/64", "fe80::1%eth0", False),
    ],
)
def test_fixed_ip_at_the_borders(cidr, ip, fine):
    if fine:
        ipam.check_fixed_ip(subnet(cidr), ip, False)
    else:
        with pytest.raises(errors.InvalidIpForSubnet):
            ipam.check_fixed_ip(subnet(cidr), ip, False)


def test_the_gateway_of_a_managed_network_is_taken_by_its_hosts():
    """A guest with it would take the hosts' own address."""
    seed = dataclasses.replace(subnet("10.0.0.0/24"), gateway_ip="10.0.0.1")
    ipam.check_fixed_ip(seed, "10.0.0.1", False)
    ipam.check_fixed_ip(seed, "10.0.0.2", False, managed=True)
    with pytest.raises(errors.IpAddressInUse, match=r"10\.0\.0\.1 is the gateway of subnet") as caught:
        ipam.check_fixed_ip(seed, "10.0.0.1", False, managed=True)
    assert caught.value.status == 409


def test_no_pools_refuse_when_enforced():
    with pytest.raises(errors.InvalidIpForAllocationPools):
        ipam.check_fixed_ip(subnet("10.0.0.0/24"), "10.0.0.5", True)


def number(text):
    return int(ipaddress.ip_address(text))


def first(there, used):
    found = next(ipam.without(ipam.pool_ranges(there), used), None)
    return None if found is None else ipam.address_text(found[0], there.ip_version)


@given(st.sets(st.integers(min_value=0, max_value=11)))
def test_what_is_free_is_what_is_not_taken_lowest_first(taken):
    there = subnet("10.0.0.0/24", "10.0.0.20-10.0.0.26", "10.0.0.10-10.0.0.14")
    every = [*range(number("10.0.0.10"), number("10.0.0.15")), *range(number("10.0.0.20"), number("10.0.0.27"))]
    used = {every[i] for i in taken} | {number("10.0.0.9"), number("10.0.0.16"), number("10.0.0.27")}
    ranges = list(ipam.without(ipam.pool_ranges(there), used))
    assert [n for low, high in ranges for n in range(low, high + 1)] == [a for a in every if a not in used]
    assert all(low <= high for low, high in ranges)


def test_a_large_ipv6_subnet_costs_nothing():
    there = subnet("2001:db8::/64", "2001:db8::2-2001:db8::ffff:ffff:ffff:ffff")
    used = {number("2001:db8::2") + i for i in range(1000)}
    assert first(there, used) == "2001:db8::3ea"
    assert lines_run(lambda: first(there, used)) < 20 * len(used)


def test_no_pools_no_address():
    assert first(subnet("10.0.0.0/24"), set()) is None


def test_mac_addresses():
    rng = random.Random(7)
    macs = [ipam.new_mac(rng, ipam.BASE_MAC) for _each in range(200)]
    assert len(set(macs)) == 200
    assert all(m.startswith("fa:16:3e:") and len(m) == 17 and m == m.lower() for m in macs)
    assert ipam.new_mac(random.Random(7), ipam.BASE_MAC) == macs[0]
    assert ipam.new_mac(rng, ipam.checked_base_mac("FA:16:3E:4F:00:00")).startswith("fa:16:3e:4f:")


@pytest.mark.parametrize("base", ["fa:16:3e", "01:16:3e:00:00:00", "zz:16:3e:00:00:00", ""])
def test_bad_base_mac(base):
    with pytest.raises(errors.InvalidInput, match="base_mac"):
        ipam.checked_base_mac(base)
