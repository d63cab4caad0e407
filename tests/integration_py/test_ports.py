# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A port with a MAC address and an address: a guest boots with it, leaves it, and the next guest has it, by DHCP of another host too."""

from __future__ import annotations

import json
from xml.etree import ElementTree

from flow import Flow, entry
from test_interfaces import DATA, VIRSH, change, everywhere, macs, ports, reserved

MAC, ADDRESS = "52:54:00:12:34:56", "10.78.0.11"
PORT = {"name": "front", "network": "data", "mac_address": MAC, "fixed_ips": [{"ip_address": ADDRESS}]}


def test_a_port_goes_from_guest_to_guest(flow: Flow) -> None:
    flow.variables["bootflow_networks"] = [DATA]
    done = flow.run("port_create", bootflow_ports=[PORT])
    assert done.returncode == 0 and MAC in done.output, done.output

    flow.boot(entry("web", networks=[{"port": "front"}]))
    host = str(flow.instances()["web"]["host"])
    assert everywhere(flow, "web") == [MAC] and ports(flow, "web") == {MAC: ADDRESS}
    assert reserved(flow, host) == {MAC: ADDRESS}
    assert "PortInUse" in flow.run("port_delete", bootflow_port_names=["front"]).output
    done = flow.run("migrate", bootflow_names=["web"])
    assert done.returncode == 0, done.output
    assert flow.run("confirm_resize", bootflow_names=["web"]).returncode == 0
    moved = str(flow.instances()["web"]["host"])
    assert moved != host and macs(flow, "web") == [MAC] and reserved(flow, moved) == {MAC: ADDRESS}
    assert MAC not in reserved(flow, host)

    change(flow, "detach_interface", {"instance": "web", "port": "front"})
    assert macs(flow, "web") == [] and reserved(flow, moved) == {}
    shown = flow.query("SELECT instance_uuid, host, mac_address FROM ports")
    assert [tuple(row) for row in shown] == [(None, None, MAC)]
    change(flow, "attach_interface", {"instance": "web", "port": "front"})
    assert everywhere(flow, "web") == [MAC] and reserved(flow, moved) == {MAC: ADDRESS}

    assert flow.run("delete", bootflow_names=["web"]).returncode == 0
    assert (
        ElementTree.fromstring(flow.lab.host(moved).run(*VIRSH, "net-dumpxml", "bf-data").stdout).find("ip/dhcp/host")
        is None
    )
    flow.boot(entry("db", networks=[{"port": "front"}]))
    assert ports(flow, "db") == {MAC: ADDRESS} and everywhere(flow, "db") == [MAC]
    assert flow.run("delete", bootflow_names=["db"]).returncode == 0
    done = flow.run("port_delete", bootflow_port_names=json.dumps(["front"]))
    assert done.returncode == 0, done.output
    assert flow.query("SELECT id FROM ports") == flow.query("SELECT id FROM ip_allocations") == []
    flow.check_ledger()
