# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Guests are filtered before they start, whichever operation starts them; other hosts learn of new members; who cannot filter starts none."""

from __future__ import annotations

import typing as t
from pathlib import Path

import pytest
from simulated_site import NETWORK, Site, entry
from test_shelve import Shelf

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors

#: One on which no instance has an interface yet.
OTHER = {
    **NETWORK,
    "name": "inner",
    "source": "bf-inner",
    "subnets": [{"name": "inner-v4", "cidr": "10.8.0.0/24", "enable_dhcp": True}],
}


@pytest.fixture(name="filtering")
def _filtering(site: Site) -> Site:
    site.variables["bootflow_firewall_driver"] = "nftables"
    site.variables["bootflow_networks"] = [NETWORK, OTHER]
    return site


def filters(site: Site, host: str) -> str:
    return str(t.cast("dict[str, t.Any]", site.hosts[host].read()["model"])["filters"].get("nftables", ""))


def members(site: Site, host: str) -> str:
    """The addresses in the sets of a host."""
    return " ".join(line for line in filters(site, host).splitlines() if "elements = " in line)


def test_filters_come_before_the_guest_and_other_hosts_learn_of_members(filtering: Site) -> None:
    site = filtering
    site.boots(entry("web"), entry("db"))
    first = site.places()
    for host in {str(place[1]) for place in first.values()}:
        asked = site.hosts[host].asked()
        assert asked.index("port_filters") < asked.index("instance_build")
        assert "egress-tap" in filters(site, host)
    texts = {host: members(site, host) for host in {str(place[1]) for place in first.values()}}
    site.boots(entry("more"))
    for host, before in texts.items():
        assert members(site, host) != before
    site.play("delete", names=["web", "db", "more"])
    assert all(not members(site, host) for host in texts)


def test_a_host_that_cannot_filter_starts_no_guest(filtering: Site) -> None:
    site = filtering
    for host in site.hosts.values():
        host.fails("port_filters", errors.HostCannotFilter(host=host.name, reason="Protocol error"))
    site.boots(entry("web"), expect=2)
    assert not any("instance_build" in modules for modules in site.asked().values())


def test_check_mode_shows_the_filters_and_leaves_the_host(filtering: Site) -> None:
    site = filtering
    site.boots(entry("web"))
    host = host_of(site, "web")
    site.hosts[host].forget_filters()
    shown = site.play("port_filters", "--check", "--diff")
    assert "+table bridge bootflow" in shown and not filters(site, host)
    assert "changed=1" in site.play("port_filters") and "egress-tap" in filters(site, host)
    assert "changed=0" in site.play("port_filters", "--check").partition(host)[2]


#: Modules that start guests and plug interfaces in.
STARTERS = {"domain", "domain_power", "domain_interface", "domain_rescue", "instance_build", "instance_disks_revert"}


def filters_first(site: Site, host: str, since: int) -> bool:
    """Whether the host got its filters before the last module that starts a guest, and such a module came to it after ``since``."""
    asked = site.hosts[host].asked()[since:]
    starting = [place for place, module in enumerate(asked) if module in STARTERS]
    return bool(starting) and "port_filters" in asked[: starting[-1]]


def host_of(site: Site, name: str) -> str:
    return str(site.places()[name][1])


def counts(site: Site) -> dict[str, int]:
    return {name: len(host.asked()) for name, host in site.hosts.items()}


WEB = [{"name": "web"}]
HTTP = {"security_group": "web", "direction": "ingress", "protocol": "tcp", "port_range_min": 80, "port_range_max": 80}


def test_groups_of_requests_rules_and_instances_reach_their_hosts(filtering: Site) -> None:
    site = filtering
    refused = site.boots(entry("web", security_groups=["web"]), expect=2)
    assert "Security group web does not exist" in " ".join(refused.split())
    assert not any("instance_build" in modules for modules in site.asked().values())
    site.play("security_group_create", security_groups=WEB)
    site.boots(entry("web", security_groups=["web"]), entry("db"))
    host = host_of(site, "web")
    assert "dport 80" not in filters(site, host)
    since = counts(site)
    site.play("security_group_rule_create", security_group_rules=[HTTP])
    assert "dport 80" in filters(site, host)
    others = [name for name, asked in site.asked().items() if "port_filters" in asked[since[name] :]]
    assert others == [host]
    site.play("add_security_group", names=["db"], security_group_names=["web"])
    assert "dport 80" in filters(site, host_of(site, "db"))
    assert "Nothing to do" in site.play("add_security_group", names=["db"], security_group_names=["web"])
    site.play("remove_security_group", names=["web", "db"], security_group_names=["web"])
    assert all("dport 80" not in filters(site, name) for name in (host, host_of(site, "db")))


def test_a_host_that_was_silent_gets_its_filters_with_the_next_heartbeat(filtering: Site) -> None:
    site = filtering
    site.boots(entry("web"))
    host = host_of(site, "web")
    rule = {
        "security_group": "default",
        "direction": "ingress",
        "protocol": "tcp",
        "port_range_min": 22,
        "port_range_max": 22,
    }
    site.hosts[host].fails("port_filters", errors.HostCannotFilter(host=host, reason="Protocol error"))
    assert "has the filters of its ports from before" in " ".join(
        site.play("security_group_rule_create", security_group_rules=[rule]).split()
    )
    assert "dport 22" not in filters(site, host)
    site.hosts[host].heal()
    site.play("heartbeat")
    assert "dport 22" in filters(site, host)


def test_every_way_to_a_running_guest_filters_before(filtering: Site) -> None:
    site = filtering
    site.boots(entry("web"))
    host = host_of(site, "web")
    ways: list[tuple[str, dict[str, t.Any], bool]] = [
        ("start", {}, True),
        ("reboot", {"reboot_type": "HARD"}, True),
        ("suspend", {}, False),
        ("resume", {}, True),
        ("pause", {}, False),
        ("unpause", {}, True),
        ("rebuild", {}, True),
    ]
    site.play("stop", names=["web"])
    for playbook, variables, starts in ways:
        since = len(site.hosts[host].asked())
        site.play(playbook, names=["web"], **variables)
        if starts:
            assert filters_first(site, host, since), (playbook, site.hosts[host].asked()[since:])
    since = len(site.hosts[host].asked())
    site.play("attach_interface", interfaces=[{"instance": "web", "network": "inner"}])
    assert filters_first(site, host, since)


def test_a_guest_that_moves_is_filtered_where_it_comes_to(filtering: Site) -> None:
    site = filtering
    site.boots(entry("web"))
    since = counts(site)
    site.play("migrate", names=["web"])
    host = host_of(site, "web")
    assert filters_first(site, host, since[host]), site.hosts[host].asked()[since[host] :]
    assert "egress-tap" in filters(site, host)


@pytest.mark.long
def test_a_guest_that_is_unshelved_is_filtered_where_it_starts(filtering: Site, tmp_path: Path) -> None:
    shelf = Shelf(filtering, tmp_path)
    shelf.play("shelve")
    since = counts(filtering)
    shelf.play("unshelve")
    host = shelf.host_of().name
    assert filters_first(filtering, host, since[host]), filtering.hosts[host].asked()[since[host] :]
    shelf.play("shelve", shelved_offload_time=-1)
    since = counts(filtering)
    shelf.play("unshelve")
    assert filters_first(filtering, host, since[host]), filtering.hosts[host].asked()[since[host] :]


@pytest.mark.long
def test_an_instance_with_groups_stays_while_no_other_host_filters(filtering: Site) -> None:
    site = filtering
    site.play("security_group_create", security_groups=WEB)
    site.boots(entry("web", security_groups=["web"]))
    assert site.play("show", names=["web"]).partition("security_groups:")[2].split()[:2] == ["-", "web"]
    host = host_of(site, "web")
    site.variables["bootflow_firewall_driver"] = "noop"
    site.play("heartbeat")
    since = counts(site)
    assert "filters no ports" in " ".join(site.play("migrate", names=["web"], expect=2).split())
    interfaces = [{"instance": "web", "network": "inner"}]
    assert "HostDoesNotFilter" in site.play("attach_interface", interfaces=interfaces, expect=2)
    asked = {module for name, modules in site.asked().items() for module in modules[since[name] :]}
    assert asked <= {"compute_node_info", "domain_info"} and host_of(site, "web") == host
    site.play("remove_security_group", names=["web"], security_group_names=["web"])
    site.play("migrate", names=["web"])


def test_with_noop_groups_are_refused_and_nothing_is_filtered(site: Site) -> None:
    site.play("security_group_create", security_groups=WEB)
    assert "bootflow_firewall_driver" in site.boots(entry("web", security_groups=["web"]), expect=2)
    ports = [{"name": "front", "network": "lan", "security_groups": ["web"]}]
    assert "bootflow_firewall_driver" in site.play("port_create", ports=ports, expect=2)
    site.boots(entry("web"))
    assert "bootflow_firewall_driver" in site.play(
        "add_security_group", names=["web"], security_group_names=["web"], expect=2
    )
    assert not any("port_filters" in modules for modules in site.asked().values())
