# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A network of type macvtap: guests of two hosts ping each other over the interfaces of their hosts, also after moves; a purge removes it."""

from __future__ import annotations

import typing as t

import pytest
from flow import Flow, entry
from test_interfaces import change
from test_operations import operate
from test_vxlan import ADDRESSES, PINGING, READY, purge, until_answered

OFFICE = {
    "name": "office",
    "type": "macvtap",
    "physical_network": "physnet1",
    "subnets": [{"cidr": "10.79.0.0/24", "gateway_ip": None}],
}
VIRSH = ("virsh", "-c", "qemu:///system")


@pytest.fixture
def office(flow: Flow) -> Flow:
    flow.variables["bootflow_networks"] = [OFFICE]
    flow.variables["bootflow_physical_interface_mappings"] = {"physnet1": "eth0"}
    # A guest's device is /dev/tapN by the number of its interface, and the hosts of the lab share /dev: their numbers begin apart.
    for position, host in enumerate(flow.lab.hosts):
        pair = "ip link add n0 type veth peer name n1 && ip link delete n0"
        host.run("sh", "-c", "for i in $(seq %d); do %s; done" % (100 * position, pair))
    return flow


def guest(name: str, neighbour: str) -> dict[str, t.Any]:
    networks = [{"network": "office", "fixed_ip": ADDRESSES[name]}]
    return entry(name, networks=networks, user_data=PINGING % ADDRESSES[neighbour])


def networks_of(flow: Flow, host: str) -> list[str]:
    return flow.lab.host(host).run(*VIRSH, "net-list", "--all", "--name").stdout.split()


def devices(flow: Flow, host: str) -> list[str]:
    """The interfaces of the host that have macvtap devices, one for each device."""
    lines = flow.lab.host(host).run("ip", "-o", "link", "show", "type", "macvtap").stdout.splitlines()
    return [line.split(": ")[1].split("@")[1] for line in lines]


@pytest.mark.long
def test_guests_of_two_hosts_are_on_one_switch(office: Flow) -> None:
    flow = office
    first, second, third = (host.name for host in flow.lab.hosts)

    planned = flow.boot(guest("a", "b"), options=("--check",), bootflow_hosts=[first]).output
    assert "Network office: libvirt network office on physnet1 is made on %s." % first in planned
    assert "office" not in networks_of(flow, first)
    flow.boot(guest("a", "b"), **READY, bootflow_hosts=[first])
    flow.boot(guest("b", "a"), **READY, bootflow_hosts=[second])
    assert devices(flow, first) == devices(flow, second) == ["eth0"]
    until_answered(flow, "a", "b")
    again = flow.boot(guest("a", "b"), options=("--check",), bootflow_hosts=[first]).output
    assert "libvirt network office" not in again

    operate(flow, "live_migrate", "b", bootflow_live_migrate_host=third)
    assert flow.instances()["b"]["host"] == third and devices(flow, second) == []
    until_answered(flow, "a", "b")
    operate(flow, "migrate", "a", bootflow_hosts=[first, second])
    operate(flow, "confirm_resize", "a")
    assert flow.instances()["a"]["host"] == second and devices(flow, first) == []
    until_answered(flow, "a", "b")

    change(flow, "attach_interface", {"instance": "a", "network": "office", "fixed_ip": "10.79.0.20"})
    assert devices(flow, second) == ["eth0", "eth0"]
    change(flow, "detach_interface", {"instance": "a", "fixed_ip": "10.79.0.20"})
    assert devices(flow, second) == ["eth0"]
    operate(flow, "stop", "a")
    operate(flow, "start", "a")
    until_answered(flow, "a", "b")

    purge(flow)
    assert {h: "office" in networks_of(flow, h) for h in (first, second, third)} == {
        first: False, second: True, third: True,
    }  # fmt: skip
    flow.delete("a", "b")
    purge(flow)
    assert not any("office" in networks_of(flow, h) for h in (first, second, third))
    assert flow.residue() == {}


@pytest.mark.long
@pytest.mark.usefixtures("still_guests")
def test_what_hosts_do_not_have_is_refused(office: Flow) -> None:
    flow = office
    first, second, third = (host.name for host in flow.lab.hosts)
    flow.variables["bootflow_physical_interface_mappings"] = (
        "{{ {'physnet1': 'eth0'} if inventory_hostname == '%s' else {} }}" % first
    )
    assert flow.run("heartbeat").returncode == 0
    refused = flow.boot(entry("x", networks=["office"]), expect=2, bootflow_hosts=[second]).output
    assert "physical network physnet1 is not in bootflow_physical_interface_mappings (network office)" in refused, (
        refused
    )
    flow.delete("x")
    filtered = [{**OFFICE, "port_security_enabled": True}]
    refused = flow.boot(entry("x", networks=["office"]), expect=2, bootflow_networks=filtered).output
    assert "port_security_enabled must be false" in refused, refused

    flow.boot(entry("a", networks=["office"]), bootflow_hosts=[first])
    # eth1 of the lab's hosts is in a bridge: the kernel makes no macvtap device of it.
    flow.lab.host(first).run("sh", "-c", "ip link add uplink1 type veth peer name uplink1p && ip link set uplink1 up")
    flow.variables["bootflow_physical_interface_mappings"] = {"physnet1": "uplink1"}
    refused = flow.boot(entry("b", networks=["office"]), expect=2, bootflow_hosts=[first]).output
    text = "guests of network office run on eth0 of %s, and bootflow_physical_interface_mappings has uplink1" % first
    assert text in " ".join(refused.split()), refused
    flow.delete("a", "b")
    flow.boot(entry("b", networks=["office"]), bootflow_hosts=[first])
    assert devices(flow, first) == ["uplink1"], "nobody used the former one"
    flow.delete("b")
    purge(flow)
    own = "<network><name>office</name></network>"
    flow.lab.host(first).run(
        "sh", "-c", "echo '%s' > /tmp/n.xml && virsh -c qemu:///system net-define /tmp/n.xml" % own
    )
    refused = flow.boot(entry("c", networks=["office"]), expect=2, bootflow_hosts=[first]).output
    assert "where another one has the name" in " ".join(refused.split()), refused
    flow.lab.host(first).run(*VIRSH, "net-undefine", "office")
    flow.lab.host(first).run("ip", "link", "delete", "uplink1")
    flow.delete("c")
