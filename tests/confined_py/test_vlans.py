# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""VLAN networks on kernels that have VLANs: the devices of one host, and guests and hosts of one network on two hosts."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

import pytest
from confined_flow import Confined
from conftest import ROOT
from kernel_way import ComputeHost

pytestmark = pytest.mark.long

OFFICE = {
    "name": "office",
    "type": "vlan",
    "physical_network": "physnet1",
    "vlan": 100,
    "subnets": [{"name": "office-v4", "cidr": "10.81.0.0/24", "gateway_ip": None}],
}


PACKAGE = "ansible_collections/bootflow/compute/plugins/module_utils"


def interface_to(host: ComputeHost, other: ComputeHost) -> str:
    """The interface of a host by which it reaches another."""
    return str(json.loads(host.sh("ip -json route get %s" % other.vm.address))[0]["dev"])


def devices(host: ComputeHost, *names: str) -> set[str]:
    links = json.loads(host.sh("ip -json link show"))
    return {link["ifname"] for link in links}.intersection(names)


def test_the_kernel_makes_the_devices(compute: ComputeHost, tmp_path: Path) -> None:
    packed = tmp_path / "collection.tar"
    with tarfile.open(packed, "w") as archive:
        archive.add(ROOT / "plugins" / "module_utils", PACKAGE, filter=lambda m: None if "__pycache__" in m.name else m)
    compute.sh("mkdir -p /root/vlans")
    compute.vm.put(packed, "/root/vlans/")
    compute.vm.put(ROOT / "tests" / "lab" / "vlan_devices.py", "/root/vlans/")
    script = "cd /root/vlans && tar -xf collection.tar && PYTHONPATH=. python3 vlan_devices.py"
    said = compute.vm.run("sh", "-c", script, timeout=900).stdout
    answers = json.loads(said)
    assert answers and set(answers.values()) == {""}, said


def test_guests_of_two_hosts_are_in_one_vlan(compute: ComputeHost, second: ComputeHost, tmp_path: Path) -> None:
    hosts = (compute, second)
    interface = interface_to(compute, second)
    device = "%s.100" % interface
    mappings = {"physnet1": interface}
    flow = Confined(hosts, tmp_path, bootflow_physical_interface_mappings=mappings)
    flow.variables["bootflow_networks"] = [*flow.variables["bootflow_networks"], OFFICE]

    def entry(name: str) -> dict[str, object]:
        return {"name": name, "flavor": "small", "image": "counting", "networks": [{"network": "office"}]}

    elsewhere = {**flow.variables, "bootflow_physical_interface_mappings": {}}
    refused = flow.run(
        "boot", bootflow_instances=[entry("a")], **{k: v for k, v in elsewhere.items() if "mappings" in k}
    )
    assert refused.returncode == 2
    assert "physical network physnet1 is not in bootflow_physical_interface_mappings" in " ".join(
        refused.output.split()
    )
    flow.delete("a")

    assert flow.run("heartbeat").returncode == 0
    planned = flow.boot(entry("a"), options=("--check",), bootflow_hosts=[compute.name]).output
    assert "Network office: bridge vlbr100 and a VLAN device with VLAN 100 of physnet1 are made on" in planned
    for host, name in zip(hosts, "ab"):
        flow.boot(entry(name), bootflow_hosts=[host.name])
        assert devices(host, "vlbr100", device) == {"vlbr100", device}
        ports = json.loads(host.sh("ip -json link show master vlbr100"))
        assert len(ports) == 2, "the guest and the VLAN device"
    for number, host in enumerate(hosts, 201):
        host.sh("ip address add 10.81.0.%d/24 dev vlbr100" % number)
    # The machines have sshd, and no ping.
    compute.sh("python3 -c 'import socket; socket.create_connection((\"10.81.0.202\", 22), 60)'")
    counted = json.loads(compute.sh("ip -json -statistics link show dev %s" % device))[0]["stats64"]
    assert counted["tx"]["packets"] and counted["rx"]["packets"], "the frames had the tag"
    flow.delete("a", "b")
    done = flow.run("purge", bootflow_networks=[], bootflow_remove_unused_original_minimum_age_seconds=0)
    assert done.returncode == 0, done.output
    assert [devices(host, "vlbr100", device) for host in hosts] == [set(), set()]
