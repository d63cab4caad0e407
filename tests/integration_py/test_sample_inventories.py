# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The sample inventories as they are, but for what a user is told to insert: addresses, the image, the ledger's place."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import flow as flow_module
import pytest
from flow import PLAYBOOK, ROOT, Flow

READY = "BOOTFLOW-GUEST-READY"
SERVER = {"flavor": "m1.small", "image": "debian-12", "networks": [{"network": "servers"}], "key_name": "ops"}


class Fleet(Flow):
    """inventory/fleet, with the lab's hosts behind its names and the small guest as its image."""

    def arguments(self, playbook: str, variables: dict, *options: str) -> list[str]:
        inserted = {
            "ansible_ssh_private_key_file": self.lab.private_key,
            "bootflow_disk_allocation_ratio": 100.0,  # each of the three reports this machine's disk as its own
        }
        addresses = {"kvm%d.example.org" % n: {"ansible_host": h.address} for n, h in enumerate(self.lab.hosts, 1)}
        path = self.folder / "inserted.json"
        path.write_text(json.dumps({"bootflow_compute": {"hosts": addresses, "vars": inserted}}))
        known = {
            "bootflow_ledger_url": self.variables["bootflow_ledger_url"],
            "bootflow_images": [{**self.variables["bootflow_images"][0], "name": "debian-12"}],
            "ansible_host_key_checking": False,
            **variables,
        }
        extra = self.folder / "variables.json"
        extra.write_text(json.dumps(known))
        inventories = ["-i", str(ROOT / "inventory" / "fleet"), "-i", str(path)]
        return [PLAYBOOK, "bootflow.compute.%s" % playbook, *inventories, "-e", "@%s" % extra, *options]


@pytest.fixture
def fleet(flow: Flow, guest_image: Path, tmp_path: Path):
    for host in flow.lab.hosts:
        host.run("ip", "link", "add", "br0", "type", "bridge")
        host.run("ip", "link", "set", "br0", "up")
    yield Fleet(flow.lab, tmp_path, guest_image)
    for host in flow.lab.hosts:
        host.run("ip", "link", "delete", "br0")


@pytest.mark.long
def test_the_fleet_boots_by_its_zones_groups_and_flavors(fleet: Fleet) -> None:
    web = {**SERVER, "name": "web", "max_count": 3, "scheduler_hints": {"group": "web"}}
    there = {**SERVER, "name": "there", "availability_zone": "rack-b"}
    fleet.boot(web, there, bootflow_wait_console=READY)
    hosts = {name: row["host"] for name, row in fleet.instances().items()}
    assert {hosts["web-%d" % n] for n in (1, 2, 3)} == {"kvm1.example.org", "kvm2.example.org", "kvm3.example.org"}
    assert hosts["there"] == "kvm3.example.org"
    addresses = fleet.query("SELECT ip_address FROM ip_allocations")
    assert "192.0.2.100" in {row["ip_address"] for row in addresses}

    large = {**SERVER, "name": "large", "flavor": "m1.large"}
    fits = (os.cpu_count() or 1) >= 4
    plan = fleet.boot(large, options=("--check",), expect=0 if fits else 2).output
    assert "aggregate_instance_extra_specs:ssd" in plan, "of kvm2, which is in no aggregate with it"
    lost = fleet.boot({**large, "availability_zone": "rack-c"}, options=("--check",), expect=2).output
    assert "rack-a" in lost and "rack-b" in lost, lost

    listed = fleet.run("hosts").output
    zones = {line.split()[0]: line for line in listed.splitlines() if line.startswith("kvm")}
    assert "rack-a" in zones["kvm1.example.org"] and "rack-b" in zones["kvm3.example.org"], listed
    fleet.check_ledger()
    fleet.delete("web-1", "web-2", "web-3", "there")
    assert fleet.residue() == {}


@pytest.mark.long
def test_the_single_machine_does_everything_itself(flow: Flow) -> None:
    """The README's tour, run on a host of the lab."""
    host = flow.lab.hosts[0]
    image = flow_module.build_guest_image("--ssh")
    _remove_network(host, flow_module.GUEST_NETWORK["source"])  # of other tests, with the same addresses
    host.run("mkdir", "-p", "/var/lib/bootflow/images")
    host.run("cp", str(image), "/var/lib/bootflow/images/bootflow-guest.qcow2")
    host.run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", "/var/lib/bootflow/demo_ed25519")

    def typed(program: str, *options: str) -> str:
        variables = {
            "PATH": "%s:%s" % (Path(PLAYBOOK).parent, os.environ["PATH"]),
            "ANSIBLE_COLLECTIONS_PATH": os.environ["PYTHONPATH"].split(os.pathsep)[0],
            "ANSIBLE_LOCALHOST_WARNING": "false",
        }
        environment = ["env", "--chdir=%s" % ROOT, *("%s=%s" % pair for pair in variables.items())]
        done = subprocess.run(
            host.command(*environment, program, "-i", "inventory/single", *options),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=600,
            check=False,
        )
        assert done.returncode == 0, done.stdout
        return done.stdout

    def play(name: str, *options: str) -> str:
        return typed(PLAYBOOK, "bootflow.compute.%s" % name, *options)

    web = ("-e", "@docs/examples/web.yml")
    try:
        play("prepare")
        assert "host: kvm1, addresses: 10.77.0.10" in play("boot", *web, "--check")
        booted = play("boot", *web)
        assert booted.count("active") == 2, booted
        guests = ("-i", "docs/examples/guests.bootflow.yml", "instances", "-m", "ansible.builtin.ping")
        assert (
            typed(str(Path(PLAYBOOK).with_name("ansible")), *guests).count("pong") == 2
        )  # nothing is asked or ignored
        assert "changed=0" in play("boot", *web)
    finally:
        assert "web-1, web-2" in play("delete", "-e", '{"bootflow_names": ["web-1", "web-2"]}')
        _remove_network(host, "bootflow-demo")
        host.run(
            "rm", "-rf", "/var/lib/bootflow/images", "/var/lib/bootflow/demo_ed25519", "/var/lib/bootflow/ledger.db"
        )


def _remove_network(host, name: str) -> None:
    for verb in ("net-destroy", "net-undefine"):
        host.run("virsh", "-c", "qemu:///system", verb, name, check=False)
