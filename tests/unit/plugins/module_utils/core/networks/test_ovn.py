# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Networks of type ovn from the catalogue to the domain XML and the needs of hosts."""

from __future__ import annotations

import typing as t
from dataclasses import asdict

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core.errors import InvalidInput, InvalidRequest
from ansible_collections.bootflow.compute.plugins.module_utils.core.networks import on_hosts
from ansible_collections.bootflow.compute.plugins.module_utils.core.networks.network_info import (
    PortRecord,
    build_network_info,
    network_data,
)
from ansible_collections.bootflow.compute.plugins.module_utils.core.networks.types.registry import kind_of_vif
from ansible_collections.bootflow.compute.plugins.module_utils.core.ovn.addresses import checked_addresses
from ansible_collections.bootflow.compute.plugins.module_utils.core.request.catalogue import parse_catalogue

PORT = "aaaaaaaa-0000-4000-8000-000000000001"


def network_of(*subnets: dict[str, t.Any], **fields: t.Any) -> t.Any:
    entry = {"name": "lab", "type": "ovn", "subnets": list(subnets or ({"cidr": "10.81.0.0/24"},)), **fields}
    return parse_catalogue(None, None, [entry], None).networks["lab"]


def test_the_catalogue_reads_it() -> None:
    network = network_of()
    assert (network.source, network.mtu, network.is_logical, network.joins_hosts) == ("br-int", 1442, True, False)
    assert network.can_be_filtered and network.port_security_enabled and not network.is_managed
    assert network_of(mtu=8942, source="br-ovn").mtu == 8942


@pytest.mark.parametrize(
    ("subnet", "message"),
    [
        ({"cidr": "10.81.0.0/24", "gateway_ip": None, "enable_dhcp": True}, "gateway_ip"),
        ({"cidr": "fd00::/64", "enable_dhcp": True}, "DHCPv6"),
    ],
)
def test_dhcp_that_ovn_cannot_serve_is_refused(subnet: dict[str, t.Any], message: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        network_of(subnet)
    assert message in str(caught.value.as_dict())


def test_the_guest_is_bound_by_the_id_of_its_port() -> None:
    network = network_of({"cidr": "10.81.0.0/24", "enable_dhcp": True})
    fixed = ({"subnet_id": network.subnets[0].id, "ip_address": "10.81.0.5"},)
    (vif,) = build_network_info([PortRecord(PORT, network.id, "fa:16:3e:00:00:01", fixed)], {network.id: network}, "p")
    assert (vif["type"], vif["ovs_interfaceid"], vif["network"]["meta"]["tunneled"]) == ("ovs", PORT, True)
    assert vif["details"]["port_filter"] is True and vif["network"]["bridge"] == "br-int"
    assert network_data([vif])["links"][0]["type"] == "ovs"
    kind = kind_of_vif("ovs")
    assert kind is not None and kind.interface(str(kind.source_of(vif)), PORT) == {
        "type": "bridge",
        "source_bridge": "br-int",
        "virtualport_type": "openvswitch",
        "virtualport_interfaceid": PORT,
    }


def test_hosts_must_be_connected() -> None:
    (needed,) = on_hosts.needed([asdict(network_of())])
    reports: list[on_hosts.Reported] = [{"ovn": {"br-int": True}}, {"ovn": {"br-int": False}}, {"ovn": {}}]
    lacks = [needed.lack(report) for report in reports]
    assert lacks == ["", on_hosts.INACTIVE, on_hosts.ABSENT]
    assert "no connection to the southbound database" in needed.words(on_hosts.INACTIVE)
    assert "bootflow_ovn_remote" in str(needed.refusal(on_hosts.ABSENT, "kvm1").remedy)


def test_hosts_filter_no_ports_of_guests_in_such_networks_alone() -> None:
    logical, bridge = asdict(network_of()), {"name": "b", "type": "bridge"}
    assert [on_hosts.filtered_by_hosts(d) for d in ([logical], [bridge], [logical, bridge], [])] == [
        False,
        True,
        True,
        True,
    ]


def test_addresses_of_databases() -> None:
    assert checked_addresses("ssl:192.0.2.1:6641, tcp:[fd00::1]:6641") == "ssl:192.0.2.1:6641,tcp:[fd00::1]:6641"
    assert checked_addresses(["unix:/run/ovn/ovnnb_db.sock"]) == "unix:/run/ovn/ovnnb_db.sock"
    for wrong in ("", "192.0.2.1:6641", "ssl:192.0.2.1", "unix:nb.sock", 7, None, {}):
        with pytest.raises(InvalidInput):
            checked_addresses(wrong)
