# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A network of type vxlan: guests of two hosts ping each other by assigned addresses, also after moves and a restart of a host; a purge removes it."""

from __future__ import annotations

import time
import typing as t

import pytest
from flow import Flow, entry
from test_operations import operate, wait_ready

READY = {"bootflow_wait_console": "BOOTFLOW-GUEST-READY"}
LAB = {
    "name": "lab",
    "type": "vxlan",
    "vni": 100,
    "subnets": [{"cidr": "10.79.0.0/24", "gateway_ip": None}],
}
ADDRESSES = {"a": "10.79.0.11", "b": "10.79.0.12"}
# It says which neighbour answers, with the largest packets that the network takes, and says the MTU once.
PINGING = """#!/bin/sh
cat /sys/class/net/*/mtu | tr '\\n' ' ' | sed 's/^/MTUS /' >/dev/console
(i=0; while :; do
    i=$((i+1))
    ping -c 1 -W 1 -s 1402 %s >/dev/null 2>&1 && echo "ANSWERED $i." >/dev/console
    sleep 1
done) &
"""


@pytest.fixture
def lab_network(flow: Flow) -> Flow:
    flow.variables["bootflow_networks"] = [LAB]
    flow.variables["bootflow_vxlan_address"] = "{{ ansible_host }}"
    return flow


def guest(name: str, neighbour: str) -> dict[str, t.Any]:
    networks = [{"network": "lab", "fixed_ip": ADDRESSES[name]}]
    return entry(name, networks=networks, user_data=PINGING % ADDRESSES[neighbour])


def answers(flow: Flow, name: str) -> int:
    row = flow.instances()[name]
    return flow.console(row["host"], row["uuid"]).count("ANSWERED")


def until_answered(flow: Flow, *names: str, seconds: float = 120) -> None:
    """Each gets answers from now on."""
    for name in names:
        begun, end = answers(flow, name), time.monotonic() + seconds
        while answers(flow, name) < begun + 2:
            row = flow.instances()[name]
            assert time.monotonic() < end, flow.console(row["host"], row["uuid"])[-1500:]
            time.sleep(1)


def links(flow: Flow, host: str) -> list[str]:
    """The devices of the network on a host."""
    names = flow.lab.host(host).run("sh", "-c", "ip -o link show | cut -d' ' -f2 | tr -d :").stdout.split()
    return sorted({name.split("@")[0] for name in names} & {"vxbr100", "vxlan100"})


def peers(flow: Flow, host: str) -> set[str]:
    lines = flow.lab.host(host).run("bridge", "fdb", "show", "dev", "vxlan100").stdout.splitlines()
    return {line.split(" dst ")[1].split()[0] for line in lines if line.startswith("00:00:00:00:00:00")}


def restarted_without_devices(flow: Flow, name: str) -> None:
    """Restart a host. In the lab its VXLAN devices survive that, and are removed."""
    host = flow.lab.host(name)
    host.restart()
    host.run("ip", "link", "delete", "vxlan100")
    assert links(flow, name) == []


def purge(flow: Flow, *options: str) -> str:
    done = flow.run(
        "purge",
        *options,
        bootflow_networks=[],
        bootflow_remove_unused_original_minimum_age_seconds=0,
    )
    assert done.returncode == 0, done.output
    return done.output


@pytest.mark.long
def test_guests_of_two_hosts_are_neighbours(lab_network: Flow) -> None:
    flow = lab_network
    first, second, third = (host.name for host in flow.lab.hosts)
    address_of = {host.name: host.address for host in flow.lab.hosts}

    planned = flow.boot(guest("a", "b"), options=("--check",), bootflow_hosts=[first]).output
    made = "Network lab: bridge vxbr100 and a VXLAN device with VNI 100 and MTU 1430 are made on %s." % first
    assert made in planned and links(flow, first) == []
    flow.boot(guest("a", "b"), **READY, bootflow_hosts=[first])
    flow.boot(guest("b", "a"), **READY, bootflow_hosts=[second])
    assert {h: links(flow, h) for h in address_of} == {
        first: ["vxbr100", "vxlan100"],
        second: ["vxbr100", "vxlan100"],
        third: [],
    }
    assert peers(flow, first) == {address_of[second], address_of[third]}
    until_answered(flow, "a", "b")
    row = flow.instances()["a"]
    assert "MTUS 1430" in flow.console(first, row["uuid"])

    again = flow.boot(guest("a", "b"), options=("--check",), bootflow_hosts=[first]).output
    assert made not in again

    operate(flow, "live_migrate", "b", bootflow_live_migrate_host=third)
    assert flow.instances()["b"]["host"] == third
    until_answered(flow, "a", "b")

    # A revert: the former host, which lost its devices meanwhile, gets them and all peers again; a purge takes those of the new host.
    operate(flow, "migrate", "a", bootflow_hosts=[first, second])
    assert flow.instances()["a"]["host"] == second
    until_answered(flow, "a", "b")
    for name in ("vxlan100", "vxbr100"):
        flow.lab.host(first).run("ip", "link", "delete", name)
    operate(flow, "revert_resize", "a")
    assert flow.instances()["a"]["host"] == first
    assert peers(flow, first) == {address_of[second], address_of[third]}
    until_answered(flow, "a", "b")
    purge(flow)
    assert {h: links(flow, h) for h in address_of} == {
        first: ["vxbr100", "vxlan100"],
        second: [],
        third: ["vxbr100", "vxlan100"],
    }

    operate(flow, "migrate", "a", bootflow_hosts=[first, second])
    operate(flow, "confirm_resize", "a")
    assert flow.instances()["a"]["host"] == second
    until_answered(flow, "a", "b")

    # The host restarts: its devices are gone until a guest starts there. The sync makes them before the guest that is to run again.
    host = flow.lab.host(second)
    restarted_without_devices(flow, second)
    done = flow.run("power_sync")
    assert done.returncode == 0 and flow.instances()["a"]["vm_state"] == "active", done.output
    assert peers(flow, second) == {address_of[first], address_of[third]}
    until_answered(flow, "a", "b")

    restarted_without_devices(flow, second)
    refused = host.run("virsh", "-c", "qemu:///system", "start", flow.instances()["a"]["uuid"], check=False)
    assert refused.returncode and "vxbr100" in refused.stdout, "libvirt alone makes none"
    done = flow.run("power_sync", bootflow_resume_guests_state_on_host_boot=False)
    assert done.returncode == 0 and flow.instances()["a"]["vm_state"] == "stopped", done.output
    assert links(flow, second) == []
    operate(flow, "start", "a")
    wait_ready(flow, "a")
    assert links(flow, second) == ["vxbr100", "vxlan100"]
    until_answered(flow, "a", "b")

    purge(flow)
    assert links(flow, second) == links(flow, third) == ["vxbr100", "vxlan100"], "guests have it"
    flow.delete("a", "b")
    purge(flow, "--check")
    assert links(flow, second) == ["vxbr100", "vxlan100"]
    purge(flow)
    assert {h: links(flow, h) for h in address_of} == {first: [], second: [], third: []}
    assert flow.residue() == {}


@pytest.mark.long
@pytest.mark.usefixtures("still_guests")
def test_hosts_without_an_address_and_hosts_that_come(lab_network: Flow) -> None:
    flow = lab_network
    first, second, third = (host.name for host in flow.lab.hosts)
    address_of = {host.name: host.address for host in flow.lab.hosts}
    only = "{{ ansible_host if inventory_hostname in ['%s', '%s'] else '' }}" % (first, second)
    flow.variables["bootflow_vxlan_address"] = only
    assert flow.run("heartbeat").returncode == 0
    refused = flow.boot(entry("x", networks=["lab"]), expect=2, bootflow_hosts=[third]).output
    assert "bootflow_vxlan_address is not set (network lab)" in refused, refused
    flow.delete("x")

    flow.boot(entry("a", networks=["lab"]), bootflow_hosts=[first])
    assert peers(flow, first) == {address_of[second]}
    flow.variables["bootflow_vxlan_address"] = "{{ ansible_host }}"
    assert flow.run("heartbeat").returncode == 0
    assert peers(flow, first) == {address_of[second], address_of[third]}
    flow.boot(entry("b", networks=["lab"]), bootflow_hosts=[third])

    too_large = [{**LAB, "name": "jumbo", "vni": 101, "mtu": 9000}]
    refused = flow.boot(
        entry("j", networks=["jumbo"]), expect=2, bootflow_networks=too_large, bootflow_hosts=[first]
    ).output
    assert "network jumbo has MTU 9000, and the tunnel on %s has room for 1450" % first in refused, refused
    flow.delete("a", "b", "j")
    purge(flow)
    assert [links(flow, host) for host in address_of] == [[], [], []]


@pytest.mark.long
def test_a_guest_of_a_dead_host_reaches_its_neighbour_from_the_next_one(lab_network: Flow) -> None:
    flow = lab_network
    dead, second, third = flow.lab.hosts
    flow.boot(guest("a", "b"), **READY, bootflow_hosts=[dead.name])
    flow.boot(guest("b", "a"), **READY, bootflow_hosts=[third.name])
    until_answered(flow, "a", "b")
    assert flow.run("heartbeat").returncode == 0
    dead.run("virsh", "-c", "qemu:///system", "destroy", flow.instances()["a"]["uuid"])  # its power fails
    dead.fail("network")
    assert flow.run("host", bootflow_host=[dead.name], bootflow_host_state="forced_down").returncode == 0
    done = flow.run("evacuate", bootflow_host=[dead.name], bootflow_hosts=[second.name, third.name])
    assert done.returncode == 0, done.output
    assert flow.instances()["a"]["host"] != dead.name
    wait_ready(flow, "a")
    until_answered(flow, "a", "b")

    # The host returns without its guest, and stays a peer: its network waits for the next purge.
    dead.restore()
    assert flow.run("host", bootflow_host=[dead.name], bootflow_host_state="up").returncode == 0
    assert flow.run("audit").returncode == 0
    assert links(flow, dead.name) == ["vxbr100", "vxlan100"] and dead.address in peers(flow, third.name)
    until_answered(flow, "a", "b")
    purge(flow)
    assert links(flow, dead.name) == []
    flow.delete("a", "b")
    purge(flow)
