# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Hosts that lack a bridge or a libvirt network: guests go to others at once, and where none has it nothing is built anywhere."""

from __future__ import annotations

import typing as t

import pytest
from simulated_site import HOSTS, Site, entry

BRIDGE = {"name": "data", "type": "bridge", "source": "br7", "subnets": [{"name": "data-v4", "cidr": "10.20.0.0/24"}]}
LAN = {"name": "here", "source": "lan-here", "subnets": [{"name": "here-v4", "cidr": "10.30.0.0/24"}]}
MISSING = "Linux bridge br7 does not exist (network data)"


@pytest.fixture(name="site")
def _with_bridge(site: Site) -> Site:
    """kvm2 alone has br7."""
    site.variables["bootflow_networks"] = [*t.cast("list[t.Any]", site.variables["bootflow_networks"]), BRIDGE, LAN]
    for name in HOSTS:
        site.hosts[name].has_facts(bridges=["br7"] if name == "kvm2" else [], libvirt_networks={"lan-here": False})
    return site


def on(network: str, name: str = "web", **fields: t.Any) -> dict[str, t.Any]:
    return entry(name, networks=[{"network": network}], **fields)


def words(output: str) -> str:
    return " ".join(output.split())


def built(site: Site) -> dict[str, int]:
    return {name: modules.count("instance_build") for name, modules in site.asked().items()}


def test_the_host_that_has_it_builds_at_the_first_attempt(site: Site) -> None:
    plan = site.boots(on("data", count=2), options=("--check",))
    assert "NetworkFilter" in plan and all(
        "- %s NetworkFilter: %s" % (h, MISSING) in words(plan) for h in ("kvm1", "kvm3")
    )
    site.boots(on("data", count=2))
    assert site.places() == {"web-1": ("active", "kvm2"), "web-2": ("active", "kvm2")}
    assert built(site) == {"kvm1": 0, "kvm2": 1, "kvm3": 0}
    site.check_ledger()


def test_no_host_has_it(site: Site) -> None:
    site.hosts["kvm2"].has_facts(bridges=[])
    output = words(site.boots(on("data"), expect=2))
    assert "NetworkFilter rejected 3 hosts, as kvm1 (%s)" % MISSING in output, output
    assert "correct the source in bootflow_networks; then run bootflow.compute.heartbeat" in output
    assert site.places() == {"web": ("error", None)} and built(site) == dict.fromkeys(HOSTS, 0)
    assert site.left_on_hosts() == {}
    site.play("delete", names=["web"])
    assert site.residue() == {}

    site.hosts["kvm3"].has_facts(bridges=["br7"])
    site.play("heartbeat")
    site.boots(on("data"))
    assert site.places() == {"web": ("active", "kvm3")}


def test_a_bridge_that_went_since_the_report(site: Site) -> None:
    """The build ends at its first attempt, and says where and why."""
    site.play("heartbeat")
    site.hosts["kvm2"].has_facts(bridges=[])
    output = words(site.boots(on("data"), expect=2))
    assert "Linux bridge br7 does not exist on kvm2" in output, output
    assert (
        "Create bridge br7 in the network configuration of the host, or correct the source of network data." in output
    )
    assert sum(built(site).values()) == 1 and site.left_on_hosts() == {}


def test_a_forced_host(site: Site) -> None:
    zone = {"availability_zone": "nova:kvm1"}
    output = words(site.boots(on("data", **zone), expect=2, allow_forced_host=True))
    assert "NetworkFilter rejected kvm1 (%s)" % MISSING in output, output
    assert built(site) == dict.fromkeys(HOSTS, 0)


def test_whatif(site: Site) -> None:
    site.play("heartbeat")
    output = words(site.play("whatif", instances=[on("data", count=2)]))
    assert "kvm2" in output and MISSING in output, output
    refused = words(site.play("whatif", expect=2, instances=[on("here")], whatif_fail=True))
    assert "libvirt network lan-here is not active (network here)" in refused, refused


def test_a_guest_moves_where_its_bridge_is(site: Site) -> None:
    site.boots(on("data"))
    before = site.places()
    for playbook in ("migrate", "live_migrate"):
        output = words(site.play(playbook, expect=2, names=["web"]))
        assert "NetworkFilter rejected 2 hosts" in output and MISSING in output, output
        assert site.places() == before
    site.hosts["kvm3"].has_facts(bridges=["br7"])
    site.play("heartbeat")
    site.play("migrate", names=["web"])
    assert site.places() == {"web": ("resized", "kvm3")}


def test_nothing_is_attached_where_the_bridge_is_missing(site: Site) -> None:
    site.boots(on("lan"), hosts=["kvm1"])
    addresses = site.query("SELECT ip_address FROM ip_allocations")
    wanted = [{"instance": "web", "network": "data"}]
    output = words(site.play("attach_interface", expect=2, interfaces=wanted))
    assert "HostLacksNetwork" in output and "Linux bridge br7 does not exist on kvm1" in output, output
    assert "Then run bootflow.compute.heartbeat" in output
    assert site.query("SELECT ip_address FROM ip_allocations") == addresses
    assert "domain_interface" not in site.hosts["kvm1"].asked()
