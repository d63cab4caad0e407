# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""People learn which hosts activated the content of guests' disks, or may do so: from the reports of compute and storage hosts, and from the list of hosts."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.bootflow.compute.plugins.action import compute_report, hypervisor_info, storage_report
from ansible_collections.bootflow.compute.tests.unit.worlds.actions import WorldPorts, action_of
from ansible_collections.bootflow.compute.tests.unit.worlds.world import World

ACTIVE = "LVM guest/root on logical volume cinder-volumes/volume-1 is active"
NO_RULES = "udev has no rules for disks of guests, or older ones (/etc/udev/rules.d/61-bootflow-guests.rules)"
FACTS = {"hypervisor_hostname": "h1", "memory_mb": 4096, "local_gb": 40, "vcpus": 4, "domains": []}
CAPACITY = {"total_capacity_gb": 100.0, "free_capacity_gb": 90.0, "provisioned_capacity_gb": 10.0, "error": None}


def ports_of(world: World, answer: t.Mapping[str, t.Any]) -> tuple[WorldPorts, dict[str, t.Any]]:
    """What a task on h1, a compute and storage host, works with. :arg answer: of the host's module"""
    variables: dict[str, t.Any] = {"inventory_hostname": "h1", "groups": {"bootflow_compute": ["h1"]}}
    variables["groups"].update(all=["h1"], bootflow_storage=["h1"])
    own: dict[str, t.Any] = {"bootflow_storage_ip": "192.0.2.1", "bootflow_storage_backends": [{"name": "lvm"}]}
    variables.update(hostvars={"h1": own}, **own)
    return WorldPorts(world, "a", lambda _name, _arguments: dict(answer)), variables


def answers(content: list[str]) -> dict[t.Any, dict[str, t.Any]]:
    """Report -> what the host's module answers."""
    stats = {"guest_content": "; ".join(content)} if content else {}
    node = {**FACTS, "guest_content": content, "stats": stats}
    return {
        compute_report: {"compute_node": node},
        storage_report: {"backends": {"lvm": CAPACITY}, "targets": [], "guest_content": content},
    }


@pytest.mark.parametrize("report", [compute_report, storage_report])
@pytest.mark.parametrize("check_mode", [False, True])
def test_a_report_warns_of_what_is_active_and_of_what_is_missing(world: World, report: t.Any, check_mode: bool) -> None:
    ports, variables = ports_of(world, answers([ACTIVE, NO_RULES])[report])
    assert action_of(report, ports, variables, check_mode=check_mode).act()["reported"]
    words = "h1 is not safe from what guests write on their disks: %s; %s. Run bootflow.compute.prepare for it."
    assert ports.warnings == [words % (ACTIVE, NO_RULES)]


@pytest.mark.parametrize("report", [compute_report, storage_report])
def test_a_report_of_a_prepared_host_warns_of_nothing(world: World, report: t.Any) -> None:
    ports, variables = ports_of(world, answers([])[report])
    assert action_of(report, ports, variables).act()["reported"] and ports.warnings == []


def test_the_list_of_hosts_has_it_among_the_problems(world: World) -> None:
    ports, variables = ports_of(world, answers([ACTIVE, NO_RULES])[compute_report])
    action_of(compute_report, ports, variables).act()
    (view,) = action_of(hypervisor_info, ports, variables, print_table=True).act()["hypervisors"]
    words = "not safe from what guests write on their disks: %s; %s. Run bootflow.compute.prepare." % (ACTIVE, NO_RULES)
    assert view["problems"] == [words] and words in "\n".join(ports.shown)

    ports, variables = ports_of(world, answers([])[compute_report])
    world.time += 1
    action_of(compute_report, ports, variables).act()
    (view,) = action_of(hypervisor_info, ports, variables).act()["hypervisors"]
    assert view["problems"] == [], "it was prepared meanwhile"
