# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""NetworkFilter: which hosts it passes, what it says of the others, and that a forced host is asked too."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.core.model import Flavor
from ansible_collections.bootflow.compute.plugins.module_utils.core.networks.on_hosts import HostNetwork, Reported
from ansible_collections.bootflow.compute.plugins.module_utils.core.scheduler import placement, whatif
from ansible_collections.bootflow.compute.plugins.module_utils.core.scheduler.columns import Fleet, LazyHosts
from ansible_collections.bootflow.compute.plugins.module_utils.core.scheduler.filters.network_filter import (
    NetworkFilter,
)
from ansible_collections.bootflow.compute.plugins.module_utils.core.scheduler.host_state import HostState
from ansible_collections.bootflow.compute.plugins.module_utils.core.scheduler.request_spec import RequestSpec

from ..reference import make_options

BR0 = HostNetwork("bridge", "br0", "servers")
BR7 = HostNetwork("bridge", "br7", "data")
LAN = HostNetwork("network", "lan-here", "lan")
LAB = HostNetwork("vxlan", "underlay", "lab")
ALL: Reported = {"bridge": {"br0": True, "br7": True}, "network": {"lan-here": True}}
NO_BR7 = "Linux bridge br7 does not exist (network data)"


def fleet(*reports: Reported) -> Fleet:
    room = {"memory_mb": 4096, "vcpus": 8, "local_gb": 100, "updated_at": 1_000_000.0}
    return Fleet([HostState("h%d" % n, "h%d" % n, networks=each, **room) for n, each in enumerate(reports)])


def spec(*networks: HostNetwork, **more: t.Any) -> RequestSpec:
    return RequestSpec(["u"], Flavor("f", 512, 1), networks=networks, **more)


@pytest.mark.parametrize(
    ("reported", "wanted", "reason"),
    [
        (ALL, (BR0, BR7, LAN), None),
        ({"bridge": {"br0": True}, "network": {}}, (BR7,), NO_BR7),
        ({"bridge": {"br0": True}, "network": {}}, (BR0,), None),
        ({"bridge": {}, "network": {"br7": True}}, (BR7,), NO_BR7),
        ({"network": {"lan-here": False}}, (LAN,), "libvirt network lan-here is not active (network lan)"),
        ({"network": {}}, (LAN,), "libvirt network lan-here does not exist (network lan)"),
        ({"bridge": {"br0": True}}, (LAN,), None),  # nothing is known of its libvirt networks
        ({"network": {}}, (BR7, LAN), "libvirt network lan-here does not exist (network lan)"),
        ({"bridge": {}, "network": {}}, (BR7, LAN), NO_BR7 + "; libvirt network lan-here does not exist (network lan)"),
        (None, (BR7, LAN), None),  # it reported before hosts told of networks
        ({"bridge": {}}, (), None),
        ({"vxlan": {"underlay": True}}, (LAB,), None),
        ({"vxlan": {}}, (LAB,), "bootflow_vxlan_address is not set (network lab)"),
        (
            {"vxlan": {"underlay": False}},
            (LAB,),
            "the address of bootflow_vxlan_address is on no interface that is up (network lab)",
        ),
        ({"bridge": {}}, (LAB,), None),  # it reported before there were such networks
    ],
)
def test_a_host(reported: Reported, wanted: tuple[HostNetwork, ...], reason: str | None) -> None:
    hosts, filter_ = fleet(ALL, reported), NetworkFilter(make_options())
    result = filter_.evaluate(hosts, spec(*wanted), hosts.all_rows())
    assert list(result.mask) == [True, reason is None]
    assert reason is None or (result.text is not None and result.text(1) == reason)
    alone = filter_.evaluate(hosts, spec(*wanted), 1)
    assert bool(alone.mask) is (reason is None)


def test_hosts_with_the_same_networks_are_asked_once() -> None:
    """Of a fleet that was read as columns, one host of each kind is made. What one request found is not the answer to the next."""
    made: list[int] = []

    def host(row: int) -> HostState:
        made.append(row)
        return HostState("h%d" % row, "h%d" % row, networks={"bridge": {"br7": True}} if row % 2 else {"bridge": {}})

    numbers = dict.fromkeys(
        ("memory_mb", "memory_mb_used", "local_gb", "local_gb_used", "disk_available_least", "vcpus", "vcpus_used")
        + ("ram_allocation_ratio", "disk_allocation_ratio", "cpu_allocation_ratio", "num_instances", "num_io_ops"),
        [1] * 1000,
    )
    columns = {**numbers, "host": ["h%d" % row for row in range(1000)]}
    hosts = Fleet.of_columns(columns, {"networks": [row % 2 for row in range(1000)]}, host)
    assert isinstance(hosts.hosts, LazyHosts)
    filter_ = NetworkFilter(make_options())
    assert not made and filter_.evaluate(hosts, spec(), hosts.all_rows()).mask.all() and not made
    assert list(filter_.evaluate(hosts, spec(BR7), hosts.all_rows()).mask) == [False, True] * 500
    assert made == [0, 1]
    assert not filter_.evaluate(hosts, spec(BR0), hosts.all_rows()).mask.any()


def test_what_it_needs() -> None:
    filter_ = NetworkFilter(make_options())
    assert filter_.needs(spec(BR0)) == {"networks"} and filter_.needs(spec()) == frozenset()


def place(hosts: Fleet, request: RequestSpec) -> list[str]:
    options = make_options(now=1_000_000.0, explain_failures=True)
    return [selection.host for selection in placement.select_destinations(hosts, request, options)]


def test_the_host_that_has_the_bridge_is_chosen() -> None:
    hosts = fleet({"bridge": {}}, {"bridge": {"br0": True}}, {"bridge": {"br7": True}})
    assert place(hosts, spec(BR7)) == ["h2"]
    with pytest.raises(errors.NoValidHost) as caught:
        place(hosts, spec(BR0, BR7))
    assert "NetworkFilter rejected 3 hosts" in caught.value.message
    assert "Linux bridge br7 does not exist (network data)" in caught.value.message
    assert caught.value.remedy == placement.MAKE_NETWORKS
    reasons = {h["host"]: h["rejected_by"]["reason"] for h in caught.value.details["decision"]["hosts"]}
    assert reasons["h1"] == NO_BR7 and reasons["h2"] == "Linux bridge br0 does not exist (network servers)"


def test_a_forced_host() -> None:
    """It skips the filters, but no guest can have a bridge that its host lacks."""
    hosts = fleet({"bridge": {}}, {"bridge": {"br7": True}})
    assert place(hosts, spec(BR7, force_host="h1")) == ["h1"]
    assert place(hosts, spec(force_host="h0")) == ["h0"]
    with pytest.raises(errors.NoValidHost) as caught:
        place(hosts, spec(BR7, force_host="h0"))
    assert "NetworkFilter rejected h0 (%s)" % NO_BR7 in caught.value.message
    assert caught.value.remedy == placement.MAKE_NETWORKS
    assert caught.value.details["filters"] == [{"name": "NetworkFilter", "start": 1, "end": 0}]
    options = make_options(now=1_000_000.0)
    assert whatif.how_many(hosts, spec(BR7, force_host="h0"), options).total == 0
    assert whatif.how_many(hosts, spec(BR7, force_host="h1"), options).total > 0


def test_a_list_of_filters_without_it() -> None:
    hosts = fleet({"bridge": {}})
    options = make_options(now=1_000_000.0, enabled_filters=("RamFilter",))
    for request in (spec(BR7), spec(BR7, force_host="h0")):
        assert [s.host for s in placement.select_destinations(hosts, request, options)] == ["h0"]


@pytest.mark.parametrize(
    ("stats", "more", "reason"),
    [
        ({}, {}, None),
        ({}, {"has_ports": True}, None),
        (
            {},
            {"has_ports": True, "has_security_groups": True},
            "it filters no ports (bootflow_firewall_driver), and the instance has security groups",
        ),
        ({"firewall_driver": "nftables"}, {"has_ports": True, "has_security_groups": True}, None),
        ({"not_filtering": "nft is missing"}, {"has_ports": True}, "it cannot filter ports: nft is missing"),
        ({"not_filtering": "nft is missing"}, {}, None),
    ],
)
def test_a_host_that_filters_or_not(stats: dict[str, str], more: dict[str, bool], reason: str | None) -> None:
    hosts, filter_ = fleet(ALL, ALL), NetworkFilter(make_options())
    hosts.hosts[1].stats = stats
    hosts.hosts[0].stats = {"firewall_driver": "nftables"}
    result = filter_.evaluate(hosts, spec(BR0, **more), hosts.all_rows())
    assert list(result.mask) == [True, reason is None]
    assert reason is None or (result.text is not None and result.text(1) == reason)
