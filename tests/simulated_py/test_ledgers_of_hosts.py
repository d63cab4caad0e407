# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The tasks of hosts open no ledger for what people do each day, on hosts that filter ports; what they need comes with the task."""

from __future__ import annotations

import typing as t

import pytest
from simulated_site import NETWORK, Site, entry

from ansible_collections.bootflow.compute.plugins.module_utils.core.instances.power_states import RUNNING, SHUTDOWN

GUESTS = 6
NAMES = ["web-%d" % number for number in range(1, GUESTS + 1)]
OTHER = {
    **NETWORK,
    "name": "inner",
    "source": "bf-inner",
    "subnets": [{"name": "inner-v4", "cidr": "10.8.0.0/24", "enable_dhcp": True}],
}
DAILY: list[tuple[str, dict[str, t.Any]]] = [
    ("stop", {}),
    ("start", {}),
    ("reboot", {}),
    ("reboot", {"reboot_type": "HARD"}),
    ("pause", {}),
    ("unpause", {}),
    ("suspend", {}),
    ("resume", {}),
]


@pytest.fixture(name="fleet")
def _fleet(site: Site) -> Site:
    """Six guests on three hosts that filter ports."""
    site.variables["bootflow_firewall_driver"] = "nftables"
    site.variables["bootflow_networks"] = [NETWORK, OTHER]
    site.boots(entry("web", count=GUESTS))
    assert len({place for _state, place in site.places().values()}) == 3
    return site


def power_states(site: Site) -> set[int]:
    return {domain["power_state"] for host in site.hosts.values() for domain in host.domains.values()}


def test_guests_start_stop_and_restart_without_a_ledger_on_their_hosts(fleet: Site) -> None:
    before = fleet.opened_ledgers()
    for operation, options in DAILY:
        fleet.play(operation, names=NAMES, **options)
        assert fleet.opened_ledgers() == before, operation
        assert power_states(fleet) == {SHUTDOWN if operation == "stop" else RUNNING} or operation in (
            "pause",
            "suspend",
        )
    assert all("port_filters" in asked for asked in fleet.asked().values())


def test_interfaces_come_without_a_ledger_on_their_hosts_but_for_what_a_new_network_reserves(fleet: Site) -> None:
    before = fleet.opened_ledgers()
    wanted = [{"instance": name, "network": "inner"} for name in NAMES]
    fleet.play("attach_interface", interfaces=wanted)
    opened = fleet.opened_ledgers()[len(before) :]
    assert {functions[0] for _host, functions in opened} == {"plugin_utils/builds/dhcp.py restore"} and len(opened) == 3
    before = fleet.opened_ledgers()
    fleet.play("detach_interface", interfaces=wanted)
    assert fleet.opened_ledgers() == before
    assert (
        fleet.query(
            "SELECT 1 FROM ports WHERE mac_address NOT IN (SELECT mac_address FROM ports p WHERE p.host IS NOT NULL)"
        )
        == []
    )


def test_a_rebuild_gets_user_data_of_the_ledger_with_its_task(site: Site) -> None:
    site.variables["bootflow_user_data_store"] = "ledger"
    site.boots(entry("web", config_drive=True, user_data="#!/bin/sh\ntrue\n"))
    before = len(site.opened_ledgers())
    output = site.play("rebuild", "-vvv", names=["web"])
    opened = {functions[0] for _host, functions in site.opened_ledgers()[before:]}
    assert opened <= {"plugin_utils/operations/rebuilds/in_place.py drop_lost_instances"}
    assert "IyEvYmluL3NoCnRydWUK" not in output and "bin/sh\\ntrue" not in output
