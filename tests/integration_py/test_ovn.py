# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A network of type ovn with real OVN (userspace datapath): DHCP, pings between hosts, security groups, moves, and a central node that is away."""

from __future__ import annotations

import subprocess
import time
import typing as t
from pathlib import Path

import ovn_hosts
import pytest
from flow import Flow, entry, run_plainly
from test_operations import operate, wait_ready

READY = {"bootflow_wait_console": "BOOTFLOW-GUEST-READY"}
LAB = {
    "name": "lab",
    "type": "ovn",
    "subnets": [{"cidr": "10.81.0.0/24", "enable_dhcp": True, "dns_nameservers": ["192.0.2.53"]}],
}
ADDRESSES = {"a": "10.81.0.11", "b": "10.81.0.12", "c": "10.81.0.13"}
PINGING = """#!/bin/sh
(i=0; while :; do
    i=$((i+1))
    ping -c 1 -W 1 -s 1414 %s >/dev/null 2>&1 && echo "ANSWERED $i." >/dev/console
    sleep 1
done) &
"""


@pytest.fixture
def ovn(flow: Flow) -> t.Iterator[Flow]:
    try:
        flow.variables["bootflow_ovn_northbound"] = ovn_hosts.start(flow.lab)
        flow.variables["bootflow_networks"] = [LAB]
        flow.variables["bootflow_vif_plugging_timeout"] = 60
        flow.variables["bootflow_ovn_timeout"] = 5
        done = flow.run("heartbeat")
        assert done.returncode == 0, done.output
        yield flow
    finally:
        ovn_hosts.stop(flow.lab)


def guest(name: str, neighbour: str, **fields: t.Any) -> dict[str, t.Any]:
    networks = [{"network": "lab", "fixed_ip": ADDRESSES[name]}]
    return entry(name, networks=networks, user_data=PINGING % ADDRESSES[neighbour], **fields)


def answers(flow: Flow, name: str) -> int:
    row = flow.instances()[name]
    return flow.console(row["host"], row["uuid"]).count("ANSWERED")


def until_answered(flow: Flow, *names: str, seconds: float = 90) -> None:
    """Each gets answers from now on."""
    for name in names:
        begun, end = answers(flow, name), time.monotonic() + seconds
        while answers(flow, name) < begun + 2:
            row = flow.instances()[name]
            assert time.monotonic() < end, flow.console(row["host"], row["uuid"])[-1500:]
            time.sleep(1)


def is_unanswered(flow: Flow, name: str, seconds: float = 12) -> bool:
    """Whether it gets no answer from now on: one that is on its way may come."""
    time.sleep(3)
    begun = answers(flow, name)
    time.sleep(seconds)
    return answers(flow, name) == begun


def rules(flow: Flow, playbook: str, **variables: t.Any) -> dict[str, t.Any]:
    done = flow.run(playbook, **variables)
    assert done.returncode == 0, done.output
    return {row["id"]: row["protocol"] for row in flow.query("SELECT id, protocol FROM security_group_rules")}


@pytest.mark.long
def test_guests_of_two_hosts_are_neighbours(ovn: Flow) -> None:
    flow = ovn
    first, second, third = (host.name for host in flow.lab.hosts)
    flow.boot(guest("a", "b"), **READY, bootflow_hosts=[first])
    flow.boot(guest("b", "a"), **READY, bootflow_hosts=[second])
    row = flow.instances()["a"]
    console = flow.console(first, row["uuid"])
    leased = "BOOTFLOW-GUEST-DHCP address=10.81.0.11 mtu=1442 router=10.81.0.1 dns=192.0.2.53"
    assert leased in console, console[-1500:]
    until_answered(flow, "a", "b")
    again = flow.run("audit")
    assert again.returncode == 0 and "northbound database of OVN" not in again.output, again.output

    # The default group lets its members in. One of another group is let in by a rule, and by no established connection afterwards.
    before = rules(flow, "security_group_create", bootflow_security_groups=[{"name": "apart"}])
    flow.boot(guest("c", "a", security_groups=["apart"]), **READY, bootflow_hosts=[second])
    assert is_unanswered(flow, "c")
    after = rules(
        flow, "security_group_rule_create",
        bootflow_security_group_rules=[
            {"security_group": "default", "direction": "ingress", "protocol": "icmp", "remote_group": "apart"}
        ],
    )  # fmt: skip
    until_answered(flow, "c")
    (added,) = set(after) - set(before)
    rules(flow, "security_group_rule_delete", bootflow_security_group_rule_ids=[added])
    assert is_unanswered(flow, "c")

    operate(flow, "live_migrate", "b", bootflow_live_migrate_host=third)
    assert flow.instances()["b"]["host"] == third
    until_answered(flow, "a", "b")
    operate(flow, "migrate", "b", bootflow_hosts=[second, third])
    operate(flow, "confirm_resize", "b")
    wait_ready(flow, "b")
    until_answered(flow, "a", "b")

    flow.delete("a", "b", "c")
    left = ovn_hosts.nbctl(flow.lab, "--bare", "--columns=name", "list", "Logical_Switch_Port")
    assert left.split() == []
    assert flow.residue() == {}


@pytest.mark.long
def test_a_central_node_that_is_away_or_lost_its_databases(ovn: Flow) -> None:
    flow = ovn
    central = flow.lab.hosts[0]
    first, second, _third = (host.name for host in flow.lab.hosts)
    flow.boot(guest("a", "b"), **READY, bootflow_hosts=[first])
    flow.boot(guest("b", "a"), **READY, bootflow_hosts=[second])
    until_answered(flow, "a", "b")

    ovn_hosts.stop_central(central)
    refused = flow.boot(guest("c", "a"), expect=2, bootflow_hosts=[second]).output
    assert "NorthboundError" in refused or "northbound database of OVN cannot be used" in refused, refused
    assert "c" not in flow.instances(), "nothing was claimed"
    until_answered(flow, "a", "b")

    ovn_hosts.lose_databases(central)
    for host in flow.lab.hosts:
        ovn_hosts.wait_connected(host)
    planned = flow.run("audit", "--check")
    assert "The northbound database of OVN would be repaired" in planned.output, planned.output
    done = flow.run("audit")
    assert done.returncode == 0 and "Logical_Switch_Port: 2 created" in done.output, done.output
    until_answered(flow, "a", "b")
    assert "The northbound database of OVN" not in flow.run("audit").output
    flow.boot(guest("c", "a"), **READY, bootflow_hosts=[second])
    until_answered(flow, "c")
    flow.delete("a", "b", "c")


ROLES = """
- hosts: compute1
  gather_facts: false
  tasks:
    - ansible.builtin.include_role:
        name: bootflow.compute.network_central
      vars:
        network_central_service_manager: none
        network_central_private_key: "{{ folder }}/central-privkey.pem"
        network_central_certificate: "{{ folder }}/central-cert.pem"
        network_central_ca_certificate: "{{ folder }}/pki/switchca/cacert.pem"
- hosts: compute1,compute2
  gather_facts: false
  tasks:
    - ansible.builtin.include_role:
        name: bootflow.compute.compute_host
        tasks_from: "{{ item }}"
        rolespec_validate: false
        public: true
      loop: [system.yml, ovn.yml]
      vars:
        compute_host_service_manager: none
        compute_host_ovn_remote: "ssl:{{ hostvars.compute1.ansible_host }}:6642"
        compute_host_ovn_datapath: netdev
        compute_host_ovn_private_key: "{{ folder }}/{{ inventory_hostname }}-privkey.pem"
        compute_host_ovn_certificate: "{{ folder }}/{{ inventory_hostname }}-cert.pem"
        compute_host_ovn_ca_certificate: "{{ folder }}/pki/switchca/cacert.pem"
"""


@pytest.mark.long
def test_the_roles_set_up_a_central_node_and_hosts_with_tls(flow: Flow, tmp_path: Path) -> None:
    lab = flow.lab
    central = lab.hosts[0]
    folder = tmp_path / "certificates"
    folder.mkdir()
    ovn_hosts.certificates(str(folder), ["central", "controller", "compute1", "compute2"])
    (tmp_path / "roles.yml").write_text(ROLES)
    arguments = ("-i", str(Path(lab.directory) / "inventory.yml"), "roles.yml", "-e", "folder=%s" % folder)
    try:
        code, output = run_plainly(tmp_path, *arguments, timeout=300)
        assert code == 0, output
        for host in lab.hosts[:2]:
            ovn_hosts.wait_connected(host)
        code, output = run_plainly(tmp_path, *arguments, timeout=300)
        assert code == 0 and output.count("changed=0 ") == 2, output

        settings = {
            "bootflow_ovn_northbound": "ssl:%s:6641" % central.address,
            "bootflow_ovn_private_key": str(folder / "controller-privkey.pem"),
            "bootflow_ovn_certificate": str(folder / "controller-cert.pem"),
            "bootflow_ovn_ca_certificate": str(folder / "pki" / "switchca" / "cacert.pem"),
        }
        ports = [{"name": "p", "network": "lab"}]
        done = flow.run("port_create", bootflow_networks=[LAB], bootflow_ports=ports, **settings)
        assert done.returncode == 0 and "Ports of OVN networks" not in done.output, done.output
        names = central.run("ovn-nbctl", "--bare", "--columns=addresses", "list", "Logical_Switch_Port").stdout
        assert "10.81.0." in names
        plain = {**settings, "bootflow_ovn_northbound": "tcp:%s:6641" % central.address, "bootflow_ovn_timeout": 5}
        done = flow.run("port_delete", bootflow_networks=[LAB], bootflow_port_names=["p"], **plain)
        assert done.returncode == 0 and "Ports of OVN networks are as they were" in done.output, done.output
        # A host may change its own rows alone.
        own = "--private-key=%s/compute2-privkey.pem --certificate=%s/compute2-cert.pem --ca-cert=%s/pki/switchca/cacert.pem"
        words = (own % (folder, folder, folder)).split()
        refused = subprocess.run(
            ["ovn-sbctl", "--db=ssl:%s:6642" % central.address, "--timeout=10", *words, "set", "chassis", "compute1", "hostname=x"],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert refused.returncode and "RBAC" in refused.stderr, refused
    finally:
        ovn_hosts.stop_daemons(lab)
