# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a report leaves as it is."""

from __future__ import annotations

import typing as t

import pytest
from ansible.errors import AnsibleActionFail

from ansible_collections.bootflow.compute.plugins.action import audit, boot_accept, boot_schedule, compute_report
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.schema import tables
from ansible_collections.bootflow.compute.tests.unit.worlds.actions import WorldPorts, action_of, run_stage
from ansible_collections.bootflow.compute.tests.unit.worlds.world import World

HOSTS = ("h1", "h2", "h3")
OWN = {"h3": {"bootflow_availability_zone": "own"}}
IMAGE = {"name": "tiny", "disk_format": "qcow2", "allow_unverified": True, "url": "http://x.example/tiny.qcow2"}
VARIABLES: dict[str, t.Any] = {
    "bootflow_aggregates": [{"name": "a", "hosts": ["h1"], "availability_zone": "rack-a"}],
    "bootflow_default_availability_zone": "home",
    "bootflow_flavors": [{"name": "small", "memory_mb": 1024, "vcpus": 1, "root_gb": 1}],
    "bootflow_images": [IMAGE],
    "bootflow_instances": [{"name": "web", "flavor": "small", "image": "tiny", "networks": "none"}],
}
FACTS = {"memory_mb": 4096, "local_gb": 40, "vcpus": 4, "domains": []}


class Playbooks:
    """Tasks of playbooks in an inventory of three hosts."""

    def __init__(self, world: World):
        self.world = world
        self.registered: dict[str, dict[str, t.Any]] = {h: {} for h in ("localhost", *HOSTS)}
        self.world.time += 1

    def task(self, module: t.Any, host: str = "localhost", **options: t.Any) -> dict[str, t.Any]:
        groups = {"all": ["localhost", *HOSTS], "bootflow_compute": list(HOSTS)}
        inventory = {h: {**VARIABLES, **OWN.get(h, {}), **more} for h, more in self.registered.items()}
        variables = {"inventory_hostname": host, "groups": groups, "hostvars": inventory, **inventory[host]}
        ports = WorldPorts(
            self.world, "a", lambda _name, _arguments: {"compute_node": {**FACTS, "hypervisor_hostname": host}}
        )
        return run_stage(action_of(module, ports, variables, **options))

    def report(self) -> None:
        for host in HOSTS:
            self.task(compute_report, host)

    def audit(self) -> None:
        self.task(audit)
        for host in HOSTS:
            self.task(audit, host, phase="inspect")
        self.task(audit, phase="repair")

    def zones(self) -> dict[str, str]:
        return {r.host: r.availability_zone for r in self.world.rows(tables.compute_nodes)}


@pytest.mark.parametrize("again", ["report", "audit"])
def test_the_zone_of_an_aggregate_outlives_reports_and_audits(world: World, again: str) -> None:
    """Only what an inventory says of a host itself comes with its report; a boot knows the aggregates."""
    playbooks = Playbooks(world)
    playbooks.report()
    playbooks.task(boot_accept)
    playbooks.task(boot_schedule)
    zones = {"h1": "rack-a", "h2": "home", "h3": "own"}
    assert playbooks.zones() == zones
    getattr(playbooks, again)()
    assert playbooks.zones() == zones


def test_a_report_of_another_host_is_refused(world: World) -> None:
    """With delegate_to the answer would be written as that of the play's host."""
    ports = WorldPorts(world, "a", lambda _name, _arguments: {"compute_node": FACTS})
    action = action_of(compute_report, ports, {"inventory_hostname": "h1", "hostvars": {"h1": VARIABLES}})
    action._task.delegate_to = "h2"
    with pytest.raises(AnsibleActionFail, match="h2, whose answer would be written as that of h1"):
        action.act()
    assert not world.rows(tables.compute_nodes)
